"""What a report says of corruption curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import Chart, Gallery
from holdfast.metrics.base import plain_figures
from holdfast.metrics.reading import Reading, View, flags, number, numbers


def reading(options: Mapping[str, Any]) -> Reading:
    """Most relevant first, more is better; where only the least relevant are corrupted, less."""
    top = "top" in (options.get("order") or ("top",))
    first = "most" if top else "least"
    return Reading(
        f"Area under the drop of the class's probability, {first} relevant positions corrupted first",
        "area under the drop",
        "area_top" if top else "area_bottom",
        "higher" if top else "lower",
        3,
        caution="What of it is owed to the map is the difference to `random`; skewness and kurtosis count only then.",
    )


def figures(view: View) -> list[Chart | Gallery]:
    """The distribution over samples."""
    return plain_figures(view)


def remarks(frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
    """The error of the draws, how much was corrupted, and what was out of the ordinary."""
    notes = []
    errors = numbers(frame, "std_error")
    errors = errors[np.isfinite(errors)]
    if len(errors):
        notes.append(f"standard error from the draws, median: {number(float(np.median(errors)), 4)}")
    share = numbers(frame, "positive_share")
    if np.isfinite(share).any():
        notes.append(f"positions with positive relevance: {number(100 * float(np.nanmean(share)), 0)}%")
    without = int(flags(frame, "no_positive").sum())
    if without:
        notes.append(f"no positive relevance, so a drop of 0: {without} of {len(frame)}")
    clipped = numbers(frame, "clipped")
    if (clipped > 0).any():
        notes.append(f"replacements clipped to the bounds: {number(100 * float(np.nanmean(clipped)), 0)}%")
    return notes


def guide(options: Mapping[str, Any]) -> dict[str, str]:
    """Terms."""
    kind = str(options.get("replacement", "gaussian"))
    what = {
        "gaussian": "normal noise, clipped to the valid range of an input",
        "constant": "a constant",
        "sample": "the entries of reference inputs at the same place",
    }.get(kind, f"what `{kind}` returns")
    drop = (
        "Of the positions with positive relevance a growing share k is replaced, the most relevant first (*top*) or "
        f"the least (*bottom*), by {what}. The drop is the share of the class's probability that is lost: 1 is all of "
        "it, 0 nothing, and below 0 it has grown. The area is that under the drop over the share of *all* positions "
        "that were replaced, and held constant after the last. It measures faithfulness to the model."
    )
    terms = {"Drop and its area": drop}
    terms["Coarse before fine"] = (
        "Whether a map finds what matters in *every* sample is in the distribution of the drops: left-skewed and "
        "peaked at 1 is best. But a map that finds nothing has drops that are peaked, too, at 0. So skewness and "
        "kurtosis count only where the area is demonstrably larger than that of `random` maps. The share of samples "
        "with at least half of the probability lost, and the lower quartile of the drop, cannot be fooled so."
    )
    terms["Areas and scales"] = (
        "`absolute`: skewness and kurtosis are mapped to [0, 1] by a fixed function. `compared`: by the least and the "
        "largest of the compared explainers, as published; then a value depends on who else is in the table."
    )
    if kind != "constant":
        terms["Paired replacements"] = (
            "A sample gets the same replacements under every explainer, and for both orders: they come from the sample "
            "and the seed, one field over the whole input for each of the `draws`. `std_error` is what they leave open."
        )
    return terms
