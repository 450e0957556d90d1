"""What LIME and KernelSHAP share: copies of an input with coalitions of its features kept, and a linear fit to them.

The features of an input are its segments. A coalition is a set of features that keep their values; the others take the
baseline's. Which coalitions are looked at depends on the number of features alone, so the fit to the model's scores of
them is one matrix for all inputs with as many features: solved once, kept, and multiplied with each input's scores.
The rows of all inputs of a chunk go through the module as one flat batch.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.explainers.base import Baseline, check_baseline, check_seed, choose_chunk_rows, make_baseline
from holdfast.explainers.perturbation.copies import (
    Output,
    check_count,
    check_output,
    compute_target_scores,
    get_map_shape,
)
from holdfast.explainers.perturbation.segmented import Features, Segmentation, SegmentedExplainer
from holdfast.gating import rows_of
from holdfast.model import Classifier, padded, padding_of

# eigenvalues below this share of the largest are rounding: directions that no coalition tells anything about
_RANK_TOLERANCE = 1e-10
# numbers that are multiplied at once
_PRODUCTS = 1 << 22


@dataclass(frozen=True)
class Coalitions:
    """The coalitions for m features, and what makes attributions of their scores.

    Attributes:
        masks: which features each of R coalitions keeps, bool `(R, m)`; the first keeps all.
        fit: float64 `(m, R)`: attributions are `fit @ scores`.
    """

    masks: Tensor
    fit: Tensor

    def to(self, device: torch.device) -> Coalitions:
        """The same on another device."""
        return Coalitions(self.masks.to(device), self.fit.to(device))


@dataclass(frozen=True)
class CoalitionExplainer(SegmentedExplainer):
    """An explainer whose attributions are linear in the scores of masked copies."""

    samples: int = 200
    segments: Features = "auto"
    baseline: Baseline = 0.0
    output: Output = "logit"
    seed: int = 0
    segmentation: Segmentation = "each"
    differentiable: ClassVar[bool] = False
    gateable: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_count(self.samples, "samples", 2)
        self._check_segments()
        check_baseline(self.baseline)
        check_output(self.output)
        check_seed(self.seed)

    @abstractmethod
    def coalitions(self, features: int, device: torch.device) -> Coalitions:
        """Those for inputs with that many features, always the same; at most `rows_per_input`."""

    def attribute_segments(
        self, classifier: Classifier, x: Tensor, targets: Tensor | None, labels: Tensor, counts: list[int]
    ) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            groups = {m: self.coalitions(m, x.device) for m in sorted(set(counts))}
            logits, owners, starts = _forward_copies(classifier, x.detach(), labels, counts, groups, self.baseline)
            at_x = logits[starts]
            classes = at_x.argmax(1) if targets is None else targets
            scores = compute_target_scores(logits, classes[owners], self.output)
            weights = scores.new_zeros(len(x), max(groups))
            for features, group in groups.items():
                members = torch.tensor([i for i, m in enumerate(counts) if m == features], device=x.device)
                own = torch.arange(len(group.masks), device=x.device)
                for part in torch.split(members, max(1, _PRODUCTS // group.fit.numel())):
                    block = scores[starts[part, None] + own]
                    # a matrix product's last bits depend on how many inputs there are, and on where they lie in memory
                    weights[part, :features] = (group.fit * block[:, None]).sum(2)
            maps = weights.gather(1, labels).reshape(len(x), *get_map_shape(x))
            return maps.to(x.dtype).expand_as(x).contiguous(), at_x


def _forward_copies(
    classifier: Classifier,
    x: Tensor,
    labels: Tensor,
    counts: list[int],
    groups: dict[int, Coalitions],
    baseline: Baseline,
) -> tuple[Tensor, Tensor, Tensor]:
    """Logits `(rows, K)` of all masked copies, one input after the other; whose they are; each input's first row."""
    # the masks of all groups, one below the other
    table = torch.cat([F.pad(group.masks, (0, max(groups) - m)) for m, group in groups.items()]).to(x.dtype)
    tops = dict(zip(groups, accumulate((len(g.masks) for g in groups.values()), initial=0), strict=False))
    sizes = [len(groups[m].masks) for m in counts]
    total = sum(sizes)
    rows, top = torch.tensor([sizes, [tops[m] for m in counts]], device=x.device)
    starts = rows.cumsum(0) - rows
    owners = torch.arange(len(x), device=x.device).repeat_interleave(rows, output_size=total)
    coalition = torch.arange(total, device=x.device) + (top - starts)[owners]
    other = make_baseline(baseline, x)
    spatial = get_map_shape(x)
    size = choose_chunk_rows(classifier, x, max(sizes))
    found = []
    for start in range(0, total, size):
        whose, which = owners[start : start + size], coalition[start : start + size]
        used = len(whose)
        padding = padding_of(used, size)
        whose, which = (padded(t, padding) for t in (whose, which))
        # index_select copies whole rows, several times as fast as an index; so is lerp against where, and at 0 and 1 it
        # gives its ends to the bit
        kept = table.index_select(0, which).gather(1, labels.index_select(0, whose)).reshape(len(whose), *spatial)
        with rows_of(whose):
            found.append(classifier.forward(torch.lerp(other, x.index_select(0, whose), kept))[:used])
    return found[0] if len(found) == 1 else torch.cat(found), owners, starts


def solve_least_squares(design: Tensor, weights: Tensor, ridge: float = 0.0) -> Tensor:
    """The matrix `(m, R)` from R values to `argmin_b sum over r of w_r (y_r - design_r b)^2 + ridge |b|^2`.

    Of several minima the smallest. Through the normal equations, on the smaller side; all float64.

    >>> design = torch.tensor([[1.0, 0.0], [1.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
    >>> solution = solve_least_squares(design, torch.ones(3, dtype=torch.float64))
    >>> solution @ torch.tensor([1.0, 3.0, 5.0], dtype=torch.float64)
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
