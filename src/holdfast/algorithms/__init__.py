"""What metrics are made of, generic and free of explanations: they are handed a score function on tensors."""

from holdfast.algorithms.monte_carlo import monte_carlo
from holdfast.algorithms.priors import Prior, StandardNormal, UnitBox
from holdfast.algorithms.rare_event import Levels, RareEventEstimate
from holdfast.algorithms.subset_simulation import subset_simulation

__all__ = [
    "Levels",
    "Prior",
    "RareEventEstimate",
    "StandardNormal",
    "UnitBox",
    "monte_carlo",
    "subset_simulation",
]
