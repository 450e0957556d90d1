"""The examples of data frames run, and find the truth: the column without effect has the smallest attributions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import standfast

FOLDER = str(Path(__file__).parents[2] / "examples")


def load(name: str) -> Any:
    sys.path.insert(0, FOLDER)
    try:
        return __import__(name)
    finally:
        sys.path.remove(FOLDER)


def test_credit_finds_the_column_without_effect() -> None:
    credit = load("credit")
    frame, logit = credit.make_credit(800)
    pipeline = credit.fit(frame, logit > 0)
    table = standfast.Table.read(frame)
    model = standfast.frames.make_model(pipeline, table)
    maps = standfast.explainers.get("shapley_sampling", permutations=2)(model, table.rows[:24])
    sizes = dict(zip(table.names, maps.abs().mean(0).tolist(), strict=True))
    assert min(sizes, key=sizes.__getitem__) == "zodiac"


def test_credit_runs_from_a_file(tmp_path: Path) -> None:
    pytest.importorskip("shap")
    credit = load("credit")
    frame, logit = credit.make_credit(200)
    path = tmp_path / "credit.csv"
    frame.assign(paid=np.where(logit > 0, "yes", "no")).to_csv(path, index=False)
    found = credit.run(
        str(path), rows=2, budget=12, seeds=3, sanity=False, controls=False, progress=False
    )
    assert found.failures == []
    assert set(found.agreement().variance["explainer"]) == {"TreeSHAP", "Shapley sampling"}
    page = found.to_html(tmp_path / "report.html").read_text()
    assert "number changed" in page
    assert "Do the explanations agree?" in page


def test_the_real_model_of_sleep_stages_is_explained() -> None:
    pytest.importorskip("lightgbm")
    sleep = load("sleep_stages")
    path = sleep.find_file()
    if path is None:
        pytest.skip("yasa is not installed")
    found = sleep.run(path, rows=2, budget=12, sanity=False, controls=False, progress=False)
    assert found.failures == []
