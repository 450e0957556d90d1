"""Rows that are still to be decided have no outcome: it is a column of the training rows alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from standfast.study.file.document import StudyError
from standfast.study.file.spec import study_from


def write_study(folder: Path, label: str) -> dict[str, Any]:
    """A pipeline, the rows that it was trained on, and applicants without an outcome."""
    joblib = pytest.importorskip("joblib")
    linear_model = pytest.importorskip("sklearn.linear_model")
    pd = pytest.importorskip("pandas")
    cells = np.random.default_rng(0).normal(size=(60, 2))
    frame = pd.DataFrame(cells, columns=["income", "debt"])
    outcomes = np.where(frame["income"] > frame["debt"], "repaid", "default")
    joblib.dump(linear_model.LogisticRegression().fit(frame, outcomes), folder / "pipeline.joblib")
    pl.from_pandas(frame.assign(outcome=outcomes)).write_csv(folder / "train.csv")
    pl.from_pandas(frame.head(5)).write_csv(folder / "applicants.csv")
    table = {"table": "applicants.csv", "reference": "train.csv", "label": label}
    return {
        "data": {"applicants": table},
        "models": {"m": {"path": "pipeline.joblib", "trust": True}},
        "explainers": ["occlusion"],
        "metrics": ["aopc"],
    }


def test_a_study_takes_them_without_a_label(tmp_path: Path) -> None:
    grid = study_from(write_study(tmp_path, "outcome"), tmp_path).grid()
    applicants = grid.data["applicants"]
    assert applicants.inputs.shape == (5, 2)
    assert applicants.targets is None
    assert [column["name"] for column in applicants.about["columns"]] == ["income", "debt"]


def test_a_label_that_no_file_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="a column of applicants.csv or of train.csv"):
        study_from(write_study(tmp_path, "result"), tmp_path).grid()
