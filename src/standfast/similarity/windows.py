"""Maps with one value per position, and operations over the window of each position: mean, union, minimum.

The window of a position contains all positions at most w away along each axis: (2w + 1) x (2w + 1) pixels of an image,
2w + 1 positions of a series. It ends at the border, and does not continue in the next row.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional

from standfast.errors import check, check_choice, check_integer
from standfast.similarity.rows import check_map, working_dtype

Channels = Literal["abs_sum", "sum", "max"]


def per_position(a: Tensor, channels: Channels = "abs_sum") -> Tensor:
    """Reduce the channels (dimension 1) of maps, so that each position has one value.

    Differentiable. The result of a row has the same bits in every batch.

    Args:
        a: `(N, C, H, W)` or `(N, C, T)`, floating; half precision is computed in float32. Maps `(N, F)` have no
            channels and are returned unchanged.
        channels: `abs_sum`, the sum of absolute values (Ghorbani, Abid, Zou, AAAI 2019); `sum`, the sum with signs;
            `max`, the largest absolute value (Simonyan, Vedaldi, Zisserman, 2013).

    Returns:
        `(N, H, W)`, `(N, T)` or `(N, F)`.

    Raises:
        ArgumentError: `a` is no floating tensor of two or more dimensions, or the reduction is unknown.

    >>> a = torch.tensor([[[1.0, -2.0], [-3.0, 1.0]]])
    >>> per_position(a), per_position(a, "sum"), per_position(a, "max")
    (tensor([[4., 3.]]), tensor([[-2., -1.]]), tensor([[3., 2.]]))
    """
    check_map(a)
    check_choice(channels, "channels", get_args(Channels))
    if a.ndim == 2:
        return a
    a = a.to(working_dtype(a))
    if channels == "max":
        return a.abs().amax(1)
    # One addition at a time: the order in which `sum` adds a strided dimension depends on the whole tensor.
    parts = list(a.unbind(1))
    if channels == "abs_sum":
        parts = [part.abs() for part in parts]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return total


def smooth(a: Tensor, w: int) -> Tensor:
    """Mean over the window of each position, always divided by (2w + 1)^2, or by 2w + 1 for series.

    Positions outside the map count as 0, as in the paper's definition. So smoothing never increases the l2 distance of
    two maps (Proposition 3). Differentiable. Computed by shifted additions: unlike running sums, they give a row the
    same bits in every batch and keep zeros exact.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; half precision is computed in float32.
        w: half width of the window, at least 0.

    Returns:
        Maps of the shape of `a`; NaN where the window has a NaN.

    Raises:
        ArgumentError: `a` has another shape or type, or w is no whole number of at least 0.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> smooth(torch.tensor([[0.0, 3.0, 0.0, 0.0], [3.0, 3.0, 3.0, 3.0]]), 1)
    tensor([[1., 1., 1., 0.],
            [2., 3., 3., 2.]])
    """
    check_positions(a)
    check_integer(w, "w", 0)
    x = a.to(working_dtype(a))
    if w == 0:
        return x
    members: int = (2 * w + 1) ** (x.ndim - 1)
    # division by a power of two is exact and keeps sums of very large values in range
    with torch.no_grad():
        size = x.flatten(1).abs().amax(1)
        large = size > torch.finfo(x.dtype).max / members
        shrink = torch.ones_like(size).masked_fill(large, 2.0 ** math.ceil(math.log2(members)))
        shrink = shrink.view(-1, *(1,) * (x.ndim - 1))
    x = x / shrink
    for dim in range(1, x.ndim):
        length = x.shape[dim]
        reach = min(w, length - 1)
        # torch begins with the last axis
        later_axes = (0, 0) * (x.ndim - 1 - dim)
        x = functional.pad(x, (*later_axes, reach, reach))
        total = x.narrow(dim, 0, length)
        for shift in range(1, 2 * reach + 1):
            total = total + x.narrow(dim, shift, length)
        x = total
    return x / members * shrink


def dilate(mask: Tensor, w: int) -> Tensor:
    """All positions in the window of a chosen one, N_w(S): the union of the windows, which end at the border.

    Args:
        mask: images `(N, H, W)` or series `(N, T)`, bool.
        w: half width of the window, at least 0.

    Returns:
        A bool mask of the shape of `mask`.

    Raises:
        ArgumentError: `mask` has another shape or type, or w is no whole number of at least 0.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> dilate(torch.tensor([[True, False, False, False, False, True]]), 1)
    tensor([[ True,  True, False, False,  True,  True]])
    """
    check(isinstance(mask, Tensor), "mask", "a torch tensor", type(mask).__name__)
    check(mask.dtype == torch.bool, "mask", "a bool tensor", mask.dtype)
    check(
        mask.ndim in (2, 3) and mask.shape[1:].numel() >= 1,
        "mask",
        "shape (N, H, W) or (N, T)",
        tuple(mask.shape),
    )
    check_integer(w, "w", 0)
    return _reduce_windows(mask, w, torch.logical_or, False)


def window_minimum(x: Tensor, w: int) -> Tensor:
    """The smallest value in the window of each position, for integers `(N, H, W)` or `(N, T)`."""
    return _reduce_windows(x, w, torch.minimum, torch.iinfo(x.dtype).max)


def _reduce_windows(
    x: Tensor, w: int, join: Callable[[Tensor, Tensor], Tensor], outside: int | bool
) -> Tensor:
    """Reduce the window of each position by `join`, an idempotent operation whose neutral element is `outside`.

    The axes are reduced one after the other, each by doubling: about log2(w) + 2 operations.
    """
    for dim in range(1, x.ndim):
        length = x.shape[dim]
        reach = min(w, length - 1)
        shape = list(x.shape)
        shape[dim] = length + 2 * reach
        padded = x.new_full(shape, outside)
        padded.narrow(dim, reach, length).copy_(x)
        x = padded
        covered = 1
        width = 2 * reach + 1
        while covered < width:
            shift = min(covered, width - covered)
            left = x.shape[dim] - shift
            x = join(x.narrow(dim, 0, left), x.narrow(dim, shift, left))
            covered += shift
    return x


def check_positions(a: Tensor, argument: str = "a") -> None:
    """Raise `ArgumentError` unless `a` holds images `(N, H, W)` or series `(N, T)`."""
    check_map(a, argument)
    check(
        a.ndim in (2, 3),
        argument,
        "shape (N, H, W) or (N, T), as per_position returns",
        tuple(a.shape),
    )
