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
    distribution_figures,
)
from standfast.results.formatting import format_number
from standfast.results.presentation import MetricResults, presentations, read_numbers
from standfast.tensors import Array

_PREFIX = "rho_"
_PICTURES = ("origins", "prediction_sensitivity", "explanation_sensitivity")


@presentations.register("parameter_sensitivity_consistency")
class ParameterSencPresentation(SencPresentation):
    """Parameter SenC: rho against its null, by layer, and the channels of the first layer."""

    parts: ClassVar[str] = "channels of the model"

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution with the null's band, rho by layer, and the channels of the first layer."""
        found = distribution_figures(view)
        chart = _by_layer(view)
        gallery = _channels(view)
        return [*found, *([] if chart is None else [chart]), *([gallery] if gallery.rows else [])]

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The notes of both SenC metrics, and how the weights were masked."""
        notes = super().remarks(frame, options)
        if "method" in frame.columns:
            notes += [f"weights: {method}" for method in frame["method"].drop_nulls().unique().sort()]
        return notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the terms of both SenC metrics mean, and how layers are masked."""
        return {
            **super().guide(options),
            "Parameters": "A part is a group of weights of a layer: an output channel of a convolution, or an input "
            "feature of a linear layer. Rho is computed in each layer, then averaged. The first convolutions are the "
            "most informative. In linear layers with hundreds of inputs a single one hardly matters, and many masks "
            "are needed.",
            "Gated, or masked weights": "*Gated*: masked channels are switched off within one batch. This is exact for "
            "explainers that only run the model forward and backward. *Masked weights*: the weights themselves are set "
            "to zero, one mask after the other, for explainers with rules of their own. The two agree; the second is "
            "slow, and all samples share its masks.",
        }


def layers_of(frame: pl.DataFrame) -> list[str]:
    """The layers that a frame has columns of, in order."""
    return [c.removeprefix(_PREFIX) for c in frame.columns if c.startswith(_PREFIX) and c != "rho_paper"]


def _by_layer(view: MetricResults) -> Chart | None:
    """Mean rho of each explainer in each layer."""
    layers = layers_of(view.frame)
    values = np.full((len(view.present), len(layers)), np.nan)
    for i, name in enumerate(view.present):
        rows = view.spec.select_valid(view.rows_for(name))
        for j, layer in enumerate(layers):
            column = read_numbers(rows, _PREFIX + layer)
            column = column[np.isfinite(column)]
            if len(column):
                values[i, j] = column.mean()
    keep = np.isfinite(values).any(0)  # other models of the study have other layers
    own = [layer for layer, kept in zip(layers, keep, strict=True) if kept]
    caption = (
        "Mean rho over samples, in each layer. Blue: prediction and explanation are sensitive to the same channels. "
        "Orange: to the opposite ones. Pale: unrelated."
    )
    words = Words("Rho by layer", caption, "layers", "Consistency by layer")
    return draw_heat_map(view.present, own, values[:, keep], "mean rho", words)


def _channels(view: MetricResults) -> Gallery:
    layers = layers_of(view.frame)
    rows = [_row(view, *sample) for sample in view.gallery(SHOWN if layers else 0, _PICTURES)]
    note = (
        "A square for each channel of the first layer that was evaluated, row by row. “Prediction” is how sensitive "
        "the probability of the class is to each channel, “explanation” how sensitive the order of the attributions "
        "is. Red: it changes less while this channel is kept, so the channel is sensitive. Blue: it changes more. Each "
        "picture has its own scale."
    )
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
    pictures = (
        *shown,
        Picture(
            "prediction",
            sensitivity["prediction"],
            f"Sensitivity of the prediction to channels of {layer}, sample {sample}",
            signed=True,
        ),
        Picture(
            "explanation",
            sensitivity["explanation"],
            f"Sensitivity of the explanation to channels of {layer}: {who}",
            signed=True,
        ),
    )
    rho, low, high, null_low, null_high, own = (
        format_number(row.get(name)) for name in ("rho", "low", "high", "null_low", "null_high", _PREFIX + layer)
    )
    text = (
        f"{layer}: rho {own}; all layers: rho {rho} [{low}, {high}]; p {format_number(row.get('p_value'), 3)}; "
        f"null {null_low} to {null_high}"
    )
    return make_row(view, explainer, sample, pictures, text)


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
