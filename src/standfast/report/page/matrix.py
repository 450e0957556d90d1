"""The matrix that opens the report: explainers in rows, questions in columns, and how good each answer is.

Colour means quality. Certainty has a mark of its own: a filled star for one that the tests show to be the best, open
stars for several that they do not tell apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from standfast.report.charts import ExplainerTable, TableCell
from standfast.report.sentences import say
from standfast.report.words import format_value
from standfast.results.formatting import format_number
from standfast.results.quality import RARE
from standfast.results.summary import MetricSummary, Summary, SummaryRow

#: how far an explainer came, in the order of the rows
Standing = Literal["candidate", "undecided", "failed", "control"]


def order_explainers(summary: Summary, data: str, model: str) -> list[tuple[str, Standing]]:
    """The explainers with their standing, in the order of the rows."""
    return [
        (name, find_standing(summary, data, model, name))
        for name in summary.sort_explainers(data, model)
    ]


def find_standing(summary: Summary, data: str, model: str, explainer: str) -> Standing:
    """How far an explainer came."""
    if explainer in summary.controls:
        return "control"
    sanity = summary.sanity.get((data, model, explainer))
    if sanity is None or sanity.state == "passed":
        return "candidate"
    return sanity.state


def mark_leaders(metric: MetricSummary) -> dict[str, str]:
    """The star of the explainers that the tests put first: filled for one alone, open for several."""
    stars = {}
    for name, star in metric.stars.items():
        stars[name] = "★" if star == "alone" else "☆"
    return stars


def tabulate_references(metric: MetricSummary, order: Sequence[str]) -> ExplainerTable | None:
    """What is acceptable: each explainer's value among those of maps that are known to be alike, or not.

    None where the metric measures no stability.
    """
    rows = [
        row
        for name in order
        if (row := metric.find_row(name)) is not None and row.references is not None
    ]
    if not rows:
        return None
    task = metric.metric.task
    columns = [
        ("Here", "inputs that are changed"),
        ("Identical maps", "the same for every input"),
        (f"Same {task.kind}", "maps of other inputs"),
        ("Scrambled weights", "maps of the same inputs"),
        ("Unrelated maps", f"of other {task.kinds}: chance"),
    ]
    cells = [(row.explainer, _write_references(row)) for row in rows]
    if not task.kind:
        # without classes no inputs are of the same one
        del columns[2]
        for _, cells_of_row in cells:
            del cells_of_row[2]
    caption = say("acceptable", rows[0].spec, RARE)
    return ExplainerTable("What is acceptable?", columns, cells, caption)


def _write_references(row: SummaryRow) -> list[TableCell]:
    references = row.references
    assert references is not None
    small = ""
    if row.quality is not None:
        small = say("quality", row.quality)
    value = TableCell(format_value(row), small, quality=row.quality)
    numbers = (
        references.identical,
        references.same_class,
        references.scrambled,
        references.unrelated,
    )
    texts = []
    for number in numbers:
        texts.append("–" if number is None else _write_reference(row, number))
    return [value, *(TableCell(text) for text in texts)]


def _write_reference(row: SummaryRow, value: float) -> str:
    """A reference value; that of a probability is a share of pairs."""
    if row.spec.log_probability:
        if value > 0:
            value = math.log(value)
        else:
            value = -math.inf
    return format_number(value, row.spec.decimals)
