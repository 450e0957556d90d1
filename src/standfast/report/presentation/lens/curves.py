"""Curves of an attack on attributions: similarities by the window w and by the number of positions k."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from standfast.report.charts import Axis, Chart, Line, Words, draw_lines
from standfast.report.presentation.lens.words import overlap_by_chance, positions_of, unit_of
from standfast.results.presentation import MetricResults
from standfast.similarity.diverse import resolve_k
from standfast.statistics.bootstrap import intervals_of_means
from standfast.tensors import Array

#: samples behind the curves
TRACED = 1000
_WINDOWED = ("curve_precision", "curve_recall", "curve_precision_diverse", "curve_recall_diverse")
_ARRAYS = ("curve_intersection", *_WINDOWED, "curve_k", "curve_w", "origin_maps")


@dataclass(frozen=True)
class Curves:
    """The curves of one explainer's samples, of the first repeat.

    Attributes:
        k, w: of the curves, `(K,)` and `(W,)`.
        values: by name, `(n, K)` of the intersection, `(n, K, W)` of all others.
        shape: of one of the explained inputs.
    """

    k: Array
    w: Array
    values: Mapping[str, Array]
    shape: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.values["curve_intersection"])


def curves_of(view: MetricResults, explainer: str) -> Curves | None:
    """The stored curves of the samples that count; None where there are none."""
    kept: dict[str, list[Array]] = {name: [] for name in ("curve_intersection", *_WINDOWED)}
    k = w = np.empty(0)
    shape: tuple[int, ...] = ()
    for row, arrays in view.lines(explainer, _ARRAYS, TRACED):
        if row.get("label_kept") and all(np.isfinite(arrays[name]).all() for name in kept):
            k, w, shape = arrays["curve_k"], arrays["curve_w"], arrays["origin_maps"].shape
            for name, values in kept.items():
                values.append(arrays[name].astype(float))
    if not shape:
        return None
    return Curves(k, w, {name: np.array(values) for name, values in kept.items()}, shape)


def draw_by_window(view: MetricResults, curves: Mapping[str, Curves], shape: tuple[int, ...]) -> list[Chart | None]:
    """Means by window at the k nearest to the metric's own (Fig. 5), a chart for each quantity."""
    wanted, unit = resolve_k(view.options.get("k"), positions_of(shape)), unit_of(shape)
    charts = []
    for name in _WINDOWED:
        lines, k = [], 0
        for explainer, found in curves.items():
            place = int(np.abs(found.k - wanted).argmin())
            k = int(found.k[place])
            w, first = np.unique(found.w[found.w > 0], return_index=True)
            some = found.values[name][:, place][:, found.w > 0][:, first]
            every = np.concatenate([found.values["curve_intersection"][:, [place]], some], axis=1)
            lines.append(_line(explainer, np.concatenate([[0], w]), every))
        title, diverse = _quantity(name), name.endswith("diverse")
        rise = "the sets differ for each w" if diverse else "the rise from there is the part that was a shift"
        caption = (
            f"k = {k} of {positions_of(shape)} {unit}s. At w = 0 {title} is the top-k intersection; {rise}. "
            f"{_describe_lines(curves, lines)}"
        )
        axis = f"window w ({unit}s to each side)"
        file = name.replace("curve_", "windows-").replace("_", "-")
        words = Words(f"Mean {title} by window, k = {k}", caption, file, f"{title} by window")
        places = _list_places(lines)
        chance = [] if diverse else [overlap_by_chance(shape, k, place) for place in places]
        charts.append(_draw(view, [*lines, *_draw_chance(places, chance)], axis, f"mean {title}", words))
    return charts


def draw_by_k(view: MetricResults, curves: Mapping[str, Curves], shape: tuple[int, ...]) -> list[Chart | None]:
    """Means by k (Fig. 10): of the intersection, and of precision and recall for the smallest window above 0."""
    unit, windows = unit_of(shape), next(iter(curves.values())).w
    charts = []
    for name in ("curve_intersection", "curve_precision", "curve_recall"):
        if name != "curve_intersection" and not (windows > 0).any():
            continue
        lines, w, title = [], 0, "top-k intersection"
        for explainer, found in curves.items():
            values = found.values[name]
            if values.ndim == 3:
                w = int(found.w[found.w > 0].min())
                values, title = values[:, :, found.w.tolist().index(w)], f"{w}-{_quantity(name)}"
            k, first = np.unique(found.k, return_index=True)
            lines.append(_line(explainer, k, values[:, first]))
        heading = f"{title[:1].upper()}{title[1:]} by k"
        words = Words(f"Mean {title} by k", _describe_lines(curves, lines), name.replace("curve_", "k-"), heading)
        places = _list_places(lines)
        chance = [overlap_by_chance(shape, k, w) for k in places]
        axis = f"k (of {positions_of(shape)} {unit}s)"
        charts.append(_draw(view, [*lines, *_draw_chance(places, chance)], axis, f"mean {title}", words))
    return charts


def _line(name: str, x: Array, values: Array) -> Line:
    """The mean of values `(n, x)` with the band of its 95% interval, if there are samples for one."""
    mean, low, high = intervals_of_means(values)
    return Line(name, x, mean, low, high) if np.isfinite(low).all() else Line(name, x, mean)


def _describe_lines(curves: Mapping[str, Curves], lines: Sequence[Line]) -> str:
    banded = any(line.low is not None for line in lines)
    text = "Line: mean over samples" + ("; band: its 95% bootstrap interval." if banded else ".")
    cut = any(len(found) >= TRACED for found in curves.values())
    return f"{text} Of the first {TRACED} samples." if cut else text


def _quantity(name: str) -> str:
    """`curve_precision_diverse` as the axis calls it."""
    kind = "precision" if "precision" in name else "recall"
    return f"LENS-{kind}{'-div' if name.endswith('diverse') else ''}"


def _list_places(lines: Sequence[Line]) -> list[int]:
    return sorted({int(x) for line in lines for x in line.x})


def _draw_chance(places: Sequence[int], values: Sequence[float]) -> list[Line]:
    """The line of two sets that are drawn at random, if there are values."""
    x, y = np.array(places, dtype=float), np.array(values)
    return [Line("chance", x, y, reference="two sets drawn at random")] if len(y) else []


def _draw(view: MetricResults, lines: Sequence[Line], across: str, up: str, words: Words) -> Chart | None:
    """The same scale from 0 to 1 for all charts, with ticks at the points."""
    x, y = Axis(across, ticks=_list_places(lines)), Axis(up, "higher", domain=(0.0, 1.0))
    return draw_lines(lines, view.explainers, x, y, words)
