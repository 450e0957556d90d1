"""Areas under curves that begin at `(0, 0)`: pure functions of arrays."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from torch import Tensor

from standfast.tensors import Array

#: either arrays or tensors
Numbers = TypeVar("Numbers", Array, Tensor)


def compute_area(share: Numbers, drop: Numbers) -> Numbers:
    """The area under the curve through `(0, 0)` and the points, which is constant from the last point to 1.

    Args:
        share: in [0, 1], not decreasing, `(..., K)`.
        drop: `(..., K)`.

    >>> float(compute_area(np.array([0.5, 1.0]), np.array([1.0, 1.0])))
    0.75
    """
    twice: Numbers = share[..., 0] * drop[..., 0]
    # one by one, as the last bits of a sum depend on how an array lies in memory
    for k in range(1, share.shape[-1]):
        width = share[..., k] - share[..., k - 1]
        height = drop[..., k] + drop[..., k - 1]
        twice = twice + width * height
    last_share = share[..., -1]
    last_drop = drop[..., -1]
    constant_part = (1 - last_share) * last_drop
    area: Numbers = twice / 2 + constant_part
    return area


def compute_area_up_to(share: Array, drop: Array, end: Array) -> Array:
    """The area under the same curve from 0 to `end` `(...)`, which is at most the last share.

    >>> float(compute_area_up_to(np.array([0.5, 1.0]), np.array([1.0, 1.0]), np.array(0.75)))
    0.5
    """
    shape = np.broadcast_shapes(share.shape[:-1], drop.shape[:-1], np.shape(end))
    area = np.zeros(shape)
    left = np.zeros(shape)
    before = np.zeros(shape)
    for k in range(share.shape[-1]):
        right = share[..., k]
        after = drop[..., k]
        width = right - left
        is_wide = width > 0
        # the part of this piece that lies before the end
        part = (end - left) / np.where(is_wide, width, 1.0)
        part = np.clip(np.where(is_wide, part, 0.0), 0.0, 1.0)
        height = before + part * (after - before) / 2
        area = area + part * width * height
        left = right
        before = after
    return np.asarray(area)
