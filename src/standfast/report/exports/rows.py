"""Results as one row per explainer and configured metric: the numbers that tables and dashboards show."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import polars as pl

from standfast.errors import check
from standfast.metrics.result import Result
from standfast.results import Results, load_results, presentation_of, summarise
from standfast.results.summary import Statistic, SummaryRow, count_rows, estimate
from standfast.study.store import Store

#: what can be exported: results, or their address
Source = Results | Store | str | Path
SUMMARY = {
    **dict.fromkeys(("data", "model", "explainer", "label", "metric", "column", "better", "statistic"), pl.String),
    **dict.fromkeys(("value", "low", "high", "coverage"), pl.Float64),
    "count": pl.Int64,
    "bound": pl.String,
    "mean_rank": pl.Float64,
    "best": pl.Boolean,
    "tied": pl.Boolean,
    "sanity": pl.String,
    "quality": pl.String,
}


def open_results(source: Source) -> Results:
    """The results that `source` stands for."""
    if isinstance(source, Results):
        return source
    check(isinstance(source, Store | str | Path), "source", "Results, or their address", type(source).__name__)
    return load_results(source)


def list_rows(
    source: Source | Result, statistic: Statistic = "median", labels: Sequence[str] | None = None
) -> list[SummaryRow]:
    """The rows of the summary of results, or the one row of a `Result`.

    Raises:
        ArgumentError: no such label; a mean of censored values.
    """
    check(statistic in ("median", "mean"), "statistic", "'median' or 'mean'", repr(statistic))
    if isinstance(source, Result):
        check(labels is None, "labels", "none for a single Result", labels)
        spec = presentation_of(source.metric).value_spec(source.options)
        rows = source.frame().with_columns(pl.lit(0).alias("repeat"))
        middle, counts = estimate(spec, rows, statistic), count_rows(spec, rows)
        return [SummaryRow("", "", "", source.metric, source.metric, spec, statistic, middle, counts=counts)]
    results = open_results(source)
    known = list(results.metrics)
    for label in labels or ():
        check(label in known, "labels", f"some of {', '.join(known)}", repr(label))
    whole = statistic == "median" and labels is None
    return (results.summary if whole else summarise(results, statistic, labels)).rows


def make_frame(rows: Sequence[SummaryRow]) -> pl.DataFrame:
    """One row per row of the summary; `exports.summary` describes the columns. Missing values are null."""
    found = []
    for row in rows:
        middle = row.estimate
        found.append(
            {
                "data": row.data,
                "model": row.model,
                "explainer": row.explainer,
                "label": row.label,
                "metric": row.metric,
                "column": row.spec.column,
                "better": row.spec.direction,
                "statistic": row.statistic,
                "value": row.value,
                "low": None if middle is None else middle.low,
                "high": None if middle is None else middle.high,
                "coverage": None if middle is None or middle.low is None else middle.coverage,
                "count": 0 if middle is None else middle.count,
                "bound": None if middle is None else middle.bound,
                "mean_rank": row.mean_rank,
                "best": row.verdict == "best",
                "tied": row.verdict == "tied",
                "sanity": row.sanity,
                "quality": row.quality,
            }
        )
    return pl.DataFrame(found, schema=SUMMARY)
