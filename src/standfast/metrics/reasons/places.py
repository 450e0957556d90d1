"""Places: which features of a map are its first ones, with ties counted as ties.

Two features whose values are equal up to rounding share a place. Of a table, the features that share the last place
that counts are all left out: nobody could say which of them is named. Of an image or a series all of them are in, as
the pixels of a segment have one value.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from standfast.statistics.reasons import ROUNDING
from standfast.tensors import is_image

#: what speaks for the answer alone counts, or also what speaks against it
Speaking = Literal["both", "for"]
#: how many features of a row count by default, and which share of the positions of an image or a series
TOP, TOP_SHARE = 4, 0.1


def sum_channels(maps: Tensor) -> Tensor:
    """Maps `(M, ...)` with one value for each feature, `(M, F)`: of images the sum over the channels of a pixel.

    >>> sum_channels(torch.ones(2, 3, 4, 4)).shape, sum_channels(torch.ones(2, 3, 5)).shape
    (torch.Size([2, 16]), torch.Size([2, 15]))
    """
    if is_image(maps.shape[1:]):
        maps = maps.sum(1)
    return maps.flatten(1)


def count_first(shape: torch.Size, top: int | None) -> int:
    """How many features of inputs of this shape `(...)` count as the first ones.

    Args:
        shape: of an input, without the batch.
        top: what the user says; None for four of a row, and for a tenth of the positions of an image or a series.

    >>> count_first(torch.Size([30]), None), count_first(torch.Size([3, 20, 20]), None), count_first(torch.Size([2]), 4)
    (4, 40, 2)
    """
    features = sum_channels(torch.empty(1, *shape, device="meta")).shape[1]
    usual = TOP if len(shape) == 1 else max(1, round(TOP_SHARE * features))
    return min(usual if top is None else top, features)


def measure_sizes(maps: Tensor, speaking: Speaking) -> Tensor:
    """What features are ordered by, `(M, F)`: absolute values, or what speaks for the answer."""
    return maps.clamp(min=0) if speaking == "for" else maps.abs()


def sign_first(maps: Tensor, top: int, speaking: Speaking, shares_places: bool) -> Tensor:
    """For each feature of maps `(M, F)` 1 or -1 for the first ones, by their signs, and 0 for the others.

    >>> sign_first(torch.tensor([[3.0, -2.0, 1.0]]), 2, "both", False).tolist()
    [[1.0, -1.0, 0.0]]
    """
    return mark_first(measure_sizes(maps, speaking), top, shares_places) * maps.sign()


def mark_first(sizes: Tensor, top: int, shares_places: bool) -> Tensor:
    """Which features are the first ones, bool `(M, F)`; a feature of size 0 never is.

    Args:
        sizes: `(M, F)`, at least 0 and finite.
        top: how many places count, at most F.
        shares_places: features that share the last place are all in, and else all out.

    >>> sizes = torch.tensor([[3.0, 2.0, 2.0, 1.0], [3.0, 2.0, 1.0, 0.0]])
    >>> mark_first(sizes, 2, False).tolist()
    [[True, False, False, False], [True, True, False, False]]
    >>> mark_first(sizes, 2, True)[0].tolist()
    [True, True, True, False]
    """
    slack = ROUNDING * sizes.amax(1, keepdim=True)
    largest = torch.nn.functional.pad(sizes, (0, 1)).topk(top + 1, dim=1).values
    last_in, first_out = largest[:, top - 1 : top], largest[:, top : top + 1]
    if shares_places:
        return (sizes >= last_in - slack) & (sizes > slack)
    return sizes > first_out + slack
