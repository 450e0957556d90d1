"""How each metric is drawn and put into words: `Presentation`, and those of our own metrics.

Importing this registers ours. Those of other packages come through entry points.
"""

from standfast.report.presentation import reasons, seed_agreement
from standfast.report.presentation.base import (
    Contradiction,
    Detail,
    Presentation,
    presentation_of,
    presentations,
)
from standfast.report.presentation.c_eval import c_eval
from standfast.report.presentation.coarse_to_fine import corruption_curve
from standfast.report.presentation.faithfulness import aopc, localisation, log_odds
from standfast.report.presentation.lens import attribution_attack
from standfast.report.presentation.safari import (
    misinterpretation_probability,
    sensitivity,
    worst_case,
)
from standfast.report.presentation.senc import (
    data_sensitivity_consistency,
    parameter_sensitivity_consistency,
)

__all__ = [
    "Contradiction",
    "Detail",
    "Presentation",
    "aopc",
    "attribution_attack",
    "c_eval",
    "corruption_curve",
    "data_sensitivity_consistency",
    "localisation",
    "log_odds",
    "misinterpretation_probability",
    "parameter_sensitivity_consistency",
    "presentation_of",
    "presentations",
    "reasons",
    "seed_agreement",
    "sensitivity",
    "worst_case",
]
