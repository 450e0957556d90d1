"""`Segmentation`: a class for each pixel; the region of one class is explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from standfast.records import CountFromZero, Fraction
from standfast.tasks.base import Scale, Task, TaskWords, check_range, expect_tensor, tasks


@tasks.register("segmentation")
@dataclass(frozen=True)
class Segmentation(Task):
    """The module returns logits of classes for each pixel, `(N, C, H, W)`, or `(N, C, T)` and `(N, C, D, H, W)`.

    Of one channel, `(N, 1, H, W)`, it is the logit z of class 1 against the background, whose logit is then 0.

    The answer is a class c with its mask, where c has the largest logit at the clean input. The score is the mean over
    the mask of the logit of c, or of its probability. The margin is `iou - IoU(mask of c at x', mask of c at x)`; an
    overlap of masks has no gradient, so searches follow that of the probabilities, and the masks decide what counts.

    Args:
        iou: the overlap above which a mask is the same, above 0 and below 1.
        background: a class that is explained only if a target names it; None if every class counts.

    Raises:
        ArgumentError: `iou` is not between 0 and 1, or `background` is no class.

    >>> task = Segmentation(background=None)
    >>> outputs = torch.tensor([[[2.0, 2.0, 0.0], [0.0, 0.0, 1.0]]])  # two classes, three pixels
    >>> answer = task.answer(outputs)
    >>> answer, task.score(outputs, answer), task.margin(outputs, answer)
    (tensor([[0., 1., 1., 0.]]), tensor([2.]), tensor([-0.5000]))
    """

    name = "segmentation"
    words = TaskWords(
        "mean logit of the region",
        "mean probability of the region",
        own="the region's mean probability",
        answer="IoU",
        classes=False,
    )
    scales = True
    iou: Fraction = 0.5
    background: CountFromZero | None = 0

    @property
    def reads_logits(self) -> bool:
        """Always: probabilities come from a softmax of the outputs."""
        return True

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        return f"the same region, IoU above {self.iou:g}"

    def read(self, output: Any, count: int) -> Tensor:
        fits = isinstance(output, Tensor) and output.ndim >= 3 and output.shape[1] >= 1
        shape = "logits of classes for each pixel, (N, C, H, W), or of one class, (N, 1, H, W)"
        logits = expect_tensor(output, count, shape, fits)
        if logits.shape[1] == 1:
            return torch.cat([torch.zeros_like(logits), logits], 1)
        return logits

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The class, and 1 or 0 for each pixel, `(N, 1 + pixels)`; by default the class of the largest region."""
        labels = outputs.max(1).indices.flatten(1)  # faster than argmax
        count = outputs.shape[1]
        areas_of_classes = [(labels == number).sum(1) for number in range(count)]
        areas = torch.stack(areas_of_classes, 1)
        if self.background is not None and self.background < count:
            areas[:, self.background] = -1
        if targets is None:
            classes = areas.argmax(1)
        else:
            classes = check_range(targets, count, "classes")
        column = classes[:, None]
        return torch.cat([column, labels == column], 1).to(outputs.dtype)

    def exists(self, outputs: Tensor, answer: Tensor) -> Tensor:
        mask = answer[:, 1:]
        return (mask > 0).any(1)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        if scale == "logit":
            values = self._own(outputs, answer)
        else:
            values = self._own(outputs.softmax(1), answer)
        mask = answer[:, 1:].to(outputs)
        pixels = mask.sum(1).clamp(min=1)
        return (values * mask).sum(1) / pixels

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """`iou` less the overlap of the mask with the probabilities of its class, `(N, 1)`."""
        probabilities = self._own(outputs.softmax(1), answer)
        mask = answer[:, 1:].to(outputs)
        overlap = _overlap(probabilities, mask)
        return (self.iou - overlap)[:, None]

    def guide(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return self.rivals(outputs, answer, scale).amax(1)

    def margin(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        labels = outputs.max(1).indices.flatten(1)
        has_class = labels == self.describe(answer)[:, None]
        mask = answer[:, 1:].to(outputs)
        return self.iou - _overlap(has_class.to(outputs), mask)

    def read_answer(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """The overlap of the masks (IoU)."""
        return self.iou - self.margin(outputs.double(), answer)

    def _own(self, values: Tensor, answer: Tensor) -> Tensor:
        """The values of the class of each row, `(N, pixels)`."""
        flat = values.flatten(2)
        pixels = flat.shape[2]
        classes = self.describe(answer)[:, None, None].expand(-1, 1, pixels)
        return flat.gather(1, classes)[:, 0]


def _overlap(first: Tensor, second: Tensor) -> Tensor:
    """The intersection over union of masks `(N, P)` of values from 0 to 1; 0 where both are empty."""
    both = (first * second).sum(1)
    either = first.sum(1) + second.sum(1) - both
    return both / either.clamp(min=1e-12)
