"""Relations that hold for any model: where estimates of probabilities contradict each other or a search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.report.presentation.safari.terms import find_threshold
from standfast.report.presentation.wording import Caution
from standfast.results.formatting import format_number
from standfast.results.presentation import MetricResults, read_flags, read_numbers


def find_contradictions(part: MetricResults, others: Sequence[MetricResults]) -> list[str]:
    """Sentences, one for each explainer and sample with a contradiction.

    The event `changed_class` is part of `misclassification`, so it cannot be more probable. Where an estimator has seen
    an event, a search for the worst case must find it, too. And where a search has found the event, a run that ended
    before it has not shown that it is rare.

    Args:
        part: estimated probabilities.
        others: the views of the other metrics for the same data and model.
    """
    found: list[str] = []
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


def _who(view: MetricResults, explainer: str, rows: pl.DataFrame, i: int) -> str:
    repeat = f", repeat {rows['repeat'][i]}" if rows["repeat"][i] else ""
    return f"{view.data}, {view.model}: {explainer}, sample {rows['sample'][i]}{repeat}"


def _part_above_whole(part: MetricResults, whole: MetricResults) -> list[str]:
    found = []
    for name, inner, outer in _pairs(part, whole):
        low, high = read_numbers(inner, "low"), read_numbers(outer, "high")
        found += [
            f"{_who(part, name, inner, i)}: ln P({part.label}) is at least {format_number(float(low[i]))}, but "
            f"ln P({whole.label}) is at most {format_number(float(high[i]))}, and the first event is part of the "
            "second. One of the two estimates is wrong: more particles or moves are needed."
            for i in np.flatnonzero(low > high).tolist()
        ]
    return found


def _search_fell_short(estimate: MetricResults, worst: MetricResults) -> list[str]:
    """Where one of the two found the event, and the other did not."""
    event, limit = estimate.options.get("event"), find_threshold(estimate.options)
    if limit is None and event != "misclassification":
        return []
    sign = 1.0 if larger_is_closer(estimate.options) else -1.0
    found: list[str] = []
    for name, seen, searched in _pairs(estimate, worst):
        margin, similarity = read_numbers(searched, "margin"), read_numbers(searched, "similarity")
        if event == "misclassification":
            happened = margin >= 0
        elif event == "changed_explanation":
            happened = (margin < 0) & (sign * similarity < sign * float(limit or 0.0))
        else:
            happened = (margin >= 0) & (sign * similarity > sign * float(limit or 0.0))
        value = read_numbers(seen, "log_probability")
        unseen = read_flags(seen, "censored") & happened
        found += [
            Caution(
                f"{_who(estimate, name, seen, i)}: the search of {worst.label} found the event of {estimate.label} "
                f"(similarity {format_number(float(similarity[i]), 3)}, margin {format_number(float(margin[i]))}), but "
                "the simulation ended before it. That the event exists does not say how probable it is; the bound "
                f"{format_number(float(value[i]))} holds only as far as the simulation saw every way to it.",
                "bound",
            )
            for i in np.flatnonzero(unseen & np.isfinite(value)).tolist()
        ]
        short = ~read_flags(seen, "censored") & np.isfinite(value) & ~happened
        found += [
            f"{_who(estimate, name, seen, i)}: the event of {estimate.label} occurred (ln P about "
            f"{format_number(float(value[i]))}), but the search of {worst.label} did not find it (similarity "
            f"{format_number(float(similarity[i]), 3)}, margin {format_number(float(margin[i]))}). The true worst case "
            "is worse than the one reported here: a larger budget or another search is needed."
            for i in np.flatnonzero(short).tolist()
        ]
    return found
