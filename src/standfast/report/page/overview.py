"""Charts of which explainer is best by which metric: medians with intervals, pairs, and whether the metrics agree.

There is no score over all metrics.
"""

from __future__ import annotations

import math

import numpy as np

from standfast.report.charts import Chart, Explainers, IntervalBar, Underpowered, Words, draw_heat_map, draw_intervals
from standfast.report.presentation.drawing import make_axis
from standfast.results.summary import MetricSummary
from standfast.statistics.comparison import Comparison, count_needed
from standfast.statistics.ranking import Agreement


def draw_medians(metric: MetricSummary, explainers: Explainers) -> Chart | None:
    """Medians with their intervals, a row for every explainer and control that was tried.

    The best, and all that are not shown to be worse, have a star where any difference is demonstrated.
    """
    bars = []
    for row in metric.rows:
        found = row.estimate
        if found is not None:
            bars.append(IntervalBar(row.explainer, found.value, found.low, found.high, found.bound is not None))
        elif not row.control:
            bars.append(IntervalBar(row.explainer, math.nan, None, None))
    best = [row.explainer for row in metric.rows if row.verdict in ("best", "tied")]
    spec = metric.metric.spec
    return draw_intervals(bars, explainers, make_axis(spec), Words(spec.title, "", "medians"), best)


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
