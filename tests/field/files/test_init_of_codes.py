"""`standfast init` of a CSV file whose cells look like numbers or missing cells, and are texts for the model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from ruamel.yaml import YAML
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from typer.testing import CliRunner

from standfast.cli import app
from standfast.cli.column_types import Encoded, find_encoded
from standfast.study.file.spec import load_study

pd = pytest.importorskip("pandas", reason="pandas is an extra")

ROWS = 120


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    pytest.importorskip("shap", reason="init tries its explainer of trees where shap is there")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def draw(values: list[Any], column: str) -> Any:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            column: rng.choice(np.array(values, dtype=object), ROWS),
            "x": rng.normal(size=ROWS).round(3),
        }
    )


def label_by(frame: Any, column: str, value: Any) -> Any:
    return np.where(frame["x"] + 2 * (frame[column] == value) > 0.5, "yes", "no")


def make_model(encoder: Any, columns: list[str]) -> Any:
    return make_pipeline(
        ColumnTransformer([("codes", encoder, columns)], remainder="passthrough"),
        LogisticRegression(),
    )


def encode() -> Any:
    return OneHotEncoder(handle_unknown="ignore", sparse_output=False)


def run_init(model: Any, frame: Any, labels: Any, **options: Any) -> dict[str, Any]:
    """What the study has as data, and whether the model of the study answers as the pipeline does for the frame."""
    joblib.dump(model, "pipeline.joblib")
    frame.assign(label=labels).to_csv("file.csv", index=False, **options)
    arguments = [
        "init",
        "study.yaml",
        "--model",
        "pipeline.joblib",
        "--data",
        "file.csv",
        "--trust",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    grid = load_study("study.yaml").grid()
    (samples,), (source,) = grid.data.values(), grid.models.values()
    answers = source.model(samples, "cpu").logits(samples.inputs).softmax(1)
    expected = model.predict_proba(frame)[: len(samples)]
    np.testing.assert_allclose(answers, np.maximum(expected, 1e-12), rtol=1e-9)
    written: dict[str, Any] = YAML(typ="safe").load(Path("study.yaml").read_text())
    return dict(written["data"]["file"])


@pytest.mark.parametrize(
    ("values", "in_a_pipeline"),
    [
        (["00123", "04567", "10115"], False),
        (["00123", "04567", "10115"], True),
        (["10115", "20095", "80331"], False),
        (["1.10", "1.2", "1.20"], False),
        (["True", "False", "maybe"][:2], False),
    ],
)
def test_codes_that_look_like_numbers(values: list[str], in_a_pipeline: bool, folder: Path) -> None:
    frame = draw(values, "zip")
    encoder = (
        make_pipeline(SimpleImputer(strategy="most_frequent"), encode())
        if in_a_pipeline
        else encode()
    )
    labels = label_by(frame, "zip", values[0])
    entry = run_init(make_model(encoder, ["zip"]).fit(frame, labels), frame, labels)
    assert entry == {"table": "file.csv", "label": "label", "types": {"zip": "text"}}


@pytest.mark.parametrize("in_a_pipeline", [False, True])
def test_a_country_that_looks_like_a_missing_cell(in_a_pipeline: bool, folder: Path) -> None:
    """Namibia; an encoder that ignores what it does not know would answer for missing cells without a word."""
    frame = draw(["NA", "DE", "FR"], "country")
    encoder = (
        make_pipeline(SimpleImputer(strategy="most_frequent"), encode())
        if in_a_pipeline
        else encode()
    )
    labels = label_by(frame, "country", "NA")
    entry = run_init(make_model(encoder, ["country"]).fit(frame, labels), frame, labels)
    assert entry["types"] == {"country": "text"}


def test_missing_cells_stay_missing_for_a_model_that_was_fitted_so(folder: Path) -> None:
    frame = draw([np.nan, "DE", "FR"], "country")
    labels = label_by(frame, "country", "DE")
    entry = run_init(
        make_model(encode(), ["country"]).fit(frame, labels), frame, labels, na_rep="NA"
    )
    assert "types" not in entry


def test_numbers_stay_numbers_beside_texts_of_digits(folder: Path) -> None:
    """A grade is a text of a digit for the model, and the number of children is a number with the same digits."""
    rng = np.random.default_rng(1)
    frame = draw(["1", "2", "3"], "grade").assign(children=rng.integers(1, 4, ROWS))
    labels = label_by(frame, "grade", "1")
    for encoder in (encode(), make_pipeline(SimpleImputer(strategy="most_frequent"), encode())):
        steps = [("codes", encoder, ["grade"]), ("numbers", StandardScaler(), ["children", "x"])]
        model = make_pipeline(ColumnTransformer(steps), LogisticRegression()).fit(frame, labels)
        Path("study.yaml").unlink(missing_ok=True)
        assert run_init(model, frame, labels)["types"] == {"grade": "text"}


def test_numbers_that_an_encoder_knows_as_numbers(folder: Path) -> None:
    frame = draw([7, 11], "size").astype({"size": int})
    labels = label_by(frame, "size", 7)
    assert "types" not in run_init(make_model(encode(), ["size"]).fit(frame, labels), frame, labels)


def test_texts_that_an_encoder_does_not_know_are_not_tried(folder: Path) -> None:
    """It was fitted with numbers in a column of objects, fails for whole numbers, and would ignore their texts."""
    frame = draw([7, 11], "size")
    labels = label_by(frame, "size", 7)
    joblib.dump(make_model(encode(), ["size"]).fit(frame, labels), "pipeline.joblib")
    frame.assign(label=labels).to_csv("file.csv", index=False)
    done = CliRunner().invoke(
        app, ["init", "--model", "pipeline.joblib", "--data", "file.csv", "--trust"]
    )
    assert done.exit_code != 0
    assert "LogisticRegression" in str(done.exception)


def test_classes_that_look_like_numbers(folder: Path) -> None:
    frame = draw(["a", "b"], "kind")
    labels = np.where(label_by(frame, "kind", "a") == "yes", "007", "010")
    entry = run_init(make_model(encode(), ["kind"]).fit(frame, labels), frame, labels)
    assert entry["types"] == {"label": "text"}
    grid = load_study("study.yaml").grid()
    (samples,) = grid.data.values()
    assert samples.about["classes"] == ["007", "010"]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_a_table_of_a_spreadsheet(encoding: str, folder: Path) -> None:
    """What `init` has read, the study reads in the same way: semicolons, decimal commas, codes."""
    frame = draw(["00123", "04567"], "größe")
    labels = label_by(frame, "größe", "00123")
    model = make_model(encode(), ["größe"]).fit(frame, labels)
    entry = run_init(model, frame, labels, sep=";", decimal=",", encoding=encoding)
    assert entry["types"] == {"größe": "text"}


def test_encoders_within_a_model() -> None:
    frame = pd.DataFrame({"a": ["x", "y"], "b": ["01", "02"], "c": [1, 2]})
    inner = make_pipeline(SimpleImputer(strategy="most_frequent"), OrdinalEncoder())
    transformer = ColumnTransformer(
        [("one", encode(), ["a"]), ("two", inner, ["b"]), ("three", encode(), ["c"])]
    )
    model = make_pipeline(transformer, LogisticRegression()).fit(frame, [0, 1])
    known = [
        Encoded("a", frozenset("xy")),
        Encoded("b", frozenset({"01", "02"})),
        Encoded("c", frozenset()),
    ]
    assert find_encoded(model) == known
    assert find_encoded(LogisticRegression()) == []
