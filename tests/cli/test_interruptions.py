"""Ctrl-C ends in one sentence, whatever runs, and leaves no worker that complains."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

import standfast
from standfast.cli import app, main

AGAIN = "interrupted; the same command starts again from the beginning"
CONTINUES = "interrupted; what is done is stored, and the same command continues from there"

CALL_CONTINUES = "interrupted; what is done is stored, and the same call continues from there"

#: explains for ever, once it has said that it does
ENDLESS = """
import pathlib, sys, time
import torch, standfast

class Endless(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.asked = 0
    def forward(self, x):
        if pathlib.Path("go").exists() and len(x) > 64:
            pathlib.Path("running").touch()
            time.sleep(600)
        return self.layer(x)

if __name__ == "__main__":
    torch.manual_seed(0)
    model = standfast.Model(Endless(), (0.0, 1.0), device="cpu")
    pathlib.Path("go").touch()
    standfast.evaluate(model, ["integrated_gradients:steps=80"], torch.rand(2, 4), ["aopc"], controls=False,
                       sanity=False, out="results", workers=int(sys.argv[1]))
"""


STUDY = """
data: {digits: digits}
samples: 2
models: {lenet5: lenet5-mnist}
explainers: [saliency]
metrics: [aopc]
"""


def interrupt(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


def has_ended(group: int) -> bool:
    """Whether all processes of a group end within some seconds; what cleans up behind them may end last."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    return False


@pytest.mark.parametrize("command", [["show"], ["report"], ["export"]])
def test_what_stores_nothing_says_that_it_starts_again(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("standfast.report.load_results", interrupt)
    ended = CliRunner().invoke(app, [*command, "results"])
    assert (ended.exit_code, ended.stderr, ended.stdout) == (130, f"\n{AGAIN}\n", "")


def test_a_dry_run_starts_again_and_a_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    monkeypatch.setattr("standfast.question.question.Question.make_grid", interrupt)
    monkeypatch.chdir(tmp_path)
    for options, sentence in ((["--dry-run"], AGAIN), ([], CONTINUES)):
        ended = CliRunner().invoke(app, ["run", "study.yaml", *options])
        assert (ended.exit_code, ended.stderr) == (130, f"\n{sentence}\n"), ended.output


@pytest.mark.parametrize("cache", ["kept", "off"])
def test_python_is_told_how_to_go_on(
    cache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And gets the error, with the same words."""
    monkeypatch.setenv("STANDFAST_CACHE", "off" if cache == "off" else str(tmp_path))
    monkeypatch.setattr("standfast.question.question.Question.make_grid", interrupt)
    model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
    words = (
        CALL_CONTINUES
        if cache == "kept"
        else "interrupted; the same call starts again from the beginning"
    )
    for progress in (True, False):
        with pytest.raises(KeyboardInterrupt, match=words):
            standfast.evaluate(
                model, "saliency", torch.rand(2, 1, 28, 28), ["aopc"], progress=progress
            )
        assert capsys.readouterr().err == (f"\n{words}\n" if progress else "")


def test_run_study_is_told_how_to_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(STUDY)
    monkeypatch.setattr("standfast.question.question.Question.make_grid", interrupt)
    with pytest.raises(KeyboardInterrupt):
        standfast.run_study(study, out=tmp_path / "results")
    assert capsys.readouterr().err == f"\n{CALL_CONTINUES}\n"


def test_loading_the_commands_ends_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    half_loaded: Any = types.ModuleType("standfast.cli.commands")
    half_loaded.main = interrupt
    monkeypatch.setitem(sys.modules, "standfast.cli.commands", half_loaded)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 130
    assert capsys.readouterr().err == f"\n{AGAIN}\n"


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_evaluate_in_python_raises_and_no_worker_says_anything(
    workers: int, tmp_path: Path
) -> None:
    """`tests/study/test_studies.py` interrupts a worker of the command line always."""
    (tmp_path / "endless.py").write_text(ENDLESS)
    command = [sys.executable, "endless.py", str(workers)]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    began = time.monotonic()
    while not (tmp_path / "running").exists():
        assert process.poll() is None
        assert time.monotonic() - began < 300
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, said = process.communicate(timeout=60)
    assert said.count("Traceback") == 1
    assert said.splitlines()[-1] == f"KeyboardInterrupt: {CALL_CONTINUES}"
    assert has_ended(process.pid)
