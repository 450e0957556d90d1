"""The published evaluations, a folder for each paper; and `Metric`, `Result` and `Probe` for one of your own.

A metric is configured first and called then, and returns a `Result`:

>>> import standfast
>>> digits = standfast.data.bundled("digits")[:2]
>>> model = standfast.Model(standfast.zoo.load("lenet5-mnist"), bounds=(0.0, 1.0))
>>> standfast.metrics.AOPC(steps=20, samples=2)(model, "saliency", digits.inputs).status
('ok', 'ok')
"""

from typing import Any

from standfast.errors import check, describe_foreign
from standfast.metrics.base import NO_EFFECT, Cost, Metric, PartOf, metrics
from standfast.metrics.c_eval.c_eval import CEval, CEvalResult
from standfast.metrics.c_eval.c_eval_plot import CEvalPlot, CEvalPlotResult
from standfast.metrics.c_eval.near_affinity import NearAffinity, NearAffinityResult
from standfast.metrics.coarse_to_fine.corruption_curve import CorruptionCurve
from standfast.metrics.coarse_to_fine.corruption_result import CorruptionCurveResult
from standfast.metrics.faithfulness.aopc import AOPC, AOPCResult
from standfast.metrics.faithfulness.groundedness import Groundedness
from standfast.metrics.faithfulness.linear_datamodeling_score import LinearDatamodelingScore
from standfast.metrics.faithfulness.localisation import LocalisationResult, RelevanceLocalisation
from standfast.metrics.faithfulness.log_odds import LogOdds, LogOddsResult
from standfast.metrics.lens.attack_result import AttributionAttackResult
from standfast.metrics.lens.attribution_attack import AttributionAttack
from standfast.metrics.probe import Call, Measurement, Probe
from standfast.metrics.reasons.reasons import Reasons
from standfast.metrics.reasons.reasons_result import ReasonsResult
from standfast.metrics.result import Result
from standfast.metrics.safari.misinterpretation_probability import MisinterpretationProbability
from standfast.metrics.safari.probability_result import ProbabilityResult
from standfast.metrics.safari.sensitivity import LocalLipschitz, MaxSensitivity, SensitivityResult
from standfast.metrics.safari.worst_case import WorstCase
from standfast.metrics.safari.worst_case_result import WorstCaseResult
from standfast.metrics.seed_agreement import SeedAgreement, SeedAgreementResult
from standfast.metrics.senc.data_sensitivity_consistency import (
    DataSencResult,
    DataSensitivityConsistency,
)
from standfast.metrics.senc.parameter_sensitivity_consistency import (
    ParameterSencResult,
    ParameterSensitivityConsistency,
)
from standfast.metrics.senc.sensitivity_consistency import (
    SensitivityConsistency,
    SensitivityConsistencyResult,
)
from standfast.registry import build
from standfast.value_spec import CommonShare, ValueSpec

__all__ = [
    "AOPC",
    "NO_EFFECT",
    "AOPCResult",
    "AttributionAttack",
    "AttributionAttackResult",
    "CEval",
    "CEvalPlot",
    "CEvalPlotResult",
    "CEvalResult",
    "Call",
    "CommonShare",
    "CorruptionCurve",
    "CorruptionCurveResult",
    "Cost",
    "DataSencResult",
    "DataSensitivityConsistency",
    "Groundedness",
    "LinearDatamodelingScore",
    "LocalLipschitz",
    "LocalisationResult",
    "LogOdds",
    "LogOddsResult",
    "MaxSensitivity",
    "Measurement",
    "Metric",
    "MisinterpretationProbability",
    "NearAffinity",
    "NearAffinityResult",
    "ParameterSencResult",
    "ParameterSensitivityConsistency",
    "PartOf",
    "ProbabilityResult",
    "Probe",
    "Reasons",
    "ReasonsResult",
    "RelevanceLocalisation",
    "Result",
    "SeedAgreement",
    "SeedAgreementResult",
    "SensitivityConsistency",
    "SensitivityConsistencyResult",
    "SensitivityResult",
    "ValueSpec",
    "WorstCase",
    "WorstCaseResult",
    "get",
    "metrics",
    "names",
]

# not in `base`, which those metrics import
metrics.packages.update(
    dict.fromkeys(("captum", "quantus"), "standfast.integrations.peers:peer_class")
)


def names() -> list[str]:
    """Names of all registered metrics, sorted."""
    return metrics.names()


def get(metric: str | Metric, **options: Any) -> Metric:
    """A metric by its name and options, by `"name:option=value,..."`, or one that is there already.

    Those of other packages are `"quantus:MaxSensitivity"` or `"captum:infidelity"`, with their own options.

    Raises:
        MissingExtraError: that other package cannot be imported.
        ArgumentError: an unknown name or option, with the nearest that there is; a missing option, with an example; a
            value out of range.

    >>> get("aopc", steps=20).steps
    20
    >>> get("worst_case")
    Traceback (most recent call last):
        ...
    standfast.errors.ArgumentError: neighbourhood: expected a value for worst_case, such as neighbourhood=LinfBall(...
    """
    if isinstance(metric, Metric):
        check(
            not options,
            "options",
            f"none for the configured metric {metric.own_label}",
            ", ".join(options),
        )
        return metric
    advice = ""
    if isinstance(metric, type) and issubclass(metric, Metric):
        advice = f" (an instance: {metric.__name__}())"
    got = describe_foreign(metric, metrics.packages)
    check(isinstance(metric, str), "metric", f"a name or a Metric{advice}", got)
    return build(metrics, metric, options)
