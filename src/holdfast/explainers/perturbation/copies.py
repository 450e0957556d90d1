"""What explainers share that look at scores of perturbed copies: all copies of a chunk as one flat batch of rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import check, check_integer
from holdfast.explainers.base import choose_chunk_rows
from holdfast.gating import rows_of
from holdfast.model import Classifier, padded, padding_of
from holdfast.segments import spatial_shape

Output = Literal["probability", "logit"]


def check_output(output: str) -> None:
    """One of the two scores."""
    check(output in get_args(Output), "output", f"one of {', '.join(get_args(Output))}", repr(output))


def check_count(value: object, name: str, least: int) -> None:
    """A whole number of at least `least`."""
    check_integer(value, name, least)


def get_map_shape(x: Tensor) -> tuple[int, ...]:
    """The spatial shape, after an axis for channels where `x` `(N, ...)` has one.

    >>> get_map_shape(torch.zeros(2, 3, 8, 9)), get_map_shape(torch.zeros(2, 7))
    ((1, 8, 9), (7,))
    """
    return spatial_shape(x) if x.ndim == 2 else (1, *spatial_shape(x))


def compute_target_scores(logits: Tensor, classes: Tensor, output: Output) -> Tensor:
    """What is explained of each row of `logits` `(rows, K)`, float64 `(rows,)`.

    >>> compute_target_scores(torch.tensor([[0.0, 0.0]]), torch.tensor([1]), "probability")
    tensor([0.5000], dtype=torch.float64)
    """
    values = logits.double()
    if output == "probability":
        values = torch.softmax(values, 1)
    return values.gather(1, classes[:, None])[:, 0]


def score_copies(
    classifier: Classifier,
    x: Tensor,
    targets: Tensor | None,
    owners: Callable[[Tensor], Tensor],
    copies: Callable[[int, Tensor], Tensor],
    total: int,
    output: Output,
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores of `total` perturbed copies of the rows of `x` `(N, ...)`. For use within `torch.no_grad()`.

    The rows of `x` come first, so that the predicted classes are known before a copy's score needs them; nothing but
    the score is kept of a copy.

    Args:
        classifier: within its session.
        x: one chunk of inputs.
        targets: classes `(N,)`; None for the predicted ones.
        owners: from numbers of copies, int64 `(rows,)`, to the rows of `x` that they are copies of.
        copies: from such numbers, one after the other, and the first of them, to the copies `(rows, ...)`, fresh ones.
        total: how many copies there are.
        output: the score.

    Returns:
        Scores of the copies `(total,)` and of `x` itself `(N,)`, float64; the logits `(N, K)` at `x`.
    """
    count = len(x)
    size = choose_chunk_rows(classifier, x, -(-total // count) + 1)
    own, at_x, scores = [], [], []
    for start in range(0, count + total, size):
        stop = min(start + size, count + total)
        numbers = torch.arange(start, stop, device=x.device)
        plain, other = numbers[: max(count - start, 0)], numbers[max(count - start, 0) :] - count
        whose = torch.cat([plain, owners(other)])
        rows = copies(max(start - count, 0), other) if len(other) else x[:0]
        if len(plain):
            rows = torch.cat([x.index_select(0, plain), rows])
        padding = padding_of(len(rows), size)
        with rows_of(padded(whose, padding)):
            logits = classifier.forward(padded(rows, padding))[: len(whose)]
        if len(plain):
            at_x.append(logits[: len(plain)])
        classes = targets if targets is not None else (at_x[0] if len(at_x) == 1 else torch.cat(at_x)).argmax(1)
        found = compute_target_scores(logits, classes[whose], output)
        own.append(found[: len(plain)])
        scores.append(found[len(plain) :])
    return torch.cat(scores), torch.cat(own), torch.cat(at_x)
