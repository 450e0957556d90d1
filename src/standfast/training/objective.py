"""The loss of a training: the interface of training schemes, and cross-entropy on clean and perturbed inputs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from standfast.neighbourhoods import Bounds
from standfast.records import ConfigurationType

Perturbation = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


class Part(NamedTuple):
    """A term of the loss of a batch; its gradient is computed and its graph freed before the next part begins."""

    loss: Tensor  # a scalar with a graph; the sum over parts is minimised
    logits: Tensor  # (N, classes), for the accuracy that is reported
    share: float  # the weight of this part in that accuracy; weights add up to 1


@dataclass(frozen=True, eq=False)
class Batch:
    """The batch of one training step, and what a scheme needs to compute its loss."""

    module: nn.Module  # in train mode
    inputs: Tensor  # (N, ...), on the device of the module
    labels: Tensor  # int64, (N,), on the same device
    generator: torch.Generator  # for all random numbers
    epoch: float  # passes over the data including this batch, in (0, epochs]
    bounds: Bounds = (-float("inf"), float("inf"))  # of every input
    precision: torch.dtype = torch.float32

    def autocast(self) -> AbstractContextManager[None]:
        """A context in which the module computes in the precision of the training."""
        mixed = self.precision != torch.float32
        context: AbstractContextManager[None] = torch.autocast(self.inputs.device.type, self.precision, enabled=mixed)
        return context

    def logits(self, inputs: Tensor) -> Tensor:
        """The module's logits (N, classes) for `inputs` (N, ...); mixed precision is converted to float32."""
        with self.autocast():
            logits: Tensor = self.module(inputs)
        return logits if self.precision == torch.float32 else logits.float()


class Scheme(metaclass=ConfigurationType):
    """A training scheme with its options: a frozen dataclass that computes the loss of a batch.

    A scheme that needs further values of each sample lists their names in a class variable `needs`.

    >>> from standfast.training.schemes import schemes
    >>> schemes.names()
    ['calibrated', 'gradient_hessian', 'gradient_norm', 'hessian_norm', 'ig_norm', 'ig_sum_norm', 'natural', 'pgd']
    """

    name: ClassVar[str]
    #: whether the loss contains derivatives; the precision "auto" is then float32
    differentiates: ClassVar[bool] = False

    @abstractmethod
    def parts(self, batch: Batch) -> Iterator[Part]:
        """The loss of `batch`, in one or several parts. It must not wait for values from the device."""

    @abstractmethod
    def describe(self) -> str:
        """The scheme in words, for the card of a model."""


@dataclass(frozen=True)
class Mixed(Scheme):
    """Cross-entropy: the share `clean_share` on the batch, the rest on the batch perturbed by `perturb`.

    Without `perturb` it is the cross-entropy on the batch.
    """

    name: ClassVar[str] = "mixed"
    perturb: Perturbation | None = None
    clean_share: float = 0.5

    def parts(self, batch: Batch) -> Iterator[Part]:
        """The loss on clean and on perturbed inputs; a part with share 0 is left out."""
        shares = [(1.0, batch.inputs)]
        if self.perturb is not None:
            with batch.autocast():
                perturbed = self.perturb(batch.module, batch.inputs, batch.labels, batch.generator)
            shares = [(self.clean_share, batch.inputs), (1 - self.clean_share, perturbed)]
        for share, inputs in shares:
            if share > 0:
                logits = batch.logits(inputs)
                yield Part(share * F.cross_entropy(logits, batch.labels), logits, share)

    def describe(self) -> str:
        return "nothing" if self.perturb is None else f"{1 - self.clean_share:g} of the loss on perturbed inputs"
