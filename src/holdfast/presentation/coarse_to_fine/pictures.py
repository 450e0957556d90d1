"""Pictures of samples with their most relevant positions marked, and what replacing these costs (Fig. 1)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from holdfast.charts import Gallery, GalleryRow, Picture
from holdfast.metrics.coarse_to_fine.shown import unshaded
from holdfast.presentation.base import View, format_number
from holdfast.presentation.coarse_to_fine.drops import is_random
from holdfast.presentation.coarse_to_fine.words import percent
from holdfast.statistics.paired import Array

#: of the positive positions, as in the paper's figure
SHARE = 0.15
#: the marked positions
MARKED = "#c4161c"
#: explainers beneath each other for each sample
_TRACED = 10_000
_NAMES = ("drop_top", "fractions", "shaded", "shade_range", "turn")


def galleries(view: View) -> list[Gallery]:
    """Of the samples with the largest, the middle and the smallest drop, by the mean over the explainers."""
    if "top" not in (view.options.get("order") or ()):
        return []
    chosen, place, k = _chosen(view)
    rows = []
    for sample in chosen:
        for explainer in view.present:
            shown = view.load_sample(explainer, sample, _NAMES)
            if shown is not None and shown[1]["shaded"].size:
                rows.append(_row(explainer, sample, *shown, place, k))
    if not rows:
        return []
    unit = _unit(rows[0].pictures[-1].array)
    note = (
        f"Samples with the largest, the middle and the smallest drop (mean over the explainers but random) when "
        f"{percent(k)} of the positions with positive relevance are replaced, the most relevant first. Red: these "
        f"{unit}."
    )
    return [Gallery(f"What is replaced first: the most relevant {percent(k)}", tuple(rows), note)]


def _chosen(view: View) -> tuple[list[int], int, float]:
    """Samples, the place of the share nearest to `SHARE` among all, and that share."""
    sums: dict[int, list[float]] = {}
    names = [name for name in view.present if not is_random(name)] or view.present
    place, k = 0, SHARE
    for explainer in names:
        for row, arrays in view.lines(explainer, _NAMES, _TRACED):
            place = int(np.abs(arrays["fractions"] - SHARE).argmin())
            k = float(arrays["fractions"][place])
            drop = float(arrays["drop_top"][place])
            if np.isfinite(drop) and arrays["shaded"].size:
                sums.setdefault(int(row["sample"]), []).append(drop)
    return (
        extremes({sample: float(np.mean(drops)) for sample, drops in sums.items() if len(drops) == len(names)}),
        place,
        k,
    )


def extremes(values: Mapping[int, float]) -> list[int]:
    """The samples with the largest, the middle and the smallest value; of equals the first.

    >>> extremes({0: 0.5, 1: 0.1, 2: 0.9, 3: 0.2}), extremes({4: 1.0}), extremes({})
    ([2, 3, 1], [4], [])
    """
    order = sorted(values, key=lambda sample: (-values[sample], sample))
    if not order:
        return []
    return list(dict.fromkeys([order[0], order[len(order) // 2], order[-1]]))


def _row(
    explainer: str, sample: int, row: Mapping[str, object], arrays: Mapping[str, Array], place: int, k: float
) -> GalleryRow:
    input_ = unshaded(arrays["shaded"], arrays["shade_range"])
    turn = arrays["turn"]
    marked = (turn > 0) & (turn <= place + 1)
    drop = float(arrays["drop_top"][place])
    said = f"drop {format_number(drop)}"
    who = f"{explainer}, sample {sample}"
    count = int(marked.sum())
    alt = f"The {count} most relevant of {int((turn > 0).sum())} positive positions: {who}, {said}"
    last = format_number(float(arrays["drop_top"][-1]))
    until = percent(float(arrays["fractions"][-1]))
    text = f"{said} with {count} of {turn.size} positions replaced, {last} at k = {until}"
    if row.get("no_positive"):
        text = "no positive relevance, so nothing is replaced and the drop is 0"
    picture = Picture(said, input_, alt, marks=_marks(marked, input_), colours=(MARKED,))
    if input_.ndim == 3:
        return GalleryRow(explainer, sample, (Picture("input", input_, f"Input, sample {sample}"), picture), text)
    return GalleryRow(explainer, sample, (picture,), text)


def _marks(marked: Array, input_: Array) -> Array:
    """Of pixels where any channel is marked; of series and features of the entries themselves."""
    if input_.ndim == 3:
        return np.asarray(marked.any(axis=0) if marked.ndim == 3 else marked, dtype=int)
    return np.asarray(np.broadcast_to(marked, input_.shape), dtype=int)


def _unit(array: Array) -> str:
    return {1: "features", 2: "points, on the lines of the channels", 3: "pixels"}.get(array.ndim, "positions")
