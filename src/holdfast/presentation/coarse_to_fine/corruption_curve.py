"""What a report shows of corruption curves: ridge lines, drops, skewness and kurtosis along k, and tables of all.

The ridge lines are Fig. 4 of Wei, Turbe and Mengaldo (2024); Figs. 1 and 5 are `corruption_pictures` and
`corruption_across`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import GREY, Chart, Figure, Line, Ridge, lines_with_bands, ridges
from holdfast.charts.base import SCALE
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary
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
from holdfast.presentation.coarse_to_fine.across_data import boxes_over_data
from holdfast.presentation.coarse_to_fine.drops import TAU, Drops, Q, drops_of
from holdfast.presentation.coarse_to_fine.pictures import galleries
from holdfast.presentation.coarse_to_fine.tables import draw_tables
from holdfast.presentation.coarse_to_fine.words import gate_sentence, guide, percent
from holdfast.statistics.paired import Array


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Corruption curves: areas, drops, fine numbers behind the gate."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """Most relevant first, more is better; where only the least relevant are corrupted, less."""
        top = "top" in (options.get("order") or ("top",))
        first = "most" if top else "least"
        return Reading(
            f"Area under the drop of the class's probability, {first} relevant positions corrupted first",
            "area under the drop",
            "area_top" if top else "area_bottom",
            "higher" if top else "lower",
            3,
            caution="What of it is owed to the map is the difference to random maps.",
        )

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The error of the draws, how much was corrupted, and what was out of the ordinary."""
        notes = []
        errors = read_numbers(frame, "std_error")
        errors = errors[np.isfinite(errors)]
        if len(errors):
            notes.append(f"standard error from the draws, median: {format_number(float(np.median(errors)), 4)}")
        share = read_numbers(frame, "positive_share")
        if np.isfinite(share).any():
            notes.append(f"positions with positive relevance: {format_number(100 * float(np.nanmean(share)), 0)}%")
        without = int(read_flags(frame, "no_positive").sum())
        if without:
            notes.append(f"no positive relevance, so a drop of 0: {without} of {len(frame)}")
        clipped = read_numbers(frame, "clipped")
        if (clipped > 0).any():
            notes.append(f"replacements clipped to the bounds: {format_number(100 * float(np.nanmean(clipped)), 0)}%")
        return notes

    def figures_over_data(self, views: Sequence[View]) -> Sequence[Figure]:
        """Boxes of the coarse and the fine numbers over data sets (Fig. 5)."""
        return boxes_over_data(views)

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The terms, in words."""
        return guide(options)

    def figures(self, view: View) -> list[Figure]:
        """All of one data set and model; the distribution of areas alone where no drops are stored."""
        found: list[Figure] = [*draw_distribution(view)]
        drops = drops_of(view)
        if drops is None:
            return found
        charts = [*drop_curves(view, drops)]
        if "top" in (view.options.get("order") or ()):
            charts += [*ridge_lines(view, drops), *fine_curves(view, drops), *robust_curves(view, drops)]
        found += [chart for chart in charts if chart is not None]
        return [*found, *draw_tables(drops), *galleries(view)]


def ridge_lines(view: View, drops: Drops) -> list[Chart | None]:
    """The distributions of the drops, a chart for each explainer and a row for each k (Fig. 4)."""
    tops = {name: drops.top(name) for name in drops.curves}
    every = np.concatenate([values.ravel() for values in tops.values()])
    if not len(every):
        return []
    low = min(0.0, float(every.min()))
    domain = (low - 0.04 * (1 - low), 1 + 0.04 * (1 - low))
    charts = []
    for name, values in tops.items():
        share = drops.curves[name].fractions
        rows = [Ridge(percent(float(k)), values[:, place]) for place, k in enumerate(share)]
        gate = "" if drops.counts(name) or name == drops.random else " (gate not passed)"
        charts.append(
            ridges(
                rows,
                name,
                view.explainers,
                f"Distribution over {len(values)} samples of the drop under {name}, by share of positive positions",
                "drop",
                "positive positions replaced, most relevant first",
                domain,
                upper=1.0,
                caption=f"Dotted: no drop, and all of the probability. {_of(drops)}".strip(),
                heading=f"Ridge lines: {name}{gate}",
                marks=(0.0, 1.0),
            )
        )
    return charts


def drop_curves(view: View, drops: Drops) -> list[Chart | None]:
    """The mean drop over the mean share of all positions, from (0, 0), a chart for each order."""
    charts = []
    for order, which in (("top", "most"), ("bottom", "least")):
        lines = []
        for name, found in drops.absolute.items():
            if getattr(drops.curves[name], order) is None or not found.samples:
                continue
            mean = getattr(found, f"mean_{order}")
            ends = (np.concatenate([[0.0], end]) for end in found.interval(f"mean_{order}"))
            x = np.concatenate([[0.0], found.share])
            lines.append(_line(name, x, np.concatenate([[0.0], mean]), *ends))
        charts.append(
            lines_with_bands(
                lines,
                view.explainers,
                f"Mean drop over the mean share of corrupted positions, {which} relevant first",
                "share of all positions corrupted",
                "mean drop",
                caption=f"{_banded(lines)} A line ends where all positive positions are gone; the area holds its last "
                f"value. {_of(drops)}".strip(),
                name=f"drop-{order}",
                heading=f"Mean drop, {which} relevant first",
                markers=True,
            )
        )
    return charts


def fine_curves(view: View, drops: Drops) -> list[Chart | None]:
    """Skewness and excess kurtosis along k, grey where they do not count."""
    said = gate_sentence(drops)
    what = {
        "skewness": "below 0: a tail to the left. Best is low, if the peak is at 1.",
        "kurtosis": "above 0: a sharper peak than a normal's. Best is high, if the peak is at 1.",
    }
    charts = []
    for name, meaning in what.items():
        title = "skewness" if name == "skewness" else "excess kurtosis"
        caption = f"{meaning[:1].upper()}{meaning[1:]} {said} {{bands}} {_of(drops)}"
        charts.append(_along_k(view, drops, name, title, caption, attrgetter(name), True))
    return [_greyed(chart, drops) for chart in charts]


def robust_curves(view: View, drops: Drops) -> list[Chart | None]:
    """What a peak at zero cannot fool: the share of samples with a drop of tau or more, and the lower quartile."""
    above = f"Of samples that lose at least {TAU:g} of the probability. More is better, with no gate. {{bands}}"
    lower = f"The drop that {percent(1 - Q)} of the samples reach. More is better, with no gate. {{bands}}"
    share, quartile = f"share of samples with drop ≥ {TAU:g}", "lower quartile of the drop"
    return [
        _along_k(view, drops, "share_above", share, f"{above} {_of(drops)}", attrgetter("share_above")),
        _along_k(view, drops, "quantile", quartile, f"{lower} {_of(drops)}", attrgetter("quantile")),
    ]


def _along_k(
    view: View,
    drops: Drops,
    name: str,
    title: str,
    caption: str,
    values: Callable[[CorruptionSummary], Array],
    fine: bool = False,
) -> Chart | None:
    """A number of each explainer over the shares k; a fine one without a band where it does not count."""
    lines = [
        Line(explainer, found.fractions, values(found))
        if fine and not drops.counts(explainer)
        else _line(explainer, found.fractions, values(found), *found.interval(name))
        for explainer, found in drops.absolute.items()
        if found.samples
    ]
    heading = f"{title[:1].upper()}{title[1:]} along k"
    return lines_with_bands(
        lines,
        view.explainers,
        f"{heading}, most relevant first",
        "share k of the positive positions replaced",
        title,
        caption=caption.format(bands=_banded(lines)).strip(),
        name=name.replace("_", "-"),
        heading=heading,
        markers=True,
    )


def _line(name: str, x: Array, y: Array, low: Array, high: Array) -> Line:
    """With a band where all of it has an interval; the origin of a curve is no estimate and has none to miss."""
    return Line(name, x, y, low, high) if np.isfinite([*low, *high]).all() else Line(name, x, y)


def _banded(lines: Sequence[Line]) -> str:
    return "Bands: 95% intervals over samples." if any(line.low is not None for line in lines) else ""


def _of(drops: Drops) -> str:
    return f"Of the first of {drops.others + 1} repeats." if drops.others else ""


def _greyed(chart: Chart | None, drops: Drops) -> Chart | None:
    """A chart of lines in which those that do not count are grey, in the legend, too."""
    if chart is None or not drops.gates:
        return chart
    layers = []
    for layer in chart.spec["layer"]:
        encoding = dict(layer.get("encoding", {}))
        if "color" in encoding:
            scale = encoding["color"]["scale"]
            shown = [
                colour if drops.counts(name) else GREY
                for name, colour in zip(scale["domain"], scale["range"], strict=True)
            ]
            encoding["color"] = {**encoding["color"], "scale": {**scale, "range": shown}}
        if "y" in encoding:
            encoding["y"] = {**encoding["y"], "scale": SCALE}
        layers.append({**layer, "encoding": encoding})
    return dataclasses.replace(chart, spec={**chart.spec, "layer": layers})
