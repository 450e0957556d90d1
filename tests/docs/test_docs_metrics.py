"""Every metric has a page, and the page agrees with the metric."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import standfast
from standfast.metrics.base import has_neighbourhood

PAGES = Path(__file__).parents[2] / "docs" / "metrics"
HEADINGS = ["What it asks", "Formula", "How to use it", "Options", "Figure"]
HEADINGS += ["How to read it", "Pitfalls", "Cost", "Citation"]
LARGEST_FIGURE = 100_000  # bytes
LONG = 60  # letters that describe a figure


def own_metrics() -> list[str]:
    """The metrics of standfast itself, without those of plug-ins."""
    return [
        name
        for name in standfast.metrics.names()
        if standfast.metrics.metrics[name].__module__.startswith("standfast.")
    ]


def section(page: str, heading: str) -> str:
    """What stands under a heading."""
    return page.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]


def configured(name: str) -> standfast.metrics.Metric:
    """The metric with its defaults."""
    kind = standfast.metrics.metrics[name]
    return kind(standfast.LinfBall(0.1)) if has_neighbourhood(kind) else kind()  # type: ignore[call-arg]


@pytest.mark.parametrize("name", own_metrics())
def test_page_of_metric(name: str) -> None:
    kind = standfast.metrics.metrics[name]
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.*)$", page, re.M) == HEADINGS
    assert f"`{name}`" in page.splitlines()[2]
    assert f"standfast.metrics.{kind.__name__}" in page.splitlines()[2]
    assert "$$" in section(page, "Formula")
    assert f"standfast.metrics.{kind.__name__}(" in section(page, "How to use it")
    assert kind.bibtex.strip() in section(page, "Citation")
    assert kind.citation
    assert kind.citation in section(page, "Citation")


@pytest.mark.parametrize("name", own_metrics())
def test_options_of_page_exist_and_cost_is_that_of_the_defaults(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `(\w+)` \|", section(page, "Options"), re.M)
    known = [field.name for field in fields(standfast.metrics.metrics[name])]
    assert named, "no option"
    assert [option for option in named if option not in known] == []
    (count,) = re.findall(r"\*\*([\d,]+)\*\*\s+evaluations", section(page, "Cost"))
    assert int(count.replace(",", "")) == configured(name).cost().evaluations


@pytest.mark.parametrize("name", own_metrics())
def test_figure_of_page(name: str) -> None:
    text = section((PAGES / f"{name}.md").read_text(encoding="utf-8"), "Figure")
    ((alt, path),) = re.findall(r"!\[([^\]]*)\]\(([^)]+)\)", text)
    assert len(alt) >= LONG, "the figure in words, for those who cannot see it"
    figure = PAGES / path
    assert figure.stat().st_size <= LARGEST_FIGURE
    assert figure.read_text(encoding="utf-8").startswith("<svg")


def test_index_names_all_metrics_and_nothing_else() -> None:
    index = (PAGES / "index.md").read_text(encoding="utf-8")
    assert sorted(set(re.findall(r"\]\((\w+)\.md\)", index))) == own_metrics()
    assert sorted(path.stem for path in PAGES.glob("*.md")) == sorted([*own_metrics(), "index"])
