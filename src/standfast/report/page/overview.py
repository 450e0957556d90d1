"""Which explainer is best by which metric: medians with intervals, pairs, and whether the metrics agree.

There is no score over all metrics.
"""

from __future__ import annotations

import math

from standfast.report.charts import (
    Chart,
    Explainers,
    IntervalBar,
    Table,
    TableCell,
    Words,
    draw_intervals,
)
from standfast.report.page.matrix import mark_leaders
from standfast.report.presentation.drawing import make_axis
from standfast.report.sentences import say
from standfast.results.formatting import format_number
from standfast.results.quality import RARE
from standfast.results.summary import MetricSummary, SummaryRow
from standfast.statistics.comparison import count_needed
from standfast.statistics.ranking import Agreement


def draw_medians(metric: MetricSummary, explainers: Explainers) -> Chart | None:
    """Medians with their intervals, the best first, a row for every explainer and control that was tried.

    A measure of stability has a line at identical maps, or at the largest probability that is good, and a tick in each
    row at the explainer's own unrelated maps. Other metrics have a line at the best control. Leaders have a star.
    """
    spec, bars = metric.metric.spec, []
    for row in metric.rows:
        found, zero = row.estimate, _find_zero(row)
        if found is not None:
            bars.append(
                IntervalBar(
                    row.explainer, found.value, found.low, found.high, found.bound is not None, zero
                )
            )
        elif not row.control:
            bars.append(IntervalBar(row.explainer, math.nan, None, None))
    sign = -1 if spec.direction == "higher" else 1
    bars.sort(key=lambda bar: math.inf if math.isnan(bar.value) else sign * bar.value)
    kind, line = _find_line(metric)
    words = Words(
        spec.title, say("lines", kind, any(bar.zero is not None for bar in bars)), "medians"
    )
    axis = make_axis(spec, *([] if line is None else [line]))
    return draw_intervals(bars, explainers, axis, words, mark_leaders(metric))


def _find_zero(row: SummaryRow) -> float | None:
    """The value of the explainer's maps of unrelated inputs, on the scale of its values."""
    if row.references is None:
        return None
    if not row.spec.log_probability:
        return row.references.unrelated
    return math.log(row.references.unrelated) if row.references.unrelated > 0 else None


def _find_line(metric: MetricSummary) -> tuple[str, float | None]:
    """What the line of a chart of medians is, and where; an empty name and None where there is nothing to draw."""
    spec = metric.metric.spec
    known = [row.references for row in metric.rows if row.references is not None]
    if known:
        return (
            ("rare", math.log(RARE)) if spec.log_probability else ("identical", known[0].identical)
        )
    values = [row.value for row in metric.rows if row.control and row.value is not None]
    if not values or spec.direction is None:
        return "", None
    return "control", max(values) if spec.direction == "higher" else min(values)


def tabulate_pairs(metric: MetricSummary) -> Table | None:
    """All pairs of explainers, the best mean rank first: who is significantly better than whom; None for fewer than
    three, or where there are too few samples for a test.
    """
    found = metric.comparison
    if (
        found is None
        or len(found.names) < 3
        or found.count < count_needed(len(found.names), found.level)
    ):
        return None
    order = [int(place) for place in found.order]
    rows = []
    for a in order:
        cells = []
        for b in order:
            p, better = float(found.p_values[a, b]), found.effects[a, b] > 0
            sign = "" if not found.significant[a, b] else "+" if better else "−"
            cells.append(
                TableCell("")
                if a == b
                else TableCell(sign, f"p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}")
            )
        rows.append((f"{found.names[a]} ({found.mean_ranks[a]:.2f})", cells))
    caption = (
        "Mean ranks in brackets. +: the row is significantly better than the column, −: worse."
    )
    return Table(metric.label, [(found.names[place], "") for place in order], rows, caption)


def tabulate_agreement(agreement: Agreement) -> Table:
    """The rank correlations between the metrics' orders of explainers."""
    caption = "Spearman's ρ of the explainers' mean ranks by two metrics: 1 the same order, −1 the opposite one."
    rows = [
        (name, [TableCell(format_number(float(each))) for each in own])
        for name, own in zip(agreement.names, agreement.correlations, strict=True)
    ]
    return Table(
        "Rank correlations", [(name, "") for name in agreement.names], rows, caption, "Metric"
    )
