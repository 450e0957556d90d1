"""How far attribution maps of one input agree: ranks, first features, signs, and intervals over seeds.

- Kendall's tau-b: pairs of features in the same order less those in the other one, corrected for ties.
- Overlap: the share of the k features with the largest absolute values that two maps have in common. For unrelated
  maps it is k / F on average.
- Signs: the share of the features among the first k of either map that have the same sign in both.

The mean similarity over all pairs of R maps with different seeds is a U-statistic, so it is unbiased for two new seeds.
Its interval is Student's with R - 1 degrees of freedom, on Fisher's scale, atanh, where the similarity is a
correlation. The squared error is the jackknife's over seeds (Arvesen 1969) and the variance of a mean of independent
pairs: where half of the seeds give one order and half another, no seed is unusual, and the jackknife alone has an error
near 0. Where all pairs are equally similar although the maps differ, as ranks may be, the error is unknown: if a share
p of seeds gave unrelated maps, with similarity 0, the mean would be (1 - p)^2 of the value, and p is below
1 - 0.05^(1/R) with 95% confidence.
"""

from __future__ import annotations

import itertools

import numpy as np
from scipy.special import stdtrit

from standfast.tensors import Array

#: of more entries Kendall's tau takes too much memory
MOST_RANKED = 512


def kendall(a: Array, b: Array) -> Array:
    """Kendall's tau-b of maps `(n, F)` by pairs of rows, `(n,)`; NaN for more than 512 entries, 0 for constant maps."""
    if a.shape[1] > MOST_RANKED:
        return np.full(len(a), np.nan)
    signs_a = _sign_differences(a)
    signs_b = _sign_differences(b)
    untied_a = (signs_a**2).sum((1, 2))
    untied_b = (signs_b**2).sum((1, 2))
    agreement = (signs_a * signs_b).sum((1, 2))
    scale = np.sqrt(untied_a * untied_b)
    # a constant map has no pair in any order: 0, and not 0 / 0
    divisor = np.where(scale > 0, scale, 1.0)
    return np.asarray(agreement / divisor)


def _sign_differences(maps: Array) -> Array:
    """Of each pair of entries of maps `(n, F)` which is larger, -1, 0 or 1, `(n, F, F)`."""
    differences = maps[:, :, None] - maps[:, None, :]
    return np.asarray(np.sign(differences))


def _mark_largest(maps: Array, k: int) -> Array:
    """Which k entries of maps `(n, F)` have the largest absolute values, bool `(n, F)`; of equal ones the first."""
    order = np.argsort(-np.abs(maps), axis=1, kind="stable")
    first = order[:, :k]
    marked = np.zeros(maps.shape, dtype=bool)
    np.put_along_axis(marked, first, True, axis=1)
    return marked


def overlap(a: Array, b: Array, k: int) -> Array:
    """The share of the first k entries of maps `(n, F)` that both have, `(n,)`."""
    in_common = _mark_largest(a, k) & _mark_largest(b, k)
    size = min(k, a.shape[1])
    return np.asarray(in_common.sum(1) / size)


def agree_in_sign(a: Array, b: Array, k: int) -> Array:
    """The share of the first k entries of either of two maps `(n, F)` whose signs are the same, `(n,)`."""
    among_first = _mark_largest(a, k) | _mark_largest(b, k)
    same_sign = np.sign(a) == np.sign(b)
    agreeing = (same_sign & among_first).sum(1)
    return np.asarray(agreeing / among_first.sum(1))


def list_pairs(count: int) -> tuple[Array, Array]:
    """The numbers of the two maps of each pair of different seeds."""
    pairs = list(itertools.combinations(range(count), 2))
    numbers = np.array(pairs)
    return numbers[:, 0], numbers[:, 1]


def interval_over_seeds(values: Array, count: int, correlation: bool) -> tuple[Array, Array, Array]:
    """The mean similarity of pairs of maps with different seeds, and its 95% interval.

    Args:
        values: similarities `(n, count (count - 1) / 2)`, in the order of `list_pairs`.
        count: of seeds, at least 3.
        correlation: whether similarities lie in [-1, 1].

    Returns:
        The mean and the ends of the interval, `(n,)` each. Where all similarities are equal, the interval is empty.

    >>> mean, low, high = interval_over_seeds(np.array([[0.8, 0.6, 0.7]]), 3, correlation=True)
    >>> mean.round(3).tolist(), bool((low < mean).all() and (mean < high).all())
    ([0.7], True)
    """
    mean = values.mean(1)
    quantile = stdtrit(count - 1, 0.975)
    reach = quantile * _estimate_error(values, count)
    if not correlation:
        return mean, mean - reach, mean + reach
    # atanh of 1 is not finite, as for seeds that change nothing
    inner = np.clip(mean, -1 + 1e-12, 1 - 1e-12)
    centre = np.arctanh(inner)
    # the derivative of atanh, 1 / (1 - r^2), takes the error to its scale
    reach_of_atanh = reach / (1 - inner**2)
    is_flat = np.ptp(values, axis=1) <= 1e-12
    low = np.where(is_flat, mean, np.tanh(centre - reach_of_atanh))
    high = np.where(is_flat, mean, np.tanh(centre + reach_of_atanh))
    return mean, low, high


def _estimate_error(values: Array, count: int) -> Array:
    """The standard error of the mean over pairs, `(n,)`: the jackknife's over seeds, and what pairs vary themselves.

    Args:
        values, count: as of `interval_over_seeds`.
    """
    first, second = list_pairs(count)
    sums_with_seed = []
    for seed in range(count):
        has_seed = (first == seed) | (second == seed)
        sums_with_seed.append(values[:, has_seed].sum(1))
    pairs_without_seed = (count - 1) * (count - 2) / 2
    total = values.sum(1)[:, None]
    sums_without_seed = total - np.stack(sums_with_seed, axis=1)
    means_without_seed = sums_without_seed / pairs_without_seed
    deviations = means_without_seed - means_without_seed.mean(1, keepdims=True)
    # the jackknife: (n - 1) / n times the squared deviations of means without one seed
    over_seeds = (count - 1) / count * (deviations**2).sum(1)
    # even if no seed is unusual, such as two halves of seeds
    over_pairs = values.var(1) / len(first)
    return np.asarray(np.sqrt(over_seeds + over_pairs))


def bound_equal_similarities(mean: Array, count: int) -> Array:
    """The lower end of the interval of similarities that are equal for maps that differ, `(n,)`."""
    # so many seeds could give other maps, and none of `count` did
    unseen_share = 1 - 0.05 ** (1 / count)
    lower_end = mean * (1 - unseen_share) ** 2
    return np.where(mean > 0, lower_end, -1.0)


def find_two_groups(values: Array, count: int) -> Array:
    """Whether seeds fall into two groups of at least two each, such as two orders of the features, bool `(n,)`.

    All pairs within a group are then more similar than all others, and the groups explain nine tenths of the variance
    of similarities. The share of seeds in a group is known from `count` seeds alone, so `interval_over_seeds` covers
    less often than it says, 85% at the worst share.

    Args:
        values, count: as of `interval_over_seeds`.

    >>> find_two_groups(np.array([[1.0, 0.4, 0.4, 0.4, 0.4, 1.0], [0.9, 0.8, 0.7, 0.8, 0.9, 0.8]]), 4).tolist()
    [True, False]
    """
    first, second = list_pairs(count)
    matrix = np.ones((len(values), count, count))
    matrix[:, first, second] = values
    matrix[:, second, first] = values
    # the two seeds that are least similar are in different groups; the others are where they are more similar
    rows = np.arange(len(values))
    least_similar = values.argmin(1)
    to_first = matrix[rows, first[least_similar]]
    to_second = matrix[rows, second[least_similar]]
    in_first_group = to_first >= to_second
    is_within = in_first_group[:, first] == in_first_group[:, second]
    is_between = ~is_within
    within = np.ma.masked_array(values, is_between)
    between = np.ma.masked_array(values, is_within)
    are_apart = (within.min(1) > between.max(1)).filled(False)
    within_squares = (within.var(1) * is_within.sum(1)).filled(0)
    between_squares = (between.var(1) * is_between.sum(1)).filled(0)
    all_squares = values.var(1) * values.shape[1]
    is_explained = within_squares + between_squares <= 0.1 * all_squares
    size = in_first_group.sum(1)
    has_two_each = (size >= 2) & (size <= count - 2)
    return np.asarray(has_two_each & are_apart & is_explained)


def split_variance(maps: Array) -> tuple[Array, Array]:
    """The variance of maps between models and between seeds of one model, `(n,)` each: a two-way table.

    Args:
        maps: `(n, models, seeds, F)`, of n inputs, at least two models and two seeds, which all models share or not.

    Returns:
        Unbiased estimates, summed over features, as shares of the mean squared length of a map: between seeds within a
        model, and between models, which may be below 0.

    >>> within, between = split_variance(np.array([[[[1.0], [1.0]], [[3.0], [3.0]]]]))
    >>> within.tolist(), between.tolist()
    ([0.0], [0.4])
    """
    _, models, seeds, _ = maps.shape
    within = maps.var(2, ddof=1).mean(1).sum(-1)
    model_means = maps.mean(2, keepdims=True)
    seed_means = maps.mean(1, keepdims=True)
    mean = maps.mean((1, 2), keepdims=True)
    # of a seed and one model alone
    interaction = maps - model_means - seed_means + mean
    degrees = (models - 1) * (seeds - 1)
    interaction_variance = (interaction**2).sum((1, 2, 3)) / degrees
    # the expected mean square of model means contains that of the interaction, over the seeds
    variance_of_means = model_means.var(1, ddof=1).sum((1, 2))
    between = variance_of_means - interaction_variance / seeds
    squared_length = (maps**2).sum(-1).mean((1, 2))
    scale = np.where(squared_length > 0, squared_length, 1.0)
    return within / scale, between / scale
