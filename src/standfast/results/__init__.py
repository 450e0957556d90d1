"""Stored results, opened, and what they say as numbers. Nothing here shows anything.

`StoredResults.load` opens them; `summarise` makes their `Summary`, which everything that shows results reads. The
manifest says how the values of each metric are read (`standfast.value_spec.ValueSpec`), so neither the metrics nor the
report are needed.

>>> import tempfile
>>> from standfast.study.store import Store
>>> with tempfile.TemporaryDirectory() as folder:
...     Store(folder).write_manifest({"jobs": []})
...     StoredResults.load(folder).samples.height
0
"""

from standfast.results.configured_metric import (
    ConfiguredMetric,
    find_metric_class,
    find_owners,
    registered_spec,
)
from standfast.results.failures import Failure
from standfast.results.formatting import format_number
from standfast.results.metric_results import MetricResults, StoredSample
from standfast.results.next_steps import NextStep
from standfast.results.quality import Quality, References
from standfast.results.results import StoredResults, summarise
from standfast.results.sanity import Accuracy, Check, Sanity
from standfast.results.summary import (
    Counts,
    MetricDecision,
    MetricSummary,
    Summary,
    SummaryRow,
    Uncounted,
)
from standfast.results.tables import Best
from standfast.results.verdict import Ground, Partial, Verdict
from standfast.study.verification import Verification, verify_results
from standfast.value_spec import CommonShare, ValueSpec

__all__ = [
    "Accuracy",
    "Best",
    "Check",
    "CommonShare",
    "ConfiguredMetric",
    "Counts",
    "Failure",
    "Ground",
    "MetricDecision",
    "MetricResults",
    "MetricSummary",
    "NextStep",
    "Partial",
    "Quality",
    "References",
    "Sanity",
    "StoredResults",
    "StoredSample",
    "Summary",
    "SummaryRow",
    "Uncounted",
    "ValueSpec",
    "Verdict",
    "Verification",
    "find_metric_class",
    "find_owners",
    "format_number",
    "registered_spec",
    "summarise",
    "verify_results",
]
