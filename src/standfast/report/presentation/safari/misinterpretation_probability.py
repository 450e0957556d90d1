"""What a report shows of the probability of misinterpretation, and of the probability against the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.report.charts import Axis, Chart, Gallery, Line, Words, choose_styles_of_values, draw_lines
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.safari.contradictions import find_contradictions
from standfast.report.presentation.safari.terms import describe_event, find_threshold
from standfast.report.words import MetricWords, words_of
from standfast.results.presentation import (
    Contradiction,
    Detail,
    MetricResults,
    Presentation,
    ValueSpec,
    presentations,
    read_flags,
    read_numbers,
)
from standfast.tensors import Array

#: samples with a curve
SHOWN = 3
_WHAT = {
    "changed_explanation": "the explanation changes and the class is kept",
    "changed_class": "the class changes and the explanation stays",
    "misclassification": "the class changes",
}
AXIS = Axis("probability", probability=True)
_CURVES = ("level_stage", "level_threshold", "level_log_probability", "level_low", "level_high")


@presentations.register("misinterpretation_probability")
class ProbabilityPresentation(Presentation):
    """Probabilities, their bounds, and the probability against the threshold."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """Less probable is more robust; explainers are not ranked by misclassification."""
        event = str(options.get("event"))
        title = f"Probability that {_WHAT.get(event, event)}"
        direction = self.direction_of(options)
        return ValueSpec(title, AXIS.title, direction, "probability", "bound", "upper", good="more robust")

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The event."""
        return describe_event(results.options)

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The error of a single estimate, and how many are stalled or contradicted."""
        width = (read_numbers(frame, "high") - read_numbers(frame, "low"))[~read_flags(frame, "bound")]
        width = width[np.isfinite(width)]
        factor = float(np.exp(np.median(width) / 2)) if len(width) else 1.0
        found = [Detail("one estimate is known up to a factor of", factor)] if len(width) else []
        one_way = np.zeros(len(frame), dtype=bool)
        if options.get("from_event") and "from_event" in frame.columns:
            one_way = ~np.isfinite(read_numbers(frame, "from_event"))
        for flags, label in (
            (read_flags(frame, "stalled"), "stalled"),
            (one_way, "without an estimate from the event"),
            (read_flags(frame, "censored") & read_flags(frame, "witnessed"), "found by a search only"),
        ):
            found += [Detail(label, int(flags.sum()), len(frame))] if flags.any() else []
        return [*found, *count_kept_class(frame)]

    def contradictions(self, view: MetricResults, others: Sequence[MetricResults]) -> list[Contradiction]:
        """Estimates that contradict each other or a search."""
        return find_contradictions(view, others)

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution, and the probability against the threshold for a few samples."""
        words = words_of(self)
        found: list[Chart | Gallery] = [*draw_distribution(view, note=words.say("note"))]
        found += _draw_directions(view, words)
        for sample in view.samples(SHOWN):
            found += _draw_levels(view, sample, words)
        return found


def _draw_directions(view: MetricResults, sentences: MetricWords) -> list[Chart]:
    """A chart for each explainer: the estimates from the prior and from the event, where there are both."""
    charts = []
    for name in view.present if "from_event" in view.frame.columns else []:
        rows = view.rows_for(name).filter(pl.col("from_event").is_finite() & pl.col("from_prior").is_finite())
        rows = rows.filter(pl.col("repeat") == pl.col("repeat").min())
        sample, low, high, there, back = (
            read_numbers(rows, column) for column in ("sample", "low", "high", "from_prior", "from_event")
        )
        lines = [Line("from the prior", sample, there, low, high), Line("from the event", sample, back, back, back)]
        styles = choose_styles_of_values(view.explainers, name, [line.name for line in lines])
        title = f"{name}: probability from the prior to the event, and from the event back to the prior"
        words = Words(title, sentences.say("directions"), f"directions-{name}", f"{name}: both directions")
        lines = [replace(line, style=styles[line.name]) for line in lines]
        chart = draw_lines(lines, view.explainers, Axis("sample"), AXIS, words)
        charts += [chart] if chart is not None else []
    return charts


def _draw_levels(view: MetricResults, sample: int, sentences: MetricWords) -> list[Chart]:
    """The probability against the threshold at one sample: a chart for each stage, with the levels of one run."""
    event = str(view.options.get("event"))
    stages = {"misclassification": [0], "changed_class": [0, 1]}.get(event, [1])
    charts = []
    for stage in stages:
        lines = [line for name in view.present if (line := _read_levels(view, name, sample, stage)) is not None]
        what = "margin" if stage == 0 else "similarity"
        limit = 0.0 if stage == 0 else find_threshold(view.options)
        words = Words(
            f"Probability of a {what} beyond each value, sample {sample}",
            sentences.say("levels", sample, what),
            f"curve-sample{sample}" + ("-class" if stage == 0 and len(stages) > 1 else ""),
            f"Sample {sample}: how probable is such a {what}?",
        )
        level = Axis(_axis(view.options, stage), rules=() if limit is None else (limit,))
        chart = draw_lines(lines, view.explainers, level, AXIS, words)
        charts += [chart] if chart is not None else []
    return charts


def _read_levels(view: MetricResults, name: str, sample: int, stage: int) -> Line | None:
    """The levels of a stage with their intervals; None where there are none."""
    shown = view.load_sample(name, sample, _CURVES)
    if shown is None:
        return None
    row, arrays = shown
    event, censored = str(view.options.get("event")), bool(row.get("censored"))
    here = column_of_levels(arrays["level_stage"], arrays["level_threshold"], event, censored) == stage
    if not here.any():
        return None
    x = threshold_as_read(view.options, stage, arrays["level_threshold"][here])
    y, low, high = (arrays[f"level_{column}"][here] for column in ("log_probability", "low", "high"))
    # `high` bounds the probability of the event, and no earlier level is less probable
    least = float(row["high"]) if row.get("resolved") is False else -np.inf
    return Line(name, x, y, np.where(np.isnan(low), y, low), np.maximum(np.where(np.isnan(high), y, high), least))


def column_of_levels(stage: Array, t: Array, event: str, censored: bool) -> Array:
    """Which column of the score each level belongs to, NaN for padding.

    A level at exactly 0 ends a column; it is stored under the number of the next one, where the run continues.
    """
    stage = np.array(stage, dtype=float)
    stage[(t == 0) & (stage >= 1)] -= 1
    end = int(np.isfinite(stage).sum()) - 1
    if end >= 0 and t[end] == 0 and not censored:
        stage[end] = 0.0 if event == "misclassification" else 1.0
    return stage


def threshold_as_read(options: Mapping[str, Any], stage: int, t: Array) -> Array:
    """A level as the margin or the similarity that it stands for."""
    limit, event = find_threshold(options), options.get("event")
    if event == "misclassification" or (event == "changed_class" and stage == 0) or limit is None:
        return t
    sign = 1.0 if (event == "changed_class") == larger_is_closer(options) else -1.0
    return limit + sign * t


def _axis(options: Mapping[str, Any], stage: int) -> str:
    event = options.get("event")
    if event == "misclassification" or (event == "changed_class" and stage == 0):
        return "margin of at least (0: another class)"
    below = (event == "changed_explanation") == larger_is_closer(options)
    return f"similarity ({options.get('similarity')}) {'below' if below else 'above'}"
