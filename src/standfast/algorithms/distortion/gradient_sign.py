"""The gradient-sign attacks of the c-Eval paper: one step, or many, of the least size that changes the class.

    x' = clip(x + epsilon sign(grad L))                                        (GSA; c-Eval, Eq. 6)
    x'_{i+1} = clip_{x, epsilon}(x'_i + alpha sign(grad L(x'_i)))             (IGA; c-Eval, Eq. 7)

on the free features, with L the cross-entropy of the predicted class. The paper writes a minus before a gradient of
"the l component of the loss". The step has to *raise* the loss of the predicted class, since otherwise the class would
never change. The least epsilon is bracketed by doubling, from an eighth of what a linear classifier would need, and
then searched for on finer and finer grids, whose points are evaluated together. Where the class changes back and forth
along the way, the result is the first change on these grids.

Sources: Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial examples" (ICLR 2015); Kurakin,
Goodfellow and Bengio, "Adversarial examples in the physical world" (ICLR 2017, workshop).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.distortion.base import Attack, attacks
from standfast.algorithms.distortion.geometry import dual_norm_of
from standfast.algorithms.distortion.space import FreeSpace, Nearest
from standfast.records import Count
from standfast.tensors import Streams

_GRID = 10  # how many sizes are evaluated together
_DOUBLINGS = 40  # how many sizes are tried at most for an input without bounds
_FIRST = 1 / 8  # the first size, as a share of what a linear classifier would need


@attacks.register("gsa")
@dataclass(frozen=True)
class GradientSign(Attack):
    """One step along the gradient's sign, of the least size that changes the class.

    Args:
        rounds: the size is found to a relative accuracy of `10^-rounds`, at 10 evaluations a round.
    """

    rounds: Count = 3
    name = "gsa"
    points_in_memory = _GRID

    def expected_evaluations(self) -> int:
        """Two gradients, and a grid for the bracket and for each round."""
        return 2 + _GRID * (self.rounds + 1)

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """Search for the least step; `start` is ignored, since the step begins at the input."""
        _, gradient = space.loss_gradient(space.x, space.rows)
        direction = gradient.sign()

        def change(rows: Tensor, sizes: Tensor) -> Tensor:
            owner = rows.repeat_interleave(sizes.shape[1])
            steps = sizes.flatten()[:, None] * direction[owner]
            points = space.clip(space.x[owner] + steps, owner)
            margin = space.margin(points, owner)
            _, flips = nearest.offer(points, margin, owner)
            return flips.reshape(sizes.shape)

        _find_least_size(space, change, self.rounds)


@attacks.register("iga")
@dataclass(frozen=True)
class IteratedGradient(Attack):
    """Steps along the gradient's sign within a box around the input, of the least size that changes the class.

    Args:
        steps: how many within each box, at a gradient each for each of 10 boxes a round.
        rounds: the size of the box is found to a relative accuracy of `10^-rounds`.
    """

    steps: Count = 10
    rounds: Count = 2
    name = "iga"
    points_in_memory = _GRID

    def expected_evaluations(self) -> int:
        """A gradient, and the steps of a grid of boxes for the bracket and for each round."""
        return 1 + (self.steps + 1) * _GRID * (self.rounds + 1)

    def run(
        self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None
    ) -> None:
        """Search for the least box; `start` is ignored, since the steps begin at the input."""

        def change(rows: Tensor, sizes: Tensor) -> Tensor:
            owner = rows.repeat_interleave(sizes.shape[1])
            radius = sizes.flatten()[:, None]
            x = space.x[owner]
            points = x
            flipped = torch.zeros(len(owner), dtype=torch.bool, device=x.device)
            for number in range(self.steps + 1):
                margin, gradient = space.loss_gradient(points, owner)
                if number:
                    _, flips = nearest.offer(points, margin, owner)
                    flipped = flipped | flips
                moved = points - x + radius / self.steps * gradient.sign()
                moved = torch.minimum(torch.maximum(moved, -radius), radius)
                points = space.clip(x + moved, owner)
            return flipped.reshape(sizes.shape)

        _find_least_size(space, change, self.rounds)


def _find_least_size(
    space: FreeSpace, change: Callable[[Tensor, Tensor], Tensor], rounds: int
) -> None:
    """Double the size until the class changes; then refine grids between the last size without and the first with it.

    `change(rows, sizes)` says which of `sizes` `(n, 10)` change the class of the inputs `rows` `(n,)`.
    """
    margin, gradient = space.margin_gradient(space.x, space.rows)
    room_above = space.upper - space.x
    room_below = space.x - space.lower
    # a larger step has no further effect
    room = torch.maximum(room_above, room_below).amax(1)
    slope = dual_norm_of(gradient, "inf").clamp(min=1e-30)
    first = (-margin / slope).clamp(min=1e-12) * _FIRST
    without_estimate = room.clamp(max=1.0)
    first = torch.where(first.isfinite(), torch.minimum(first, room), without_estimate)
    low = torch.zeros_like(first)
    high = torch.full_like(first, torch.inf)
    powers = 2.0 ** torch.arange(_GRID, dtype=first.dtype, device=first.device)
    rows = space.rows
    begin = first
    for _ in range(_DOUBLINGS // _GRID):
        room_of_rows = room[rows]
        sizes = torch.minimum(begin[:, None] * powers, room_of_rows[:, None])
        low[rows], high[rows] = _bracket(change(rows, sizes), sizes, low[rows])
        largest = sizes[:, -1]
        go_on = high[rows].isinf() & (largest < room_of_rows)
        rows = rows[go_on]
        begin = 2 * largest[go_on]
        if not len(rows):
            break
    rows = high.isfinite().nonzero().flatten()
    if not len(rows):
        return
    numbers = torch.arange(1, _GRID + 1, dtype=first.dtype, device=first.device)
    share = numbers / _GRID
    for _ in range(rounds):
        width = (high - low)[rows, None]
        sizes = low[rows, None] + share * width
        low[rows], high[rows] = _bracket(change(rows, sizes), sizes, low[rows])


def _bracket(flips: Tensor, sizes: Tensor, low: Tensor) -> tuple[Tensor, Tensor]:
    """The last size before the first that changes the class, and that one (infinite without one), `(n,)` each."""
    has_flip = flips.any(1)
    first = flips.to(torch.int64).argmax(1)[:, None]
    one_before = sizes.gather(1, (first - 1).clamp(min=0))
    before = torch.where(first > 0, one_before, low[:, None])[:, 0]
    flipped = sizes.gather(1, first)[:, 0]
    last = sizes[:, -1]
    return torch.where(has_flip, before, last), torch.where(has_flip, flipped, torch.inf)
