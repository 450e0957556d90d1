"""The rules of AttnLRP, as a mode that replaces the backward pass of the functions that the module calls.

Backward passes carry relevance divided by the value that it belongs to, `g_i = R_i / x_i`. In this form most rules are
ordinary gradients: the epsilon rule of linear functions and sums without the stabiliser, which is not needed because
nothing is divided, and the Taylor rule of the softmax. The other rules are the gradients of a substitute, a function
with the same value:

- activation `f`, by the identity rule: `z * c` with the constant `c = f(z) / z`;
- normalisation, by the identity rule for its divisor: `(x - mean(x)) * c * w + b`, with the constant `c = 1 / std(x)`;
- product of two factors that both depend on the input, by the uniform rule: half of the gradient to each of them;
- linear layer, by the gamma rule: `above * c` with the constant `c = z / above` where `z > 0`, the same with `below`
  elsewhere; `above` and `below` are `z` with the weights of positive and of negative contributions enlarged.

"Constant" means that relevance does not flow into it. The derivative of the relevance does.
"""

from __future__ import annotations

import contextlib
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from holdfast.errors import ModelError
from holdfast.explainers.propagation.difference_rules import (
    MAX_POOLS,
    compute_slope,
    differentiate,
    find_carriers,
    take_inplace_flag,
    trace_slope,
)
from holdfast.explainers.propagation.relevance_rules import LINEAR, LINEAR_IN_ONE, MOVES, PASS_THROUGH, QUOTIENTS
from holdfast.function_calls import FunctionMode, find_tensors, split_names, strip_underscore

# their gradient passes on `g`; that of a rectifier is `f(z) / z`, and softplus is its smooth form
_BY_GRADIENT = frozenset({*MAX_POOLS, *MOVES, *LINEAR}) | split_names(
    "relu softplus softmax where masked_fill roll neg __neg__ repeat expand_as type_as half bfloat16 type tile"
    " index_select gather repeat_interleave movedim broadcast_to __get__ __iter__ __iadd__ __isub__"
)
_ACTIVATIONS = PASS_THROUGH - {"relu", "softplus"}
_PRODUCTS = LINEAR_IN_ONE | split_names("bmm baddbmm einsum __imul__ __rmatmul__")
_DIVISIONS = QUOTIENTS | {"__itruediv__"}
# divisors of normalisations that are written out
_DIVISORS = split_names("rsqrt sqrt norm linalg_norm linalg_vector_norm")
# functions of torch written in Python, whose parts have rules
_COMPOSED = split_names("multi_head_attention_forward normalize")
_CONVOLUTIONS = split_names("conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d")
_OPERATORS = {"__imul__": "mul", "__itruediv__": "div"}
_THRESHOLD = 1e-10  # nearer to zero than this, f(z) / z is the derivative at 0


class _Route(Function):
    """Returns `out`; the backward pass goes through `substitute` while the mode follows its rules, else `out`."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, substitute: Tensor, mode: AttentionRule) -> Tensor:
        ctx.mode = mode
        ctx.set_materialize_grads(False)
        return out.clone()  # the module may overwrite it

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (g,) = gradients
        return (None, g, None) if ctx.mode.follows_rules else (g, None, None)


class _Weaken(Function):
    """The identity; the backward pass multiplies by a factor while the mode follows its rules."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, factor: float, mode: AttentionRule) -> Tensor:
        ctx.mode, ctx.factor = mode, factor
        ctx.set_materialize_grads(False)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        (g,) = gradients
        if g is None or not ctx.mode.follows_rules:
            return g, None, None
        return (g * ctx.factor if ctx.factor else None), None, None


class _Refuse(Function):
    """The identity; relevance cannot pass it."""

    @staticmethod
    def forward(ctx: Any, out: Tensor, name: str, mode: AttentionRule) -> Tensor:
        ctx.mode, ctx.name = mode, name
        ctx.set_materialize_grads(False)
        return out.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, None, None]:
        if gradients[0] is not None and ctx.mode.follows_rules:
            raise _make_error(ctx.name)
        return gradients[0], None, None


def _make_error(name: str) -> ModelError:
    return ModelError(f"attn_lrp: expected a module made of functions with a rule, got {name!r}, which has none")


class AttentionRule(FunctionMode):
    """Inside, modules run such that backward passes within `follow_rules()` propagate relevance by AttnLRP.

    Gradients that come in and go out are relevance divided by the values.

    Args:
        gamma: of linear layers; 0 is the epsilon rule.
        convolution_gamma: of convolutions.
        attached: constants stay in the graph. So what was propagated by the rules can itself be differentiated.
    """

    def __init__(self, gamma: float, convolution_gamma: float, attached: bool) -> None:
        super().__init__()
        self.gamma, self.convolution_gamma, self.attached = gamma, convolution_gamma, attached
        self.follows_rules = False
        self._constants: dict[int, Tensor] = {}  # with gradients, but without relevance

    @contextlib.contextmanager
    def follow_rules(self) -> Iterator[None]:
        """Let backward passes inside follow the rules; others compute true derivatives."""
        self.follows_rules = True
        try:
            yield
        finally:
            self.follows_rules = False

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function of torch, so that its backward pass follows its rule."""
        # the second argument of `expand_as` and others gives its shape only
        found = find_carriers(args[:1] if name.endswith("_as") else [*args, *kwargs.values()])
        carrying = [value for value in found if id(value) not in self._constants]
        if not carrying:
            result = func(*args, **kwargs)
            for value in find_tensors([result]) if found else ():
                self._constants[id(value)] = value
            return result
        plain = _OPERATORS.get(name, strip_underscore(name))
        if plain != name and (plain in _ACTIVATIONS or plain in _PRODUCTS or plain in _DIVISIONS):
            # in place: compute in new memory, then write
            args[0].copy_(
                self.run(plain, getattr(torch, plain, None) or getattr(F, plain), [args[0].clone(), *args[1:]], kwargs)
            )
            return args[0]
        return self._apply(name, func, args, kwargs, carrying)

    def _apply(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], carrying: list[Tensor]
    ) -> Any:
        given = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}
        gamma = self.gamma if name == "linear" else self.convolution_gamma if name in _CONVOLUTIONS else 0.0
        if gamma and len(carrying) == 1 and given["input"] is carrying[0]:
            return self._enlarge(gamma, func, args, kwargs)
        if strip_underscore(name) in _BY_GRADIENT:
            return func(*args, **kwargs)
        if name in _ACTIVATIONS:
            return self._activate(name, func, args, kwargs)
        added = name in ("addmm", "baddbmm") and args[0] is carrying[0]
        if name in _PRODUCTS and len(carrying) <= 2 and not added:
            result = func(*args, **kwargs)
            return result if len(carrying) == 1 else self._weaken(result, 0.5)
        if name in _DIVISIONS and len(carrying) == 1 and args[0] is carrying[0]:
            return func(*args, **kwargs)
        if name in ("layer_norm", "rms_norm"):
            return self._normalise(name, func, args, kwargs)
        if name in _DIVISORS:
            return self._hold(func(*args, **kwargs))
        if name in _COMPOSED or name == "scaled_dot_product_attention":
            with self:
                return (attend if name not in _COMPOSED else look_inside(func))(*args, **kwargs)
        result = func(*args, **kwargs)
        if isinstance(result, Tensor) and result.requires_grad:  # its relevance may never be asked for
            return _Refuse.apply(result, name, self)  # type: ignore[no-untyped-call]
        if find_carriers([result]):
            raise _make_error(name)
        return result

    def _hold(self, value: Tensor) -> Tensor:
        """The value as a constant."""
        if not self.attached:
            return value.detach()
        held = self._weaken(value, 0.0)
        self._constants[id(held)] = held
        return held

    def _weaken(self, value: Tensor, factor: float) -> Tensor:
        return _Weaken.apply(value, factor, self)  # type: ignore[no-untyped-call,no-any-return]

    def _route(self, out: Tensor, substitute: Tensor) -> Tensor:
        return _Route.apply(out if self.attached else out.detach(), substitute, self)  # type: ignore[no-untyped-call,no-any-return]

    def _activate(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """The identity rule for a function with f(0) = 0."""
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = take_inplace_flag(name, args, kwargs)

        def function(values: Tensor) -> Tensor:
            return func(values, *args, **kwargs)  # type: ignore[no-any-return]

        with torch.set_grad_enabled(self.attached):
            out = function(z)
        with torch.no_grad():
            slope = compute_slope(z, out, differentiate(function, z.new_zeros(1)), _THRESHOLD)
        if self.attached:
            near = z.abs() < torch.finfo(z.dtype).eps ** 0.25
            slope = trace_slope(slope, z, out, near, lambda: differentiate(function, z * (2 / 3), create_graph=True))
            slope = self._weaken(slope, 0.0)
        result = self._route(out, z * slope)
        return z.copy_(result) if in_place else result

    def _normalise(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """The identity rule for the divisor of a normalisation over the last axes."""
        names = ("input", "normalized_shape", "weight", *(("bias",) if name == "layer_norm" else ()), "eps")
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        x, shape = given["input"], given["normalized_shape"]
        axes = tuple(range(-(1 if isinstance(shape, int) else len(shape)), 0))
        eps = given.get("eps", 1e-5 if name == "layer_norm" else None)
        with torch.set_grad_enabled(self.attached):
            out = func(*args, **kwargs)
            centred = x - x.mean(axes, keepdim=True) if name == "layer_norm" else x
            variance = centred.square().mean(axes, keepdim=True)
            scale = (variance + (torch.finfo(x.dtype).eps if eps is None else eps)).rsqrt()
        scale = self._weaken(scale, 0.0) if self.attached else scale
        centred = x - x.mean(axes, keepdim=True) if name == "layer_norm" else x
        substitute = centred * scale
        if given.get("weight") is not None:
            substitute = substitute * given["weight"]
        return self._route(out, substitute)

    def _enlarge(self, gamma: float, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """The gamma rule of a linear layer or a convolution, for inputs of both signs."""
        given = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **kwargs}
        x, w, b = given["input"], given["weight"], given.get("bias")
        options = {key: value for key, value in kwargs.items() if key not in ("input", "weight", "bias")}
        positive = x > 0
        up, down = torch.where(positive, x, 0.0), torch.where(positive, 0.0, x)
        with torch.set_grad_enabled(self.attached):
            out = func(*args, **kwargs)
        sides = []
        for sign in (1, -1):
            favoured, other = (w + gamma * (w * side).clamp(min=0) * side for side in (sign, -sign))
            shift = None if b is None else b + gamma * (b * sign).clamp(min=0) * sign
            z = func(up, favoured, shift, *args[3:], **options) + func(down, other, None, *args[3:], **options)
            with torch.set_grad_enabled(self.attached):
                some = (out * sign > 0) & (z != 0)
                ratio = torch.where(some, out / torch.where(some, z, 1.0), 0.0)
            sides.append(z * (self._weaken(ratio, 0.0) if self.attached else ratio))
        return self._route(out, sides[0] + sides[1])


def look_inside(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function of torch, written in Python, without its request to modes to run it as a whole.

    Functions of `torch.nn.functional` hand themselves to a mode before they do anything. In a copy whose test for modes
    says no, they go on, and their parts are seen by the mode.
    """
    seen = {
        name: (lambda *_: False)
        for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic")
    }
    copy = types.FunctionType(
        function.__code__,
        {**function.__globals__, **seen},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`scaled_dot_product_attention` by two matrix products and a softmax, with the same arguments.

    Queries are `(..., L, E)`, keys `(..., S, E)`, values `(..., S, V)`; the result is `(..., L, V)`.
    """
    if enable_gqa:
        key, value = (each.repeat_interleave(query.shape[-3] // each.shape[-3], -3) for each in (key, value))
    scores = torch.matmul(query, key.transpose(-2, -1)) * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None:
        by_flags = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, float("-inf")) if by_flags else scores + attn_mask
    weights = torch.softmax(scores, -1)
    return torch.matmul(F.dropout(weights, dropout_p) if dropout_p else weights, value)
