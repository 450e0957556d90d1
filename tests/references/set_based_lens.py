"""LENS and diverse sets of one pair of maps from the paper's definitions, with sets of flat indices: slow, in NumPy.

The reference of `test_local_similarity.py` and of `benchmarks/lens.py`. As the authors' script does, it lists the
window of every position, unites and intersects the lists, and takes a set difference for each step of the greedy
choice. Unlike theirs, windows are two-dimensional: they end at the border and do not wrap round to the next row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def window(position: int, shape: tuple[int, ...], w: int) -> Array:
    """N_w(i, j): flat indices of the positions at most w away along each axis of an image or a series."""
    height, width = shape if len(shape) == 2 else (1, *shape)
    i, j = divmod(position, width)
    rows = np.arange(max(i - w, 0), min(i + w + 1, height))
    columns = np.arange(max(j - w, 0), min(j + w + 1, width))
    return (rows[:, None] * width + columns).ravel()


def windows(positions: Array, shape: tuple[int, ...], w: int) -> Array:
    """N_w(S): the union of the windows, sorted."""
    return np.unique(np.concatenate([window(int(p), shape, w) for p in positions]))


def order_of(a: Array) -> Array:
    """All positions by descending value; of equal ones the lower index first."""
    return np.argsort(-a.ravel(), kind="stable")


def diverse(order: Array, shape: tuple[int, ...], k: int, w: int) -> Array:
    """Take the first that is left and drop its window, k times or until none is left."""
    chosen: list[int] = []
    left = order
    while len(chosen) < k and len(left):
        chosen.append(int(left[0]))
        left = np.setdiff1d(left, window(chosen[-1], shape, w), assume_unique=True)  # which keeps their order
    return np.array(chosen)


def shares(s: Array, t: Array, shape: tuple[int, ...], w: int) -> tuple[float, float, float]:
    """Intersection, precision and recall of two sets."""
    common = len(np.intersect1d(s, t)) / max(len(s), len(t))
    precision = len(np.intersect1d(s, windows(t, shape, w))) / len(s)
    recall = len(np.intersect1d(t, windows(s, shape, w))) / len(t)
    return common, precision, recall


def profile(a: Array, b: Array, k: int, ws: Sequence[int]) -> tuple[Array, Array]:
    """For each w intersection, precision and recall `(W, 3)`, of plain and of diverse sets."""
    shape = a.shape
    of_a, of_b = order_of(a), order_of(b)
    plain = [shares(of_a[:k], of_b[:k], shape, w) for w in ws]
    apart = [shares(diverse(of_a, shape, k, w), diverse(of_b, shape, k, w), shape, w) for w in ws]
    return np.array(plain), np.array(apart)


def smoothed(a: Array, w: int) -> Array:
    """The mean over the window, by its list, always divided by the size of a whole window."""
    sums = [a.ravel()[window(p, a.shape, w)].sum() for p in range(a.size)]
    return np.array(sums).reshape(a.shape) / (2 * w + 1) ** a.ndim
