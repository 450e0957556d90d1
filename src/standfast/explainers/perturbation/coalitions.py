"""The engine of explainers by coalitions: copies of an input that keep some of its features, and their scores.

The features of an input are its segments. A coalition is a set of features that keep their values, while the others
take those of a baseline or a background. LIME, KernelSHAP and Shapley value sampling differ in the coalitions that they
draw, and in how attributions follow from the scores of these. What they draw depends on the number of features alone,
and is used for all inputs with that number.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Annotated, Any, ClassVar, Self

import torch
from torch import Tensor

from standfast.errors import check
from standfast.explainers.background import resolve_background
from standfast.explainers.base import BaselineOption, Explanation, Seed, choose_baseline
from standfast.explainers.perturbation.copies import CopyExplainer, get_map_shape, score_copies
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
        moved = [send(values, device) for values in vars(self).values()]
        return type(self)(*moved)

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
        is_masked = (~masks).to(torch.int32)
        order = torch.arange(len(masks), device=masks.device)
        return cls(is_masked, order, torch.ones_like(order), fit)

    def solve(self, scores: Tensor) -> Tensor:
        products_at_once = count_at_once(_PRODUCTS, scores)
        rows = max(1, products_at_once // self.fit.numel())
        values = []
        for part in torch.split(scores, rows):
            # not a matrix product: its last bits depend on the number of inputs and on their place in memory
            products = self.fit * part[:, None]
            values.append(products.sum(2))
        return torch.cat(values)


@dataclass(frozen=True)
class _Group:
    """The copies of inputs `x` `(N, ...)` with as many segments each.

    Attributes:
        labels: the segment of each place, int64 `(N, places)`.
        coalitions: of that many segments.
        others: what masked places take, `(B, ...)`.
    """

    x: Tensor
    labels: Tensor
    coalitions: Coalitions
    others: Tensor

    @cached_property
    def made(self) -> int:
        """How many coalitions have copies: all but the first, which is the input itself."""
        return len(self.coalitions) - 1

    @cached_property
    def each(self) -> int:
        """The number of copies of each input."""
        return len(self.others) * self.made

    @property
    def total(self) -> int:
        """The number of all copies."""
        return self.each * len(self.x)

    @cached_property
    def ranks(self) -> Tensor:
        """The ranks of segments; of places, where all inputs have one label map, which is looked up once."""
        if self.is_shared:
            return self.coalitions.ranks[:, self.labels[0]]
        return self.coalitions.ranks

    @property
    def is_shared(self) -> bool:
        """Whether all inputs have one label map."""
        # an expanded tensor: one row in memory for all inputs
        return self.labels.stride(0) == 0

    @cached_property
    def numbers(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Of each copy the input, the row of `others`, and the order and the size `(total, 1)` of the coalition."""
        numbers = torch.arange(self.total, device=self.x.device)
        many = len(self.others)
        which = numbers // many % self.made + 1
        return (
            numbers // self.each,
            numbers % many,
            self.coalitions.order[which],
            self.coalitions.size[which, None],
        )

    def make_copies(self, start: int, stop: int) -> Tensor:
        """The copies with the numbers from `start` to `stop`."""
        owners, rows, order, size = (column[start:stop] for column in self.numbers)
        # index_select copies whole rows and is several times as fast as indexing
        kept = (self.ranks.index_select(0, order) < size).to(self.x.dtype)
        # from segments to places; all copies of an input look up the same ones
        if not self.is_shared:
            parts = []
            first = start // self.each
            end = -(-stop // self.each)
            for i in range(first, end):
                begin_of_input = max(i * self.each - start, 0)
                end_of_input = (i + 1) * self.each - start
                of_input = kept[begin_of_input:end_of_input]
                parts.append(of_input.index_select(1, self.labels[i]))
            kept = parts[0] if len(parts) == 1 else torch.cat(parts)
        values = self.others
        if len(values) > 1:
            values = values.index_select(0, rows)
        copied = self.x.index_select(0, owners)
        weights = kept.reshape(-1, *get_map_shape(self.x, self.labels))
        # faster than where, and exact at weights 0 and 1
        return torch.lerp(values, copied, weights, out=copied)

    def average(self, scores: Tensor, full: Tensor) -> Tensor:
        """The scores of all coalitions `(N, R)` from those of the copies `(total,)` and of the inputs `(N,)`."""
        repeats = len(self.others)
        mean = row_sum(scores.reshape(-1, repeats)) / repeats
        of_copies = mean.reshape(len(self.x), self.made)
        return torch.cat([full[:, None], of_copies], 1)

    def make_maps(self, values: Tensor) -> Tensor:
        """The maps `(N, ...)` of which each segment has one of the values `(N, m)`."""
        shape = get_map_shape(self.x, self.labels)
        maps = values.gather(1, self.labels).reshape(len(self.x), *shape)
        return maps.to(self.x.dtype).expand_as(self.x).contiguous()


def _join(groups: Sequence[_Group]) -> tuple[Tensor, Callable[[int, int], Tensor]]:
    """For `score_copies`: the owners of copies, and the copies, for the groups one after the other."""
    owners_of_groups = []
    first = 0
    for group in groups:
        owners_of_groups.append(group.numbers[0] + first)
        first += len(group.x)
    owners = torch.cat(owners_of_groups)
    ends = list(accumulate(group.total for group in groups))

    def make_copies(start: int, stop: int) -> Tensor:
        copies = []
        for group, end in zip(groups, ends, strict=True):
            begin = end - group.total
            if start < end and begin < stop:
                first_copy = max(start - begin, 0)
                last_copy = min(stop, end) - begin
                copies.append(group.make_copies(first_copy, last_copy))
        if len(copies) == 1:
            return copies[0]
        return torch.cat(copies)

    return owners, make_copies


@dataclass(frozen=True, kw_only=True)
class CoalitionExplainer(CopyExplainer):
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
    # those of Shapley values have one more
    removal_options: ClassVar[tuple[str, ...]] = ("baseline",)

    @abstractmethod
    def draw_coalitions(self, features: int, device: torch.device) -> Coalitions:
        """The coalitions for inputs with that many features, the same on every call."""

    def solve(
        self, model: Model, coalitions: Coalitions, scores: Tensor, outputs: Tensor
    ) -> Tensor:
        """The attributions of segments `(n, m)`; by default as the coalitions say.

        Args:
            model: within its session.
            coalitions: of m segments.
            scores: of n inputs, float64 `(n, R)`.
            outputs: of the model at the inputs themselves, `(n, ...)`.
        """
        return coalitions.solve(scores)

    def choose_scale(self, model: Model) -> Output:
        """The scale of the scores that attributions follow from; by default the option `output`."""
        return self.output

    def make_others(self, model: Model, x: Tensor) -> Tensor:
        """The values of features that are masked, `(B, ...)`; scores are averaged over the B of them."""
        baseline = choose_baseline(model, x, self.baseline)
        return baseline.expand(1, *x.shape[1:])

    def for_entries(self) -> Self:
        """This explainer with segments of single channels, unless `per_channel` says otherwise."""
        explainer: Any = self  # a frozen dataclass
        if self.per_channel == "auto":
            explainer = dataclasses.replace(explainer, per_channel=True)
        return explainer  # type: ignore[no-any-return]

    def label_places(self, x: Tensor) -> tuple[Tensor, list[int]]:
        """The segment of each place of the inputs `x`, int64 `(N, places)`, and how many segments each input has."""
        labels, counts = label_features(x, self.segments)
        if self.per_channel is True and x.ndim > 2:
            return split_channels(labels, counts, x)
        return (labels, counts)

    def fixed_part(self, inputs: Tensor) -> Tensor | None:
        """With `segmentation="fixed"`, the segments of the original inputs, int64 `(N, places)`; else None."""
        if self.segmentation == "fixed":
            return self.label_places(inputs)[0]
        return None

    def attribute(
        self, model: Model, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        self._check_graph(create_graph)
        x = x.detach()
        labels, counts = self.label_places(x)
        return self._attribute_segments(model, x, targets, labels, counts)

    def attribute_copies(
        self, model: Model, x: Tensor, targets: Tensor | None, fixed: Tensor
    ) -> Explanation:
        return self._attribute_segments(
            model, x.detach(), targets, fixed, (fixed.amax(1) + 1).tolist()
        )

    def _attribute_segments(
        self, model: Model, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> Explanation:
        """`attribute` with the segment of each place, int64 `(N, places)`, and the number of segments of each input."""
        with torch.no_grad():
            others = self.make_others(model, x)
            # inputs with as many segments have the same coalitions; the copies of all of them fill batches together
            members_of_count: dict[int, list[int]] = {}
            for i, count in enumerate(counts):
                members_of_count.setdefault(count, []).append(i)
            members = [members_of_count[count] for count in sorted(members_of_count)]
            order = send([i for group in members for i in group], x.device)
            if len(members) > 1:  # one label map for all inputs stays a view of one row
                x = x[order]
                labels = labels[order]
                if targets is not None:
                    targets = targets[order]
            sizes = [len(group) for group in members]
            groups: list[_Group] = []
            inputs_of_groups = torch.split(x, sizes)
            labels_of_groups = torch.split(labels, sizes)
            for numbers, inputs, segments in zip(
                members, inputs_of_groups, labels_of_groups, strict=True
            ):
                coalitions = self.draw_coalitions(counts[numbers[0]], x.device)
                groups.append(_Group(inputs, segments, coalitions, others))
            scale = self.choose_scale(model)
            scores, full, logits = score_copies(model, x, targets, *_join(groups), scale)
            scores_of_groups = torch.split(scores, [group.total for group in groups])
            parts = zip(
                groups,
                scores_of_groups,
                torch.split(full, sizes),
                torch.split(logits, sizes),
                strict=True,
            )
            maps_of_groups: list[Tensor] = []
            for group, of_copies, of_inputs, outputs in parts:
                averages = group.average(of_copies, of_inputs)
                values = self.solve(model, group.coalitions, averages, outputs)
                maps_of_groups.append(group.make_maps(values))
            maps = torch.cat(maps_of_groups)
            back = order.argsort()
            if len(groups) > 1:
                return maps[back], logits[back]
            return maps, logits


def _check_rows(background: Background | Tensor | None, name: str) -> Background | None:
    rows: Background | None
    if isinstance(background, Tensor):
        rows = Background(background)
    else:
        rows = background
    expected = "reference inputs (B, ...), as a Background or a tensor, or None"
    check(isinstance(rows, Background | None), name, expected, repr(background))
    return rows


@dataclass(frozen=True, kw_only=True)
class ShapleyExplainer(CoalitionExplainer):
    """An explainer by Shapley values: a coalition is worth its score, or its mean score over rows of a background."""

    background: Annotated[Background | Tensor | None, _check_rows] = None
    removal_options = ("baseline", "background")

    def __post_init__(self) -> None:
        fits = self.background is None or self.baseline is None
        check(fits, "baseline", "None beside a background", repr(self.baseline))

    def make_others(self, model: Model, x: Tensor) -> Tensor:
        if self.background is not None or (
            self.baseline is None and model.reference_for(x) is not None
        ):
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
    # both products have the same eigenvalues above 0, so the smaller one is enough
    gram = rows @ rows.T if wide else rows.T @ rows
    values, vectors = torch.linalg.eigh(gram)
    is_large = values > _RANK_TOLERANCE * values.amax()
    inverse_values = torch.where(is_large, 1 / (values + ridge), 0.0)
    inverse: Tensor = (vectors * inverse_values) @ vectors.T
    solution = rows.T @ inverse if wide else inverse @ rows.T
    return solution * root.T
