"""Explainers whose features are segments of the input: how inputs and their perturbed copies are segmented."""

from __future__ import annotations

import dataclasses
import math
from abc import abstractmethod
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.explainers.base import Explainer
from standfast.model import Model
from standfast.records import set_fields
from standfast.segments import LabelMap, Method, SegmentChoice, check_segments, segment, spatial_shape
from standfast.tensors import send

Features = Method | Literal["pixels"] | int | Tensor
Segmentation = Literal["each", "fixed"]
#: whether each channel has segments of its own; `"auto"`: only for a metric that looks at single entries
PerChannel = bool | Literal["auto"]


class SegmentedExplainer(Explainer):
    """An explainer with options for its segments, and one attribution for each segment.

    With `per_channel`, a segment of m channels becomes m segments, one of each channel, which are numbered channel by
    channel. Flat features have no channels, so there it makes no difference.
    """

    segments: Features
    segmentation: Segmentation
    per_channel: PerChannel

    @abstractmethod
    def attribute_segments(
        self, model: Model, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        """`attribute` with the segment of each place, int64 `(N, places)`, and the number of segments of each input.

        The places are those of a map of shape `get_map_shape(x, labels)`.
        """

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        return self.attribute_segments(model, x.detach(), targets, *self.label_places(x.detach()))

    def label_places(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """The segment of each place of the inputs `x`, int64 `(N, places)`, and how many segments each input has."""
        labels, counts = label_features(x, self.segments)
        return split_channels(labels, counts, x) if self.per_channel is True and x.ndim > 2 else (labels, counts)

    def for_entries(self) -> Self:
        """This explainer with segments of single channels, unless `per_channel` says otherwise."""
        own: Any = self  # a frozen dataclass
        return dataclasses.replace(own, per_channel=True) if self.per_channel == "auto" else self

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """With `segmentation="fixed"`, the segments of the original inputs, int64 `(N, places)`; else None."""
        return self.label_places(inputs)[0] if self.segmentation == "fixed" else None

    def attribute_copies(self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor) -> tuple[Tensor, Tensor]:
        return self.attribute_segments(model, x.detach(), targets, fixed, (fixed.amax(1) + 1).tolist())

    def _check_segments(self) -> None:
        """Check these options, and bring `segments` into a form that a configuration can hold; for `__post_init__`."""
        set_fields(self, segments=check_features(self.segments))
        ways = get_args(Segmentation)
        check(self.segmentation in ways, "segmentation", f"one of {', '.join(ways)}", repr(self.segmentation))
        known = isinstance(self.per_channel, bool) or self.per_channel == "auto"
        check(known, "per_channel", "True, False or 'auto'", repr(self.per_channel))


def check_features(how: Features | LabelMap) -> SegmentChoice | Literal["pixels"]:
    """The option `segments` in a form that a frozen configuration can hold.

    Raises:
        ArgumentError: it is none of the possible values.
    """
    if isinstance(how, str) and how == "pixels":
        return "pixels"
    try:
        return check_segments(how)
    except ArgumentError as error:
        raise ArgumentError("segments", f"'pixels', {error.expected}", error.got) from None


def label_features(x: Tensor, how: Features | LabelMap) -> tuple[Tensor, list[int]]:
    """The feature of each position, int64 `(N, positions)`, and how many features each input has.

    >>> label_features(torch.zeros(1, 3, 2, 2), "pixels")
    (tensor([[0, 1, 2, 3]]), [4])
    """
    spatial = spatial_shape(x)
    if isinstance(how, LabelMap):
        # an explainer does not know an input's number in the batch, so labels cannot differ between inputs
        check(how.shape == spatial, "segments", f"labels of shape {spatial}, the same for all inputs", how.shape)
    if isinstance(how, str) and how == "pixels":
        positions = math.prod(spatial)
        check(positions >= 2, "inputs", "at least 2 pixels", positions)
        return torch.arange(positions, device=x.device).expand(len(x), positions), [positions] * len(x)
    cut = segment(x, how)
    return cut.labels.flatten(1), list(cut.counts)


def split_channels(labels: Tensor, counts: list[int], x: Tensor) -> tuple[Tensor, list[int]]:
    """Segments of single channels, from segments `(N, positions)` of the inputs `x` `(N, C, ...)` with all channels.

    >>> labels, counts = split_channels(torch.tensor([[0, 0, 1]]), [2], torch.zeros(1, 2, 3))
    >>> labels.tolist(), counts
    ([[0, 0, 1, 2, 2, 3]], [4])
    """
    channels, shared = x.shape[1], labels.stride(0) == 0
    own = labels[:1] if shared else labels
    first = send(counts[:1] if shared else counts, labels.device)
    offsets = first[:, None, None] * torch.arange(channels, device=labels.device)[:, None]
    split = (own[:, None] + offsets).flatten(1)
    # labels that all inputs share stay a view of one row, which makes Shapley value sampling faster
    return split.expand(len(labels), -1), [channels * count for count in counts]
