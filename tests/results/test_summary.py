"""The summary: its numbers against NumPy and scipy, its decisions, its counts, and its failures."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from report_builder import BAD, GOOD, PROB, WORST, Builder

from standfast.report import Results
from standfast.results import MetricDecision, MetricSummary, SummaryRow
from standfast.statistics.comparison import compare_with_controls
from standfast.statistics.paired import find_holm_levels, shift_interval


def rows_of(results: Results, label: str = WORST) -> dict[str, SummaryRow]:
    return {row.explainer: row for row in results.summary.rows if row.label == label}


def only(results: Results) -> MetricSummary:
    (found,) = results.summary.metrics
    return found


def test_a_row_has_the_median_with_its_binomial_interval(builder: Builder) -> None:
    values = np.random.default_rng(0).normal(size=30)
    builder.worst("a", values.tolist())
    row = rows_of(builder.results())["a"]
    ends = scipy.stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    assert row.estimate is not None
    assert row.value == pytest.approx(np.median(values))
    assert (row.estimate.low, row.estimate.high) == (ends.low, ends.high)
    assert (row.estimate.count, row.estimate.bound) == (30, None)
    # there is nothing to compare it with
    assert (row.standing, row.mean_rank, row.control_test) == (
        None,
        None,
        None,
    )
    assert (row.sanity, row.quality, row.more_samples_needed) == (None, None, None)


def test_the_value_of_a_sample_is_the_median_over_its_repeats(builder: Builder) -> None:
    values = np.random.default_rng(0).normal(size=(3, 8))
    for repeat, own in enumerate(values):
        builder.worst("a", own.tolist(), repeat=repeat)
    row = rows_of(builder.results())["a"]
    assert row.value == pytest.approx(np.median(np.median(values, axis=0)))
    assert (row.counts.rows, row.counts.counted) == (24, 24)
    assert (row.counts.repeats, row.counts.samples) == (3, 8)


def test_ranks_and_verdicts_are_of_the_samples_that_all_have(builder: Builder) -> None:
    status = ["ok"] * 11 + ["misclassified"]
    builder.worst("steady", GOOD)
    builder.worst("shaky", BAD, status=status)
    builder.worst("random", [0.5] * 12)  # a control has a number, and no rank
    found = only(builder.results())
    rows = {row.explainer: row for row in found.rows}
    assert (rows["steady"].standing, rows["steady"].mean_rank) == ("best", 1.0)
    assert (rows["shaky"].standing, rows["shaky"].mean_rank) == ("worse", 2.0)
    assert (rows["random"].standing, rows["random"].control) == (None, True)
    assert found.uneven
    assert found.decision == MetricDecision(
        "decided", "all worse", 2, 11, None, ("steady",), ("shaky",)
    )
    (part,) = rows["shaky"].counts.uncounted
    assert (part.status, part.samples, part.rows) == ("misclassified", 1, 1)


@pytest.mark.parametrize(
    ("values", "state", "reason", "needed"),
    [
        ([[0.1, 0.2], [0.3, 0.4]], "unable", "few samples", 6),
        ([[0.5] * 12, [0.5] * 12], "unable", "tied", 6),
        ([[0.1, 0.2]], "none", "one explainer", None),
        ([[math.nan, math.nan], [math.nan, math.nan]], "unable", "no value", None),
        ([[0.1, 0.2], [math.nan, math.nan]], "unable", "few explainers", None),
    ],
)
def test_why_nothing_is_decided(
    builder: Builder, values: list[list[float]], state: str, reason: str, needed: int | None
) -> None:
    for name, own in zip("ab", values, strict=False):
        builder.worst(name, own)
    found = only(builder.results()).decision
    assert (found.state, found.reason, found.samples_needed) == (state, reason, needed)


def test_differences_that_no_test_shows_are_open(builder: Builder) -> None:
    generator = np.random.default_rng(0)
    for name in "abc":
        builder.worst(name, (0.5 + generator.normal(size=12) / 10).tolist())
    found = only(builder.results())
    assert (found.decision.state, found.decision.reason, found.decision.samples) == (
        "open",
        "no difference",
        12,
    )
    assert {row.standing for row in found.rows} == {"undecided"}
    assert len(found.decision.best) == 3


def test_bounds_are_counted_and_open_the_interval(builder: Builder) -> None:
    builder.probability("a", [-3.0, -20.0, -20.0], censored=[False, True, True])
    builder.probability("b", [-3.0, -5.0, -20.0], censored=[False, False, True])
    rows = rows_of(builder.results(), PROB)
    a, b = rows["a"].estimate, rows["b"].estimate
    assert b is not None
    assert (a.value, a.bound, a.low, a.low_bound) == (-20.0, "upper", -math.inf, -20.0)
    assert (b.value, b.bound) == (-5.0, None)
    assert (rows["a"].counts.bounds, rows["b"].counts.bounds, rows["a"].counts.counted) == (2, 1, 3)


def test_what_failed_is_in_the_summary(builder: Builder) -> None:
    for label in ("first", "second"):
        builder.worst("a", GOOD, label=label)
        for name in ("b", "c"):
            builder.job(
                name, "worst_case", label, {}, None, error=("ModelError: no convolution\nmore", "T")
            )
    builder.job(
        "a", "worst_case", "second", {}, None, start=12, stop=14, error=("ValueError: odd", "T")
    )
    builder.jobs += ["later"]
    summary = builder.results().summary
    both, part = summary.failures
    assert (both.explainers, both.labels, both.partly) == (("b", "c"), ("first", "second"), False)
    assert (part.explainers, part.labels, part.partly, part.reason) == (
        ("a",),
        ("second",),
        True,
        "ValueError: odd",
    )
    assert (summary.planned, summary.missing, summary.failed) == (8, 1, 5)
    rows = {(each.label, row.explainer): row for each in summary.metrics for row in each.rows}
    assert rows["second", "a"].counts.failed_jobs == 1
    assert rows["second", "a"].value == pytest.approx(np.median(GOOD))
    assert (rows["first", "b"].estimate, rows["first", "b"].counts.rows) == (None, 0)


def test_agreement_needs_three_explainers_and_two_metrics(builder: Builder) -> None:
    for place, name in enumerate("abc"):
        builder.worst(name, [0.1 * place + 0.001 * n for n in range(12)])
        builder.probability(name, [-1.0 * place - 0.01 * n for n in range(12)])
    summary = builder.results().summary
    (agreement,) = summary.agreements.values()
    assert agreement.kendalls_w == pytest.approx(1.0)
    assert [each.label for each in summary.select("digits", "lenet")] == [WORST, PROB]
    assert summary.find("digits", "lenet", "none") is None


def test_the_shift_is_what_the_signed_rank_test_does_not_reject() -> None:
    for seed in range(20):
        differences = np.random.default_rng(seed).normal(0.3, 1.0, size=9 + seed)
        found = shift_interval(differences, differences, 0.03, 0.01)
        assert found.low is not None
        assert found.high is not None
        pairs = [(a + b) / 2 for i, a in enumerate(differences) for b in differences[i:]]
        assert found.value == pytest.approx(np.median(pairs))
        for end, error, side in ((found.low, 0.03, "greater"), (found.high, 0.01, "less")):
            ps = [
                scipy.stats.wilcoxon(
                    differences - end - step, alternative=side, method="exact"
                ).pvalue
                for step in (-1e-9, 1e-9)
            ]
            rejected, kept = ps if side == "greater" else ps[::-1]
            assert rejected <= error < kept


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_no_verdict_stands_beside_a_difference_that_holds_zero(direction: str) -> None:
    generator, seen = np.random.default_rng(1), set()
    for _ in range(80):
        explainers, controls, samples = (
            int(generator.integers(*ends)) for ends in ((1, 5), (1, 4), (8, 40))
        )
        values = generator.normal(size=(samples, explainers + controls))
        values += 0.5 * generator.normal(size=explainers + controls)
        names = [f"e{n}" for n in range(explainers)] + [f"c{n}" for n in range(controls)]
        for test in compare_with_controls(values, names, names[explainers:], direction):  # type: ignore[arg-type]
            gap = test.difference
            assert gap is not None
            assert gap.low is not None
            assert gap.high is not None
            worst, best = (gap.low, gap.high) if direction == "higher" else (-gap.high, -gap.low)
            assert worst > 0 or test.verdict != "beats"
            assert best < 0 or test.verdict != "worse"
            seen.add(test.verdict)
    assert seen == {"beats", "worse", "undecided"}


def test_ties_leave_out_an_interval_that_would_contradict_its_verdict() -> None:
    generator, left_out = np.random.default_rng(0), 0
    for _ in range(100):
        shift = np.array([0.3 * generator.normal(), 0.0, 0.0])
        values = np.round(generator.normal(size=(20, 3)) + shift, 1)
        for test in compare_with_controls(values, ["a", "b", "c"], ["c"], "higher"):
            low, high = test.difference.low, test.difference.high
            if low is None or high is None:
                left_out += 1
            else:
                assert (low > 0 or high < 0) == (test.verdict != "undecided")
    assert 0 < left_out < 20  # of 200


def test_the_level_of_each_p_value_decides_as_holm_does() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        ps = generator.uniform(size=5) ** 3
        order = np.argsort(ps)
        rejected = np.zeros(5, dtype=bool)
        for place, at in enumerate(order):
            if ps[at] > 0.05 / (5 - place):
                break
            rejected[at] = True
        assert ((ps <= find_holm_levels(ps, 0.05)) == rejected).all()


def test_a_neighbourhood_that_changes_no_map_ranks_nothing(builder: Builder) -> None:
    """All explainers have values of at least 0.999: no verdict, although a test would decide. Controls do not count."""
    unchanged = [0.9992 + 0.00001 * n for n in range(12)]
    builder.worst("steady", [value + 0.0004 for value in unchanged])
    builder.worst("shaky", unchanged)
    builder.worst("random", [0.1] * 12)
    found = only(builder.results())
    assert found.decision == MetricDecision("unable", "unchanged")
    assert {(row.standing, row.mean_rank) for row in found.rows} == {(None, None)}
    assert rows_of(builder.results())["steady"].value is not None
    said = " ".join(str(builder.results()).split())
    assert "moved by at most 0.1 in each feature" in said
    assert "*" not in said


def test_one_changed_map_is_enough_to_compare(builder: Builder) -> None:
    builder.worst("steady", [0.9999] * 12)
    builder.worst("shaky", [*[0.9993] * 11, 0.998])
    found = only(builder.results())
    assert found.decision.reason == "all worse"
