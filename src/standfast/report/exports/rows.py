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
