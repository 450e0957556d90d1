"""What a report shows of the worst case: the values, the convergence of the search, the inputs that were found."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import (
    Axis,
    Chart,
    Figure,
    Gallery,
    GalleryRow,
    Picture,
    Words,
    draw_lines,
)
from standfast.report.presentation.base import Detail, Presentation, presentation_of, presentations
from standfast.report.presentation.drawing import (
    ALIGNED,
    describe_maps,
    draw_distribution,
    draw_example,
    make_row,
    show_change,
)
from standfast.report.presentation.estimates import describe_columns, make_median_line
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.safari.terms import (
    describe_event,
    find_threshold,
    name_similarity,
)
from standfast.report.wording import describe_parameters
from standfast.report.words import Options, words_of
from standfast.results import MetricResults, StoredSample
from standfast.tensors import Array
from standfast.value_spec import read_flags

#: samples in a gallery, and samples behind a line
SHOWN = 4
TRACED = 100
_PICTURES = ("origins", "inputs", "origin_maps", "maps")


@presentations.register("worst_case")
class WorstCasePresentation(Presentation):
    """The worst case: the values, the convergence of the search, the inputs that were found."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The event, where it begins on the axis of the values, and which explainers met a weaker search."""
        limit = find_threshold(results.options)
        if results.options.get("event") == "misclassification":
            limit = 0.0
        rules = () if limit is None else (limit,)
        without = _searched_without_gradients(results)
        exact, total = count_samples(results.frame, "exact")
        return {
            **describe_event(results.options),
            "rules": rules,
            "without_gradients": without,
            "all_exact": exact == total > 0,
        }

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How often the event was found, and the largest sensitivities if they were tracked."""
        event = options.get("event")
        details = count_kept_class(frame)
        hit, total = count_samples(frame, "found")
        if event != "changed_explanation":
            details.append(Detail("class changed", hit, total))
        elif "found" in frame.columns and hit < total:
            # the clean input may be outside of the neighbourhood
            details.append(Detail("no input that keeps the answer", total - hit, total))
        exact, total = count_samples(frame, "exact")
        if exact:
            details.append(Detail("exact, all possible inputs were tried", exact, total))
        drafted, total = count_samples(frame, "drafts")
        if drafted:
            details.append(
                Detail("rough maps first in the search, full ones in the value", drafted, total)
            )
        reached, searched = _count_misinterpreted(frame)
        if event != "misclassification" and searched:
            details.append(Detail("misinterpreted", reached, searched))
        labels = {
            "gap": "stated gap (an estimate)",
            "sens_max": "largest distance",
            "sens_lips": "largest slope",
        }
        if "gap" in frame.columns:
            # the gap of an exact number is 0, and no estimate
            is_open = pl.Series(~read_flags(frame, "exact"))
            frame = frame.with_columns(gap=pl.when(is_open).then(pl.col("gap")))
        return details + describe_columns(frame, labels, middle=np.median, decimals=None)

    def example(self, view: MetricResults) -> GalleryRow | None:
        """The least similar map of an input that kept its answer; for the other events nothing."""
        if view.options.get("event") != "changed_explanation":
            return None
        return draw_example(self, view, name_similarity(view.options))

    def figures(self, view: MetricResults) -> list[Figure | None]:
        """The distribution, the search's convergence, and the pictures."""
        sentences = words_of(self)
        facts = {**self.facts(view), "options": Options(view.options)}
        rows = [_draw_row(view, shown) for shown in view.gallery(SHOWN, _PICTURES, ALIGNED)]
        moved = any(row.pictures[-1].moved_back for row in rows)
        change = any(picture.change for row in rows for picture in row.pictures)
        return [
            draw_distribution(view),
            _draw_convergence(view, sentences.say("convergence", facts)),
            Gallery(
                "Worst cases found",
                tuple(rows),
                sentences.say("pictures", describe_maps(view, rows), moved, change),
            ),
        ]


def _searched_without_gradients(view: MetricResults) -> list[str]:
    """The explainers that the search `auto` met without gradients, where it met others with them; no controls."""
    search = view.options.get("search")
    if isinstance(search, Mapping):
        name = search.get("name")
    else:
        name = search
    if name != "auto" or "followed_gradients" not in view.frame.columns:
        return []
    followed = {}
    for name in view.candidates:
        flags = read_flags(view.rows_for(name), "followed_gradients")
        followed[name] = bool(flags.any())
    without = [name for name, gradients in followed.items() if not gradients]
    if len(without) < len(followed):
        return without
    return []


def count_samples(rows: pl.DataFrame, column: str) -> tuple[int, int]:
    """On how many samples a flag is true in any repeat, and how many samples there are.

    >>> count_samples(pl.DataFrame({"sample": [0, 0, 1], "found": [False, True, False]}), "found")
    (1, 2)
    """
    if not len(rows) or column not in rows.columns:
        if "sample" in rows.columns:
            count = rows["sample"].n_unique()
        else:
            count = 0
        return 0, count
    is_true = pl.col(column).cast(pl.Boolean).fill_null(False)
    flags = rows.group_by("sample").agg(is_true.any())
    return int(flags[column].sum()), len(flags)


def _count_misinterpreted(rows: pl.DataFrame) -> tuple[int, int]:
    """On how many samples the event was reached, of those where the search found an input with the asked answer."""
    counted = rows
    if "found" in rows.columns:
        counted = rows.filter(read_flags(rows, "found"))
    return count_samples(counted, "misinterpreted")


def _draw_convergence(view: MetricResults, caption: str) -> Chart | None:
    """The best so far against evaluations: median over samples and quartiles (SAFARI, Fig. 2)."""
    lines = []
    for name in view.present:
        grid, samples = _put_on_one_grid(view, name)
        if samples.size:
            lines.append(make_median_line(name, grid, samples))
    title = f"Convergence of the search, {view.spec.title}"
    words = Words(title, caption, "convergence", "Was the budget of the search large enough?")
    worst = Axis(f"{view.spec.axis}, worst so far")
    return draw_lines(lines, view.explainers, Axis("model evaluations per sample"), worst, words)


def _put_on_one_grid(view: MetricResults, explainer: str) -> tuple[Array, Array]:
    """All evaluation counts of the samples' traces `(T,)`, and the traces there `(N, T)`, NaN before their first."""
    event = view.options.get("event")
    name = "trace_margin" if event == "misclassification" else "trace_similarity"
    evaluations: list[Array] = []
    traces: list[Array] = []
    for shown in view.lines(explainer, ("trace_evaluations", "trace_margin", name), TRACED):
        trace = shown.arrays[name].astype(float)
        if event == "changed_class":
            # before the answer has changed, there is no similarity to count
            trace[~(shown.arrays["trace_margin"] >= 0)] = np.nan
        evaluations.append(shown.arrays["trace_evaluations"].astype(float))
        traces.append(trace)
    all_evaluations = np.concatenate([np.empty(0), *evaluations])
    grid = np.unique(all_evaluations)
    lines = np.full((len(traces), len(grid)), np.nan)
    for row, (x, y) in enumerate(zip(evaluations, traces, strict=True)):
        last = np.searchsorted(x, grid, side="right") - 1
        has_begun = last >= 0
        lines[row, has_begun] = y[last[has_begun]]
    return grid, lines


def _draw_row(view: MetricResults, shown: StoredSample) -> GalleryRow:
    row = shown.row
    arrays = shown.arrays
    changed = np.asarray(arrays["inputs"], dtype=float)
    difference = changed - np.asarray(arrays["origins"], dtype=float)
    pictures = show_change(shown)
    # the difference of two inputs whose positions differ, or of two texts, says little
    if not pictures[-1].moved_back and not view.texts:
        change = Picture(
            "change",
            difference,
            f"Change of the input, scaled: {shown.who}",
            signed=True,
            change=True,
            swapped=pictures[2].swapped,
        )
        pictures = (*pictures[:3], change, *pictures[3:])
    size = {
        "words": len(pictures[2].swapped) if "swapped_words" in row else None,
        "parameters": describe_parameters(row, view.options, difference.shape),
        "largest": float(np.abs(difference).max(initial=0.0)),
    }
    kept = [detail.text for detail in count_kept_class(pl.DataFrame([row]))]
    sentences = words_of(presentation_of(view.metric, view.task))
    is_constant = np.ptp(arrays["maps"]) == 0
    text = sentences.say("row", row, size, kept, is_constant)
    return make_row(view, shown, pictures, text, bool(row.get("found")))
