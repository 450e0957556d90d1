"""The page: the values of the template, and the template filled in."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from standfast.report.charts import Chart, ExplainerTable, Figure, Gallery, GalleryRow
from standfast.report.facts import find_words
from standfast.report.next_steps import describe_endings, describe_steps
from standfast.report.page import methods
from standfast.report.page.agreement import list_agreements
from standfast.report.page.cells import Cell, describe_row
from standfast.report.page.comparisons import (
    MOST,
    OptionComparison,
    compare_models,
    compare_options,
)
from standfast.report.page.drawings import draw_row
from standfast.report.page.matrix import mark_leaders, order_explainers, tabulate_references
from standfast.report.page.names import allow_breaks, show_unsafe, with_safe_names
from standfast.report.page.overview import draw_medians, tabulate_agreement, tabulate_pairs
from standfast.report.page.render import (
    RenderedChart,
    bundle_scripts,
    render_for_page,
    shared_config,
)
from standfast.report.page.sample_explorer import encode_rows
from standfast.report.page.verdicts import answer_question, choose_example
from standfast.report.presentation.base import presentation_of
from standfast.report.presentation.drawing import draw_figures
from standfast.report.races import tabulate_race
from standfast.report.sentences import (
    MEANINGS,
    describe_failures,
    describe_misfits,
    list_cautions,
    say,
)
from standfast.report.wording import describe_changes
from standfast.report.words import format_value, make_environment, words_of
from standfast.results import ConfiguredMetric, MetricResults, StoredResults, find_metric_class
from standfast.results.sanity import MARGINS
from standfast.results.summary import MetricSummary, SummaryRow

if TYPE_CHECKING:
    import jinja2

#: how many warnings, and how many failures, the page lists
LISTED = 50
#: how many metrics are beside each other in a table: as many as fit on a screen of 1400 pixels, and on paper
COLUMNS = 5


@dataclass
class Part:
    """The figures of one data set and model as the template takes them.

    `figures` are pairs of a kind, `"chart"`, `"table"` or `"gallery"`, and what is drawn.
    """

    where: str
    figures: list[tuple[str, Any]]


class Page:
    """Numbers charts and pictures, so that each has an id of its own, and records which rows have pictures."""

    def __init__(self, results: StoredResults) -> None:
        self.results = results
        self.charts = 0
        self.links: dict[tuple[str, str, str, str, int], str] = {}

    def render(self, chart: Chart) -> RenderedChart:
        """Render a chart under the next number."""
        self.charts += 1
        return render_for_page(chart, self.charts)

    def prepare(self, figure: Figure, view: MetricResults | None = None) -> tuple[str, Any]:
        """A figure as the template takes it; pictures are of `view`."""
        if isinstance(figure, Chart):
            return "chart", self.render(figure)
        if isinstance(figure, ExplainerTable):
            return "table", figure
        assert view is not None
        return "gallery", self._draw_gallery(figure, view)

    def make_metric_parts(self, metric: ConfiguredMetric) -> list[Part]:
        """The metric's own figures on each data set and model."""
        parts = []
        for view in self.results.list_metric_results(metric.name):
            figures = [self.prepare(figure, view) for figure in draw_figures(metric, view)]
            where = self.results.summary.name_pair(view.data, view.model)
            parts.append(Part(where, figures))
        return [part for part in parts if part.figures]

    def make_comparisons(
        self, comparisons: Sequence[OptionComparison], start: str
    ) -> list[dict[str, Any]]:
        """The comparisons across configurations as the template takes them; their ids begin with `start`."""
        described = []
        for number, comparison in enumerate(comparisons, 1):
            figures = [self.prepare(figure) for figure in comparison.figures]
            part = Part(comparison.where, figures)
            comparison_id = f"{start}-{number}"
            described.append({"id": comparison_id, "about": comparison, "part": part})
        return described

    def make_overview(self, data: str, model: str) -> dict[str, Any]:
        """The answers, the example and the comparison of all explainers on one data set and model."""
        results = self.results
        metrics = results.summary.select(data, model)
        shown = [metric for metric in metrics if metric.rows]
        order = order_explainers(results.summary, data, model)
        names = [name for name, _ in order]
        verdict = results.verdict(data, model)
        steps = describe_steps(results, data, model)
        agreement = results.summary.agreements.get((data, model))
        return {
            "where": results.summary.name_pair(data, model),
            "verdict": verdict,
            "steps": steps,
            "step_endings": describe_endings(steps, verdict),
            "classes": results.task_words.classes,
            "checks_id": f"checks-{results.pairs.index((data, model)) + 1}",
            "standings": order,
            "sanity": {name: results.summary.sanity.get((data, model, name)) for name in names},
            "stars": {metric.label: mark_leaders(metric) for metric in metrics},
            "notes": [
                *(say("hollow", hollow) for hollow in verdict.hollow),
                *list_cautions(metrics),
            ],
            "references": {metric.label: tabulate_references(metric, names) for metric in metrics},
            "answers": [answer_question(results, metric.metric, data, model) for metric in metrics],
            **_draw_example(results, data, model),
            "columns": _split_evenly(shown),
            "cells": {name: self._describe_cells(shown, name) for name in names},
            "medians": self._draw_medians(shown),
            "pairs": [table for metric in metrics if (table := tabulate_pairs(metric)) is not None],
            "agreement": agreement,
            "correlations": None if agreement is None else tabulate_agreement(agreement),
        }

    def _draw_medians(
        self, metrics: Sequence[MetricSummary]
    ) -> list[tuple[MetricSummary, RenderedChart]]:
        drawn = []
        for metric in metrics:
            chart = draw_medians(metric, self.results.explainers)
            if chart is not None:
                drawn.append((metric, self.render(chart)))
        return drawn

    def _describe_cells(
        self, metrics: Sequence[MetricSummary], explainer: str
    ) -> dict[str, tuple[SummaryRow, Cell]]:
        """The rows of an explainer by label, with their cells."""
        rows = [row for metric in metrics if (row := metric.find_row(explainer)) is not None]
        return {row.label: (row, describe_row(self.results, row)) for row in rows}

    def list_warnings(self) -> list[str]:
        """Results that contradict each other: a sentence for each of the first ones; there may be thousands."""
        warnings: list[str] = []
        for pair in self.results.pairs:
            views = [self.results.metric_results(*pair, label) for label in self.results.metrics]
            views = [view for view in views if len(view.frame)]
            for view in views:
                presentation = presentation_of(view.metric, view.task)
                others = [other for other in views if other is not view]
                for contradiction in presentation.contradictions(view, others):
                    # the template counts those beyond, and shows none of them
                    sentence = ""
                    if len(warnings) < LISTED:
                        words = words_of(presentation)
                        sentence = words.say(contradiction.macro, contradiction.facts)
                    warnings.append(sentence)
        return warnings

    def _link(self, view: MetricResults, row: GalleryRow) -> str:
        """The id of a row of pictures; the sample's row in the table of all samples links to it."""
        key = (view.data, view.model, view.label, row.explainer, row.sample)
        return self.links.setdefault(key, f"p{len(self.links) + 1}")

    def _draw_gallery(self, gallery: Gallery, view: MetricResults) -> dict[str, Any]:
        samples: dict[int, list[dict[str, Any]]] = {}
        for row in gallery.rows:
            drawn = {
                "id": self._link(view, row),
                "row": row,
                "pictures": draw_row(row, view.bounds),
            }
            samples.setdefault(row.sample, []).append(drawn)
        for rows in samples.values():
            titles = [[picture.title for picture in row["pictures"]] for row in rows]
            # titles that are the same in all rows stand above the first one
            differ = any(others != titles[0] for others in titles)
            for number, drawn in enumerate(rows):
                drawn["titled"] = number == 0 or differ
        return {"about": gallery, "samples": samples}


def _draw_example(results: StoredResults, data: str, model: str) -> dict[str, Any]:
    """The pictures that open the overview, and the label of their metric; None without any."""
    example = choose_example(results, data, model)
    if example is None:
        return {"example": None, "example_label": None}
    row, view = example
    pictures = draw_row(row, view.bounds)
    return {"example": {"pictures": pictures, "row": row}, "example_label": view.label}


def _split_evenly(metrics: Sequence[MetricSummary]) -> list[Sequence[MetricSummary]]:
    """The metrics of each table, as evenly as possible, and at most `COLUMNS` in one."""
    count = len(metrics)
    tables = -(-count // COLUMNS)
    starts = [count * table // tables for table in range(tables)]
    stops = [*starts[1:], count]
    return [metrics[start:stop] for start, stop in zip(starts, stops, strict=True)]


def build_page(results: StoredResults) -> str:
    """The whole report as one HTML document."""
    # names are looked up, so they are replaced before; the page as a whole is looked at once more below
    results = with_safe_names(results)
    return show_unsafe(_read_template().render(_make_context(results)))


@cache
def _read_template() -> jinja2.Template:
    """The template of all pages: Jinja keeps what it has compiled in its environment, so there is one."""
    environment = make_environment()
    environment.filters["breakable"] = allow_breaks
    environment.filters["shown"] = format_value
    environment.globals |= {"find_words": find_words, "say": say, "meanings": MEANINGS}
    return environment.get_template("report.html")


def _make_context(results: StoredResults) -> dict[str, Any]:
    import markupsafe

    page = Page(results)
    manifest = results.manifest
    overview = [page.make_overview(data, model) for data, model in results.pairs]
    sections = [
        _make_section(page, number, metric, overview)
        for number, metric in enumerate(results.metrics.values(), 1)
    ]
    # behind the sections, whose pictures the rows link to
    rows, count = encode_rows(results, page.links)
    return {
        "results": results,
        "about": defaultdict(str, manifest.get("about") or {}),
        "changes": describe_changes(results),
        "numbers": {section["metric"].name: section["id"] for section in sections},
        "overview": overview,
        "agreements": list_agreements(results),
        "race": None if results.race is None else tabulate_race(results.race),
        "options_compared": page.make_comparisons(compare_options(results), "options"),
        "models_compared": page.make_comparisons(compare_models(results), "models"),
        "most": MOST,
        "sections": sections,
        "margins": MARGINS,
        "untrained": [
            accuracy for accuracy in results.summary.accuracies.values() if accuracy.near_chance
        ],
        "listed": LISTED,
        "warnings": page.list_warnings(),
        "reasons": describe_failures(results.summary),
        "left_out": describe_misfits(manifest.get("misfits") or {}),
        "tally": methods.count_rows(results),
        "counted": methods.COUNTED,
        "sample_failures": methods.list_sample_failures(results),
        "facts": methods.list_facts(results),
        "option_tables": methods.list_options(results),
        "costs": methods.sum_costs(results),
        "publications": methods.list_publications(results),
        "rows": markupsafe.Markup(rows),
        "row_count": count,
        "config": markupsafe.Markup(shared_config()),
        "bundle": markupsafe.Markup(bundle_scripts()) if page.charts else "",
        "raw": markupsafe.Markup,
    }


def _make_section(
    page: Page, number: int, metric: ConfiguredMetric, overview: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    """A metric of the page: its question, its answers on each data set and model, and its figures."""
    words = find_words(metric)
    answers = []
    for part in overview:
        of_metric = [answer for answer in part["answers"] if answer.label == metric.name]
        answers += [(part["where"], answer) for answer in of_metric]
    return {
        "id": f"metric-{number}",
        "metric": metric,
        "installed": find_metric_class(metric.metric) is not None,
        "question": words.question(metric.options, metric.spec),
        "answers": answers,
        "guide": words.guide(metric.options),
        "parts": page.make_metric_parts(metric),
    }
