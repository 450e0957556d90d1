"""Corruption curves in a report: drops, skewness and kurtosis along k, and tables of all numbers.

The drops by share show what Fig. 4 of Wei, Turbe and Mengaldo (2024) does. Figs. 1 and 5 are in `pictures` and
`across_data`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.coarse_to_fine.summary import CorruptionSummary
from standfast.report.charts import (
    REFERENCE,
    Axis,
    Chart,
    Figure,
    Line,
    Strip,
    Words,
    choose_style,
    draw_lines,
    draw_values,
)
from standfast.report.presentation.coarse_to_fine.across_data import draw_boxes_over_data
from standfast.report.presentation.coarse_to_fine.drops import (
    COMMON,
    TAU,
    Drops,
    Q,
    load_drops,
    measure_up_to_common_share,
    name_compared_arrays,
)
from standfast.report.presentation.coarse_to_fine.pictures import draw_galleries
from standfast.report.presentation.coarse_to_fine.tables import draw_tables
from standfast.report.presentation.coarse_to_fine.words import describe_gate, explain_terms, format_share
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
from standfast.tensors import Array

_CHANCE = "Only the difference to random maps is due to the map."
_NOTE = (
    "Replaced inputs are unlike the training data, so the probability falls for any map: compare with random maps. The "
    "area says nothing about robustness."
)


@presentations.register("corruption_curve")
class CorruptionCurvePresentation(Presentation):
    """Areas, drops, and fine numbers that count only if the gate is passed."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """With the most relevant positions first higher is better; if only the least relevant come first, lower."""
        first = _name_first(options)
        return ValueSpec(
            f"Area under the drop of the class's probability, {first} relevant positions corrupted first",
            "area under the drop",
            self.direction_of(options),
            3,
            caution=f"More positive positions make the area larger. {_CHANCE}",
        )

    def make_comparable(self, views: Sequence[MetricResults]) -> tuple[ValueSpec, list[pl.DataFrame]] | None:
        """The mean drop of each sample up to the share of positions that all explainers replace in it.

        None for a single explainer, and where the drops of any sample are not stored.
        """
        frames = [frame for view in views if (frame := measure_up_to_common_share(view)) is not None]
        if len(frames) < len(views) or not any(len(view.present) > 1 for view in views):
            return None
        spec = dataclasses.replace(
            views[0].spec,
            title="Drop of the class's probability, averaged up to the share of positions that all explainers replace, "
            f"{_name_first(views[0].options)} relevant positions corrupted first",
            axis="mean drop, same share",
            column=COMMON,
            caution="Explainers are compared up to the share of positions that all of them replace in a sample "
            f"({_describe_shares(frames)}). {_CHANCE}",
        )
        return spec, frames

    def list_compared_arrays(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The shares of positions and the drops."""
        return name_compared_arrays(options)

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
        which = "first" if _name_first(options) == "most" else "last"
        return f"Does the prediction fall when what the map puts {which} is replaced?"

    def verdict(self, view: MetricResults) -> str:
        """The median drop, up to the share of positions that all explainers replace where the drops are stored."""
        measure = view.median_in(_format_percent)
        ranked = view.rank(measure)
        if not ranked:
            return ""
        which = "first" if _name_first(view.options) == "most" else "last"
        best, worst, chance = ranked[0], ranked[-1], view.random_reference(measure)
        rest = "" if len(ranked) == 1 else f", what {worst.puts} {which} {worst.text}"
        rest += f"; random maps {chance}" if chance else ""
        common = view.spec.column == COMMON
        over = "over as many positions as all explainers replace" if common else "over how much is replaced"
        start = f"Replacing what {best.puts} {which} costs the class {best.text} of its probability"
        return f"{start}, averaged {over}{rest}{view.name_medians()}."

    def comparability_warning(self, view: MetricResults) -> str:
        """Whole areas are compared only where the drops are not stored."""
        if view.spec.column == COMMON or len(view.present) < 2:
            return ""
        return "Whole areas are compared, because the drops of some samples are missing or damaged."

    def reservations(self, view: MetricResults) -> list[str]:
        """Without random maps nothing says how much any order costs."""
        return [] if any(is_random(name) for name in view.present) else ["There are no random maps to compare with."]

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The drop, its area and the gate."""
        return {
            "drop": "the share of the class's probability that is lost when positions are replaced",
            "AUC": "area under the curve of the drop over the share of positions replaced",
            "gate": "a test against random maps that a poor explainer fails",
        }

    def figures_over_data(self, views: Sequence[MetricResults]) -> Sequence[Figure]:
        """Box plots of the coarse and the fine numbers over data sets (Fig. 5)."""
        return draw_boxes_over_data(views)

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The terms of a corruption curve."""
        return explain_terms(options)

    def figures(self, view: MetricResults) -> list[Figure]:
        """All figures of one data set and model; only the distribution of areas if no drops are stored."""
        distribution = draw_distribution(view, note=_NOTE)
        drops = load_drops(view)
        if drops is None:
            return [*distribution]
        first, *others = draw_drop_curves(view, drops)
        charts: list[Figure | None] = [first, *distribution, *others]
        if "top" in (view.options.get("order") or ()):
            charts += [*draw_drops_by_share(view, drops), *draw_robust_curves(view, drops)]
            charts += draw_fine_curves(view, drops) if drops.enough else [drops.too_few("Skewness and kurtosis")]
        return [*(each for each in charts if each is not None), *draw_tables(drops), *draw_galleries(view)]


def _name_first(options: Mapping[str, Any]) -> str:
    """Whether the most or the least relevant positions come first in the value."""
    return "most" if "top" in (options.get("order") or ("top",)) else "least"


def _describe_shares(frames: Sequence[pl.DataFrame]) -> str:
    """The median share up to which explainers are compared, over data sets and models."""
    medians = [float(np.median(values)) for frame in frames if len(values := frame["common_share"].drop_nulls())]
    ends = dict.fromkeys(format_share(round(end, 3)) for end in (min(medians, default=0.0), max(medians, default=0.0)))
    return f"median {' to '.join(ends)}"


def _format_percent(share: float) -> str:
    return f"{100 * share:z.0f}%"


def draw_drops_by_share(view: MetricResults, drops: Drops) -> list[Chart | None]:
    """Draw the distributions of the drops: a chart for each explainer with a row for each k (Fig. 4)."""
    tops = {name: drops.top_drops(name) for name in drops.curves}
    every = np.concatenate([values.ravel() for values in tops.values()])
    if not len(every):
        return []
    domain = (min(0.0, float(every.min())), 1.0)
    axis = Axis("drop (lost share of the probability)", domain=domain, rules=(0.0, 1.0))
    charts = []
    for name, values in tops.items():
        samples = drops.samples[drops.curves[name].find_complete()].tolist()
        strips = [
            Strip(name, samples, values[:, place], np.zeros(len(values), dtype=bool), format_share(float(k)))
            for place, k in enumerate(drops.curves[name].fractions)
        ]
        gate = "" if drops.may_be_read(name) or name == drops.random else " (gate not passed)"
        words = Words(
            f"drop under {name}, by share of positive positions",
            "A row for each share of the positive positions that is replaced, most relevant first. Dotted lines: a "
            f"drop of 0, and of 1 (nothing is left). {_note_repeats(drops)}".strip(),
            f"drops-{name}",
            f"Drops by share: {name}{gate}",
        )
        charts.append(draw_values(strips, view.explainers, axis, words))
    return charts


def draw_drop_curves(view: MetricResults, drops: Drops) -> list[Chart | None]:
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
        words = Words(
            f"Mean drop over the mean share of corrupted positions, {which} relevant first",
            f"How much of the class's probability is lost if the {which} relevant positions are replaced. "
            f"{_note_bands(lines)} A line ends where all positive positions are replaced; for the area, it "
            f"continues at its last value. Compare with random maps. {_note_repeats(drops)}".strip(),
            f"drop-{order}",
            f"What happens when the {which} relevant positions go first?",
        )
        lost = Axis("lost share of probability", "higher" if order == "top" else "lower")
        charts.append(draw_lines(lines, view.explainers, Axis("share of all positions corrupted"), lost, words))
    return charts


def draw_fine_curves(view: MetricResults, drops: Drops) -> list[Chart | None]:
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
    return charts


def draw_robust_curves(view: MetricResults, drops: Drops) -> list[Chart | None]:
    """Draw the numbers that need no gate: the share of samples with a drop of tau or more, and the lower quartile."""
    above = f"Samples that lose at least {TAU:g} of the probability. Higher is better; there is no gate. {{bands}}"
    lower = f"The drop that {format_share(1 - Q)} of the samples reach. Higher is better; there is no gate. {{bands}}"
    share, quartile = f"share of samples with drop ≥ {TAU:g}", "lower quartile of the drop"
    return [
        _draw_along_k(view, drops, "share_above", share, f"{above} {_note_repeats(drops)}", attrgetter("share_above")),
        _draw_along_k(view, drops, "quantile", quartile, f"{lower} {_note_repeats(drops)}", attrgetter("quantile")),
    ]


def _draw_along_k(
    view: MetricResults,
    drops: Drops,
    name: str,
    title: str,
    caption: str,
    values: Callable[[CorruptionSummary], Array],
    fine: bool = False,
) -> Chart | None:
    """Draw a number of each explainer over the shares k; a fine number without a band where it does not count."""
    lines = []
    for explainer, found in drops.absolute.items():
        line = _make_line(explainer, found.fractions, values(found), *found.interval(name))
        if fine and not drops.may_be_read(explainer):
            grey = dataclasses.replace(choose_style(view.explainers, explainer), colour=REFERENCE)
            line = Line(explainer, line.x, line.y, style=grey)
        lines += [line] if found.samples else []
    heading = f"{title[:1].upper()}{title[1:]} along k"
    caption = caption.format(bands=_note_bands(lines)).strip()
    words = Words(f"{heading}, most relevant first", caption, name.replace("_", "-"), heading)
    share = Axis("share k of the positive positions replaced")
    return draw_lines(lines, view.explainers, share, Axis(title), words)


def _make_line(name: str, x: Array, y: Array, low: Array, high: Array) -> Line:
    """A line, with a band if all of its points have an interval."""
    return Line(name, x, y, low, high) if np.isfinite([*low, *high]).all() else Line(name, x, y)


def _note_bands(lines: Sequence[Line]) -> str:
    return "Bands: 95% intervals over samples." if any(line.low is not None for line in lines) else ""


def _note_repeats(drops: Drops) -> str:
    return f"From the first of {drops.others + 1} repeats." if drops.others else ""
