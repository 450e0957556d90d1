"""What may be wrong with a module or its inputs, and what to say of it: repeatable? logits? layout? units?

`tasks/suspicions.py` says what outputs look like to a task.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from standfast.errors import ModelError
from standfast.tasks import Task
from standfast.tasks.outputs import is_list_of_boxes
from standfast.tasks.suspicions import (
    OTHER_TASKS,
    are_probabilities,
    is_one_number,
    lacks_channel,
    suggest_task,
)
from standfast.tensors import describe_bounds, seed_generators

#: inputs with which a module is tried
MOST_TRIED = 16
#: the difference of logits, as a share of their range, that is no rounding
_ROUNDING = 1e-3
#: one in so many of the inputs shows in a batch of its own whether they depend on the batch
_PART = 4
# inputs that use less than this share of their bounds may have other units, such as [0, 1] and [0, 255]
_SMALL_SHARE = 0.01


# Repeatable?


@dataclass(frozen=True)
class Differences:
    """How far logits differ where they should be the same; empty where they do not.

    Attributes:
        of_calls: between two calls with the same inputs.
        of_batches: between batches with other inputs beside them, or in another order.
        drew: whether random numbers were drawn.
    """

    of_calls: str
    of_batches: str
    drew: bool

    def refuse(self, module: nn.Module) -> None:
        """Raise `ModelError` if there are any, with the cause where it is known."""
        if self.of_calls:
            raise ModelError(
                "model: expected the same logits for the same inputs in evaluation mode, got differences of up to"
                f" {self.of_calls} between two calls{self._suggest_cause(module)}"
            )
        if self.of_batches:
            layers = [
                name
                for name, part in module.named_modules()
                if getattr(part, "track_running_stats", True) is False
            ]
            hint = ""
            if layers:
                hint = f" ({', '.join(layers[:3])} do so)"
            raise ModelError(
                "model: expected logits that do not depend on the other inputs of the batch, got differences of up to"
                f" {self.of_batches}. Look for layers that compute statistics of the batch{hint}, and for dynamic"
                " quantization"
            )

    def _suggest_cause(self, module: nn.Module) -> str:
        """Where to look for what makes two calls differ."""
        if self.drew:
            return ": forward draws random numbers. Look for torch.randn, or dropout without training=self.training"
        advice = ". Look for a random generator of its own, and for buffers that forward changes"
        with_buffers = [
            name or "itself"
            for name, part in module.named_modules()
            if list(part.buffers(recurse=False))
        ]
        if with_buffers:
            advice += f"; layers with buffers: {', '.join(with_buffers[:3])}"
        return advice


@dataclass(frozen=True)
class Repetition:
    """A module that runs again on its first inputs, to see whether it gives the same logits.

    Attributes:
        bounds, precision, device: of the model.
        answer: from inputs `(N, ...)` to logits `(N, K)`, in float64.
        aside: a context in which the module runs and is counted by nobody, and after which it is as before.
    """

    bounds: tuple[Tensor, Tensor]
    precision: torch.dtype
    device: torch.device
    answer: Callable[[Tensor], Tensor]
    aside: Callable[[], AbstractContextManager[None]]

    def is_same(self, inputs: Tensor, outputs: Tensor) -> bool:
        """Whether fewer of the inputs, in reverse order, have the same outputs again, and no random numbers were drawn.

        A batch of fewer inputs has other statistics and another order; so it shows at once what two calls and three
        kinds of batches tell apart.
        """
        part = inputs[: max(1, len(inputs) // _PART)].flip(0)
        if len(inputs) == 1:
            part = self._add_other(inputs)
        try:
            with self.aside(), seed_generators(0, self.device) as has_drawn:
                again = self.answer(part)
                drew = has_drawn()
        except (
            Exception,
            SystemExit,
        ):
            # whatever the module raises; the caller tries it in another way
            return False
        before = outputs[: len(again)].to(self.device).double().flatten(1)
        again = again[: len(before)].flip(0)
        return not drew and not describe_difference(before, again, self.precision)

    def compare(self, inputs: Tensor, in_batches: bool) -> Differences:
        """How far the logits differ between two calls, and between batches."""
        if len(inputs) == 1 and in_batches:
            inputs = self._add_other(inputs)
        other_batches: list[Tensor] = []
        with self.aside(), seed_generators(0, self.device) as has_drawn:
            first = self.answer(inputs)
            again = self.answer(inputs)
            drew = has_drawn()
            if in_batches:
                other_batches.append(self.answer(inputs.flip(0)).flip(0))
                other_batches.append(self.answer(inputs[:1]))
        of_batches = ""
        for logits in other_batches:
            of_batches = of_batches or describe_difference(
                first[: len(logits)], logits, self.precision
            )
        # the effect of random numbers may be small, and then a comparison of batches may see more of it
        allowed = 0.0 if drew or of_batches else _ROUNDING
        of_calls = describe_difference(first, again, self.precision, allowed)
        return Differences(of_calls, of_batches, drew)

    def _add_other(self, one: Tensor) -> Tensor:
        """One input `(1, ...)` and another one beside it within the bounds."""
        lower = self.bounds[0].expand_as(one)
        finite_lower = lower.where(lower.isfinite(), torch.zeros_like(lower))
        return torch.cat([one, (one + finite_lower) / 2])


def describe_difference(
    first: Tensor, other: Tensor, dtype: torch.dtype, share: float = _ROUNDING
) -> str:
    """How far logits `(N, C)` differ, if by more than rounding; else empty. Rows that are not finite do not count.

    Args:
        first, other: the logits.
        dtype: in which the module computes.
        share: of the range of the logits, by which they may differ.
    """
    finite = torch.isfinite(first).all(1) & torch.isfinite(other).all(1)
    first, other = first[finite], other[finite]
    if not len(first):
        return ""
    allowed = share * (first.amax(0) - first.amin(0)) + 64 * torch.finfo(
        dtype
    ).eps * first.abs().amax(0)
    difference = (other - first).abs().amax(0)
    if bool((difference > allowed).any()):
        return f"{float(difference.max()):.3g}"
    return ""


# Logits?


def suggest_output(task: Task, module: nn.Module, out: Any, x: Tensor) -> str:
    """What to do about an output for inputs `(N, ...)` that the task does not take."""
    if lacks_channel(task, out, x):
        return "one logit for each pixel? Model(..., forward=lambda module, x: module(x)[:, None])"
    if is_list_of_boxes(out) and task.name != "detection":
        return "boxes? Say Model(..., task='detection')"
    if isinstance(out, Tensor) and out.numel() == len(x) and task.classes:
        return f"{_describe_problem(module) or 'one number'}. {OTHER_TASKS}"
    return suggest_task(task, out) or "with Model(..., forward=) a function can make it"


def describe_other_problem(task: Task, module: nn.Module, outputs: Tensor) -> str:
    """What to say if the module's configuration says that outputs `(N, K)` are no classes, and `forward` makes none."""
    if not task.classes or is_one_number(outputs) or are_probabilities(outputs[:, :2].exp()):
        return ""
    problem = _describe_problem(module)
    if problem:
        return f"module: expected logits of classes of which one is right, got {problem}. {OTHER_TASKS}"
    return ""


def _describe_problem(module: nn.Module) -> str:
    """What a configuration of transformers within a module says of its outputs, if they are not classes."""
    meanings = {
        "multi_label_classification": "several labels",
        "regression": "numbers to compare with a threshold",
    }
    for part in module.modules():
        problem = getattr(getattr(part, "config", None), "problem_type", None)
        if problem in meanings:
            return f"{meanings[problem]} (problem_type {problem!r})"
    return ""


# Layout?


def drops_part_of_sample(batch: Tensor, prepared: Tensor) -> bool:
    """Whether the preprocessing of a batch drops an axis by taking a part of each sample, as `z[:, 0]` does.

    The module may then accept one axis more for that reason alone.
    """
    has_dropped = prepared.ndim < batch.ndim
    return has_dropped and (prepared.numel() < batch.numel() or batch.shape[1] == 1)


def fits_bounds(inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> bool:
    """Whether the bounds broadcast to each of the inputs `(N, ...)` without making it larger."""
    return all(_broadcasts_to(bound.shape, inputs.shape[1:]) for bound in bounds)


def _broadcasts_to(shape: torch.Size, sample_shape: torch.Size) -> bool:
    if len(shape) > len(sample_shape):
        return False
    pairs = zip(reversed(shape), reversed(sample_shape), strict=False)
    return all(size in (1, sample_size) for size, sample_size in pairs)


# Units?


def describe_units(inputs: Tensor, bounds: tuple[Tensor, Tensor]) -> str:
    """What to say if all samples together use so little of the bounds that units may differ; else empty."""
    lower, upper = bounds
    used = (inputs.max() - inputs.min()).item()
    room = (upper - lower).min().item()
    if len(inputs) > 1 and 0 < used < _SMALL_SHARE * room < math.inf:
        share = f"{_SMALL_SHARE:.0%} of the bounds {describe_bounds(bounds)}"
        return f"inputs use less than {share}. Do both have the same units?"
    return ""
