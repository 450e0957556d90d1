"""`standfast init`: a study file that a dry run accepts, for models and data of all kinds."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ruamel.yaml import YAML
from torch import nn
from typer.testing import CliRunner, Result

from standfast.cli import app, commands
from standfast.cli.new_study import read_bounds, read_names, read_source, round_outwards
from standfast.errors import ArgumentError
from standfast.study.file.document import StudyError
from standfast.study.file.spec import load_study

MODULE = """
import torch
from torch import nn

def build():
    return nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3))

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

def explain(module, inputs, targets):
    return inputs
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "mymodule.py").write_text(MODULE)
    table = np.random.default_rng(0).normal(size=(30, 5)).astype(np.float32)
    np.savez(tmp_path / "table.npz", inputs=table, labels=np.arange(30) % 3)
    np.save(tmp_path / "few.npy", np.random.default_rng(0).random((7, 5), dtype=np.float32))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_init(*arguments: str, answers: str | None = None) -> Result:
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
    "named": (("--model", "lenet5-mnist", "--data", "digits"), "gradcam", "aopc", {"linf": 0.1}),
    "table": (
        ("--model", "mymodule:build", "--data", "mymodule:load"),
        "kernel_shap",
        "corruption_curve",
        {"linf": 0.027},
    ),
    "file": (("--model", "mymodule:build", "--data", "table.npz"), "kernel_shap", "corruption_curve", {"linf": 0.099}),
    "series": (
        ("--model", "mymodule:build_series", "--data", "mymodule:load_series", "--bounds", "-5,5", "--norm", "l2"),
        "gradcam",
        "corruption_curve",
        {"l2": 1.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_file_passes_a_dry_run(case: str, folder: Path) -> None:
    arguments, explainer, metric, ball = CASES[case]
    done = run_init("--yes", *arguments)
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
    assert all(lines[n - 1].startswith("  # ") for n, line in enumerate(lines) if line.startswith("  - "))
    # and that of a control says so
    assert sum(line.startswith("  # Control, ") for line in lines) == len(grid.explainers) - 3
    # small, so that the trial is short
    text = re.sub("samples: 24.*", "samples: 1", (folder / "study.yaml").read_text())
    text = re.sub("metrics:(.|\n)*executor", "metrics: [max_sensitivity]\nexecutor", text)
    (folder / "small.yaml").write_text(text)
    trial = CliRunner().invoke(app, ["run", "small.yaml", "--dry-run"])
    assert trial.exit_code == 0, trial.output
    assert "trials failed" not in trial.output


def test_all_options(folder: Path) -> None:
    torch.save(torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).state_dict(), "w.pt")
    done = run_init(
        *("studies/mine.yaml", "--yes", "--model", "mymodule:build", "--weights", "w.pt", "--data", "few.npy"),
        *("--explainers", "saliency,kernel_shap:samples=20,segments=pixels,mymodule:explain", "--samples", "5"),
        *("--metrics", "max_sensitivity:samples=3", "--radius", "0.03", "--preset", "paper", "--bounds", "-1,2"),
    )
    assert done.exit_code != 0  # the module is not beside the study file
    (folder / "studies").mkdir(exist_ok=True)
    (folder / "studies" / "mymodule.py").write_text(MODULE)
    done = run_init(
        *("studies/mine.yaml", "--yes", "--model", "mymodule:build", "--weights", "w.pt", "--data", "few.npy"),
        *("--explainers", "saliency,kernel_shap:samples=20,segments=pixels,mymodule:explain", "--samples", "5"),
        *("--metrics", "max_sensitivity:samples=3", "--radius", "0.03", "--preset", "paper", "--bounds", "-1,2"),
    )
    assert done.exit_code == 0, (done.output, done.exception)
    written = read_study("studies/mine.yaml")
    assert written["models"] == {"mymodule": {"function": "mymodule:build", "weights": "../w.pt"}}
    assert written["data"] == {"few": {"path": "../few.npy", "bounds": [-1, 2]}}
    assert written["explainers"][1:] == ["kernel_shap:samples=20,segments=pixels", {"function": "mymodule:explain"}]
    assert written["metrics"] == ["max_sensitivity:samples=3,normalise=True"]
    assert (written["samples"], written["preset"], written["neighbourhood"]) == (5, "paper", {"linf": 0.03})
    assert "1% of the range" in Path("studies/mine.yaml").read_text()


def test_few_samples_are_all_taken(folder: Path) -> None:
    assert run_init("--yes", "--model", "mymodule:build", "--data", "few.npy").exit_code == 0
    assert read_study()["samples"] == 7


def test_questions(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong answer is asked for again; an empty one takes the default."""
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    answers = [
        "lenet",
        "mymodule:build",
        "w.pt",
        "",
        "table.npz",
        "1,0",
        "-9,9",
        "salency",
        "saliency, random",
        "",
        "100",
        "0.2",
    ]
    done = run_init(answers="\n".join(answers) + "\n")
    assert done.exit_code == 0, (done.output, done.exception)
    refused = re.findall(r"error: (--\w+):", done.output)
    assert refused == ["--model", "--weights", "--bounds", "--explainers", "--radius"]
    assert "did you mean 'saliency'?" in done.output
    written = read_study()
    assert written["data"]["table"]["bounds"] == [-9, 9]
    assert written["explainers"] == ["saliency", "random"]
    assert written["metrics"][0] == "worst_case"
    assert written["neighbourhood"] == {"linf": 0.2}
    # and again: it asks before it overwrites
    before = Path("study.yaml").read_text()
    refused = run_init("--model", "lenet5-mnist", "--data", "digits", answers="n\n")
    assert isinstance(refused.exception, ArgumentError)
    assert Path("study.yaml").read_text() == before
    agreed = run_init("--model", "lenet5-mnist", "--data", "digits", answers="y\n\n\n\n")
    assert agreed.exit_code == 0, (agreed.output, agreed.exception)
    assert Path("study.yaml").read_text() != before


def test_the_questions_of_the_documentation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md").read_text(encoding="utf-8")
    lines = page.partition("```\n$ standfast init\n")[2].partition("\n```")[0].splitlines()
    answers = [line.rpartition(": ")[2] if ": " in line else "" for line in lines[:4] + lines[6:9]]
    (tmp_path / "mymodel.py").write_text(MODULE)
    table = np.random.default_rng(0).normal(size=(60, 5))
    table = -2.37 + (table - table.min()) / (table.max() - table.min()) * 4.375
    labels = (table[:, 0] > 0.5).astype(np.int64)
    labels[:3] = 2
    np.savez(tmp_path / "patients.npz", inputs=table.astype(np.float32), labels=labels)
    monkeypatch.chdir(tmp_path)
    save_trained("mymodel.pt")
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    done = run_init(answers="\n".join(answers) + "\n")
    assert [line.rstrip() for line in done.output.splitlines()] == lines


def test_what_does_not_fit_is_asked_for_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models and data that do not fit each other, and explainers that fail, do not end the questions."""
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    first = ["mymodule:build_other", "", "", "table.npz", "-9,9"]  # data of a model of one's own have no default
    again = ["mymodule:build", "", "", "", "gradcam", "max_sensitivity", "0.2", "saliency,gradcam", "", ""]
    done = run_init(answers="\n".join([*first, *again]) + "\n")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "[digits]" not in done.output
    assert len(re.findall("error: ", done.output)) == 2
    assert "[mymodule:build_other]" in done.output  # offered again
    assert "left out, because it fails on this model: gradcam: " in done.output
    written = read_study()
    assert written["data"]["table"]["bounds"] == [-9, 9]
    assert (written["explainers"], written["metrics"]) == (["saliency"], ["max_sensitivity:normalise=True"])
    assert written["neighbourhood"] == {"linf": 0.2}
    # what the command says cannot be answered otherwise
    refused = run_init("other.yaml", "--data", "nosuch.npz", answers="mymodule:build\n\n")
    assert isinstance(refused.exception, ArgumentError)
    refused = run_init("other.yaml", "--model", "mymodule:build_other", "--data", "mymodule:load", answers="\n")
    assert isinstance(refused.exception, StudyError)


def test_ctrl_c_at_a_question_ends_the_command_at_once(folder: Path) -> None:
    pty = pytest.importorskip("pty")
    terminal, end = pty.openpty()
    with subprocess.Popen([sys.executable, "-m", "standfast", "init"], stdin=end, stdout=end, stderr=end) as asking:
        try:
            said = b""
            while b"[lenet5-mnist]: " not in said:
                said += os.read(terminal, 999)
            time.sleep(0.5)  # until it waits for the answer
            asking.send_signal(signal.SIGINT)
            assert asking.wait(10) == 130
        finally:
            asking.kill()
            os.close(terminal)
            os.close(end)


def test_ctrl_d_at_a_question_is_a_stop_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    assert run_init(answers="").exit_code == 130
    Path("study.yaml").touch()
    assert run_init(answers="").exit_code == 130


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
        done = run_init("--yes", "--force", "--model", "mymodule:build", "--data", data, *own)
        assert done.exit_code == 0, (done.output, done.exception)
        assert ("[0, 1] is assumed; if that is wrong, give --bounds" in done.output) is assumed, data
        assert ("in [0, 1], which is assumed; if" in Path("study.yaml").read_text()) is assumed, data
        if data == "table.csv":  # the columns a and b vary by 0.26 and 0.088, the others are constant
            assert read_study()["neighbourhood"] == {"linf": 0.0088}


def test_a_column_of_classes_has_any_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\n".join(f"{0.03 * n:.3f},0.1,0.2,0.3,0.4,{'abc'[n % 3]}" for n in range(12))
    (folder / "flowers.csv").write_text("a,b,c,d,e,species\n" + rows + "\n")
    given = ("--force", "--model", "mymodule:build", "--data", "flowers.csv")
    quick = ("--explainers", "random", "--metrics", "max_sensitivity", "--radius", "0.1")
    refused = run_init("--yes", *given, *quick)
    assert "the name of the column of classes as `label`" in str(refused.exception)
    assert "'species'" in str(run_init("--yes", *given, *quick, "--label", "specis").exception)
    assert run_init("--yes", *given, *quick, "--label", "species").exit_code == 0
    assert read_study()["data"] == {"flowers": {"path": "flowers.csv", "label": "species"}}
    (content,) = load_study("study.yaml").grid().data.values()
    assert content.features == ("a", "b", "c", "d", "e")
    # columns in other units do not suit one radius
    rows = "\n".join(f"{0.03 * n:.3f},{90 * n},0.2,0.3,0.4,{'abc'[n % 3]}" for n in range(12))
    (folder / "flowers.csv").write_text("a,b,c,d,e,species\n" + rows + "\n")
    done = run_init("--yes", *given, *quick, "--label", "species", "--bounds", "0,1000")
    assert "warning: c varies by 0 and b" not in done.output
    assert "one radius holds for all columns" in done.output
    # the question offers the one column that has no numbers
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    done = run_init(*given, *quick, answers="\nsepcies\n\n\n")
    assert done.exit_code == 0, (done.output, done.exception)
    assert "or none (a, b, c, d, e, species) [species]" in done.output
    assert "did you mean 'species'" in done.output
    assert read_study()["data"]["flowers"]["label"] == "species"
    assert isinstance(run_init("--yes", *given[:4], "table.npz", *quick, "--label", "y").exception, ArgumentError)


def test_a_file_is_not_replaced(folder: Path) -> None:
    (folder / "study.yaml").write_text("precious")
    refused = run_init("--yes", "--model", "lenet5-mnist", "--data", "digits")
    assert "expected the name of a new file, or --force" in str(refused.exception)
    assert (folder / "study.yaml").read_text() == "precious"
    assert run_init("--yes", "--force", "--model", "lenet5-mnist", "--data", "digits").exit_code == 0
    assert read_study()["seed"] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--model", "mymodule:build_other", "--data", "mymodule:load"), r"a model that takes samples of shape \(5,\)"),
        (("--model", "mymodul:build", "--data", "mymodule:load"), "did you mean 'mymodule'"),
        (("--model", "mymodule:bild", "--data", "mymodule:load"), "did you mean 'build'"),
        (("--model", "mymodule:build", "--data", "nosuch.npz"), "--data: expected a name"),
        (("--model", "lenet5-mnist", "--data", "digits", "--bounds", "0,1"), "none for a data set by name"),
        (("--model", "lenet5-mnist", "--data", "digits", "--weights", "w.pt"), "none but for a module:function"),
        (("--model", "lenet5-mnist", "--data", "digits", "--radius", "2"), "at most the range of the inputs, 1"),
        (("--model", "lenet5-mnist", "--data", "digits", "--radius", "-1"), "a number above 0"),
        (("--model", "lenet5-mnist", "--data", "digits", "--samples", "301"), "at most the 300 samples"),
        (("--model", "lenet5-mnist", "--data", "digits", "--preset", "fast"), "quick, standard, paper"),
        (("--model", "lenet5-mnist", "--data", "digits", "--metrics", "aopc:stepz=3"), "steps"),
        (("--model", "mymodule:build", "--data", "table.npz", "--bounds", "0,1"), "the range of the values"),
        (
            ("--model", "mymodule:build", "--data", "mymodule:load", "--explainers", "gradcam"),
            "gradcam needs a convolution, and this Sequential has none",
        ),
    ],
)
def test_what_does_not_fit_is_said_and_nothing_is_written(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    done = run_init("--yes", *arguments)
    assert isinstance(done.exception, ArgumentError | StudyError), done.output
    assert re.search(message, str(done.exception)), done.exception
    assert not (folder / "study.yaml").exists()


def test_reading(folder: Path) -> None:
    assert read_names("lime:samples=9,seed=1 , random", "--explainers") == ("lime:samples=9,seed=1", "random")
    with pytest.raises(ArgumentError, match="at least one name"):
        read_names(" , ", "--metrics")
    for wrong in ("1", "1,1", "0,1,2", "a,b", ""):
        with pytest.raises(ArgumentError, match="--bounds"):
            read_bounds(wrong)
    assert read_source("table.npz", "--data", folder / "deep").entry == {"path": "../table.npz"}
    for low, high in ((-2.36531, 2.00231), (0.0, 255.0), (-1e-4, 3e-6), (0.0, 0.0), (-12345.6, 3.0)):
        wide = round_outwards(low, high)
        assert wide[0] <= low
        assert wide[1] >= high
        assert wide[1] - wide[0] <= 1.03 * (high - low) + 1e-29


def test_the_accuracy_tells_an_untrained_model(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given = ("--force", "--model", "mymodule:build", "--explainers", "saliency", "--metrics", "max_sensitivity")
    signs = ("--data", "mymodule:load_signs")
    save_trained("good.pt")
    save_trained("wrong.pt", flip=True)
    torch.manual_seed(0)
    good = run_init("--yes", *given, *signs, "--weights", "good.pt")
    assert "accuracy on the labels: 100.0% of 100 samples" in good.stdout
    assert "warning" not in good.output
    wrong = run_init("--yes", *given, *signs, "--weights", "wrong.pt")
    assert "accuracy on the labels: 0.0% of 100 samples" in wrong.stdout
    assert "warning: is it trained?" in wrong.output
    without = run_init("--yes", *given, "--data", "mymodule:load")
    assert "warning: no weights were given (--weights), so is it trained?" in without.output
    unknown = run_init("--yes", *given, "--data", "few.npy")
    assert "accuracy" not in unknown.stdout
    assert "warning: no weights were given (--weights), so it may be untrained" in unknown.output
    # labels show that a function has loaded weights itself
    known = run_init("--yes", "--force", "--model", "lenet5-mnist", "--data", "digits", "--metrics", "worst_case")
    assert re.search(r"accuracy on the labels: (9\d|100)\.\d%", known.stdout)
    assert "warning" not in known.output
    # a question asks for them, and the file is found from the folder of the study
    monkeypatch.setattr(commands, "_is_terminal", lambda: True)
    done = run_init(*given, *signs, answers="nothing.pt\ngood.pt\n\n\n")
    assert done.exit_code == 0, (done.output, done.exception)
    assert read_study()["models"] == {"mymodule": {"function": "mymodule:build", "weights": "good.pt"}}


def test_controls_only_where_a_metric_compares_with_them(folder: Path) -> None:
    given = ("--yes", "--force", "--model", "lenet5-mnist", "--data", "digits")
    assert run_init(*given, "--metrics", "aopc").exit_code == 0
    assert read_study()["explainers"][3:] == ["random", "input_copy", "edges", "randomised:saliency"]
    assert run_init(*given, "--metrics", "max_sensitivity,worst_case").exit_code == 0
    assert read_study()["explainers"] == ["saliency", "integrated_gradients", "gradcam"]
    # those that are asked for are kept as they are
    assert run_init(*given, "--metrics", "aopc", "--explainers", "saliency").exit_code == 0
    assert read_study()["explainers"] == ["saliency"]
