"""Searches over perturbed inputs: what they maximise, measured by a probe, and the result of what they found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from standfast.algorithms.searches.base import (
    Draft,
    GradientObjective,
    Outcome,
    Search,
    SearchResult,
)
from standfast.metrics.kept_class import NeighbourhoodResult
from standfast.metrics.probe import Measurement, Probe
from standfast.neighbourhoods import Neighbourhood, Region


@dataclass(frozen=True)
class PerturbedResult(NeighbourhoodResult):
    """A result with a perturbed input for each sample.

    Attributes:
        margin: J at the perturbed input, `>= 0` where the class has changed. `(N,)`
        predicted: the class at the perturbed input, `(N,)`.
        inputs: the perturbed inputs, `(N, ...)`; the clean input where a sample was skipped.
        origins: the clean inputs, `(N, ...)`.
        maps, origin_maps: explanations of the perturbed and of the clean inputs, signed, `(N, ...)`.
        aligned_maps: where the neighbourhood moves positions, `maps` moved back to those of the clean inputs, NaN where
            not both inputs see a position, `(N, ...)`.
        parameters: of a transformation, by name, those of the perturbed inputs, `(N,)` each, in their own units; those
            of the centre where a sample was skipped. Of a row of a table they are the changes that were made, after
            steps and rules; with a prior from data those that were asked for: then `inputs` says how far the row moved.
        swapped_words: of texts, the new words of each sample as a JSON object with positions as keys.
    """

    stored = ("origins", "inputs", "origin_maps", "maps", "aligned_maps")

    margin: Tensor
    predicted: Tensor
    inputs: Tensor
    origins: Tensor
    maps: Tensor
    origin_maps: Tensor
    aligned_maps: Tensor | None = field(default=None, kw_only=True)
    parameters: Mapping[str, Tensor] = field(
        default_factory=dict, metadata={"per_sample": False}, kw_only=True
    )
    swapped_words: Sequence[str] | None = field(default=None, kw_only=True)

    def columns(self) -> dict[str, Any]:
        """Further columns of the frame, with one for each parameter of a transformation, and for swapped words."""
        columns = super().columns()
        for name, values in self.parameters.items():
            columns[name] = values.tolist()
        if self.swapped_words is not None:
            columns["swapped_words"] = self.swapped_words
        return columns


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

    def find_ascent(
        self, x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0
    ) -> Tensor:
        """Directions from the model with softplus for ReLU, of `sharpness` times its own sharpness."""
        return self.probe.gradient(
            self.ascend, x, self.usable[problem], feasible, beta=self.beta * sharpness
        )

    @property
    def differentiable(self) -> bool:
        """Whether a white-box search can use it: the model, the perturbation and the maps it needs have gradients."""
        similarity = self.probe.similarity
        region = self.probe.region
        by_points = region is None or region.differentiable
        by_maps = self.probe.explainer.differentiable and (
            similarity is None or similarity.differentiable
        )
        # a search by the answer alone needs no gradients of maps
        by_maps |= not self.probe.needs_maps
        return by_points and by_maps and self.probe.model.differentiable

    def run(
        self,
        search: Search,
        region: Region,
        budget: int,
        seed: int,
        rough: RoughObjective | None = None,
    ) -> SearchResult:
        """Run the search in `region`, the neighbourhoods of the usable origins.

        A search that takes drafts makes them by the objective `rough`.
        """
        gradient = self.choose_gradient(search)
        if rough is None or not search.takes_draft:
            return search.run(self, region, budget, seed, gradient)
        rough_gradient = None
        if gradient is not None:
            rough_gradient = rough.find_ascent
        # the rough map of the origin was needed before the search, so it counts as made
        draft = Draft(rough, rough_gradient, rough.rows, self.probe.rows_per_query, made_before=1)
        return search.run(self, region, budget, seed, gradient, draft)

    def choose_gradient(self, search: Search) -> GradientObjective | None:
        """The directions, for a search that needs them or takes them where there are some."""
        takes_gradient = search.white_box or (search.takes_gradient and self.differentiable)
        if takes_gradient:
            return self.find_ascent
        return None


class RoughObjective:
    """The same objective with an explainer that takes less work.

    It is made, and explains the origins, when it is first asked.

    Args:
        make: makes it, around the same origins.
        usable: the origins that the objective itself can evaluate. One that the other explainer cannot explain is
            searched in vain, and no search depends on it.
        rows: of the module, for an evaluation.
    """

    def __init__(self, make: Callable[[], ProbeObjective], usable: Tensor, rows: int) -> None:
        self._make = make
        self.usable = usable
        self.rows = rows
        self._objective: ProbeObjective | None = None

    @property
    def evaluations(self) -> Tensor | None:
        """The evaluations of each origin so far, its own included, `(P,)`; None if it was not asked."""
        if self._objective is None:
            return None
        return self._objective.probe.evaluations

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        """The outcome of `x` for the problems `problem` `(M,)`."""
        return self._ask()(x, problem)

    def find_ascent(
        self, x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0
    ) -> Tensor:
        """See `ProbeObjective`."""
        return self._ask().find_ascent(x, problem, feasible, sharpness)

    def _ask(self) -> ProbeObjective:
        if self._objective is None:
            self._objective = self._make()
            self._objective.usable = self.usable
        return self._objective


def reevaluate_found(
    probe: Probe, neighbourhood: Neighbourhood, inputs: Tensor, points: Tensor, compare: bool = True
) -> tuple[Measurement, dict[str, Any], tuple[Tensor, Tensor] | None]:
    """Evaluate what was found once more.

    Args:
        probe: of the `inputs` `(P, ...)`, with the regions of the `neighbourhood`.
        neighbourhood: around the inputs.
        inputs: the clean ones.
        points: of the regions, one for each input.
        compare: False for a caller that compares the maps itself.

    Returns:
        The measurement; the fields of a `PerturbedResult`; and where positions move the maps moved back, `(P, ...)`,
        with what both inputs see of them.
    """
    everyone = torch.arange(len(inputs), device=inputs.device)
    region = probe.region
    assert region is not None
    measured = probe.query(points, everyone, keep_maps=True, compare=compare)
    assert measured.maps is not None
    usable = probe.usable()
    perturbed = inputs.clone()
    perturbed[usable] = region.perturb(points, everyone)[usable]
    if region.aligns:
        moved = region.align_maps(measured.maps, points, everyone)
    else:
        moved = None
    swapped = neighbourhood.name_swaps(inputs, perturbed)
    aligned_maps = None
    # words keep their places
    if moved is not None and swapped is None:
        moved_maps, visible = moved
        aligned_maps = torch.where(visible, moved_maps, torch.nan)
    effective_points = region.effective_points(points, everyone)
    fields = {
        "margin": measured.margin,
        "predicted": measured.predicted,
        "inputs": perturbed,
        "origins": inputs,
        "maps": measured.maps,
        "origin_maps": probe.maps,
        "aligned_maps": aligned_maps,
        "parameters": neighbourhood.read_parameters(effective_points, inputs.shape[1:]),
        "swapped_words": swapped,
    }
    return measured, fields, moved
