"""Attribution maps as rows of numbers: checks, exact rescaling, and sums that do not depend on the other rows.

A batch may be split anywhere, so the result of a row must have the same bits in every batch. `torch.sum` does not
guarantee this: it divides its work by the shape of the whole tensor. Elementwise operations, minima, maxima and integer
sums do guarantee it. The similarities use only these across features.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Never

import numpy as np
import torch
from torch import Tensor
from torch.autograd import Function

from standfast.errors import SecondDerivativeError, check
from standfast.tensors import is_on_host, widen_half

#: numbers that fit into a cache
_CACHED_ELEMENTS = 1 << 17
_FEW = 24  # with at most this many features, both extremes in one pass, and sums by column, take half the time


def check_map(a: Tensor, argument: str = "a") -> None:
    """Raise `ArgumentError` unless `a` is a floating tensor `(N, ...)` with at least one feature."""
    check(isinstance(a, Tensor), argument, "a torch tensor", type(a).__name__)
    check(a.is_floating_point(), argument, "a tensor of a floating type", a.dtype)
    check(
        a.ndim >= 2 and a.shape[1:].numel() >= 1,
        argument,
        "shape (N, ...) with features",
        tuple(a.shape),
    )


def check_pair(a: Tensor, b: Tensor) -> None:
    """Raise `ArgumentError` unless `a` and `b` are maps of equal shape on one device."""
    check_map(a, "a")
    check_map(b, "b")
    check(a.shape == b.shape, "b", f"the shape of a, {tuple(a.shape)}", tuple(b.shape))
    check(a.device == b.device, "b", f"a tensor on the device of a, {a.device}", b.device)


def working_dtype(*maps: Tensor) -> torch.dtype:
    """float64 if any map is float64, else float32: half precision is too coarse for sums."""
    if any(m.dtype == torch.float64 for m in maps):
        return torch.float64
    return torch.float32


def row_sum(x: Tensor) -> Tensor:
    """Sum `(N, F) -> (N,)` by repeated halving: pairwise sums are accurate, and have the same bits in every batch."""
    if x.requires_grad and torch.is_grad_enabled():
        total: Tensor = _RowSum.apply(x)  # type: ignore[no-untyped-call]
        return total
    return _sum_rows(x)


class _RowSum(Function):
    """`row_sum` with its gradient in one step. The graph of all halvings would take longer than the sum."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.features = x.shape[1]
        return _sum_rows(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0][:, None].expand(-1, ctx.features)


#: maps, and what makes of a weight for each row the gradient by their features `(N, F)`
Gradient = tuple[Tensor, Callable[[Tensor], Tensor]]


def attach_gradients(values: Tensor, *gradients: Gradient) -> Tensor:
    """`values` `(N,)` of maps, with gradients in closed form: a graph of many small operations takes longer."""
    if not (torch.is_grad_enabled() and any(maps.requires_grad for maps, _ in gradients)):
        return values
    maps, rules = zip(*gradients, strict=True)
    attached: Tensor = _ClosedForm.apply(values, rules, *maps)  # type: ignore[no-untyped-call]
    return attached


class _ClosedForm(Function):
    @staticmethod
    def forward(
        ctx: Any, values: Tensor, rules: tuple[Callable[[Tensor], Tensor], ...], *maps: Tensor
    ) -> Tensor:
        ctx.rules = rules
        ctx.save_for_backward(*maps)
        return values.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        maps: tuple[Tensor, ...] = ctx.saved_tensors
        (gradient,) = gradients
        are_needed = ctx.needs_input_grad[2:]
        derivatives: list[Tensor | None] = []
        for rule, values, is_needed in zip(ctx.rules, maps, are_needed, strict=True):
            if not is_needed:
                derivatives.append(None)
                continue
            with torch.no_grad():
                derivative = rule(gradient).to(values.dtype).reshape(values.shape)
            if torch.is_grad_enabled():
                derivative = _LastDerivative.apply(derivative, gradient, *maps)  # type: ignore[no-untyped-call]
            derivatives.append(derivative)
        return None, None, *derivatives


class _LastDerivative(Function):
    """A derivative that cannot be differentiated again. Without this, the second one would be 0 without a word."""

    @staticmethod
    def forward(ctx: Any, derivative: Tensor, *sources: Tensor) -> Tensor:
        return derivative.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Never:
        raise SecondDerivativeError(
            "similarity: expected at most first derivatives by the maps, got a second one"
        )


def _sum_rows(x: Tensor) -> Tensor:
    if not is_on_host(x):
        return x.sum(1)
    # NumPy has no bfloat16
    if x.dtype == torch.bfloat16 or x.numel() > _CACHED_ELEMENTS:
        total: Tensor = _halve(x)
        return total
    # NumPy's small operations take a fifth of the time of torch's, with the same bits
    with np.errstate(all="ignore"):
        numbers = x.detach().numpy()
        # of few features NumPy adds columns faster than parts of rows
        if x.shape[1] <= _FEW:
            numbers = np.asfortranarray(numbers)
        return torch.from_numpy(_halve(numbers))


def _halve(x: Any) -> Any:
    """`row_sum` of a tensor or an array."""
    odd: Any = None
    while x.shape[1] > 1:
        length = x.shape[1]
        half = length // 2
        if length % 2:
            # what is left over of an odd number is added at the end, in the same order in every batch
            last = x[:, -1]
            odd = last if odd is None else odd + last
        x = x[:, :half] + x[:, half : 2 * half]
    total = x[:, 0]
    if odd is None:
        return total
    return total + odd


def extremes(x: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest value of each row `(N, F)`, detached; NaN if the row has a NaN."""
    x = x.detach()
    if x.shape[1] <= _FEW:
        low, high = torch.aminmax(x, dim=1)
        return low, high
    return x.amin(1), x.amax(1)


def are_finite(low: Tensor, high: Tensor) -> Tensor:
    """Whether all values from `low` to `high` `(N,)` are finite; of a row with a NaN both are NaN."""
    return (low > -torch.inf) & (high < torch.inf)


def find_extremes(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """`extremes` of the values where `mask` `(N, F)` is True."""
    x = x.detach()
    low = torch.where(mask, x, torch.inf).amin(1)
    high = torch.where(mask, x, -torch.inf).amax(1)
    return low, high


@torch.no_grad()
def binade(size: Tensor) -> Tensor:
    """The largest power of two that is at most `size`, by which division is exact; 1 where size is 0, inf or NaN."""
    is_usable = (size > 0) & (size < torch.inf)
    size = torch.where(is_usable, size, 1)
    mantissa = torch.frexp(size).mantissa
    # 2**exponent, with frexp's exponent, can overflow where this quotient is exact.
    return size / (2 * mantissa)


@torch.no_grad()
def is_constant(low: Tensor, high: Tensor, eps: float) -> Tensor:
    """Whether values from `low` to `high` differ by no more than 4 roundings of the largest."""
    half_range = high / 2 - low / 2  # high - low may overflow
    largest = torch.maximum(-low, high)
    most = torch.finfo(low.dtype).max
    # half of the range against half of 4 roundings, a product that may overflow
    half_of_roundings = (2 * eps * largest).clamp_(max=most)
    return half_range <= half_of_roundings


def is_degenerate(a: Tensor) -> Tensor:
    """Whether each map is constant: it ranks no feature above another, so no correlation with it is defined.

    Constant means constant up to rounding: the largest less the smallest value is at most 4 machine epsilons of the
    dtype, relative to the largest absolute value. A map of zeros is constant. A map of size 1e-30 that varies is not
    constant. A map with a NaN or an infinity is not constant.

    Args:
        a: maps `(N, ...)`, floating.

    Returns:
        Booleans `(N,)`.

    Raises:
        ArgumentError: `a` is no floating tensor of two or more dimensions.

    >>> is_degenerate(torch.tensor([[0.0, 0.0], [7.0, 7.0], [1e-30, 2e-30]]))
    tensor([ True,  True, False])
    """
    check_map(a)
    rows = a.detach().flatten(1).to(working_dtype(a))
    low, high = extremes(rows)
    return is_constant(low, high, torch.finfo(a.dtype).eps)


def sort_rows(x: Tensor) -> Tensor:
    """The whole numbers `x` `(..., F)` in ascending order along the last axis; `x` may be overwritten."""
    if is_on_host(x):  # NumPy sorts many times as fast as torch, which also finds the indices
        x.numpy().sort(axis=-1)
        return x
    return x.sort(dim=-1).values


def order_rows(x: Tensor) -> Tensor:
    """The positions of each row `(N, F)` in ascending order of value, of equal values the lower one first.

    Returns:
        int64 `(N, F)`; arbitrary for a row with a NaN.

    >>> order_rows(torch.tensor([[2.0, 1.0, 2.0, -0.0, 0.0]]))
    tensor([[3, 4, 1, 0, 2]])
    """
    return _order_rows(x)[0]


def order_runs(x: Tensor) -> tuple[Tensor, Tensor]:
    """`order_rows`, and where in this order a run of equal values begins, bool `(N, F)`.

    >>> order_runs(torch.tensor([[2.0, 1.0, 2.0, -0.0, 0.0]]))
    (tensor([[3, 4, 1, 0, 2]]), tensor([[ True, False,  True,  True, False]]))
    """
    order, ordered = _order_rows(x)
    # the values stand in the upper half, above their positions
    if ordered.dtype == torch.int64:
        ordered = ordered >> 32
    return order, find_starts(ordered)


def _order_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """The positions in ascending order, and the values in this order, or integers with them in the upper half.

    On a CPU, float32 values are packed into integers, the value in the upper half and the position in the lower half.
    NumPy sorts these several times as fast as a sort that returns indices.
    """
    x = widen_half(x + 0.0)  # -0.0 and 0.0 become equal
    if not is_on_host(x) or x.dtype != torch.float32 or x.shape[1] >= 1 << 31:
        ordered, order = x.sort(dim=1, stable=True)
        return order, ordered
    keys = ordered_bits(x.contiguous().numpy().view(np.int32)).astype(np.int64)
    keys <<= 32
    # positions in the lower half make equal values stable, the lower position first
    keys |= np.arange(x.shape[1])
    keys.sort(axis=1)
    packed = torch.from_numpy(keys)
    return packed & 0xFFFFFFFF, packed


def ordered_bits(bits: Any) -> Any:
    """Bits of float32 as integers in the order of the floats (NaN at the ends); the function is its own inverse."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))


def find_starts(ordered: Tensor) -> Tensor:
    """Mask of the positions where a run of equal values begins, in sorted rows `(N, F)`."""
    starts = torch.ones_like(ordered, dtype=torch.bool)
    later = ordered[:, 1:]
    earlier = ordered[:, :-1]
    torch.ne(later, earlier, out=starts[:, 1:])
    return starts


def find_runs(starts: Tensor) -> tuple[Tensor, Tensor]:
    """The places where the runs of sorted rows begin, and their lengths, both int64 `(runs,)`.

    The rows are counted as one: run i of row r begins at `r * F` plus its place in the row.
    """
    begin = starts.flatten().nonzero()[:, 0]
    end = begin.new_full((1,), starts.numel())
    return begin, torch.diff(begin, append=end)
