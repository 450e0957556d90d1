"""What a report shows of parameter SenC: rho by layer, and channels of the first layer (Tan 2025, Fig. 3, S6)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl

from standfast.report.charts import Chart, Gallery, GalleryRow, Picture, Words, draw_heat_map
from standfast.report.presentation.drawing import make_row
from standfast.report.presentation.senc.data_sensitivity_consistency import (
    SHOWN,
    SencPresentation,
    describe_rho,
    distribution_figures,
    finite_numbers,
    picture_sensitivities,
)
from standfast.report.words import words_of
from standfast.results.presentation import Detail, MetricResults, presentations
from standfast.tensors import Array

_PREFIX = "rho_"
_PICTURES = ("origins", "prediction_sensitivity", "explanation_sensitivity")


@presentations.register("parameter_sensitivity_consistency")
class ParameterSencPresentation(SencPresentation):
    """Parameter SenC: rho against its null, by layer, and the channels of the first layer."""

    parts: ClassVar[str] = "channels of the model"

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution with the null's band, rho by layer, and the channels of the first layer."""
        words, found = words_of(self), distribution_figures(self, view)
        chart, gallery = _by_layer(view, words.say("layers")), _channels(view, words.say("channels"))
        return [*found, *([] if chart is None else [chart]), *([gallery] if gallery.rows else [])]

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Those of both SenC metrics, and how many samples share masked weights."""
        found = super().details(frame, options)
        if "method" in frame.columns:
            masked = frame.filter(pl.col("method").str.contains("masked weights"))
            found += [Detail("by masked weights", len(masked), len(frame))] if len(masked) else []
        return found


def layers_of(frame: pl.DataFrame) -> list[str]:
    """The layers that a frame has columns of, in order."""
    return [c.removeprefix(_PREFIX) for c in frame.columns if c.startswith(_PREFIX) and c != "rho_paper"]


def _by_layer(view: MetricResults, caption: str) -> Chart | None:
    """Mean rho of each explainer in each layer."""
    layers = layers_of(view.frame)
    values = np.full((len(view.present), len(layers)), np.nan)
    for i, name in enumerate(view.present):
        rows = view.spec.select_valid(view.rows_for(name))
        for j, layer in enumerate(layers):
            column = finite_numbers(rows, _PREFIX + layer)
            if len(column):
                values[i, j] = column.mean()
    keep = np.isfinite(values).any(0)  # other models of the study have other layers
    own = [layer for layer, kept in zip(layers, keep, strict=True) if kept]
    words = Words("Rho by layer", caption, "layers", "Consistency by layer")
    return draw_heat_map(view.present, own, values[:, keep], "mean rho", words)


def _channels(view: MetricResults, note: str) -> Gallery:
    rows = [_row(view, *sample) for sample in view.gallery(SHOWN if layers_of(view.frame) else 0, _PICTURES)]
    return Gallery("Sensitive channels of the first layer", tuple(rows), note)


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    published = view.options.get("estimator") == "paper"
    sensitivity = {
        kind: arrange_squares(arrays[f"{kind}_sensitivity"][0], published) for kind in ("prediction", "explanation")
    }
    layer = next((n for n in layers_of(view.frame) if row.get(_PREFIX + n) is not None), "?")
    who = f"{explainer}, sample {sample}"
    origin = np.asarray(arrays["origins"], dtype=float)
    shown = (Picture("input", origin, f"Input, sample {sample}"),) if origin.ndim == 3 else ()
    pictures = (*shown, *picture_sensitivities(sensitivity, f"channels of {layer}", who))
    own = Detail(f"rho of {layer}", float(row.get(_PREFIX + layer, np.nan))).text
    return make_row(view, explainer, sample, pictures, f"{own}; all layers: {describe_rho(row)}")


def arrange_squares(sensitivity: Array, published: bool = False) -> Array:
    """Sensitivities `(m,)`, NaN beyond the layer's own, as an image `(1, h, w)` of nearly square shape, filled by rows.

    The published sums are all large and positive, so their mean is subtracted.

    >>> arrange_squares(np.array([1.0, -2.0, 3.0, np.nan])).tolist()
    [[[1.0, -2.0], [3.0, 0.0]]]
    """
    values = np.asarray(sensitivity, dtype=float)
    values = values[np.isfinite(values)]
    if published and len(values):
        values = values - values.mean()
    wide = max(1, math.ceil(math.sqrt(len(values))))
    image = np.zeros((max(1, math.ceil(len(values) / wide)), wide))
    image.reshape(-1)[: len(values)] = values
    return image[None]
