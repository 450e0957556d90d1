"""Structured random search: change shrinking blocks of the input, keep what is better.

Problem: `max value(x) subject to violation(x) <= 0` over the region; a black box, one incumbent per problem. Starts
at the best of some vertices of the box, constant on coarse patches; then each proposal changes one contiguous block
(of an image, a series or a flat vector; in a random set of channels) by one of these moves, and the best of
`proposals` replaces the incumbent if `Outcome.key` says that it is better (feasible points by value, the others by
violation):

- `vertex`: the block becomes constant, at the end of the box that its middle is further from;
- `centre`: the block goes back to the centre;  `scale`: its offset from the centre shrinks by a random factor;
- `nudge`: the block moves up or down by a share of the box from 1 to 2^-8;
- `relax`: the offset of the whole input shrinks or grows by such a share.

In a box the move is `vertex` as long as the incumbent violates the constraint or has a better value than the centre.
Where leaving the centre costs value, and in an L2 ball, a move is drawn in proportion to its recent successes. Now
and then it is drawn at random. The share of the features in a block
falls from `start` to a single feature as `(1 - spent / budget)^power`.

Source: Andriushchenko et al., "Square Attack: a query-efficient black-box adversarial attack via random search" (ECCV
2020). Where we depart from it: a smooth schedule in place of a table; a block takes the opposite vertex, since a random
one is half the time what it was; several proposals at once, for larger batches (2 to 8 were as good as 1
on ten digits, one seed each); the moves besides `vertex`, because the most similar explanation under a changed class
(SAFARI's second kind) lies on the decision boundary and not in a corner. In an L2 ball a vertex is one of a
random smaller box, of half width between `radius / sqrt(features)` and `radius`; every proposal is projected.

Cost: `budget` evaluations for each problem, the first of them at the centre.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.search import (
    Best,
    GradientObjective,
    Objective,
    Search,
    SearchResult,
    Tracer,
    look,
    searches,
    take,
)
from holdfast.errors import check
from holdfast.neighbourhood import Region
from holdfast.tensors import Streams, rows_to

_MOVES = 5  # vertex, centre, scale, nudge, relax
_PATCHES = 7  # along each axis, in the vertices to start from
_AHEAD = 64  # rounds whose random numbers are drawn at once


@searches.register("block")
@dataclass(frozen=True)
class BlockSearch(Search):
    """Structured random search after Square Attack, with moves that also leave the corners.

    Args:
        proposals: evaluated at once; the best of them may replace the incumbent.
        starts: patchwork vertices tried first, at most a tenth of the budget.
        start: share of the features in the first blocks.
        power: how fast blocks shrink.
        explore: share of moves drawn at random instead of by success.
        memory: by how much a success counts less with each further round.
    """

    proposals: int = 4
    starts: int = 100
    start: float = 0.1
    power: float = 3.0
    explore: float = 0.02
    memory: float = 0.98
    name: ClassVar[str] = "block"

    def __post_init__(self) -> None:
        for option in ("proposals", "starts"):
            count = getattr(self, option)
            check(type(count) is int and count >= 1, option, "a whole number of at least 1", count)
        check(0 < self.start <= 1, "start", "a share above 0 and at most 1", self.start)
        check(self.power >= 0, "power", "a number of at least 0", self.power)
        check(0 < self.explore <= 1, "explore", "a share above 0 and at most 1", self.explore)
        check(0 <= self.memory < 1, "memory", "a number in [0, 1)", self.memory)

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`."""
        tracer, streams, canvas = Tracer(budget), region.streams(seed), _Canvas(region)
        best, spent = Best(objective, region), 1
        tracer.note(spent, best.outcome, last=budget == 1)
        if budget == 1:
            return best.result(tracer.trace())
        home = best.outcome.value
        x = canvas.patchwork(min(self.starts, max(1, budget // 10)), streams)
        seen = look(objective, x)
        best.offer(x, seen)
        spent += x.shape[1]
        tracer.note(spent, best.outcome, last=spent == budget)
        # the walk starts at the best vertex and not at the centre, which is often feasible and hard to leave
        key, row = seen.key().max(dim=1)
        better = torch.ones_like(key, dtype=torch.bool)
        x, value = take(x, row[:, None]), seen.value.gather(1, row[:, None])[:, 0]
        corner = torch.eye(_MOVES, dtype=torch.float64, device=region.device)[0]
        credit = torch.ones(len(region), _MOVES, dtype=torch.float64, device=region.device)
        step = 0
        while spent < budget:
            if step % _AHEAD == 0:
                draws = streams.uniform((_AHEAD, self.proposals, canvas.draws), torch.float32)
            u = draws[:, step % _AHEAD, : budget - spent]
            # corners serve as long as leaving the centre pays; where it costs value, any move may, and in a ball
            inner = (key > 0) & (value < home) if region.radius is None else torch.ones_like(better)
            wanted = torch.where(inner[:, None], credit / credit.sum(1, keepdim=True), corner)
            chance = self.explore / _MOVES + (1 - self.explore) * wanted
            move = torch.searchsorted(chance.cumsum(1), u[..., 0].double().contiguous()).clamp(max=_MOVES - 1)
            y = canvas.propose(x, move, self.start * (1 - spent / budget) ** self.power, u[..., 1:])
            seen = look(objective, y)
            best.offer(y, seen)
            spent += y.shape[1]
            tracer.note(spent, best.outcome, last=spent == budget)
            new, row = seen.key().max(dim=1)
            better, row = new > key, row[:, None]
            key = torch.where(better, new, key)
            x = torch.where(rows_to(better, x), take(y, row), x)
            value = torch.where(better, seen.value.gather(1, row)[:, 0], value)
            credit = (self.memory * credit + (1 - self.memory) * 1e-2).scatter_add(
                1, move.gather(1, row), better[:, None].double()
            )
            step += 1
        return best.result(tracer.trace())


class _Canvas:
    """The P inputs as channels over a line, a plane, ...: `(P, n, C, S)`, S the product of the extents."""

    def __init__(self, region: Region) -> None:
        self.region, shape = region, tuple(region.shape)
        self.channels, self.extents = (shape[0], shape[1:]) if len(shape) > 1 else (1, shape)
        self.size = math.prod(self.extents)
        flat = (len(region), 1, self.channels, self.size)
        self.centre = region.centre.reshape(flat)
        self.lower, self.upper = region.lower.reshape(flat), region.upper.reshape(flat)
        #: random numbers that one proposal takes: move, box, amount, sign, a place on each axis, channels
        self.draws = 4 + len(self.extents) + self.channels

    def patchwork(self, count: int, streams: Streams) -> Tensor:
        """Random vertices `(P, count, *shape)`, constant on patches, `_PATCHES` of them along each axis."""
        patches = [min(_PATCHES, extent) for extent in self.extents]
        up = streams.uniform((count, self.channels, *patches), torch.float32) < 0.5
        for axis, (extent, parts) in enumerate(zip(self.extents, patches, strict=True)):
            up = up.index_select(3 + axis, torch.arange(extent, device=up.device) * parts // extent)
        up = up.flatten(3)
        lower, upper = self._box(torch.zeros(up.shape[:2], device=up.device))
        return self._back(torch.where(up, upper, lower))

    def propose(self, x: Tensor, move: Tensor, share: float, u: Tensor) -> Tensor:
        """Changed copies `(P, n, *shape)` of the incumbents `x` `(P, 1, *shape)`; `move` `(P, n)`, `u` uniform."""
        x, kind = x.reshape(self.centre.shape), move[..., None, None]
        box, amount, sign, places, channels = torch.split(
            u, [1, 1, 1, len(self.extents), self.channels], dim=2
        )
        block, middle = self._block(share, places)
        taken = channels < 0.5
        inside = block[:, :, None] & (taken | ~taken.any(2, keepdim=True))[..., None]
        inside |= kind == 4
        lower, upper = self._box(box[..., 0])
        at, low, high = (
            values.expand(*move.shape, *x.shape[2:]).gather(3, middle.expand(-1, -1, self.channels, 1))
            for values in (x, lower, upper)
        )
        factor = amount[..., None].to(x.dtype)
        step = torch.where(sign[..., None] < 0.5, -1.0, 1.0).to(x.dtype) * 2.0 ** (-8 * factor)
        offset = x - self.centre
        y = torch.where(at - low < high - at, upper, lower)
        y = torch.where(kind == 1, self.centre, y)
        y = torch.where(kind == 2, self.centre + offset * factor, y)
        y = torch.where(kind == 3, x + step * (upper - lower), y)
        y = torch.where(kind == 4, self.centre + offset * (1 + step), y)
        return self._back(torch.where(inside, y, x))

    def _block(self, share: float, places: Tensor) -> tuple[Tensor, Tensor]:
        """A block of this share of the features at each place: a mask `(P, n, S)`, and its middle `(P, n, 1, 1)`."""
        side = max(1, round((share * self.size) ** (1 / len(self.extents))))
        mask = torch.ones((*places.shape[:2], 1), dtype=torch.bool, device=places.device)
        middle = torch.zeros_like(places[..., 0], dtype=torch.int64)
        for axis, extent in enumerate(self.extents):
            length = min(side, extent)
            first = (places[..., axis] * (extent - length + 1)).long().clamp(max=extent - length)
            line = torch.arange(extent, device=places.device) - first[..., None]
            mask = (mask[..., None] & ((line >= 0) & (line < length))[:, :, None]).flatten(2)
            middle = middle * extent + first + length // 2
        return mask, middle[..., None, None]

    def _box(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of the box for each proposal; for an L2 ball those of a smaller box, u `(P, n)` saying how small."""
        if self.region.radius is None:
            return self.lower, self.upper
        features = self.channels * self.size
        width = (self.region.radius * features ** (-0.5 * (1 - u)))[..., None, None].to(self.centre.dtype)
        return torch.maximum(self.lower, self.centre - width), torch.minimum(self.upper, self.centre + width)

    def _back(self, x: Tensor) -> Tensor:
        return self.region.project(x.reshape(*x.shape[:2], *self.region.shape))
