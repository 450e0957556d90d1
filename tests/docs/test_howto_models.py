"""Guides to models and explainers: the blocks that need an optional package run where it is there.

All other blocks of the documentation, these pages' included, are run by `test_docs_code.py`.
"""

from __future__ import annotations

import importlib
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from test_docs_code import ROOT, blocks

PAGES = ("your-model", "explainers-from-elsewhere", "text")
_NEEDS = re.compile(r"needs ([a-z_]+)$")


def can_import(package: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            importlib.import_module(package)
    except (ImportError, RuntimeError):
        return False
    return True


@pytest.mark.parametrize("page", PAGES)
def test_blocks_that_need_a_package(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = ROOT / "docs" / "how-to" / f"{page}.md"
    namespace: dict[str, Any] = {"__name__": "__main__"}
    missing = []
    for block in blocks(path.read_text(encoding="utf-8")):
        needed = _NEEDS.match(block.reason or "")
        if needed and not can_import(needed[1]):
            missing.append(needed[1])
        elif block.kind == "python" and (block.reason is None or needed):
            code = compile("\n" * (block.line - 1) + block.code, str(path), "exec")
            with warnings.catch_warnings():
                if needed:
                    warnings.simplefilter("ignore")
                exec(code, namespace)
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
