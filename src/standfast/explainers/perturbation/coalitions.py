"""What LIME and KernelSHAP share: copies of an input that keep some of its features, and a linear fit to their scores.

The features of an input are its segments. A coalition is a set of features that keep their values, while the others
take the baseline's. Which coalitions are drawn depends on the number of features alone. So the linear fit to the
model's scores is one matrix for all inputs with the same number of features. It is computed once, and multiplied with
each input's scores. The copies of all inputs of a chunk are forwarded as one flat batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from standfast.errors import check_integer
from standfast.explainers.base import Baseline, check_baseline, check_seed, choose_baseline, choose_chunk_rows
from standfast.explainers.perturbation.copies import (
    CopyNumbers,
    average_each,
    check_output,
    get_map_shape,
    number_copies,
)
from standfast.explainers.perturbation.segmented import Features, PerChannel, Segmentation, SegmentedExplainer
from standfast.gating import rows_of
from standfast.model import Model, Output, count_padding, pad_rows, score_classes
from standfast.tensors import count_at_once, send

# eigenvalues below this share of the largest are rounding errors: no coalition says anything about their directions
_RANK_TOLERANCE = 1e-10
# products that are computed at once, to limit memory
_PRODUCTS = 1 << 22


@dataclass(frozen=True)
class Coalitions:
    """The coalitions for m features, and the matrix that turns their scores into attributions.

    Attributes:
        masks: which features each of R coalitions keeps, bool `(R, m)`; the first one keeps all features.
        fit: float64 `(m, R)`: attributions are `fit @ scores`.
    """

    masks: Tensor
    fit: Tensor

    def to(self, device: torch.device) -> Coalitions:
        """A copy on another device."""
        return Coalitions(send(self.masks, device), send(self.fit, device))


@dataclass(frozen=True)
class CoalitionExplainer(SegmentedExplainer):
    """An explainer whose attributions are a linear function of the scores of masked copies."""

    samples: int = 200
    segments: Features = "auto"
    baseline: Baseline | None = None
    output: Output = "logit"
    seed: int = 0
    segmentation: Segmentation = "each"
    per_channel: PerChannel = "auto"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_integer(self.samples, "samples", 2)
        self._check_segments()
        check_baseline(self.baseline)
        check_output(self.output)
        check_seed(self.seed)

    @abstractmethod
    def draw_coalitions(self, features: int, device: torch.device) -> Coalitions:
        """The coalitions for inputs with that many features: at most `rows_per_input`, the same on every call."""

    def make_others(self, model: Model, x: Tensor) -> Tensor:
        """The values of features that are masked, `(B, ...)`; scores are averaged over the B of them."""
        return choose_baseline(model, x, self.baseline).expand(1, *x.shape[1:])

    def attribute_segments(
        self, model: Model, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            others = self.make_others(model, x)
            groups = {m: self.draw_coalitions(m, x.device) for m in sorted(set(counts))}
            numbers = number_copies({m: len(group.masks) for m, group in groups.items()}, counts, x.device)
            logits = _forward_copies(model, x.detach(), labels, groups, numbers, others)
            at_x = logits[numbers.starts * len(others)]
            classes = at_x.argmax(1) if targets is None else targets
            whose = numbers.owners.repeat_interleave(len(others))
            scores = average_each(score_classes(logits, classes[whose], self.output), len(others))
            weights = scores.new_zeros(len(x), max(groups))
            for features, group in groups.items():
                members = send([i for i, m in enumerate(counts) if m == features], x.device)
                own = torch.arange(len(group.masks), device=x.device)
                for part in torch.split(members, max(1, count_at_once(_PRODUCTS, members) // group.fit.numel())):
                    block = scores[numbers.starts[part, None] + own]
                    # not a matrix product: its last bits depend on the number of inputs and on their place in memory
                    weights[part, :features] = (group.fit * block[:, None]).sum(2)
            maps = weights.gather(1, labels).reshape(len(x), *get_map_shape(x, labels))
            return maps.to(x.dtype).expand_as(x).contiguous(), at_x


def _forward_copies(
    model: Model,
    x: Tensor,
    labels: Tensor,
    groups: dict[int, Coalitions],
    numbers: CopyNumbers,
    others: Tensor,
) -> Tensor:
    """Logits `(total * B, K)` of all masked copies, in the order of their numbers; each with B `others`."""
    # the masks of all groups, one below the other
    table = torch.cat([F.pad(group.masks, (0, max(groups) - m)) for m, group in groups.items()]).to(x.dtype)
    coalition = torch.arange(numbers.total, device=x.device) + numbers.shifts[numbers.owners]
    spatial = get_map_shape(x, labels)
    size = choose_chunk_rows(model, x, max(len(group.masks) for group in groups.values()))
    found = []
    for start in range(0, numbers.total * len(others), size):
        row = torch.arange(start, min(start + size, numbers.total * len(others)), device=x.device)
        copy = row // len(others)
        whose, which, other = numbers.owners[copy], coalition[copy], row % len(others)
        used = len(whose)
        padding = count_padding(used, size, model.device)
        whose, which, other = (pad_rows(t, padding) for t in (whose, which, other))
        # index_select copies whole rows and is several times as fast as indexing; lerp is faster than where, and exact
        # at weights 0 and 1
        kept = table.index_select(0, which).gather(1, labels.index_select(0, whose)).reshape(len(whose), *spatial)
        with rows_of(whose):
            values = others if len(others) == 1 else others.index_select(0, other)
            copies = torch.lerp(values, x.index_select(0, whose), kept)
            found.append(model.forward(copies)[:used])
    return found[0] if len(found) == 1 else torch.cat(found)


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
