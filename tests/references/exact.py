"""Exact answers to compare with."""

from __future__ import annotations

import math
from fractions import Fraction


def irwin_hall_log_sf(dimension: int, threshold: float) -> float:
    """ln P(sum of `dimension` uniform numbers > threshold), by exact rational arithmetic."""
    left = Fraction(dimension) - Fraction(threshold)  # by symmetry the lower tail
    total = Fraction(0)
    for k in range(math.floor(left) + 1):
        total += (-1) ** k * math.comb(dimension, k) * (left - k) ** dimension
    total /= math.factorial(dimension)
    return math.log(total.numerator) - math.log(total.denominator)


def irwin_hall_threshold(dimension: int, log_probability: float) -> float:
    """The threshold that the sum exceeds with this probability."""
    low, high = dimension / 2, float(dimension)
    for _ in range(60):
        middle = (low + high) / 2
        if irwin_hall_log_sf(dimension, middle) > log_probability:
            low = middle
        else:
            high = middle
    return low
