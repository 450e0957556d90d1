"""Reasons: how many of them hold, how often the answer stays, and the weakest and the strongest decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.charts import Chart, ExplainerTable, TableCell
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.results.formatting import format_number

#: so many of the weakest decisions are shown, and as many of the strongest
_SHOWN = 3


@presentations.register("reasons")
class ReasonsPresentation(Presentation):
    """The share of the draws that name the same reasons."""

    def figures(self, results: MetricResults) -> list[Chart | ExplainerTable | None]:
        """The distribution over samples, and the weakest and the strongest decisions of each explainer."""
        tables = [self._list_decisions(results, name) for name in results.candidates]
        return [draw_distribution(results), *tables]

    def _list_decisions(self, results: MetricResults, explainer: str) -> ExplainerTable | None:
        """The decisions of an explainer whose reasons are named again least often and most often."""
        rows = (
            results.rows_for(explainer, repeat=0)
            .filter(pl.col("value").is_not_null())
            .sort("value", "sample")
        )
        if not len(rows):
            return None
        if len(rows) <= 2 * _SHOWN:
            shown = rows
        else:
            shown = pl.concat([rows.head(_SHOWN), rows.tail(_SHOWN)])
        columns = [
            ("answer", "what is explained"),
            ("named again", "share of the draws"),
            ("hold", "reasons that can be stated"),
            ("fall", "reasons that cannot"),
            ("answer kept", "share of the draws"),
        ]
        lines = [
            (f"sample {row['sample']}", _describe_row(results.name_classes(row)))
            for row in shown.iter_rows(named=True)
        ]
        heading = f"The weakest and the strongest decisions of {explainer}"
        caption = words_of(self).say("decisions")
        return ExplainerTable(heading, columns, lines, caption, first="Decision")

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


def _describe_row(row: Mapping[str, Any]) -> list[TableCell]:
    """The cells of one decision."""
    low, high = format_number(row["low"], 2), format_number(row["high"], 2)
    interval = f"{low} to {high}"
    of_all = f"of {row['reasons']}"
    if row["drawn"]:
        kept = row["answer_kept"] / row["drawn"]
    else:
        kept = 0.0
    return [
        TableCell(str(row["targets"])),
        TableCell(format_number(row["value"], 2), interval),
        TableCell(str(row["holding"]), of_all),
        TableCell(str(row["falling"]), of_all),
        TableCell(f"{kept:.0%}", f"of {row['drawn']} draws"),
    ]


def _sum_column(rows: pl.DataFrame, name: str) -> float:
    """The sum of a column; 0 where it is missing."""
    if name not in rows.columns:
        return 0.0
    return float(rows[name].sum())
