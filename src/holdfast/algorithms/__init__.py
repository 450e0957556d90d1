"""What metrics are made of, generic and free of explanations: they are handed a score function on tensors."""

from holdfast.algorithms.block_search import BlockSearch
from holdfast.algorithms.genetic import GeneticSearch
from holdfast.algorithms.gradient_search import GradientSearch
from holdfast.algorithms.monte_carlo import monte_carlo
from holdfast.algorithms.priors import Prior, StandardNormal, UnitBox
from holdfast.algorithms.random_search import RandomSearch
from holdfast.algorithms.rare_event import Levels, RareEventEstimate
from holdfast.algorithms.search import Outcome, Search, SearchResult, searches
from holdfast.algorithms.subset_simulation import subset_simulation

__all__ = [
    "BlockSearch",
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
    "monte_carlo",
    "searches",
    "subset_simulation",
]
