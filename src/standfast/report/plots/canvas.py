"""What all plots share: matplotlib itself, two colours, and text that is drawn as it is."""

from __future__ import annotations

from typing import Any

from standfast.errors import MissingExtraError
from standfast.results import format_number
from standfast.value_spec import ValueSpec

#: the colour of estimates, and that of controls, which are references
ESTIMATE, REFERENCE = "#0072B2", "#6b7178"


def import_pyplot() -> Any:
    """matplotlib's `pyplot`; raises `MissingExtraError` where matplotlib is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise MissingExtraError("a plot", "plot") from error
    return plt


def escape_text(text: object) -> str:
    r"""Text for matplotlib, which takes what is between two dollar signs for a formula.

    >>> escape_text("income in $")
    'income in \\$'
    """
    return str(text).replace("$", r"\$")


def label_ticks(axis: Any, spec: ValueSpec) -> None:
    """Write the ticks of an axis of logarithms of probabilities as probabilities."""
    if spec.log_probability:
        axis.get_major_locator().set_params(nbins=3)
        axis.set_major_formatter(lambda value, index: _label_probability(value, spec))


def _label_probability(value: float, spec: ValueSpec) -> str:
    """The logarithm of a probability as a probability; nothing above 0, where none is."""
    if value <= 0:
        return format_number(value, spec.decimals)
    return ""
