"""Log-odds in a report: how far they change when the pixels that distinguish two classes are erased."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.words import words_of
from standfast.results import Detail, MetricResults, Presentation, RankedGroup, ValueSpec, presentations
from standfast.results.presentation import read_numbers


@presentations.register("log_odds")
class LogOddsPresentation(Presentation):
    """How far the log-odds change when the pixels that distinguish two classes are erased."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The change of the log-odds; higher is better."""
        title = "Change of the log-odds when the pixels that distinguish two classes are erased"
        return ValueSpec(title, "change of the log-odds", self.direction_of(options), 2, good="more faithful")

    def headline(self, results: MetricResults) -> list[RankedGroup] | None:
        """The share of the samples that turned into the other class; None where it is not stored."""
        return results.rank(partial(_measure_turned, results.spec), "higher") or None

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The share of random maps."""
        return {"reference": results.measure_random(partial(_measure_turned, results.spec))}

    def figures(self, results: MetricResults) -> list[Chart | Gallery]:
        """The distribution over samples, with a line at 0."""
        return draw_distribution(results, 0.0, words_of(self).say("distribution"))

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How many samples turned into the other class, and how much was erased."""
        converted, erased = (read_numbers(frame, name) for name in ("converted", "erased"))
        if not np.isfinite(converted).any():
            return []
        return [
            Detail("turned into the other class, %", 100 * float(np.nanmean(converted)), decimals=0),
            Detail("pixels erased, mean, %", 100 * float(np.nanmean(erased)), decimals=1),
        ]


def _measure_turned(spec: ValueSpec, rows: pl.DataFrame) -> tuple[float, str] | None:
    """The share of an explainer's samples that turned into the other class."""
    converted = read_numbers(spec.select_valid(rows), "converted")
    converted = converted[np.isfinite(converted)]
    return (float(converted.mean()), f"{converted.mean():.0%}") if len(converted) else None
