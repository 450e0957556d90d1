"""A white-box search with steps of one length: the sign of the gradient, again and again, from several starts.

The iteration of attacks on classes (Madry et al., ICLR 2018) and on attributions (Ghorbani, Abid and Zou,
"Interpretation of neural networks is fragile", AAAI 2019, Algorithm 1):

    x <- project(x + step * sign(grad value(x))),

from uniform points of the region; the best point on the way that meets the constraint wins. Where the constraint is
broken, the next step leads back (along the gradient of minus the violation), which those attacks leave to chance.

Cost: `1 + restarts * (2 * steps + 1)` evaluations for each problem, gradients counted as one each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch

from holdfast.algorithms.searches.base import (
    Best,
    GradientObjective,
    Objective,
    Search,
    SearchResult,
    Tracer,
    look,
    searches,
)
from holdfast.errors import ArgumentError, check, check_integer
from holdfast.neighbourhood import Region
from holdfast.tensors import rows_to


@searches.register("sign")
@dataclass(frozen=True)
class SignSearch(Search):
    """Iterated sign steps with restarts in parallel.

    Args:
        restarts: for each problem.
        step: the length of each step in every feature, in the units of the input; None for 2.5 times the
            region's largest half width, divided by the number of steps that the budget allows.

    >>> from holdfast.algorithms.searches.base import Outcome, ascent
    >>> from holdfast.neighbourhood import LinfBall
    >>> def lower_sum(x, problem):
    ...     return Outcome(-x.sum(1), torch.full((len(x),), -1.0))
    >>> def gradient(x, problem, feasible):
    ...     with torch.enable_grad():
    ...         leaf = x.clone().requires_grad_(True)
    ...         return ascent(lower_sum(leaf, problem), leaf, feasible)
    >>> region = LinfBall(0.1).around(torch.full((1, 3), 0.5))
    >>> SignSearch(restarts=1, step=0.05).run(lower_sum, region, 12, 0, gradient).inputs
    tensor([[0.40, 0.40, 0.40]])
    """

    restarts: int = 3
    step: float | None = None
    name: ClassVar[str] = "sign"
    white_box: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer(self.restarts, "restarts")
        fine = self.step is None or (isinstance(self.step, int | float) and 0 < self.step < float("inf"))
        check(fine, "step", "a finite number above 0", self.step)

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`; what the budget leaves over after the last full step is not spent."""
        if gradient is None:
            raise ArgumentError("gradient", "an objective that can be differentiated", None)
        tracer, best = Tracer(budget), Best(objective, region)
        spent = 1
        tracer.note(spent, best.outcome, last=budget == 1)
        restarts = min(self.restarts, max(1, (budget - 1) // 3))
        steps = (budget - 1 - restarts) // (2 * restarts)
        if budget - 1 < restarts:
            return best.result(tracer.trace())
        x = region.project(region.sample(restarts, region.streams(seed)))
        seen = look(objective, x)
        best.offer(x, seen)
        spent += restarts
        tracer.note(spent, best.outcome, last=steps == 0)
        problem = torch.arange(len(x), device=x.device).repeat_interleave(restarts)
        half_width = ((region.upper - region.lower) / 2).flatten(1).amax(1)
        own = 2.5 * half_width / max(steps, 1) if self.step is None else torch.full_like(half_width, self.step)
        length = rows_to(own, x)
        for number in range(steps):
            direction = gradient(x.flatten(0, 1), problem, (seen.violation <= 0).flatten()).reshape(x.shape)
            x = region.project(x + length * direction.sign())
            seen = look(objective, x)
            best.offer(x, seen)
            spent += 2 * restarts
            tracer.note(spent, best.outcome, last=number == steps - 1)
        return best.result(tracer.trace(), population=x)
