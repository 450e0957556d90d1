"""The report of a worst case says where rough maps came first."""

from __future__ import annotations

import polars as pl
import pytest

from standfast.report.presentation.safari.worst_case import WorstCasePresentation

OPTIONS = {"event": "changed_explanation", "similarity": "pearson"}


@pytest.mark.parametrize(
    ("drafts", "expected"), [([140, 140], (2, 2)), ([140, None], (1, 2)), (None, None)]
)
def test_samples_that_were_searched_with_drafts_are_counted(
    drafts: list[int | None] | None, expected: tuple[int, int] | None
) -> None:
    frame = pl.DataFrame({"sample": [0, 1], "found": [True, True], "misinterpreted": [False, True]})
    if drafts is not None:
        frame = frame.with_columns(drafts=pl.Series(drafts, dtype=pl.Int64))
    details = WorstCasePresentation("worst_case").details(frame, OPTIONS)
    counted = [detail for detail in details if "rough maps" in detail.label]
    assert [(detail.value, detail.total) for detail in counted] == (
        [] if expected is None else [expected]
    )
