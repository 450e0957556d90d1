"""Stored results as typed rows: how each metric's values are read, and what they say. It shows nothing.

Presentations register here: those of standfast when `standfast.report` is imported, those of other packages through
entry points.
"""

from standfast.results.formatting import format_number
from standfast.results.presentation import (
    Contradiction,
    Detail,
    MetricResults,
    Presentation,
    RankedGroup,
    ValueSpec,
    metric_class,
    presentation_of,
    presentations,
)

__all__ = [
    "Contradiction",
    "Detail",
    "MetricResults",
    "Presentation",
    "RankedGroup",
    "ValueSpec",
    "format_number",
    "metric_class",
    "presentation_of",
    "presentations",
]
