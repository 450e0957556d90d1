"""Simultaneous intervals of many means over the same draws, by the studentised maximum bootstrap."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import stdtrit

from standfast.errors import check, check_integer
from standfast.statistics.proportions import proportion_intervals
from standfast.tensors import Array

_CELLS = 2_000_000  # numbers in memory at a time
_FEW = 5  # draws, or clusters, that differ from the most frequent value
_NO_ERROR = 1e-6  # of a resample, as a share of the sample's: rounding errors of equal draws
_ROUNDING = 1e-12  # a spread below this share of the largest value is one of rounding errors
# a difference below this share of the map's largest value is one of rounding errors
_INVISIBLE = 1e-6
_FAR = 7.0  # usual deviations: a draw this far away is exceptional, and one half as far nearly so
_NORMAL = 1.4826  # the standard deviation of a normal law, in medians of its absolute deviations


@dataclass(frozen=True, eq=False)
class SimultaneousMeans:
    """The means of F features over the draws, with intervals that hold for all features at once.

    Attributes:
        mean: (F,).
        low, high: (F,), the ends; equal to the mean where features have the same value in every draw, unless others
            rarely differ; infinite where there is one draw or one cluster.
        few: bool (F,), True where few draws make the difference: fewer than five draws (or clusters) differ from the
            usual value, or from small noise around it. Also of features of which none does, where that is so of others.
            There the interval is made of the largest difference that was seen, and of how often one may occur. A larger
            one may not have been seen.
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

    The same is done for both directions apart: towards the longer tail of each feature, and away from it. Each end is
    the wider one, since the symmetric interval is too narrow at the longer tail.

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
    is_table = values.ndim == 2 and len(values) > 0
    check(is_table, "values", "an array of draws x features", f"shape {values.shape}")
    check(bool(np.isfinite(values).all()), "values", "finite numbers", "NaN or infinity")
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    check_integer(resamples, "resamples")
    sums, counts = _sum_clusters(values, clusters)
    mean = values.mean(0)
    # of one draw, or of one model, nothing is known about others
    if len(sums) == 1:
        unknown = np.full_like(mean, math.inf)
        return SimultaneousMeans(mean, -unknown, unknown, np.ones(mean.shape, dtype=bool))
    counts_of_rows = counts[:, None]
    means_of_clusters = sums / counts_of_rows
    centred = sums - counts_of_rows * mean
    error = _standard_error(centred, counts)
    varies = error > _ROUNDING * np.abs(values).max(0)
    usual, different = _find_usual(means_of_clusters)
    few = varies & (different < _FEW)
    # of up to five values that all differ, none is the usual one
    rare = few & (different < len(sums) - 1)
    many = varies & ~rare
    if rare.any():  # where some features rarely differ, one that never did may be another of these
        rare |= ~varies
        few |= rare
        different = np.where(varies, different, 0)
    low = mean.copy()
    high = mean.copy()
    # Bonferroni: the errors of single features add up
    tail = (1 - level) / 2 / len(mean)
    spikes = _limit_spikes(means_of_clusters, many, tail)
    # in many resamples none of a feature's few exceptional draws is left: there its error is far too small, and the
    # intervals of all features would be as wide as this one asks for
    common = many & ~spikes.are_seen
    if common.any():
        scaled = centred[:, common] / error[common]
        below, above = _find_reach(scaled, counts, level, resamples, seed)
        low[common] -= error[common] * below
        high[common] += error[common] * above
    if rare.any():
        means_of_rare = sums[:, rare] / counts_of_rows
        ends = _limit_rare(means_of_rare, usual[rare], different[rare], tail)
        low[rare], high[rare] = ends
    low = np.minimum(low, spikes.low)
    high = np.maximum(high, spikes.high)
    few |= spikes.few
    return SimultaneousMeans(mean, np.minimum(low, mean), np.maximum(high, mean), few)


def share_unseen(draws: int, level: float = 0.95) -> float:
    """How large a share of all draws may differ from those that were made, without one of these showing it.

    No interval of a mean knows of what happened in none of its draws. With n independent draws a thing that happens in
    the share p of all is missed with probability (1 - p)^n; the share is the p of which this is `1 - level`, about
    3 / n at 95%.

    Args:
        draws: independent ones; of clusters how many clusters. Of none the share is 1.
        level: with this probability a larger share would have been seen.

    >>> round(share_unseen(20), 3), round(share_unseen(59), 3), share_unseen(0)
    (0.139, 0.05, 1.0)
    """
    check_integer(draws, "draws", least=0)
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    if draws == 0:
        return 1.0
    return 1 - float((1 - level) ** (1 / draws))


def _sum_clusters(values: Array, clusters: Array | None) -> tuple[Array, Array]:
    """The sums of the draws of each cluster `(M, F)`, and how many draws it has `(M,)`."""
    if clusters is None:
        return values, np.ones(len(values))
    clusters = np.asarray(clusters)
    check(
        clusters.shape == (len(values),),
        "clusters",
        f"shape ({len(values)},)",
        f"shape {clusters.shape}",
    )
    _, cluster_of_draw = np.unique(clusters, return_inverse=True)
    counts = np.bincount(cluster_of_draw).astype(float)
    sums = np.zeros((len(counts), values.shape[1]))
    np.add.at(sums, cluster_of_draw, values)
    return sums, counts


def _standard_error(centred: Array, counts: Array) -> Array:
    """Of a mean over clusters, `(F,)`, from sums `(M, F)` less what the mean gives."""
    clusters = len(centred)
    squares = (centred**2).sum(0)
    variance_of_sum = clusters / (clusters - 1) * squares
    return np.asarray(np.sqrt(variance_of_sum) / counts.sum())


def _find_usual(means: Array) -> tuple[Array, Array]:
    """For each column of `(M, F)`, its most frequent value, and how many values differ from it; `(F,)` each."""
    ordered = np.sort(means, axis=0)
    usual = ordered[0]
    longest = np.ones(means.shape[1], dtype=int)
    run = longest
    for earlier, later in itertools.pairwise(ordered):
        run = np.where(earlier == later, run + 1, 1)
        usual = np.where(run > longest, later, usual)
        longest = np.maximum(longest, run)
    return usual, len(means) - longest


def _limit_rare(means: Array, usual: Array, different: Array, tail: float) -> tuple[Array, Array]:
    """The ends for features that rarely or never differ from their usual value.

    Each may differ as much as the one that differed most, and as often as its own draws allow.

    Args:
        means: (M, F) of draws or clusters.
        usual, different: (F,), see `_find_usual`.
        tail: the error allowed at each end of each feature.
    """
    draws = np.full_like(different, len(means))
    _, most_often = proportion_intervals(different, draws, 1 - 2 * tail)
    differences = means - usual
    lowest = min(differences.min(), 0)
    highest = max(differences.max(), 0)
    return usual + most_often * lowest, usual + most_often * highest


@dataclass(frozen=True, eq=False)
class _Spikes:
    """The intervals that exceptional draws ask for.

    Attributes:
        few: bool (F,), whether fewer than five draws of a feature are exceptional, and some of any feature are.
        are_seen: bool (F,), whether some of these are its own, so that its interval is this one alone.
        low, high: (F,); empty intervals, from infinity to minus infinity, where it is not so.
    """

    few: Array
    are_seen: Array
    low: Array
    high: Array


def _limit_spikes(means: Array, many: Array, tail: float) -> _Spikes:
    """The ends for features that are noise in most draws, and matter in few.

    Of a feature that matters in one draw of twenty, fifty draws show nothing in one case of thirteen. Then its own
    draws look like any noise, but those of other features in the same map tell what kind of map it is: single draws lie
    far away, and hardly any half as far. So where fewer than five draws of a feature are far, the
    feature may be as exceptional as the farthest of them, in its own usual deviations, and as often as its own draws
    allow. But no feature is taken as one that may lie farther away than any draw of them does: of one that hardly
    varies, any draw is many deviations away. Tails without a gap, such as lognormal ones, are left to the bootstrap.

    Of a feature with exceptional draws of its own, the interval also has room for the error of the mean of the others.

    Args:
        means: (M, F) of draws or clusters.
        many: bool (F,), the features that may be such ones.
        tail: the error allowed at each end of each feature.
    """
    lengths = np.abs(means - np.median(means, axis=0))
    deviations = _NORMAL * np.median(lengths, axis=0)
    has_spread = deviations > 0
    distances = np.divide(lengths, deviations, out=np.zeros_like(lengths), where=has_spread)
    is_visible = lengths > _INVISIBLE * np.abs(means).max()
    is_far = (distances > _FAR) & is_visible
    far = is_far.sum(0)
    rare = many & (far < _FEW) & has_spread
    nearly_far = (distances > _FAR / 2).sum(0) - far
    nothing = np.full(len(far), math.inf)
    nowhere = np.zeros(len(far), dtype=bool)
    if far[rare].sum() <= nearly_far[rare].sum():
        return _Spikes(nowhere, nowhere, nothing, -nothing)
    draws = np.full_like(far, len(means))
    _, most_often = proportion_intervals(far, draws, 1 - 2 * tail)
    longest = np.where(is_far, lengths, 0.0)[:, rare].max()
    farthest = distances[:, rare].max()
    reach = most_often * np.minimum(farthest * deviations, longest)
    usual, error = _measure_usual(means, is_far)
    are_seen = nowhere
    if len(means) >= 2 * _FEW:  # among fewer draws, four are no exceptions
        are_seen = rare & (far > 0)
        quantile = float(stdtrit(len(means) - _FEW, 1 - tail))
        reach += np.where(are_seen, quantile * error, 0.0)
    low = np.where(rare, usual - reach, nothing)
    high = np.where(rare, usual + reach, -nothing)
    return _Spikes(rare, are_seen, low, high)


def _measure_usual(means: Array, is_far: Array) -> tuple[Array, Array]:
    """The mean of the draws `(M, F)` that are not far, and its standard error, `(F,)` each."""
    others = np.ma.masked_array(means, is_far)
    count = others.count(axis=0)
    mean = others.mean(0).filled(0.0)
    deviation = others.std(0, ddof=1).filled(0.0)
    return mean, deviation / np.sqrt(count)


def _find_reach(
    scaled: Array, counts: Array, level: float, resamples: int, seed: int
) -> tuple[Array, Array]:
    """How far intervals reach below and above the mean, in standard errors, `(F,)` each.

    The arguments are those of `_largest_deviations`.
    """
    parts = zip(*_largest_deviations(scaled, counts, resamples, seed), strict=True)
    either, towards_tail, away = (np.sort(np.concatenate(part)) for part in parts)
    symmetric = _take_quantile(either, level)
    one_sided = (1 + level) / 2
    # a mean that is too large by its longer tail has a lower end that must reach far enough, and the other way round
    far_tail = max(symmetric, _take_quantile(towards_tail, one_sided))
    near_tail = max(symmetric, _take_quantile(away, one_sided))
    leans_up = _find_longer_tail(scaled) > 0
    below = np.where(leans_up, far_tail, near_tail)
    above = np.where(leans_up, near_tail, far_tail)
    return below, above


def _take_quantile(ordered: Array, level: float) -> float:
    """The quantile of values in their order `(B,)`, rounded up."""
    count = len(ordered)
    rank = min(count, math.ceil(level * (count + 1)))
    return float(ordered[rank - 1])


def _find_longer_tail(scaled: Array) -> Array:
    """For each column of `(M, F)`, whose mean is 0, 1 if it is skewed upwards, and else -1, `(F,)`."""
    skewness = (scaled**3).sum(0)
    return np.where(skewness >= 0, 1.0, -1.0)


def _largest_deviations(
    scaled: Array, counts: Array, resamples: int, seed: int
) -> Iterator[tuple[Array, Array, Array]]:
    """The largest studentised deviations of each resample, `(b,)`, a part at a time.

    In either direction; in that of the longer tail of each feature; and away from it.

    Args:
        scaled: (M, F), sums of clusters less what the mean gives, in standard errors of the mean.
        counts: (M,), draws of each cluster.
    """
    clusters, features = scaled.shape
    generator = np.random.Generator(np.random.PCG64(seed))
    step = max(1, _CELLS // (clusters + 3 * features))
    squares = scaled**2
    products = scaled * counts[:, None]
    longer_tail = _find_longer_tail(scaled)
    for start in range(0, resamples, step):
        shape = (min(step, resamples - start), clusters)
        rows = generator.integers(clusters, size=shape)
        # one histogram for all resamples: each has bins of its own
        rows += clusters * np.arange(len(rows))[:, None]
        histogram = np.bincount(rows.ravel(), minlength=rows.size)
        times = histogram.reshape(rows.shape).astype(float)
        draws = (times @ counts)[:, None]
        offset = times @ scaled / draws  # of the resample's mean from that of the sample
        # the sum of squared deviations of clusters from the resample's own mean, expanded
        squared_counts = (times @ counts**2)[:, None]
        spread = times @ squares - 2 * offset * (times @ products) + offset**2 * squared_counts
        # rounding may lead a sum of squares below 0
        variance_of_sum = clusters / (clusters - 1) * np.maximum(spread, 0.0)
        error = np.sqrt(variance_of_sum) / draws
        deviations = _studentise(offset, error) * longer_tail
        yield np.abs(deviations).max(1), deviations.max(1), -deviations.min(1)


def _studentise(offset: Array, error: Array) -> Array:
    """Their ratio; infinite where all draws of a resample are equal, and differ from the mean."""
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = offset / error
    infinite = np.copysign(math.inf, offset)
    without_error = np.where(np.abs(offset) > _NO_ERROR, infinite, 0.0)
    return np.where(error > _NO_ERROR, ratio, without_error)
