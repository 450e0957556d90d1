"""Curves of an attack on attributions: the sets before and after, by window and by number of positions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from standfast.report.charts import Axis, Chart, Line, Words, draw_lines
from standfast.report.presentation.estimates import make_mean_line, stack_arrays
from standfast.results import MetricResults
from standfast.similarity.diverse import resolve_k
from standfast.tensors import Array

#: the stored curves by window, with their titles
_WINDOWED = {
    "curve_precision": "LENS-precision",
    "curve_recall": "LENS-recall",
    "curve_precision_diverse": "LENS-precision-div",
}
_ARRAYS = ("curve_intersection", *_WINDOWED, "curve_k", "curve_w", "origin_maps")


@dataclass(frozen=True)
class ProfileCurves:
    """The curves of one explainer's samples, of the first repeat.

    Attributes:
        k: numbers of positions `(K,)`.
        w: windows `(W,)`; the first is 0, where all curves are the top-k intersection.
        values: by name, `(n, K, W)`.
        shape: of one of the explained inputs.
    """

    k: Array
    w: Array
    values: Mapping[str, Array]
    shape: tuple[int, ...]


def load_curves(results: MetricResults, explainer: str) -> ProfileCurves | None:
    """The stored curves of the samples that count; None where there are none."""
    rows, arrays = stack_arrays(results, explainer, _ARRAYS)
    labels_kept = [bool(row.get("label_kept")) for row in rows]
    kept = np.array(labels_kept)
    if not kept.any():
        return None
    w = arrays["curve_w"][0]
    windows, columns = np.unique(w[w > 0], return_index=True)
    without_window = arrays["curve_intersection"][kept, :, None]
    values = {}
    for name in _WINDOWED:
        all_windows = arrays[name][kept]
        with_windows = all_windows[:, :, w > 0][:, :, columns]
        both = np.concatenate([without_window, with_windows], axis=2)
        values[name] = both.astype(float)
    shape = arrays["origin_maps"].shape[1:]
    w_from_none = np.array([0, *windows])
    return ProfileCurves(arrays["curve_k"][0], w_from_none, values, shape)


def draw_curves(
    results: MetricResults, curves: Mapping[str, ProfileCurves], captions: Mapping[str, str]
) -> list[Chart | None]:
    """Means by window at the metric's own k (Kamath et al. 2024, Fig. 5), and by k at the two least windows (Fig. 10).

    Features have no order, so they have no windows.

    Args:
        results: of the attack.
        curves: by explainer; at least one.
        captions: of the charts `"by_window"` and `"by_k"`.
    """
    shape = next(iter(curves.values())).shape
    has_order = len(shape) > 1
    charts: list[Chart | None] = []
    if has_order:
        charts += _draw_by_window(results, curves, captions["by_window"])
    windows = 2 if has_order else 1
    charts += _draw_by_k(results, curves, captions["by_k"], windows)
    return charts


def _draw_by_window(
    results: MetricResults, curves: Mapping[str, ProfileCurves], caption: str
) -> Iterator[Chart | None]:
    """A chart for each similarity with windows, at the number of positions that is nearest to the metric's own."""
    first = next(iter(curves.values()))
    own_k = resolve_k(results.options.get("k"), count_positions(first.shape))
    row = int(np.abs(first.k - own_k).argmin())
    k = int(first.k[row])
    across = f"window w ({name_position(first.shape)}s to each side)"
    for name, title in _WINDOWED.items():
        lines = [
            make_mean_line(explainer, stored.w, stored.values[name][:, row])
            for explainer, stored in curves.items()
        ]
        chance: list[float] = []
        if not name.endswith("diverse"):
            chance = [overlap_by_chance(first.shape, k, int(w)) for w in first.w]
        heading = f"{title}, k = {k}, by window"
        words = Words(f"Mean {title} by window, k = {k}", caption, name, heading)
        yield _draw(results, lines, across, title, chance, words)


def _draw_by_k(
    results: MetricResults, curves: Mapping[str, ProfileCurves], caption: str, windows: int
) -> Iterator[Chart | None]:
    """A chart for each of the least windows."""
    first = next(iter(curves.values()))
    order = np.argsort(first.k)
    position = name_position(first.shape)
    across = f"k (of {count_positions(first.shape)} {position}s)"
    for column, w in enumerate(first.w[:windows].tolist()):
        title = f"{w}-LENS-precision" if w else "Top-k intersection"
        lines = []
        for explainer, stored in curves.items():
            values = stored.values["curve_precision"][:, order, column]
            lines.append(make_mean_line(explainer, stored.k[order], values))
        chance = []
        for count in first.k[order]:
            chance.append(overlap_by_chance(first.shape, int(count), w))
        heading = f"{title} by k"
        words = Words(f"Mean {heading}", caption, f"k-{w}", heading)
        yield _draw(results, lines, across, title, chance, words)


def _draw(
    results: MetricResults,
    lines: list[Line],
    across: str,
    title: str,
    chance: list[float],
    words: Words,
) -> Chart | None:
    """Lines on a scale from 0 to 1 with ticks at their points, and a line of `chance`."""
    if chance:
        by_chance = Line("two sets drawn at random", lines[0].x, np.array(chance))
        lines = [*lines, by_chance]
    along = Axis(across, ticks=lines[0].x.tolist())
    up = Axis(title, "higher", domain=(0.0, 1.0))
    return draw_lines(lines, results.explainers, along, up, words)


def count_positions(shape: tuple[int, ...]) -> int:
    """How many positions maps of inputs of that shape have: pixels, steps of a series, or features.

    >>> count_positions((3, 28, 28)), count_positions((2, 30)), count_positions((9,))
    (784, 30, 9)
    """
    return math.prod(shape[1:] or shape)


def name_position(shape: tuple[int, ...]) -> str:
    """What a position of inputs of that shape is."""
    return {1: "feature", 2: "step", 3: "pixel"}.get(len(shape), "position")


def overlap_by_chance(shape: tuple[int, ...], k: int, w: int) -> float:
    """The mean LENS-precision, and recall, of two unrelated maps, whose top k are two sets drawn at random.

    A window with n positions, cut off at the border, has none of the k drawn from P with probability
    C(P - n, k) / C(P, k). This is averaged over all positions; for w = 0 the result is k / P.

    >>> [round(overlap_by_chance((1, 28, 28), 78, w), 4) for w in (0, 1)]
    [0.0995, 0.592]
    """
    total = count_positions(shape)
    members = np.ones(1, dtype=int)
    for side in shape[1:] or shape:
        position = np.arange(side)
        last = np.minimum(position + w, side - 1)
        first = np.maximum(position - w, 0)
        members = np.outer(members, last - first + 1).ravel()
    sizes, how_often = np.unique(members, return_counts=True)
    # the logarithm of the probability that a window of n positions has none of the k
    none = []
    for n in sizes:
        if n <= total - k:
            in_a_draw = -n / (total - np.arange(k))
            none.append(np.log1p(in_a_draw).sum())
        else:
            # there are fewer positions outside the window than are drawn
            none.append(-np.inf)
    expected = (np.exp(none) * how_often).sum() / total
    return float(1 - expected)
