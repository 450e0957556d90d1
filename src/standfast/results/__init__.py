"""Stored results, opened, and what they say as numbers. Nothing here shows anything.

`load_results` opens `Results`; `summarise` makes their `Summary`, which everything that shows results reads.
A `Presentation` says how the values of a metric are read, drawn and put into words. Those of standfast register when
`standfast.report` is imported, those of other packages through entry points.
"""

from standfast.results.failures import Failure
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    ConfiguredMetric,
    Contradiction,
    Detail,
    MetricResults,
    Presentation,
    RankedGroup,
    StoredSample,
    ValueSpec,
    metric_class,
    presentation_of,
    presentations,
)
from standfast.results.quality import Quality, References
from standfast.results.results import Results, load_results, summarise
from standfast.results.sanity import Accuracy, Check, Sanity
from standfast.results.summary import Counts, Decision, MetricSummary, Summary, SummaryRow, Uncounted
from standfast.results.tables import Best
from standfast.results.verdict import Ground, Verdict
from standfast.results.verification import Verification, verify_results

__all__ = [
    "Accuracy",
    "Best",
    "Check",
    "ConfiguredMetric",
    "Contradiction",
    "Counts",
    "Decision",
    "Detail",
    "Failure",
    "Ground",
    "MetricResults",
    "MetricSummary",
    "Presentation",
    "Quality",
    "RankedGroup",
    "References",
    "Results",
    "Sanity",
    "StoredSample",
    "Summary",
    "SummaryRow",
    "Uncounted",
    "ValueSpec",
    "Verdict",
    "Verification",
    "format_number",
    "load_results",
    "metric_class",
    "presentation_of",
    "presentations",
    "summarise",
    "verify_results",
]
