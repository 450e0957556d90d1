"""Explainers whose features are segments of the input: how inputs and their perturbed copies are segmented."""

from __future__ import annotations

import math
from abc import abstractmethod
from typing import Literal, get_args

import torch
from torch import Tensor

from holdfast.errors import ArgumentError, check
from holdfast.explainers.base import Explainer
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.segments import LabelMap, Method, SegmentChoice, check_segments, segment, spatial_shape

Features = Method | Literal["pixels"] | int | Tensor
Segmentation = Literal["each", "fixed"]


class SegmentedExplainer(Explainer):
    """An explainer with the options `segments` and `segmentation`, and one attribution for each segment."""

    segments: Features
    segmentation: Segmentation

    @abstractmethod
    def attribute_segments(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        """`attribute` with the segment of each position, int64 `(N, positions)`, and the number of segments of each."""

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        return self.attribute_segments(classifier, x.detach(), targets, *label_features(x.detach(), self.segments))

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """With `segmentation="fixed"`, the segments of the original inputs, int64 `(N, positions)`; else None."""
        return label_features(inputs, self.segments)[0] if self.segmentation == "fixed" else None

    def attribute_copies(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.attribute_segments(classifier, x.detach(), targets, fixed, (fixed.amax(1) + 1).tolist())

    def _check_segments(self) -> None:
        """Check both options, and bring `segments` into a form that a configuration can hold; for `__post_init__`."""
        set_fields(self, segments=check_features(self.segments))
        ways = get_args(Segmentation)
        check(self.segmentation in ways, "segmentation", f"one of {', '.join(ways)}", repr(self.segmentation))


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
    return cut.labels.flatten(1), cut.count.tolist()
