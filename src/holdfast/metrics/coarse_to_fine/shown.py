"""What is kept of each sample so that a report can draw it: the input in 256 shades, and when each position goes.

Two bytes for each entry, not two floats: a picture shows no more. Nothing is kept of inputs with very many entries.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from holdfast.metrics.coarse_to_fine.replacement import place_ranks
from holdfast.metrics.positions import Unit, relevance_of
from holdfast.segments import spatial_shape
from holdfast.statistics.paired import Array

#: entries of an input beyond which nothing is kept of it
MOST = 1 << 18
_SHADES = 255
_ELEMENTS = 1 << 19  # numbers in the relevances that are sorted at once


def shades(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """Inputs `(N, ...)` in steps of 1/255 of their range, uint8 of their shape, and the range `(N, 2)`.

    >>> found, ends = shades(torch.tensor([[0.0, 1.0, 0.5], [2.0, 2.0, 2.0]]))
    >>> found.tolist(), ends.tolist()
    ([[0, 255, 128], [0, 0, 0]], [[0.0, 1.0], [2.0, 2.0]])
    """
    low, high = inputs.flatten(1).aminmax(dim=1)
    each = (-1, *[1] * (inputs.ndim - 1))
    span = (high - low).reshape(each)
    span = torch.where(span > 0, span, 1.0)
    found = torch.empty(inputs.shape, dtype=torch.uint8, device=inputs.device)
    for rows in _groups(inputs):
        share = (inputs[rows] - low[rows].reshape(each)) / span[rows]
        found[rows] = (share * _SHADES).round().to(torch.uint8)
    return found, torch.stack((low, high), dim=1)


def unshaded(shaded: Array, ends: Array) -> Array:
    """One input again, from what `shades` made of it."""
    low, high = (float(end) for end in ends)
    return low + shaded.astype(float) / _SHADES * (high - low)


def turns(maps: Tensor, counts: Tensor, positions: Unit) -> Tensor:
    """At which share each position goes, the most relevant first.

    Args:
        maps: `(N, ...)`.
        counts: how many positions go at each share, `(N, K)`, not decreasing, K at most 254.
        positions: entries, or pixels.

    Returns:
        uint8, shaped like the maps, or without channels for pixels: 0 without positive relevance, j if it goes at the
        j-th share, K + 1 if it never does.

    >>> turns(torch.tensor([[[0.1, 0.9, -1.0, 0.5]]]), torch.tensor([[1, 2]]), "entry").tolist()
    [[[3, 1, 0, 2]]]
    """
    shape = tuple(maps.shape[1:]) if positions == "entry" else spatial_shape(maps)
    found = []
    for rows in _groups(maps):
        relevance = relevance_of(maps[rows], positions)
        ranks = place_ranks(relevance, "top").to(counts.dtype)
        turn = torch.searchsorted(counts[rows].contiguous(), ranks, right=True) + 1
        found.append(torch.where(relevance > 0, turn.clamp(max=255), 0).to(torch.uint8))
    return torch.cat(found).reshape(len(maps), *shape)


def _groups(like: Tensor) -> list[slice]:
    """Rows of a tensor, a few at a time."""
    step = max(1, _ELEMENTS // max(1, like[0].numel()))
    return [slice(start, start + step) for start in range(0, len(like), step)]


def drawing_data(inputs: Tensor, maps: Tensor, counts: Tensor, positions: Unit) -> dict[str, Any]:
    """All of it by the names of the result's fields; of inputs that are too large, tensors `(N, 0)`."""
    if inputs[0].numel() > MOST:
        nothing = torch.empty((len(inputs), 0), dtype=torch.uint8, device=inputs.device)
        return {"shaded": nothing, "shade_range": nothing.to(inputs.dtype), "turn": nothing}
    shaded, ends = shades(inputs)
    return {"shaded": shaded, "shade_range": ends, "turn": turns(maps, counts, positions)}
