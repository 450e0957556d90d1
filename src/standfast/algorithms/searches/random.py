"""Random search: the best of many independent samples. The baseline that every other search must beat.

Problem: `max value(x) subject to violation(x) <= 0` over the region; x is drawn from the region's own distribution.

Source: none needed; SAFARI (Huang et al., ICCV 2023, Table 1) compares its genetic algorithm with such sampling. The
first candidate is the centre.

Cost: `budget` evaluations for each problem.
"""

from __future__ import annotations

from dataclasses import dataclass

from standfast.algorithms.searches.base import Search, SearchRun, searches
from standfast.records import Count
from standfast.tensors import Streams


@searches.register("random")
@dataclass(frozen=True)
class RandomSearch(Search):
    """Independent samples from the region's distribution.

    Args:
        block: how many samples are drawn and evaluated at once for each problem. Random numbers are drawn in blocks of
            this size, so another size gives other samples for the same seed.
    """

    block: Count = 128
    name = "random"

    def search(self, run: SearchRun, streams: Streams) -> None:
        """Query one block of samples after the other."""
        while run.left:
            # always whole blocks: then a smaller budget sees the same points, only fewer of them
            drawn = run.region.sample(self.block, streams)
            points = run.region.project(drawn)
            run.query(points[:, : run.left])
