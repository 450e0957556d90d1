"""What a report shows of sensitivity consistency: rho against its null, and the sensitivities of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import polars as pl

from standfast.report.charts import Chart, Gallery, GalleryRow, Picture
from standfast.report.presentation.drawing import draw_distribution, make_row
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    RankedGroup,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)
from standfast.statistics.pooling import pool_inputs
from standfast.tensors import Array

#: samples in a gallery
SHOWN = 4
_PICTURES = ("origins", "origin_maps", "segments", "prediction_sensitivity", "explanation_sensitivity")


class SencPresentation(Presentation):
    """What the presentations of both SenC metrics share."""

    #: what is switched off at random, in words
    parts: ClassVar[str]

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """Rho; higher is more consistent."""
        published = options.get("estimator") == "paper"
        title = f"Sensitivity consistency of prediction and explanation over {self.parts}"
        caution = "The published estimator mostly counts how often a part was kept." if published else ""
        return ValueSpec(
            title,
            "rho (published estimator)" if published else "rho",
            self.direction_of(options),
            3,
            caution=caution,
            good="more consistent",
        )

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether prediction and map depend on the same parts."""
        return f"Do prediction and map depend on the same {self.parts}?"

    def verdict(self, view: MetricResults) -> str:
        """On how many samples the agreement is beyond chance."""
        ranked = view.rank(partial(_measure_agreeing, view), "higher")
        if not ranked:
            return self.contrast(view)
        best, worst = ranked[0], ranked[-1]
        rest = "" if len(ranked) == 1 else f", for {worst.who} on {worst.text.partition(' of ')[0]}"
        return (
            f"They agree beyond chance (p < 0.05) for {best.who} on {best.text} samples{rest}; by chance alone 1 "
            "sample in 20 would."
        )

    def leader(self, view: MetricResults) -> tuple[RankedGroup | None, str]:
        """By the count of samples of the verdict, unless it is the same for all."""
        ranked = view.rank(partial(_measure_agreeing, view), "higher")
        return (ranked[0], "count") if len(ranked) > 1 else super().leader(view)

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What rho and its null are."""
        return {
            "rho": "rank correlation between what the prediction and what the map depends on: 1 the same order, 0 none",
            "null": "the values of rho that chance alone gives",
        }

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Samples beyond the null, agreement of the most sensitive parts, and the published estimator's rho."""
        notes = []
        p = read_numbers(frame, "p_value")
        p = p[np.isfinite(p)]
        if len(p):
            notes.append(
                f"p < 0.05: {int((p < 0.05).sum())} of {len(p)} ({format_number(100 * float((p < 0.05).mean()), 0)}%)"
            )
        notes += _pool(frame, options)
        for column, title in (("top1", "top-1 agreement"), ("top3", "top-3 agreement")):
            notes += _mean(frame, column, title)
        if options.get("estimator") != "paper":
            notes += _mean(frame, "rho_paper", "published estimator (not comparable), mean rho")
        fallback = int(read_flags(frame, "grid_fallback").sum())
        return [*notes, f"no superpixels found, so a grid is used: {fallback}"] if fallback else notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the terms of both SenC metrics mean."""
        published = (
            "`estimator = paper`, as here, adds the weights of the masks that kept a part, as published. *This sum is "
            "biased*. It counts how often each part was kept by chance. Prediction and explanation share this count, "
            "so unrelated weights reach a rho of 0.7 to 0.96; and weights that agree perfectly can have a rho near 0, "
            "or below. Compare with the null."
        )
        centred = (
            "`estimator = centred`: the means of weights and masks are subtracted, so that unrelated weights have a "
            "rho around 0. The published sum (`estimator = paper`, column `rho_paper`) does not subtract them. It is "
            "*biased*, upwards or downwards: unrelated weights reach a rho of 0.7 to 0.96, and weights that agree "
            "perfectly can have one near 0. See docs/senc-bias.md."
        )
        return {
            "Sensitivity consistency (rho)": "Random parts are switched off many times. The prediction is sensitive to "
            "a part if the probability of the class is kept while the part is kept, and changes while it is off. The "
            "explanation is sensitive to a part if the same holds for the ranking of the attributions. Rho is "
            "Spearman's correlation of the two over parts: 1 if both are sensitive to the same parts in the same "
            "order, 0 if they are unrelated. It does not say that the explanation shows those parts.",
            "Estimator": published if options.get("estimator") == "paper" else centred,
            "Null, p": "The null is rho when the changes of the explanation are assigned to the masks at random. The "
            "band has 95% of it. It is wide, as there are few parts, so a rho within the band says little about a "
            "single sample. p is the share of the null at or above rho; about 5% of samples are below 0.05 by chance.",
            "All samples together": "One p-value from those of all samples (Stouffer's test): small if rho is "
            "higher than chance gives, over all samples. "
            "It is not corrected for the number of explainers. It says that prediction and map are related, which is "
            "true of a copy of the input as well. Compare with the controls.",
            "Top-1 and top-3 agreement": "Share of the one, or three, most sensitive parts that prediction and "
            "explanation have in common.",
        }


@presentations.register("data_sensitivity_consistency")
class DataSencPresentation(SencPresentation):
    """Data SenC: rho against its null, and the sensitivities of segments drawn over the input."""

    parts: ClassVar[str] = "parts of the input"

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution with the null's band, and the sensitivities over the input."""
        rows = [_row(view, *sample) for sample in view.gallery(SHOWN, _PICTURES)]
        if not rows:
            return distribution_figures(view)
        note = (
            "Each row is an explainer, for the same input. “Prediction” is how sensitive the probability of the class "
            "is to each segment, “explanation” how sensitive the order of the attributions is. Red: it changes less "
            "while this segment is kept, so the segment is sensitive. Blue: it changes more. Each picture has its own "
            "scale. The picture of the prediction is the same in all rows of an input, except for the draw of masks."
        )
        return [*distribution_figures(view), Gallery("Sensitive segments", tuple(rows), note)]


def _pool(frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
    """What all samples of the first repeat say together; where they share their masks, they are not independent."""
    if "method" in frame.columns and frame["method"].str.contains("masked weights").any():
        return ["all samples share their masks, so there is no test of them together"]
    if "repeat" in frame.columns and len(frame):
        frame = frame.filter(pl.col("repeat") == frame["repeat"].min())
    draws = options.get("permutations")
    if not isinstance(draws, int) or draws < 1 or not {"rho", "p_value"} <= set(frame.columns):
        return []
    found = pool_inputs(read_numbers(frame, "rho"), read_numbers(frame, "p_value"), draws)
    if found.count < 2:
        return []
    p = "p < 0.001" if found.p_value < 0.001 else f"p = {format_number(found.p_value, 3)}"
    return [f"all {found.count} together: {p}"]


def _mean(frame: pl.DataFrame, column: str, title: str) -> list[str]:
    values = read_numbers(frame, column)
    values = values[np.isfinite(values)]
    return [f"{title}: {format_number(float(values.mean()))}"] if len(values) else []


def distribution_figures(view: MetricResults) -> list[Chart | Gallery]:
    """The distribution of rho over samples, with the band of the null."""
    low, high = (_null(view, column) for column in ("null_low", "null_high"))
    note = (
        "Rho of 1: prediction and explanation are sensitive to the same parts, in the same order. It does not say that "
        "the explanation shows those parts."
    )
    if low is None or high is None:
        return draw_distribution(view, note=note)
    ends = f"{format_number(low)} to {format_number(high)}"
    note += f" Shaded: where 95% of unrelated explanations lie ({ends}); a sample in there shows nothing."
    return draw_distribution(view, note=note, band=(low, high))


def _null(view: MetricResults, column: str) -> float | None:
    values = np.concatenate(
        [np.empty(0), *(read_numbers(view.spec.select_valid(view.rows_for(n)), column) for n in view.present)]
    )
    values = values[np.isfinite(values)]
    return float(values.mean()) if len(values) else None


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    who = f"{explainer}, sample {sample}"
    published = view.options.get("estimator") == "paper"
    sensitivity = {
        kind: lay_out(arrays[f"{kind}_sensitivity"], arrays["segments"], arrays["origins"].shape, published)
        for kind in ("prediction", "explanation")
    }
    pictures = (
        Picture("input", np.asarray(arrays["origins"], dtype=float), f"Input, sample {sample}"),
        Picture(
            "prediction",
            sensitivity["prediction"],
            f"Sensitivity of the prediction, sample {sample}",
            signed=True,
        ),
        Picture(
            "explanation",
            sensitivity["explanation"],
            f"Sensitivity of the explanation: {who}",
            signed=True,
        ),
        Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True),
    )
    rho, low, high, null_low, null_high, top3 = (
        format_number(row.get(name)) for name in ("rho", "low", "high", "null_low", "null_high", "top3")
    )
    text = (
        f"rho {rho} [{low}, {high}]; p {format_number(row.get('p_value'), 3)}; null {null_low} to {null_high}; "
        f"top-1 {format_number(row.get('top1'), 0)}, top-3 {top3}; {row.get('features')} segments"
    )
    return make_row(view, explainer, sample, pictures, text)


def lay_out(sensitivity: Array, segments: Array, shape: tuple[int, ...], published: bool = False) -> Array:
    """Sensitivities `(m,)` of segments at the positions of an input of that shape: `(1, H, W)`, `(1, T)` or `(F,)`.

    The published sums are all large and positive, so their mean is subtracted.

    >>> lay_out(np.array([3.0, 1.0, np.nan]), np.array([0, 0, 1]), (3,)).tolist()
    [3.0, 3.0, 1.0]
    """
    values = np.asarray(sensitivity, dtype=float)
    if published:
        values = values - np.nanmean(values)
    laid: Array = values[np.asarray(segments)]
    return laid if len(shape) == 1 else laid[None]


def _measure_agreeing(view: MetricResults, rows: pl.DataFrame) -> tuple[float, str] | None:
    """On which share of an explainer's samples the agreement is beyond chance."""
    p = read_numbers(view.spec.select_valid(rows), "p_value")
    p = p[np.isfinite(p)]
    return (float((p < 0.05).mean()), f"{int((p < 0.05).sum())} of {len(p)}") if len(p) else None
