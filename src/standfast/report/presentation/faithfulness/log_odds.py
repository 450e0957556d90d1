"""Log-odds in a report: how far they change when the pixels that distinguish two classes are erased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.estimates import describe_columns
from standfast.results import MetricResults


@presentations.register("log_odds")
class LogOddsPresentation(Presentation):
    """How far the log-odds change when the pixels that distinguish two classes are erased."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The value of no change."""
        return {"rules": (0.0,)}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How many samples turned into the other class, and how much was erased."""
        converted = describe_columns(
            frame, {"converted": "turned into the other class, %"}, scale=100, decimals=0
        )
        erased = describe_columns(
            frame, {"erased": "pixels erased, mean, %"}, scale=100, decimals=1
        )
        return converted + erased
