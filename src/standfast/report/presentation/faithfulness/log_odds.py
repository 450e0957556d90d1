"""Log-odds in a report: how far they change when the pixels that distinguish two classes are erased."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.faithfulness.log_odds import name_pair_columns
from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.drawing import draw_distribution
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    RankedGroup,
    ValueSpec,
    presentations,
    read_numbers,
)


@presentations.register("log_odds")
class LogOddsPresentation(Presentation):
    """How far the log-odds change when the pixels that distinguish two classes are erased."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The change of the log-odds; higher is better."""
        title = "Change of the log-odds when the pixels that distinguish two classes are erased"
        pairs = options.get("pairs")
        named = ", ".join(f"{o} to {t}" for o, t in pairs or ())
        caution = f"Only samples of the first class of a pair have a value: {named}." if pairs else ""
        return ValueSpec(
            title, "change of the log-odds", self.direction_of(options), 2, caution=caution, good="more faithful"
        )

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether erasing what distinguishes two classes changes the decision."""
        return "Does erasing what the map says distinguishes two classes change the decision?"

    def verdict(self, view: MetricResults) -> str:
        """On what share of the samples the decision turned; else the change of the log-odds."""
        turned, changes = view.rank(partial(_measure_turned, view), "higher"), view.rank()
        if not turned or not changes:
            return self.contrast(view)
        best, worst = turned[0], turned[-1]
        if len(turned) == 1:
            every = "every map" if len(best.names) > 1 else best.maps
            text = f"Erasing by {every} turned {best.text} of the samples into the other class"
            ends = f"{changes[0].text} ({changes[0].who}) to {changes[-1].text} ({changes[-1].who})"
            ends = ends if len(changes) > 1 else changes[0].text
            return f"{text}; the log-odds fell by {ends}{view.name_medians()}."
        start = f"Erasing by {best.maps} turned {best.text} of the samples into the other class"
        return f"{start}, by {worst.those} {worst.text}."

    def leader(self, view: MetricResults) -> tuple[RankedGroup | None, str]:
        """By the share of samples that turned, which the verdict has, unless it is the same for all."""
        turned = view.rank(partial(_measure_turned, view), "higher")
        return (turned[0], "share of turned samples") if len(turned) > 1 else super().leader(view)

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What log-odds are."""
        return {"log-odds": "the difference of the model's outputs (logits) for two classes"}

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution over samples, and if there are several pairs, for each of them."""
        columns = [
            name for name in name_pair_columns(view.options) if np.isfinite(read_numbers(view.frame, name)).any()
        ]
        found = draw_distribution(
            view,
            0.0,
            "Dotted: 0, no change. The values depend on the scale of the model's outputs, so they cannot be compared "
            "between models.",
        )
        for name in columns if len(columns) > 1 else ():
            o, t = name.split("_")[-2:]
            spec = dataclasses.replace(view.spec, title=f"{view.spec.title}: {o} to {t}", column=name)
            found += [
                dataclasses.replace(chart, name=f"distribution-{o}-{t}", heading=f"Class {o} towards {t}")
                for chart in draw_distribution(dataclasses.replace(view, spec=spec))
                if isinstance(chart, Chart)
            ]
        return found

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """How many samples turned into the other class, and how much was erased."""
        converted, erased = read_numbers(frame, "converted"), read_numbers(frame, "erased")
        if not np.isfinite(converted).any():
            return []
        return [
            f"turned into the other class: {format_number(100 * float(np.nanmean(converted)), 0)}%",
            f"pixels erased, mean: {format_number(100 * float(np.nanmean(erased)), 1)}%",
        ]

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the score is, and which samples have one."""
        share = format_number(100 * float(options.get("fraction", 0.2)), 1)
        pairs = (
            "A sample has a value if its class is the first of a pair; with several pairs it has their mean."
            if options.get("pairs")
            else "Each sample is turned towards the class with the second largest logit."
        )
        return {
            "Log-odds score": "Two maps are computed, of the sample's class and of another class. The pixels where the "
            f"first map exceeds the second most are erased: at most {share}% of all, and only where it does exceed it. "
            "The score is how far the log-odds of the two classes (the difference of their logits) have fallen: "
            "*higher* is better. It depends on the scale of the model's logits: compare explainers on one model only. "
            f"It measures faithfulness to the model, not robustness. {pairs}",
        }


def _measure_turned(view: MetricResults, rows: pl.DataFrame) -> tuple[float, str] | None:
    """The share of an explainer's samples that turned into the other class."""
    converted = read_numbers(view.spec.select_valid(rows), "converted")
    converted = converted[np.isfinite(converted)]
    share = float(converted.mean()) if len(converted) else float("nan")
    return (share, f"{100 * share:.0f}%") if len(converted) else None
