"""The cells of the overview: a row of the summary in a few words."""

from __future__ import annotations

from dataclasses import dataclass

from standfast.report.presentation.base import presentation_of
from standfast.results import StoredResults
from standfast.results.formatting import (
    format_confidence,
    format_count,
    format_difference,
    format_estimate,
)
from standfast.results.summary import SummaryRow


@dataclass(frozen=True)
class Cell:
    """One explainer's numbers by one configured metric: the median, its interval, and notes."""

    main: str = "–"
    interval: str = ""
    notes: tuple[str, ...] = ()


def describe_row(results: StoredResults, row: SummaryRow) -> Cell:
    """The cell of a row of the summary, with what its metric says of the evaluated samples."""
    failed = _describe_failed(row)
    if not row.counts.rows:
        return Cell(main="failed", notes=failed)
    notes = (*_list_details(results, row), *_list_counts(row), *failed)
    test = row.control_test
    if test is not None and test.difference is not None:
        difference = format_difference(test.difference, row.spec.decimals)
        notes = (*notes, f"against {test.control}: {difference}")
    estimate = row.estimate
    if estimate is None:
        return Cell(notes=("nothing to take a median of", *notes))
    main = format_estimate(estimate, row.spec.decimals)
    count = f"n = {estimate.count}"
    interval = format_confidence(estimate, row.spec.decimals)
    if not interval:
        return Cell(main, f"{count}: no interval", notes)
    if row.counts.bounds == row.counts.counted:
        # the interval of bounds would look like one of values
        return Cell(main, f"all are bounds, {count}", notes)
    return Cell(main, f"{interval}, {count}", notes)


def _describe_failed(row: SummaryRow) -> tuple[str, ...]:
    failed = row.counts.failed_jobs
    if not failed:
        return ()
    return (f"{format_count(failed, 'part')} failed",)


def _list_details(results: StoredResults, row: SummaryRow) -> list[str]:
    """What the metric says of the evaluated samples."""
    metric = results.metrics[row.label]
    view = results.metric_results(row.data, row.model, row.label)
    evaluated = view.rows_for(row.explainer).filter(status="ok")
    details = presentation_of(metric.metric, metric.task).details(evaluated, metric.options)
    return [detail.text for detail in details]


def _list_counts(row: SummaryRow) -> list[str]:
    """How many samples have a bound, a larger error than asked for, or no value."""
    counts = row.counts
    notes = []
    if counts.bounds:
        unresolved = ""
        if counts.unresolved:
            unresolved = f" ({counts.unresolved} unresolved)"
        notes.append(f"bounds: {counts.bounds} of {counts.counted}{unresolved}")
    if counts.imprecise:
        notes.append(f"error not reached: {counts.imprecise} of {counts.counted}")
    if counts.without_number:
        notes.append(f"{counts.without_number} {row.spec.empty}")
    skipped = []
    for group in counts.uncounted:
        if group.status != "ok":
            skipped.append((group.status, group.rows))
    notes += [f"skipped: {rows} {status}" for status, rows in sorted(skipped)]
    return notes
