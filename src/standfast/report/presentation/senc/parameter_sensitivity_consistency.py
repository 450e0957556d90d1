"""What a report shows of parameter SenC: rho against its null, and by layer (Tan 2025, Fig. 3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.charts import ExplainerTable, Figure, TableCell
from standfast.report.presentation.base import Detail, presentations
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import find_finite
from standfast.report.presentation.senc.data_sensitivity_consistency import SencPresentation
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.results.formatting import format_number

_PREFIX = "rho_"


@presentations.register("parameter_sensitivity_consistency")
class ParameterSencPresentation(SencPresentation):
    """Parameter SenC: rho against its null, and by layer."""

    def figures(self, view: MetricResults) -> list[Figure | None]:
        """The distribution with the null's band, and rho by layer."""
        return [draw_distribution(view), _by_layer(view, words_of(self).say("layers"))]

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Those of both SenC metrics, and how many samples share masked weights."""
        details = super().details(frame, options)
        if "method" in frame.columns:
            masked = frame.filter(pl.col("method").str.contains("masked weights"))
            if len(masked):
                details.append(Detail("by masked weights", len(masked), len(frame)))
        return details


def layers_of(frame: pl.DataFrame) -> list[str]:
    """The layers that a frame has columns of, in order."""
    columns = []
    for name in frame.columns:
        if name.startswith(_PREFIX) and name != "rho_paper":
            columns.append(name)
    return [name.removeprefix(_PREFIX) for name in columns]


def _by_layer(view: MetricResults, caption: str) -> ExplainerTable | None:
    """Mean rho of each explainer in each layer; None without layers."""
    valid = view.spec.select_valid(view.frame)
    layers = []
    for layer in layers_of(valid):
        if len(find_finite(valid, _PREFIX + layer)):
            layers.append(layer)
    if not layers:
        return None
    rows = []
    for name in view.present:
        valid = view.spec.select_valid(view.rows_for(name))
        values = [find_finite(valid, _PREFIX + layer) for layer in layers]
        texts = [format_number(rho.mean()) if len(rho) else "–" for rho in values]
        rows.append((name, [TableCell(text) for text in texts]))
    columns = [(layer, "mean rho") for layer in layers]
    return ExplainerTable("Consistency by layer", columns, rows, caption)
