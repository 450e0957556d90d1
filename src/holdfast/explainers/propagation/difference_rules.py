"""Backward rules of DeepLift, as modes that exchange what the module's function calls send back."""

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


def split_names(text: str) -> frozenset[str]:
    """The names in a text."""
    return frozenset(text.split())


_RECTIFIERS = frozenset({"relu", "relu_"})
# elementwise: the change of an output belongs to the change of one input
_ELEMENTWISE = _RECTIFIERS | split_names(
    "elu elu_ leaky_relu leaky_relu_ gelu silu mish selu celu softplus sigmoid sigmoid_ tanh tanh_ hardtanh"
    " relu6 hardsigmoid hardswish log_sigmoid"
)
# straight between their kinks; but what stands in for a rectifier inside of `smooth_relu` is not
_STRAIGHT = _RECTIFIERS | split_names("leaky_relu leaky_relu_ hardtanh relu6 hardsigmoid")
_REPLACED = _RECTIFIERS | split_names("relu6 hardtanh")
MAX_POOLS: dict[str, Callable[..., tuple[Tensor, Tensor]]] = {
    "max_pool1d": F.max_pool1d_with_indices,
    "max_pool2d": F.max_pool2d_with_indices,
    "max_pool3d": F.max_pool3d_with_indices,
    "adaptive_max_pool1d": F.adaptive_max_pool1d_with_indices,
    "adaptive_max_pool2d": F.adaptive_max_pool2d_with_indices,
    "adaptive_max_pool3d": F.adaptive_max_pool3d_with_indices,
}


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
        return _propagate_pool(gradients[0], ctx.saved_tensors, ctx.epsilon), None, None, None, None


def _propagate_pool(g: Tensor, saved: Sequence[Tensor], epsilon: float) -> Tensor:
    change, out, out_b, places, places_b = saved

    def scatter_to(values: Tensor, where: Tensor) -> Tensor:
        flat = values.new_zeros((*change.shape[:2], change[0, 0].numel()))
        return flat.scatter_add(2, where.expand_as(values).flatten(2), values.flatten(2)).view_as(change)

    top, still = torch.maximum(out, out_b), change.abs() < epsilon
    shared = scatter_to(g * (top - out_b), places) + scatter_to(g * (out - top), places_b)
    if change.requires_grad:  # of a quotient that is not taken, too, a derivative is
        change = torch.where(still, 1.0, change)
    return torch.where(still, scatter_to(g, places), shared / change)


class _Switch(Function):
    """`out`; what comes back goes to `z` by the slope while the rule is sharing, and else on through `out`."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, out: Tensor, slope: Tensor, rule: DifferenceRule) -> Tensor:
        ctx.save_for_backward(slope)
        ctx.rule = rule
        return out.clone()  # the module may work in place on it

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (slope,) = ctx.saved_tensors
        return (gradients[0] * slope, None, None, None) if ctx.rule.sharing else (None, gradients[0], None, None)


class _PoolSwitch(Function):
    """Max-pooling, likewise."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, out: Tensor, change: Tensor, others: Any, rule: DifferenceRule) -> Tensor:
        out_b, places, places_b = others
        ctx.save_for_backward(change, out, out_b, places, places_b)
        ctx.rule = rule
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        if not ctx.rule.sharing:
            return None, gradients[0], None, None, None
        return _propagate_pool(gradients[0], ctx.saved_tensors, ctx.rule.epsilon), None, None, None, None


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
        slope = _compute_slope(
            z - z_b.index_select(0, which), out - out_b.index_select(0, which), local, ctx.rule.epsilon
        )
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
        return _propagate_pool(gradients[0], saved, ctx.rule.epsilon), None, None, None, None


def _compute_slope(change: Tensor, difference: Tensor, local: Tensor, epsilon: float) -> Tensor:
    return torch.where(change.abs() < epsilon, local, difference / change)


class RuleMode(TorchFunctionMode):
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


class DifferenceRule(RuleMode):
    """DeepLift's Rescale rule: slopes from a baseline's units to the input's.

    First `record()` around a forward pass of (equal) baseline rows, of which the first `rows` are kept, then
    `replay()` around the inputs'.

    With `attached=True` the slopes stay in the inputs' graph, and what is sent back follows them while `sharing` is set
    and the derivatives otherwise: so a result that was sent back by slopes can be differentiated in truth.
    """

    def __init__(self, epsilon: float, rows: int = 1) -> None:
        super().__init__()
        self.epsilon, self.rows = epsilon, rows
        self.sharing = False
        self._units: list[tuple[str, Tensor, Any]] = []
        self._next: int | None = None
        self._attached = self._smooth = False

    @contextlib.contextmanager
    def record(self) -> Iterator[None]:
        """Remember every activation's input and output."""
        with self:
            yield

    @contextlib.contextmanager
    def replay(self, attached: bool = False) -> Iterator[None]:
        """Compare with what was remembered, in the same order."""
        self._next, self._attached = 0, attached
        self._smooth = bool(torch.relu(torch.zeros(1)) > 0)  # inside of `smooth_relu`
        with self:
            yield

    @contextlib.contextmanager
    def follow_slopes(self) -> Iterator[None]:
        """Backward passes of what was attached follow the slopes inside."""
        self.sharing = True
        try:
            yield
        finally:
            self.sharing = False

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name not in _ELEMENTWISE and name not in MAX_POOLS:
            return func(*args, **kwargs)
        kwargs = dict(kwargs)
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = take_inplace_flag(name, args, kwargs)
        if name in MAX_POOLS:
            kwargs.pop("return_indices", None)
            pool = MAX_POOLS[name]
            result = self._pool(name, z, lambda z: pool(z, *args, **kwargs))
        else:
            result = self._activate(name, z.clone() if in_place else z, lambda z: func(z, *args, **kwargs))
        return z.copy_(result) if in_place else result

    def _recall_unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
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
        if self._attached and self._next is not None and z.requires_grad:
            return self._apply_switch(name, z, function)
        with torch.no_grad():
            out = function(z.detach().clone())
        if self._next is None:
            self._units.append((name, z.detach()[: self.rows].clone(), out[: self.rows].clone()))
            return out
        z_b, out_b = self._recall_unit(name, z)
        return self._apply_slope(z, out, self._compute_local_slope(name, z.detach(), function), z_b, out_b)

    def _compute_local_slope(self, name: str, z: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        rectifies = name in _RECTIFIERS and not self._smooth
        return (z > 0).to(z.dtype) if rectifies else _differentiate(function, z)

    def _apply_slope(self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor) -> Tensor:
        with torch.no_grad():
            slope = _compute_slope(z - z_b, out - out_b, local, self.epsilon)
        return _Slope.apply(z, out, slope)  # type: ignore[no-untyped-call,no-any-return]

    def _apply_switch(self, name: str, z: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        z_b, out_b = self._recall_unit(name, z)
        out, change = function(z.clone()), z - z_b
        with torch.no_grad():
            slope = _compute_slope(
                change, out - out_b, self._compute_local_slope(name, z.detach(), function), self.epsilon
            )
        straight = name in _STRAIGHT and not (self._smooth and name in _REPLACED)
        # The derivative of a slope over a short way is lost in rounding: of order eps / way^2. The mean of f' over the
        # way, of which the derivative is the mean of t f'(z_b + t way), is known to the second order from one point.
        near = change.abs() < (self.epsilon if straight else torch.finfo(z.dtype).eps ** 0.25)
        beside = slope if straight else 0.75 * _differentiate(function, z_b + change * (2 / 3), create_graph=True)
        traced = torch.where(near, beside, (out - out_b) / torch.where(near, 1.0, change))
        slope = slope + (traced - traced.detach())  # the value to the bit, with the derivative
        return _Switch.apply(z, out, slope, self)  # type: ignore[no-untyped-call,no-any-return]

    def _pool(self, name: str, z: Tensor, function: Callable[[Tensor], tuple[Tensor, Tensor]]) -> Tensor:
        if self._attached and self._next is not None and z.requires_grad:
            z_b, (out_b, places_b) = self._recall_unit(name, z)
            out, places = function(z)
            others = (out_b, places, places_b)
            return _PoolSwitch.apply(z, out, z - z_b, others, self)  # type: ignore[no-untyped-call,no-any-return]
        with torch.no_grad():
            pooled = function(z.detach())
        if self._next is None:
            self._units.append((name, z.detach()[: self.rows].clone(), tuple(p[: self.rows].clone() for p in pooled)))
            return pooled[0]
        z_b, pooled_b = self._recall_unit(name, z)
        return self._apply_pool(z, z_b, pooled, pooled_b)

    def _apply_pool(self, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any) -> Tensor:
        return _PoolSlope.apply(z, z_b, pooled, pooled_b, self.epsilon)  # type: ignore[no-untyped-call,no-any-return]


class PairedRule(DifferenceRule):
    """The same with many references, chosen anew for every backward pass: the inputs are forwarded once for all.

    First `record()` around the references, `rows` of them, then `replay()` around the inputs; before a backward
    pass, `which` says for every row of the inputs which reference it meets, int64 `(rows of inputs,)`.
    """

    which: Tensor

    def _recall_unit(self, name: str, z: Tensor) -> tuple[Tensor, Any]:
        z_b, out_b = super()._recall_unit(name, z)
        if len(z) != len(self.which) or len(z_b) != self.rows:
            raise ModelError(
                f"deep_shap: expected activations with a row for each input as first axis, got {name} of"
                f" {tuple(z.shape)} for {len(self.which)} inputs"
            )
        return z_b, out_b

    def _apply_slope(self, z: Tensor, out: Tensor, local: Tensor, z_b: Tensor, out_b: Tensor) -> Tensor:
        return _PairedSlope.apply(z, out, local, z_b, out_b, self)  # type: ignore[no-untyped-call,no-any-return]

    def _apply_pool(self, z: Tensor, z_b: Tensor, pooled: Any, pooled_b: Any) -> Tensor:
        # tensors within tuples are not seen as inputs, which they need not be
        return _PairedPoolSlope.apply(z, z_b, pooled, pooled_b, self)  # type: ignore[no-untyped-call,no-any-return]


def _differentiate(function: Callable[[Tensor], Tensor], z: Tensor, create_graph: bool = False) -> Tensor:
    with torch.enable_grad():
        leaf = z if create_graph else z.clone().requires_grad_(True)
        (slope,) = torch.autograd.grad(function(leaf.clone()).sum(), leaf, create_graph=create_graph)
    return slope


def take_inplace_flag(name: str, args: list[Any], kwargs: dict[str, Any]) -> bool:
    """Whether a call writes into its first argument (not in `args`); takes the flag out."""
    if kwargs.pop("inplace", False):
        return True
    if name == "relu" and args and args[0]:
        args.clear()
        return True
    return name.endswith("_") and not name.startswith("__")


def find_carriers(values: Sequence[Any]) -> list[Tensor]:
    """The tensors among `values` that something could flow back through, also within lists."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            if value.requires_grad:
                found.append(value)
        elif isinstance(value, list | tuple):
            found.extend(find_carriers(value))
    return found
