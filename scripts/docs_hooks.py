"""What MkDocs does beyond itself for this site: formulas, notebooks and public names. See mkdocs.yml.

- Formulas, `$...$` and `$$...$$`, become MathML when the site is built, so that pages load no script for them.
- Notebooks, `notebooks/*.py` in jupytext's percent format, are run cell by cell and become pages with their output, and
  a file for Jupyter to download. `HOLDFAST_DOCS_RUN=0` shows them without running them.
- `<!-- public: holdfast.metrics -->` becomes the reference of all that the module has in `__all__`, but for names
  after a `without`.
"""

from __future__ import annotations

import contextlib
import html
import importlib
import inspect
import os
import re
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(Path(__file__).parent))  # MkDocs loads this file by its path

import notebook_cells  # noqa: E402

from holdfast.explainers import Explainer  # noqa: E402
from holdfast.metrics import Metric  # noqa: E402

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_LIMITS = re.compile(r"\\(sum|prod|min|max)(?=[_^])")
_PUBLIC = re.compile(r"^<!-- public: ([\w.]+)(?: without ([\w ]+))? -->$", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page and a file for Jupyter for every notebook."""
    run = os.environ.get("HOLDFAST_DOCS_RUN", "1") != "0"
    os.environ.setdefault("MPLBACKEND", "agg")
    for path in sorted((ROOT / "notebooks").glob("*.py")):
        page = f"notebooks/{path.stem}"
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # where notebooks may leave files
            outputs = notebook_cells.run(path) if run else {}
        files.append(File.generated(config, f"{page}.md", content=_page(path, outputs)))
        files.append(File.generated(config, f"{page}.ipynb", content=_for_jupyter(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Public names for their marks."""
    return _PUBLIC.sub(lambda found: _reference(found[1], (found[2] or "").split()), markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML."""

    def display(found: re.Match[str]) -> str:  # bounds of a sum beneath and above it, as LaTeX has them
        latex = _LIMITS.sub(r"\\\1\\limits", html.unescape(found[1]).strip())
        return str(convert(latex, display="block"))

    content = _DISPLAY.sub(display, content)
    return _INLINE.sub(lambda found: str(convert(html.unescape(found[1]))), content)


def _reference(module: str, without: Sequence[str] = ()) -> str:
    """What mkdocstrings reads: a heading and an entry for every public name, classes first."""
    public = importlib.import_module(module)
    kinds: dict[str, list[str]] = {"Classes": [], "Functions": [], "Errors": [], "Other": []}
    for name in public.__all__:
        value = getattr(public, name)
        error = inspect.isclass(value) and issubclass(value, Exception)
        kind = "Errors" if error else "Classes" if inspect.isclass(value) else "Other"
        kind = "Functions" if inspect.isroutine(value) else kind
        if not inspect.ismodule(value) and not name.startswith("__") and name not in without:
            home = f"{value.__module__}.{value.__qualname__}" if kind != "Other" else f"{module}.{name}"
            heading = f"{module}.{name}" if home.startswith("holdfast.") else name
            # what a metric or an explainer has to implement is said once, with its base
            bases = [b for b in (Metric, Explainer) if inspect.isclass(value) and issubclass(value, b)]
            members = ", members: false" if bases and value not in bases else ""
            kinds[kind].append(f'::: {home}\n    options: {{heading_level: 3, heading: "{heading}"{members}}}')
    return "\n\n".join(f"## {kind}\n\n" + "\n\n".join(entries) for kind, entries in kinds.items() if entries)


def _page(path: Path, outputs: Mapping[int, str]) -> str:
    """The notebook as Markdown; `outputs` by cell."""
    parts = []
    for place, cell in enumerate(notebook_cells.cells(path)):
        if cell.kind == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```{{.python .notebook}}\n{cell.source}\n```")
        if place in outputs:
            parts.append(outputs[place])
    download = f'!!! note "This page is a notebook"\n    `notebooks/{path.name}`, or [for Jupyter]({path.stem}.ipynb).'
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n{download}\n{rest}\n"


def _for_jupyter(path: Path) -> str:
    import jupytext

    notebook: Any = jupytext.read(path, fmt="py:percent")
    return str(jupytext.writes(notebook, fmt="ipynb"))
