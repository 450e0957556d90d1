"""Intervals for statistics of means over samples, for the notes and curves of a report."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy

from holdfast.statistics.paired import Array

#: samples from which on there is an interval
FEW = 5
_LEVEL, _RESAMPLES, _SEED = 0.95, 2000, 0
_CELLS = 2_000_000  # numbers held at once


def intervals_of_means(
    values: Array, statistic: Callable[[Array], Array] = lambda means: means
) -> tuple[Array, Array, Array]:
    """A statistic of means over samples, and the ends of its 95% interval.

    The interval is Efron's (1987, JASA 82) BCa with jackknife acceleration. Samples are resampled as wholes, so what
    is compared within a sample stays paired; the draws are always the same.

    Args:
        values: finite, `(n, Q)` with n of at least 1.
        statistic: of means `(..., Q)`, gives `(..., R)`, NaN where it is not defined; by default the means themselves.

    Returns:
        Three arrays `(R,)`: the statistic, the lower ends, the upper ends. The ends are NaN for fewer than `FEW`
        samples, and where the statistic is undefined without one of them or for more than 5% of the draws.

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
    without = statistic((n * mean - values) / (n - 1))
    for place in range(len(value)):
        defined = np.isfinite(drawn[:, place])
        if np.isfinite(without[:, place]).all() and defined.mean() >= 0.95:
            low[place], high[place] = _ends(value[place], drawn[defined, place], without[:, place])
    return value, low, high


def _ends(value: float, drawn: Array, without: Array) -> tuple[float, float]:
    """BCa ends of one statistic from its bootstrap draws and from its values without each of the samples."""
    drawn, value = np.round(drawn, 12), float(np.round(value, 12))  # ties are ties, whatever the rounding
    if drawn.min() == drawn.max():
        return value, value
    below = ((drawn < value).mean() + (drawn <= value).mean()) / 2
    bias = scipy.stats.norm.ppf(np.clip(below, 0.5 / len(drawn), 1 - 0.5 / len(drawn)))
    apart = without.mean() - without
    spread = (apart**2).sum()
    skew = (apart**3).sum() / (6 * spread**1.5) if spread > 0 else 0.0
    normal = bias + scipy.stats.norm.ppf([(1 - _LEVEL) / 2, (1 + _LEVEL) / 2])
    low, high = np.quantile(drawn, scipy.stats.norm.cdf(bias + normal / (1 - skew * normal)))
    return float(low), float(high)
