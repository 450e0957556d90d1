"""The rules of a traced network: for each kind of layer its values, intervals, linear bounds and rounding errors.

Everything is float64 and batched: values `(N, *shape)`, coefficients of linear functions `(rows, *shape)`. `Affine`
rules are exact. `Rectifier` and `MaxPool` have a line below and a line above them, valid on an interval of inputs. The
lines of a rectifier are those of Zhang, Weng, Chen, Hsieh and Daniel, "Efficient neural network robustness
certification with general activation functions" (NeurIPS 2018), Table 1 and Section 3.2.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn import grad as convolution_gradients

CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_ADJOINTS: dict[int, Callable[..., Tensor]] = {
    1: convolution_gradients.conv1d_input,
    2: convolution_gradients.conv2d_input,
    3: convolution_gradients.conv3d_input,
}


def dot(a: Tensor, values: Tensor) -> Tensor:
    """`sum(a * values)` of each row, `(rows,)`; `values` has as many rows as `a`, or a single one for all."""
    if len(values) == 1:
        return a.flatten(1) @ values.flatten()
    return (a * values).flatten(1).sum(1)


class NetworkStep(ABC):
    """One step of a network."""

    @abstractmethod
    def apply(self, *values: Tensor) -> Tensor:
        """The values `(N, *shape)` of this step."""

    @abstractmethod
    def interval(self, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Bounds of the values of this step, from bounds of its inputs."""

    def rounding(self, sizes: list[Tensor], unit: float, product: float) -> Tensor | None:
        """An upper bound of the rounding errors of the values, for inputs with the largest absolute values `sizes`.

        `unit` is the unit roundoff. `product` is a further relative error of each product (TF32 rounds the factors).
        None if this step does not round.
        """
        return None


class Affine(NetworkStep):
    """`x -> L x + b`; `terms` is an upper bound of how many products are summed for one output."""

    terms: int = 0
    offset: Tensor | None = None  # b, (*shape)
    offset_size: Tensor | None = (
        None  # |b|, or the sum of the absolute values of the terms that b is computed from
    )

    @abstractmethod
    def spread(self, radius: Tensor) -> Tensor:
        """`|L| radius`, where |L| has the absolute values of L's entries."""

    @abstractmethod
    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        """`L^T a` for rows of coefficients `a`; `shape` is the shape of one input."""

    def interval(self, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
        # an affine function takes the middle of a box to the middle of its values, and half its width by |L|
        (low,) = lower
        (high,) = upper
        middle = self.apply((low + high) / 2)
        half = self.spread((high - low) / 2)
        return middle - half, middle + half

    def rounding(self, sizes: list[Tensor], unit: float, product: float) -> Tensor | None:
        if not self.terms:
            return None  # values are moved, not computed
        # a sum of n products in any order: Higham, Accuracy and stability of numerical algorithms (2002), (3.5)
        steps = (self.terms + 2) * unit
        gamma = steps / (1 - steps) + 1.01 * product
        size = self.spread(sizes[0])
        if self.offset_size is not None:
            size = size + self.offset_size
        return gamma * size


class Linear(Affine):
    """A linear layer: a weight matrix applied to the last axis."""

    def __init__(self, weight: Tensor, bias: Tensor | None, shape: torch.Size) -> None:
        self.weight = weight
        self.bias = bias
        self.terms = weight.shape[1]
        if bias is not None:
            self.offset = bias.expand(shape)
            self.offset_size = self.offset.abs()

    def apply(self, *values: Tensor) -> Tensor:
        return F.linear(values[0], self.weight, self.bias)

    def spread(self, radius: Tensor) -> Tensor:
        return F.linear(radius, self.weight.abs())

    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        return a @ self.weight


class Convolution(Affine):
    """A convolutional layer (cross-correlation) with zero padding, in one to three dimensions."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, shape: torch.Size, geometry: Sequence[object]
    ) -> None:
        # stride, padding, dilation, groups
        self.weight, self.bias, self.geometry = (
            weight,
            bias,
            tuple(geometry),
        )
        self.dimensions = weight.ndim - 2
        self.terms = weight[0].numel()
        if bias is not None:
            self.offset = bias.reshape(-1, *[1] * self.dimensions).expand(shape)
            self.offset_size = self.offset.abs()

    def apply(self, *values: Tensor) -> Tensor:
        convolve = CONVOLUTIONS[self.dimensions]
        return convolve(values[0], self.weight, self.bias, *self.geometry)

    def spread(self, radius: Tensor) -> Tensor:
        convolve = CONVOLUTIONS[self.dimensions]
        return convolve(radius, self.weight.abs(), None, *self.geometry)

    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        differentiate = _ADJOINTS[self.dimensions]
        return differentiate((len(a), *shape), self.weight, a, *self.geometry)


class UnitwiseAffine(Affine):
    """`factor x + offset` for each unit; `size` is an upper bound of the terms that the offset is computed from."""

    terms = 8

    def __init__(self, factor: Tensor, offset: Tensor, size: Tensor, shape: torch.Size) -> None:
        self.factor = factor
        self.shift = offset.expand(shape)
        self.offset = self.shift
        self.offset_size = size.expand(shape)

    def apply(self, *values: Tensor) -> Tensor:
        return torch.addcmul(self.shift, values[0], self.factor)

    def spread(self, radius: Tensor) -> Tensor:
        return radius * self.factor.abs()

    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        return a * self.factor


class Positive(Affine):
    """A linear function without offset and without negative weights, such as an average or a permutation."""

    def __init__(self, function: Callable[[Tensor], Tensor], terms: int) -> None:
        self.function = function
        self.terms = terms

    def apply(self, *values: Tensor) -> Tensor:
        return self.function(values[0])

    def spread(self, radius: Tensor) -> Tensor:
        return self.function(radius)

    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        # the gradient of a linear function is its adjoint, at any x
        with torch.enable_grad():
            x = a.new_zeros((len(a), *shape)).requires_grad_(True)
            (out,) = torch.autograd.grad(self.function(x), x, a)
        return out


class Reshape(Positive):
    """The same numbers in another shape."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__(lambda x: x.reshape(-1, *shape), 0)

    def adjoint(self, a: Tensor, shape: torch.Size) -> Tensor:
        return a.reshape(-1, *shape)


@dataclass(frozen=True)
class Sum(NetworkStep):
    """`first + sign * second`."""

    sign: float

    def apply(self, *values: Tensor) -> Tensor:
        return values[0] + self.sign * values[1]

    def interval(self, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
        first_lower, second_lower = lower
        first_upper, second_upper = upper
        if self.sign > 0:
            return first_lower + second_lower, first_upper + second_upper
        # the lower bound of a difference takes the upper bound of what is subtracted
        return first_lower - second_upper, first_upper - second_lower

    def rounding(self, sizes: list[Tensor], unit: float, product: float) -> Tensor | None:
        first, second = sizes
        return 2 * unit * (first + second)


class Nonlinear(NetworkStep):
    """A monotone convex function with a linear lower and a linear upper bound."""

    @abstractmethod
    def lines(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, ...]:
        """The parameters of both lines, each `(N, ...)`, for inputs within the bounds `(N, *shape)`."""

    @abstractmethod
    def backward(
        self, a: Tensor, lines: tuple[Tensor, ...], shape: torch.Size
    ) -> tuple[Tensor, Tensor]:
        """A linear lower bound of `sum(a * values)`: coefficients of the inputs, and constants `(rows,)`."""

    def interval(self, lower: list[Tensor], upper: list[Tensor]) -> tuple[Tensor, Tensor]:
        return self.apply(lower[0]), self.apply(upper[0])


@dataclass(frozen=True)
class Rectifier(Nonlinear):
    """`max(z, slope z)` with `slope` in [0, 1); 0 is the ReLU."""

    slope: float

    def apply(self, *values: Tensor) -> Tensor:
        return torch.maximum(values[0], self.slope * values[0])

    def rounding(self, sizes: list[Tensor], unit: float, product: float) -> Tensor | None:
        if not self.slope:
            return None
        return 2 * unit * self.slope * sizes[0]

    def lines(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, ...]:
        """Slopes of the lower and the upper line, and the constant of the upper one."""
        undecided = (lower < 0) & (upper > 0)  # the sign of the input
        flat = torch.full_like(lower, self.slope)
        steep = torch.ones_like(lower)
        exact = torch.where(lower >= 0, steep, flat)
        width = torch.where(undecided, upper - lower, steep)
        chord = (upper - self.slope * lower) / width
        above = torch.where(undecided, chord, exact)
        # Section 3.2: of the two lower lines through 0 the one that leaves the smaller area
        smaller_area = torch.where(upper > -lower, steep, flat)
        below = torch.where(undecided, smaller_area, exact)
        constant = torch.where(undecided, upper * (1 - above), 0.0)
        return below, above, constant

    def backward(
        self, a: Tensor, lines: tuple[Tensor, ...], shape: torch.Size
    ) -> tuple[Tensor, Tensor]:
        below, above, constant = lines
        # a positive coefficient takes the lower line, a negative one the upper line
        slope = torch.where(a > 0, below, above)
        return a * slope, dot(a.clamp(max=0), constant)


class MaxPool(Nonlinear):
    """The maximum over windows of the trailing axes.

    Let candidate i have the bounds l_i and u_i, let u_1 be the largest upper bound and u_2 the second largest. With
    `t = max(max_i l_i, u_2)` the maximum is at most `max(z_1, t)`, which is at most its chord on `[l_1, u_1]`: the
    upper line. The lower line is the candidate whose interval has the largest midpoint. Both lines are exact if the
    interval of one candidate lies above all others.
    """

    def __init__(self, windows: Tensor, space: torch.Size, out: torch.Size) -> None:
        self.windows = windows  # (windows, candidates): flat positions in `space`; the size of `space` for none
        self.space = space
        self.out = out

    def _candidates(self, values: Tensor, filler: Tensor | float) -> Tensor:
        """The candidates of each window, `(N, ..., windows, candidates)`; `filler` stands for padding."""
        flat = values.flatten(-len(self.space))
        filler = torch.as_tensor(filler, dtype=values.dtype, device=values.device)
        padding = filler.expand(*flat.shape[:-1], 1)
        padded = torch.cat([flat, padding], -1)
        return padded[..., self.windows]

    def apply(self, *values: Tensor) -> Tensor:
        return (
            self._candidates(values[0], -math.inf)
            .amax(-1)
            .reshape(*values[0].shape[: -len(self.space)], *self.out)
        )

    def lines(self, lower: Tensor, upper: Tensor) -> tuple[Tensor, ...]:
        """Positions of the lower and the upper line's candidates, and slope and constant of the upper line."""
        filler = lower.min() - 1  # padding must lie below every candidate
        low = self._candidates(lower, filler)
        high = self._candidates(upper, filler)
        top = high.argmax(-1, keepdim=True)
        # u_2, and below t of the class's text
        without_top = high.scatter(-1, top, -torch.inf)
        others = without_top.amax(-1, keepdim=True)
        threshold = torch.maximum(low.amax(-1, keepdim=True), others)
        low_top = low.gather(-1, top)
        high_top = high.gather(-1, top)
        open_ = high_top > threshold
        # t is at least l_1, so the chord of max(z, t) goes from (l_1, t) to (u_1, u_1)
        width = torch.where(open_, high_top - low_top, 1.0)
        slope = torch.where(open_, (high_top - threshold) / width, 0.0)
        constant = threshold - slope * low_top
        choice = (low + high).argmax(-1, keepdim=True)
        positions = self.windows.expand_as(low)
        return positions.gather(-1, choice), positions.gather(-1, top), slope, constant

    def backward(
        self, a: Tensor, lines: tuple[Tensor, ...], shape: torch.Size
    ) -> tuple[Tensor, Tensor]:
        flat = a.flatten(-len(self.space))
        choice, top, slope, constant = (line.squeeze(-1) for line in lines)
        up = flat.clamp(min=0)
        down = flat.clamp(max=0)
        # one entry more takes what falls on the padding, and is dropped
        positions = math.prod(self.space) + 1
        out = flat.new_zeros((*flat.shape[:-1], positions))
        out.scatter_add_(-1, choice.expand_as(flat), up)
        out.scatter_add_(-1, top.expand_as(flat), down * slope.expand_as(flat))
        coefficients = out[..., :-1].reshape(-1, *shape)
        return coefficients, dot(down, constant)


def pool_windows(
    space: torch.Size,
    out: torch.Size,
    kernel: list[int],
    stride: list[int],
    padding: list[int],
    dilation: list[int],
) -> Tensor:
    """Flat positions `(windows, candidates)` of each window in `space`; `prod(space)` for positions outside `space`.

    >>> pool_windows(torch.Size([4]), torch.Size([2]), [3], [2], [1], [1]).tolist()
    [[4, 0, 1], [1, 2, 3]]
    """
    positions = torch.zeros(1, 1, dtype=torch.int64)
    inside = torch.ones(1, 1, dtype=torch.bool)
    for n, m, k, s, p, d in zip(space, out, kernel, stride, padding, dilation, strict=True):
        first = torch.arange(m)[:, None] * s - p
        axis = first + torch.arange(k) * d
        fits = (axis >= 0) & (axis < n)
        windows = len(positions) * m
        positions = positions[:, None, :, None] * n + axis[None, :, None, :]
        positions = positions.reshape(windows, -1)
        inside = inside[:, None, :, None] & fits[None, :, None, :]
        inside = inside.reshape(windows, -1)
    return torch.where(inside, positions, math.prod(space))
