"""`standfast init`: a study file that a dry run accepts, for models and data of all kinds."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
import torch
from credit_frames import make_encoders, make_frame, score
from ruamel.yaml import YAML
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline
from small_texts import make_network, read_reviews, transformers, wrap_tokenizer
from torch import nn
from typer.testing import CliRunner, Result

from standfast.cli import app
from standfast.cli.new_study import read_bounds, read_source, round_outwards
from standfast.errors import ArgumentError
from standfast.question.frames import FrameReader
from standfast.study.file.document import StudyError
from standfast.study.file.spec import load_study

MODULE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

def build_dose():
    return nn.Linear(5, 1)

def build_series():
    return nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(40, 2))

def build_other():
    return nn.Linear(4, 3)

def load():
    return torch.rand(30, 5, generator=torch.Generator().manual_seed(0)), torch.arange(30) % 3

def load_signs():
    x = torch.rand(100, 5, generator=torch.Generator().manual_seed(0))
    return x, (x[:, 0] > 0.5).long()

def load_known():
    import standfast
    return standfast.data.Dataset("known", *load(), ("a", "b", "c"), (0.0, 1.0))

def load_series():
    return torch.randn(30, 2, 12)

class Doubler:
    def predict(self, rows):
        return 2 * rows[:, 0]

def fit():
    return Doubler()

def load_doses():
    x = torch.rand(20, 5, generator=torch.Generator().manual_seed(0))
    return x, 2 * x[:, 0] + 1.5
"""


class OnlyCategories(LogisticRegression):
    """Takes columns of categories by their codes, and refuses texts, as boosters do."""

    def fit(self, frame: Any, target: Any) -> Any:
        super().fit(self.encode(frame), target)
        self.names = list(frame.columns)
        return self

    @property
    def feature_names_in_(self) -> Any:
        return np.array(self.names)

    @feature_names_in_.deleter
    def feature_names_in_(self) -> None:
        pass

    def encode(self, frame: Any) -> Any:
        if any(pd.api.types.is_string_dtype(kind) for kind in frame.dtypes):
            raise TypeError("no texts")
        return np.stack(
            [frame["age"].to_numpy(), frame["town"].cat.codes.to_numpy()], axis=1
        ).astype(float)

    def predict_proba(self, frame: Any) -> Any:
        return super().predict_proba(
            self.encode(frame) if isinstance(frame, pd.DataFrame) else frame
        )

    def decision_function(self, rows: Any) -> Any:
        return rows @ self.coef_[0] + self.intercept_[0]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mymodule.py").write_text(MODULE)
    table = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    np.savez(tmp_path / "table.npz", inputs=table, labels=np.arange(30) % 3)
    np.save(tmp_path / "few.npy", np.random.default_rng(0).random((7, 5), dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_init(*arguments: str, answers: str | None = None) -> Result:
    Path("study.yaml").unlink(missing_ok=True)
    return CliRunner().invoke(app, ["init", *arguments], input=answers)


def save_trained(path: str, flip: bool = False) -> None:
    """Weights of `build` for `load_signs`: logit 1 is the first column, also after the rectifiers."""
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
        module[0].weight[0, 0], module[2].weight[1, 0] = 1.0, -1.0 if flip else 1.0
        module[2].bias[0] = -0.5 if flip else 0.5
        module[2].bias[2] = -9.0
    torch.save(module.state_dict(), path)


def read_study(path: Path | str = "study.yaml") -> Any:
    return YAML(typ="safe").load(Path(path))


CASES = {
    "named": (
        ("--model", "lenet5-mnist", "--data", "digits"),
        "gradcam",
        "aopc",
        {"linf": 8 / 255},
    ),
    "table": (
        ("--model", "mymodule:build", "--data", "mymodule:load"),
        "kernel_shap",
        "corruption_curve",
        {"linf": 0.027},
    ),
    "dose": (
        (
            "--model",
            "mymodule:build_dose",
            "--data",
            "mymodule:load",
            "--task",
            "regression:tolerance=0.1",
        ),
        "kernel_shap",
        "corruption_curve",
        {"linf": 0.027},
    ),
    "file": (
        ("--model", "mymodule:build", "--data", "table.npz"),
        "kernel_shap",
        "corruption_curve",
        {"linf": 0.099},
    ),
    "series": (
        ("--model", "mymodule:build_series", "--data", "mymodule:load_series", "--bounds", "-5,5"),
        "gradcam",
        "corruption_curve",
        {"linf": 1.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_file_passes_a_dry_run(case: str, folder: Path) -> None:
    arguments, explainer, metric, ball = CASES[case]
    done = run_init(*arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout.splitlines()[-1] == "next: standfast run study.yaml --dry-run"
    written = read_study()
    assert any(explainer in name for name in written["explainers"])
    assert any(metric in name for name in written["metrics"])
    assert written["neighbourhood"] == ball
    assert (written["samples"], written["preset"]) == (24, "quick")
    grid = load_study("study.yaml").grid()
    # three explainers and the controls; a table has no edges
    (samples,) = grid.data.values()
    assert len(grid.explainers) == (6 if samples.inputs.ndim == 2 else 7)
    # every entry of a list has a comment
    lines = (folder / "study.yaml").read_text().splitlines()
    assert all(
        lines[n - 1].startswith("  # ") for n, line in enumerate(lines) if line.startswith("  - ")
    )
    # small, so that the trial is short
    text = re.sub("samples: 24.*", "samples: 1", (folder / "study.yaml").read_text())
    text = re.sub("metrics:(.|\n)*executor", "metrics: [max_sensitivity]\nexecutor", text)
    (folder / "small.yaml").write_text(text)
    trial = CliRunner().invoke(app, ["run", "small.yaml", "--dry-run"])
    assert trial.exit_code == 0, trial.output
    assert "trials failed" not in trial.output


def test_a_regressor_and_real_labels(folder: Path) -> None:
    """The labels are 1.5 above what the estimator predicts; they are no classes."""
    given = ("--model", "mymodule:fit", "--data", "mymodule:load_doses")
    found = run_init(*given, "--task", "regression:tolerance=0.5")
    assert found.exit_code == 0, found.output
    assert "mean absolute error on the labels: 1.5 of 20 samples" in found.output
    grid = load_study(Path("study.yaml")).grid(check=True)
    (samples,), (source,) = grid.data.values(), grid.models.values()
    assert torch.allclose(
        source.model(samples, "cpu").logits(samples.inputs)[:, 0], 2 * samples.inputs[:, 0]
    )
    assert samples.targets is None
    refused = run_init(*given)
    assert refused.exit_code != 0
    assert "regression" in str(refused.exception)
    labels = run_init("--model", "mymodule:build", "--data", "mymodule:load_doses")
    assert labels.exit_code != 0
    assert "whole numbers" in str(labels.exception)


def test_weights_and_paths_are_found_from_the_folder_of_the_study(folder: Path) -> None:
    save_trained("w.pt")
    given = (
        "--model",
        "mymodule:build",
        "--weights",
        "w.pt",
        "--data",
        "few.npy",
        "--bounds",
        "-1,2",
    )
    # the module is not beside the study file
    assert run_init("studies/mine.yaml", *given).exit_code != 0
    (folder / "studies").mkdir()
    (folder / "studies" / "mymodule.py").write_text(MODULE)
    done = run_init("studies/mine.yaml", *given)
    assert done.exit_code == 0, (done.output, done.exception)
    written = read_study("studies/mine.yaml")
    assert written["models"] == {"mymodule": {"function": "mymodule:build", "weights": "../w.pt"}}
    assert written["data"] == {"few": {"path": "../few.npy", "bounds": [-1, 2]}}
    assert written["samples"] == 7, "there are no more"


def test_the_questions_of_the_documentation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text(
        encoding="utf-8"
    )
    lines = (
        page.partition("```\n$ standfast init --weights mymodel.pt\n")[2]
        .partition("\n```")[0]
        .splitlines()
    )
    answers = [line.rpartition(": ")[2] for line in lines[:2]]
    (tmp_path / "mymodel.py").write_text(MODULE)
    table = np.random.default_rng(0).normal(size=(60, 5))
    table = -2.37 + (table - table.min()) / (table.max() - table.min()) * 4.375
    labels = (table[:, 0] > 0.5).astype(np.int64)
    labels[:3] = 2
    np.savez(tmp_path / "patients.npz", inputs=table.astype(np.float32), labels=labels)
    monkeypatch.chdir(tmp_path)
    save_trained("mymodel.pt")
    done = run_init("--weights", "mymodel.pt", answers="\n".join(answers) + "\n")
    assert [line.rstrip() for line in done.output.splitlines()] == lines
    assert read_study()["data"]["patients"]["bounds"] == [-2.37, 2.01]


def test_explainers_that_fail_are_left_out(folder: Path) -> None:
    (folder / "odd.py").write_text(
        "import torch\nclass Odd(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.own = torch.nn.Conv2d(1, 1, 1)\n"
        "    def forward(self, x):\n        return x.flatten(1)[:, :3]\ndef build():\n    return Odd()\n"
    )
    done = run_init("--model", "odd:build", "--data", "digits")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "left out, because it fails on this model: gradcam: " in done.output
    assert read_study()["explainers"][:2] == ["saliency", "integrated_gradients"]
    assert "gradcam" not in read_study()["explainers"]


def test_assumed_bounds_are_said_to_be_assumed(folder: Path) -> None:
    rows = "\n".join(f"{0.03 * n:.3f},{0.01 * n:.3f},0.2,0.3,0.4,{n % 3}" for n in range(30))
    (folder / "table.csv").write_text("a,b,c,d,e,label\n" + rows + "\n")
    levels = np.random.default_rng(0).integers(256, size=(30, 5), dtype=np.uint8)
    np.savez("bytes.npz", inputs=levels, labels=np.arange(30) % 3)
    for data, own, assumed in (
        ("table.csv", (), True),
        ("few.npy", (), True),
        ("mymodule:load", (), True),
        ("table.csv", ("--bounds", "0,1"), False),
        ("bytes.npz", (), False),
        ("mymodule:load_known", (), False),
    ):
        done = run_init("--model", "mymodule:build", "--data", data, *own)
        assert done.exit_code == 0, (done.output, done.exception)
        assert (
            "warning: valid values of an input: [0, 1] is assumed; if that is wrong" in done.output
        ) is assumed, data
        assert ("in [0, 1], which is assumed; if" in Path("study.yaml").read_text()) is assumed, (
            data
        )
        # the columns a and b vary by 0.26 and 0.088, the others are constant
        if data == "table.csv":
            assert read_study()["neighbourhood"] == {"linf": 0.0088}


def test_a_column_of_classes_has_any_name(folder: Path) -> None:
    rows = "\n".join(f"{0.03 * n:.3f},{90 * n},0.2,0.3,0.4,{'abc'[n % 3]}" for n in range(12))
    (folder / "flowers.csv").write_text("a,b,c,d,e,species\n" + rows + "\n")
    given = ("--model", "mymodule:build", "--data", "flowers.csv")
    assert "the name of the column of classes as `label`" in str(run_init(*given).exception)
    assert "'species'" in str(run_init(*given, "--label", "specis").exception)
    done = run_init(*given, "--label", "species")
    assert done.exit_code == 0, (done.output, done.exception)
    entry = {"path": "flowers.csv", "label": "species", "bounds": [0, 990]}
    assert read_study()["data"] == {"flowers": entry}
    (content,) = load_study("study.yaml").grid().data.values()
    assert content.features == ("a", "b", "c", "d", "e")
    assert "warning: valid values of an input: [0.0, 990.0], as they occur" in done.output
    # columns in other units do not suit one radius
    assert "warning: a varies by 0.11 and b by 3.2e+02" in done.output


def test_a_file_is_not_replaced(folder: Path) -> None:
    (folder / "other.yaml").write_text("precious")
    refused = run_init("other.yaml", "--model", "lenet5-mnist", "--data", "digits")
    assert "expected the name of a new file" in str(refused.exception)
    assert (folder / "other.yaml").read_text() == "precious"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--model", "mymodule:build_other", "--data", "mymodule:load"),
            r"a model that takes samples of shape \(5,\)",
        ),
        (("--model", "mymodul:build", "--data", "mymodule:load"), "did you mean 'mymodule'"),
        (("--model", "mymodule:bild", "--data", "mymodule:load"), "did you mean 'build'"),
        (("--model", "mymodule:build", "--data", "nosuch.npz"), "--data: expected a name"),
        (
            ("--model", "lenet5-mnist", "--data", "digits", "--bounds", "0,1"),
            "none for a data set by name",
        ),
        (
            ("--model", "lenet5-mnist", "--data", "digits", "--label", "y"),
            "none for a data set by name",
        ),
        (
            ("--model", "lenet5-mnist", "--data", "digits", "--weights", "w.pt"),
            "none but for a module:function",
        ),
        (
            ("--model", "mymodule:build", "--data", "table.npz", "--bounds", "0,1"),
            "the range of the values",
        ),
        (
            ("--model", "mymodule:build", "--data", "table.npz", "--label", "y"),
            "no label but for a .csv table",
        ),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_written(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    done = run_init(*arguments)
    assert isinstance(done.exception, ArgumentError | StudyError), done.output
    assert re.search(message, str(done.exception)), done.exception
    assert not (folder / "study.yaml").exists()


def test_reading(folder: Path) -> None:
    for wrong in ("1", "1,1", "0,1,2", "a,b", ""):
        with pytest.raises(ArgumentError, match="--bounds"):
            read_bounds(wrong)
    assert read_source("table.npz", "--data", folder / "deep").entry == {"path": "../table.npz"}
    for low, high in (
        (-2.36531, 2.00231),
        (0.0, 255.0),
        (-1e-4, 3e-6),
        (0.0, 0.0),
        (-12345.6, 3.0),
    ):
        wide = round_outwards(low, high)
        assert wide[0] <= low
        assert wide[1] >= high
        assert wide[1] - wide[0] <= 1.03 * (high - low) + 1e-29


def test_the_accuracy_tells_an_untrained_model(folder: Path) -> None:
    given, signs = (
        ("--model", "mymodule:build"),
        ("--data", "mymodule:load_signs", "--bounds", "0,1"),
    )
    save_trained("good.pt")
    save_trained("wrong.pt", flip=True)
    torch.manual_seed(0)
    good = run_init(*given, *signs, "--weights", "good.pt")
    assert "accuracy on the labels: 100.0% of 100 samples" in good.stdout
    assert "warning" not in good.output
    wrong = run_init(*given, *signs, "--weights", "wrong.pt")
    assert "accuracy on the labels: 0.0% of 100 samples" in wrong.stdout
    assert "warning: is it trained?" in wrong.output
    without = run_init(*given, "--data", "mymodule:load")
    assert "warning: no weights were given (--weights), so is it trained?" in without.output
    unknown = run_init(*given, "--data", "few.npy")
    assert "accuracy" not in unknown.stdout
    assert "warning: no weights were given (--weights), so it may be untrained" in unknown.output
    # labels show that a function has loaded weights itself
    known = run_init("--model", "lenet5-mnist", "--data", "digits")
    assert re.search(r"accuracy on the labels: (9\d|100)\.\d%", known.stdout)
    assert "warning" not in known.output


@pytest.mark.parametrize("kind", ["pickle", "function", "category"])
def test_a_table_of_any_cells_beside_a_pipeline(kind: str, folder: Path) -> None:
    """Columns, types and the label are found; changes are in the user's units; the model answers as before."""
    pytest.importorskip("shap")
    frame = make_frame(90)
    frame = frame.assign(grade=frame["grade"].astype(str))
    paid = np.where(score(make_frame(90)) > 5, "yes", "no")
    frame.assign(id=[f"no. {n}" for n in range(90)], paid=paid).to_csv("credit.csv", index=False)
    encoders = make_encoders()
    if kind == "category":  # a model that takes no texts but categories
        columns, fitted = ["age", "town"], frame[["age", "town"]].astype({"town": "category"})
        model = OnlyCategories().fit(fitted, paid)
    else:
        columns, fitted = list(frame.columns), frame
        model = Pipeline([("encoders", encoders), ("model", LogisticRegression())]).fit(frame, paid)
    joblib.dump(model, "pipeline.joblib")
    (folder / "own.py").write_text(
        "import joblib\ndef load():\n    return joblib.load('pipeline.joblib')\n"
    )
    named = (
        ("--model", "own:load") if kind == "function" else ("--model", "pipeline.joblib", "--trust")
    )
    done = run_init(*named, "--data", "credit.csv")
    assert done.exit_code == 0, (done.output, done.exception)
    assert re.search(r"accuracy on the labels: \d\d", done.output)
    written = read_study()
    entry = written["data"]["credit"]
    types = {"town": "category"} if kind == "category" else {"opened": "date"}
    unused = [name for name in (*frame.columns, "id") if name not in columns]
    assert entry == {"table": "credit.csv", "label": "paid", "drop": unused, "types": types}
    changes = written["neighbourhood"]["table"]["changes"]
    assert set(changes) == {"age", "income"} & set(columns)
    assert changes["age"] == {"by": "2%", "step": 1}
    assert written["metrics"][0] == "worst_case:absolute=False"
    grid = load_study("study.yaml").grid()
    (samples,), (source,) = grid.data.values(), grid.models.values()
    assert isinstance(samples.reader, FrameReader)
    answers = source.model(samples, "cpu").logits(samples.inputs).softmax(1)
    np.testing.assert_allclose(answers, model.predict_proba(fitted[:24]), rtol=1e-9)


def test_a_pickle_needs_trust(folder: Path) -> None:
    (folder / "model.joblib").write_bytes(b"never opened")
    done = run_init("--model", "model.joblib", "--data", "table.npz")
    assert "--trust" in str(done.exception)


def test_programs_beside_a_table_of_numbers_get_numbers(folder: Path) -> None:
    """No pickle, so no data frame: a TorchScript program and a .csv table stay as they were."""
    rows = "\n".join(f"{0.03 * n:.3f},{0.01 * n:.3f},0.2,0.3,0.4,{n % 3}" for n in range(30))
    (folder / "numbers.csv").write_text("a,b,c,d,e,label\n" + rows + "\n")
    with warnings.catch_warnings(action="ignore"):
        torch.jit.trace(nn.Linear(5, 3), torch.rand(2, 5)).save("net.pt")
    done = run_init("--model", "net.pt", "--data", "numbers.csv")
    assert done.exit_code == 0, (done.output, done.exception)
    assert read_study()["data"] == {"numbers": {"path": "numbers.csv"}}


def test_a_folder_of_transformers_gets_a_study_of_texts(folder: Path) -> None:
    """The column of the longest texts is found; the study has what suits texts."""
    transformers()
    make_network("BertForSequenceClassification", "wordpiece", num_labels=2).save_pretrained("bert")
    wrap_tokenizer("wordpiece").save_pretrained("bert")
    texts, labels = read_reviews()
    rows = [f"{n},{text.replace(',', ' ')},{int(labels[n])}" for n, text in enumerate(texts[:3])]
    (folder / "reviews.csv").write_text("\n".join(["number,review,label", *rows]))
    done = run_init("--model", "bert", "--data", "reviews.csv")
    assert done.exit_code == 0, (done.output, done.exception)
    written = read_study()
    assert written["data"] == {"reviews": {"path": "reviews.csv", "text": "review"}}
    assert written["models"] == {"bert": {"transformers": "bert"}}
    assert written["neighbourhood"] == {"typos": {"rate": 0.1}}
    study = load_study("study.yaml")
    assert list(study.explainers) == [
        "saliency",
        "integrated_gradients",
        "kernel_shap",
    ]
    assert set(study.grid().controls) == {"random", "randomised:saliency"}
    assert study.grid().data["reviews"].extras["labels"].tolist() == labels[:3].tolist()
