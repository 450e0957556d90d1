"""Intervals of a proportion whose draws come in clusters: several draws from each of a few retrained models.

Draws from one model resemble each other. Taken as independent, they give intervals that are far too narrow. Here the
number of draws is divided by the design effect of the cluster means, and corrected for how few clusters it comes from
(Korn and Graubard 1998). In addition, no number of draws from M models can exclude a kind of model that none of the M
is, so the ends never come nearer than M models allow. `docs/reasons-statistics.md` has simulations.
"""

from __future__ import annotations

import numpy as np
from scipy.special import stdtrit

from standfast.errors import check
from standfast.statistics.proportions import proportion_intervals
from standfast.tensors import Array

_FEWEST = 5  # clusters


def clustered_interval(hits: Array, draws: Array, level: float) -> tuple[float, float]:
    """The interval of a proportion from clusters, as draws from the same retrained model are.

    The proportion is the mean over clusters of the probability within a cluster: each counts as much, however many
    draws it has. Source: Korn and Graubard, Survey Methodology 24 (1998), the interval of Clopper and Pearson with the
    effective number of draws; and the bounds of `limit_by_clusters`.

    Args:
        hits: (M,), whole numbers: how many draws of each cluster have the property.
        draws: (M,), how many draws each cluster has, at least 1.
        level: confidence level of the interval; each of its ends is a one-sided limit at `(1 + level) / 2`.

    Returns:
        The ends. With one draw for each cluster, and where each cluster has none or all, they are those of
        `proportion_interval` with the clusters as samples. With one cluster of several draws nothing is known: 0 and 1.

    Raises:
        ArgumentError: no cluster, shapes that differ, a cluster without draws, or more hits than draws.

    >>> low, high = clustered_interval(np.array([20, 19, 12, 20, 18]), np.full(5, 20), 0.95)
    >>> round(low, 3), round(high, 3)
    (0.426, 0.997)
    """
    hits, draws = check_counts(hits, draws)
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    low, high = clustered_intervals(hits[None], draws[None], level)
    return float(low[0]), float(high[0])


def clustered_intervals(hits: Array, draws: Array, level: float) -> tuple[Array, Array]:
    """`clustered_interval` of many sets of clusters: hits and draws `(S, M)`, two ends `(S,)`.

    >>> low, high = clustered_intervals(np.array([[20, 18, 19], [20, 20, 20]]), np.full((2, 3), 20), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.278, 0.292]), array([1., 1.]))
    """
    clusters = np.shape(hits)[-1]
    share, effect, independent = measure_clusters(hits, draws)
    return limit_by_clusters(share, effect, independent, clusters, level)


def measure_clusters(hits: Array, draws: Array) -> tuple[Array, Array, Array]:
    """What is measured on clusters `(S, M)`; three arrays `(S,)`.

    Returns:
        The share, which is the mean of the shares within clusters; its design effect, at least 1, by which its variance
        is larger than for independent draws, NaN where all is hit or none; and how many independent draws would say as
        much without any effect, which is the harmonic mean of the draws times the number of clusters.

    >>> [float(number[0]) for number in measure_clusters(np.array([[10, 10, 5, 5]]), np.full((1, 4), 10))]
    [0.75, 4.444444444444445, 40.0]
    """
    hits = np.asarray(hits, dtype=float)
    draws = np.asarray(draws, dtype=float)
    clusters = hits.shape[-1]
    shares = hits / draws
    share = shares.mean(-1)
    independent = clusters**2 / (1 / draws).sum(-1)
    if clusters == 1:
        return share, np.full_like(share, np.nan), independent
    binomial_variance = share * (1 - share) / independent
    variance = shares.var(-1, ddof=1) / clusters
    with np.errstate(invalid="ignore", divide="ignore"):
        effect = np.maximum(variance / binomial_variance, 1.0)
    # one draw of each model: the draws are independent, whatever their variance
    single = (draws == 1).all(-1)
    effect = np.where(single, 1.0, effect)
    is_between = (share > 0) & (share < 1)
    effect = np.where(is_between, effect, np.nan)
    return share, effect, independent


def limit_by_clusters(
    share: Array, effect: Array, independent: Array, clusters: int, level: float
) -> tuple[Array, Array]:
    """The ends of the interval for what `measure_clusters` has measured on so many clusters.

    The number of draws that enters is never below the number of clusters: shares within clusters vary at most as single
    draws do.

    With probability `tail` or more, M models miss a kind of model that is at least `1 - tail^(1/M)` of all. What they
    show is then true of the others only. So the lower end is at most the share times `tail^(1/M)`, and the upper end
    likewise. Where all is hit, this is the lower limit of Clopper and Pearson with the clusters as samples.

    >>> low, high = limit_by_clusters(np.array(0.95), np.array(1.0), np.array(600.0), 30, 0.95)
    >>> float(low.round(3)), float(high.round(3))
    (0.84, 0.967)
    """
    if clusters == 1:
        alone = independent == 1
        low, high = proportion_intervals(share, np.ones_like(share), level)
        return np.where(alone, low, 0.0), np.where(alone, high, 1.0)
    tail = (1 - level) / 2
    quantile_of_draws = stdtrit(independent - 1, 1 - tail)
    quantile_of_clusters = stdtrit(clusters - 1, 1 - tail)
    # Korn and Graubard: t quantiles of draws over those of clusters, since the effect comes from few clusters
    shrink = (quantile_of_draws / quantile_of_clusters) ** 2
    with np.errstate(invalid="ignore"):
        # `fmax`: where no effect is known (NaN), the clusters are the sample
        size = np.fmax(independent / effect * shrink, clusters)
    low, high = proportion_intervals(share * size, size, level)
    represented = tail ** (1 / clusters)
    lowest = share * represented
    highest = 1 - (1 - share) * represented
    return np.minimum(low, lowest), np.maximum(high, highest)


def has_few_clusters(clusters: int) -> bool:
    """Whether they are fewer than five. Such an interval keeps its level in simulations, but says next to nothing.

    >>> has_few_clusters(4), has_few_clusters(5)
    (True, False)
    """
    return clusters < _FEWEST


def check_counts(hits: Array, draws: Array) -> tuple[Array, Array]:
    """Both as arrays `(M,)`, or an `ArgumentError` that says what is wrong."""
    hits, draws = np.asarray(hits), np.asarray(draws)
    check(
        draws.ndim == 1 and len(draws) > 0,
        "draws",
        "an array (clusters,) with at least one",
        f"shape {draws.shape}",
    )
    check(
        hits.shape == draws.shape, "hits", f"shape {draws.shape}, as draws", f"shape {hits.shape}"
    )
    check(bool((draws >= 1).all()), "draws", "at least 1 for each cluster", draws.min())
    check(
        bool(((hits >= 0) & (hits <= draws)).all()),
        "hits",
        "between 0 and the draws of the cluster",
        hits.tolist(),
    )
    return hits, draws
