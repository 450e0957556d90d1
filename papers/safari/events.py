"""Shared parts of SAFARI's tables of explainers: two events, each with its worst case and its probability."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from papers.base import Column
from papers.reading import all_above
from papers.safari.parts import keep_solved, log_probability_column, make_probability, make_worst_case

#: heading: the configured metric, its column, whether larger values are more robust
HEADINGS = {
    "sol_F-hat (PCC)": ("worst F-hat", "similarity", True),
    "sol_F-tilde (PCC)": ("worst F-tilde", "similarity", False),
    "ln P_F-hat": ("ln P F-hat", "value", False),
    "ln P_F-tilde": ("ln P F-tilde", "value", False),
}
HAT, TILDE = ("sol_F-hat (PCC)", "ln P_F-hat"), ("sol_F-tilde (PCC)", "ln P_F-tilde")


def make_metrics(worst_case: Mapping[str, Any], subset: Mapping[str, Any]) -> dict[str, Any]:
    """Worst cases and probabilities of the two kinds of misinterpretation, under the names in `HEADINGS`."""
    return {
        **{f"worst {event}": make_worst_case(event, **worst_case) for event in ("F-hat", "F-tilde")},
        **{f"ln P {event}": make_probability(event, **subset) for event in ("F-hat", "F-tilde")},
    }


def make_column(heading: str, paper: Mapping[str, float] | None = None) -> Column:
    """A column of `HEADINGS`, with the paper's numbers by row."""
    label, column, _ = HEADINGS[heading]
    if column == "value":
        return log_probability_column(heading, metric=label, paper=paper or {})
    # F-tilde has no solution if no class change was found
    where = {"found": True} if label == "worst F-tilde" else {}
    return Column(heading, column, metric=label, where=where, decimals=2, paper=paper or {})


def make_columns(paper: Mapping[str, Sequence[float]]) -> tuple[Column, ...]:
    """All columns of `HEADINGS`; `paper` has, for each row, the paper's numbers in the same order."""
    return tuple(
        make_column(heading, {row: numbers[index] for row, numbers in paper.items()})
        for index, heading in enumerate(HEADINGS)
    )


def select_rows(frame: pl.DataFrame, heading: str) -> pl.DataFrame:
    """The rows of a column of `HEADINGS`."""
    label = HEADINGS[heading][0]
    own = frame.filter(pl.col("label") == label)
    return keep_solved(own) if label == "worst F-tilde" else own


def is_more_robust(frame: pl.DataFrame, heading: str, pairs: Sequence[tuple[str, str]]) -> bool | None:
    """Whether the first explainer of each pair is more robust than the second, by paired differences."""
    _, column, higher = HEADINGS[heading]
    ordered = pairs if higher else [(second, first) for first, second in pairs]
    return all_above(select_rows(frame, heading), ordered, column)
