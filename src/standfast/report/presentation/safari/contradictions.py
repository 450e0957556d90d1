"""Relations that hold for any model: where estimates of probabilities contradict each other or a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from standfast.report.presentation.base import Contradiction
from standfast.report.presentation.safari.terms import find_threshold
from standfast.results import MetricResults
from standfast.similarity.stored import larger_is_closer

_KEYS = ["explainer", "repeat", "sample"]


def find_contradictions(
    part: MetricResults, others: Sequence[MetricResults]
) -> list[Contradiction]:
    """One for each explainer and sample with a contradiction.

    The event `changed_class` is part of `misclassification`, so it cannot be more probable. Where an estimator has seen
    an event, a search for the worst case must find it, too. And where a search has found the event, a run that ended
    before it has not shown that it is rare.

    Args:
        part: estimated probabilities.
        others: the views of the other metrics for the same data and model.
    """
    contradictions: list[Contradiction] = []
    for other in others:
        events = (part.options.get("event"), other.options.get("event"))
        alike = set()
        for name in part.options:
            if part.options[name] == other.options.get(name):
                alike.add(name)
        if other.metric == part.metric and events == ("changed_class", "misclassification"):
            if {"neighbourhood", "margin"} <= alike:
                contradictions += _compare_with_whole(part, other)
        elif other.metric == "worst_case" and _have_one_region(part, other):
            same_event = {"event"}
            if events[1] != "misclassification":
                same_event |= {"similarity", "absolute", "explain"}
            if same_event <= alike:
                contradictions += _compare_with_search(part, other)
    return contradictions


def _have_one_region(part: MetricResults, other: MetricResults) -> bool:
    return bool(_find_region(part.options) == _find_region(other.options))


def _find_region(options: Mapping[str, Any]) -> Any:
    """The neighbourhood without the distribution in it, which a search does not know."""
    neighbourhood = options.get("neighbourhood")
    if not isinstance(neighbourhood, dict):
        return neighbourhood
    region = {
        option: value
        for option, value in neighbourhood.items()
        if option not in ("distribution", "sigma")
    }
    if "parts" in region:
        region["parts"] = [_find_region({"neighbourhood": inner}) for inner in region["parts"]]
    return region


def _join(part: MetricResults, other: MetricResults, **columns: str) -> pl.DataFrame:
    """The rows of a view with columns of another one, under new names: of what both evaluated."""
    is_evaluated = pl.col("status") == "ok"
    ours = part.frame.filter(is_evaluated)
    theirs = other.frame.filter(is_evaluated)
    named = [
        pl.col(column).cast(pl.Float64).fill_nan(None).alias(name)
        for name, column in columns.items()
    ]
    return ours.join(theirs.select(*_KEYS, *named), on=_KEYS, maintain_order="left")


def _list(
    macro: str, part: MetricResults, other: MetricResults, rows: pl.DataFrame
) -> list[Contradiction]:
    where = {"data": part.data, "model": part.model, "label": part.label, "other": other.label}
    return [Contradiction(macro, {**row, **where}) for row in rows.iter_rows(named=True)]


def _compare_with_whole(part: MetricResults, whole: MetricResults) -> list[Contradiction]:
    rows = _join(part, whole, most="high")
    is_above = pl.col("low") > pl.col("most")
    return _list("part_above_whole", part, whole, rows.filter(is_above))


def _compare_with_search(estimate: MetricResults, worst: MetricResults) -> list[Contradiction]:
    """Where one of the two found the event, and the other did not."""
    event = estimate.options.get("event")
    limit = find_threshold(estimate.options)
    if limit is None and event != "misclassification":
        return []
    rows = _join(estimate, worst, found_margin="margin", found_similarity="similarity")
    rows = rows.filter(pl.col("log_probability").is_finite())
    changed = pl.col("found_margin") >= 0
    sign = 1.0 if larger_is_closer(estimate.options) else -1.0
    happened = changed
    if limit is not None and event == "changed_explanation":
        happened = ~changed & (sign * pl.col("found_similarity") < sign * limit)
    elif limit is not None and event == "changed_class":
        happened = changed & (sign * pl.col("found_similarity") > sign * limit)
    happened = happened.fill_null(False)
    ended = pl.col("censored").cast(pl.Boolean).fill_null(False)
    # independent draws without the event are no run that ended early: their bound holds, whatever a search finds
    is_drawn = estimate.options.get("method") == "monte_carlo"
    if is_drawn:
        doubtful = rows.clear()
    else:
        doubtful = rows.filter(happened & ended)
    return [
        *_list("search_found", estimate, worst, doubtful),
        *_list("search_missed", estimate, worst, rows.filter(~happened & ~ended)),
    ]
