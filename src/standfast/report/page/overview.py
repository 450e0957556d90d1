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
from standfast.report.presentation.drawing import make_axis
from standfast.report.summary import Cell, estimate, summarise_rows
from standfast.report.views import ConfiguredMetric, Contents
from standfast.results.formatting import format_number
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
    labels = [label for name, label in contents.labels.items() if not names or name in names]
    failures, comparisons = contents.results.failures, contents.comparisons
    here = (pl.col("data") == data) & (pl.col("model") == model)
    failed: dict[tuple[str, str], int] = {}
    if len(failures):
        counted = failures.filter(here).group_by("explainer", "label").len()
        failed = {(explainer, label): int(count) for explainer, label, count in counted.iter_rows()}
    rows: list[tuple[str, list[Entry]]] = []
    for name in contents.explainers:
        entries = []
        for label in labels:
            rows_of_name = contents.rows(data, model, label.name, name)
            found = summarise_rows(label, rows_of_name, failed.get((name, label.name), 0))
            entries.append(_rank_cell(found, name, comparisons.get((data, model, label.name))))
        if any(entry.cell is not None for entry in entries):
            rows.append((name, entries))
    uneven = [label.name for label in labels if _has_uneven_samples(contents, label, data, model)]
    return Matrix(data, model, rows, uneven)


def _rank_cell(found: Cell | None, name: str, comparison: Comparison | None) -> Entry:
    if comparison is None or name not in comparison.names or comparison.count == 0:
        return Entry(found)
    place = comparison.names.index(name)
    first = comparison.decided and place in comparison.winner_set
    return Entry(found, float(comparison.mean_ranks[place]), bool(first))


def _has_uneven_samples(contents: Contents, label: ConfiguredMetric, data: str, model: str) -> bool:
    frame = contents.frame(data, model, label.name)
    if not len(frame):
        return False
    rows = label.spec.select_valid(frame)
    samples = {
        tuple(rows.filter(pl.col("explainer") == name).select("repeat", "sample").sort("repeat", "sample").rows())
        for name in frame["explainer"].unique()
    }
    return len(samples) > 1


def draw_medians(contents: Contents, data: str, model: str) -> list[tuple[str, Chart]]:
    """Label and chart: medians with their intervals, a row for every explainer and evaluated control.

    The best, and all that are not shown to be worse, have a star where any difference is demonstrated.
    """
    here = [label for label in contents.labels if len(contents.frame(data, model, label))]
    present = {name for label in here for name in contents.frame(data, model, label)["explainer"].unique()}
    charts = []
    for label in (contents.labels[name] for name in here):
        entries = []
        for name in (each for each in contents.explainers if each in present):
            rows = contents.rows(data, model, label.name, name)
            if name in contents.controls and not len(rows):
                continue  # a metric of stability does not evaluate controls
            middle = estimate(label.spec, rows)
            entries.append(
                IntervalBar(name, math.nan, None, None)
                if middle is None
                else IntervalBar(name, middle.value, middle.low, middle.high, middle.bound is not None)
            )
        spec, comparison = label.spec, contents.comparisons.get((data, model, label.name))
        best: list[str] = []
        if comparison is not None and comparison.decided:
            best = [comparison.names[place] for place in comparison.winner_set]
        words = Words(spec.title, "", "medians")
        chart = draw_intervals(entries, contents.explainers, make_axis(spec), words, best)
        if chart is not None:
            charts.append((label.name, chart))
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
