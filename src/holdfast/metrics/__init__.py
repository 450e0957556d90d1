"""One file per published evaluation, named after it."""

from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.result import Result
from holdfast.metrics.worst_case import WorstCase, WorstCaseResult

__all__ = ["Metric", "Result", "WorstCase", "WorstCaseResult", "get", "names"]


def names() -> list[str]:
    """Names of all registered metrics, sorted."""
    return metrics.names()


def get(name: str) -> type[Metric]:
    """The metric class of that name."""
    return metrics[name]
