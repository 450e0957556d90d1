"""The loss of a training: the interface of training schemes, and cross-entropy."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.errors import check
from standfast.neighbourhoods import Bounds
from standfast.records import ConfigurationType


class LossPart(NamedTuple):
    """A term of the loss of a batch; its gradient is computed and its graph freed before the next part begins."""

    loss: Tensor  # a scalar with a graph; the sum over parts is minimised
    logits: Tensor  # (N, classes), for the accuracy that is reported
    share: float  # the weight of this part in that accuracy; weights add up to 1


@dataclass(frozen=True, eq=False)
class TrainingBatch:
    """The batch of one training step, and what a scheme needs to compute its loss."""

    module: nn.Module  # in train mode
    inputs: Tensor  # (N, ...), on the device of the module
    labels: Tensor  # int64, (N,), on the same device
    generator: torch.Generator  # for all random numbers
    epoch: float  # passes over the data including this batch, in (0, epochs]
    bounds: Bounds = (-float("inf"), float("inf"))  # of every input
    precision: torch.dtype = torch.float32
    # (N, ...) each, those that the scheme needs
    extras: Mapping[str, Tensor] = field(default_factory=dict)

    def autocast(self) -> AbstractContextManager[None]:
        """A context in which the module computes in the precision of the training."""
        mixed = self.precision != torch.float32
        context: AbstractContextManager[None] = torch.autocast(
            self.inputs.device.type, self.precision, enabled=mixed
        )
        return context

    def logits(self, inputs: Tensor) -> Tensor:
        """The module's logits (N, classes) for `inputs` (N, ...); mixed precision is converted to float32."""
        with self.autocast():
            logits: Tensor = self.module(inputs)
        # losses in half precision would lose small differences
        if self.precision == torch.float32:
            return logits
        return logits.float()

    def extra(self, name: str) -> Tensor:
        """The further values called `name`, `(N, ...)`, that the scheme takes (`Scheme.extras`)."""
        check(name in self.extras, f"extras[{name!r}]", "values (N, ...)", "none")
        return self.extras[name]


class Scheme(metaclass=ConfigurationType):
    """A training scheme with its options: a frozen dataclass that computes the loss of a batch.

    >>> from standfast.training.schemes import schemes
    >>> schemes.names()
    ['calibrated', 'gradient_hessian', 'ig_norm', 'ig_sum_norm', 'natural', 'pgd']
    """

    name: ClassVar[str]
    #: whether the loss contains derivatives; the precision "auto" is then float32
    differentiates: ClassVar[bool] = False
    #: the names of the further values of each sample that the loss needs
    extras: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        """The loss of `batch`, in one or several parts. It must not wait for values from the device."""

    @abstractmethod
    def describe(self) -> str:
        """The scheme in words, for the card of a model."""


@dataclass(frozen=True)
class Natural(Scheme):
    """Cross-entropy alone.

    >>> Natural().describe()
    'natural: cross-entropy'
    """

    name = "natural"

    def parts(self, batch: TrainingBatch) -> Iterator[LossPart]:
        yield compute_cross_entropy(batch, batch.inputs)

    def describe(self) -> str:
        return "natural: cross-entropy"


def compute_cross_entropy(batch: TrainingBatch, inputs: Tensor, share: float = 1.0) -> LossPart:
    """The cross-entropy of `inputs` with the labels of the batch, as this share of the loss."""
    logits = batch.logits(inputs)
    return LossPart(share * F.cross_entropy(logits, batch.labels), logits, share)
