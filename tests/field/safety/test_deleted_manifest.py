"""A manifest is damaged or deleted, and the study runs again with other workers: finished jobs are kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import standfast
from standfast.explainers import Saliency
from standfast.metrics import MaxSensitivity
from standfast.neighbourhoods import LinfBall
from standfast.question.grid import Grid, LoadedModel, Samples
from standfast.results import verify_results
from standfast.study.jobs import Pool
from standfast.study.run import run_grid
from standfast.study.store import DamagedFileError, Store


def make_grid(radius: float = 0.1) -> Grid:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Flatten(), nn.Linear(16, 3))
    model = standfast.Model(module, bounds=(0.0, 1.0), device="cpu")
    samples = Samples(
        torch.rand(24, 1, 4, 4, generator=torch.Generator().manual_seed(1)), None, (0.0, 1.0)
    )
    return Grid(
        data={"x": samples},
        models={"m": LoadedModel(model)},
        explainers={"saliency": Saliency()},
        metrics={"max": MaxSensitivity(LinfBall(radius), samples=2)},
    )


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Results of jobs of five samples, as a slow computer cuts them; later runs measure a fast one."""
    with monkeypatch.context() as slow:
        slow.setattr(Pool, "choose_size", lambda pool, seconds: 5)
        run_grid(make_grid(), Store(tmp_path))
    return tmp_path


def count_earlier(folder: Path, grid: Grid | None = None) -> tuple[int, int]:
    """How many jobs a run finds done, and how many there are."""
    summary = run_grid(grid or make_grid(), Store(folder))
    return summary.earlier, summary.planned


def test_finished_jobs_are_found_without_the_manifest(results: Path) -> None:
    jobs = set((results / "jobs").iterdir())
    (results / "manifest.json").unlink()
    assert count_earlier(results) == (5, 5)
    assert set((results / "jobs").iterdir()) == jobs
    assert verify_results(results).fine


def test_the_advice_is_to_delete_it_where_that_is_true(results: Path) -> None:
    (results / "manifest.json").write_text("{")
    with pytest.raises(
        DamagedFileError, match="Delete it and run the study again: finished jobs are kept"
    ):
        Store(results).manifest()
    (results / "manifest.json").unlink()
    assert count_earlier(results) == (5, 5)


@pytest.mark.parametrize("content", [None, "{", "[]", '{"schema": 2, "sizes": 3}'])
def test_the_advice_is_to_restore_it_where_nothing_tells_the_sizes(
    results: Path, content: str | None
) -> None:
    (results / "manifest.json").write_text("{")
    if content is None:
        (results / "sizes.json").unlink()
    else:
        (results / "sizes.json").write_text(content)
    with pytest.raises(DamagedFileError, match="Restore it from a copy") as error:
        Store(results).manifest()
    assert "are kept" not in str(error.value)


def test_damaged_sizes_are_found_and_written_again(results: Path) -> None:
    (results / "sizes.json").write_text((results / "sizes.json").read_text().replace("5", "6"))
    assert set(verify_results(results).damaged) == {"sizes.json"}
    assert count_earlier(results) == (5, 5)  # by the manifest
    assert verify_results(results).fine


def test_a_study_that_was_another_one_for_a_while_finds_its_jobs(results: Path) -> None:
    assert count_earlier(results, make_grid(radius=0.2))[0] == 0
    assert count_earlier(results) == (5, 5)


def test_answers_are_remembered_with_the_sizes(results: Path) -> None:
    manifest: dict[str, Any] = Store(results).manifest()
    (results / "manifest.json").unlink()
    remembered = Store(results).earlier_manifest()
    assert {part: manifest[part] for part in ("sizes", "answers")} == remembered
