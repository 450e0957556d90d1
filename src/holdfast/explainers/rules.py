"""Backward rules of DeepLift and LRP, as modes that exchange what the module's function calls send back."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function
from torch.overrides import TorchFunctionMode

from holdfast.errors import ModelError


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RECTIFIERS = frozenset({"relu", "relu_"})
# elementwise: the change of an output belongs to the change of one input
_ELEMENTWISE = _RECTIFIERS | _words(
    "elu elu_ leaky_relu leaky_relu_ gelu silu mish selu celu softplus sigmoid sigmoid_ tanh tanh_ hardtanh"
    " relu6 hardsigmoid hardswish logsigmoid"
)
_MAX_POOLS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "max_pool1d": F.max_pool1d_with_indices,
    "max_pool2d": F.max_pool2d_with_indices,
    "max_pool3d": F.max_pool3d_with_indices,
    "adaptive_max_pool1d": F.adaptive_max_pool1d_with_indices,
    "adaptive_max_pool2d": F.adaptive_max_pool2d_with_indices,
    "adaptive_max_pool3d": F.adaptive_max_pool3d_with_indices,
}
# LRP passes relevance through these unchanged: elementwise with f(0) = 0;
_PASSING = _words("relu tanh elu leaky_relu gelu silu mish selu celu hardtanh relu6 hardswish")
# it follows the epsilon rule for these,
_LINEAR = frozenset(_MAX_POOLS) | _words(
    "linear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d batch_norm mean sum"
    " avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d"
    " interpolate add sub __add__ __radd__ __sub__ __rsub__ rsub"
)
# for these where only one factor depends on the input,
_LINEAR_IN_ONE = _words("mul __mul__ __rmul__ matmul __matmul__ mm addmm")
_QUOTIENTS = _words("div true_divide __truediv__")
# and it moves with the values for these; dropout is off.
_MOVING = _words(
    "flatten view reshape permute transpose squeeze unsqueeze cat concat stack __getitem__ contiguous expand"
    " pad chunk split unflatten movedim swapaxes t dropout dropout1d dropout2d dropout3d alpha_dropout"
    " feature_dropout clone select narrow flip to unbind view_as reshape_as float double"
)


class _Slope(Function):
    """`out`, with `slope` for the derivative by `z`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, out: Tensor, slope: Tensor) -> Tensor:
        ctx.save_for_backward(slope)
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        (slope,) = ctx.saved_tensors
        return gradients[0] * slope, None, None


class _PoolSlope(Function):
    """Max-pooling whose backward pass shares out the change of each maximum.

    First to where the input has it, then to where the baseline has it; each divided by the unit's change.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any, epsilon: float) -> Tensor:
        (out, places), (out_b, places_b) = pooled, pooled_b
        ctx.save_for_backward(z - z_b, out, out_b, places, places_b)
        ctx.epsilon = epsilon
        return out.clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        return _pool_slope(gradients[0], ctx.saved_tensors, ctx.epsilon), None, None, None, None


def _pool_slope(g: Tensor, saved: Sequence[Tensor], epsilon: float) -> Tensor:
    change, out, out_b, places, places_b = saved

    def to_places(values: Tensor, where: Tensor) -> Tensor:
        flat = values.new_zeros((*change.shape[:2], change[0, 0].numel()))
        return flat.scatter_add(2, where.expand_as(values).flatten(2), values.flatten(2)).view_as(change)

    top = torch.maximum(out, out_b)
    shared = to_places(g * (top - out_b), places) + to_places(g * (out - top), places_b)
    return torch.where(change.abs() < epsilon, to_places(g, places), shared / change)


class _PairedSlope(Function):
    """`out`, with the slope from the references that the rule names when the backward pass runs."""

    @staticmethod
    def forward(
        ctx: Any, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor, rule: PairedRule
    ) -> Tensor:
        # copies: the module may work in place on what it gave and on what it gets
        ctx.save_for_backward(z.clone(), out, local, z_b, out_b)
        ctx.rule = rule
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, out, local, z_b, out_b = ctx.saved_tensors
        which = ctx.rule.which
        slope = _slope(z - z_b.index_select(0, which), out - out_b.index_select(0, which), local, ctx.rule.epsilon)
        return gradients[0] * slope, None, None, None, None, None


class _PairedPoolSlope(Function):
    """Max-pooling, likewise."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any, rule: PairedRule) -> Tensor:
        ctx.save_for_backward(z.clone(), z_b, *pooled, *pooled_b)
        ctx.rule = rule
        return pooled[0].clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        z, z_b, out, places, out_b, places_b = ctx.saved_tensors
        z_b, out_b, places_b = (part.index_select(0, ctx.rule.which) for part in (z_b, out_b, places_b))
        saved = (z - z_b, out, out_b, places, places_b)
        return _pool_slope(gradients[0], saved, ctx.rule.epsilon), None, None, None, None


def _slope(change: Tensor, difference: Tensor, local: Tensor, epsilon: float) -> Tensor:
    return torch.where(change.abs() < epsilon, local, difference / change)


class _Mode(TorchFunctionMode):
    """A mode that calls `self.run(name, func, args, kwargs)` for each function, with the mode off inside."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        return self.run(getattr(func, "__name__", ""), func, list(args), kwargs or {})

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class DifferenceRule(_Mode):
    """DeepLift's Rescale rule: slopes from a baseline's units to the input's.

    First `recording()` around a forward pass of (equal) baseline rows, of which the first `rows` are kept, then
    `replaying()` around the inputs'.
    """

    def __init__(self, epsilon: float, rows: int = 1) -> None:
        super().__init__()
        self.epsilon, self.rows = epsilon, rows
        self._units: list[tuple[str, Tensor, Any]] = []
        self._next: int | None = None

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Remember every activation's input and output."""
        with self:
            yield

    @contextlib.contextmanager
    def replaying(self) -> Iterator[None]:
        """Compare with what was remembered, in the same order."""
        self._next = 0
        with self:
            yield

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name not in _ELEMENTWISE and name not in _MAX_POOLS:
            return func(*args, **kwargs)
        kwargs = dict(kwargs)
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = _in_place(name, args, kwargs)
        if name in _MAX_POOLS:
            kwargs.pop("return_indices", None)
            pool = _MAX_POOLS[name]
            result = self._pool(name, z, lambda z: pool(z, *args, **kwargs))
        else:
            result = self._activate(name, z.clone() if in_place else z, lambda z: func(z, *args, **kwargs))
        return z.copy_(result) if in_place else result

    def _unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
        """The baseline's input and output of the activation that runs now."""
        assert self._next is not None
        known = self._next < len(self._units)
        before, z_b, out_b = self._units[self._next] if known else ("nothing", z, z)
        if before != name or z_b.shape[1:] != z.shape[1:]:
            raise ModelError(
                f"deeplift: expected the module to run the same activations for inputs and baseline, got"
                f" {name} of {tuple(z.shape[1:])} for {before} of {tuple(z_b.shape[1:])}"
            )
        self._next += 1
        return z_b, out_b

    def _activate(self, name: str, z: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        with torch.no_grad():
            out = function(z.detach().clone())
        if self._next is None:
            self._units.append((name, z.detach()[: self.rows].clone(), out[: self.rows].clone()))
            return out
        z_b, out_b = self._unit(name, z)
        local = (z.detach() > 0).to(z.dtype) if name in _RECTIFIERS else _derivative(function, z.detach())
        return self._sloped(z, out, local, z_b, out_b)

    def _sloped(self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor) -> Tensor:
        with torch.no_grad():
            slope = _slope(z - z_b, out - out_b, local, self.epsilon)
        return _Slope.apply(z, out, slope)  # type: ignore[no-untyped-call,no-any-return]

    def _pool(self, name: str, z: Tensor, function: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        with torch.no_grad():
            pooled = function(z.detach())
        if self._next is None:
            self._units.append((name, z.detach()[: self.rows].clone(), tuple(p[: self.rows].clone() for p in pooled)))
            return pooled[0]
        z_b, pooled_b = self._unit(name, z)
        return self._pooled(z, z_b, pooled, pooled_b)

    def _pooled(self, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any) -> Tensor:
        return _PoolSlope.apply(z, z_b, pooled, pooled_b, self.epsilon)  # type: ignore[no-untyped-call,no-any-return]


class PairedRule(DifferenceRule):
    """The same with many references, chosen anew for every backward pass: the inputs are forwarded once for all.

    First `recording()` around the references, `rows` of them, then `replaying()` around the inputs; before a backward
    pass, `which` says for every row of the inputs which reference it meets, int64 `(rows of inputs,)`.
    """

    which: Tensor

    def _unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
        z_b, out_b = super()._unit(name, z)
        if len(z) != len(self.which) or len(z_b) != self.rows:
            raise ModelError(
                f"deep_shap: expected activations with a row for each input as first axis, got {name} of"
                f" {tuple(z.shape)} for {len(self.which)} inputs"
            )
        return z_b, out_b

    def _sloped(self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor) -> Tensor:
        return _PairedSlope.apply(z, out, local, z_b, out_b, self)  # type: ignore[no-untyped-call,no-any-return]

    def _pooled(self, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any) -> Tensor:
        # tensors within tuples are not seen as inputs, which they need not be
        return _PairedPoolSlope.apply(z, z_b, pooled, pooled_b, self)  # type: ignore[no-untyped-call,no-any-return]


def _derivative(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    with torch.enable_grad():
        leaf = z.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(function(leaf.clone()).sum(), leaf)
    return slope


def _in_place(name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes into its first argument (not in `args`); takes the flag out."""
    if kwargs.pop("inplace", False):
        return True
    if name == "relu" and args and args[0]:
        args.clear()
        return True
    return name.endswith("_") and not name.startswith("__")


class _TimesInput(Function):
    """The identity; what comes back is multiplied by the input: from weights on it to its relevance."""

    @staticmethod
    def forward(ctx: Any, a: Tensor) -> Tensor:
        ctx.save_for_backward(a)
        return a.view_as(a)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (a,) = ctx.saved_tensors
        return gradients[0] * a  # type: ignore[no-any-return]


class _OverOutput(Function):
    """The identity; relevance that comes back is divided by the output, kept away from zero by epsilon."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, epsilon: float) -> Tensor:
        ctx.save_for_backward(z)
        ctx.epsilon = epsilon
        return z.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (z,) = ctx.saved_tensors
        divisor = torch.where(z >= 0, z + ctx.epsilon, z - ctx.epsilon)
        empty = divisor == 0  # only where epsilon is 0 or lost in rounding: 0 / 0 has no relevance to give
        return torch.where(empty, 0.0, gradients[0] / torch.where(empty, 1.0, divisor)), None


class _Through(Function):
    """`out`, with the relevance passed to `z` as it is."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, out: Tensor) -> Tensor:
        return out.view_as(out)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None


class EpsilonRule(_Mode):
    """What flows back through a forward pass inside is relevance, shared out by the epsilon rule."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        carriers = _carriers([*args, *kwargs.values()])
        if not carriers or name in _MOVING:
            return func(*args, **kwargs)
        plain = name if name.startswith("__") else name.removesuffix("_")
        if plain in _PASSING:
            kwargs = dict(kwargs)
            z = args.pop(0) if args else kwargs.pop("input")
            in_place = _in_place(name, args, kwargs)
            with torch.no_grad():
                out = func(z.detach().clone(), *args, **kwargs)
            result = _Through.apply(z, out)  # type: ignore[no-untyped-call]
            return z.copy_(result) if in_place else result
        alone = len(carriers) == 1
        by_constant = alone and plain in _QUOTIENTS and args[0] is carriers[0]
        if plain in _LINEAR or (plain in _LINEAR_IN_ONE and alone) or by_constant:
            if plain == name:
                return self._share(func, args, kwargs)
            # in place: compute beside it, then write
            twin = getattr(torch, plain)
            return args[0].copy_(self._share(twin, [args[0].clone(), *args[1:]], kwargs))
        result = func(*args, **kwargs)
        if _carriers([result]):
            raise ModelError(f"lrp: expected a module made of functions with a rule, got {name!r}, which has none")
        return result

    def _share(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        def weigh(value: Any) -> Any:
            if isinstance(value, Tensor) and value.requires_grad:
                return _TimesInput.apply(value)  # type: ignore[no-untyped-call]
            return value

        out = func(*[weigh(a) for a in args], **{key: weigh(value) for key, value in kwargs.items()})
        return _OverOutput.apply(out, self.epsilon)  # type: ignore[no-untyped-call,no-any-return]


def _carriers(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among `values` that relevance could flow back through, also within lists."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(_carriers(value))
    return found
