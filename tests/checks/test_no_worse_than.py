"""Not worse than a baseline: a question of its own, which an unchanged network passes, and a damaged one does not."""

from __future__ import annotations

import dataclasses
import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import standfast
from standfast.checks import (
    Decisions,
    RequirementDecision,
    check,
    decide_requirements,
    freeze_baseline,
)
from standfast.checks.case import NOTHING_FROZEN
from standfast.checks.sanity import compare_sanity
from standfast.checks.sequence import confirm_decisions, read_decisions
from standfast.report import Results, load_results
from standfast.results.sanity import Check, CheckState, Sanity
from standfast.study.file.entries import RequirementEntry

DAMAGE = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "reliability" / "damage.py"))
SENSITIVITY = {"max_sensitivity": {"neighbourhood": {"linf": 0.05}, "samples": 3}}
#: with so few draws, and no hit, each value is only a bound
RARE = {
    "misinterpretation_probability": {
        "neighbourhood": {"linf": 0.01},
        "method": "monte_carlo",
        "samples": 20,
    }
}
STUDY: dict[str, Any] = {
    "samples": 10,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "gradcam"],
    "metrics": [SENSITIVITY],
    "controls": False,
}


def freeze(results: Results, folder: Path) -> str:
    """A baseline of results of which something can never pass, which it says."""
    with pytest.warns(UserWarning, match="sanity check|values of"):
        return str(freeze_baseline(results, folder))


def decide(results: Any, base: str, **options: Any) -> list[RequirementDecision]:
    entry = RequirementEntry(no_worse_than=base, **options)
    return list(decide_requirements(results, [entry]).decisions)


def change(base: str, edit: Callable[[dict[str, Any]], Any]) -> None:
    """Edit what a baseline says of its study."""
    path = Path(base) / "baseline.json"
    about = json.loads(path.read_text())
    edit(about)
    path.write_text(json.dumps(about))


@pytest.fixture(scope="module")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Ten samples, on which the sanity checks of both explainers are not decided."""
    folder = tmp_path_factory.mktemp("checked")
    standfast.run_study(STUDY, folder, progress=False)
    return load_results(folder)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("numbers")
    standfast.run_study({**STUDY, "sanity": False}, folder, progress=False)
    return load_results(folder)


def test_checks_that_are_left_out_earn_nothing(
    numbers: Results, checked: Results, tmp_path: Path
) -> None:
    """A baseline in which a check was passed asks for it; one without checks does not."""
    base = freeze(checked, tmp_path / "base")
    assert any(
        check.state == "passed" for sanity in checked.sanity.values() for check in sanity.checks
    )
    assert {decision.outcome for decision in decide(numbers, base)} == {"undecided"}
    change(base, lambda about: about.pop("checks"))
    assert {decision.outcome for decision in decide(numbers, base)} == {"pass"}


def test_an_undecided_check_is_compared_with_that_of_the_baseline(
    checked: Results, tmp_path: Path
) -> None:
    """It keeps an explainer from meeting a limit, and not from being as it was."""
    assert {sanity.state for sanity in checked.sanity.values()} == {"undecided"}
    base = freeze(checked, tmp_path / "base")
    study = {
        **STUDY,
        "requirements": [{"no_worse_than": base}, {"metric": "max_sensitivity", "at_most": 1e9}],
    }
    found = check(study, tmp_path / "results", progress=False)
    assert [each.outcome for each in found.decisions] == ["pass", "pass", "undecided", "undecided"]
    assert (
        "not worse, but not shown to be good: as in the baseline, a sanity check is not passed"
        in " ".join(str(found).split())
    )
    assert read_decisions(load_results(tmp_path / "results")) == found
    assert confirm_decisions(load_results(tmp_path / "results")).different == ()


def test_a_baseline_without_checks_says_so(checked: Results, tmp_path: Path) -> None:
    """Of an earlier version, or of other rules: the explainer has to pass them, as before."""
    base = freeze(checked, tmp_path / "base")
    for edit in (lambda about: about.pop("checks"), lambda about: about["sanity"].update(rules=1)):
        change(base, edit)
        (first, _) = decide(checked, base)
        assert (first.outcome, first.baseline_sanity) == ("undecided", None)
        assert "the baseline has no such checks to compare with: freeze it again" in " ".join(
            str(Decisions((first,))).split()
        )


def test_a_failed_check_fails_although_the_numbers_are_undecided(
    checked: Results, tmp_path: Path
) -> None:
    """One failure that is certain is enough."""
    base = freeze(checked, tmp_path / "base")
    passed = dataclasses.asdict(Check("learned", "passed", 0.99, 0.98, 1.0, 10))

    def say_passed(about: dict[str, Any]) -> None:
        for stored in about["checks"]["digits"]["lenet"].values():
            stored["checks"] = [passed]

    change(base, say_passed)
    by_name = {each.explainer: each for each in decide(checked, base, share_of_samples=0.9)}
    learned = checked.sanity["digits", "lenet", "gradcam"].find("learned")
    assert learned.high is not None
    assert learned.high < 0.98
    assert by_name["gradcam"].estimate.decide(0.9, "higher") == "undecided"  # type: ignore[union-attr]
    assert by_name["gradcam"].outcome == "fail"
    assert "a sanity check is worse than in the baseline" in " ".join(
        str(Decisions((by_name["gradcam"],))).split()
    )


@pytest.mark.parametrize(
    ("then", "now", "outcome"),
    [
        ("passed", "passed", "pass"),
        ("passed", "failed", "fail"),
        ("passed", "undecided", "undecided"),
        ("passed", "untested", "undecided"),
        ("passed", "exempt", "pass"),
        ("exempt", "failed", "fail"),
        ("remark", "failed", "fail"),
        ("undecided", "undecided", "pass"),
        ("undecided", "untested", "pass"),
        ("undecided", "passed", "pass"),
        ("undecided", "failed", "undecided"),
        ("failed", "failed", "pass"),
        ("failed", "undecided", "pass"),
        ("failed", "passed", "pass"),
    ],
)
def test_each_check_stands_where_it_stood(then: CheckState, now: CheckState, outcome: str) -> None:
    """Of intervals that overlap; those of passed and failed never do."""
    earlier, later = (
        Sanity((Check("learned", state, 0.6, 0.4, 0.8, 20),)) for state in (then, now)
    )
    assert compare_sanity(later, earlier)[1] == outcome


@pytest.mark.parametrize(("question", "better"), [("learned", 1), ("model", -1)])
def test_a_check_that_fell_is_worse_where_its_intervals_are_apart(
    question: Any, better: int
) -> None:
    high, low = (0.9, 0.8, 1.0), (0.3, 0.2, 0.4)
    earlier, later = (high, low) if better > 0 else (low, high)
    before = Sanity((Check(question, "passed", *earlier, 20),))
    after = Sanity((Check(question, "undecided", *later, 20),))
    assert compare_sanity(after, before)[1] == "fail"
    swapped = Sanity((Check(question, "undecided", *earlier, 20),))
    assert (
        compare_sanity(swapped, Sanity((Check(question, "passed", *later, 20),)))[1] == "undecided"
    )


def test_the_mean_of_no_change_at_all_is_0(numbers: Results, tmp_path: Path) -> None:
    """Of the same network that is certain; of another one equal values say nothing of how values differ."""
    base = str(freeze_baseline(numbers, tmp_path / "base"))
    assert {each.outcome for each in decide(numbers, base, mean=True)} == {"pass"}
    change(base, lambda about: about["models"]["lenet"].update(network="other"))
    assert {each.outcome for each in decide(numbers, base, mean=True)} == {"undecided"}


def test_the_same_bounds_of_the_same_network_are_no_difference(tmp_path: Path) -> None:
    """The difference of two bounds is not known, but a network does not differ from itself."""
    standfast.run_study(
        {**STUDY, "metrics": [RARE], "sanity": False}, tmp_path / "results", progress=False
    )
    results = load_results(tmp_path / "results")
    with pytest.warns(
        UserWarning, match="so that only the same model can pass|half of the intervals are wider"
    ):
        base = str(freeze_baseline(results, tmp_path / "base"))
    same = decide(results, base)
    assert {(each.outcome, each.unknown) for each in same} == {("pass", 0)}
    change(base, lambda about: about["models"]["lenet"].update(network="other"))
    other = decide(results, base)
    assert {each.outcome for each in other} == {"undecided"}
    assert all(each.unknown > 0 for each in other)


def lose(results: Results, samples: int, status: str) -> Results:
    """Results in which the first samples cannot be evaluated."""
    is_lost = pl.col("sample") < samples
    frame = results.samples.with_columns(
        pl.when(is_lost).then(pl.lit(status)).otherwise(pl.col("status")).alias("status"),
        pl.when(is_lost).then(None).otherwise(pl.col("value")).alias("value"),
    )
    return dataclasses.replace(results, samples=frame)


@pytest.mark.parametrize("status", ["misclassified", "degenerate", "nonfinite", "no_answer"])
def test_samples_that_are_lost_count_as_worse(
    numbers: Results, status: str, tmp_path: Path
) -> None:
    """A network that loses the samples on which it was explained would otherwise be undecided for ever."""
    base = str(freeze_baseline(numbers, tmp_path / "base"))
    for lost, outcome in ((1, "pass"), (5, "undecided"), (10, "fail")):
        (decision,) = decide(lose(numbers, lost, status), base, explainer="saliency")
        assert (decision.outcome, decision.lost, decision.skipped) == (outcome, lost, 0)
        assert f"{lost} sample" in str(Decisions((decision,)))
    before = freeze(lose(numbers, 4, status), tmp_path / "before")
    # what is new is not compared
    assert {(each.lost, each.skipped) for each in decide(numbers, before)} == {(0, 4)}
    assert {(each.lost, each.skipped) for each in decide(lose(numbers, 4, status), before)} == {
        (0, 4)
    }


def test_what_a_metric_never_could_evaluate_is_not_asked_of_all_explainers(tmp_path: Path) -> None:
    attack = {
        "attribution_attack": {"neighbourhood": {"linf": 0.02}, "k": 50, "steps": 1, "restarts": 1}
    }
    study = {
        **STUDY,
        "metrics": [attack],
        "explainers": ["saliency", "occlusion:window=14"],
        "sanity": False,
    }
    standfast.run_study(study, tmp_path / "results", progress=False)
    results = load_results(tmp_path / "results")
    base = str(freeze_baseline(results, tmp_path / "base"))
    assert [(each.explainer, each.outcome) for each in decide(results, base)] == [
        ("saliency", "pass")
    ]
    (named,) = decide(results, base, explainer="occlusion")
    assert named.outcome == "undecided"
    assert named.advice == NOTHING_FROZEN


def list_obstacles(results: Results, folder: Path) -> list[str]:
    with pytest.warns(UserWarning, match="lenet on digits") as told:
        freeze_baseline(results, folder)
    return [str(each.message) for each in told]


def list_named(sentence: str) -> list[str]:
    """The explainers that a sentence is about."""
    return re.findall(r"max_sensitivity of (\w+) \(lenet on digits\)", sentence)


def list_numbers(sentence: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", sentence)]


def test_a_baseline_says_at_once_what_can_never_pass(
    checked: Results, numbers: Results, tmp_path: Path
) -> None:
    few = list_obstacles(lose(numbers, 5, "misclassified"), tmp_path / "few")
    assert [list_named(sentence) for sentence in few] == [["saliency", "gradcam"]]
    assert list_numbers(few[0]) == [5, 6]  # samples, and how many a comparison needs
    alone = list_obstacles(lose(numbers, 4, "misclassified"), tmp_path / "alone")
    # samples; explainers together, what they need; what one alone needs
    assert list_numbers(alone[0]) == [
        6,
        2,
        7,
        6,
    ]
    is_first = pl.col("explainer") == "saliency"
    constant = numbers.samples.with_columns(
        pl.when(is_first).then(pl.lit("degenerate")).otherwise(pl.col("status")).alias("status")
    )
    missing = list_obstacles(dataclasses.replace(numbers, samples=constant), tmp_path / "missing")
    assert [(list_named(sentence), list_numbers(sentence)) for sentence in missing] == [
        (["saliency"], [10])
    ]
    (nothing, _) = decide(numbers, str(tmp_path / "missing"))
    assert (nothing.outcome, nothing.estimate) == ("undecided", None)
    insane = list_obstacles(checked, tmp_path / "insane")
    assert [sentence.split()[0] for sentence in insane] == ["saliency", "gradcam"]
    assert all("sanity check" in sentence for sentence in insane)


@pytest.mark.parametrize(("decisions", "fewest"), [(1, 6), (2, 7), (20, 10)])
def test_so_few_samples_pass(decisions: int, fewest: int) -> None:
    """All samples are no worse: half of them are, if one half to the power of n is at most the allowed error."""
    from standfast.checks.obstacles import count_fewest

    error = 0.05 * 0.8 / 2 / decisions
    assert count_fewest(decisions) == fewest
    assert 0.5**fewest <= error < 0.5 ** (fewest - 1)


def run_again(folder: Path, seed: int, new_seed: int, sanity: bool) -> Decisions:
    """Freeze a study with one seed, and check the same network with another."""
    study = {**STUDY, "sanity": sanity}
    results = folder / f"results-{seed}"
    standfast.run_study({**study, "seed": seed}, results, progress=False)
    base = folder / f"base-{seed}"
    if sanity:
        freeze(load_results(results), base)
    else:
        freeze_baseline(results, base)
    requirements = [{"no_worse_than": str(base)}, {"no_worse_than": str(base), "mean": True}]
    again = {**study, "seed": new_seed, "requirements": requirements}
    return check(again, folder / f"again-{seed}", progress=False)


def test_an_unchanged_network_passes(tmp_path: Path) -> None:
    """Two of the 50 repeats of the long test."""
    assert run_again(tmp_path, 0, 0, sanity=False).outcome == "pass"
    assert run_again(tmp_path / "checked", 3, 3, sanity=True).outcome == "pass"


@pytest.mark.slow
def test_an_unchanged_network_passes_in_50_of_50_repeats(tmp_path: Path) -> None:
    assert [run_again(tmp_path, seed, seed, sanity=True).outcome for seed in range(50)] == [
        "pass"
    ] * 50


def test_new_seeds_are_no_alarm(tmp_path: Path) -> None:
    """As in the 400 runs of the long test, whose measures take longer."""
    outcomes = [run_again(tmp_path, seed, seed + 100, sanity=False).outcome for seed in range(2)]
    assert "fail" not in outcomes


@pytest.mark.slow
def test_new_seeds_raise_at_most_the_stated_alarms(tmp_path: Path) -> None:
    """The check holds at 95%, so of 400 runs on the same network at most 20 fail."""
    gate = DAMAGE["Gate"](tmp_path, quick=True)
    assert DAMAGE["count_outcomes"](gate, 0.0, 400, 24)["fail"] <= 0.05 * 400


def test_a_network_with_noise_on_all_weights_is_noticed(tmp_path: Path) -> None:
    assert DAMAGE["Gate"](tmp_path, False, quick=True).check(1.0, 0, 24).outcome == "fail"
