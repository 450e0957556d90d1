"""One file per published evaluation, named after it."""

from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.misinterpretation_probability import MisinterpretationProbability, ProbabilityResult
from holdfast.metrics.reading import Reading, View
from holdfast.metrics.result import Result
from holdfast.metrics.sensitivity import LocalLipschitz, MaxSensitivity, SensitivityResult, sensitivity
from holdfast.metrics.worst_case import WorstCase, WorstCaseResult

__all__ = [
    "LocalLipschitz",
    "MaxSensitivity",
    "Metric",
    "MisinterpretationProbability",
    "ProbabilityResult",
    "Reading",
    "Result",
    "SensitivityResult",
    "View",
    "WorstCase",
    "WorstCaseResult",
    "get",
    "names",
    "sensitivity",
]


def names() -> list[str]:
    """Names of all registered metrics, sorted."""
    return metrics.names()


def get(name: str) -> type[Metric]:
    """The metric class of that name."""
    return metrics[name]
