"""AOPC: the area over the perturbation curve, and the curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import Chart, Gallery, Line, lines_with_bands
from holdfast.metrics.faithfulness.aopc import DRAWN
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


@presentations.register("aopc")
class AOPCPresentation(Presentation):
    """AOPC: the area over the perturbation curve, and the curves."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """Most relevant first, more is better; least relevant first, less."""
        first = "least" if options.get("order") == "least" else "most"
        title = f"Area over the perturbation curve, {first} relevant regions first"
        axis = f"AOPC ({options.get('score', 'probability')})"
        return Reading(title, axis, "aopc", "lower" if first == "least" else "higher", 3, good="more faithful")

    def figures(self, view: View) -> list[Chart | Gallery]:
        """The distribution over samples, and the curves."""
        curve = _curves(view)
        return draw_distribution(view) + ([] if curve is None else [curve])

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The error of the draws, and what was replaced."""
        notes = []
        errors = read_numbers(frame, "std_error")
        errors = errors[np.isfinite(errors)]
        if len(errors):
            notes.append(f"standard error from the draws, median: {format_number(float(np.median(errors)), 4)}")
        regions, steps = read_numbers(frame, "regions"), read_numbers(frame, "steps")
        known = regions > 0
        if known.any():
            share = 100 * float((steps[known] / regions[known]).mean())
            notes.append(f"regions replaced in the end: {format_number(share, 0)}%")
        fallback = int(read_flags(frame, "grid_fallback").sum())
        return [*notes, f"no superpixels found, a grid instead: {fallback}"] if fallback else notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """See `Presentation`."""
        constant = options.get("replacement") == "constant"
        what = "a constant" if constant else "uniform noise"
        aopc = (
            "Regions of the input are scored by the sum of the map over them and replaced, one after the other, by "
            f"{what}. AOPC is how far the class's score has fallen, averaged over all steps. With the most relevant "
            "regions first (`order = most`) a map that knows what the model looks at makes it fall at once, so *more* "
            "is better; with `order = least`, *less*. It measures faithfulness to the model, not robustness."
        )
        drop = (
            "An input with replaced regions is like none the model has seen, so the score falls under any order. Only "
            "the difference to a random order (`random` among the explainers) is owed to the map. Values depend on the "
            "regions' size and on the number of steps: compare like with like."
        )
        terms = {"AOPC": aopc, "What a drop is worth": drop}
        if not constant:
            terms["Paired noise"] = (
                "A sample gets the same noise under every explainer (it comes from the sample and the seed), so "
                "differences between explainers are not differences of luck. `std_error` is what is left for a single "
                "value: the spread of AOPC over `draws`."
            )
        return terms


def _curves(view: View) -> Chart | None:
    """How far the score has fallen after k replacements: the mean over samples, as published, with its interval."""
    lines, cut = [], False
    for name in view.present:
        found = [arrays["curve"] for _, arrays in view.lines(name, ("curve",), DRAWN)]
        cut |= len(found) == DRAWN
        width = max((len(line) for line in found), default=0)
        rows = np.full((len(found), width), np.nan)
        for row, line in zip(rows, found, strict=True):
            row[: len(line)] = line
        seen = np.isfinite(rows).sum(0)
        if not (seen > 0).any():
            continue
        rows, seen = rows[:, seen > 0], seen[seen > 0]
        middle = np.nanmean(rows, axis=0)
        spread = np.sqrt(np.nanmean((rows - middle) ** 2, axis=0) / np.maximum(seen - 1, 1))
        steps = np.arange(len(middle), dtype=float)
        lines.append(Line(name, steps, middle, middle - 1.96 * spread, middle + 1.96 * spread))
    first = "least" if view.options.get("order") == "least" else "most"
    score = view.options.get("score", "probability")
    caption = (
        f"Fall of the class's {score} after so many regions, {first} relevant first. Line: mean over samples; band: "
        "95% interval of the mean. AOPC is the line's average height."
    )
    if cut:
        caption += f" Of the first {DRAWN} samples."
    return lines_with_bands(
        lines,
        view.explainers,
        f"Perturbation curves, {view.reading.title}",
        "regions replaced",
        f"fall of the {score}",
        caption=caption,
        name="perturbation-curve",
        heading="Perturbation curves",
    )
