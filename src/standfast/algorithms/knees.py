"""The knee of a rising curve: the point after which more of x adds little to y."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from standfast.errors import check


def find_knee(x: Sequence[float], y: Sequence[float]) -> int | None:
    """The index of the knee of a curve `y` over increasing `x`: the point farthest above the line between its ends.

    None if no point is above this line, if there are fewer than three points, or if `y` is not finite.

    Source: Satopaa, Albrecht, Irwin and Raghavan, "Finding a 'Kneedle' in a haystack" (ICDCS workshops 2011), for one
    knee and without its smoothing.

    Raises:
        ArgumentError: x does not increase, or the lengths differ.

    >>> find_knee([0, 1, 2, 3, 4], [0, 4, 5, 5.5, 6])
    1
    >>> find_knee([0, 1, 2], [0, 1, 4]) is None
    True
    """
    check(len(x) == len(y), "y", f"{len(x)} numbers, as many as x", len(y))
    a = np.asarray(x, dtype=float)
    b = np.asarray(y, dtype=float)
    check(bool((np.diff(a) > 0).all()), "x", "increasing numbers", list(x))
    if len(a) < 3 or not np.isfinite(b).all():
        return None
    rise = b[-1] - b[0]
    width = a[-1] - a[0]
    chord = b[0] + rise * (a - a[0]) / width
    above = b - chord
    best = int(above.argmax())
    largest = float(np.abs(b).max())
    # above rounding
    if above[best] > 1e-9 * max(1.0, largest):
        return best
    return None
