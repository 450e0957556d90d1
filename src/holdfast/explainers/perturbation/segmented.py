"""What explainers share whose features are an input's segments: how it is cut, and how its disturbed copies are."""

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
from holdfast.segments import How, LabelMap, Method, check_segments, segment, spatial_shape

Features = Method | Literal["pixels"] | int | Tensor
Segmentation = Literal["each", "fixed"]


class SegmentedExplainer(Explainer):
    """An explainer with the options `segments` and `segmentation`, and one number for each segment."""

    segments: Features
    segmentation: Segmentation

    @abstractmethod
    def attribute_segments(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        """`attribute` with each place's segment, int64 `(N, places)`, and each input's number of them."""

    def attribute(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> tuple[Tensor, Tensor]:
        self._check_graph(create_graph)
        return self.attribute_segments(classifier, x.detach(), targets, *label_features(x.detach(), self.segments))

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """The undisturbed inputs' segments, int64 `(N, places)`, with `segmentation="fixed"`."""
        return label_features(inputs, self.segments)[0] if self.segmentation == "fixed" else None

    def attribute_copies(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> tuple[Tensor, Tensor]:
        return self.attribute_segments(classifier, x.detach(), targets, fixed, (fixed.amax(1) + 1).tolist())

    def _check_segments(self) -> None:
        """The two options; for `__post_init__`, since segments change into a form that a configuration can hold."""
        set_fields(self, segments=check_features(self.segments))
        ways = get_args(Segmentation)
        check(self.segmentation in ways, "segmentation", f"one of {', '.join(ways)}", repr(self.segmentation))


def check_features(how: Features | LabelMap) -> How | Literal["pixels"]:
    """The same in a form that a frozen configuration can hold; raises `ArgumentError` for what is none."""
    if isinstance(how, str) and how == "pixels":
        return "pixels"
    try:
        return check_segments(how)
    except ArgumentError as error:
        raise ArgumentError("segments", f"'pixels', {error.expected}", error.got) from None


def label_features(x: Tensor, how: Features | LabelMap) -> tuple[Tensor, list[int]]:
    """Each place's feature, int64 `(N, places)`, and how many features each input has.

    >>> label_features(torch.zeros(1, 3, 2, 2), "pixels")
    (tensor([[0, 1, 2, 3]]), [4])
    """
    spatial = spatial_shape(x)
    if isinstance(how, LabelMap):
        # an explainer does not know where in the batch an input stands, so labels cannot differ between inputs
        check(how.shape == spatial, "segments", f"labels of shape {spatial}, the same for all inputs", how.shape)
    if isinstance(how, str) and how == "pixels":
        places = math.prod(spatial)
        check(places >= 2, "inputs", "at least 2 pixels to tell apart", places)
        return torch.arange(places, device=x.device).expand(len(x), places), [places] * len(x)
    cut = segment(x, how)
    return cut.labels.flatten(1), cut.count.tolist()
