"""The pytest fixture, and the examples for pipelines, each tried in a small repository."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from quick_processes import QuickContext
from ruamel.yaml import YAML
from typer.testing import CliRunner

from standfast.cli import app

EXAMPLES = Path(__file__).parents[2] / "examples"
STUDY: dict[str, Any] = {
    "samples": 8,
    "data": {"digits": "digits"},
    "models": {"lenet": "lenet5-mnist"},
    "explainers": ["saliency"],
    "metrics": [{"max_sensitivity": {"neighbourhood": {"linf": 0.01}, "samples": 2}}],
    "sanity": False,
    "controls": False,
}
LIMITS = {"pass": 1e9, "fail": 1e-9}


def write_policy(folder: Path, outcome: str) -> None:
    requirement = {"metric": "max_sensitivity", "at_most": LIMITS.get(outcome, 1.0)}
    samples = 2 if outcome == "undecided" else 8
    YAML().dump(
        {**STUDY, "samples": samples, "requirements": [requirement]}, folder / "policy.yaml"
    )


def run_pytest(folder: Path, patch: pytest.MonkeyPatch) -> str:
    """What pytest writes in a process of its own, which has loaded standfast when it starts."""
    # where standfast is installed, it is a plugin already
    patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    process = QuickContext().Process(do_run_pytest, (str(folder),), "pytest")
    process.start()
    process.join(120)
    return (folder / "output.txt").read_text()


def do_run_pytest(folder: str) -> None:
    """What the process does."""
    os.chdir(folder)
    plugin = ["-p", "standfast.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:randomly"]
    with Path("output.txt").open("w") as output, contextlib.redirect_stdout(output):
        pytest.main(["-q", "--rootdir", folder, *plugin, folder])


def test_the_fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copy(EXAMPLES / "ci" / "test_explanations.py", tmp_path)
    (tmp_path / "test_undecided.py").write_text(
        "def test_undecided(standfast_check, tmp_path):\n"
        "    standfast_check('undecided/policy.yaml', tmp_path, undecided='skip')\n"
    )
    (tmp_path / "undecided").mkdir()
    write_policy(tmp_path / "undecided", "undecided")
    write_policy(tmp_path, "fail")
    found = run_pytest(tmp_path, monkeypatch)
    assert "1 failed, 1 skipped" in found, found
    assert "FAIL       saliency: max_sensitivity: median at most 1e-09" in found


@pytest.mark.parametrize("name", ["github.yml", "gitlab.yml", "pre-commit-config.yaml"])
def test_the_commands_of_an_example_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its YAML is read, and its standfast command is run in a folder with a policy."""
    content = YAML(typ="safe").load(EXAMPLES / "ci" / name)
    if name == "github.yml":
        commands = [step.get("run", "") for step in content["jobs"]["check"]["steps"]]
    elif name == "gitlab.yml":
        commands = content["explanations"]["script"]
        assert content["explanations"]["artifacts"]["reports"]["junit"] == "check.xml"
        assert content["explanations"]["allow_failure"]["exit_codes"] == [3]
    else:
        commands = [content["repos"][0]["hooks"][0]["entry"]]
    (command,) = (each for each in commands if each.startswith("standfast check"))
    write_policy(tmp_path, "fail")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 1, done.output
    written = {file.name for file in tmp_path.iterdir() if file.name.startswith("check.")}
    assert written == {part.partition("=")[2] for part in shlex.split(command) if "=" in part}
    if "check.xml" in written:
        assert ET.parse(tmp_path / "check.xml").getroot()[0].get("failures") == "1"
