"""Projected gradient ascent through the explanation: the white-box yardstick for the searches that only ask.

Problem: `max value(x) subject to violation(x) <= 0` over the region, with the gradient objective's smoothed value and
violation (softplus for ReLU, so that an explanation has a derivative). Each iterate of each restart:

    d = grad value(x) where the true model meets the constraint at x, -grad violation(x) elsewhere
    m = momentum m + d / |d|_1,    x = project(x + step s(m))

s is the sign for boxes and the unit vector for L2 balls; the step falls linearly from `step` times the half width of
the box (the radius of the ball) to nothing. Going for the value or for the constraint, whichever is due at the point
itself, is the switching subgradient method of Polyak (1967); it needs no multiplier to be tuned.

Source: projected gradient descent of Madry et al., "Towards deep learning models resistant to adversarial attacks"
(ICLR 2018), with the momentum of Dong et al., "Boosting adversarial attacks with momentum" (CVPR 2018); through
explanations: Dombrowski et al., "Explanations can be manipulated and geometry is to blame" (NeurIPS 2019). We depart
from them in the constraint, and in scoring every iterate on the true model: the smoothed one only shows the way.

Cost: `budget` evaluations for each problem; an iteration takes two for each restart, one with gradient and one on
the true model. What is left over beyond whole iterations is spent on random starts, the best of which are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import (
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
from holdfast.errors import ArgumentError, check, check_integer
from holdfast.neighbourhood import Region
from holdfast.tensors import rows_to


@searches.register("gradient")
@dataclass(frozen=True)
class GradientSearch(Search):
    """Projected gradient ascent with restarts in parallel.

    Args:
        restarts: for each problem. In multiples of 8 the results do not depend, to the last bit, on who else is in
            the batch (see `holdfast.model.ROW_ALIGNMENT`).
        step: the first one, as a share of the box's half width or of the ball's radius.
        momentum: how much of the last direction is kept.
    """

    restarts: int = 8
    step: float = 0.5
    momentum: float = 0.75
    name: ClassVar[str] = "gradient"
    white_box: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer(self.restarts, "restarts")
        check(self.step > 0, "step", "a number above 0", self.step)
        check(0 <= self.momentum < 1, "momentum", "a number in [0, 1)", self.momentum)

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`."""
        if gradient is None:
            raise ArgumentError("gradient", "an objective that can be differentiated", None)
        tracer, streams = Tracer(budget), region.streams(seed)
        best, spent = Best(objective, region), 1
        tracer.note(spent, best.outcome, last=budget == 1)
        if budget == 1:
            return best.result(tracer.trace())
        restarts = min(self.restarts, max(1, (budget - 1) // 3))
        iterations, over = divmod(max(0, budget - 1 - restarts), 2 * restarts)
        x = region.project(region.sample(min(restarts + over, budget - 1), streams))
        seen = look(objective, x)
        best.offer(x, seen)
        spent += x.shape[1]
        tracer.note(spent, best.outcome, last=spent == budget)
        rows = seen.key().argsort(dim=1, descending=True, stable=True)[:, :restarts]
        x, feasible = take(x, rows), seen.violation.gather(1, rows) <= 0
        momentum = torch.zeros_like(x)
        for iteration in range(iterations):
            momentum = self.momentum * momentum + _ascent(gradient, x, feasible)
            step = self.step * (1 - iteration / iterations)
            x = region.project(x + step * _steepest(region, momentum))
            seen = look(objective, x)
            best.offer(x, seen)
            feasible = seen.violation <= 0
            spent += 2 * restarts
            tracer.note(spent, best.outcome, last=spent == budget)
        return best.result(tracer.trace(), population=x)


def _ascent(gradient: GradientObjective, x: Tensor, feasible: Tensor) -> Tensor:
    """Where to go from each point `(P, n, *shape)`: gradients with L1 norm 1, or 0 where there is none."""
    problem = torch.arange(len(x), device=x.device).repeat_interleave(x.shape[1])
    d = gradient(x.flatten(0, 1), problem, feasible.flatten())
    return (d / rows_to(d.flatten(1).abs().sum(1), d).clamp(min=1e-30)).reshape(x.shape)


def _steepest(region: Region, direction: Tensor) -> Tensor:
    """The step of size 1 that goes furthest in `direction` `(P, n, *shape)`, in the region's norm."""
    if region.radius is None:
        return direction.sign() * ((region.upper - region.lower) / 2)[:, None]
    norm = torch.linalg.vector_norm(direction.flatten(2), dim=2)
    return direction * rows_to(region.radius / norm.clamp(min=1e-30), direction)
