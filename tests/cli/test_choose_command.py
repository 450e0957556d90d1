"""`standfast choose` with a model and data by name, with a stored pipeline, and with a study file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from standfast.cli.commands import app
from standfast.report import load_results

STUDY = """
samples: 48
data: {digits: digits}
models: {lenet5: lenet5-mnist}
explainers: [saliency, input_x_gradient]
metrics:
  - worst_case: {budget: 10}
  - aopc: {samples: 1, steps: 5}
choose: {by: aopc, budget: 1.0}
"""
DIGITS = (
    "--model",
    "lenet5-mnist",
    "--data",
    "digits",
    "--samples",
    "24",
    "--metric",
    "aopc:samples=1,steps=5",
)


def call(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["choose", *arguments])
    return done.exit_code, " ".join(done.stdout.split()), done.stderr or str(done.exception)


def test_a_model_and_data_by_name(tmp_path: Path) -> None:
    folder = tmp_path / "race"
    explainers = ("--explainer", "saliency", "--explainer", "input_x_gradient")
    code, shown, error = call(*DIGITS, *explainers, "--out", str(folder))
    assert code in (0, 1), error
    race = load_results(folder).race
    assert race is not None
    assert code == (0 if race.chosen else 1)
    assert "None is chosen" in shown or "is chosen, and confirmed" in shown
    assert 'id="race"' in (folder / "report" / "index.html").read_text(encoding="utf-8")


def test_a_study_with_its_section(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("study.yaml").write_text(STUDY)
    code, shown, error = call("study.yaml")
    assert code in (0, 1), error
    race = load_results("results/study-choose").race
    assert race is not None
    assert (race.label, race.budget, race.samples) == ("aopc", 1.0, 48)
    assert "Race by aopc" in shown


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("choose: {by: aocp}", "choose.by (line 9): expected the label or the name of a metric"),
        ("choose: {budget: 2}", "choose.budget (line 9)"),
        ("choose: {level: 0}", "choose.level (line 9)"),
        ("choose: {lvel: 0.1}", "did you mean 'level'"),
    ],
)
def test_errors_of_the_section_have_lines(tmp_path: Path, line: str, words: str) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY.replace("choose: {by: aopc, budget: 1.0}", line))
    code, _, error = call(str(study))
    assert code != 0
    assert words in " ".join(error.split())


def test_what_is_missing_or_too_much(tmp_path: Path) -> None:
    code, _, error = call()
    assert code != 0
    assert "study: expected a study file, or --model and --data, got neither" in error
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    code, _, error = call(str(study), "--explainer", "saliency")
    assert code != 0
    assert "a study file alone" in error


def test_a_study_with_several_models_is_refused(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        STUDY.replace("{lenet5: lenet5-mnist}", "{one: lenet5-mnist, two: lenet5-mnist-pgd}")
    )
    code, _, error = call(str(study))
    assert code != 0
    assert "model: expected one model to choose for, got 2" in error


def test_a_stored_pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    joblib = pytest.importorskip("joblib")
    pd = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(60, 3)), columns=["income", "debt", "age"])
    labels = np.where(
        frame["income"] * 3 - frame["debt"] * 2 + frame["age"] > 0, "repaid", "default"
    )
    monkeypatch.chdir(tmp_path)
    joblib.dump(linear_model.LogisticRegression().fit(frame, labels), "pipeline.joblib")
    pl.from_pandas(frame.assign(label=labels)).write_csv("customers.csv")
    explainers = ("--explainer", "occlusion", "--explainer", "kernel_shap:samples=20")
    metrics = ("--metric", "corruption_curve")
    code, shown, error = call(
        "--model", "pipeline.joblib", "--data", "customers.csv", "--trust", *explainers, *metrics
    )
    assert code in (0, 1), error
    assert "Race by corruption_curve" in shown
