"""Statistics against scipy, slow re-implementations, other packages, and simulations of their errors.

The simulations that always run have fixed seeds. Their bounds leave room for Monte Carlo error: a rate p of R
simulations has the standard error sqrt(p (1 - p) / R), and bounds lie at least three of them from what is claimed, so
that a change of seeds would break one of them less than once in 700 times. `-m slow` runs them longer, with narrower
bounds.
"""

from __future__ import annotations

import itertools
import math
import warnings
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import polars as pl
import pytest
from refusals import assert_refused
from scipy import stats

from standfast.errors import ArgumentError
from standfast.report import Results
from standfast.statistics import comparison, ranking
from standfast.statistics import paired as statistics
from standfast.statistics.comparison import Comparison, compare, count_needed, estimate_needed
from standfast.statistics.paired import (
    bootstrap_interval,
    friedman,
    holm,
    median_interval,
    median_over_repeats,
    midranks,
    signed_rank,
)
from standfast.statistics.ranking import (
    measure_agreement,
    measure_agreement_interval,
    measure_agreements,
    rank_explainers,
)

INF = math.inf


def rng(*seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


# intervals


def test_median_interval_is_that_of_the_quantile_test() -> None:
    for n in (6, 7, 10, 11, 20, 37, 100):
        values = rng(n).normal(size=n)
        ours = bootstrap_interval(values)
        theirs = stats.quantile_test(values, q=np.median(values), p=0.5).confidence_interval(0.95)
        assert ours.value == np.median(values)
        # scipy's may be the next wider one on a side; both attain the level, and ours cannot be narrower
        place = int(np.searchsorted(np.sort(values), ours.low))
        assert ours.high == np.sort(values)[n - 1 - place]
        assert theirs.low <= ours.low
        assert ours.high <= theirs.high
        count = sum(math.comb(n, i) for i in range(place + 1)) / 2**n
        assert ours.coverage == pytest.approx(1 - 2 * count)
        assert ours.coverage >= 0.95
        assert 1 - 2 * (count + math.comb(n, place + 1) / 2**n) < 0.95


def test_median_interval_of_few_values_says_what_it_attains() -> None:
    for n, attained in ((2, 0.5), (3, 0.75), (4, 0.875), (5, 0.9375)):
        found = bootstrap_interval(np.arange(n, dtype=float))
        assert (found.low, found.high, found.coverage) == (0, n - 1, attained)


@pytest.mark.parametrize("statistic", ["mean", "median"])
def test_degenerate_intervals(statistic: Any) -> None:
    assert bootstrap_interval(np.empty(0), statistic) is None
    one = bootstrap_interval(np.array([2.0]), statistic)
    assert (one.value, one.low, one.high, one.count, one.coverage) == (2, None, None, 1, 0)
    same = bootstrap_interval(np.full(7, 0.1), statistic)
    assert (same.value, same.low, same.high, same.exact) == (0.1, 0.1, 0.1, True)


def test_intervals_refuse() -> None:
    values, flags = np.array([1.0, 2.0, 3.0]), np.array([True, False, False])
    interval = partial(bootstrap_interval, values)
    assert_refused(
        interval, statistic=["mode"], level=[1.0], censored_side=["left"], censored=[flags[:2]]
    )
    assert_refused(partial(interval, statistic="mean"), resamples=[0])
    assert_refused(partial(interval, censored=flags), statistic=["mean"])
    with pytest.raises(ArgumentError, match="1 NaN"):
        bootstrap_interval(np.array([1.0, np.nan]))
    with pytest.raises(ArgumentError, match="infinity"):
        bootstrap_interval(np.array([1.0, INF]), "mean")
    infinite = bootstrap_interval(np.array([1.0, INF, -INF]))
    assert (infinite.value, infinite.low, infinite.high) == (1, -INF, INF)


def test_censored_intervals_hold_whatever_the_true_values_are() -> None:
    """For any values behind the bounds the interval covers theirs; and some values come close to it."""
    for seed in range(200):
        random = rng(seed)
        n = int(random.integers(2, 15))
        values, flags = random.normal(size=n).round(1), random.random(n) < 0.4
        for side, sign in (("upper", -1), ("lower", 1)):
            found = bootstrap_interval(values, censored=flags, censored_side=side)  # type: ignore[arg-type]
            assert found is not None
            nearest: float = INF
            for size in (0.0, 0.5, 1e9):
                true = values + sign * flags * random.exponential(size=n) * size
                exact = bootstrap_interval(true)
                assert found.low <= exact.low
                assert exact.high <= found.high
                assert found.between[0] <= exact.value <= found.between[1]
                nearest = min(
                    nearest,
                    abs(exact.low - found.low) if side == "upper" else abs(exact.high - found.high),
                )
            assert nearest == 0 or nearest == INF
            assert found.exact == (found.between[0] == found.between[1])
            assert found.bound in (None, side)
            assert found.value == np.median(values)


def test_open_intervals_say_where_they_end() -> None:
    values, flags = np.array([-3.0, -4, -5, -6, -20, -20, -20]), np.arange(7) >= 4
    found = bootstrap_interval(values, censored=flags)
    assert (found.exact, found.low, found.low_bound, found.high) == (True, -INF, -20, -3)
    found = bootstrap_interval(-values, censored=flags, censored_side="lower")
    assert (found.low, found.high, found.high_bound, found.low_bound) == (3, INF, 20, None)
    # such as differences of two bounds
    nothing = median_interval(np.full(7, -INF), np.full(7, INF), 0.95)
    assert (nothing.low, nothing.high, nothing.low_bound, nothing.high_bound) == (
        -INF,
        INF,
        None,
        None,
    )
    half = bootstrap_interval(np.array([1.0, 2.0]), censored=np.array([True, False]))
    assert (half.value, half.bound) == (1.5, "upper")


POPULATIONS: dict[str, tuple[Any, float, float]] = {
    "normal": (lambda r, size: r.normal(size=size), 0.0, 0.0),
    "exponential": (lambda r, size: r.exponential(size=size), 1.0, math.log(2)),
    "t3": (lambda r, size: r.standard_t(3, size=size), 0.0, 0.0),
    "five values": (lambda r, size: r.integers(0, 5, size=size).astype(float), 2.0, 2.0),
}
# what BCa covers at 95%, from 2000 simulations; the lowest of the four populations
MEAN_COVERAGE = {5: 0.80, 10: 0.867, 20: 0.892, 50: 0.903, 100: 0.919}


def coverage(population: str, n: int, runs: int) -> tuple[float, float, float]:
    """The coverage of the mean's and of the median's interval, and the level that the latter states."""
    draw, mean, median = POPULATIONS[population]
    means = medians = 0
    attained = 0.0
    for run in range(runs):
        values = draw(rng(run, n), n)
        found = bootstrap_interval(values, "mean", resamples=600, seed=run)
        means += found.low <= mean <= found.high
        found = bootstrap_interval(values)
        medians += found.low <= median <= found.high
        attained = found.coverage
    return means / runs, medians / runs, attained


def check_coverage(population: str, n: int, runs: int) -> None:
    of_mean, of_median, attained = coverage(population, n, runs)
    error = 3.2 * math.sqrt(0.1 * 0.9 / runs)
    assert MEAN_COVERAGE[n] - error < of_mean < 0.96 + error
    error = 3.2 * math.sqrt(attained * (1 - attained) / runs)
    assert of_median > attained - error
    if population != "five values":  # exact without ties, at least as much with them
        assert of_median < attained + error


@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("n", [5, 20])
def test_coverage(population: str, n: int) -> None:
    check_coverage(population, n, 200)


@pytest.mark.slow
@pytest.mark.parametrize("population", POPULATIONS)
@pytest.mark.parametrize("n", MEAN_COVERAGE)
def test_coverage_at_length(population: str, n: int) -> None:
    check_coverage(population, n, 4000)


# repeats


def test_median_over_repeats() -> None:
    values = rng(0).normal(size=(4, 6, 3))
    values[rng(1).random(values.shape) < 0.3] = np.nan
    values[:, 0, 0] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = np.nanmedian(values, axis=0)
    found, bounds = median_over_repeats(values)
    np.testing.assert_allclose(found, expected)
    assert not bounds.any()
    assert np.isnan(found[0, 0])


@pytest.mark.parametrize(("side", "sign"), [("upper", 1), ("lower", -1)])
def test_median_over_repeats_of_bounds(side: Any, sign: int) -> None:
    column = [
        ([-3, -20, -20], [0, 1, 1], -20, True),
        ([-3, -4, -20], [0, 0, 1], -4, False),
        ([-3, -20, np.nan], [0, 1, 1], -11.5, True),
        ([np.nan] * 3, [1, 1, 1], np.nan, False),
        ([-1, -2, -3], [1, 0, 0], -2, True),  # the one bound may lie at or below all others
    ]
    values = sign * np.array([[row[0] for row in column]], dtype=float).transpose(2, 1, 0)
    flags = np.array([[row[1] for row in column]], dtype=bool).transpose(2, 1, 0)
    found, bounds = median_over_repeats(values, flags, side)
    np.testing.assert_array_equal(sign * found[:, 0], [row[2] for row in column])
    assert bounds[:, 0].tolist() == [row[3] for row in column]


# ranks, Friedman's test


def slow_midranks(low: Any, high: Any) -> list[float]:
    """One half of a rank for each that is not certainly above, the other for each that is certainly below, and 1/2."""
    k = len(low)
    ranks = []
    for i in range(k):
        rank = 1.0
        for j in range(k):
            if j != i:
                rank += 1.0 if high[j] < low[i] else 0.0 if low[j] > high[i] else 0.5
        ranks.append(rank)
    return ranks


def test_midranks() -> None:
    values = rng(0).integers(0, 5, size=(50, 6)).astype(float)
    np.testing.assert_array_equal(midranks(values), stats.rankdata(values, axis=1))
    np.testing.assert_array_equal(midranks(values[0]), stats.rankdata(values[0]))
    for seed in range(100):
        random = rng(1, seed)
        high = random.integers(0, 6, size=7).astype(float)
        low = np.where(random.random(7) < 0.4, -INF, high)
        expected = slow_midranks(low, high)
        np.testing.assert_array_equal(midranks(low, high), expected)
        np.testing.assert_array_equal(midranks(low[None], high[None])[0], expected)
        np.testing.assert_array_equal(8 - midranks(-high, -low), expected)
        assert sum(expected) == 28


def test_censored_ranks_tie_at_the_bound() -> None:
    """ln P, lower is better: censored at -20, the two tie below everything else."""
    found = compare(
        np.array([[-3.0, -20, -20, -19]]), "abcd", "lower", np.array([[False, True, True, False]])
    )
    np.testing.assert_array_equal(found.ranks, [[4, 1.5, 1.5, 3]])
    # different bounds: -15 is not comparable with "at most -10", nor is "at most -12"; -9 is
    found = compare(
        np.array([[-10.0, -15, -12, -9]]), "abcd", "lower", np.array([[True, False, True, False]])
    )
    np.testing.assert_array_equal(found.ranks, [[2, 2, 2, 4]])
    # on the bound: the true value may be the same
    found = compare(np.array([[-10.0, -10.0]]), "ab", "lower", np.array([[True, False]]))
    np.testing.assert_array_equal(found.ranks, [[1.5, 1.5]])
    assert found.effects[0, 1] == 0
    assert found.p_values[0, 1] == 1


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_statistic(ties: bool) -> None:
    for seed in range(20):
        random = rng(seed)
        values = (
            random.integers(0, 4, size=(12, 5)).astype(float)
            if ties
            else random.normal(size=(12, 5))
        )
        ours, _ = friedman(midranks(values), 1)
        assert ours == pytest.approx(stats.friedmanchisquare(*values.T).statistic)


@pytest.mark.parametrize("ties", [False, True])
def test_friedman_p_against_all_permutations(ties: bool) -> None:
    values = np.array([[1.0, 2, 3], [1, 3, 2], [1, 2, 3], [2, 2, 3] if ties else [2, 1, 3]])
    ranks = stats.rankdata(values, axis=1)

    def spread(rows: Any) -> float:
        return float((np.sum(rows, axis=0) ** 2).sum())

    every = [
        spread(rows)
        for rows in itertools.product(*(list(itertools.permutations(row)) for row in ranks))
    ]
    exact = np.mean([s >= spread(ranks) - 1e-9 for s in every])
    _, ours = friedman(ranks, 20_000)
    assert ours == pytest.approx(exact, abs=4 * math.sqrt(exact / 20_000))
    # rows in which everything is tied have no influence
    assert friedman(np.vstack([ranks, np.full((3, 3), 2.0)]), 999) == friedman(ranks, 999)


def test_friedman_p_of_many_rows_is_iman_and_davenports() -> None:
    values = rng(0).normal(size=(80, 4)) + np.array([0, 0, 0, 0.3])
    statistic, p = friedman(midranks(values))
    square = stats.friedmanchisquare(*values.T).statistic
    assert p == pytest.approx(stats.f.sf(79 * square / (80 * 3 - square), 3, 79 * 3))
    assert statistic == pytest.approx(square)
    same = np.tile([1.0, 2, 3, 4], (60, 1))
    assert 0 < friedman(same)[1] < 1e-70  # 1 / 24^59
    # both ways agree where they meet
    near = midranks(rng(3).normal(size=(50, 4)) + np.array([0, 0, 0, 0.45]))
    drawn = friedman(near, 20_000)[1]
    square = friedman(near, 1)[0]
    assert drawn == pytest.approx(stats.f.sf(49 * square / (50 * 3 - square), 3, 49 * 3), rel=0.15)


# Wilcoxon's test, Holm's correction, effects


def slow_signed_rank(differences: Any) -> tuple[float, float]:
    """Pratt's ranks, all signs tried; p and the rank-biserial correlation."""
    ranks = stats.rankdata(np.abs(differences))
    moving = ranks[differences != 0]
    balance = float((np.sign(differences) * ranks).sum())
    every = [abs(np.dot(signs, moving)) for signs in itertools.product((-1, 1), repeat=len(moving))]
    return float(np.mean([value >= abs(balance) - 1e-9 for value in every])), balance / ranks.sum()


def test_signed_rank_against_all_signs() -> None:
    for seed in range(60):
        random = rng(seed)
        n = int(random.integers(1, 11))
        differences = random.integers(-4, 6, size=n).astype(float)
        p, effect, untied = signed_rank(differences)
        assert (p, effect) == pytest.approx(slow_signed_rank(differences))
        assert untied == np.count_nonzero(differences)
        opposite = signed_rank(-differences)
        assert (opposite[0], opposite[1]) == pytest.approx((p, -effect))


def test_signed_rank_against_scipy() -> None:
    for n in (6, 15, 50):
        differences = rng(n).normal(size=n) + 0.4
        assert signed_rank(differences)[0] == pytest.approx(
            stats.wilcoxon(differences, method="exact").pvalue
        )
    tied = np.array([0.0, 1, 1, -2, 3, 3, 0, 2, 5, -1, 2, 4])
    theirs = stats.wilcoxon(tied, zero_method="pratt", method=stats.PermutationMethod()).pvalue
    assert signed_rank(tied)[0] == pytest.approx(theirs)
    for random in (rng(1), rng(2)):
        many = random.integers(-20, 23, size=400).astype(float)
        theirs = stats.wilcoxon(
            many, zero_method="pratt", method="asymptotic", correction=False
        ).pvalue
        assert signed_rank(many)[0] == pytest.approx(theirs)
    # exact and normal agree where they meet
    at = rng(5).normal(size=200) + 0.15
    theirs = stats.wilcoxon(at, method="asymptotic", correction=False).pvalue
    assert signed_rank(at)[0] == pytest.approx(theirs, rel=0.02)


def test_signed_rank_ties_what_differs_by_rounding() -> None:
    differences = np.array([0.3 - 0.2, 0.2 - 0.1, 0.4 - 0.3, 0.1 - 0.2])
    assert len(set(np.abs(differences))) > 1
    assert signed_rank(differences) == signed_rank(np.array([1.0, 1, 1, -1]))


def test_signed_rank_of_bounds() -> None:
    """Differences 12, at least 15, 18 and -16: that of at least 15 is above 12 and tied with the others."""
    low, high = np.array([12.0, 15, 18, -16]), np.array([12.0, INF, 18, -16])
    p, effect, untied = signed_rank(low, high)
    assert (effect, untied) == ((1 + 3 + 3.5 - 2.5) / 10, 4)
    every = [abs(np.dot(signs, [1, 3, 3.5, 2.5])) for signs in itertools.product((-1, 1), repeat=4)]
    assert p == np.mean([value >= 5 for value in every])
    # a sign that is not certain is a zero
    p, effect, untied = signed_rank(np.array([-INF, -1.0, 2.0]), np.array([INF, INF, 2.0]))
    assert (p, effect, untied) == (1, 3 / 6, 1)


def test_holm() -> None:
    for seed in range(20):
        p = rng(seed).random(8) ** 3
        slow = [
            min(1.0, max(sorted(p)[i] * (8 - i) for i in range(8) if sorted(p)[i] <= q)) for q in p
        ]
        np.testing.assert_allclose(holm(p), slow)
    assert holm(np.empty(0)).shape == (0,)


#: adjusted p of all pairs, by scikit-posthocs 0.17.1
PAIRS = {
    8: [0.390625, 0.046875, 0.046875, 0.390625, 0.15625, 0.15625],
    30: [
        0.01860224456,
        0.009469978511,
        0.0001420006156,
        0.730341997,
        0.003042044118,
        0.01209538244,
    ],
}


@pytest.mark.parametrize("n", PAIRS)
def test_p_values_of_pairs_are_those_that_scikit_posthocs_gave(n: int) -> None:
    values = rng(0, n).normal(size=(n, 4)) + np.array([0, 0.3, 0.6, 1.2])
    found = compare(values, "abcd", "higher")
    np.testing.assert_allclose(found.p_values[np.triu_indices(4, 1)], PAIRS[n], rtol=1e-9)
    np.testing.assert_allclose(found.mean_ranks, stats.rankdata(-values, axis=1).mean(axis=0))
    for i, j in itertools.permutations(range(4), 2):
        gains = values[:, i] - values[:, j]
        # Kerby: the share of the rank sum in favour less the share against
        ranks = stats.rankdata(np.abs(gains))
        assert found.effects[i, j] == pytest.approx((ranks * np.sign(gains)).sum() / ranks.sum())
        middle = found.differences[i][j]
        assert middle.value == pytest.approx(np.median(gains))


# comparisons


def same(a: Comparison, b: Comparison) -> bool:
    return all(
        np.array_equal(getattr(a, name), getattr(b, name), equal_nan=True)
        for name in (
            "ranks",
            "mean_ranks",
            "p_values",
            "effects",
            "friedman_p",
            "friedman_statistic",
            "used",
        )
    )


def test_directions_and_sides_mirror() -> None:
    for seed in range(10):
        random = rng(seed)
        values, flags = (
            random.integers(-9, 0, size=(12, 4)).astype(float),
            random.random((12, 4)) < 0.3,
        )
        a = compare(values, "abcd", "lower", flags, "upper")
        assert same(a, compare(-values, "abcd", "higher", flags, "lower"))
        assert not same(a, compare(values, "abcd", "lower", flags, "lower"))
        turned = compare(values, "abcd", "higher", flags, "upper")
        np.testing.assert_allclose(turned.mean_ranks, 5 - a.mean_ranks)
        np.testing.assert_allclose(turned.p_values, a.p_values)
        np.testing.assert_allclose(turned.effects, -a.effects)
        # any increasing function leaves ranks and Friedman alone
        assert compare(np.exp(values), "abcd", "lower", flags).friedman_p == a.friedman_p


def test_rows_with_nan_are_left_out() -> None:
    values = rng(0).normal(size=(20, 3))
    holed = values.copy()
    holed[[2, 5], [0, 2]] = np.nan
    flags = np.zeros((20, 3), dtype=bool)
    flags[2, 0] = flags[7, 1] = True
    found = compare(holed, "abc", "lower", flags)
    rest = np.delete(np.arange(20), [2, 5])
    again = compare(values[rest], "abc", "lower", flags[rest])
    assert (found.count, found.left_out, found.censored) == (18, 2, 1)
    assert np.flatnonzero(~found.used).tolist() == [2, 5]
    np.testing.assert_array_equal(found.p_values, again.p_values)
    np.testing.assert_array_equal(found.ranks, again.ranks)


def test_differences_hold_whatever_the_true_values_are() -> None:
    for seed in range(50):
        random = rng(seed)
        values, flags = random.normal(size=(9, 2)).round(1), random.random((9, 2)) < 0.4
        found = compare(values, "ab", "higher", flags)
        middle = found.differences[0][1]
        assert middle is not None
        for size in (0.0, 1.0, 1e9):
            true = values - flags * random.exponential(size=(9, 2)) * size
            exact = bootstrap_interval(true[:, 0] - true[:, 1])
            assert middle.low <= exact.low + 1e-12
            assert exact.high <= middle.high + 1e-12
            assert middle.between[0] - 1e-12 <= exact.value <= middle.between[1] + 1e-12
    both = compare(np.full((3, 2), -20.0), "ab", "lower", np.ones((3, 2), dtype=bool)).differences[
        0
    ][1]
    assert both.bound == "unknown"
    assert math.isnan(both.value)


def test_infinite_values_are_ranked() -> None:
    values = np.array([[INF, 1.0, 2.0], [INF, INF, 0.0], [-INF, 3.0, INF], [-INF, -INF, 4]])
    found = compare(values, "abc", "lower")
    np.testing.assert_array_equal(found.ranks, stats.rankdata(values, axis=1))
    assert np.isfinite(found.p_values).all()
    assert np.isfinite(found.effects).all()


def made(mean_ranks: Any, differ: set[tuple[int, int]], friedman_p: float = 0.001) -> Comparison:
    k = len(mean_ranks)
    p, effects = np.ones((k, k)), np.zeros((k, k))
    for i, j in differ:
        p[i, j] = p[j, i] = 0.01
        effects[i, j], effects[j, i] = 0.5, -0.5
    ranks = np.asarray(mean_ranks, dtype=float)
    nothing: Any = ((None,) * k,) * k
    used = np.ones(30, dtype=bool)
    return Comparison(
        tuple("abcdef"[:k]),
        "lower",
        0.05,
        30,
        0,
        0,
        used,
        ranks[None],
        ranks,
        9.0,
        friedman_p,
        p,
        effects,
        nothing,
        0.0,
    )


def test_winners_by_hand() -> None:
    # order: b, a, c, d. Not significantly different: b and a, a and c. All other pairs differ
    found = made([2.0, 1.0, 3.0, 4.0], {(1, 2), (1, 3), (0, 3), (2, 3)})
    assert found.order == (1, 0, 2, 3)
    assert found.winner_set == (1, 0)
    # b and c do not differ, but a, which lies between them, differs from b: no bar joins b and c
    found = made([2.0, 1.0, 3.0], {(1, 0)})
    assert found.winner_set == (1, 2)
    # Friedman does not reject
    found = made([2.0, 1.0, 3.0], {(1, 0)}, friedman_p=0.2)
    assert found.winner_set == (1, 0, 2)
    assert not found.significant.any()
    # behind the best by ranks, yet significantly ahead of it by signed ranks: may not be ruled out
    found = made([1.0, 2.0, 3.0], {(1, 0), (0, 2)})
    assert found.winner_set == (0, 1)


def test_nothing_is_ranked_where_no_sample_has_all_values() -> None:
    nothing = compare(np.full((4, 2), np.nan), ["X", "Y"], "lower")
    assert nothing.count == 0
    assert (nothing.p_values == 1).all()


def test_the_fewest_samples_are_those_with_which_anything_can_be_shown() -> None:
    for k in (2, 3, 6):
        values = np.arange(k) + rng(k).normal(0, 0.01, (20, k))  # the same order in every sample
        names = [str(i) for i in range(k)]
        possible = [compare(values[:n], names, "higher").conclusive_possible for n in range(2, 20)]
        assert possible.index(True) + 2 == count_needed(k)


def test_the_estimate_of_needed_samples_is_where_the_test_begins_to_reject() -> None:
    values = rng(5).normal([0.25, 0.0], 1.0, (20, 2))
    found = compare(values, ["a", "b"], "higher")
    assert not found.significant.any()
    needed = estimate_needed(found)
    assert needed is not None
    # copies of the same samples keep the effect; the first number of copies that is significant is the estimate
    first = next(
        20 * copies
        for copies in range(1, 60)
        if compare(
            np.tile(values, (copies, 1)) + 1e-6 * rng(6).normal(size=(20 * copies, 2)),
            ["a", "b"],
            "higher",
        ).significant.any()
    )
    assert first - 25 <= needed <= first + 25
    assert estimate_needed(compare(np.ones((9, 2)), ["a", "b"], "higher")) is None


def test_what_can_be_shown_at_all() -> None:
    """The smallest p of a pair of n samples is 2^(1 - n), times the number of pairs."""
    for n, k, possible in ((5, 2, False), (6, 2, True), (8, 5, False), (9, 5, True)):
        found = compare(np.arange(n * k, dtype=float).reshape(n, k) ** 2, range(k), "lower")  # type: ignore[arg-type]
        assert found.smallest_p == min(1, k * (k - 1) / 2**n)
        assert found.conclusive_possible == possible
        assert found.p_values[0, 1] == pytest.approx(found.smallest_p)
        assert found.significant.any() == possible


def test_comparisons_refuse() -> None:
    values = np.zeros((3, 2))
    for arguments in (
        (values[:, :1], "a", "lower"),
        (values, "abc", "lower"),
        (values, "aa", "lower"),
        (values, "ab", "up"),
        (values[0], "ab", "lower"),
        (values, "ab", "lower", np.zeros(3)),
        (values, "ab", "lower", None, "both"),
        (values, "ab", "lower", None, "upper", 0),
    ):
        with pytest.raises(ArgumentError):
            compare(*arguments)  # type: ignore[arg-type]


# false positives and power


def null_values(kind: str, random: Any, n: int, k: int) -> tuple[Any, Any]:
    """Values that do not know their explainer."""
    if kind == "ties":
        return random.integers(0, 3, size=(n, k)).astype(float), None
    values = random.normal(size=(n, k)) + random.normal(size=(n, 1))
    if kind == "continuous":
        return values, None
    if kind == "a third below a floor":
        return np.maximum(values, -0.6), values < -0.6
    if kind == "most below a floor":
        return np.maximum(values, 1.4), values < 1.4
    bounds = random.normal(size=(n, k))
    return np.maximum(values, bounds), values < bounds


KINDS = ["continuous", "ties", "a third below a floor", "most below a floor", "bounds of their own"]


@pytest.fixture
def few_permutations(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test of Friedman draws 199 permutations, and others in each call."""
    seeds = itertools.count()
    for module in (comparison, ranking):
        monkeypatch.setattr(module, "friedman", lambda ranks: friedman(ranks, 199, next(seeds)))


def false_positives(kind: str, n: int, k: int, runs: int) -> Any:
    """How often Friedman rejects, any pair would on its own, and any pair does."""
    counts = np.zeros(3)
    for run in range(runs):
        values, flags = null_values(kind, rng(run, n, k), n, k)
        found = compare(values, range(k), "lower", flags)  # type: ignore[arg-type]
        counts += found.friedman_p <= 0.05, (found.p_values <= 0.05).any(), found.significant.any()
    return counts / runs


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("few_permutations")
def test_false_positives(kind: str) -> None:
    """At most 0.05 by each test, and three standard errors: 0.088 for 300 runs."""
    assert (false_positives(kind, 12, 3, 300) <= 0.088).all()


@pytest.mark.slow
@pytest.mark.usefixtures("few_permutations")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "k"), [(6, 3), (10, 4), (20, 5), (60, 3), (100, 6)])
def test_false_positives_at_length(kind: str, n: int, k: int) -> None:
    """At most 0.05 and three standard errors: 0.065 for 2000 runs."""
    assert (false_positives(kind, n, k, 2000) <= 0.065).all()


@pytest.mark.usefixtures("few_permutations")
def test_power() -> None:
    """One column of three is shifted by one standard deviation: it is found nearly always, and no other difference."""
    found = [
        compare(rng(run).normal(size=(30, 3)) + np.array([1.2, 0, 0]), "abc", "higher")
        for run in range(100)
    ]
    assert sum(c.winner_set == (0,) for c in found) >= 90
    assert sum(bool(c.significant[1, 2]) for c in found) <= 12  # 0.05 and three standard errors
    # the same below a floor that hides half of the others' values
    values = [rng(run).normal(size=(30, 3)) + np.array([1.2, 0, 0]) for run in range(100)]
    found = [compare(np.maximum(v, 0), "abc", "higher", v < 0) for v in values]
    assert sum(c.winner_set == (0,) for c in found) >= 80


# agreement


def slow_w(ranks: Any) -> float:
    """The textbook's: 12 S / (m^2 (k^3 - k) - m sum of t^3 - t)."""
    m, k = ranks.shape
    totals = ranks.sum(axis=0)
    ties = sum(
        float(count**3 - count) for row in ranks for count in np.unique(row, return_counts=True)[1]
    )
    return float(12 * ((totals - totals.mean()) ** 2).sum() / (m**2 * (k**3 - k) - m * ties))


def test_agreement() -> None:
    for seed in range(30):
        random = rng(seed)
        m, k = int(random.integers(2, 7)), int(random.integers(3, 8))
        values = (
            random.integers(0, 5, size=(m, k)).astype(float)
            if seed % 2
            else random.normal(size=(m, k))
        )
        if (values == values[:, :1]).all(axis=1).any():
            continue
        found = measure_agreement(values, [str(i) for i in range(m)])
        ranks = stats.rankdata(values, axis=1)
        assert found.kendalls_w == pytest.approx(slow_w(ranks))
        assert found.kendalls_w == pytest.approx(friedman(ranks, 1)[0] / (m * (k - 1)))
        for i, j in itertools.product(range(m), repeat=2):
            assert found.correlations[i, j] == pytest.approx(
                stats.spearmanr(values[i], values[j]).statistic
            )
        if not seed % 2:
            mean = found.correlations[np.triu_indices(m, 1)].mean()
            assert mean == pytest.approx((m * found.kendalls_w - 1) / (m - 1))


def test_agreement_extremes() -> None:
    up = np.arange(5.0)
    found = measure_agreement(np.array([up, 10 * up, up - 3]), "abc")
    assert (found.kendalls_w, found.correlations.tolist()) == (1, np.ones((3, 3)).tolist())
    assert found.p_value < 0.001
    found = measure_agreement(np.array([up, -up]), "ab")
    assert (found.kendalls_w, found.correlations[0, 1], found.p_value) == (0, -1, 1)
    found = measure_agreement(np.array([[1, 2, 3, np.nan], [2, 3, 4, 1.0]]), "ab")
    assert found.used.tolist() == [True, True, True, False]
    assert found.kendalls_w == 1
    found = measure_agreement(np.array([[1.0, 1, 1], [1, 2, 3]]), "ab")
    assert found.kendalls_w == 0.5
    assert np.isnan(found.correlations[0]).all()
    assert found.correlations[1, 1] == 1
    for nothing in (np.ones((1, 4)), np.array([[1.0, np.nan], [np.nan, 1]]), np.zeros((2, 3))):
        found = measure_agreement(nothing, [str(i) for i in range(len(nothing))])
        assert math.isnan(found.kendalls_w)
    with pytest.raises(ArgumentError):
        measure_agreement(np.ones((2, 3)), "a")


@pytest.mark.usefixtures("few_permutations")
def test_agreement_p_under_unrelated_rankings() -> None:
    """At most 0.05 and three standard errors: 0.088 for 300 runs."""
    small = [measure_agreement(rng(run).normal(size=(3, 4)), "abc").p_value for run in range(300)]
    assert np.mean(np.array(small) <= 0.05) <= 0.088


def test_agreement_of_ties_alone_is_none_without_a_warning() -> None:
    assert measure_agreement_interval(np.full((2, 6, 3), 2.0)) is None
    one_untied = np.full((2, 2, 2), 1.5)
    one_untied[:, 0] = [1.0, 2.0]
    found = measure_agreement_interval(one_untied)
    assert found.low == found.high == found.value == 1.0


def test_agreement_interval_by_a_loop() -> None:
    ranks = stats.rankdata(rng(0).normal(size=(3, 15, 4)) + np.array([0, 0.3, 0.6, 0.9]), axis=2)
    ranks[1, 4] = ranks[2, 5] = np.nan
    found = measure_agreement_interval(ranks, resamples=300, seed=2)
    counts = np.random.Generator(np.random.PCG64(2)).multinomial(15, np.full(15, 1 / 15), size=300)
    slow = []
    for count in counts:
        rows = np.repeat(np.arange(15), count)
        slow.append(slow_w(stats.rankdata(np.nanmean(ranks[:, rows], axis=1).round(12), axis=1)))
    assert (found.low, found.high) == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])))
    means = np.nanmean(ranks, axis=1)
    assert found.value == pytest.approx(measure_agreement(means, "abc").kendalls_w)
    assert measure_agreement_interval(ranks[:1]) is None
    assert measure_agreement_interval(np.full((2, 3, 4), np.nan)) is None


# studies


@dataclass(frozen=True)
class Read:
    column: str
    direction: str | None
    censored: str | None = None
    censored_side: str = "upper"
    only: tuple[str, ...] = ()
    varied: str | None = None


def study(rows: list[dict[str, Any]]) -> Results:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    return Results(store=None, manifest={}, samples=frame, jobs=pl.DataFrame(), planned=0)  # type: ignore[arg-type]


def grid(
    labels: dict[str, Any], samples: int = 12, repeats: int = 1, models: str = "m"
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for model, (label, columns) in itertools.product(models, labels.items()):
        for explainer, repeat, sample in itertools.product("zab", range(repeats), range(samples)):
            row = {
                "data": "d",
                "model": model,
                "explainer": explainer,
                "label": label,
                "metric": label,
            }
            rows.append(
                {
                    **row,
                    "repeat": repeat,
                    "sample": sample,
                    "status": "ok",
                    **columns(explainer, repeat, sample),
                }
            )
    return rows


def shifted(explainer: str, repeat: int, sample: int) -> float:
    return "zab".index(explainer) + 0.1 * rng(sample, repeat, ord(explainer)).normal()


def test_rankings() -> None:
    rows = grid(
        {
            "up": lambda e, r, s: {"value": shifted(e, r, s)},
            "down": lambda e, r, s: {"value": shifted(e, r, s)},
            "undirected": lambda e, r, s: {"value": shifted(e, r, s)},
            "unread": lambda e, r, s: {"value": shifted(e, r, s)},
            "other": lambda e, r, s: {"lnp": -5.0 - shifted(e, r, s)},
        },
        models="mn",
    )
    readings = {
        "up": Read("value", "higher"),
        "down": Read("value", "lower"),
        "undirected": Read("value", None),
        "other": Read("lnp", "lower"),
        "missing": Read("value", "lower"),
    }
    found = rank_explainers(study(rows).samples, readings)
    assert [(r.model, r.label) for r in found] == [
        (model, label) for model in "mn" for label in ("up", "down", "other")
    ]
    assert all(
        r.data == "d" and r.comparison.names == ("z", "a", "b") and r.comparison.count == 12
        for r in found
    )
    assert found[0].comparison.order == (2, 1, 0)
    assert found[1].comparison.order == (0, 1, 2)
    assert found[0].samples == tuple(range(12))
    both = measure_agreements(found)
    assert [(a.data, a.model, a.names) for a in both] == [
        ("d", m, ("up", "down", "other")) for m in "mn"
    ]
    assert both[0].explainers == ("z", "a", "b")
    np.testing.assert_allclose(both[0].correlations, [[1, -1, 1], [-1, 1, -1], [1, -1, 1]])
    assert both[0].kendalls_w == pytest.approx(1 / 9)
    interval = both[0].interval
    assert interval.value == pytest.approx(1 / 9)
    assert measure_agreements(found[:1]) == []


def test_rankings_leave_out_what_does_not_count() -> None:
    def columns(explainer: str, repeat: int, sample: int) -> dict[str, Any]:
        return {
            "value": shifted(explainer, repeat, sample),
            "found": not (explainer == "a" and sample in (1, 2)),
        }

    rows = grid({"x": columns})
    rows[3]["status"] = "misclassified"  # of z
    rows[4]["value"] = None
    rows[5]["value"] = math.inf
    rows[6]["found"] = None
    (found,) = rank_explainers(study(rows).samples, {"x": Read("value", "lower", only=("found",))})
    assert np.flatnonzero(~found.comparison.used).tolist() == [1, 2, 3, 4, 5, 6]
    (found,) = rank_explainers(study(rows).samples, {"x": Read("value", "lower")})
    assert np.flatnonzero(~found.comparison.used).tolist() == [3, 4, 5]
    assert (
        rank_explainers(study(rows).samples, {"x": Read("value", "lower", only=("absent",))}) == []
    )
    assert rank_explainers(study(rows).samples, {"x": Read("absent", "lower")}) == []
    for row in rows:
        row["value"] = row["value"] if row["explainer"] != "b" else None
    (found,) = rank_explainers(study(rows).samples, {"x": Read("value", "lower")})
    assert found.comparison.names == ("z", "a")
    assert found.absent == ("b",)
    empty = study([{**rows[0], "status": "ok"}])
    assert rank_explainers(empty.samples.clear(), {}) == []  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="direction"):
        rank_explainers(study(rows).samples, {"x": Read("value", "up")})


def test_agreements_pair_samples_and_explainers(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = grid(
        {
            "x": lambda e, r, s: {"value": 5 * shifted(e, r, s) % 1},
            "y": lambda e, r, s: {"value": shifted(e, r, s)},
        }
    )
    missing = [
        r for r in rows if (r["label"], r["explainer"]) == ("x", "a") and r["sample"] in (0, 3)
    ]
    rows = [row for row in rows if row not in missing]
    found = rank_explainers(
        study(rows).samples, {"x": Read("value", "lower"), "y": Read("value", "lower")}
    )
    ranks = np.full((2, 12, 3), np.nan)
    ranks[0, [1, 2, *range(4, 12)]], ranks[1] = found[0].comparison.ranks, found[1].comparison.ranks
    given: list[Any] = []
    monkeypatch.setattr(
        "standfast.statistics.ranking.measure_agreement_interval",
        lambda ranks, level: given.append(ranks),
    )
    measure_agreements(found)
    np.testing.assert_array_equal(given[0], ranks)
    monkeypatch.undo()
    (both,) = measure_agreements(found)
    assert both.interval == measure_agreement_interval(ranks)
    # one label does not have z, the other not b: they agree on what both have, which is not enough
    for label, explainer in (("x", "z"), ("y", "b")):
        rows = [row for row in rows if (row["label"], row["explainer"]) != (label, explainer)]
    (both,) = measure_agreements(
        rank_explainers(
            study(rows).samples, {"x": Read("value", "lower"), "y": Read("value", "lower")}
        )
    )
    assert both.used.tolist() == [name == "a" for name in both.explainers]
    assert math.isnan(both.kendalls_w)
    assert both.interval is None


def test_rankings_of_repeats_and_bounds() -> None:
    def columns(explainer: str, repeat: int, sample: int) -> dict[str, Any]:
        low = explainer == "b" and repeat < 2  # two of three repeats reach the floor
        return {"lnp": -20.0 if low else -10.0 - repeat - "zab".index(explainer), "low": low}

    (found,) = rank_explainers(
        study(grid({"x": columns}, repeats=3)).samples, {"x": Read("lnp", "lower", "low")}
    )
    assert found.comparison.censored == 12
    np.testing.assert_array_equal(found.comparison.mean_ranks, [3, 2, 1])
    middle = found.comparison.differences[2][0]
    assert (middle.value, middle.bound, middle.high) == (-9, "upper", -9)
    # without the flags the same values would be numbers
    (found,) = rank_explainers(
        study(grid({"x": columns}, repeats=3)).samples, {"x": Read("lnp", "lower")}
    )
    assert found.comparison.censored == 0


def test_friedman_permutes_up_to_its_limit() -> None:
    ranks = midranks(rng(0).normal(size=(statistics.PERMUTED_ROWS + 1, 3)))
    assert friedman(ranks, 3)[1] not in (0.25, 0.5, 0.75, 1.0)
    assert friedman(ranks[1:], 3)[1] in (0.25, 0.5, 0.75, 1.0)


@pytest.mark.parametrize("unknown", [0, 3])
def test_the_mean_of_a_pair_is_the_same_with_few_values_and_with_many(
    unknown: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of few values all means are made and ordered; of many they are counted."""
    values = np.random.default_rng(0).normal(size=30).round(1)
    values[:unknown] = INF
    ranks = (0, 7, 100, 232, 464)
    few = [statistics._select_mean_of_pair(values, rank) for rank in ranks]
    monkeypatch.setattr(statistics, "_FEW_TO_PAIR", 0)
    many = [statistics._select_mean_of_pair(values, rank) for rank in ranks]
    means = np.sort(((values[:, None] + values) / 2)[np.tri(30, dtype=bool)])
    assert few == means[list(ranks)].tolist()
    assert many == pytest.approx(few, rel=1e-12)
