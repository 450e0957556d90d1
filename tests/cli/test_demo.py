"""What the demonstration evaluates."""

from __future__ import annotations

import standfast
from standfast.cli.demo import UNRECOGNISABLE, WORST, demo_metrics
from standfast.metrics import MisinterpretationProbability, WorstCase


def test_the_demonstration_decides_and_says_so() -> None:
    """At least three of its metrics rank explainers, and one is a worst case."""
    metrics = demo_metrics()
    assert (
        sum(metric.direction_of(metric.options()) is not None for metric in metrics.values()) >= 3
    )
    assert isinstance(metrics[WORST], WorstCase)


def test_the_demonstration_counts_a_map_as_changed_where_the_documentation_does() -> None:
    """The threshold of both metrics is that of Pearson's correlation by default: 0.4."""
    metrics = demo_metrics()
    default = standfast.similarity.get("pearson").low
    assert default == UNRECOGNISABLE
    probabilities = [
        each for each in metrics.items() if isinstance(each[1], MisinterpretationProbability)
    ]
    ((label, probability),) = probabilities
    assert probability.threshold == default
    assert f"{default:g}" in label
