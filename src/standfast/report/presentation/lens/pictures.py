"""Pictures of an attack on attributions: the top positions before and after, drawn over the input."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.report.charts import Gallery, GalleryRow, Picture
from standfast.report.presentation.drawing import ALIGNED, describe_maps, make_row, read_swaps, show_moved_back
from standfast.report.presentation.lens.curves import count_positions, name_position
from standfast.results import MetricResults
from standfast.similarity import dilate, per_position, top_k, top_k_diverse
from standfast.similarity.diverse import resolve_k
from standfast.tensors import Array

#: samples in a gallery
SHOWN = 4
#: the positions, those at most one away and those at most two: they differ in lightness
NEAR = ("#99000d", "#fb8d3c", "#fed98e")
#: kept and lost are blue and orange, which colour-blind readers can tell apart; new is black
KEPT, LOST, NEW = "#1f6fc4", "#f08a00", "#000000"
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


def draw_galleries(results: MetricResults, say: Callable[..., str]) -> list[Gallery]:
    """The top positions of the first samples (Kamath et al. 2024, Fig. 3), and the diverse ones (Fig. 6)."""
    shown = list(results.gallery(SHOWN, _PICTURES, ALIGNED))
    if not shown:
        return []
    axes = shown[0][3]["origins"].ndim
    found = []
    for diverse in (False, True) if axes in (2, 3) else (False,):
        rows = tuple(_draw_row(results, *sample, diverse, say) for sample in shown)
        note = say("pictures", describe_maps(results, axes), diverse, ALIGNED[0] in shown[0][3])
        found.append(Gallery("Diverse positions" if diverse else "Maps before and after the attack", rows, note))
    return found


def _draw_row(
    results: MetricResults,
    explainer: str,
    sample: int,
    row: dict[str, Any],
    arrays: dict[str, Array],
    diverse: bool,
    say: Callable[..., str],
) -> GalleryRow:
    who, new = f"{explainer}, sample {sample}", read_swaps(row)
    origin, perturbed = (np.asarray(arrays[name], dtype=float) for name in ("origins", "inputs"))
    before, after = sum_channels(results, arrays)
    k, unit = resolve_k(results.options.get("k"), count_positions(origin.shape)), name_position(origin.shape)
    middle: tuple[Picture, ...] = (Picture("input", origin, f"Input, sample {sample}"),)
    if origin.ndim in (2, 3):
        w = 1 if diverse else 0
        s, t = (top_k_diverse(each, k, w=w) if diverse else top_k(each, k) for each in (before, after))
        marks = mark_overlap(s, t, w)
        middle = (
            Picture("top k", origin, f"Top {unit}s before: {who}", marks=mark_around(s), colours=NEAR),
            Picture("overlap", origin, f"Kept, lost and new: {who}", marks=marks, colours=(LOST, NEW, KEPT)),
            Picture("top k after", origin, f"Top {unit}s after: {who}", marks=mark_around(t), colours=NEAR),
        )
    pictures = (
        Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True),
        *middle,
        Picture("changed", perturbed, f"Perturbed input: {who}", swapped=new),
        Picture("its map now", arrays["maps"], f"Explanation of the perturbed input: {who}", True, swapped=new),
        *show_moved_back(arrays, who),
    )
    # a name of its own, since rows of pictures are found by explainer and sample
    name = f"{explainer}, diverse" if diverse else explainer
    return make_row(
        results, name, sample, pictures, say("row", row, results.options, k, unit, diverse), bool(row.get("found"))
    )


def sum_channels(results: MetricResults, arrays: dict[str, Array]) -> tuple[Tensor, Tensor]:
    """Both maps, at the positions of the input, with one value for each, `(1, ...)`, as the metric compares them."""
    last = arrays.get(ALIGNED[0], arrays["maps"])  # moved back where positions were moved; 0 where it is not seen
    maps = (torch.as_tensor(np.nan_to_num(np.asarray(values)))[None] for values in (arrays["origin_maps"], last))
    if results.options.get("absolute", True):
        before, after = (per_position(each, "abs_sum").abs() for each in maps)  # features have no channels to add
    else:
        before, after = (per_position(each, "sum") for each in maps)
    return before, after


def mark_around(chosen: Tensor) -> Array:
    """Marks of a set `(1, ...)`: 1 for its positions, 2 for those at most one away, 3 for two; 0 elsewhere."""
    marks = torch.stack([dilate(chosen, w).int() for w in (0, 1, 2)]).sum(dim=0)
    return np.asarray(torch.where(marks > 0, 4 - marks, 0)[0].numpy())


def mark_overlap(before: Tensor, after: Tensor, w: int) -> Array:
    """Marks of two sets `(1, ...)`: 1 for what has none of the other set within `w` before (lost), 2 for that after
    (new), 3 for the rest of both (kept); 0 elsewhere.
    """
    lost, new = before & ~dilate(after, w), after & ~dilate(before, w)
    kept = (before | after) & ~lost & ~new
    return np.asarray((lost.int() + 2 * new.int() + 3 * kept.int())[0].numpy())
