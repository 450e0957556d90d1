"""Sanity checks as jobs of a study: which there are, what makes their identity, and that they are gone on with."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import standfast
from conftest import small_net
from standfast.explainers import Edges, Explainer
from standfast.metrics import AOPC, MaxSensitivity, Metric, WorstCase
from standfast.metrics.sanity import RULES, SanityChecks, SanityResult, make_checks
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report import load_results
from standfast.study.file.spec import study_from
from standfast.study.forecast.trials import estimate_plan
from standfast.study.jobs import Job
from standfast.study.plan import make_plan
from standfast.study.run import run_grid
from standfast.study.store import Store

BALL = standfast.LinfBall(0.1)
STUDY: dict[str, Any] = {
    "samples": 6,
    "repeats": 2,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency", "gradcam", "edges"],
    "neighbourhood": {"linf": 0.1},
    "metrics": [{"worst_case": {"budget": 5}}, {"aopc": {"steps": 2}}],
}


def a_grid(
    metrics: dict[str, Metric] | None = None,
    labels: tuple[int, ...] | None = (0, 1, 2, 0, 1),
    samples: int = 100,
) -> Grid:
    torch.manual_seed(0)
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(5, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    extras = {} if labels is None else {"labels": torch.tensor(labels)}
    explainers: dict[str, Explainer] = {
        "grad": standfast.explainers.get("saliency"),
        "edges": Edges(),
    }
    measured = metrics or {"max": MaxSensitivity(BALL, samples=2)}
    return Grid(
        {"x": Samples(inputs, extras=extras)},
        {"m": LoadedModel(model)},
        explainers,
        measured,
        samples_per_job=1,
        controls=("edges",),
        sanity=make_checks(samples, measured),
    )


def list_checks(grid: Grid) -> list[Job]:
    return [job for job in make_plan(grid).jobs if job.label == SanityChecks.name]


def test_there_is_one_job_for_each_explainer_and_it_comes_first() -> None:
    jobs = make_plan(study_from(STUDY).grid()).jobs
    checks = jobs[:2]
    assert [(job.label, job.explainer, job.repeat, job.start, job.stop) for job in checks] == [
        ("sanity", "saliency", 0, 0, 6),
        ("sanity", "gradcam", 0, 0, 6),
    ]
    assert all(job.label != "sanity" for job in jobs[2:])
    without = make_plan(study_from({**STUDY, "sanity": False}).grid())
    assert without.jobs == jobs[2:]  # also the identities
    assert without.manifest["sanity"] is None


def test_no_more_samples_than_the_checks_take() -> None:
    (job,) = list_checks(a_grid(samples=3))
    assert (job.start, job.stop) == (0, 3)


def test_labels_and_what_compares_maps_make_the_identity() -> None:
    def identity(**changes: Any) -> str:
        (job,) = list_checks(a_grid(**changes))
        return job.identity

    def worst(**options: Any) -> dict[str, Metric]:
        return {"worst": WorstCase(BALL, budget=5, **options)}

    first = identity(metrics=worst())
    assert identity(metrics={**worst(), "aopc": AOPC(steps=2)}) == first
    others = [
        identity(metrics=worst(), labels=(0, 1, 2, 0, 2)),
        identity(metrics=worst(), labels=None),
        identity(metrics=worst(similarity="spearman")),
        identity(metrics=worst(absolute=False)),
        identity(metrics={**worst(), "more": MaxSensitivity(BALL, samples=2)}),
    ]
    assert len({first, *others}) == 1 + len(others)


def split_identities(grid: Grid) -> tuple[set[str], set[str]]:
    """Those of the checks, and those of all other jobs."""
    jobs = make_plan(grid).jobs
    checks = {job.identity for job in jobs if job.label == SanityChecks.name}
    return checks, {job.identity for job in jobs} - checks


@pytest.mark.parametrize("stored", [1, 2])
@pytest.mark.parametrize("normalise", [False, True])
def test_checks_of_other_rules_are_not_found_and_all_other_jobs_are(
    stored: int, normalise: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks of rules 1 are stored with a 2 where a metric divides by a norm."""
    grid = a_grid({"max": MaxSensitivity(BALL, samples=2, normalise=normalise)})
    checks, others = split_identities(grid)
    assert SanityChecks.version == RULES
    monkeypatch.setattr(SanityChecks, "version", stored)
    stored_checks, stored_others = split_identities(grid)
    assert not checks & stored_checks
    assert others == stored_others


def test_a_study_with_checks_of_older_rules_is_shown_and_its_checks_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = SanityResult.columns

    def leave_out_gains(result: SanityResult) -> dict[str, Any]:
        return {
            name: values
            for name, values in columns(result).items()
            if not name.startswith(("gain", "group"))
        }

    store = Store(tmp_path)
    with monkeypatch.context() as older:
        older.setattr(SanityChecks, "version", 1)
        older.setattr(SanityResult, "columns", leave_out_gains)
        run_grid(a_grid(), store)
    stored = load_results(store)
    assert not any(name.startswith("gain") for name in stored.sanity_rows.columns)
    (sanity,) = stored.sanity.values()
    assert "untested" not in {check.state for check in sanity.checks}
    assert "grad" in stored.to_html(tmp_path / "report.html").read_text()

    files = {file.name for file in (tmp_path / "jobs").iterdir()}
    run_grid(a_grid(), store)
    checks, _ = split_identities(a_grid())
    assert {file.name for file in (tmp_path / "jobs").iterdir()} - files == {
        f"{name}.parquet" for name in checks
    }
    assert "gain 0" in load_results(store).sanity_rows.columns


def test_labels_are_part_of_no_other_job() -> None:
    identities = [
        {job.identity for job in make_plan(replace(a_grid(labels=given), sanity=None)).jobs}
        for given in (None, (0, 1, 2, 0, 1))
    ]
    assert identities[0] == identities[1]


def test_checks_that_have_not_run_are_untested(tmp_path: Path) -> None:
    store = Store(tmp_path)
    run_grid(a_grid(), store)
    (job,) = list_checks(a_grid())
    (tmp_path / "jobs" / f"{job.identity}.parquet").unlink()
    found = load_results(store)
    (sanity,) = found.sanity.values()
    assert (sanity.state, {check.state for check in sanity.checks}) == ("undecided", {"untested"})
    assert {row.standing for row in found.summary.rows} == {None}


def test_their_rows_are_not_among_those_of_the_metrics(tmp_path: Path) -> None:
    run_grid(a_grid(), Store(tmp_path / "with"))
    run_grid(replace(a_grid(), sanity=None), Store(tmp_path / "without"))
    found, bare = load_results(tmp_path / "with"), load_results(tmp_path / "without")
    assert set(found.samples.columns) == set(bare.samples.columns)
    assert found.samples.select(bare.samples.columns).equals(bare.samples)
    assert list(found.metrics) == ["max"]
    assert set(found.sanity_rows["explainer"]) == {"grad"}
    assert found.sanity_rows["sample"].to_list() == [0, 1, 2, 3, 4]
    assert bare.sanity_rows.height == 0
    assert (list(found.sanity), bare.sanity) == ([("x", "m", "grad")], {})
    accuracy = found.summary.accuracies["x", "m"]
    samples, source = a_grid().data["x"], a_grid().models["m"]
    predicted = source.model(samples, "cpu").logits(samples.inputs).argmax(1)
    assert accuracy.value == float((predicted == torch.tensor([0, 1, 2, 0, 1])).double().mean())
    assert (accuracy.samples, accuracy.chance) == (5, 1 / 4)


def test_the_estimate_counts_them(tmp_path: Path) -> None:
    run_grid(a_grid(), Store(tmp_path))
    costs = estimate_plan(make_plan(a_grid()), set(), seconds=60)
    line = next(line for line in costs.lines if line.label == "sanity")
    assert line.evaluations == load_results(tmp_path).sanity_rows["model_evaluations"].sum()


def test_a_label_of_the_users_cannot_be_theirs() -> None:
    with pytest.raises(
        standfast.ArgumentError,
        match="metrics: expected labels other than that of the sanity checks",
    ):
        a_grid(metrics={"sanity": MaxSensitivity(BALL, samples=2)})
    model = standfast.Model(torch.nn.Linear(2, 2), (0.0, 1.0), device="cpu")
    with pytest.raises(
        standfast.ArgumentError, match="sanity: expected a whole number of at least 3, got 'no'"
    ):
        standfast.estimate(model, "saliency", torch.rand(3, 2), "aopc", sanity="no")  # type: ignore[arg-type]
