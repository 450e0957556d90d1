"""`Detection`: boxes with labels and scores; one box is explained (D-RISE, Petsiuk et al. 2021, Sec. 3.2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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

    name = "detection"
    linear = False
    may_be_empty = True
    words = TaskWords(
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
            return self._read_tensor(output, count)
        entries = list(output) if isinstance(output, list | tuple) else []
        # the first fault is enough for a message
        problem = next(filter(None, map(_find_problem, entries)), "")
        if len(entries) != count or problem:
            expected = f"a list of dictionaries with {', '.join(_KEYS)}, one for each input"
            got = problem or f"a {type(output).__name__} of {len(entries)} for a batch of {count}"
            raise ModelError(f"module: expected {expected}, got {got}")
        # a batch of nothing has no boxes to sort
        if not entries:
            return torch.zeros(0, self.most, 6)
        scores_of_inputs: list[Tensor] = []
        labels_of_inputs: list[Tensor] = []
        boxes_of_inputs: list[Tensor] = []
        for entry in entries:
            scores_of_inputs.append(entry["scores"].reshape(-1))
            labels_of_inputs.append(entry["labels"].reshape(-1))
            boxes_of_inputs.append(entry["boxes"].reshape(-1, 4))
        counts = [len(scores) for scores in scores_of_inputs]
        scores = widen_half(torch.cat(scores_of_inputs))
        labels = torch.cat(labels_of_inputs).to(scores)
        boxes = torch.cat(boxes_of_inputs).to(scores)
        rows = torch.cat([boxes, labels[:, None], scores[:, None]], 1)
        return self._sort(rows, counts)

    def _read_tensor(self, output: Tensor, count: int) -> Tensor:
        """As `read`, of boxes `(N, boxes, 5 + C)`."""
        fits = output.ndim == 3 and output.shape[0] == count and output.shape[2] >= 6
        if not fits or not output.is_floating_point():
            got = describe_rows(output)
            raise ModelError(f"module: expected boxes (N, boxes, 5 + labels), got {got}")
        sides = output[:, :, :4]
        objectness = output[:, :, 4:5]
        products = objectness * output[:, :, 5:]
        # the largest product decides the label of a box
        scores, labels = products.max(2)
        rows = torch.cat([sides, labels[..., None].to(output), scores[..., None]], 2)
        boxes = output.shape[1]
        return self._sort(rows.flatten(0, 1), [boxes] * count)

    def _sort(self, rows: Tensor, counts: list[int]) -> Tensor:
        """The first `most` boxes of each input by score, `(N, most, 6)`, of all its boxes in turn `(boxes, 6)`."""
        device = rows.device
        box_counts = torch.tensor(counts, device=device)
        inputs = torch.arange(len(counts), device=device)
        owners = inputs.repeat_interleave(box_counts, output_size=len(rows))
        # detached, as an order has no gradient; stable, so that equal scores keep their order
        order = rows[:, 5].detach().argsort(descending=True, stable=True)
        order = order[owners[order].argsort(stable=True)]  # by input, and within an input by score
        first_of_inputs = box_counts.cumsum(0) - box_counts
        ranks = torch.arange(len(rows), device=device) - first_of_inputs[owners]
        is_kept = ranks < self.most
        kept_boxes = rows.new_zeros(len(counts), self.most, 6)
        index = (owners[is_kept], ranks[is_kept])
        return kept_boxes.index_put(index, rows[order[is_kept]])

    def find_fault(self, outputs: Tensor) -> str:
        """Scores that are no probabilities, and sides in another order; NaN is no fault."""
        scores = outputs[..., 5]
        left_top = outputs[..., :2]
        right_bottom = outputs[..., 2:4]
        # rounding may leave [0, 1] a little
        is_no_share = (scores < -1e-4) | (scores > 1 + 1e-4)
        if bool(is_no_share.any()):
            return "scores below 0 or above 1"
        if bool((left_top > right_bottom).any()):
            return "boxes that end before they begin: sides are left, top, right, bottom"
        return ""

    def answer(self, outputs: Tensor, targets: Tensor | None = None) -> Tensor:
        """The label and the sides of the box, `(N, 5)`."""
        if targets is None:
            numbers = torch.zeros(len(outputs), dtype=torch.int64, device=outputs.device)
        else:
            numbers = targets
        is_whole = numbers.ndim == 1 and not numbers.is_floating_point()
        got = f"{numbers.dtype} of shape {tuple(numbers.shape)}"
        check(is_whole, "targets", "numbers of boxes, int64 (N,)", got)
        is_no_box = (numbers < 0) | (numbers >= self.most)
        if bool(is_no_box.any()):
            expected = f"boxes from 0 to {self.most - 1}, by score"
            raise ArgumentError("targets", expected, int(numbers.max()))
        inputs = torch.arange(len(outputs), device=outputs.device)
        rows = outputs[inputs, numbers.long()].detach()
        label = rows[:, 4:5]
        sides = rows[:, :4]
        return torch.cat([label, sides], 1)

    def score(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        overlaps = self._overlaps(outputs, answer)
        scores = self._scores(outputs, answer)
        return (overlaps * scores).amax(1)

    def rivals(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        """`least` less the score, `(N, 1)`: of the boxes that are there, also of those that overlap less than `iou`."""
        score = self.score(outputs, answer)
        return (self.least - score)[:, None]

    def guide(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        return self.rivals(outputs, answer, scale).amax(1)

    def margin(self, outputs: Tensor, answer: Tensor, scale: Scale = "logit") -> Tensor:
        overlaps = self._overlaps(outputs, answer)
        is_same_box = overlaps > self.iou
        products = self._scores(outputs, answer) * overlaps * is_same_box
        return self.least - products.amax(1)

    def _scores(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """The score of the label of each row for each box, `(N, boxes)`."""
        label = answer[:, :1].to(outputs)
        has_label = outputs[:, :, 4] == label
        return outputs[:, :, 5] * has_label

    def _overlaps(self, outputs: Tensor, answer: Tensor) -> Tensor:
        """The intersection over union of each box with that of its row, `(N, boxes)`, without a gradient.

        The overlap is largest at the clean input, with a kink there: its gradient would be that of rounding errors.
        """
        boxes = outputs[:, :, :4].detach()
        answer_box = answer[:, None, 1:].to(outputs)
        left_top, right_bottom = torch.split(boxes, 2, -1)
        answer_left_top, answer_right_bottom = torch.split(answer_box, 2, -1)
        intersection = _find_area(
            torch.maximum(left_top, answer_left_top),
            torch.minimum(right_bottom, answer_right_bottom),
        )
        area = _find_area(left_top, right_bottom)
        answer_area = _find_area(answer_left_top, answer_right_bottom)
        union = area + answer_area - intersection
        # boxes without an area have no union
        return intersection / union.clamp(min=1e-12)


def _find_area(left_top: Tensor, right_bottom: Tensor) -> Tensor:
    sides = right_bottom - left_top
    return sides.clamp(min=0).prod(-1)


def _find_problem(entry: Any) -> str:
    """What is wrong with what a module says of one input, to follow "got"; empty if nothing is."""
    if not isinstance(entry, Mapping):
        return f"a {type(entry).__name__} in it"
    missing = [key for key in _KEYS if not isinstance(entry.get(key), Tensor)]
    if missing:
        plural = "s" if len(missing) > 1 else ""
        return f"one without the tensor{plural} {', '.join(missing)}"
    counts = {key: entry[key].numel() for key in _KEYS}
    counts["boxes"] //= 4  # sides
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{count} {key}" for key, count in counts.items())
        return f"one with {listed}"
    return ""
