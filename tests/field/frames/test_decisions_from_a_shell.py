"""The user's decision from a shell and from a file: of a stored pipeline, and a table in a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from typer.testing import CliRunner

import standfast
from standfast.cli import app
from standfast.errors import ArgumentError
from standfast.study.file.document import StudyError
from standfast.study.file.spec import load_study, study_from

#: of packages that are imported while explainers are tried
pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table, and a pipeline on it."""
    place = tmp_path_factory.mktemp("credit")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["debt", "income"])
    frame["job"] = rng.choice(["clerk", "cook", "driver"], 200)
    risk = frame["debt"] - 0.5 * frame["income"] + rng.normal(size=200)
    answers = np.where(risk > 0.5, "default, late", "repaid")
    columns = make_column_transformer((OneHotEncoder(), ["job"]), remainder=StandardScaler())
    pipeline = make_pipeline(columns, LogisticRegression()).fit(frame, answers)
    joblib.dump(pipeline, place / "credit.joblib")
    frame.assign(outcome=answers).to_csv(place / "credit.csv", index=False)
    return place


def run_init(folder: Path, study: str, task: str) -> Any:
    named = [
        "--model",
        str(folder / "credit.joblib"),
        "--data",
        str(folder / "credit.csv"),
        "--label",
        "outcome",
    ]
    arguments = ["init", str(folder / study), *named, "--trust", "--task", task]
    return CliRunner().invoke(app, arguments, catch_exceptions=False)


@pytest.mark.parametrize(
    "task", ["P(default, late) > 0.35", "decision:rule=P(default, late) > 0.35"]
)
def test_a_rule_in_the_command_line(folder: Path, task: str) -> None:
    """The rule stands alone, or as the option of the task; a name may have a comma."""
    name = f"{'short' if task.startswith('P') else 'long'}.yaml"
    written = run_init(folder, name, task)
    assert written.exit_code == 0, written.output
    grid = load_study(folder / name).grid()
    (source,), (samples,) = grid.models.values(), grid.data.values()
    model = source.model(samples, "cpu")
    shares = joblib.load(folder / "credit.joblib").predict_proba(
        pd.read_csv(folder / "credit.csv")
    )[:, 0]
    sides = model.predict(samples.inputs)
    np.testing.assert_array_equal(sides.numpy() == 1, shares[: len(sides)] > 0.35)


@pytest.mark.parametrize(
    ("task", "words"),
    [
        (
            "P(repaid) > 35",
            r"--task: expected decision to be a number above 0 and below 1 behind the sign",
        ),
        ("P(repaid)", r"--task: expected decision to be P\(class\) > number"),
        ("decision", r"--task: expected a value, got nothing \(rule\)"),
        ("binary:treshold=1", r"got 'treshold' \(did you mean 'threshold'\?\)"),
        ("bynary", r"--task: expected a task \(.*binary, .* \(did you mean 'binary'\?\)"),
    ],
)
def test_a_task_that_is_wrong_is_one_sentence(folder: Path, task: str, words: str) -> None:
    with pytest.raises(ArgumentError, match=words):
        run_init(folder, "wrong.yaml", task)
    assert not (folder / "wrong.yaml").exists()


def test_an_unknown_class_lists_what_is_possible(folder: Path) -> None:
    with pytest.raises(
        StudyError, match="P of one of the classes 'default, late', 'repaid', got .*'repaid'?"
    ):
        run_init(folder, "wrong.yaml", "P(repayed) > 0.35")


@pytest.mark.parametrize(
    "task",
    [
        "decision:rule=P(repaid) < 0.65",
        {"decision": "P(repaid) < 0.65"},
        {"decision": {"rule": "P(repaid) < 0.65", "of": "classification"}},
    ],
)
def test_forms_of_a_rule_in_a_file(folder: Path, task: Any) -> None:
    study = {
        "samples": 30,
        "data": {"credit": {"table": "credit.csv", "label": "outcome"}},
        "models": {"credit": {"path": "credit.joblib", "trust": True, "task": task}},
        "explainers": ["occlusion"],
        "metrics": ["aopc"],
    }
    grid = study_from(study, folder).grid()
    (source,), (samples,) = grid.models.values(), grid.data.values()
    model = source.model(samples, "cpu")
    shares = joblib.load(folder / "credit.joblib").predict_proba(
        pd.read_csv(folder / "credit.csv")
    )[:30, 1]
    np.testing.assert_array_equal(model.predict(samples.inputs).numpy() == 1, shares < 0.65)
    same = standfast.tasks.Decision("P(repaid) < 0.65")
    assert model.task.rule == same.rule
