"""A network as a list of rules, found by running it once and recording the functions that it calls.

As in the propagation explainers, functions are recorded, not modules. So functional calls, layers that are used twice,
layers that work in place, residual sums and any preprocessing are included.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from standfast.algorithms.certified.network_rules import (
    Affine,
    Convolution,
    Linear,
    MaxPool,
    Positive,
    Rectifier,
    Reshape,
    Rule,
    Scale,
    Sum,
    pool_windows,
)
from standfast.errors import ModelError
from standfast.function_calls import FunctionMode, bind_arguments, find_tensors, split_names, strip_underscore

SUPPORTED = (
    "linear and convolutional layers, batch normalisation, ReLU, leaky ReLU, max- and average-pooling, padding,"
    " flattening and permuting, dropout, sums of two branches, arithmetic with constants"
)
_ROWS = 3  # rows of the traced batch; with one row, the batch axis would look like any other axis of length 1


_SAME = split_names(
    "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout clone contiguous float double to"
)
_SHAPES = split_names("flatten view reshape unflatten squeeze unsqueeze view_as reshape_as")
_MOVES = split_names("permute transpose movedim swapaxes __getitem__ pad")
_AVERAGES = split_names("avg_pool1d avg_pool2d avg_pool3d")
_MEANS = split_names("adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d mean sum")
_VALUES = split_names("item tolist numpy equal allclose __bool__ __int__ __float__ __index__ __array__")
# names of the arithmetic functions, and the operation that each computes
_ARITHMETIC = {
    **dict.fromkeys(("add", "__add__", "__radd__", "__iadd__"), "add"),
    **dict.fromkeys(("sub", "subtract", "__sub__", "__isub__"), "sub"),
    **dict.fromkeys(("rsub", "__rsub__"), "rsub"),
    **dict.fromkeys(("mul", "multiply", "__mul__", "__rmul__", "__imul__"), "mul"),
    **dict.fromkeys(("div", "divide", "true_divide", "__truediv__", "__itruediv__"), "div"),
    **dict.fromkeys(("neg", "negative", "__neg__"), "neg"),
}


@dataclass(frozen=True)
class Node:
    """One step: its rule, the earlier steps that it works on, and the shape of its values for one input."""

    rule: Rule | None  # None for the network's input
    sources: tuple[int, ...]
    shape: torch.Size
    affine: bool  # this step and all before it are affine


@dataclass(frozen=True)
class Network:
    """The steps of a network in the order in which they ran; the first is the input, the last the logits."""

    nodes: tuple[Node, ...]

    def values(self, x: Tensor) -> list[Tensor]:
        """The values `(N, *shape)` of every step for inputs `x`."""
        out = [x]
        for node in self.nodes[1:]:
            assert node.rule is not None
            out.append(node.rule.apply(*(out[s] for s in node.sources)))
        return out

    def logits(self, x: Tensor) -> Tensor:
        """Logits `(N, classes)`."""
        return self.values(x)[-1]


def trace_network(forward: Callable[[Tensor], Tensor], module: nn.Module, sample: Tensor) -> Network:
    """The rules of `forward` in float64, from one run on copies of `sample` `(1, ...)`.

    `module` gives the names of layers for error messages. It must be in evaluation mode, and its code must not branch
    on the values of its input. Not every such branch is detected, so compare `Network.logits` with the true logits.

    Raises:
        ModelError: the network calls a function without a rule; the message names the function and its layer.
    """
    tracer = _Tracer(sample.shape[1:])
    x = sample.detach().expand(_ROWS, *sample.shape[1:]).clone()
    with torch.no_grad(), tracer.track_layers(module):
        tracer.known[id(x)] = (0, x)
        with tracer:
            out = forward(x)
    if id(out) not in tracer.known:
        raise ModelError("module: expected logits computed from the input by torch functions that can be traced")
    last = tracer.known[id(out)][0]
    return Network(tuple(tracer.nodes[: last + 1]))


class _Tracer(FunctionMode):
    """Records every function call on a value that depends on the input."""

    def __init__(self, shape: torch.Size) -> None:
        super().__init__()
        self.nodes = [Node(None, (), shape, True)]
        # from a tensor's id to its step; keeps the tensors alive, so that no id is used twice
        self.known: dict[int, tuple[int, Tensor]] = {}
        self.layers: list[str] = []

    @contextlib.contextmanager
    def track_layers(self, module: nn.Module) -> Iterator[None]:
        """Inside the block, `layers` ends with the name of the layer that is running."""
        hooks = []
        for name, layer in module.named_modules():
            text = f"{name or 'the module'} ({type(layer).__name__})"
            hooks.append(layer.register_forward_pre_hook(lambda *_, text=text: self.layers.append(text)))
            hooks.append(layer.register_forward_hook(lambda *_: self.layers.pop() and None))
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call `func`, and record the step if it works on values that depend on the input."""
        tracked = [v for v in find_tensors([*args, *kwargs.values()]) if id(v) in self.known]
        if not tracked:
            return func(*args, **kwargs)
        plain = strip_underscore(name)
        values = list(args)
        if plain == "batch_norm":  # whose forms have other orders
            kwargs = bind_arguments(func, args, kwargs)
            func, args, values = F.batch_norm, [], []
            kwargs.pop("cudnn_enabled", None)
        if not values or not isinstance(values[0], Tensor):  # `input=...`, or a number first
            values = [kwargs.pop("input"), *values] if "input" in kwargs else values
        # copied before the call, which may work in place
        constants = [v.detach().double().clone() if isinstance(v, Tensor) else v for v in values]
        sources = [self.known[id(v)][0] if isinstance(v, Tensor) and id(v) in self.known else None for v in values]
        out = func(*args, **(kwargs if len(values) == len(args) else {**kwargs, "input": values[0]}))
        if not isinstance(out, Tensor):
            if name in _VALUES or find_tensors([out]):
                raise self.error(name)
            return out
        if out.dtype == torch.bool or not out.is_floating_point() or out.shape[:1] != (_ROWS,):
            raise self.error(name)
        if any(source is not None for source in sources[1:]) and plain not in _ARITHMETIC:
            raise self.error(name)
        self.record(plain, name, constants, sources, kwargs, out)
        return out

    def error(self, name: str, detail: str = "") -> ModelError:
        """The error for a function without a rule, with the name of the layer that called it."""
        where = self.layers[-1] if self.layers else "preprocess or the module"
        return ModelError(f"{where}: {name}{detail} has no linear relaxation here; supported are {SUPPORTED}")

    def record(
        self, plain: str, name: str, values: list[Any], sources: list[int | None], kwargs: dict[str, Any], out: Tensor
    ) -> None:
        """Add the step that computed `out`, and remember which tensor holds its values."""
        shape = out.shape[1:]
        if plain in _ARITHMETIC:
            rule: Rule | None
            rule, used = self.arithmetic(plain, name, values, sources, kwargs, shape)
        else:
            if sources[0] is None:
                raise self.error(name)
            used = [sources[0]]
            rule = self.layer(plain, name, values, used, kwargs, shape)
        if rule is not None:
            self.add(rule, used, shape)
            used = [len(self.nodes) - 1]
        self.known[id(out)] = (used[0], out)

    def add(self, rule: Rule, sources: list[int], shape: torch.Size) -> None:
        affine = isinstance(rule, Affine | Sum) and all(self.nodes[s].affine for s in sources)
        self.nodes.append(Node(rule, tuple(sources), shape, affine))

    def arithmetic(
        self,
        plain: str,
        name: str,
        values: list[Any],
        sources: list[int | None],
        kwargs: dict[str, Any],
        shape: torch.Size,
    ) -> tuple[Rule, list[int]]:
        """The rule of an arithmetic function, and the steps that it works on."""
        kind = _ARITHMETIC[plain]
        if kind == "neg":
            values, sources, kind = [*values, -1.0], [*sources, None], "mul"
        if len(values) != 2 or any(v is not None for v in kwargs.values()):
            raise self.error(name, " with these arguments")
        both = [s for s in sources if s is not None]
        if len(both) == 2:
            same = all(self.nodes[s].shape == shape for s in both)
            if kind not in ("add", "sub", "rsub") or not same:
                raise self.error(name, " of two values that depend on the input")
            return Sum(1.0 if kind == "add" else -1.0), both[::-1] if kind == "rsub" else both
        second = sources[0] is None
        source, constant = (sources[1], values[0]) if second else (sources[0], values[1])
        assert source is not None
        device = next(v.device for v in values if isinstance(v, Tensor))
        c = torch.as_tensor(constant, dtype=torch.float64, device=device)
        if c.ndim > len(shape):
            if c.shape[0] != 1:
                raise self.error(name, " with a constant that differs along the batch")
            c = c[0]
        if self.nodes[source].shape != shape or (second and kind == "div"):
            raise self.error(name, " with this constant")
        one, zero = torch.ones_like(c), torch.zeros_like(c)
        if kind in ("mul", "div"):
            return Scale(c if kind == "mul" else 1 / c, zero, zero, shape), [source]
        minus = (kind == "sub" and second) or (kind == "rsub" and not second)
        offset = -c if (kind == "sub" and not second) or (kind == "rsub" and second) else c
        return Scale(-one if minus else one, offset, c.abs(), shape), [source]

    def layer(
        self, plain: str, name: str, values: list[Any], used: list[int], kwargs: dict[str, Any], shape: torch.Size
    ) -> Rule | None:
        """The rule of a function of one value; None for the identity. May replace `used` by a step that pads."""
        before = self.nodes[used[0]].shape
        if plain in _SAME:
            if kwargs.get("training") or (plain.endswith("dropout") and len(values) > 2 and values[2]):
                raise self.error(name, " in training mode")
            return None
        if plain in _SHAPES:
            return Reshape(shape)
        if plain == "linear":
            weight, bias = _bind(("weight", "bias"), values, kwargs)
            return Linear(weight, bias, shape)
        if plain in ("conv1d", "conv2d", "conv3d"):
            return self.convolution(int(plain[4]), values, used, kwargs, shape)
        if plain == "batch_norm":
            keys = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
            mean, variance, weight, bias, training, _, eps = _bind(keys, values, kwargs)
            if training or mean is None or variance is None:
                raise self.error(name, " with the statistics of the batch")
            factor = torch.rsqrt(variance + (1e-5 if eps is None else eps)) * (1.0 if weight is None else weight)
            bias = torch.zeros_like(factor) if bias is None else bias
            column = (-1, *[1] * (len(shape) - 1))
            factor, mean, bias = (part.reshape(column) for part in (factor, mean, bias))
            return Scale(factor, bias - mean * factor, bias.abs() + (mean * factor).abs(), shape)
        if plain == "relu":
            return Rectifier(0.0)
        if plain == "leaky_relu":
            (slope,) = _bind(("negative_slope",), values, kwargs)
            slope = 0.01 if slope is None else float(slope)
            if not 0 <= slope < 1:
                raise self.error(name, f" with slope {slope:g}")
            return Rectifier(slope)
        if plain in ("max_pool1d", "max_pool2d", "max_pool3d"):
            d = int(plain[8])
            kernel, stride, padding, dilation = _bind(("kernel_size", "stride", "padding", "dilation"), values, kwargs)
            kernel = _tuple(kernel, d)
            sizes = [kernel, _tuple(stride, d) or kernel, _tuple(padding, d) or [0] * d, _tuple(dilation, d) or [1] * d]
            space, out = before[-d:], shape[-d:]
            return MaxPool(pool_windows(space, out, *sizes).to(self.known_device()), space, out)
        if plain in _AVERAGES | _MEANS | _MOVES:
            rest = values[1:]
            keywords = {k: v for k, v in kwargs.items() if k != "input"}
            function = functools.partial(_call, _FUNCTIONS[plain], rest, keywords)
            if plain == "pad" and (keywords.get("value") or rest[2:3] not in ([], [None], [0], [0.0])):
                raise self.error(name, " with a value other than 0")
            kernel = (
                _tuple((rest[:1] or [keywords.get("kernel_size")])[0], int(plain[8])) if plain in _AVERAGES else None
            )
            terms = 0 if plain in _MOVES else math.prod(kernel) if kernel else math.prod(before)
            return Positive(function, terms)
        raise self.error(name)

    def known_device(self) -> torch.device:
        return next(iter(self.known.values()))[1].device

    def convolution(
        self, d: int, values: list[Any], used: list[int], kwargs: dict[str, Any], shape: torch.Size
    ) -> Rule:
        """The rule of a convolution. Padding "same" becomes a step of its own, since its two sides can differ."""
        keys = ("weight", "bias", "stride", "padding", "dilation", "groups")
        weight, bias, stride, padding, dilation, groups = _bind(keys, values, kwargs)
        steps = _tuple(stride, d) or [1] * d
        gaps = _tuple(dilation, d) or [1] * d
        if padding == "same":
            total = [gap * (k - 1) for gap, k in zip(gaps, weight.shape[2:], strict=True)]
            sides = [side for t in reversed(total) for side in (t // 2, t - t // 2)]
            before = self.nodes[used[0]].shape
            padded = torch.Size([*before[:-d], *(n + t for n, t in zip(before[-d:], total, strict=True))])
            self.add(Positive(lambda x: F.pad(x, sides), 0), used, padded)
            used[:] = [len(self.nodes) - 1]
            padding = 0
        around = [0] * d if padding == "valid" else _tuple(padding, d) or [0] * d
        return Convolution(weight, bias, shape, (steps, around, gaps, groups or 1))


_FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(F, name) for name in _AVERAGES | _MEANS - {"mean", "sum"}},
    **{name: getattr(Tensor, name) for name in _MOVES - {"pad"} | {"mean", "sum"}},
    "pad": F.pad,
}


def _call(function: Callable[..., Tensor], rest: list[Any], keywords: dict[str, Any], x: Tensor) -> Tensor:
    return function(x, *rest, **keywords)


def _bind(names: tuple[str, ...], values: list[Any], kwargs: dict[str, Any]) -> list[Any]:
    """The arguments of a call after the first, in the order of `names`; None if not given; tensors in float64."""
    given = {**kwargs, **dict(zip(names, values[1:], strict=False))}
    found = [given.get(name) for name in names]
    return [v.detach().double().clone() if isinstance(v, Tensor) else v for v in found]


def _tuple(value: Any, count: int) -> list[int]:
    """One number for each axis; an empty list for None and for an empty sequence."""
    if value is None:
        return []
    numbers = [int(value)] if isinstance(value, int) else [int(v) for v in value]
    return numbers * count if len(numbers) == 1 else numbers
