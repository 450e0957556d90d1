"""The next steps: which the results support, in which order, and at what cost. Nothing is proposed for nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
import pytest

from standfast.neighbourhoods import JPEG, Brightness, GaussianNoise, TableChanges
from standfast.results import ConfiguredMetric, References, ValueSpec
from standfast.results.metric_summary import judge_rows
from standfast.results.next_steps import NextStep, Situation, find_next_steps
from standfast.results.quality import Quality
from standfast.results.sanity import Check, Sanity
from standfast.results.summary import (
    Counts,
    MetricDecision,
    MetricSummary,
    Summary,
    SummaryRow,
)
from standfast.results.verdict import reach_verdict
from standfast.statistics.comparison import ControlTest, count_more_against_controls
from standfast.statistics.paired import Interval

PASSED = Sanity((Check("input", "passed"), Check("class", "passed")))
FAILED = Sanity((Check("input", "failed"), Check("class", "passed")))
#: each pixel by a tenth of its range, and by 8 of 255 grey levels
LARGE = {"norm": "LinfBall", "radius": 0.1, "distribution": "uniform", "sigma": None}
SMALL = {**LARGE, "radius": 8 / 255}
REFERENCES = References(1.0, 0.2, None, None)
INTERVALS = {"good": (0.9, 0.8, 0.95), "bad": (0.3, 0.25, 0.4), "undecided": (0.6, 0.4, 0.7)}
IMAGES = {"samples": 12, "input_shape": [3, 8, 8], "bounds": [[0.0, 0.0], [1.0, 1.0]]}


def make_row(
    explainer: str, quality: Quality, needed: int | None, label: str, sanity: Sanity
) -> SummaryRow:
    asks = "stability" if label == "worst" else "faithfulness"
    spec = ValueSpec(label, label, "higher", asks=asks)  # type: ignore[arg-type]
    middle, low, high = INTERVALS[quality]
    return SummaryRow(
        "d",
        "m",
        explainer,
        label,
        label,
        spec,
        Interval(middle, low, high, 12, 0.96, None, (middle, middle)),
        counts=Counts(12, 12, 12),
        sanity=sanity.state,
        references=REFERENCES if label == "worst" else None,
        quality=quality,
        failure_p=0.001 if quality == "bad" else 1.0,
        more_samples_needed=needed,
    )


def make_situation(
    qualities: Mapping[str, tuple[Quality, Quality]],
    *,
    needed: Mapping[str, int] = {},
    place: Mapping[str, Any] = LARGE,
    data: Mapping[str, Any] = IMAGES,
    labels: Sequence[str] = ("worst", "aopc"),
    sanity: Sanity = PASSED,
    manifest: Mapping[str, Any] = {},
) -> Situation:
    """The stability and the faithfulness of some explainers, each of which took one second a sample for each metric."""
    metrics: list[MetricSummary] = []
    for number, label in enumerate(("worst", "aopc")):
        if label not in labels:
            continue
        rows = [
            make_row(name, each[number], needed.get(name), label, sanity)
            for name, each in qualities.items()
        ]
        options = {"neighbourhood": place} if label == "worst" else {}
        registered = {"worst": "worst_case", "aopc": "aopc"}[label]
        configured = ConfiguredMetric(label, registered, options, "higher", False, rows[0].spec, {})
        metrics.append(
            MetricSummary(
                "d", "m", configured, tuple(rows), None, MetricDecision("none", "one explainer")
            )
        )
    checks = {("d", "m", name): sanity for name in qualities}
    summary = Summary(
        ("d",), ("m",), tuple(qualities), (), {"d": 12}, tuple(metrics), {}, 1, 0, 0, (), checks
    )
    jobs = [
        {
            "data": "d",
            "model": "m",
            "explainer": name,
            "label": label,
            "repeat": 0,
            "start": 0,
            "stop": 12,
            "status": "done",
            "seconds": 12.0,
        }
        for name in qualities
        for label in labels
    ]
    own = {
        "data": {"d": data},
        "models": {"m": {"parameters": 9, "of classes": True}},
        "explainers": {name: {"name": name} for name in qualities},
        **manifest,
    }
    return Situation(summary, reach_verdict(summary, "d", "m"), own, pl.DataFrame(jobs))


def find_kinds(situation: Situation) -> list[str]:
    return [step.kind for step in find_next_steps(situation)]


def find_step(situation: Situation, kind: str) -> NextStep:
    return next(step for step in find_next_steps(situation) if step.kind == kind)


def test_nothing_is_proposed_where_all_is_good() -> None:
    assert find_kinds(make_situation({"saliency": ("good", "good")})) == []


def test_beside_one_that_may_be_shown_only_undecided_ones_are_decided() -> None:
    situation = make_situation(
        {"lrp": ("good", "good"), "saliency": ("bad", "good"), "gradcam": ("undecided", "good")},
        needed={"gradcam": 5},
    )
    assert situation.verdict.show == ("lrp",)
    (step,) = find_next_steps(situation)
    assert (step.kind, step.explainers, step.samples, step.more) == (
        "samples",
        ("gradcam",),
        12 + 20,
        (5, 20),
    )
    assert step.evaluated == ("lrp", "gradcam")  # what is refused is not evaluated again


def test_the_cost_is_what_the_same_work_took() -> None:
    qualities: dict[str, tuple[Quality, Quality]] = {
        "saliency": ("undecided", "good"),
        "lrp": ("bad", "good"),
    }
    step = find_step(make_situation(qualities, needed={"saliency": 5}), "samples")
    # 32 samples, a second for each of two metrics
    assert step.seconds == 32 * 2
    kept = make_situation(
        qualities, needed={"saliency": 5}, manifest={"call": {"options": {"out": "'folder'"}}}
    )
    # in a folder only the further samples are evaluated
    assert find_step(kept, "samples").seconds == 20 * 2


def test_the_number_is_the_one_that_decides_most_for_its_samples() -> None:
    qualities: dict[str, tuple[Quality, Quality]] = dict.fromkeys("abc", ("undecided", "good"))
    step = find_step(make_situation(qualities, needed={"a": 6, "b": 7, "c": 180}), "samples")
    assert (step.explainers, step.more, step.samples) == (("a", "b"), (6, 28), 12 + 30)
    step = find_step(make_situation(qualities, needed={"a": 60, "b": 70, "c": 80}), "samples")
    assert step.explainers == ("a", "b", "c")


def test_without_a_number_no_samples_are_proposed() -> None:
    assert "samples" not in find_kinds(make_situation({"saliency": ("undecided", "good")}))


def test_samples_that_a_limit_of_time_left_out_are_the_next_ones() -> None:
    """Where something is undecided, the same call goes on, unless it is known that fewer of them are enough."""
    limit = {"limit": {"samples": {"d": [12, 100]}}}
    undecided = {"a": ("undecided", "good"), "b": ("bad", "good")}
    step = find_step(make_situation(undecided, manifest=limit), "rest")
    assert (step.explainers, step.evaluated) == (("a",), ("a", "b"))
    assert (step.samples, step.left) == (100, 88)
    # two explainers, two metrics, a second each for a sample
    assert step.seconds == 88 * 4
    assert "samples" not in find_kinds(make_situation(undecided, manifest=limit))
    few = make_situation(undecided, needed={"a": 5}, manifest=limit)
    assert "rest" not in find_kinds(few)
    assert find_step(few, "samples").samples == 12 + 20
    many = make_situation(undecided, needed={"a": 60}, manifest=limit)
    assert {"rest", "samples"} <= set(find_kinds(many))
    # 60 more decide half of such cases; of fewer that are left, nothing is expected
    short = {"limit": {"samples": {"d": [12, 60]}}}
    assert "rest" not in find_kinds(make_situation(undecided, needed={"a": 60}, manifest=short))
    assert "rest" not in find_kinds(make_situation(undecided))
    whole = {"limit": {"samples": {"d": [12, 12]}}}
    assert "rest" not in find_kinds(make_situation(undecided, manifest=whole))
    assert "rest" not in find_kinds(make_situation({"b": ("bad", "good")}, manifest=limit))


def test_the_rest_of_a_call_is_that_of_all_its_models_and_data_sets() -> None:
    """The same call goes on with all of them; the checks have a number of samples of their own."""
    limit = {"limit": {"samples": {"d": [12, 100], "e": [3, 5]}}}
    situation = make_situation({"a": ("undecided", "good")}, manifest=limit)
    columns = [
        "data",
        "model",
        "explainer",
        "label",
        "repeat",
        "start",
        "stop",
        "status",
        "seconds",
    ]
    further = [
        # it has done more samples than all together
        ("d", "m", "b", "aopc", 0, 0, 50, "done", 100.0),
        ("d", "n", "a", "aopc", 0, 0, 6, "done", 1.0),
        ("d", "n", "a", "aopc", 0, 6, 12, "done", 2.0),
        ("e", "m", "a", "aopc", 0, 0, 3, "done", 30.0),
        ("d", "m", "a", "sanity", 0, 0, 12, "done", 1000.0),
        ("d", "m", "b", "worst", 0, 0, 12, "failed", 1000.0),
    ]
    jobs = pl.DataFrame(further, schema=columns, orient="row")
    together = dataclasses.replace(
        situation, jobs=pl.concat([situation.jobs, jobs], how="diagonal_relaxed")
    )
    # a second for each of two metrics, and then in the order above
    expected = 88 * 2 + 50 * 2 + 88 * 3 / 12 + 2 * 10
    assert find_step(together, "rest").seconds == pytest.approx(expected)


def test_what_was_not_asked_is_asked() -> None:
    step = find_step(make_situation({"saliency": ("good", "good")}, labels=["worst"]), "question")
    assert (step.missing, step.explainers, step.seconds) == (("faithfulness",), ("saliency",), None)
    step = find_step(make_situation({"saliency": ("good", "good")}, labels=["aopc"]), "question")
    assert step.missing == ("stability",)


def test_no_default_neighbourhood_no_question_of_stability() -> None:
    table = {"samples": 12, "input_shape": [2], "bounds": [[0.0, 1.0], [1.0, 5.0]]}
    assert (
        find_kinds(make_situation({"saliency": ("good", "good")}, labels=["aopc"], data=table))
        == []
    )


def test_a_large_ball_around_images_has_nearer_changes_that_are_not_smaller_balls() -> None:
    step = find_step(make_situation({"saliency": ("bad", "good")}), "neighbourhood")
    assert [type(change) for change in step.changes] == [Brightness, JPEG, GaussianNoise]
    assert step.is_another_question
    assert step.labels == ("worst",)
    # once for all metrics, and the measure of stability in two further neighbourhoods
    assert step.seconds == 12 * (2 + 2)


@pytest.mark.parametrize(
    "place", [SMALL, {"transformation": "Rotation", "degrees": [-10, 10]}, None]
)
def test_what_inputs_undergo_is_not_replaced(place: Mapping[str, Any]) -> None:
    assert "neighbourhood" not in find_kinds(
        make_situation({"saliency": ("bad", "good")}, place=place)
    )


def test_a_failed_check_or_map_without_merit_is_no_matter_of_the_neighbourhood() -> None:
    assert find_kinds(make_situation({"saliency": ("bad", "good")}, sanity=FAILED)) == []
    # certainly not faithful: smoother maps, or other changes, do not help
    assert find_kinds(make_situation({"saliency": ("undecided", "bad")})) == []


def test_free_categories_of_a_table_become_the_precision_of_its_numbers() -> None:
    columns = [
        {"name": "income", "kind": "number"},
        {"name": "age", "kind": "number"},
        {"name": "town", "kind": "category"},
    ]
    changes = {
        "income": {"by": "5%", "categories": None},
        "town": {"by": None, "categories": "data"},
    }
    place = {"transformation": "TableChanges", "changes": changes}
    data = {"samples": 12, "input_shape": [3], "columns": columns}
    step = find_step(
        make_situation({"occlusion": ("bad", "good")}, place=place, data=data), "neighbourhood"
    )
    (nearer,) = step.changes
    assert isinstance(nearer, TableChanges)
    assert isinstance(nearer.changes, Mapping)
    assert {name: feature.by for name, feature in nearer.changes.items()} == {
        "income": "5%",
        "age": "2%",
    }
    fixed = {**place, "changes": {"income": {"by": "5%", "categories": None}}}
    assert find_kinds(make_situation({"occlusion": ("bad", "good")}, place=fixed, data=data)) == []


def test_a_smoother_relative_is_proposed_once() -> None:
    step = find_step(make_situation({"saliency": ("bad", "good")}, place=SMALL), "explainer")
    assert (step.instead, step.explainers, step.labels) == ("smoothgrad", ("saliency",), ("worst",))
    # 17 gradients for one; what removes features does not explain again
    assert step.seconds == 12 * (17 + 1)
    both: dict[str, tuple[Quality, Quality]] = {
        "saliency": ("bad", "good"),
        "smoothgrad": ("bad", "good"),
    }
    assert "explainer" not in find_kinds(make_situation(both, place=SMALL))
    assert "explainer" not in find_kinds(make_situation({"gradcam": ("bad", "good")}, place=SMALL))


def test_a_network_is_trained_again_only_if_all_of_its_maps_certainly_fail() -> None:
    situation = make_situation({"saliency": ("bad", "good")}, place=SMALL)
    assert find_kinds(situation) == ["explainer", "training"]
    assert find_step(situation, "training").seconds is None
    two: dict[str, tuple[Quality, Quality]] = {
        "saliency": ("bad", "good"),
        "gradcam": ("undecided", "good"),
    }
    assert "training" not in find_kinds(make_situation(two, place=SMALL))
    trees = {"models": {"m": {"parameters": 0, "of classes": True}}}
    assert "training" not in find_kinds(
        make_situation({"saliency": ("bad", "good")}, place=SMALL, manifest=trees)
    )


def test_the_order_is_what_may_be_decided_in_a_second() -> None:
    qualities: dict[str, tuple[Quality, Quality]] = {
        "saliency": ("bad", "good"),
        "lrp": ("undecided", "good"),
    }
    cheap = find_next_steps(make_situation(qualities, needed={"lrp": 1}))
    assert [step.kind for step in cheap] == ["samples", "neighbourhood", "explainer"]
    assert [step.worth for step in cheap] == sorted((step.worth for step in cheap), reverse=True)
    dear = find_next_steps(make_situation(qualities, needed={"lrp": 190}))
    assert [step.kind for step in dear] == ["neighbourhood", "explainer", "samples"]
    unknown = dataclasses.replace(
        make_situation(qualities, needed={"lrp": 1}), jobs=make_situation(qualities).jobs.clear()
    )
    assert [step.seconds for step in find_next_steps(unknown)] == [None] * 3


def test_further_samples_count_as_those_that_there_are() -> None:
    """Of 16 samples 8 have no value, so that twice as many more are needed as would be if all had one."""
    references = References(1.0, 0.2, None, None)
    spec = ValueSpec("worst", "worst", "higher", asks="stability")
    estimate = Interval(0.7, 0.5, 0.76, 8, 0.96, None, (0.7, 0.7))
    row = SummaryRow(
        "d",
        "m",
        "lrp",
        "worst",
        "worst_case",
        spec,
        estimate,
        counts=Counts(8, 8, 8),
        sanity="passed",
        references=references,
    )
    (whole,) = judge_rows([row], {})
    (half,) = judge_rows([dataclasses.replace(row, counts=Counts(16, 16, 8))], {})
    # half of the width is 0.13, and the middle is 0.1 away: 1.69 times as many
    assert whole.more_samples_needed == 14 - 8
    assert half.more_samples_needed == 2 * (14 - 8)
    # a sample that is evaluated three times is one sample
    of_three = Counts(48, 48, 24, repeats=3)
    (repeated,) = judge_rows([dataclasses.replace(row, counts=of_three)], {})
    assert repeated.more_samples_needed == half.more_samples_needed


@pytest.mark.parametrize("repeats", [1, 3])
def test_further_samples_for_a_test_are_not_multiplied_by_repeats(repeats: int) -> None:
    spec = ValueSpec("aopc", "aopc", "higher", asks="faithfulness")
    test = ControlTest("lrp", "random", 8, None, 0.6, 0.2, 1.0, 0.05)
    row = SummaryRow(
        "d",
        "m",
        "lrp",
        "aopc",
        "aopc",
        spec,
        None,
        counts=Counts(8 * repeats, 8 * repeats, 8 * repeats, repeats=repeats),
        sanity="passed",
        control_test=test,
    )
    (judged,) = judge_rows([row], {})
    assert judged.more_samples_needed == count_more_against_controls(test, 1) == 3


def test_a_race_is_proposed_where_none_of_several_may_be_shown() -> None:
    bad: dict[str, tuple[Quality, Quality]] = {"gradcam": ("bad", "good"), "lime": ("bad", "good")}
    situation = make_situation(bad, place=SMALL)
    step = find_step(situation, "race")
    assert step.explainers == ("gradcam", "lime")
    assert step.samples == 60
    # 60 samples of one of them take 120 seconds; nine race, for two fifths of it, and take six times as long
    assert step.seconds == pytest.approx(6 * 9 * 0.4 * 120)
    assert "race" not in find_kinds(make_situation({"gradcam": ("bad", "good")}, place=SMALL))
    with_relative = {"saliency": ("bad", "good"), "gradcam": ("bad", "good")}
    assert "race" not in find_kinds(make_situation(with_relative, place=SMALL))  # type: ignore[arg-type]
    with_good = {**bad, "lrp": ("good", "good")}
    assert "race" not in find_kinds(make_situation(with_good, place=SMALL))  # type: ignore[arg-type]
