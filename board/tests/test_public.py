"""The board uses public names of standfast only: those that a page of docs/api, or `__all__`, lists."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

BOARD = Path(__file__).parents[1]
API = BOARD.parent / "docs" / "api"


def list_imports() -> set[tuple[str, str]]:
    """Every name that the package imports from standfast, with its module."""
    found = set()
    for file in (BOARD / "standfast_board").glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if isinstance(node, ast.ImportFrom) and module.partition(".")[0] == "standfast":
                found |= {(module, alias.name) for alias in node.names}
            if isinstance(node, ast.Import):
                found |= {
                    (alias.name, "") for alias in node.names if alias.name.startswith("standfast.")
                }
    return found


def is_documented(module: str, name: str, pages: str) -> bool:
    """Whether a page of the reference lists a name of a module, or all names of the module."""
    entry = re.search(rf"^::: {re.escape(module)}$(\n    options: .*)?", pages, re.MULTILINE)
    options = "members: false" if entry is None else entry[1] or ""
    members = re.search(r"members: \[(.*?)\]", options)
    return "members: false" not in options and (members is None or name in members[1].split(", "))


def test_every_name_is_public() -> None:
    pages = "\n".join(page.read_text(encoding="utf-8") for page in API.rglob("*.md"))
    imports = list_imports()
    assert ("standfast.report.exports", "summary") in imports
    for module, name in sorted(imports):
        listed = getattr(importlib.import_module(module), "__all__", ())
        assert name in listed or is_documented(module, name, pages), f"{module}.{name}"
