"""A white-box search with steps of one length along the sign of the gradient, from several random starts.

The iteration of attacks on classes (Madry et al., ICLR 2018) and on attributions (Ghorbani, Abid and Zou,
"Interpretation of neural networks is fragile", AAAI 2019, Algorithm 1):

    x <- project(x + step * sign(grad value(x))),

from uniform points of the region. The result is the best point of all iterations that meets the constraint. Where the
constraint is violated, the next step follows the gradient of minus the violation; those attacks leave this to chance.

In a region of few parameters, such as an angle, three quarters of the budget go to starts that are spread over the box.
The best 5 of them go on. Their first step is as long as the starts are apart, and each further one is 0.7 times as
long, unless `step` sets the length.

Cost: `budget` evaluations for each problem: one, and `2 * steps + 1` for each restart; a gradient counts as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

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
from standfast.errors import check
from standfast.needs import Needs
from standfast.neighbourhoods.transformations import TransformedRegion
from standfast.records import Count, Positive
from standfast.tensors import Streams, broadcast_rows

_FEW_RESTARTS, _SHORTER = 5, 0.7  # where there are few parameters


@searches.register("sign")
@dataclass(frozen=True)
class SignSearch(Search):
    """Iterated sign steps with restarts in parallel.

    Args:
        restarts: for each problem.
        step: the length of each step in every feature, in the units of the input. None: 2.5 times the region's
            largest half width (of a transformation, each parameter's own), divided by the number of steps that the
            budget allows; of few parameters, see above.
        sharpness: of the smoothed model that gradients come from (`GradientObjective`); several are dealt to the
            restarts in turn, so that a search need not know which one suits its problem.
        from_centre: whether it starts at the centre instead of at random points. Where the gradient there is 0, the
            first step has random signs.

    >>> from standfast.algorithms.searches.base import Outcome, differentiate_outcome
    >>> from standfast.neighbourhoods import LinfBall
    >>> def lower_sum(x, problem):
    ...     return Outcome(-x.sum(1), torch.full((len(x),), -1.0))
    >>> def gradient(x, problem, feasible, sharpness=1.0):
    ...     with torch.enable_grad():
    ...         leaf = x.clone().requires_grad_(True)
    ...         return differentiate_outcome(lower_sum(leaf, problem), leaf, feasible)
    >>> region = LinfBall(0.1).around(torch.full((1, 5), 0.5))
    >>> SignSearch(restarts=1, step=0.05).run(lower_sum, region, 12, 0, gradient).inputs
    tensor([[0.40, 0.40, 0.40, 0.40, 0.40]])
    """

    restarts: Count = 16
    step: Positive | None = None
    sharpness: tuple[float, ...] = (1.0,)
    from_centre: bool = False
    name = "sign"
    needs: ClassVar[Needs] = Needs(gradients=True)
    white_box = True

    def __post_init__(self) -> None:
        fine = isinstance(self.sharpness, tuple) and all(
            0 < value < float("inf") for value in self.sharpness
        )
        check(
            fine and len(self.sharpness) > 0,
            "sharpness",
            "finite numbers above 0, at least one",
            self.sharpness,
        )

    def search(self, run: SearchRun, streams: Streams) -> Tensor:
        """All restarts in parallel. What does not make a whole step goes to further starts; the best are used."""
        region = run.region
        size = run.region.shape.numel()
        few = size <= FEW and not self.from_centre
        restarts = min(self.restarts, max(1, run.left // 3))
        if few:
            restarts = min(restarts, _FEW_RESTARTS)
        tried = 0
        if few:
            tried = min(3 * run.left // 4, run.left - restarts)
        # a restart costs its start, and for each step a gradient and a query
        steps, over = divmod(max(0, run.left - tried - restarts), 2 * restarts)
        over += tried
        if self.from_centre:
            over = 0
            x = region.centre[:, None].expand(-1, restarts, *region.shape).contiguous()
        else:
            x = draw_starts(region, restarts + over, streams)
        outcome = run.query(x)
        if over:
            rows = outcome.key().argsort(dim=1, descending=True, stable=True)[:, :restarts]
            x, outcome = take_points(x, rows), outcome.gather(rows)
        half_width = ((region.upper - region.lower) / 2)[:, None]
        # features share one unit; each parameter has its own
        if not isinstance(region, TransformedRegion):
            half_width = broadcast_rows(half_width.flatten(1).amax(1), x)
        if self.step is None:
            length = 2.5 * half_width / max(steps, 1)
        else:
            length = torch.full_like(half_width, self.step)
        shrinks = few and self.step is None
        if shrinks:
            # the distance along each parameter between so many points that fill the box evenly
            length = 2 * half_width / (restarts + over) ** (1 / size)
        for number in range(steps):
            sign = self._find_ascent(run, x, outcome.violation <= 0).sign()
            if self.from_centre and number == 0:
                still = (sign == 0).flatten(2).all(2)
                drawn = torch.where(streams.uniform(x.shape[1:], x.dtype) < 0.5, 1.0, -1.0).to(
                    x.dtype
                )
                sign = torch.where(broadcast_rows(still, x), drawn, sign)
            factor = _SHORTER**number if shrinks else 1.0
            x = region.project(x + length * factor * sign)
            outcome = run.query(x)
        return x

    def _find_ascent(self, run: SearchRun, x: Tensor, feasible: Tensor) -> Tensor:
        """The directions of all restarts, each from a model of its own sharpness."""
        used = self.sharpness[: x.shape[1]]
        if len(used) == 1:
            return run.find_ascent(x, feasible, used[0])
        directions = torch.empty_like(x)
        for first, sharpness in enumerate(used):
            every_nth = slice(first, None, len(used))
            directions[:, every_nth] = run.find_ascent(
                x[:, every_nth], feasible[:, every_nth], sharpness
            )
        return directions
