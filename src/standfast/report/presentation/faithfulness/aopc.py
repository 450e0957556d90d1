"""AOPC in a report: the area over the perturbation curve, and the curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Axis, Chart, Words, draw_lines
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import (
    MOST_SAMPLES,
    count_flag,
    make_mean_line,
    measure_random_error,
)
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.tensors import Array


@presentations.register("aopc")
class AOPCPresentation(Presentation):
    """The area over the perturbation curve, and the curves."""

    def _name_score(self, options: Mapping[str, Any]) -> str:
        if options.get("score") == "logit":
            return self.task.logit
        return self.task.probability

    def figures(self, results: MetricResults) -> list[Chart | None]:
        """The fall of the score after each replacement, and the distribution over samples."""
        lines = []
        for name in results.present:
            samples = results.lines(name, ("curve",), MOST_SAMPLES)
            curves = [sample.arrays["curve"] for sample in samples]
            if curves:
                steps = max(len(curve) for curve in curves)
                falls = np.stack([_extend(curve, steps) for curve in curves])
                lines.append(make_mean_line(name, np.arange(steps), falls))
        fall = Axis(f"fall of the {self._name_score(results.options)}", results.spec.direction)
        caption = words_of(self).say("curves", MOST_SAMPLES)
        words = Words(
            "Perturbation curves",
            caption,
            "perturbation-curve",
            "What happens when regions are replaced?",
        )
        chart = draw_lines(lines, results.explainers, Axis("regions replaced"), fall, words)
        return [chart, draw_distribution(results)]

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The standard error due to the random draws, and samples for which a grid was used."""
        return [
            *measure_random_error(frame),
            *count_flag(frame, "grid_fallback", "no superpixels, so a grid"),
        ]


def _extend(curve: Array, steps: int) -> Array:
    """A curve that stays at its last value, since after the last region nothing is left to replace."""
    finite = curve[np.isfinite(curve)]
    return np.pad(finite, (0, steps - len(finite)), mode="edge")
