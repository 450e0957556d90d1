"""The examples of models that are no classifiers, with a few steps of training: they run, and have a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = str(Path(__file__).parents[2] / "examples")


@pytest.fixture(scope="module")
def tasks() -> Any:
    sys.path.insert(0, FOLDER)
    try:
        import tasks
    finally:
        sys.path.remove(FOLDER)
    return tasks


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # shap, as it is imported
@pytest.mark.parametrize(
    "name", ["regression", "labels", "segmentation", "detection", "trees", "texts"]
)
def test_an_example_has_a_report(name: str, tasks: Any, tmp_path: Path) -> None:
    metrics = {"worst case": "worst_case:budget=20", "curve": "corruption_curve:preset=quick"}
    found = tasks.run(
        name, tmp_path, steps=6, metrics=metrics, sanity=False, controls=False, progress=False
    )
    assert found.failures == []
    assert set(found.frame()["status"]) <= {"ok", "no_answer", "degenerate"}
    page = (tmp_path / f"{name}.html").read_text()
    assert "An answer is kept if it is" in page
    assert tasks.EXAMPLES.keys() == {
        "regression",
        "labels",
        "segmentation",
        "detection",
        "trees",
        "texts",
    }
