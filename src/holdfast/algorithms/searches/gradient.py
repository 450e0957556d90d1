"""Projected gradient ascent through the explanation: the white-box baseline for the black-box searches.

Problem: `max value(x) subject to violation(x) <= 0` over the region, with the gradient objective's smoothed value and
violation (softplus for ReLU, so that an explanation has a derivative). Each iterate of each restart:

    d = grad value(x) where the true model meets the constraint at x, -grad violation(x) elsewhere
    m = momentum m + d / |d|_1,    x = project(x + step s(m))

s is the sign for boxes and the unit vector for L2 balls. The step falls linearly from `step` times the half width of
the box (the radius of the ball) to nothing. Following the value or the constraint, whichever is due at the point, is
the switching subgradient method of Polyak (1967); it has no multiplier to tune.

Source: projected gradient descent of Madry et al., "Towards deep learning models resistant to adversarial attacks"
(ICLR 2018), with the momentum of Dong et al., "Boosting adversarial attacks with momentum" (CVPR 2018); through
explanations: Dombrowski et al., "Explanations can be manipulated and geometry is to blame" (NeurIPS 2019). We depart
from them in the constraint, and in evaluating every iterate on the true model; the smoothed one only gives directions.

Cost: `budget` evaluations for each problem. An iteration takes two for each restart, one with gradient and one on the
true model. The evaluations that do not make a whole iteration go to further random starts; the best starts are used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import Search, SearchRun, searches, take_points
from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Region
from holdfast.tensors import Streams, broadcast_rows


@searches.register("gradient")
@dataclass(frozen=True)
class GradientSearch(Search):
    """Projected gradient ascent with restarts in parallel.

    Args:
        restarts: for each problem. With a multiple of 8 the results do not depend, to the last bit, on the other
            problems of the batch (see `holdfast.model.ROW_ALIGNMENT`).
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

    def search(self, run: SearchRun, streams: Streams) -> Tensor:
        """All restarts in parallel."""
        region = run.region
        restarts = min(self.restarts, max(1, run.left // 3))
        iterations, over = divmod(max(0, run.left - restarts), 2 * restarts)
        x = region.project(region.sample(min(restarts + over, run.left), streams))
        seen = run.query(x)
        rows = seen.key().argsort(dim=1, descending=True, stable=True)[:, :restarts]
        x, feasible = take_points(x, rows), seen.violation.gather(1, rows) <= 0
        momentum = torch.zeros_like(x)
        for iteration in range(iterations):
            momentum = self.momentum * momentum + _normalise(run.find_ascent(x, feasible))
            step = self.step * (1 - iteration / iterations)
            x = region.project(x + step * _find_steepest(region, momentum))
            feasible = run.query(x).violation <= 0
        return x


def _normalise(direction: Tensor) -> Tensor:
    """Directions `(P, n, *shape)` with an L1 norm of 1; zeros stay zeros."""
    return direction / broadcast_rows(direction.flatten(2).abs().sum(2), direction).clamp(min=1e-30)


def _find_steepest(region: Region, direction: Tensor) -> Tensor:
    """The step of size 1, in the region's norm, that goes furthest along `direction` `(P, n, *shape)`."""
    if region.radius is None:
        return direction.sign() * ((region.upper - region.lower) / 2)[:, None]
    norm = torch.linalg.vector_norm(direction.flatten(2), dim=2)
    return direction * broadcast_rows(region.radius / norm.clamp(min=1e-30), direction)
