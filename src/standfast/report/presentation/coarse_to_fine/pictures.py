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
            found = results.load_sample(explainer, sample, _NAMES)
            if found is not None:
                rows.append(_draw_row(results, found, say))
    return Gallery("What is replaced first", tuple(rows), say("pictures", f"{SHARE:.0%}"))


def choose_samples(results: MetricResults) -> list[int]:
    """The samples with the smallest, the middle and the largest mean value over the explainers without controls."""
    rows = results.spec.select_valid(results.frame).filter(
        pl.col("explainer").is_in(results.candidates)
    )
    means = (
        rows.group_by("sample")
        .agg(pl.col(results.spec.column).mean())
        .sort(results.spec.column, "sample")
    )
    samples = means["sample"].to_list()
    return (
        list(dict.fromkeys([samples[0], samples[len(samples) // 2], samples[-1]]))
        if samples
        else []
    )


def _draw_row(results: MetricResults, shown: StoredSample, say: Callable[..., str]) -> GalleryRow:
    arrays, input_ = shown.arrays, shown.arrays["origins"]
    place = int(np.abs(arrays["fractions"] - SHARE).argmin())
    marked = (arrays["replaced_at"] > 0) & (arrays["replaced_at"] <= place + 1)
    drop = format_number(float(arrays["drop_top"][place]))
    spatial = input_.ndim >= 3 and input_.ndim == marked.ndim
    marks = np.asarray(marked.any(axis=0)) if spatial else np.broadcast_to(marked, input_.shape)
    words = f"The most relevant positions: {shown.who}"
    picture = Picture(f"drop {drop}", input_, words, marks=marks, colours=(MARKED,))
    text = say("row", shown.row, drop, int(marked.sum()), marked.size)
    return make_row(
        results, shown, (Picture("input", input_, f"Input, sample {shown.sample}"), picture), text
    )
