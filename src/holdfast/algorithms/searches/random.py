"""Random search: the best of many independent samples. The yardstick that every other search must beat.

Problem: `max value(x) subject to violation(x) <= 0` over the region; x is drawn from the region's own distribution.

Source: none needed; SAFARI (Huang et al., ICCV 2023, Table 1) compares its genetic algorithm with such sampling. The
first candidate is the centre.

Cost: `budget` evaluations for each problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from holdfast.algorithms.searches.base import (
    Best,
    GradientObjective,
    Objective,
    Search,
    SearchResult,
    Tracer,
    look,
    searches,
)
from holdfast.errors import check_integer
from holdfast.neighbourhood import Region


@searches.register("random")
@dataclass(frozen=True)
class RandomSearch(Search):
    """Independent samples from the region's distribution.

    Args:
        block: samples drawn and evaluated at once for each problem; part of the seed's meaning, since the
            random numbers are drawn in blocks of this size.
    """

    block: int = 128
    name: ClassVar[str] = "random"

    def __post_init__(self) -> None:
        check_integer(self.block, "block")

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`."""
        tracer, streams = Tracer(budget), region.streams(seed)
        best, spent = Best(objective, region), 1
        tracer.note(spent, best.outcome)
        while spent < budget:
            # always whole blocks: then a smaller budget sees the same points, only fewer of them
            x = region.project(region.sample(self.block, streams))[:, : budget - spent]
            best.offer(x, look(objective, x))
            spent += x.shape[1]
            tracer.note(spent, best.outcome, last=spent == budget)
        return best.result(tracer.trace())
