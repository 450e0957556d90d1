"""Independent runs of one rare event as the problems of one batch, which takes a fraction of the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from standfast.algorithms import RareEventEstimate, StandardNormal
from standfast.algorithms.rare_events.pooling import select
from standfast.neighbourhoods import Region


class Normals(StandardNormal):
    """Several standard normal distributions, whose random numbers depend on their centres, and nothing else."""

    def __init__(self, centre: Tensor) -> None:
        Region.__init__(self, centre=centre, lower=centre - torch.inf, upper=centre + torch.inf)

    streams = Region.streams

    def select(self, rows: Sequence[int] | Tensor) -> Normals:
        return Normals(self.centre[torch.as_tensor(rows).long()])


def repeat_prior(prior: Region, runs: int) -> Region:
    """The same distribution so many times: the centres differ by so little that only the random numbers do, too."""
    shift = 1e-6 * torch.arange(runs)
    centres = prior.centre + shift.reshape(runs, *[1] * len(prior.shape))
    if isinstance(prior, StandardNormal):
        return Normals(centres)
    return replace(prior.select([0] * runs), centre=centres)


def split_runs(found: RareEventEstimate) -> list[RareEventEstimate]:
    """The estimate of each run by itself."""
    return [select(found, row) for row in range(len(found.log_probability))]
