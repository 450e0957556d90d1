"""What several metrics need: stored arrays of all samples, lines with bands, cells with intervals, random errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Line, TableCell
from standfast.report.presentation.base import Detail
from standfast.results import MetricResults, format_number
from standfast.statistics.bootstrap import intervals_of_means
from standfast.tensors import Array
from standfast.value_spec import Decimals, read_flags, read_numbers

#: how many samples a line is of at most
MOST_SAMPLES = 1000
#: stands for infinity, since `np.quantile` is NaN where the value after an exact quartile is infinite
_HUGE = 1e300


def stack_arrays(
    results: MetricResults, explainer: str, names: Sequence[str]
) -> tuple[list[dict[str, Any]], dict[str, Array]]:
    """The rows of an explainer's first samples, and the named arrays of all of them, `(n, ...)`; no rows if none."""
    samples = list(results.lines(explainer, names, MOST_SAMPLES))
    rows = [sample.row for sample in samples]
    arrays = {name: np.array([sample.arrays[name] for sample in samples]) for name in names}
    return rows, arrays


def make_line(name: str, x: Array, y: Array, low: Array, high: Array) -> Line:
    """A line, with a band if all of its points have an interval."""
    if np.isfinite([low, high]).all():
        return Line(name, x, y, low, high)
    return Line(name, x, y)


def make_mean_line(name: str, x: Array, values: Array) -> Line:
    """The mean of values `(n, K)` with its 95% interval; without a band where there are too few samples."""
    return make_line(name, x, *intervals_of_means(values))


def make_median_line(name: str, x: Array, least: Array, most: Array | None = None) -> Line:
    """The median of values `(n, K)` with the band of their quartiles, without those that are NaN.

    Args:
        name: of the line.
        x: the place of each column `(K,)`.
        least: the values, or their least possible values where they are only bounds.
        most: the largest possible values, which may be infinite. The line ends where the median is not known.

    >>> line = make_median_line("a", np.arange(1), np.array([[1.0], [2.0], [4.0]]), np.array([[1.0], [2.0], [np.inf]]))
    >>> line.low, line.y, line.high
    (array([1.5]), array([2.]), array([inf]))
    """
    is_known = np.isfinite(least).any(axis=0)
    low, middle, high = _find_quartiles(least[:, is_known])
    if most is not None:
        _, largest, high = _find_quartiles(most[:, is_known])
        middle = np.where(middle == largest, middle, np.nan)
    return Line(name, x[is_known], middle, low, high)


def make_cell(
    value: float, low: float, high: float, faint: bool = False, share: bool = False
) -> TableCell:
    """A number, or a share in percent, with its interval, if it has one.

    >>> make_cell(0.5, 0.25, 0.75).small, make_cell(0.5, float("nan"), float("nan")).small
    ('[0.250, 0.750]', '')
    """

    def write(number: float) -> str:
        if share and np.isfinite(number):
            return f"{number:.0%}"
        return format_number(number, 3)

    between = ""
    if np.isfinite([low, high]).all():
        between = f"[{write(low)}, {write(high)}]"
    return TableCell(write(value), between, faint)


def count_flag(frame: pl.DataFrame, column: str, label: str) -> list[Detail]:
    """In how many rows a flag is true; nothing where it is in none.

    >>> count_flag(pl.DataFrame({"no_positive": [True, False]}), "no_positive", "empty maps")[0].text
    'empty maps: 1 of 2'
    """
    count = int(read_flags(frame, column).sum())
    if count:
        return [Detail(label, count, len(frame))]
    return []


def find_finite(frame: pl.DataFrame, column: str) -> Array:
    """The finite numbers of a column; none where the frame has no such column."""
    values = read_numbers(frame, column)
    return values[np.isfinite(values)]


def describe_columns(
    frame: pl.DataFrame,
    labels: Mapping[str, str],
    middle: Callable[[Array], Any] = np.mean,
    scale: float = 1.0,
    decimals: Decimals = 2,
) -> list[Detail]:
    """The mean of each column over the samples where it is finite, or another middle; nothing where it never is.

    >>> describe_columns(pl.DataFrame({"top1": [0.25, 0.75, None]}), {"top1": "agreement", "top3": "more"})[0].text
    'agreement: 0.50'
    """
    details = []
    for column, label in labels.items():
        values = find_finite(frame, column)
        if len(values):
            value = scale * float(middle(values))
            details.append(Detail(label, value, decimals=decimals))
    return details


def measure_random_error(frame: pl.DataFrame) -> list[Detail]:
    """The median of the samples' standard errors due to random draws; empty where none is known."""
    label = "standard error of the random draws, median"
    return describe_columns(frame, {"std_error": label}, middle=np.median, decimals=4)


def _find_quartiles(values: Array) -> Array:
    """The quartiles `(3, K)` of the columns of `values` `(n, K)`, which may be infinite."""
    finite = np.minimum(values, _HUGE)
    quartiles = np.nanquantile(finite, [0.25, 0.5, 0.75], axis=0)
    # between a finite value and a huge one, a quartile is a share of the huge one
    return np.asarray(np.where(quartiles < _HUGE / 1e9, quartiles, np.inf))
