"""Maps as values of positions, and what is done in the window around each: mean, union, minimum.

The window of a position are all positions at most w away along each axis: (2w + 1) x (2w + 1) pixels of an image,
2w + 1 places of a series, cut off at the border. Windows never wrap round to the next row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from holdfast.errors import check
from holdfast.similarity.rows import check_map, working_dtype

Channels = Literal["abs_sum", "sum", "max"]


def per_position(a: Tensor, channels: Channels = "abs_sum") -> Tensor:
    """Maps of inputs with one value for each position: the channels, dimension 1, are reduced.

    Differentiable. A row's result has the same bits in any batch.

    Args:
        a: `(N, C, H, W)`, `(N, C, T)`, or `(N, F)`, which has no channels and is returned as it is; floating; half
            precision is computed in float32.
        channels: `abs_sum`, the sum of absolute values (Ghorbani, Abid, Zou, AAAI 2019); `sum`, with their signs;
            `max`, the largest absolute value (Simonyan, Vedaldi, Zisserman, 2013).

    Returns:
        `(N, H, W)`, `(N, T)` or `(N, F)`.

    Raises:
        ArgumentError: not a floating tensor of two or more dimensions; an unknown reduction.

    >>> a = torch.tensor([[[1.0, -2.0], [-3.0, 1.0]]])
    >>> per_position(a), per_position(a, "sum"), per_position(a, "max")
    (tensor([[4., 3.]]), tensor([[-2., -1.]]), tensor([[3., 2.]]))
    """
    check_map(a)
    check_channels(channels)
    if a.ndim == 2:
        return a
    a = a.to(working_dtype(a))
    if channels == "max":
        return a.abs().amax(1)
    # One addition at a time: `sum` over a strided dimension takes an order that depends on the whole tensor.
    parts = [part.abs() if channels == "abs_sum" else part for part in a.unbind(1)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def smooth(a: Tensor, w: int) -> Tensor:
    """Mean over the window around each position, always divided by (2w + 1)^2, or 2w + 1 for series.

    What lies outside of the map counts as 0, as in the paper's definition, from which it follows that smoothing never
    takes two maps further apart in the l2 norm (Proposition 3). Differentiable. By shifted additions: a row keeps
    its bits in any batch, and zeros stay exactly 0, which running sums do not promise.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; half precision is computed in float32.
        w: positions on each side, at least 0.

    Returns:
        As `a`; NaN wherever the window holds a NaN.

    Raises:
        ArgumentError: another shape or type, or w is no whole number from 0 up.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> smooth(torch.tensor([[0.0, 3.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0]]), 1)
    tensor([[1., 1., 1., 0.],
            [2., 3., 3., 2.]])
    """
    check_positions(a)
    check_window(w)
    x = a.to(working_dtype(a))
    if w == 0:
        return x
    members: int = (2 * w + 1) ** (x.ndim - 1)
    with torch.no_grad():  # a power of two keeps sums of very large values in range, exactly
        size = x.flatten(1).abs().amax(1)
        large = size > torch.finfo(x.dtype).max / members
        shrink = torch.ones_like(size).masked_fill(large, 2.0 ** math.ceil(math.log2(members)))
        shrink = shrink.view(-1, *(1,) * (x.ndim - 1))
    x = x / shrink
    for dim in range(1, x.ndim):
        length = x.shape[dim]
        reach = min(w, length - 1)
        x = functional.pad(x, (0, 0) * (x.ndim - 1 - dim) + (reach, reach))
        total = x.narrow(dim, 0, length)
        for shift in range(1, 2 * reach + 1):
            total = total + x.narrow(dim, shift, length)
        x = total
    return x / members * shrink


def dilate(mask: Tensor, w: int) -> Tensor:
    """All positions in the window of a chosen one, N_w(S): the union of the windows, cut off at the border.

    Args:
        mask: images `(N, H, W)` or series `(N, T)`, bool.
        w: positions on each side, at least 0.

    Returns:
        As `mask`, bool.

    Raises:
        ArgumentError: another shape or type, or w is no whole number from 0 up.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> dilate(torch.tensor([[True, False, False, False, False, True]]), 1)
    tensor([[ True,  True, False, False,  True,  True]])
    """
    check(isinstance(mask, Tensor), "mask", "a torch tensor", type(mask).__name__)
    check(mask.dtype == torch.bool, "mask", "a bool tensor", mask.dtype)
    check(mask.ndim in (2, 3) and mask.shape[1:].numel() >= 1, "mask", "shape (N, H, W) or (N, T)", tuple(mask.shape))
    check_window(w)
    return _within_windows(mask, w, torch.logical_or, False)


def window_minimum(x: Tensor, w: int) -> Tensor:
    """The least value in the window of each position `(N, H, W)` or `(N, T)`, of whole numbers."""
    return _within_windows(x, w, torch.minimum, torch.iinfo(x.dtype).max)


def _within_windows(x: Tensor, w: int, join: Callable[[Tensor, Tensor], Tensor], outside: int | bool) -> Tensor:
    """An operation over windows for which it does not matter that a value takes part twice; `outside` changes nothing.

    Axis by axis, each by doubling: about log2(w) + 2 operations.
    """
    for dim in range(1, x.ndim):
        length = x.shape[dim]
        reach = min(w, length - 1)
        padded = x.new_full((*x.shape[:dim], length + 2 * reach, *x.shape[dim + 1 :]), outside)
        padded.narrow(dim, reach, length).copy_(x)
        x, covered, wanted = padded, 1, 2 * reach + 1
        while covered < wanted:
            shift = min(covered, wanted - covered)
            kept = x.shape[dim] - shift
            x = join(x.narrow(dim, 0, kept), x.narrow(dim, shift, kept))
            covered += shift
    return x


def check_positions(a: Tensor, argument: str = "a") -> None:
    """Raise `ArgumentError` unless `a` holds images `(N, H, W)` or series `(N, T)`."""
    check_map(a, argument)
    check(a.ndim in (2, 3), argument, "shape (N, H, W) or (N, T): see per_position", tuple(a.shape))


def check_window(w: Any) -> None:
    """Raise `ArgumentError` unless `w` is a whole number, at least 0."""
    check(isinstance(w, int) and not isinstance(w, bool) and w >= 0, "w", "a whole number, at least 0", w)


def check_channels(channels: Any) -> None:
    """Raise `ArgumentError` unless `channels` names a reduction."""
    known = get_args(Channels)
    check(channels in known, "channels", f"one of {', '.join(known)}", repr(channels))
