"""Areas, moments and quantiles of drops: pure functions of arrays.

Drops are `(n, K)`: n samples, K shares of their positive positions. `summary` says what the numbers mean.
"""

from __future__ import annotations

import numpy as np
from scipy.special import bdtr

from standfast.statistics.bootstrap import LEVEL, average_samples
from standfast.tensors import Array

_SAME = 1e-15  # drops that differ by less than this share of their size are equal
_NOTHING = 1e-12  # drops are equal if their variance is below this share of their mean square about the centre
_LOST = 1e-6  # below this share of the same, a fourth moment has less than four correct digits


def integrate_over_fractions(values: Array, fractions: Array) -> Array:
    """The area under `values` `(..., K)` over the shares `(K,)`, from the first to the last; NaN for a single share."""
    if len(fractions) < 2:
        return np.full(values.shape[:-1], np.nan)
    twice_heights = values[..., 1:] + values[..., :-1]
    widths = np.diff(fractions)
    twice_area = (twice_heights * widths).sum(-1)
    return np.asarray(twice_area / 2)


def compute_printed_f1(top: Array, bottom: Array) -> Array:
    """`A_top (1 - A_bottom) / (A_top + 1 - A_bottom)`, at most 0.5; NaN where the sum is not above 0.

    >>> compute_printed_f1(np.array([1.0, 0.2]), np.array([0.0, 0.2])).round(3).tolist()
    [0.5, 0.16]
    """
    top = np.asarray(top, dtype=float)
    kept = 1 - np.asarray(bottom, dtype=float)
    total = top + kept
    is_positive = total > 0
    divisor = np.where(is_positive, total, 1.0)
    return np.where(is_positive, top * kept / divisor, np.nan)


def compute_moments(drops: Array) -> tuple[Array, Array, Array]:
    """Biased skewness and excess kurtosis of each column, and whether the column is constant, so that both are 0.

    >>> skewness, kurtosis, flat = compute_moments(np.array([[0.0, 0.5], [0.0, 0.5], [1.0, 0.5]]))
    >>> skewness.round(3).tolist(), kurtosis.round(3).tolist(), flat.tolist()
    ([0.707, 0.0], [-1.5, 0.0], [False, True])
    """
    drops = np.asarray(drops, dtype=float)
    centre = average_samples(drops)
    powers = compute_centred_powers(drops, centre)
    return compute_shape(*(average_samples(power) for power in powers))


def compute_centred_powers(drops: Array, centre: Array) -> tuple[Array, Array, Array, Array]:
    """The deviations of each column from its `centre`, to the powers 1 to 4; exactly 0 if the column is constant."""
    if not len(drops):
        return drops, drops, drops, drops
    deviations = drops - centre
    largest = np.abs(drops).max(0)
    is_constant = np.ptp(drops, axis=0) <= _SAME * largest
    deviations = np.where(is_constant, 0.0, deviations)
    return deviations, deviations**2, deviations**3, deviations**4


def compute_shape(
    first: Array, second: Array, third: Array, fourth: Array
) -> tuple[Array, Array, Array]:
    """Skewness, excess kurtosis, and whether both are 0 for lack of spread; from mean powers about any point.

    NaN where the spread is so small, compared with the distance from that point, that rounding errors dominate.
    """
    # moments about the mean from those about any point
    k2 = second - first**2
    k3 = third - 3 * first * second + 2 * first**3
    k4 = fourth - 4 * first * third + 6 * first**2 * second - 3 * first**4
    # a spread that is only rounding counts as none
    flat = k2 <= _NOTHING * second
    variance = np.where(k2 > _LOST * second, k2, np.nan)
    variance = np.where(flat, 1.0, variance)
    skewness = np.where(flat, 0.0, k3 / variance**1.5)
    kurtosis = np.where(flat, 0.0, k4 / variance**2 - 3)
    return skewness, kurtosis, flat


def rescale_skewness(skewness: Array) -> Array:
    """An increasing function to (0, 1), with 1/2 for 0: `(1 + s / (1 + |s|)) / 2`."""
    between = skewness / (1 + np.abs(skewness))
    return np.asarray((1 + between) / 2)


def rescale_kurtosis(kurtosis: Array) -> Array:
    """An increasing function to [0, 1), with 0 for -2 (the minimum) and 1/2 for 0 (a normal): `(e + 2) / (e + 4)`."""
    return np.asarray((kurtosis + 2) / (kurtosis + 4))


def compute_quantile(drops: Array, q: float) -> Array:
    """The least drop that at least a share q of the samples does not exceed, for each column; NaN for no samples."""
    if not len(drops):
        return np.full(drops.shape[1], np.nan)
    # of the sample whose rank reaches q, without interpolation: a drop that occurred
    quantile = np.quantile(drops, q, axis=0, method="inverted_cdf")
    return np.asarray(quantile)


def compute_quantile_interval(drops: Array, q: float) -> tuple[Array, Array]:
    """Two order statistics with the q-quantile between them, with at least 95% probability for any distribution.

    An end is NaN if there are too few samples for it.

    >>> low, high = compute_quantile_interval(np.arange(1.0, 101.0)[:, None], 0.5)
    >>> low.tolist(), high.tolist()
    ([40.0], [61.0])
    """
    count = len(drops)
    missing = np.full(drops.shape[1], np.nan)
    if not count:
        return missing, missing
    ordered = np.sort(drops, axis=0)
    # the j-th smallest lies above the quantile with P(B < j) and below it with P(B >= j): 2.5% at most for each end
    below = bdtr(np.arange(count + 1), count, q)
    low_rank = np.searchsorted(below, (1 - LEVEL) / 2)
    high_rank = np.searchsorted(below, (1 + LEVEL) / 2) + 1
    low = missing
    high = missing
    if low_rank >= 1:
        low = ordered[low_rank - 1]
    if high_rank <= count:
        high = ordered[high_rank - 1]
    return low, high
