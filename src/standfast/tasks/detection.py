"""`Detection`: boxes with labels and scores; one box is explained (D-RISE, Petsiuk et al. 2021, Sec. 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from standfast.errors import ArgumentError, ModelError, check
from standfast.records import Count, Fraction
from standfast.tasks.base import Scale, Task, TaskWords, tasks
from standfast.tensors import describe_rows, widen_half

_KEYS = ("boxes", "labels", "scores")


@tasks.register("detection")
@dataclass(frozen=True)
class Detection(Task):
    """The module returns boxes: a list of dictionaries as those of torchvision, or a tensor `(N, boxes, 5 + C)`.

    A dictionary has `boxes` `(B, 4)` as left, top, right, bottom; `labels` `(B,)`; `scores` `(B,)`. A row of the tensor
    has the four sides, the objectness, and a score for each of C labels, by which it is multiplied.

    The answer is one box with its label: the one with the largest score, or the one that a target names, numbered by
    score from 0. Its score is the largest product, over all boxes, of the overlap (IoU) with it and the score of its
    label; the gradient is that of the scores, with the boxes where they are. The margin is `least` minus that product,
    of boxes whose overlap is above `iou`. An input at which the score of the box is not above `least` has no answer.

    Args:
        iou: the overlap above which a box is the same, above 0 and below 1.
        least: the score above which a box is found, above 0 and below 1.
        most: so many boxes of each input are kept, those with the largest scores.

    Raises:
        ArgumentError: a number is out of its range.

    >>> found = {"boxes": torch.tensor([[0.0, 0.0, 2.0, 2.0]]), "labels": torch.tensor([7])}
    >>> task = Detection()
    >>> outputs = task.read([{**found, "scores": torch.tensor([0.75])}], 1)
    >>> answer = task.answer(outputs)
    >>> answer, task.score(outputs, answer), task.margin(outputs, answer)
    (tensor([[7., 0., 0., 2., 2.]]), tensor([0.7500]), tensor([-0.2500]))
    """

    name: ClassVar[str] = "detection"
    linear: ClassVar[bool] = False
    may_be_empty: ClassVar[bool] = True
    words: ClassVar[TaskWords] = TaskWords(
        "overlap x score",
        "overlap x score",
        own="the box's overlap x score",
        answer="overlap x score",
        kind="label",
        classes=False,
    )
    iou: Fraction = 0.5
    least: Fraction = 0.5
    most: Count = 100

    @property
    def kept(self) -> str:  # type: ignore[override]
        """What it means that the answer is kept."""
        return f"the same box and label, IoU above {self.iou:g}, overlap times score above {self.least:g}"

    def read(self, output: Any, count: int) -> Tensor:
        """The sides, the label and the score of each box, `(N, most, 6)`, by score; the rest has a score of 0."""
        if isinstance(output, Tensor):
            fits = output.ndim == 3 and output.shape[0] == count and output.shape[2] >= 6
            if not fits or not output.is_floating_point():
                raise ModelError(f"module: expected boxes (N, boxes, 5 + labels), got {describe_rows(output)}")
            scores, labels = (output[:, :, 4:5] * output[:, :, 5:]).max(2)
            rows = torch.cat([output[:, :, :4], labels[..., None].to(output), scores[..., None]], 2)
            return self._sort(rows.flatten(0, 1), [output.shape[1]] * count)
        entries = list(output) if isinstance(output, list | tuple) else []
        wrong = next(filter(None, map(_find_wrong, entries)), "")
        if len(entries) != count or wrong:
            expected = f"a list of dictionaries with {', '.join(_KEYS)}, one for each input"
            got = wrong or f"a {type(output).__name__} of {len(entries)} for a batch of {count}"
            raise ModelError(f"module: expected {expected}, got {got}")
        if not entries:
            return torch.zeros(0, self.most, 6)
        scores = widen_half(torch.cat([each["scores"].reshape(-1) for each in entries]))
        labels = torch.cat([each["labels"].reshape(-1) for each in entries]).to(scores)
        boxes = torch.cat([each["boxes"].reshape(-1, 4) for each in entries]).to(scores)
        rows = torch.cat([boxes, labels[:, None], scores[:, None]], 1)
        return self._sort(rows, [each["scores"].numel() for each in entries])

    def _sort(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The first `most` boxes of each input by score, `(N, most, 6)`, of all its boxes in turn `(boxes, 6)`."""
        numbers = torch.tensor(counts, device=rows.device)
        owners = torch.arange(len(counts), device=rows.device).repeat_interleave(numbers, output_size=len(rows))
        order = rows[:, 5].detach().argsort(descending=True, stable=True)
        order = order[owners[order].argsort(stable=True)]
        places = torch.arange(len(rows), device=rows.device) - (numbers.cumsum(0) - numbers)[owners]
        kept = places < self.most
        found = rows.new_zeros(len(counts), self.most, 6)
        return found.index_put((owners[kept], places[kept]), rows[order[kept]])

    def find_fault(self, outputs: Tensor) -> str:
        """Scores that are no probabilities, and sides in another order; NaN is no fault."""
        if bool(((outputs[..., 5] < -1e-4) | (outputs[..., 5] > 1 + 1e-4)).any()):
            return "scores below 0 or above 1"
        turned = bool((outputs[..., :2] > outputs[..., 2:4]).any())
        return "boxes that end before they begin: sides are left, top, right, bottom" if turned else ""

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The label and the sides of the box, `(N, 5)`."""
        which = torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device) if targets is None else targets
        whole = which.ndim == 1 and not which.is_floating_point()
        check(whole, "targets", "numbers of boxes, int64 (N,)", f"{which.dtype} of shape {tuple(which.shape)}")
        if bool(((which < 0) | (which >= self.most)).any()):
            raise ArgumentError("targets", f"boxes from 0 to {self.most - 1}, by score", int(which.max()))
        rows = outputs[torch.arange(len(outputs), device=outputs.device), which.long()].detach()
        return torch.cat([rows[:, 4:5], rows[:, :4]], 1)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return (self._overlaps(outputs, answer) * self._scores(outputs, answer)).amax(1)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """`least` less the score, `(N, 1)`: of the boxes that are there, also of those that overlap less than `iou`."""
        return (self.least - self.score(outputs, answer))[:, None]

    def guide(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return self.rivals(outputs, answer, scale).amax(1)

    def margin(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        overlaps = self._overlaps(outputs, answer)
        found = self._scores(outputs, answer) * overlaps * (overlaps > self.iou)
        return self.least - found.amax(1)

    def _scores(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """The score of the label of each row for each box, `(N, boxes)`."""
        return outputs[:, :, 5] * (outputs[:, :, 4] == answer[:, :1].to(outputs))

    def _overlaps(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """The intersection over union of each box with that of its row, `(N, boxes)`, without a gradient.

        The overlap is largest at the clean input, with a kink there: its gradient would be that of rounding errors.
        """
        boxes, own = outputs[:, :, :4].detach(), answer[:, None, 1:].to(outputs)
        sides = (torch.minimum(boxes[..., 2:], own[..., 2:]) - torch.maximum(boxes[..., :2], own[..., :2])).clamp(min=0)
        both = sides.prod(2)
        areas = [(each[..., 2:] - each[..., :2]).clamp(min=0).prod(2) for each in (boxes, own)]
        return both / (areas[0] + areas[1] - both).clamp(min=1e-12)


def _find_wrong(found: Any) -> str:
    """What is wrong with what a module says of one input, to follow "got"; empty if nothing is."""
    if not isinstance(found, Mapping):
        return f"a {type(found).__name__} in it"
    missing = [key for key in _KEYS if not isinstance(found.get(key), Tensor)]
    if missing:
        return f"one without the tensor{'s' if len(missing) > 1 else ''} {', '.join(missing)}"
    counts = {key: found[key].numel() // (4 if key == "boxes" else 1) for key in _KEYS}
    return "" if len(set(counts.values())) == 1 else "one with " + ", ".join(f"{n} {key}" for key, n in counts.items())
