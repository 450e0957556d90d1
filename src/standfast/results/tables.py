"""The summary as a frame, as the best explainers, and in a few words."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import polars as pl

from standfast.results.controls import Explainers
from standfast.results.formatting import format_count, shorten_error
from standfast.results.summary import MetricSummary, Summary, SummaryRow

#: what `make_table` has, in this order; those in `_OPTIONAL` only where they say something
TABLE = {
    **dict.fromkeys(("data", "model", "explainer", "metric"), pl.String),
    **dict.fromkeys(("value", "low", "high"), pl.Float64),
    **dict.fromkeys(("verdict", "better", "quality", "sanity"), pl.String),
    "samples": pl.Int64,
    **dict.fromkeys(("against_controls", "best_control", "bound", "failure"), pl.String),
}
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
    rows = [_make_row(row) for row in summary.rows]
    rows += [_make_row(row) for each in summary.metrics for row in each.rows if not row.counts.rows]
    found = pl.DataFrame(rows, schema=TABLE)
    hidden = [name for name in _OPTIONAL if not found[name].is_not_null().any()]
    hidden += ["data"] if len(summary.data) < 2 else []
    hidden += ["model"] if len(summary.models) < 2 else []
    return found.drop(hidden)


def _make_row(row: SummaryRow) -> dict[str, object]:
    estimate, test = row.estimate, row.control_test
    return {
        "data": row.data,
        "model": row.model,
        "explainer": row.explainer,
        "metric": row.label,
        "value": row.value,
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "verdict": row.verdict,
        "better": row.spec.direction if row.counts.rows else None,
        "quality": row.quality,
        "sanity": row.sanity,
        "samples": 0 if estimate is None else estimate.count,
        "against_controls": None if test is None else test.verdict,
        "best_control": None if test is None else test.control,
        "bound": None if estimate is None else estimate.bound,
        "failure": None if row.error is None else shorten_error(row.error),
    }


def count_explainers(explainers: Explainers) -> str:
    """How many explainers and controls there are, in words."""
    controls = len(explainers.controls)
    text = format_count(len(explainers) - controls, "explainer")
    return text + (f" and {format_count(controls, 'control')}" if controls else "")
