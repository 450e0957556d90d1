"""Regions of inputs, and the score that a map gives to each: what AOPC replaces one after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.errors import check
from standfast.metrics.positions import sum_channels
from standfast.segments import Segments, spatial_shape

#: cells along the shorter side of an image, where no width is given; 9x9 pixels of 224x224, as published
CELLS_PER_SIDE = 25


def cut_cells(inputs: Tensor, side: int | None) -> Segments:
    """Cut inputs into cells `side` places wide along every axis; the last cells are narrower if `side` does not divide.

    Args:
        inputs: `(N, ...)`.
        side: in pixels or time steps. None for a 25th of the shorter side, at least 2; then each flat feature is a
            cell.

    Raises:
        ArgumentError: fewer than two cells.

    >>> cut_cells(torch.zeros(1, 1, 3, 4), 2).labels[0].tolist()
    [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 3, 3]]
    >>> cut_cells(torch.zeros(1, 3, 224, 224), None).width, cut_cells(torch.zeros(1, 1, 28, 28), None).width
    (625, 196)
    """
    spatial = spatial_shape(inputs)
    if side is None:
        side = 1 if inputs.ndim == 2 else max(2, round(min(spatial) / CELLS_PER_SIDE))
    labels = torch.zeros(spatial, dtype=torch.int64, device=inputs.device)
    total = 1
    for axis, length in enumerate(spatial):
        along = -(-length // side)
        place = torch.arange(length, device=inputs.device) // side
        labels = labels * along + place.reshape([-1 if a == axis else 1 for a in range(len(spatial))])
        total *= along
    check(total >= 2, "region", f"cells small enough that inputs of shape {spatial} have two of them", side)
    count = torch.full((len(inputs),), total, device=inputs.device)
    fallback = torch.zeros(len(inputs), dtype=torch.bool, device=inputs.device)
    return Segments(labels.expand(len(inputs), *spatial), count, total, fallback, (total,) * len(inputs))


def sum_over_regions(maps: Tensor, cut: Segments) -> Tensor:
    """The sum of `maps` `(N, ...)` over each region and all channels; float32 `(N, width)`, NaN beyond the last region.

    Sums are float64 and then rounded, so that values stay tied when only the order of summation differs.
    """
    pixels = sum_channels(maps)
    sums = pixels.new_zeros(len(maps), cut.width).scatter_add_(1, cut.labels.flatten(1), pixels)
    exists = torch.arange(cut.width, device=maps.device) < cut.count[:, None]
    return torch.where(exists, sums, torch.nan).float()
