"""What a report shows of the probability of misinterpretation: ln P, and ln P against the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from standfast.metrics.base import larger_is_closer
from standfast.report.charts import LN_P, Axis, Chart, Gallery, Line, Words, choose_styles_of_values, draw_lines
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.kept_class import KEPT, describe_kept_class
from standfast.report.presentation.safari.contradictions import find_contradictions
from standfast.report.presentation.safari.terms import (
    COMPARED,
    MARGIN,
    MEANINGS,
    SHORT,
    describe_event,
    find_threshold,
)
from standfast.report.presentation.wording import describe_share, describe_transformation
from standfast.results.formatting import format_number
from standfast.results.presentation import (
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
    "changed_explanation": "the explanation changes, the class is kept",
    "changed_class": "the class changes, the explanation stays",
    "misclassification": "the class changes",
}
_NOTE = (
    "ln P is the natural logarithm of the probability that noise around an input causes the event: the lower, the "
    "rarer. It says nothing about an adversary, who searches for rare events."
)
_CURVES = ("level_stage", "level_threshold", "level_log_probability", "level_std_error")


@presentations.register("misinterpretation_probability")
class ProbabilityPresentation(Presentation):
    """Probabilities: ln P, its bounds, and ln P against the threshold."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """Less probable is more robust; explainers are not ranked by misclassification."""
        event = str(options.get("event"))
        title = f"ln P({_WHAT.get(event, event)})"
        return ValueSpec(
            title,
            LN_P,
            self.direction_of(options),
            2,
            "bound",
            "upper",
            good="more robust",
            log_probability=True,
        )

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """The error of a single estimate, and how many are stalled."""
        bound = read_flags(frame, "bound")
        width = (read_numbers(frame, "high") - read_numbers(frame, "low"))[~bound]
        width = width[np.isfinite(width)]
        notes = [f"each estimate: ± {format_number(float(np.median(width)) / 2)}"] if len(width) else []
        counts = {"stalled": int(read_flags(frame, "stalled").sum())}
        if options.get("from_event") and "from_event" in frame.columns:
            counts["without an estimate from the event"] = int((~np.isfinite(read_numbers(frame, "from_event"))).sum())
        if "witnessed" in frame.columns:
            unseen = read_flags(frame, "censored") & read_flags(frame, "witnessed")
            counts["not reached by the simulation, though a search found the event"] = int(unseen.sum())
        notes += [f"{word}: {count} of {len(frame)}" for word, count in counts.items() if count]
        return [*notes, *describe_kept_class(frame)]

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What ln P, the event and the options mean."""
        event = MEANINGS.get(str(options.get("event")))
        return {
            "ln P": "The natural logarithm of the probability of the event when the input is perturbed by noise from "
            "the neighbourhood: −2.3 is one in ten, −6.9 one in a thousand, −23 one in ten thousand million. It "
            "describes that noise. It does not describe inputs as they occur in nature, nor an adversary, who searches "
            "for rare events.",
            "Each estimate: ±": "The half width of the 95% interval of a single estimate of ln P, as the median over "
            "samples. It covers the error of the simulation alone.",
            "Unresolved": "The simulation could not say how probable the event is: too few independent families of its "
            "particles were left, or its budget ended. The interval reaches up to the last level that can be relied "
            "on, and this upper end counts as a bound: the estimate itself may be far too low. Ask for an error "
            "(`error=0.5`), which repeats the run with more particles, or give more `particles`. With "
            "`from_event=True` it is also unresolved where the estimates of both directions contradict each other.",
            **(dict([event]) if event else {}),
            **KEPT,
            **MARGIN,
            **COMPARED,
        }

    def question(self, options: Mapping[str, Any]) -> str:
        """The question of the event."""
        event, changed = str(options.get("event")), describe_transformation(options)
        what = "class" if event in ("changed_class", "misclassification") else "map"
        if changed:
            apart = " and the map stay the same" if event == "changed_class" else ""
            return f"How often does the {what} change{apart} when an input is {changed} at random?"
        return f"How often does random noise change the {what}{' and not the map' if event == 'changed_class' else ''}?"

    def verdict(self, view: MetricResults) -> str:
        """The median probabilities, as one in so many."""
        ranked, event = view.rank(direction="lower"), str(view.options.get("event"))
        if not ranked:
            return ""
        best, worst = ranked[0], ranked[-1]
        cause = "A random change of this kind" if describe_transformation(view.options) else "Random noise"
        if event == "misclassification":
            between = describe_share(best.text)
            between += "" if len(ranked) == 1 else f" to {describe_share(worst.text).removeprefix('in ')}"
            return f"{cause} changes the class {between}{view.name_medians(' (medians over samples)')}."
        turned = event == "changed_class"
        does, kept = ("changes the class and keeps", "") if turned else ("changes", "class kept")
        rest = "" if len(ranked) == 1 else f", and {best.those} {describe_share(best.text)}"
        notes = "; ".join(filter(None, (kept, view.name_medians("medians over samples"))))
        return (
            f"{cause} {does} {worst.maps} ({describe_event(view.options)}) {describe_share(worst.text)}"
            f"{rest}{f' ({notes})' if notes else ''}."
        )

    def terms(self, options: Mapping[str, Any]) -> dict[str, str]:
        """The logarithm of a probability, and when it is not resolved."""
        logarithm = "the natural logarithm of the probability: −2.3 is 1 in 10, −6.9 is 1 in 1,000"
        unresolved = "too few independent particles were left to rely on the estimate, so only a bound is known"
        decimal = "the decimal logarithm of the probability: −1 is 1 in 10, −3 is 1 in 1,000"
        return {"ln P": logarithm, "log10 P": decimal, "unresolved": unresolved, **SHORT}

    def contradictions(self, view: MetricResults, others: Sequence[MetricResults]) -> list[str]:
        """Estimates that contradict each other or a search."""
        return find_contradictions(view, others)

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The distribution, and ln P against the threshold for a few samples."""
        found: list[Chart | Gallery] = [*draw_distribution(view, note=_NOTE), *_draw_directions(view)]
        for sample in view.samples(SHOWN):
            found += _curves(view, sample)
        return found


def _draw_directions(view: MetricResults) -> list[Chart]:
    """A chart for each explainer: the estimates from the prior and from the event, where there are both."""
    charts = []
    for name in view.present if "from_event" in view.frame.columns else []:
        rows = view.rows_for(name).filter(pl.col("from_event").is_finite() & pl.col("from_prior").is_finite())
        rows = rows.filter(pl.col("repeat") == pl.col("repeat").min())
        if not len(rows):
            continue
        lines = []
        for direction, error in (("from_prior", "std_error"), ("from_event", "from_event_error")):
            value, width = read_numbers(rows, direction), 1.96 * read_numbers(rows, error)
            if direction == "from_prior":  # the interval of a run that is not resolved contains both directions
                width = np.where(read_flags(rows, "resolved"), width, 0.0)
            label = direction.replace("_", " the ")
            sample = rows["sample"].to_numpy().astype(float)
            lines.append(Line(label, sample, value, value - width, np.minimum(value + width, 0.0)))
        words = Words(
            f"{name}: ln P from the prior to the event, and from the event back to the prior",
            "Band: ±1.96 standard errors; on the way to the event only where the run is resolved. The "
            "simulation tends to be too low on the way to the event, and too high on the way back. Where the bands are "
            "far apart, ln P is probably between them. This is no proof.",
            f"directions-{name}",
            f"{name}: both directions",
        )
        styles = choose_styles_of_values(view.explainers, name, [line.name for line in lines])
        lines = [replace(line, style=styles[line.name]) for line in lines]
        chart = draw_lines(lines, view.explainers, Axis("sample"), Axis(LN_P), words)
        charts += [chart] if chart is not None else []
    return charts


def _curves(view: MetricResults, sample: int) -> list[Chart]:
    """ln P against the threshold at one sample: a chart for each stage, with the levels of one run and their errors."""
    event = str(view.options.get("event"))
    stages = {"misclassification": [0], "changed_class": [0, 1]}.get(event, [1])
    lines: dict[int, list[Line]] = {stage: [] for stage in stages}
    without = []
    for name in view.present:
        shown = view.load_sample(name, sample, _CURVES)
        if shown is None:
            continue
        row, arrays = shown
        columns = column_of_levels(arrays["level_stage"], arrays["level_threshold"], event, bool(row.get("censored")))
        drawn = False
        for stage in stages:
            here = columns == stage
            if here.any():
                drawn = True
                x = threshold_as_read(view.options, stage, arrays["level_threshold"][here])
                y = arrays["level_log_probability"][here]
                band = 1.96 * np.nan_to_num(arrays["level_std_error"][here])
                # `high` bounds the probability of the event, and no earlier level is less probable
                least = float(row["high"]) if row.get("resolved") is False else -np.inf
                lines[stage].append(Line(name, x, y, y - band, np.minimum(np.maximum(y + band, least), 0.0)))
        without += [] if drawn else [name]
    charts = []
    for stage in stages:
        limit = 0.0 if stage == 0 else find_threshold(view.options)
        what = "margin" if stage == 0 else "similarity"
        caption = (
            f"How probable it is that noise around sample {sample} moves the {what} this far. Dotted: the event begins "
            "here. Band: the error of the simulation (±1.96 standard errors; up to the bound where it is unresolved)."
        )
        if without:
            caption += f" No levels to draw: {', '.join(without)}."
        if stage == 0:
            caption += " The margin does not depend on the explainer, so these curves may coincide."
        words = Words(
            f"Probability of a {what} beyond each value, sample {sample}",
            caption,
            f"curve-sample{sample}" + ("-class" if stage == 0 and len(stages) > 1 else ""),
            f"Sample {sample}: how probable is such a {what}?",
        )
        level = Axis(_axis(view.options, stage), rules=() if limit is None else (limit,))
        chart = draw_lines(lines[stage], view.explainers, level, Axis(LN_P), words)
        charts += [chart] if chart is not None else []
    return charts


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
