"""Structured random search: change shrinking blocks of the input, and keep a change that improves.

Problem: `max value(x) subject to violation(x) <= 0` over the region. The objective is a black box, and each problem has
one incumbent. The search starts at the best of some vertices of the box that are constant on coarse patches. Then each
proposal changes one contiguous block (of an image, a series or a flat vector; in a random set of channels) by one of
the moves below. A round evaluates `proposals` points at once. The best replaces the incumbent if `Outcome.key` prefers
it (feasible points by value, the others by violation). The moves:

- `vertex`: the block becomes constant, at one end of the box, more likely at the one further from its middle;
- `centre`: the block goes back to the centre;
- `scale`: the block's offset from the centre shrinks by a random factor;
- `nudge`: the block moves up or down by a share of the box from 1 to 2^-8;
- `relax`: the offset of the whole input shrinks or grows by such a share.

In a box the move is `vertex` as long as the incumbent violates the constraint or has a better value than the centre.
Where leaving the centre costs value, and in an L2 ball, a move is drawn in proportion to its recent successes. A small
share of the moves is drawn uniformly at random. The share of the features in a block falls from `start` to a single
feature as `(1 - spent / budget)^power`.

A round also tells what each single change does to the value and to the violation. The next round therefore tries
`merges` combinations of them: all that pay if both were linear in the changes (a fractional knapsack, see
`_choose_changes`), the better half, the better quarter. Combinations trade one block for another, so the search also
moves along a tight constraint.

In a region of few parameters, such as an angle, the search does not start at a vertex. A third of its budget goes to
points that are spread over the box, it starts at the best of them, and all moves serve from the start.

Blocks are placed where changes have made a difference, and where no block was tried recently (`_Influence`).

Source: Andriushchenko et al., "Square Attack: a query-efficient black-box adversarial attack via random search" (ECCV
2020). We depart from it as follows. Many proposals are evaluated at once, for full batches, and combined. The share
falls along a smooth curve, not by a table, and the blocks of one round have several sizes. A block takes the opposite
vertex, since a random one is half the time the vertex where it was. Places are learnt, not uniform. The moves besides
`vertex` are ours, because the most similar explanation under a changed class (SAFARI's second kind) lies on the
decision boundary and not in a corner. In an L2 ball a vertex is one of a random smaller box, of half width between
`radius / sqrt(features)` and `radius`, and every proposal is projected.

Cost: `budget` evaluations for each problem, the first of them at the centre.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor

from standfast.algorithms.searches.base import (
    FEW,
    NAN_KEY,
    Incumbent,
    Search,
    SearchRun,
    count_proposals,
    draw_starts,
    searches,
    take_points,
)
from standfast.neighbourhoods import Region
from standfast.records import Count, Range, Share
from standfast.tensors import Streams, broadcast_rows, is_on_host, raise_power

_MOVES = 5
_VERTEX, _CENTRE, _SCALE, _NUDGE, _RELAX = range(_MOVES)
_AHEAD = 8  # rounds for which random numbers are drawn at once
# the shares of the blocks of one round lie between the current one over and times this
_SPREAD = 3.0
_MARGIN = 0.02  # of a typical change of the violation
_PATCHES = 7  # along each axis, in the vertices to start from


@searches.register("block")
@dataclass(frozen=True)
class BlockSearch(Search):
    """Structured random search after Square Attack, with moves that also leave the corners.

    Args:
        proposals: how many are evaluated at once at most, and so how large a batch one problem fills. A round has about
            1.5% of the budget, in multiples of 8, but at least 16: more rounds are worth more than larger ones.
        merges: how many combinations of the last round's changes are among them.
        starts: how many patchwork vertices are tried first, at most a tenth of the budget.
        start: share of the features in the first blocks.
        power: how fast blocks shrink.
        explore: share of moves drawn at random instead of by success.
        memory: the factor by which the weight of a success falls with each further round.
    """

    proposals: Count = 80
    merges: Count = 3
    starts: Count = 400
    start: Share = 0.1
    power: Annotated[float, Range(least=0)] = 4.0
    explore: Share = 0.02
    memory: Annotated[float, Range(least=0, below=1)] = 0.98
    name = "block"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Query vertices, then one round of proposals after the other."""
        # the optimum may be anywhere, and there are few vertices
        if run.region.shape.numel() <= FEW:
            count = min(run.left, max(1, run.budget // 3))
            run.query(draw_starts(run.region, count, streams))
            self.refine(run, streams, 1.0)
            return
        canvas = _Canvas(run.region)
        home = run.kept.seen
        vertices = min(self.starts, max(1, run.budget // 10))
        x = canvas.patchwork(vertices, streams)
        # the incumbent is the best vertex, not the centre, which is often feasible and hard to leave
        centre = run.region.centre[:, None]
        now = Incumbent(centre, home, torch.full_like(run.kept.key, NAN_KEY))
        now.accept(x, run.query(x))
        # where all vertices gave NaN
        now.key = torch.where(now.key == NAN_KEY, home.key(), now.key)

        def leaves_corners() -> Tensor:
            # in a box corners serve while leaving the centre gains value; where it costs value, and in a ball, any move
            return (now.key > 0) & (now.seen.value < home.value)

        self._improve(run, streams, canvas, now, self.start, leaves_corners)

    def refine(self, run: SearchRun, streams: Streams, start: float) -> None:
        """Spend what is left of the budget on any moves of the best point; the first blocks have the share `start`."""
        now = Incumbent(run.kept.x, run.kept.seen, run.kept.key)

        def leaves_corners() -> Tensor:
            return torch.ones_like(now.key, dtype=torch.bool)

        self._improve(run, streams, _Canvas(run.region), now, start, leaves_corners)

    def _improve(
        self,
        run: SearchRun,
        streams: Streams,
        canvas: _Canvas,
        now: Incumbent,
        start: float,
        leaves_corners: Callable[[], Tensor],
    ) -> None:
        """Rounds of proposals, from the incumbent `now`, until the budget is spent."""
        region = run.region
        device = region.device
        first = run.spent
        count = count_proposals(run.budget, self.proposals)
        corner = torch.eye(_MOVES, dtype=torch.float64, device=device)[_VERTEX]
        credit = torch.ones(len(region), _MOVES, dtype=torch.float64, device=device)
        influence = _Influence(len(region), canvas.size, device)
        strata = torch.arange(count, device=device, dtype=torch.float32)
        # neighbours in the order of places get sides of different sizes: 37 has no divisor in common with most counts
        shuffled = (strata * 37 + 0.5) % count
        spread = _SPREAD ** (2 * shuffled / count - 1)
        # a call for each stream takes as long as many numbers
        rounds = _AHEAD if is_on_host(device) else 1
        merged = fresh = None
        drawn: list[Tensor] = []
        while run.left:
            if not drawn:
                numbers = streams.uniform((rounds, count, canvas.draws), torch.float32)
                drawn = list(numbers.unbind(1))
            u = drawn.pop(0)[:, : run.left]
            proposals = u.shape[1]
            if region.radius is None:
                inner = leaves_corners()
            else:
                inner = torch.ones_like(now.key, dtype=torch.bool)
            credit_share = credit / credit.sum(1, keepdim=True)
            credit_share = torch.where(inner[:, None], credit_share, corner)
            chance = self.explore / _MOVES + (1 - self.explore) * credit_share
            number_of_move = u[..., 0].double().contiguous()
            move = torch.searchsorted(chance.cumsum(1), number_of_move).clamp(max=_MOVES - 1)
            spent_share = (run.spent - first) / (run.budget - first)
            share = start * (1 - spent_share) ** self.power
            side = canvas.sides(share * spread[:proposals])
            stratified = (strata[:proposals] + u[..., 1]) / count
            feature = influence.draw(stratified)
            block, middle = canvas.place_block(side, feature)
            y, inside = canvas.propose(now.x, move, block, middle, u[..., 2:])
            single = torch.ones_like(move, dtype=torch.bool)
            # combinations take the place of the first proposals
            if merged is not None and fresh is not None:
                rows = min(merged.shape[1], proposals)
                stays = ~fresh[:, :rows]
                single[:, :rows] = stays
                changed = y[:, :rows]
                stays_everywhere = broadcast_rows(stays, changed)
                y[:, :rows] = torch.where(stays_everywhere, changed, merged[:, :rows])
            outcome = run.query(y)
            gain = outcome.value - now.seen.value[:, None]
            rise = outcome.violation - now.seen.violation[:, None]
            rise = rise.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            influence.learn(block, single, gain)
            better = (outcome.key() > now.key[:, None]) & single
            remembered = self.memory * credit + (1 - self.memory) * 1e-2
            credit = remembered.scatter_add(1, move, better.double())
            now.accept(y, outcome)
            usable = single & (move != _RELAX) & gain.isfinite()
            amounts, score = _choose_changes(
                torch.where(usable, gain, 0.0).double(),
                torch.where(usable, rise, 0.0).double(),
                now.seen.violation.double(),
                self.merges,
            )
            merged = canvas.merge(now.x, y, inside, amounts, score)
            fresh = (amounts > 0).sum(2) > 1


class _Canvas:
    """The P inputs as channels over a line, a plane, ...: `(P, n, C, S)`, where S is the product of the extents."""

    def __init__(self, region: Region) -> None:
        shape = tuple(region.shape)
        self.region = region
        # a vector of features is a line of one channel
        self.channels = 1
        self.extents = shape
        if len(shape) > 1:
            self.channels = shape[0]
            self.extents = shape[1:]
        self.size = math.prod(self.extents)
        flat = (len(region), 1, self.channels, self.size)
        self.centre = region.centre.reshape(flat)
        self.lower = region.lower.reshape(flat)
        self.upper = region.upper.reshape(flat)
        #: how many random numbers one proposal uses: move, place, box, amount, sign, end, channels
        self.draws = 6 + self.channels

    def patchwork(self, count: int, streams: Streams) -> Tensor:
        """Random vertices `(P, count, *shape)`, constant on patches, `_PATCHES` of them along each axis."""
        patches = [min(_PATCHES, extent) for extent in self.extents]
        up = streams.uniform((count, self.channels, *patches), torch.float32) < 0.5
        for axis, (extent, parts) in enumerate(zip(self.extents, patches, strict=True)):
            position = torch.arange(extent, device=up.device)
            patch = position * parts // extent
            up = up.index_select(3 + axis, patch)
        up = up.flatten(3)
        smallest = torch.zeros(up.shape[:2], device=up.device)
        lower, upper = self._box(smallest)
        return self._project(torch.where(up, upper, lower))

    def propose(
        self, x: Tensor, move: Tensor, block: Tensor, middle: Tensor, u: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Changed copies `(P, n, *shape)` of the incumbents `x` `(P, 1, *shape)`, and where each was changed.

        `move` `(P, n)`, `u` uniform; the places are bool `(P, n, C, S)`.
        """
        x = x.reshape(self.centre.shape)
        n = move.shape[1]
        sizes = [1, 1, 1, 1, self.channels]
        box, amount, sign, end, channels = torch.split(u, sizes, dim=2)
        chosen = channels < 0.5
        inside = block[:, :, None].clone()
        if self.channels > 1:
            # at least one channel changes: where none was drawn, all do
            none_chosen = ~chosen.any(2, keepdim=True)
            inside = inside & (chosen | none_chosen)[..., None]
        lower, upper = self._box(box[..., 0])
        index = middle[..., None, None].expand(-1, -1, self.channels, 1)
        at, low, high = (
            values.expand(-1, n, -1, -1).gather(3, index) for values in (x, lower, upper)
        )
        # from inside the box either end; the further one is the likelier
        goes_up = at - low < end[..., None] * (high - low)
        y = torch.where(goes_up, upper, lower)
        # in a box few are no vertices; a card changes all rather than ask which
        few = is_on_host(move)
        rows: tuple[Tensor | slice, ...] = (slice(None),)
        if few:
            rows = torch.nonzero(move != _VERTEX, as_tuple=True)
        kind = move[rows]
        part = amount[rows].to(x.dtype)
        goes_down = sign[rows] < 0.5
        direction = torch.where(goes_down, -1.0, 1.0).to(x.dtype)
        step = direction * raise_power(2.0, -8 * part)
        now, centre, width = (
            features.expand(-1, n, -1, -1)[rows] for features in (x, self.centre, upper - lower)
        )
        changed = _change_inside(kind, now, centre, width, part, step)
        if not few:
            is_vertex = broadcast_rows(kind == _VERTEX, y)
            changed = torch.where(is_vertex, y, changed)
        y[rows] = changed
        inside[rows] |= (kind == _RELAX)[..., None, None]
        return self._project(torch.where(inside, y, x)), inside

    def merge(self, x: Tensor, y: Tensor, inside: Tensor, amounts: Tensor, score: Tensor) -> Tensor:
        """Combinations `(P, T, *shape)` of the changes `y` `(P, n, *shape)`, made in `inside`, of incumbents `x`.

        Combination t moves features by `amounts` `(P, T, n)` of the way to where the changes have them; a feature that
        several changes contain goes to the one with the highest `score` `(P, n)`.
        """
        # most changes are in no combination, and the first has those of all others
        in_first = amounts[:, 0] > 0
        most = int(in_first.sum(1).max())  # the only value that a round reads
        order = in_first.to(torch.int8).argsort(dim=1, descending=True, stable=True)
        used = order[:, : max(1, most)]
        x = x.reshape(self.centre.shape)
        y = take_points(y, used).reshape(*used.shape, self.channels, self.size)
        inside = take_points(inside, used)
        score = score.gather(1, used)
        merged = []
        for amount_of_all in amounts.unbind(1):
            amount = take_points(amount_of_all, used)
            rank = torch.where(amount > 0, score, -torch.inf)[..., None, None]
            rank_inside = torch.where(inside, rank, -torch.inf)
            top, owner = rank_inside.max(dim=1, keepdim=True)
            amount_of_features = amount.to(x.dtype)[..., None, None]
            share = amount_of_features.expand(-1, -1, *x.shape[2:])
            moved = torch.lerp(x, y.gather(1, owner), share.gather(1, owner))
            merged.append(torch.where(top > -torch.inf, moved, x))
        return self._project(torch.cat(merged, dim=1))

    def sides(self, share: Tensor) -> Tensor:
        """Sides `(n,)` of blocks with these shares of the features, at least 1."""
        # a block has as many equal sides as there are axes
        features = share * self.size
        side = features.pow(1 / len(self.extents))
        return side.round().clamp(min=1).to(torch.int64)

    def place_block(self, side: Tensor, place: Tensor) -> tuple[Tensor, Tensor]:
        """The block of each side `(n,)` around each feature `place` `(P, n)`, within the canvas.

        Returns:
            A mask `(P, n, S)` and the block's middle `(P, n)`.
        """
        mask = torch.ones((*place.shape, 1), dtype=torch.bool, device=place.device)
        middle = torch.zeros_like(place)
        stride = self.size
        for extent in self.extents:
            stride //= extent
            length = side.clamp(max=extent)
            position = place // stride % extent
            first = (position - length // 2).clamp(min=0)
            first = torch.minimum(first, extent - length)
            line = torch.arange(extent, device=place.device) - first[..., None]
            is_within = (line >= 0) & (line < length[:, None])
            mask = mask[..., None] & is_within[:, :, None]
            mask = mask.flatten(2)
            middle = middle * extent + first + length // 2
        return mask, middle

    def _box(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the box for each proposal; in an L2 ball those of a smaller box, whose size `u` `(P, n)` sets."""
        if self.region.radius is None:
            return self.lower, self.upper
        features = self.channels * self.size
        # from radius / sqrt(features), whose corners lie on the sphere, to the radius
        share = raise_power(features, -0.5 * (1 - u))
        width = self.region.radius * share[..., None, None].to(self.centre.dtype)
        lower = torch.maximum(self.lower, self.centre - width)
        upper = torch.minimum(self.upper, self.centre + width)
        return lower, upper

    def _project(self, x: Tensor) -> Tensor:
        points = x.reshape(*x.shape[:2], *self.region.shape)
        return self.region.project(points)


class _Influence:
    """Where a change makes a difference, learnt from the proposals of each problem, and where none was tried recently.

    Most features of a picture hardly matter, and a feature that was just tried without success is not worth another
    try soon. So a place is drawn in proportion to its mean change of value per feature, times the number of rounds
    since it was last in a block, mixed with a small share of the mean.
    """

    _FADE = 0.999
    _PRIOR = 0.5
    _FLOOR = 0.1

    def __init__(self, problems: int, size: int, device: torch.device) -> None:
        shape = (problems, size)
        self._change = torch.zeros(shape, dtype=torch.float64, device=device)
        self._tries = torch.zeros_like(self._change)
        self._idle = torch.zeros_like(self._change)

    def draw(self, u: Tensor) -> Tensor:
        """Features `(P, n)` for uniform numbers of that shape."""
        # sums along a row by cumsum: its bits do not depend on the number of rows
        changes = self._change.cumsum(1)[:, -1:]
        tries = self._tries.cumsum(1)[:, -1:]
        mean = changes / tries.clamp(min=1e-9)
        smoothed_change = self._change + self._PRIOR * mean
        influence = smoothed_change / (self._tries + self._PRIOR) + 1e-12
        weight = influence * (self._idle + 1)
        features = weight.shape[1]
        total = weight.cumsum(1)[:, -1:]
        ladder = (weight + self._FLOOR * total / features).cumsum(1)
        rungs = u.double() * ladder[:, -1:]
        return torch.searchsorted(ladder, rungs).clamp(max=features - 1)

    def learn(self, block: Tensor, single: Tensor, change: Tensor) -> None:
        """Learn from the changes of value `(P, n)` that the blocks `(P, n, S)` made, where they are `single` ones."""
        # counts are whole numbers, so sums of them are exact
        touched = block.double().mul_(single.double()[..., None])
        size = touched.sum(2, keepdim=True).clamp(min=1)
        finite_change = change.double().abs().nan_to_num(nan=0.0, posinf=0.0)
        change_per_feature = finite_change[..., None] / size
        fade = self._FADE ** (block.shape[1] / 2)
        tries = touched.sum(1)
        changes = (touched * change_per_feature).sum(1)
        self._change = fade * self._change + changes
        self._tries = fade * self._tries + tries
        self._idle = torch.where(tries > 0, 0.0, self._idle + 1)


def _change_inside(
    kind: Tensor, x: Tensor, centre: Tensor, width: Tensor, factor: Tensor, step: Tensor
) -> Tensor:
    """What moves of these kinds `(..., k)` make of incumbents `x` `(..., k, C, S)`; amounts are `(..., k, 1)`."""
    kind = kind[..., None]
    scale = torch.where(kind == _SCALE, factor, 1.0)
    scale = torch.where(kind == _CENTRE, 0.0, scale)
    scale = torch.where(kind == _RELAX, 1 + step, scale)
    shift = torch.where(kind == _NUDGE, step, 0.0)
    scaled = (x - centre) * scale[..., None]
    shifted = width * shift[..., None]
    return centre + scaled + shifted


def _choose_changes(
    gain: Tensor, rise: Tensor, violation: Tensor, count: int
) -> tuple[Tensor, Tensor]:
    """Which of n single changes to make at once, if value and violation were linear in them.

    A fractional knapsack: the room is what the constraint leaves, at an incumbent of this `violation` `(P,)`. Changes
    that gain value and do not raise the violation are free. Those that gain value and raise the violation cost room.
    Those that lose value and lower the violation make room. The linear programme is solved exactly, by the order of
    value per violation; its dual, the price of room, scores the changes.

    Args:
        gain, rise: the changes of value and violation, `(P, n)`; both 0 for a change that must not be used.
        violation: of the incumbents, `(P,)`.
        count: how many combinations; each next one uses half as many of the changes, the best.

    Returns:
        How much of each change to make, from 0 to 1, `(P, count, n)`; the scores `(P, n)`.
    """
    free = (gain >= 0) & (rise <= 0) & (gain - rise > 0)
    traded = gain * rise > 0
    pays = traded & (rise < 0)
    divisor = torch.where(traded, rise, 1.0)
    rate = torch.where(traded, gain / divisor, -1.0)
    order = rate.argsort(dim=1, descending=True, stable=True)
    expense = rise.abs()
    # a little less than all room, since value and violation are not quite linear
    changes = (rise != 0).sum(1, keepdim=True).clamp(min=1)
    typical = expense.sum(1, keepdim=True) / changes
    room = -violation[:, None] - _MARGIN * typical

    def solve(kept: Tensor) -> Tensor:
        """The amounts `(P, T, n)` for T sets of changes, those that are `kept`, of the same shape."""
        columns = order[:, None].expand_as(kept)
        is_traded = traded[:, None]
        is_certain = (free | pays)[:, None]
        cost_of_changes = torch.where(is_traded & kept, expense[:, None], 0.0)
        cost = cost_of_changes.gather(2, columns)
        certain = torch.where(is_certain & kept, rise[:, None], 0.0)
        spent_before = cost.cumsum(2) - cost
        left = room[:, None] - certain.sum(2, keepdim=True) - spent_before
        bought = (left / cost.clamp(min=1e-30)).clamp(0, 1)
        # of those that pay: what is not made
        bought = torch.zeros_like(bought).scatter(2, columns, bought)
        chosen = torch.where(is_traded, bought, free[:, None].double())
        return torch.where(pays[:, None], 1 - bought, chosen) * kept

    everything = torch.ones_like(free)[:, None]
    first = solve(everything)
    amount = first[:, 0]
    is_made = amount > 0
    is_bought = traded & torch.where(pays, amount < 1, is_made)
    # the dual of a programme with one constraint: the price of room is the rate of the last change that is bought
    price = torch.where(is_bought, rate, torch.inf).amin(1, keepdim=True)
    best_rate = rate.amax(1, keepdim=True).clamp(min=0)
    price = torch.where(price.isinf(), best_rate, price)
    score = gain - price * rise
    score_of_made = torch.where(is_made, score, -torch.inf)
    rank = score_of_made.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    number = is_made.sum(1, keepdim=True).double()
    parts = 0.5 ** torch.arange(1, count, dtype=torch.float64, device=gain.device)
    sizes = (number * parts).ceil()
    kept = rank[:, None] < sizes[..., None]
    return torch.cat([first, solve(kept)], dim=1), score
