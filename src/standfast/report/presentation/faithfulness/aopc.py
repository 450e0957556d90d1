"""AOPC in a report: the area over the perturbation curve, and the curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Axis, Chart, Gallery, Line, Words, draw_lines
from standfast.report.presentation.drawing import draw_distribution
from standfast.results.controls import is_random
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)

#: how many samples a line of the figure is averaged over at most
MOST_SAMPLES = 500


@presentations.register("aopc")
class AOPCPresentation(Presentation):
    """The area over the perturbation curve, and the curves."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """With the most relevant regions first higher is better, with the least relevant first lower."""
        first = _name_first(options)
        title = f"Area over the perturbation curve, {first} relevant regions first"
        axis = f"AOPC ({options.get('score', 'probability')})"
        return ValueSpec(title, axis, self.direction_of(options), 3, good="more faithful")

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether replacing the regions that a map puts first, or last, lowers the prediction."""
        which = "first" if _name_first(options) == "most" else "last"
        return f"Does the prediction fall when the regions that the map puts {which} are replaced?"

    def verdict(self, view: MetricResults) -> str:
        """The median falls of the score."""
        ranked = view.rank()
        if not ranked:
            return ""
        which = "first" if _name_first(view.options) == "most" else "last"
        best, worst, chance = ranked[0], ranked[-1], view.random_reference()
        rest = (
            ""
            if len(ranked) == 1
            else f", those that {worst.who} {worst.choose('puts', 'put')} {which} by {worst.text}"
        )
        rest += f"; random ones by {chance}" if chance else ""
        return (
            f"Replacing the regions that {best.who} {best.choose('puts', 'put')} {which} lowers the class's "
            f"{view.options.get('score', 'probability')} by {best.text}, averaged over the steps{rest}"
            f"{view.name_medians()}."
        )

    def reservations(self, view: MetricResults) -> list[str]:
        """Without random maps nothing says how far the score falls in any order."""
        has = any(is_random(name) for name in view.present)
        return [] if has else ["There are no random maps to compare with."]

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What AOPC stands for."""
        return {"AOPC": "area over the perturbation curve: the mean fall of the class's score over all steps"}

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The curves, and the distribution over samples."""
        curve = _draw_curves(view)
        return ([] if curve is None else [curve]) + draw_distribution(view)

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The standard error due to the random draws, and how many regions were replaced."""
        notes = []
        errors = read_numbers(frame, "std_error")
        errors = errors[np.isfinite(errors)]
        if len(errors):
            notes.append(
                f"standard error due to the random draws, median: {format_number(float(np.median(errors)), 4)}"
            )
        regions, steps = read_numbers(frame, "regions"), read_numbers(frame, "steps")
        known = regions > 0
        if known.any():
            share = 100 * float((steps[known] / regions[known]).mean())
            notes.append(f"regions replaced at the last step: {format_number(share, 0)}%")
        fallback = int(read_flags(frame, "grid_fallback").sum())
        return [*notes, f"samples with a grid, because no superpixels were found: {fallback}"] if fallback else notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What AOPC is, what a fall of the score means, and the pairing of random values."""
        constant = options.get("replacement") == "constant"
        aopc = (
            "The input is cut into regions, and each region is scored by the sum of the map over it. The regions are "
            f"replaced by {'a constant' if constant else 'uniform noise'}, one after the other. AOPC is the fall of "
            "the class's score, averaged over all steps. With the most relevant regions first (`order = top`), a map "
            "that finds what the model uses makes the score fall early, so *higher* is better. With the least relevant "
            "regions first (`order = bottom`), *lower* is better. It measures faithfulness to the model, not "
            "robustness."
        )
        fall = (
            "The model was not trained on inputs with replaced regions, so the score falls in any order. Only the "
            "difference to a random order (`random` among the explainers) is due to the map. Values depend on the size "
            "of the regions and on the number of steps: compare values with the same settings."
        )
        terms = {"AOPC": aopc, "What a fall means": fall}
        if not constant:
            terms["Paired noise"] = (
                "A sample gets the same noise under every explainer (it depends on the sample and the seed only), so "
                "differences between explainers are not due to different noise. `std_error` is the standard error of a "
                "single value: from the spread of AOPC over the random draws (`samples`)."
            )
        return terms


def _name_first(options: Mapping[str, Any]) -> str:
    return "least" if options.get("order") == "bottom" else "most"


def _draw_curves(view: MetricResults) -> Chart | None:
    """The fall of the score after k replacements: the mean over samples, as published, with its interval."""
    lines, limited = [], False
    for name in view.present:
        curves = [arrays["curve"] for _, arrays in view.lines(name, ("curve",), MOST_SAMPLES)]
        limited |= len(curves) == MOST_SAMPLES
        width = max((len(curve) for curve in curves), default=0)
        rows = np.full((len(curves), width), np.nan)
        for row, curve in zip(rows, curves, strict=True):
            row[: len(curve)] = curve
        seen = np.isfinite(rows).sum(0)
        if not (seen > 0).any():
            continue
        rows, seen = rows[:, seen > 0], seen[seen > 0]
        middle = np.nanmean(rows, axis=0)
        spread = np.sqrt(np.nanmean((rows - middle) ** 2, axis=0) / np.maximum(seen - 1, 1))
        steps = np.arange(len(middle), dtype=float)
        lines.append(Line(name, steps, middle, middle - 1.96 * spread, middle + 1.96 * spread))
    score = view.options.get("score", "probability")
    caption = (
        f"How far the class's {score} falls when regions are replaced, {_name_first(view.options)} relevant first. "
        "Line: mean over samples. Band: 95% interval of the mean. AOPC is the average height of the line. Replaced "
        "regions are unlike the training data, so it falls in any order: compare with random maps."
    )
    if limited:
        caption += f" Only the first {MOST_SAMPLES} samples."
    heading = f"What happens when the {_name_first(view.options)} relevant regions go first?"
    words = Words(f"Perturbation curves, {view.spec.title}", caption, "perturbation-curve", heading)
    fall = Axis(f"fall of the {score}", view.spec.direction)
    return draw_lines(lines, view.explainers, Axis("regions replaced"), fall, words)
