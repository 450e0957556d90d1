"""What a report shows of c-Eval, of c-Eval over sizes of the explanation, and of near-affinity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import (
    Axis,
    Chart,
    Figure,
    Gallery,
    GalleryRow,
    Line,
    Picture,
    Words,
    draw_lines,
)
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.drawing import describe_maps, draw_distribution, make_row
from standfast.report.presentation.estimates import describe_columns, make_median_line, stack_arrays
from standfast.report.words import words_of
from standfast.results import MetricResults, StoredSample
from standfast.statistics.paired import median_over_repeats
from standfast.value_spec import read_flags, read_numbers

#: samples in the gallery
SHOWN = 4
#: the colour of the fixed features
FIXED = "#e67300"


#: which samples have no value
@presentations.register("c_eval")
class CEvalPresentation(Presentation):
    """c-Eval: distributions, and the changed inputs."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The ratio where fixing the features does not matter."""
        return {"rules": (1.0,)}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Medians, how many changes were not found, and how near certified bounds come."""
        c = read_numbers(frame, "c")
        is_found = read_flags(frame, "found")
        missed = int((~is_found).sum())
        details = []
        if missed:
            details.append(Detail("no change found, so only a bound", missed, len(frame)))
        if not is_found.any():
            return details
        is_bound = ~is_found[:, None, None]
        middle, bounded = median_over_repeats(c[:, None, None], is_bound, "lower")
        what = "median c, at least" if bounded.any() else "median c"
        details.append(Detail(what, middle.item(), decimals=3))
        middle_empty = float(np.nanmedian(read_numbers(frame, "c_empty")))
        details.append(Detail("median c(empty)", middle_empty, decimals=3))
        gap = read_numbers(frame, "search_gap")
        if np.isfinite(gap).any():
            gap_or_more = np.where(np.isnan(gap), np.inf, gap)
            worse = gap_or_more[is_found]
            median = float(np.median(100 * worse))
            details.append(Detail("second best search is worse by, median %", median, decimals=1))
        lower = read_numbers(frame, "certified_c")
        certified = is_found & (lower > 0)
        if certified.any():
            width = float(np.median(c[certified] / lower[certified]))
            details.append(Detail("c over its certified lower bound, median", width, decimals=3))
        return details

    def figures(self, results: MetricResults) -> list[Figure | None]:
        """The distributions and the pictures."""
        words = words_of(self)
        rows = [self._draw_row(results, shown) for shown in results.gallery(SHOWN, _PICTURES)]
        note = words.say("pictures", describe_maps(results, rows))
        return [
            draw_distribution(results),
            Gallery("Least changes outside of the explanation", tuple(rows), note),
        ]

    def _draw_row(self, results: MetricResults, shown: StoredSample) -> GalleryRow:
        arrays = shown.arrays
        who = shown.who
        origin = np.asarray(arrays["origins"], dtype=float)
        changed = np.asarray(arrays["inputs"], dtype=float)
        fixed = np.asarray(arrays["mask"], dtype=int)
        pictures = (
            Picture("input", origin, f"Input, sample {shown.sample}"),
            Picture("its map", arrays["origin_maps"], f"Explanation: {who}", signed=True),
            Picture("fixed", origin, f"Fixed features: {who}", marks=fixed, colours=(FIXED,)),
            Picture(
                "least change",
                changed - origin,
                f"Least change found, scaled: {who}",
                signed=True,
                change=True,
            ),
            Picture("changed", changed, f"Changed input: {who}"),
        )
        text = words_of(self).say("row", shown.row)
        return make_row(results, shown, pictures, text, bool(shown.row.get("found")))


_PICTURES = ("origins", "origin_maps", "mask", "inputs")


def draw_sizes(results: MetricResults, caption: str) -> Chart | None:
    """The ratio against the size of the explanation (c-Eval, Fig. 9): the median over samples and the quartiles."""
    traces = [_trace(results, name) for name in results.present]
    lines = [line for line in traces if line is not None]
    title = "c(e) / c(empty) against the size of the explanation"
    words = Words(title, caption, "c-eval-plot", "How much the fixed features matter")
    ratio = Axis("c(e) / c(empty)", "higher", rules=(1.0,))
    return draw_lines(lines, results.explainers, Axis("share of features fixed"), ratio, words)


def _trace(results: MetricResults, explainer: str) -> Line | None:
    """The line of an explainer, of the samples for which c(empty) was found; None without any."""
    rows, arrays = stack_arrays(results, explainer, ("curve", "curve_found", "fractions"))
    empty = np.array([row["c_empty"] for row in rows], dtype=float)
    is_known = np.isfinite(empty)
    if not is_known.any():
        return None
    ratios = arrays["curve"][is_known] / empty[is_known, None]
    least = np.maximum(ratios, 1.0)
    most = np.where(arrays["curve_found"][is_known], least, np.inf)
    return make_median_line(explainer, arrays["fractions"][0], least, most)


@presentations.register("c_eval_plot")
class CEvalPlotPresentation(Presentation):
    """c-Eval over sizes of the explanation."""

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The median of the knees of the samples' curves, which not every curve has."""
        return describe_columns(frame, {"knee": "knee, median"}, middle=np.median)

    def figures(self, results: MetricResults) -> list[Chart | None]:
        """The plot, and the distribution of its means."""
        return [draw_sizes(results, words_of(self).say("sizes")), draw_distribution(results)]


@presentations.register("near_affinity")
class NearAffinityPresentation(Presentation):
    """Near-affinity: how far a decision surface is from a plane."""

    def figures(self, results: MetricResults) -> list[Chart | None]:
        """The estimate over c(empty) against the size, and the distribution of the deviations."""
        lines = []
        for name in results.present:
            rows, arrays = stack_arrays(results, name, ("estimate", "fractions"))
            empty = np.array([row["c_empty"] for row in rows], dtype=float)
            if np.isfinite(empty).any():
                shares = arrays["estimate"] / empty[:, None]
                finite = np.where(np.isfinite(shares), shares, np.nan)
                lines.append(make_median_line(name, arrays["fractions"][0], finite))
        title = "Estimated c(empty) over the one found"
        heading = "How far is the decision surface from a plane?"
        words = Words(title, words_of(self).say("sizes"), "near-affinity", heading)
        ratio = Axis("estimated c(empty) / c(empty)", rules=(1.0,))
        chart = draw_lines(lines, results.explainers, Axis("share of features fixed"), ratio, words)
        return [chart, draw_distribution(results)]
