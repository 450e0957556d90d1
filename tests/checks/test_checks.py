"""Requirements on a study: outcomes, repeated looks, baselines, formats, exit codes."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import standfast
from standfast.checks import (
    Decisions,
    RequirementDecision,
    check,
    decide_requirements,
    freeze_baseline,
)
from standfast.checks.formats import FORMATS, to_plain
from standfast.checks.sequence import read_decisions
from standfast.checks.values import read_sample_values
from standfast.cli import app
from standfast.errors import ArgumentError, StandfastError, UnknownNameError
from standfast.report import Results, load_results
from standfast.report.sentences import say
from standfast.results import ValueSpec
from standfast.statistics.decisions import (
    IntervalEstimate,
    estimate_share,
    foresee_share,
    spend_level,
)
from standfast.study.file.document import StudyError
from standfast.study.file.entries import RequirementEntry
from standfast.study.file.spec import study_from

STUDY: dict[str, Any] = {
    "samples": 16,
    "samples_per_job": 4,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "input_x_gradient", "random"],
    "metrics": [
        {"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 3, "normalise": True}}
    ],
    "sanity": False,
    "controls": False,
}
METRIC = "max_sensitivity"


def study_with(*requirements: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**STUDY, **changes, "requirements": list(requirements)}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("results")
    standfast.run_study(STUDY, folder, progress=False, command="pytest")
    return load_results(folder)


def decide(results: Results, look: int = 1, **requirement: Any) -> list[RequirementDecision]:
    found = decide_requirements(results, [RequirementEntry(**requirement)], look)
    return list(found.decisions)


def values_of(results: Results, explainer: str) -> np.ndarray[Any, Any]:
    frame = results.samples.filter((pl.col("explainer") == explainer) & (pl.col("status") == "ok"))
    return np.asarray(frame.sort("sample")["value"].to_numpy(), dtype=float)


def test_a_limit_on_the_share_of_samples(results: Results) -> None:
    values = values_of(results, "saliency")
    limit = float(np.quantile(values, 0.8))
    (found,) = decide(
        results, metric=METRIC, explainer="saliency", at_most=limit, share_of_samples=0.5
    )
    met = int((values <= limit).sum())
    expected = estimate_share(met, len(values) - met, 0, spend_level(0.95, 1))
    assert found.estimate == expected
    assert found.outcome == expected.decide(0.5, "higher")
    assert found.skipped == 16 - len(values)


def test_all_three_outcomes(results: Results) -> None:
    values = values_of(results, "saliency")
    limits = {"pass": values.max(), "fail": values.min() / 2, "undecided": float(np.median(values))}
    for outcome, limit in limits.items():
        (found,) = decide(results, metric=METRIC, explainer="saliency", at_most=float(limit))
        assert found.outcome == outcome
        assert bool(found.advice) == (outcome == "undecided")
    means = {"pass": values.max(), "fail": values.min(), "undecided": values.mean()}
    for outcome, limit in means.items():
        (found,) = decide(
            results, metric=METRIC, explainer="saliency", at_most=float(limit), mean=True
        )
        assert found.outcome == outcome


def test_more_samples_are_foreseen_with_the_level_of_the_next_look(results: Results) -> None:
    values = values_of(results, "saliency")
    limit = float(np.median(values))
    (found,) = decide(
        results, metric=METRIC, explainer="saliency", at_most=limit, share_of_samples=0.7
    )
    met = int((values <= limit).sum())
    ahead = estimate_share(met, len(values) - met, 0, spend_level(0.95, 2))
    assert (found.outcome, found.needed) == ("undecided", foresee_share(ahead, 0.7))


def test_every_explainer_that_is_no_control_is_decided_and_shares_the_level(
    results: Results,
) -> None:
    found = decide(results, metric=METRIC, at_most=1.0)
    assert [each.explainer for each in found] == ["saliency", "input_x_gradient"]
    assert all(
        each.estimate is not None and each.estimate.level == spend_level(0.95, 1, 2)
        for each in found
    )


def test_a_comparison_is_the_signed_rank_test(results: Results) -> None:
    from scipy import stats

    found = decide(results, metric=METRIC, explainer="input_x_gradient", better_than="saliency")[0]
    gain = values_of(results, "saliency") - values_of(results, "input_x_gradient")
    assert found.p == pytest.approx(stats.wilcoxon(gain).pvalue / 2)
    (other,) = decide(results, metric=METRIC, explainer="saliency", better_than="input_x_gradient")
    assert {found.outcome, other.outcome} in ({"pass", "fail"}, {"undecided"})


@pytest.mark.slow
def test_the_policy_of_the_examples_has_all_three_outcomes(tmp_path: Path) -> None:
    found = check(Path(__file__).parents[2] / "examples" / "policy.yaml", tmp_path, progress=False)
    outcomes = {each.model: each.outcome for each in found.decisions}
    assert outcomes == {"plain": "undecided", "adversarial": "fail", "regularised": "pass"}


def test_names_that_are_not_there(results: Results) -> None:
    with pytest.raises(UnknownNameError, match="worst_case"):
        decide(results, metric="worst_case", at_most=1)
    with pytest.raises(UnknownNameError, match="did you mean 'saliency'"):
        decide(results, metric=METRIC, explainer="salience", at_most=1)
    with pytest.raises(
        ArgumentError, match="at_most_ln: expected a metric that measures a probability"
    ):
        decide(results, metric=METRIC, at_most_ln=-3)


@pytest.mark.parametrize(
    ("requirement", "message"),
    [
        ({"metric": METRIC}, r"requirements\[0\].*expected exactly one of at_least, at_most"),
        (
            {"metric": METRIC, "at_least": 1, "at_most": 2},
            "exactly one of .* got at_least and at_most",
        ),
        ({"at_least": 1}, r"requirements\[0\].metric: expected the metric that the limit is for"),
        ({"metric": "max_sensitivty", "at_most": 1}, "did you mean 'max_sensitivity'"),
        ({"metric": METRIC, "at_most": 1, "explainer": "salincy"}, "did you mean 'saliency'"),
        (
            {"metric": METRIC, "better_than": "edges"},
            "better_than: expected the name of an explainer",
        ),
        (
            {"metric": METRIC, "at_most": 1, "share_of_samples": 95},
            "share_of_samples: expected a number below 1",
        ),
        ({"metric": METRIC, "at_most": 1, "by": 0.1}, "no such key beside at_most"),
        ({"metric": METRIC, "at_most": 1, "mean": True, "share_of_samples": 0.9}, "not both"),
        ({"metric": METRIC, "at_mots": 1}, "did you mean 'at_most'"),
        (
            {"explainer": ["random", "saliency"], "better_than": "saliency"},
            r"requirements\[0\].explainer: expected",
        ),
    ],
)
def test_requirements_that_do_not_fit(requirement: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        study_from(study_with(requirement))


def test_requirements_are_stored_and_change_no_job() -> None:
    plain = study_from(study_with({"metric": METRIC, "at_most": 1.0})).plain()
    assert (
        study_from(plain).requirements
        == study_from(study_with({"metric": METRIC, "at_most": 1.0})).requirements
    )
    assert "requirements" not in study_from(STUDY).plain()
    with pytest.raises(StudyError, match="requirements: expected at least one requirement"):
        check(STUDY, progress=False)


READING = ValueSpec("a", "probability", "lower", "probability", "bound")


def test_the_interval_of_a_probability_counts_instead_of_its_estimate() -> None:
    frame = pl.DataFrame(
        {
            "sample": [0, 1, 2, 3],
            "repeat": [0, 0, 0, 0],
            "status": ["ok", "ok", "ok", "misclassified"],
            "value": [-20.0, -14.0, -100.0, None],
            "low": [-21.0, -15.0, None, None],
            "high": [-19.0, -13.0, -100.0, None],
            "bound": [False, False, True, False],
        }
    )
    found = read_sample_values(READING, frame)
    assert found.low.tolist() == [-21.0, -15.0, -math.inf]
    assert found.high.tolist() == [-19.0, -13.0, -100.0]
    assert found.skipped == 1


def test_bounds_and_repeats() -> None:
    spec = ValueSpec("a", "b", "higher", censored="bound", censored_side="lower")
    frame = pl.DataFrame(
        {
            "sample": [1, 0, 1, 0, 1, 0],
            "repeat": [0, 0, 1, 1, 2, 2],
            "status": ["ok"] * 6,
            "value": [5.0, 1.0, 6.0, 3.0, 7.0, 2.0],
            "bound": [True, False, True, False, True, False],
        }
    )
    found = read_sample_values(spec, frame)
    assert found.samples.tolist() == [0, 1]
    assert found.low.tolist() == [2.0, 6.0]
    assert found.high.tolist() == [2.0, math.inf]


def test_looks_are_counted_and_decisions_stay(tmp_path: Path) -> None:
    requirements = (
        {"metric": METRIC, "explainer": "saliency", "at_most": 1e-9},
        {"metric": METRIC, "at_most": 1.2},
    )
    first = check(study_with(*requirements, samples=8), tmp_path, progress=False)
    again = check(study_with(*requirements, samples=8), tmp_path, progress=False)
    assert again == first  # the same samples are the same look
    second = check(study_with(*requirements, samples=16), tmp_path, progress=False)
    assert (first.look, second.look) == (1, 2)
    for before, after in zip(first.decisions, second.decisions, strict=True):
        if before.outcome != "undecided":
            assert after == before
        else:
            assert after.estimate.level == spend_level(0.95, 2, 3)
    assert first.decisions[0].outcome == "fail"
    (tmp_path / "looks.json").write_text("{}")
    with pytest.raises(StandfastError, match=r"expected a looks of schema 2"):
        check(study_with(*requirements, samples=16), tmp_path, progress=False)


def test_a_decision_on_another_model_does_not_hold(tmp_path: Path) -> None:
    """With the same name, a model of other values is decided by itself, and its looks are counted from 1."""

    def study(model: str, samples: int) -> Any:
        requirement = {"metric": METRIC, "explainer": "saliency", "at_most": 1e9}
        return study_with(
            requirement, samples=samples, models={"mine": model}, explainers=["saliency"]
        )

    found = [
        check(study(*each), tmp_path, progress=False)
        for each in (
            ("lenet5-mnist", 12),
            ("lenet5-mnist", 16),
            ("lenet5-mnist-pgd", 12),
            ("lenet5-mnist", 12),
        )
    ]
    assert [each.look for each in found] == [1, 2, 1, 1]
    before, grown, other, again = (each.decisions[0] for each in found)
    assert before.outcome == "pass"
    assert grown == before  # stays decided
    assert other.outcome == "pass"
    assert other.middle != before.middle
    assert again == before  # the same results as at an earlier look


def sane(samples: int, *explainers: str) -> dict[str, Any]:
    """A requirement that all numbers meet, with the sanity checks."""
    requirement = {"metric": METRIC, "at_most": 1e9, "share_of_samples": 0.3}
    return study_with(requirement, samples=samples, explainers=list(explainers), sanity=True)


def test_the_same_map_for_every_input_passes_no_requirement(tmp_path: Path) -> None:
    (tmp_path / "same_map.py").write_text(
        "import torch\n\n"
        "def explain(module, inputs, targets):\n"
        "    return torch.linspace(0, 1, inputs[0].numel()).reshape(inputs[:1].shape).repeat(len(inputs), 1, 1, 1)\n"
    )
    study = study_from(
        {**sane(8), "explainers": {"same": {"function": "same_map:explain"}}}, tmp_path
    )
    results = tmp_path / "results"
    found = check(study, results, progress=False)
    (decision,) = found.decisions
    assert decision.estimate.decide(0.3, "higher") == "pass"  # the numbers alone
    assert (decision.outcome, found.exit_code) == ("fail", 1)
    sanity = load_results(results).sanity["digits", "lenet", "same"]
    assert (sanity.state, sanity.reason.question) == ("failed", "input")
    assert decision.sanity == say("reason", "input", "failed")
    assert decision.sanity in " ".join(str(found).split())
    assert read_decisions(load_results(results)) == found


def test_few_samples_that_the_checks_do_not_decide_on_pass_no_requirement(tmp_path: Path) -> None:
    """The numbers are decided at the first look and stay; that the checks follow is no look at them."""
    few = check(sane(4, "integrated_gradients"), tmp_path, progress=False)
    (first,) = few.decisions
    assert (first.outcome, few.exit_code) == ("undecided", 3)
    assert first.sanity != ""
    looks = json.loads((tmp_path / "looks.json").read_text())["looks"]
    assert [[each["outcome"] for each in look["decisions"]] for look in looks] == [["pass"]]
    bare = check({**sane(4, "integrated_gradients"), "sanity": False}, tmp_path, progress=False)
    assert (bare.outcome, bare.look) == ("pass", 1)
    assert bare.decisions[0] == dataclasses.replace(
        first, outcome="pass", sanity="", needed=None, advice=""
    )
    (look,) = json.loads((tmp_path / "looks.json").read_text())["looks"]
    assert (look["states"], look["decisions"]) == (looks[0]["states"], looks[0]["decisions"])


def test_a_limit_of_samples_belongs_to_until_decided_and_is_at_least_the_samples_of_the_study(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        ArgumentError, match="most_samples: expected None without until_decided, got 5"
    ):
        check(study_with({"metric": METRIC, "at_most": 1.0}), most_samples=5, progress=False)
    for samples, expected in (
        (16, "at least 16, as the study says"),
        (None, "None where the study has all samples"),
    ):
        study = study_with({"metric": METRIC, "at_most": 1.0}, samples=samples)
        with pytest.raises(ArgumentError, match=f"most_samples: expected {expected}.*, got 5"):
            check(study, tmp_path / "none", until_decided=True, most_samples=5, progress=False)
    assert not (tmp_path / "none").exists()


def test_other_settings_are_another_look(tmp_path: Path) -> None:
    requirement = {"metric": METRIC, "explainer": "saliency", "at_most": 1e9}
    study = study_with(requirement, samples=8, explainers=["saliency"])
    first = check(study, tmp_path, progress=False)
    second = check({**study, "seed": 1}, tmp_path, progress=False)
    assert (first.look, second.look) == (1, 2)
    assert second.decisions[0].middle != first.decisions[0].middle


def test_more_samples_until_it_is_decided(tmp_path: Path) -> None:
    seen: list[Decisions] = []
    requirement = {"metric": METRIC, "explainer": "saliency", "at_most": 1e-9}
    found = check(
        study_with(requirement, samples=2),
        tmp_path,
        until_decided=True,
        progress=False,
        tell=seen.append,
    )
    assert [each.outcome for each in seen] == ["undecided"] * (len(seen) - 1) + ["fail"]
    assert [each.samples for each in seen] == [2 * 2**k for k in range(len(seen))]
    assert found == seen[-1]
    few = check(
        study_with(requirement, samples=2),
        tmp_path / "few",
        until_decided=True,
        most_samples=3,
        progress=False,
    )
    assert (few.outcome, few.samples) == ("undecided", 3)


def test_a_baseline_is_frozen_and_compared_by_sample(results: Results, tmp_path: Path) -> None:
    folder = freeze_baseline(results, tmp_path / "base")
    same = decide(results, no_worse_than=str(folder), by=0.05)
    assert {each.outcome for each in same} == {"pass"}  # no sample is worse than itself
    assert all(each.estimate is not None and each.estimate.value == 1.0 for each in same)
    with pytest.raises(ArgumentError, match="out: expected a folder without a baseline"):
        freeze_baseline(results, folder)
    with pytest.raises(ArgumentError, match="the folder of a baseline"):
        decide(results, no_worse_than=str(tmp_path / "none"))
    with pytest.raises(ArgumentError, match="the folder of a baseline"):
        check(study_with({"no_worse_than": "none"}), tmp_path / "not", progress=False)
    assert not (tmp_path / "not").exists()  # found before anything is evaluated
    with pytest.raises(ArgumentError, match="out: expected a folder, got .*, a file"):
        freeze_baseline(results, folder / "baseline.json")
    about = json.loads((folder / "baseline.json").read_text())
    about["data"]["digits"]["digest"] = "other"
    (folder / "baseline.json").write_text(json.dumps(about))
    with pytest.raises(ArgumentError, match="a baseline with the same data 'digits'"):
        decide(results, no_worse_than=str(folder))
    (folder / "values.parquet").write_bytes((folder / "values.parquet").read_bytes()[:-1])
    with pytest.raises(StandfastError, match="not those that were frozen"):
        decide(results, no_worse_than=str(folder))


def test_a_worse_result_fails_against_the_baseline(results: Results, tmp_path: Path) -> None:
    folder = freeze_baseline(results, tmp_path / "base")
    frame = pl.read_parquet(folder / "values.parquet").with_columns(
        pl.col("low") - 0.5, pl.col("high") - 0.5
    )
    frame.write_parquet(folder / "values.parquet")
    import hashlib

    about = json.loads((folder / "baseline.json").read_text())
    about["sha256"] = hashlib.sha256((folder / "values.parquet").read_bytes()).hexdigest()
    (folder / "baseline.json").write_text(json.dumps(about))
    outcomes = {
        by: {each.outcome for each in decide(results, no_worse_than=str(folder), by=by)}
        for by in (0.4, 0.6)
    }
    # a lower sensitivity is better, and all are 0.5 higher now
    assert outcomes == {
        0.4: {"fail"},
        0.6: {"pass"},
    }


def test_a_comparison_with_a_baseline_names_its_metric_and_its_loss(
    results: Results, tmp_path: Path
) -> None:
    twice = {"a": STUDY["metrics"][0], "b": STUDY["metrics"][0]}
    standfast.run_study(
        {**STUDY, "samples": 4, "metrics": twice}, tmp_path / "twice", progress=False
    )
    both = load_results(tmp_path / "twice")
    with pytest.warns(UserWarning, match="values of 4 samples; a comparison needs at least 6"):
        folder = freeze_baseline(both, tmp_path / "base")
    entry: dict[str, Any] = {"explainer": "saliency", "no_worse_than": str(folder), "by": 0.05}
    found = decide(both, **entry)
    assert [(each.metric, each.estimate.value) for each in found if each.estimate] == [
        ("a", 1.0),
        ("b", 1.0),
    ]
    assert decide(both, metric=METRIC, **entry) == found
    (mean,) = decide(both, metric="a", mean=True, **entry)
    assert (mean.middle, mean.limit) == (0.0, 0.05)


@pytest.fixture(scope="module")
def small_base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    standfast.run_study(
        {**STUDY, "samples": 4, "explainers": ["saliency"]}, folder / "results", progress=False
    )
    with pytest.warns(UserWarning, match="it can never pass"):
        return freeze_baseline(folder / "results", folder / "base")


@pytest.mark.parametrize("samples", [2, 8])
def test_a_baseline_with_another_number_of_samples(
    small_base: Path, samples: int, tmp_path: Path
) -> None:
    study = study_with({"no_worse_than": str(small_base)}, samples=samples, explainers=["saliency"])
    found = check(study, tmp_path / "results", progress=False)
    (decision,) = found.decisions
    assert (decision.estimate.count, decision.estimate.value) == (min(samples, 4), 1.0)
    assert (decision.skipped, decision.baseline_samples) == (max(0, samples - 4), 4)
    assert "the baseline has 4 samples" in " ".join(str(found).split())


def test_more_samples_end_with_those_of_the_baseline(small_base: Path, tmp_path: Path) -> None:
    requirement = {"no_worse_than": str(small_base)}
    study = study_with(requirement, samples=3, explainers=["saliency"])
    found = check(study, tmp_path / "results", until_decided=True, progress=False)
    assert (found.outcome, found.samples, found.look) == ("undecided", 6, 2)
    assert "and a baseline with as many" in found.decisions[0].advice


def test_a_baseline_of_other_data_is_refused_before_anything_runs(
    small_base: Path, tmp_path: Path
) -> None:
    inputs = standfast.data.bundled("digits").inputs[4:12]
    np.savez(tmp_path / "data.npz", inputs=inputs.numpy())
    other = {"path": "data.npz", "bounds": [0, 1]}
    base: dict[str, Any] = {"samples": 8, "explainers": ["saliency"]}
    for changes, words in (
        (
            {"data": {"digits": other}},
            "or with the first samples of them, got .* in their values \\(4, here 8\\)",
        ),
        ({"data": {"mine": other}}, "a baseline with data 'mine'"),
        (
            {"models": {"new": "lenet5-mnist"}},
            "a baseline with values of digits, new, max_sensitivity, saliency",
        ),
        ({"explainers": ["gradcam"]}, "a baseline with explainers 'gradcam'"),
    ):
        study = study_from(
            {**study_with({"no_worse_than": str(small_base)}), **base, **changes}, tmp_path
        )
        with pytest.raises(
            StudyError, match=r"requirements\[0\].no_worse_than: expected "
        ) as error:
            check(study, tmp_path / "none", progress=False)
        assert re.search(words, " ".join(str(error.value).split()))
    assert not (tmp_path / "none").exists()


def test_a_limit_that_no_metric_of_the_study_has_is_refused_before_anything_runs(
    tmp_path: Path,
) -> None:
    from ruamel.yaml import YAML

    policy = tmp_path / "policy.yaml"
    YAML().dump(
        study_with({"metric": METRIC, "at_most": 1}, {"metric": METRIC, "at_most_ln": -3}), policy
    )
    words = (
        r"requirements\[1\].at_most_ln \(line \d+\): expected a metric that measures a probability"
    )
    with pytest.raises(StudyError, match=words):
        check(policy, tmp_path / "none", progress=False)
    assert not (tmp_path / "none").exists()


def test_the_looks_are_json_and_are_read_again(tmp_path: Path) -> None:
    entries = (
        {"metric": METRIC, "explainer": "input_x_gradient", "better_than": "saliency"},
        {"metric": METRIC, "explainer": "saliency", "at_most": 1e-9, "mean": True},
    )
    study = study_with(*entries, samples=2, explainers=["saliency", "input_x_gradient"])
    first = check(study, tmp_path, progress=False)

    def refuse(name: str) -> None:
        raise AssertionError(name)

    (look,) = json.loads((tmp_path / "looks.json").read_text(), parse_constant=refuse)["looks"]
    assert look["decisions"][0]["estimate"]["low"] is None
    stored = read_decisions(load_results(tmp_path))
    assert stored is not None
    assert str(stored) == str(first)


PLACE = ("digits", "lenet", "saliency", "a <metric> | & more")
SOME = Decisions(
    (
        RequirementDecision(
            "median at least 0.6",
            *PLACE,
            "pass",
            "share of samples",
            IntervalEstimate(0.9, 0.7, 1, 0.96, 20),
            0.5,
            "higher",
        ),
        RequirementDecision(
            "mean at most 1",
            *PLACE,
            "fail",
            "mean of x",
            IntervalEstimate(3.0, 2.0, math.inf, 0.96, 20),
            1.0,
            "lower",
        ),
        RequirementDecision(
            "better than\x00random",
            *PLACE,
            "undecided",
            "rank correlation",
            None,
            0.0,
            "higher",
            advice="no sample",
        ),
    )
)


def test_formats() -> None:
    text, markdown = FORMATS["text"](SOME), FORMATS["markdown"](SOME)
    assert "FAIL: 1 passed, 1 failed, 1 undecided" in " ".join(text.split())
    assert "For means this is an approximation." in " ".join(text.split())
    assert "For means" not in FORMATS["text"](Decisions(SOME.decisions[:1]))
    assert len([line for line in markdown.splitlines() if line.startswith("| ")]) == 4
    suite = ET.fromstring(FORMATS["junit"](SOME))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("3", "1", "1")
    assert [case.find("failure") is not None for case in suite] == [False, True, False]
    content = json.loads(FORMATS["json"](SOME))
    assert content == json.loads(json.dumps(to_plain(SOME)))
    assert content["decisions"][1]["estimate"]["high"] is None
    assert (content["outcome"], content["exit_code"]) == ("fail", 1)


@pytest.mark.parametrize(
    ("outcomes", "failed", "code"),
    [
        (("pass", "pass"), 0, 0),
        (("pass", "undecided"), 0, 3),
        (("fail", "undecided"), 0, 1),
        (("pass",), 2, 2),
    ],
)
def test_exit_codes(outcomes: tuple[Any, ...], failed: int, code: int) -> None:
    decisions = tuple(
        RequirementDecision("a", *PLACE, outcome, "b", None, 0.0, "higher") for outcome in outcomes
    )
    assert Decisions(decisions, failed=failed).exit_code == code


def test_the_command(tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    policy = tmp_path / "policy.yaml"
    requirements = (
        {"metric": METRIC, "at_most": 1e9},
        {"metric": METRIC, "explainer": "saliency", "at_most": 1e-9},
    )
    YAML().dump(study_with(*requirements), policy)
    run = CliRunner().invoke
    out = ["--out", str(tmp_path / "results")]
    found = run(
        app, ["check", str(policy), *out, "--write", f"junit={tmp_path / 'new' / 'check.xml'}"]
    )
    assert found.exit_code == 1, found.output
    assert "PASS       input_x_gradient: max_sensitivity: median at most 1e+09" in found.output
    assert ET.parse(tmp_path / "new" / "check.xml").getroot()[0].get("failures") == "1"
    frozen = run(app, ["baseline", str(tmp_path / "results"), "--out", str(tmp_path / "base")])
    assert frozen.exit_code == 0
    YAML().dump(study_with({"no_worse_than": "base"}), policy)  # beside the policy
    assert run(app, ["check", str(policy), *out]).exit_code == 0
    with pytest.raises(ArgumentError, match="--write: expected FORMAT=FILE"):
        run(app, ["check", str(policy), "--write", "xml=a"], catch_exceptions=False)


def test_a_failed_job_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\n\ndef explain(module, inputs, targets):\n    raise RuntimeError('no')\n",
        encoding="utf-8",
    )
    own = {"own": {"function": "own:explain"}}
    study = study_from(
        {**study_with({"metric": METRIC, "at_most": 1.0}), "explainers": own}, tmp_path
    )
    found = check(study, tmp_path / "results", progress=False)
    assert (found.failed, found.exit_code) == (4, 2)
    assert "- own failed for 1 of 1 metric: module: failed on inputs" in FORMATS["markdown"](found)
    assert (
        "no sample was evaluated, because jobs failed: module: failed on inputs"
        in found.decisions[0].advice
    )
    assert read_decisions(load_results(tmp_path / "results")) == found


def test_commands_of_results_in_which_jobs_failed(tmp_path: Path) -> None:
    from ruamel.yaml import YAML

    (tmp_path / "own_in_command.py").write_text(
        "def explain(module, inputs, targets):\n    raise RuntimeError('no')\n"
    )
    policy, out = tmp_path / "policy.yaml", tmp_path / "results"
    own = {"own": {"function": "own_in_command:explain"}, "saliency": "saliency"}
    YAML().dump({**study_with({"metric": METRIC, "at_most": 1e9}), "explainers": own}, policy)
    run = CliRunner().invoke
    assert run(app, ["check", str(policy), "--out", str(out)]).exit_code == 2
    frozen = run(app, ["baseline", str(out), "--out", str(tmp_path / "base")])
    assert (frozen.exit_code, "4 failed" in frozen.stderr) == (0, True)
    for job in (out / "jobs").iterdir():
        job.unlink()
    for command in ("evidence", "baseline"):
        with pytest.raises(ArgumentError, match="results: expected results"):
            run(app, [command, str(out), "--out", str(tmp_path / command)], catch_exceptions=False)
        assert not (tmp_path / command).exists()


def test_an_explainer_that_a_metric_cannot_evaluate_is_named_and_needs_no_more_samples(
    tmp_path: Path,
) -> None:
    attack = {
        "attribution_attack": {"neighbourhood": {"linf": 0.02}, "k": 50, "steps": 1, "restarts": 1}
    }
    requirement = {"metric": "attribution_attack", "at_least": 0.0}
    study = study_with(
        requirement, metrics=[attack], explainers=["saliency", "occlusion"], samples=4
    )
    found = check(
        {**study, "samples": 8}, tmp_path, until_decided=True, most_samples=32, progress=False
    )
    outcomes = {each.explainer: each.outcome for each in found.decisions}
    assert outcomes == {"saliency": "pass", "occlusion": "undecided"}
    assert found.samples == 8
    assert "occlusion" in str(found)
    assert "no sample was evaluated, because the explainer cannot be differentiated" in " ".join(
        str(found).split()
    )


def test_editors_know_requirements() -> None:
    import jsonschema
    from ruamel.yaml import YAML

    from standfast.study.file.schema import json_schema

    validator = jsonschema.Draft202012Validator(json_schema())
    policy = YAML(typ="safe").load(Path(__file__).parents[2] / "examples" / "policy.yaml")
    assert list(validator.iter_errors(policy)) == []
    policy["requirements"] = [{"metric": METRIC, "explainer": ["saliency"], "at_lest": 1}]
    assert any("at_lest" in error.message for error in validator.iter_errors(policy))
