"""Stored results as one row per explainer and configured metric: the numbers that tables and dashboards show."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import polars as pl

from holdfast.errors import check
from holdfast.evaluation import Evaluation
from holdfast.metrics.result import Result
from holdfast.presentation import Reading, presentation_of
from holdfast.report import Report
from holdfast.report.summary import estimate
from holdfast.report.views import Contents
from holdfast.statistics.comparison import Comparison
from holdfast.statistics.paired import Interval, bootstrap_interval
from holdfast.study.results import Results, load_results
from holdfast.study.store import Store

#: what can be exported: opened results, what `evaluate` and `run_study` return, a report, or the address of results
Source = Results | Evaluation | Report | Store | str | Path
Statistic = Literal["median", "mean"]


@dataclass(frozen=True)
class Entry:
    """The numbers of one explainer by one configured metric, for one data set and model.

    Attributes:
        data, model, explainer, label, metric: names; a single `Result` has only the metric's.
        reading: how the metric's values are read.
        statistic: `"median"` or `"mean"` over samples. The value of a sample is the same statistic over its repeats.
        middle: the statistic with its interval; None where no sample counts.
        mean_rank: over samples, 1 is best; None where the metric does not rank explainers, or ranks none of these.
        best: whether no other explainer's `middle` is certainly better; False where the metric has no direction, and
            where only one explainer has a value.
        tied: whether it is not best, but the paired tests do not show that it is worse than one that is.
    """

    data: str
    model: str
    explainer: str
    label: str
    metric: str
    reading: Reading
    statistic: Statistic
    middle: Interval | None
    mean_rank: float | None = None
    best: bool = False
    tied: bool = False


def open_results(source: Source) -> Results:
    """The results that `source` stands for."""
    if isinstance(source, Results):
        return source
    if isinstance(source, Evaluation):
        return source.results
    if isinstance(source, Report):
        return open_results(source.source)
    kinds = "Results, an Evaluation, a Report, or the address of results"
    check(isinstance(source, Store | str | Path), "source", kinds, type(source).__name__)
    return load_results(source)


def list_entries(
    source: Source | Result, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> list[Entry]:
    """All entries, in the study's order of data, models, metrics and explainers.

    The tests are those of the report: Friedman's, then Wilcoxon's on all pairs with Holm's correction, at 5%, on the
    samples that have a value for every explainer.

    Args:
        source: stored results, or the `Result` of one metric for one explainer.
        statistic: `"median"`, which may be censored and whose interval needs no assumption; or `"mean"`, with a BCa
            bootstrap interval, for values of which none is censored.
        labels: the configured metrics to take; all by default.

    Raises:
        ArgumentError: no such label; a mean of censored values.
    """
    check(statistic in ("median", "mean"), "statistic", "'median' or 'mean'", repr(statistic))
    if isinstance(source, Result):
        check(labels is None, "labels", "none for a single Result", labels)
        reading = presentation_of(source.metric).reading(source.options)
        rows = source.frame().with_columns(pl.lit(0).alias("repeat"))
        middle = _middle(reading, rows, statistic)
        return [Entry("", "", "", source.metric, source.metric, reading, statistic, middle)]
    contents = Contents(open_results(source))
    names = list(contents.labels)
    for label in labels or ():
        check(label in names, "labels", f"some of {', '.join(names)}", repr(label))
    found: list[Entry] = []
    for data, model in contents.pairs:
        for name in labels or names:
            metric, reading = contents.labels[name].metric, contents.labels[name].reading
            group = [
                Entry(data, model, explainer, name, metric, reading, statistic, _middle(reading, rows, statistic))
                for explainer in contents.explainers
                if len(rows := contents.rows(data, model, name, explainer))
            ]
            found += _add_ranks(group, contents.comparisons.get((data, model, name)))
    return found


def _middle(reading: Reading, rows: pl.DataFrame, statistic: Statistic) -> Interval | None:
    if statistic == "median":
        return estimate(reading, rows)
    rows = reading.select_valid(rows)
    if not len(rows):
        return None
    bounds = reading.bounds(rows)
    expected = "'median' where values are censored: no mean is taken over bounds"
    check(not bounds.any(), "statistic", expected, f"'mean' of {reading.column}, {int(bounds.sum())} of it censored")
    value = pl.col(reading.column).cast(pl.Float64).mean()
    means = rows.group_by("sample", maintain_order=True).agg(value)[reading.column].to_numpy()
    return bootstrap_interval(np.asarray(means), "mean")


def _add_ranks(group: list[Entry], comparison: Comparison | None) -> list[Entry]:
    """Add ranks, and which entries are best or tied with the best."""
    ranked = [entry for entry in group if entry.middle is not None]
    direction = ranked[0].reading.direction if ranked else None
    if direction is None or len(ranked) < 2:
        return group
    sign = 1.0 if direction == "lower" else -1.0  # from here on less is better
    ends = {entry.explainer: sorted(sign * end for end in entry.middle.between) for entry in ranked if entry.middle}
    worst_of_best = min(high for _, high in ends.values())
    best = {name for name, (low, _) in ends.items() if low <= worst_of_best}
    return [_add_rank(entry, best, comparison) for entry in group]


def _add_rank(entry: Entry, best: set[str], comparison: Comparison | None) -> Entry:
    if entry.explainer in best:
        entry = dataclasses.replace(entry, best=True)
    if comparison is None or comparison.count == 0 or entry.explainer not in comparison.names:
        return entry
    place = comparison.names.index(entry.explainer)
    rank = float(comparison.mean_ranks[place])
    shown_worse = comparison.significant[:, place] & (comparison.effects[:, place] > 0)
    rivals = [shown_worse[at] for at, name in enumerate(comparison.names) if name in best]
    tied = not entry.best and bool(rivals) and not all(rivals)
    return dataclasses.replace(entry, mean_rank=rank, tied=tied)


def summary_frame(found: Sequence[Entry]) -> pl.DataFrame:
    """One row per entry: `data`, `model`, `explainer`, `label`, `metric`, `value` and the rest.

    `value` is the statistic, `low` and `high` are the ends of its interval with the confidence `coverage`, and `count`
    is the number of samples. Where `bound` is `"upper"` (`"lower"`) the statistic is at most (at least) `value`.
    Missing values are null.
    """
    rows = []
    for entry in found:
        middle = entry.middle
        rows.append(
            {
                "data": entry.data,
                "model": entry.model,
                "explainer": entry.explainer,
                "label": entry.label,
                "metric": entry.metric,
                "column": entry.reading.column,
                "better": entry.reading.direction,
                "statistic": entry.statistic,
                "value": None if middle is None or math.isnan(middle.value) else middle.value,
                "low": None if middle is None else middle.low,
                "high": None if middle is None else middle.high,
                "coverage": None if middle is None or middle.low is None else middle.coverage,
                "count": 0 if middle is None else middle.count,
                "bound": None if middle is None else middle.bound,
                "mean_rank": entry.mean_rank,
                "best": entry.best,
                "tied": entry.tied,
            }
        )
    return pl.DataFrame(rows, schema=SUMMARY)


SUMMARY = {
    **dict.fromkeys(("data", "model", "explainer", "label", "metric", "column", "better", "statistic"), pl.String),
    **dict.fromkeys(("value", "low", "high", "coverage"), pl.Float64),
    "count": pl.Int64,
    "bound": pl.String,
    "mean_rank": pl.Float64,
    "best": pl.Boolean,
    "tied": pl.Boolean,
}
