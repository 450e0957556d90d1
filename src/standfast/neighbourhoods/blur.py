"""Blurs of images: Gaussian, by motion, and out of focus.

Each is a convolution with a kernel of its own for each image. Its weights are continuous functions of the parameters,
so all are differentiable. Beyond the edge an image goes on with the value of the nearest pixel.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.transformations import Range, Transformation, as_range, parameter


@neighbourhoods.register("gaussian_blur")
@dataclass(frozen=True)
class GaussianBlur(Transformation):
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

    phrase = "blurred by a Gaussian of {sigma} pixels"

    sigma: Range = parameter("sigma of the blur [pixels]", default=1.0, low=0, high=100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Along each axis a product with a matrix, whose outer columns also hold the weights beyond the edge."""
        _, most = as_range(self.sigma)
        # as scipy rounds four standard deviations to whole pixels
        reach = max(1, int(4 * most + 0.5))
        # below this sigma the weights of the neighbours are 0 in double precision, too
        sigma = parameters[:, 0].clamp(min=0.02).reshape(-1, 1)
        steps = torch.arange(-reach, reach + 1, dtype=inputs.dtype, device=inputs.device)
        weights = torch.exp(-0.5 * (steps / sigma) ** 2)
        weights = weights / weights.sum(1, keepdim=True)

        def make_matrix(size: int) -> Tensor:
            """(M, size, size): the weight of each pixel in each blurred pixel."""
            position = torch.arange(size, device=inputs.device)
            there = torch.arange(-reach, size + reach, device=inputs.device)
            step = there[None, :] - position[:, None]
            number_of_weight = (step + reach).clamp(0, 2 * reach)
            wide = torch.where(step.abs() <= reach, weights[:, number_of_weight], 0.0)
            inner = wide[..., reach : reach + size]
            before = wide[..., :reach].sum(-1, keepdim=True)
            behind = wide[..., reach + size :].sum(-1, keepdim=True)
            # what lies beyond an edge has the value of the outer pixel, so its weight goes there
            first = functional.pad(before, (0, size - 1))
            last = functional.pad(behind, (size - 1, 0))
            return inner + first + last

        height, width = inputs.shape[-2:]
        down = make_matrix(height)
        across = down
        if width != height:
            across = make_matrix(width)
        return down[:, None] @ inputs @ across[:, None].mT


@neighbourhoods.register("motion_blur")
@dataclass(frozen=True)
class MotionBlur(Transformation):
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

    phrase = "blurred by a motion of {length} pixels at {angle} degrees"

    length: Range = parameter("length of the motion [pixels]", default=5.0, low=0, high=100)
    angle: Range = parameter("angle of the motion [degrees]", default=90.0, low=-180, high=180)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Convolve with the mean of the bilinear weights of all points of the line."""
        _, longest = as_range(self.length)
        points = 2 * math.ceil(longest) + 1
        reach = int(longest / 2) + 1
        # the middles of equal parts of the line, at least two for each pixel of its length
        numbers = torch.arange(points, dtype=inputs.dtype, device=inputs.device)
        share_of_way = (numbers + 0.5) / points - 0.5
        along = parameters[:, :1] * share_of_way
        angle = parameters[:, 1:2] * (math.pi / 180)
        steps = torch.arange(-reach, reach + 1, dtype=inputs.dtype, device=inputs.device)
        right = (along * torch.cos(angle))[..., None]
        up = (along * torch.sin(angle))[..., None]
        across = (1 - (steps - right).abs()).clamp(min=0)
        # y points down in an image, and angles are counter-clockwise
        down = (1 - (steps + up).abs()).clamp(min=0)
        kernels = down[..., :, None] * across[..., None, :]
        return convolve(inputs, kernels.mean(1))


@neighbourhoods.register("defocus_blur")
@dataclass(frozen=True)
class DefocusBlur(Transformation):
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

    phrase = "blurred out of focus by a disk of radius {radius} pixels"

    radius: Range = parameter("radius of the blur [pixels]", default=2.0, low=0, high=100)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        return convolve(
            inputs, make_disks(parameters[:, 0], math.ceil(as_range(self.radius)[1] + 0.5))
        )


def make_disks(radius: Tensor, reach: int) -> Tensor:
    """The kernels `(M, 2 reach + 1, 2 reach + 1)` of `DefocusBlur` for radii `(M,)`."""
    steps = torch.arange(-reach, reach + 1, dtype=radius.dtype, device=radius.device)
    distance = torch.hypot(steps[:, None], steps[None, :])
    edge = radius[:, None, None] + 0.5
    weights = (edge - distance).clamp(0, 1)
    return weights / weights.sum((1, 2), keepdim=True)


def convolve(images: Tensor, kernels: Tensor) -> Tensor:
    """Each of `images` `(M, C, H, W)` convolved with its own symmetric kernel, `(M, k, k)` with k odd."""
    reach = kernels.shape[-1] // 2
    wide = functional.pad(images, (reach, reach, reach, reach), mode="replicate")
    # each image has a kernel of its own: images become groups of one convolution
    groups = wide.transpose(0, 1)
    convolved = functional.conv2d(groups, kernels[:, None], groups=len(images))
    return convolved.transpose(0, 1)
