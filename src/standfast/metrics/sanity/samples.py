"""The samples of which the sanity checks ask their questions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.metrics.probe import Probe
from standfast.model import Model


@dataclass(frozen=True)
class ExplainedSamples:
    """The n samples that have a map.

    Attributes:
        probe: it has explained them, and counts what else is done.
        inputs: all samples, also those without a map, `(N, ...)`.
    """

    probe: Probe
    inputs: Tensor

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def model(self) -> Model:
        return self.probe.model

    @property
    def explainer(self) -> Explainer:
        return self.probe.explainer

    @cached_property
    def rows(self) -> Tensor:
        """Their numbers among all samples, `(n,)`."""
        return self.probe.usable()

    @cached_property
    def x(self) -> Tensor:
        """Their inputs, `(n, ...)`."""
        return self.inputs[self.rows]

    @cached_property
    def maps(self) -> Tensor:
        """Their maps, `(n, ...)`."""
        return self.probe.maps[self.rows]

    @cached_property
    def logits(self) -> Tensor:
        """What the model answers to them, `(n, K)`."""
        return self.probe.logits[self.rows]

    @cached_property
    def answers(self) -> Tensor:
        """What is explained: classes `(n,)`, or answers of another task `(n, k)`."""
        return self.probe.targets[self.rows]

    @cached_property
    def classes(self) -> Tensor:
        """The class of each, or what another task says in its place, `(n,)`."""
        return self.model.task.describe(self.answers)

    @cached_property
    def blank(self) -> Tensor:
        """NaN for each, `(n,)`."""
        return torch.full((len(self),), torch.nan, device=self.inputs.device, dtype=torch.float64)


def predict(model: Model, x: Tensor) -> Tensor:
    """The logits of inputs `(n, ...)`, inside a session; they are not counted."""
    (logits,) = model.map_rows(lambda rows: (model.forward(rows.clone()),), x, evaluations=0)
    return logits


def centre_outputs(model: Model, outputs: Tensor) -> Tensor:
    """Outputs `(n, K)`; of classes without what all logits have in common, which no softmax sees."""
    outputs = outputs.flatten(1)
    if not model.task.classes:
        return outputs
    return outputs - outputs.mean(1, keepdim=True)
