"""What SAFARI's tables of explainers share: two events, each by its worst case and by its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from holdfast.reproduce.base import Column
from holdfast.reproduce.reading import all_above
from holdfast.reproduce.safari.parts import log_probability, probability, solved, worst

#: heading: the configured metric, its column, whether more of it is more robust
HEADINGS = {
    "sol_F-hat (PCC)": ("worst F-hat", "similarity", True),
    "sol_F-tilde (PCC)": ("worst F-tilde", "similarity", False),
    "ln P_F-hat": ("ln P F-hat", "log_probability", False),
    "ln P_F-tilde": ("ln P F-tilde", "log_probability", False),
}
HAT, TILDE = ("sol_F-hat (PCC)", "ln P_F-hat"), ("sol_F-tilde (PCC)", "ln P_F-tilde")


def both_events(worst_case: Mapping[str, Any], subset: Mapping[str, Any]) -> dict[str, Any]:
    """Worst cases and probabilities of the two kinds of misinterpretation, under the names in `HEADINGS`."""
    return {
        **{f"worst {event}": worst(event, **worst_case) for event in ("F-hat", "F-tilde")},
        **{f"ln P {event}": probability(event, **subset) for event in ("F-hat", "F-tilde")},
    }


def column_of(heading: str, paper: Mapping[str, float] | None = None) -> Column:
    """A column of `HEADINGS`, with the paper's numbers by row."""
    label, column, _ = HEADINGS[heading]
    if column == "log_probability":
        return log_probability(heading, metric=label, paper=paper or {})
    # without a class change there is no solution for F-tilde
    where = {"found": True} if label == "worst F-tilde" else {}
    return Column(heading, column, metric=label, where=where, decimals=2, paper=paper or {})


def columns_of(paper: Mapping[str, Sequence[float]]) -> tuple[Column, ...]:
    """All of them, with the paper's numbers of each row in the order of `HEADINGS`."""
    return tuple(
        column_of(heading, {row: numbers[place] for row, numbers in paper.items()})
        for place, heading in enumerate(HEADINGS)
    )


def rows_of(frame: pl.DataFrame, heading: str) -> pl.DataFrame:
    """The rows that a column is about."""
    label = HEADINGS[heading][0]
    own = frame.filter(pl.col("label") == label)
    return solved(own) if label == "worst F-tilde" else own


def more_robust(frame: pl.DataFrame, heading: str, pairs: Sequence[tuple[str, str]]) -> bool | None:
    """Whether the first explainer of each pair is more robust than the second, by paired differences."""
    _, column, higher = HEADINGS[heading]
    turned = pairs if higher else [(second, first) for first, second in pairs]
    return all_above(rows_of(frame, heading), turned, column)
