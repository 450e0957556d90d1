"""The numbers and names that the sentences of a metric are made of, on one data set and model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from standfast.report.presentation.base import presentation_of
from standfast.report.words import MetricWords, Options, format_value, words_of
from standfast.results import ConfiguredMetric, MetricResults, MetricSummary
from standfast.results.controls import is_random
from standfast.value_spec import Direction


@dataclass(frozen=True)
class RankedGroup:
    """Explainers that share a place, in a verdict.

    Attributes:
        names: the explainers, most often one.
        value: their number.
        text: this number as it is shown.
    """

    names: tuple[str, ...]
    value: float
    text: str


def group_ranks(measured: Sequence[RankedGroup], direction: Direction) -> list[RankedGroup]:
    """Explainers with a number each, the best first, or the smallest without a direction; equal texts share a place.

    >>> group_ranks([RankedGroup((name,), at, str(at)) for name, at in (("a", 1), ("b", 2), ("c", 1))], "lower")
    [RankedGroup(names=('a', 'c'), value=1, text='1'), RankedGroup(names=('b',), value=2, text='2')]
    """
    groups: list[RankedGroup] = []
    sign = -1 if direction == "higher" else 1
    for group in sorted(measured, key=lambda group: sign * group.value):
        # what looks equal in print is told as equal
        if groups and groups[-1].text == group.text:
            together = groups[-1]
            groups[-1] = replace(together, names=together.names + group.names)
        else:
            groups.append(group)
    return groups


def find_words(metric: ConfiguredMetric | MetricResults) -> MetricWords:
    """The sentences of a metric of a study."""
    return words_of(presentation_of(metric.metric, metric.task))


def collect_facts(summary: MetricSummary, results: MetricResults) -> dict[str, Any]:
    """What the sentences of one data set and model are made of; `metrics/default.html` describes the entries."""
    presentation = presentation_of(results.metric, results.task)
    rows = summary.rows
    random = [
        row for row in rows if row.control and is_random(row.explainer) and row.value is not None
    ]
    reference = format_value(random[0]) if random else ""
    return {
        "options": Options(results.options),
        "spec": results.spec,
        "ranked": rank_medians(summary),
        "reference": reference,
        "several": any(row.counts.counted > 1 for row in rows),
        "bounds": sum(row.counts.bounds for row in rows),
        "values": sum(row.counts.counted for row in rows),
        **presentation.facts(results),
    }


def rank_medians(summary: MetricSummary) -> list[RankedGroup]:
    """The explainers that may be called best by their medians, the best first."""
    medians = []
    for row in summary.rows:
        if row.candidate and row.value is not None:
            group = RankedGroup((row.explainer,), row.value, format_value(row))
            medians.append(group)
    return group_ranks(medians, summary.metric.spec.direction)
