"""What a traced network's functions are: from the arguments of a call to the rules of its steps."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor

from standfast.algorithms.certified.network_rules import (
    Convolution,
    Linear,
    MaxPool,
    NetworkStep,
    Positive,
    Rectifier,
    Reshape,
    Sum,
    UnitwiseAffine,
    pool_windows,
)
from standfast.errors import ModelError
from standfast.function_calls import split_names

SUPPORTED = (
    "linear and convolutional layers, batch normalisation, ReLU, leaky ReLU, max- and average-pooling, padding,"
    " flattening and permuting, dropout, sums of two branches, arithmetic with constants"
)

_SAME = split_names(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout clone contiguous float double to"
)
_SHAPES = split_names("flatten view reshape unflatten squeeze unsqueeze view_as reshape_as")
_MOVES = split_names("permute transpose movedim swapaxes __getitem__ pad")
_AVERAGES = split_names("avg_pool1d avg_pool2d avg_pool3d")
_MEANS = split_names("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean sum")
#: names of the arithmetic functions, and the operation that each computes
ARITHMETIC = {
    **dict.fromkeys(("add", "__add__", "__radd__", "__iadd__"), "add"),
    **dict.fromkeys(("sub", "subtract", "__sub__", "__isub__"), "sub"),
    **dict.fromkeys(("rsub", "__rsub__"), "rsub"),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__", "__imul__"), "mul"),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__", "__itruediv__"), "div"),
    **dict.fromkeys(("neg", "negative", "__neg__"), "neg"),
}

#: the rules of steps that follow each other, with the shapes of their values for one input
Steps = list[tuple[NetworkStep, torch.Size]]


@dataclass(frozen=True)
class TracedCall:
    """A call of a torch function on values that depend on the input of the network.

    Attributes:
        name: of the function.
        plain: the same without what says that it works in place.
        values: its arguments without keywords, as they were before the call; tensors in float64.
        keywords: its other arguments.
        shapes: of each of the values for one input; None for a constant.
        shape: of what it returns, for one input.
        device: on which the network runs.
        layer: the name of the layer that called it.
    """

    name: str
    plain: str
    values: Sequence[Any]
    keywords: dict[str, Any]
    shapes: Sequence[torch.Size | None]
    shape: torch.Size
    device: torch.device
    layer: str

    @property
    def before(self) -> torch.Size:
        """The shape of the first value for one input."""
        shape = self.shapes[0]
        if shape is None:
            self.refuse()
        return shape

    def read(self, *names: str) -> list[Any]:
        """The arguments after the first, in the order of their names; None if not given; tensors in float64."""
        by_place = dict(zip(names, self.values[1:], strict=False))
        arguments = {**self.keywords, **by_place}
        values = []
        for name in names:
            value = arguments.get(name)
            if isinstance(value, Tensor):
                value = value.detach().double().clone()
            values.append(value)
        return values

    def refuse(self, detail: str = "") -> NoReturn:
        """Raise the error for a call without a rule."""
        raise describe_unsupported(self.layer, self.name, detail)


def describe_unsupported(layer: str, name: str, detail: str = "") -> ModelError:
    """The error for a function without a rule, with the name of the layer that called it."""
    return ModelError(
        f"{layer}: {name}{detail} has no linear relaxation here; supported are {SUPPORTED}"
    )


# Arithmetic


def read_arithmetic(call: TracedCall) -> tuple[NetworkStep, list[int]]:
    """The rule of an arithmetic function, and the order in which it takes the values that depend on the input."""
    operation = ARITHMETIC[call.plain]
    values = list(call.values)
    shapes = list(call.shapes)
    if operation == "neg":
        operation = "mul"
        values.append(-1.0)
        shapes.append(None)
    has_keywords = any(value is not None for value in call.keywords.values())
    if len(values) != 2 or has_keywords:
        call.refuse(" with these arguments")
    if None not in shapes:
        return _add_branches(call, operation, shapes)
    if shapes[0] is None:
        return _scale(call, operation, values[0], shapes[1], constant_first=True), [0]
    return _scale(call, operation, values[1], shapes[0], constant_first=False), [0]


def _add_branches(
    call: TracedCall, operation: str, shapes: Sequence[torch.Size | None]
) -> tuple[NetworkStep, list[int]]:
    """The sum or the difference of two values that both depend on the input."""
    same = all(shape == call.shape for shape in shapes)
    if operation not in ("add", "sub", "rsub") or not same:
        call.refuse(" of two values that depend on the input")
    if operation == "rsub":
        return Sum(-1.0), [1, 0]
    sign = 1.0 if operation == "add" else -1.0
    return Sum(sign), [0, 1]


def _scale(
    call: TracedCall, operation: str, constant: Any, shape: torch.Size | None, constant_first: bool
) -> NetworkStep:
    """A value of this shape, scaled or moved by a constant that stands before or behind it."""
    c = torch.as_tensor(constant, dtype=torch.float64, device=call.device)
    if c.ndim > len(call.shape):
        if c.shape[0] != 1:
            call.refuse(" with a constant that differs along the batch")
        c = c[0]
    if shape != call.shape or (constant_first and operation == "div"):
        call.refuse(" with this constant")
    one = torch.ones_like(c)
    zero = torch.zeros_like(c)
    if operation == "mul":
        return UnitwiseAffine(c, zero, zero, call.shape)
    if operation == "div":
        return UnitwiseAffine(1 / c, zero, zero, call.shape)
    # the signs of the value and of the constant; `rsub(a, b)` is `b - a`
    value_subtracted, constant_subtracted = "rsub", "sub"
    if constant_first:
        value_subtracted, constant_subtracted = "sub", "rsub"
    factor = -one if operation == value_subtracted else one
    offset = -c if operation == constant_subtracted else c
    return UnitwiseAffine(factor, offset, c.abs(), call.shape)


# Functions of one value


def read_function(call: TracedCall) -> Steps:
    """The steps of a function of one value; none for the identity."""
    read = _READERS.get(call.plain)
    if read is None:
        call.refuse()
    return read(call)


def _keep(call: TracedCall) -> Steps:
    is_training = call.keywords.get("training")
    if call.plain.endswith("dropout") and len(call.values) > 2:
        is_training = is_training or call.values[2]
    if is_training:
        call.refuse(" in training mode")
    return []


def _reshape(call: TracedCall) -> Steps:
    return [(Reshape(call.shape), call.shape)]


def _read_linear(call: TracedCall) -> Steps:
    weight, bias = call.read("weight", "bias")
    return [(Linear(weight, bias, call.shape), call.shape)]


def _read_convolution(call: TracedCall) -> Steps:
    """A convolution. Padding "same" becomes a step of its own, since its two sides can differ."""
    d = int(call.plain[4])
    weight, bias, stride, padding, dilation, groups = call.read(
        "weight", "bias", "stride", "padding", "dilation", "groups"
    )
    strides = _read_sizes(stride, d) or [1] * d
    gaps = _read_sizes(dilation, d) or [1] * d
    steps: Steps = []
    if padding == "same":
        sides = weight.shape[2:]
        total = [gap * (side - 1) for gap, side in zip(gaps, sides, strict=True)]
        steps.append(_pad(call.before, total))
    if padding in ("same", "valid"):
        around = [0] * d
    else:
        around = _read_sizes(padding, d) or [0] * d
    geometry = (strides, around, gaps, groups or 1)
    steps.append((Convolution(weight, bias, call.shape, geometry), call.shape))
    return steps


def _pad(before: torch.Size, total: Sequence[int]) -> tuple[NetworkStep, torch.Size]:
    """Zeros around a value of this shape, so many for each of the last axes; the odd one stands behind."""
    d = len(total)
    sides: list[int] = []
    # torch begins with the last axis
    for width in reversed(total):
        before_axis = width // 2
        sides += [before_axis, width - before_axis]
    sizes = before[-d:]
    space = [size + width for size, width in zip(sizes, total, strict=True)]
    shape = torch.Size([*before[:-d], *space])
    return Positive(lambda x: F.pad(x, sides), 0), shape


def _read_batch_norm(call: TracedCall) -> Steps:
    mean, variance, weight, bias, training, _, eps = call.read(
        "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"
    )
    if training or mean is None or variance is None:
        call.refuse(" with the statistics of the batch")
    if eps is None:
        eps = 1e-5
    factor = torch.rsqrt(variance + eps)
    if weight is not None:
        factor = factor * weight
    if bias is None:
        bias = torch.zeros_like(factor)
    column = (-1, *[1] * (len(call.shape) - 1))
    factor, mean, bias = (part.reshape(column) for part in (factor, mean, bias))
    scaled_mean = mean * factor
    size = bias.abs() + scaled_mean.abs()
    return [(UnitwiseAffine(factor, bias - scaled_mean, size, call.shape), call.shape)]


def _read_relu(call: TracedCall) -> Steps:
    return [(Rectifier(0.0), call.shape)]


def _read_leaky_relu(call: TracedCall) -> Steps:
    (slope,) = call.read("negative_slope")
    slope = 0.01 if slope is None else float(slope)
    if not 0 <= slope < 1:
        call.refuse(f" with slope {slope:g}")
    return [(Rectifier(slope), call.shape)]


def _read_max_pool(call: TracedCall) -> Steps:
    d = int(call.plain[8])
    kernel, stride, padding, dilation = call.read("kernel_size", "stride", "padding", "dilation")
    kernel = _read_sizes(kernel, d)
    strides = _read_sizes(stride, d) or kernel
    around = _read_sizes(padding, d) or [0] * d
    gaps = _read_sizes(dilation, d) or [1] * d
    space = call.before[-d:]
    out = call.shape[-d:]
    windows = pool_windows(space, out, kernel, strides, around, gaps).to(call.device)
    return [(MaxPool(windows, space, out), call.shape)]


def _read_move(call: TracedCall) -> Steps:
    """Values that are moved, or padded by zeros; nothing is summed."""
    fill = call.keywords.get("value")
    if len(call.values) > 3:
        fill = call.values[3]
    if call.plain == "pad" and fill not in (None, 0, 0.0):
        call.refuse(" with a value other than 0")
    return [(_apply_again(call, terms=0), call.shape)]


def _read_mean(call: TracedCall) -> Steps:
    terms = math.prod(call.before)
    return [(_apply_again(call, terms), call.shape)]


def _read_average(call: TracedCall) -> Steps:
    (kernel,) = call.read("kernel_size")
    dimensions = int(call.plain[8])
    sizes = _read_sizes(kernel, dimensions)
    terms = math.prod(sizes or call.before)
    return [(_apply_again(call, terms), call.shape)]


def _apply_again(call: TracedCall, terms: int) -> NetworkStep:
    """The function itself as a rule, with the same arguments; so many values are summed for one."""
    keywords = {name: value for name, value in call.keywords.items() if name != "input"}
    function = functools.partial(_call, _FUNCTIONS[call.plain], call.values[1:], keywords)
    return Positive(function, terms)


def _call(
    function: Callable[..., Tensor], rest: Sequence[Any], keywords: dict[str, Any], x: Tensor
) -> Tensor:
    return function(x, *rest, **keywords)


def _read_sizes(value: Any, count: int) -> list[int]:
    """One number for each axis; an empty list for None and for an empty sequence."""
    if value is None:
        return []
    if isinstance(value, int):
        numbers = [int(value)]
    else:
        numbers = [int(number) for number in value]
    if len(numbers) == 1:
        return numbers * count
    return numbers


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(F, name) for name in _AVERAGES | _MEANS - {"mean", "sum"}},
    **{name: getattr(Tensor, name) for name in _MOVES - {"pad"} | {"mean", "sum"}},
    "pad": F.pad,
}
_READERS: dict[str, Callable[[TracedCall], Steps]] = {
    **dict.fromkeys(_SAME, _keep),
    **dict.fromkeys(_SHAPES, _reshape),
    **dict.fromkeys(_MOVES, _read_move),
    **dict.fromkeys(_AVERAGES, _read_average),
    **dict.fromkeys(_MEANS, _read_mean),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _read_convolution),
    **dict.fromkeys(("max_pool1d", "max_pool2d", "max_pool3d"), _read_max_pool),
    "linear": _read_linear,
    "batch_norm": _read_batch_norm,
    "relu": _read_relu,
    "leaky_relu": _read_leaky_relu,
}
