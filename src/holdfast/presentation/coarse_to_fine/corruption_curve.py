"""Corruption curves in a report: ridge lines, drops, skewness and kurtosis along k, and tables of all numbers.

The ridge lines are Fig. 4 of Wei, Turbe and Mengaldo (2024). Figs. 1 and 5 are in `pictures` and `across_data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from holdfast.charts import GREY, Chart, Figure, Line, Ridge, draw_lines, draw_ridges
from holdfast.charts.base import SCALE
from holdfast.metrics.coarse_to_fine.summary import CorruptionSummary
from holdfast.presentation.base import (
    Presentation,
    Reading,
    Standing,
    View,
    draw_distribution,
    format_number,
    presentations,
    read_flags,
    read_numbers,
)
from holdfast.presentation.coarse_to_fine.across_data import draw_boxes_over_data
from holdfast.presentation.coarse_to_fine.drops import TAU, Drops, Q, compare_at_common_share, load_drops
from holdfast.presentation.coarse_to_fine.pictures import draw_galleries
from holdfast.presentation.coarse_to_fine.tables import draw_tables
from holdfast.presentation.coarse_to_fine.words import describe_gate, explain_terms, format_share
from holdfast.presentation.wording import is_random
from holdfast.tensors import Array

_NOTE = (
    "Replaced inputs are unlike the training data, so the probability falls for any map: compare with random maps. The "
    "area says nothing about robustness."
)


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Areas, drops, and fine numbers that count only if the gate is passed."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """With the most relevant positions first higher is better; if only the least relevant come first, lower."""
        top = "top" in (options.get("order") or ("top",))
        first = "most" if top else "least"
        return Reading(
            f"Area under the drop of the class's probability, {first} relevant positions corrupted first",
            "area under the drop",
            self.direction_of(options),
            3,
            caution="Only the difference to random maps is due to the map, and more positive positions make the area "
            "larger: compare by “same share” in the report.",
        )

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The standard error, the share of positive positions, maps without any, and clipped replacements."""
        notes = []
        errors = read_numbers(frame, "std_error")
        errors = errors[np.isfinite(errors)]
        if len(errors):
            notes.append(
                f"standard error due to the random draws, median: {format_number(float(np.median(errors)), 4)}"
            )
        share = read_numbers(frame, "positive_share")
        if np.isfinite(share).any():
            notes.append(f"positions with positive relevance: {format_number(100 * float(np.nanmean(share)), 0)}%")
        without = int(read_flags(frame, "no_positive").sum())
        if without:
            notes.append(f"maps without positive relevance, which count with a drop of 0: {without} of {len(frame)}")
        clipped = read_numbers(frame, "clipped")
        if (clipped > 0).any():
            notes.append(f"replacements clipped to the bounds: {format_number(100 * float(np.nanmean(clipped)), 0)}%")
        return notes

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether replacing what a map puts first lowers the prediction."""
        which = "first" if "top" in (options.get("order") or ("top",)) else "last"
        return f"Does the prediction fall when what the map puts {which} is replaced?"

    def verdict(self, view: View) -> str:
        """The mean drop up to the share of positions that all explainers replace; without stored drops the median."""
        common = compare_at_common_share(view)
        share = next((found.common_share for found in common.values()), 0.0)
        measure = partial(_measure_common, common) if common else view.median_in(_format_percent)
        ranked = view.rank(measure)
        if not ranked:
            return ""
        which = "first" if "top" in (view.options.get("order") or ("top",)) else "last"
        best, worst, chance = ranked[0], ranked[-1], view.refer(measure)
        rest = "" if len(ranked) == 1 else f", what {worst.puts} {which} {worst.text}"
        rest += f"; random maps {chance}" if chance else ""
        over = f"averaged over the first {format_share(round(share, 3))} of positions" if common else ""
        over = over or "averaged over how much is replaced"
        end = "(means over samples, for as many positions of all explainers)." if common else "(medians)."
        return f"Replacing what {best.puts} {which} costs the class {best.text} of its probability, {over}{rest} {end}"

    def put_first(self, view: View) -> tuple[Standing | None, str]:
        """By the verdict's numbers, up to the same share."""
        ranked = view.rank(partial(_measure_common, common)) if (common := compare_at_common_share(view)) else []
        what = "drop up to the same share of positions (ranks are by the whole area)"
        return (ranked[0], what) if len(ranked) > 1 else super().put_first(view)

    def reservations(self, view: View) -> list[str]:
        """Without random maps nothing says how much any order costs."""
        return [] if any(is_random(name) for name in view.present) else ["There are no random maps to compare with."]

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The drop, its area and the gate."""
        return {
            "drop": "the share of the class's probability that is lost when positions are replaced",
            "AUC": "area under the curve of the drop over the share of positions replaced",
            "gate": "a test against random maps that a poor explainer fails",
        }

    def figures_over_data(self, views: Sequence[View]) -> Sequence[Figure]:
        """Box plots of the coarse and the fine numbers over data sets (Fig. 5)."""
        return draw_boxes_over_data(views)

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The terms of a corruption curve."""
        return explain_terms(options)

    def figures(self, view: View) -> list[Figure]:
        """All figures of one data set and model; only the distribution of areas if no drops are stored."""
        distribution = draw_distribution(view, note=_NOTE)
        drops = load_drops(view)
        if drops is None:
            return [*distribution]
        first, *others = draw_drop_curves(view, drops)
        charts: list[Figure | None] = [first, *distribution, *others]
        if "top" in (view.options.get("order") or ()):
            charts += [*draw_ridge_lines(view, drops), *draw_robust_curves(view, drops)]
            charts += draw_fine_curves(view, drops) if drops.enough else [drops.too_few("Skewness and kurtosis")]
        return [*(each for each in charts if each is not None), *draw_tables(drops), *draw_galleries(view)]


def _format_percent(share: float) -> str:
    return f"{100 * share:.0f}%"


def _measure_common(common: Mapping[str, CorruptionSummary], rows: pl.DataFrame) -> tuple[float, str] | None:
    """The mean drop up to the common share as a measure for `View.rank`."""
    found = common.get(str(rows["explainer"][0])) if len(rows) else None
    return None if found is None else (found.auc_common, _format_percent(found.auc_common))


def draw_ridge_lines(view: View, drops: Drops) -> list[Chart | None]:
    """Draw the distributions of the drops: a chart for each explainer with a row for each k (Fig. 4)."""
    tops = {name: drops.top_drops(name) for name in drops.curves}
    every = np.concatenate([values.ravel() for values in tops.values()])
    if not len(every):
        return []
    low = min(0.0, float(every.min()))
    domain = (low - 0.04 * (1 - low), 1 + 0.04 * (1 - low))
    charts = []
    for name, values in tops.items():
        share = drops.curves[name].fractions
        rows = [Ridge(format_share(float(k)), values[:, place]) for place, k in enumerate(share)]
        gate = "" if drops.may_be_read(name) or name == drops.random else " (gate not passed)"
        charts.append(
            draw_ridges(
                rows,
                name,
                view.explainers,
                f"Distribution over {len(values)} samples of the drop under {name}, by share of positive positions",
                "drop (lost share of the probability)",
                "positive positions replaced, most relevant first",
                domain,
                upper=1.0,
                caption=f"Dotted lines: a drop of 0, and of 1 (nothing is left). {_note_repeats(drops)}".strip(),
                heading=f"Ridge lines: {name}{gate}",
                marks=(0.0, 1.0),
            )
        )
    return charts


def draw_drop_curves(view: View, drops: Drops) -> list[Chart | None]:
    """Draw the mean drop over the mean share of all positions, from (0, 0): a chart for each order."""
    charts = []
    for order, which in (("top", "most"), ("bottom", "least")):
        lines = []
        for name, found in drops.absolute.items():
            if getattr(drops.curves[name], order) is None or not found.samples:
                continue
            mean = getattr(found, f"mean_{order}")
            ends = (np.concatenate([[0.0], end]) for end in found.interval(f"mean_{order}"))
            x = np.concatenate([[0.0], found.share])
            lines.append(_make_line(name, x, np.concatenate([[0.0], mean]), *ends))
        charts.append(
            draw_lines(
                lines,
                view.explainers,
                f"Mean drop over the mean share of corrupted positions, {which} relevant first",
                "share of all positions corrupted",
                "lost share of probability",
                caption=f"How much of the class's probability is lost if the {which} relevant positions are replaced. "
                f"{_note_bands(lines)} A line ends where all positive positions are replaced; for the area, it "
                f"continues at its last value. Compare with random maps. {_note_repeats(drops)}".strip(),
                name=f"drop-{order}",
                heading=f"What happens when the {which} relevant positions go first?",
                direction="higher" if order == "top" else "lower",
                markers=True,
            )
        )
    return charts


def draw_fine_curves(view: View, drops: Drops) -> list[Chart | None]:
    """Draw skewness and excess kurtosis along k, in grey where they do not count."""
    gate = describe_gate(drops)
    meanings = {
        "skewness": "below 0: a tail to the left. Lower is better if the peak is at 1.",
        "kurtosis": "above 0: a sharper peak than that of a normal distribution. Higher is better if the peak is at 1.",
    }
    charts = []
    for name, meaning in meanings.items():
        title = "skewness" if name == "skewness" else "excess kurtosis"
        caption = f"{meaning[:1].upper()}{meaning[1:]} {gate} {{bands}} {_note_repeats(drops)}"
        charts.append(_draw_along_k(view, drops, name, title, caption, attrgetter(name), True))
    return [_make_grey(chart, drops) for chart in charts]


def draw_robust_curves(view: View, drops: Drops) -> list[Chart | None]:
    """Draw the numbers that need no gate: the share of samples with a drop of tau or more, and the lower quartile."""
    above = f"Samples that lose at least {TAU:g} of the probability. Higher is better; there is no gate. {{bands}}"
    lower = f"The drop that {format_share(1 - Q)} of the samples reach. Higher is better; there is no gate. {{bands}}"
    share, quartile = f"share of samples with drop ≥ {TAU:g}", "lower quartile of the drop"
    return [
        _draw_along_k(view, drops, "share_above", share, f"{above} {_note_repeats(drops)}", attrgetter("share_above")),
        _draw_along_k(view, drops, "quantile", quartile, f"{lower} {_note_repeats(drops)}", attrgetter("quantile")),
    ]


def _draw_along_k(
    view: View,
    drops: Drops,
    name: str,
    title: str,
    caption: str,
    values: Callable[[CorruptionSummary], Array],
    fine: bool = False,
) -> Chart | None:
    """Draw a number of each explainer over the shares k; a fine number without a band where it does not count."""
    lines = [
        Line(explainer, found.fractions, values(found))
        if fine and not drops.may_be_read(explainer)
        else _make_line(explainer, found.fractions, values(found), *found.interval(name))
        for explainer, found in drops.absolute.items()
        if found.samples
    ]
    heading = f"{title[:1].upper()}{title[1:]} along k"
    return draw_lines(
        lines,
        view.explainers,
        f"{heading}, most relevant first",
        "share k of the positive positions replaced",
        title,
        caption=caption.format(bands=_note_bands(lines)).strip(),
        name=name.replace("_", "-"),
        heading=heading,
        markers=True,
    )


def _make_line(name: str, x: Array, y: Array, low: Array, high: Array) -> Line:
    """A line, with a band if all of its points have an interval."""
    return Line(name, x, y, low, high) if np.isfinite([*low, *high]).all() else Line(name, x, y)


def _note_bands(lines: Sequence[Line]) -> str:
    return "Bands: 95% intervals over samples." if any(line.low is not None for line in lines) else ""


def _note_repeats(drops: Drops) -> str:
    return f"From the first of {drops.others + 1} repeats." if drops.others else ""


def _make_grey(chart: Chart | None, drops: Drops) -> Chart | None:
    """Make the lines that do not count grey, also in the legend."""
    if chart is None or not drops.gates:
        return chart
    layers = []
    for layer in chart.spec["layer"]:
        encoding = dict(layer.get("encoding", {}))
        if "color" in encoding:
            scale = encoding["color"]["scale"]
            colours = [
                colour if drops.may_be_read(name) else GREY
                for name, colour in zip(scale["domain"], scale["range"], strict=True)
            ]
            encoding["color"] = {**encoding["color"], "scale": {**scale, "range": colours}}
        if "y" in encoding:
            encoding["y"] = {**encoding["y"], "scale": SCALE}
        layers.append({**layer, "encoding": encoding})
    return dataclasses.replace(chart, spec={**chart.spec, "layer": layers})
