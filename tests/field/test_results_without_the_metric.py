"""Results are read where the package of a metric is not installed, and where the manifest is an old one."""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import standfast
from standfast.metrics import CorruptionCurve, Metric, WorstCase
from standfast.metrics import metrics as registry
from standfast.results import StoredResults
from standfast.study.store import Store
from standfast.value_spec import ValueSpec

PLUGIN = """
from dataclasses import dataclass

import standfast
from standfast.metrics import Metric, Probe, Result, ValueSpec, metrics


@metrics.register("wobble")
@dataclass(frozen=True)
class Wobble(Metric):
    '''How far the first feature moves the map.'''

    name = "wobble"
    values = ValueSpec("How much it wobbles", "wobble", "lower", decimals=1, good="steadier")
    controls = True

    def evaluate(self, call):
        probe = Probe(call)
        return Result(**probe.common_fields(self), value=probe.maps.flatten(1)[:, 0].double().abs())


"""


def run_python(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=cwd
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wobbly(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of a metric that is not registered any more."""
    folder = tmp_path_factory.mktemp("wobbly")
    (folder / "wobbly.py").write_text(PLUGIN)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "_entries", {**registry._entries})
        patch.syspath_prepend(folder)
        metric = importlib.import_module("wobbly").Wobble()
        make_results(folder / "out", [metric], sanity=3)
    del sys.modules["wobbly"]
    return folder / "out"


def test_a_metric_that_is_not_installed_is_read_as_it_declared(
    wobbly: Path, tmp_path: Path
) -> None:
    assert "wobble" not in standfast.metrics.names()
    results = standfast.load_results(wobbly)
    metric = results.metrics["wobble"]
    assert (metric.spec.title, metric.spec.axis) == ("How much it wobbles", "wobble")
    assert (metric.direction, metric.spec.direction, metric.controls) == ("lower", "lower", True)
    assert metric.spec.decimals == 1
    assert {row["better"] for row in results.table().to_dicts()} == {"lower"}
    # controls were asked for
    assert results.table()["against_controls"].null_count() < results.table().height
    results.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "How much it wobbles" in page
    assert "Lower is steadier" in page
    assert page.count("This metric is not installed here") == 1


def make_results(
    folder: Path, metrics: list[Metric], sanity: bool | int = False
) -> standfast.Results:
    torch.manual_seed(0)
    model = standfast.Model(torch.nn.Linear(4, 2), bounds=(-1.0, 1.0), device="cpu")
    data = torch.linspace(-1, 1, 24).reshape(6, 4)
    explainers = ["saliency", "input_x_gradient"]
    return standfast.evaluate(
        model, explainers, data, metrics, out=folder, progress=False, sanity=sanity
    )


@pytest.fixture(scope="module")
def of_worst_cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("worst") / "out"
    make_results(folder, [WorstCase(standfast.LinfBall(0.1), budget=20)])
    return folder


def make_old(folder: Path) -> None:
    """The manifest as it was written when it did not say how numbers are read."""
    store = Store(folder)
    manifest = store.manifest()
    for about in manifest["metrics"].values():
        del about["values"], about["controls"]
    store.write_manifest(manifest)


def test_an_old_manifest_is_read_by_the_registered_metric(tmp_path: Path) -> None:
    metrics: list[Metric] = [
        WorstCase(standfast.LinfBall(0.1), event="changed_class", budget=20),
        CorruptionCurve(fractions=(0.5, 1.0), samples=1),
    ]
    new = make_results(tmp_path / "out", metrics)
    make_old(tmp_path / "out")
    old = standfast.load_results(tmp_path / "out")
    assert "values" not in json.dumps(old.manifest["metrics"])
    assert {label: metric.spec for label, metric in old.metrics.items()} == {
        label: metric.spec for label, metric in new.metrics.items()
    }
    assert old.table().equals(new.table())
    assert old.to_text(verbose=True) == new.to_text(verbose=True)
    # and its jobs are found again, which writes the manifest anew
    again = make_results(tmp_path / "out", metrics)
    assert again.run is not None
    assert (again.run.done, again.run.failed) == (0, [])
    assert "values" in again.manifest["metrics"]["corruption_curve"]


def test_a_metric_of_an_old_manifest_that_is_not_installed_is_read_by_its_direction(
    wobbly: Path, tmp_path: Path
) -> None:
    shutil.copytree(wobbly, tmp_path / "out")
    make_old(tmp_path / "out")
    metric = standfast.load_results(tmp_path / "out").metrics["wobble"]
    assert (metric.spec.title, metric.spec.direction) == ("Wobble", "lower")


def test_numbers_are_summarised_without_report_and_metrics(tmp_path: Path) -> None:
    """In a process that loads neither, with the values by which explainers are compared."""
    expected = make_results(tmp_path / "out", [CorruptionCurve(fractions=(0.5, 1.0), samples=1)])
    code = """
import json, sys
from standfast.results import StoredResults
results = StoredResults.load("out")
(metric,) = results.summary.metrics
print(json.dumps([[row.explainer, row.value, row.spec.column] for row in metric.rows]))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("standfast.")}
assert not rooms & {"metrics", "report", "explainers", "model", "similarity"}, rooms
"""
    rows = json.loads(run_python("-c", code, cwd=tmp_path))
    (metric,) = expected.summary.metrics
    assert rows == [[row.explainer, row.value, "common_drop"] for row in metric.rows]


READING = {"title": "a", "axis": "b", "direction": "higher"}


@pytest.mark.parametrize(
    "damage",
    [
        {"title": "only"},
        {**READING, "direction": "up"},
        {**READING, "only": 3},
        {**READING, "only": "abc"},
        {**READING, "common_share": "x"},
        {**READING, "common_share": [1]},
        {**READING, "common_share": {"share": "shares"}},
        {**READING, "decimals": 10**12},
        {**READING, "same": 10**400},
        None,
    ],
)
def test_a_damaged_entry_of_the_manifest_is_one_sentence(
    of_worst_cases: Path, tmp_path: Path, damage: Any
) -> None:
    shutil.copytree(of_worst_cases, tmp_path / "out")
    store = Store(tmp_path / "out")
    manifest = store.manifest()
    (about,) = manifest["metrics"].values()
    about["values"] = damage
    store.write_manifest(manifest)
    with pytest.raises(standfast.ArgumentError, match=r"^(\w+|\w+ in the manifest): expected"):
        _ = StoredResults.load(tmp_path / "out").metrics


@pytest.mark.parametrize(
    "changed", [{"column": "status"}, {"only": ["status"]}, {"censored": "job"}]
)
def test_a_column_that_holds_no_numbers_is_named(
    of_worst_cases: Path, tmp_path: Path, changed: dict[str, Any]
) -> None:
    shutil.copytree(of_worst_cases, tmp_path / "out")
    store = Store(tmp_path / "out")
    manifest = store.manifest()
    (about,) = manifest["metrics"].values()
    about["values"].update(changed)
    store.write_manifest(manifest)
    with pytest.raises(
        standfast.ArgumentError,
        match="values in the manifest: expected columns of numbers or flags",
    ):
        _ = standfast.load_results(tmp_path / "out").metrics


def test_a_later_version_may_know_more_of_common_shares() -> None:
    stored = {
        **READING,
        "later": 1,
        "common_share": {"share": "s", "drop": "d", "title": "t", "axis": "a", "later": 1},
    }
    assert ValueSpec.from_stored(stored).compared_arrays == ("s", "d")
