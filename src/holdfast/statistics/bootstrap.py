"""Bootstrap intervals of statistics of means over samples, for the notes and curves of a report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from holdfast.statistics.paired import Array

#: with fewer samples there is no interval
FEW = 5
_LEVEL, _RESAMPLES, _SEED = 0.95, 2000, 0
_CELLS = 2_000_000  # numbers in memory at a time


def intervals_of_means(
    values: Array, statistic: Callable[[Array], Array] = lambda means: means
) -> tuple[Array, Array, Array]:
    """A statistic of means over samples, and the ends of its 95% interval.

    The interval is Efron's (1987, JASA 82) BCa interval with jackknife acceleration. Samples are drawn with all their
    values, so comparisons within a sample stay paired. The random draws are the same in every call.

    Args:
        values: finite values `(n, Q)`, with n of at least 1.
        statistic: a function of means `(..., Q)` that returns `(..., R)`, NaN where it is not defined; by default it
            returns the means.

    Returns:
        Three arrays `(R,)`: the statistic, the lower ends and the upper ends. The ends are NaN for fewer than `FEW`
        samples, and if the statistic is undefined for more than 5% of the draws or when one of the samples is left out.

    >>> values = np.array([[0.0], [1.0], [1.0], [2.0], [2.0], [3.0]])
    >>> [round(float(end[0]), 1) for end in intervals_of_means(values)]
    [1.5, 0.8, 2.2]
    """
    n, mean = len(values), values.mean(axis=0)
    value = statistic(mean)
    low, high = np.full_like(value, np.nan), np.full_like(value, np.nan)
    if n < FEW:
        return value, low, high
    generator = np.random.Generator(np.random.PCG64(_SEED))
    step, parts = max(1, _CELLS // n), []
    for start in range(0, _RESAMPLES, step):
        rows = generator.integers(n, size=(min(step, _RESAMPLES - start), n))
        rows += n * np.arange(len(rows))[:, None]
        times = np.bincount(rows.ravel(), minlength=rows.size).reshape(rows.shape)
        parts.append(statistic(times @ values / n))
    drawn = np.concatenate(parts)
    jackknife = statistic((n * mean - values) / (n - 1))
    for column in range(len(value)):
        defined = np.isfinite(drawn[:, column])
        if np.isfinite(jackknife[:, column]).all() and defined.mean() >= 0.95:
            low[column], high[column] = _bca_ends(value[column], drawn[defined, column], jackknife[:, column])
    return value, low, high


def _bca_ends(value: float, drawn: Array, jackknife: Array) -> tuple[float, float]:
    """BCa ends of one statistic, from its bootstrap draws and its values when one sample is left out."""
    drawn, value = np.round(drawn, 12), float(np.round(value, 12))  # values that differ only by rounding are ties
    if drawn.min() == drawn.max():
        return value, value
    below = ((drawn < value).mean() + (drawn <= value).mean()) / 2
    bias = scipy.stats.norm.ppf(np.clip(below, 0.5 / len(drawn), 1 - 0.5 / len(drawn)))
    deviation = jackknife.mean() - jackknife
    spread = (deviation**2).sum()
    skew = (deviation**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    normal = bias + scipy.stats.norm.ppf([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    low, high = np.quantile(drawn, scipy.stats.norm.cdf(bias + normal / (1 - skew * normal)))
    return float(low), float(high)
