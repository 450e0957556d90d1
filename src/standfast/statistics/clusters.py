"""Intervals of a proportion whose draws come in clusters: several draws from each of a few retrained models."""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from standfast.errors import check
from standfast.statistics.proportions import proportion_intervals
from standfast.tensors import Array


def clustered_interval(hits: Array, draws: Array, level: float) -> tuple[float, float]:
    """The interval of a proportion from clusters, as draws from the same retrained model are.

    Args:
        hits: (M,), whole numbers: how many draws of each cluster have the property.
        draws: (M,), how many draws each cluster has, at least 1.
        level: confidence level of the interval; each of its ends is a one-sided limit at `(1 + level) / 2`.

    Returns:
        The ends. With one draw for each cluster they are those of `proportion_interval`. With one cluster of several
        draws nothing is known: 0 and 1.

    Raises:
        ArgumentError: no cluster, shapes that differ, a cluster without draws, or more hits than draws.

    >>> low, high = clustered_interval(np.array([20, 19, 12, 20, 18]), np.full(5, 20), 0.95)
    >>> round(low, 3), round(high, 3)
    (0.478, 0.997)
    """
    hits, draws = check_counts(hits, draws)
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    low, high = clustered_intervals(hits[None], draws[None], level)
    return float(low[0]), float(high[0])


def clustered_intervals(hits: Array, draws: Array, level: float) -> tuple[Array, Array]:
    """`clustered_interval` of many sets of clusters: hits and draws `(S, M)`, two ends `(S,)`.

    >>> low, high = clustered_intervals(np.array([[20, 18, 19], [20, 20, 20]]), np.full((2, 3), 20), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.292, 0.292]), array([1., 1.]))
    """
    hits, draws = np.asarray(hits, dtype=float), np.asarray(draws, dtype=float)
    clusters = hits.shape[-1]
    all_draws = draws.sum(-1)
    if clusters == 1:
        independent = all_draws == 1
        low, high = proportion_intervals(hits.sum(-1), all_draws, level)
        return np.where(independent, low, 0.0), np.where(independent, high, 1.0)
    share = hits.sum(-1) / all_draws
    size = _count_effective(hits, draws, level)
    low, high = proportion_intervals(share * size, size, level)
    # Models of another kind can be missing among so few: no number of draws from each makes an end better than this.
    most_low, _ = proportion_intervals(np.asarray(clusters), np.asarray(clusters), level)
    _, least_high = proportion_intervals(np.asarray(0), np.asarray(clusters), level)
    return np.minimum(low, most_low), np.maximum(high, least_high)


def has_few_models(hits: Array, draws: Array) -> bool:
    """Whether the interval of these clusters is one of those whose coverage is below its level.

    >>> has_few_models(np.array([20, 19, 12, 20, 18]), np.full(5, 20))
    True
    """
    return len(hits) < 10


def check_counts(hits: Array, draws: Array) -> tuple[Array, Array]:
    """Both as arrays `(M,)` of whole numbers, or an `ArgumentError` that says what is wrong."""
    hits, draws = np.asarray(hits), np.asarray(draws)
    check(draws.ndim == 1 and len(draws) > 0, "draws", "an array (clusters,) with at least one", f"shape {draws.shape}")
    check(hits.shape == draws.shape, "hits", f"shape {draws.shape}, as draws", f"shape {hits.shape}")
    check(bool((draws >= 1).all()), "draws", "at least 1 for each cluster", draws.min())
    check(bool(((hits >= 0) & (hits <= draws)).all()), "hits", "between 0 and the draws of the cluster", hits.tolist())
    return hits, draws


def _count_effective(hits: Array, draws: Array, level: float) -> Array:
    """The number of independent draws that say as much, `(S,)`.

    Source: Korn and Graubard, Survey Methodology 24 (1998): all draws, divided by the design effect of the cluster
    means, which is at least 1, times the squared ratio of Student's quantiles, since the design effect is estimated
    from few clusters.
    """
    clusters, all_draws = hits.shape[-1], draws.sum(-1)
    share = hits.sum(-1) / all_draws
    binomial = share * (1 - share) / all_draws
    residuals = hits - share[..., None] * draws
    variance = clusters / (clusters - 1) * (residuals**2).sum(-1) / all_draws**2
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.maximum(variance / binomial, 1.0)
    tail = (1 + level) / 2
    shrink = (stdtrit(all_draws - 1, tail) / stdtrit(clusters - 1, tail)) ** 2
    size = all_draws / effect * shrink
    size = np.where((draws == 1).all(-1), all_draws, size)
    return np.where(binomial > 0, size, clusters)
