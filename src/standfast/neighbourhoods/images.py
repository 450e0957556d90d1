"""What transformations of images share: checks of the inputs, and values as shares of their range.

Images are `(N, channels, height, width)`. The range of their values is given by the bounds of the model, which may
be numbers or a tensor for each channel. So nothing here assumes values from 0 to 1.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.transformations import Limits, Transformation, read_range, spread_limits


@dataclass(frozen=True)
class ImageTransformation(Transformation):
    """The base of transformations of images: parameters with the same ranges for all inputs.

    A class states `identity` and has `list_ranges`, besides what a `Transformation` has.
    """

    #: the values of the named parameters that leave an image as it is
    identity: ClassVar[tuple[float, ...]]
    #: whether it needs positions, so that inputs must be images
    needs_images: ClassVar[bool] = True
    #: whether it needs to know the smallest and the largest possible value
    needs_range: ClassVar[bool] = False
    #: how many channels an image may have; any number if empty
    channels: ClassVar[tuple[int, ...]] = ()

    @abstractmethod
    def list_ranges(self) -> tuple[tuple[float, float], ...]:
        """The range of each named parameter."""

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The same for all inputs.

        Raises:
            ArgumentError: inputs that are no images or have another number of channels; bounds that are not finite
                where the range of the values is needed.
        """
        name = type(self).__name__
        if self.needs_images:
            check(
                inputs.ndim == 4,
                "inputs",
                f"images of shape (N, channels, height, width) for {name}",
                f"shape {tuple(inputs.shape)}",
            )
        if self.channels:
            allowed = " or ".join(map(str, self.channels))
            check(
                inputs.shape[1] in self.channels,
                "inputs",
                f"images of {allowed} channels for {name}",
                f"shape {tuple(inputs.shape)}",
            )
        if self.needs_range:
            check_range(bounds, name)
        return spread_limits(inputs, self.identity, *self.list_ranges())


@dataclass(frozen=True)
class RankedTransformation(ImageTransformation):
    """The base of transformations with random numbers: after the named parameters come ranks, numbers in [0, 1].

    A quantile function maps each rank to what would be drawn. So the perturbed image is a function of its parameters.
    """

    @abstractmethod
    def count_ranks(self, shape: Sequence[int]) -> int:
        """How many ranks an input of this shape has."""

    def count_parameters(self, shape: Sequence[int]) -> int:
        """The named ones and the ranks."""
        return len(self.parameters) + self.count_ranks(shape)

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The ranges of the named ones, and ranks from 0 to 1; those of the clean input are medians."""
        named = super().limit_parameters(inputs, bounds)
        ranks = inputs.new_zeros(len(inputs), self.count_ranks(inputs.shape[1:]))
        return Limits(*(torch.cat([own, ranks + value], 1) for own, value in zip(named, (0.5, 0.0, 1.0), strict=True)))


def check_range(bounds: tuple[Tensor, Tensor], name: str) -> None:
    """Raise `ArgumentError` unless the bounds are finite and the upper one is larger."""
    finite = bool(torch.isfinite(bounds[0]).all() and torch.isfinite(bounds[1]).all())
    fits = finite and bool((bounds[1] > bounds[0]).all())
    got = f"from {float(bounds[0].min()):g} to {float(bounds[1].max()):g}"
    check(fits, "bounds", f"finite bounds of the model's inputs for {name}, such as (0, 1)", got)


def to_shares(inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """Values as shares of their range: 0 at the lower bound and 1 at the upper one."""
    return (inputs - bounds[0]) / (bounds[1] - bounds[0])


def from_shares(shares: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
    """The inverse of `to_shares`."""
    return bounds[0] + (bounds[1] - bounds[0]) * shares


def read_amount(value: object, option: str, most: float) -> tuple[float, float]:
    """A range of a strength that is at least 0: two numbers in order, or one number r for 0 to r.

    >>> read_amount(0.2, "scale", most=1), read_amount((0.1, 0.2), "scale", most=1)
    ((0.0, 0.2), (0.1, 0.2))
    """
    return read_range(value, option, least=0.0, most=most, single="up")


def expand(column: Tensor, like: Tensor) -> Tensor:
    """One number for each row, `(M,)`, shaped to broadcast over inputs `(M, ...)`."""
    return column.reshape(-1, *([1] * (like.ndim - 1)))
