"""Pictures of samples with their most relevant positions marked, and the drop when these are replaced (Fig. 1)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl

from standfast.report.charts import Gallery, GalleryRow, Picture
from standfast.report.presentation.drawing import make_row
from standfast.results import MetricResults, StoredSample, format_number

#: the share of the positive positions that is marked, as in the paper's figure
SHARE = 0.15
#: the colour of the marked positions
MARKED = "#c4161c"
_NAMES = ("drop_top", "fractions", "origins", "replaced_at")


def draw_gallery(results: MetricResults, say: Callable[..., str]) -> Gallery:
    """Draw the samples with the smallest, the middle and the largest value, by the mean over the explainers."""
    rows = []
    for sample in choose_samples(results):
        for explainer in results.present:
            shown = results.load_sample(explainer, sample, _NAMES)
            if shown is not None:
                rows.append(_draw_row(results, shown, say))
    return Gallery("What is replaced first", tuple(rows), say("pictures", f"{SHARE:.0%}"))


def choose_samples(results: MetricResults) -> list[int]:
    """The samples with the smallest, the middle and the largest mean value over the explainers without controls."""
    valid = results.spec.select_valid(results.frame)
    rows = valid.filter(pl.col("explainer").is_in(results.candidates))
    value = pl.col(results.spec.column).mean()
    means = rows.group_by("sample").agg(value).sort(results.spec.column, "sample")
    samples = means["sample"].to_list()
    if not samples:
        return []
    middle = samples[len(samples) // 2]
    return list(dict.fromkeys([samples[0], middle, samples[-1]]))


def _draw_row(results: MetricResults, shown: StoredSample, say: Callable[..., str]) -> GalleryRow:
    arrays = shown.arrays
    input_ = arrays["origins"]
    step = int(np.abs(arrays["fractions"] - SHARE).argmin())
    replaced_at = arrays["replaced_at"]
    marked = (replaced_at > 0) & (replaced_at <= step + 1)
    drop = format_number(float(arrays["drop_top"][step]))
    spatial = input_.ndim >= 3 and input_.ndim == marked.ndim
    if spatial:
        marks = np.asarray(marked.any(axis=0))
    else:
        marks = np.broadcast_to(marked, input_.shape)
    words = f"The most relevant positions: {shown.who}"
    pictures = (
        Picture("input", input_, f"Input, sample {shown.sample}"),
        Picture(f"drop {drop}", input_, words, marks=marks, colours=(MARKED,)),
    )
    text = say("row", shown.row, drop, int(marked.sum()), marked.size)
    return make_row(results, shown, pictures, text)
