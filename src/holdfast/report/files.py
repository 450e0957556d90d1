"""Every chart of the report as a file, for papers."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.charts import Chart
from holdfast.report.overview import agreement_charts, difference_charts, median_charts
from holdfast.report.render import to_files
from holdfast.report.sweeps import models_compared, options_compared
from holdfast.report.views import Contents
from holdfast.study.results import Results


def chart_files(results: Results) -> Iterator[tuple[str, bytes]]:
    """File names, after section, label, data, model and chart, with their contents; one chart in memory at a time."""
    contents, taken = Contents(results), set[str]()

    def unique(*parts: str) -> str:
        stem = name = "-".join(slug(part) for part in parts)
        number = 2
        while name in taken:
            name, number = f"{stem}-{number}", number + 1
        taken.add(name)
        return name

    for parts, chart in _charts(contents):
        name = unique(*parts, chart.name)
        for ending, content in to_files(chart).items():
            yield f"{name}.{ending}", content


def _charts(contents: Contents) -> Iterator[tuple[tuple[str, ...], Chart]]:
    for data, model in contents.pairs:
        for label, chart in (*median_charts(contents, data, model), *difference_charts(contents, data, model)):
            yield ("overview", label, data, model), chart
    for (data, model), agreement in contents.agreements.items():
        for chart in agreement_charts(agreement):
            yield ("overview", data, model), chart
    for place, compared in (("options", options_compared(contents)), ("models", models_compared(contents))):
        for section in compared.sections:
            for part in section.parts:
                for figure in part.figures:
                    if isinstance(figure, Chart):
                        yield tuple(filter(None, (place, section.title, part.data, part.model))), figure
    for known in contents.labels.values():
        for view in contents.views(known.name):
            for figure in known.figures(view):
                if isinstance(figure, Chart):
                    yield ("metric", known.name, view.data, view.model), figure
        for figure in known.across(list(contents.views(known.name))):
            if isinstance(figure, Chart):
                yield ("metric", known.name, "across"), figure


def slug(text: str) -> str:
    """A name that any file system takes.

    >>> slug("local Lipschitz: 2")
    'local_Lipschitz_2'
    """
    return re.sub(r"[^A-Za-z0-9.]+", "_", text).strip("_.") or "_"
