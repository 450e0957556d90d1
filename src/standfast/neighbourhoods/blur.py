"""Blurs of images: Gaussian, by motion, and out of focus.

Each is a convolution with a kernel of its own for each image. Its weights are continuous functions of the parameters,
so all are differentiable. Beyond the edge an image goes on with the value of the nearest pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.images import ImageTransformation, read_amount
from standfast.neighbourhoods.transformations import Range, read_range
from standfast.records import set_fields


@neighbourhoods.register("gaussian_blur")
@dataclass(frozen=True)
class GaussianBlur(ImageTransformation):
    """A convolution with weights proportional to exp(-k^2 / (2 sigma^2)) at a distance of k pixels.

    The weights end at four times the largest sigma of the range, as those of `scipy.ndimage.gaussian_filter` do.

    Args:
        sigma: from the smallest to the largest standard deviation, in pixels; one number r stands for 0 to r.

    >>> import torch
    >>> region = GaussianBlur(2).around(torch.eye(3)[None, None])
    >>> region.perturb(torch.tensor([[0.5]]), torch.tensor([0])).round(decimals=2)
    tensor([[[[0.8100, 0.1800, 0.0100],
              [0.1800, 0.6400, 0.1800],
              [0.0100, 0.1800, 0.8100]]]])
    """

    parameters: ClassVar[tuple[str, ...]] = ("sigma of the blur [pixels]",)
    identity: ClassVar[tuple[float, ...]] = (0.0,)

    sigma: Range = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, sigma=read_amount(self.sigma, "sigma", most=100))

    def describe(self) -> str:
        """The range."""
        return "blurred by a Gaussian of {:g} to {:g} pixels".format(*self.list_ranges()[0])

    def list_ranges(self) -> tuple[tuple[float, float], ...]:
        """The range of sigma."""
        return (cast("tuple[float, float]", self.sigma),)

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Along each axis a product with a matrix, whose outer columns also hold the weights beyond the edge."""
        reach = max(1, int(4 * self.list_ranges()[0][1] + 0.5))
        # below this sigma the weights of the neighbours are 0 in double precision, too
        sigma = parameters[:, 0].clamp(min=0.02).reshape(-1, 1)
        steps = torch.arange(-reach, reach + 1, dtype=inputs.dtype, device=inputs.device)
        weights = torch.exp(-0.5 * (steps / sigma) ** 2)
        weights = weights / weights.sum(1, keepdim=True)

        def make_matrix(size: int) -> Tensor:
            """(M, size, size): the weight of each pixel in each blurred pixel."""
            here = torch.arange(size, device=inputs.device)
            there = torch.arange(-reach, size + reach, device=inputs.device)
            step = there[None, :] - here[:, None]
            wide = torch.where(step.abs() <= reach, weights[:, (step + reach).clamp(0, 2 * reach)], 0.0)
            inner = wide[..., reach : reach + size]
            first = functional.pad(wide[..., :reach].sum(-1, keepdim=True), (0, size - 1))
            last = functional.pad(wide[..., reach + size :].sum(-1, keepdim=True), (size - 1, 0))
            return inner + first + last

        height, width = inputs.shape[-2:]
        down = make_matrix(height)
        across = down if width == height else make_matrix(width)
        return down[:, None] @ inputs @ across[:, None].mT


@neighbourhoods.register("motion_blur")
@dataclass(frozen=True)
class MotionBlur(ImageTransformation):
    """The mean of the image while it moves along a straight line, by half of its length to either side.

    The line is sampled at least twice for each pixel of its length, with bilinear interpolation.

    Args:
        length: of the line in pixels, from the smallest to the largest; one number r stands for 0 to r.
        angle: of the line in degrees, counter-clockwise from the horizontal; one number r stands for -r to r.

    >>> import torch
    >>> image = torch.tensor([[[[0.0, 0.0, 9.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 0.0]]]])
    >>> region = MotionBlur(4).around(image)
    >>> region.perturb(torch.tensor([[3.0, 0.0]]), torch.tensor([0])).round()
    tensor([[[[0., 3., 3., 3., 0.],
              [0., 0., 0., 0., 0.]]]])
    """

    parameters: ClassVar[tuple[str, ...]] = ("length of the motion [pixels]", "angle of the motion [degrees]")
    identity: ClassVar[tuple[float, ...]] = (0.0, 0.0)

    length: Range = 5.0
    angle: Range = 90.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(
            self,
            length=read_amount(self.length, "length", most=100),
            angle=read_range(self.angle, "angle", least=-180, most=180),
        )

    def describe(self) -> str:
        """The ranges."""
        length, angle = self.list_ranges()
        return f"blurred by a motion of {length[0]:g} to {length[1]:g} pixels at {angle[0]:g} to {angle[1]:g} degrees"

    def list_ranges(self) -> tuple[tuple[float, float], ...]:
        """The ranges of the length and of the angle."""
        return cast("tuple[float, float]", self.length), cast("tuple[float, float]", self.angle)

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Convolve with the mean of the bilinear weights of all points of the line."""
        longest = self.list_ranges()[0][1]
        points, reach = 2 * math.ceil(longest) + 1, int(longest / 2) + 1
        place = (torch.arange(points, dtype=inputs.dtype, device=inputs.device) + 0.5) / points - 0.5
        along = parameters[:, :1] * place
        angle = parameters[:, 1:2] * (math.pi / 180)
        steps = torch.arange(-reach, reach + 1, dtype=inputs.dtype, device=inputs.device)
        across = (1 - (steps - (along * torch.cos(angle))[..., None]).abs()).clamp(min=0)
        down = (1 - (steps + (along * torch.sin(angle))[..., None]).abs()).clamp(min=0)
        return convolve(inputs, (down[..., :, None] * across[..., None, :]).mean(1))


@neighbourhoods.register("defocus_blur")
@dataclass(frozen=True)
class DefocusBlur(ImageTransformation):
    """The mean over a disk, as a lens out of focus makes it.

    A pixel at distance d from the centre has weight `radius + 1/2 - d`, cut to 0 and 1, before all are divided by their
    sum. So the edge of the disk is one pixel wide, and up to a radius of 1/2 nothing changes.

    Args:
        radius: of the disk in pixels, from the smallest to the largest; one number r stands for 0 to r.

    >>> import torch
    >>> image = torch.zeros(1, 1, 3, 3)
    >>> image[0, 0, 1, 1] = 5.0
    >>> DefocusBlur(2).around(image).perturb(torch.tensor([[0.9]]), torch.tensor([0])).round(decimals=2)
    tensor([[[[0.0000, 0.7700, 0.0000],
              [0.7700, 1.9200, 0.7700],
              [0.0000, 0.7700, 0.0000]]]])
    """

    parameters: ClassVar[tuple[str, ...]] = ("radius of the blur [pixels]",)
    identity: ClassVar[tuple[float, ...]] = (0.0,)

    radius: Range = 2.0

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, radius=read_amount(self.radius, "radius", most=100))

    def describe(self) -> str:
        """The range."""
        return "blurred out of focus by a disk of radius {:g} to {:g} pixels".format(*self.list_ranges()[0])

    def list_ranges(self) -> tuple[tuple[float, float], ...]:
        """The range of the radius."""
        return (cast("tuple[float, float]", self.radius),)

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Convolve with the disk."""
        return convolve(inputs, make_disks(parameters[:, 0], math.ceil(self.list_ranges()[0][1] + 0.5)))


def make_disks(radius: Tensor, reach: int) -> Tensor:
    """The kernels `(M, 2 reach + 1, 2 reach + 1)` of `DefocusBlur` for radii `(M,)`."""
    steps = torch.arange(-reach, reach + 1, dtype=radius.dtype, device=radius.device)
    distance = torch.hypot(steps[:, None], steps[None, :])
    weights = (radius[:, None, None] + 0.5 - distance).clamp(0, 1)
    return weights / weights.sum((1, 2), keepdim=True)


def convolve(images: Tensor, kernels: Tensor) -> Tensor:
    """Each of `images` `(M, C, H, W)` convolved with its own symmetric kernel, `(M, k, k)` with k odd."""
    reach = kernels.shape[-1] // 2
    wide = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    return functional.conv2d(wide.transpose(0, 1), kernels[:, None], groups=len(images)).transpose(0, 1)
