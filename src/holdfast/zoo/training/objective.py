"""What a training minimises: the interface of the schemes, and cross-entropy on clean and perturbed inputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.neighbourhood import Bounds

Perturbation = Callable[[nn.Module, Tensor, Tensor, torch.Generator], Tensor]


class Part(NamedTuple):
    """A term of the loss of a batch: its gradient is taken, and its graph freed, before the next is asked for."""

    loss: Tensor  # a scalar with a graph; what is minimised is the sum over parts
    logits: Tensor  # (N, classes), for the accuracy that is reported
    share: float  # of this part in that accuracy; they add up to 1


@dataclass(frozen=True, eq=False)
class Batch:
    """One step of a training, as a scheme sees it."""

    module: nn.Module  # in train mode
    inputs: Tensor  # (N, ...), on the device of the module
    labels: Tensor  # int64, (N,), there, too
    generator: torch.Generator  # for every draw
    epoch: float  # passes over the data up to and with this batch, in (0, epochs]
    bounds: Bounds = (-float("inf"), float("inf"))  # of every input
    precision: torch.dtype = torch.float32

    def autocast(self) -> AbstractContextManager[None]:
        """Inside, the module computes in the precision of the training."""
        mixed = self.precision != torch.float32
        context: AbstractContextManager[None] = torch.autocast(self.inputs.device.type, self.precision, enabled=mixed)
        return context

    def logits(self, inputs: Tensor) -> Tensor:
        """Of the module for `inputs` (N, ...), in the precision of the training; returned as float32 when mixed."""
        with self.autocast():
            logits: Tensor = self.module(inputs)
        return logits if self.precision == torch.float32 else logits.float()


class Scheme(ABC):
    """A way to train, with its options: a frozen dataclass that makes a loss of a batch.

    >>> from holdfast.zoo.training.schemes import schemes
    >>> schemes.names()
    ['calibrated', 'gradient_hessian', 'gradient_norm', 'hessian_norm', 'ig_norm', 'ig_sum_norm', 'natural', 'pgd']
    """

    name: ClassVar[str]
    #: whether the loss holds derivatives, which "auto" leaves in float32
    differentiates: ClassVar[bool] = False

    @abstractmethod
    def parts(self, batch: Batch) -> Iterator[Part]:
        """The loss of `batch`, in one part or several; no values may come back to the host."""

    @abstractmethod
    def describe(self) -> str:
        """What it adds to the cross-entropy of the inputs, for a card."""


@dataclass(frozen=True)
class Mixed(Scheme):
    """Cross-entropy: `clean_share` of it on the batch as it is, the rest on `perturb` of it; without that, all."""

    name: ClassVar[str] = "mixed"
    perturb: Perturbation | None = None
    clean_share: float = 0.5

    def parts(self, batch: Batch) -> Iterator[Part]:
        """See `Scheme`; a share of 0 is not computed."""
        seen = [(1.0, batch.inputs)]
        if self.perturb is not None:
            with batch.autocast():
                perturbed = self.perturb(batch.module, batch.inputs, batch.labels, batch.generator)
            seen = [(self.clean_share, batch.inputs), (1 - self.clean_share, perturbed)]
        for share, inputs in seen:
            if share > 0:
                logits = batch.logits(inputs)
                yield Part(share * F.cross_entropy(logits, batch.labels), logits, share)

    def describe(self) -> str:
        """See `Scheme`."""
        return "nothing" if self.perturb is None else f"{1 - self.clean_share:g} of the loss on perturbed inputs"
