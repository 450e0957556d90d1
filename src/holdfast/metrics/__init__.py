"""One file per published evaluation, named after it."""

from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.data_sensitivity_consistency import DataSencResult, DataSensitivityConsistency
from holdfast.metrics.misinterpretation_probability import MisinterpretationProbability, ProbabilityResult
from holdfast.metrics.parameter_sensitivity_consistency import ParameterSencResult, ParameterSensitivityConsistency
from holdfast.metrics.reading import Reading, View
from holdfast.metrics.result import Result
from holdfast.metrics.sensitivity import LocalLipschitz, MaxSensitivity, SensitivityResult, sensitivity
from holdfast.metrics.worst_case import WorstCase, WorstCaseResult

__all__ = [
    "DataSencResult",
    "DataSensitivityConsistency",
    "LocalLipschitz",
    "MaxSensitivity",
    "Metric",
    "MisinterpretationProbability",
    "ParameterSencResult",
    "ParameterSensitivityConsistency",
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
