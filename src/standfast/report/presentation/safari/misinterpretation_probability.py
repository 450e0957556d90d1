"""What a report shows of the probability of misinterpretation, and of the probability against the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from standfast.report.charts import Axis, Chart, Line, Words, draw_lines
from standfast.report.presentation.base import Contradiction, Detail, Presentation, presentations
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.estimates import count_flag
from standfast.report.presentation.kept_class import count_kept_class
from standfast.report.presentation.safari.contradictions import find_contradictions
from standfast.report.presentation.safari.terms import describe_event, find_threshold
from standfast.report.words import MetricWords, words_of
from standfast.results import MetricResults
from standfast.tensors import Array
from standfast.value_spec import read_flags, read_numbers

#: samples with a curve
SHOWN = 3
AXIS = Axis("probability", probability=True)
_CURVES = ("level_stage", "level_threshold", "level_log_probability", "level_low", "level_high")


@presentations.register("misinterpretation_probability")
class ProbabilityPresentation(Presentation):
    """Probabilities, their bounds, and the probability against the threshold."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The event."""
        return describe_event(results.options)

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """The error of a single estimate, and how many are stalled or contradicted."""
        width = read_numbers(frame, "high") - read_numbers(frame, "low")
        is_exact = ~read_flags(frame, "bound")
        width = width[is_exact & np.isfinite(width)]
        details = []
        if len(width):
            factor = float(np.exp(np.median(width) / 2))
            details.append(Detail("one estimate is known up to a factor of", factor))
        from_event = read_numbers(frame, "from_event")
        one_way = ~np.isfinite(from_event) & bool(options.get("from_event"))
        searched = read_flags(frame, "censored") & read_flags(frame, "witnessed")
        flags = frame.with_columns(one_way=one_way, searched=searched)
        return [
            *details,
            *count_flag(flags, "stalled", "stalled"),
            *count_flag(flags, "one_way", "without an estimate from the event"),
            *count_flag(flags, "searched", "found by a search only"),
            *count_kept_class(frame),
        ]

    def contradictions(
        self, view: MetricResults, others: Sequence[MetricResults]
    ) -> list[Contradiction]:
        """Estimates that contradict each other or a search."""
        return find_contradictions(view, others)

    def figures(self, view: MetricResults) -> list[Chart | None]:
        """The distribution, and the probability against the threshold of the similarity for a few samples."""
        words = words_of(self)
        shown = view.samples(SHOWN)
        if view.options.get("event") == "misclassification":
            shown = []
        levels = [_draw_levels(view, sample, words) for sample in shown]
        return [draw_distribution(view), *levels]


def _draw_levels(view: MetricResults, sample: int, sentences: MetricWords) -> Chart | None:
    """The probability of the event at one sample against the threshold, with the levels of one run."""
    levels = [_read_levels(view, name, sample) for name in view.present]
    lines = [line for line in levels if line is not None]
    words = Words(
        f"Probability of a similarity beyond each value, sample {sample}",
        sentences.say("levels", sample),
        f"curve-sample{sample}",
        f"Sample {sample}: how probable is such a similarity?",
    )
    limit = find_threshold(view.options)
    event = describe_event(view.options)
    side = "below" if event["below"] else "above"
    title = f"similarity ({view.options.get('similarity')}) {side}"
    rules = () if limit is None else (limit,)
    level = Axis(title, rules=rules)
    return draw_lines(lines, view.explainers, level, AXIS, words)


def _read_levels(view: MetricResults, name: str, sample: int) -> Line | None:
    """The levels of the similarity with their intervals; None where there are none."""
    shown = view.load_sample(name, sample, _CURVES)
    if shown is None:
        return None
    row = shown.row
    arrays = shown.arrays
    is_censored = bool(row.get("censored"))
    of_similarity = find_levels_of_similarity(
        arrays["level_stage"], arrays["level_threshold"], is_censored
    )
    if not of_similarity.any():
        return None
    below = describe_event(view.options)["below"]
    sign = -1.0 if below else 1.0
    limit = find_threshold(view.options) or 0.0
    x = limit + arrays["level_threshold"][of_similarity] * sign
    y, low, high = (
        arrays[f"level_{column}"][of_similarity] for column in ("log_probability", "low", "high")
    )
    # `high` bounds the probability of the event, and no earlier level is less probable
    least = -np.inf
    if row.get("resolved") is False:
        least = float(row["high"])
    low = np.where(np.isnan(low), y, low)
    high = np.where(np.isnan(high), y, high)
    return Line(name, x, y, low, np.maximum(high, least))


def find_levels_of_similarity(stage: Array, t: Array, censored: bool) -> Array:
    """Which levels are those of the similarity, stage 1; others are of the answer, or padding.

    A level at exactly 0 ends a stage; it is stored under the number of the next one, where the run continues.
    """
    stage = np.array(stage, dtype=float)
    stage[(t == 0) & (stage >= 1)] -= 1
    end = int(np.isfinite(stage).sum()) - 1
    if end >= 0 and t[end] == 0 and not censored:
        stage[end] = 1.0
    return np.asarray(stage == 1)
