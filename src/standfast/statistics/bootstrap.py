"""Bootstrap intervals of statistics of means over samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from standfast.tensors import Array

#: from means `(..., Q)` to numbers `(..., R)`, NaN where they are not defined
Statistic = Callable[[Array], Array]

LEVEL = 0.95
#: with fewer samples there is no interval, unless a caller asks for one
FEW = 5
_DEFINED = 0.95  # the share of draws in which a statistic must be defined
_CELLS = 2_000_000  # numbers in memory at a time
_ROUNDING = 1e-12  # draws that differ by this share of the largest are tied


def average_samples(values: Array) -> Array:
    """The means of `values` `(n, Q)` over samples, `(Q,)`; NaN for no samples."""
    if len(values):
        return np.asarray(values.mean(0))
    return np.full(values.shape[1], np.nan)


def intervals_of_means(
    values: Array,
    statistic: Statistic = lambda means: means,
    *,
    level: float = LEVEL,
    resamples: int = 2000,
    seed: int = 0,
    fewest: int = FEW,
) -> tuple[Array, Array, Array]:
    """A statistic of means over samples, and the ends of its bootstrap interval.

    The interval is Efron's (1987, JASA 82) BCa interval with jackknife acceleration. Samples are drawn with all their
    values, so comparisons within a sample stay paired. The same seed draws the same samples in every call.

    Args:
        values: finite values `(n, Q)`.
        statistic: a function of means `(..., Q)` that returns `(..., R)`, NaN where it is not defined; by default it
            returns the means.
        level: confidence level, in (0, 1).
        resamples: how many times the samples are resampled, at least 1.
        seed: of the random draws.
        fewest: with fewer samples there is no interval; at least 2.

    Returns:
        Three arrays `(R,)`: the statistic, the lower ends and the upper ends. The ends are NaN for too few samples, and
        if the statistic is undefined for more than 5% of the draws, or when one of the samples is left out.

    >>> values = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> [round(float(end[0]), 1) for end in intervals_of_means(values)]
    [1.5, 0.8, 2.2]
    """
    count = len(values)
    mean = average_samples(values)
    value = statistic(mean)
    if count < fewest:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    drawn_parts = [statistic(means) for means in _resample(values, resamples, seed)]
    drawn = np.concatenate(drawn_parts)
    tail = (1 - level) / 2
    usual = np.array([tail, (1 + level) / 2])[:, None]
    without = statistic(_leave_one_out(values, mean))
    probabilities = _accelerate(usual, value, drawn, without)
    low, high = _quantiles(drawn, probabilities)
    defined = np.isfinite(drawn)
    largest = np.where(defined, drawn, -np.inf).max(0)
    smallest = np.where(defined, drawn, np.inf).min(0)
    width = largest - smallest
    # draws that differ only by rounding are one value, so that the interval is this value
    is_constant = np.isfinite(low) & (width <= _tolerance(drawn))
    return value, np.where(is_constant, value, low), np.where(is_constant, value, high)


def student_intervals_of_means(
    values: Array,
    statistic: Statistic = lambda means: means,
    *,
    level: float = LEVEL,
    fewest: int = FEW,
) -> tuple[Array, Array, Array]:
    """A statistic of means over samples, and the ends of Student's t interval with the jackknife's standard error.

    For a plain mean it is the usual t interval. It keeps its level for few samples of a symmetric distribution with
    heavy tails, where bootstrap intervals are too narrow. It does not correct for skewness.

    Args:
        values, statistic, level, fewest: as for `intervals_of_means`.

    Returns:
        Three arrays `(R,)`: the statistic, the lower ends and the upper ends. The ends are NaN for too few samples, and
        if the statistic is undefined when one of the samples is left out.

    >>> values = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> [round(float(end[0]), 2) for end in student_intervals_of_means(values)]
    [1.5, 0.4, 2.6]
    """
    count = len(values)
    mean = average_samples(values)
    value = statistic(mean)
    if count < fewest:
        return value, np.full_like(value, np.nan), np.full_like(value, np.nan)
    without = statistic(_leave_one_out(values, mean))
    deviations = without - without.mean(0)
    # the jackknife's variance
    variance = (count - 1) / count * (deviations**2).sum(0)
    error = np.sqrt(variance)
    quantile = float(stdtrit(count - 1, (1 + level) / 2))
    width = quantile * error
    return value, value - width, value + width


def _leave_one_out(values: Array, mean: Array) -> Array:
    """The means of all samples except one, `(n, Q)`, from those of all."""
    count = len(values)
    sums = count * mean - values
    return np.asarray(sums / (count - 1))


def _resample(values: Array, resamples: int, seed: int) -> Iterator[Array]:
    """Means of resamples, `(m, Q)`, a part at a time."""
    generator = np.random.Generator(np.random.PCG64(seed))
    count = len(values)
    step = max(1, _CELLS // count)
    for start in range(0, resamples, step):
        shape = (min(step, resamples - start), count)
        rows = generator.integers(count, size=shape)
        # one count for all resamples: each has a range of numbers of its own
        rows += count * np.arange(len(rows))[:, None]
        times = np.bincount(rows.ravel(), minlength=rows.size)
        yield times.reshape(shape) @ values / count


def _tolerance(drawn: Array) -> Array:
    """The largest difference of two tied draws, `(R,)`, for draws `(B, R)`: sums have rounding errors."""
    finite = np.where(np.isfinite(drawn), drawn, 0.0)
    return np.asarray(_ROUNDING * np.abs(finite).max(0))


def _accelerate(probabilities: Array, value: Array, drawn: Array, without: Array) -> Array:
    """The probabilities of the quantiles that are the ends, `(2, R)`; NaN where the jackknife is not defined.

    Args:
        probabilities: of the two ends without the correction, `(2, 1)`.
        value: the statistic, `(R,)`.
        drawn: the statistic of each resample, `(B, R)`, NaN where it is not defined.
        without: the statistic of all samples except one, `(n, R)`.
    """
    defined = np.isfinite(drawn)
    count = defined.sum(0)
    tolerance = _tolerance(drawn)
    is_below = (drawn < value - tolerance) & defined
    is_at_most = (drawn <= value + tolerance) & defined
    # twice the number of draws below the value; tied ones count as half below
    twice_below = is_below.sum(0) + is_at_most.sum(0)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        half_a_draw = 0.5 / count
        share_below = twice_below / (2 * count)
        # BCa's z0, from the share of draws below the value; its clip leaves half a draw at either end
        bias = ndtri(np.clip(share_below, half_a_draw, 1 - half_a_draw))
        deviation = without.mean(0) - without
        spread = (deviation**2).sum(0)
        skewness = (deviation**3).sum(0)
        # BCa's acceleration a, by the jackknife
        acceleration = np.where(spread > 0, skewness / (6 * spread**1.5), 0.0)
        normal = bias + ndtri(probabilities)
        # BCa: z0 + (z0 + z) / (1 - a (z0 + z))
        corrected = ndtr(bias + normal / (1 - acceleration * normal))
    is_defined = np.isfinite(without).all(0)
    return np.where(is_defined, corrected, np.nan)


def _quantiles(drawn: Array, probabilities: Array) -> Array:
    """Quantiles of the finite draws of each column of `(B, R)`, by linear interpolation; `(2, R)`.

    NaN for a column with too few finite draws, and where the probability is NaN.
    """
    defined = np.isfinite(drawn)
    count = defined.sum(0)
    last = np.maximum(count - 1, 0)
    ordered = np.sort(np.where(defined, drawn, np.nan), axis=0)  # NaN comes last
    position = probabilities * last
    is_known = np.isfinite(position) & (count >= _DEFINED * len(drawn))
    position = np.where(is_known, position, 0.0)
    before = np.floor(position).astype(np.int64)
    after = np.minimum(before + 1, last)
    low = np.take_along_axis(ordered, before, axis=0)
    high = np.take_along_axis(ordered, after, axis=0)
    between = low + (high - low) * (position - before)
    return np.where(is_known, between, np.nan)
