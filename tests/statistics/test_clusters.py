"""Intervals of a proportion from clusters: closed forms, a slow implementation, and their coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from standfast.errors import ArgumentError
from standfast.statistics.clusters import clustered_interval, clustered_intervals, has_few_clusters
from standfast.statistics.proportions import proportion_interval, proportion_intervals

LEVEL = 0.95


def interval_slowly(hits: list[int], draws: list[int], level: float) -> tuple[float, float]:
    """Written from Korn and Graubard's steps, with the two bounds by the number of clusters."""
    clusters = len(hits)
    shares = [hit / draw for hit, draw in zip(hits, draws, strict=True)]
    mean = sum(shares) / clusters
    independent = clusters**2 / sum(1 / draw for draw in draws)
    size = float(clusters)
    if 0 < mean < 1:
        variance = sum((share - mean) ** 2 for share in shares) / (clusters - 1) / clusters
        effect = max(1.0, variance / (mean * (1 - mean) / independent))
        quantiles = [
            scipy.stats.t.ppf((1 + level) / 2, degrees - 1) for degrees in (independent, clusters)
        ]
        size = max(size, independent / effect * (quantiles[0] / quantiles[1]) ** 2)
    tail = (1 - level) / 2
    hit, missed = mean * size, (1 - mean) * size
    low = scipy.stats.beta.ppf(tail, hit, missed + 1) if hit else 0.0
    high = scipy.stats.beta.ppf(1 - tail, hit + 1, missed) if missed else 1.0
    missing_kind = 1 - tail ** (1 / clusters)
    return min(low, mean * (1 - missing_kind)), max(high, mean + (1 - mean) * missing_kind)


@pytest.mark.parametrize("level", [0.9, 0.95, 0.9975])
def test_it_equals_a_slow_implementation(level: float) -> None:
    generator = np.random.default_rng(0)
    for _ in range(40):
        clusters = int(generator.integers(2, 12))
        draws = generator.integers(2, 30, clusters)
        hits = generator.binomial(draws, generator.beta(4, 1, clusters))
        expected = interval_slowly(hits.tolist(), draws.tolist(), level)
        assert clustered_interval(hits, draws, level) == pytest.approx(
            expected, rel=1e-9, abs=1e-12
        )


@pytest.mark.parametrize(("hit_clusters", "clusters"), [(0, 5), (3, 4), (9, 10), (30, 30)])
def test_clusters_with_all_or_nothing_count_once(hit_clusters: int, clusters: int) -> None:
    draws = np.full(clusters, 20)
    hits = np.where(np.arange(clusters) < hit_clusters, 20, 0)
    exact = proportion_interval(hit_clusters, clusters, LEVEL)
    assert clustered_interval(hits, draws, LEVEL) == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("hits", [0, 1, 7, 10])
def test_one_draw_for_each_cluster_is_no_clustering(hits: int) -> None:
    exact = proportion_interval(hits, 10, LEVEL)
    assert clustered_interval(np.arange(10) < hits, np.ones(10), LEVEL) == pytest.approx(
        exact, abs=1e-12
    )


def test_one_cluster_says_nothing_unless_it_is_one_draw() -> None:
    assert clustered_interval(np.array([20]), np.array([20]), LEVEL) == (0.0, 1.0)
    assert clustered_interval(np.array([1]), np.array([1]), LEVEL) == proportion_interval(
        1, 1, LEVEL
    )


def test_more_draws_of_the_same_models_never_prove_more_than_models_can() -> None:
    most_low = 0.025 ** (1 / 8)
    for draws_of_each in (1, 10, 1000, 10**6):
        draws = np.full(8, draws_of_each)
        assert clustered_interval(draws, draws, LEVEL)[0] == pytest.approx(most_low)
        assert clustered_interval(draws - draws_of_each // 100, draws, LEVEL)[0] <= most_low + 1e-12


def test_a_failure_never_makes_the_lower_end_higher() -> None:
    """Ten models of 20 draws: without the bound by clusters, one failure raises it from 0.69 to 0.96."""
    draws = np.full((6, 10), 20)
    hits = draws.copy()
    hits[:, 0] -= np.arange(6)
    low, _ = clustered_intervals(hits, draws, LEVEL)
    assert (np.diff(low) < 0).all()


def test_both_ends_are_symmetric_and_many_sets_equal_each_alone() -> None:
    generator = np.random.default_rng(1)
    draws = generator.integers(1, 9, (20, 6))
    hits = generator.binomial(draws, 0.7)
    low, high = clustered_intervals(hits, draws, LEVEL)
    other_low, other_high = clustered_intervals(draws - hits, draws, LEVEL)
    np.testing.assert_allclose(low, 1 - other_high, atol=1e-12)
    np.testing.assert_allclose(high, 1 - other_low, atol=1e-12)
    alone = [clustered_interval(*pair, LEVEL) for pair in zip(hits, draws, strict=True)]
    np.testing.assert_array_equal(np.array(alone), np.stack([low, high], axis=1))


@pytest.mark.parametrize(
    ("hits", "draws", "argument"),
    [
        ([], [], "draws"),
        ([1], [1, 2], "hits"),
        ([3], [2], "hits"),
        ([0, 0], [1, 0], "draws"),
        ([-1], [2], "hits"),
    ],
)
def test_wrong_counts_are_named(hits: list[int], draws: list[int], argument: str) -> None:
    with pytest.raises(ArgumentError, match=argument):
        clustered_interval(np.array(hits), np.array(draws), LEVEL)


def test_few_clusters() -> None:
    assert [has_few_clusters(count) for count in (1, 4, 5, 30)] == [True, True, False, False]


def count_coverage(
    models: int, share: float, often: float, other: float, runs: int, level: float
) -> tuple[int, int]:
    """Of intervals for 20 draws from each model, how many hold here, and how many pooled ones do."""
    generator = np.random.default_rng(2)
    draws = np.full((runs, models), 20)
    hits = generator.binomial(draws, np.where(generator.random(draws.shape) < share, often, other))
    mean = share * often + (1 - share) * other
    ends = (
        clustered_intervals(hits, draws, level),
        proportion_intervals(hits.sum(1), draws.sum(1), level),
    )
    held = [int(((low <= mean) & (mean <= high)).sum()) for low, high in ends]
    return held[0], held[1]


@pytest.mark.parametrize(
    ("models", "share", "often", "other"),
    [
        (10, 1.0, 0.9, 0.0),
        (10, 0.8, 0.995, 0.0),
        (20, 0.9, 1.0, 0.5),
        (30, 0.9, 0.95, 0.0),
        (5, 0.5, 1.0, 0.0),
    ],
)
def test_it_covers(models: int, share: float, often: float, other: float) -> None:
    held, pooled = count_coverage(models, share, often, other, 1000, LEVEL)
    assert proportion_interval(held, 1000, 0.99)[1] >= LEVEL
    if share < 1:
        assert pooled < 850


@pytest.mark.slow
@pytest.mark.parametrize("level", [0.9, 0.95, 0.975])
@pytest.mark.parametrize("models", [3, 5, 10, 20, 30, 60])
def test_it_covers_for_two_kinds_of_models(models: int, level: float) -> None:
    for often in (1.0, 0.95):
        for other in (0.0, 0.5, 0.8):
            for share in (0.5, 0.8, 0.9, 0.97):
                held, _ = count_coverage(models, share, often, other, 4000, level)
                assert held / 4000 > level - 0.02 * math.sqrt((1 - level) / 0.05), (
                    often,
                    other,
                    share,
                )
