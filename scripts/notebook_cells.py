"""Notebooks in jupytext's percent format, read and run without Jupyter: for the site and for the tests."""

from __future__ import annotations

import ast
import base64
import contextlib
import html
import io
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True)
class Cell:
    """A cell: Markdown as it is read, or Python."""

    kind: Literal["markdown", "code"]
    source: str


def cells(path: Path) -> list[Cell]:
    """The cells of `path`, without its header."""
    found = []
    for part in re.split(r"^# %%", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        head, _, body = part.partition("\n")
        if head.strip() == "[markdown]":
            text = "\n".join(
                line.removeprefix("#").removeprefix(" ") for line in body.strip().splitlines()
            )
            found.append(Cell("markdown", text))
        else:
            found.append(Cell("code", body.strip()))
    return found


def run(path: Path, namespace: dict[str, Any] | None = None) -> dict[int, str]:
    """Run the code cells in order, in one namespace; what each shows, as Markdown: prints, last expression, figures.

    As in Jupyter, the figures of matplotlib that a cell leaves open are shown below it, and then closed.

    Args:
        path: the notebook.
        namespace: of the cells; left with what they defined.
    """
    namespace = {} if namespace is None else namespace
    namespace.setdefault("__name__", "__main__")
    found = {}
    for place, cell in enumerate(cells(path)):
        if cell.kind == "code":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                value = _last_value(cell.source, f"{path.name}, cell {place}", namespace)
            shown = _text(printed.getvalue()) + _show(value) + _show_open_figures()
            if shown:
                found[place] = shown
    return found


def _last_value(source: str, name: str, namespace: dict[str, Any]) -> object:
    """Run a cell; the value of its last statement if that is an expression without a semicolon."""
    tree = ast.parse(source, name)
    last = tree.body[-1] if tree.body else None
    if not isinstance(last, ast.Expr) or source.rstrip().endswith(";"):
        exec(compile(tree, name, "exec"), namespace)
        return None
    exec(compile(ast.Module(tree.body[:-1], []), name, "exec"), namespace)
    return eval(compile(ast.Expression(last.value), name, "eval"), namespace)


def _show_open_figures() -> str:
    plt = sys.modules.get("matplotlib.pyplot")
    if plt is None:
        return ""
    figures = [plt.figure(number) for number in plt.get_fignums()]
    shown = "".join(map(_draw, figures))
    plt.close("all")
    return shown


def _draw(figure: Any) -> str:
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, bbox_inches="tight")
    return f'\n\n<img alt="" src="data:image/png;base64,{base64.b64encode(drawn.getvalue()).decode()}">\n\n'


def _show(value: Any) -> str:
    """A value as Jupyter would show it: what has a form for pages, or its `repr`."""
    for method in ("_repr_markdown_", "_repr_html_", "_repr_svg_"):
        text = getattr(value, method, lambda: None)() if value is not None else None
        if text:
            return (
                f"\n\n{text}\n\n"
                if method == "_repr_markdown_"
                else f'\n\n<div class="output">{text}</div>\n\n'
            )
    return "" if value is None else _text(repr(value))


def _text(text: str) -> str:
    return f'\n\n<pre class="output">{html.escape(text.rstrip())}</pre>\n\n' if text.strip() else ""
