"""A patch that covers a part of an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.images import ImageTransformation, check_range, read_amount
from standfast.neighbourhoods.transformations import Limits, Range, spread_limits
from standfast.records import set_fields


@neighbourhoods.register("occlusion")
@dataclass(frozen=True)
class Occlusion(ImageTransformation):
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

    parameters: ClassVar[tuple[str, ...]] = (
        "side of the patch [pixels]",
        "centre of the patch from the top [pixels]",
        "centre of the patch from the left [pixels]",
    )
    identity: ClassVar[tuple[float, ...]] = (0.0,)

    size: Range = 5.0
    fill: Literal["mean", "lower", "upper"] = "mean"

    def __post_init__(self) -> None:
        super().__post_init__()
        known = ("mean", "lower", "upper")
        check(self.fill in known, "fill", f"one of {', '.join(known)}", repr(self.fill))
        set_fields(self, size=read_amount(self.size, "size", most=10_000))

    def describe(self) -> str:
        """The range."""
        return "covered by a patch of {:g} to {:g} pixels at any place".format(*self.list_ranges()[0])

    def list_ranges(self) -> tuple[tuple[float, float], ...]:
        """The range of the size."""
        return (cast("tuple[float, float]", self.size),)

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The size, and all positions within the image."""
        limits = super().limit_parameters(inputs, bounds)
        if self.fill != "mean":
            check_range(bounds, f"Occlusion with fill={self.fill!r}")
        height, width = inputs.shape[-2:]
        places = spread_limits(inputs, [height / 2, width / 2], (0.0, float(height)), (0.0, float(width)))
        return Limits(*(torch.cat(pair, dim=1) for pair in zip(limits, places, strict=True)))

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Mix the values with those of the patch."""
        size, *centre = parameters.unbind(1)

        def cover(middle: Tensor, pixels: int) -> Tensor:
            """The share of each row or column of pixels that the patch covers, `(M, pixels)`."""
            edge = torch.arange(pixels, dtype=inputs.dtype, device=inputs.device)
            first, last = (middle + sign * size / 2 for sign in (-1, 1))
            return (torch.minimum(edge + 1, last[:, None]) - torch.maximum(edge, first[:, None])).clamp(min=0)

        down, across = (cover(middle, pixels) for middle, pixels in zip(centre, inputs.shape[-2:], strict=True))
        share = (down[:, :, None] * across[:, None, :])[:, None]
        colour = inputs.mean((2, 3), keepdim=True) if self.fill == "mean" else bounds[int(self.fill == "upper")]
        return torch.lerp(inputs, colour.expand_as(inputs), share.expand_as(inputs))
