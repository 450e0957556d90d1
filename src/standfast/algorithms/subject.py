"""`Subject`: the part of a model's interface that algorithms on networks use."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Literal, Protocol

import torch
from torch import Tensor, nn

from standfast.tasks import Task


class Subject(Protocol):
    """The attributes and methods of a `standfast.Model` that these algorithms call.

    With this protocol the algorithms do not import the model.
    """

    module: nn.Module
    task: Task
    bounds: tuple[Tensor, Tensor]
    dtype: torch.dtype
    precision: torch.dtype
    device: torch.device

    def forward(self, x: Tensor) -> Tensor: ...
    def logits(self, inputs: Tensor) -> Tensor: ...
    def check_inputs(self, inputs: Tensor, name: str = "inputs") -> Tensor: ...
    def check_targets(self, targets: Tensor | int | None, inputs: Tensor) -> Tensor: ...
    def check_gradients(self, scores: Tensor, x: Tensor) -> None: ...
    def session(self) -> contextlib.AbstractContextManager[None]: ...
    def map_rows(
        self,
        function: Callable[..., tuple[Tensor, ...]],
        *tensors: Tensor,
        rows_per_input: int = 1,
        kind: Literal["forward", "backward"] = "forward",
        evaluations: int = 1,
    ) -> tuple[Tensor, ...]: ...
