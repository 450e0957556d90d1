"""What a report shows of sensitivity consistency: rho against its null, and the sensitivities of the parts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Figure, Gallery, GalleryRow, Picture
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.drawing import draw_distribution, make_row
from standfast.report.presentation.estimates import count_flag, describe_columns, find_finite
from standfast.report.words import words_of
from standfast.results import MetricResults, StoredSample
from standfast.results.formatting import format_number
from standfast.statistics.pooling import pool_inputs
from standfast.tensors import Array
from standfast.value_spec import read_numbers

#: samples in a gallery
SHOWN = 4
_PICTURES = (
    "origins",
    "origin_maps",
    "segments",
    "prediction_sensitivity",
    "explanation_sensitivity",
)


class SencPresentation(Presentation):
    """What the presentations of both SenC metrics share."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The mean ends of the null's band, which has 95% of unrelated explanations; empty where it is not stored."""
        rows = results.spec.select_valid(results.frame)
        ends = [find_finite(rows, column) for column in ("null_low", "null_high")]
        if not all(map(len, ends)):
            return {}
        return {"rules": tuple(float(values.mean()) for values in ends)}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Samples beyond the null, agreement of the most sensitive parts, and the published estimator's rho."""
        p = find_finite(frame, "p_value")
        details = []
        if len(p):
            small = int((p < 0.05).sum())
            details.append(Detail("p < 0.05", small, len(p)))
        details += _pool(frame, options)
        means = {"top1": "top-1 agreement", "top3": "top-3 agreement"}
        if options.get("estimator") != "paper":
            means["rho_paper"] = "mean rho, published estimator"
        return [
            *details,
            *describe_columns(frame, means),
            *count_flag(frame, "grid_fallback", "grid, as no superpixels were found"),
        ]


@presentations.register("data_sensitivity_consistency")
class DataSencPresentation(SencPresentation):
    """Data SenC: rho against its null, and the sensitivities of segments drawn over the input."""

    def figures(self, view: MetricResults) -> list[Figure | None]:
        """The distribution with the null's band, and the sensitivities over the input."""
        rows = [_draw_row(view, shown) for shown in view.gallery(SHOWN, _PICTURES)]
        note = words_of(self).say("segments")
        return [draw_distribution(view), Gallery("Sensitive segments", tuple(rows), note)]


def _pool(frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
    """The p-value of all samples of the first repeat together; none where they share masks, and are not independent."""
    if "method" in frame.columns:
        share_masks = frame["method"].str.contains("masked weights")
        if share_masks.any():
            return []
    if "repeat" in frame.columns and len(frame):
        frame = frame.filter(pl.col("repeat") == frame["repeat"].min())
    draws = options.get("permutations")
    is_stored = {"value", "p_value"} <= set(frame.columns)
    if not isinstance(draws, int) or draws < 1 or not is_stored:
        return []
    pooled = pool_inputs(read_numbers(frame, "value"), read_numbers(frame, "p_value"), draws)
    if pooled.count <= 1:
        return []
    return [Detail(f"p of all {pooled.count} together", pooled.p_value, decimals=3)]


def _draw_row(view: MetricResults, shown: StoredSample) -> GalleryRow:
    row = shown.row
    arrays = shown.arrays
    who = shown.who
    published = view.options.get("estimator") == "paper"
    origin = np.asarray(arrays["origins"], dtype=float)
    sensitivity = {
        kind: lay_out(arrays[f"{kind}_sensitivity"], arrays["segments"], origin.shape, published)
        for kind in ("prediction", "explanation")
    }
    pictures = (
        Picture("input", origin, f"Input, sample {shown.sample}"),
        *(
            Picture(kind, values, f"Sensitivity of the {kind} to segments: {who}", signed=True)
            for kind, values in sensitivity.items()
        ),
        Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True),
    )
    parts = [describe_rho(row)]
    for name in ("top1", "top3", "features"):
        number = Detail(name, float(row.get(name, np.nan)))
        parts.append(number.text)
    return make_row(view, shown, pictures, "; ".join(parts))


def describe_rho(row: Mapping[str, Any]) -> str:
    """Rho of a sample with its interval, its p-value and the band of its null."""
    columns = ("value", "low", "high", "null_low", "null_high")
    numbers = [format_number(row.get(column)) for column in columns]
    rho, low, high, start, end = numbers
    p = format_number(row.get("p_value"), 3)
    return f"rho: {rho} [{low}, {high}]; p: {p}; null: {start} to {end}"


def lay_out(
    sensitivity: Array, segments: Array, shape: tuple[int, ...], published: bool = False
) -> Array:
    """Sensitivities `(m,)` of segments at the positions of an input of that shape: `(1, H, W)`, `(1, T)` or `(F,)`.

    The published sums are all large and positive, so their mean is subtracted.

    >>> lay_out(np.array([3.0, 1.0, np.nan]), np.array([0, 0, 1]), (3,)).tolist()
    [3.0, 3.0, 1.0]
    """
    values = np.asarray(sensitivity, dtype=float)
    if published:
        values = values - np.nanmean(values)
    laid: Array = values[np.asarray(segments)]
    if len(shape) == 1:
        return laid
    return laid[None]
