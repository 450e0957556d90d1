"""Pictures of samples with their most relevant positions marked, and the drop when these are replaced (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from standfast.metrics.coarse_to_fine.corruption_curve import restore_input
from standfast.report.charts import Gallery, GalleryRow, Picture
from standfast.report.presentation.coarse_to_fine.drops import MOST_SAMPLES
from standfast.report.presentation.coarse_to_fine.words import format_share
from standfast.report.presentation.drawing import make_row
from standfast.results.controls import is_random
from standfast.results.formatting import format_number
from standfast.results.presentation import MetricResults
from standfast.tensors import Array

#: the share of the positive positions that is marked, as in the paper's figure
SHARE = 0.15
#: the colour of the marked positions
MARKED = "#c4161c"
_NAMES = ("drop_top", "fractions", "shades", "shade_range", "replaced_at")


def draw_galleries(view: MetricResults) -> list[Gallery]:
    """Draw the samples with the largest, the middle and the smallest drop, by the mean over the explainers."""
    if "top" not in (view.options.get("order") or ()):
        return []
    chosen, place, k = _choose_samples(view)
    rows = []
    for sample in chosen:
        for explainer in view.present:
            found = view.load_sample(explainer, sample, _NAMES)
            if found is not None and found[1]["shades"].size:
                rows.append(_draw_row(view, explainer, sample, *found, place, k))
    if not rows:
        return []
    unit = _name_unit(rows[0].pictures[-1].array)
    note = (
        f"Red: the {unit} that are replaced first, the most relevant {format_share(k)} of those with positive "
        "relevance. The drop is the lost share of the class's probability. Shown are the samples with the largest, the "
        "middle and the smallest drop (mean over all explainers except random)."
    )
    return [Gallery(f"What is replaced first: the most relevant {format_share(k)}", tuple(rows), note)]


def _choose_samples(view: MetricResults) -> tuple[list[int], int, float]:
    """Samples, the index of the share nearest to `SHARE`, and that share."""
    sums: dict[int, list[float]] = {}
    names = [name for name in view.present if not is_random(name)] or view.present
    place, k = 0, SHARE
    for explainer in names:
        for row, arrays in view.lines(explainer, _NAMES, MOST_SAMPLES):
            place = int(np.abs(arrays["fractions"] - SHARE).argmin())
            k = float(arrays["fractions"][place])
            drop = float(arrays["drop_top"][place])
            if np.isfinite(drop) and arrays["shades"].size:
                sums.setdefault(int(row["sample"]), []).append(drop)
    return (
        find_extremes({sample: float(np.mean(drops)) for sample, drops in sums.items() if len(drops) == len(names)}),
        place,
        k,
    )


def find_extremes(values: Mapping[int, float]) -> list[int]:
    """The samples with the largest, the middle and the smallest value; the first one of equals.

    >>> find_extremes({0: 0.5, 1: 0.1, 2: 0.9, 3: 0.2}), find_extremes({4: 1.0}), find_extremes({})
    ([2, 3, 1], [4], [])
    """
    order = sorted(values, key=lambda sample: (-values[sample], sample))
    if not order:
        return []
    return list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]]))


def _draw_row(
    view: MetricResults,
    explainer: str,
    sample: int,
    row: Mapping[str, object],
    arrays: Mapping[str, Array],
    place: int,
    k: float,
) -> GalleryRow:
    input_ = restore_input(arrays["shades"], arrays["shade_range"])
    replaced_at = arrays["replaced_at"]
    marked = (replaced_at > 0) & (replaced_at <= place + 1)
    drop = float(arrays["drop_top"][place])
    drop_text = f"drop {format_number(drop)}"
    who = f"{explainer}, sample {sample}"
    count = int(marked.sum())
    alt = f"The {count} most relevant of {int((replaced_at > 0).sum())} positive positions: {who}, {drop_text}"
    last = format_number(float(arrays["drop_top"][-1]))
    until = format_share(float(arrays["fractions"][-1]))
    text = f"{drop_text} with {count} of {replaced_at.size} positions replaced, {last} at k = {until}"
    if row.get("no_positive"):
        text = "no positive relevance: nothing is replaced, and the drop is 0"
    picture = Picture(drop_text, input_, alt, marks=_make_marks(marked, input_), colours=(MARKED,))
    if input_.ndim != 2:
        return make_row(view, explainer, sample, (Picture("input", input_, f"Input, sample {sample}"), picture), text)
    return make_row(view, explainer, sample, (picture,), text)


def _make_marks(marked: Array, input_: Array) -> Array:
    """Mark a pixel if any of its channels is marked; of series and features mark the entries."""
    if input_.ndim == 3:
        return np.asarray(marked.any(axis=0) if marked.ndim == 3 else marked, dtype=int)
    return np.asarray(np.broadcast_to(marked, input_.shape), dtype=int)


def _name_unit(array: Array) -> str:
    return {1: "features", 2: "points of time", 3: "pixels"}.get(array.ndim, "positions")
