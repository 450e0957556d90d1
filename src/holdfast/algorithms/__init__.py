"""What metrics are made of, generic and free of explanations: they are handed a score function on tensors."""

from holdfast.algorithms.block_search import BlockSearch
from holdfast.algorithms.genetic import GeneticSearch
from holdfast.algorithms.gradient_search import GradientSearch
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
from holdfast.algorithms.subset_simulation import subset_simulation

__all__ = [
    "BlockSearch",
    "Consistency",
    "GeneticSearch",
    "GradientSearch",
    "Levels",
    "Outcome",
    "Prior",
    "RandomSearch",
    "RareEventEstimate",
    "Search",
    "SearchResult",
    "StandardNormal",
    "UnitBox",
    "consistency",
    "draw_masks",
    "look_schedule",
    "mask_sensitivity",
    "monte_carlo",
    "searches",
    "settled",
    "subset_simulation",
]
