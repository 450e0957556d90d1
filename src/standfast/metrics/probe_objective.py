"""`ProbeObjective`: what a search over perturbed inputs maximises, measured by a probe."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Outcome, Search, SearchResult
from standfast.metrics.probe import Measurement, Probe
from standfast.neighbourhoods import Region


class ProbeObjective(ABC):
    """The objective of a search around the origins of a probe that can be evaluated.

    A search numbers its problems from 0; problem p is the origin `usable[p]`.

    Args:
        probe: it has the origins, and counts the queries.
        beta: sharpness of the softplus that replaces ReLU where a white-box search needs gradients.

    Attributes:
        usable: numbers of the origins that can be evaluated, int64.
    """

    def __init__(self, probe: Probe, beta: float = 10.0) -> None:
        self.probe, self.beta, self.usable = probe, beta, probe.usable()

    @abstractmethod
    def measure(self, x: Tensor, origin: Tensor) -> Outcome:
        """The outcome at points `x` `(M, ...)` around the origins numbered `origin` `(M,)`."""

    @abstractmethod
    def ascend(self, maps: Tensor, margin: Tensor, origin: Tensor, feasible: Tensor) -> Tensor:
        """What a white-box search ascends `(M,)`, differentiable; for maps `(M, ...)` as `Probe.gradient` has them.

        Where `feasible` `(M,)` holds it is the value of the outcome, elsewhere minus its violation.
        """

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        """The outcome of `x` for the problems `problem` `(M,)`."""
        return self.measure(x, self.usable[problem])

    def find_ascent(self, x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        """Directions from the model with softplus for ReLU, of `sharpness` times its own sharpness."""
        return self.probe.gradient(self.ascend, x, self.usable[problem], feasible, beta=self.beta * sharpness)

    @property
    def differentiable(self) -> bool:
        """Whether a white-box search can use it: the model, the perturbation and the maps it needs have gradients."""
        similarity, region = self.probe.similarity, self.probe.region
        by_points = region is None or region.differentiable
        by_maps = self.probe.explainer.differentiable and (similarity is None or similarity.differentiable)
        by_maps |= not self.probe.needs_maps
        return by_points and by_maps and self.probe.model.differentiable

    def run(self, search: Search, region: Region, budget: int, seed: int) -> SearchResult:
        """Run the search in `region`, the neighbourhoods of the usable origins."""
        wanted = search.white_box or (search.takes_gradient and self.differentiable)
        return search.run(self, region, budget, seed, self.find_ascent if wanted else None)


def reevaluate_found(probe: Probe, x: Tensor, compare: bool = True) -> tuple[Measurement, Tensor, Tensor]:
    """Re-evaluate what was found, a point `(P, ...)` for each origin: the measurement, the maps and the classes."""
    seen = probe.query(x, torch.arange(len(x), device=x.device), keep_maps=True, compare=compare)
    assert seen.maps is not None
    assert seen.predicted is not None
    return seen, seen.maps, seen.predicted
