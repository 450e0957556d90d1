"""Log-odds: how far they change when what tells two classes apart is erased."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import Chart, Gallery
from holdfast.metrics.faithfulness.log_odds import columns_of_pairs
from holdfast.presentation.base import (
    Presentation,
    Reading,
    View,
    draw_distribution,
    format_number,
    presentations,
    read_numbers,
)


@presentations.register("log_odds")
class LogOddsPresentation(Presentation):
    """Log-odds: how far they change when what tells two classes apart is erased."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """More is better."""
        title = "Change of the log-odds when what tells two classes apart is erased"
        pairs = options.get("pairs")
        shown = ", ".join(f"{o} to {t}" for o, t in pairs or ())
        caution = f"Only samples of the pairs' first classes have a value: {shown}." if pairs else ""
        return Reading(title, "change of the log-odds", "log_odds", "higher", 2, caution=caution, good="more faithful")

    def figures(self, view: View) -> list[Chart | Gallery]:
        """The distribution over samples; then for every pair, if there are several."""
        columns = [name for name in columns_of_pairs(view.options) if np.isfinite(read_numbers(view.frame, name)).any()]
        found = draw_distribution(view)
        for name in columns if len(columns) > 1 else ():
            o, t = name.split("_")[-2:]
            reading = dataclasses.replace(view.reading, title=f"{view.reading.title}: {o} to {t}", column=name)
            found += [
                dataclasses.replace(chart, name=f"distribution-{o}-{t}", heading=f"Class {o} towards {t}")
                for chart in draw_distribution(dataclasses.replace(view, reading=reading))
                if isinstance(chart, Chart)
            ]
        return found

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """How many became the other class, and how much was erased."""
        converted, erased = read_numbers(frame, "converted"), read_numbers(frame, "erased")
        if not np.isfinite(converted).any():
            return []
        return [
            f"turned into the other class: {format_number(100 * float(np.nanmean(converted)), 0)}%",
            f"pixels erased, mean: {format_number(100 * float(np.nanmean(erased)), 1)}%",
        ]

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """See `Presentation`."""
        share = format_number(100 * float(options.get("fraction", 0.2)), 1)
        pairs = (
            "A sample of a class that begins no pair has no value. One that belongs to several counts with their mean."
            if options.get("pairs")
            else "Each sample is turned towards the class with the second largest logit."
        )
        return {
            "Log-odds score": "Two maps are made, of the sample's class and of another one. Pixels are erased where "
            f"the first exceeds the second most, up to {share}% of all and only where it does. The score is how far "
            "the log-odds of the two classes (the difference of their logits) have fallen: *more* is better. It "
            "depends on the scale of the model's logits: compare explainers on one model only. It measures "
            f"faithfulness to the model, not robustness. {pairs}",
        }
