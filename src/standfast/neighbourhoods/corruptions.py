"""The named corruptions of Hendrycks and Dietterich, with their severities as a parameter.

Source: Hendrycks and Dietterich, "Benchmarking neural network robustness to common corruptions and perturbations"
(ICLR 2019). The constants are those of their code, github.com/hendrycks/robustness: `imagenet_c/corruptions.py` for
ImageNet-C and `create_c/make_cifar_c.py` for CIFAR-10-C.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from standfast.errors import UnknownNameError
from standfast.neighbourhoods.base import neighbourhoods
from standfast.neighbourhoods.blur import DefocusBlur, GaussianBlur, MotionBlur
from standfast.neighbourhoods.compression import JPEG, Pixelate
from standfast.neighbourhoods.distortions import Elastic, Fog, GlassBlur, Snow, ZoomBlur, constant
from standfast.neighbourhoods.light import Contrast, saturate
from standfast.neighbourhoods.noise import GaussianNoise, ImpulseNoise, ShotNoise, SpeckleNoise
from standfast.neighbourhoods.transformations import (
    ParameterAxis,
    Range,
    Transformation,
    as_range,
    expand,
    list_declared,
    parameter,
    to_shares,
)
from standfast.tensors import send

Images = Literal["imagenet", "cifar10"]


@dataclass(frozen=True)
class _Value(Transformation):
    """A constant that is added to the value of each pixel (HSV, as a share of the range); hue and saturation stay."""

    needs_range = True

    shift: Range = constant("value", 0.0)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        shares = to_shares(inputs, bounds)
        value = shares.amax(1, keepdim=True)
        shift = expand(parameters[:, 0], inputs)
        gain = (value + shift).clamp(0, 1) - value
        lit = value > 0  # black has neither hue nor saturation and becomes grey
        divisor = torch.where(lit, value, 1.0)
        change = torch.where(lit, shares / divisor, 1.0) * gain
        return inputs + (bounds[1] - bounds[0]) * change


@dataclass(frozen=True)
class _Saturate(Transformation):
    """Saturation s (HSV) becomes factor * s + offset, at most 1."""

    needs_range = True
    channels = (3,)

    factor: Range = constant("factor", 1.0)
    offset: Range = constant("offset", 0.0)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        factor, offset = (expand(column, inputs) for column in parameters.unbind(1))
        return saturate(inputs, factor, offset, bounds)


def _scale_elastic(severities: Sequence[tuple[float, ...]]) -> list[tuple[float, ...]]:
    scaled = []
    for shares in severities:
        scaled.append(tuple(share * 244 / 224 for share in shares))
    return scaled


class _Entry(NamedTuple):
    """A corruption: a transformation, the values of its first parameters at severities 1 to 5, and further options.

    At severity 0 the parameters are those of the identity.
    """

    kind: type[Transformation]
    imagenet: Sequence[float | tuple[float, ...]]
    cifar10: Sequence[float | tuple[float, ...]]
    options: Mapping[str, Any] = {}


def _find_scales(*photons: float) -> list[float]:
    return [1 / math.sqrt(count) for count in photons]


_ENTRIES: dict[str, _Entry] = {
    "gaussian_noise": _Entry(
        GaussianNoise, [0.08, 0.12, 0.18, 0.26, 0.38], [0.04, 0.06, 0.08, 0.09, 0.10]
    ),
    "shot_noise": _Entry(
        ShotNoise, _find_scales(60, 25, 12, 5, 3), _find_scales(500, 250, 100, 75, 50)
    ),
    "impulse_noise": _Entry(
        ImpulseNoise, [0.03, 0.06, 0.09, 0.17, 0.27], [0.01, 0.02, 0.03, 0.05, 0.07]
    ),
    "speckle_noise": _Entry(
        SpeckleNoise, [0.15, 0.2, 0.35, 0.45, 0.6], [0.06, 0.1, 0.12, 0.16, 0.2]
    ),
    "gaussian_blur": _Entry(GaussianBlur, [1, 2, 3, 4, 6], [0.4, 0.6, 0.7, 0.8, 1]),
    # the radius of our disk whose kernel has the standard deviation of theirs
    "defocus_blur": _Entry(
        DefocusBlur, [2.98, 4.01, 6.03, 8.02, 10.14], [0.55, 0.69, 0.93, 1.0, 1.58]
    ),
    # the length of our line with the standard deviation of their one-sided Gaussian, which ImageMagick cuts
    "motion_blur": _Entry(
        MotionBlur,
        [6.54, 10.73, 16.97, 23.8, 30.23],
        [2.31, 3.38, 4.43, 4.43, 5.49],
        {"angle": 45.0},
    ),
    # arange(1, 1.11, 0.01) and arange(1, 1.06, 0.01) of the original hold their ends, by rounding
    "zoom_blur": _Entry(
        ZoomBlur,
        [(12, 0.01), (16, 0.01), (11, 0.02), (13, 0.02), (11, 0.03)],
        [(7, 0.01), (12, 0.01), (16, 0.01), (21, 0.01), (26, 0.01)],
    ),
    "glass_blur": _Entry(
        GlassBlur,
        [(0.7, 1, 2), (0.9, 2, 1), (1, 2, 3), (1.1, 3, 2), (1.5, 4, 2)],
        [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    ),
    "fog": _Entry(
        Fog,
        [(1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)],
        [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    ),
    # mean, scale, zoom and threshold of the flakes, the length of our line as for motion_blur, share of the image
    "snow": _Entry(
        Snow,
        [
            (0.1, 0.3, 3, 0.5, 8.64, 0.8),
            (0.2, 0.3, 2, 0.5, 8.64, 0.7),
            (0.55, 0.3, 4, 0.9, 16.7, 0.7),
            (0.55, 0.3, 4.5, 0.85, 16.7, 0.65),
            (0.55, 0.3, 2.5, 0.85, 21.48, 0.55),
        ],
        [
            (0.1, 0.2, 1, 0.6, 6.54, 0.95),
            (0.1, 0.2, 1, 0.5, 8.64, 0.9),
            (0.15, 0.3, 1.75, 0.55, 8.64, 0.9),
            (0.25, 0.3, 2.25, 0.6, 12.81, 0.85),
            (0.3, 0.3, 1.25, 0.65, 23.18, 0.8),
        ],
    ),
    # shares of the shorter side; the original has 244 pixels where its images have 224
    "elastic_transform": _Entry(
        Elastic,
        _scale_elastic(
            [
                (2, 0.7, 0.1),
                (2, 0.08, 0.2),
                (0.05, 0.01, 0.02),
                (0.07, 0.01, 0.02),
                (0.12, 0.01, 0.02),
            ]
        ),
        [(0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)],
    ),
    "brightness": _Entry(_Value, [0.1, 0.2, 0.3, 0.4, 0.5], [0.05, 0.1, 0.15, 0.2, 0.3]),
    "contrast": _Entry(Contrast, [0.4, 0.3, 0.2, 0.1, 0.05], [0.75, 0.5, 0.4, 0.3, 0.15]),
    "saturate": _Entry(
        _Saturate,
        [(0.3, 0.0), (0.1, 0.0), (2.0, 0.0), (5.0, 0.1), (20.0, 0.2)],
        [(0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2)],
    ),
    "jpeg_compression": _Entry(JPEG, [25, 18, 15, 10, 7], [80, 65, 58, 50, 40]),
    "pixelate": _Entry(Pixelate, [0.6, 0.5, 0.4, 0.3, 0.25], [0.95, 0.9, 0.85, 0.75, 0.65]),
}


@neighbourhoods.register("corruption")
@dataclass(frozen=True)
class Corruption(Transformation):
    """A corruption of ImageNet-C or CIFAR-10-C, with a severity that need not be whole.

    Between whole severities its constants are interpolated linearly; severity 0 is the clean image. What the original
    draws at random (noise, the angle of a motion) are further parameters.

    Two blurs are the nearest of ours, with the same standard deviation. `motion_blur` is a mean over a line instead of
    one half of a Gaussian, so it does not shift the image as the original does; so is the motion of `snow`.
    `defocus_blur` is a disk with a softer edge. `zoom_blur` and `snow` enlarge about the exact middle of an image, the
    original by whole pixels. `elastic_transform` interpolates once instead of twice. All others follow the original's
    formulas. Only `jpeg_compression` and `pixelate` round values to bytes.

    `saturate` takes colour away at severities 1 and 2 and adds it from 3 on, so the clean image lies between 2 and 3.
    Where the iterations of `glass_blur` are not whole, the last one moves only a share of the pixels.
    `elastic_transform` moves positions: maps are moved back before they are compared.

    Two of the original's do not exist here: `frost`, which needs photographs, and `spatter`, which is no part of its
    benchmark.

    Args:
        name: `"gaussian_noise"`, `"shot_noise"`, `"impulse_noise"`, `"speckle_noise"`, `"gaussian_blur"`,
            `"defocus_blur"`, `"motion_blur"`, `"zoom_blur"`, `"glass_blur"`, `"fog"`, `"snow"`, `"brightness"`,
            `"contrast"`, `"saturate"`, `"jpeg_compression"`, `"pixelate"` or `"elastic_transform"`.
        severity: from the smallest to the largest, from 0 to 5; one number r stands for 0 to r.
        images: whose constants: `"imagenet"` for large images, `"cifar10"` for those of about 32 x 32 pixels.
        align: False compares maps as they are, without moving them back (`"elastic_transform"`).

    >>> import torch
    >>> region = Corruption("contrast", severity=(1, 3)).around(torch.tensor([[[[0.25, 0.75]]]]), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[1.5]]), torch.tensor([0]))  # halfway from a factor of 0.4 to one of 0.3
    tensor([[[[0.4125, 0.5875]]]])
    """

    phrase = "corrupted by {name} of severity {severity}"
    takes = "any"

    name: str
    severity: Range = parameter("severity", default=(1.0, 3.0), low=0, high=5)
    images: Images = "imagenet"
    _: KW_ONLY
    align: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.name not in _ENTRIES:
            raise UnknownNameError("name", self.name, _ENTRIES)

    @cached_property
    def _constants(self) -> list[tuple[float, ...]]:
        """The constants of severities 0 to 5."""
        kind = _ENTRIES[self.name].kind
        levels = getattr(_ENTRIES[self.name], self.images)
        constants = [level if isinstance(level, tuple) else (level,) for level in levels]
        clean = [declared.identity for declared in list_declared(kind).values()]
        return [tuple(clean[: len(constants[0])]), *constants]

    @cached_property
    def _inner(self) -> Transformation:
        """The transformation, with ranges that hold all constants that the severities reach."""
        low, high = as_range(self.severity)
        constants = self._constants[math.floor(low) : math.ceil(high) + 1]
        reached = list(zip(*constants, strict=True))
        entry = _ENTRIES[self.name]
        ranges = [(min(values), max(values)) for values in reached]
        return entry.kind(*ranges, **entry.options)

    @property
    def differentiable(self) -> bool:  # type: ignore[override]
        """Whether gradients flow from the parameters to the perturbed image."""
        return self._inner.differentiable

    @property
    def aligns(self) -> bool:
        """Whether maps are moved back: only of `elastic_transform`, unless `align=False`."""
        return self.align and self._inner.aligns

    def describe(self) -> str:
        """The name and the range of severities."""
        return super().describe().replace("_", " ")

    def check_fit(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> None:
        self._inner.check_fit(inputs, bounds)

    def list_axes(self, shape: Sequence[int]) -> list[ParameterAxis]:
        """The severity, and the named parameters that it does not determine."""
        # the severity takes the place of the constants, which come first
        inner_axes = self._inner.list_axes(shape)[len(self._constants[0]) :]
        return [*super().list_axes(shape), *inner_axes]

    def count_ranks(self, shape: Sequence[int]) -> int:
        return self._inner.count_ranks(shape)

    def transform(
        self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]
    ) -> Tensor:
        """The transformation with the constants of each severity."""
        return self._inner.transform(inputs, self._look_up(parameters), bounds)

    def align_maps(self, maps: Tensor, parameters: Tensor) -> tuple[Tensor, Tensor]:
        """The maps, moved back where the corruption moves positions, and which positions both images see."""
        return self._inner.align_maps(maps, self._look_up(parameters))

    def _look_up(self, parameters: Tensor) -> Tensor:
        """The parameters of the transformation: the constants of each severity, and what they do not determine."""
        table = send(self._constants, parameters.device, parameters.dtype)
        severity = parameters[:, :1]
        # severity 5 is the end of the last interval
        below = severity.detach().floor().clamp(0, 4).long()[:, 0]
        constants = torch.lerp(
            table[below], table[below + 1], (severity - below[:, None]).expand(-1, table.shape[1])
        )
        return torch.cat([constants, parameters[:, 1:]], 1)
