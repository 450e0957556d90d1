"""The answers that open the report: a sentence for each metric, and whether a test decides between the explainers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from standfast.report.charts import GalleryRow, Picture
from standfast.report.presentation.drawing import make_row
from standfast.report.views import ConfiguredMetric, Contents
from standfast.report.words import collect_facts, words_of
from standfast.results import MetricResults
from standfast.results.formatting import format_number, join_names
from standfast.results.presentation import RankedGroup, find_best_median
from standfast.statistics.comparison import Comparison, ControlTest, count_needed, estimate_needed

#: a fallback example shows at most this many maps
_MAPS = 5


@dataclass(frozen=True)
class Decision:
    """What tests say about the explainers.

    Attributes:
        mark: `"decided"`, `"open"` (no difference is demonstrated), `"unable"` (no test could decide) or `"none"`.
        title: the same in two or three words.
        text: a sentence.
    """

    mark: str
    title: str
    text: str


@dataclass(frozen=True)
class Answer:
    """What one metric found on one data set and model.

    Attributes:
        label: the name of the configured metric.
        question: what it asks.
        text: the verdict; empty without values.
        decision: whether a test decides between the explainers.
        comparability_warning: why explainers cannot be compared as they are; empty where they can.
        reservations: what the verdict cannot say.
    """

    label: str
    question: str
    text: str
    decision: Decision
    comparability_warning: str = ""
    reservations: tuple[str, ...] = ()


def answer_question(contents: Contents, label: ConfiguredMetric, data: str, model: str) -> Answer:
    """The answer of a configured metric on one data set and model."""
    words = words_of(label.presentation)
    question = words.question(label.options)
    if not len(contents.frame(data, model, label.name)):
        return Answer(label.name, question, "", Decision("unable", "No result", "Nothing was computed."))
    view = contents.view(data, model, label.name)
    facts = collect_facts(label.presentation, view)
    text = words.verdict(facts)
    if not text:
        return Answer(label.name, question, "", Decision("unable", "No result", "No sample has a value."))
    comparison = contents.comparisons.get((data, model, label.name))
    decision = decide(comparison, label.spec.direction, len(view.candidates))
    why = explain_ranks(view, *_find_leader(label, facts), comparison)
    why = why or explain_ranks(view, *find_best_median(view), comparison)
    decision = dataclasses.replace(decision, text=f"{decision.text} {why}") if why else decision
    warning, others = words.caution(facts), tuple(filter(None, [words.remark(facts)]))
    beside = describe_controls(contents.control_tests.get((data, model, label.name), []), label.spec.decimals)
    others += (beside,) if beside else ()
    if warning and decision.mark == "decided":
        decision = dataclasses.replace(decision, mark="open", title="With a caveat")
    return Answer(label.name, question, text, decision, warning, others)


def _find_leader(label: ConfiguredMetric, facts: dict[str, Any]) -> tuple[RankedGroup | None, str]:
    """Which explainer the verdict's own numbers put first, and which numbers these are; the median without them."""
    if label.spec.direction and facts["own"] and len(facts["ranked"]) > 1:
        return facts["ranked"][0], "count"
    return label.presentation.leader(facts["results"])


def decide(comparison: Comparison | None, direction: str | None, explainers: int) -> Decision:
    """What the tests of a comparison say, in a sentence; with too few samples, how many would be needed.

    >>> import numpy as np
    >>> from standfast.statistics.comparison import compare
    >>> few = compare(np.array([[1.0, 2.0], [1.0, 3.0]]), ["a", "b"], "higher")
    >>> print(decide(few, "higher", 2).text)
    2 samples have a value for both explainers; a test at 5% needs at least 6.
    """
    if direction is None:
        return Decision("none", "Not ranked", "Explainers are not ranked by it.")
    if comparison is None:
        alone = explainers == 1
        return Decision(
            "none" if alone else "unable",
            "One explainer" if alone else "Cannot be said",
            "There is nothing to compare it with." if alone else "Fewer than two explainers have a value.",
        )
    names, count = comparison.names, comparison.count
    all_of = "both explainers" if len(names) == 2 else f"all {len(names)} explainers"
    if not comparison.conclusive_possible:
        needed = count_needed(len(names), comparison.level)
        who = (
            f"{count} sample{'s have' if count != 1 else ' has'} a value for {all_of}"
            if count
            else (f"No sample has a value for {all_of}")
        )
        reason = (
            f"a test at {comparison.level:.0%} needs at least {needed}"
            if count < needed
            else ("their values are too often tied for a test")
        )
        return Decision("unable", "Too few samples" if count < needed else "Tied", f"{who}; {reason}.")
    differ = comparison.significant
    if not differ.any():
        more = estimate_needed(comparison)
        rough = (
            f" If the differences stay as they are, about {more:,} would show one."
            if more is not None
            else " No number of samples is in sight that would show one."
        )
        return Decision("open", "Not decided", f"{count} samples show no difference between explainers.{rough}")
    best = comparison.order[0]
    first = [names[i] for i in comparison.winner_set]
    worse = [names[i] for i in comparison.order if differ[best, i] and comparison.effects[best, i] > 0]
    if len(first) == 1:
        others = f"{names[1 - best]}" if len(names) == 2 else f"each of the {len(names) - 1} others"
        return Decision("decided", "Decided", f"{first[0]} is better than {others} ({count} samples, tests at 5%).")
    if worse:
        rest = join_names([name for name in first if name != names[best]])
        beaten = join_names(worse) if len(worse) <= 3 else f"{len(worse)} others"
        text = f"{names[best]} is better than {beaten}, and not shown to be better than {rest}"
        return Decision("decided", "Partly decided", f"{text} ({count} samples, tests at 5%).")
    return Decision("open", "Partly decided", f"Some explainers differ, but the best is not decided ({count} samples).")


def explain_ranks(view: MetricResults, first: RankedGroup | None, what: str, comparison: Comparison | None) -> str:
    """A sentence where the tests put another explainer first than the medians or counts do; else empty.

    Ranks are within each sample, so both can be true at once.

    Args:
        view: of the metric.
        first: the explainers with the best number.
        what: which number this is, such as "median".
        comparison: of the explainers.
    """
    if comparison is None or not comparison.decided or first is None:
        return ""
    best = comparison.mean_ranks[comparison.order[0]]
    leaders = [name for name, rank in zip(comparison.names, comparison.mean_ranks, strict=True) if rank == best]
    if set(first.names) & set(leaders):
        return ""
    start = f"{view.control_note}, the" if view.control_note else "The"
    return (
        f"{start} best {what} is that of {first.who} ({first.text}), but "
        f"{join_names(leaders)} {'has' if len(leaders) == 1 else 'have'} the best mean rank: ranks compare explainers "
        "within each sample, over the samples that all have."
    )


def describe_controls(tests: Sequence[ControlTest], decimals: int | None = None) -> str:
    """Which explainers are better than every control, in words; empty without tests.

    Args:
        tests: of one metric.
        decimals: of its values.

    >>> from standfast.statistics.comparison import compare_with_controls
    >>> import numpy as np
    >>> values = np.column_stack([np.arange(9) + 5.0, np.arange(9) % 2, np.arange(9) % 3])
    >>> tests = compare_with_controls(values, ["a", "b", "edges"], ["edges"], "higher")
    >>> print(describe_controls(tests, 1).replace("a. Not", "a.\\nNot"))
    Better than every control: a.
    Not shown to be better than edges, a control: b (median difference 0.0 [−2.0, 0.0]).
    """
    if not tests:
        return ""
    level, count = tests[0].level, max(test.count for test in tests)
    if len(tests) * 0.5**count > level:
        return f"{count} sample{'s are' if count != 1 else ' is'} too few to show that an explainer beats its controls."
    better = [test.explainer for test in tests if test.verdict == "beats"]
    sentences = [f"Better than every control: {', '.join(better)}."] if better else []
    groups: dict[tuple[str, str], list[str]] = {}
    for verdict, words in (
        ("undecided", "Not shown to be better than {}, a control"),
        ("worse", "Worse than {}, a control that does not depend on what the model has learned"),
    ):
        for test in tests:
            if test.verdict == verdict:
                groups.setdefault((words, test.control), []).append(_name_with_difference(test, decimals))
    sentences += [f"{words.format(control)}: {', '.join(names)}." for (words, control), names in groups.items()]
    return " ".join(sentences)


def _name_with_difference(test: ControlTest, decimals: int | None) -> str:
    """The explainer with the median of the paired differences from its best control."""
    gap = test.difference
    if gap is None or gap.bound is not None or gap.low is None or gap.high is None:
        return test.explainer
    value, low, high = (format_number(each, decimals) for each in (gap.value, gap.low, gap.high))
    return f"{test.explainer} (median difference {value} [{low}, {high}])"


def choose_example(contents: Contents, data: str, model: str) -> tuple[GalleryRow, MetricResults] | None:
    """The pictures that open the report, with the view they are from; None where no metric stores any.

    The first metric that has an example, in the order that the presentations ask for; else the maps of a sample. Where
    the metric is there in several configurations, such as neighbourhoods, the text begins with the one it is from.
    """
    labels = sorted(contents.labels.values(), key=lambda label: label.presentation.example_order)
    views = [contents.view(data, model, label.name) for label in labels if len(contents.frame(data, model, label.name))]
    for view in views:
        row = contents.labels[view.label].presentation.example(view)
        if row is not None:
            if sum(each.metric == view.metric for each in views) > 1:
                row = dataclasses.replace(row, text=f"For {view.label}, {row.text[:1].lower()}{row.text[1:]}")
            return row, view
    for view in views:
        row = _show_maps(view)
        if row is not None:
            return row, view
    return None


def _show_maps(view: MetricResults) -> GalleryRow | None:
    """The first sample of a view and its maps by the first explainers."""
    for sample in view.samples(1):
        pictures: list[Picture] = []
        for name in view.present:
            arrays = view.arrays(name, sample, ("origins", "origin_maps"))
            if arrays is None or len(pictures) > _MAPS:
                continue
            if not pictures:
                pictures.append(Picture("input", arrays["origins"], f"Input, sample {sample}"))
            words = f"Explanation of the input: {name}, sample {sample}"
            pictures.append(Picture(name, arrays["origin_maps"], words, signed=True))
        if pictures:
            text = f"Sample {sample} and its maps, as they are. Red is evidence for the class, blue against it."
            return make_row(view, "", sample, pictures, text)
    return None
