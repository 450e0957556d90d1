"""The matrix that opens the report: explainers in rows, questions in columns, and how good each answer is.

Colour means quality. Certainty has a mark of its own: a filled star for one that the tests show to be the best, open
stars for several that they do not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from standfast.report.charts import Table, TableCell
from standfast.report.sentences import list_cautions, say
from standfast.report.words import format_value
from standfast.results.formatting import format_number
from standfast.results.quality import RARE
from standfast.results.sanity import Sanity
from standfast.results.summary import MetricSummary, Summary, SummaryRow

#: how far an explainer came, in the order of the rows
Standing = Literal["candidate", "undecided", "failed", "control"]


@dataclass(frozen=True)
class Hollow:
    """Explainers that are more stable than all that pass the sanity checks, though they say little.

    Attributes:
        labels: of the metrics by which they are.
        explainers: the most stable first.
        sanities: the checks of each.
    """

    labels: tuple[str, ...]
    explainers: tuple[str, ...]
    sanities: tuple[Sanity, ...]


def order_explainers(summary: Summary, data: str, model: str) -> list[tuple[str, Standing]]:
    """The explainers with their standing, in the order of the rows."""
    return [(name, find_standing(summary, data, model, name)) for name in summary.sort_explainers(data, model)]


def find_standing(summary: Summary, data: str, model: str, explainer: str) -> Standing:
    """How far an explainer came."""
    if explainer in summary.controls:
        return "control"
    sanity = summary.sanity.get((data, model, explainer))
    return "candidate" if sanity is None or sanity.state == "passed" else sanity.state


def mark_leaders(metric: MetricSummary) -> dict[str, str]:
    """The star of the explainers that the tests put first: filled for one alone, open for several."""
    return {name: "★" if star == "alone" else "☆" for name, star in metric.stars.items()}


def find_hollow(summary: Summary, data: str, model: str) -> list[Hollow]:
    """Where explainers lead in stability that fail a sanity check, or ignore the class."""
    found: dict[tuple[str, ...], list[str]] = {}
    for metric in summary.select(data, model):
        rows = [row for row in metric.rows if row.references is not None and row.value is not None]
        sign = -1 if metric.metric.spec.direction == "higher" else 1
        sound = [sign * (row.value or 0.0) for row in rows if not _is_hollow(summary, row)]
        ahead = [row for row in rows if _is_hollow(summary, row) and sign * (row.value or 0.0) < min(sound, default=0)]
        names = tuple(row.explainer for row in sorted(ahead, key=lambda row: sign * (row.value or 0.0)))
        if names and sound:
            found.setdefault(names, []).append(metric.label)
    return [
        Hollow(tuple(labels), names, tuple(summary.sanity[data, model, name] for name in names))
        for names, labels in found.items()
    ]


def _is_hollow(summary: Summary, row: SummaryRow) -> bool:
    sanity = summary.sanity.get((row.data, row.model, row.explainer))
    return sanity is not None and (sanity.state == "failed" or sanity.find("class").state == "remark")


def list_notes(summary: Summary, data: str, model: str) -> list[str]:
    """Sentences below the matrix: stability that is no merit, and thresholds that tell nothing apart."""
    notes = [say("hollow", each) for each in find_hollow(summary, data, model)]
    return [*notes, *list_cautions(summary.select(data, model))]


def tabulate_references(metric: MetricSummary, order: Sequence[str]) -> Table | None:
    """What is acceptable: each explainer's value among those of maps that are known to be alike, or not.

    None where the metric measures no stability.
    """
    rows = [row for name in order if (row := metric.find_row(name)) is not None and row.references is not None]
    if not rows:
        return None
    columns = [
        ("Here", "inputs that are changed"),
        ("Identical maps", "the same for every input"),
        ("Same class", "maps of other inputs"),
        ("Scrambled weights", "maps of the same inputs"),
        ("Unrelated maps", "of other classes: chance"),
    ]
    cells = [(row.explainer, _write_references(row)) for row in rows]
    return Table("What is acceptable?", columns, cells, say("acceptable", rows[0].spec, RARE))


def _write_references(row: SummaryRow) -> list[TableCell]:
    found = row.references
    assert found is not None
    small = "" if row.quality is None else say("quality", row.quality)
    own = TableCell(format_value(row), small, quality=row.quality)
    values = (found.identical, found.same_class, found.scrambled, found.unrelated)
    return [own, *(TableCell("–" if each is None else _write_reference(row, each)) for each in values)]


def _write_reference(row: SummaryRow, value: float) -> str:
    """A reference value; that of a probability is a share of pairs."""
    if row.spec.log_probability:
        value = math.log(value) if value > 0 else -math.inf
    return format_number(value, row.spec.decimals)
