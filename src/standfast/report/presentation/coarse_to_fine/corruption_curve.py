"""Corruption curves in a report: the drops (Wei, Turbe and Mengaldo 2024, Figs. 1, 4 and 5), and tables of numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.coarse_to_fine.summary import summarise
from standfast.report.charts import Axis, Chart, Figure, Strip, Underpowered, Words, draw_lines, draw_values
from standfast.report.presentation.coarse_to_fine.drops import (
    COMMON,
    FINE,
    TAU,
    Drops,
    load_drops,
    measure_up_to_common_share,
    name_compared_arrays,
)
from standfast.report.presentation.coarse_to_fine.pictures import draw_gallery
from standfast.report.presentation.coarse_to_fine.tables import draw_tables
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import make_line, measure_random_error
from standfast.report.words import words_of
from standfast.results import Detail, MetricResults, Presentation, ValueSpec, presentations
from standfast.results.presentation import read_flags, read_numbers

_CHANCE = "Only the difference to random maps is due to the map."
#: numbers over data sets, with their titles
_OVER_DATA = (("auc_top", "AUC top"), ("f1", "F1"), ("auc_share_above", f"Share of samples with drop ≥ {TAU:g}"))


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Areas, drops, and fine numbers that count only if the gate is passed."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """With the most relevant positions first higher is better; if only the least relevant come first, lower."""
        title = f"Area under the drop of the class's probability, {_name_first(options)} relevant positions corrupted"
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
            title="Common drop of the class's probability: averaged up to the share of positions that all explainers "
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
        without = int(read_flags(frame, "no_positive").sum())
        label = "maps without positive relevance, which count with a drop of 0"
        return [*found, Detail(label, without, len(frame))] if without else found

    def figures(self, results: MetricResults) -> list[Figure]:
        """All figures of one data set and model; only the distribution of areas if no drops are stored."""
        say, drops = words_of(self).say, load_drops(results)
        distribution = draw_distribution(results, note=say("distribution"))
        if drops is None:
            return [*distribution]
        first, *others = [draw_drops(results, drops, order, say("drops")) for order in ("top", "bottom")]
        figures: list[Figure | None] = [first, *distribution, *others]
        if "top" in (results.options.get("order") or ()):
            figures += draw_drops_by_share(results, drops, say("shares"))
            figures += [] if drops.fewest >= FINE else [Underpowered("Skewness and kurtosis", FINE, drops.fewest)]
            figures += draw_gallery(results, say)
        return [*(each for each in figures if each is not None), *draw_tables(drops, say)]

    def figures_over_data(self, views: Sequence[MetricResults]) -> Sequence[Figure]:
        """The numbers of each model that need no gate, over data sets (Fig. 5)."""
        charts = []
        for model in dict.fromkeys(view.model for view in views):
            stored = {view.data: drops for view in views if view.model == model and (drops := load_drops(view))}
            for key, title in _OVER_DATA if len(stored) > 1 else ():
                heading = f"{title} over data sets, {model}"
                words = Words(heading, name=f"across-{key}-{model}", heading=heading)
                charts.append(draw_over_data(stored, views[0].explainers, key, Axis(title, "higher"), words))
        return [each for each in charts if each is not None]


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


def draw_drops_by_share(results: MetricResults, drops: Drops, caption: str) -> list[Chart | None]:
    """Draw the distributions of the drops: a chart for each explainer with a row for each share k (Fig. 4)."""
    tops = np.stack([np.asarray(curves.top) for curves in drops.curves.values()])
    domain = (float(np.fmin.reduce(tops, axis=None, initial=0.0)), 1.0)
    axis = Axis("drop", domain=domain, rules=(0.0, 1.0))
    charts = []
    for name, curves in drops.curves.items():
        complete = curves.find_complete()
        samples, values = drops.samples[complete].tolist(), np.asarray(curves.select(complete).top)
        bounds = np.zeros(len(values), dtype=bool)
        strips = [
            Strip(name, samples, values[:, place], bounds, f"{k:.3g}%")
            for place, k in enumerate(100 * curves.fractions)
        ]
        words = Words(f"Drop by share of positive positions, {name}", caption, f"drops-{name}", f"Drops: {name}")
        charts.append(draw_values(strips, results.explainers, axis, words))
    return charts


def draw_over_data(
    stored: Mapping[str, Drops], explainers: Sequence[str], key: str, axis: Axis, words: Words
) -> Chart | None:
    """Draw a number of each explainer, a point for each data set."""
    strips = []
    for name in explainers:
        known = {data: drops.curves[name] for data, drops in stored.items() if name in drops.curves}
        values = np.array([getattr(summarise(curves, resamples=0), key) for curves in known.values()])
        finite = np.isfinite(values)
        data = [data for data, counts in zip(known, finite, strict=True) if counts]
        strips.append(Strip(name, data, values[finite], np.zeros(len(data), dtype=bool)))
    return draw_values(strips, explainers, axis, words, each="data set")
