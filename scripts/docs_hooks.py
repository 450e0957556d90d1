"""What MkDocs does beyond itself for this site: formulas, notebooks and public names. See mkdocs.yml.

- Formulas, `$...$` and `$$...$$`, become MathML when the site is built, so that pages load no script for them.
- Notebooks, `notebooks/*.py` in jupytext's percent format, are run cell by cell and become pages with their output, and
  a file for Jupyter to download. `STANDFAST_DOCS_RUN=0` shows them without running them. `notebooks/*.md` in the
  navigation stands for all of them.
- `<!-- public: standfast.metrics: WorstCase WorstCaseResult -->` becomes the reference of these names of the module,
  and `<!-- public: standfast.metrics -->` that of all names in its `__all__` that no other page of docs/api lists. So
  every public name is on a page, also a new one.
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

from standfast.explainers import Explainer  # noqa: E402
from standfast.metrics import Metric  # noqa: E402

_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_DISPLAY = re.compile(r'<div class="arithmatex">\\\[(.*?)\\\]</div>', re.DOTALL)
_LIMITS = re.compile(r"\\(sum|prod|min|max)(?=[_^])")
_PUBLIC = re.compile(r"^<!-- public: (?P<module>[\w.]+)(?:: (?P<names>[\w ]+))? -->$", re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The navigation with the names of all notebooks in place of `notebooks/*.md`."""
    config.nav = _expand(config.nav)
    return config


def _expand(nav: Any) -> Any:
    if nav == "notebooks/*.md":
        return [f"notebooks/{path.stem}.md" for path in _notebooks()]
    if isinstance(nav, Mapping):
        return {title: _expand(item) for title, item in nav.items()}
    return [_expand(item) for item in nav] if isinstance(nav, list) else nav


def _notebooks() -> list[Path]:
    return sorted((ROOT / "notebooks").glob("*.py"))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """A page and a file for Jupyter for every notebook."""
    run = os.environ.get("STANDFAST_DOCS_RUN", "1") != "0"
    os.environ.setdefault("MPLBACKEND", "agg")
    for path in _notebooks():
        page = f"notebooks/{path.stem}"
        # where notebooks may leave files
        with (
            tempfile.TemporaryDirectory() as folder,
            contextlib.chdir(folder),
        ):
            outputs = notebook_cells.run(path) if run else {}
        files.append(File.generated(config, f"{page}.md", content=_page(path, outputs)))
        files.append(File.generated(config, f"{page}.ipynb", content=_for_jupyter(path)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Public names for their marks."""

    def replace(found: re.Match[str]) -> str:
        if found["names"]:
            return "\n\n".join(_entry(found["module"], name, 2) for name in found["names"].split())
        return _rest(found["module"], listed_names(found["module"]))

    return _PUBLIC.sub(replace, markdown)


def on_page_content(content: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Formulas as MathML."""

    # bounds of a sum beneath and above it, as LaTeX has them
    def display(
        found: re.Match[str],
    ) -> str:
        latex = _LIMITS.sub(r"\\\1\\limits", html.unescape(found[1]).strip())
        return str(convert(latex, display="block"))

    content = _DISPLAY.sub(display, content)
    return _INLINE.sub(lambda found: str(convert(html.unescape(found[1]))), content)


def listed_names(module: str) -> list[str]:
    """The names of the module that pages of docs/api list, also as names of another module."""
    texts = [
        path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs" / "api").rglob("*.md"))
    ]
    marks = [
        (importlib.import_module(found["module"]), found["names"])
        for t in texts
        for found in _PUBLIC.finditer(t)
    ]
    named = [(source, name) for source, names in marks for name in (names or "").split()]
    public, missing = importlib.import_module(module), object()
    return [
        name for source, name in named if getattr(source, name) is getattr(public, name, missing)
    ]


def _rest(module: str, listed: Sequence[str]) -> str:
    """What mkdocstrings reads: a heading and an entry for every public name that is not `listed`, classes first."""
    public = importlib.import_module(module)
    kinds: dict[str, list[str]] = {"Classes": [], "Functions": [], "Errors": [], "Other": []}
    for name in public.__all__:
        value = getattr(public, name)
        if inspect.ismodule(value) or name.startswith("__") or name in listed:
            continue
        error = inspect.isclass(value) and issubclass(value, Exception)
        kind = "Errors" if error else "Classes" if inspect.isclass(value) else "Other"
        kinds["Functions" if inspect.isroutine(value) else kind].append(_entry(module, name, 3))
    return "\n\n".join(
        f"## {kind}\n\n" + "\n\n".join(entries) for kind, entries in kinds.items() if entries
    )


def _entry(module: str, name: str, level: int) -> str:
    """What mkdocstrings reads for one public name."""
    value = getattr(importlib.import_module(module), name)
    home = f"{module}.{name}"
    if inspect.isclass(value) or inspect.isroutine(value):
        home = f"{value.__module__}.{value.__qualname__}"
    heading = f"{module}.{name}" if home.startswith("standfast.") else name
    # what a metric or an explainer has to implement is said once, with its base
    bases = [b for b in (Metric, Explainer) if inspect.isclass(value) and issubclass(value, b)]
    members = ", members: false" if bases and value not in bases else ""
    return f'::: {home}\n    options: {{heading_level: {level}, heading: "{heading}"{members}}}'


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
