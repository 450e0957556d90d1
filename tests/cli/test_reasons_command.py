"""`standfast reasons` with a stored pipeline and with a network by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from standfast.cli.commands import app


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a pipeline and a table of customers."""
    joblib = pytest.importorskip("joblib")
    pd = pytest.importorskip("pandas")
    linear_model = pytest.importorskip("sklearn.linear_model")
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.normal(size=(60, 3)), columns=["income", "debt", "age"])
    labels = np.where(
        frame["income"] * 3 - frame["debt"] * 2 + frame["age"] > 0, "repaid", "default"
    )
    model = linear_model.LogisticRegression().fit(frame, labels)
    joblib.dump(model, tmp_path / "pipeline.joblib")
    pl.from_pandas(frame.assign(label=labels)).write_csv(tmp_path / "customers.csv")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["reasons", *arguments])
    return done.exit_code, done.stdout, done.stderr or str(done.exception)


CUSTOMER = (
    "--model",
    "pipeline.joblib",
    "--data",
    "customers.csv",
    "--trust",
    "--draws",
    "12",
    "--top",
    "2",
)


def test_a_customer_gets_a_card(pipeline: Path) -> None:
    code, shown, error = call(
        *CUSTOMER, "--row", "17", "--decision", "P(default) > 0.35", "--out", "card.json"
    )
    assert code == 0, error
    assert "P(default) > 0.35" in shown
    card = json.loads((pipeline / "card.json").read_text())
    assert len(card["reasons"]) == 2
    assert set(card["columns"]) == {"income", "debt", "age"}
    assert card["explainer"].startswith("kernel_shap")


def test_only_reasons_for_the_decision_are_named_if_asked(pipeline: Path) -> None:
    signs: dict[str, set[bool]] = {}
    for side in ("both", "for"):
        arguments = ("--row", "17", "--row", "18", "--speaking", side, "--out", "card.json")
        code, shown, error = call(*CUSTOMER, *arguments)
        assert code == 0, error
        cards = [json.loads((pipeline / f"card-{row}.json").read_text()) for row in (17, 18)]
        signs[side] = {reason["value"] > 0 for card in cards for reason in card["reasons"]}
        assert ("what speaks against it is left out" in " ".join(shown.split())) == (side == "for")
    assert signs == {"both": {True, False}, "for": {True}}


def test_a_customer_gets_counter_examples(pipeline: Path) -> None:
    search = ("--measurement", "--counter-examples", "60")
    code, shown, error = call(*CUSTOMER, "--row", "17", *search, "--out", "card.json")
    assert code == 0, error
    examples = json.loads((pipeline / "card.json").read_text())["counter_examples"]
    assert len(examples) == 2
    assert all(example["evaluations"] <= 60 for example in examples)
    assert [example["sample"] for example in examples] == [17, 17]
    assert "first 2" in " ".join(shown.split())
    code, _, error = call(*CUSTOMER, "--row", "17", "--counter-examples", "60")
    assert code != 0
    assert "counter_examples: expected 0 without a measurement=" in " ".join(error.split())


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_retrained_models_are_files(pipeline: Path) -> None:
    for name in ("again.joblib", "once-more.joblib"):
        (pipeline / name).write_bytes((pipeline / "pipeline.joblib").read_bytes())
    again = ("--retrained", "again.joblib", "--retrained", "once-more.joblib")
    code, _, error = call(*CUSTOMER, "--row", "17", *again, "--out", "card.json")
    assert code == 0, error
    card = json.loads((pipeline / "card.json").read_text())
    assert (card["models"], card["deciding_otherwise"]) == (2, 0)


def test_several_rows_get_a_file_each(pipeline: Path) -> None:
    code, _, error = call(*CUSTOMER, "--row", "3", "--row", "5", "--out", "card.html")
    assert code == 0, error
    assert sorted(path.name for path in pipeline.glob("card*.html")) == [
        "card-3.html",
        "card-5.html",
    ]


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--row", "60"), "from 0 to 59"),
        (("--row", "1", "--explainer", "kernel_shp"), "kernel_shap"),
        (("--row", "1", "--decision", "P(gone) > 0.5"), "default"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    pipeline: Path, more: tuple[str, ...], part: str
) -> None:
    code, _, error = call(*CUSTOMER, *more)
    assert code != 0
    assert part in error


def test_more_reasons_than_columns_are_refused(pipeline: Path) -> None:
    code, _, error = call(
        "--model",
        "pipeline.joblib",
        "--data",
        "customers.csv",
        "--trust",
        "--row",
        "1",
        "--top",
        "4",
    )
    assert code != 0
    assert "number of features, 3" in error


def test_a_digit_gets_a_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = (
        "--model",
        "lenet5-mnist",
        "--data",
        "digits",
        "--row",
        "3",
        "--draws",
        "5",
        "--out",
        "card.html",
    )
    code, _, error = call(*arguments)
    assert code == 0, error
    assert "<img" in (tmp_path / "card.html").read_text()


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_a_pipeline_is_trained_again_on_resampled_rows(pipeline: Path) -> None:
    words = ("--decision", "declined, else approved: P(default) > 0.35", "--unit", "income=EUR")
    code, shown, error = call(
        *CUSTOMER, "--row", "17", "--retrain", "--models", "3", *words, "--out", "card.json"
    )
    assert code == 0, error
    card = json.loads((pipeline / "card.json").read_text())
    assert card["models"] == 3
    assert card["answer"] in ("declined", "approved")
    assert card["columns"]["income"].endswith(" EUR")
    assert f"Decision: {card['answer']} (P(default) is " in shown
    # the same rows and labels by hand
    joblib = pytest.importorskip("joblib")
    pd = pytest.importorskip("pandas")
    table = pd.read_csv(pipeline / "customers.csv")
    rows, labels = table[["income", "debt", "age"]], table["label"].to_numpy()
    model = joblib.load(pipeline / "pipeline.joblib")
    otherwise = 0
    for seed in (1, 2, 3):
        chosen = np.random.default_rng(seed).integers(0, 60, size=60)
        again = type(model)().fit(rows.iloc[chosen], labels[chosen])
        declines = again.predict_proba(rows.iloc[[17]])[0, 0] > 0.35
        otherwise += bool(declines != (card["answer"] == "declined"))
    assert card["deciding_otherwise"] == otherwise


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (("--unit", "income"), "a column and its unit"),
        (("--unit", "incme=EUR"), "income"),
        (("--models", "3"), "None without retrain="),
        (("--retrain", "--reference", "plain.csv"), "the column that the model learns"),
    ],
)
def test_wrong_units_and_training_rows_are_one_sentence(
    pipeline: Path, more: tuple[str, ...], part: str
) -> None:
    table = pl.read_csv(pipeline / "customers.csv")
    table.drop("label").write_csv(pipeline / "plain.csv")
    code, _, error = call(*CUSTOMER, "--row", "17", *more)
    assert code != 0
    assert part in " ".join(error.split())


def test_a_network_is_not_trained_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    code, _, error = call("--model", "lenet5-mnist", "--data", "digits", "--row", "3", "--retrain")
    assert code != 0
    assert "--retrain: expected a pipeline and a table" in error


@pytest.mark.filterwarnings("ignore:.*retrained models can never show:UserWarning")
def test_rows_that_are_still_to_be_decided_have_no_label(pipeline: Path) -> None:
    """The outcome is a column of the training rows alone, as of any applicant; the time is limited."""
    train = pl.read_csv("customers.csv").rename({"label": "outcome"})
    train.write_csv("train.csv")
    train.drop("outcome").head(20).write_csv("applicants.csv")
    arguments = [
        "--model",
        "pipeline.joblib",
        "--data",
        "applicants.csv",
        "--reference",
        "train.csv",
    ]
    arguments += ["--trust", "--top", "2", "--row", "17", "--retrain", "--models", "3"]
    arguments += ["--draws", "12", "--minutes", "1", "--out", "card.json"]
    code, _, error = call(*arguments, "--label", "outcome")
    assert code == 0, error
    card = json.loads((pipeline / "card.json").read_text())
    assert card["models"] == 3
    assert set(card["columns"]) == {"income", "debt", "age"}
    code, _, error = call(*arguments, "--label", "result")
    assert code != 0
    assert "a column of applicants.csv or of train.csv" in " ".join(error.split())
