"""The presentations of our own metrics: how each is read, drawn and put into words. Importing this registers them."""

from standfast.report.presentation import peers, seed_agreement
from standfast.report.presentation.c_eval import c_eval
from standfast.report.presentation.coarse_to_fine import corruption_curve
from standfast.report.presentation.faithfulness import aopc, localisation, log_odds
from standfast.report.presentation.lens import attribution_attack
from standfast.report.presentation.safari import misinterpretation_probability, sensitivity, worst_case
from standfast.report.presentation.senc import data_sensitivity_consistency, parameter_sensitivity_consistency

__all__ = [
    "aopc",
    "attribution_attack",
    "c_eval",
    "corruption_curve",
    "data_sensitivity_consistency",
    "localisation",
    "log_odds",
    "misinterpretation_probability",
    "parameter_sensitivity_consistency",
    "peers",
    "seed_agreement",
    "sensitivity",
    "worst_case",
]
