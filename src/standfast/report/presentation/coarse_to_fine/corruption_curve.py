"""Corruption curves in a report: the drops (Wei, Turbe and Mengaldo 2024, Figs. 1, 4 and 5), and tables of numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Axis, Chart, Figure, Words, draw_lines
from standfast.report.presentation.coarse_to_fine.drops import (
    COMMON,
    Drops,
    load_drops,
    measure_up_to_common_share,
    name_compared_arrays,
)
from standfast.report.presentation.coarse_to_fine.pictures import draw_gallery
from standfast.report.presentation.coarse_to_fine.tables import draw_tables
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import count_flag, make_line, measure_random_error
from standfast.report.words import words_of
from standfast.results import Detail, MetricResults, Presentation, ValueSpec, presentations
from standfast.results.presentation import read_numbers

_CHANCE = "Only the difference to random maps is due to the map."


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Areas, drops, and fine numbers that count only if the gate is passed."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """With the most relevant positions first higher is better; if only the least relevant come first, lower."""
        title = f"Area under the drop of {self.task.own}, {_name_first(options)} relevant positions corrupted"
        caution = f"More positive positions make the area larger. {_CHANCE}"
        return ValueSpec(title, "area under the drop", self.direction_of(options), 3, caution=caution)

    def make_comparable(self, views: Sequence[MetricResults]) -> tuple[ValueSpec, list[pl.DataFrame]] | None:
        """The mean drop of each sample up to the share of positions that all explainers replace in it.

        None for a single explainer, and where the drops of any sample are not stored.
        """
        frames = [frame for view in views if (frame := measure_up_to_common_share(view)) is not None]
        if len(frames) < len(views) or not any(len(view.present) > 1 for view in views):
            return None
        medians = [float(np.median(values)) for each in frames if len(values := each["common_share"].drop_nulls())]
        ends = dict.fromkeys(f"{end:.1%}" for end in (min(medians, default=0.0), max(medians, default=0.0)))
        spec = dataclasses.replace(
            views[0].spec,
            title=f"Common drop of {self.task.own}: averaged up to the share of positions that all explainers "
            f"replace, {_name_first(views[0].options)} relevant positions corrupted first",
            axis="common drop",
            column=COMMON,
            caution="Explainers are compared up to the share of positions that all of them replace in a sample (median "
            f"{' to '.join(ends)}). {_CHANCE}",
        )
        return spec, frames

    def list_compared_arrays(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The shares of positions and the drops."""
        return name_compared_arrays(options)

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """Whether whole areas are compared, although the explainers replace different shares of positions."""
        return {"whole": results.spec.column != COMMON and len(results.present) > 1}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The standard error, the share of positive positions, maps without any, and clipped replacements."""
        found = measure_random_error(frame)
        for column, label in (
            ("positive_share", "positions with positive relevance, %"),
            ("clipped", "replacements clipped to the bounds, %"),
        ):
            shares = read_numbers(frame, column)
            if (shares > 0).any():
                found.append(Detail(label, 100 * float(np.nanmean(shares)), decimals=0))
        label = "maps without positive relevance, which count with a drop of 0"
        return [*found, *count_flag(frame, "no_positive", label)]

    def figures(self, results: MetricResults) -> list[Figure | None]:
        """All figures of one data set and model; only the distribution of areas if no drops are stored."""
        say, drops = words_of(self).say, load_drops(results)
        distribution = draw_distribution(results)
        if drops is None:
            return [distribution]
        top, bottom = (draw_drops(results, drops, order, say("drops")) for order in ("top", "bottom"))
        pictures = draw_gallery(results, say) if "top" in (results.options.get("order") or ()) else None
        return [top, distribution, bottom, pictures, *draw_tables(drops, say, not self.task.fall)]


def _name_first(options: Mapping[str, Any]) -> str:
    """Whether the most or the least relevant positions come first in the value."""
    return "most" if "top" in (options.get("order") or ("top",)) else "least"


def draw_drops(results: MetricResults, drops: Drops, order: str, caption: str) -> Chart | None:
    """Draw the mean drop over the mean share of all positions, from (0, 0)."""
    lines = []
    for name, found in drops.absolute.items():
        if getattr(drops.curves[name], order) is not None and found.samples:
            mean = f"mean_{order}"
            points = (found.share, getattr(found, mean), *found.interval(mean))
            x, y, low, high = (np.concatenate([[0.0], values]) for values in points)
            lines.append(make_line(name, x, y, low, high))
    which, direction = ("most", "higher") if order == "top" else ("least", "lower")
    heading = f"What happens when the {which} relevant positions go first?"
    words = Words(f"Mean drop, {which} relevant positions first", caption, f"drop-{order}", heading)
    across, up = Axis("share of all positions corrupted"), Axis("drop", direction)
    return draw_lines(lines, results.explainers, across, up, words)
