"""How the stored results of metrics are read, drawn and put into words. No metric imports this."""

from standfast.presentation import peers
from standfast.presentation.base import (
    Presentation,
    Reading,
    View,
    format_number,
    metric_class,
    presentation_of,
    presentations,
)
from standfast.presentation.c_eval import c_eval, c_eval_plot, near_affinity
from standfast.presentation.coarse_to_fine import corruption_curve
from standfast.presentation.faithfulness import aopc, localisation, log_odds
from standfast.presentation.lens import attribution_attack
from standfast.presentation.safari import misinterpretation_probability, sensitivity, worst_case
from standfast.presentation.senc import data_sensitivity_consistency, parameter_sensitivity_consistency

__all__ = [
    "Presentation",
    "Reading",
    "View",
    "aopc",
    "attribution_attack",
    "c_eval",
    "c_eval_plot",
    "corruption_curve",
    "data_sensitivity_consistency",
    "format_number",
    "localisation",
    "log_odds",
    "metric_class",
    "misinterpretation_probability",
    "near_affinity",
    "parameter_sensitivity_consistency",
    "peers",
    "presentation_of",
    "presentations",
    "sensitivity",
    "worst_case",
]
