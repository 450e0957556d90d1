"""Charts of which explainer is best by which metric: medians with intervals, pairs, and whether the metrics agree.

There is no score over all metrics.
"""

from __future__ import annotations

import math

import numpy as np

from standfast.report.charts import Chart, Explainers, IntervalBar, Underpowered, Words, draw_heat_map, draw_intervals
from standfast.report.page.matrix import mark_leaders
from standfast.report.presentation.drawing import make_axis
from standfast.report.sentences import say
from standfast.results.quality import RARE
from standfast.results.summary import MetricSummary, SummaryRow
from standfast.statistics.comparison import Comparison, count_needed
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
            bars.append(IntervalBar(row.explainer, found.value, found.low, found.high, found.bound is not None, zero))
        elif not row.control:
            bars.append(IntervalBar(row.explainer, math.nan, None, None))
    sign = -1 if spec.direction == "higher" else 1
    bars.sort(key=lambda bar: math.inf if math.isnan(bar.value) else sign * bar.value)
    kind, line = _find_line(metric)
    words = Words(spec.title, say("lines", kind, any(bar.zero is not None for bar in bars)), "medians")
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
        return ("rare", math.log(RARE)) if spec.log_probability else ("identical", known[0].identical)
    values = [row.value for row in metric.rows if row.control and row.value is not None]
    if not values or spec.direction is None:
        return "", None
    return "control", max(values) if spec.direction == "higher" else min(values)


def draw_differences(metric: MetricSummary) -> Chart | Underpowered | None:
    """A table of pairs, for three explainers or more; else how many samples it needs."""
    comparison = metric.comparison
    if comparison is None or len(comparison.names) < 3:
        return None
    needed, title = count_needed(len(comparison.names), comparison.level), f"Who differs from whom by {metric.label}"
    if comparison.count < needed:
        return Underpowered(title, needed, comparison.count)
    return draw_pairs(comparison, title)


def draw_pairs(comparison: Comparison, title: str) -> Chart | None:
    """All pairs of explainers, the best mean rank first: who is significantly better than whom."""
    order = [int(place) for place in comparison.order]
    ranks = comparison.mean_ranks
    names = [f"{comparison.names[place]} ({ranks[place]:.2f})" for place in order]
    values = np.full((len(order), len(order)), np.nan)
    reads = [[""] * len(order) for _ in order]
    for row, a in enumerate(order):
        for column, b in enumerate(order):
            if a != b:
                p = float(comparison.p_values[a, b])
                values[row, column] = np.sign(comparison.effects[a, b]) * comparison.significant[a, b]
                word = {1.0: "better", -1.0: "worse"}.get(values[row, column], "not shown to differ")
                reads[row][column] = f"{word}, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"
    texts = [[{1.0: "+", -1.0: "−"}.get(value, "") for value in row] for row in values.tolist()]
    caption = "Mean ranks in brackets, 1 is best. +: the row is significantly better than the column, −: worse."
    return draw_heat_map(names, names, values, "row against column", Words(title, caption, "differences"), texts, reads)


def draw_agreement(agreement: Agreement) -> Chart | None:
    """A heat map of the rank correlations between the metrics' orders of explainers."""
    caption = "Spearman's ρ of the explainers' mean ranks by two metrics: 1 the same order, −1 the opposite one."
    words = Words("Rank correlations of the metrics", caption, "agreement", "Rank correlations")
    return draw_heat_map(agreement.names, agreement.names, agreement.correlations, "Spearman's ρ", words)
