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
from typing import ClassVar

import torch
from torch import Tensor

from standfast.algorithms.searches.base import FEW, NAN_KEY, Outcome, Search, SearchRun, take_points
from standfast.algorithms.searches.grid import GridSearch
from standfast.errors import check
from standfast.neighbourhoods import Region
from standfast.neighbourhoods.choices import Choices
from standfast.records import Count, Share
from standfast.tensors import Streams, mix64, raise_power

_ROUNDS = 64  # of small budgets, about
_FEWEST = 16  # proposals of a round: batches have at least that many rows anyway
_ALIGNED = 8  # proposals of a round are a multiple of it, as the rows of a batch are
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
    name: ClassVar[str] = "choices"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Try all combinations of the problems that have few, and search among those of the others."""
        choices = run.region.choices
        expected = "a search for numbers within ranges, such as 'block', for a neighbourhood without candidates"
        check(choices is not None, "search", expected, repr(self.name))
        assert choices is not None
        run.exact = choices.complete & (choices.combinations <= run.left)
        few = run.exact.nonzero()[:, 0]
        many = (~run.exact).nonzero()[:, 0]
        has_grid = bool(choices.ordered.all()) and choices.counts.shape[1] <= FEW
        grid = None
        # few numbers, with or without steps: the grid covers them, and states a gap
        if has_grid and len(many):
            grid = run.begin_part(many)
            GridSearch().search(grid, streams.select(many.tolist()))
        proposers: list[_Enumeration | _Evolution] = [_Enumeration(run, few)] if len(few) else []
        count = min(self.proposals, max(_FEWEST, round(run.budget / _ROUNDS / _ALIGNED) * _ALIGNED))
        if not has_grid:
            proposers += self._divide(run, choices, many, streams, count)
        while run.left:
            _run_round(run, proposers, min(count, run.left))
        run.gap = torch.where(run.exact, 0.0, torch.nan).double()
        if grid is not None:
            run.take_part(many, grid)
            if grid.gap is not None:
                run.gap[many] = grid.gap.double()
        is_met = (run.kept.seen.violation <= 0) & (run.kept.key > NAN_KEY)
        run.gap = torch.where(run.exact & ~is_met, torch.inf, run.gap)

    def _divide(
        self, run: SearchRun, choices: Choices, rows: Tensor, streams: Streams, count: int
    ) -> Iterator[_Evolution]:
        """Searches of a few problems each, for memory; those of few combinations breed more, since many are known."""
        is_small = choices.combinations[rows] <= _FEW_COMBINATIONS
        for group, is_few in ((rows[is_small], True), (rows[~is_small], False)):
            bred = _BRED_AMONG_FEW if is_few else _BRED
            at_once = max(1, _ELEMENTS // (bred * count * choices.counts.shape[1]))
            at_once = min(at_once, _AT_ONCE) if is_few else at_once
            for part in torch.split(group, at_once):
                if len(part):
                    yield _Evolution(self, run, part, streams.select(part.tolist()), is_few)


def _run_round(run: SearchRun, proposers: Sequence[_Enumeration | _Evolution], count: int) -> None:
    """Evaluate `count` proposals for each problem that has any."""
    proposals = [proposer.propose(count) for proposer in proposers]
    sizes = [len(rows) for rows, _ in proposals]
    # no problem needs the round, but it counts: a trace must not depend on the other problems
    if not any(sizes):
        run.skip(count)
        return
    points = torch.cat([points for _, points in proposals])
    outcome = run.query(points, torch.cat([rows for rows, _ in proposals]))
    outcomes = zip(
        torch.split(outcome.value, sizes), torch.split(outcome.violation, sizes), strict=True
    )
    for proposer, (value, violation) in zip(proposers, outcomes, strict=True):
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
            return self.rows[:0], self.region.centre[:0, None].expand(-1, count, -1)
        left = self.ends > self.start
        numbers = self.choices.list_combinations(self.start, self.start + count)
        points = self.choices.place(numbers).to(self.region.dtype)
        self.start += count
        return self.rows[left], self.region.project(points)[left]

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
        self.depth = torch.where(
            self.is_range, _HALVINGS, torch.frexp(self.top).exponent.clamp(max=_HALVINGS)
        )
        self.is_ordered = choices.ordered | self.is_range
        self.lower, width = region.lower.double(), (region.upper - region.lower).double()
        self.width = width.clamp(min=torch.finfo(torch.float64).tiny)
        share = ((region.centre - region.lower) / self.width).clamp(0, 1)
        #: the settings of the clean inputs, `(P, D)`
        self.clean = torch.where(self.is_range, share, choices.clean.double())

    @property
    def size(self) -> int:
        """D."""
        return self.top.shape[1]

    def place(self, settings: Tensor) -> Tensor:
        """The points `(P, n, D)` of settings of that shape."""
        candidates = self.choices.place(settings.long())
        within = self.lower[:, None] + settings * self.width[:, None]
        points = torch.where(self.is_range[:, None], within, candidates)
        return self.region.project(points.to(self.region.dtype))

    def draw(self, u: Tensor) -> Tensor:
        """Settings of uniform numbers `(P, n, D)`, all equally probable."""
        top = self.top[:, None]
        return torch.where(self.is_range[:, None], u, torch.minimum((u * (top + 1)).floor(), top))

    def draw_other(self, settings: Tensor, u: Tensor) -> Tensor:
        """Settings of uniform numbers that differ from `settings`, all equally probable; all are `(P, n, D)`."""
        top = self.top[:, None]
        # one number less than there are candidates: that of the setting itself is left out
        number = torch.minimum((u * top).floor(), top - 1)
        return torch.where(self.is_range[:, None], u, number + (number >= settings))

    def nudge(self, settings: Tensor, u: Tensor) -> Tensor:
        """Neighbours of settings, up or down by the whole range, down to one candidate or a share of 2^-16."""
        top = self.top[:, None]
        up = u < 0.5
        # lengths of all orders of magnitude are equally likely, down to 2^-depth
        length = top * raise_power(2.0, -self.depth[:, None] * torch.where(up, 2 * u, 2 * u - 1))
        length = torch.where(self.is_range[:, None], length, length.round().clamp(min=1))
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
        self.space, self.rows = _Space(run.region.select(rows)), rows
        self.streams = streams
        self.most = search.elite
        self.is_few = is_few
        self.untried = _Untried(self.space.choices) if is_few else None
        clean = self.space.clean[:, None]
        self.singles = _Singles(self.space, max(1, int(search.singles * run.left)), streams)
        # by a table, since the last bits of torch's own logarithm depend on the batch
        logarithms = torch.tensor(
            [math.log(max(4.0, free / 2)) for free in range(self.space.size + 1)]
        )
        #: the logarithm of the largest number of parameters that a child changes, `(P, 1)`
        self.log_most = logarithms.double().to(clean.device)[
            self.space.is_free.sum(1, keepdim=True)
        ]
        #: how many combinations of each problem are still to be drawn, `(P, 1)`
        self.draws_left = torch.full_like(rows, int(_DRAWN * run.left))[:, None]
        self.best, self.best_key = clean, run.kept.key[rows][:, None]
        self.tried = _hash_settings(clean)
        self.settings, self.is_new = clean, torch.ones_like(self.tried, dtype=torch.bool)

    def propose(self, count: int) -> tuple[Tensor, Tensor]:
        """The numbers `(P,)` of the problems, and the next points `(P, count, D)` to evaluate."""
        planned, is_planned = self.singles.plan(count)
        has_plans = is_planned.any(1, keepdim=True)
        bred = _BRED_AMONG_FEW if self.is_few else _BRED
        children = self._breed(bred * count, torch.where(has_plans, 0, self.draws_left))
        self.draws_left = torch.where(has_plans, self.draws_left, self.draws_left - count)
        others = children
        if self.untried is not None:
            others = torch.cat([children, self.untried.list_next(count)], dim=1)
        pool = torch.cat([planned, others], dim=1)
        possible = torch.cat(
            [is_planned, torch.ones(others.shape[:2], dtype=torch.bool, device=pool.device)], dim=1
        )
        is_new = possible & self._find_new(pool, possible)
        # new ones in their order: planned ones, children, all others; what was evaluated before only fills the round
        rank = torch.where(is_new, 0, torch.where(possible, 1, 2))
        chosen = rank.argsort(dim=1, stable=True)[:, :count]
        self.settings, self.is_new = take_points(pool, chosen), is_new.gather(1, chosen)
        return self.rows, self.space.place(self.settings)

    def learn(self, seen: Outcome) -> None:
        """Learn from the outcome `(P, n)` of what was proposed last."""
        key = seen.key()
        if self.untried is not None:
            self.untried.mark(self.settings)
        self.tried = torch.cat([self.tried, _hash_settings(self.settings)], dim=1)
        self.singles.learn(self.settings, key)
        settings = torch.cat([self.best, self.settings], dim=1)
        # a setting that was evaluated before may stand among the best already
        keys = torch.cat([self.best_key, torch.where(self.is_new, key, NAN_KEY)], dim=1)
        order = keys.argsort(dim=1, descending=True, stable=True)[:, : self.most]
        self.best, self.best_key = take_points(settings, order), keys.gather(1, order)

    def _find_new(self, pool: Tensor, possible: Tensor) -> Tensor:
        """Which settings `(P, m, D)` were not evaluated and do not stand earlier among the possible ones, `(P, m)`."""
        hashes = _hash_settings(pool)
        tried = self.tried.sort(dim=1).values
        position = torch.searchsorted(tried, hashes).clamp(max=tried.shape[1] - 1)
        was_tried = tried.gather(1, position) == hashes
        # among equal hashes, which keep their order, all but the first; those that are not possible equal nothing
        number = torch.arange(hashes.shape[1], device=hashes.device).expand_as(hashes)
        ordered, order = torch.where(possible, hashes, number).sort(dim=1, stable=True)
        repeats = torch.zeros_like(possible)
        repeats[:, 1:] = ordered[:, 1:] == ordered[:, :-1]
        stands_earlier = torch.zeros_like(possible).scatter(1, order, repeats)
        return ~was_tried & ~stands_earlier

    def _breed(self, count: int, draws: Tensor) -> Tensor:
        """Children `(P, count, D)` of the best settings; the first `draws` `(P, 1)` are drawn from all combinations."""
        numbers = _ChildNumbers(self.streams, count, self.space.size)
        is_mixed = (numbers.kind >= _ANEW) & (numbers.kind < _ANEW + _MIXED)
        children = self._join_parents(numbers, is_mixed)
        changes = torch.exp(self.log_most * numbers.changes).floor()
        changes = torch.where(is_mixed, changes - 1, changes)  # mixing is a change, too
        is_changed = self._choose_changed(children, numbers, changes)
        children = torch.where(is_changed, self._change(children, numbers), children)
        is_drawn = numbers.kind < _ANEW
        is_drawn = is_drawn | (torch.arange(count, device=draws.device) < draws)
        return torch.where(is_drawn[..., None], self._draw(numbers), children)

    def _join_parents(self, numbers: _ChildNumbers, is_mixed: Tensor) -> Tensor:
        """Copies of the best settings, and where `is_mixed` `(P, n)` mixtures of two, `(P, n, D)`."""
        parents = self.best.shape[1]
        # the chance of a parent falls linearly from the best to the worst
        share = 1 - (1 - numbers.mother).sqrt()
        mother = (share * parents).long().clamp(max=parents - 1)
        father = (numbers.father * parents).long().clamp(max=parents - 1)
        is_of_father = is_mixed[..., None] & (numbers.mixture < 0.5)
        return torch.where(
            is_of_father, take_points(self.best, father), take_points(self.best, mother)
        )

    def _choose_changed(self, children: Tensor, numbers: _ChildNumbers, changes: Tensor) -> Tensor:
        """Which parameters of children change, bool `(P, n, D)`: `changes` `(P, n)` of each.

        A third of the children changes what is not clean as long as there is any, and a third what is clean. Else a
        child of settings that changed nearly everything would go back in nearly all of its changes.
        """
        is_clean = children == self.space.clean[:, None]
        wants_unclean = numbers.side[..., None] < 1 / 3
        wants_clean = ~wants_unclean & (numbers.side[..., None] < 2 / 3)
        comes_later = (wants_unclean & is_clean) | (wants_clean & ~is_clean)
        is_free = self.space.is_free[:, None]
        # `position` lies in [0, 1), so one more puts a parameter behind all others
        order = torch.where(is_free, numbers.position + comes_later, torch.inf)
        rank = order.argsort(dim=2).argsort(dim=2)
        return (rank < changes[..., None]) & is_free

    def _change(self, children: Tensor, numbers: _ChildNumbers) -> Tensor:
        """Another setting of each parameter: a neighbour for half of those with an order, else any other one."""
        is_nudged = self.space.is_ordered[:, None] & (numbers.manner < 0.5)
        neighbours = self.space.nudge(children, numbers.setting)
        others = self.space.draw_other(children, numbers.setting)
        return torch.where(is_nudged, neighbours, others)

    def _draw(self, numbers: _ChildNumbers) -> Tensor:
        """Settings in which few parameters are not clean, or many, or nearly all."""
        is_other = numbers.mixture < numbers.father[..., None]
        return torch.where(is_other, self.space.draw(numbers.setting), self.space.clean[:, None])


class _Untried:
    """Which of all combinations of P problems were not evaluated, in the order of a walk that meets each one once.

    Combination number c is met at step c / S modulo the number of combinations, with the stride S.
    """

    def __init__(self, choices: Choices) -> None:
        self.choices = choices
        self.totals = choices.combinations.long()[:, None]
        self.strides = _STRIDE % self.totals
        inverses = [
            pow(_STRIDE, -1, total) if total > 1 else 0 for total in self.totals.flatten().tolist()
        ]
        self.inverses = torch.tensor(inverses, device=self.totals.device)[:, None]
        #: the number of a combination is the sum of those of its candidates times these, `(P, D)`
        self.weights = choices.counts.cumprod(1) // choices.counts
        steps = torch.arange(int(self.totals.max()), device=self.totals.device)
        self.is_left = steps < self.totals
        self.mark(choices.clean[:, None].double())

    def mark(self, settings: Tensor) -> None:
        """Settings `(P, n, D)` are evaluated."""
        numbers = (settings.long() * self.weights[:, None]).sum(2)
        self.is_left = self.is_left.scatter(1, numbers * self.inverses % self.totals, False)

    def list_next(self, count: int) -> Tensor:
        """The next settings `(P, count, D)` that were not evaluated; the last ones again if there are fewer."""
        rank = self.is_left.cumsum(1, dtype=torch.int32)
        ranks = torch.arange(1, count + 1, device=rank.device, dtype=torch.int32).expand(
            len(rank), -1
        )
        steps = torch.searchsorted(rank, ranks.contiguous()).clamp(max=rank.shape[1] - 1)
        return self.choices.number_candidates(steps * self.strides % self.totals).double()


class _ChildNumbers:
    """The uniform numbers that make children, float64: five for each child `(P, n)`, four for each parameter."""

    def __init__(self, streams: Streams, count: int, size: int) -> None:
        uniform = streams.uniform((count, 5 + 4 * size), torch.float32).double()
        self.kind, self.mother, self.father, self.changes, self.side = uniform[..., :5].unbind(2)
        self.mixture, self.position, self.setting, self.manner = torch.split(
            uniform[..., 5:], size, dim=2
        )


class _Singles:
    """The single changes of P clean inputs, then stacks of the best ones.

    Args:
        space: the parameters.
        most: how many single changes a problem has at most.
        streams: of the problems.
    """

    def __init__(self, space: _Space, most: int, streams: Streams) -> None:
        self.space = space
        spread = max(_SPREAD, most // space.size) if space.size <= FEW else _SPREAD
        ordered = torch.where(space.is_range, float(spread), space.top.clamp(max=spread))
        #: how many single changes each parameter has, `(P, D)`, and all parameters up to each one
        self.amounts = torch.where(space.is_ordered, ordered, space.top).long() * space.is_free
        self.ends = self.amounts.cumsum(1)
        total = self.ends[:, -1:]
        self.count = total.clamp(max=most)
        # of more than fit, one from each of as many equal parts
        shift = streams.uniform((most,), torch.float64)
        steps = torch.arange(most, device=shift.device)
        spaced = ((steps + shift) * total / most).long()
        self.order = torch.where(total > most, spaced, steps).clamp(max=(total - 1).clamp(min=0))
        self.position = 0
        #: of each parameter the best single change so far, and its key
        self.best = space.clean
        self.best_key = torch.full(self.best.shape, NAN_KEY, device=self.best.device)
        sizes = torch.linspace(
            2, max(2, space.size), min(_STACKS, max(1, space.size - 1)), device=self.best.device
        )
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
        planned = torch.where(is_single[..., None], self._change(steps), self._stack(number))
        return planned, is_single | is_stack

    def _change(self, steps: Tensor) -> Tensor:
        """The single changes `(P, n, D)` with these numbers `(n,)`."""
        space = self.space
        chosen = self.order[:, steps.clamp(max=self.order.shape[1] - 1)]
        parameter = torch.searchsorted(self.ends, chosen, right=True).clamp(max=space.size - 1)
        amount, top, clean, end = (
            values.gather(1, parameter)
            for values in (self.amounts, space.top, space.clean, self.ends)
        )
        within = chosen - (end - amount)
        # all candidates but the clean one, or some that are spread evenly
        other = within + (within >= clean)
        evenly = within * top / (amount - 1).clamp(min=1)
        is_range = space.is_range.gather(1, parameter)
        setting = torch.where(
            amount == top, other.double(), torch.where(is_range, evenly, evenly.round())
        )
        changed = space.clean[:, None].expand(-1, len(steps), -1)
        return changed.scatter(2, parameter[..., None], setting[..., None])

    def _stack(self, number: Tensor) -> Tensor:
        """The stacks `(P, n, D)` with these numbers `(P, n)`."""
        sizes = self.stacks[number.clamp(0, len(self.stacks) - 1)]
        order = self.best_key.argsort(dim=1, descending=True, stable=True)
        rank = order.argsort(dim=1)
        is_in = (rank[:, None] < sizes[..., None]) & (self.best_key > NAN_KEY)[:, None]
        return torch.where(is_in, self.best[:, None], self.space.clean[:, None])

    def learn(self, settings: Tensor, key: Tensor) -> None:
        """Keep the best single change of each parameter, of settings `(P, n, D)` with these keys `(P, n)`."""
        differs = settings != self.space.clean[:, None]
        is_single = differs.sum(2) == 1
        keys = torch.where(differs & is_single[..., None], key[..., None], NAN_KEY)
        top, row = keys.max(dim=1)
        better = top > self.best_key
        self.best_key = torch.where(better, top, self.best_key)
        self.best = torch.where(better, settings.gather(1, row[:, None])[:, 0], self.best)


def _hash_settings(settings: Tensor) -> Tensor:
    """One number for settings `(P, n, D)`, int64 `(P, n)`; equal for equal ones, and for few others."""
    # -0.0 and 0.0 are the same setting with different bits
    bits = (settings + 0.0).contiguous().view(torch.int64)
    # an odd factor for each parameter, so that settings that swap their places differ
    odd = mix64(torch.arange(settings.shape[2], device=settings.device)) | 1
    return mix64((mix64(bits) * odd).sum(2))
