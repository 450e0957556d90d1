"""What a pack says of the numbers of its jobs, made again from these and compared.

A digest shows that a file is as it was sealed. It does not show that a table says what the jobs say: whoever makes a
pack by hand seals what they like. So the tables are made again.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Collection

import polars as pl

from standfast.metrics.base import read_values
from standfast.report import exports
from standfast.results import StoredResults, find_metric_class
from standfast.study.store import read_rows
from standfast.value_spec import ValueSpec

#: the rounding of numbers that are computed again, perhaps on another computer
_PRECISION = 1e-9
_DIFFERENT = "not what the jobs in results/ give"


def find_uncheckable(results: StoredResults, names: Collection[str]) -> tuple[str, ...]:
    """The metrics whose numbers in the summary need arrays that a pack with files of these `names` does not have."""
    if any(name.startswith("results/artefacts/") for name in names):
        return ()
    metrics = results.metrics
    # of these arrays the summary is computed, so it cannot be made again
    return tuple(label for label in metrics if metrics[label].spec.compared_arrays)


def describe_false_readings(results: StoredResults) -> str:
    """The metrics whose numbers the manifest reads in another way than they do; empty if there are none.

    A pack that turns a direction round would have all tables as it says. Titles may change between versions. A metric
    that is not installed here cannot be compared.
    """
    different = []
    for label, metric in results.metrics.items():
        kind = find_metric_class(metric.metric)
        rows_of_label = results.samples.filter(pl.col("label") == label)
        measured = rows_of_label["metric"].unique().to_list()
        if measured not in ([], [metric.metric]):
            different.append(label)
            continue
        # what is not installed cannot be compared
        if kind is None or "values" not in metric.stored:
            continue
        declared = read_values(kind, metric.options, metric.task)
        stored = ValueSpec.from_stored(metric.stored["values"])
        is_same = (
            stored.rules == declared.rules
            and stored.decimals == declared.decimals
            # None is of versions that did not store it
            and stored.asks in (declared.asks, None)
            and metric.direction == kind.direction_of(metric.options)
            and metric.controls == kind.controls
        )
        if not is_same:
            different.append(label)
    if not different:
        return ""
    return f"reads the numbers of {', '.join(different)} in another way than the metric"


def describe_false_samples(content: bytes, results: StoredResults) -> str:
    """How the rows of `samples.parquet` differ from those of the jobs; empty if they do not."""
    expected = results.samples
    try:
        stored = read_rows(content)
        # the order of columns does not count
        same = set(stored.columns) == set(expected.columns)
        # a Parquet file from elsewhere may have other types
        stored_columns = stored.select(expected.columns).cast(expected.schema)
        same = same and stored_columns.equals(expected)
    except (ValueError, pl.exceptions.PolarsError) as error:
        return f"cannot be read: {error}"
    return "" if same else _DIFFERENT


def describe_false_summary(
    content: bytes, results: StoredResults, uncheckable: Collection[str]
) -> str:
    """How the rows of `summary.csv` differ from what the jobs give; empty if they do not.

    Args:
        content: of the file.
        results: in the pack.
        uncheckable: labels of the metrics whose rows are not compared.
    """
    try:
        stored = _read_table(content.decode(), uncheckable)
    except (ValueError, csv.Error) as error:
        return f"cannot be read: {error}"
    expected = _read_table(exports.to_csv(exports.summary(results)), uncheckable)
    if len(stored) != len(expected):
        return f"{_DIFFERENT}: {len(stored)} rows instead of {len(expected)}"
    # rows are in one order, as they are made by the same code
    for number, (row, again) in enumerate(zip(stored, expected, strict=True), 1):
        if row.keys() != again.keys():
            return f"{_DIFFERENT}: other columns"
        for column, cell in again.items():
            if not _are_equal(row[column], cell):
                listed = row[column] or "empty"
                made_again = cell or "empty"
                return f"{_DIFFERENT}: row {number} has {column} {listed} instead of {made_again}"
    return ""


def _read_table(text: str, left_out: Collection[str]) -> list[dict[str, str]]:
    """The rows of a summary by column, without those of some labels."""
    # a shorter row would have None in the place of texts
    rows = csv.DictReader(io.StringIO(text, newline=""), restval="")
    kept: list[dict[str, str]] = []
    for row in rows:
        if row.get("label") not in left_out:
            kept.append({str(name): str(cell) for name, cell in row.items()})
    return kept


def _are_equal(stored: str, expected: str) -> bool:
    """Whether two cells are the same, but for the rounding of a number."""
    if stored == expected:
        return True
    try:
        return math.isclose(float(stored), float(expected), rel_tol=_PRECISION, abs_tol=_PRECISION)
    except ValueError:
        return False
