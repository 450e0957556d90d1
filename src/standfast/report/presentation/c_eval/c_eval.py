"""What a report shows of c-Eval: ratios, c against the size of an explanation, and the least changes found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.algorithms.knees import find_knee
from standfast.report.charts import Axis, Chart, Gallery, GalleryRow, Line, Picture, Words, draw_lines
from standfast.report.presentation.drawing import count_axes, describe_maps, draw_distribution, make_row
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)
from standfast.statistics.distributions import t_quantile
from standfast.statistics.paired import median_over_repeats
from standfast.tensors import Array

SHOWN = 4
_PICTURES = ("origins", "origin_maps", "mask", "inputs")
_GAINED = 0.01  # the share by which the mean ratio must increase to count as a gain
_TINT, _MARK = np.array([0.90, 0.45, 0.0]), "#e67300"


#: which samples have no value
NO_CHANGE = "for which no change of the class was found"


@presentations.register("c_eval")
class CEvalPresentation(Presentation):
    """c-Eval: distributions, c against sizes, and the changed inputs."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """A larger ratio is better; where the class did not change it is a lower bound."""
        size = f"{float(options.get('fraction', 0.1)):.0%}"
        caution = "An attack finds an upper bound of the true minimum. Ratios can be compared at equal size only."
        return ValueSpec(
            f"c-Eval: least change that changes the class with the top {size} fixed, over that with no feature fixed",
            "c(e) / c(empty)",
            self.direction_of(options),
            2,
            censored="bound",
            censored_side="lower",
            caution=caution,
            empty=NO_CHANGE,
        )

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """Medians, how many changes were not found, and how near certified bounds come."""
        c, empty, found = read_numbers(frame, "c"), read_numbers(frame, "c_empty"), read_flags(frame, "found")
        notes = []
        if found.any():
            middle, bounded = median_over_repeats(c[:, None, None], ~found[:, None, None], "lower")
            sign = "at least " if bounded.any() else ""
            texts = [format_number(float(value), 3) for value in (middle.item(), np.nanmedian(empty))]
            notes.append(f"median c {sign}{texts[0]}, c(empty) {texts[1]}")
        if not found.all():
            notes.append(f"no change found: {int((~found).sum())} of {len(frame)}; their ratios are bounds")
        gap = read_numbers(frame, "search_gap") if "search_gap" in frame.columns else np.full(len(frame), np.nan)
        if np.isfinite(gap).any():
            middle_gap = float(np.median(np.where(np.isnan(gap), np.inf, gap)[found]))
            words = f"is {middle_gap:.1%} worse" if np.isfinite(middle_gap) else "found no change"
            notes.append(f"the second best search {words} (median)")
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
                "Another attack may find a smaller change. Where an attack finds none, nothing is known but that the "
                "value is at least that with fewer features fixed. It is marked as a bound: the true value may be any "
                "number from there up. Medians and their intervals allow for this."
            ),
            "Interval of a sample": (
                "It says how far below the change that was found the true minimum may be, judged from how far apart "
                "the two best separate searches are (Robson and Whitlock 1964). It is evidence, not proof: all "
                "searches may miss the same smaller change. Each end holds with 95%. Attacks with a single search have "
                "none."
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

    def verdict(self, view: MetricResults) -> str:
        """The median ratios, as how many times larger a change is needed."""
        size = f"{float(view.options.get('fraction', 0.1)):.0%} of the features"
        return self._word_verdict(view, f"With the {size} fixed that {{}} first")

    def _word_verdict(self, view: MetricResults, start: str) -> str:
        ranked = view.rank()
        if not ranked:
            return ""
        best, worst, chance = ranked[0], ranked[-1], view.random_reference()
        rest = "" if len(ranked) == 1 else f"; with those of {worst.who} {worst.text} times"
        rest += f"; with random ones {chance} times" if chance else ""
        return (
            f"{start.format(best.puts)}, changing the class takes a change {best.text} times as large as with none "
            f"fixed{rest}{view.name_medians()}."
        )

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The two changes that are compared."""
        return {
            "c(e)": "the least change found that changes the class while the features of the explanation stay fixed",
            "c(empty)": "the least change found that changes the class, with no feature fixed",
        }

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
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


def draw_sweep(view: MetricResults) -> Chart | None:
    """c against size (c-Eval, Fig. 9): the median over samples and quartiles, the knee, and what settings gain."""
    curves = {name: curves_of(view, name) for name in view.present}
    curves = {name: curve for name, curve in curves.items() if len(curve[1])}
    lines, knees = [], []
    for name, (sizes, values, found) in curves.items():
        # a line ends where its median is no longer a number; the band's upper end may be unknown before that
        least, quartiles = _find_quartiles(values), _find_quartiles(np.where(found, values, np.inf))
        known = np.isfinite(quartiles[1]) & (quartiles[1] == least[1])
        if not known.any():
            continue
        sizes, (low, middle, high) = sizes[known], quartiles[:, known]
        low = np.minimum(low, least[0, known])
        lines.append(Line(name, sizes, middle, low, np.where(np.isfinite(high), high, middle)))
        place = find_knee(sizes.tolist(), middle.tolist())
        if place is not None:
            knees.append(f"{name} {sizes[place]:.0%}")
    caption = (
        "Line: median over samples. Band: the middle half of them. Dotted: 1, where fixing the features does not "
        "matter. A line ends where so many searches found no change that its median is not known. The band has no "
        "upper half where that quartile is not known. Both changes are the smallest that a search found, so a true "
        "ratio may be larger or smaller."
    )
    if knees:
        caption += f" Knee, beyond which more features gain little: {', '.join(knees)}."
    caption += "".join(f" {sentence}" for sentence in compare_settings(curves))
    title = "c-Eval plot: c(e) / c(empty) against the size of the explanation"
    words = Words(title, caption, "c-eval-plot", "How much the fixed features matter, by their number")
    ratio = Axis("c(e) / c(empty)", "higher", rules=(1.0,))
    return draw_lines(lines, view.explainers, Axis("share of features fixed"), ratio, words)


#: sizes `(K,)`, ratios `(n, K)` of an explainer's samples, and which of these are values and not bounds, bool `(n, K)`
Curve = tuple[Array, Array, Array]


def curves_of(view: MetricResults, explainer: str) -> Curve:
    """The curves of an explainer's samples, without those for which no c(empty) was found."""
    sizes, ratios, found = np.empty(0), [], []
    for row, arrays in view.lines(explainer, ("curve", "curve_found", "fractions"), len(view.frame)):
        sizes = np.asarray(arrays["fractions"], dtype=float)
        empty = row["c_empty"]
        if empty is None or not np.isfinite(empty):
            continue
        ratios.append(np.maximum(np.asarray(arrays["curve"], dtype=float) / float(empty), 1.0))
        found.append(np.asarray(arrays["curve_found"], dtype=bool))
    none = np.empty((0, 0))
    return sizes, np.array(ratios) if ratios else none, np.array(found) if found else none.astype(bool)


def compare_settings(curves: Mapping[str, Curve]) -> list[str]:
    """For explainers that differ in a number alone (`LIME 100`, `LIME 1000`): from which one on a larger gains nothing.

    The mean ratio of each setting is compared with that of the largest, on the same samples. The mean is over the sizes
    at which a change was found for every setting and sample, since bounds have no mean. Nothing is gained where the 95%
    interval of the mean difference (Student's t) does not lie wholly above 1% of the ratio.

    >>> flat = (np.array([0.1, 0.2, 0.3]), np.ones((8, 3)), np.ones((8, 3), dtype=bool))
    >>> compare_settings({"LIME 10": (flat[0], 0.5 * flat[1], flat[2]), "LIME 100": flat, "LIME 1000": flat})
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
        known = np.logical_and.reduce([curves[name][2].all(axis=0) for _, name in members])
        if not known.any():
            continue
        ordered = [(value, curves[name][1][:, known].mean(axis=1)) for value, name in sorted(members)]
        largest = ordered[-1][1]
        if len(ordered) < 2 or any(len(means) != len(largest) for _, means in ordered) or len(largest) < 2:
            continue
        enough = [
            value for value, means in ordered[:-1] if _lower_end(largest - means) <= _GAINED * float(largest.mean())
        ]
        text = f"more than {min(enough):g} gains nothing" if enough else f"{ordered[-1][0]:g} still gains"
        sentences.append(f"{family}: {text}.")
    return sentences


def _find_quartiles(values: Array) -> Array:
    """The quartiles `(3, K)` of the columns of `values` `(n, K)`, which may be infinite.

    `np.quantile` is NaN where the value after an exact quartile is infinite.

    >>> _find_quartiles(np.array([[1.0], [2.0], [np.inf]]))[:, 0].tolist()
    [1.5, 2.0, inf]
    """
    ordered, place = np.sort(values, axis=0), np.array([0.25, 0.5, 0.75]) * (len(values) - 1)
    before, after = ordered[np.floor(place).astype(int)], ordered[np.ceil(place).astype(int)]
    with np.errstate(invalid="ignore"):  # of two infinite values, which the next line leaves out
        between = before + (after - before) * (place % 1)[:, None]
    return np.asarray(np.where(before == after, before, between))


def _lower_end(differences: Array) -> float:
    """The lower end of the 95% interval for the mean."""
    error = float(differences.std(ddof=1)) / np.sqrt(len(differences))
    return float(differences.mean() - t_quantile(0.975, len(differences) - 1) * error)


def _gallery(view: MetricResults) -> Gallery:
    rows = [_row(view, *shown) for shown in view.gallery(SHOWN, _PICTURES)]
    note = (
        f"Each row is an explainer, for the same input. {describe_maps(view, count_axes(rows))} Orange: the features "
        "that are held fixed. The change is drawn as large as possible; the real change is often much fainter. Pale "
        "pictures: no change of the class was found."
    )
    return Gallery("Least changes outside of the explanation", tuple(rows), note)


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
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
    low = row.get("c_low")
    if found and low:
        text += f"; the true minimum is probably at least {format_number(low, 3)}"
    lower = row.get("certified_c")
    if lower is not None and np.isfinite(lower):
        text += f"; certified: at least {format_number(lower, 3)}"
    return make_row(view, explainer, sample, pictures, text, found)


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
