"""Where a perturbed input may lie, and how it is distributed there: norm balls and transformations.

`base` has what they share, `norm_balls` the balls, `transformations` what has parameters of its own.
"""

from holdfast.neighbourhoods.base import (
    Bounds,
    Distribution,
    Neighbourhood,
    Region,
    check_neighbourhood,
    neighbourhoods,
)
from holdfast.neighbourhoods.light import Brightness
from holdfast.neighbourhoods.norm_balls import L2Ball, LinfBall, NormBall
from holdfast.neighbourhoods.plausibility import measure_plausibility
from holdfast.neighbourhoods.tables import Feature, TableChanges
from holdfast.neighbourhoods.text import TokenSwaps, case_table, typo_table
from holdfast.neighbourhoods.transformations import Compose, Transformation, TransformedRegion, Warp

__all__ = [
    "Bounds",
    "Brightness",
    "Compose",
    "Distribution",
    "Feature",
    "L2Ball",
    "LinfBall",
    "Neighbourhood",
    "NormBall",
    "Region",
    "TableChanges",
    "TokenSwaps",
    "Transformation",
    "TransformedRegion",
    "Warp",
    "case_table",
    "check_neighbourhood",
    "measure_plausibility",
    "neighbourhoods",
    "typo_table",
]
