"""Stored results as one row per explainer and configured metric: the numbers that tables and dashboards show."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import polars as pl

from standfast.errors import check
from standfast.evaluation import Evaluation
from standfast.findings import Entry, Statistic, as_findings, load_results, take_middle
from standfast.findings import list_entries as entries_of
from standfast.metrics.result import Result
from standfast.report import Report
from standfast.results import presentation_of
from standfast.study.results import Results
from standfast.study.store import Store

#: what can be exported: opened results, what `evaluate` and `run_study` return, a report, or the address of results
Source = Results | Evaluation | Report | Store | str | Path


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
    """All entries of stored results, as `standfast.findings.list_entries`, or that of one `Result`.

    Raises:
        ArgumentError: no such label; a mean of censored values.
    """
    check(statistic in ("median", "mean"), "statistic", "'median' or 'mean'", repr(statistic))
    if isinstance(source, Result):
        check(labels is None, "labels", "none for a single Result", labels)
        spec = presentation_of(source.metric).value_spec(source.options)
        rows = source.frame().with_columns(pl.lit(0).alias("repeat"))
        middle = take_middle(spec, rows, statistic)
        return [Entry("", "", "", source.metric, source.metric, spec, statistic, middle)]
    return entries_of(as_findings(open_results(source)).contents, statistic, labels)


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
                "column": entry.spec.column,
                "better": entry.spec.direction,
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
