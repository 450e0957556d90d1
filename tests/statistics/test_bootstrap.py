"""Bootstrap intervals: against scipy, and against the formula of Efron (1987) written out, one statistic at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy

from standfast.statistics import bootstrap
from standfast.statistics.bootstrap import intervals_of_means
from standfast.statistics.paired import bootstrap_interval
from standfast.tensors import Array

RESAMPLES = 400


def two_means(seed: int, count: int) -> Array:
    rng = np.random.default_rng((seed, count))
    return np.stack([rng.exponential(size=count), rng.normal(1.0, 0.3, size=count)], axis=1)


def product_and_ratio(means: Array) -> Array:
    return np.stack(
        [means[..., 0] * means[..., 1], means[..., 0] / means[..., 1], means[..., 0]], axis=-1
    )


def slowly(
    values: Array, statistic: Callable[[Array], Array], level: float, seed: int
) -> list[tuple[float, float]]:
    """Ends for each number, from loops over samples and draws."""
    count = len(values)
    rows = np.random.Generator(np.random.PCG64(seed)).integers(count, size=(RESAMPLES, count))
    drawn = np.array([statistic(values[own].mean(0)) for own in rows])
    without = np.array([statistic(np.delete(values, row, axis=0).mean(0)) for row in range(count)])
    value = statistic(values.mean(0))
    ends = []
    for place in range(drawn.shape[1]):
        own = drawn[np.isfinite(drawn[:, place]), place]
        normal = scipy.stats.norm.ppf([(1 - level) / 2, (1 + level) / 2])
        smaller = sum(
            float(d < value[place]) / 2 + float(d <= value[place]) / 2 for d in own
        ) / len(own)
        bias = scipy.stats.norm.ppf(smaller)
        deviation = without[:, place].mean() - without[:, place]
        skew = (deviation**3).sum() / (6 * (deviation**2).sum() ** 1.5)
        normal = bias + (bias + normal) / (1 - skew * (bias + normal))
        ends.append(tuple(np.quantile(own, scipy.stats.norm.cdf(normal))))
    return ends


@pytest.mark.parametrize(("level", "seed", "count"), [(0.95, 0, 20), (0.9, 1, 33), (0.5, 2, 80)])
def test_the_formula_written_out(level: float, seed: int, count: int) -> None:
    values = two_means(seed, count)
    value, low, high = intervals_of_means(
        values, product_and_ratio, level=level, resamples=RESAMPLES, seed=seed
    )
    np.testing.assert_allclose(value, product_and_ratio(values.mean(0)), rtol=1e-15)
    expected = slowly(values, product_and_ratio, level, seed)
    np.testing.assert_allclose(np.stack([low, high], 1), expected, rtol=1e-12)


def test_the_interval_of_one_mean_is_that_of_means() -> None:
    values = two_means(1, 9)[:, 0]
    found = bootstrap_interval(values, "mean", resamples=RESAMPLES, seed=3)
    expected = intervals_of_means(values[:, None], level=0.95, resamples=RESAMPLES, seed=3)
    assert (found.value, found.low, found.high) == tuple(float(each[0]) for each in expected)


def test_it_is_the_bootstrap_of_scipy() -> None:
    for seed, count in ((0, 15), (1, 60)):
        values = two_means(seed, count)
        _, low, high = intervals_of_means(values, product_and_ratio, resamples=20_000)
        for place in range(3):
            reference = scipy.stats.bootstrap(
                (values[:, 0], values[:, 1]),
                lambda a, b, axis, place=place: product_and_ratio(
                    np.stack([a.mean(axis), b.mean(axis)], -1)
                )[..., place],
                paired=True,
                method="BCa",
                n_resamples=20_000,
                rng=7,
            ).confidence_interval
            width = reference.high - reference.low
            assert (low[place], high[place]) == pytest.approx(tuple(reference), abs=0.05 * width)


def test_numbers_are_independent_of_each_other_and_of_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    values = two_means(3, 40)
    whole = intervals_of_means(values, product_and_ratio)
    for place in range(3):
        alone = intervals_of_means(
            values, lambda means, place=place: product_and_ratio(means)[..., [place]]
        )
        np.testing.assert_allclose(np.ravel(alone), [each[place] for each in whole], rtol=1e-13)
    monkeypatch.setattr(bootstrap, "_CELLS", 300)
    np.testing.assert_allclose(intervals_of_means(values, product_and_ratio), whole, rtol=1e-12)


def test_ties_do_not_depend_on_rounding() -> None:
    """Sums of whole numbers are exact, those of tenths are not; their intervals differ by the factor alone."""
    for seed in range(10):
        whole = np.random.default_rng(seed).integers(0, 11, size=int(2 + 6 * seed)).astype(float)
        if whole.min() == whole.max():
            continue
        exact, tenths, tiny = (
            bootstrap_interval(whole / by, "mean", seed=seed) for by in (1.0, 10.0, 3e9)
        )
        assert exact is not None
        for found, by in ((tenths, 10.0), (tiny, 3e9)):
            assert (found.low * by, found.high * by) == pytest.approx(
                (exact.low, exact.high), rel=1e-12
            )


def test_where_there_is_no_interval() -> None:
    values = two_means(4, 12)

    def above(means: Array) -> Array:
        """The first mean where the second is not below some limit, and again for a limit that hardly matters."""
        limits = np.array([values[:, 1].mean(), values[:, 1].min()])
        return np.where(means[..., [1, 1]] >= limits, means[..., [0, 0]], np.nan)

    value, low, high = intervals_of_means(values, above)
    assert np.isfinite(value).all()
    assert np.isfinite(low).tolist() == np.isfinite(high).tolist() == [False, True]
    for few in (values[:4], values[:0]):
        value, low, high = intervals_of_means(few, product_and_ratio)
        assert np.isfinite(value).all() == (len(few) > 0)
        assert np.isnan([low, high]).all()
    assert np.isfinite(intervals_of_means(values[:4], product_and_ratio, fewest=2)).all()


def test_draws_that_are_all_the_same_are_the_value() -> None:
    values = np.full((7, 1), 0.1)
    assert np.ravel(intervals_of_means(values)).tolist() == pytest.approx([0.1] * 3, abs=1e-15)


def test_ends_that_overflow_are_missing() -> None:
    found = bootstrap_interval(np.array([1e200, 2e200, -1e200, 3e200]), "mean", resamples=200)
    assert (found.low, found.high) == (None, None)
