"""The summary as a frame, as the best explainers, and in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import polars as pl

from standfast.results.controls import Explainers
from standfast.results.formatting import format_count, shorten_error
from standfast.results.summary import MetricSummary, Summary, SummaryRow

#: what `make_frame` has, in this order
SUMMARY = {
    **dict.fromkeys(
        ("data", "model", "explainer", "label", "metric", "column", "better"), pl.String
    ),
    **dict.fromkeys(("value", "low", "high", "coverage"), pl.Float64),
    "count": pl.Int64,
    "bound": pl.String,
    "mean_rank": pl.Float64,
    **dict.fromkeys(
        ("verdict", "quality", "sanity", "against_controls", "best_control", "failure"), pl.String
    ),
}
#: the columns that are attributes of a row of the summary
_FIELDS = (
    "data",
    "model",
    "explainer",
    "label",
    "metric",
    "value",
    "mean_rank",
    "quality",
    "sanity",
)
#: what `make_table` has of it, some under another name; those of `_OPTIONAL` only where they say something
_COLUMNS = (
    "data",
    "model",
    "explainer",
    pl.col("label").alias("metric"),
    "value",
    "low",
    "high",
    "verdict",
    "better",
)
_MORE = (
    "quality",
    "sanity",
    pl.col("count").alias("samples"),
    "against_controls",
    "best_control",
    "bound",
    "failure",
)
_OPTIONAL = ("quality", "sanity", "against_controls", "best_control", "bound", "failure")


@dataclass(frozen=True)
class Best:
    """The explainers that are best by one metric.

    Attributes:
        explainers: the one with the best mean rank, and all that the paired tests do not show to be worse, in the
            order of their mean ranks.
        shown: whether the tests, at 5%, show that all other explainers are worse; False if there are no others.
        samples: on how many samples they were compared.
    """

    explainers: tuple[str, ...]
    shown: bool
    samples: int


def list_best(metrics: Iterable[MetricSummary]) -> Iterator[tuple[str, Best]]:
    """The best explainers by each metric that ranks them."""
    for metric in metrics:
        comparison = metric.comparison
        if comparison is not None and comparison.count > 0:
            names = tuple(comparison.names[index] for index in comparison.winner_set)
            yield metric.label, Best(names, comparison.decided, comparison.count)


def make_table(summary: Summary) -> pl.DataFrame:
    """A row for each explainer and metric; `Results.table` describes the columns."""
    failed = [row for metric in summary.metrics for row in metric.rows if not row.counts.rows]
    table = make_frame([*summary.rows, *failed]).select(*_COLUMNS, *_MORE)
    hidden = [name for name in _OPTIONAL if not table[name].is_not_null().any()]
    if len(summary.data) < 2:
        hidden.append("data")
    if len(summary.models) < 2:
        hidden.append("model")
    return table.drop(hidden)


def make_frame(rows: Sequence[SummaryRow]) -> pl.DataFrame:
    """One row per row of the summary; `standfast.report.exports.summary` describes the columns."""
    return pl.DataFrame([_list_values(row) for row in rows], schema=SUMMARY)


def _list_values(row: SummaryRow) -> dict[str, object]:
    """A row of the summary by the columns of `SUMMARY`; those that are missing are null."""
    values: dict[str, object] = {name: getattr(row, name) for name in _FIELDS}
    values["verdict"] = row.standing
    values["column"] = row.spec.column
    values["better"] = None
    if row.counts.rows:
        values["better"] = row.spec.direction
    values["failure"] = None
    if row.error is not None:
        values["failure"] = shorten_error(row.error)
    values["count"] = 0
    if row.estimate is not None:
        values["low"] = row.estimate.low
        values["high"] = row.estimate.high
        values["count"] = row.estimate.count
        values["bound"] = row.estimate.bound
        values["coverage"] = None
        if row.estimate.low is not None:
            values["coverage"] = row.estimate.coverage
    if row.control_test is not None:
        values["against_controls"] = row.control_test.verdict
        values["best_control"] = row.control_test.control
    return values


def count_explainers(explainers: Explainers) -> str:
    """How many explainers and controls there are, in words."""
    controls = len(explainers.controls)
    text = format_count(len(explainers) - controls, "explainer")
    if not controls:
        return text
    return f"{text} and {format_count(controls, 'control')}"
