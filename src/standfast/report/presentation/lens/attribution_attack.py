"""What a report shows of an attack on attributions: similarities of the maps, by window and number of positions.

The sets and their overlaps are those of Kamath, Mittal, Deshpande and Balasubramanian (AAAI 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import ExplainerTable, Figure, GalleryRow, TableCell
from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.drawing import draw_distribution, draw_example
from standfast.report.presentation.estimates import count_flag, make_cell
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.lens.curves import (
    count_positions,
    draw_curves,
    load_curves,
    overlap_by_chance,
)
from standfast.report.presentation.lens.pictures import draw_gallery
from standfast.report.words import words_of
from standfast.results import MetricResults
from standfast.similarity.chance import ROOM
from standfast.similarity.diverse import resolve_k
from standfast.similarity.stored import name_chance, name_first_similarity
from standfast.statistics.bootstrap import intervals_of_means
from standfast.tensors import Array
from standfast.value_spec import read_flags, read_numbers

_KEPT = ("kept", "kept_within_1", "kept_within_2")
#: the columns of the table after the similarities
_COLUMNS = (
    ("in place", "share of the top k"),
    ("within 1", "position"),
    ("within 2", "positions"),
    ("moved by 1", "share of what was lost"),
    ("moved by 1 or 2", "share of what was lost"),
)


@presentations.register("attribution_attack")
class AttributionAttackPresentation(Presentation):
    """Attacks on maps: similarities, curves by window and k, the maps."""

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """What does not count, and how much of the neighbourhood keeps the answer."""
        kept = read_flags(frame, "label_kept")
        missed = ~read_flags(frame, "found")
        flags = frame.with_columns(lost=~kept, still=kept & missed)
        return [
            *count_flag(flags, "lost", "class lost, so not counted"),
            *count_flag(flags, "still", "no other input found, counted as unchanged"),
            *count_kept_class(frame),
        ]

    def example(self, results: MetricResults) -> GalleryRow | None:
        """The map that the attack changed most."""
        return draw_example(self, results, name_first_similarity(results.options))

    def figures(self, results: MetricResults) -> list[Figure | None]:
        """The similarity over samples, all means, curves by window and k, and the pictures."""
        say = words_of(self).say
        loaded = {name: load_curves(results, name) for name in results.present}
        curves = {name: stored for name, stored in loaded.items() if stored is not None}
        shape = None
        if curves:
            shape = next(iter(curves.values())).shape
        captions = {name: say(name) for name in ("by_window", "by_k")}
        figures: list[Figure | None] = [draw_distribution(results)]
        figures.append(draw_means(results, shape, say("means")))
        if curves:
            figures += draw_curves(results, curves, captions)
        figures.append(draw_gallery(results, say))
        return figures


def shares_of_loss(means: Array) -> Array:
    """The shares of the lost top positions that moved by one position and by at most two, `(..., 2)`.

    With f_w = 1 - mean(kept within w positions), they are (f_0 - f_1) / f_0 and (f_0 - f_2) / f_0, ratios of means. NaN
    where nothing was lost.

    Args:
        means: of what is kept in place, within one position and within two, `(..., 3)`.

    >>> shares_of_loss(np.array([0.4, 0.7, 0.9])).round(2).tolist()
    [0.5, 0.83]
    """
    lost = 1 - means[..., :1]
    # anything smaller is rounding: a single position of a single sample is more
    is_lossy = lost > 1e-9
    moved = means[..., 1:] - means[..., :1]
    divisor = np.where(is_lossy, lost, 1.0)
    shares: Array = np.where(is_lossy, moved / divisor, np.nan)
    return shares


def per_sample(rows: pl.DataFrame, columns: Sequence[str]) -> Array:
    """The means of some columns over each sample's repeats, `(n, columns)`, of the rows where all are finite."""
    numbers = [read_numbers(rows, column) for column in columns]
    values: Array = np.stack(numbers, axis=1)
    fine = pl.Series(np.isfinite(values).all(axis=1))
    series = []
    for number, column in enumerate(values.T):
        series.append(pl.Series(str(number), column))
    of_samples = rows.select("sample").with_columns(series)
    means = of_samples.filter(fine).group_by("sample").mean()
    return means.sort("sample").drop("sample").to_numpy()


def draw_means(
    results: MetricResults, shape: tuple[int, ...] | None, caption: str
) -> ExplainerTable:
    """The mean of each similarity, and what became of the top positions; below, what two random sets would reach."""
    similarities = [str(name) for name in results.options.get("similarities") or ()]
    width = len(similarities) + len(_COLUMNS)
    rows = []
    for name in results.present:
        valid = results.spec.select_valid(results.rows_for(name))
        cells = [_show_similarity(valid, similarity) for similarity in similarities]
        cells += _show_kept(per_sample(valid, _KEPT))
        # cells that nothing is known for
        cells += [TableCell("–")] * (width - len(cells))
        rows.append((name, cells))
    if shape is not None:
        k = resolve_k(results.options.get("k"), count_positions(shape))
        empty = [TableCell("–")] * len(similarities)
        rows.append(("two random sets", [*empty, *_show_chance(shape, k)]))
    columns = [*((name, "mean") for name in similarities), *_COLUMNS]
    return ExplainerTable("Means, and what became of the top positions", columns, rows, caption)


def _show_chance(shape: tuple[int, ...], k: int) -> list[TableCell]:
    """What two random sets of k positions have in common, and where the others lie."""
    windows = (0, 1, 2)
    chance = np.array([overlap_by_chance(shape, k, w) for w in windows])
    shares = (*chance, *shares_of_loss(chance))
    return [make_cell(share, np.nan, np.nan, share=True) for share in shares]


def _show_kept(kept: Array) -> list[TableCell]:
    """The means of the shares that samples keep `(n, 3)`, and where the lost positions went; none without samples."""
    if not len(kept):
        return []
    shares = zip(*intervals_of_means(kept, shares_of_loss), strict=True)
    return [
        *(TableCell(f"{share:.0%}") for share in kept.mean(axis=0)),
        *(make_cell(*ends, share=True) for ends in shares),
    ]


def _show_similarity(rows: pl.DataFrame, name: str) -> TableCell:
    """The mean of a similarity, and the mean corrected for chance where chance levels are stored."""
    values = per_sample(rows, (name,))
    if not len(values):
        return TableCell("–")
    (mean,), (low,), (high,) = intervals_of_means(values)
    cell = make_cell(mean, low, high)
    paired = per_sample(rows, (name, name_chance(name)))
    if not len(paired):
        return cell
    if 1 - paired[:, 1].mean() < ROOM:
        return cell
    (mean,), (low,), (high,) = intervals_of_means(paired, _correct_means)
    above = make_cell(mean, low, high)
    small = f"{cell.small}\nabove chance {above.text} {above.small}"
    return TableCell(cell.text, small.strip())


def _correct_means(means: Array) -> Array:
    """Means corrected for chance `(..., 1)`, from means of the similarity and of its chance level `(..., 2)`."""
    values = means[..., :1]
    chances = means[..., 1:]
    return np.asarray((values - chances) / np.maximum(1 - chances, ROOM))
