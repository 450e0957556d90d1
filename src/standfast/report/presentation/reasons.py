"""Reasons: how many of them hold, and how often the answer stays, beside the share of draws that name them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.presentation.base import Detail, Presentation, presentations


@presentations.register("reasons")
class ReasonsPresentation(Presentation):
    """The share of the draws that name the same reasons."""

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The shares of reasons that hold and fall, of draws that keep the answer, and the chance level."""
        rows = frame.filter(pl.col("status") == "ok")
        named = _sum_column(rows, "reasons")
        drawn = _sum_column(rows, "drawn")
        if not named or not drawn:
            return []
        return [
            Detail("reasons that hold", _sum_column(rows, "holding") / named),
            Detail("reasons that fall", _sum_column(rows, "falling") / named),
            Detail("draws that keep the answer", _sum_column(rows, "answer_kept") / drawn),
            Detail("a reason by chance", float(rows["chance"][0])),
        ]


def _sum_column(rows: pl.DataFrame, name: str) -> float:
    """The sum of a column; 0 where it is missing."""
    return float(rows[name].sum()) if name in rows.columns else 0.0
