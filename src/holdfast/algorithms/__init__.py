"""Algorithms that the metrics use. They know nothing of explanations: each works on a score function of tensors."""

from holdfast.algorithms.certified.bound import CertifiedDistortion, certified_distortion
from holdfast.algorithms.distortion import Attack, MinimalDistortion, attacks, minimal_distortion
from holdfast.algorithms.knees import find_knee
from holdfast.algorithms.masks.random_masks import (
    Consistency,
    draw_masks,
    is_settled,
    mask_sensitivity,
    measure_consistency,
    plan_checks,
)
from holdfast.algorithms.rare_events.estimate import Levels, RareEventEstimate
from holdfast.algorithms.rare_events.plain_sampling import monte_carlo
from holdfast.algorithms.rare_events.priors import Prior, StandardNormal, UnitBox
from holdfast.algorithms.rare_events.subset_sampling import subset_simulation
from holdfast.algorithms.rare_events.witnesses import find_witnesses
from holdfast.algorithms.searches.auto import AutoSearch
from holdfast.algorithms.searches.base import Outcome, Search, SearchResult, searches
from holdfast.algorithms.searches.block import BlockSearch
from holdfast.algorithms.searches.genetic import GeneticSearch
from holdfast.algorithms.searches.gradient import GradientSearch
from holdfast.algorithms.searches.grid import GridSearch
from holdfast.algorithms.searches.random import RandomSearch
from holdfast.algorithms.searches.sign import SignSearch

__all__ = [
    "Attack",
    "AutoSearch",
    "BlockSearch",
    "CertifiedDistortion",
    "Consistency",
    "GeneticSearch",
    "GradientSearch",
    "GridSearch",
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
    "draw_masks",
    "find_knee",
    "find_witnesses",
    "is_settled",
    "mask_sensitivity",
    "measure_consistency",
    "minimal_distortion",
    "monte_carlo",
    "plan_checks",
    "searches",
    "subset_simulation",
]
