"""The cells of the overview: a row of the summary in a few words."""

from __future__ import annotations

from dataclasses import dataclass

from standfast.report.presentation.base import presentation_of
from standfast.results import StoredResults
from standfast.results.formatting import format_confidence, format_difference, format_estimate
from standfast.results.summary import SummaryRow


@dataclass(frozen=True)
class Cell:
    """One explainer's numbers by one configured metric: the median, its interval, and notes."""

    main: str = "–"
    interval: str = ""
    notes: tuple[str, ...] = ()


def describe_row(results: StoredResults, row: SummaryRow) -> Cell:
    """The cell of a row of the summary, with what its metric says of the evaluated samples."""
    counts, estimate, decimals = row.counts, row.estimate, row.spec.decimals
    broken = (
        (f"{counts.failed_jobs} part{'s' if counts.failed_jobs > 1 else ''} failed",)
        if counts.failed_jobs
        else ()
    )
    if not counts.rows:
        return Cell(main="failed", notes=broken)
    metric = results.metrics[row.label]
    rows = (
        results.metric_results(row.data, row.model, row.label)
        .rows_for(row.explainer)
        .filter(status="ok")
    )
    notes = [
        detail.text
        for detail in presentation_of(metric.metric, metric.task).details(rows, metric.options)
    ]
    if counts.bounds:
        unresolved = f" ({counts.unresolved} unresolved)" if counts.unresolved else ""
        notes.append(f"bounds: {counts.bounds} of {counts.counted}{unresolved}")
    notes += (
        [f"error not reached: {counts.imprecise} of {counts.counted}"] if counts.imprecise else []
    )
    notes += [f"{counts.without_number} {row.spec.empty}"] if counts.without_number else []
    skipped = sorted((each.status, each.rows) for each in counts.uncounted if each.status != "ok")
    notes += [f"skipped: {rows} {status}" for status, rows in skipped] + list(broken)
    test = row.control_test
    if test is not None and test.difference is not None:
        notes.append(f"against {test.control}: {format_difference(test.difference, decimals)}")
    if estimate is None:
        return Cell(notes=("nothing to take a median of", *notes))
    main, count = format_estimate(estimate, decimals), f"n = {estimate.count}"
    interval = format_confidence(estimate, decimals)
    if not interval:
        return Cell(main, f"{count}: no interval", tuple(notes))
    if counts.bounds == counts.counted:
        return Cell(main, f"all are bounds, {count}", tuple(notes))
    return Cell(main, f"{interval}, {count}", tuple(notes))
