"""What each metric answers in a sentence and whether a test decides between the explainers; and a telling example."""

from __future__ import annotations

from dataclasses import dataclass

from standfast.report.charts import GalleryRow
from standfast.report.facts import collect_facts, find_words
from standfast.report.presentation.base import presentation_of
from standfast.report.sentences import describe_decision, describe_leader, say
from standfast.results import ConfiguredMetric, MetricResults, StoredResults


@dataclass(frozen=True)
class MetricAnswer:
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


def answer_question(
    results: StoredResults, metric: ConfiguredMetric, data: str, model: str
) -> MetricAnswer:
    """The answer of a configured metric on one data set and model."""
    words = find_words(metric)
    question = words.question(metric.options, metric.spec)
    summary = results.summary.find(data, model, metric.name)
    assert summary is not None
    decision = say("decision_title", summary.decision)
    why = describe_decision(summary)
    if summary.decision.reason in ("no result", "no value", "nothing varied"):
        return MetricAnswer(metric.name, question, "", decision, why)
    facts = collect_facts(summary, results.metric_results(data, model, metric.name))
    warning = words.caution(facts)
    controls = ""
    if summary.control_tests:
        controls = say("controls", summary.control_tests, metric.spec.decimals)
    sentences = (warning, why, describe_leader(summary), words.remark(facts), controls)
    if warning and summary.decision.state == "decided":
        decision = "With a caveat"
    why = " ".join(filter(None, sentences))
    return MetricAnswer(metric.name, question, words.verdict(facts), decision, why)


def choose_example(
    results: StoredResults, data: str, model: str
) -> tuple[GalleryRow, MetricResults] | None:
    """The pictures that open the report, of the first metric that has an example, with the view they are from."""
    for metric in results.metrics.values():
        view = results.metric_results(data, model, metric.name)
        if not len(view.frame):
            continue
        row = presentation_of(metric.metric, metric.task).example(view)
        if row is not None:
            return row, view
    return None
