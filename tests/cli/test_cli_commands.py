"""The command line as a whole: versions, help with examples, nearest names, errors without tracebacks, completion."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from standfast.cli import app, main


def run_main(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code of the command as the console script runs it."""
    monkeypatch.setattr(sys, "argv", ["standfast", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(str(stopped.value.code))


def test_versions() -> None:
    done = CliRunner().invoke(app, ["--version"])
    assert done.exit_code == 0
    assert done.output.splitlines() == [
        f"standfast {version('standfast')}",
        f"torch {version('torch')}",
        f"python {platform.python_version()}",
    ]


def test_versions_and_help_do_not_import_torch() -> None:
    """They answer at once."""
    code = """
import sys
from standfast.cli import main
for arguments in (["--version"], ["--help"], ["run", "--help"], ["list"], ["init", "--help"]):
    sys.argv = ["standfast", *arguments]
    try:
        main()
    except SystemExit:
        assert "torch" not in sys.modules, arguments
"""
    subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)


@pytest.mark.parametrize("name", sorted(get_command(app).commands))  # type: ignore[attr-defined]
def test_the_help_of_every_command_has_an_example_that_can_be_read(name: str) -> None:
    group: Any = get_command(app)
    command = group.commands[name]
    assert command.help
    example = " ".join((command.epilog or "").split())
    assert example.startswith("Example: standfast "), name
    # the options of the examples exist
    known = {option for parameter in command.params for option in parameter.opts}
    used = {word.rstrip(",.") for word in example.split() if word.startswith("--")}
    assert used <= known, used - known
    shown = CliRunner().invoke(app, [name, "--help"])
    assert shown.exit_code == 0
    assert "Example:" in shown.output


def test_list_of_commands_is_complete() -> None:
    page = Path(__file__).parents[2] / "docs" / "how-to" / "command-line.md"
    lines = page.read_text(encoding="utf-8").splitlines()
    group: Any = get_command(app)
    assert [
        name
        for name in group.commands
        if not any(line.startswith(f"standfast {name} ") for line in lines)
    ] == []


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["explain", "worst_cas"], "did you mean 'worst_case'?"),
        (["explain", "metrics"], "standfast list metrics shows them"),
        (["run", "nosuch.yaml"], "no such file"),
        (["report", "nosuch"], "manifest.json"),
    ],
)
def test_errors_go_to_stderr_without_a_traceback(
    arguments: list[str], hint: str, monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_main(arguments, monkeypatch) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("error: ")
    assert hint in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["reprot", "x"],
        ["run", "a.yaml", "--budjet", "3"],
        ["run", "a.yaml", "--preset", "fast"],
        ["list", "metric"],
        ["init", "a", "b", "--model", "m", "--data", "d"],
    ],
)
def test_wrong_options_go_to_stderr_too(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    assert run_main(arguments, monkeypatch) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "Usage:" in said.err
    assert "Traceback" not in said.err


def test_the_command_has_one_name_however_it_is_started() -> None:
    """Else the script that `python -m standfast` prints would complete the command python."""
    # typer would look for the shell among the processes that started it, and there may be none
    given = {**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    for module in ("standfast", "standfast.cli"):
        command = [sys.executable, "-m", module, "--show-completion", "bash"]
        shown = subprocess.run(command, capture_output=True, text=True, check=True, env=given)
        assert "_STANDFAST_COMPLETE=complete_bash" in shown.stdout
    assert shown.stdout.splitlines()[-1].endswith(" standfast")


def test_verify_names_what_is_damaged(tmp_path: Path) -> None:
    from torch import manual_seed, nn, rand

    from standfast import LinfBall, Model, evaluate
    from standfast.metrics import MaxSensitivity

    manual_seed(0)
    model = Model(nn.Linear(4, 3), bounds=(0.0, 1.0), device="cpu")
    metric = MaxSensitivity(LinfBall(0.1), samples=2)
    evaluate(
        model, ["saliency"], rand(3, 4), [metric], out=tmp_path, samples_per_job=1, progress=False
    )
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    files = sum(path.is_file() for path in tmp_path.rglob("*"))
    assert (done.exit_code, done.output.splitlines()[0]) == (
        0,
        f"{files} files: 0 damaged",
    )
    tables = sorted((tmp_path / "jobs").iterdir())
    tables[0].write_bytes(tables[0].read_bytes()[:-1])
    tables[1].unlink()
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    (line,) = [line for line in done.output.splitlines() if line.startswith("damaged: ")]
    assert line.startswith(f"damaged: jobs/{tables[0].name}: ")
    assert str(tmp_path) not in line
    assert "planned jobs: 1 not run yet, 0 failed" in done.output
    assert CliRunner().invoke(app, ["verify", str(tmp_path / "nothing")]).exit_code != 0


def test_verify_tells_what_was_not_run_from_what_failed(tmp_path: Path) -> None:
    from standfast.study.store import Store, pack_failure

    store = Store(tmp_path)
    store.write_manifest({"jobs": ["a", "b", "c"]})
    store.put(pack_failure({"job": "a", "seconds": 1.0}, "Error: x", "where"))
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "2 not run yet, 1 failed" in done.output
    for name in ("\x1b]0;PWN\x07", "odd.txt"):
        (tmp_path / "jobs" / name).touch()
    (tmp_path / "report\x1b").mkdir()
    (tmp_path / "manifest.json").write_text("{")
    done = CliRunner().invoke(app, ["verify", str(tmp_path)])
    assert done.output.startswith("damaged: manifest.json: ")
    assert "damaged: jobs/\\x1b]0;PWN\\x07: " in done.output
    assert "damaged: jobs/odd.txt: it is no file of results" in done.output
    assert "not checked, since they are not of results: report\\x1b\n" in done.output
    assert "\x1b" not in done.output


def test_another_executor_keeps_the_limits_of_the_file(tmp_path: Path) -> None:
    from standfast.evaluation import executor_of
    from standfast.study.executors import Limits, Processes, Slurm
    from standfast.study.file.spec import load_study

    (tmp_path / "s.yaml").write_text(
        "data: {digits: digits}\nmodels: {lenet: lenet5-mnist}\nexplainers: [saliency]\n"
        "neighbourhood: {linf: 0.1}\nmetrics: [max_sensitivity]\n"
        "executor: {workers: 1, timeout: 60, memory_gb: 4, retries: 2}\n"
    )
    study = load_study(tmp_path / "s.yaml")
    plain, other = executor_of(study), executor_of(study, "slurm")
    assert isinstance(plain, Processes)
    assert isinstance(other, Slurm)
    assert plain.limits == other.limits == Limits(60, 4, 2)


def test_the_advice_is_that_of_the_page() -> None:
    """Users of pip have no pages, so the command has what the page says where no step helps."""
    done = CliRunner().invoke(app, ["advice"])
    assert done.exit_code == 0
    said = " ".join(done.output.split())
    page = Path(__file__).parents[2] / "docs" / "how-to" / "if-none-holds.md"
    title, _, rest = page.read_text(encoding="utf-8").partition("\n")
    assert said.startswith(title.removeprefix("# "))
    points = [
        line for line in rest.partition("## If no step helps")[2].splitlines() if line[:2] == "- "
    ]
    assert len(points) == done.output.count("\n- ")
    for point in points:
        # the first words of each, without what marks them
        first = point.removeprefix("- ").replace("**", "").split(".")[0].split(", and")[0]
        assert " ".join(first.split()[:4]) in said
