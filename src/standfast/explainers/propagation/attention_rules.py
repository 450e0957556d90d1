"""The rules of AttnLRP, as a mode that replaces the backward pass of the functions of a module.

Backward passes carry relevance divided by the value that it belongs to, `g_i = R_i / x_i`. In this form most rules are
ordinary gradients: the epsilon rule of linear functions and sums without the stabiliser, which is not needed because
nothing is divided, and the Taylor rule of the softmax. The other rules are the gradients of a substitute, a function
with the same value:

- activation `f`, by the identity rule: `z * c` with the constant `c = f(z) / z`;
- normalisation, by the identity rule for its divisor: `(x - mean(x)) * c * w + b`, with the constant `c = 1 / std(x)`;
- product of two factors that both depend on the input, by the uniform rule: half of the gradient to each of them;
- linear layer, by the gamma rule: `(z + gamma p) c` with the positive contributions `p` where `z > 0`, and the negative
  ones elsewhere, and with the constant `c = z / (z + gamma p)`.

"Constant" means that relevance does not flow into it. The derivative of the relevance does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor
from torch._ops import OpOverload

from standfast.errors import ModelError
from standfast.explainers.propagation.difference_rules import (
    MAX_POOLS,
    RuledMode,
    compute_slope,
    differentiate,
    find_carriers,
    take_inplace_flag,
    trace_slope,
)
from standfast.explainers.propagation.relevance_rules import (
    CONVOLUTIONS,
    LINEAR,
    LINEAR_IN_ONE,
    MOVES,
    PASS_THROUGH,
    QUOTIENTS,
    make_rule_error,
    read_weighted_call,
)
from standfast.function_calls import find_tensors, is_decomposed, split_names, strip_underscore

# functions that move, copy or drop values
_MOVING = frozenset({*MAX_POOLS, *MOVES}) | split_names(
    "where masked_fill roll repeat expand_as type_as half bfloat16 type tile index_select gather repeat_interleave"
    " broadcast_to __get__ __iter__ copy fill zero"
)
_PRODUCTS = LINEAR_IN_ONE | split_names("bmm baddbmm einsum __rmatmul__")
_NORMALISATIONS = split_names("layer_norm rms_norm")
# the gradient of rectifiers and of the softmax passes on `g`; softplus is a smooth rectifier
_BY_GRADIENT = _MOVING | LINEAR | split_names("relu softplus softmax neg __neg__")
# divisors of normalisations that are written out
_DIVISORS = split_names("rsqrt sqrt norm linalg_norm linalg_vector_norm")
_OPERATORS = {"__iadd__": "add", "__isub__": "sub", "__imul__": "mul", "__itruediv__": "div"}
_THRESHOLD = 1e-10  # nearer to zero than this, f(z) / z is the derivative at 0


def _refuse(error: ModelError, _gradient: Tensor) -> NoReturn:
    raise error


class AttentionRule(RuledMode):
    """Inside, modules run such that backward passes within `follow_rules()` follow the rules.

    Gradients that come in and go out are then relevance divided by the values. Other backward passes through the same
    graph compute true gradients. Attention is seen if the mode is entered outside of `PlainAttention`.

    Args:
        attached: keep the graph of true gradients. So what was propagated by the rules can itself be differentiated.
        gamma: of linear layers; 0 is the epsilon rule.
        convolution_gamma: of convolutions.
    """

    def __init__(self, attached: bool, gamma: float, convolution_gamma: float) -> None:
        super().__init__()
        self.attached = attached
        self.gamma = gamma
        self.convolution_gamma = convolution_gamma
        self._constants: dict[int, Tensor] = {}  # with gradients, but without relevance

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of torch, so that its backward pass follows its rule."""
        # the second argument of `expand_as` and others gives its shape only
        values = args[:1] if name.endswith("_as") else [*args, *kwargs.values()]
        carriers = find_carriers(values)
        carrying = [value for value in carriers if id(value) not in self._constants]
        if not carrying:
            return self._run_on_constants(func, args, kwargs, has_gradients=len(carriers) > 0)
        plain = _OPERATORS.get(name, strip_underscore(name))
        if plain in _MOVING:
            return func(*args, **kwargs)
        if plain in PASS_THROUGH:
            return self._run_activation(name, func, args, kwargs)
        if plain != name:  # in place: compute in new memory, then write
            twin: Any = getattr(torch, plain, None) or getattr(F, plain, func)
            target = args[0]
            computed = self.run(plain, twin, [target.clone(), *args[1:]], kwargs)
            return target.copy_(computed)
        if name in _DIVISORS:
            return self._hold(func(*args, **kwargs))
        if name == "normalize":
            return self._normalize_vectors(*args, **kwargs)
        result = self._apply(name, func, args, kwargs, carrying)
        if result is NotImplemented:
            return self._run_without_rule(name, func, args, kwargs)
        return result

    def _run_on_constants(
        self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], has_gradients: bool
    ) -> Any:
        """Call a function of values into which no relevance flows; what it makes of gradients is constant, too."""
        result = func(*args, **kwargs)
        if has_gradients:
            for value in find_tensors([result]):
                self._constants[id(value)] = value
        return result

    def _run_activation(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function of each value alone, which may work in place."""
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = take_inplace_flag(name, args, kwargs)
        source = z.clone() if in_place else z
        plain = _OPERATORS.get(name, strip_underscore(name))
        result = self._activate(plain, lambda values: func(values, *args, **kwargs), source)
        if in_place:
            return z.copy_(result)
        return result

    def _run_without_rule(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        """Call a function that has no rule; the error comes where its relevance is asked for, if it ever is."""
        result = func(*args, **kwargs)
        error = make_rule_error("attn_lrp", name, func, attention=True)
        if isinstance(result, Tensor) and result.requires_grad:
            return self.divide(result, partial(_refuse, error), result, unsaved=1)
        if find_carriers([result]):
            raise error
        return result

    def _hold(self, value: Tensor) -> Tensor:
        """The value as a constant, into which no relevance flows."""
        if not self.attached:
            return value.detach()
        constant = self._weaken(value, 0.0)
        self._constants[id(constant)] = constant
        return constant

    def _weaken(self, value: Tensor, factor: float) -> Tensor:
        """The value; what is passed back by the rules is multiplied by the factor."""

        def weaken(g: Tensor) -> list[Tensor | None]:
            # nothing is passed back by a factor of 0, whatever the gradient
            return [g * factor if factor else None]

        return self.divide(value, weaken, value, unsaved=1)

    def _route(self, out: Tensor, substitute: Tensor) -> Tensor:
        """The values of `out`; backward passes by the rules go through the substitute, of the same shape."""
        return self.divide(out, lambda g: [g], substitute, unsaved=1)

    def _normalize_vectors(
        self, x: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
    ) -> Tensor:
        """`torch.nn.functional.normalize`, by the rule of a quotient."""
        divisor = self._hold(x.norm(p, dim, keepdim=True).clamp_min(eps))
        return self.run("div", torch.div, [x, divisor], {})  # type: ignore[no-any-return]

    def _apply(
        self,
        name: str,
        func: Callable[..., Any],
        args: list[Any],
        kwargs: dict[str, Any],
        carrying: list[Tensor],
    ) -> Any:
        """The result of a function that does not work in place, by its rule; NotImplemented if it has none."""
        is_alone = len(carrying) == 1
        if self.gamma and _is_part_of_layer(name, func, is_alone):
            return NotImplemented
        gamma = self._find_gamma(name)
        if gamma and is_alone and kwargs.get("input", *args[:1]) is carrying[0]:
            return self._enlarge(gamma, func, args, kwargs)
        is_divided = name in QUOTIENTS and is_alone and args[0] is carrying[0]
        if name in _BY_GRADIENT or is_divided:
            return func(*args, **kwargs)
        if name in _PRODUCTS and len(carrying) <= 2 and not _adds_first(name, args, carrying):
            result = func(*args, **kwargs)
            if is_alone:
                return result
            # the uniform rule: half of the gradient to each of two factors
            return self._weaken(result, 0.5)
        if name in _NORMALISATIONS:
            return self._normalise(name, func, args, kwargs)
        return NotImplemented

    def _find_gamma(self, name: str) -> float:
        """The gamma of a layer; 0 for other functions."""
        if name == "linear":
            return self.gamma
        return self.convolution_gamma if name in CONVOLUTIONS else 0.0

    def _activate(self, name: str, function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
        """The identity rule for a function with f(0) = 0."""
        if name in _BY_GRADIENT:
            return function(z)
        with torch.set_grad_enabled(self.attached):
            out = function(z)
        with torch.no_grad():
            slope_at_zero = differentiate(function, z.new_zeros(1))
            slope = compute_slope(z, out, slope_at_zero, _THRESHOLD)
        if self.attached:
            near = z.abs() < torch.finfo(z.dtype).eps ** 0.25
            slope = trace_slope(
                slope, z, out, near, lambda: differentiate(function, z * (2 / 3), create_graph=True)
            )
        return self._route(out, z * self._hold(slope))

    def _normalise(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Tensor:
        """The identity rule for the divisor of a normalisation over the last axes."""
        if name == "layer_norm":
            names = ["input", "normalized_shape", "weight", "bias", "eps"]
            default_eps: float | None = 1e-5
        else:
            names = ["input", "normalized_shape", "weight", "eps"]
            default_eps = None
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        x = arguments["input"]
        shape = arguments["normalized_shape"]
        weight = arguments.get("weight")
        eps = arguments.get("eps", default_eps)
        # without a number, `rms_norm` takes the machine epsilon of its type
        if eps is None:
            eps = torch.finfo(x.dtype).eps
        dimensions = 1 if isinstance(shape, int) else len(shape)
        axes = tuple(range(-dimensions, 0))
        centred = x
        if name == "layer_norm":
            centred = x - x.mean(axes, keepdim=True)
        with torch.set_grad_enabled(self.attached):
            out = func(*args, **kwargs)
            variance = centred.square().mean(axes, keepdim=True)
            scale = (variance + eps).rsqrt()
        substitute = centred * self._hold(scale)
        if weight is not None:
            substitute = substitute * weight
        return self._route(out, substitute)

    def _enlarge(
        self, gamma: float, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Tensor:
        """The gamma rule of a linear layer or a convolution, for inputs of both signs."""
        layer = read_weighted_call("linear", func, args, kwargs)
        x = layer.source
        w = layer.weight
        b = layer.bias
        up = torch.where(x > 0, x, 0.0)
        out = func(*args, **kwargs)
        positive_bias = None if b is None else b.clamp(min=0)
        plus = layer.call(up, w.clamp(min=0), positive_bias)
        # negative inputs with negative weights contribute positively, too
        of_negative = layer.call(x - up, w.clamp(max=0), None)
        plus = plus + of_negative
        contributions = torch.where(out > 0, plus, out - plus)
        enlarged = out + gamma * contributions
        with torch.set_grad_enabled(self.attached):
            ratio = _divide(out, enlarged)
        if not self.attached:
            out = out.detach()
        return self._route(out, enlarged * self._hold(ratio))


def _is_part_of_layer(name: str, func: Callable[..., Any], is_alone: bool) -> bool:
    """Whether a function is one of those that a linear layer was split into, which the gamma rule is not for."""
    return is_decomposed(name, func) or (
        name == "bmm" and isinstance(func, OpOverload) and is_alone
    )


def _adds_first(name: str, args: list[Any], carrying: list[Tensor]) -> bool:
    """Whether relevance can flow into the first argument of a product, which is added to it."""
    return name in ("addmm", "baddbmm") and args[0] is carrying[0]


def _divide(a: Tensor, b: Tensor) -> Tensor:
    """`a / b`, and 0 where `b` is 0; with finite gradients."""
    empty = b == 0
    divisor = torch.where(empty, 1.0, b)
    return torch.where(empty, 0.0, a / divisor)
