"""Losses on the way of an image through files: compression by JPEG, and a lower resolution.

Both are pillow's, image by image, on bytes. So values are rounded to one of 256 levels of their range, also at the
best quality: no parameter gives the clean image back to 1e-6. There are no gradients.
"""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.choices import Choices
from standfast.neighbourhoods.transformations import (
    ParameterAxis,
    Range,
    Transformation,
    as_range,
    from_shares,
    parameter,
    to_shares,
)


@dataclass(frozen=True)
class Loss(Transformation):
    """The base of losses: a function of pillow's images and one parameter."""

    differentiable = False
    needs_range = True
    channels = (1, 3)

    @abstractmethod
    def convert(self, image: Image.Image, parameter: float) -> Image.Image:
        """The image after the loss; of the same size and mode."""

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """Round to bytes, convert each image, and take the bytes back to the range of the inputs."""
        # bytes are what pillow takes, and what files hold
        shares = to_shares(inputs.detach(), bounds)
        levels = (shares * 255).round().clamp(0, 255).to(torch.uint8)
        pixels = levels.movedim(1, -1).cpu().numpy()
        if pixels.shape[-1] == 1:
            pixels = pixels[..., 0]
        converted = [
            np.asarray(self.convert(Image.fromarray(image), value))
            for image, value in zip(
                pixels,
                self.effective_points(inputs, parameters, bounds)[:, 0].tolist(),
                strict=True,
            )
        ]
        compressed_pixels = np.stack(converted) if converted else pixels
        compressed = torch.from_numpy(compressed_pixels)
        compressed = compressed.reshape(len(inputs), *inputs.shape[2:], -1)
        return from_shares(compressed.movedim(-1, 1).to(inputs) / 255, bounds)


@neighbourhoods.register("jpeg")
@dataclass(frozen=True)
class JPEG(Loss):
    """Compression by JPEG and back, with pillow's defaults: colours at half of the resolution.

    The parameter is a real number, and the file has the nearest quality, a whole number. The range of the parameter is
    half a quality wider on both sides, so that all whole qualities are equally probable.

    Args:
        quality: from the lowest to the highest, whole numbers from 1 to 100; one number q stands for q to 100.

    >>> import torch
    >>> region = JPEG((30, 90)).around(torch.rand(1, 3, 16, 16), bounds=(0.0, 1.0))
    >>> rough, fine = (region.perturb(torch.tensor([[q]]), torch.tensor([0])) for q in (30.0, 90.0))
    >>> bool((rough - region.inputs).abs().mean() > (fine - region.inputs).abs().mean())
    True
    """

    phrase = "saved as JPEG of quality {quality}"

    quality: Range = parameter(
        "quality of JPEG", default=(30.0, 90.0), identity=100, low=1, high=100
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = as_range(self.quality)
        check(low % 1 == high % 1 == 0, "quality", "whole numbers", repr(self.quality))

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """The range, and half a quality more on both sides unless there is only one."""
        (axis,) = super().list_axes(shape)
        more = 0.5 if axis.high > axis.low else 0.0
        return [axis._replace(low=axis.low - more, high=axis.high + more)]

    @property
    def chooses(self) -> bool:
        """Always: qualities are whole numbers."""
        return True

    def find_choices(
        self, inputs: Tensor, bounds: tuple[Tensor, Tensor], before: Sequence[Transformation] = ()
    ) -> Choices:
        """The whole qualities; the highest one changes an image least."""
        low, high = as_range(self.quality)
        qualities = round(high - low) + 1
        counts = torch.full((len(inputs), 1), qualities, device=inputs.device)
        ordered = torch.ones(1, dtype=torch.bool, device=inputs.device)
        complete = torch.ones(len(inputs), dtype=torch.bool, device=inputs.device)
        return Choices(
            counts, counts - 1, ordered, lambda numbers: low + numbers.double(), complete
        )

    def effective_points(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The whole qualities; at the ends of the wider range, those of `quality`."""
        within = parameters.clamp(*as_range(self.quality))
        return torch.where((parameters - within).abs() <= 0.5, within, parameters).round()

    def convert(self, image: Image.Image, parameter: float) -> Image.Image:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=int(parameter))
        return Image.open(file)


@neighbourhoods.register("pixelate")
@dataclass(frozen=True)
class Pixelate(Loss):
    """A lower resolution and back: the mean of boxes of pixels, then the nearest of these means.

    Source: Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations"
    (ICLR 2019).

    Args:
        resolution: as a share of the image's own, from the lowest to the highest, at most 1; one number r stands for
            r to 1.

    >>> import torch
    >>> region = Pixelate(0.25).around(torch.tensor([[[[0.0, 1.0], [0.0, 0.2]]]]), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.5]]), torch.tensor([0]))
    tensor([[[[0.3020, 0.3020],
              [0.3020, 0.3020]]]])
    """

    phrase = "reduced to {resolution} of its resolution"

    resolution: Range = parameter(
        "resolution [share]", default=(0.5, 1.0), identity=1, low=0.01, high=1
    )

    def convert(self, image: Image.Image, parameter: float) -> Image.Image:
        """Make it smaller, and as large as before."""
        width, height = (max(1, int(size * parameter)) for size in image.size)
        return image.resize((width, height), Image.Resampling.BOX).resize(
            image.size, Image.Resampling.BOX
        )
