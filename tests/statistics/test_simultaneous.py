"""Simultaneous intervals of means: a slow implementation, features without variance, clusters and coverage."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from standfast.errors import ArgumentError
from standfast.statistics import simultaneous
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.simultaneous import share_unseen, simultaneous_means

Array = np.ndarray


def intervals_slowly(
    values: Array, level: float, clusters: Array, seed: int, resamples: int
) -> tuple[Array, Array]:
    """One resample of clusters at a time, from the definition."""
    groups = [values[clusters == number] for number in np.unique(clusters)]

    def measure(parts: list[Array]) -> tuple[Array, Array]:
        """The mean of all draws, and its standard error from the residuals of clusters."""
        mean = np.concatenate(parts).mean(0)
        residuals = np.array([(part - mean).sum(0) for part in parts])
        factor = len(parts) / (len(parts) - 1)
        return mean, np.sqrt(factor * (residuals**2).sum(0)) / sum(len(part) for part in parts)

    mean, error = measure(groups)
    residuals = np.array([(group - mean).sum(0) for group in groups])
    generator = np.random.Generator(np.random.PCG64(seed))
    deviations = []
    for _ in range(resamples):
        drawn = generator.integers(len(groups), size=len(groups))
        other_mean, other_error = measure([groups[which] for which in drawn])
        deviations.append((other_mean - mean) / other_error)

    def find_quantile(largest: list[float], probability: float) -> float:
        return sorted(largest)[math.ceil(probability * (resamples + 1)) - 1]

    symmetric = find_quantile([np.abs(each).max() for each in deviations], level)
    low, high = mean.copy(), mean.copy()
    leans_up = (residuals**3).sum(0) > 0
    aligned = [np.where(leans_up, each, -each) for each in deviations]
    far = max(symmetric, find_quantile([each.max() for each in aligned], (1 + level) / 2))
    near = max(symmetric, find_quantile([(-each).max() for each in aligned], (1 + level) / 2))
    for feature, upwards in enumerate(leans_up):
        low[feature] -= error[feature] * (far if upwards else near)
        high[feature] += error[feature] * (near if upwards else far)
    return low, high


def test_it_equals_a_slow_implementation() -> None:
    values = np.random.default_rng(0).lognormal(size=(30, 4)) * [1, -10, 100, -0.001]
    low, high = intervals_slowly(values, 0.9, np.arange(30), 5, 200)
    means = simultaneous_means(values, 0.9, seed=5, resamples=200)
    np.testing.assert_allclose(means.low, low, rtol=1e-9)
    np.testing.assert_allclose(means.high, high, rtol=1e-9)
    np.testing.assert_array_equal(means.mean, values.mean(0))
    assert not means.few.any()


def test_clusters_are_drawn_as_a_whole() -> None:
    generator = np.random.default_rng(1)
    clusters = np.repeat(np.arange(12), generator.integers(1, 6, 12))
    values = generator.normal(size=(12, 3))[clusters] + 0.1 * generator.normal(
        size=(len(clusters), 3)
    )
    means = simultaneous_means(values, 0.95, clusters=clusters + 100, seed=2, resamples=300)
    low, high = intervals_slowly(values, 0.95, clusters, 2, 300)
    np.testing.assert_allclose(means.low, low, rtol=1e-9)
    np.testing.assert_allclose(means.high, high, rtol=1e-9)
    unaware = simultaneous_means(values, 0.95, seed=2, resamples=300)
    assert (means.high - means.low > 1.2 * (unaware.high - unaware.low)).all()


def test_one_draw_in_each_cluster_is_no_clustering() -> None:
    values = np.random.default_rng(3).normal(size=(15, 3))
    plain, clustered = (
        simultaneous_means(values, 0.9),
        simultaneous_means(values, 0.9, clusters=np.arange(15)),
    )
    np.testing.assert_array_equal(plain.low, clustered.low)


def test_parts_in_memory_do_not_change_the_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(4).normal(size=(20, 5))
    whole = simultaneous_means(values, 0.95)
    monkeypatch.setattr(simultaneous, "_CELLS", 1000)
    np.testing.assert_allclose(simultaneous_means(values, 0.95).high, whole.high, rtol=1e-12)


def test_equal_values_have_a_point_and_do_not_disturb_others() -> None:
    values = np.random.default_rng(5).normal(size=(20, 3))
    values[:, 1] = 0.1
    means = simultaneous_means(values, 0.95)
    assert means.low[1] == means.high[1] == means.mean[1]
    assert not means.few[1]
    without_constant = simultaneous_means(np.ascontiguousarray(values[:, [0, 2]]), 0.95)
    np.testing.assert_array_equal(means.low[[0, 2]], without_constant.low)


def test_a_rare_feature_is_marked_and_its_interval_allows_for_more_of_the_same() -> None:
    values = np.random.default_rng(6).normal(size=(40, 2))
    values[:, 1] = 0.0
    values[[3, 8], 1] = [2.0, 3.0]
    means = simultaneous_means(values, 0.95)
    assert means.few.tolist() == [False, True]
    tail = 0.05 / 2 / 2
    most_often = scipy.stats.beta.ppf(1 - tail, 3, 38)
    assert (means.low[1], means.high[1]) == pytest.approx((0.0, 3.0 * most_often))
    values[[10, 11, 12], 1] = 1.0
    assert not simultaneous_means(values, 0.95).few.any()


def test_a_feature_that_never_differed_may_where_others_rarely_do() -> None:
    values = np.zeros((40, 3))
    values[[3, 8], 1] = [2.0, 3.0]
    values[:, 2] = -1.0
    means = simultaneous_means(values, 0.95)
    assert means.few.tolist() == [True, True, True]
    never = 1 - (0.05 / 2 / 3) ** (1 / 40)
    assert means.low.tolist() == [0.0, 0.0, -1.0]
    assert means.high[[0, 2]].tolist() == pytest.approx([3.0 * never, 3.0 * never - 1])


def test_one_draw_or_cluster_says_nothing() -> None:
    for values, clusters in [
        (np.ones((1, 2)), None),
        (np.random.default_rng(7).normal(size=(9, 2)), np.zeros(9)),
    ]:
        means = simultaneous_means(values, 0.95, clusters=clusters)
        assert np.isneginf(means.low).all()
        assert np.isposinf(means.high).all()
        assert means.few.all()


@pytest.mark.parametrize(
    ("values", "options", "argument"),
    [
        (np.zeros(3), {}, "values"),
        (np.zeros((0, 3)), {}, "values"),
        (np.full((3, 2), np.nan), {}, "values"),
        (np.zeros((3, 2)), {"clusters": np.zeros(2)}, "clusters"),
        (np.zeros((3, 2)), {"level": 1.0}, "level"),
    ],
)
def test_wrong_arguments_are_named(
    values: Array, options: dict[str, object], argument: str
) -> None:
    with pytest.raises(ArgumentError, match=argument):
        simultaneous_means(values, **{"level": 0.95, **options})


def count_coverage(runs: int, draws: int, features: int) -> tuple[int, int]:
    """For lognormal features, how often all intervals hold, and how often those of Bonferroni and Student do."""
    generator = np.random.default_rng(8)
    truth = math.exp(0.5)
    here = student = 0
    for run in range(runs):
        values = generator.lognormal(size=(draws, features))
        means = simultaneous_means(values, 0.95, seed=run, resamples=400)
        here += bool(((means.low <= truth) & (truth <= means.high)).all())
        reach = (
            scipy.stats.t.ppf(1 - 0.025 / features, draws - 1)
            * values.std(0, ddof=1)
            / math.sqrt(draws)
        )
        student += bool((np.abs(values.mean(0) - truth) <= reach).all())
    return here, student


def test_it_covers_skewed_attributions_where_student_does_not() -> None:
    here, student = count_coverage(200, 50, 20)
    assert proportion_interval(here, 200, 0.95)[1] >= 0.95
    assert student < 140


@pytest.mark.slow
@pytest.mark.parametrize(
    ("draws", "features"), [(20, 20), (50, 20), (200, 20), (20, 5), (50, 5), (200, 5)]
)
def test_it_covers_skewed_attributions(draws: int, features: int) -> None:
    here, _ = count_coverage(2000, draws, features)
    assert here / 2000 > 0.93


def draw_rare(generator: np.random.Generator, size: tuple[int, int], probability: float) -> Array:
    """Features of small noise, each of which matters in some draws."""
    matters = generator.random(size) < probability
    return matters * generator.normal(1, 0.3, size) + 0.02 * generator.normal(size=size)


def test_a_feature_that_never_mattered_has_the_interval_of_one_that_may_where_others_did() -> None:
    values = 0.02 * np.random.default_rng(10).normal(size=(50, 3))
    values[7, 0] += 1.0
    means = simultaneous_means(values, 0.95)
    assert means.few.tolist() == [True, True, True]
    never = 1 - (0.05 / 2 / 3) ** (1 / 50)
    middle = np.median(values, axis=0)
    distances = np.abs(values - middle)
    deviations = scipy.stats.median_abs_deviation(values, scale="normal")
    reach = never * (distances / deviations).max() * deviations
    # the constant of the code has five digits
    np.testing.assert_allclose(means.high[1:], (values.mean(0) + reach)[1:], rtol=1e-4)
    np.testing.assert_allclose(means.low[1:], (values.mean(0) - reach)[1:], rtol=1e-4)


def test_what_happens_in_five_draws_and_tails_without_a_gap_are_left_to_the_bootstrap() -> None:
    noise = np.random.default_rng(11).normal(size=(200, 3))
    often = noise.copy()
    often[:5, 0] += 50.0
    tails = np.random.default_rng(12).standard_t(3, size=(200, 3))
    for values in (noise, often, tails):
        assert not simultaneous_means(values, 0.95).few.any()
    assert (np.abs(tails) > 7).any()


@pytest.mark.parametrize("draws", [20, 50])
def test_it_covers_rare_features_with_noise(draws: int) -> None:
    generator = np.random.default_rng(13)
    held = 0
    for run in range(200):
        values = draw_rare(generator, (draws, 5), 0.05)
        means = simultaneous_means(values, 0.95, seed=run, resamples=200)
        held += bool(((means.low <= 0.05) & (means.high >= 0.05)).all())
    assert proportion_interval(held, 200, 0.95)[1] >= 0.95


@pytest.mark.slow
@pytest.mark.parametrize("draws", [20, 50, 200])
@pytest.mark.parametrize("probability", [0.05, 0.1])
def test_it_covers_features_of_any_rate(draws: int, probability: float) -> None:
    generator = np.random.default_rng(14)
    held = 0
    for run in range(2000):
        values = draw_rare(generator, (draws, 5), probability)
        means = simultaneous_means(values, 0.95, seed=run, resamples=400)
        holds = (means.low <= probability) & (means.high >= probability)
        held += bool((holds | means.few).all())
    assert held / 2000 > 0.93


@pytest.mark.parametrize("draws", [2, 3, 4, 5])
def test_of_few_draws_that_all_differ_none_is_the_usual_one(draws: int) -> None:
    """Taken from the smallest to the largest draw, the intervals of eight features hold in 10% to 75% of cases."""
    generator = np.random.default_rng(15)
    held = 0
    for run in range(200):
        means = simultaneous_means(generator.normal(size=(draws, 8)), 0.95, seed=run, resamples=200)
        held += bool(((means.low <= 0) & (means.high >= 0)).all())
        assert means.few.all()
    assert proportion_interval(held, 200, 0.95)[1] >= 0.95


def test_no_feature_may_lie_farther_away_than_any_draw_does() -> None:
    """A feature that hardly varies, such as by other rows of a background, and that once is on the other side of a
    split of a tree, is thousands of its own deviations away."""
    values = np.random.default_rng(16).normal([0.1, 0.5, -0.5], [1e-4, 0.2, 0.2], (50, 3))
    values[7, 0] = 0.5
    means = simultaneous_means(values, 0.95)
    assert means.few.tolist() == [True, True, True]
    once = scipy.stats.beta.ppf(1 - 0.05 / 2 / 3, 2, 49)
    assert means.high[0] == pytest.approx(0.1 + once * 0.4, abs=1e-3)
    # the others have the width of their noise, and not that of the first feature in their deviations
    assert ((means.high - means.low)[1:] < 0.2).all()
    without_first = simultaneous_means(np.ascontiguousarray(values[:, 1:]), 0.95)
    assert (means.low[1:] <= without_first.low).all()
    assert (means.high[1:] >= without_first.high).all()


def test_rounding_errors_are_no_exceptional_draws() -> None:
    values = np.random.default_rng(17).normal([0.5, 0.3, 0.0], [0.1, 0.1, 1e-9], (50, 3))
    values[7, 2] = 1e-7
    assert not simultaneous_means(values, 0.95).few.any()


@pytest.mark.parametrize("draws", [5, 20, 50, 200])
def test_what_no_draw_shows_has_the_stated_share(draws: int) -> None:
    """A larger share is missed in fewer than one case of twenty, a smaller one in more."""
    share = share_unseen(draws, 0.95)
    assert (
        scipy.stats.binom.pmf(0, draws, share * 1.01)
        < 0.05
        < scipy.stats.binom.pmf(0, draws, share * 0.99)
    )
