"""Every metric has a page, and the page agrees with the metric."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

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


def find_missing_publication(kind: type[standfast.metrics.Metric]) -> str:
    """What a metric of the house lacks of its publication, in words; empty if all is there."""
    file = "src/standfast/metrics/publications.bib"
    if not kind.citation:
        return f"{kind.__name__}.citation is missing: the key of its publication in {file}, which every metric here has"
    return (
        ""
        if kind.bibtex.strip()
        else f"{kind.__name__}.citation = {kind.citation!r} has no entry in {file}"
    )


def find_missing_options(kind: type[standfast.metrics.Metric], table: str) -> str:
    """What the table of options on the page of a metric lacks, or has too much, in words; empty if it is right."""
    named = re.findall(r"^\| `(\w+)` \|", table, re.M)
    known = [field.name for field in fields(kind)]
    unknown = [option for option in named if option not in known]
    if unknown:
        return f"docs/metrics/{kind.name}.md, Options: {kind.__name__} has no option {', '.join(unknown)}"
    own = [option for option in known if option != "preset"]
    if own and not named:
        return (
            f"docs/metrics/{kind.name}.md, Options: a row such as '| `{own[0]}` | ...' is missing"
        )
    return ""


def test_what_a_metric_lacks_is_said() -> None:
    """Also of a metric without options of its own, which needs no row."""

    class Bare(standfast.metrics.Metric):
        name = "bare"
        direction = "higher"

        def evaluate(self, call: Any) -> Any:
            raise NotImplementedError

    assert "Bare.citation is missing" in find_missing_publication(Bare)
    assert find_missing_options(Bare, "It has none.") == ""
    assert "has no option steps" in find_missing_options(Bare, "| `steps` | 3 |")
    kind = standfast.metrics.metrics["aopc"]
    assert "a row such as '| `region` |" in find_missing_options(kind, "None.")
    unknown = type("Unknown", (Bare,), {"name": "unknown", "citation": "nobody2026"})
    assert "'nobody2026' has no entry" in find_missing_publication(unknown)


@pytest.mark.parametrize("name", own_metrics())
def test_page_of_metric(name: str) -> None:
    kind = standfast.metrics.metrics[name]
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    path = f"docs/metrics/{name}.md"
    own = f"standfast.metrics.{kind.__name__}"
    assert re.findall(r"^## (.*)$", page, re.M) == HEADINGS, (
        f"{path}: the headings are these, in this order"
    )
    assert f"`{name}`" in page.splitlines()[2], f"{path}, line 3: the name `{name}` is missing"
    assert own in page.splitlines()[2], f"{path}, line 3: the class {own} is missing"
    assert "$$" in section(page, "Formula"), f"{path}, Formula: a formula between $$ is missing"
    assert f"{own}(" in section(page, "How to use it"), (
        f"{path}, How to use it: an example with {own}(...) is missing"
    )
    missing = find_missing_publication(kind)
    assert not missing, missing
    citation = section(page, "Citation")
    assert kind.citation in citation, f"{path}, Citation: the key {kind.citation} is missing"
    assert kind.bibtex.strip() in citation, (
        f"{path}, Citation: the entry of publications.bib is missing"
    )


@pytest.mark.parametrize("name", own_metrics())
def test_options_of_page_exist_and_cost_is_that_of_the_defaults(name: str) -> None:
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    kind = standfast.metrics.metrics[name]
    missing = find_missing_options(kind, section(page, "Options"))
    assert not missing, missing
    counts = re.findall(r"\*\*([\d,]+)\*\*\s+evaluations", section(page, "Cost"))
    assert len(counts) == 1, (
        f"docs/metrics/{name}.md, Cost: one number as in '**101** evaluations' is missing"
    )
    expected = configured(name).cost().evaluations
    assert int(counts[0].replace(",", "")) == expected, (
        f"docs/metrics/{name}.md, Cost: the defaults cost {expected:,}"
    )


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
