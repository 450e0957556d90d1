"""Localisation: relevance inside known regions, beside chance."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import Chart, Gallery
from holdfast.presentation.base import (
    Presentation,
    Reading,
    View,
    draw_distribution,
    format_number,
    presentations,
    read_flags,
    read_numbers,
)


@presentations.register("relevance_localisation")
class RelevanceLocalisationPresentation(Presentation):
    """Localisation: relevance inside known regions, beside chance."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """By the mass inside."""
        return Reading(
            "Relevance mass accuracy: the share of positive relevance inside the true region",
            "share of positive relevance inside",
            "mass_accuracy",
            "higher",
            3,
            caution="It says that a map agrees with what is known of the data; of the model only where that uses it.",
        )

    def figures(self, view: View) -> list[Chart | Gallery]:
        """The distribution over samples, with a line at chance."""
        chances = [read_numbers(view.reading.select_valid(view.of(name)), "chance") for name in view.present]
        chance = np.concatenate([np.empty(0), *chances])
        if not len(chance):
            return []
        low, mean, high = (float(f(chance)) for f in (np.min, np.mean, np.max))
        shown = f"Dashed line: chance, {format_number(mean, 3)}"
        shown += (
            "."
            if high - low < 5e-4
            else f" on average, {format_number(low, 3)} to {format_number(high, 3)} over samples."
        )
        return [
            dataclasses.replace(figure, alt=f"{figure.alt} {shown}", caption=f"{figure.caption} {shown}")
            if isinstance(figure, Chart)
            else figure
            for figure in draw_distribution(view, rule=mean)
        ]

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Rank accuracy, hits of the most relevant position, chance, and maps that name nothing."""
        if not len(frame):
            return []
        rank, chance = (float(np.nanmean(read_numbers(frame, name))) for name in ("rank_accuracy", "chance"))
        hits = int(read_flags(frame, "pointing_hit").sum())
        notes = [
            f"rank accuracy, mean: {format_number(rank, 3)}",
            f"most relevant position inside: {hits} of {len(frame)}",
            f"chance, of all three: {format_number(chance, 3)}",
        ]
        without = int(read_flags(frame, "no_positive").sum())
        return notes + ([f"no positive relevance, so 0: {without} of {len(frame)}"] if without else [])

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """See `Presentation`."""
        counted = "relevance, without its sign," if options.get("absolute") else "positive relevance"
        return {
            "Inside the true region": (
                f"Of these samples it is known where the class lies. *Mass accuracy*: the share of all {counted} that "
                "lies there. *Rank accuracy*: of as many of the most relevant positions as the region has, the share "
                "inside. The *pointing game* asks whether the single most relevant position is."
            ),
            "Chance": (
                "The share of positions that are inside: what a map of random values gets in expectation, of all three "
                "numbers. A smooth map, or one that follows edges, may do better than that by knowing nothing."
            ),
            "What it does not say": (
                "The region is known of the data, not of the model: where a model is wrong, or right for another "
                "reason, a faithful map points elsewhere."
            ),
        }
