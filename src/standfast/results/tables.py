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
    for each in metrics:
        comparison = each.comparison
        if comparison is not None and comparison.count > 0:
            names = tuple(comparison.names[place] for place in comparison.winner_set)
            yield each.label, Best(names, comparison.decided, comparison.count)


def make_table(summary: Summary) -> pl.DataFrame:
    """A row for each explainer and metric; `Results.table` describes the columns."""
    failed = [row for each in summary.metrics for row in each.rows if not row.counts.rows]
    found = make_frame([*summary.rows, *failed]).select(*_COLUMNS, *_MORE)
    hidden = [name for name in _OPTIONAL if not found[name].is_not_null().any()]
    hidden += ["data"] if len(summary.data) < 2 else []
    hidden += ["model"] if len(summary.models) < 2 else []
    return found.drop(hidden)


def make_frame(rows: Sequence[SummaryRow]) -> pl.DataFrame:
    """One row per row of the summary; `standfast.report.exports.summary` describes the columns."""
    found: list[dict[str, object]] = []
    for row in rows:
        about = {
            name: getattr(row, name) for name in ("data", "model", "explainer", "label", "metric")
        }
        about |= {name: getattr(row, name) for name in ("value", "mean_rank", "quality", "sanity")}
        about["verdict"] = row.standing
        about |= {
            "column": row.spec.column,
            "better": row.spec.direction if row.counts.rows else None,
            "count": 0,
        }
        if row.estimate is not None:
            about |= {
                name: getattr(row.estimate, name) for name in ("low", "high", "count", "bound")
            }
            about["coverage"] = None if row.estimate.low is None else row.estimate.coverage
        if row.control_test is not None:
            about |= {
                "against_controls": row.control_test.verdict,
                "best_control": row.control_test.control,
            }
        found.append({**about, "failure": None if row.error is None else shorten_error(row.error)})
    return pl.DataFrame(found, schema=SUMMARY)


def count_explainers(explainers: Explainers) -> str:
    """How many explainers and controls there are, in words."""
    controls = len(explainers.controls)
    text = format_count(len(explainers) - controls, "explainer")
    return text + (f" and {format_count(controls, 'control')}" if controls else "")
