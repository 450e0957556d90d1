"""Regions of an input, which faithfulness metrics remove, and what a map attributes to each of them."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.metrics.positions import sum_channels
from standfast.segments import (
    Method,
    SegmentChoice,
    Segments,
    check_segments,
    share_labels,
    spatial_shape,
)

#: cells along the shorter side of an image, where no width is given; 9x9 pixels of 224x224, as published
CELLS_PER_SIDE = 25


def check_regions(segments: Method | int | Tensor | None, name: str) -> SegmentChoice | None:
    """The choice of `segments`; None stands for cells. Raise `ArgumentError` for what is no choice."""
    try:
        if segments is None:
            return None
        return check_segments(segments, name)
    except ArgumentError as error:
        raise ArgumentError(name, f"None (for cells), {error.expected}", error.got) from None


#: regions that are not cells; None for cells
Regions = Annotated[Method | int | Tensor | None, check_regions]


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
        if inputs.ndim != 2:
            side = max(2, round(min(spatial) / CELLS_PER_SIDE))
        else:
            side = 1
    labels = torch.zeros(spatial, dtype=torch.int64, device=inputs.device)
    total = 1
    for axis, length in enumerate(spatial):
        along = -(-length // side)
        cell = torch.arange(length, device=inputs.device) // side
        labels = labels * along + cell.reshape(
            [-1 if a == axis else 1 for a in range(len(spatial))]
        )
        total *= along
    check(
        total >= 2,
        "region",
        f"cells small enough that inputs of shape {spatial} have two of them",
        side,
    )
    return share_labels(inputs, labels, total)


def sum_over_regions(maps: Tensor, cut: Segments) -> Tensor:
    """The sum of `maps` `(N, ...)` over each region and all channels; float32 `(N, width)`, NaN beyond the last region.

    Sums are float64 and then rounded, so that values stay tied when only the order of summation differs.
    """
    pixels = sum_channels(maps)
    zeros = pixels.new_zeros(len(maps), cut.width)
    sums = zeros.scatter_add_(1, cut.labels.flatten(1), pixels)
    numbers = torch.arange(cut.width, device=maps.device)
    exists = numbers < cut.count[:, None]
    return torch.where(exists, sums, torch.nan).float()


def sum_columns(values: Tensor) -> Tensor:
    """The sum over the second axis of `(n, draws)`, one column after the other: its bits do not depend on n."""
    total = torch.zeros_like(values[:, 0])
    for column in values.unbind(1):
        total = total + column
    return total
