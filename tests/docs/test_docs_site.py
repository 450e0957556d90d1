"""The site builds without a warning and loads nothing from elsewhere.

A build takes half a minute, so its tests are slow ones. Those of the sources of its pages always run.
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest

import standfast

pytest.importorskip("mkdocs", reason="needs the extra docs")
pytest.importorskip("material", reason="needs the extra docs")
pytest.importorskip("mkdocstrings", reason="needs the extra docs")
markdown = pytest.importorskip("markdown", reason="needs the extra docs")

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly; the notebooks are run by `test_notebooks.py`."""
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "STANDFAST_DOCS_RUN": "0", "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "WARNING" not in done.stderr
    return folder


class Loaded(HTMLParser):
    """What a page loads by itself: scripts, styles, fonts, pictures, frames."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = dict(attributes)
        rels = (given.get("rel") or "").split()
        if tag == "link" and not {
            "stylesheet",
            "icon",
            "preload",
            "preconnect",
            "dns-prefetch",
            "modulepreload",
        } & set(rels):
            return
        address = given.get("href") if tag == "link" else given.get("src") if tag != "a" else None
        if address:
            self.addresses.append(address)


def pages(site: Path) -> Iterator[tuple[Path, str]]:
    for path in sorted(site.rglob("*.html")):
        yield path, path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    count = 0
    for path, text in pages(site):
        parser = Loaded()
        parser.feed(text)
        away = [a for a in parser.addresses if re.match(r"(https?:)?//", a)]
        assert away == [], path.name
        count += 1
    assert count > 30
    for style in site.rglob("*.css"):
        assert not re.search(
            r"url\(['\"]?(https?:)?//|@import", style.read_text(encoding="utf-8")
        ), style.name


@pytest.mark.slow
def test_formulas_are_converted(site: Path) -> None:
    """No command of LaTeX is left over, as what the converter does not know would be."""
    formulas = 0
    for path, text in pages(site):
        assert "arithmatex" not in text, path.name
        for formula in re.findall(r"<math.*?</math>", text, re.DOTALL):
            assert "\\" not in formula, formula
            formulas += 1
    assert formulas > 60


def api_pages(site: Path) -> dict[str, str]:
    """The pages of the API reference, by their path."""
    folder = site / "api"
    return {
        path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.html")
    }


ROOMS = [
    "algorithms",
    "data",
    "explainers",
    "integrations.peers",
    "metrics",
    "neighbourhoods",
    "report.charts",
]
ROOMS += ["report.exports", "results", "similarity", "testing", "zoo"]


MODULES = pytest.mark.parametrize("module", ["standfast", *(f"standfast.{room}" for room in ROOMS)])


def find_homes(module: str) -> Iterator[str]:
    """Where each public name of a module is defined."""
    public = importlib.import_module(module)
    for name in public.__all__:
        value = getattr(public, name)
        if inspect.ismodule(value) or name.startswith("__"):
            continue
        own = inspect.isclass(value) or inspect.isroutine(value)
        yield f"{value.__module__}.{value.__qualname__}" if own else f"{module}.{name}"


@pytest.mark.slow
@MODULES
def test_every_public_name_is_on_one_page_once(site: Path, module: str) -> None:
    pages = api_pages(site)
    for home in find_homes(module):
        found = [page for page, text in pages.items() for _ in range(text.count(f'id="{home}"'))]
        assert len(found) == 1, (home, found)


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    """What MkDocs calls for this site."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "scripts"))
        return importlib.import_module("docs_hooks")


@pytest.fixture(scope="module")
def entries(hooks: ModuleType) -> Counter[str]:
    """How many entries of the API reference the pages have for a name, as the hooks write them."""
    texts = [path.read_text(encoding="utf-8") for path in (ROOT / "docs" / "api").rglob("*.md")]
    expanded = [hooks.on_page_markdown(text, None, None, None) for text in texts]
    assert not any("<!-- public" in text for text in expanded)
    return Counter(name for text in expanded for name in re.findall(r"^::: (\S+)$", text, re.M))


@MODULES
def test_every_public_name_has_one_entry(entries: Counter[str], module: str) -> None:
    assert {home: entries[home] for home in find_homes(module) if entries[home] != 1} == {}


def test_formulas_of_all_pages_can_be_converted(hooks: ModuleType) -> None:
    formulas = 0
    for path in (ROOT / "docs").rglob("*.md"):
        paragraphs = re.split(r"\n\n+", path.read_text(encoding="utf-8"))
        marked = markdown.markdown(
            "\n\n".join(paragraph for paragraph in paragraphs if "$" in paragraph),
            extensions=["pymdownx.arithmatex", "pymdownx.superfences", "tables"],
            extension_configs={"pymdownx.arithmatex": {"generic": True}},
        )
        page = hooks.on_page_content(marked, None, None, None)
        assert "arithmatex" not in page, path.name
        for formula in re.findall(r"<math.*?</math>", page, re.DOTALL):
            assert "\\" not in formula, formula
            formulas += 1
    assert formulas > 40


@pytest.mark.slow
def test_page_about_a_metric_links_to_its_class(site: Path) -> None:
    pages = api_pages(site)
    for name in standfast.metrics.names():
        kind = standfast.metrics.metrics[name]
        if kind.__module__.startswith("standfast."):
            text = (ROOT / "docs" / "metrics" / f"{name}.md").read_text(encoding="utf-8")
            linked = set(re.findall(r"\(\.\./api/(metrics/\w+)\.md\)", text))
            assert len(linked) == 1, (name, linked)
            assert f'id="{kind.__module__}.{kind.__qualname__}"' in pages[f"{linked.pop()}.html"], (
                name
            )


@pytest.mark.slow
def test_pages_have_what_the_hooks_put_there(site: Path) -> None:
    assert [page for page, text in api_pages(site).items() if "public: standfast" in text] == []
    notebook = (site / "notebooks" / "time_series.html").read_text(encoding="utf-8")
    assert "synthetic_waves" in notebook
    assert (site / "notebooks" / "time_series.ipynb").exists()


@pytest.mark.slow
def test_examples_of_docstrings_are_code(site: Path) -> None:
    pages = api_pages(site)
    text = re.sub(r"<[^>]+>", "", pages["evaluate.html"])
    assert "&gt;&gt;&gt; import standfast" in text
    assert [
        page for page, text in pages.items() if re.search(r"<blockquote>\s*<blockquote>", text)
    ] == []


def test_every_figure_is_shown() -> None:
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    shown = set(re.findall(r"figures/([\w-]+\.\w+)\)", text))
    assert shown == {path.name for path in (ROOT / "docs" / "figures").iterdir()}


def test_every_page_of_docs_is_in_the_navigation() -> None:
    nav = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    named = set(re.findall(r"([\w/.-]+\.md)$", nav, re.M))
    assert named == {
        path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")
    }


@pytest.mark.slow
def test_every_notebook_is_in_the_navigation(site: Path) -> None:
    start = (site / "index.html").read_text(encoding="utf-8")
    notebooks = {path.stem for path in (ROOT / "notebooks").glob("*.py")}
    assert notebooks == set(re.findall(r'href="notebooks/(\w+)\.html" class="md-nav__link"', start))
