"""A folder lies where the compacted rows of results should be: the rows are read from the files of the jobs."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

import standfast
from standfast.report import load_results
from standfast.results import verify_results


def test_results_are_read_and_the_folder_is_named(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = standfast.Model(nn.Linear(4, 3), bounds=(0.0, 1.0), device="cpu")
    metric = standfast.metrics.MaxSensitivity(standfast.LinfBall(0.1), samples=2)
    options = {"sanity": False, "controls": False, "progress": False}
    before = standfast.evaluate(
        model, ["saliency"], torch.rand(3, 4), metric, out=tmp_path, **options
    )
    rows = tmp_path / "compact" / "jobs.parquet"
    rows.unlink(missing_ok=True)
    rows.mkdir(parents=True)
    again = load_results(tmp_path)
    assert again.samples.equals(before.samples)
    assert again.to_text() == before.to_text()
    assert "directory" in verify_results(tmp_path).damaged["compact/jobs.parquet"]
