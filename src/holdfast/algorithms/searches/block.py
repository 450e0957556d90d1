"""Structured random search: change shrinking blocks of the input, and keep a change that improves.

Problem: `max value(x) subject to violation(x) <= 0` over the region. The objective is a black box, and each problem has
one incumbent. The search starts at the best of some vertices of the box that are constant on coarse patches. Then each
proposal changes one contiguous block (of an image, a series or a flat vector; in a random set of channels) by one of
the moves below. The best of `proposals` replaces the incumbent if `Outcome.key` prefers it (feasible points by value,
the others by violation). The moves:

- `vertex`: the block becomes constant, at the end of the box that its middle is further from;
- `centre`: the block goes back to the centre;
- `scale`: the block's offset from the centre shrinks by a random factor;
- `nudge`: the block moves up or down by a share of the box from 1 to 2^-8;
- `relax`: the offset of the whole input shrinks or grows by such a share.

In a box the move is `vertex` as long as the incumbent violates the constraint or has a better value than the centre.
Where leaving the centre costs value, and in an L2 ball, a move is drawn in proportion to its recent successes. A small
share of the moves is drawn uniformly at random. The share of the features in a block falls from `start` to a single
feature as `(1 - spent / budget)^power`.

Blocks are placed where changes have made a difference, and where no block was tried recently (`_Influence`).

Source: Andriushchenko et al., "Square Attack: a query-efficient black-box adversarial attack via random search" (ECCV
2020). We depart from it as follows. The share falls along a smooth curve, not by a table. A block takes the opposite
vertex, since a random one is half the time the vertex where it was. Two proposals are evaluated at once, for larger
batches. Places are learnt, not uniform. The moves besides `vertex` are ours, because the most similar explanation under
a changed class (SAFARI's second kind) lies on the decision boundary and not in a corner. In an L2 ball a vertex is one
of a random smaller box, of half width between `radius / sqrt(features)` and `radius`, and every proposal is projected.

Cost: `budget` evaluations for each problem, the first of them at the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import NAN_KEY, Outcome, Search, SearchRun, searches, take_points
from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Region
from holdfast.tensors import Streams, broadcast_rows

_MOVES = 5  # vertex, centre, scale, nudge, relax
_PATCHES = 7  # along each axis, in the vertices to start from


@searches.register("block")
@dataclass(frozen=True)
class BlockSearch(Search):
    """Structured random search after Square Attack, with moves that also leave the corners.

    Args:
        proposals: how many are evaluated at once; the best of them may replace the incumbent.
        starts: how many patchwork vertices are tried first, at most a tenth of the budget.
        start: share of the features in the first blocks.
        power: how fast blocks shrink.
        explore: share of moves drawn at random instead of by success.
        memory: the factor by which the weight of a success falls with each further round.
    """

    proposals: int = 64
    merges: int = 6
    starts: int = 400
    start: float = 0.1
    power: float = 3.0
    explore: float = 0.02
    memory: float = 0.98
    name: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        for option in ("proposals", "starts"):
            count = getattr(self, option)
            check_integer(count, option)
        check(0 < self.start <= 1, "start", "a share above 0 and at most 1", self.start)
        check(self.power >= 0, "power", "a number of at least 0", self.power)
        check(0 < self.explore <= 1, "explore", "a share above 0 and at most 1", self.explore)
        check(0 <= self.memory < 1, "memory", "a number in [0, 1)", self.memory)

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Query vertices, then one round of proposals after the other."""
        region, canvas = run.region, _Canvas(run.region)
        home = run.best
        x = canvas.patchwork(min(self.starts, max(1, run.budget // 10)), streams)
        seen = run.query(x)
        # the incumbent is the best vertex, not the centre, which is often feasible and hard to leave
        now = _Incumbent(region.centre[:, None], home, torch.full_like(run.best_key, NAN_KEY))
        now.accept(x, seen)
        now.key = torch.where(now.key == NAN_KEY, home.key(), now.key)  # where all vertices gave NaN
        corner = torch.eye(_MOVES, dtype=torch.float64, device=region.device)[0]
        credit = torch.ones(len(region), _MOVES, dtype=torch.float64, device=region.device)
        influence = _Influence(len(region), canvas.size, region.device)
        merged, fresh = None, None
        proposals = self.proposals
        strata = torch.arange(proposals, device=region.device, dtype=torch.float32) / proposals
        while run.left:
            u = streams.uniform((proposals, canvas.draws), torch.float32)[:, : run.left]
            # in a box corners serve while leaving the centre gains value; where it costs value, and in a ball, any move
            inner = (now.key > 0) & (now.seen.value < home.value)
            inner |= region.radius is not None
            wanted = torch.where(inner[:, None], credit / credit.sum(1, keepdim=True), corner)
            chance = self.explore / _MOVES + (1 - self.explore) * wanted
            move = torch.searchsorted(chance.cumsum(1), u[..., 0].double().contiguous()).clamp(max=_MOVES - 1)
            side = canvas.side(self.start * (1 - run.spent / run.budget) ** self.power)
            place = strata[: u.shape[1]] + u[..., 1] / proposals
            block, middle = canvas.place_block(side, influence.draw(place))
            y, inside = canvas.propose(now.x, move, block, middle, u[..., 2:])
            single = torch.ones_like(move, dtype=torch.bool)
            if merged is not None and fresh is not None:
                few = min(merged.shape[1], y.shape[1])
                single[:, :few] = ~fresh[:, :few]
                y[:, :few] = torch.where(broadcast_rows(fresh[:, :few], y), merged[:, :few], y[:, :few])
            seen = run.query(y)
            gain = seen.value - now.seen.value[:, None]
            rise = (seen.violation - now.seen.violation[:, None]).nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)
            influence.learn(block, torch.where(single, gain, 0.0), single)
            good = (seen.key() > now.key[:, None]) & single
            credit = self.memory * credit + (1 - self.memory) * 1e-2
            credit = credit.scatter_add(1, move, good.double())
            now.accept(y, seen)
            merged, fresh = canvas.merge(now, y, inside, gain, rise, single & (move != 4) & ~gain.isnan(), self.merges)


class _Incumbent:
    def __init__(self, x: Tensor, seen: Outcome, key: Tensor) -> None:
        self.x, self.seen, self.key = x, seen, key

    def accept(self, y: Tensor, seen: Outcome) -> None:
        """Replace it by the best of y where that is better."""
        key, row = seen.key().max(dim=1)
        better, row = key > self.key, row[:, None]
        found = seen.gather(row)
        self.key = torch.where(better, key, self.key)
        self.x = torch.where(broadcast_rows(better, self.x), take_points(y, row), self.x)
        self.seen = Outcome(
            torch.where(better, found.value[:, 0], self.seen.value),
            torch.where(better, found.violation[:, 0], self.seen.violation),
        )


class _Canvas:
    """The P inputs as channels over a line, a plane, ...: `(P, n, C, S)`, where S is the product of the extents."""

    def __init__(self, region: Region) -> None:
        self.region, shape = region, tuple(region.shape)
        self.channels, self.extents = (shape[0], shape[1:]) if len(shape) > 1 else (1, shape)
        self.size = math.prod(self.extents)
        flat = (len(region), 1, self.channels, self.size)
        self.centre = region.centre.reshape(flat)
        self.lower, self.upper = region.lower.reshape(flat), region.upper.reshape(flat)
        #: how many random numbers one proposal uses: move, place, box, amount, sign, channels
        self.draws = 6 + self.channels

    def patchwork(self, count: int, streams: Streams) -> Tensor:
        """Random vertices `(P, count, *shape)`, constant on patches, `_PATCHES` of them along each axis."""
        patches = [min(_PATCHES, extent) for extent in self.extents]
        up = streams.uniform((count, self.channels, *patches), torch.float32) < 0.5
        for axis, (extent, parts) in enumerate(zip(self.extents, patches, strict=True)):
            up = up.index_select(3 + axis, torch.arange(extent, device=up.device) * parts // extent)
        up = up.flatten(3)
        lower, upper = self._box(torch.zeros(up.shape[:2], device=up.device))
        return self._project(torch.where(up, upper, lower))

    def propose(self, x: Tensor, move: Tensor, block: Tensor, middle: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        """Changed copies `(P, n, *shape)` of the incumbents `x` `(P, 1, *shape)`; `move` `(P, n)`, `u` uniform."""
        x, kind = x.reshape(self.centre.shape), move[..., None, None]
        box, amount, sign, side, channels = torch.split(u, [1, 1, 1, 1, self.channels], dim=2)
        chosen = channels < 0.5
        inside = block[:, :, None] & (chosen | ~chosen.any(2, keepdim=True))[..., None]
        inside |= kind == 4
        lower, upper = self._box(box[..., 0])
        at, low, high = (
            values.expand(*move.shape, *x.shape[2:]).gather(3, middle[..., None, None].expand(-1, -1, self.channels, 1))
            for values in (x, lower, upper)
        )
        factor = amount[..., None].to(x.dtype)
        step = torch.where(sign[..., None] < 0.5, -1.0, 1.0).to(x.dtype) * 2.0 ** (-8 * factor)
        offset = x - self.centre
        far = (at - low) < side[..., None] * (high - low)
        y = torch.where(far, upper, lower)
        y = torch.where(kind == 1, self.centre, y)
        y = torch.where(kind == 2, self.centre + offset * factor, y)
        y = torch.where(kind == 3, x + step * (upper - lower), y)
        y = torch.where(kind == 4, self.centre + offset * (1 + step), y)
        return self._project(torch.where(inside, y, x)), inside

    def merge(
        self, now: _Incumbent, y: Tensor, inside: Tensor, gain: Tensor, rise: Tensor, usable: Tensor, count: int
    ) -> tuple[Tensor, Tensor]:
        """Combinations `(P, count, *shape)` of single changes; bool `(P, count)` where there is something to combine."""
        x = now.x.reshape(self.centre.shape)
        flat = y.reshape(*y.shape[:2], self.channels, self.size)
        gain = torch.where(usable, gain, 0.0).double()
        rise = torch.where(usable, rise, 0.0).double()
        shares = [0.5**t for t in range(count)]
        amount, score = _fill_knapsack(gain, rise, now.seen.violation.double(), shares)
        out, fresh = [], []
        for t in range(count):
            s = amount[:, t]
            taken = s > 0
            rank = torch.where(taken, score[:, t], -torch.inf)
            weight = torch.where(inside, rank[..., None, None], -torch.inf)
            top, owner = weight.max(dim=1, keepdim=True)
            value = flat.gather(1, owner)
            theta = s[:, :, None, None].expand(-1, -1, self.channels, self.size).gather(1, owner).to(x.dtype)
            out.append(torch.where(top > -torch.inf, torch.lerp(x, value, theta), x))
            fresh.append(taken.sum(1) > 1)
        return self._project(torch.cat(out, dim=1)), torch.stack(fresh, dim=1)

    def side(self, share: float) -> int:
        """Side of a block with this share of the features."""
        return max(1, round(math.pow(share * self.size, 1 / len(self.extents))))

    def place_block(self, side: int, place: Tensor) -> tuple[Tensor, Tensor]:
        """The block around each feature `place` `(P, n)`, within the canvas: a mask `(P, n, S)`, and its middle."""
        mask = torch.ones((*place.shape, 1), dtype=torch.bool, device=place.device)
        middle, stride = torch.zeros_like(place), self.size
        for extent in self.extents:
            stride //= extent
            length = min(side, extent)
            first = (place // stride % extent - length // 2).clamp(min=0, max=extent - length)
            line = torch.arange(extent, device=place.device) - first[..., None]
            mask = (mask[..., None] & ((line >= 0) & (line < length))[:, :, None]).flatten(2)
            middle = middle * extent + first + length // 2
        return mask, middle

    def _box(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the box for each proposal; in an L2 ball those of a smaller box, whose size `u` `(P, n)` sets."""
        if self.region.radius is None:
            return self.lower, self.upper
        features = self.channels * self.size
        width = (self.region.radius * features ** (-0.5 * (1 - u)))[..., None, None].to(self.centre.dtype)
        return torch.maximum(self.lower, self.centre - width), torch.minimum(self.upper, self.centre + width)

    def _project(self, x: Tensor) -> Tensor:
        return self.region.project(x.reshape(*x.shape[:2], *self.region.shape))


def _fill_knapsack(gain: Tensor, rise: Tensor, violation: Tensor, shares: list[float]) -> tuple[Tensor, Tensor]:
    """How much `(P, T, k)` of each change to apply, for the top shares of them; and the order of preference."""
    tiny = 1e-30
    slack = rise.abs().sum(1, keepdim=True) / (rise != 0).sum(1, keepdim=True).clamp(min=1)
    free = (gain >= 0) & (rise <= 0) & ((gain > 0) | (rise < 0))
    item = ((gain > 0) & (rise > 0)) | ((gain < 0) & (rise < 0))
    payer = item & (rise < 0)
    ratio = torch.where(item, gain / torch.where(rise == 0, tiny, rise), -1.0)
    cost = torch.where(item, rise.abs(), 0.0)

    def solve(keep: Tensor) -> tuple[Tensor, Tensor]:
        use = cost * keep
        order = ratio.argsort(dim=1, descending=True, stable=True)
        paid = use.gather(1, order)
        room = -violation[:, None] - 0.02 * slack - (rise * ((free | payer) & keep)).sum(1, keepdim=True)
        before = paid.cumsum(1) - paid
        share = ((room - before) / paid.clamp(min=tiny)).clamp(0, 1)
        price = torch.where((share > 0) & (paid > 0), ratio.gather(1, order), torch.inf).amin(1, keepdim=True)
        share = torch.zeros_like(share).scatter(1, order, share)
        amount = torch.where(payer, 1 - share, torch.where(item, share, free.double())) * keep
        price = torch.where(price.isinf(), ratio.amax(1, keepdim=True).clamp(min=0), price)
        return amount, price

    everything = torch.ones_like(item)
    amount, price = solve(everything)
    score = gain - price * rise
    amounts, scores = [amount], [score]
    rank = torch.where(amount > 0, score, -torch.inf)
    place = rank.argsort(dim=1, descending=True, stable=True).argsort(dim=1)
    number = (amount > 0).sum(1, keepdim=True)
    for share in shares[1:]:
        keep = place < (number * share).ceil()
        amounts.append(solve(keep)[0])
        scores.append(score)
    return torch.stack(amounts, dim=1), torch.stack(scores, dim=1)


class _Influence:
    """Where a change makes a difference, learnt from the proposals of each problem, and where none was tried recently.

    Most features of a picture hardly matter, and a feature that was just tried without success is not worth another
    try soon. So a place is drawn in proportion to its mean change of value per feature, times the number of rounds
    since it was last in a block, mixed with a small share of the mean.
    """

    _FADE, _PRIOR, _FLOOR = 0.999, 0.5, 0.1

    def __init__(self, problems: int, size: int, device: torch.device) -> None:
        self._change = torch.zeros((problems, size), dtype=torch.float64, device=device)
        self._tries, self._idle = torch.zeros_like(self._change), torch.zeros_like(self._change)

    def draw(self, u: Tensor) -> Tensor:
        """Features `(P, n)` for uniform numbers of that shape."""
        mean = self._change.sum(1, keepdim=True) / self._tries.sum(1, keepdim=True).clamp(min=1e-9)
        influence = (self._change + self._PRIOR * mean) / (self._tries + self._PRIOR) + 1e-12
        weight = influence * (self._idle + 1)
        ladder = (weight + self._FLOOR * weight.mean(1, keepdim=True)).cumsum(1)
        rungs = u.double() * ladder[:, -1:]
        return torch.searchsorted(ladder, rungs).clamp(max=ladder.shape[1] - 1)

    def learn(self, block: Tensor, change: Tensor, single: Tensor) -> None:
        """Learn from the changes of value `(P, n)` that the blocks `(P, n, S)` made."""
        each = change.double().abs().nan_to_num(nan=0.0, posinf=0.0)[..., None] / block.sum(2, keepdim=True)
        block = block & single[..., None]
        fade = self._FADE ** (block.shape[1] / 2)
        self._change = fade * self._change + (block * each).sum(1)
        self._tries = fade * self._tries + block.double().sum(1)
        self._idle = torch.where(block.any(1), 0.0, self._idle + 1)
