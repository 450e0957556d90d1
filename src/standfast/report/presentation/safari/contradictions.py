"""Relations that hold for any model: where estimates of probabilities contradict each other or a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.report.presentation.safari.terms import find_threshold
from standfast.results.presentation import Contradiction, MetricResults, read_flags, read_numbers


def find_contradictions(part: MetricResults, others: Sequence[MetricResults]) -> list[Contradiction]:
    """One for each explainer and sample with a contradiction.

    The event `changed_class` is part of `misclassification`, so it cannot be more probable. Where an estimator has seen
    an event, a search for the worst case must find it, too. And where a search has found the event, a run that ended
    before it has not shown that it is rare.

    Args:
        part: estimated probabilities.
        others: the views of the other metrics for the same data and model.
    """
    found: list[Contradiction] = []
    for other in others:
        same = _same(part.options, other.options, ("neighbourhood", "margin"))
        if (
            other.metric == part.metric
            and (part.options.get("event"), other.options.get("event")) == ("changed_class", "misclassification")
            and same
        ):
            found += _part_above_whole(part, other)
        if other.metric == "worst_case":
            options: tuple[str, ...] = ("event", "similarity", "absolute", "explain", "margin")
            if other.options.get("event") == "misclassification":
                options = ("event",)
            if _same(part.options, other.options, options) and _region(part.options) == _region(other.options):
                found += _search_fell_short(part, other)
    return found


def _same(a: Mapping[str, Any], b: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return all(a.get(name) == b.get(name) for name in names)


def _region(options: Mapping[str, Any]) -> Any:
    """The neighbourhood without the distribution in it, which a search does not know."""
    neighbourhood = options.get("neighbourhood")
    if isinstance(neighbourhood, dict):
        return {
            option: [_region({"neighbourhood": part}) for part in value] if option == "parts" else value
            for option, value in neighbourhood.items()
            if option not in ("distribution", "sigma")
        }
    return neighbourhood


def _pairs(a: MetricResults, b: MetricResults) -> Iterator[tuple[str, pl.DataFrame, pl.DataFrame]]:
    """For each explainer its rows in both views: of samples and repeats that both evaluated, in the same order."""
    keys = ["repeat", "sample"]
    for name in a.present:
        first, second = (view.rows_for(name).filter(pl.col("status") == "ok") for view in (a, b))
        if len(first) and len(second):
            first, second = first.join(second, on=keys, how="semi"), second.join(first, on=keys, how="semi")
            yield name, first.sort(keys), second.sort(keys)


def _place(view: MetricResults, other: MetricResults, explainer: str, rows: pl.DataFrame, i: int) -> dict[str, Any]:
    """Where the numbers of a row contradict each other: the part of the facts that all kinds have."""
    return {
        "data": view.data,
        "model": view.model,
        "label": view.label,
        "other": other.label,
        "explainer": explainer,
        "sample": rows["sample"][i],
        "repeat": rows["repeat"][i],
    }


def _part_above_whole(part: MetricResults, whole: MetricResults) -> list[Contradiction]:
    found = []
    for name, inner, outer in _pairs(part, whole):
        low, high = read_numbers(inner, "low"), read_numbers(outer, "high")
        for i in np.flatnonzero(low > high).tolist():
            facts = {**_place(part, whole, name, inner, i), "low": low[i], "high": high[i]}
            found.append(Contradiction("part_above_whole", facts))
    return found


def _search_fell_short(estimate: MetricResults, worst: MetricResults) -> list[Contradiction]:
    """Where one of the two found the event, and the other did not."""
    event, limit = estimate.options.get("event"), find_threshold(estimate.options)
    if limit is None and event != "misclassification":
        return []
    sign = 1.0 if larger_is_closer(estimate.options) else -1.0
    found: list[Contradiction] = []
    for name, seen, searched in _pairs(estimate, worst):
        margin, similarity = read_numbers(searched, "margin"), read_numbers(searched, "similarity")
        if event == "misclassification":
            happened = margin >= 0
        elif event == "changed_explanation":
            happened = (margin < 0) & (sign * similarity < sign * float(limit or 0.0))
        else:
            happened = (margin >= 0) & (sign * similarity > sign * float(limit or 0.0))
        value, censored = read_numbers(seen, "log_probability"), read_flags(seen, "censored")
        for i in np.flatnonzero((censored == happened) & np.isfinite(value)).tolist():
            numbers = {"value": value[i], "similarity": similarity[i], "margin": margin[i]}
            facts = {**_place(estimate, worst, name, seen, i), **numbers}
            found.append(
                Contradiction("search_found", facts, "bound") if censored[i] else Contradiction("search_missed", facts)
            )
    return found
