"""Pictures of an attack on attributions: the top positions before and after, drawn over the input."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.report.charts import Gallery, GalleryRow, Picture
from standfast.report.presentation.drawing import ALIGNED, MOVED_BACK, describe_maps, make_row, show_moved_back
from standfast.report.presentation.lens.words import name_similarity, positions_of, similarities_of, unit_of
from standfast.report.wording import describe_parameters
from standfast.results.formatting import format_number
from standfast.results.presentation import MetricResults
from standfast.similarity import dilate, lens_profile, per_position, top_k, top_k_diverse
from standfast.similarity.diverse import resolve_k
from standfast.tensors import Array

#: samples in a gallery
SHOWN = 4
#: the positions, those at most one away and those at most two: they differ in lightness
NEAR = ("#99000d", "#fb8d3c", "#fed98e")
#: kept and lost are blue and orange, which colour-blind readers can tell apart; new is black
KEPT, LOST, NEW = "#1f6fc4", "#f08a00", "#000000"
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


def draw_galleries(view: MetricResults) -> list[Gallery]:
    """The top positions (Fig. 3) and the diverse ones (Fig. 6) of the first samples; of flat inputs only the maps."""
    shown = list(view.gallery(SHOWN, _PICTURES, ALIGNED))
    if not shown:
        return []
    drawable = shown[0][3]["origins"].ndim in (2, 3)
    unit = unit_of(shown[0][3]["origins"].shape)
    top = Gallery(
        "Maps before and after the attack",
        tuple(_row(view, *sample) for sample in shown),
        (_note(view, unit) if drawable else f"{_describe_maps(view, unit)}{_PALE}")
        + (f" {MOVED_BACK.strip()}" if ALIGNED[0] in shown[0][3] else ""),
    )
    if not drawable:
        return [top]
    diverse = tuple(_diverse_row(view, *sample) for sample in shown)
    return [top, Gallery("Diverse positions before and after the attack", diverse, _diverse_note(unit))]


_PALE = "Pale pictures: the class was lost, or no other input was found."


def _describe_maps(view: MetricResults, unit: str) -> str:
    signs = "They are compared without signs. " if view.options.get("absolute", True) else ""
    return f"{describe_maps(view, {'feature': 1, 'step': 2}.get(unit, 3))} {signs}"


def _note(view: MetricResults, unit: str) -> str:
    return (
        f"Each row is an explainer, for the same input. “Top k” and “top k after”, over the input and the perturbed "
        f"input in grey: the k {unit}s with the largest attributions in dark red, {unit}s one away from them in "
        f"orange, and two away in pale yellow. “Overlap”: blue {unit}s are among the top k before and after (kept), "
        f"orange ones only before (lost), black ones only after (new). {_describe_maps(view, unit)}{_coarse(unit)}"
        f"{_PALE}"
    )


def _diverse_note(unit: str) -> str:
    return (
        f"In dark red the k {unit}s before and after, chosen so that none lies next to another (w = 1); in orange "
        f"{unit}s one away from them, in pale yellow two away. “Overlap”: blue {unit}s, before or after, have one of "
        f"the other set in place or next to them. Orange ones before have none (lost), and black ones after have none "
        f"(new). "
        f"{_coarse(unit)}{_PALE}"
    )


def _coarse(unit: str) -> str:
    return "Large images are drawn coarser, and with too many marks: a block shows the first of its marks. " * (
        unit == "pixel"
    )


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    who = f"{explainer}, sample {sample}"
    before, after = positions(view, arrays)
    origin, perturbed = (np.asarray(arrays[name], dtype=float) for name in ("origins", "inputs"))
    under = origin if ALIGNED[0] in arrays else perturbed  # what marks of a map moved back are drawn over
    unit = unit_of(origin.shape)
    k = resolve_k(view.options.get("k"), positions_of(origin.shape))
    first = Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True)
    last = Picture("its map now", arrays["maps"], f"Explanation of the perturbed input: {who}", signed=True)
    cover = ""
    middle: tuple[Picture, ...] = (
        Picture("input", origin, f"Input, sample {sample}"),
        Picture("perturbed", perturbed, f"Perturbed input: {who}"),
    )
    if origin.ndim in (2, 3):
        s, t = top_k(before, k), top_k(after, k)
        cover = f" (of windows that cover {_covered(t, 1)} and {_covered(t, 2)} of the map){_empty(s, before)}"
        marks = overlap(s & t, s & ~t, t & ~s)
        middle = (
            Picture("top k", origin, f"Top {k} {unit}s of the map over the input: {who}", False, around(s), NEAR),
            Picture("overlap", origin, f"Kept, lost and new {unit}s: {who}", False, marks, (LOST, NEW, KEPT)),
            Picture(
                "top k after",
                under,
                f"Top {k} {unit}s after the attack{_over(arrays)}: {who}",
                False,
                around(t),
                NEAR,
            ),
        )
    values = [f"{name_similarity(name)} {format_number(row.get(name), 3)}" for name in similarities_of(view.options)]
    kept, one, two = (_percent(row.get(name)) for name in ("kept", "kept_within_1", "kept_within_2"))
    text = (
        f"{'; '.join(values)}; of the top {k} {unit}s {kept} kept, {one} within one {unit}, {two} within two{cover}; "
        f"{_class(row)}"
    )
    parameters = describe_parameters(row, view.options, origin.shape)
    text += f"; {parameters}" if parameters else ""
    pictures = (first, *middle, last, *show_moved_back(arrays, who))
    return make_row(view, explainer, sample, pictures, text, bool(row.get("found")))


def _diverse_row(
    view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]
) -> GalleryRow:
    who = f"{explainer}, sample {sample}"
    before, after = positions(view, arrays)
    origin, perturbed = (np.asarray(arrays[name], dtype=float) for name in ("origins", "inputs"))
    under = origin if ALIGNED[0] in arrays else perturbed  # what marks of a map moved back are drawn over
    unit = unit_of(origin.shape)
    k = resolve_k(view.options.get("k"), positions_of(origin.shape))
    s, t = top_k_diverse(before, k, w=1), top_k_diverse(after, k, w=1)
    near_s, near_t = dilate(s, 1), dilate(t, 1)
    kept = overlap((s & near_t) | (t & near_s), s & ~near_t, t & ~near_s)
    pictures = (
        Picture("input", origin, f"Input, sample {sample}"),
        Picture("diverse", origin, f"Diverse top {unit}s of the map over the input: {who}", False, around(s), NEAR),
        Picture("overlap", origin, f"Diverse {unit}s found again, lost and new: {who}", False, kept, (LOST, NEW, KEPT)),
        Picture(
            "diverse after",
            under,
            f"Diverse top {unit}s after the attack{_over(arrays)}: {who}",
            False,
            around(t),
            NEAR,
        ),
        Picture("perturbed", perturbed, f"Perturbed input: {who}"),
    )
    found = lens_profile(before, after, (k,), (1, 2))
    assert found.intersection_diverse is not None
    assert found.precision_diverse is not None
    assert found.recall_diverse is not None
    shares = (
        f"{w}-LENS-prec-div {format_number(float(found.precision_diverse[0, 0, place]))}, "
        f"recall-div {format_number(float(found.recall_diverse[0, 0, place]))}"
        for place, w in enumerate(found.w)
    )
    sizes = f"{int(s.sum())} {unit}s before, {int(t.sum())} after{_empty(s, before)}"
    same = format_number(float(found.intersection_diverse[0, 0, 0]))
    cover = f"windows of one {unit} cover {_covered(t, 1)} of the map, of two {_covered(t, 2)}"
    text = f"{sizes}; top-k-div intersection {same}; {'; '.join(shares)}; {cover}; {_class(row)}"
    # a name of its own, since rows of pictures are found by explainer and sample
    return make_row(view, f"{explainer}, diverse", sample, pictures, text, bool(row.get("found")))


def _covered(chosen: Tensor, w: int) -> str:
    """The share of all positions that lie within w of a set: what a random set scores against it on average."""
    return f"{float(dilate(chosen, w).double().mean()):.0%}"


def _empty(chosen: Tensor, map_: Tensor) -> str:
    """A warning about chosen positions without any attribution."""
    count = int((chosen & (map_ == 0)).sum())
    return f"; {count} of those before have no attribution" if count else ""


def _over(arrays: dict[str, Array]) -> str:
    return ", moved back, over the input" if ALIGNED[0] in arrays else ", over the perturbed input"


def _percent(share: float | None) -> str:
    return f"{format_number(None if share is None else 100 * share, 0)}%"


def _class(row: dict[str, Any]) -> str:
    before, after = row.get("targets"), row.get("predicted")
    if not row.get("label_kept"):
        return f"class {before} → {after}, lost, so not counted"
    return f"class {before}, kept" + ("" if row.get("found") else "; no other input found, counted as unchanged")


def positions(view: MetricResults, arrays: dict[str, Array]) -> tuple[Tensor, Tensor]:
    """Both maps, at the positions of the input, with one value for each, `(1, ...)`, as the metric compares them."""
    last = arrays.get(ALIGNED[0], arrays["maps"])  # moved back where positions were moved; 0 where it is not seen
    maps = (torch.as_tensor(np.nan_to_num(np.asarray(values)))[None] for values in (arrays["origin_maps"], last))
    channels = "abs_sum" if view.options.get("absolute", True) else "sum"
    before, after = (per_position(each, channels) for each in maps)  # type: ignore[arg-type]
    if channels == "abs_sum":
        return before.abs(), after.abs()  # features have no channels to add
    return before, after


def around(chosen: Tensor) -> Array:
    """Marks of a set `(1, ...)`: 1 for its positions, 2 for those at most one away, 3 for two; 0 elsewhere."""
    marks = sum(dilate(chosen, w).int() for w in (0, 1, 2))
    assert isinstance(marks, Tensor)
    return np.asarray(torch.where(marks > 0, 4 - marks, 0)[0].numpy())


def overlap(kept: Tensor, lost: Tensor, new: Tensor) -> Array:
    """Marks of three sets `(1, ...)` without common positions: 1 for lost, 2 for new, 3 for kept; 0 elsewhere."""
    return np.asarray((lost.int() + 2 * new.int() + 3 * kept.int())[0].numpy())
