"""What a report shows of an attack on attributions: similarities of the maps, by window and number of positions.

The sets and their overlaps are those of Kamath, Mittal, Deshpande and Balasubramanian (AAAI 2024): the curves are
their Figs. 5 and 10, the pictures (`pictures`) their Figs. 3 and 6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.metrics.lens.attribution_attack import name_chance
from standfast.report.charts import Axis, Chart, Gallery, GalleryRow, Strip, Words, draw_heat_map, draw_values
from standfast.report.presentation.drawing import draw_distribution, draw_example
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.lens.curves import curves_of, draw_by_k, draw_by_window
from standfast.report.presentation.lens.pictures import draw_galleries
from standfast.report.presentation.lens.words import (
    attack_of,
    explain_terms,
    name_similarity,
    overlap_by_chance,
    positions_of,
    similarities_of,
    top_of,
    unit_of,
)
from standfast.results.formatting import format_number
from standfast.results.presentation import (
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)
from standfast.similarity.chance import ROOM
from standfast.similarity.diverse import resolve_k
from standfast.statistics.bootstrap import FEW, intervals_of_means
from standfast.tensors import Array

_KEPT = ("kept", "kept_within_1", "kept_within_2")
_CHANCE = "two random sets"
_NOTE = "The attack proves fragility, never robustness: a stronger one may find maps that are less similar."


@presentations.register("attribution_attack")
class AttributionAttackPresentation(Presentation):
    """Attacks on maps: similarities, curves by window and k, the maps."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The first similarity, of the samples whose class was kept."""
        first = [*similarities_of(options), "similarity"][0]
        closer = larger_is_closer({"similarity": first})
        name, settings = attack_of(options)
        title = f"{name_similarity(first)} after the {name} attack{settings}"
        caution = f"A stronger attack may {'reach a smaller' if closer else 'reach a larger'} value."
        return ValueSpec(
            title[:1].upper() + title[1:],
            name_similarity(first),
            self.direction_of(options),
            3,
            only=("label_kept",),
            caution=caution,
            good="more robust",
            empty="for which no input of the same class was found",
        )

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the terms mean."""
        return explain_terms(options)

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The mean of each similarity, what does not count, and how much of the loss was a small shift."""
        if not len(frame):
            return []
        kept = read_flags(frame, "label_kept")
        rows, notes = frame.filter(pl.Series(kept)), []
        for name in similarities_of(options):
            values = per_sample(rows, (name,))
            if len(values):
                mean, low, high = (float(end[0]) for end in intervals_of_means(values))
                between = f" [{format_number(low, 3)}, {format_number(high, 3)}]" if np.isfinite(low) else ""
                chance = _describe_chance(rows, name)
                notes.append(f"{name_similarity(name)}: mean {format_number(mean, 3)}{between}{chance}")
        if not kept.all():
            notes.append(f"class lost, so not counted: {int((~kept).sum())} of {len(frame)}")
        still = int((kept & ~read_flags(frame, "found")).sum())
        if still:
            notes.append(f"no other input of the class found, so counted as unchanged: {still} of {len(frame)}")
        found = fragility(rows)
        notes += [] if found is None else [found.sentence(top_of(options), "position")]
        return [*notes, *(detail.text for detail in count_kept_class(frame))]

    def question(self, options: Mapping[str, Any]) -> str:
        """Whether an attack moves what a map puts first."""
        return "Can an attack move what the map puts first?"

    def verdict(self, view: MetricResults) -> str:
        """The mean share of the most relevant positions that the attack moved away."""

        def measure(rows: pl.DataFrame) -> tuple[float, str] | None:
            found = fragility(view.spec.select_valid(rows)) if "kept" in rows.columns else None
            return None if found is None else (1 - found.parts[0], f"{100 * (1 - found.parts[0]):z.0f}%")

        ranked = view.rank(measure, "lower")
        if not ranked:
            return self.contrast(view)
        best, worst = ranked[0], ranked[-1]
        rest = "" if len(ranked) == 1 else f", and {best.text} of those of {best.who}"
        return (
            f"The attack {attack_of(view.options)[0]} moved away {worst.text} of the {top_of(view.options)} of "
            f"{worst.who}{rest} (means over samples that kept their class)."
        )

    example_order: ClassVar[int] = 1

    def example(self, view: MetricResults) -> GalleryRow | None:
        """The map that the attack changed most."""
        first = [*similarities_of(view.options), "similarity"][0]
        same = 1.0 if larger_is_closer({"similarity": first}) else 0.0
        return draw_example(self, view, name_similarity(first), same)

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The shares that were kept, moved and lost, the similarities, their curves, and the pictures."""
        curves = {name: found for name in view.present if (found := curves_of(view, name)) is not None}
        shape = next(iter(curves.values())).shape if curves else None
        charts = [draw_fragility(view, shape), *draw_distribution(view, note=_NOTE), *draw_similarities(view)]
        if shape is not None and len(shape) > 1:  # the order of features has no meaning, so they have no windows
            charts += draw_by_window(view, curves, shape)
        if shape is not None:
            charts += draw_by_k(view, curves, shape)[: None if len(shape) > 1 else 1]
        return [*(chart for chart in charts if chart is not None), *draw_galleries(view)]


@dataclass(frozen=True)
class Fragility:
    """The share of the top positions that was lost, and the share of this loss that was found again nearby.

    Attributes:
        samples: how many samples were averaged.
        parts: mean shares that were kept in place, within one position and within two.
        shares: the shares of the loss that were a shift of one position and of at most two; NaN without a loss.
        low, high: ends of their 95% intervals; NaN where there are none.
    """

    samples: int
    parts: tuple[float, float, float]
    shares: tuple[float, float]
    low: tuple[float, float]
    high: tuple[float, float]

    def sentence(self, top: str, unit: str) -> str:
        """The numbers in words, for the `top` positions, each a `unit`."""
        lost = 1 - self.parts[0]
        if not np.isfinite(self.shares).all():
            return f"None of the {top} was lost, so there is no fragility to explain."
        one, two = (
            f"{format_number(100 * share, 0)}%"
            + (f" [{format_number(100 * low, 0)}, {format_number(100 * high, 0)}]" if np.isfinite(low) else "")
            for share, low, high in zip(self.shares, self.low, self.high, strict=True)
        )
        text = (
            f"Of the apparent fragility ({format_number(lost, 2 if lost >= 0.01 else 4)} of the {top} lost), {one} was "
            f"a shift of one {unit}, {two} of at most two."
        )
        if self.samples < FEW:
            counted = "A single sample" if self.samples == 1 else f"{self.samples} samples"
            text += f" {counted}, so there are no intervals."
        elif not np.isfinite([*self.low, *self.high]).all():
            text += " Too few samples lost positions for intervals."
        return text


def fragility(rows: pl.DataFrame) -> Fragility | None:
    """The fragility from those rows of one explainer that count; None without rows.

    With f_w = 1 - mean(kept within w positions), the shares are (f_0 - f_1) / f_0 and (f_0 - f_2) / f_0, ratios of
    means; for their intervals samples are resampled.

    >>> rows = pl.DataFrame({"kept": [0.2, 0.6], "kept_within_1": [0.6, 0.8], "kept_within_2": [0.8, 1.0]})
    >>> print(fragility(rows).sentence("top 10 pixels", "pixel"))
    Of the apparent fragility (0.60 of the top 10 pixels lost), 50% was a shift of one pixel, 83% of at most two. \
2 samples, so there are no intervals.
    """
    values = per_sample(rows, _KEPT)
    if not len(values):
        return None
    parts = values.mean(axis=0)
    shares, low, high = intervals_of_means(values, shares_of_loss)
    return Fragility(len(values), tuple(parts), tuple(shares), tuple(low), tuple(high))


def _describe_chance(rows: pl.DataFrame, similarity: str) -> str:
    """The mean of a similarity corrected for chance, with its interval, if the results have chance levels."""
    names = (similarity, name_chance(similarity))
    if names[1] not in rows.columns or not len(values := per_sample(rows, names)):
        return ""
    chance = float(values[:, 1].mean())
    text = f"; unrelated maps have {format_number(chance, 3)}"
    if 1 - chance < ROOM:
        return f"{text}, so the value says nothing"
    above, low, high = (float(end[0]) for end in intervals_of_means(values, _correct_means))
    between = f" [{format_number(low, 2)}, {format_number(high, 2)}]" if np.isfinite(low) else ""
    return f"{text}, above chance: {format_number(above, 2)}{between}"


def _correct_means(means: Array) -> Array:
    """Means corrected for chance `(..., 1)`, from means of the similarity and of its chance level `(..., 2)`."""
    return np.asarray((means[..., :1] - means[..., 1:]) / np.maximum(1 - means[..., 1:], ROOM))


def shares_of_loss(means: Array) -> Array:
    """The two shares of the loss `(..., 2)`, from means of what is kept, within one and within two `(..., 3)`.

    NaN where nothing was lost.
    """
    lost = 1 - means[..., :1]
    some = lost > 1e-9  # anything smaller is rounding: a single position of a single sample is more
    shares: Array = np.where(some, (means[..., 1:] - means[..., :1]) / np.where(some, lost, 1.0), np.nan)
    return shares


def per_sample(rows: pl.DataFrame, columns: Sequence[str]) -> Array:
    """The means of some columns over each sample's repeats, `(n, columns)`, of the rows where all are finite."""
    values: Array = np.stack([read_numbers(rows, column) for column in columns], axis=1)
    fine = np.isfinite(values).all(axis=1)
    values = values[fine]
    if "sample" not in rows.columns or not len(values):
        return values
    samples, place, counts = np.unique(rows["sample"].to_numpy()[fine], return_inverse=True, return_counts=True)
    total = np.zeros((len(samples), len(columns)))
    np.add.at(total, place, values)
    return np.asarray(total / counts[:, None])


def draw_fragility(view: MetricResults, shape: tuple[int, ...] | None) -> Chart | None:
    """What happened to the top positions: shares for each explainer, and a sentence about the loss."""
    unit = unit_of(shape)
    top, sentences, chance_text = top_of(view.options, shape), [], ""
    titles = ("kept in place", f"one {unit} away", f"two {unit}s away", "lost")
    kept: dict[str, Sequence[float]] = {}
    for name in view.present:
        found = fragility(view.spec.select_valid(view.rows_for(name)))
        if found is not None:
            kept[name] = found.parts
            sentences.append(f"{name}: {found.sentence(top, unit)}")
    if kept and shape is not None:
        k = resolve_k(view.options.get("k"), positions_of(shape))
        kept[_CHANCE] = chance = [overlap_by_chance(shape, k, w) for w in (0, 1, 2)]
        if chance[0] < 1:
            one, two = (f"{share:.0%}" for share in shares_of_loss(np.array(chance)))
            chance_text = (
                f"Between two sets drawn at random, {one} of the loss would count as a shift of one {unit}, {two} as "
                "one of at most two."
            )
    if not kept:
        return None
    shares = np.diff([[0.0, *parts, 1.0] for parts in kept.values()], axis=1).clip(0.0)
    texts = [[f"{share:.0%}" for share in row] for row in shares]
    caption = f"What became of the {top}, mean over samples. {chance_text} {_NOTE}"
    if unit == "feature":
        caption += " Features have no positions: their neighbours follow from their order, which may have no meaning."
    title = f"What happened to the {top}. {' '.join(sentences)}"
    words = Words(title, caption, "fragility", f"What became of the {top}?")
    return draw_heat_map(list(kept), titles, shares, f"share of the {top}", words, texts)


def draw_similarities(view: MetricResults) -> list[Chart | None]:
    """All similarities that were asked for, with their means; each discrepancy in a chart of its own."""
    asked = similarities_of(view.options)
    closer = [name for name in asked if larger_is_closer({"similarity": name})]
    groups = [closer] if closer and closer != asked[:1] else []
    groups += [[name] for name in asked[1:] if name not in closer]
    charts: list[Chart | None] = []
    for place, group in enumerate(groups, 1):
        strips = []
        for explainer in view.present:
            rows = view.rows_for(explainer).filter(pl.Series(_select_counted(view, explainer)))
            for name in group:
                values = read_numbers(rows, name)
                fine = np.isfinite(values)
                if fine.any():
                    samples = [int(sample) for sample in rows["sample"].to_numpy()[fine]]
                    part = name_similarity(name) if len(group) > 1 else ""
                    strips.append(Strip(explainer, samples, values[fine], np.zeros(fine.sum(), dtype=bool), part))
        title, axis = (name_similarity(group[0]),) * 2 if len(group) == 1 else ("all similarities", "similarity")
        direction = "higher" if group[0] in closer else "lower"
        heading = axis if len(group) == 1 else "The same maps by every similarity"
        words = Words(title, "", f"similarities-{place}", heading)
        charts.append(draw_values(strips, view.explainers, Axis(axis, direction, "more robust"), words, means=True))
    return charts


def _select_counted(view: MetricResults, explainer: str) -> Array:
    """Which of an explainer's rows were evaluated and kept their class, bool `(n,)`."""
    rows = view.rows_for(explainer)
    return np.asarray((rows["status"] == "ok").to_numpy() & read_flags(rows, "label_kept"), dtype=bool)
