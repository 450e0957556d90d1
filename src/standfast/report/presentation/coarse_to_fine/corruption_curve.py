"""Corruption curves in a report: the drops (Wei, Turbe and Mengaldo 2024, Figs. 1, 4 and 5), and tables of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Axis, Chart, Figure, Words, draw_lines
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.coarse_to_fine.drops import Drops, load_drops
from standfast.report.presentation.coarse_to_fine.pictures import draw_gallery
from standfast.report.presentation.coarse_to_fine.tables import draw_tables
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import count_flag, make_line, measure_random_error
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.results.common_share import DROP
from standfast.value_spec import read_numbers


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Areas, drops, and fine numbers that count only if the gate is passed."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """Whether whole areas are compared, although the explainers replace different shares of positions."""
        return {"whole": results.spec.column != DROP and len(results.present) > 1}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The standard error, the share of positive positions, maps without any, and clipped replacements."""
        details = measure_random_error(frame)
        for column, label in (
            ("positive_share", "positions with positive relevance, %"),
            ("clipped", "replacements clipped to the bounds, %"),
        ):
            shares = read_numbers(frame, column)
            if (shares > 0).any():
                mean = 100 * float(np.nanmean(shares))
                details.append(Detail(label, mean, decimals=0))
        label = "maps without positive relevance, which count with a drop of 0"
        return [*details, *count_flag(frame, "no_positive", label)]

    def figures(self, results: MetricResults) -> list[Figure | None]:
        """All figures of one data set and model; only the distribution of areas if no drops are stored."""
        say = words_of(self).say
        drops = load_drops(results)
        distribution = draw_distribution(results)
        if drops is None:
            return [distribution]
        top = draw_drops(results, drops, "top", say("drops"))
        bottom = draw_drops(results, drops, "bottom", say("drops"))
        pictures = None
        if "top" in (results.options.get("order") or ()):
            pictures = draw_gallery(results, say)
        return [top, distribution, bottom, pictures, *draw_tables(drops, say, not self.task.fall)]


def draw_drops(results: MetricResults, drops: Drops, order: str, caption: str) -> Chart | None:
    """Draw the mean drop over the mean share of all positions, from (0, 0)."""
    lines = []
    for name, summary in drops.absolute.items():
        if getattr(drops.curves[name], order) is not None and summary.samples:
            mean = f"mean_{order}"
            low, high = summary.interval(mean)
            points = (summary.share, getattr(summary, mean), low, high)
            # where nothing is replaced, nothing is lost
            with_start = [np.insert(values, 0, 0.0) for values in points]
            lines.append(make_line(name, *with_start))
    if order == "top":
        which, direction = "most", "higher"
    else:
        which, direction = "least", "lower"
    title = f"Mean drop, {which} relevant positions first"
    heading = f"What happens when the {which} relevant positions go first?"
    words = Words(title, caption, f"drop-{order}", heading)
    share = Axis("share of all positions corrupted")
    return draw_lines(lines, results.explainers, share, Axis("drop", direction), words)
