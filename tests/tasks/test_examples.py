"""The examples of models that are no classifiers, with a few steps of training: they run, and have a report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

import standfast

FOLDER = str(Path(__file__).parents[2] / "examples")

#: regions, boxes, features and words; pages of one number and of labels have nothing else
WITH_A_PAGE = ("segmentation", "detection", "trees", "texts")


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
def test_an_example_has_a_report(
    name: str, tasks: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = {"worst case": "worst_case:budget=10", "curve": "corruption_curve:preset=quick"}
    if name not in WITH_A_PAGE:
        page = tmp_path / f"{name}.html"
        # reports of these tasks are those of `test_metrics_of_tasks.py`
        monkeypatch.setattr(standfast.Results, "to_html", lambda *_: page.write_text(""))
    found = tasks.run(
        name, tmp_path, steps=3, metrics=metrics, sanity=False, controls=False, progress=False
    )
    assert found.failures == []
    assert set(found.frame()["status"]) <= {"ok", "no_answer", "degenerate"}
    if name in WITH_A_PAGE:
        assert "An answer is kept if it is" in (tmp_path / f"{name}.html").read_text()
    assert tasks.EXAMPLES.keys() == {
        "regression",
        "labels",
        "segmentation",
        "detection",
        "trees",
        "texts",
    }
