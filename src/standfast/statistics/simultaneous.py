"""Simultaneous intervals of many means over the same draws, by the studentised maximum bootstrap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from standfast.errors import check, check_integer
from standfast.statistics.proportions import proportion_intervals
from standfast.tensors import Array

_CELLS = 2_000_000  # numbers in memory at a time
_FEW = 5  # draws, or clusters, that differ from the most frequent value
_NO_ERROR = 1e-6  # of a resample, as a share of the sample's: rounding errors of equal draws
_ROUNDING = 1e-12  # a spread below this share of the largest value is one of rounding errors


@dataclass(frozen=True, eq=False)
class SimultaneousMeans:
    """The means of F features over the draws, with intervals that hold for all features at once.

    Attributes:
        mean: (F,).
        low, high: (F,), the ends; equal to the mean where the feature has the same value in every draw, infinite where
            there is one draw or one cluster.
        few: bool (F,), True where some draws differ, but fewer than five draws (or clusters) do. There the interval is
            made of the largest difference that was seen, and of how often one may occur. A larger one may not have been
            seen.
    """

    mean: Array
    low: Array
    high: Array
    few: Array


def simultaneous_means(
    values: Array, level: float, clusters: Array | None = None, seed: int = 0, resamples: int = 2000
) -> SimultaneousMeans:
    """The means of features over draws, with an interval of each that hold all together with probability `level`.

    Draws, or whole clusters of them, are drawn again with replacement. The largest deviation of a mean from the one of
    the sample, in standard errors of the resample, has a distribution that the resamples show. Its quantile is the
    half-width of all intervals in standard errors. Features may depend on each other, as those with a fixed sum do.
    Source: Romano and Wolf, Econometrica 73 (2005), section 4.2; Beran, JASA 83 (1988).

    Args:
        values: (R, F), finite: the value of each feature in each draw.
        level: confidence level of all intervals together.
        clusters: (R,), whole numbers: draws with the same number come from the same model. None for independent draws.
        seed: of the resampling.
        resamples: how many.

    Raises:
        ArgumentError: values that are not an array of draws and features, or are not finite.

    >>> found = simultaneous_means(np.random.default_rng(0).normal([1.0, 0.0, 3.0], [1.0, 1.0, 0.0], (50, 3)), 0.95)
    >>> found.low.round(1), found.high.round(1), found.few
    (array([ 0.4, -0.2,  3. ]), array([1.2, 0.4, 3. ]), array([False, False, False]))
    """
    values = np.asarray(values, dtype=float)
    check(values.ndim == 2 and len(values) > 0, "values", "an array of draws x features", f"shape {values.shape}")
    check(bool(np.isfinite(values).all()), "values", "finite numbers", "NaN or infinity")
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    check_integer(resamples, "resamples")
    sums, counts = _sum_clusters(values, clusters)
    mean = values.mean(0)
    if len(sums) == 1:
        unknown = np.full_like(mean, math.inf)
        return SimultaneousMeans(mean, -unknown, unknown, np.ones(mean.shape, dtype=bool))
    centred = sums - counts[:, None] * mean
    error = _standard_error(centred, counts)
    varies = error > _ROUNDING * np.abs(values).max(0)
    usual, different = _find_usual(sums / counts[:, None])
    few = varies & (different < _FEW)
    many = varies & ~few
    width = np.zeros_like(mean)
    if many.any():
        width[many] = error[many] * _find_quantile(centred[:, many] / error[many], counts, level, resamples, seed)
    low, high = mean - width, mean + width
    if few.any():
        tail = (1 - level) / 2 / len(mean)
        low[few], high[few] = _limit_rare(sums[:, few] / counts[:, None], usual[few], different[few], tail)
    return SimultaneousMeans(mean, np.minimum(low, mean), np.maximum(high, mean), few)


def _sum_clusters(values: Array, clusters: Array | None) -> tuple[Array, Array]:
    """The sums of the draws of each cluster `(M, F)`, and how many draws it has `(M,)`."""
    if clusters is None:
        return values, np.ones(len(values))
    clusters = np.asarray(clusters)
    check(clusters.shape == (len(values),), "clusters", f"shape ({len(values)},)", f"shape {clusters.shape}")
    _, cluster_of_draw = np.unique(clusters, return_inverse=True)
    counts = np.bincount(cluster_of_draw).astype(float)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, cluster_of_draw, values)
    return sums, counts


def _standard_error(centred: Array, counts: Array) -> Array:
    """Of a mean over clusters, `(F,)`, from sums `(M, F)` less what the mean gives."""
    clusters = len(centred)
    return np.asarray(np.sqrt(clusters / (clusters - 1) * (centred**2).sum(0)) / counts.sum())


def _find_usual(means: Array) -> tuple[Array, Array]:
    """For each column of `(M, F)`, its most frequent value, and how many values differ from it; `(F,)` each."""
    ordered = np.sort(means, axis=0)
    usual, longest = ordered[0], np.ones(means.shape[1], dtype=int)
    run = longest
    for earlier, later in itertools.pairwise(ordered):
        run = np.where(earlier == later, run + 1, 1)
        usual = np.where(run > longest, later, usual)
        longest = np.maximum(longest, run)
    return usual, len(means) - longest


def _limit_rare(means: Array, usual: Array, different: Array, tail: float) -> tuple[Array, Array]:
    """The ends for features that rarely differ from their usual value: the largest difference, as often as it may be.

    Args:
        means: (M, F) of draws or clusters.
        usual, different: (F,), see `_find_usual`.
        tail: the error allowed at each end of each feature.
    """
    _, most_often = proportion_intervals(different, np.full_like(different, len(means)), 1 - 2 * tail)
    differences = means - usual
    return usual + most_often * np.minimum(differences.min(0), 0), usual + most_often * np.maximum(
        differences.max(0), 0
    )


def _find_quantile(scaled: Array, counts: Array, level: float, resamples: int, seed: int) -> float:
    """The quantile of the largest studentised deviation; see `_largest_deviations` for the arguments."""
    largest = np.concatenate(list(_largest_deviations(scaled, counts, resamples, seed)))
    rank = min(resamples, math.ceil(level * (resamples + 1)))
    return float(np.sort(largest)[rank - 1])


def _largest_deviations(scaled: Array, counts: Array, resamples: int, seed: int) -> Iterator[Array]:
    """The largest studentised deviation of each resample, `(b,)`, a part at a time.

    Args:
        scaled: (M, F), sums of clusters less what the mean gives, in standard errors of the mean.
        counts: (M,), draws of each cluster.
    """
    clusters, features = scaled.shape
    generator = np.random.Generator(np.random.PCG64(seed))
    step = max(1, _CELLS // (clusters + 3 * features))
    squares, products = scaled**2, scaled * counts[:, None]
    for start in range(0, resamples, step):
        rows = generator.integers(clusters, size=(min(step, resamples - start), clusters))
        rows += clusters * np.arange(len(rows))[:, None]
        times = np.bincount(rows.ravel(), minlength=rows.size).reshape(rows.shape).astype(float)
        draws = (times @ counts)[:, None]
        offset = times @ scaled / draws  # of the resample's mean from that of the sample
        spread = times @ squares - 2 * offset * (times @ products) + offset**2 * (times @ counts**2)[:, None]
        error = np.sqrt(clusters / (clusters - 1) * np.maximum(spread, 0.0)) / draws
        yield _studentise(np.abs(offset), error).max(1)


def _studentise(offset: Array, error: Array) -> Array:
    """Their ratio; infinite where all draws of a resample are equal, and differ from the mean."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = offset / error
    without_error = np.where(offset > _NO_ERROR, math.inf, 0.0)
    return np.where(error > _NO_ERROR, ratio, without_error)
