"""The sentences of `templates/sentences.txt`, which the terminal, notebooks and the page share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from standfast.report.facts import rank_medians
from standfast.report.removal_changes import find_removal_changes
from standfast.report.wording import describe_reach, describe_transformation
from standfast.report.words import make_environment
from standfast.results.failures import group_misfits
from standfast.results.summary import MetricSummary, Summary
from standfast.results.verdict import Verdict
from standfast.value_spec import USEFUL

#: what the words of the tables mean, in a sentence each: the page shows it at the word, and under "How to read this"
MEANINGS: Mapping[str, str] = {
    "says something": "The maps pass the sanity checks: they depend on the input and the model, and mark what matters.",
    "not tested": "A sanity check could not be made, so it is not passed.",
    "good": "The whole interval is nearer to identical maps than to unrelated ones; or the tests show the explainer"
    " to be better than every control.",
    "no better than a control": "An explainer that says nothing about the model does as well.",
    "bad": "The whole interval is nearer to unrelated maps than to identical ones; or worse than random maps.",
    "undecided": "The interval allows both. More samples may decide.",
    "not judged": "There is nothing to judge this number by.",
    "nothing to vary": "What the metric varies, such as a seed, the explainer does not have. So it is no merit to stay"
    " the same.",
    "control": "An explainer that says nothing about what the model has learned, such as random maps: a reference.",
}


@cache
def _read_macros(template: str) -> Any:
    environment = make_environment(autoescape=False)
    environment.filters["sentence"] = begin_sentence
    return environment.get_template(template).module


def begin_sentence(text: str) -> str:
    """A text as the begin of a sentence: its first letter is a capital, unless the first word is more than a word.

    >>> begin_sentence("income and debt"), begin_sentence("bmi_2 and age"), begin_sentence("pH")
    ('Income and debt', 'bmi_2 and age', 'pH')
    """
    first, *_ = text.split(" ", 1)
    is_word = first.rstrip(",").isalpha() and first.islower()
    if is_word:
        return text[:1].upper() + text[1:]
    return text


def fill(template: str, macro: str, *values: Any) -> str:
    """A macro of one of our templates as plain text; who puts it into HTML escapes it."""
    write = getattr(_read_macros(template), macro)
    lines = str(write(*values)).splitlines()
    return "".join(lines).strip()


def say(macro: str, *values: Any) -> str:
    """A sentence as plain text; who puts it into HTML escapes it.

    >>> from standfast.results import MetricDecision
    >>> say("decision", MetricDecision("unable", "few samples", 2, 2, 6))
    '2 samples have a value for both explainers; a test at 5% needs at least 6.'
    """
    return fill("sentences.txt", macro, *values)


def describe_verdict(verdict: Verdict) -> str:
    """The verdict in sentences: the answer, what to do next, and whose stability is no merit."""
    sentences = []
    if verdict.accuracy is not None and verdict.accuracy.near_chance:
        sentences.append(say("accuracy", verdict.accuracy))
    sentences += [say("verdict_answer", verdict), say("verdict_next", verdict)]
    sentences += [say("hollow", hollow) for hollow in verdict.hollow]
    if verdict.left_out:
        sentences.append(say("left_out", verdict))
    return " ".join(filter(None, sentences))


def describe_decision(metric: MetricSummary) -> str:
    """What the tests say about the explainers by one metric, or why they cannot, in a sentence."""
    if metric.decision.reason != "unchanged":
        return say("decision", metric.decision)
    options = metric.metric.options
    reach = describe_reach(options)
    moved = f"moved {reach}" if reach else ""
    return say("unchanged", describe_transformation(options) or moved)


def find_useless(metric: MetricSummary) -> list[tuple[str, float]]:
    """The explainers for which a threshold is too loose, with the share of unrelated pairs that count as changed.

    An explainer that fails the sanity checks is left out: its maps are alike whatever the threshold.
    """
    useless: list[tuple[str, float]] = []
    for row in metric.rows:
        if not row.spec.log_probability or not row.references or row.sanity == "failed":
            continue
        if row.references.unrelated < USEFUL:
            useless.append((row.explainer, row.references.unrelated))
    return useless


def list_cautions(metrics: Sequence[MetricSummary]) -> list[str]:
    """A sentence for each metric that tells nothing apart, or whose first explainers depend on how words are removed.

    A metric tells nothing apart if no map changes, or its threshold is too loose.
    """
    cautions = []
    for metric in metrics:
        if metric.decision.reason == "unchanged":
            cautions.append(f"{metric.label}: {describe_decision(metric)}")
        useless = find_useless(metric)
        if useless:
            cautions.append(say("useless", metric.label, useless))
    changes = find_removal_changes(metrics)
    return [*cautions, *(say("removal", change) for change in changes)]


def describe_leader(metric: MetricSummary) -> str:
    """A sentence where the tests put another explainer first than the medians do; else empty.

    Ranks are within each sample, so both can be true at once. Only explainers that pass the sanity checks are compared.
    """
    leaders = [row.explainer for row in metric.rows if row.standing == "best"]
    groups = rank_medians(metric)
    if not leaders or not groups:
        return ""
    first = groups[0]
    if set(first.names) & set(leaders):
        return ""
    return say("other_leader", first.names, first.text, leaders)


def describe_uncounted(
    metrics: Sequence[MetricSummary], only_empty_cells: bool = False
) -> list[str]:
    """Why samples do not count, a sentence for each reason and for the explainers that it concerns.

    With `only_empty_cells` it concerns explainers of which no sample counts: their cells have no number. Controls are
    left out then, since they are only references.
    """
    labels_by_reason: dict[tuple[str, str], list[str]] = {}
    for metric in metrics:
        explainers_by_reason: dict[str, list[str]] = {}
        for row in metric.rows:
            if only_empty_cells and (row.control or row.estimate is not None):
                continue
            for uncounted in row.counts.uncounted:
                reason = say("uncounted", uncounted, row.spec)
                explainers_by_reason.setdefault(reason, []).append(row.explainer)
        for reason, explainers in explainers_by_reason.items():
            key = (reason, ", ".join(explainers))
            labels_by_reason.setdefault(key, []).append(metric.label)
    return [
        f"Not counted for {explainers}: {reason} ({', '.join(labels)})."
        for (reason, explainers), labels in labels_by_reason.items()
    ]


def describe_failures(summary: Summary) -> list[str]:
    """A sentence for each reason why jobs failed: which explainers, by how many of the metrics, on which samples."""
    return [say("failure", failure) for failure in summary.failures]


def describe_misfits(misfits: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A sentence for each metric that a study left some explainers out of, from a manifest's `misfits`."""
    return [say("misfit", *group) for group in group_misfits(misfits)]
