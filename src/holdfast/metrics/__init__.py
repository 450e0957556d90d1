"""One file per published evaluation, named after it."""

from holdfast.metrics.aopc import AOPC, AOPCResult
from holdfast.metrics.attribution_attack import AttributionAttack, AttributionAttackResult
from holdfast.metrics.base import Metric, metrics
from holdfast.metrics.c_eval import CEval, CEvalResult
from holdfast.metrics.c_eval_plot import CEvalPlot, CEvalPlotResult
from holdfast.metrics.corruption_curve import CorruptionCurve, CorruptionCurveResult
from holdfast.metrics.data_sensitivity_consistency import DataSencResult, DataSensitivityConsistency
from holdfast.metrics.localisation import LocalisationResult, RelevanceLocalisation
from holdfast.metrics.log_odds import LogOdds, LogOddsResult
from holdfast.metrics.misinterpretation_probability import MisinterpretationProbability, ProbabilityResult
from holdfast.metrics.near_affinity import NearAffinity, NearAffinityResult
from holdfast.metrics.parameter_sensitivity_consistency import ParameterSencResult, ParameterSensitivityConsistency
from holdfast.metrics.peers import PeerMetric, PeerResult, is_peer, peer, peer_class, peer_names
from holdfast.metrics.reading import Reading, View
from holdfast.metrics.result import Result
from holdfast.metrics.sensitivity import LocalLipschitz, MaxSensitivity, SensitivityResult, sensitivity
from holdfast.metrics.worst_case import WorstCase, WorstCaseResult

__all__ = [
    "AOPC",
    "AOPCResult",
    "AttributionAttack",
    "AttributionAttackResult",
    "CEval",
    "CEvalPlot",
    "CEvalPlotResult",
    "CEvalResult",
    "CorruptionCurve",
    "CorruptionCurveResult",
    "DataSencResult",
    "DataSensitivityConsistency",
    "LocalLipschitz",
    "LocalisationResult",
    "LogOdds",
    "LogOddsResult",
    "MaxSensitivity",
    "Metric",
    "MisinterpretationProbability",
    "NearAffinity",
    "NearAffinityResult",
    "ParameterSencResult",
    "ParameterSensitivityConsistency",
    "PeerMetric",
    "PeerResult",
    "ProbabilityResult",
    "Reading",
    "RelevanceLocalisation",
    "Result",
    "SensitivityResult",
    "View",
    "WorstCase",
    "WorstCaseResult",
    "get",
    "names",
    "peer",
    "peer_names",
    "sensitivity",
]


def names() -> list[str]:
    """Names of all registered metrics, sorted."""
    return metrics.names()


def get(name: str) -> type[Metric]:
    """The metric class of that name; of another package for `"quantus:MaxSensitivity"` and the like."""
    return peer_class(name) if is_peer(name) else metrics[name]
