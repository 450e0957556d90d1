"""Algorithms that the metrics use. They know nothing of explanations: each works on a score function of tensors."""

from standfast.algorithms.certified.bound import CertifiedDistortion, certified_distortion
from standfast.algorithms.distortion import Attack, MinimalDistortion, attacks, get_attack
from standfast.algorithms.knees import find_knee
from standfast.algorithms.masks.random_masks import (
    Consistency,
    draw_masks,
    is_settled,
    mask_sensitivity,
    measure_consistency,
    plan_checks,
)
from standfast.algorithms.rare_events.estimate import Levels, RareEventEstimate
from standfast.algorithms.rare_events.plain_sampling import monte_carlo
from standfast.algorithms.rare_events.priors import StandardNormal, UnitBox
from standfast.algorithms.rare_events.subset_sampling import SubsetSimulation
from standfast.algorithms.searches.auto import AutoSearch
from standfast.algorithms.searches.base import Outcome, Search, SearchResult, searches
from standfast.algorithms.searches.block import BlockSearch
from standfast.algorithms.searches.choices import ChoiceSearch
from standfast.algorithms.searches.draft import DraftSearch
from standfast.algorithms.searches.genetic import GeneticSearch
from standfast.algorithms.searches.gradient import GradientSearch
from standfast.algorithms.searches.grid import GridSearch
from standfast.algorithms.searches.random import RandomSearch
from standfast.algorithms.searches.sign import SignSearch

__all__ = [
    "Attack",
    "AutoSearch",
    "BlockSearch",
    "CertifiedDistortion",
    "ChoiceSearch",
    "Consistency",
    "DraftSearch",
    "GeneticSearch",
    "GradientSearch",
    "GridSearch",
    "Levels",
    "MinimalDistortion",
    "Outcome",
    "RandomSearch",
    "RareEventEstimate",
    "Search",
    "SearchResult",
    "SignSearch",
    "StandardNormal",
    "SubsetSimulation",
    "UnitBox",
    "attacks",
    "certified_distortion",
    "draw_masks",
    "find_knee",
    "get_attack",
    "is_settled",
    "mask_sensitivity",
    "measure_consistency",
    "monte_carlo",
    "plan_checks",
    "searches",
]
