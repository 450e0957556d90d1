"""What all plots share: matplotlib itself, colours, and text that is drawn as it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from standfast.errors import MissingExtraError
from standfast.results import ValueSpec, format_number
from standfast.tensors import Array

#: the colour of estimates, and that of controls, which are references
ESTIMATE, REFERENCE = "#0072B2", "#6b7178"
#: signed maps: blue below zero, white at zero, red above
SIGNED = "RdBu_r"
#: the colours of the ends of `SIGNED`, for bars
NEGATIVE, POSITIVE = "#2166ac", "#b2182b"
MEANING = "red: positive relevance, blue: negative; each map on its own scale"


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
        axis.set_major_formatter(lambda value, place: format_number(value, spec.decimals) if value <= 0 else "")


def scale_of(values: Array) -> float:
    """Where the colours of a map end: nearly the largest magnitude, so that one position does not pale the others.

    >>> scale_of(np.array([-3.0, 1.0])), scale_of(np.zeros(3))
    (3.0, 1.0)
    """
    sizes = np.abs(values).ravel()
    return float(np.quantile(sizes, 0.995, method="higher")) or float(sizes.max()) or 1.0
