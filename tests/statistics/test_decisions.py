"""Decisions: exact intervals against scipy, error rates of repeated looks, and what more samples would decide."""

from __future__ import annotations

import math
import runpy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from standfast.errors import ArgumentError
from standfast.statistics.decisions import (
    IntervalEstimate,
    count_met,
    estimate_mean,
    estimate_share,
    foresee_mean,
    foresee_share,
    spend_level,
)

RATES = runpy.run_path(
    str(Path(__file__).parents[2] / "benchmarks" / "reliability" / "error_rates.py")
)


@pytest.mark.parametrize(("met", "count"), [(0, 5), (5, 5), (3, 20), (19, 20), (171, 300)])
def test_the_interval_of_a_share_is_clopper_and_pearsons(met: int, count: int) -> None:
    for level in (0.9, 0.999):
        found = estimate_share(met, count - met, 0, level)
        expected = stats.binomtest(met, count).proportion_ci(level, "exact")
        assert (found.low, found.high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_unknown_samples_widen_the_interval_to_what_is_possible() -> None:
    found = estimate_share(10, 5, 5, 0.95)
    assert found.low == estimate_share(10, 10, 0, 0.95).low
    assert found.high == estimate_share(15, 5, 0, 0.95).high
    assert found.value == pytest.approx(12.5 / 20)


def test_samples_that_may_be_mistaken_widen_the_interval() -> None:
    plain, wide = estimate_share(10, 10, 0, 0.95), estimate_share(10, 10, 0, 0.95, mistaken=0.1)
    # p meet the condition; of the others a tenth counts as if they did, and of p a tenth as if they did not
    assert wide.low + 0.1 * (1 - wide.low) == pytest.approx(plain.low)
    assert 0.9 * wide.high == pytest.approx(plain.high)
    assert estimate_share(0, 20, 0, 0.95, mistaken=0.1).low == 0.0
    assert estimate_share(20, 0, 0, 0.95, mistaken=0.1).high == 1.0


def test_values_between_bounds() -> None:
    low, high = np.array([1.0, 3.0, 1.0, -np.inf, 2.0]), np.array([1.0, 3.0, 5.0, 1.5, 2.0])
    assert count_met(low, high, 2.0, "higher") == (2, 2, 1)  # a value at the limit meets it
    assert count_met(low, high, 2.0, "lower") == (3, 1, 1)


def test_the_interval_of_a_mean() -> None:
    symmetric = np.array([-2.0, -1.0, 0.0, 1.0, 2.0])
    found, expected = (
        estimate_mean(symmetric, 0.95),
        stats.ttest_1samp(symmetric, 0.0).confidence_interval(0.95),
    )
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    skewed = np.random.default_rng(0).exponential(size=30)
    wide, student = (
        estimate_mean(skewed, 0.95),
        stats.ttest_1samp(skewed, 0.0).confidence_interval(0.95),
    )
    assert wide.low == pytest.approx(student.low)
    assert wide.high > student.high  # the long tail is on this side
    mirrored = estimate_mean(-skewed, 0.95)
    assert (mirrored.low, mirrored.high) == pytest.approx((-wide.high, -wide.low))
    for values in (np.array([]), np.array([1.0]), np.array([1.0, 1.0])):
        assert estimate_mean(values, 0.95).decide(0.5, "higher") == "undecided"


def test_hall_solves_his_own_equation() -> None:
    skewed = np.random.default_rng(1).exponential(size=30)
    found = estimate_mean(skewed, 0.95)
    n, deviation = len(skewed), skewed.std(ddof=1)
    g = stats.skew(skewed, bias=False)
    t = (skewed.mean() - found.high) / deviation
    cubic = t + g * t**2 / 3 + g**2 * t**3 / 27 + g / (6 * n)
    assert cubic == pytest.approx(-stats.t.ppf(0.975, n - 1) / math.sqrt(n))


def test_the_levels_of_all_looks_add_up() -> None:
    spent = [1 - spend_level(0.95, look) for look in range(1, 10_001)]
    assert sum(spent) == pytest.approx(0.05, rel=1e-3)
    assert sum(spent) < 0.05
    assert 1 - spend_level(0.95, 3, 7) == pytest.approx((1 - spend_level(0.95, 3)) / 7)
    with pytest.raises(ArgumentError, match="look: expected a whole number of at least 1"):
        spend_level(0.95, 0)


@pytest.mark.parametrize("case", list(RATES["CASES"]))
def test_looking_often_does_not_cheat(case: str) -> None:
    """At the limit, both wrong decisions together in 5% of runs at most."""
    found: dict[str, float] = RATES["measure"](case, 200, seed=1, looks=(20, 40, 80, 160))
    wrong = round(200 * (found["pass"] + found["fail"]))
    assert stats.binom.sf(wrong - 1, 200, 0.05) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("case", list(RATES["CASES"]))
def test_error_rates_of_many_runs(case: str) -> None:
    found: dict[str, float] = RATES["measure"](case, 2000)
    assert found["pass"] + found["fail"] < 0.05 + 3 * math.sqrt(0.05 * 0.95 / 2000)


def test_without_correction_looking_often_does_cheat() -> None:
    found: dict[str, Any] = RATES["measure"]("mean, normal", 200, seed=1, spend=False)
    assert found["pass"] + found["fail"] > 0.1


def test_what_more_samples_would_decide() -> None:
    found = estimate_share(15, 5, 0, 0.95)
    needed = foresee_share(found, 0.6)
    assert needed is not None
    assert needed > 20
    met = round(0.75 * needed)
    assert estimate_share(met, needed - met, 0, 0.95).decide(0.6, "higher") == "pass"
    half = needed // 2
    assert (
        estimate_share(round(0.75 * half), half - round(0.75 * half), 0, 0.95).decide(0.6, "higher")
        == "undecided"
    )
    assert foresee_share(found, 0.75) is None
    values = np.random.default_rng(0).normal(0.2, 1.0, size=50)
    mean = estimate_mean(values, 0.95)
    reach = (mean.high - mean.low) / 2
    # the interval shrinks with the root of the number of samples
    assert foresee_mean(mean, mean.value - 0.3 * reach) == math.ceil(50 / 0.3**2)
    assert foresee_mean(mean, mean.value) is None


@pytest.mark.parametrize(
    ("low", "high", "limit", "better", "outcome"),
    [
        (0.6, 0.8, 0.6, "higher", "pass"),
        (0.6, 0.8, 0.61, "higher", "undecided"),
        (0.6, 0.8, 0.81, "higher", "fail"),
        (0.6, 0.8, 0.8, "lower", "pass"),
        (0.6, 0.8, 0.79, "lower", "undecided"),
        (0.6, 0.8, 0.5, "lower", "fail"),
        (math.nan, 0.8, 0.5, "lower", "undecided"),
        (-math.inf, -14.0, -13.8, "lower", "pass"),
    ],
)
def test_outcomes(low: float, high: float, limit: float, better: Any, outcome: str) -> None:
    assert IntervalEstimate(0.7, low, high, 0.95, 20).decide(limit, better) == outcome
