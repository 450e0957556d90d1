"""Which explainer is best by which metric: medians with intervals, ranks, and ties for the first place.

There is no score over all metrics.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from standfast.report.charts import Chart, IntervalBar, Underpowered, Words, draw_heat_map, draw_intervals
from standfast.report.page.cells import Cell, describe_row
from standfast.report.presentation.drawing import make_axis
from standfast.report.views import Contents
from standfast.results.formatting import format_number
from standfast.results.summary import MetricSummary, SummaryRow
from standfast.statistics.comparison import Comparison, count_needed
from standfast.statistics.ranking import Agreement


@dataclass(frozen=True)
class Entry:
    """A cell of the matrix, with the rank of its explainer among the others.

    Attributes:
        cell: the numbers; None where nothing was tried.
        rank: mean rank over samples, 1 is best; None where the label does not rank.
        first: best, or not demonstrably worse than the best.
    """

    cell: Cell | None
    rank: float | None = None
    first: bool = False


@dataclass(frozen=True)
class Matrix:
    """The overview of one data set and model.

    Attributes:
        data, model: names.
        rows: an explainer and its entries, one for each label.
        uneven: labels with medians over different samples for different explainers.
    """

    data: str
    model: str
    rows: list[tuple[str, list[Entry]]]
    uneven: list[str] = field(default_factory=list)


def build_matrix(contents: Contents, data: str, model: str, names: Sequence[str] = ()) -> Matrix:
    """The overview of one data set and model, over all labels or over those of these names."""
    summary = contents.results.summary
    metrics = [each for each in summary.select(data, model) if not names or each.label in names]
    rows: list[tuple[str, list[Entry]]] = []
    for name in summary.explainers:
        entries = [_make_entry(contents, each, each.find_row(name)) for each in metrics]
        if any(entry.cell is not None for entry in entries):
            rows.append((name, entries))
    return Matrix(data, model, rows, [each.label for each in metrics if each.uneven])


def _make_entry(contents: Contents, metric: MetricSummary, row: SummaryRow | None) -> Entry:
    if row is None:
        return Entry(None)
    rows = contents.rows(row.data, row.model, row.label, row.explainer)
    fine = rows.filter(pl.col("status") == "ok") if len(rows) else rows
    own = metric.metric.presentation
    remarks = [detail.text for detail in own.details(fine, metric.metric.options)] if len(rows) else []
    return Entry(describe_row(row, remarks), row.mean_rank, row.verdict in ("best", "tied"))


def draw_medians(contents: Contents, data: str, model: str) -> list[tuple[str, Chart]]:
    """Label and chart: medians with their intervals, a row for every explainer and evaluated control.

    The best, and all that are not shown to be worse, have a star where any difference is demonstrated.
    """
    here = [each for each in contents.results.summary.select(data, model) if any(row.counts.rows for row in each.rows)]
    present = {row.explainer for each in here for row in each.rows if row.counts.rows}
    charts = []
    for each in here:
        entries, best = [], []
        for name in (name for name in contents.explainers if name in present):
            row = each.find_row(name)
            if name in contents.controls and (row is None or not row.counts.rows):
                continue  # a metric of stability does not evaluate controls
            middle = None if row is None else row.estimate
            entries.append(
                IntervalBar(name, math.nan, None, None)
                if middle is None
                else IntervalBar(name, middle.value, middle.low, middle.high, middle.bound is not None)
            )
            best += [name] if row is not None and row.verdict in ("best", "tied") else []
        spec = each.metric.spec
        words = Words(spec.title, "", "medians")
        chart = draw_intervals(entries, contents.explainers, make_axis(spec), words, best)
        if chart is not None:
            charts.append((each.label, chart))
    return charts


def draw_differences(contents: Contents, data: str, model: str) -> list[tuple[str, Chart | Underpowered]]:
    """Label and table of pairs, for three explainers or more; else how many samples it needs."""
    charts: list[tuple[str, Chart | Underpowered]] = []
    for label in contents.labels:
        comparison = contents.comparisons.get((data, model, label))
        if comparison is None or len(comparison.names) < 3:
            continue
        needed = count_needed(len(comparison.names), comparison.level)
        if comparison.count < needed:
            charts.append((label, Underpowered(f"Who differs from whom by {label}", needed, comparison.count)))
            continue
        chart = draw_pairs(comparison, f"Who differs from whom by {label}")
        charts += [] if chart is None else [(label, chart)]
    return charts


def draw_pairs(comparison: Comparison, title: str) -> Chart | None:
    """A table of all pairs of explainers, the best mean rank first: who is significantly better than whom."""
    order = [int(place) for place in comparison.order]
    ranks = comparison.mean_ranks
    names = [f"{comparison.names[place]} ({ranks[place]:.2f})" for place in order]
    values = np.full((len(order), len(order)), np.nan)
    reads = [[""] * len(order) for _ in order]
    for row, a in enumerate(order):
        for column, b in enumerate(order):
            if a != b:
                p = float(comparison.p_values[a, b])
                differs = comparison.friedman_p < comparison.level and p < comparison.level
                values[row, column] = np.sign(ranks[b] - ranks[a]) * differs
                word = {1.0: "better", -1.0: "worse"}.get(values[row, column], "not shown to differ")
                reads[row][column] = f"{word}, p {'< 0.001' if p < 0.001 else f'= {p:.2g}'}"
    texts = [[{1.0: "+", -1.0: "−"}.get(value, "") for value in row] for row in values.tolist()]
    caption = "Mean ranks in brackets, 1 is best. +: the row is significantly better than the column, −: worse."
    return draw_heat_map(names, names, values, "row against column", Words(title, caption, "differences"), texts, reads)


def draw_agreement(agreement: Agreement) -> list[Chart]:
    """A heat map of the rank correlations between the metrics' orders of explainers."""
    caption = "Spearman's ρ of the explainers' mean ranks by two metrics: 1 the same order, −1 the opposite one."
    words = Words("Rank correlations of the metrics", caption, "agreement", "Rank correlations")
    chart = draw_heat_map(agreement.names, agreement.names, agreement.correlations, "Spearman's ρ", words)
    return [] if chart is None else [chart]


def describe_agreement(agreement: Agreement) -> str:
    """How much the metrics agree, in words."""
    if math.isnan(agreement.kendalls_w):
        return "The metrics' orders of explainers cannot be compared: too few explainers are ranked by all of them."
    count, shared = len(agreement.names), int(agreement.used.sum())
    text = f"Kendall's W = {format_number(agreement.kendalls_w)}"
    if agreement.interval is not None and agreement.interval.low is not None and agreement.interval.high is not None:
        text += f" [{format_number(agreement.interval.low)}, {format_number(agreement.interval.high)}] over samples"
    p = "p < 0.001" if agreement.p_value < 0.001 else f"p = {agreement.p_value:.2g}"
    text += f", {p}, for {count} metrics and {shared} explainers."
    if count == 2:
        text += " For two metrics 0.5 is no agreement and 0 are opposite orders."
    elif agreement.p_value > 0.05:
        text += " The orders are not demonstrably related: which explainer is best depends on the metric."
    else:
        text += " The orders are related; 1 would be the same order by every metric."
    return text
