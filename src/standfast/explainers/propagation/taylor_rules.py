"""The rules of deep Taylor decomposition, as a mode that replaces the backward pass of the functions of a module."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from standfast.explainers.propagation.difference_rules import MAX_POOLS, find_carriers, take_inplace_flag
from standfast.explainers.propagation.relevance_rules import (
    AVERAGES,
    MOVES,
    PASS_THROUGH,
    QUOTIENTS,
    WEIGHTED,
    PassThrough,
    Records,
    Share,
    WeightedCall,
    call_with,
    identify,
    make_rule_error,
    read_weighted_call,
    replace_carriers,
)
from standfast.function_calls import FunctionMode, bind_arguments, find_tensors, split_names, strip_underscore

_PRODUCTS = split_names("matmul __matmul__ mm addmm")
# for each function the signs of its two operands, and which of them `alpha` multiplies
_SUMS = {
    **dict.fromkeys(("add", "__add__", "__radd__"), (1, 1, 1)),
    **dict.fromkeys(("sub", "__sub__"), (1, -1, 1)),
    **dict.fromkeys(("rsub", "__rsub__"), (-1, 1, 0)),
}
_FACTORS = split_names("mul __mul__ __rmul__")
_RECTIFIERS = split_names("relu relu6 softplus")
# functions that leave every value in its position
_STAYING = split_names("clone contiguous to float double")


@dataclass(frozen=True)
class _Linear:
    """How a tensor was computed from another: by `call(source, weight)`, shifts and changes of the sign of channels.

    `flip(weight, signs)` multiplies the weight by signs of the output's channels, which are its axis `axis`.
    """

    source: Tensor
    known: _Known
    call: Callable[[Tensor, Tensor], Tensor]
    weight: Tensor
    flip: Callable[[Tensor, Tensor], Tensor]
    axis: int | None

    def share(self, relevance: Tensor, source: Tensor) -> list[Tensor]:
        """The z+ rule, or the z^B rule where the source is the input."""
        u, v = self.known.split(source)
        above, below = self.weight.clamp(min=0), self.weight.clamp(max=0)
        if v is None:
            return [_share_out([u], lambda u: self.call(u, above), relevance)]
        return [_share_out([u, v], lambda u, v: self.call(u, above) + self.call(v, below), relevance)]

    def rescale(self, factor: Tensor | float, shape: torch.Size) -> _Linear | None:
        """The same for the tensor, of this shape, times a factor; `None` if the factor differs within channels."""
        if isinstance(factor, Tensor) and factor.numel() > 1:
            sizes = [1] * (len(shape) - factor.ndim) + list(factor.shape)
            if any(size > 1 and axis != self.axis for axis, size in enumerate(sizes)):
                return None
            return replace(self, weight=self.flip(self.weight, factor.sign().flatten()))
        sign = factor.sign().reshape(()) if isinstance(factor, Tensor) else int(factor > 0) - int(factor < 0)
        return replace(self, weight=self.weight * sign)


@dataclass(frozen=True)
class _Known:
    """What is known about a tensor."""

    #: its smallest and largest possible values, if it is the input, moved or scaled
    box: tuple[Tensor, Tensor] | None = None
    #: it has no values below zero
    positive: bool = False
    #: how it was computed from another tensor
    linear: _Linear | None = None

    def split(self, values: Tensor) -> tuple[Tensor, Tensor | None]:
        """The factors of positive weights, at least 0, and those of negative weights, at most 0 (`None` if all 0)."""
        if self.box is not None:
            return (values - self.box[0]).clamp(min=0), (values - self.box[1]).clamp(max=0)
        return (values, None) if self.positive else (values.clamp(min=0), values.clamp(max=0))

    def find_box(self, values: Tensor) -> tuple[Tensor, Tensor]:
        """The box; for values without one, a box with which `split` gives the same."""
        return self.box or (values.detach().clamp(max=0), values.detach().clamp(min=0))


def _divide(relevance: Tensor, total: Tensor) -> Tensor:
    """`relevance / total`, for totals of at least 0; 0 where the total is 0, so that no unit gets the relevance."""
    bounds = torch.finfo(total.dtype)
    some = total > min(bounds.tiny / bounds.eps, 1e-4)  # for smaller totals the quotient may overflow; 1e-4 in float16
    return torch.where(some, relevance / torch.where(some, total, 1.0), 0.0)


def _share_out(parts: Sequence[Tensor], total: Callable[..., Tensor], relevance: Tensor) -> Tensor:
    """Distribute the relevance of the outputs `total(*parts)` in proportion to the contributions of each part."""
    leaves = [part.detach().requires_grad_(True) for part in parts]
    with torch.enable_grad():
        found = total(*leaves)
    weights = torch.autograd.grad(found, leaves, _divide(relevance, found.detach()))
    shares = [part.detach() * weight for part, weight in zip(parts, weights, strict=True)]
    return shares[0] if len(shares) == 1 else shares[0] + shares[1]


class TaylorRule(FunctionMode):
    """Inside, backward passes propagate relevance by deep Taylor decomposition. Use it once, to forward the inputs.

    Args:
        inputs: of the module.
        lower, upper: the smallest and largest possible values of the inputs, of the same shape.
    """

    def __init__(self, inputs: Tensor, lower: Tensor, upper: Tensor) -> None:
        super().__init__()
        self._records = Records[_Known]()
        self._records.note(inputs, _Known(box=(lower, upper)))

    def __exit__(self, *exception: Any) -> None:
        super().__exit__(*exception)
        self._records.forget()

    def _recall(self, values: Tensor) -> _Known:
        return self._records.recall(values) or _Known()

    def run(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        carrying = find_carriers([*args, *kwargs.values()])
        if not carrying:
            return func(*args, **kwargs)
        plain = strip_underscore(name)
        mode = kwargs.get("mode", args[3] if len(args) > 3 else "nearest") if plain == "interpolate" else ""
        if name in MOVES or name in MAX_POOLS or "nearest" in mode:
            return self._move(plain, func, args, kwargs)
        if name == "__iter__":
            return iter(self._move("unbind", torch.unbind, args, kwargs))
        if plain in PASS_THROUGH:
            return self._activate(name, func, args, kwargs)
        if plain != name and plain in (*_SUMS, *_FACTORS, *QUOTIENTS):  # in place: compute on a copy, then write
            beside = self._move("clone", torch.clone, args[:1], {})
            return self._write(args[0], self.run(plain, getattr(torch, plain), [beside, *args[1:]], kwargs))
        ruled = None
        if plain in _SUMS:
            ruled = self._add(plain, func, args, kwargs)
        elif len(carrying) == 1 and mode != "bicubic":
            ruled = self._apply_linear(plain, func, args, kwargs, carrying[0])
        if ruled is not None:
            return ruled
        result = func(*args, **kwargs)
        if find_carriers([result]):
            raise make_rule_error("deep_taylor", name, func)
        return result

    def _move(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Call a function that moves values or takes maxima; relevance moves with the values."""
        moving = find_carriers([*args, *kwargs.values()])
        known = [self._recall(value) for value in moving]
        result = func(*args, **kwargs)
        outs = result if isinstance(result, tuple | list) else [result]
        if identify(outs[0]) == identify(moving[0]):  # nothing has moved
            return result
        if any(each.box is not None for each in known):
            boxes = [self._move_end(which, func, args, kwargs) for which in (0, 1)]
            found = [_Known(box=box) for box in zip(*boxes, strict=True)]
        else:
            filler = kwargs.get("value", args[3] if len(args) > 3 else 0) if name == "pad" else 0
            others = len(known) < len(find_tensors([*args, *kwargs.values()]))
            positive = all(each.positive for each in known) and not others and (filler or 0) >= 0
            found = [_Known(positive=positive, linear=known[0].linear if name in _STAYING else None)] * len(outs)
        for out, each in zip(outs, found, strict=True):
            self._records.note(out, each)
        return result

    def _move_end(
        self, which: int, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Sequence[Tensor]:
        """Move the smallest (`which` 0) or the largest (1) possible values in the same way."""
        arguments, options = replace_carriers([args, kwargs], lambda value: self._recall(value).find_box(value)[which])
        with torch.no_grad():
            moved = func(*arguments, **options)
        return moved if isinstance(moved, tuple | list) else [moved]

    def _write(self, target: Tensor, result: Tensor) -> Tensor:
        """Write the result of an in-place function into its target."""
        known = self._recall(result)
        target.copy_(result)
        self._records.note(target, known)
        return target

    def _activate(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        """Call an activation, which passes relevance on."""
        z = args.pop(0) if args else kwargs.pop("input")
        in_place = take_inplace_flag(name, args, kwargs)
        result: Tensor = PassThrough.apply(  # type: ignore[no-untyped-call]
            z, lambda z: func(z.clone() if in_place else z, *args, **kwargs)
        )
        self._records.note(result, _Known(positive=name.removesuffix("_") in _RECTIFIERS or self._recall(z).positive))
        return self._write(z, result) if in_place else result

    def _apply_linear(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], a: Tensor
    ) -> Tensor | None:
        """Call a function that is linear in `a` and depends on nothing else; `None` for any other function."""

        function = partial(call_with, func, args, kwargs)

        if name in WEIGHTED:
            layer = read_weighted_call(name, func, args, kwargs)
            return self._apply_weights(layer, function) if layer.source is a else None
        if name in _PRODUCTS:
            factors = find_tensors([*args, *kwargs.values()])[-2:]
            if not any(factor is a for factor in factors):  # `a` is the tensor that addmm adds
                return None
            return self._multiply(a, factors, kwargs.get("alpha", 1), function)
        if name in AVERAGES:
            return self._average(a, function)
        if name == "batch_norm":
            given = bind_arguments(func, args, kwargs)
            scale = given.get("weight")
            if given.get("training") or given["input"] is not a:
                return None
            return self._scale(a, 1 if scale is None else scale.reshape(-1, *[1] * (a.ndim - 2)), function)
        if name in _FACTORS or (name in QUOTIENTS and args[:1] and args[0] is a):
            (other,) = (value for value in (*args, kwargs.get("other")) if value is not a and value is not None)
            return None if kwargs.get("rounding_mode") else self._scale(a, other, function, other)
        return None

    def _apply_weights(self, layer: WeightedCall, function: Callable[[Tensor], Tensor]) -> Tensor:
        def call(values: Tensor, weight: Tensor) -> Tensor:
            return layer.call(values, weight, None)

        def flip(weight: Tensor, signs: Tensor) -> Tensor:
            if not layer.name.startswith("conv_transpose"):
                return weight * signs.reshape(-1, *[1] * (weight.ndim - 1))
            by_group = weight.reshape(layer.groups, -1, *weight.shape[1:])
            flipped = by_group * signs.reshape(layer.groups, 1, -1, *[1] * (weight.ndim - 2))
            return flipped.reshape(weight.shape)

        a = layer.source
        axis = a.ndim - 1 if layer.name == "linear" else 1
        return self._apply_rule(_Linear(a, self._recall(a), call, layer.weight, flip, axis), function)

    def _multiply(
        self, a: Tensor, factors: Sequence[Tensor], alpha: float, function: Callable[[Tensor], Tensor]
    ) -> Tensor:
        (left, right), first = factors, factors[0] is a
        weight = (right if first else left) * alpha

        def call(values: Tensor, weight: Tensor) -> Tensor:
            return torch.matmul(values, weight) if first else torch.matmul(weight, values)

        def flip(weight: Tensor, signs: Tensor) -> Tensor:
            return weight * signs

        axis = a.ndim - 1 if first and weight.ndim == 2 else None
        return self._apply_rule(_Linear(a, self._recall(a), call, weight, flip, axis), function)

    def _apply_rule(self, linear: _Linear, function: Callable[[Tensor], Tensor]) -> Tensor:
        result: Tensor = Share.apply(  # type: ignore[no-untyped-call]
            lambda: function(linear.source), linear.share, linear.source
        )
        self._records.note(result, _Known(linear=linear))
        return result

    def _average(self, a: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        known = self._recall(a)

        def share(relevance: Tensor, values: Tensor) -> list[Tensor]:
            u, v = known.split(values)
            if v is None or known.box is not None:
                return [_share_out([u], function, relevance)]
            above = function(values.detach()) >= 0
            shares = _share_out([u], function, torch.where(above, relevance, 0.0))
            return [shares + _share_out([-v], function, torch.where(above, 0.0, relevance))]

        result: Tensor = Share.apply(lambda: function(a), share, a)  # type: ignore[no-untyped-call]
        self._records.note(result, _Known(positive=known.positive))
        return result

    def _scale(
        self, a: Tensor, factor: Tensor | float, function: Callable[[Tensor], Tensor], other: Any = None
    ) -> Tensor:
        """Multiply `a` by a factor, and shift it: each value has one source, which gets its relevance."""
        if isinstance(other, Tensor):
            shape = torch.broadcast_shapes(a.shape, other.shape)  # type: ignore[no-untyped-call]
            a = a if shape == a.shape else self._move("broadcast_to", torch.broadcast_to, [a, shape], {})
        known = self._recall(a)
        if known.linear is not None:  # then the weights before it get the factor's sign
            linear = known.linear.rescale(factor, a.shape)
            if linear is not None:
                result: Tensor = Share.apply(  # type: ignore[no-untyped-call]
                    lambda: function(a), linear.share, linear.source
                )
                self._records.note(result, _Known(linear=linear))
                return result
        result = PassThrough.apply(a, function)  # type: ignore[no-untyped-call]
        if known.box is not None:
            with torch.no_grad():
                ends = [function(end) for end in known.box]
            self._records.note(result, _Known(box=(torch.minimum(*ends), torch.maximum(*ends))))
        return result

    def _add(self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Tensor:
        *factors, by_alpha = _SUMS[name]
        a, b = [*args, *(kwargs[key] for key in ("input", "other") if key in kwargs)]
        alpha = kwargs.get("alpha", 1)
        of_a, of_b = (factor * (alpha if i == by_alpha else 1) for i, factor in enumerate(factors))
        if not all(isinstance(term, Tensor) and term.requires_grad for term in (a, b)):
            carrier, factor, other = (a, of_a, b) if isinstance(a, Tensor) and a.requires_grad else (b, of_b, a)

            return self._scale(carrier, factor, partial(call_with, func, args, kwargs), other)
        known_a, known_b = self._recall(a), self._recall(b)

        def parts(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
            if known_a.box is not None or known_b.box is not None:
                ends = known_a.find_box(a)[of_a < 0], known_b.find_box(b)[of_b < 0]
                return (of_a * (a - ends[0])).clamp(min=0), (of_b * (b - ends[1])).clamp(min=0)
            terms = of_a * a, of_b * b
            below = terms[0] + terms[1] < 0
            one, other = (torch.where(below, -term, term).clamp(min=0) for term in terms)
            return one, other

        def share(relevance: Tensor, a: Tensor, b: Tensor) -> list[Tensor]:
            found = parts(a, b)
            part = _divide(relevance, found[0] + found[1])
            return [(part * of).sum_to_size(to.shape) for of, to in zip(found, (a, b), strict=True)]

        result: Tensor = Share.apply(lambda: func(*args, **kwargs), share, a, b)  # type: ignore[no-untyped-call]
        self._records.note(result, _Known(positive=known_a.positive and known_b.positive and of_a > 0 and of_b > 0))
        return result
