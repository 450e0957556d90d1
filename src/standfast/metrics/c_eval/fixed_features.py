"""From attribution maps to the features that are held fixed: the top share of pixels or segments (c-Eval, Sec. VI)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Unit = Literal["pixel", "segment"]


def score_pixels(maps: Tensor, absolute: bool = False) -> Tensor:
    """One number for each place, `(N, *spatial)`, of maps `(N, C, *spatial)` or `(N, F)`: the sum over channels.

    >>> score_pixels(torch.tensor([[[1.0, 2.0], [-3.0, 4.0]]]))
    tensor([[-2.,  6.]])
    """
    if absolute:
        maps = maps.abs()
    if maps.ndim == 2:
        return maps
    return maps.sum(1)


def count_fixed(fraction: float, positions: int) -> int:
    """How many of the positions a share is: at least one is fixed, and at least one stays free.

    >>> count_fixed(0.001, 784), count_fixed(0.1, 784), count_fixed(0.9999, 784)
    (1, 78, 783)
    """
    return min(positions - 1, max(1, round(fraction * positions)))


def fix_pixels(scores: Tensor, fraction: float) -> Tensor:
    """The top share of the places of `scores` `(N, *spatial)`, bool of that shape; among ties the first places.

    At least one place is fixed and one is free, and equally many for each sample.

    >>> fix_pixels(torch.tensor([[0.1, 0.5, 0.5, 0.2]]), 0.25)
    tensor([[False,  True, False, False]])
    """
    flat = scores.flatten(1)
    count = count_fixed(fraction, flat.shape[1])
    ordered = flat.sort(dim=1, descending=True, stable=True)
    order = ordered.indices[:, :count]
    none = torch.zeros_like(flat, dtype=torch.bool)
    return none.scatter_(1, order, True).reshape(scores.shape)


def fix_segments(scores: Tensor, labels: Tensor, fraction: float) -> Tensor:
    """The segments with the largest sums of `scores` `(N, *spatial)`, filled up to exactly as many places as pixels.

    Segments differ in size, and c-Eval compares at equal size only. So of the first segment that does not fit whole,
    only the places with the largest scores are fixed. `labels` `(N, *spatial)` number the segments from 0; among ties
    the first ones win.

    >>> scores, labels = torch.tensor([[3.0, 0.0, 2.0, 2.0]]), torch.tensor([[0, 1, 2, 2]])
    >>> fix_segments(scores, labels, 0.5), fix_segments(scores, labels, 0.75)
    (tensor([[False, False,  True,  True]]), tensor([[ True, False,  True,  True]]))
    """
    flat = scores.flatten(1)
    label = labels.flatten(1)
    count = count_fixed(fraction, flat.shape[1])
    if len(flat):
        segments = int(label.max()) + 1
    else:
        segments = 1
    shape = (len(flat), segments)
    sums = torch.zeros(shape, dtype=torch.float64, device=flat.device)
    sums.scatter_add_(1, label, flat.double())
    best_segments = sums.sort(dim=1, descending=True, stable=True).indices
    numbers = torch.arange(segments, device=flat.device).expand_as(best_segments)
    ranks = torch.empty_like(best_segments).scatter_(1, best_segments, numbers)
    by_score = flat.sort(dim=1, descending=True, stable=True).indices
    ranks_of_places = ranks.gather(1, label).gather(1, by_score)
    # a stable order: by segment, and within a segment still by score
    by_segment = ranks_of_places.sort(dim=1, stable=True).indices
    order = by_score.gather(1, by_segment)[:, :count]
    none = torch.zeros_like(flat, dtype=torch.bool)
    return none.scatter_(1, order, True).reshape(scores.shape)


def mark_free(mask: Tensor, inputs: Tensor) -> Tensor:
    """Which entries of `inputs` `(N, ...)` may change while the places `mask` `(N, *spatial)` are fixed."""
    if inputs.ndim != 2:
        mask = mask[:, None].expand(inputs.shape)
    return ~mask
