"""Changes of light and colour of images: every pixel by the same rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from holdfast.neighbourhoods.base import neighbourhoods
from holdfast.neighbourhoods.transformations import Limits, Range, Transformation, read_range, spread_limits
from holdfast.records import set_fields


@neighbourhoods.register("brightness")
@dataclass(frozen=True)
class Brightness(Transformation):
    """A constant that is added to all values, as a share of the range of the inputs.

    Args:
        shift: from the darkest to the brightest; one number r stands for -r to r.

    >>> import torch
    >>> region = Brightness(0.2).around(torch.full((1, 1, 2, 2), 0.5), bounds=(0.0, 1.0))
    >>> region.perturb(torch.tensor([[0.1]]), torch.tensor([0])).unique()
    tensor([0.6000])
    """

    parameters: ClassVar[tuple[str, ...]] = ("brightness [share of the range]",)

    shift: Range = 0.2

    def __post_init__(self) -> None:
        super().__post_init__()
        set_fields(self, shift=read_range(self.shift, "shift", least=-1, most=1))

    def describe(self) -> str:
        """The range."""
        low, high = self.shift  # type: ignore[misc]
        return f"made brighter by {low:g} to {high:g} of the range of values"

    def limit_parameters(self, inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> Limits:
        """The same for all inputs."""
        return spread_limits(inputs, [0.0], self.shift)  # type: ignore[arg-type]

    def transform(self, inputs: Tensor, parameters: Tensor, bounds: tuple[Tensor, Tensor]) -> Tensor:
        """Add the constant."""
        width = bounds[1] - bounds[0]
        return inputs + width * parameters.reshape(-1, *([1] * (inputs.ndim - 1)))
