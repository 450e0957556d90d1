"""Simultaneous intervals of many means over the same draws, by the studentised maximum bootstrap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from standfast.errors import check, check_integer
from standfast.tensors import Array

_CELLS = 2_000_000  # numbers in memory at a time
_FEW = 5  # draws, or clusters, that differ from the most frequent value
_ROUNDING = 1e-12  # a spread below this share of the largest value is one of rounding errors


@dataclass(frozen=True, eq=False)
class SimultaneousMeans:
    """The means of F features over the draws, with intervals that hold for all features at once.

    Attributes:
        mean: (F,).
        low, high: (F,), the ends; equal to the mean where the feature has the same value in every draw, infinite where
            there is one draw or one cluster.
        few: bool (F,), True where fewer than five draws (or clusters) differ from the others. These intervals can be too
            narrow: a feature that matters in one draw of twenty is mostly seen only a few times.
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
    few = varies & (_count_different(sums / counts[:, None]) < _FEW)
    reliable = varies & ~few
    if not reliable.any():
        reliable = varies
    width = np.zeros_like(mean)
    if varies.any():
        scaled = centred[:, reliable] / error[reliable]
        largest = np.concatenate(list(_largest_deviations(scaled, counts, resamples, seed)))
        rank = min(resamples, math.ceil(level * (resamples + 1)))
        quantile = float(np.sort(largest)[rank - 1])
        width[varies] = quantile * error[varies]
    return SimultaneousMeans(mean, mean - width, mean + width, few)


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


def _count_different(means: Array) -> Array:
    """For each column of `(M, F)`, how many of its values differ from the most frequent one, `(F,)`."""
    ordered = np.sort(means, axis=0)
    longest = np.ones(means.shape[1], dtype=int)
    run = np.ones(means.shape[1], dtype=int)
    for earlier, later in zip(ordered[:-1], ordered[1:], strict=True):
        run = np.where(earlier == later, run + 1, 1)
        longest = np.maximum(longest, run)
    return len(means) - longest


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
        yield _divide(np.abs(offset), error).max(1)


def _divide(offset: Array, error: Array) -> Array:
    """Their ratio; infinite where all draws of a resample are equal, and differ from the mean."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = offset / error
    return np.where(error > 0, ratio, np.where(offset > 0, math.inf, 0.0))
