"""What the figures of several metrics share: the distribution over samples, rows of pictures, the telling sample."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
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
    Strip,
    Words,
    draw_values,
)
from standfast.report.presentation.base import Presentation, presentation_of
from standfast.report.wording import describe_parameters, describe_reach, describe_transformation
from standfast.report.words import Options, words_of
from standfast.results import ConfiguredMetric, MetricResults, StoredSample
from standfast.results.formatting import format_number
from standfast.value_spec import ValueSpec

#: how many samples are tried until one has stored pictures
EXAMPLES = 20
#: the array that a metric stores where positions of inputs were moved: maps at the positions of the clean inputs
ALIGNED = ("aligned_maps",)


def make_row(
    view: MetricResults,
    shown: StoredSample,
    pictures: Sequence[Picture],
    text: str,
    found: bool = True,
) -> GalleryRow:
    """Pictures of an explainer on a sample, with the names of features and the words of the sample."""
    sample = shown.sample
    return GalleryRow(
        shown.explainer,
        sample,
        tuple(pictures),
        text,
        found,
        tuple(view.features),
        tuple(view.tokens[sample]) if sample < len(view.tokens) else (),
        tuple(view.columns),
    )


def read_swaps(row: Mapping[str, Any]) -> dict[int, str]:
    """The new words of a text by position, empty for a deleted one, from the row of a result; none for other inputs.

    >>> read_swaps({"swapped_words": '{"2": "fine"}'}), read_swaps({"value": 0.5})
    ({2: 'fine'}, {})
    """
    stored = json.loads(row.get("swapped_words") or "{}")
    return {int(position): word for position, word in stored.items()}


def describe_maps(view: MetricResults, rows: Sequence[GalleryRow]) -> str:
    """How the page draws the maps in these rows of pictures, in one or two sentences."""
    axes = min((np.ndim(picture.array) for row in rows[:1] for picture in row.pictures), default=3)
    swaps = "swapped_words" in view.frame.columns
    words = words_of(presentation_of(view.metric, view.task))
    return words.say("maps", axes, bool(view.tokens), swaps)


def make_axis(spec: ValueSpec, *rules: float) -> Axis:
    """The axis of the values of a metric, with dotted lines at `rules`."""
    return Axis(
        spec.axis,
        spec.direction,
        spec.good,
        spec.censored_side,
        rules=rules,
        probability=spec.log_probability,
    )


def draw_figures(metric: ConfiguredMetric, view: MetricResults) -> list[Figure]:
    """The figures of a metric on one data set and model that show anything; by default the distribution."""
    figures = presentation_of(metric.metric, metric.task).figures(view)
    if figures is None:
        figures = [draw_distribution(view)]
    drawn = [figure for figure in figures if figure is not None]
    return [figure for figure in drawn if not isinstance(figure, Gallery) or figure.rows]


def draw_distribution(view: MetricResults) -> Chart | None:
    """The distribution over samples, a row for each explainer, with lines at the `"rules"` of the metric's facts."""
    presentation = presentation_of(view.metric, view.task)
    strips = []
    for name in view.present:
        rows = view.spec.select_valid(view.rows_for(name))
        samples = [int(sample) for sample in rows["sample"]]
        values = view.spec.values(rows)
        strips.append(Strip(name, samples, values, view.spec.bounds(rows)))
    facts = {"rules": (), "options": Options(view.options), **presentation.facts(view)}
    note = words_of(presentation).say("distribution", facts)
    words = Words(view.spec.title, note, "distribution", "Distribution over samples")
    axis = make_axis(view.spec, *facts["rules"])
    return draw_values(strips, view.explainers, axis, words)


def draw_example(presentation: Presentation, view: MetricResults, what: str) -> GalleryRow | None:
    """The sample whose map changed most: input, its map, the perturbed input, its map now.

    Explainers that do not pass the checks are left out, and the caption says so.

    Args:
        presentation: of the metric, whose template has the caption.
        view: of a metric that stores `origins`, `inputs`, `origin_maps` and `maps`.
        what: the value in a word, such as "correlation".

    None if no map changed.
    """
    spec = view.spec
    rows = spec.select_valid(view.frame)
    if not len(rows) or spec.direction is None:
        return None
    is_candidate = pl.col("explainer").is_in(view.candidates)
    is_first_repeat = pl.col("repeat") == rows["repeat"].min()
    rows = rows.filter(is_candidate & is_first_repeat)
    is_unchanged = spec.find_unchanged(spec.values(rows))
    rows = rows.filter(pl.Series(~is_unchanged, dtype=pl.Boolean))
    largest_first = spec.direction == "lower"
    rows = rows.sort(spec.column, descending=largest_first, maintain_order=True)
    names = ("origins", "origin_maps", "inputs", "maps")
    for row in rows.head(EXAMPLES).iter_rows(named=True):
        explainer, sample = str(row["explainer"]), int(row["sample"])
        shown = view.load_sample(explainer, sample, names, also=ALIGNED)
        if shown is None:
            continue
        facts = {
            "explainer": shown.explainer,
            "passes": bool(set(view.unfit) & set(view.present)),
            "sample": shown.sample,
            "changed": describe_transformation(view.options),
            "moved": describe_reach(view.options, view.position),
            "parameters": describe_parameters(row, view.options, np.shape(shown.arrays["origins"])),
            "target": shown.row.get("targets"),
            "what": what,
            "value": format_number(row[spec.column], spec.decimals),
            "same": spec.same,
            "moved_back": ALIGNED[0] in shown.arrays,
        }
        text = words_of(presentation).say("example", facts)
        return make_row(view, shown, show_change(shown), text)
    return None


def show_change(shown: StoredSample) -> tuple[Picture, ...]:
    """The input and its map, the perturbed input and its map, and this map moved back where positions were moved."""
    arrays = shown.arrays
    who = shown.who
    new_words = read_swaps(shown.row)
    back = f"Explanation of the perturbed input, moved back to the positions of the input: {who}"
    moved = [
        Picture("moved back", arrays[name], back, signed=True, moved_back=True)
        for name in ALIGNED
        if name in arrays
    ]
    return (
        Picture("input", arrays["origins"], f"Input, sample {shown.sample}"),
        Picture("its map", arrays["origin_maps"], f"Explanation of the input: {who}", signed=True),
        Picture("changed", arrays["inputs"], f"Perturbed input: {who}", swapped=new_words),
        Picture(
            "its map now",
            arrays["maps"],
            f"Explanation of the perturbed input: {who}",
            signed=True,
            swapped=new_words,
        ),
        *moved,
    )
