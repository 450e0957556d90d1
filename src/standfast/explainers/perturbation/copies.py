"""Scores of perturbed copies of inputs; the copies of all inputs of a chunk are forwarded as one flat batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from standfast.explainers.base import BATCHES, Explainer, choose_chunk_rows
from standfast.gating import rows_of
from standfast.model import Model, Output, count_padding, pad_rows
from standfast.segments import spatial_shape
from standfast.tasks import measure_score

# so many outputs are read at once: for a classifier those of many batches, for segmentation those of one
_LOGITS = 1 << 18


def get_map_shape(x: Tensor, labels: Tensor | None = None) -> tuple[int, ...]:
    """The shape of a map with a single channel for one input of `x` `(N, ...)`; flat features have no channel axis.

    With `labels` `(N, places)` that have a place for each entry of an input, it is the shape of the input.

    >>> get_map_shape(torch.zeros(2, 3, 8, 9)), get_map_shape(torch.zeros(2, 7))
    ((1, 8, 9), (7,))
    >>> get_map_shape(torch.zeros(2, 3, 8), torch.zeros(2, 8)), get_map_shape(torch.zeros(2, 3, 8), torch.zeros(2, 24))
    ((1, 8), (3, 8))
    """
    if labels is not None and labels.shape[1] == x[0].numel():
        return tuple(x.shape[1:])
    if x.ndim == 2:
        return spatial_shape(x)
    return (1, *spatial_shape(x))


class CopyExplainer(Explainer):
    """An explainer by the scores of perturbed copies. Copies of several inputs share a batch."""

    gateable = True
    batches = BATCHES


def score_copies(
    model: Model,
    x: Tensor,
    targets: Tensor | None,
    owners: Tensor,
    make_copies: Callable[[int, int], Tensor],
    output: Output,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of perturbed copies of the rows of `x` `(N, ...)`. For use within `torch.no_grad()`.

    The rows of `x` are forwarded first, so that the predicted classes are known before a copy's score needs them. Only
    the score of a copy is kept.

    Args:
        model: within its session.
        x: one chunk of inputs.
        targets: classes `(N,)`; None for the predicted ones.
        owners: the row of `x` that each copy is a copy of, int64 `(copies,)`.
        make_copies: from two numbers, `start` and `stop`, to new copies `(stop - start, ...)`: those between them.
        output: the score.

    Returns:
        Scores of the copies `(copies,)` and of `x` itself `(N,)`, float64; the logits `(N, K)` at `x`.
    """
    count = x.shape[0]
    total = x.shape[0] + owners.shape[0]
    size = choose_chunk_rows(model, x, -(-total // count))
    whose = torch.cat([torch.arange(count, device=x.device), owners])
    at_x = x.new_empty(0)
    scores = list[Tensor]()
    waiting = list[Tensor]()
    held_numbers = 0
    for start in range(0, total, size):
        stop = min(start + size, total)
        plain = x[start : min(stop, count)]
        rows = plain
        if stop > count:
            rows = make_copies(max(start - count, 0), stop - count)
        if start < count < stop:
            rows = torch.cat([plain, rows])
        padding = count_padding(stop - start, size, model.device)
        with rows_of(pad_rows(whose[start:stop], padding)):
            logits = model.forward(pad_rows(rows, padding))[: stop - start]
        waiting.append(logits)
        held_numbers += logits.numel()
        if stop >= count and (held_numbers > _LOGITS or stop == total):
            joined = waiting[0] if len(waiting) == 1 else torch.cat(waiting)
            if not scores:
                at_x = joined[:count].clone()  # a view would keep all of them
                classes = model.task.answer(at_x) if targets is None else targets
            scores.append(
                measure_score(model.task, joined, classes[whose[stop - len(joined) : stop]], output)
            )
            waiting = []
            held_numbers = 0
    all_scores = torch.cat(scores)
    return all_scores[count:], all_scores[:count], at_x
