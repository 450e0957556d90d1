"""Verification: what was submitted is evaluated again, and only what is trusted is run."""

from __future__ import annotations

import copy
import json
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from board_study import STUDY, run
from ruamel.yaml import YAML
from scipy import stats
from submission_builder import change, seal

import standfast
from standfast import ArgumentError
from standfast_board import BoardSite, Verification, build_site, make_submission, verify_submission
from standfast_board.submission import parse_submission
from standfast_board.verification import find_foreign

OWN = """from pathlib import Path
from torch import nn
import torch

Path(__file__).with_name("was-run").touch()


def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
"""


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("results")
    run(folder)
    loaded: dict[str, Any] = json.loads(make_submission(folder, folder / "a.json").content)
    return loaded


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """With one job of each explainer and metric, and no others."""
    folder = tmp_path_factory.mktemp("small")
    run(folder, samples=3, sanity=False)
    loaded: dict[str, Any] = json.loads(make_submission(folder, folder / "a.json").content)
    return loaded


def verify(content: dict[str, Any], jobs: int = 14, **options: Any) -> Verification:
    return verify_submission(parse_submission(seal(content)), jobs, **options)


def test_all_jobs_agree_with_the_same_bits(content: dict[str, Any]) -> None:
    lines: list[str] = []
    found = verify(content, tell=lines.append)
    assert (found.state, found.done, found.share) == ("verified", 14, 0.0)
    assert list(found.jobs.values()) == ["same bits"] * 14
    assert len(lines) == 14
    assert found.text.startswith(
        "Verified: 14 of 14 jobs, drawn at random, were evaluated again: 14 same bits."
    )
    some = verify(content, 2, seed=found.seed)
    assert len(some.jobs) == 2
    assert some.share == 10 / 14
    assert "With 95% confidence at most 72% of its jobs differ." in some.text
    assert verify(content, 2, seed=found.seed).jobs == some.jobs


def at_job(label: str, edit: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def change(content: dict[str, Any]) -> None:
        edit(next(job for job in content["jobs"] if job["label"] == label))

    return change


def scale(values: list[Any], factor: float) -> None:
    values[:] = [None if value is None else value * factor for value in values]


def hide_flag(content: dict[str, Any]) -> None:
    """Submit a corruption curve without its column of maps that have no positive relevance."""
    del content["columns"]["corruption_curve"]["positive"]
    for job in content["jobs"]:
        job["values"].pop("positive", None)


def hide_the_type_of_a_flag(content: dict[str, Any]) -> None:
    """Submit a flag as numbers, and as its opposite."""
    content["columns"]["corruption_curve"]["no_positive"] = "Int8"
    for job in content["jobs"]:
        if job["label"] == "corruption_curve":
            job["values"]["no_positive"] = [1 - value for value in job["values"]["no_positive"]]


def widen(job: dict[str, Any]) -> None:
    """An interval that any number lies in, around another number."""
    values = job["values"]
    values["low"], values["high"] = [-9.0] * 3, [9.0] * 3
    scale(values["value"], 1.5)


@pytest.mark.parametrize(
    "edit",
    [
        at_job("max_sensitivity", lambda job: scale(job["values"]["value"], 0.9)),
        at_job("corruption_curve", lambda job: scale(job["arrays"]["drop_top"]["values"], 0.9)),
        at_job(
            "max_sensitivity", lambda job: job["values"].update(status=["ok", "degenerate", "ok"])
        ),
        at_job("max_sensitivity", widen),
        hide_flag,
        hide_the_type_of_a_flag,
    ],
)
def test_other_numbers_are_found(
    small: dict[str, Any], edit: Callable[[dict[str, Any]], None]
) -> None:
    changed = copy.deepcopy(small)
    edit(changed)
    found = verify(changed, 6)
    assert found.state == "differs"
    assert "different" in found.text
    assert found.share == 1.0


def swap(content: dict[str, Any]) -> None:
    """Give the numbers of one explainer to another."""
    names = {"saliency": "input_x_gradient", "input_x_gradient": "saliency"}
    for job in content["jobs"]:
        job["explainer"] = names.get(job["explainer"], job["explainer"])


def add_job(content: dict[str, Any]) -> None:
    """Add an explainer that the study does not have."""
    content["manifest"]["explainers"]["better"] = {"name": "lrp"}
    own = [
        job
        for job in content["jobs"]
        if (job["label"], job["explainer"]) == ("max_sensitivity", "saliency")
    ]
    content["jobs"] += [
        {**job, "explainer": "better", "job": f"{at:016x}"} for at, job in enumerate(own)
    ]
    content["planned"] += 2


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (swap, "jobs are not jobs of the study here"),
        (add_job, "explainers 'better': other options"),
        (change("manifest.metrics.max_sensitivity.options.samples", 50), "other options"),
        (change("manifest.models.lenet.digest", "0" * 16), "models 'lenet': other values"),
        (change("manifest.models.lenet.network", "0" * 16), "models 'lenet': another network"),
        (
            change("manifest.data.digits.bounds", [[0.0, 0.0], [2.0, 2.0]]),
            "data 'digits': another bounds",
        ),
        (change("manifest.data.digits.targets", "given"), "data 'digits': another targets"),
        (change("manifest.seed", 1), "seed: 0 here"),
        (change("manifest.study.data", {"digits": "mnist:nowhere"}), "cannot be evaluated here"),
        (change("manifest.study", {}), "not of a study file"),
    ],
)
def test_what_cannot_be_compared_is_not_verified(
    content: dict[str, Any], edit: Callable[[dict[str, Any]], None], reason: str
) -> None:
    changed = copy.deepcopy(content)
    edit(changed)
    found = verify(changed, 1)
    assert found.state == "not verified"
    assert reason in found.text


def test_functions_are_run_only_if_the_submission_is_trusted(tmp_path: Path) -> None:
    (tmp_path / "own_of_board.py").write_text(OWN)
    metric = {"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 2}}
    study = {**STUDY, "models": {"own": {"function": "own_of_board:model"}}, "metrics": [metric]}
    YAML().dump(study, tmp_path / "study.yaml")
    standfast.run_study(tmp_path / "study.yaml", tmp_path / "results", progress=False)
    made = make_submission(tmp_path / "results", tmp_path / "in.json")
    ran = tmp_path / "was-run"
    assert ran.exists()
    ran.unlink()
    del sys.modules["own_of_board"]

    def build(*trusted: str) -> BoardSite:
        return build_site(
            [tmp_path / "in.json"], tmp_path / "site", verify=1, base=tmp_path, trusted=trusted
        )

    for wrong in ("", "zz", made.digest[:15]):
        with pytest.raises(
            ArgumentError, match="trusted: expected a digest, or its first 16 digits or more, got"
        ):
            build(wrong)
        with pytest.raises(
            ArgumentError, match="trusted: expected a digest, or its first 16 digits or more, got"
        ):
            verify_submission(made, 1, tmp_path, [wrong])
    with pytest.warns(
        UserWarning, match=f"trusted: {'0' * 16} is the digest of none of these submissions"
    ):
        site = build("0" * 16)
    (state,) = site.states.values()
    assert state.state == "not verified"
    assert "is run only if the submission is trusted (own_of_board:model)" in state.text
    assert not ran.exists()
    site = build(made.digest[:16])
    (state,) = site.states.values()
    assert state.state == "verified"
    assert ran.exists()
    again = build()
    assert again.states == site.states  # nothing was evaluated once more, and nothing was trusted
    page = next((tmp_path / "site" / "submissions").glob("*.html")).read_text()
    assert f"Drawn with seed {state.seed}" in page


@pytest.mark.parametrize(
    ("study", "names"),
    [
        ({"data": {"a": "mnist:test", "b": {"ucr:GunPoint:test": {}}}, "title": "a:b"}, []),
        ({"data": {"a": {"huggingface:o/n:test": {}}}}, ["huggingface:o/n:test"]),
        ({"data": {"a": {"function": "os:system", "options": {"command": "rm"}}}}, ["os:system"]),
        ({"data": {"a": {"mnist:test": {"download": True}}}}, ["download: True"]),
        ({"models": {"m": {"path": "m.pt2", "trust": True}}}, ["trust: True"]),
        ({"models": {"m": {"timm:vit": {}}}}, ["timm:vit"]),
        ({"models": {"m": {"x": {"preprocess": "own:scale"}}}}, ["own:scale"]),
        ({"data": {"a": {"function": "ucr:load"}}}, ["ucr:load"]),
        (
            {"explainers": [{"captum:Saliency": {}}, "randomised:saliency"]},
            ["captum:Saliency", "randomised:saliency"],
        ),
        ({"explainers": {"a": {"randomised": {"explainer": {"function": "own:e"}}}}}, ["own:e"]),
        ({"metrics": {"worst case: here": {"worst_case": {}}}}, []),
        ({"metrics": [{"quantus:Sparseness": {}}]}, ["quantus:Sparseness"]),
    ],
)
def test_what_is_not_standfasts_own_is_found(study: dict[str, Any], names: list[str]) -> None:
    assert find_foreign(study) == names


@pytest.mark.parametrize(("done", "drawn"), [(72, 3), (72, 20), (10, 10), (5, 1)])
def test_the_share_is_that_of_the_hypergeometric_distribution(done: int, drawn: int) -> None:
    found = Verification(
        "verified", jobs=dict.fromkeys(map(str, range(drawn)), "same bits"), done=done
    )
    missed = [
        float(stats.hypergeom.pmf(0, done, differing, drawn)) for differing in range(done + 1)
    ]
    assert found.share == max(at for at, p in enumerate(missed) if p > 0.05) / done


def test_the_share_that_the_readme_gives() -> None:
    found = Verification("verified", jobs=dict.fromkeys(map(str, range(10)), "same bits"), done=72)
    readme = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
    assert (
        f"After ten of 72 jobs agreed, up to {math.ceil(100 * found.share)}% of the jobs can differ"
        in readme
    )
