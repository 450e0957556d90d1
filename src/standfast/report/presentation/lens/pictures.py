"""Pictures of an attack on attributions: the top positions before and after, drawn over the input."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from standfast.report.charts import Gallery, GalleryRow, Picture
from standfast.report.presentation.drawing import ALIGNED, describe_maps, make_row, show_change
from standfast.report.presentation.lens.curves import count_positions, name_position
from standfast.results import MetricResults, StoredSample
from standfast.similarity import dilate, per_position, top_k
from standfast.similarity.diverse import resolve_k
from standfast.tensors import Array

#: samples in a gallery
SHOWN = 4
#: the positions, those at most one away and those at most two: they differ in lightness
NEAR = ("#99000d", "#fb8d3c", "#fed98e")
#: kept and lost are blue and orange, which colour-blind readers can tell apart; new is black
KEPT, LOST, NEW = "#1f6fc4", "#f08a00", "#000000"
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


def draw_gallery(results: MetricResults, say: Callable[..., str]) -> Gallery:
    """The top positions of the first samples (Kamath et al. 2024, Fig. 3)."""
    rows = [_draw_row(results, shown, say) for shown in results.gallery(SHOWN, _PICTURES, ALIGNED)]
    are_moved_back = any(row.pictures[-1].moved_back for row in rows)
    note = say("pictures", describe_maps(results, rows), are_moved_back)
    return Gallery("Maps before and after the attack", tuple(rows), note)


def _draw_row(results: MetricResults, shown: StoredSample, say: Callable[..., str]) -> GalleryRow:
    who = shown.who
    origin = np.asarray(shown.arrays["origins"], dtype=float)
    before, after = sum_channels(results, shown.arrays)
    k = resolve_k(results.options.get("k"), count_positions(origin.shape))
    unit = results.position if results.texts else name_position(origin.shape)
    input_, its_map, *changed = show_change(shown)
    middle = [input_]
    if origin.ndim in (2, 3) or results.texts:
        top_before = top_k(before, k)
        top_after = top_k(after, k)
        around = mark_around(top_before)
        around_after = mark_around(top_after)
        overlap = mark_overlap(top_before, top_after)
        middle = [
            Picture("top k", origin, f"Top {unit}s before: {who}", marks=around, colours=NEAR),
            Picture(
                "overlap",
                origin,
                f"Kept, lost and new: {who}",
                marks=overlap,
                colours=(LOST, NEW, KEPT),
            ),
            Picture(
                "top k after",
                origin,
                f"Top {unit}s after: {who}",
                marks=around_after,
                colours=NEAR,
            ),
        ]
    text = say("row", shown.row, results.options, k, unit)
    pictures = (its_map, *middle, *changed)
    return make_row(results, shown, pictures, text, bool(shown.row.get("found")))


def sum_channels(results: MetricResults, arrays: dict[str, Array]) -> tuple[Tensor, Tensor]:
    """Both maps, at the positions of the input, with one value for each, `(1, ...)`, as the metric compares them."""
    # moved back where positions were moved; 0 where it is not seen
    last = arrays.get(ALIGNED[0], arrays["maps"])
    absolute = bool(results.options.get("absolute", True))
    return _sum_map(arrays["origin_maps"], absolute), _sum_map(last, absolute)


def _sum_map(values: Array, absolute: bool) -> Tensor:
    finite = np.nan_to_num(np.asarray(values))
    one_map = torch.as_tensor(finite)[None]
    if absolute:
        # features have no channels to add
        return per_position(one_map, "abs_sum").abs()
    return per_position(one_map, "sum")


def mark_around(chosen: Tensor) -> Array:
    """Marks of a set `(1, ...)`: 1 for its positions, 2 for those at most one away, 3 for two; 0 elsewhere."""
    reached = [dilate(chosen, w).int() for w in (0, 1, 2)]
    marks = torch.stack(reached).sum(dim=0)
    # the nearest has the lowest number
    numbers = torch.where(marks > 0, 4 - marks, 0)
    return np.asarray(numbers[0].numpy())


def mark_overlap(before: Tensor, after: Tensor) -> Array:
    """Marks of two sets `(1, ...)`: 1 for the first alone (lost), 2 for the second alone (new), 3 for both (kept)."""
    marks = before.int() + 2 * after.int()
    return np.asarray(marks[0].numpy())
