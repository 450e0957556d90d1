"""Texts: where another way to remove words puts other explainers first."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from standfast.results.configured_metric import ConfiguredMetric
from standfast.results.summary import MetricSummary


@dataclass(frozen=True)
class RemovalChange:
    """A metric of which the way to remove words decides which explainers are first.

    Attributes:
        metric: its registered name.
        first: by the words for each way, the explainers that are best, or one of several best; or better than controls.
        controls: whether they are compared with controls, and not with each other.
    """

    metric: str
    first: Mapping[str, tuple[str, ...]]
    controls: bool


def find_removal_changes(metrics: Sequence[MetricSummary]) -> list[RemovalChange]:
    """Where metrics on one data set and model that differ in the removal alone do not put the same explainers first.

    Only those count whose tests put any explainer first; or, against controls, all that are compared with them.
    """
    alike_metrics: dict[tuple[str, str], list[MetricSummary]] = {}
    for summary in metrics:
        if summary.metric.removal:
            alike_metrics.setdefault(_find_key(summary.metric), []).append(summary)
    changes = []
    for (name, _), summaries in alike_metrics.items():
        # a way by which the tests put no explainer first contradicts no other
        best = {
            summary.metric.removal: tuple(summary.stars) for summary in summaries if summary.stars
        }
        if _differ(best):
            changes.append(RemovalChange(name, best, False))
        better = {
            summary.metric.removal: _list_better(summary)
            for summary in summaries
            if summary.control_tests
        }
        if _differ(better):
            changes.append(RemovalChange(name, better, True))
    return changes


def _find_key(metric: ConfiguredMetric) -> tuple[str, str]:
    """What metrics have in common that differ in the removal alone."""
    others = {}
    for name, value in metric.options.items():
        if name != "removal":
            others[name] = value
    return metric.metric, json.dumps(others, sort_keys=True, default=repr)


def _list_better(summary: MetricSummary) -> tuple[str, ...]:
    """The explainers that are better than every control."""
    return tuple(test.explainer for test in summary.control_tests if test.verdict == "beats")


def _differ(first: Mapping[str, tuple[str, ...]]) -> bool:
    """Whether two ways put different explainers first, in whatever order."""
    return len(set(map(frozenset, first.values()))) > 1
