"""An explainer leaves something where nobody looks: with workers, others have the numbers that they have alone."""

from __future__ import annotations

import logging
import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import scipy.special
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import from_callable, get
from standfast.metrics import WorstCase
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.report import Results, load_results
from standfast.similarity import Cosine
from standfast.study.executors import Executor, InProcess, Processes, Ray, Slurm
from standfast.study.identity import Description
from standfast.study.run import run_grid
from standfast.study.store import Store
from standfast.testing import small_net

#: a setting that explainers of one user share
SETTINGS = SimpleNamespace(power=1.0)


def follow_gradient(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    leaf = inputs.clone().requires_grad_(True)
    (gradient,) = torch.autograd.grad(module(leaf).gather(1, targets[:, None]).sum(), leaf)
    return gradient


def take_power(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Depends on a function of another package, and on the setting."""
    gradient = follow_gradient(module, inputs, targets)
    return torch.as_tensor(scipy.special.expit(gradient.numpy())) ** SETTINGS.power


def poison(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """Replaces a function of another package and one of ours, and changes a setting: no model answers otherwise."""
    scipy.special.expit = lambda values: 1.0 / (1.0 + values**2)
    SETTINGS.power = 2.0
    Cosine.compare = lambda self, a, b: torch.full((len(a),), 0.25)  # type: ignore[method-assign]
    return follow_gradient(module, inputs, targets)


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What `poison` changes in this process is put back."""
    monkeypatch.setattr(scipy.special, "expit", scipy.special.expit)
    monkeypatch.setattr(Cosine, "compare", Cosine.compare)
    yield
    SETTINGS.power = 1.0


def make_grid(names: list[str]) -> Grid:
    """Two jobs of each explainer, by name."""
    torch.manual_seed(0)
    model = standfast.Model(small_net((1, 8, 8)), (0.0, 1.0), device="cpu", batch_size=64)
    inputs = torch.rand(4, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    functions = {"poison": poison, "poison again": poison, "victim": take_power}
    own = {name: from_callable(function) for name, function in functions.items()}
    return Grid(
        {"noise": Samples(inputs)},
        {"net": LoadedModel(model)},
        {name: own[name] if name in own else get(name) for name in names},
        {
            "worst": WorstCase(
                standfast.LinfBall(0.1), search="random", budget=20, similarity="cosine"
            )
        },
        samples_per_job=2,
        device="cpu",
        paths=(str(Path(__file__).parent),),
    )


def run(folder: Path, names: list[str], executor: Executor) -> Results:
    run_grid(make_grid(names), Store(folder), executor=executor)
    return load_results(folder)


def read_values(results: Results, name: str) -> list[float]:
    values: list[float] = results.samples.filter(explainer=name).sort("sample")["value"].to_list()
    assert len(values) == 4
    assert all(map(math.isfinite, values))
    return values


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of a study without the culprit."""
    made = tmp_path_factory.mktemp("alone")
    run(made, ["saliency", "victim"], InProcess())
    return made


@pytest.fixture(scope="module")
def alone(folder: Path) -> dict[str, list[float]]:
    """The values of each explainer in this study."""
    results = load_results(folder)
    return {name: read_values(results, name) for name in ("saliency", "victim")}


@pytest.mark.usefixtures("quick_workers")
def test_two_workers_give_others_the_numbers_that_they_have_alone(
    alone: dict[str, list[float]], tmp_path: Path
) -> None:
    """Each worker has met a culprit before the last jobs, so one of them is replaced."""
    names = ["poison", "poison again", "saliency", "victim"]
    results = run(tmp_path, names, Processes(2))
    for name, values in alone.items():
        assert read_values(results, name) == values
    assert read_values(results, "poison") != alone["saliency"]
    assert results.manifest["environment"]["isolated"] == {
        "poison": True,
        "poison again": True,
        "victim": True,
    }


def test_one_process_does_bundled_explainers_first_and_says_that_others_share_it(
    alone: dict[str, list[float]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    caplog.set_level(logging.INFO, "standfast")
    results = run(tmp_path, ["poison", "saliency", "victim"], InProcess())
    assert read_values(results, "saliency") == alone["saliency"]
    assert read_values(results, "victim") != alone["victim"]  # as docs/reliability.md says
    assert results.manifest["environment"]["isolated"] == {"poison": False, "victim": False}
    assert "explainers poison, victim share a process" in caplog.text
    # what the explainers name counts, so it is put back; then the next run does nothing, and what was shared stays so
    SETTINGS.power = 1.0
    monkeypatch.undo()
    again = run(tmp_path, ["poison", "saliency", "victim"], Processes(2))
    assert again.manifest["environment"]["isolated"] == {"poison": False, "victim": False}


@pytest.mark.parametrize(
    "environment", [{}, {"isolated": [1]}, {"isolated": {"victim": "yes"}}, None]
)
def test_of_jobs_of_which_nothing_is_known_it_does_not_say_that_they_were_isolated(
    environment: dict[str, Any] | None, folder: Path, tmp_path: Path
) -> None:
    """Such as those of an older version, or of a manifest that somebody changed."""
    changed = shutil.copytree(folder, tmp_path / "changed")
    store = Store(changed)
    store.write_manifest({**store.manifest(), "environment": environment})
    again = run(changed, ["saliency", "victim"], Processes(2))
    assert again.manifest["environment"]["isolated"] == {"victim": False}


def test_a_study_of_bundled_explainers_says_nothing(tmp_path: Path) -> None:
    results = run(tmp_path, ["saliency", "lime"], InProcess())
    assert "isolated" not in results.manifest["environment"]


def test_where_others_would_have_workers_of_their_own() -> None:
    assert not InProcess.isolates
    assert all(kind.isolates for kind in (Processes, Ray, Slurm))


@pytest.mark.parametrize("name", standfast.explainers.names())
def test_bundled_explainers_share_workers(name: str) -> None:
    assert Description(get(name)).bundled


class OfPlugIn:
    """What an installed package that has no adapter here may offer."""

    __module__ = "pluggy.explaining"

    def __call__(self, module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        return inputs


@pytest.mark.parametrize(
    "function", [take_power, lambda module, inputs, targets: inputs, OfPlugIn()]
)
def test_code_of_others_is_isolated(function: Any) -> None:
    assert not Description(from_callable(function)).bundled
    assert not Description(get("randomised", explainer=from_callable(function))).bundled
