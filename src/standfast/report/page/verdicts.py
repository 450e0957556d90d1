"""What each metric answers in a sentence and whether a test decides between the explainers; and a telling example."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from standfast.report.charts import GalleryRow, Picture
from standfast.report.presentation.drawing import make_row
from standfast.report.sentences import describe_decision, describe_leader, say
from standfast.report.words import collect_facts, words_of
from standfast.results import ConfiguredMetric, MetricResults, Results

#: a fallback example shows at most this many maps
_MAPS = 5


@dataclass(frozen=True)
class Answer:
    """What one metric found on one data set and model.

    Attributes:
        label: the name of the configured metric.
        question: what it asks.
        text: the verdict; empty without values.
        decision: whether a test decides between the explainers, in two or three words.
        why: the same in sentences, with what the verdict cannot say.
    """

    label: str
    question: str
    text: str
    decision: str
    why: str


def answer_question(results: Results, label: ConfiguredMetric, data: str, model: str) -> Answer:
    """The answer of a configured metric on one data set and model."""
    words = words_of(label.presentation)
    question = words.question(label.options)
    found = results.summary.find(data, model, label.name)
    assert found is not None
    decision, why = say("decision_title", found.decision), describe_decision(found)
    if found.decision.reason in ("no result", "no value"):
        return Answer(label.name, question, "", decision, why)
    facts = collect_facts(found, results.metric_results(data, model, label.name))
    warning = words.caution(facts)
    controls = say("controls", found.control_tests, label.spec.decimals) if found.control_tests else ""
    sentences = (warning, why, describe_leader(found), words.remark(facts), controls)
    if warning and found.decision.state == "decided":
        decision = "With a caveat"
    return Answer(label.name, question, words.verdict(facts), decision, " ".join(filter(None, sentences)))


def choose_example(results: Results, data: str, model: str) -> tuple[GalleryRow, MetricResults] | None:
    """The pictures that open the report, with the view they are from; None where no metric stores any.

    The first metric that has an example, in the order that the presentations ask for; else the maps of a sample. Where
    the metric is there in several configurations, such as neighbourhoods, the text begins with the one it is from.
    """
    labels = sorted(results.metrics.values(), key=lambda label: label.presentation.example_order)
    views = [
        results.metric_results(data, model, label.name)
        for label in labels
        if len(results.select(data, model, label.name))
    ]
    for view in views:
        row = results.metrics[view.label].presentation.example(view)
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
