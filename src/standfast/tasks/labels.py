"""`Binary`: yes or no, by one number; `MultiLabel`: a yes or no for each of several labels."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from standfast.records import Fraction
from standfast.tasks.base import Scale, Task, TaskWords, check_range, expect_tensor, pick, tasks

#: the least probability that has a logit of its own; forests return exact zeros
LEAST_PROBABILITY = 1e-12


@dataclass(frozen=True)
class _Thresholds(Task):
    """Logits that are compared with the logit of a threshold.

    Args:
        threshold: the probability from which on a label is on.
        output: what the module returns: a `"logit"`, or the `"probability"`.

    Raises:
        ArgumentError: the threshold is not between 0 and 1, or there is no such output.
    """

    kept = "the same side of the threshold"
    scales = True
    threshold: Fraction = 0.5
    output: Literal["logit", "probability"] = "logit"

    @property
    def reads_logits(self) -> bool:
        """Whether outputs are logits as the module returns them."""
        return self.output == "logit"

    @property
    def limit(self) -> float:
        """The logit of the threshold."""
        if self.output == "logit":
            return math.log(self.threshold / (1 - self.threshold))
        return _find_limit(self.threshold)

    def _as_logits(self, values: Tensor) -> Tensor:
        if self.output == "logit":
            return values
        return _find_logits(values)

    def find_fault(self, outputs: Tensor) -> str:
        """Numbers outside of [0, 1], which `_as_logits` puts beyond the logits of all probabilities."""
        beyond = outputs.abs().nan_to_num().amax() > -math.log(LEAST_PROBABILITY) + 1e-4
        # a little beyond, by rounding of logarithms
        if self.output != "logit" and beyond:
            return "values below 0 or above 1, where output='probability'"
        return ""

    def _excess(self, outputs: Tensor, scale: Scale) -> Tensor:
        """By how much each output is above the threshold."""
        if scale == "logit":
            return outputs - self.limit
        return compute_probabilities(outputs) - self.threshold


def compute_probabilities(logits: Tensor) -> Tensor:
    """`1 / (1 + exp(-x))`, with the same bits in every batch.

    `torch.sigmoid` rounds the last numbers of a tensor, which fill no register of the processor, in another way.

    >>> logits = torch.linspace(-9, 9, 1001, dtype=torch.float64)
    >>> probabilities = compute_probabilities(logits)
    >>> torch.allclose(probabilities, logits.sigmoid(), rtol=1e-14)
    True
    >>> torch.equal(probabilities, torch.cat([compute_probabilities(part) for part in logits.split(7)]))
    True
    """
    return torch.nn.functional.logsigmoid(logits).exp()


def _find_logits(shares: Tensor) -> Tensor:
    """`log(p / (1 - p))` of probabilities, in their own dtype."""
    sure = shares.double()  # in float32, 1 minus so small a number is 1
    least = LEAST_PROBABILITY
    log_shares = sure.clamp(min=least).log()
    log_rest = (1 - sure).clamp(min=least).log()
    return (log_shares - log_rest).to(shares.dtype)


@cache
def _find_limit(threshold: float) -> float:
    """The logit of a threshold by the same steps as those of outputs: an equal probability has exactly this one."""
    return _find_logits(torch.tensor([threshold], dtype=torch.float64)).item()


@tasks.register("binary")
@dataclass(frozen=True)
class Binary(_Thresholds):
    """The module returns one number for each input, `(N,)` or `(N, 1)`: a logit z or a probability.

    The answer is the side of the threshold, 1 above it and 0 below; an input exactly at the threshold has no answer.
    The score is the signed logit, z or -z, or the probability of the side; the margin is minus the distance from the
    threshold, above 0 on the other side.

    >>> task = Binary(threshold=0.5)
    >>> outputs = task.read(torch.tensor([2.0, -3.0]), 2)
    >>> sides = task.answer(outputs)
    >>> sides, task.score(outputs, sides), task.margin(outputs, sides)
    (tensor([1, 0]), tensor([2., 3.]), tensor([-2., -3.]))
    """

    name = "binary"
    words = TaskWords(kind="side", classes=False)
    switches = True

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.shape in ((count,), (count, 1))
        logits = expect_tensor(
            output, count, f"one {self.output} for each input, (N,) or (N, 1)", fits
        )
        return self._as_logits(logits.reshape(count, 1))

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        if targets is None:
            # at the threshold itself the label is on, as packages decide
            return (outputs[:, 0] >= self.limit).long()
        return check_range(targets, 2, "sides")

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        signed = outputs[:, 0] * (2 * answer - 1)
        if scale == "logit":
            return signed
        return compute_probabilities(signed)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return -(2 * answer[:, None] - 1) * self._excess(outputs, scale)


@tasks.register("multi_label")
@dataclass(frozen=True)
class MultiLabel(_Thresholds):
    """The module returns a number for each of L labels, `(N, L)`, each of which is on or off.

    One label is explained: the one that the targets name, or the one that is on with the largest logit. Its score is
    its logit or probability. An input at which the label is off has no answer.

    Args:
        labels: the answer is kept as long as the explained label is on (`"own"`), or as long as no label at all
            changes (`"all"`).

    Raises:
        ArgumentError: there is no such choice of labels.

    >>> task, outputs = MultiLabel(labels="all"), torch.tensor([[2.0, -0.5, 1.0]])
    >>> answer = task.answer(outputs)
    >>> answer, task.score(outputs, answer), task.margin(outputs, answer)
    (tensor([[0., 1., 0., 1.]]), tensor([2.]), tensor([-0.5000]))
    """

    name = "multi_label"
    words = TaskWords(
        own="the label's probability", answer="probability", kind="label", classes=False
    )
    labels: Literal["own", "all"] = "own"

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        if self.labels == "own":
            return "the same label on"
        return "the same labels on"

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.ndim == 2
        return self._as_logits(
            expect_tensor(output, count, f"a {self.output} for each label, (N, labels)", fits)
        )

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The label explained, and for each label whether it is on, `(N, 1 + L)`."""
        if targets is None:
            label = outputs.argmax(1)
        else:
            label = check_range(targets, outputs.shape[1], "labels")
        # one tensor for both, as answers have one row for each sample
        is_on = outputs >= self.limit
        return torch.cat([label[:, None].to(outputs), is_on.to(outputs)], 1)

    def exists(self, outputs: Tensor, answer: Tensor) -> Tensor:
        return pick(answer[:, 1:], self.describe(answer)) == 1

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        logits = pick(outputs, self.describe(answer))
        if scale == "logit":
            return logits
        return compute_probabilities(logits)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """Minus the distance of each label from the threshold on its own side; of the explained one alone if `own`."""
        # -1 for a label that is on, and 1 for one that is off
        signs = (1 - 2 * answer[:, 1:]).to(outputs)
        distances = signs * self._excess(outputs, scale)
        if self.labels == "all":
            return distances
        return distances.gather(1, self.describe(answer)[:, None])
