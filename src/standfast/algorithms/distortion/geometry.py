"""Distances and nearest points in the 2- and the maximum norm, for many flat vectors at once."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from standfast.errors import ArgumentError

Norm = Literal[2, "inf"]

# distances and divisors are limited to these: float32 can still square the first and divide by the second
_FAR = 1e18
_TINY = 1e-30


def check_norm(norm: float | str, name: str = "norm") -> Norm:
    """2 or `"inf"`, from 2, 2.0, `"inf"` or `math.inf`; raises `ArgumentError` for anything else.

    >>> check_norm(2.0), check_norm(float("inf"))
    (2, 'inf')
    """
    if norm == 2:
        return 2
    if norm == "inf" or norm == float("inf"):
        return "inf"
    raise ArgumentError(name, "2 or 'inf'", repr(norm))


def norm_of(delta: Tensor, norm: Norm) -> Tensor:
    """`||delta||` of the rows of `delta` `(M, d)`; `(M,)`."""
    order = 2 if norm == 2 else torch.inf
    size: Tensor = torch.linalg.vector_norm(delta, ord=order, dim=1)
    return size


def dual_norm_of(gradient: Tensor, norm: Norm) -> Tensor:
    """By how much a step of size 1 in the norm can raise a linear function: the 2-norm, or the 1-norm for `"inf"`."""
    if norm == 2:
        return norm_of(gradient, 2)
    return row_sums(gradient.abs())


def row_sums(x: Tensor) -> Tensor:
    """The sums `(M,)` of the rows of `x` `(M, d)`, one entry after the other.

    `sum` splits a long row between threads if it is the only one, and not if there are others. So its last bits would
    depend on the other rows.
    """
    sums = x.double().cumsum(1)[:, -1]
    return sums.to(x.dtype)


def shrink(delta: Tensor, radius: Tensor, norm: Norm) -> Tensor:
    """The nearest points to `delta` `(M, d)` in balls of `radius` `(M,)` around 0."""
    if norm == "inf":
        reach = radius[:, None]
        return delta.clamp(-reach, reach)
    size = norm_of(delta, 2).clamp(min=1e-30)
    factor = (radius / size).clamp(max=1.0)
    return delta * factor[:, None]


def nearest_on_plane(
    x: Tensor, normal: Tensor, rise: Tensor, lower: Tensor, upper: Tensor, norm: Norm
) -> tuple[Tensor, Tensor]:
    """The nearest points `z` to `x` `(M, d)` within `[lower, upper]` where `normal . (z - x) >= rise`. Exact.

    `z = clip(x + t v)`, with `v = normal` for the 2-norm and its signs for the maximum norm, and the least t that is
    large enough. The rise is piecewise linear in t, with a break where an entry meets its bound.

    Args:
        x: within the bounds.
        normal: `(M, d)`.
        rise: `(M,)`.
        lower, upper: `(M, d)`.

    Returns:
        The points, and which of them reach the rise, bool `(M,)`; the others lie as far as the bounds allow.

    >>> x, high = torch.zeros(1, 2), torch.tensor([[1.0, 9.0]])
    >>> nearest_on_plane(x, torch.tensor([[3.0, 4.0]]), torch.tensor([7.0]), x, high, 2)[0]
    tensor([[0.84, 1.12]])
    >>> nearest_on_plane(x, torch.tensor([[3.0, 4.0]]), torch.tensor([11.0]), x, high, 2)[0]
    tensor([[1., 2.]])
    """
    room_above = upper - x
    room_below = x - lower
    room = torch.where(normal > 0, room_above, room_below).clamp(max=_FAR)
    weight = normal.abs()
    speed = weight if norm == 2 else (weight > 0).to(weight.dtype)
    moving = (speed > 0) & (room > 0)
    # where an entry meets its bound
    time = room / speed.clamp(min=_TINY)
    end = torch.where(moving, time, 0.0).clamp(max=_FAR)
    ends, order = end.sort(dim=1)
    # an entry that cannot move adds nothing to the rise, whatever its weight
    slope = torch.where(moving, weight * speed, 0.0).gather(1, order)
    left = slope.flip(1).cumsum(1).flip(1)  # of the entries that still move just before each end
    begin = torch.zeros_like(ends[:, :1])
    lengths = torch.diff(ends, dim=1, prepend=begin)
    gained = (left * lengths).cumsum(1)
    wanted_rise = rise[:, None]
    last = x.shape[1] - 1
    piece = (gained < wanted_rise).sum(1, keepdim=True).clamp(max=last)
    reached = gained[:, -1] >= rise
    is_later = piece > 0
    piece_before = (piece - 1).clamp(min=0)
    before = torch.where(is_later, gained.gather(1, piece_before), 0.0)
    start = torch.where(is_later, ends.gather(1, piece_before), 0.0)
    # the rise within a piece is linear in t, since the same entries move
    slope_of_piece = left.gather(1, piece).clamp(min=_TINY)
    t = start + (wanted_rise - before) / slope_of_piece
    last_end = ends[:, -1:]
    t = torch.where(reached[:, None], t, last_end).clamp(min=0.0)
    # an entry that has met its bound stays there
    step = torch.minimum(t * speed, room)
    step = torch.where(moving, step, 0.0)
    return x + normal.sign() * step, reached
