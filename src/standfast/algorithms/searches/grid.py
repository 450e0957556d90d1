"""A grid over a few parameters, refined where the optimum may be, with an estimate of what it may have missed.

Problem: `max value(x) subject to violation(x) <= 0` over the region's box of D parameters, for few of them. A part of
the budget goes to a regular grid that includes the ends of the ranges. Each evaluated point has a cell of the box
around it. Then the most promising cells are divided, a few at a time: along the parameter that may matter most, a new
point is evaluated two thirds of the way from the cell's point to its further face, and the cell is cut half way between
the two.

How much the value may rise within a cell is estimated from slopes that were observed. Along parameter d, let s_d be the
largest slope between the cell's point and the points it was cut from or next to, but at least half the largest slope of
the regular grid, times the size of the cell relative to the largest one. With r_d the distance from the point to its
further face,

    potential = value + sum_d s_d r_d.

This is the upper bound of Shubert (1972) and Piyavskii (1972) with local slopes in place of a known Lipschitz constant.
The violation is treated likewise: a cell counts as feasible if its violation may fall to 0. In each round, half of the
cells are those with the largest potential, so nothing is given up for good. The others are chosen with a quarter of the
slopes, so that some of the budget goes to the best points.

**The gap** of a problem is its largest potential, with three times the slopes, less the best value found: how far the
true optimum may be above it, if the objective is nowhere in a cell more than three times as steep as it was seen to be
around it. The factor was chosen so that it covers the true gap for rotations of digits (docs/benchmarks.md).
So it is an estimate and not a bound: a peak between the points of the grid that leaves no trace at any of them is
missed. It is infinite where no feasible point was found, and where the budget was too small to cut the box along each
parameter.

Where the regular grid is a single point, the box is first cut along each parameter in turn, and the largest slopes that
were observed take the place of the grid's.

Source: Shubert, "A sequential method seeking the global maximum of a function" (SIAM J. Numer. Anal. 9, 1972); the
cells and the choice by several slopes at once are those of Jones, Perttunen and Stuckman, "Lipschitzian optimization
without the Lipschitz constant" (DIRECT; J. Optim. Theory Appl. 79, 1993); local slopes follow Sergeyev, "An
information global optimization algorithm with local tuning" (SIAM J. Optim. 5, 1995). We depart from DIRECT in that
points may lie at the ends of the ranges, where the worst rotation often is; in the constraint; and in dividing many
cells at once, for whole batches.

Cost: `budget` evaluations for each problem. It uses no random numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Outcome, Search, SearchRun, searches
from standfast.errors import check
from standfast.records import Count, Share
from standfast.tensors import Streams

#: so many parameters at most: with more of them there is not even a point at each corner
_MOST = 64
_FLOOR = 0.5  # of the overall slope, in the largest cells
_FACTORS = (1.0, 0.25)  # of the slopes, where cells are chosen
_SAFETY = 3.0  # factor of the slopes in the gap
_TINY = 1e-30


@searches.register("grid")
@dataclass(frozen=True)
class GridSearch(Search):
    """A grid and its refinement, for regions of a few parameters.

    Args:
        dense: share of the budget that the regular grid gets.
        cells: how many cells are divided at once at most.

    >>> from standfast.neighbourhoods import LinfBall
    >>> def parabola(x, problem):
    ...     return Outcome(-((x[:, 0] - 0.3) ** 2), torch.full((len(x),), -1.0))
    >>> found = GridSearch().run(parabola, LinfBall(0.5).around(torch.tensor([[0.5]])), 200, 0)
    >>> found.inputs, bool(found.gap < 0.01)
    (tensor([[0.30]]), True)
    """

    dense: Share = 0.4
    cells: Count = 8
    name: ClassVar[str] = "grid"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """The grid, and then divisions of cells until the budget is spent."""
        parameters = run.region.shape.numel()
        expected = f"another one, since {self.name} is for at most {_MOST} parameters"
        check(parameters <= _MOST, "search", expected, f"{parameters} of them")
        cells = _Cells(run, max(1, round(self.dense * run.left)))
        while run.left:
            # a round is a small share of the budget, so that small budgets have several rounds, too
            cells.divide(min(self.cells, max(1, run.budget // 25), run.left, cells.count))
        run.gap = cells.find_gap()


class _Cells:
    """The cells of each problem: their points in the unit box, `(P, n, D)`, with what was seen there.

    Attributes:
        count: how many cells each problem has.
    """

    def __init__(self, run: SearchRun, budget: int) -> None:
        self.run = run
        region = run.region
        problems, self.size = len(region), region.shape.numel()
        self.lower, self.upper = (
            face.reshape(problems, 1, self.size) for face in (region.lower, region.upper)
        )
        self.moves = (self.upper > self.lower).expand(-1, 1, -1)
        side = _count_sides(budget, self.size)
        self.dtype, self.device = region.dtype, region.device
        line = (
            torch.linspace(0, 1, side, dtype=self.dtype, device=self.device) if side > 1 else None
        )
        if line is None:
            points = torch.full((1, self.size), 0.5, dtype=self.dtype, device=self.device)
            low = torch.zeros_like(points)
            high = torch.ones_like(points)
        else:
            half = 0.5 / (side - 1)
            points = torch.cartesian_prod(*[line] * self.size).reshape(-1, self.size)
            low = (points - half).clamp(min=0)
            high = (points + half).clamp(max=1)
        self.points, self.low, self.high = (
            of_one.expand(problems, -1, -1) for of_one in (points, low, high)
        )
        self.side = side
        self.seen = self._query(self.points)
        zeros = torch.zeros(self.points.shape, dtype=torch.float64, device=self.device)
        self.slope, self.violation_slope = zeros, zeros.clone()
        if side > 1:
            self.slope, self.violation_slope = (
                _find_slopes(values, side, self.size)
                for values in (self.seen.value, self.seen.violation)
            )

        #: the largest slopes between neighbours of the regular grid, `(P, 1, D)`
        self.overall, self.violation_overall = (
            s.amax(1, keepdim=True) for s in (self.slope, self.violation_slope)
        )

    @property
    def count(self) -> int:
        return self.points.shape[1]

    def _query(self, points: Tensor) -> Outcome:
        x = torch.lerp(self.lower.expand_as(points), self.upper.expand_as(points), points)
        region = self.run.region
        outcome = self.run.query(region.project(x.reshape(*points.shape[:2], *region.shape)))
        return Outcome(outcome.value.double(), outcome.violation.double())

    def _reach(self) -> Tensor:
        """How far each cell extends from its point, `(P, n, D)`; 0 along parameters that cannot change."""
        far = torch.maximum(self.points - self.low, self.high - self.points)
        return (far * self.moves).double()

    def _find_uncut(self) -> Tensor:
        """Along which parameters no cell was ever cut, so that no slope was observed; bool `(P, 1, D)`.

        There are some only where the budget allows a regular grid of a single point.
        """
        return (self.high - self.low >= 1).all(1, keepdim=True) & self.moves

    def _look_ahead(self, factor: float) -> Outcome:
        """The outcome that each cell may have, with the observed slopes times a factor."""
        reach = self._reach()
        share = reach / reach.amax(1, keepdim=True).clamp(min=_TINY)
        # slope times reach, one parameter after the other: the potential of the module's text
        rise, fall = (
            _add_up(torch.maximum(slope, _FLOOR * overall * share) * reach)
            for slope, overall in (
                (self.slope, self.overall),
                (self.violation_slope, self.violation_overall),
            )
        )
        return Outcome(self.seen.value + factor * rise, self.seen.violation - factor * fall)

    def divide(self, count: int) -> None:
        """Divide `count` cells of each problem, and evaluate the point of each new one."""
        keys = [self._look_ahead(factor).key() for factor in _FACTORS]
        orders = [key.argsort(dim=1, descending=True, stable=True) for key in keys]
        # one from either list in turn, each cell once
        rank = [torch.empty_like(order).scatter_(1, order, _number(order)) for order in orders]
        turn = torch.minimum(2 * rank[0], 2 * rank[1] + 1)
        rows = turn.argsort(dim=1, stable=True)[:, :count]

        def take(values: Tensor) -> Tensor:
            return values.gather(1, rows[..., None].expand(-1, -1, self.size))

        point, low, high, reach = (
            take(values) for values in (self.points, self.low, self.high, self._reach())
        )
        slope = take(self.slope)
        violation_slope = take(self.violation_slope)
        # along the parameter that may change most; where nothing is known to change, along the longest side
        effect = _share(slope * reach) + _share(violation_slope * reach) + 0.1 * _share(reach)
        effect = torch.where(self._find_uncut(), effect + 3, effect)  # more than the largest effect
        axis = effect.argmax(2, keepdim=True)
        middle, below, above = (values.gather(2, axis) for values in (point, low, high))
        up = above - middle >= middle - below
        far = torch.where(up, above - middle, middle - below)
        # two thirds of the way is the middle of the new cell, which begins at one third
        step = torch.where(up, far, -far) * (2 / 3)
        new = middle + step
        cut = middle + step / 2
        new_point = point.scatter(2, axis, new)
        old_high = torch.where(up, cut, above)
        old_low = torch.where(up, below, cut)
        new_high = torch.where(up, above, cut)
        new_low = torch.where(up, cut, below)
        outcome = self._query(new_point)
        distance = step.abs().double().clamp(min=_TINY)[..., 0]
        observed = []
        for values, slopes, news in (
            (self.seen.value, slope, outcome.value),
            (self.seen.violation, violation_slope, outcome.violation),
        ):
            change = (news - values.gather(1, rows)).abs().nan_to_num(
                nan=0.0, posinf=0.0
            ) / distance
            before = slopes.gather(2, axis)
            # an earlier slope is halved by a flat cut, and not forgotten at once
            observed.append(slopes.scatter(2, axis, torch.maximum(change[..., None], before / 2)))

        def put(values: Tensor, old: Tensor, new: Tensor) -> Tensor:
            changed = values.scatter(1, rows[..., None].expand(-1, -1, self.size), old)
            return torch.cat([changed, new], dim=1)

        self.low = put(self.low, low.scatter(2, axis, old_low), low.scatter(2, axis, new_low))
        self.high = put(self.high, high.scatter(2, axis, old_high), high.scatter(2, axis, new_high))
        self.points = torch.cat([self.points, new_point], dim=1)
        self.slope = put(self.slope, observed[0], observed[0])
        self.violation_slope = put(self.violation_slope, observed[1], observed[1])
        if self.side == 1:  # in place of the slopes of a regular grid
            self.overall, self.violation_overall = (
                torch.maximum(slopes, news.amax(1, keepdim=True))
                for slopes, news in zip(
                    (self.overall, self.violation_overall), observed, strict=True
                )
            )
        self.seen = Outcome(
            torch.cat([self.seen.value, outcome.value], dim=1),
            torch.cat([self.seen.violation, outcome.violation], dim=1),
        )

    def find_gap(self) -> Tensor:
        """The largest potential less the best value, `(P,)`, at least 0; infinite where nothing can be said.

        That is without a feasible point, and where no slope along a parameter was observed.
        """
        ahead = self._look_ahead(_SAFETY)
        best = self.run.kept.seen
        # a cell whose value is NaN cannot be the optimum
        possible = torch.where(
            ahead.violation <= 0, ahead.value.nan_to_num(nan=-torch.inf), -torch.inf
        )
        gap = (possible.amax(1) - best.value.double()).clamp(min=0)
        is_bounded = (best.violation <= 0) & ~self._find_uncut().flatten(1).any(1)
        return torch.where(is_bounded, gap, torch.inf)


def _count_sides(budget: int, size: int) -> int:
    """The largest m with `m ** size <= budget`, at least 1."""
    side = max(1, int(budget ** (1 / size)))
    while (side + 1) ** size <= budget:
        side += 1
    return side


def _find_slopes(values: Tensor, side: int, size: int) -> Tensor:
    """The larger of the slopes to both neighbours of each point of a grid, along each axis, `(P, n, size)`."""
    grid = values.reshape(len(values), *[side] * size)
    slopes = []
    for axis in range(1, size + 1):
        change = grid.diff(dim=axis).abs().nan_to_num(nan=0.0, posinf=0.0) * (side - 1)
        edge = torch.zeros_like(change.narrow(axis, 0, 1))
        both = torch.maximum(torch.cat([edge, change], axis), torch.cat([change, edge], axis))
        slopes.append(both.flatten(1))
    return torch.stack(slopes, dim=2)


def _add_up(values: Tensor) -> Tensor:
    """The sum over the last axis, one addition at a time: the same bits in every batch."""
    total, *rest = values.unbind(-1)
    for part in rest:
        total = total + part
    return total


def _share(values: Tensor) -> Tensor:
    return values / values.amax(-1, keepdim=True).clamp(min=_TINY)


def _number(order: Tensor) -> Tensor:
    return torch.arange(order.shape[1], device=order.device).expand_as(order)
