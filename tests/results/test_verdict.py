"""Quality and verdict: the rules on known numbers, and whole evaluations with bad explainers among good ones."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pytest
import scipy.stats
import torch
from torch import Tensor

import standfast
from standfast.explainers import Explainer, get
from standfast.report.sentences import describe_verdict
from standfast.results import ConfiguredMetric, ValueSpec
from standfast.results.metric_summary import judge_rows
from standfast.results.quality import (
    RARE,
    Quality,
    References,
    count_more,
    find_bad_p_value,
    find_references,
    find_weak_classes,
    judge_against_controls,
    judge_stability,
)
from standfast.results.sanity import Check, CheckState, Sanity
from standfast.results.summary import (
    Counts,
    MetricDecision,
    MetricSummary,
    Summary,
    SummaryRow,
)
from standfast.results.verdict import Verdict, reach_verdict
from standfast.statistics.comparison import ControlTest
from standfast.statistics.paired import Interval

SPEC = ValueSpec("Worst case", "similarity", "higher", 2)
ODDS = ValueSpec("Probability", "P", "lower", "probability")
#: the middle is 0.6
KNOWN = References(1.0, 0.2, 0.4, 0.3)


def interval(low: float, high: float, coverage: float = 0.96, count: int = 12) -> Interval:
    middle = (low + high) / 2
    return Interval(middle, low, high, count, coverage, None, (middle, middle))


@pytest.mark.parametrize(
    ("low", "high", "quality"),
    [(0.61, 0.9, "good"), (0.3, 0.59, "bad"), (0.55, 0.65, "undecided"), (0.59, 0.99, "undecided")],
)
def test_stability_is_judged_by_the_middle_of_unrelated_and_identical_maps(
    low: float, high: float, quality: str
) -> None:
    assert judge_stability(SPEC, interval(low, high), KNOWN) == quality
    assert judge_stability(SPEC, interval(low, high, coverage=0.9), KNOWN) == "undecided"
    # a distance: the same numbers, mirrored
    distance = dataclasses.replace(SPEC, direction="lower")
    mirrored = References(-1.0, -0.2, None, None)
    assert judge_stability(distance, interval(-high, -low), mirrored) == quality


def test_a_probability_is_good_up_to_one_in_a_hundred_unless_its_threshold_is_useless() -> None:
    known = References(0.0, 0.9, None, None)
    rare, middle = math.log(RARE), interval(math.log(0.001), math.log(0.009))
    assert judge_stability(ODDS, middle, known) == "good"
    assert judge_stability(ODDS, interval(rare + 0.01, -0.1), known) == "bad"
    assert judge_stability(ODDS, interval(rare - 1, rare + 1), known) == "undecided"
    assert judge_stability(ODDS, middle, dataclasses.replace(known, unrelated=0.49)) is None


def test_references_are_means_over_samples_of_the_metric_s_own_columns() -> None:
    columns = {
        "identical a": [1.0, 1.0],
        "unrelated a": [0.1, 0.3],
        "scrambled a": [float("nan"), 0.5],
        "unrelated a: b": [9.0, 9.0],
    }
    found = find_references(SPEC, "a", pl.DataFrame(columns))
    assert found is not None
    assert dataclasses.astuple(found) == (1.0, pytest.approx(0.2), None, 0.5)
    assert find_references(SPEC, "c", pl.DataFrame(columns)) is None


def test_more_samples_shrink_the_interval_to_the_distance_from_the_middle() -> None:
    # half as wide as twice the distance needs four times as many samples
    found = count_more(SPEC, interval(0.6 - 0.1 + 0.05, 0.6 + 0.1 + 0.05), KNOWN)
    assert found == 4 * 12 - 12


@pytest.mark.parametrize(("weak", "found"), [(6, (3,)), (5, ())])
def test_a_class_is_weak_if_most_of_its_samples_are_shown_to_be(
    weak: int, found: tuple[int, ...]
) -> None:
    # six of six: the exact interval of the share begins at 0.54; five of five: at 0.48
    values = [0.1] * weak + [0.9] * 8
    rows = pl.DataFrame({"status": "ok", "value": values, "targets": [3] * weak + [1] * 8})
    rows = rows.with_row_index("sample")
    rows = pl.concat([rows, rows])  # repeats are no more samples
    assert find_weak_classes(SPEC, rows, KNOWN) == found


def test_no_better_than_a_control_is_bad_where_it_is_worse_than_random() -> None:
    beats = ControlTest("a", "edges", 12, None, 1.0, 0.01, 1.0, 0.05)
    worse, open_ = (
        dataclasses.replace(beats, p_beats=1.0, p_worse=0.01),
        dataclasses.replace(beats, p_beats=1.0),
    )
    low = interval(0.1, 0.2)
    assert judge_against_controls(SPEC, low, beats, 0.5) == "good"
    assert judge_against_controls(SPEC, low, open_, 0.5) == "undecided"
    assert judge_against_controls(SPEC, low, worse, 0.5) == "bad"
    assert judge_against_controls(SPEC, low, worse, 0.15) == "control"
    assert judge_against_controls(SPEC, low, worse, None) == "control"


def summary_of(metric: MetricSummary, sanity: dict[str, Sanity]) -> Summary:
    checks = {("d", "m", name): each for name, each in sanity.items()}
    names = tuple(row.explainer for row in metric.rows)
    return Summary(("d",), ("m",), names, (), {"d": 12}, (metric,), {}, 1, 0, 0, (), checks)


def row_of(
    name: str, label: str, quality: Quality | None, failure_p: float | None, **more: Any
) -> SummaryRow:
    return SummaryRow(
        "d",
        "m",
        name,
        label,
        label,
        SPEC,
        interval(0.1, 0.3),
        counts=Counts(12, 12, 12),
        quality=quality,
        failure_p=failure_p,
        **more,
    )


def judge_one(
    qualities: Mapping[str, tuple[Quality | None, float | None]], sanity: Sanity
) -> Verdict:
    """The verdict on one explainer, given its quality and p-value by each metric."""
    metrics = []
    for label, (quality, failure_p) in qualities.items():
        metric = ConfiguredMetric(label, label, {}, "higher", False, SPEC, {})
        row = row_of("gradcam", label, quality, failure_p, sanity=sanity.state)
        metrics.append(
            MetricSummary("d", "m", metric, (row,), None, MetricDecision("none", "one explainer"))
        )
    checks = {("d", "m", "gradcam"): sanity}
    return reach_verdict(
        Summary(
            ("d",), ("m",), ("gradcam",), (), {"d": 12}, tuple(metrics), {}, 1, 0, 0, (), checks
        ),
        "d",
        "m",
    )


PASSED = Sanity((Check("input", "passed"), Check("class", "passed")))


@pytest.mark.parametrize("state", ["undecided", "untested", "passed"])
def test_what_is_certainly_bad_is_refused_whatever_else_is_undecided(state: CheckState) -> None:
    sanity = Sanity((Check("model", state), Check("class", "passed")))
    (ground,) = judge_one(
        {"worst": ("bad", 0.001), "lens": ("undecided", 0.4), "aopc": ("control", 0.01)}, sanity
    ).refuse
    assert (ground.question, ground.labels, ground.quality, ground.is_open) == (
        None,
        ("worst",),
        "bad",
        False,
    )
    open_question = None if ground.open_check is None else ground.open_check.question
    assert open_question == (None if state == "passed" else "model")
    verdict = judge_one({"worst": ("bad", 0.001)}, sanity)
    assert not verdict.undecided
    said = describe_verdict(verdict)
    assert "bad by worst" in said
    assert ("either" in said) == (state != "passed")


def test_a_failure_that_many_metrics_make_likely_is_not_certain() -> None:
    alone = judge_one({"a": ("bad", 0.02)}, PASSED)
    assert [each.explainer for each in alone.refuse] == ["gradcam"]
    among = judge_one({"a": ("bad", 0.02), "b": ("good", 0.9), "c": ("good", 0.9)}, PASSED)
    assert not among.refuse
    (ground,) = among.undecided
    assert (ground.labels, ground.quality, ground.is_open) == (("a",), "bad", True)
    # metrics that judge nothing make no error
    beside = judge_one({"a": ("bad", 0.02), "b": (None, None), "c": (None, None)}, PASSED)
    assert [each.explainer for each in beside.refuse] == ["gradcam"]


def test_several_with_an_open_check_are_named_together() -> None:
    """Of neither it is known how many samples would decide, and neither has a quality by a metric."""
    untested = Sanity((Check("model", "untested"), Check("class", "passed")))
    metric = ConfiguredMetric("worst", "worst", {}, "higher", False, SPEC, {})
    names = ("gradcam", "saliency")
    rows = tuple(row_of(name, "worst", "good", 0.9, sanity=untested.state) for name in names)
    measured = MetricSummary("d", "m", metric, rows, None, MetricDecision("none", "not compared"))
    verdict = reach_verdict(summary_of(measured, dict.fromkeys(names, untested)), "d", "m")
    assert [(ground.explainer, ground.quality, ground.needed) for ground in verdict.undecided] == [
        ("gradcam", None, None),
        ("saliency", None, None),
    ]
    said = describe_verdict(verdict).lower()
    assert all(name in said for name in names)


def test_leaving_out_the_checks_for_want_of_time_earns_nothing() -> None:
    metric = ConfiguredMetric("worst", "worst", {}, "higher", False, SPEC, {})
    measured = MetricSummary(
        "d",
        "m",
        metric,
        (row_of("gradcam", "worst", "good", 0.9),),
        None,
        MetricDecision("none", "one"),
    )
    unlimited = summary_of(measured, {})
    # nobody asked for checks, and the metric does not say what it asks: two kinds of questions are missing, too
    assert [each.explainer for each in reach_verdict(unlimited, "d", "m").partial] == ["gradcam"]
    limited = dataclasses.replace(
        unlimited, minutes=1.0, left_out=("without sanity checks",), lacks_checks=True
    )
    verdict = reach_verdict(limited, "d", "m")
    assert verdict.show == ()
    assert [(ground.explainer, ground.is_open) for ground in verdict.undecided] == [
        ("gradcam", True)
    ]
    assert "without sanity checks" in describe_verdict(verdict)


@pytest.mark.parametrize(
    ("needed", "said"), [(7, "Some 7 to 30 more"), (150, "Some 200 to 600 more"), (193, "")]
)
def test_what_no_foreseeable_number_of_samples_decides_has_no_number(
    needed: int, said: str
) -> None:
    """Twelve samples: from 16 times as many on, not even the side of the margin is in sight."""
    metric = ConfiguredMetric("worst", "worst", {}, "higher", False, SPEC, {})
    row = row_of("gradcam", "worst", "undecided", 0.5, sanity="passed", more_samples_needed=needed)
    measured = MetricSummary(
        "d", "m", metric, (row,), None, MetricDecision("none", "one explainer")
    )
    verdict = reach_verdict(summary_of(measured, {"gradcam": PASSED}), "d", "m")
    (ground,) = verdict.undecided
    assert (ground.needed is None) == (not said)
    text = describe_verdict(verdict)
    assert (said or "The maps of gradcam are undecided by worst") in text
    assert ("would decide" in text) == bool(said)


def test_an_undecided_check_that_is_too_near_to_its_margin_has_no_number() -> None:
    for needed, more in ((60, 48), (2000, None)):
        sanity = Sanity(
            (Check("input", "undecided", samples=12, needed=needed), Check("class", "passed"))
        )
        (ground,) = judge_one({"worst": ("good", 0.9)}, sanity).undecided
        assert ground.needed == more


def test_a_failed_check_is_the_reason_before_the_metrics() -> None:
    sanity = Sanity(
        (Check("input", "failed"), Check("model", "undecided"), Check("class", "passed"))
    )
    (ground,) = judge_one({"worst": ("bad", 0.001)}, sanity).refuse
    assert (ground.question, ground.labels, ground.open_check) == ("input", (), None)


def test_the_p_value_of_bad_is_that_of_the_sign_test() -> None:
    generator = np.random.default_rng(0)
    for count in (6, 15, 40):
        values = generator.uniform(0, 1, size=count)
        bounds = generator.uniform(size=count) < 0.3
        # an upper bound below the middle is certainly below it
        below = scipy.stats.binomtest(
            int((values < 0.6).sum()), count, alternative="greater"
        ).pvalue
        assert find_bad_p_value(SPEC, values, bounds, KNOWN) == pytest.approx(below)
        # of a distance it may be anywhere below
        above = scipy.stats.binomtest(
            int(((values > 0.6) & ~bounds).sum()), count, alternative="greater"
        ).pvalue
        distance = dataclasses.replace(SPEC, direction="lower")
        assert find_bad_p_value(distance, values, bounds, KNOWN) == pytest.approx(above)


def test_more_explainers_need_more_certainty(army: standfast.Results) -> None:
    """Holm's correction, against the rows judged one by one."""
    metric = next(each for each in army.summary.metrics if each.metric.metric == "worst_case")
    tested = [row for row in metric.rows if row.references is not None and not row.control]
    raw = []
    for row in tested:
        own = army.metric_results(row.data, row.model, row.label).rows_for(row.explainer)
        assert row.references is not None
        values = row.spec.values(row.spec.select_valid(own))
        raw.append(
            scipy.stats.binomtest(
                int((values < row.references.middle).sum()), len(values), alternative="greater"
            ).pvalue
        )
    assert [row.failure_p for row in tested] == pytest.approx(correct_step_by_step(raw))


def correct_step_by_step(p_values: Sequence[float]) -> list[float]:
    """Step down: the smallest p-value times the number of all, the next times one less, and so on."""
    adjusted, largest = list(p_values), 0.0
    for turn, place in enumerate(sorted(range(len(p_values)), key=lambda at: p_values[at])):
        largest = max(largest, min(1.0, (len(p_values) - turn) * p_values[place]))
        adjusted[place] = largest
    return adjusted


# Whole evaluations


class _Army(Explainer):
    """A bad explainer: it changes the maps of input x gradient."""

    differentiable = False

    def __init__(self, name: str) -> None:
        self.kind = name

    @property
    def label(self) -> str:
        return self.kind

    def attribute(
        self,
        model: standfast.Model,
        x: Tensor,
        targets: Tensor | None,
        *,
        create_graph: bool = False,
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            logits = model.forward(x.clone())
        classes = logits.argmax(1) if targets is None else targets
        wanted = (classes + 3) % logits.shape[1] if self.kind == "other class" else classes
        maps, _ = get("input_x_gradient").attribute(model, x, wanted)
        if self.kind == "flipped":
            return -maps, logits
        if self.kind == "shuffled":
            order = torch.randperm(x[0].numel(), generator=torch.Generator().manual_seed(1))
            return maps.flatten(1)[:, order].view_as(maps), logits
        if self.kind == "constant":
            return torch.linspace(0, 1, x[0].numel(), dtype=x.dtype).reshape(x.shape[1:]).expand(
                x.shape
            ).clone(), logits
        return maps, logits


BAD = ("constant", "flipped", "shuffled", "other class")


def evaluate_army(seed: int, count: int = 24) -> standfast.Results:
    digits = standfast.data.bundled("digits")
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(seed))[:count]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0), device="cpu")
    explainers = {"input_x_gradient": get("input_x_gradient"), "saliency": get("saliency")}
    explainers |= {name: _Army(name) for name in BAD}  # type: ignore[dict-item]
    explainers |= {
        "copied": lambda module, x, classes: x,
        "noise": lambda module, x, classes: _hash(x),
    }
    metrics = ["worst_case:budget=12", "aopc:samples=1,steps=5"]
    return standfast.evaluate(
        model,
        explainers,
        digits.take(order),
        metrics,
        preset="quick",
        progress=False,
        samples_per_job=count,
    )


def _hash(x: Tensor) -> Tensor:
    return get("random").make_maps(x)  # type: ignore[attr-defined]


def check_army(found: standfast.Results) -> None:
    bad = {*BAD, "copied", "noise"}
    verdict = found.verdict()
    assert not bad & {*verdict.show, *verdict.unjudged}
    for label, best in found.best().items():
        assert not bad & set(best.explainers), label
    for row in found.summary.rows:
        assert row.explainer not in bad or (row.standing is None and row.quality != "good")


@pytest.fixture(scope="module")
def army() -> standfast.Results:
    return evaluate_army(0, count=16)


def test_no_bad_explainer_is_best_or_shown(army: standfast.Results) -> None:
    found = army
    check_army(found)
    states = {name: each.state for (_, _, name), each in found.sanity.items()}
    assert states["input_x_gradient"] == "passed"
    assert states["saliency"] in ("passed", "undecided")
    assert (
        states["constant"] == states["flipped"] == states["copied"] == states["noise"] == "failed"
    )
    assert found.sanity["digits", "LeNet5", "constant"].reason.question == "input"  # type: ignore[union-attr]
    worst = next(each for each in found.summary.metrics if each.metric.metric == "worst_case")
    constant = worst.find_row("constant")
    assert constant is not None
    # the most stable of all
    assert (round(constant.value or 0, 6), constant.quality) == (
        1.0,
        "control",
    )
    assert any("constant" in each.explainers for each in found.verdict().hollow)
    assert {each.explainer for each in found.verdict().refuse} >= {
        "constant",
        "flipped",
        "copied",
        "noise",
    }


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 10))
def test_no_bad_explainer_is_best_or_shown_on_other_samples(seed: int) -> None:
    check_army(evaluate_army(seed))


def test_of_a_model_near_chance_nothing_is_judged_and_while_that_is_open_nothing_is_decided(
    army: standfast.Results,
) -> None:
    metric = next(each for each in army.summary.metrics if each.metric.metric == "worst_case")
    row = next(each for each in metric.rows if each.quality == "good")
    for state, sanity, quality in (
        ("failed", "failed", None),
        ("undecided", "undecided", "undecided"),
    ):
        checks = {row.explainer: Sanity((Check("accuracy", state),))}  # type: ignore[arg-type]
        (judged,) = judge_rows([dataclasses.replace(row, sanity=sanity)], checks)  # type: ignore[arg-type]
        assert judged.quality == quality


def test_a_verdict_says_why_and_how_many_samples_would_decide(army: standfast.Results) -> None:
    metric = next(each for each in army.summary.metrics if each.metric.metric == "worst_case")
    rows = [
        dataclasses.replace(metric.rows[0], data="d", model="m", explainer=name) for name in "abcd"
    ]
    rows[0] = dataclasses.replace(rows[0], quality="good")
    rows[1] = dataclasses.replace(rows[1], quality="bad", failure_p=0.001)
    rows[2] = dataclasses.replace(rows[2], quality="undecided", more_samples_needed=40)
    assert rows[3].estimate is not None
    best = dataclasses.replace(rows[3].estimate, value=1.0)
    rows[3] = dataclasses.replace(rows[3], quality="control", estimate=best)
    metric = dataclasses.replace(metric, data="d", model="m", rows=tuple(rows))
    passed = Sanity((Check("input", "passed"), Check("class", "passed")))
    failed = Sanity((Check("input", "failed", samples=12), Check("class", "passed")))
    summary = summary_of(metric, {"a": passed, "b": passed, "c": passed, "d": failed})
    verdict = reach_verdict(summary, "d", "m")
    assert [(each.explainer, each.missing) for each in verdict.partial] == [
        ("a", ("faithfulness",))
    ]
    assert [(each.explainer, each.question, each.quality) for each in verdict.refuse] == [
        ("b", None, "bad"),
        ("d", "input", None),
    ]
    assert [(each.explainer, each.needed) for each in verdict.undecided] == [("c", 40)]
    # half of such cases are decided with the smaller number, and of both one digit is said
    assert "some 40 to 200 more samples would decide c" in describe_verdict(verdict)
    (hollow,) = verdict.hollow
    assert (hollow.labels, hollow.explainers, hollow.sanities) == (
        (metric.label,),
        ("d",),
        (failed,),
    )
