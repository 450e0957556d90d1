"""Leaving out a kind of question never earns "may be shown": checks, stability that varied something, faithfulness."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import standfast
from standfast.checks import decide_requirements
from standfast.report.sentences import MEANINGS, describe_verdict, say
from standfast.results import ConfiguredMetric, ValueSpec, registered_spec
from standfast.results.configured_metric import configure_metric
from standfast.results.sanity import Check, Sanity
from standfast.results.summary import Counts, MetricDecision, MetricSummary, Summary, SummaryRow
from standfast.results.verdict import KINDS, Verdict, reach_verdict
from standfast.statistics.paired import Interval
from standfast.study.file.entries import RequirementEntry
from standfast.value_spec import Asks

PASSED = Sanity((Check("input", "passed"), Check("class", "passed")))
#: what each metric asks; the seeds of an explainer without any are `idle`, and `still` changed no map of any explainer
ASKS: dict[str, Asks | None] = {
    "worst": "stability",
    "idle": "stability",
    "still": "stability",
    "aopc": "faithfulness",
    "regions": "other",
    "unknown": None,
}


def make_metric(label: str) -> MetricSummary:
    """A metric by which `saliency` is good, or which had nothing to vary for it."""
    spec = ValueSpec(
        label, label, "higher", asks=ASKS[label], varied="varied" if label == "idle" else None
    )
    value = Interval(0.9, 0.8, 0.95, 12, 0.96, None, (0.9, 0.9))
    counts = Counts(12, 12, 12)
    row = SummaryRow(
        "d",
        "m",
        "saliency",
        label,
        label,
        spec,
        value,
        counts=counts,
        sanity="passed",
        quality="good",
    )
    if label == "idle":
        row = dataclasses.replace(
            row, estimate=None, counts=Counts(12, 12, 0, unvaried=12), quality=None
        )
    decision = (
        MetricDecision("unable", "unchanged")
        if label == "still"
        else MetricDecision("none", "one explainer")
    )
    configured = ConfiguredMetric(label, label, {}, "higher", False, spec, {})
    return MetricSummary("d", "m", configured, (row,), None, decision)


def judge(labels: Sequence[str], are_checked: bool) -> Verdict:
    checks = {("d", "m", "saliency"): PASSED} if are_checked else {}
    metrics = tuple(make_metric(label) for label in labels)
    summary = Summary(
        ("d",), ("m",), ("saliency",), (), {"d": 12}, metrics, {}, 1, 0, 0, (), checks
    )
    return reach_verdict(summary, "d", "m")


SUBSETS = [labels for size in range(len(ASKS) + 1) for labels in itertools.combinations(ASKS, size)]


@pytest.mark.parametrize("are_checked", [True, False])
def test_only_all_three_kinds_earn_may_be_shown(are_checked: bool) -> None:
    shown = []
    for labels in SUBSETS:
        verdict = judge(labels, are_checked)
        said = describe_verdict(verdict)
        is_whole = are_checked and {"worst", "aopc"} <= set(labels)
        assert verdict.show == (("saliency",) if is_whole else ()), labels
        assert ("can be trusted" in said) == is_whole, (labels, said)
        shown += [labels] if is_whole else []
    assert len(shown) == (16 if are_checked else 0)


def test_the_verdict_names_the_kinds_that_it_rests_on() -> None:
    verdict = judge(["worst", "idle", "aopc", "regions"], True)
    assert (verdict.stable_by, verdict.faithful_by) == (("worst",), ("aopc",))
    said = describe_verdict(verdict)
    assert "they pass the checks" in said
    assert "stable by worst, and faithful by aopc; and they are good by regions" in said


@pytest.mark.parametrize(
    ("labels", "are_checked", "missing", "words"),
    [
        (["worst"], True, ("faithfulness",), "are stable, but whether they mark what matters"),
        (["aopc"], True, ("stability",), "are faithful, but whether they are stable was not asked"),
        (["aopc", "worst"], False, ("checks",), "whether they say something"),
        (["worst"], False, ("checks", "faithfulness"), "whether they say something"),
        (
            ["regions"],
            True,
            ("stability", "faithfulness"),
            "pass the checks, but whether they are stable",
        ),
    ],
)
def test_the_verdict_says_what_was_not_asked(
    labels: Sequence[str], are_checked: bool, missing: Sequence[str], words: str
) -> None:
    verdict = judge(labels, are_checked)
    (partial,) = verdict.partial
    assert (partial.explainer, partial.missing, set(partial.passed)) == (
        "saliency",
        missing,
        set(KINDS) - set(missing),
    )
    said = describe_verdict(verdict)
    assert "No explainer is shown to be trustworthy here yet" in said
    assert words in said
    assert "not asked" in said


@pytest.mark.parametrize("label", ["idle", "still"])
def test_a_measure_of_stability_that_varied_nothing_does_not_count(label: str) -> None:
    verdict = judge([label, "aopc"], True)
    (partial,) = verdict.partial
    assert (partial.missing, partial.idle) == (("stability",), (label,))
    assert f"({label} varied nothing)" in describe_verdict(verdict)


def test_what_registered_metrics_ask_agrees_with_what_they_are_to_an_auditor() -> None:
    asked: dict[str, Asks | None] = {}
    for name in (
        "worst_case",
        "max_sensitivity",
        "seed_agreement",
        "attribution_attack",
        "aopc",
        "c_eval",
    ):
        asked[name] = registered_spec(name, {}).asks
    assert asked == {
        **dict.fromkeys(
            ("worst_case", "max_sensitivity", "seed_agreement", "attribution_attack"), "stability"
        ),
        **dict.fromkeys(("aopc", "c_eval"), "faithfulness"),
    }
    for name in standfast.metrics.metrics:
        kind, asks = standfast.metrics.metrics[name], registered_spec(name, {}).asks
        if kind.evidence in ("searched", "drawn", "probability"):
            assert asks == "stability", name
        assert (kind.evidence == "faithful") == (asks == "faithfulness"), name
    # that maps change with the class is no stability
    assert (
        registered_spec("worst_case", {"event": "changed_class", "similarity": "pearson"}).asks
        == "other"
    )
    assert registered_spec("relevance_localisation", {}).asks == "other"
    assert registered_spec("of_another_computer", {}, "higher").asks is None


def test_manifests_say_what_is_asked_and_those_of_earlier_versions_leave_it_to_the_metric() -> None:
    stored = standfast.metrics.get("aopc").describe_values()
    assert stored["asks"] == "faithfulness"
    del stored["asks"]
    entry = {"metric": "aopc", "options": {}, "direction": "higher", "values": stored}
    assert configure_metric("a", "aopc", entry).spec.asks == "faithfulness"
    assert configure_metric("a", "of_another_computer", entry).spec.asks is None


def test_rows_with_nothing_to_vary_count_nowhere() -> None:
    spec = ValueSpec("Agreement", "agreement", "higher", varied="varied")
    frame = pl.DataFrame(
        {
            "status": ["ok", "ok", "degenerate"],
            "value": [1.0, 0.9, None],
            "varied": [False, True, False],
        }
    )
    assert spec.select_valid(frame)["value"].to_list() == [0.9]
    assert spec.find_unvaried(frame).tolist() == [True, False, False]
    # results that were stored before there was such a column
    assert len(spec.select_valid(frame.drop("varied"))) == 2
    assert not spec.find_unvaried(frame.drop("varied")).any()
    assert ValueSpec.from_stored(spec.stored()) == spec


def test_an_explainer_without_a_seed_is_judged_by_nothing(tmp_path: Path) -> None:
    digits = standfast.data.bundled("digits")[:6]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=digits.bounds)
    found = standfast.evaluate(
        model,
        ["saliency", "smoothgrad:samples=2"],
        digits,
        ["seed_agreement:seeds=3"],
        sanity=False,
        progress=False,
    )
    (metric,) = found.summary.metrics
    idle, varied = metric.find_row("saliency"), metric.find_row("smoothgrad:samples=2")
    assert idle is not None
    assert varied is not None
    assert (idle.has_nothing_varied, idle.value, idle.quality, idle.standing) == (
        True,
        None,
        None,
        None,
    )
    assert (idle.counts.unvaried, varied.counts.unvaried) == (6, 0)
    assert np.isfinite(varied.value or np.nan)
    assert "nothing to vary" in found.to_text()
    page = found.to_html(tmp_path / "report.html").read_text("utf-8")
    assert f'title="{MEANINGS["nothing to vary"]}">nothing to vary' in page
    # who cannot point at a word reads it under "How to read this"
    assert all(f"<strong>{word}</strong>: {meaning}" in page for word, meaning in MEANINGS.items())
    decisions = decide_requirements(
        found, [RequirementEntry(metric="seed_agreement", at_least=0.1)]
    )
    assert decisions.decisions[0].explainer == "saliency"
    assert decisions.decisions[0].outcome == "undecided"
    assert "there was nothing to vary" in str(decisions)


def test_one_word_stands_for_one_thing() -> None:
    untested = Sanity((Check("model", "untested"), Check("input", "undecided")))
    undecided = Sanity((Check("model", "passed"), Check("input", "undecided")))
    assert [say("says", each) for each in (PASSED, untested, undecided)] == [
        "yes",
        "not tested",
        "undecided",
    ]
    assert {say("quality", word) for word in ("good", "control", "bad", "undecided")} <= set(
        MEANINGS
    )
