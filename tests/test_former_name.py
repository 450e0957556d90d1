"""The name that this project had before its first release is gone, and what bears it is refused in one way."""

from __future__ import annotations

import json
import re
import subprocess
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path

import pytest

import standfast
from standfast import registry
from standfast.checks.baseline import read_baseline
from standfast.data import data_root
from standfast.errors import FORMER_NAME, FormerNameError
from standfast.evidence import verify_pack
from standfast.tensors import thread_budget

ROOT = Path(__file__).parents[1]
#: its one place, with the example of an error
ALLOWED = {"src/standfast/errors.py": 2}


def test_no_file_has_the_former_name() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False).stdout
    if not listed:
        pytest.skip("needs the repository's list of files")
    found = {}
    for name in listed.split("\0")[:-1]:
        count = len(re.findall(FORMER_NAME.encode(), (ROOT / name).read_bytes(), re.IGNORECASE))
        count += FORMER_NAME in name.lower()
        if count:
            found[name] = count
    assert found == ALLOWED


@pytest.mark.parametrize("read", [data_root, thread_budget])
def test_variables(read: object, monkeypatch: pytest.MonkeyPatch) -> None:
    name = {data_root: "DATA", thread_budget: "THREADS"}[read]  # type: ignore[index]
    monkeypatch.delenv(f"STANDFAST_{name}", raising=False)
    monkeypatch.setenv(f"{FORMER_NAME.upper()}_{name}", "3")
    with pytest.raises(FormerNameError, match=f"STANDFAST_{name}"):
        read()  # type: ignore[operator]
    monkeypatch.setenv(f"STANDFAST_{name}", "2")  # who sets both knows the new one
    assert str(read()) == "2"  # type: ignore[operator]


def test_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry_points(*, group: str, name: str = "mine") -> EntryPoints:
        old = EntryPoint("mine", "package:Mine", f"{FORMER_NAME}.metrics")
        return EntryPoints((old,)).select(group=group, name=name)

    monkeypatch.setattr(registry, "entry_points", entry_points)
    with pytest.raises(FormerNameError, match=r"register it under standfast\.metrics"):
        standfast.metrics.get("mine")
    with pytest.raises(standfast.errors.UnknownNameError):
        standfast.metrics.get("other")


def test_files(tmp_path: Path) -> None:
    seal = f"{FORMER_NAME}-sha256-{'0' * 64}"
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 2, "seal": seal}))
    with pytest.raises(FormerNameError):
        standfast.load_results(tmp_path)
    (tmp_path / "evidence.json").write_text(json.dumps({f"{FORMER_NAME}_evidence": 1}))
    with pytest.raises(FormerNameError):
        verify_pack(tmp_path)
    (tmp_path / "baseline.json").write_text(json.dumps({f"{FORMER_NAME}_baseline": 1}))
    (tmp_path / "values.parquet").write_bytes(b"")
    with pytest.raises(FormerNameError):
        read_baseline(tmp_path)
