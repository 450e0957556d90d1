"""Search among candidates: all combinations where they fit the budget, else single changes and what they have taught.

Problem: `max value(x) subject to violation(x) <= 0` over a region some of whose parameters choose among candidates,
such as other words, other categories, or the steps of a number (`Region.choices`). Others may move within ranges.

- **All.** Where the combinations of all candidates fit the budget of a problem, each is evaluated, and the result is
  exact.
- **At most four numbers**, with or without steps, are searched on a grid.
- **Else** there are four kinds of proposals, a round of `proposals` at a time. None is evaluated twice while there are
  others: where nothing else is new, the next combinations of a walk through all.

  1. *Single changes* of the clean input: all of them, or a sample that is spread over all parameters, at most the share
     `singles` of the budget.
  2. *Stacks* of the best single changes: that of the best parameter, those of the best two, and so on.
  3. *Draws* from all combinations, a tenth of the budget.
  4. *Children* of the `elite` best inputs: one of these, or a mixture of two, with m other candidates in random places,
     where m is `floor(M^u)` for a uniform u, and M half of the parameters, at least 4. A candidate with an order
     moves along it half of the time. A small share of the children is drawn from all combinations.

Source: the second part is the greedy start of attacks on texts (Ren et al., "Generating natural language adversarial
examples through probability weighted word saliency", ACL 2019), the last one an evolution strategy (mu + lambda) that
remembers what it has tried. Putting them together, and the numbers, is ours.

Cost: `budget` evaluations for each problem, or as many as it has combinations.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.searches.base import (
    FEW,
    NAN_KEY,
    Outcome,
    Search,
    SearchRun,
    count_proposals,
    take_points,
)
from standfast.algorithms.searches.grid import GridSearch
from standfast.errors import check
from standfast.neighbourhoods import Region
from standfast.neighbourhoods.choices import Choices
from standfast.records import Count, Share
from standfast.tensors import Streams, mix64, raise_power

_BRED = 2  # children for each that is evaluated, since some were evaluated before
_BRED_AMONG_FEW = 8  # the same where there are few combinations
_FEW_COMBINATIONS = 1 << 16  # of which each one is marked when it is evaluated
_STRIDE = 1_000_000_007  # of the walk through these: a prime number, so that it meets each one once
_AT_ONCE = 128  # problems with few combinations, for memory
_ELEMENTS = 1 << 21  # settings of the children of a group of problems
_ANEW = 0.05  # of the children are drawn from all combinations
_DRAWN = 0.1  # of the budget goes to combinations that are drawn, after the stacks
_MIXED = 0.25  # of the children have two parents
_SPREAD = 10  # single changes of a parameter whose candidates have an order; of few parameters more
_HALVINGS = 16  # of a range, down to the smallest step
_STACKS = 16  # stacks of different sizes, at most


@dataclass(frozen=True)
class ChoiceSearch(Search):
    """All combinations of candidates; or single changes, stacks of the best of them, and children of the best inputs.

    Args:
        proposals: how many are evaluated at once at most. A round has about 1.5% of the budget, but at least 16.
        singles: share of the budget that single changes have at most.
        elite: how many of the best inputs have children.

    Raises:
        ArgumentError: in the call, a region in which nothing chooses among candidates.
    """

    proposals: Count = 80
    singles: Share = 0.5
    elite: Count = 8
    name = "choices"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Try all combinations of the problems that have few, and search among those of the others."""
        choices = run.region.choices
        expected = "a search for numbers within ranges, such as 'block', for a neighbourhood without candidates"
        check(choices is not None, "search", expected, repr(self.name))
        assert choices is not None
        run.exact = choices.complete & (choices.combinations <= run.left)
        few = run.exact.nonzero()[:, 0]
        many = (~run.exact).nonzero()[:, 0]
        parameters = choices.counts.shape[1]
        has_grid = bool(choices.ordered.all()) and parameters <= FEW
        grid = None
        # few numbers, with or without steps: the grid covers them, and states a gap
        if has_grid and len(many):
            grid = run.begin_part(many)
            streams_of_many = streams.select(many.tolist())
            GridSearch().search(grid, streams_of_many)
        proposers: list[_Enumeration | _Evolution] = []
        if len(few):
            proposers.append(_Enumeration(run, few))
        count = count_proposals(run.budget, self.proposals)
        if not has_grid:
            proposers += self._divide(run, choices, many, streams, count)
        while run.left:
            count_of_round = min(count, run.left)
            _run_round(run, proposers, count_of_round)
        run.gap = torch.where(run.exact, 0.0, torch.nan).double()
        if grid is not None:
            run.take_part(many, grid)
            if grid.gap is not None:
                run.gap[many] = grid.gap.double()
        best = run.kept
        is_met = (best.seen.violation <= 0) & (best.key > NAN_KEY)
        is_missed = run.exact & ~is_met
        run.gap = torch.where(is_missed, torch.inf, run.gap)

    def _divide(
        self, run: SearchRun, choices: Choices, rows: Tensor, streams: Streams, count: int
    ) -> Iterator[_Evolution]:
        """Searches of a few problems each, for memory; those of few combinations breed more, since many are known."""
        parameters = choices.counts.shape[1]
        is_small = choices.combinations[rows] <= _FEW_COMBINATIONS
        groups = ((rows[is_small], True), (rows[~is_small], False))
        for group, is_few in groups:
            bred = _BRED_AMONG_FEW if is_few else _BRED
            settings = bred * count * parameters
            at_once = max(1, _ELEMENTS // settings)
            if is_few:
                at_once = min(at_once, _AT_ONCE)
            for part in torch.split(group, at_once):
                if len(part):
                    streams_of_part = streams.select(part.tolist())
                    yield _Evolution(self, run, part, streams_of_part, is_few)


def _run_round(run: SearchRun, proposers: Sequence[_Enumeration | _Evolution], count: int) -> None:
    """Evaluate `count` proposals for each problem that has any."""
    rows: list[Tensor] = []
    points: list[Tensor] = []
    for proposer in proposers:
        rows_of_proposer, points_of_proposer = proposer.propose(count)
        rows.append(rows_of_proposer)
        points.append(points_of_proposer)
    sizes = [len(rows_of_proposer) for rows_of_proposer in rows]
    # no problem needs the round, but it counts: a trace must not depend on the other problems
    if not any(sizes):
        run.skip(count)
        return
    outcome = run.query(torch.cat(points), torch.cat(rows))
    values = torch.split(outcome.value, sizes)
    violations = torch.split(outcome.violation, sizes)
    for proposer, value, violation in zip(proposers, values, violations, strict=True):
        proposer.learn(Outcome(value, violation))


class _Enumeration:
    """All combinations of the candidates of some problems, a part at a time.

    Args:
        run: of all problems.
        rows: the numbers of these problems, `(P,)`.
    """

    def __init__(self, run: SearchRun, rows: Tensor) -> None:
        self.region, self.rows = run.region.select(rows), rows
        choices = self.region.choices
        assert choices is not None
        self.choices = choices
        self.ends = choices.combinations.long()
        self.last_end = int(self.ends.max())
        self.start = 0

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """The numbers `(Q,)` of the problems that have combinations left, and their next ones, `(Q, count, D)`."""
        if self.start >= self.last_end:
            no_points = self.region.centre[:0, None]
            return self.rows[:0], no_points.expand(-1, count, -1)
        left = self.ends > self.start
        numbers = self.choices.list_combinations(self.start, self.start + count)
        candidates = self.choices.place(numbers).to(self.region.dtype)
        points = self.region.project(candidates)
        self.start += count
        return self.rows[left], points[left]

    def learn(self, seen: Outcome) -> None:
        """All combinations come, whatever was seen."""


class _Space:
    """The D parameters of P problems as settings, float64: the number of a candidate, or a share of a range."""

    def __init__(self, region: Region) -> None:
        choices = region.choices
        assert choices is not None
        self.region = region
        self.choices = choices
        self.is_range = choices.counts == 0
        #: the largest setting of each parameter, `(P, D)`
        self.top = torch.where(self.is_range, 1, choices.counts - 1).double()
        self.is_free = self.top > 0
        #: how often the range of each parameter can be halved before one candidate is left, `(P, D)`
        halvings_of_counts = torch.frexp(self.top).exponent.clamp(max=_HALVINGS)
        self.depth = torch.where(self.is_range, _HALVINGS, halvings_of_counts)
        self.is_ordered = choices.ordered | self.is_range
        self.lower = region.lower.double()
        width = (region.upper - region.lower).double()
        tiny = torch.finfo(torch.float64).tiny
        self.width = width.clamp(min=tiny)
        offset = region.centre - region.lower
        share = (offset / self.width).clamp(0, 1)
        #: the settings of the clean inputs, `(P, D)`
        self.clean = torch.where(self.is_range, share, choices.clean.double())

    @property
    def size(self) -> int:
        """D."""
        return self.top.shape[1]

    def place(self, settings: Tensor) -> Tensor:
        """The points `(P, n, D)` of settings of that shape."""
        candidates = self.choices.place(settings.long())
        lower = self.lower[:, None]
        width = self.width[:, None]
        within = lower + settings * width
        is_range = self.is_range[:, None]
        points = torch.where(is_range, within, candidates)
        return self.region.project(points.to(self.region.dtype))

    def draw(self, u: Tensor) -> Tensor:
        """Settings of uniform numbers `(P, n, D)`, all equally probable."""
        top = self.top[:, None]
        is_range = self.is_range[:, None]
        number = (u * (top + 1)).floor()
        # rounding may lead to one more than there are
        number = torch.minimum(number, top)
        return torch.where(is_range, u, number)

    def draw_other(self, settings: Tensor, u: Tensor) -> Tensor:
        """Settings of uniform numbers that differ from `settings`, all equally probable; all are `(P, n, D)`."""
        top = self.top[:, None]
        is_range = self.is_range[:, None]
        # one number less than there are candidates: that of the setting itself is left out
        number = torch.minimum((u * top).floor(), top - 1)
        other = number + (number >= settings)
        return torch.where(is_range, u, other)

    def nudge(self, settings: Tensor, u: Tensor) -> Tensor:
        """Neighbours of settings, up or down by the whole range, down to one candidate or a share of 2^-16."""
        top = self.top[:, None]
        is_range = self.is_range[:, None]
        depth = self.depth[:, None]
        up = u < 0.5
        # u is uniform within its half, too
        share = torch.where(up, 2 * u, 2 * u - 1)
        # lengths of all orders of magnitude are equally likely, down to 2^-depth
        length = top * raise_power(2.0, -depth * share)
        whole_length = length.round().clamp(min=1)
        length = torch.where(is_range, length, whole_length)
        moved = torch.where(up, settings + length, settings - length)
        return torch.minimum(moved.clamp(min=0), top)


class _Evolution:
    """Single changes, stacks of the best of them, and children of the best inputs, for some problems.

    Args:
        search: its options.
        run: of all problems, after their centres were evaluated.
        rows: the numbers of these problems, `(P,)`.
        streams: their random streams.
        is_few: whether the problems have few combinations, of which many are soon known.
    """

    def __init__(
        self, search: ChoiceSearch, run: SearchRun, rows: Tensor, streams: Streams, is_few: bool
    ) -> None:
        self.space = _Space(run.region.select(rows))
        self.rows = rows
        self.streams = streams
        self.most = search.elite
        self.is_few = is_few
        self.untried = _Untried(self.space.choices) if is_few else None
        clean = self.space.clean[:, None]
        most_singles = max(1, int(search.singles * run.left))
        self.singles = _Singles(self.space, most_singles, streams)
        # by a table, since the last bits of torch's own logarithm depend on the batch
        table = [math.log(max(4.0, free / 2)) for free in range(self.space.size + 1)]
        logarithms = torch.tensor(table).double().to(clean.device)
        free_parameters = self.space.is_free.sum(1, keepdim=True)
        #: the logarithm of the largest number of parameters that a child changes, `(P, 1)`
        self.log_most = logarithms[free_parameters]
        draws = int(_DRAWN * run.left)
        #: how many combinations of each problem are still to be drawn, `(P, 1)`
        self.draws_left = torch.full_like(rows, draws)[:, None]
        self.best = clean
        self.best_key = run.kept.key[rows][:, None]
        self.tried = _hash_settings(clean)
        self.settings = clean
        self.is_new = torch.ones_like(self.tried, dtype=torch.bool)

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """The numbers `(P,)` of the problems, and the next points `(P, count, D)` to evaluate."""
        planned, is_planned = self.singles.plan(count)
        has_plans = is_planned.any(1, keepdim=True)
        bred = _BRED_AMONG_FEW if self.is_few else _BRED
        draws = torch.where(has_plans, 0, self.draws_left)
        others = self._breed(bred * count, draws)
        self.draws_left = torch.where(has_plans, self.draws_left, self.draws_left - count)
        if self.untried is not None:
            others = torch.cat([others, self.untried.list_next(count)], dim=1)
        pool = torch.cat([planned, others], dim=1)
        others_possible = torch.ones(others.shape[:2], dtype=torch.bool, device=pool.device)
        possible = torch.cat([is_planned, others_possible], dim=1)
        is_new = possible & self._find_new(pool, possible)
        # new ones in their order: planned ones, children, all others; what was evaluated before only fills the round
        rank_of_old = torch.where(possible, 1, 2)
        rank = torch.where(is_new, 0, rank_of_old)
        chosen = rank.argsort(dim=1, stable=True)[:, :count]
        self.settings = take_points(pool, chosen)
        self.is_new = is_new.gather(1, chosen)
        return self.rows, self.space.place(self.settings)

    def learn(self, seen: Outcome) -> None:
        """Learn from the outcome `(P, n)` of what was proposed last."""
        key = seen.key()
        if self.untried is not None:
            self.untried.mark(self.settings)
        hashes = _hash_settings(self.settings)
        self.tried = torch.cat([self.tried, hashes], dim=1)
        self.singles.learn(self.settings, key)
        settings = torch.cat([self.best, self.settings], dim=1)
        # a setting that was evaluated before may stand among the best already
        key_of_new = torch.where(self.is_new, key, NAN_KEY)
        keys = torch.cat([self.best_key, key_of_new], dim=1)
        order = keys.argsort(dim=1, descending=True, stable=True)
        best = order[:, : self.most]
        self.best = take_points(settings, best)
        self.best_key = keys.gather(1, best)

    def _find_new(self, pool: Tensor, possible: Tensor) -> Tensor:
        """Which settings `(P, m, D)` were not evaluated and do not stand earlier among the possible ones, `(P, m)`."""
        hashes = _hash_settings(pool)
        tried = self.tried.sort(dim=1).values
        last = tried.shape[1] - 1
        position = torch.searchsorted(tried, hashes).clamp(max=last)
        was_tried = tried.gather(1, position) == hashes
        # among equal hashes, which keep their order, all but the first; those that are not possible equal nothing
        number = torch.arange(hashes.shape[1], device=hashes.device).expand_as(hashes)
        compared = torch.where(possible, hashes, number)
        ordered, order = compared.sort(dim=1, stable=True)
        repeats = torch.zeros_like(possible)
        later = ordered[:, 1:]
        earlier = ordered[:, :-1]
        repeats[:, 1:] = later == earlier
        stands_earlier = torch.zeros_like(possible).scatter(1, order, repeats)
        return ~was_tried & ~stands_earlier

    def _breed(self, count: int, draws: Tensor) -> Tensor:
        """Children `(P, count, D)` of the best settings; the first `draws` `(P, 1)` are drawn from all combinations."""
        numbers = _ChildNumbers(self.streams, count, self.space.size)
        is_drawn = numbers.kind < _ANEW
        is_mixed = ~is_drawn & (numbers.kind < _ANEW + _MIXED)
        children = self._join_parents(numbers, is_mixed)
        changes = torch.exp(self.log_most * numbers.changes).floor()
        # mixing is a change, too
        changes = torch.where(is_mixed, changes - 1, changes)
        is_changed = self._choose_changed(children, numbers, changes)
        changed = self._change(children, numbers)
        children = torch.where(is_changed, changed, children)
        is_among_first = torch.arange(count, device=draws.device) < draws
        is_drawn = (is_drawn | is_among_first)[..., None]
        return torch.where(is_drawn, self._draw(numbers), children)

    def _join_parents(self, numbers: _ChildNumbers, is_mixed: Tensor) -> Tensor:
        """Copies of the best settings, and where `is_mixed` `(P, n)` mixtures of two, `(P, n, D)`."""
        parents = self.best.shape[1]
        # the chance of a parent falls linearly from the best to the worst
        share = 1 - (1 - numbers.mother).sqrt()
        mother = (share * parents).long().clamp(max=parents - 1)
        father = (numbers.father * parents).long().clamp(max=parents - 1)
        of_mother = take_points(self.best, mother)
        of_father = take_points(self.best, father)
        takes_father = is_mixed[..., None] & (numbers.mixture < 0.5)
        return torch.where(takes_father, of_father, of_mother)

    def _choose_changed(self, children: Tensor, numbers: _ChildNumbers, changes: Tensor) -> Tensor:
        """Which parameters of children change, bool `(P, n, D)`: `changes` `(P, n)` of each.

        A third of the children changes what is not clean as long as there is any, and a third what is clean. Else a
        child of settings that changed nearly everything would go back in nearly all of its changes.
        """
        clean = self.space.clean[:, None]
        is_clean = children == clean
        # a third of the children prefers parameters that are not clean, a third those that are
        side = numbers.side[..., None]
        wants_unclean = side < 1 / 3
        wants_clean = ~wants_unclean & (side < 2 / 3)
        comes_later = (wants_unclean & is_clean) | (wants_clean & ~is_clean)
        is_free = self.space.is_free[:, None]
        # `position` lies in [0, 1), so one more puts a parameter behind all others
        position = numbers.position + comes_later
        order = torch.where(is_free, position, torch.inf).argsort(dim=2)
        rank = order.argsort(dim=2)
        is_chosen = rank < changes[..., None]
        return is_chosen & is_free

    def _change(self, children: Tensor, numbers: _ChildNumbers) -> Tensor:
        """Another setting of each parameter: a neighbour for half of those with an order, else any other one."""
        is_ordered = self.space.is_ordered[:, None]
        is_nudged = is_ordered & (numbers.manner < 0.5)
        neighbours = self.space.nudge(children, numbers.setting)
        others = self.space.draw_other(children, numbers.setting)
        return torch.where(is_nudged, neighbours, others)

    def _draw(self, numbers: _ChildNumbers) -> Tensor:
        """Settings in which few parameters are not clean, or many, or nearly all."""
        share_of_others = numbers.father[..., None]
        is_other = numbers.mixture < share_of_others
        others = self.space.draw(numbers.setting)
        clean = self.space.clean[:, None]
        return torch.where(is_other, others, clean)


class _Untried:
    """Which of all combinations of P problems were not evaluated, in the order of a walk that meets each one once.

    Combination number c is met at step c / S modulo the number of combinations, with the stride S.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.totals = choices.combinations.long()[:, None]
        self.strides = _STRIDE % self.totals
        inverses: list[int] = []
        for total in self.totals.flatten().tolist():
            # nothing has an inverse among the remainders of 1
            inverse = pow(_STRIDE, -1, total) if total > 1 else 0
            inverses.append(inverse)
        self.inverses = torch.tensor(inverses, device=self.totals.device)[:, None]
        #: the number of a combination is the sum of those of its candidates times these, `(P, D)`
        self.weights = choices.counts.cumprod(1) // choices.counts
        most = int(self.totals.max())
        steps = torch.arange(most, device=self.totals.device)
        self.is_left = steps < self.totals
        clean = choices.clean[:, None].double()
        self.mark(clean)

    def mark(self, settings: Tensor) -> None:
        """Settings `(P, n, D)` are evaluated."""
        weights = self.weights[:, None]
        numbers = (settings.long() * weights).sum(2)
        steps = numbers * self.inverses % self.totals
        self.is_left = self.is_left.scatter(1, steps, False)

    def list_next(self, count: int) -> Tensor:
        """The next settings `(P, count, D)` that were not evaluated; the last ones again if there are fewer."""
        # how many are left up to each step
        rank = self.is_left.cumsum(1, dtype=torch.int32)
        wanted_ranks = torch.arange(1, count + 1, device=rank.device, dtype=torch.int32)
        wanted_ranks = wanted_ranks.expand(len(rank), -1).contiguous()
        last = rank.shape[1] - 1
        steps = torch.searchsorted(rank, wanted_ranks).clamp(max=last)
        combinations = steps * self.strides % self.totals
        return self.choices.number_candidates(combinations).double()


class _ChildNumbers:
    """The uniform numbers that make children, float64: five for each child `(P, n)`, four for each parameter."""

    def __init__(self, streams: Streams, count: int, size: int) -> None:
        numbers = 5 + 4 * size
        uniform = streams.uniform((count, numbers), torch.float32).double()
        of_child = uniform[..., :5].unbind(2)
        of_parameters = torch.split(uniform[..., 5:], size, dim=2)
        self.kind, self.mother, self.father, self.changes, self.side = of_child
        self.mixture, self.position, self.setting, self.manner = of_parameters


class _Singles:
    """The single changes of P clean inputs, then stacks of the best ones.

    Args:
        space: the parameters.
        most: how many single changes a problem has at most.
        streams: of the problems.
    """

    def __init__(self, space: _Space, most: int, streams: Streams) -> None:
        self.space = space
        spread = _SPREAD
        if space.size <= FEW:
            spread = max(_SPREAD, most // space.size)
        candidates = space.top.clamp(max=spread)
        ordered = torch.where(space.is_range, float(spread), candidates)
        amounts = torch.where(space.is_ordered, ordered, space.top).long()
        #: how many single changes each parameter has, `(P, D)`, and all parameters up to each one
        self.amounts = amounts * space.is_free
        self.ends = self.amounts.cumsum(1)
        total = self.ends[:, -1:]
        self.count = total.clamp(max=most)
        # of more than fit, one from each of as many equal parts
        shift = streams.uniform((most,), torch.float64)
        steps = torch.arange(most, device=shift.device)
        spaced = ((steps + shift) * total / most).long()
        order = torch.where(total > most, spaced, steps)
        last = (total - 1).clamp(min=0)
        self.order = order.clamp(max=last)
        self.position = 0
        #: of each parameter the best single change so far, and its key
        self.best = space.clean
        device = self.best.device
        self.best_key = torch.full(self.best.shape, NAN_KEY, device=device)
        largest = max(2, space.size)
        stacks = min(_STACKS, max(1, space.size - 1))
        sizes = torch.linspace(2, largest, stacks, device=device)
        self.stacks = sizes.round().long()
        #: when the stacks of each problem begin: at the first round after its single changes
        self.stacks_begin = torch.full_like(self.count, -1)

    def plan(self, count: int) -> tuple[Tensor, Tensor]:
        """The next single changes or stacks `(P, count, D)`, and which of them are to be evaluated, `(P, count)`."""
        steps = torch.arange(self.position, self.position + count, device=self.count.device)
        ready = (self.stacks_begin < 0) & (self.position >= self.count)
        self.stacks_begin = torch.where(ready, self.position, self.stacks_begin)
        self.position += count
        is_single = steps < self.count
        number = steps - self.stacks_begin
        is_stack = (self.stacks_begin >= 0) & (number < len(self.stacks))
        changes = self._change(steps)
        stacks = self._stack(number)
        planned = torch.where(is_single[..., None], changes, stacks)
        return planned, is_single | is_stack

    def _change(self, steps: Tensor) -> Tensor:
        """The single changes `(P, n, D)` with these numbers `(n,)`."""
        space = self.space
        last = self.order.shape[1] - 1
        chosen = self.order[:, steps.clamp(max=last)]
        parameter = torch.searchsorted(self.ends, chosen, right=True).clamp(max=space.size - 1)
        amount = self.amounts.gather(1, parameter)
        top = space.top.gather(1, parameter)
        clean = space.clean.gather(1, parameter)
        begin = self.ends.gather(1, parameter) - amount
        within = chosen - begin
        # all candidates but the clean one, or some that are spread evenly
        other = within + (within >= clean)
        steps_between = (amount - 1).clamp(min=1)
        evenly = within * top / steps_between
        is_range = space.is_range.gather(1, parameter)
        spread = torch.where(is_range, evenly, evenly.round())
        setting = torch.where(amount == top, other.double(), spread)
        copies = space.clean[:, None].expand(-1, len(steps), -1)
        return copies.scatter(2, parameter[..., None], setting[..., None])

    def _stack(self, number: Tensor) -> Tensor:
        """The stacks `(P, n, D)` with these numbers `(P, n)`."""
        last = len(self.stacks) - 1
        sizes = self.stacks[number.clamp(0, last)]
        order = self.best_key.argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)
        is_among_best = rank[:, None] < sizes[..., None]
        has_change = self.best_key > NAN_KEY
        is_in = is_among_best & has_change[:, None]
        best = self.best[:, None]
        clean = self.space.clean[:, None]
        return torch.where(is_in, best, clean)

    def learn(self, settings: Tensor, key: Tensor) -> None:
        """Keep the best single change of each parameter, of settings `(P, n, D)` with these keys `(P, n)`."""
        clean = self.space.clean[:, None]
        differs = settings != clean
        is_single = differs.sum(2) == 1
        is_the_change = differs & is_single[..., None]
        keys = torch.where(is_the_change, key[..., None], NAN_KEY)
        top, row = keys.max(dim=1)
        setting = settings.gather(1, row[:, None])[:, 0]
        better = top > self.best_key
        self.best_key = torch.where(better, top, self.best_key)
        self.best = torch.where(better, setting, self.best)


def _hash_settings(settings: Tensor) -> Tensor:
    """One number for settings `(P, n, D)`, int64 `(P, n)`; equal for equal ones, and for few others."""
    # -0.0 and 0.0 are the same setting with different bits
    positive_zeros = settings + 0.0
    bits = positive_zeros.contiguous().view(torch.int64)
    # an odd factor for each parameter, so that settings that swap their places differ
    number = torch.arange(settings.shape[2], device=settings.device)
    odd = mix64(number) | 1
    mixed = mix64(bits) * odd
    return mix64(mixed.sum(2))
