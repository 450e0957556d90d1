"""Attention in plain operations, and its weights as tensors that can be differentiated by.

Attention is found by what the module computes, not by the names of its classes. Three forms are seen:

- `torch.nn.functional.scaled_dot_product_attention`, the fused function that timm and transformers call by default.
  Its weights never exist, and its kernels have no second derivative. So it is replaced by the formula
  `softmax(q k' / sqrt(d) + mask) v`, with the same result up to rounding.
- `nn.MultiheadAttention`, and with it torch's own encoder. Its function is opened, so that what it calls is seen.
  Torch does not take its fast path while functions are watched.
- a softmax over the last axis, whose result is then multiplied by values (`softmax(...) @ v`), as written out by
  timm without fusing, by transformers with `attn_implementation="eager"`, and by many others.

Nothing on the user's module has to be undone, since functions are watched (see `standfast.function_calls`).
"""

from __future__ import annotations

import math
import types
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from standfast.function_calls import FunctionMode, split_names, strip_underscore

_FUSED = "scaled_dot_product_attention"
_COMPOSED = "multi_head_attention_forward"
#: the functions that `PlainAttention` replaces
ATTENTION = frozenset({_FUSED, _COMPOSED})
_CONVOLUTIONS = split_names("conv1d conv2d conv3d")
_PRODUCTS = split_names("matmul __matmul__ bmm")
# functions after which attention weights are still the same weights
_KEEPS_WEIGHTS = split_names(
    "dropout feature_dropout alpha_dropout to type type_as float double half bfloat16 contiguous clone"
    " view view_as reshape reshape_as flatten unflatten unsqueeze squeeze"
)


def compute_attention_weights(
    query: Tensor,
    key: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    """Attention weights `softmax(q k' scale + mask)`: `(..., queries, keys)`, in operations with all derivatives.

    Args:
        query: `(..., queries, width)`.
        key: `(..., keys, width)`.
        mask: numbers to add before the softmax, or booleans that are true where a key takes part. A query without any
            key gets weights of 0, as from torch's function.
        causal: a query takes part only in keys up to its own position.
        scale: by default `1 / sqrt(width)`.

    >>> compute_attention_weights(torch.zeros(2, 3), torch.zeros(2, 3), causal=True)
    tensor([[1.0000, 0.0000],
            [0.5000, 0.5000]])
    """
    if scale is None:
        scale = 1 / math.sqrt(query.shape[-1])
    scores = query @ key.transpose(-2, -1) * scale
    if causal:
        everything = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device)
        allowed = everything.tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if mask is not None:
        if mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -math.inf)
        else:
            scores = scores + mask
    if mask is None and not causal:
        return scores.softmax(-1)
    # softmax would give NaN, and so would its gradient
    alone = (scores == -math.inf).all(-1, keepdim=True)
    return scores.masked_fill(alone, 0.0).softmax(-1).masked_fill(alone, 0.0)


class PlainAttention(FunctionMode):
    """Inside, all attention that runs is computed in plain operations, which have second derivatives.

    >>> x = torch.rand(2, 5, 8, requires_grad=True)
    >>> with PlainAttention():
    ...     out = torch.nn.functional.scaled_dot_product_attention(x, x, x)
    >>> (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    >>> torch.autograd.grad(first.square().sum(), x)[0].shape  # an error outside, on a CPU
    torch.Size([2, 5, 8])
    """

    def __init__(self) -> None:
        super().__init__()
        #: heads of the layer that runs, within torch's own
        self._heads: int | None = None

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        if name == _FUSED:
            return self._attend(*args, **kwargs)
        if name == _COMPOSED and isinstance(func, types.FunctionType):
            return self._open(func, args, kwargs)
        return func(*args, **kwargs)

    def _attend(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        **options: Any,
    ) -> Tensor:
        """In place of `torch.nn.functional.scaled_dot_product_attention`, whose arguments these are."""
        if options.get("enable_gqa"):  # several queries share a key and its value
            heads = query.shape[-3]
            key = key.repeat_interleave(heads // key.shape[-3], -3)
            value = value.repeat_interleave(heads // value.shape[-3], -3)
        weights = compute_attention_weights(query, key, attn_mask, is_causal, options.get("scale"))
        # the fused function has no other switch: it drops weights whenever the probability is above 0
        if dropout_p > 0:
            weights = torch.dropout(weights, dropout_p, True)
        return self._keep(weights, tuple(weights.shape)) @ value

    def _open(self, func: types.FunctionType, args: list[Any], kwargs: dict[str, Any]) -> Any:
        """Run a function of torch that is written in Python such that the functions that it calls are seen."""
        # the number of heads is the fifth argument of torch's `multi_head_attention_forward`
        before = self._heads
        heads = args[4] if len(args) > 4 else None
        self._heads = kwargs.get("num_heads", heads)
        try:
            with self:
                return _run_body(func)(*args, **kwargs)
        finally:
            self._heads = before

    def _keep(self, weights: Tensor, shape: tuple[int, ...]) -> Tensor:
        """What the module goes on with, of attention weights that have this shape before axes are joined."""
        return weights


class AttentionWatch(PlainAttention):
    """Inside, all attention that runs is computed in plain operations, and its weights are kept in `weights`.

    The weights are in the graph of what follows. Where they would not require gradients (the input does not), they
    are cut off from what comes before and made to require gradients. So gradients by the weights can be computed
    without a graph of what comes before the first attention.

    Args:
        rows: inputs of the batch, to tell convolutions of whole inputs from those of parts of inputs.

    >>> x, layer = torch.rand(2, 5, 8), torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> with AttentionWatch(rows=2) as watch:
    ...     out, _ = layer(x, x, x, need_weights=False)
    >>> [tuple(weights.shape) for weights in watch.weights]
    [(2, 2, 5, 5)]
    """

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.rows = rows
        #: attention weights in the order of the calls: `(N, heads, queries, keys)` where the attention is that of
        #: whole inputs; the first axis is another one where it is that of windows
        self.weights: list[Tensor] = []
        #: the positions `(h, w)` or `(t,)` of the last convolution before the first attention, if there is one
        self.grid: tuple[int, ...] | None = None
        # results of a softmax, by the identity of the object, and their shapes; held, so that no identity is used twice
        self._candidates: dict[int, tuple[Tensor, tuple[int, ...]]] = {}

    def run(
        self, name: str, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
    ) -> Any:
        plain = strip_underscore(name)
        if plain in _PRODUCTS and len(args) == 2 and not kwargs:
            return self._multiply(func, *args)
        if plain == "einsum":
            return self._contract(func, args, kwargs)
        result = super().run(name, func, args, kwargs)
        if plain == "softmax":
            self._note_softmax(result, args, kwargs)
        elif plain in _KEEPS_WEIGHTS and args and id(args[0]) in self._candidates:
            source = args[0]
            _, shape = self._candidates[id(source)]
            # another shape of the last two axes: these are no longer queries and keys
            if isinstance(result, Tensor) and result.shape[-2:] == shape[-2:]:
                self._candidates[id(result)] = result, shape
        elif plain in _CONVOLUTIONS and not self.weights and len(result) == self.rows:
            self.grid = tuple(result.shape[2:])
        return result

    def _note_softmax(self, result: Tensor, args: list[Any], kwargs: dict[str, Any]) -> None:
        axis = args[1] if len(args) > 1 else None
        axis = kwargs.get("dim", axis)
        last_axes = (-1, result.ndim - 1)
        if result.ndim >= 3 and axis in last_axes:
            shape = tuple(result.shape)
            # within nn.MultiheadAttention, which joins the two axes
            if self._heads is not None and result.ndim == 3:
                shape = (-1, self._heads, *shape[1:])
            self._candidates[id(result)] = result, shape

    def _multiply(self, func: Callable[..., Any], left: Tensor, right: Tensor) -> Any:
        if id(left) not in self._candidates:
            return func(left, right)
        _, shape = self._candidates[id(left)]
        return func(self._keep(left, shape), right)

    def _contract(self, func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
        """An `einsum`, in which weights take part if it is a sum over their last axis, and over that alone."""
        equation = args[0]
        operands = args[1:]
        if isinstance(equation, str) and len(operands) == 2 and isinstance(operands[0], Tensor):
            terms, _, out = equation.replace(" ", "").partition("->")
            pairs = zip(terms.split(","), operands, strict=False)
            for position, (term, operand) in enumerate(pairs):
                if id(operand) not in self._candidates:
                    continue
                sums_last = term[-1] not in out
                keeps_others = set(term[:-1]) <= set(out)
                if sums_last and keeps_others:
                    _, shape = self._candidates[id(operand)]
                    operands[position] = self._keep(operand, shape)
        return func(equation, *operands, **kwargs)

    def _keep(self, weights: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Record the weights, in this shape; what the module goes on with, in its own shape."""
        if len(shape) == 3 and shape[0] == self.rows:
            shape = (shape[0], 1, *shape[1:])  # a single head
        kept = weights.reshape(shape)
        if torch.is_grad_enabled() and not kept.requires_grad:
            kept = kept.detach().requires_grad_(True)
        self.weights.append(kept)
        return kept.reshape(weights.shape)


@lru_cache(maxsize=8)
def _run_body(func: types.FunctionType) -> Callable[..., Any]:
    """The function of torch without its first step, which hands the call to an active mode instead of running it."""
    names = {**func.__globals__, "has_torch_function": lambda tensors: False}
    body = types.FunctionType(
        func.__code__, names, func.__name__, func.__defaults__, func.__closure__
    )
    body.__kwdefaults__ = func.__kwdefaults__
    return body
