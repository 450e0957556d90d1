"""Every chart of the report as a file, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from standfast.report.charts import Chart
from standfast.report.page.comparisons import compare_models, compare_options
from standfast.report.page.names import with_safe_names
from standfast.report.page.overview import draw_medians
from standfast.report.page.render import render_files
from standfast.report.presentation.drawing import draw_figures
from standfast.results import StoredResults


def render_charts(results: StoredResults) -> Iterator[tuple[str, bytes]]:
    """File names, made of section, label, data, model and chart, with their contents; one chart in memory at a time."""
    used = set[str]()
    for parts, figure in _draw_figures(with_safe_names(results)):
        if not isinstance(figure, Chart):
            continue
        parts_of_name = [make_file_name(part) for part in (*parts, figure.name) if part]
        stem = name = "-".join(parts_of_name)
        number = 2
        while name in used:
            name, number = f"{stem}-{number}", number + 1
        used.add(name)
        for ending, content in render_files(figure).items():
            yield f"{name}.{ending}", content


def _draw_figures(results: StoredResults) -> Iterator[tuple[tuple[str, ...], Any]]:
    for summary in results.summary.metrics:
        chart = draw_medians(summary, results.explainers)
        yield ("overview", summary.label, summary.data, summary.model), chart
    compared = {"options": compare_options(results), "models": compare_models(results)}
    for section, comparisons in compared.items():
        for comparison in comparisons:
            for figure in comparison.figures:
                yield (section, comparison.title, comparison.where), figure
    for label, metric in results.metrics.items():
        for view in results.list_metric_results(label):
            for figure in draw_figures(metric, view):
                yield ("metric", label, view.data, view.model), figure


def make_file_name(text: str) -> str:
    """A text as a part of a file name that is valid on every file system.

    >>> make_file_name("local Lipschitz: 2")
    'local_Lipschitz_2'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.") or "_"
