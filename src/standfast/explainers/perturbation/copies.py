"""Scores of perturbed copies of inputs; the copies of all inputs of a chunk are forwarded as one flat batch."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from standfast.explainers.base import choose_chunk_rows
from standfast.gating import rows_of
from standfast.model import Model, Output, count_padding, pad_rows
from standfast.segments import spatial_shape
from standfast.tasks import measure_score


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
    return spatial_shape(x) if x.ndim == 2 else (1, *spatial_shape(x))


def score_copies(
    model: Model,
    x: Tensor,
    targets: Tensor | None,
    find_owners: Callable[[Tensor], Tensor],
    make_copies: Callable[[int, Tensor], Tensor],
    total: int,
    output: Output,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of `total` perturbed copies of the rows of `x` `(N, ...)`. For use within `torch.no_grad()`.

    The rows of `x` are forwarded first, so that the predicted classes are known before a copy's score needs them. Only
    the score of a copy is kept.

    Args:
        model: within its session.
        x: one chunk of inputs.
        targets: classes `(N,)`; None for the predicted ones.
        find_owners: numbers of copies, int64 `(rows,)`, to the rows of `x` that they are copies of.
        make_copies: the first of some consecutive numbers, and these numbers `(rows,)`, to new copies `(rows, ...)`.
        total: how many copies there are.
        output: the score.

    Returns:
        Scores of the copies `(total,)` and of `x` itself `(N,)`, float64; the logits `(N, K)` at `x`.
    """
    count = len(x)
    size = choose_chunk_rows(model, x, -(-total // count) + 1)
    own, at_x, scores = [], [], []
    for start in range(0, count + total, size):
        stop = min(start + size, count + total)
        numbers = torch.arange(start, stop, device=x.device)
        plain, other = numbers[: max(count - start, 0)], numbers[max(count - start, 0) :] - count
        whose = torch.cat([plain, find_owners(other)])
        rows = make_copies(max(start - count, 0), other) if len(other) else x[:0]
        if len(plain):
            rows = torch.cat([x.index_select(0, plain), rows])
        padding = count_padding(len(rows), size, model.device)
        with rows_of(pad_rows(whose, padding)):
            logits = model.forward(pad_rows(rows, padding))[: len(whose)]
        if len(plain):
            at_x.append(logits[: len(plain)])
        known = at_x[0] if len(at_x) == 1 else torch.cat(at_x)
        classes = model.task.answer(known) if targets is None else targets
        found = measure_score(model.task, logits, classes[whose], output)
        own.append(found[: len(plain)])
        scores.append(found[len(plain) :])
    return torch.cat(scores), torch.cat(own), torch.cat(at_x)
