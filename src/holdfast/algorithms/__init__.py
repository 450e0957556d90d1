"""What metrics are made of, generic and free of explanations: they are handed a score function on tensors."""

from holdfast.algorithms.block_search import BlockSearch
from holdfast.algorithms.certified_distortion import CertifiedDistortion, certified_distortion
from holdfast.algorithms.distortion import Attack, MinimalDistortion, attacks, minimal_distortion
from holdfast.algorithms.genetic import GeneticSearch
from holdfast.algorithms.gradient_search import GradientSearch
from holdfast.algorithms.knee import knee
from holdfast.algorithms.monte_carlo import monte_carlo
from holdfast.algorithms.priors import Prior, StandardNormal, UnitBox
from holdfast.algorithms.random_masks import (
    Consistency,
    consistency,
    draw_masks,
    look_schedule,
    mask_sensitivity,
    settled,
)
from holdfast.algorithms.random_search import RandomSearch
from holdfast.algorithms.rare_event import Levels, RareEventEstimate
from holdfast.algorithms.search import Outcome, Search, SearchResult, searches
from holdfast.algorithms.sign_search import SignSearch
from holdfast.algorithms.subset_simulation import subset_simulation

__all__ = [
    "Attack",
    "BlockSearch",
    "CertifiedDistortion",
    "Consistency",
    "GeneticSearch",
    "GradientSearch",
    "Levels",
    "MinimalDistortion",
    "Outcome",
    "Prior",
    "RandomSearch",
    "RareEventEstimate",
    "Search",
    "SearchResult",
    "SignSearch",
    "StandardNormal",
    "UnitBox",
    "attacks",
    "certified_distortion",
    "consistency",
    "draw_masks",
    "knee",
    "look_schedule",
    "mask_sensitivity",
    "minimal_distortion",
    "monte_carlo",
    "searches",
    "settled",
    "subset_simulation",
]
