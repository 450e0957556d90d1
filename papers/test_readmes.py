"""What the pages of the papers name is there: commands, files, and the headings that their links point to."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from papers.base import reproductions
from papers.command import load_tables
from papers.files import PREFIXES

ROOT = Path(__file__).parents[1]
READMES = sorted(
    path.relative_to(ROOT).as_posix() for path in (ROOT / "papers").glob("*/README.md")
)
PAGES = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "papers").rglob("*.md")]

load_tables(*PREFIXES)


def test_commands_of_papers_exist() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PAGES)
    named = set(re.findall(r"python -m papers\.([a-z_]+) ([a-z]\w*)", text))
    assert named
    assert [
        (p, name) for p, name in named if f"{PREFIXES[p]}-{name}" not in reproductions.names()
    ] == []


@pytest.mark.parametrize("page", READMES)
def test_tables_in_headings_exist(page: str) -> None:
    """A heading such as "Table 3: random perturbations (`table3`)" names the table that the command prints."""
    prefix = PREFIXES[Path(page).parent.name]
    named = re.findall(r"^##.*\(`(\w+)`\)$", (ROOT / page).read_text(encoding="utf-8"), re.M)
    assert [name for name in named if f"{prefix}-{name}" not in reproductions.names()] == []


@pytest.mark.parametrize("page", READMES)
def test_links_and_scripts_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    scripts = set(re.findall(r"\b(?:scripts|benchmarks|examples)/[\w/]+\.\w+", text))
    assert [name for name in scripts if not (ROOT / name).exists()] == []
    for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        target, _, anchor = link.partition("#")
        file = (ROOT / page).parent / target if target else ROOT / page
        assert file.exists(), link
        assert not anchor or anchor in anchors_of(file), link


def anchors_of(page: Path) -> set[str]:
    """The anchors of the headings of a page, as GitHub and MkDocs make them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {
        re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }
