"""Evaluations with a limit of minutes: they end in time, say what they left out, and continue.

Most go by a simulated clock, on which only the models take time, so that their choices are those of every machine.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from simulated_clock import SimulatedClock, simulate_time, sleep
from torch import Tensor, nn

import standfast
from conftest import small_net
from standfast import evaluation
from standfast.report.step_lines import write_line
from standfast.study.file.spec import StudyError, study_from
from standfast.study.forecast import limited as limited_runs
from standfast.study.plan import make_plan
from standfast.study.run import run_grid

OPTIONS: dict[str, Any] = {"neighbourhood": standfast.LinfBall(0.1), "progress": False}
EXPLAINERS = ["saliency", "input_x_gradient"]
METRICS = ["worst_case", "max_sensitivity:samples=5"]
WORST = "worst_case: changed_explanation"


@pytest.fixture
def clock() -> Iterator[SimulatedClock]:
    with simulate_time() as simulated:
        yield simulated


class Slow(nn.Module):
    """Takes a millisecond for each row."""

    def __init__(self, seconds: float = 0.001) -> None:
        super().__init__()
        self.net = small_net((12,))
        self.seconds = seconds

    def forward(self, x: Tensor) -> Tensor:
        sleep(self.seconds * len(x))
        out: Tensor = self.net(x)
        return out


def make_model(seconds: float = 0.001) -> standfast.Model:
    return standfast.Model(Slow(seconds), (0.0, 1.0), device="cpu", batch_size=64)


def draw(count: int) -> Tensor:
    return torch.rand(count, 12, generator=torch.Generator().manual_seed(3))


def evaluate(
    model: standfast.Model, minutes: float | None, out: Path, count: int = 40, **more: Any
) -> Any:
    options = {**OPTIONS, **more}
    return standfast.evaluate(
        model, EXPLAINERS, draw(count), METRICS, minutes=minutes, out=out, **options
    )


def read_values(results: Any) -> pl.DataFrame:
    frame: pl.DataFrame = results.samples.select("explainer", "label", "sample", "value")
    return frame.sort("label", "explainer", "sample")


def test_a_limited_run_ends_in_time_and_says_what_it_left_out(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    """All of it would take some 40 x 9 x 5,000 ms."""
    began = clock.now
    results = evaluate(make_model(0.003), 0.2, tmp_path)
    assert clock.now - began < 12 + 0.5
    options = results.manifest["metrics"][WORST]["options"]
    assert options["budget"] in (20, 50, 100, 200, 500, 1000, 2000)
    # what was given stays
    assert results.manifest["metrics"]["max_sensitivity"]["options"]["samples"] == 5
    verdict = results.verdict()
    assert any(f"budget={options['budget']} instead of 5000" in part for part in verdict.left_out)
    assert verdict.minutes == 0.2
    assert "0.2 minutes allowed" in " ".join(str(results).split())
    done, whole = results.manifest["limit"]["samples"]["inputs"]
    assert whole == 40
    assert results.missing == 0
    assert results.samples.filter(pl.col("label") == WORST)["sample"].max() >= done - 1


@pytest.mark.usefixtures("clock")
def test_the_choice_is_stored_as_ordinary_options_with_the_same_bits(tmp_path: Path) -> None:
    limited = evaluate(make_model(0.003), 0.3, tmp_path / "limited")
    budget = limited.manifest["metrics"][WORST]["options"]["budget"]
    metrics = [f"worst_case:budget={budget}", "max_sensitivity:samples=5"]
    model = make_model(0.0)
    plain = standfast.evaluate(
        model, EXPLAINERS, draw(40), metrics, out=tmp_path / "plain", **OPTIONS
    )
    expected = read_values(plain).join(
        read_values(limited).select("explainer", "label", "sample"),
        on=["explainer", "label", "sample"],
    )
    assert len(expected) > 4
    assert read_values(limited).equals(expected.sort("label", "explainer", "sample"))


@pytest.mark.usefixtures("clock")
def test_the_same_call_continues_with_more_samples(tmp_path: Path) -> None:
    model = make_model(0.005)
    first = evaluate(model, 0.15, tmp_path)
    assert first.run.stopped
    before = read_values(first)
    rest = standfast.results.NextStep(
        "rest", ("saliency",), tuple(EXPLAINERS), seconds=60.0, samples=9, left=1
    )
    line = str(write_line(first, rest))
    assert line.startswith("standfast.evaluate(model, ['saliency', 'input_x_gradient'], inputs, ")
    assert "minutes=2" in line  # a minute more
    second = evaluate(model, 0.15, tmp_path)
    assert second.run.earlier >= before.select("label", "explainer").unique().height
    assert second.manifest["limit"]["settings"] == first.manifest["limit"]["settings"]
    counts = [results.manifest["limit"]["samples"]["inputs"][0] for results in (first, second)]
    assert counts[1] > counts[0]
    kept = read_values(second).join(
        before.select("explainer", "label", "sample"), on=["explainer", "label", "sample"]
    )
    assert kept.sort("label", "explainer", "sample").equals(before)


def test_a_run_without_a_limit_finds_the_jobs_of_a_limited_one(tmp_path: Path) -> None:
    given = {"metrics": ["worst_case:budget=20"]}
    limited = standfast.evaluate(
        make_model(0.0), EXPLAINERS, draw(12), **given, minutes=1, out=tmp_path, **OPTIONS
    )
    full = standfast.evaluate(
        make_model(0.0), EXPLAINERS, draw(12), **given, out=tmp_path, **OPTIONS
    )
    assert limited.manifest["limit"]["checked"] is None
    assert full.run.earlier == limited.run.done
    assert full.missing == 0
    assert "limit" not in full.manifest


def test_with_time_to_spare_everything_is_done_and_nothing_said(tmp_path: Path) -> None:
    began = time.monotonic()
    metrics = ["max_sensitivity:samples=5"]
    results = standfast.evaluate(
        make_model(0.0), "saliency", draw(4), metrics, minutes=2, out=tmp_path, **OPTIONS
    )
    assert time.monotonic() - began < 60
    assert results.verdict().left_out == ()
    assert not results.run.stopped
    assert results.summary.samples == {"inputs": 4}


@pytest.mark.usefixtures("clock")
def test_time_that_is_left_raises_the_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first forecast is that of a model that is slow at first."""
    model = make_model(0.01)
    budgets: list[int] = []

    def speed_up(grid: Any, estimate: Any, choice: Any) -> None:
        if isinstance(choice, str):  # nothing is added, and why
            return
        budgets.append(choice.settings.get(WORST, {"budget": 5000})["budget"])
        model.module.seconds = 0.001  # type: ignore[assignment]

    monkeypatch.setattr(evaluation, "_print_choice", speed_up)
    options = {"sanity": False, "neighbourhood": standfast.LinfBall(0.1)}
    results = standfast.evaluate(
        model, "saliency", draw(6), ["worst_case"], minutes=1, out=tmp_path, **options
    )
    assert len(budgets) > 1
    assert budgets == sorted(set(budgets))
    options = results.manifest["metrics"][WORST]["options"]
    assert options["budget"] in budgets[-2:]
    assert results.manifest["limit"]["samples"]["inputs"] == [6, 6]


@pytest.mark.usefixtures("clock")
def test_too_few_minutes_are_refused_before_anything_is_stored(tmp_path: Path) -> None:
    with pytest.raises(standfast.ArgumentError, match="minutes: expected at least about"):
        standfast.evaluate(
            make_model(0.2),
            "saliency",
            draw(4),
            ["worst_case:budget=2000"],
            minutes=0.05,
            out=tmp_path,
            **OPTIONS,
        )
    for wrong in (0, -3, float("nan")):
        with pytest.raises(standfast.ArgumentError, match="minutes: expected a number above 0"):
            evaluate(make_model(), wrong, tmp_path)


@pytest.mark.slow
def test_two_workers_end_in_time(tmp_path: Path) -> None:
    began = time.monotonic()
    results = evaluate(make_model(0.003), 1, tmp_path, workers=2)
    assert time.monotonic() - began < 60 + 20
    assert results.samples.height > 0
    assert not results.failures


def test_a_run_is_stopped_in_time_and_leaves_the_model_as_it_was(tmp_path: Path) -> None:
    """By a clock that is not simulated."""
    model = make_model()
    model.module.train()
    began = time.monotonic()
    assert evaluate(model, 0.03, tmp_path).run.stopped
    assert time.monotonic() - began < 1.8 + 8
    assert model.module.training
    assert all(parameter.requires_grad for parameter in model.module.parameters())
    assert not any(
        each._forward_hooks or each._forward_pre_hooks for each in model.module.modules()
    )


def study(**more: Any) -> dict[str, Any]:
    return {
        "data": {"digits": "digits"},
        "samples": 6,
        "models": {"lenet": "lenet5-mnist"},
        "neighbourhood": {"linf": 0.1},
        "explainers": ["saliency"],
        "metrics": [{"worst_case": {}}, {"aopc": {"samples": 1}}],
        **more,
    }


@pytest.mark.usefixtures("clock")
def test_studies_have_minutes_and_can_be_made_again_from_what_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forward = standfast.Model.forward

    def forward_slowly(model: standfast.Model, x: Tensor) -> Tensor:
        sleep(0.01 * len(x))
        return forward(model, x)

    monkeypatch.setattr(standfast.Model, "forward", forward_slowly)
    limited = standfast.run_study(study(minutes=1), tmp_path, progress=False)
    assert limited.manifest["limit"]["minutes"] == 1
    assert limited.manifest["metrics"]["aopc"]["options"]["samples"] == 1
    stored = limited.manifest["study"]
    assert "minutes" not in stored
    budget = limited.manifest["metrics"][WORST]["options"]["budget"]
    assert stored["metrics"][WORST]["worst_case"]["budget"] == budget
    again = make_plan(study_from(stored).grid(), None, limited.manifest)
    assert set(limited.manifest["jobs"]) <= {job.identity for job in again.jobs}


def test_a_preset_in_a_study_is_given(tmp_path: Path) -> None:
    assert study_from(study()).grid().free.ladders
    assert not study_from(study(preset="standard")).grid().free.ladders
    own = [{"worst_case": {"preset": "quick"}}, {"aopc": {"samples": 1}}]
    assert list(study_from(study(metrics=own)).grid().free.ladders) == ["aopc"]


@pytest.mark.parametrize("minutes", [0, -1, float("nan"), "ten"])
def test_wrong_minutes_in_a_study(minutes: Any) -> None:
    with pytest.raises(StudyError, match="minutes: expected"):
        study_from(study(minutes=minutes))


def test_no_limit_while_samples_are_added_until_it_is_decided() -> None:
    checked = study(minutes=1, requirements=[{"metric": "aopc", "at_least": 0}])
    with pytest.raises(
        standfast.ArgumentError, match="until_decided: expected False with a time limit"
    ):
        standfast.check(checked, out="memory://limited", until_decided=True, progress=False)


def test_images_are_also_moved_half_as_far_where_there_is_time(tmp_path: Path) -> None:
    """By 8/255 of the range without being asked, and by 4/255 beside it; from Python and from a file."""
    digits = standfast.data.bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    metrics = ["max_sensitivity:samples=3"]
    options: dict[str, Any] = {"sanity": False, "controls": False, "progress": False}
    limited = standfast.evaluate(
        model, "saliency", digits.inputs, metrics, minutes=1, out=tmp_path / "a", **options
    )
    radii = {
        label: metric["options"]["neighbourhood"]["radius"]
        for label, metric in limited.manifest["metrics"].items()
    }
    assert sorted(radii.values()) == pytest.approx([4 / 255, 8 / 255])
    plain = standfast.evaluate(
        model, "saliency", digits.inputs, metrics, out=tmp_path / "b", **options
    )
    assert list(plain.manifest["metrics"]) == ["max_sensitivity"]
    assert radii["max_sensitivity"] == pytest.approx(8 / 255)
    shared = set(plain.manifest["jobs"]) & set(limited.manifest["jobs"])
    assert shared == set(plain.manifest["jobs"])
    content = {
        "data": {"digits": "digits"},
        "samples": 2,
        "models": {"lenet": "lenet5-mnist"},
        "explainers": ["saliency"],
        "metrics": [{"max_sensitivity": {"samples": 3}}],
        "sanity": False,
        "controls": False,
    }
    from_file = standfast.run_study({**content, "minutes": 1}, tmp_path / "c", progress=False)
    assert sorted(from_file.manifest["metrics"]) == sorted(radii)
    stored = study_from(from_file.manifest["study"])
    again = make_plan(stored.grid(), None, from_file.manifest)
    assert {job.identity for job in again.jobs} == set(from_file.manifest["jobs"])


def test_two_samples_have_their_checks_in_a_limited_time_too(tmp_path: Path) -> None:
    digits = standfast.data.bundled("digits")[:2]
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    results = standfast.evaluate(
        model,
        "saliency",
        digits,
        ["aopc"],
        minutes=0.5,
        controls=False,
        out=tmp_path,
        progress=False,
    )
    assert results.sanity["digits", "LeNet5", "saliency"].state == "undecided"
    assert results.verdict().left_out == ()


@pytest.mark.usefixtures("clock")
def test_the_same_call_says_why_it_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All samples are done with the cheapest settings, and no higher ones fit."""
    options: dict[str, Any] = {
        "neighbourhood": standfast.LinfBall(0.1),
        "sanity": False,
        "controls": False,
    }
    for _ in range(2):
        results = standfast.evaluate(
            make_model(0.004),
            "saliency",
            draw(2),
            ["worst_case"],
            minutes=0.3,
            out=tmp_path,
            **options,
        )
    assert results.manifest["limit"]["samples"]["inputs"] == [2, 2]
    assert not results.run.stopped
    assert "give more minutes" in capsys.readouterr().err


def test_an_explainer_that_does_not_end_takes_no_results_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: SimulatedClock
) -> None:
    """It is as quick as the other one in trials, and then takes longer than all of the time."""
    is_running = False

    def hang(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        while is_running:
            sleep(0.1)
        return inputs

    def run_slowly(*arguments: Any, **options: Any) -> Any:
        nonlocal is_running
        is_running = True
        return run_grid(*arguments, **options)

    monkeypatch.setattr(limited_runs, "run_grid", run_slowly)
    began = clock.now
    explainers = {"saliency": "saliency", "hanging": hang}
    options = {**OPTIONS, "sanity": False, "controls": False}
    results = standfast.evaluate(
        make_model(),
        explainers,
        draw(8),
        ["max_sensitivity:samples=50"],
        minutes=0.25,
        out=tmp_path,
        **options,
    )
    assert clock.now - began < 15 + 0.5
    assert results.manifest["limit"]["samples"]["inputs"][0] >= 1
    assert results.missing == 0
    assert results.samples["explainer"].unique().to_list() == ["saliency"]
    words = "no max_sensitivity of hanging, of which not one sample fits into the time"
    assert words in results.verdict().left_out
    assert words in " ".join(str(results).split())


@pytest.mark.usefixtures("clock")
def test_what_a_run_without_a_limit_has_done_is_not_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the forecast is rough, and first jobs would be done first."""
    options = {**OPTIONS, "sanity": False, "controls": False, "out": tmp_path}
    metrics = ["max_sensitivity:samples=5"]
    standfast.evaluate(make_model(), EXPLAINERS, draw(4), metrics, **options)
    monkeypatch.setattr(limited_runs, "is_rough", lambda estimate: True)
    again = standfast.evaluate(make_model(), EXPLAINERS, draw(4), metrics, minutes=1, **options)
    assert again.run.done == 0
    assert again.manifest["limit"]["samples"]["inputs"] == [4, 4]


@pytest.mark.usefixtures("clock")
def test_first_jobs_count_as_work_that_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(limited_runs, "is_rough", lambda estimate: True)
    monkeypatch.setattr(
        evaluation, "_print_choice", lambda grid, estimate, choice: told.append(choice)
    )
    options = {**OPTIONS, "progress": True, "sanity": False, "controls": False, "out": tmp_path}
    results = standfast.evaluate(
        make_model(),
        EXPLAINERS,
        draw(4),
        ["max_sensitivity:samples=5"],
        minutes=1,
        samples_per_job=1,
        **options,
    )
    assert len(told) == 2
    assert results.run.done == 8
    assert results.manifest["limit"]["samples"]["inputs"] == [4, 4]
    assert results.missing == 0
