"""The engine of explainers by coalitions: copies of an input that keep some of its features, and their scores.

The features of an input are its segments. A coalition is a set of features that keep their values, while the others
take those of a baseline or a background. LIME, KernelSHAP and Shapley value sampling differ in the coalitions that they
draw, and in how attributions follow from the scores of these. What they draw depends on the number of features alone,
and is used for all inputs with that number.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.background import resolve_background
from standfast.explainers.base import BaselineOption, Explainer, Explanation, Seed, choose_baseline
from standfast.explainers.perturbation.copies import get_map_shape, score_copies
from standfast.explainers.perturbation.segmented import (
    Features,
    PerChannel,
    Segmentation,
    label_features,
    split_channels,
)
from standfast.model import Model, Output
from standfast.records import Background
from standfast.similarity.rows import row_sum
from standfast.tensors import count_at_once, send

# eigenvalues below this share of the largest are rounding errors: no coalition says anything about their directions
_RANK_TOLERANCE = 1e-10
# products that are computed at once, to limit memory
_PRODUCTS = 1 << 22


@dataclass(frozen=True)
class Coalitions:
    """Coalitions of m features: each has the features that come first in an order. Number 0 is the full coalition.

    Attributes:
        ranks: the position of each feature in each of P orders, int32 `(P, m)`.
        order, size: of each of R coalitions, int64 `(R,)`: it has the features whose position in that order is below
            its size.
    """

    ranks: Tensor
    order: Tensor
    size: Tensor

    def __len__(self) -> int:
        return len(self.size)

    @property
    def masks(self) -> Tensor:
        """Which features each coalition has, bool `(R, m)`."""
        return self.ranks[self.order] < self.size[:, None]

    def to(self, device: torch.device) -> Self:
        """A copy on another device."""
        return type(self)(*(send(values, device) for values in vars(self).values()))

    def solve(self, scores: Tensor) -> Tensor:
        """The attributions `(n, m)` of n inputs whose coalitions have these scores, float64 `(n, R)`."""
        raise NotImplementedError


@dataclass(frozen=True)
class FittedCoalitions(Coalitions):
    """Coalitions whose scores a linear fit turns into attributions; `fit` is its matrix, float64 `(m, R)`."""

    fit: Tensor

    @classmethod
    def of_masks(cls, masks: Tensor, fit: Tensor) -> FittedCoalitions:
        """From masks, bool `(R, m)`, of which the first keeps all features."""
        order = torch.arange(len(masks), device=masks.device)
        return cls((~masks).to(torch.int32), order, torch.ones_like(order), fit)

    def solve(self, scores: Tensor) -> Tensor:
        parts = torch.split(scores, max(1, count_at_once(_PRODUCTS, scores) // self.fit.numel()))
        # not a matrix product: its last bits depend on the number of inputs and on their place in memory
        return torch.cat([(self.fit * part[:, None]).sum(2) for part in parts])


@dataclass(frozen=True, kw_only=True)
class CoalitionExplainer(Explainer):
    """An explainer of segments by the scores of coalitions, with one attribution for each segment.

    With `per_channel`, a segment of m channels becomes m segments, one of each channel, which are numbered channel by
    channel. Flat features have no channels, so there it makes no difference.
    """

    segments: Features = "auto"
    baseline: BaselineOption = None
    output: Output = "logit"
    seed: Seed = 0
    segmentation: Segmentation = "each"
    per_channel: PerChannel = "auto"
    gateable: ClassVar[bool] = True

    @abstractmethod
    def draw_coalitions(self, features: int, device: torch.device) -> Coalitions:
        """The coalitions for inputs with that many features, the same on every call."""

    def make_others(self, model: Model, x: Tensor) -> Tensor:
        """The values of features that are masked, `(B, ...)`; scores are averaged over the B of them."""
        return choose_baseline(model, x, self.baseline).expand(1, *x.shape[1:])

    def for_entries(self) -> Self:
        """This explainer with segments of single channels, unless `per_channel` says otherwise."""
        own: Any = self  # a frozen dataclass
        return dataclasses.replace(own, per_channel=True) if self.per_channel == "auto" else self

    def label_places(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """The segment of each place of the inputs `x`, int64 `(N, places)`, and how many segments each input has."""
        labels, counts = label_features(x, self.segments)
        return split_channels(labels, counts, x) if self.per_channel is True and x.ndim > 2 else (labels, counts)

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """With `segmentation="fixed"`, the segments of the original inputs, int64 `(N, places)`; else None."""
        return self.label_places(inputs)[0] if self.segmentation == "fixed" else None

    def attribute(self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False) -> Explanation:
        self._check_graph(create_graph)
        return self._attribute_segments(model, x.detach(), targets, *self.label_places(x.detach()))

    def attribute_copies(self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor) -> Explanation:
        return self._attribute_segments(model, x.detach(), targets, fixed, (fixed.amax(1) + 1).tolist())

    def _attribute_segments(
        self, model: Model, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> Explanation:
        """`attribute` with the segment of each place, int64 `(N, places)`, and the number of segments of each input."""
        with torch.no_grad():
            others = self.make_others(model, x)
            groups = [[i for i, count in enumerate(counts) if count == alike] for alike in sorted(set(counts))]
            if len(groups) == 1:
                return self._attribute_alike(model, x, targets, labels, counts[0], others)
            found = []
            for group in groups:
                members = send(group, x.device)
                own = None if targets is None else targets[members]
                found.append(self._attribute_alike(model, x[members], own, labels[members], counts[group[0]], others))
            back = send([i for group in groups for i in group], x.device).argsort()
            maps, logits = (torch.cat(part)[back] for part in zip(*found, strict=True))
            return maps, logits

    def _attribute_alike(
        self, model: Model, x: Tensor, targets: Tensor | None, labels: Tensor, features: int, others: Tensor
    ) -> Explanation:
        """`attribute` for inputs with that many segments each, whose masked places take `others` `(B, ...)`."""
        coalitions = self.draw_coalitions(features, x.device)
        many, made, shape = len(others), len(coalitions) - 1, get_map_shape(x, labels)
        shared = labels.stride(0) == 0  # all inputs have one label map, which is looked up once
        ranks = coalitions.ranks[:, labels[0]] if shared else coalitions.ranks

        def make_copies(_first: int, numbers: Tensor) -> Tensor:
            copy = numbers // many
            whose, which = copy // made, copy % made + 1
            # index_select copies whole rows and is several times as fast as indexing
            positions = ranks.index_select(0, coalitions.order[which])
            if not shared:
                positions = positions.gather(1, labels.index_select(0, whose))
            kept = (positions < coalitions.size[which, None]).to(x.dtype).reshape(len(numbers), *shape)
            values = others if many == 1 else others.index_select(0, numbers % many)
            # faster than where, and exact at weights 0 and 1
            return torch.lerp(values, x.index_select(0, whose), kept)

        def find_owners(numbers: Tensor) -> Tensor:
            return numbers // (many * made)

        total = many * made * len(x)
        scores, full, logits = score_copies(model, x, targets, find_owners, make_copies, total, self.output)
        scores = torch.cat([full[:, None], (row_sum(scores.reshape(-1, many)) / many).reshape(len(x), made)], 1)
        maps = coalitions.solve(scores).gather(1, labels).reshape(len(x), *shape)
        return maps.to(x.dtype).expand_as(x).contiguous(), logits


def _check_rows(background: Background | Tensor | None, name: str) -> Background | None:
    rows = Background(background) if isinstance(background, Tensor) else background
    expected = "reference inputs (B, ...), as a Background or a tensor, or None"
    check(isinstance(rows, Background | None), name, expected, repr(background))
    return rows


@dataclass(frozen=True, kw_only=True)
class ShapleyExplainer(CoalitionExplainer):
    """An explainer by Shapley values: a coalition is worth its score, or its mean score over rows of a background."""

    background: Annotated[Background | Tensor | None, _check_rows] = None

    def __post_init__(self) -> None:
        fits = self.background is None or self.baseline is None
        check(fits, "baseline", "None beside a background", repr(self.baseline))

    def make_others(self, model: Model, x: Tensor) -> Tensor:
        if self.background is not None or (self.baseline is None and model.reference_for(x) is not None):
            return resolve_background(model, x, self.background)
        return super().make_others(model, x)


def solve_least_squares(design: Tensor, weights: Tensor, ridge: float = 0.0) -> Tensor:
    """The matrix `(m, R)` that maps R values y to `argmin_b sum over r of w_r (y_r - design_r b)^2 + ridge |b|^2`.

    If there are several minima, it gives the one with the smallest norm. It solves the normal equations, in their
    smaller form.

    Args:
        design: float64 `(R, m)`.
        weights: float64 `(R,)`, at least 0.
        ridge: at least 0.

    >>> design = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    >>> fit = solve_least_squares(design, torch.ones(3, dtype=torch.float64))
    >>> fit @ torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
    tensor([1.0000, 2.0000], dtype=torch.float64)
    """
    root = weights.sqrt()[:, None]
    rows = root * design
    wide = rows.shape[1] > rows.shape[0]
    gram = rows @ rows.T if wide else rows.T @ rows
    values, vectors = torch.linalg.eigh(gram)
    known = values > _RANK_TOLERANCE * values.amax()
    inverse: Tensor = (vectors * torch.where(known, 1 / (values + ridge), 0.0)) @ vectors.T
    return (rows.T @ inverse if wide else inverse @ rows.T) * root.T
