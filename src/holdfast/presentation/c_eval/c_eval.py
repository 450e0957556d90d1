"""What a report shows of c-Eval: ratios, c against the size of an explanation, and the least changes found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from holdfast.algorithms.knees import find_knee
from holdfast.charts import Chart, Gallery, GalleryRow, Line, Picture, draw_lines
from holdfast.distributions import t_quantile
from holdfast.presentation.base import (
    Presentation,
    Reading,
    View,
    count_axes,
    draw_distribution,
    format_number,
    presentations,
    read_flags,
    read_numbers,
)
from holdfast.tensors import Array

SHOWN = 4
_PICTURES = ("origins", "origin_maps", "mask", "inputs")
_GAINED = 0.01  # the share by which the mean ratio must increase to count as a gain
_TINT, _MARK = np.array([0.90, 0.45, 0.0]), "#e67300"


@presentations.register("c_eval")
class CEvalPresentation(Presentation):
    """c-Eval: distributions, c against sizes, and the changed inputs."""

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """A larger ratio is better; where the class did not change it is a lower end."""
        size = f"{float(options.get('fraction', 0.1)):.0%}"
        caution = "An attack finds an upper bound of the true minimum. Ratios can be compared at equal size only."
        return Reading(
            f"c-Eval: least change that changes the class with the top {size} fixed, over that with no feature fixed",
            "c(e) / c(empty)",
            self.direction_of(options),
            2,
            censored="bound",
            censored_side="lower",
            caution=caution,
        )

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Medians, how many changes were not found, and how near certified bounds come."""
        c, empty, found = read_numbers(frame, "c"), read_numbers(frame, "c_empty"), read_flags(frame, "found")
        notes = []
        if found.any():
            middle = format_number(float(np.median(np.where(found, c, np.inf))), 3)  # without a change c is larger
            notes.append(f"median c {middle}, c(empty) {format_number(float(np.nanmedian(empty)), 3)}")
        if not found.all():
            notes.append(f"no change found: {int((~found).sum())} of {len(frame)}")
        lower = read_numbers(frame, "certified_c")
        certified = found & np.isfinite(lower) & (lower > 0)
        if certified.any():
            width = float(np.median((c / np.where(certified, lower, 1.0))[certified]))
            notes.append(f"certified: c is at most {format_number(width, 3)} times the true minimum (median)")
        return notes

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the terms of c-Eval mean."""
        return {
            "c-Eval": (
                "The features that an explanation puts first are held fixed, and an attack searches for the least "
                "change of all others that changes the class. The larger this change, the more the fixed features "
                "matter. Inputs differ, so the ratio to the least change with no feature fixed is compared; it is at "
                "least 1. `random` fixes as many features at random, `centre` the middle square. An explanation should "
                "be better than both."
            ),
            "Upper bound": (
                "Another attack may find a smaller change. Where an attack finds none, the value is a lower end and is "
                "marked as one: the true value may be any number from there up. Medians and their intervals allow for "
                "this."
            ),
            "Certified (`certify`)": (
                "A lower bound that holds for every possible change: the true minimum lies between it and c. Most of "
                "the gap is usually the looseness of the bound, but nothing more is proved."
            ),
            "Which features (`absolute`)": (
                "By default those with the largest *signed* attributions, so evidence against the class does not count."
            ),
        }

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether the features that a map puts first hold the class."""
        return "Do the features that the map puts first hold the class?"

    def verdict(self, view: View) -> str:
        """The median ratios, as how many times larger a change is needed."""
        size = f"{float(view.options.get('fraction', 0.1)):.0%} of the features"
        return self._word_verdict(view, f"With the {size} fixed that {{}} first")

    def _word_verdict(self, view: View, start: str) -> str:
        ranked = view.rank()
        if not ranked:
            return ""
        best, worst, chance = ranked[0], ranked[-1], view.refer()
        rest = "" if len(ranked) == 1 else f"; with those of {worst.who} {worst.text} times"
        rest += f"; with random ones {chance} times" if chance else ""
        return (
            f"{start.format(best.puts)}, changing the class takes a change {best.text} times as large as with none "
            f"fixed{rest} (medians)."
        )

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The two changes that are compared."""
        return {
            "c(e)": "the least change found that changes the class while the features of the explanation stay fixed",
            "c(empty)": "the least change found that changes the class, with no feature fixed",
        }

    def figures(self, view: View) -> list[Chart | Gallery]:
        """The distributions, the curves over sizes, and the pictures."""
        found: list[Chart | Gallery] = draw_distribution(
            view,
            1.0,
            "c(e) is the least change that changes the class while the top features are held fixed, c(empty) that with "
            "none fixed. Dotted: 1, where fixing them does not matter. An attack finds both, and another attack may "
            "find less.",
        )
        curves = draw_sweep(view)
        found += [] if curves is None else [curves]
        gallery = _gallery(view)
        return [*found, gallery] if gallery.rows else found


def draw_sweep(view: View) -> Chart | None:
    """c against size (c-Eval, Fig. 9): the median over samples and quartiles, the knee, and what settings gain."""
    curves = {name: curves_of(view, name) for name in view.present}
    curves = {name: (sizes, values) for name, (sizes, values) in curves.items() if len(values)}
    lines, knees = [], []
    for name, (sizes, values) in curves.items():
        low, middle, high = np.quantile(values, [0.25, 0.5, 0.75], axis=0)
        lines.append(Line(name, sizes, middle, low, high))
        place = find_knee(sizes.tolist(), middle.tolist())
        if place is not None:
            knees.append(f"{name} {sizes[place]:.0%}")
    caption = (
        "Line: median over samples. Band: the middle half of them. Dotted: 1, where fixing the features does not "
        "matter. Where no change was found, the largest distortion that was tried counts, so the true value may be "
        "larger."
    )
    if knees:
        caption += f" Knee, beyond which more features gain little: {', '.join(knees)}."
    caption += "".join(f" {sentence}" for sentence in compare_settings(curves))
    return draw_lines(
        lines,
        view.explainers,
        "c-Eval plot: c(e) / c(empty) against the size of the explanation",
        "share of features fixed",
        "c(e) / c(empty)",
        caption=caption,
        name="c-eval-plot",
        heading="How much the fixed features matter, by their number",
        level=1.0,
        direction="higher",
        markers=True,
    )


def curves_of(view: View, explainer: str) -> tuple[Array, Array]:
    """Sizes `(K,)` and ratios `(n, K)` of an explainer's samples; lower ends count like values."""
    sizes, ratios = np.empty(0), []
    for row, arrays in view.lines(explainer, ("curve", "fractions"), len(view.frame)):
        sizes = np.asarray(arrays["fractions"], dtype=float)
        ratios.append(np.maximum(np.asarray(arrays["curve"], dtype=float) / float(row["c_empty"]), 1.0))
    return sizes, np.array(ratios) if ratios else np.empty((0, 0))


def compare_settings(curves: Mapping[str, tuple[Array, Array]]) -> list[str]:
    """For explainers that differ in a number alone (`LIME 100`, `LIME 1000`): from which one on a larger gains nothing.

    The mean ratio over sizes of each setting is compared with that of the largest, on the same samples. Nothing is
    gained where the 95% interval of the mean difference (Student's t) does not lie wholly above 1% of the ratio.

    >>> flat = (np.array([0.1, 0.2, 0.3]), np.ones((8, 3)))
    >>> compare_settings({"LIME 10": (flat[0], 0.5 * flat[1]), "LIME 100": flat, "LIME 1000": flat})
    ['LIME: more than 100 gains nothing.']
    """
    families: dict[str, list[tuple[float, str]]] = {}
    for name in curves:
        match = re.search(r"(\d+(?:\.\d+)?)", name)
        if match:
            family = f"{name[: match.start()]}{name[match.end() :]}".strip(" :=_-")
            families.setdefault(family, []).append((float(match.group()), name))
    sentences = []
    for family, members in families.items():
        ordered = [(value, curves[name][1].mean(axis=1)) for value, name in sorted(members)]
        largest = ordered[-1][1]
        if len(ordered) < 2 or any(len(means) != len(largest) for _, means in ordered) or len(largest) < 2:
            continue
        enough = [
            value for value, means in ordered[:-1] if _lower_end(largest - means) <= _GAINED * float(largest.mean())
        ]
        text = f"more than {min(enough):g} gains nothing" if enough else f"{ordered[-1][0]:g} still gains"
        sentences.append(f"{family}: {text}.")
    return sentences


def _lower_end(differences: Array) -> float:
    """The lower end of the 95% interval for the mean."""
    error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    return float(differences.mean() - t_quantile(0.975, len(differences) - 1) * error)


def _gallery(view: View) -> Gallery:
    rows = [_row(view, *shown) for shown in view.gallery(SHOWN, _PICTURES)]
    note = (
        f"Each row is an explainer, for the same input. {view.describe_maps(count_axes(rows))} Orange: the features "
        "that are held fixed. The change is drawn as large as possible; the real change is often much fainter. Pale "
        "pictures: no change of the class was found."
    )
    return Gallery("Least changes outside of the explanation", tuple(rows), note)


def _row(view: View, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    origin, changed = np.asarray(arrays["origins"], dtype=float), np.asarray(arrays["inputs"], dtype=float)
    who = f"{explainer}, sample {sample}"
    pictures = (
        Picture("input", origin, f"Input, sample {sample}"),
        Picture("its map", arrays["origin_maps"], f"Explanation: {who}", signed=True),
        _draw_fixed(origin, arrays["mask"], view.bounds, f"Fixed features: {who}"),
        Picture("least change", changed - origin, f"Least change found, scaled: {who}", signed=True, change=True),
        Picture("changed", changed, f"Changed input: {who}"),
    )
    c, empty, ratio = (format_number(row.get(name), 3) for name in ("c", "c_empty", "ratio"))
    found = bool(row.get("found"))
    classes = f"class {row.get('targets')} → {row.get('predicted')}" if found else f"class {row.get('targets')}, kept"
    sign = "" if found else "at least "
    text = f"c {sign}{c}; c(empty) {empty}; ratio {sign}{ratio}; {classes}"
    lower = row.get("certified_c")
    if lower is not None and np.isfinite(lower):
        text += f"; certified: at least {format_number(lower, 3)}"
    return view.make_row(explainer, sample, pictures, text, found)


def _draw_fixed(x: Array, mask: Array, bounds: tuple[float, float], alt: str) -> Picture:
    """The input with its fixed places coloured: tinted in an image, marked in anything else."""
    mask = np.asarray(mask, dtype=bool)
    if x.ndim != 3:
        return Picture("fixed", x, alt, marks=mask.reshape(mask.shape[-x.ndim :]).astype(int), colours=(_MARK,))
    low, high = bounds if np.isfinite(bounds).all() else (float(x.min()), float(x.max()))
    span = (high - low) or 1.0
    colours = x if len(x) == 3 else x.mean(axis=0, keepdims=True).repeat(3, axis=0)
    share = np.clip((colours - low) / span, 0.0, 1.0)
    tinted = np.where(mask[None], 0.35 * share + 0.65 * _TINT[:, None, None], 0.75 * share)
    return Picture("fixed", np.asarray(low + span * tinted), alt)
