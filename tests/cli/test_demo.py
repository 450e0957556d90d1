"""What the demonstration evaluates."""

from __future__ import annotations

from standfast.cli.demo import WORST, demo_metrics
from standfast.metrics import WorstCase


def test_the_demonstration_decides_and_says_so() -> None:
    """At least three of its metrics rank explainers, and one is a worst case."""
    metrics = demo_metrics()
    assert sum(metric.direction_of(metric.options()) is not None for metric in metrics.values()) >= 3
    assert isinstance(metrics[WORST], WorstCase)
