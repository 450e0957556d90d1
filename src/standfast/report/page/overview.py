"""Which explainer is best by which metric: medians with intervals, pairs, and whether the metrics agree.

There is no score over all metrics.
"""

from __future__ import annotations

import math

from standfast.report.charts import (
    Chart,
    Explainers,
    ExplainerTable,
    IntervalBar,
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
from standfast.statistics.comparison import Comparison, count_needed
from standfast.statistics.paired import Interval
from standfast.statistics.ranking import Agreement


def draw_medians(metric: MetricSummary, explainers: Explainers) -> Chart | None:
    """Medians with their intervals, the best first, a row for every explainer and control that was tried.

    A measure of stability has a line at identical maps, or at the largest probability that is good, and a tick in each
    row at the explainer's own unrelated maps. Other metrics have a line at the best control. Leaders have a star.
    """
    spec = metric.metric.spec
    bars = []
    for row in metric.rows:
        if row.estimate is not None:
            bars.append(_draw_bar(row, row.estimate))
        elif not row.control:
            # its row stays empty, so that charts of the same explainers have the same rows
            bars.append(IntervalBar(row.explainer, math.nan, None, None))
    sign = -1 if spec.direction == "higher" else 1

    def rank_bar(bar: IntervalBar) -> float:
        """The best first, and those without a value last."""
        if math.isnan(bar.value):
            return math.inf
        return sign * bar.value

    bars.sort(key=rank_bar)
    kind, line = _find_line(metric)
    has_zeros = any(bar.zero is not None for bar in bars)
    words = Words(spec.title, say("lines", kind, has_zeros), "medians")
    if line is None:
        axis = make_axis(spec)
    else:
        axis = make_axis(spec, line)
    return draw_intervals(bars, explainers, axis, words, mark_leaders(metric))


def _draw_bar(row: SummaryRow, estimate: Interval) -> IntervalBar:
    return IntervalBar(
        row.explainer,
        estimate.value,
        estimate.low,
        estimate.high,
        estimate.bound is not None,
        _find_zero(row),
    )


def _find_zero(row: SummaryRow) -> float | None:
    """The value of the explainer's maps of unrelated inputs, on the scale of its values."""
    if row.references is None:
        return None
    if not row.spec.log_probability:
        return row.references.unrelated
    if row.references.unrelated > 0:
        return math.log(row.references.unrelated)
    return None


def _find_line(metric: MetricSummary) -> tuple[str, float | None]:
    """What the line of a chart of medians is, and where; an empty name and None where there is nothing to draw."""
    spec = metric.metric.spec
    references = [row.references for row in metric.rows if row.references is not None]
    if references and spec.log_probability:
        return "rare", math.log(RARE)
    if references:
        return "identical", references[0].identical
    values = []
    for row in metric.rows:
        if row.control and row.value is not None:
            values.append(row.value)
    if not values or spec.direction is None:
        return "", None
    best = max if spec.direction == "higher" else min
    return "control", best(values)


def tabulate_pairs(metric: MetricSummary) -> ExplainerTable | None:
    """All pairs of explainers, the best mean rank first: who is significantly better than whom; None for fewer than
    three, or where there are too few samples for a test.
    """
    comparison = metric.comparison
    if comparison is None or len(comparison.names) < 3:
        return None
    if comparison.count < count_needed(len(comparison.names), comparison.level):
        return None
    rows = []
    for row in comparison.order:
        rank = comparison.mean_ranks[row]
        name = f"{comparison.names[row]} ({rank:.2f})"
        cells = [_compare_pair(comparison, row, other) for other in comparison.order]
        rows.append((name, cells))
    caption = (
        "Mean ranks in brackets. +: the row is significantly better than the column, −: worse."
    )
    columns = [(comparison.names[index], "") for index in comparison.order]
    return ExplainerTable(metric.label, columns, rows, caption)


def _compare_pair(comparison: Comparison, row: int, column: int) -> TableCell:
    """The sign of a significant difference and its p-value; empty for an explainer and itself."""
    if row == column:
        return TableCell("")
    p = float(comparison.p_values[row, column])
    if p < 0.001:
        text = "p < 0.001"
    else:
        text = f"p = {p:.2g}"
    if not comparison.significant[row, column]:
        return TableCell("", text)
    if comparison.effects[row, column] > 0:
        sign = "+"
    else:
        sign = "−"
    return TableCell(sign, text)


def tabulate_agreement(agreement: Agreement) -> ExplainerTable:
    """The rank correlations between the metrics' orders of explainers."""
    caption = "Spearman's ρ of the explainers' mean ranks by two metrics: 1 the same order, −1 the opposite one."
    rows = []
    for name, correlations in zip(agreement.names, agreement.correlations.tolist(), strict=True):
        cells = [TableCell(format_number(number)) for number in correlations]
        rows.append((name, cells))
    return ExplainerTable(
        "Rank correlations", [(name, "") for name in agreement.names], rows, caption, "Metric"
    )
