"""The page: the values of the template, and the template filled in."""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import Any

from standfast.report.charts import Chart, Figure, Gallery, GalleryRow, Table, Underpowered
from standfast.report.page import methods
from standfast.report.page.drawings import draw_row
from standfast.report.page.failures import group_failures
from standfast.report.page.glossary import Glossary
from standfast.report.page.overview import (
    Matrix,
    build_matrix,
    describe_agreement,
    draw_agreement,
    draw_differences,
    draw_medians,
)
from standfast.report.page.render import RenderedChart, bundle_scripts, render_for_page, shared_config
from standfast.report.page.sample_explorer import encode_rows
from standfast.report.page.sweeps import SectionList, compare_models, compare_options
from standfast.report.page.verdicts import answer_question, choose_example
from standfast.report.sentences import describe_failures, describe_misfits
from standfast.report.views import Contents, draw_figures, draw_figures_over_data, show_unsafe, with_safe_names
from standfast.report.words import make_environment, words_of
from standfast.results import ConfiguredMetric, MetricResults, Results
from standfast.results.controls import is_random
from standfast.results.formatting import join_names

#: how many warnings, and how many failures, the page lists
LISTED = 50
#: how many pairs of data and model are open at first; the others are folded
OPEN = 1
#: with more metrics than this the page is denser: it says each thing once
CROWD = 6
#: how many metrics the comparison shows before the rest is folded
SHOWN = 12
#: how many metrics are beside each other in a table of numbers: as many as fit on a screen of 1400 pixels
COLUMNS = 5

#: the columns of the table of what was counted, with their heads
COUNTED = {
    "rows": "Rows",
    "evaluated": "Evaluated",
    "misclassified": "Skipped: misclassified",
    "degenerate": "Skipped: degenerate",
    "nonfinite": "Skipped: nonfinite",
    "in medians": "In medians",
    "bounds": "Only bounds",
    "maps degenerate": "Constant maps",
    "maps nonfinite": "NaN",
}


@dataclass
class Part:
    """The figures of one data set and model: the first one, and the others by kind.

    `first` is the kind of the first figure, `"chart"`, `"gallery"` or `"table"`, and what the template draws of it.
    """

    where: str
    first: tuple[str, Any] | None = None
    charts: list[RenderedChart] = field(default_factory=list)
    galleries: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    underpowered: list[Underpowered] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.first or self.underpowered)

    @property
    def pictures(self) -> int:
        """How many rows of pictures are behind the first figure."""
        return sum(len(rows) for gallery in self.galleries for rows in gallery["samples"].values())

    @property
    def needs(self) -> str:
        """One line for all figures that need more samples; empty if there are none."""
        return describe_needs(self.underpowered)


class Page:
    """Numbers charts and pictures, so that each has an id of its own, and records which rows have pictures."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.charts = self.compared = 0
        self.links: dict[tuple[str, str, str, str, int], str] = {}

    def render(self, chart: Chart) -> RenderedChart:
        """Render a chart under the next number."""
        self.charts += 1
        return render_for_page(chart, self.charts)

    def make_part(
        self, where: str, figures: Iterable[Figure], bounds: tuple[float, float], identity: Callable[[GalleryRow], str]
    ) -> Part:
        """Figures as the template takes them; `identity` gives the id of a row of pictures."""
        part = Part(where)
        for figure in figures:
            drawn: Any
            others: list[Any]
            if isinstance(figure, Underpowered):
                part.underpowered.append(figure)
                continue
            if isinstance(figure, Gallery):
                kind, drawn, others = "gallery", self._gallery(figure, bounds, identity), part.galleries
            elif isinstance(figure, Table):
                kind, drawn, others = "table", figure, part.tables
            else:
                kind, drawn, others = "chart", self.render(figure), part.charts
            if part.first is None:
                part.first = (kind, drawn)
            else:
                others.append(drawn)
        return part

    def make_metric_parts(self, label: ConfiguredMetric) -> list[Part]:
        """The metric's own figures: those of each data set and model, and at the end those over all of them."""
        views = list(self.contents.views(label.name))
        bounds = views[0].bounds if views else (nan, nan)
        parts = []
        for view in views:
            where = self.contents.where(view.data, view.model)
            parts.append(self.make_part(where, draw_figures(label, view), view.bounds, partial(self._link, view)))
        parts.append(self.make_part("All data sets", draw_figures_over_data(label, views), bounds, self._count))
        return [part for part in parts if part]

    def draw_example(self, data: str, model: str) -> dict[str, Any] | None:
        """The pictures that open the report."""
        chosen = choose_example(self.contents, data, model)
        if chosen is None:
            return None
        row, view = chosen
        pictures = draw_row(row, view.bounds)
        # lines, bars and words need more space than images, unless one drawing has them all
        wide = len(pictures) > 1 and any(source.startswith("data:image/svg") for _, _, source in pictures)
        text = row.text
        if len(pictures) == 1 < len(row.pictures):
            text += f" The one drawing shows {join_names([each.title for each in row.pictures], len(row.pictures))}."
        return {"pictures": pictures, "white": find_white(row), "text": text, "label": view.label, "wide": wide}

    def make_sections(self, found: SectionList, start: str) -> dict[str, Any]:
        """The figures across configurations as the template takes them; their ids begin with `start`."""
        sections = []
        for number, section in enumerate(found.sections, 1):
            parts = []
            for part in section.parts:
                where = self.contents.where(part.data, part.model) if part.model else ""
                parts.append(self.make_part(where, part.figures, part.bounds, self._count))
            identity = f"{start}-{number}"
            sections.append(
                {"id": identity, "title": section.title, "text": section.text, "same": section.same, "parts": parts}
            )
        return {"sections": sections, "left_out": found.left_out}

    def _link(self, view: MetricResults, row: GalleryRow) -> str:
        """The id of a row of pictures; the sample's row in the table of all samples links to it."""
        key = (view.data, view.model, view.label, row.explainer, row.sample)
        return self.links.setdefault(key, f"p{len(self.links) + 1}")

    def _count(self, row: GalleryRow) -> str:
        self.compared += 1
        return f"q{self.compared}"

    def _gallery(
        self, gallery: Gallery, bounds: tuple[float, float], identity: Callable[[GalleryRow], str]
    ) -> dict[str, Any]:
        samples: dict[int, list[dict[str, Any]]] = {}
        for row in gallery.rows:
            pictures = draw_row(row, bounds)
            who = f"{row.explainer}, {row.setting}" if row.setting else row.explainer
            entry = {"id": identity(row), "explainer": who, "text": row.text, "found": row.found}
            samples.setdefault(row.sample, []).append({**entry, "pictures": pictures, "white": find_white(row)})
        for entries in samples.values():
            titles = [[title for title, _, _ in entry["pictures"]] for entry in entries]
            for place, entry in enumerate(entries):  # titles that are the same in all rows stand above the first one
                entry["titled"] = any(titles[place]) and (place == 0 or any(other != titles[0] for other in titles))
        return {"title": gallery.title, "note": gallery.note, "folded": gallery.folded, "samples": samples}


def find_white(row: GalleryRow) -> set[str]:
    """The alternative texts of the pictures of a row that are drawn on white: maps, changes, and pale inputs."""
    return {each.alt for each in row.pictures if each.signed or each.change or each.marks is not None}


def build_page(results: Results) -> str:
    """The whole report as one HTML document."""
    environment = make_environment()
    environment.filters["breakable"] = allow_breaks
    contents = Contents(with_safe_names(results))
    glossary = Glossary(name for name in contents.explainers if not is_random(name))
    environment.filters["explained"] = glossary.explain
    environment.globals["begin"] = glossary.begin
    return show_unsafe(environment.get_template("report.html").render(_context(contents)))


def _context(contents: Contents) -> dict[str, Any]:
    import markupsafe

    content = Page(contents)
    numbers = {name: f"metric-{number}" for number, name in enumerate(contents.labels, 1)}
    overview: list[dict[str, Any]] = []
    for data, model in contents.pairs:
        agreement = contents.agreements.get((data, model))
        differences = draw_differences(contents, data, model)
        matrix = build_matrix(contents, data, model)
        overview.append(
            {
                "where": contents.where(data, model),
                "answers": [answer_question(contents, label, data, model) for label in contents.labels.values()],
                "example": content.draw_example(data, model),
                "matrix": matrix,
                "columns": split_columns(matrix, list(contents.labels)),
                "medians": [(name, content.render(chart)) for name, chart in draw_medians(contents, data, model)],
                "differences": [(n, content.render(c)) for n, c in differences if not isinstance(c, Underpowered)],
                "needs": describe_needs([c for _, c in differences if isinstance(c, Underpowered)]),
                "agreement": None if agreement is None else describe_agreement(agreement),
                "agreement_charts": [content.render(c) for c in draw_agreement(agreement)] if agreement else [],
            }
        )
    sections: list[dict[str, Any]] = [
        {
            "id": numbers[name],
            "label": label,
            "question": words_of(label.presentation).question(label.options),
            "answers": [
                (entry["where"], answer) for entry in overview for answer in entry["answers"] if answer.label == name
            ],
            "guide": words_of(label.presentation).guide(label.options),
            "terms": words_of(label.presentation).terms,
            "parts": content.make_metric_parts(label),
        }
        for name, label in contents.labels.items()
    ]
    questions = [section["question"] for section in sections]
    options = content.make_sections(compare_options(contents), "options")
    models = content.make_sections(compare_models(contents), "models")
    rows, count = encode_rows(contents, content.links)
    about = contents.manifest.get("about") or {}
    failures = contents.results.failures
    grouped, tally = group_failures(failures), methods.count_rows(contents)
    return {
        "title": str(about.get("title") or "How far the explanations hold"),
        "asked": methods.describe_question(contents),
        "contents": contents,
        "labels": contents.labels,
        "numbers": numbers,
        "facts": methods.describe_study(contents),
        "overview": overview,
        "options_compared": options,
        "models_compared": models,
        "sections": sections,
        "questions": dict(zip(contents.labels, questions, strict=True)),
        "repeated": {question for question in questions if questions.count(question) > 1},
        "terms": {term: meaning for section in reversed(sections) for term, meaning in section["terms"].items()},
        "open": OPEN,
        "crowd": CROWD,
        "shown": SHOWN,
        "warnings": [text for _, text in contents.warnings[:LISTED]],
        "more_warnings": max(0, len(contents.warnings) - LISTED),
        "failures": grouped[:LISTED],
        "more_failures": max(0, len(grouped) - LISTED),
        "reasons": [
            textwrap.shorten(each, 200, placeholder=" ...") for each in describe_failures(contents.results.summary)
        ],
        "left_out": describe_misfits(contents.manifest.get("misfits") or {}),
        "cautions": Counter(kind for kind, _ in contents.warnings),
        "failed": len(failures),
        "missing": contents.results.missing,
        "tally": tally,
        "tally_columns": {key: title for key, title in COUNTED.items() if any(count[key] for _, _, count in tally)},
        "rows": markupsafe.Markup(rows),
        "row_count": count,
        "option_tables": methods.list_options(contents),
        "costs": methods.sum_costs(contents),
        "publications": methods.list_publications(contents),
        "command": about.get("command"),
        "config": markupsafe.Markup(shared_config()),
        "bundle": markupsafe.Markup(bundle_scripts()) if content.charts else "",
        "raw": markupsafe.Markup,
    }


def split_columns(matrix: Matrix, labels: list[str]) -> list[list[int]]:
    """The places of the metrics that have results, in groups of about equal size that fit beside each other.

    >>> split_columns(Matrix("d", "m", [], []), ["a"])
    []
    """
    some = [at for at, _ in enumerate(labels) if any(entries[at].cell is not None for _, entries in matrix.rows)]
    groups = -(-len(some) // COLUMNS)
    return [some[len(some) * at // groups : len(some) * (at + 1) // groups] for at in range(groups)]


def describe_needs(left_out: list[Underpowered]) -> str:
    """One line for figures that need more samples.

    >>> describe_needs([Underpowered("Skewness", 30, 24), Underpowered("Kurtosis", 30, 24)])
    'Needs more samples: Skewness, Kurtosis (at least 30, and there are 24).'
    """
    groups: dict[tuple[int, int], list[str]] = {}
    for each in left_out:
        groups.setdefault((each.needed, each.present), []).append(each.heading)
    texts = [
        f"{', '.join(dict.fromkeys(names))} (at least {needed}, and there {'is' if there == 1 else 'are'} {there})"
        for (needed, there), names in groups.items()
    ]
    return f"Needs more samples: {'; '.join(texts)}." if texts else ""


def allow_breaks(name: str) -> str:
    """A name as HTML that allows a line break after every underscore, and after a colon between letters.

    >>> print(allow_breaks("randomised:input_x_gradient"))
    randomised:<wbr>input_<wbr>x_<wbr>gradient
    """
    import markupsafe

    return markupsafe.Markup("<wbr>").join(re.split(r"(?<=_)|(?<=:)(?=\S)", name))
