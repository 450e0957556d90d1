"""The gradient-sign attacks of the c-Eval paper: one step, or many, of the least size that flips.

    x' = clip(x + epsilon sign(grad L))                                        (GSA; c-Eval, Eq. 6)
    x'_{i+1} = clip_{x, epsilon}(x'_i + alpha sign(grad L(x'_i)))             (IGA; c-Eval, Eq. 7)

on the free features, L the cross-entropy of the predicted class. The paper writes a minus before a gradient of "the l
component of the loss": whatever its sign, the step has to *raise* the loss of the predicted class, or it would never
flip. The least epsilon is looked for on a grid, finer and finer, whose points are looked at together.

Sources: Goodfellow, Shlens and Szegedy, "Explaining and harnessing adversarial examples" (ICLR 2015); Kurakin,
Goodfellow and Bengio, "Adversarial examples in the physical world" (ICLR 2017, workshop).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.distortion.base import Attack, attacks
from holdfast.algorithms.distortion.space import FreeSpace, Nearest
from holdfast.errors import check
from holdfast.tensors import Streams

_GRID = 10  # sizes looked at together
_UNBOUNDED = 1e6  # a range above this has no useful largest step


@attacks.register("gsa")
@dataclass(frozen=True)
class GradientSign(Attack):
    """One step along the gradient's sign, of the least size that flips.

    Args:
        rounds: the size is found to a share `10^-rounds` of the largest that makes sense, by 10 evaluations a round.
    """

    rounds: int = 4
    name: ClassVar[str] = "gsa"

    def __post_init__(self) -> None:
        check(type(self.rounds) is int and self.rounds >= 1, "rounds", "a whole number of at least 1", self.rounds)

    def expected_evaluations(self) -> int:
        """See `Attack`."""
        return 1 + _GRID * self.rounds

    def run(self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None) -> None:
        """See `Attack`; `start` is ignored, since the step begins at the input."""
        _, gradient = space.loss_gradient(space.x, space.rows)
        direction = gradient.sign()

        def look(sizes: Tensor) -> Tensor:
            points = [space.clip(space.x + size[:, None] * direction, space.rows) for size in sizes.unbind(1)]
            owner = space.rows.repeat_interleave(sizes.shape[1])
            flat = torch.stack(points, dim=1).flatten(0, 1)
            return nearest.offer(flat, space.margin(flat, owner), owner)[1].reshape(sizes.shape)

        _least_size(space, look, self.rounds)


@attacks.register("iga")
@dataclass(frozen=True)
class IteratedGradient(Attack):
    """Steps along the gradient's sign within a box around the input, of the least size that flips.

    Args:
        steps: within each box, a gradient each for each of 10 boxes a round.
        rounds: the box is found to a share `10^-rounds` of the largest that makes sense.
    """

    steps: int = 10
    rounds: int = 3
    name: ClassVar[str] = "iga"

    def __post_init__(self) -> None:
        for what in ("steps", "rounds"):
            value = getattr(self, what)
            check(type(value) is int and value >= 1, what, "a whole number of at least 1", repr(value))

    def expected_evaluations(self) -> int:
        """See `Attack`."""
        return (self.steps + 1) * _GRID * self.rounds

    def run(self, space: FreeSpace, nearest: Nearest, streams: Streams, start: Tensor | None) -> None:
        """See `Attack`; `start` is ignored, since the steps begin at the input."""

        def look(sizes: Tensor) -> Tensor:
            owner = space.rows.repeat_interleave(sizes.shape[1])
            radius = sizes.flatten()[:, None]
            x = space.x[owner]
            points, flipped = x, torch.zeros(len(owner), dtype=torch.bool, device=x.device)
            for number in range(self.steps + 1):
                margin, gradient = space.loss_gradient(points, owner)
                if number:
                    flipped = flipped | nearest.offer(points, margin, owner)[1]
                moved = points - x + radius / self.steps * gradient.sign()
                points = space.clip(x + torch.minimum(torch.maximum(moved, -radius), radius), owner)
            return flipped.reshape(sizes.shape)

        _least_size(space, look, self.rounds)


def _least_size(space: FreeSpace, look: object, rounds: int) -> None:
    """Grids of sizes, each between the last that did not flip and the first that did."""
    assert callable(look)
    width = torch.where(space.free, space.upper - space.lower, 0.0).amax(1)
    largest = torch.where(width < _UNBOUNDED, width, space.x.abs().amax(1).clamp(min=1.0) * 10)
    low, high = torch.zeros_like(largest), largest
    share = torch.arange(1, _GRID + 1, dtype=largest.dtype, device=largest.device) / _GRID
    for _ in range(rounds):
        sizes = low[:, None] + share * (high - low)[:, None]
        flips = look(sizes)
        first = torch.where(flips.any(1), flips.to(torch.int64).argmax(1), _GRID - 1)[:, None]
        high = sizes.gather(1, first)[:, 0]
        low = torch.where(first > 0, sizes.gather(1, (first - 1).clamp(min=0)), low[:, None])[:, 0]
