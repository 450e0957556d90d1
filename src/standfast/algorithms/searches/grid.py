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
    name = "grid"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """The grid, and then divisions of cells until the budget is spent."""
        parameters = run.region.shape.numel()
        expected = f"another one, since {self.name} is for at most {_MOST} parameters"
        check(parameters <= _MOST, "search", expected, f"{parameters} of them")
        points_of_grid = max(1, round(self.dense * run.left))
        cells = _Cells(run, points_of_grid)
        # a round is a small share of the budget, so that small budgets have several rounds, too
        most = min(self.cells, max(1, run.budget // 25))
        while run.left:
            cells.divide(min(most, run.left, cells.count))
        run.gap = cells.find_gap()


class _Cells:
    """The cells of each problem: their points in the unit box, `(P, n, D)`, with what was seen there.

    Attributes:
        count: how many cells each problem has.
    """

    def __init__(self, run: SearchRun, budget: int) -> None:
        self.run = run
        region = run.region
        problems = len(region)
        self.size = region.shape.numel()
        self.lower = region.lower.reshape(problems, 1, self.size)
        self.upper = region.upper.reshape(problems, 1, self.size)
        self.moves = (self.upper > self.lower).expand(-1, 1, -1)
        self.side = _count_sides(budget, self.size)
        self.dtype, self.device = region.dtype, region.device
        if self.side == 1:
            points = torch.full((1, self.size), 0.5, dtype=self.dtype, device=self.device)
            low = torch.zeros_like(points)
            high = torch.ones_like(points)
        else:
            line = torch.linspace(0, 1, self.side, dtype=self.dtype, device=self.device)
            half = 0.5 / (self.side - 1)
            points = torch.cartesian_prod(*[line] * self.size).reshape(-1, self.size)
            low = (points - half).clamp(min=0)
            high = (points + half).clamp(max=1)
        self.points = points.expand(problems, -1, -1)
        self.low = low.expand(problems, -1, -1)
        self.high = high.expand(problems, -1, -1)
        self.seen = self._query(self.points)
        if self.side == 1:
            self.slope = torch.zeros(self.points.shape, dtype=torch.float64, device=self.device)
            self.violation_slope = self.slope.clone()
        else:
            self.slope = _find_slopes(self.seen.value, self.side, self.size)
            self.violation_slope = _find_slopes(self.seen.violation, self.side, self.size)
        #: the largest slopes between neighbours of the regular grid, `(P, 1, D)`
        self.overall = self.slope.amax(1, keepdim=True)
        self.violation_overall = self.violation_slope.amax(1, keepdim=True)

    @property
    def count(self) -> int:
        return self.points.shape[1]

    def _query(self, points: Tensor) -> Outcome:
        lower = self.lower.expand_as(points)
        upper = self.upper.expand_as(points)
        region = self.run.region
        values = torch.lerp(lower, upper, points)
        x = values.reshape(*points.shape[:2], *region.shape)
        outcome = self.run.query(region.project(x))
        return Outcome(outcome.value.double(), outcome.violation.double())

    def _reach(self) -> Tensor:
        """How far each cell extends from its point, `(P, n, D)`; 0 along parameters that cannot change."""
        far = torch.maximum(self.points - self.low, self.high - self.points)
        return (far * self.moves).double()

    def _find_uncut(self) -> Tensor:
        """Along which parameters no cell was ever cut, so that no slope was observed; bool `(P, 1, D)`.

        There are some only where the budget allows a regular grid of a single point.
        """
        is_whole = self.high - self.low >= 1
        return is_whole.all(1, keepdim=True) & self.moves

    def _look_ahead(self, factor: float) -> Outcome:
        """The outcome that each cell may have, with the observed slopes times a factor."""
        reach = self._reach()
        share = reach / reach.amax(1, keepdim=True).clamp(min=_TINY)

        def find_potential(slope: Tensor, overall: Tensor) -> Tensor:
            # slope times reach, one parameter after the other: the potential of the module's text
            least = _FLOOR * overall * share
            return _add_up(torch.maximum(slope, least) * reach)

        rise = find_potential(self.slope, self.overall)
        fall = find_potential(self.violation_slope, self.violation_overall)
        return Outcome(self.seen.value + factor * rise, self.seen.violation - factor * fall)

    def divide(self, count: int) -> None:
        """Divide `count` cells of each problem, and evaluate the point of each new one."""
        rows = self._choose_cells(count)
        index = rows[..., None].expand(-1, -1, self.size)

        def take(values: Tensor) -> Tensor:
            return values.gather(1, index)

        def put(values: Tensor, old: Tensor, new: Tensor) -> Tensor:
            changed = values.scatter(1, index, old)
            return torch.cat([changed, new], dim=1)

        point = take(self.points)
        low = take(self.low)
        high = take(self.high)
        reach = take(self._reach())
        slope = take(self.slope)
        violation_slope = take(self.violation_slope)
        # along the parameter that may change most; where nothing is known to change, along the longest side
        effect = _share(slope * reach) + _share(violation_slope * reach) + 0.1 * _share(reach)
        effect = torch.where(self._find_uncut(), effect + 3, effect)  # more than the largest effect
        axis = effect.argmax(2, keepdim=True)
        middle, below, above = (values.gather(2, axis) for values in (point, low, high))
        room_above = above - middle
        room_below = middle - below
        up = room_above >= room_below
        far = torch.where(up, room_above, room_below)
        # two thirds of the way is the middle of the new cell, which begins at one third
        step = torch.where(up, far, -far) * (2 / 3)
        new = middle + step
        cut = middle + step / 2
        new_point = point.scatter(2, axis, new)
        old_low = low.scatter(2, axis, torch.where(up, below, cut))
        old_high = high.scatter(2, axis, torch.where(up, cut, above))
        new_low = low.scatter(2, axis, torch.where(up, cut, below))
        new_high = high.scatter(2, axis, torch.where(up, above, cut))
        outcome = self._query(new_point)
        distance = step.abs().double().clamp(min=_TINY)[..., 0]

        def observe(old_values: Tensor, new_values: Tensor, slopes: Tensor) -> Tensor:
            difference = (new_values - old_values).abs().nan_to_num(nan=0.0, posinf=0.0)
            change = (difference / distance)[..., None]
            before = slopes.gather(2, axis)
            # an earlier slope is halved by a flat cut, and not forgotten at once
            return slopes.scatter(2, axis, torch.maximum(change, before / 2))

        old_value = self.seen.value.gather(1, rows)
        old_violation = self.seen.violation.gather(1, rows)
        slope = observe(old_value, outcome.value, slope)
        violation_slope = observe(old_violation, outcome.violation, violation_slope)
        self.low = put(self.low, old_low, new_low)
        self.high = put(self.high, old_high, new_high)
        self.points = torch.cat([self.points, new_point], dim=1)
        self.slope = put(self.slope, slope, slope)
        self.violation_slope = put(self.violation_slope, violation_slope, violation_slope)
        if self.side == 1:  # in place of the slopes of a regular grid
            largest = slope.amax(1, keepdim=True)
            largest_of_violation = violation_slope.amax(1, keepdim=True)
            self.overall = torch.maximum(self.overall, largest)
            self.violation_overall = torch.maximum(self.violation_overall, largest_of_violation)
        value = torch.cat([self.seen.value, outcome.value], dim=1)
        violation = torch.cat([self.seen.violation, outcome.violation], dim=1)
        self.seen = Outcome(value, violation)

    def _choose_cells(self, count: int) -> Tensor:
        """The numbers `(P, count)` of the cells to divide: one from either list in turn, each cell once."""
        ranks = []
        for factor in _FACTORS:
            key = self._look_ahead(factor).key()
            order = key.argsort(dim=1, descending=True, stable=True)
            ranks.append(torch.empty_like(order).scatter_(1, order, _number(order)))
        first, second = ranks
        turn = torch.minimum(2 * first, 2 * second + 1)
        return turn.argsort(dim=1, stable=True)[:, :count]

    def find_gap(self) -> Tensor:
        """The largest potential less the best value, `(P,)`, at least 0; infinite where nothing can be said.

        That is without a feasible point, and where no slope along a parameter was observed.
        """
        ahead = self._look_ahead(_SAFETY)
        best = self.run.kept.seen
        # a cell whose value is NaN cannot be the optimum
        value = ahead.value.nan_to_num(nan=-torch.inf)
        possible = torch.where(ahead.violation <= 0, value, -torch.inf)
        gap = (possible.amax(1) - best.value.double()).clamp(min=0)
        has_uncut = self._find_uncut().flatten(1).any(1)
        is_bounded = (best.violation <= 0) & ~has_uncut
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
        difference = grid.diff(dim=axis).abs().nan_to_num(nan=0.0, posinf=0.0)
        change = difference * (side - 1)
        # points at an edge have one neighbour
        edge = torch.zeros_like(change.narrow(axis, 0, 1))
        from_before = torch.cat([edge, change], axis)
        to_next = torch.cat([change, edge], axis)
        larger = torch.maximum(from_before, to_next)
        slopes.append(larger.flatten(1))
    return torch.stack(slopes, dim=2)


def _add_up(values: Tensor) -> Tensor:
    """The sum over the last axis, one addition at a time: the same bits in every batch."""
    total, *rest = values.unbind(-1)
    for part in rest:
        total = total + part
    return total


def _share(values: Tensor) -> Tensor:
    largest = values.amax(-1, keepdim=True)
    return values / largest.clamp(min=_TINY)


def _number(order: Tensor) -> Tensor:
    return torch.arange(order.shape[1], device=order.device).expand_as(order)
