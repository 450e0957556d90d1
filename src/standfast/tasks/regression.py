"""`Regression`: numbers, of which one is explained, and which may move by a tolerance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.records import Positive
from standfast.tasks.base import Scale, Task, TaskWords, check_range, expect_tensor, pick, tasks


@tasks.register("regression")
@dataclass(frozen=True)
class Regression(Task):
    """The module returns one number `(N,)` or several `(N, D)` for each input; also a grade or a risk.

    The answer is the output d that is explained, the first if no target names another one, with its clean value `f_d`.
    The score is `f_d` itself: the distance from the clean value would have no gradient there. The margin is
    `abs(f_d(x') - f_d(x)) - tolerance`, in the units of the target.

    Args:
        tolerance: how far the number may move and still be the same answer, above 0, in its own units.

    Raises:
        ArgumentError: the tolerance is not above 0.

    >>> task = Regression(tolerance=2.5)
    >>> answer = task.answer(task.read(torch.tensor([10.0]), 1))
    >>> answer, task.margin(torch.tensor([[13.0]]), answer)
    (tensor([[ 0., 10.]]), tensor([0.5000]))
    """

    name = "regression"
    usual = "tolerance=2.5"
    kept = "the number within the tolerance"
    words = TaskWords(
        "predicted value",
        "predicted value",
        own="the predicted value",
        answer="value",
        fall="how far the predicted value has fallen, in tolerances",
        kind="",
        classes=False,
    )
    tolerance: Positive

    @classmethod
    def example(cls) -> Regression:
        """One of some tolerance, for messages."""
        return cls(tolerance=2.5)

    @property
    def same_within(self) -> float:
        return self.tolerance

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.ndim in (1, 2)
        return expect_tensor(output, count, "numbers of shape (N,) or (N, D)", fits).reshape(
            count, -1
        )

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The number of the output, and its value, `(N, 2)`."""
        zeros = torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
        if targets is None:
            which = zeros
        else:
            which = check_range(targets, outputs.shape[1], "outputs")
        # detached, as the clean value is a constant for changed inputs
        return torch.stack([which.to(outputs), pick(outputs, which)], 1).detach()

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return pick(outputs, self.describe(answer))

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """Too large, and too small: the change less the tolerance, `(N, 2)`."""
        change = self.score(outputs, answer) - answer[:, 1].to(outputs)
        # both ways, as the number may rise or fall
        return torch.stack([change, -change], 1) - self.tolerance

    def measure_drop(self, start: Tensor, scores: Tensor) -> Tensor:
        """How far the number has fallen, in tolerances."""
        return (start - scores) / self.tolerance

    def measure_closeness(self, first: Tensor, second: Tensor) -> Tensor:
        """1 where the numbers are the same, and a half where they differ by the tolerance."""
        return self.tolerance / (self.tolerance + (first - second).abs())
