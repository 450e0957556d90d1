"""What `make demo` and `make test` install, and that something moves meanwhile."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", ROOT / "scripts" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that make looks at, with nothing installed."""
    if shutil.which("make") is None:
        pytest.skip("make is not installed")
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def list_installations(checkout: Path, target: str) -> list[str]:
    """The commands that would install something for a target."""
    command = ["make", "-n", target]
    planned = subprocess.run(
        command, cwd=checkout, capture_output=True, text=True, check=True
    ).stdout
    return [line for line in planned.splitlines() if "install.py" in line]


def test_the_demonstration_needs_the_package_alone(checkout: Path) -> None:
    (installation,) = list_installations(checkout, "demo")
    assert installation.endswith(" -e .")
    assert 'constraints.txt)" -c constraints.txt' in installation


@pytest.mark.parametrize("target", ["test", "setup"])
def test_the_tests_need_the_rest(target: str, checkout: Path) -> None:
    first, second = list_installations(checkout, target)
    assert first.endswith(" -e .")
    assert " -e '.[dev,docs,peers]'" in second
    for installation in (first, second):  # torch by its exact version, always
        assert "\"$(grep '^torch==' constraints.txt)\" -c constraints.txt" in installation


def test_what_is_installed_is_not_installed_again(checkout: Path) -> None:
    (checkout / ".venv").mkdir()
    (checkout / ".venv" / ".installed-demo").touch()
    assert list_installations(checkout, "demo") == []
    (only,) = list_installations(checkout, "test")
    assert "[dev,docs,peers]" in only


def test_a_line_comes_every_few_seconds(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """pip says nothing while it unpacks; a program that does the same stands for it."""
    slow = tmp_path / "pip.py"
    slow.write_text(
        "import time\nprint('Installing collected packages: torch', flush=True)\ntime.sleep(0.8)\n"
    )
    monkeypatch.setattr(install, "_SECONDS_BETWEEN_LINES", 0.1)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert install.install(["-e", "."]) == 0
    said = capfd.readouterr().out.splitlines()
    assert len(said) >= 2
    assert said[-1].endswith(" s  unpacking: 0 packages are there")


def test_a_failure_of_pip_is_shown(
    install: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    failing = tmp_path / "pip.py"
    failing.write_text(
        "import sys\nprint('ERROR: no matching distribution for', *sys.argv[-1:])\nsys.exit(1)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert install.install(["nowhere"]) == 1
    assert "ERROR: no matching distribution for nowhere" in capfd.readouterr().err


def test_steps_are_read_from_what_pip_says(install: ModuleType) -> None:
    steps = {
        "  Downloading polars-2.1.0-py3-none-any.whl (53.9 MB)": "downloading polars-2.1.0 (53.9 MB)",
        "Processing /wheels/torch-2.13.0+cpu-cp311-cp311-linux_x86_64.whl": "downloading torch-2.13.0+cpu",
        "Collecting jinja2 (from torch==2.13.0)": "looking for jinja2",
        "Building wheels for collected packages: standfast": "building standfast",
        "Requirement already satisfied: numpy": None,
    }
    assert {line: install.describe_step(line) for line in steps} == steps
