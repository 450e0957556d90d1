"""The cells of the overview: medians over samples with their intervals; some values are only bounds."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import polars as pl

from standfast.report.views import ConfiguredMetric
from standfast.results import ValueSpec
from standfast.results.formatting import describe_probability, format_number
from standfast.results.presentation import read_flags
from standfast.statistics.paired import Interval, bootstrap_interval, median_over_repeats
from standfast.tensors import Array

SIGNS = {"upper": "≤ ", "lower": "≥ "}


@dataclass(frozen=True)
class Cell:
    """One explainer's numbers by one configured metric: the median, in other words too, its interval, and notes."""

    main: str = "–"
    interval: str = ""
    notes: tuple[str, ...] = ()
    words: str = ""


def read_samples(spec: ValueSpec, rows: pl.DataFrame) -> tuple[Array, Array, Array]:
    """Numbers of the samples of one explainer's valid rows, ascending, their values, and which of these are bounds.

    The value of a sample is the median over its repeats. Each is `(n,)`.
    """
    values, bounds = spec.values(rows), spec.bounds(rows)
    samples, place = np.unique(rows["sample"].to_numpy(), return_inverse=True)
    repeats, turn = np.unique(rows["repeat"].to_numpy(), return_inverse=True)
    table = np.full((len(repeats), len(samples), 1), np.nan)
    marked = np.zeros(table.shape, dtype=bool)
    table[turn, place, 0], marked[turn, place, 0] = values, bounds
    if len(repeats) != 1:
        table, marked = (each[None] for each in median_over_repeats(table, marked, spec.censored_side))
    return samples, table[0, :, 0], marked[0, :, 0]


def estimate(spec: ValueSpec, frame: pl.DataFrame) -> Interval | None:
    """The median over samples of one explainer's rows. The value of a sample is the median over its repeats."""
    rows = spec.select_valid(frame)
    if not len(rows):
        return None
    _, values, bounds = read_samples(spec, rows)
    return bootstrap_interval(values, censored=bounds, censored_side=spec.censored_side)


def summarise_rows(label: ConfiguredMetric, frame: pl.DataFrame, failed: int) -> Cell | None:
    """The cell of one explainer's rows; None where nothing was tried."""
    broken = (f"{failed} part{'s' if failed > 1 else ''} failed",) if failed else ()
    if not len(frame):
        return Cell(main="failed", notes=broken) if failed else None
    spec = label.spec
    fine = frame.filter(pl.col("status") == "ok")
    rows = spec.select_valid(frame)
    notes = [*label.details(fine), *describe_censoring(spec, rows)]
    lost = int((~np.isfinite(spec.values(fine))).sum())
    notes += [f"{lost} {spec.empty}"] if lost else []
    notes += [*describe_skipped(frame), *broken]
    middle = estimate(spec, frame)
    if middle is None:
        return Cell(notes=("nothing to take a median of", *notes))
    sign = SIGNS.get(middle.bound or "", "")
    main = sign + format_number(middle.value, spec.decimals)
    words = describe_probability(middle.value, sign) if spec.log_probability else ""
    count = f"n = {middle.count}"
    if middle.low is None or middle.high is None:
        return Cell(main, f"{count}: no interval", tuple(notes), words)
    if len(rows) and spec.bounds(rows).all():
        return Cell(main, f"all are bounds, {count}", tuple(notes), words)
    interval = f"{describe_interval(middle, spec.decimals)}{describe_coverage(middle)}"
    return Cell(main, f"{interval}, {count}", tuple(notes), words)


def describe_coverage(middle: Interval) -> str:
    """The confidence of an interval in brackets, where few samples give less than 95%."""
    return f" ({100 * middle.coverage:.0f}%)" if middle.coverage < 0.945 else ""


def describe_interval(middle: Interval, decimals: int | None) -> str:
    """An interval in brackets, with open ends in words."""
    low, high = format_number(middle.low, decimals), format_number(middle.high, decimals)
    if middle.low is not None and math.isinf(middle.low) and middle.low_bound is not None:
        low = f"below {format_number(middle.low_bound, decimals)}"
    if middle.high is not None and math.isinf(middle.high) and middle.high_bound is not None:
        high = f"above {format_number(middle.high_bound, decimals)}"
    return f"[{low}, {high}]"


def describe_censoring(spec: ValueSpec, rows: pl.DataFrame) -> list[str]:
    """How many of the valid rows are only bounds."""
    count = int(spec.bounds(rows).sum())
    if not count:
        return []
    # a bound is not always a run that ended early: an estimate that is not resolved is one, too
    unresolved = int((spec.bounds(rows) & ~read_flags(rows, "resolved")).sum()) if "resolved" in rows.columns else 0
    return [f"bounds: {count} of {len(rows)}{f' ({unresolved} unresolved)' if unresolved else ''}"]


def describe_skipped(frame: pl.DataFrame) -> list[str]:
    """How many samples were not evaluated, and why."""
    reasons = frame.filter(pl.col("status") != "ok")["status"].value_counts().sort("status")
    return [f"skipped: {count} {status}" for status, count in reasons.iter_rows()]
