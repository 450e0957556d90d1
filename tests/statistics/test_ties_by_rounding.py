"""Rounding decides nothing: numbers that differ in their last digits are tied, wherever numbers are compared."""

from __future__ import annotations

import math

import numpy as np
import polars as pl
import pytest

from standfast.results import ConfiguredMetric, ValueSpec
from standfast.results.metric_results import MetricResults
from standfast.results.metric_summary import summarise_metric
from standfast.results.quality import (
    References,
    find_bad_p_value,
    find_weak_classes,
    judge_stability,
)
from standfast.results.sanity import Check, Sanity
from standfast.results.summary import (
    Counts,
    MetricDecision,
    MetricSummary,
    Summary,
    SummaryRow,
)
from standfast.results.verdict import reach_verdict
from standfast.statistics.comparison import compare, compare_with_controls
from standfast.statistics.decisions import count_met
from standfast.statistics.paired import ROUNDING, Interval, merge_rounding

ALMOST = 0.9999999999999998
SPEC = ValueSpec("Agreement", "agreement", "higher", asks="stability")


def merge_slowly(row: list[float], usual: float) -> list[float]:
    """The smallest of the values that are reached by steps of rounding, for each value."""
    merged = []
    for value in row:
        lowest, moved = value, True
        while moved:
            moved = False
            for other in row:
                step = lowest - other
                if 0 < step <= ROUNDING * max(abs(lowest), abs(other), usual) and math.isfinite(
                    step
                ):
                    lowest, moved = other, True
        merged.append(lowest)
    return merged


def test_merged_values_are_those_of_a_slow_search() -> None:
    rng = np.random.default_rng(0)
    values = rng.choice([-3.0, -1.0, 0.0, 0.5, 1.0, np.inf, -np.inf, np.nan], size=(200, 6))
    values = values + rng.choice([0.0, 1e-16, 2e-7, 4e-7, 1e-6, 1e-3], size=values.shape)
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    expected = [merge_slowly(row, float(np.median(sizes))) for row in values.tolist()]
    np.testing.assert_array_equal(merge_rounding(values), expected)


def test_numbers_that_differ_are_kept_as_they_are() -> None:
    values = np.random.default_rng(1).normal(size=(50, 5))
    np.testing.assert_array_equal(merge_rounding(values), values)
    np.testing.assert_array_equal(merge_rounding(1e-9 * values), 1e-9 * values)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_explainers_that_differ_by_rounding_are_tied(direction: str) -> None:
    values = np.tile([1.0, ALMOST], (30, 1))
    found = compare(values, ["a", "b"], direction)  # type: ignore[arg-type]
    assert found.mean_ranks.tolist() == [1.5, 1.5]
    assert not found.decided
    assert found.winner_set == (0, 1)
    (test,) = compare_with_controls(values, ["a", "control"], ["control"], direction)  # type: ignore[arg-type]
    assert test.verdict == "undecided"
    # a difference that is none of rounding decides as before
    apart = compare(np.tile([1.0, 0.9999], (30, 1)), ["a", "b"], direction)  # type: ignore[arg-type]
    assert apart.decided


def test_neither_is_best_alone_nor_worse() -> None:
    rows = {
        "explainer": ["a"] * 12 + ["b"] * 12,
        "repeat": [0] * 24,
        "sample": [*range(12), *range(12)],
        "status": ["ok"] * 24,
        "value": [1.0] * 12 + [ALMOST] * 12,
    }
    results = MetricResults("x", "x", {}, SPEC, "d", "m", ["a", "b"], pl.DataFrame(rows))
    values = np.array(rows["value"]).reshape(2, 12).T
    metric = ConfiguredMetric("x", "x", {}, "higher", False, SPEC, {})
    found = summarise_metric(results, metric, compare(values, ["a", "b"], "higher"))
    assert [row.standing for row in found.rows] == ["undecided", "undecided"]
    assert found.stars == {}


def test_a_middle_that_is_reached_by_rounding_judges_nothing() -> None:
    # all maps are alike: unrelated ones agree as well as identical ones
    alike = References(1.0, ALMOST, None, None)
    interval = Interval(1.0, 1.0, 1.0, 12, 0.96, None, (1.0, 1.0))
    assert judge_stability(SPEC, interval, alike) == "undecided"
    below = References(ALMOST, 1.0, None, None)
    lower = Interval(ALMOST, ALMOST, ALMOST, 12, 0.96, None, (ALMOST, ALMOST))
    assert judge_stability(SPEC, lower, below) == "undecided"
    values = np.full(12, ALMOST)
    assert (
        find_bad_p_value(SPEC, values, np.zeros(12, dtype=bool), References(1.0, 1.0, None, None))
        == 1.0
    )
    frame = pl.DataFrame({"status": "ok", "value": values, "targets": [3] * 12}).with_row_index(
        "sample"
    )
    assert find_weak_classes(SPEC, frame, References(1.0, 1.0, None, None)) == ()


def test_a_limit_is_met_by_what_misses_it_by_rounding() -> None:
    values = np.array([ALMOST, 1.0, 0.999])
    assert count_met(values, values, 1.0, "higher") == (2, 1, 0)
    values = np.array([0.1 + 0.2, 0.3, 0.4])
    assert count_met(values, values, 0.3, "lower") == (2, 1, 0)


def test_who_says_little_does_not_lead_by_rounding() -> None:
    passed = Sanity((Check("input", "passed"), Check("class", "passed")))
    failed = Sanity((Check("input", "failed"), Check("class", "passed")))
    rows = []
    for name, value, state in (("hollow", 1.0, "failed"), ("good", ALMOST, "passed")):
        estimate = Interval(value, value, value, 12, 0.96, None, (value, value))
        references = References(1.0, 0.1, None, None)
        rows.append(
            SummaryRow(
                "d",
                "m",
                name,
                "x",
                "x",
                SPEC,
                estimate,
                counts=Counts(12, 12, 12),
                sanity=state,
                references=references,  # type: ignore[arg-type]
            )
        )
    metric = ConfiguredMetric("x", "x", {}, "higher", False, SPEC, {})
    measured = MetricSummary(
        "d", "m", metric, tuple(rows), None, MetricDecision("open", "no difference")
    )
    checks = {("d", "m", "hollow"): failed, ("d", "m", "good"): passed}
    summary = Summary(
        ("d",), ("m",), ("hollow", "good"), (), {"d": 12}, (measured,), {}, 1, 0, 0, (), checks
    )
    assert reach_verdict(summary, "d", "m").hollow == ()
