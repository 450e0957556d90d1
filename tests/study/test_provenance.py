"""What a manifest records of versions and of git, and that it is found out without needless work."""

from __future__ import annotations

import inspect
import subprocess
from pathlib import Path
from typing import Any

import pytest

from standfast.errors import find_version
from standfast.study import provenance

#: without the memory that tests have of the checkout that they run in
find_revision = inspect.unwrap(provenance.git_revision)


def run_git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    command = ["git", "-C", str(folder), *identity, *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A folder with one commit."""
    try:
        run_git(tmp_path, "init")
    except OSError:
        pytest.skip("needs git")
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "study.yaml").write_text("seed: 0\n")
    run_git(tmp_path, "add", ".")
    run_git(tmp_path, "commit", "-m", "A study")
    return tmp_path


def test_the_revision_of_a_folder_within_a_checkout(checkout: Path) -> None:
    revision = run_git(checkout, "rev-parse", "HEAD")
    assert find_revision(checkout / "inner") == revision
    (checkout / "inner" / "study.yaml").write_text("seed: 1\n")
    assert find_revision(checkout / "inner") == f"{revision}+changes"


def test_git_is_not_asked_outside_of_a_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def refuse(*args: Any, **options: Any) -> None:
        asked.append(args)
        raise OSError("no git")

    monkeypatch.delenv("GIT_DIR", raising=False)
    monkeypatch.setattr(subprocess, "run", refuse)
    assert find_revision(tmp_path) is None
    assert asked == []
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert find_revision(tmp_path) is None
    assert len(asked) == 1


def test_a_package_that_is_missing_may_be_installed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    assert find_version("installed-later") == ""
    metadata = tmp_path / "installed_later-1.5.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Name: installed-later\nVersion: 1.5\n")
    assert find_version("installed-later") == "1.5"
