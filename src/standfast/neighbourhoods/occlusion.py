"""A patch that covers a part of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import (
    ParameterAxis,
    Range,
    Transformation,
    check_range,
    parameter,
)

Fill = Literal["mean", "lower", "upper"]


@neighbourhoods.register("occlusion")
@dataclass(frozen=True)
class Occlusion(Transformation):
    """A square patch of one colour at any place of an image.

    The centre of the patch lies anywhere in the image, so a part of the patch may lie outside. Its position and its
    size are real numbers. A pixel becomes a mixture of its value and the patch's, by the share of the pixel's area that
    the patch covers. So the edges are sharp where the patch ends between pixels, and gradients exist everywhere.

    Args:
        size: side of the patch in pixels, from the smallest to the largest; one number r stands for 0 to r.
        fill: colour of the patch: `"mean"` of each channel of the image, `"lower"` or `"upper"` bound of the inputs.

    >>> import torch
    >>> region = Occlusion(2, fill="lower").around(torch.ones(1, 1, 2, 4), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[2.0, 1.0, 1.5]]), torch.tensor([0]))  # a patch around row 1, column 1.5
    tensor([[[[0.5000, 0.0000, 0.5000, 1.0000],
              [0.5000, 0.0000, 0.5000, 1.0000]]]])
    """

    phrase = "covered by a patch of {size} pixels at any place"

    size: Range = parameter("side of the patch [pixels]", default=5.0, low=0, high=10_000)
    fill: Fill = "mean"

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        """Check the bounds, too, if the patch has the colour of one."""
        super().check_fit(inputs, bounds)
        if self.fill != "mean":
            check_range(bounds, f"Occlusion with fill={self.fill!r}")

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """The size, and all positions within the image."""
        height, width = shape[-2:]
        return [
            *super().list_axes(shape),
            ParameterAxis("centre of the patch from the top [pixels]", height / 2, 0.0, height),
            ParameterAxis("centre of the patch from the left [pixels]", width / 2, 0.0, width),
        ]

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Mix the values with those of the patch."""
        size, *centre = parameters.unbind(1)

        def cover(middle: Tensor, pixels: int) -> Tensor:
            """The share of each row or column of pixels that the patch covers, `(M, pixels)`."""
            edge = torch.arange(pixels, dtype=inputs.dtype, device=inputs.device)
            first, last = (middle + sign * size / 2 for sign in (-1, 1))
            return (
                torch.minimum(edge + 1, last[:, None]) - torch.maximum(edge, first[:, None])
            ).clamp(min=0)

        down, across = (
            cover(middle, pixels) for middle, pixels in zip(centre, inputs.shape[-2:], strict=True)
        )
        covered = down[:, :, None] * across[:, None, :]
        share = covered[:, None]
        if self.fill == "mean":
            colour = inputs.mean((2, 3), keepdim=True)
        else:
            colour = bounds[int(self.fill == "upper")]
        return torch.lerp(inputs, colour.expand_as(inputs), share.expand_as(inputs))
