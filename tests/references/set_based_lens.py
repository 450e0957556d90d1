"""LENS and diverse sets of one pair of maps from the paper's definitions, with sets of flat indices: slow, in NumPy.

The reference of `test_local_similarity.py` and of `benchmarks/lens/similarity.py`. As the authors' script does, it
lists the window of every position, unites and intersects the lists, and takes a set difference for each step of the
greedy choice. Unlike theirs, windows are two-dimensional: they end at the border and do not wrap round to the next row.
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
        # which keeps their order
        left = np.setdiff1d(left, window(chosen[-1], shape, w), assume_unique=True)
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


def authors_window(position: int, shape: tuple[int, ...], w: int) -> set[int]:
    """The window of a position in the authors' script: flat indices, without those outside and without 0."""
    near = {position + i * shape[1] + j for i in range(-w, w + 1) for j in range(-w, w + 1)}
    return {q for q in near if 0 < q < shape[0] * shape[1]}


def authors_diverse(a: Array, k: int, w: int) -> list[int]:
    """The diverse positions of the authors' script, by its steps; ties in the reverse order of positions."""
    a_flat = a.ravel()
    left = sorted(range(a.size), key=lambda p: (a_flat[p], p))[::-1][: {1: 6, 2: 15, 3: 25}[w] * k]
    chosen = [left[0]]
    left = [p for p in left if p not in authors_window(left[0], a.shape, w)]
    for _ in range(k - 1):
        barred = authors_window(left[0], a.shape, w) if left else set()
        left = [p for p in left if p not in barred and p > 0]
        chosen += left[:1]
    return sorted(p for p in chosen if p > 0)


def authors_shares(a: Array, b: Array, k: int, w: int) -> Array:
    """The six numbers that the script prints, in the order of the paper's Table 4, for one image."""
    numbers = []
    flat = [np.lexsort((np.arange(m.size), m.ravel()))[-k:].tolist() for m in (a, b)]
    for s, t in (flat, [authors_diverse(m, k, w) for m in (a, b)]):
        near_s, near_t = (set().union(*(authors_window(p, a.shape, w) for p in m)) for m in (s, t))
        numbers += [len(set(s) & set(t)) / k, len(near_s & set(t)) / k, len(set(s) & near_t) / k]
    return np.array(numbers)
