"""The features of explainers that look at segments of the input."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Literal

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.segments import (
    LabelMap,
    Method,
    SegmentChoice,
    check_segments,
    segment,
    spatial_shape,
)
from standfast.tensors import send

_Segments = Method | Literal["pixels"] | int | Tensor
Segmentation = Literal["each", "fixed"]
#: whether each channel has segments of its own; `"auto"`: only for a metric that looks at single entries
PerChannel = bool | Literal["auto"]


def check_features(how: _Segments | LabelMap, name: str) -> SegmentChoice | Literal["pixels"]:
    """The option `segments` in a form that a frozen configuration can hold.

    Raises:
        ArgumentError: it is none of the possible values.
    """
    if isinstance(how, str) and how == "pixels":
        return "pixels"
    try:
        return check_segments(how)
    except ArgumentError as error:
        raise ArgumentError(name, f"'pixels', {error.expected}", error.got) from None


Features = Annotated[_Segments, check_features]


def check_sides(sides: int | Sequence[int] | None, name: str) -> int | Sequence[int] | None:
    """The option as a number, a tuple or None; `ArgumentError` unless it is whole numbers of at least 1, or None."""
    if sides is None:
        return None
    numbers = tuple(sides) if isinstance(sides, list | tuple) else (sides,)
    fits = len(numbers) > 0 and all(type(number) is int and number >= 1 for number in numbers)
    check(fits, name, "a whole number of at least 1, or one for each axis", repr(sides))
    return numbers if isinstance(sides, list) else sides


#: a number for all axes of the inputs, or one for each; None where the inputs decide
Sides = Annotated[int | Sequence[int] | None, check_sides]


def expand_sides(name: str, sides: Sides, usual: Sequence[int]) -> list[int]:
    """The option as one number for each axis; `usual` are its defaults."""
    if sides is None:
        return list(usual)
    if isinstance(sides, int):
        return [sides] * len(usual)
    check(
        len(sides) == len(usual),
        name,
        f"one number, or {len(usual)} (one for each axis)",
        len(sides),
    )
    return list(sides)


def label_features(x: Tensor, how: Features | LabelMap) -> tuple[Tensor, list[int]]:
    """The feature of each position, int64 `(N, positions)`, and how many features each input has.

    >>> label_features(torch.zeros(1, 3, 2, 2), "pixels")
    (tensor([[0, 1, 2, 3]]), [4])
    """
    spatial = spatial_shape(x)
    if isinstance(how, LabelMap):
        # an explainer does not know an input's number in the batch, so labels cannot differ between inputs
        check(
            how.shape == spatial,
            "segments",
            f"labels of shape {spatial}, the same for all inputs",
            how.shape,
        )
    if isinstance(how, str) and how == "pixels":
        positions = math.prod(spatial)
        check(
            positions >= 2,
            "inputs",
            "at least 2 pixels, columns, words or parts of a context",
            positions,
        )
        return torch.arange(positions, device=x.device).expand(len(x), positions), [
            positions
        ] * len(x)
    cut = segment(x, how)
    return cut.labels.flatten(1), list(cut.counts)


def split_channels(labels: Tensor, counts: list[int], x: Tensor) -> tuple[Tensor, list[int]]:
    """Segments of single channels, from segments `(N, positions)` of the inputs `x` `(N, C, ...)` with all channels.

    >>> labels, counts = split_channels(torch.tensor([[0, 0, 1]]), [2], torch.zeros(1, 2, 3))
    >>> labels.tolist(), counts
    ([[0, 0, 1, 2, 2, 3]], [4])
    """
    channels = x.shape[1]
    shared = labels.stride(0) == 0
    labels_of_sample = labels[:1] if shared else labels
    different_counts = counts[:1] if shared else counts
    first = send(different_counts, labels.device)
    numbers = torch.arange(channels, device=labels.device)
    offsets = first[:, None, None] * numbers[:, None]
    split = (labels_of_sample[:, None] + offsets).flatten(1)
    # labels that all inputs share stay a view of one row, which makes Shapley value sampling faster
    return split.expand(len(labels), -1), [channels * count for count in counts]
