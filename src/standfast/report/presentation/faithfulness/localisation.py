"""Localisation in a report: relevance inside known regions, compared with chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.drawing import draw_distribution
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)


@presentations.register("relevance_localisation")
class RelevanceLocalisationPresentation(Presentation):
    """Relevance inside known regions, compared with chance."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The share of positive relevance inside; higher is better."""
        return ValueSpec(
            "Relevance mass accuracy: the share of positive relevance inside the true region",
            "share of positive relevance inside",
            self.direction_of(options),
            3,
            caution="It compares a map with what is known about the data. It says something about the model only if "
            "the model uses the region.",
        )

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether maps point to the region that is known to matter."""
        return "Does the map point to the region that is known to matter?"

    def verdict(self, view: MetricResults) -> str:
        """The median shares inside, and chance."""
        measure = view.median_in(lambda share: f"{100 * share:.0f}%")
        ranked = view.rank(measure)
        if not ranked:
            return ""
        best, worst = ranked[0], ranked[-1]
        rest = "" if len(ranked) == 1 else f", of {worst.those} {worst.text}"
        chance = read_numbers(view.spec.select_valid(view.frame), "chance")
        known = f"chance is {100 * float(np.nanmean(chance)):.0f}%" if np.isfinite(chance).any() else ""
        notes = "; ".join(filter(None, (view.name_medians("medians over samples"), known)))
        return f"Of the relevance in {best.maps}, {best.text} lies inside{rest}{f' ({notes})' if notes else ''}."

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution over samples, with a line at chance."""
        chances = [read_numbers(view.spec.select_valid(view.rows_for(name)), "chance") for name in view.present]
        chance = np.concatenate([np.empty(0), *chances])
        if not len(chance):
            return []
        low, mean, high = (float(f(chance)) for f in (np.min, np.mean, np.max))
        note = f"Dotted line: what random maps reach, {format_number(mean, 3)}"
        note += (
            "."
            if high - low < 5e-4
            else f" on average, {format_number(low, 3)} to {format_number(high, 3)} over samples."
        )
        note += " More than that does not prove that the model uses the region: maps that follow edges get it, too."
        return draw_distribution(view, mean, note)

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Rank accuracy, hits of the most relevant position, chance, and maps without positive relevance."""
        if not len(frame):
            return []
        rank, chance = (float(np.nanmean(read_numbers(frame, name))) for name in ("rank_accuracy", "chance"))
        hits = int(read_flags(frame, "pointing_hit").sum())
        notes = [
            f"rank accuracy, mean: {format_number(rank, 3)}",
            f"most relevant position inside: {hits} of {len(frame)}",
            f"chance level of all three: {format_number(chance, 3)}",
        ]
        without = int(read_flags(frame, "no_positive").sum())
        if without:
            notes.append(f"maps without positive relevance, which count with 0: {without} of {len(frame)}")
        return notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The three numbers, the chance level, and what they do not say."""
        counted = "relevance, without its sign," if options.get("absolute") else "positive relevance"
        return {
            "Inside the true region": (
                f"For these samples it is known where the class is. *Mass accuracy*: the share of all {counted} that "
                "lies there. *Rank accuracy*: of the most relevant positions, as many as the region has, the share "
                "that lies inside. The *pointing game* asks whether the single most relevant position lies inside."
            ),
            "Chance": (
                "The share of positions that are inside. It is the expected value of all three numbers for a map of "
                "random values. A smooth map, or one that follows edges, can exceed it without any knowledge."
            ),
            "What it does not say": (
                "The region is known from the data, not from the model. If a model is wrong, or right for another "
                "reason, a faithful map points to other positions."
            ),
        }
