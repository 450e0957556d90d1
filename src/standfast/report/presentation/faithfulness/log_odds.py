"""Log-odds in a report: how far they change when the pixels that distinguish two classes are erased."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.charts import Chart
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import find_finite
from standfast.report.words import words_of
from standfast.results import Detail, MetricResults, Presentation, ValueSpec, presentations


@presentations.register("log_odds")
class LogOddsPresentation(Presentation):
    """How far the log-odds change when the pixels that distinguish two classes are erased."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The change of the log-odds; higher is better."""
        title = "Change of the log-odds when the pixels that distinguish two classes are erased"
        return ValueSpec(title, "change of the log-odds", self.direction_of(options), 2, good="more faithful")

    def figures(self, results: MetricResults) -> list[Chart | None]:
        """The distribution over samples, with a line at 0."""
        return [draw_distribution(results, 0.0, note=words_of(self).say("distribution"))]

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How many samples turned into the other class, and how much was erased."""
        found = []
        for column, label, decimals in (
            ("converted", "turned into the other class, %", 0),
            ("erased", "pixels erased, mean, %", 1),
        ):
            values = find_finite(frame, column)
            found += [Detail(label, 100 * float(values.mean()), decimals=decimals)] if len(values) else []
        return found
