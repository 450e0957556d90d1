"""What a search for an event of SAFARI looks for, and how far its candidates get."""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.algorithms.searches.base import Outcome
from standfast.metrics.probe import Probe
from standfast.metrics.probe_objective import ProbeObjective
from standfast.metrics.safari.events import Event


class EventObjective(ProbeObjective):
    """The outcome of an event; keeps the largest sensitivities among all candidates if asked to `track` them."""

    def __init__(self, event: Event, probe: Probe, inputs: Tensor, track: bool) -> None:
        super().__init__(probe)
        self.event = event
        self.inputs = inputs
        self.track = track
        self.sens_max = torch.full(
            (len(inputs),), torch.nan, device=inputs.device, dtype=inputs.dtype
        )
        if track:
            self.sens_max[self.usable] = 0.0
        self.sens_lips = self.sens_max.clone()

    def measure(self, x: Tensor, origin: Tensor) -> Outcome:
        """The event's outcome."""
        measured = self.event.query(self.probe, x, origin, want_distance=self.track)
        if self.track and measured.distance is not None:
            # `amax` keeps a NaN, and a map that is not finite has no distance
            distance = measured.distance.nan_to_num(nan=0.0).to(self.sens_max.dtype)
            change = self.probe.perturb(x, origin) - self.inputs[origin]
            step = change.flatten(1).norm(dim=1)
            # a candidate that is the clean input itself has no slope
            slope = torch.where(step > 0, distance / step, 0.0)
            self.sens_max.scatter_reduce_(0, origin, distance, "amax")
            self.sens_lips.scatter_reduce_(0, origin, slope.to(self.sens_lips.dtype), "amax")
        return self.event.outcome(measured)

    def ascend(self, maps: Tensor, margin: Tensor, origin: Tensor, feasible: Tensor) -> Tensor:
        """The dissimilarity or the similarity where the constraint is met, and the way back elsewhere."""
        if self.event.name == "misclassification":
            return margin
        value = self.event.dissimilarity(self.probe.similarity_to(origin, maps))
        violation = margin
        # Eq. 6 maximises the similarity where the class has changed, so both signs turn
        if self.event.name == "changed_class":
            value, violation = -value, -margin
        return torch.where(feasible, value, -violation)
