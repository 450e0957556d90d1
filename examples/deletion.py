"""Deletion, a metric of a plug-in with random numbers and a stored curve: see docs/extending.md."""

from dataclasses import dataclass

import torch

from standfast.errors import check_integer
from standfast.metrics import Cost, Metric, Probe, Result, metrics
from standfast.metrics.replaced_copies import ReplacedCopies
from standfast.tensors import Streams


@dataclass(frozen=True)
class DeletionResult(Result):
    curve: torch.Tensor  # the probability after 0, 1, ... steps, (N, steps + 1)

    def tensors(self):
        return {"curve": self.curve}


@metrics.register("deletion")
@dataclass(frozen=True)
class Deletion(Metric):
    """Area under the probability of the class as the most relevant values are replaced by random ones.

    Args:
        steps: number of equal steps in which all values are replaced.
    """

    name = "deletion"
    direction = "lower"
    citation = "petsiuk2018rise"
    steps: int = 10

    def __post_init__(self):
        check_integer(self.steps, "steps")

    def cost(self, classes=None):
        return Cost(predictions=1 + self.steps, explanations=1)

    def evaluate(self, call):
        probe, inputs = Probe(call), call.inputs
        probe.skip_constant(probe.maps)
        ranks = probe.maps.flatten(1).argsort(dim=1, descending=True, stable=True).argsort(1)
        (low, high), streams = call.model.bounds, Streams.for_rows(inputs, call.seed)
        noise = low + (high - low) * streams.uniform(inputs.shape[1:], inputs.dtype)
        counts = torch.linspace(0, inputs[0].numel(), self.steps + 1, device=inputs.device).long()
        curve = ReplacedCopies(probe, inputs).curve(ranks, counts, noise)
        area = torch.trapezoid(curve, dx=1 / self.steps)
        return DeletionResult(**probe.common_fields(self), value=area, curve=curve)
