"""Every chart of the report as a file, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from standfast.report.charts import Chart
from standfast.report.page.overview import draw_agreement, draw_differences, draw_medians
from standfast.report.page.render import render_files
from standfast.report.page.sweeps import compare_models, compare_options
from standfast.report.views import Contents, draw_figures, draw_figures_over_data, with_safe_names
from standfast.results import Results


def render_charts(results: Results) -> Iterator[tuple[str, bytes]]:
    """File names, made of section, label, data, model and chart, with their contents; one chart in memory at a time."""
    contents, used = Contents(with_safe_names(results)), set[str]()

    def take_name(*parts: str) -> str:
        stem = name = "-".join(make_file_name(part) for part in parts)
        number = 2
        while name in used:
            name, number = f"{stem}-{number}", number + 1
        used.add(name)
        return name

    for parts, chart in _draw_charts(contents):
        name = take_name(*parts, chart.name)
        for ending, content in render_files(chart).items():
            yield f"{name}.{ending}", content


def _draw_charts(contents: Contents) -> Iterator[tuple[tuple[str, ...], Chart]]:
    for data, model in contents.pairs:
        for label, chart in (*draw_medians(contents, data, model), *draw_differences(contents, data, model)):
            if isinstance(chart, Chart):
                yield ("overview", label, data, model), chart
    for (data, model), agreement in contents.agreements.items():
        for chart in draw_agreement(agreement):
            yield ("overview", data, model), chart
    for place, compared in (("options", compare_options(contents)), ("models", compare_models(contents))):
        for section in compared.sections:
            for part in section.parts:
                for figure in part.figures:
                    if isinstance(figure, Chart):
                        yield tuple(filter(None, (place, section.title, part.data, part.model))), figure
    for known in contents.labels.values():
        for view in contents.views(known.name):
            for figure in draw_figures(known, view):
                if isinstance(figure, Chart):
                    yield ("metric", known.name, view.data, view.model), figure
        for figure in draw_figures_over_data(known, list(contents.views(known.name))):
            if isinstance(figure, Chart):
                yield ("metric", known.name, "across"), figure


def make_file_name(text: str) -> str:
    """A text as a part of a file name that is valid on every file system.

    >>> make_file_name("local Lipschitz: 2")
    'local_Lipschitz_2'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.") or "_"
