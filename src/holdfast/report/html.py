"""The page: what the template is given, and the template filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from math import nan
from typing import Any

from holdfast.charts import Chart, Figure, Gallery, GalleryRow, Table
from holdfast.presentation import View
from holdfast.report import methods
from holdfast.report.overview import agreement_charts, agreement_sentence, difference_charts, matrix, median_charts
from holdfast.report.pictures import drawn
from holdfast.report.render import Drawn, bundle, config, for_page
from holdfast.report.sample_explorer import explorer
from holdfast.report.sweeps import Compared, models_compared, options_compared
from holdfast.report.views import Contents, Label
from holdfast.study.results import Results

#: warnings and failures that are spelled out
LISTED = 50
#: pairs of data and model that are open from the start; the others unfold
OPEN = 2


@dataclass
class Part:
    """What a label got on one data set and model: charts, tables, and galleries as rows of pictures."""

    where: str
    charts: list[Drawn] = field(default_factory=list)
    galleries: list[dict[str, Any]] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)


class Page:
    """Numbers charts and pictures, so that ids differ, and remembers which rows have pictures."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.charts = self.compared = 0
        self.links: dict[tuple[str, str, str, str, int], str] = {}

    def chart(self, chart: Chart) -> Drawn:
        """A chart, drawn."""
        self.charts += 1
        return for_page(chart, self.charts)

    def part(
        self, where: str, figures: Iterable[Figure], bounds: tuple[float, float], identity: Callable[[GalleryRow], str]
    ) -> Part:
        """Figures as the template takes them; `identity` gives the id of a row of pictures."""
        part = Part(where)
        for figure in figures:
            if isinstance(figure, Gallery):
                part.galleries.append(self._gallery(figure, bounds, identity))
            elif isinstance(figure, Table):
                part.tables.append(figure)
            else:
                part.charts.append(self.chart(figure))
        return part

    def of_metric(self, label: Label) -> list[Part]:
        """The metric's own figures: over all data sets and models, then for each of them."""
        views = list(self.contents.views(label.name))
        bounds = views[0].bounds if views else (nan, nan)
        parts = [self.part("All data sets", label.across(views), bounds, self._numbered)]
        for view in views:
            where = self.contents.where(view.data, view.model)
            parts.append(self.part(where, label.figures(view), view.bounds, partial(self._linked, view)))
        return [part for part in parts if part.charts or part.galleries or part.tables]

    def sections(self, compared: Compared, start: str) -> dict[str, Any]:
        """What is compared across configurations, as the template takes it; ids begin with `start`."""
        sections = []
        for number, section in enumerate(compared.sections, 1):
            parts = []
            for found in section.parts:
                where = self.contents.where(found.data, found.model) if found.model else ""
                parts.append(self.part(where, found.figures, found.bounds, self._numbered))
            identity = f"{start}-{number}"
            sections.append(
                {"id": identity, "title": section.title, "text": section.text, "same": section.same, "parts": parts}
            )
        return {"sections": sections, "left_out": compared.left_out}

    def _linked(self, view: View, row: GalleryRow) -> str:
        """The id of a row of pictures, to which the row in the table of all samples leads."""
        key = (view.data, view.model, view.label, row.explainer, row.sample)
        return self.links.setdefault(key, f"p{len(self.links) + 1}")

    def _numbered(self, row: GalleryRow) -> str:
        self.compared += 1
        return f"q{self.compared}"

    def _gallery(
        self, gallery: Gallery, bounds: tuple[float, float], identity: Callable[[GalleryRow], str]
    ) -> dict[str, Any]:
        samples: dict[int, list[dict[str, Any]]] = {}
        for row in gallery.rows:
            pictures = [(picture.title, picture.alt, drawn(picture, bounds)) for picture in row.pictures]
            who = f"{row.explainer}, {row.setting}" if row.setting else row.explainer
            samples.setdefault(row.sample, []).append(
                {"id": identity(row), "explainer": who, "pictures": pictures, "text": row.text, "found": row.found}
            )
        for entries in samples.values():
            titles = [[title for title, _, _ in entry["pictures"]] for entry in entries]
            for place, entry in enumerate(entries):  # once, if they are the same in all rows
                entry["titled"] = place == 0 or any(other != titles[0] for other in titles)
        return {"title": gallery.title, "note": gallery.note, "folded": gallery.folded, "samples": samples}


def page(results: Results) -> str:
    """The whole report as one HTML document."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("holdfast.report", "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["marked"] = marked
    environment.filters["breakable"] = breakable
    return environment.get_template("report.html").render(_context(Contents(results)))


def _context(contents: Contents) -> dict[str, Any]:
    import markupsafe

    content = Page(contents)
    overview = []
    for data, model in contents.pairs:
        found = matrix(contents, data, model)
        medians = [(label, content.chart(chart)) for label, chart in median_charts(contents, data, model)]
        agreement = contents.agreements.get((data, model))
        differences = [(name, content.chart(chart)) for name, chart in difference_charts(contents, data, model)]
        overview.append(
            {
                "where": contents.where(data, model),
                "matrix": found,
                "medians": medians,
                "demonstrated": any(
                    found.comparison.significant.any()
                    for found in contents.rankings
                    if (found.data, found.model) == (data, model)
                ),
                "differences": differences,
                "agreement": None if agreement is None else agreement_sentence(agreement),
                "agreement_charts": [content.chart(c) for c in agreement_charts(agreement)] if agreement else [],
            }
        )
    options = content.sections(options_compared(contents), "options")
    models = content.sections(models_compared(contents), "models")
    sections = []
    for number, label in enumerate(contents.labels.values(), 1):
        sections.append({"id": f"metric-{number}", "label": label, "parts": content.of_metric(label)})
    rows, count = explorer(contents, content.links)
    about = contents.manifest.get("about") or {}
    failures = contents.results.failures.rows(named=True)
    guide: dict[str, str] = {}
    for label in contents.labels.values():
        for term, meaning in label.presentation.guide(label.options).items():
            guide.pop(term, None)  # what many have in common comes last
            guide[term] = meaning
    return {
        "title": str(about.get("title") or "How far the explanations hold"),
        "contents": contents,
        "labels": contents.labels,
        "facts": methods.facts(contents),
        "overview": overview,
        "options_compared": options,
        "models_compared": models,
        "sections": sections,
        "open": OPEN,
        "warnings": contents.warnings[:LISTED],
        "more_warnings": max(0, len(contents.warnings) - LISTED),
        "failures": failures[:LISTED],
        "failed": len(failures),
        "missing": contents.results.missing,
        "tally": methods.tally(contents),
        "guide": guide,
        "rows": markupsafe.Markup(rows),
        "row_count": count,
        "option_tables": methods.option_tables(contents),
        "costs": methods.costs(contents),
        "publications": methods.publications(contents),
        "command": about.get("command"),
        "config": markupsafe.Markup(config()),
        "bundle": markupsafe.Markup(bundle()) if content.charts else "",
        "raw": markupsafe.Markup,
    }


def marked(text: str) -> str:
    """Text with `code` and *emphasis* marked up, everything else escaped.

    >>> str(marked("`a<b` is *not* less"))
    '<code>a&lt;b</code> is <em>not</em> less'
    """
    import markupsafe

    safe = str(markupsafe.escape(text))
    safe = re.sub(r"`([^`]+)`", r"<code>\1</code>", safe)
    return markupsafe.Markup(re.sub(r"\*([^*\s][^*]*)\*", r"<em>\1</em>", safe))


def breakable(name: str) -> str:
    """A name that may be broken after an underscore."""
    import markupsafe

    return markupsafe.Markup("_<wbr>").join(name.split("_"))
