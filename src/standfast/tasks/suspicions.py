"""Outputs that a task reads as logits although they look like probabilities, and outputs of other tasks.

What outputs are is told by the graph where there is one, and not by values alone: logits of an untrained network of two
classes are within [0, 1] in one of eight cases. Only rows that sum to 1 are sure, and many numbers of a function.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from standfast.tasks.base import Task
from standfast.tasks.labels import Binary, MultiLabel
from standfast.tasks.segmentation import Segmentation

#: steps of a graph that give probabilities, and steps that move, scale or clamp values
_MAKE_PROBABILITIES = re.compile("Sigmoid|Softmax|Hardsigmoid|LogSigmoid|LogSoftmax")
_KEEP_VALUES = re.compile(
    "(Unsafe)?View|ReshapeAlias|AsStrided|Permute|T|Transpose|Expand|Repeat|(Uns|S)queeze|Select|Slice|Index.*|Gather"
    "|Split.*|Unbind|Stack|Cat|CopySlices|Clone|Alias|ToCopy|Neg|Mul|Div|Add|Sub|Rsub|Clamp.*|Mean|Max|Where|Exp"
)
#: what to say about outputs that are no logits of classes
OTHER_TASKS = (
    "Say what the module answers: Model(..., task='binary') for one logit, 'multi_label' for a logit of each label"
    " ('binary:output=probability' for probabilities), 'regression:tolerance=...' for numbers"
)
#: so many different numbers of a function, all within [0, 1], are hardly logits
_FEWEST_NUMBERS = 8
#: how far probabilities of a softmax may be from 1 in sum
_ROUNDING = 1e-4


def describe_probabilities(task: Task, outputs: Tensor, differentiable: bool) -> str:
    """What to say about outputs `(N, ...)` that are probabilities by their values; empty if they may be logits.

    >>> from standfast.tasks import Classification
    >>> describe_probabilities(Classification(), torch.tensor([[0.25, 0.75]]), True).partition(";")[0]
    'its outputs look like probabilities (all rows are non-negative and sum to 1)'
    """
    if isinstance(task, Binary | MultiLabel):
        if differentiable or not _are_many_shares(outputs):
            return ""
        return _advise(task)
    if not are_probabilities(outputs):
        return ""
    if isinstance(task, Segmentation):
        return _advise(task)
    what = "probabilities (all rows are non-negative and sum to 1)"
    if differentiable:
        advice = "return logits, without softmax"
    else:
        advice = 'say output="probability"'
    return f"its outputs look like {what}; {advice}: margins are those of the outputs"


def may_be_probabilities(task: Task, outputs: Tensor) -> bool:
    """Whether all outputs `(N, ...)` lie in [0, 1], so that the graph has to tell what they are."""
    # class 1 alone, as -p and p would never lie in [0, 1] together
    values = outputs
    if task.classes and is_one_number(outputs):
        values = outputs[:, 1]
    return bool(values.min() >= 0) and bool(values.max() <= 1)


def describe_graph(task: Task, outputs: Tensor) -> str:
    """What to say about outputs `(N, ...)` with a graph that come from sigmoids or softmaxes; else empty."""
    if not comes_from_probabilities(outputs.grad_fn):
        return ""
    if not task.classes:
        return _advise(task)
    one = is_one_number(outputs)
    if one:
        what = "-p and p, where class 1 always wins"
    else:
        what = "probabilities of several labels"
    return f"its outputs look like {what}. {OTHER_TASKS}"


def suggest_task(task: Task, outputs: Any) -> str:
    """A task for outputs that another one does not take; empty if none is near.

    >>> from standfast.tasks import Classification
    >>> suggest_task(Classification(), torch.zeros(2, 4, 8, 8))
    "classes of each pixel? Say Model(..., task='segmentation')"
    """
    fits = isinstance(outputs, Tensor) and outputs.ndim >= 3
    if fits and (task.classes or isinstance(task, Binary | MultiLabel)):
        return "classes of each pixel? Say Model(..., task='segmentation')"
    return ""


def lacks_channel(task: Task, outputs: Any, inputs: Tensor) -> bool:
    """Whether a segmenter of images returns one number for each pixel, `(N, H, W)`, without an axis of classes."""
    is_map = isinstance(task, Segmentation) and isinstance(outputs, Tensor) and inputs.ndim >= 4
    return is_map and outputs.shape[1:] == inputs.shape[2:]


def is_one_number(outputs: Tensor) -> bool:
    """Whether outputs `(N, K)` are two classes of one number, as `torch.stack([-z, z], 1)` makes them."""
    return (
        outputs.ndim == 2 and outputs.shape[1] == 2 and torch.equal(outputs[:, 0], -outputs[:, 1])
    )


def are_probabilities(outputs: Tensor) -> bool:
    """Whether `(N, K, ...)` could come from a softmax, which gives hardly ever exactly 0 and 1 only."""
    if bool((outputs < 0).any()):
        return False
    summed = bool(((outputs.double().sum(1) - 1).abs() < _ROUNDING).all())
    # outputs of 0 and 1 alone are decisions, which no softmax gives
    return summed and not bool(((outputs == 0) | (outputs == 1)).all())


def comes_from_probabilities(node: Any) -> bool:
    """Whether all values of a node of autograd's graph are results of sigmoids or softmaxes, moved or scaled."""
    waiting = [node]
    visited = set[Any]()
    while waiting:
        node = waiting.pop()
        name = type(node).__name__.partition("Backward")[0]
        # steps that only move values lead on to what made them
        if _KEEP_VALUES.fullmatch(name):
            waiting += [
                source
                for source, _ in node.next_functions
                if source is not None and source not in visited
            ]
            visited.update(waiting)
        elif not _MAKE_PROBABILITIES.fullmatch(name):
            return False
    return True


def _advise(task: Task) -> str:
    what = "its outputs look like probabilities"
    if isinstance(task, Segmentation):
        return f"{what}; return logits, without softmax or sigmoid, since the task takes the softmax of them"
    named = f"{task.name}:output=probability"
    return (
        f"{what} (all lie in [0, 1]), and are read as logits; say task={named!r}, or return logits"
    )


def _are_many_shares(outputs: Tensor) -> bool:
    """Whether the numbers of a function lie in [0, 1], and are too many for chance; or are 0 and 1 alone."""
    numbers = torch.unique(outputs)
    inside = bool(numbers.min() >= 0) and bool(numbers.max() <= 1)
    # exactly 0 and 1 are answers that were made already
    return inside and (len(numbers) >= _FEWEST_NUMBERS or numbers.tolist() == [0.0, 1.0])
