"""Projected gradient ascent through the explanation, on a smoothed model that becomes sharper.

Problem: `max value(x) subject to violation(x) <= 0` over the region, with the gradient objective's smoothed value and
violation (softplus for ReLU, so that an explanation has a derivative). Each iterate of each restart:

    d = grad value(x) where the true model meets the constraint at x, -grad violation(x) elsewhere
    m = momentum m + d / |d|_1,    x = project(x + step s(m))

The smoothed model begins with `smooth` times its own sharpness and ends with `sharp` times: at first the directions are
good far ahead, and in the end they are those of the true model. After each `1 / (2 halvings)` of the budget, up to its
half, the worse half of the restarts is given up, so that the others get more iterations.

s is the sign for boxes and the unit vector for L2 balls. The step falls linearly from `step` times the half width of
the box (the radius of the ball) to nothing. Following the value or the constraint, whichever is due at the point, is
the switching subgradient method of Polyak (1967); it has no multiplier to tune.

In a region of few parameters, such as an angle, two thirds of the budget go to starts that are spread over the box. The
first step is as long as they are apart.

Source: projected gradient descent of Madry et al., "Towards deep learning models resistant to adversarial attacks"
(ICLR 2018), with the momentum of Dong et al., "Boosting adversarial attacks with momentum" (CVPR 2018); through
explanations: Dombrowski et al., "Explanations can be manipulated and geometry is to blame" (NeurIPS 2019). We depart
from them in the constraint, and in evaluating every iterate on the true model; the smoothed one only gives directions.

Cost: `budget` evaluations for each problem. An iteration takes two for each restart, one with gradient and one on the
true model. The evaluations that do not make a whole iteration go to further random starts; the best starts are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from standfast.algorithms.searches.base import (
    FEW,
    Search,
    SearchRun,
    draw_starts,
    searches,
    take_points,
)
from standfast.needs import Needs
from standfast.neighbourhoods import Region
from standfast.records import Count, CountFromZero, Positive, Range
from standfast.tensors import Streams, broadcast_rows


@searches.register("gradient")
@dataclass(frozen=True)
class GradientSearch(Search):
    """Projected gradient ascent with restarts in parallel.

    Args:
        restarts: for each problem, at the start.
        step: the first one, as a share of the box's half width or of the ball's radius.
        momentum: how much of the last direction is kept.
        halvings: how often the worse half of the restarts is given up, in the first half of the budget.
        smooth, sharp: sharpness of the smoothed objective in the first and in the last iteration, as multiples of
            its own.
    """

    restarts: Count = 8
    step: Positive = 0.5
    momentum: Annotated[float, Range(least=0, below=1)] = 0.75
    halvings: CountFromZero = 2
    smooth: Positive = 0.5
    sharp: Positive = 6.0
    name = "gradient"
    needs: ClassVar[Needs] = Needs(gradients=True)
    white_box = True

    def search(self, run: SearchRun, streams: Streams) -> Tensor:
        """All restarts in parallel, then the better half of them, and so on."""
        return self.ascend(run, streams, run.left)

    def ascend(self, run: SearchRun, streams: Streams, budget: int) -> Tensor:
        """Spend `budget` of the evaluations that are left."""
        region = run.region
        first = run.spent
        step = self.step
        tried = 2 * budget // 3 if region.shape.numel() <= FEW else 0
        plan = self._plan(budget - tried)
        restarts = plan[0]
        x = draw_starts(region, budget - 2 * sum(plan[1:]), streams)
        if tried:  # a step is no longer than the starts are apart, so that each climbs its own peak
            first, budget, step = (
                first + tried,
                budget - tried,
                min(step, 2 / x.shape[1] ** (1 / region.shape.numel())),
            )
        outcome = run.query(x)
        key, rows = outcome.key().sort(dim=1, descending=True, stable=True)
        x, feasible = (
            take_points(x, rows[:, :restarts]),
            outcome.violation.gather(1, rows[:, :restarts]) <= 0,
        )
        best = key[:, :restarts]
        momentum = torch.zeros_like(x)
        for count in plan[1:]:
            if count < x.shape[1]:
                rows = best.argsort(dim=1, descending=True, stable=True)[:, :count]
                x, momentum = take_points(x, rows), take_points(momentum, rows)
                best, feasible = best.gather(1, rows), feasible.gather(1, rows)
            done = (run.spent - first) / budget
            sharpness = self.smooth * (self.sharp / self.smooth) ** done
            momentum = self.momentum * momentum + _normalise(
                run.find_ascent(x, feasible, sharpness)
            )
            direction = _find_steepest(region, momentum)
            x = region.project(x + step * (1 - done) * direction)
            outcome = run.query(x)
            feasible = outcome.violation <= 0
            best = torch.maximum(best, outcome.key())
        return x

    def _plan(self, budget: int) -> list[int]:
        """How many restarts there are at the start, and then in each iteration."""
        restarts = min(self.restarts, max(1, budget // 3))
        left = budget - restarts
        plan = [restarts]
        while left >= 2 * plan[-1]:
            # each half of what the halvings leave belongs to one of them: say the quarters, if there are two
            stage = min(self.halvings, int(2 * self.halvings * (1 - left / budget)))
            count = max(1, restarts >> stage)
            plan.append(count)
            left -= 2 * count
        return plan


def _normalise(direction: Tensor) -> Tensor:
    """Directions `(P, n, *shape)` with an L1 norm of 1; zeros stay zeros."""
    length = direction.flatten(2).abs().sum(2)
    return direction / broadcast_rows(length, direction).clamp(min=1e-30)


def _find_steepest(region: Region, direction: Tensor) -> Tensor:
    """The step of size 1, in the region's norm, that goes furthest along `direction` `(P, n, *shape)`."""
    if region.radius is None:
        half_width = (region.upper - region.lower) / 2
        return direction.sign() * half_width[:, None]
    norm = torch.linalg.vector_norm(direction.flatten(2), dim=2)
    return direction * broadcast_rows(region.radius / norm.clamp(min=1e-30), direction)
