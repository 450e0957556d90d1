"""What each metric answers in a sentence and whether a test decides between the explainers; and a telling example."""

from __future__ import annotations

from dataclasses import dataclass

from standfast.report.charts import GalleryRow
from standfast.report.facts import collect_facts, find_words
from standfast.report.presentation.base import presentation_of
from standfast.report.sentences import describe_decision, describe_leader, say
from standfast.results import ConfiguredMetric, MetricResults, StoredResults


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


def answer_question(
    results: StoredResults, label: ConfiguredMetric, data: str, model: str
) -> Answer:
    """The answer of a configured metric on one data set and model."""
    words = find_words(label)
    question = words.question(label.options, label.spec)
    found = results.summary.find(data, model, label.name)
    assert found is not None
    decision, why = say("decision_title", found.decision), describe_decision(found)
    if found.decision.reason in ("no result", "no value", "nothing varied"):
        return Answer(label.name, question, "", decision, why)
    facts = collect_facts(found, results.metric_results(data, model, label.name))
    warning = words.caution(facts)
    controls = (
        say("controls", found.control_tests, label.spec.decimals) if found.control_tests else ""
    )
    sentences = (warning, why, describe_leader(found), words.remark(facts), controls)
    if warning and found.decision.state == "decided":
        decision = "With a caveat"
    why = " ".join(filter(None, sentences))
    return Answer(label.name, question, words.verdict(facts), decision, why)


def choose_example(
    results: StoredResults, data: str, model: str
) -> tuple[GalleryRow, MetricResults] | None:
    """The pictures that open the report, of the first metric that has an example, with the view they are from."""
    for label in results.metrics.values():
        view = results.metric_results(data, model, label.name)
        if not len(view.frame):
            continue
        row = presentation_of(label.metric, label.task).example(view)
        if row is not None:
            return row, view
    return None
