"""What a report shows of the worst case: the values, the convergence of the search, the inputs that were found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.report.charts import Axis, Chart, Figure, Gallery, GalleryRow, Line, Picture, Words, draw_lines
from standfast.report.presentation.drawing import (
    ALIGNED,
    MOVED_BACK,
    count_axes,
    describe_maps,
    draw_distribution,
    draw_example,
    make_row,
    show_change,
)
from standfast.report.presentation.estimates import find_finite
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.safari.terms import describe_event, find_threshold, name_similarity
from standfast.report.wording import describe_parameters
from standfast.report.words import Options, words_of
from standfast.results.formatting import format_count
from standfast.results.presentation import (
    Detail,
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
)
from standfast.tensors import Array

#: samples in a gallery, and samples behind a line
SHOWN, TRACED = 4, 100
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


@presentations.register("worst_case")
class WorstCasePresentation(Presentation):
    """The worst case: the values, the convergence of the search, the inputs that were found."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The event decides which direction is robust; explainers are not ranked by misclassification."""
        event, direction = options.get("event"), self.direction_of(options)
        if event == "misclassification":
            return ValueSpec(
                "Largest margin found, towards another class", "margin towards another class", direction, 2
            )
        axis = f"similarity ({options.get('similarity', '?')})"
        if event == "changed_class":
            title = "Most similar explanation found after the class has changed"
            caution = "Only samples whose class could be changed count."
            empty = "for which no change of the class was found"
            return ValueSpec(
                title, axis, direction, 3, only=("found",), caution=caution, good="more robust", empty=empty
            )
        title, empty = "Least similar explanation found while the class is kept", "for which no input keeps the class"
        same = 1.0 if larger_is_closer(options) else 0.0
        return ValueSpec(title, axis, direction, 3, only=("found",), good="more robust", empty=empty, same=same)

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The event, and which explainers met a weaker search."""
        return {**describe_event(results.options), "without_gradients": _searched_without_gradients(results)}

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How often the event was found, and the largest sensitivities if they were tracked."""
        event, found = options.get("event"), count_kept_class(frame)
        hit, total = count_samples(frame, "found")
        if event != "changed_explanation":
            found.append(Detail("class changed", hit, total))
        elif "found" in frame.columns and hit < total:  # the clean input may be outside of the neighbourhood
            found.append(Detail("no input that keeps the class", total - hit, total))
        if event != "misclassification" and (measured := _count_misinterpreted(frame))[1]:
            found.append(Detail("misinterpreted", *measured))
        for column, label in (
            ("gap", "stated gap (an estimate)"),
            ("sens_max", "largest distance"),
            ("sens_lips", "largest slope"),
        ):
            values = find_finite(frame, column)
            found += [Detail(label, float(np.median(values)), decimals=None)] if len(values) else []
        return found

    def example(self, view: MetricResults) -> GalleryRow | None:
        """The least similar map of an input that kept its class; for the other events nothing."""
        if view.options.get("event") != "changed_explanation":
            return None
        return draw_example(self, view, name_similarity(view.options))

    def figures(self, view: MetricResults) -> list[Figure | None]:
        """The distribution, the search's convergence, and the pictures."""
        sentences, facts = words_of(self), {**self.facts(view), "options": Options(view.options)}
        distribution = draw_distribution(view, find_limit(view.options), note=sentences.say("limit", facts))
        return [distribution, _convergence(view, sentences.say("convergence", facts)), _gallery(view)]


def _searched_without_gradients(view: MetricResults) -> list[str]:
    """The explainers that the search `auto` met without gradients, where it met others with them; no controls."""
    search = view.options.get("search")
    name = search.get("name") if isinstance(search, Mapping) else search
    if name != "auto" or "followed_gradients" not in view.frame.columns:
        return []
    followed = {name: bool(read_flags(view.rows_for(name), "followed_gradients").any()) for name in view.candidates}
    without = [name for name, gradients in followed.items() if not gradients]
    return without if len(without) < len(followed) else []


def count_samples(rows: pl.DataFrame, column: str) -> tuple[int, int]:
    """On how many samples a flag is true in any repeat, and how many samples there are.

    >>> count_samples(pl.DataFrame({"sample": [0, 0, 1], "found": [False, True, False]}), "found")
    (1, 2)
    """
    if not len(rows) or column not in rows.columns:
        return 0, len(rows["sample"].unique()) if "sample" in rows.columns else 0
    flags = rows.group_by("sample").agg(pl.col(column).cast(pl.Boolean).fill_null(False).any())
    return int(flags[column].sum()), len(flags)


def _count_misinterpreted(rows: pl.DataFrame) -> tuple[int, int]:
    """On how many samples the event was reached, of those where the search found an input with the asked class."""
    counted = rows.filter(read_flags(rows, "found")) if "found" in rows.columns else rows
    return count_samples(counted, "misinterpreted")


def find_limit(options: Mapping[str, Any]) -> float | None:
    """Where the event begins on the axis of the values."""
    return 0.0 if options.get("event") == "misclassification" else find_threshold(options)


def _convergence(view: MetricResults, caption: str) -> Chart | None:
    """The best so far against evaluations: median over samples and quartiles (SAFARI, Fig. 2)."""
    lines = []
    for name in view.present:
        grid, samples = _on_one_grid(view, name)
        seen = np.isfinite(samples).any(axis=0) if samples.size else np.zeros(0, dtype=bool)
        if seen.any():
            low, middle, high = np.nanquantile(samples[:, seen], [0.25, 0.5, 0.75], axis=0)
            lines.append(Line(name, grid[seen], middle, low, high))
    title = f"Convergence of the search, {view.spec.title}"
    words = Words(title, caption, "convergence", "Was the budget of the search large enough?")
    worst = Axis(f"{view.spec.axis}, worst so far")
    return draw_lines(lines, view.explainers, Axis("model evaluations per sample"), worst, words)


def _on_one_grid(view: MetricResults, explainer: str) -> tuple[Array, Array]:
    """All evaluation counts of the samples' traces `(T,)`, and the traces there `(N, T)`, NaN before their first."""
    event = view.options.get("event")
    name = "trace_margin" if event == "misclassification" else "trace_similarity"
    at, values = [], []
    for _, arrays in view.lines(explainer, ("trace_evaluations", "trace_margin", name), TRACED):
        line = arrays[name].astype(float)
        if event == "changed_class":
            line[~(arrays["trace_margin"] >= 0)] = np.nan
        at.append(arrays["trace_evaluations"].astype(float))
        values.append(line)
    grid = np.unique(np.concatenate([np.empty(0), *at]))
    lines = np.full((len(at), len(grid)), np.nan)
    for row, (x, y) in enumerate(zip(at, values, strict=True)):
        last = np.searchsorted(x, grid, side="right") - 1
        lines[row, last >= 0] = y[last[last >= 0]]
    return grid, lines


def _gallery(view: MetricResults) -> Gallery:
    rows = [_row(view, *shown) for shown in view.gallery(SHOWN, _PICTURES, ALIGNED)]
    misclassified = view.options.get("event") == "misclassification"
    title = "Pictures (a weakness of the model, not of the explainers)" if misclassified else "Worst cases found"
    note = f"Each row is an explainer, for the same input. {describe_maps(view, count_axes(rows))} {_explain(rows)}"
    return Gallery(title, tuple(rows), f"{note}Pale pictures: the search found nothing.")


def _explain(rows: Sequence[GalleryRow]) -> str:
    """How to read the pictures that not all rows have."""
    kinds = {(picture.change, picture.moved_back) for row in rows for picture in row.pictures}
    scaled = "The change is drawn as large as possible; the real change is often much fainter. "
    return scaled * any(change for change, _ in kinds) + MOVED_BACK * any(back for _, back in kinds)


def _row(view: MetricResults, explainer: str, sample: int, row: dict[str, Any], arrays: dict[str, Array]) -> GalleryRow:
    origin, worst = np.asarray(arrays["origins"], dtype=float), np.asarray(arrays["inputs"], dtype=float)
    difference = worst - origin
    largest = float(np.abs(difference).max()) if difference.size else 0.0
    pictures = show_change(arrays, explainer, sample, row)
    if not pictures[-1].moved_back:  # the difference of two inputs whose positions differ says little
        swaps, words = pictures[2].swapped, f"Change of the input, scaled: {explainer}, sample {sample}"
        change = Picture("change", difference, words, signed=True, change=True, swapped=swaps)
        pictures = (*pictures[:3], change, *pictures[3:])
    before, after, found = row.get("targets"), row.get("predicted"), bool(row.get("found"))
    size = describe_parameters(row, view.options, origin.shape)
    size = f"{format_count(len(pictures[2].swapped), 'word')} swapped" if "swapped_words" in row else size
    kept = count_kept_class(pl.DataFrame([row])) if "class_kept" in row else []
    parts = [
        Detail("similarity", float(row["similarity"]), decimals=3).text,
        f"class {before} → {after}",
        Detail("margin", float(row["margin"])).text,
        size or Detail("change up to", largest, decimals=3).text,
        *(detail.text for detail in kept),
    ]
    plausible = row.get("plausibility")
    parts += [Detail("plausibility", plausible).text] if plausible is not None and np.isfinite(plausible) else []
    parts += ["constant map, so the correlation is 0 by definition"] if np.ptp(arrays["maps"]) == 0 else []
    parts += [] if found else ["not found: no input met the constraint, this one is nearest to it"]
    parts += ["misinterpreted"] if found and row.get("misinterpreted") else []
    return make_row(view, explainer, sample, pictures, "; ".join(parts), found)
