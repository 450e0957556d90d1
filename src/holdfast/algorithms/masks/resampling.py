"""Rank correlation of two sensitivities, and its distribution under permutations and resamples of the masks.

These are the parts of `random_masks.consistency`, for one problem at a time: K masks over m features and two weights
for each mask. The sensitivities after a permutation of the explanation weights, or a resample of the masks, are one
matrix product. So a thousand of them cost about as much as a thousand weighted sums, and no tensor of size
(resamples, K, m) is needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

Estimator = Literal["centred", "paper"]

CHUNK_ELEMENTS = 1 << 18  # resamples x masks computed at a time: as many as fit into a cache
_REMEMBERED = 1 << 24  # permutations x masks, and resamples x masks, that are kept for the next call: 64 MB each
_GRID = 2.0**-44  # sensitivities that differ by less than this share of the summed weights are a tie, up to rounding
_RELIABLE = 0.02  # below this reliability the order of the features is unknown
_LEVELS = (0.025, 0.975)


@dataclass(frozen=True)
class WeightedMasks:
    """Masks `(K, m)` in float64 and the two weights `(K,)` of each, centred if the estimator centres.

    `grid` has, for prediction and explanation, the difference of sensitivities that counts as rounding.
    """

    masks: Tensor
    prediction: Tensor
    explanation: Tensor
    estimator: Estimator
    grid: tuple[float, float]

    @classmethod
    def of(cls, masks: Tensor, prediction: Tensor, explanation: Tensor, estimator: Estimator) -> WeightedMasks:
        """The problem of finite weights `(K,)`."""
        weights = [w.to(torch.float64) for w in (prediction, explanation)]
        grid = [_GRID * float(w.abs().sum()) for w in weights]
        if estimator == "centred" and len(masks):
            weights = [w - w.mean() for w in weights]
        return cls(masks.to(torch.float64), weights[0], weights[1], estimator, (grid[0], grid[1]))

    def reorder(self, order: Tensor) -> WeightedMasks:
        """The same masks and their weights in another order."""
        return WeightedMasks(
            self.masks[order], self.prediction[order], self.explanation[order], self.estimator, self.grid
        )

    def permute_explanation(self, order: Tensor) -> WeightedMasks:
        """The same problem with only the explanation weights in another order."""
        return WeightedMasks(self.masks, self.prediction, self.explanation[order], self.estimator, self.grid)

    def sensitivities(self) -> tuple[Tensor, Tensor]:
        """Those of the prediction and of the explanation, `(m,)` each.

        Centring the weights is enough, since `sum_i (w_i - mean w) mean M` is 0.
        """
        return self.prediction @ self.masks, self.explanation @ self.masks

    @cached_property
    def ranks(self) -> tuple[Tensor, Tensor]:
        """Doubled centred ranks of both, `(1, m)` each."""
        prediction, explanation = self.sensitivities()
        return doubled_ranks(prediction[None], self.grid[0]), doubled_ranks(explanation[None], self.grid[1])

    @cached_property
    def columns(self) -> Tensor:
        """What resamples sum over the masks: both weights, the masks, and each weight times the masks; `(K, 2 + 3m)`.

        One product with a wide matrix takes half the time of five with narrow ones.
        """
        weights = torch.stack((self.prediction, self.explanation), 1)
        return torch.cat((weights, self.masks, *(w[:, None] * self.masks for w in weights.unbind(1))), 1)


def doubled_ranks(values: Tensor, grid: float) -> Tensor:
    """Twice the centred average rank of each value in its row; `(N, m)` in float64, whole numbers that sum to 0.

    Values that agree after rounding to multiples of `grid` share their average rank. O(m log m) a row.

    >>> doubled_ranks(torch.tensor([[0.3, 0.1, 0.1 + 1e-9]]), grid=1e-6)
    tensor([[ 2., -1., -1.]], dtype=torch.float64)
    """
    values = (values / grid).round() + 0.0 if grid > 0 else torch.zeros_like(values)  # -0.0 and 0.0 are a tie
    if values.device.type == "cpu":  # numpy takes a third of the time; ties share a rank, so any order will do
        order = torch.from_numpy(np.argsort(values.numpy(), axis=1))
    else:
        order = values.argsort(dim=1)
    ordered, count = values.gather(1, order), values.shape[1]
    place = torch.arange(count, device=values.device).expand_as(order)
    starts, ends = torch.ones_like(ordered, dtype=torch.bool), torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    ends[:, :-1] = starts[:, 1:]
    first = torch.where(starts, place, 0).cummax(1).values
    last = torch.where(ends, place, count).flip(1).cummin(1).values.flip(1)
    ranks = (first + last - (count - 1)).to(torch.float64)
    return torch.empty_like(ranks).scatter_(1, order, ranks)


def rank_correlation(p: Tensor, q: Tensor) -> Tensor:
    """Spearman's rho `(N,)` of rows of doubled ranks; 0 where a row is constant.

    The sums are whole numbers, so the result is exact up to the last division, for fewer than 300 000 features.
    """
    norm = (p.square().sum(1) * q.square().sum(1)).sqrt()
    return torch.where(norm > 0, (p * q).sum(1) / norm.clamp(min=1.0), 0.0).clamp(-1.0, 1.0)


def top_agreement(p: Tensor, q: Tensor, k: int) -> Tensor:
    """Share `(N,)` of the k highest ranks of `p` that are among those of `q`; of ties the lower index is first."""
    k = min(k, p.shape[1])
    chosen = []
    for ranks in (p, q):
        order = ranks.sort(dim=1, descending=True, stable=True).indices[:, :k]
        chosen.append(torch.zeros_like(ranks, dtype=torch.bool).scatter_(1, order, True))
    return (chosen[0] & chosen[1]).sum(1).to(torch.float64) / k


def draw_permutations(count: int, masks: int, device: torch.device) -> Iterator[Tensor]:
    """Random permutations of the masks, int32 `(chunk, K)` at a time; always the same ones, for any chunk size."""
    if 0 < count * masks <= _REMEMBERED:
        parts: Iterable[Tensor] = torch.split(_remembered_permutations(count, masks), next(_chunks(count, masks)))
    else:
        parts = _draw_permutations(count, masks)
    for part in parts:
        yield part.to(device)


@lru_cache(maxsize=1)
def _remembered_permutations(count: int, masks: int) -> Tensor:
    """All of them, remembered, since a caller that evaluates sample after sample uses them for each."""
    return torch.cat(list(_draw_permutations(count, masks)))


def _draw_permutations(count: int, masks: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0x5E2C)
    for size in _chunks(count, masks):
        drawn = torch.empty((size, masks), dtype=torch.int32)
        for row in drawn:
            row.copy_(torch.randperm(masks, generator=generator))
        yield drawn


def draw_resamples(count: int, masks: int, device: torch.device) -> Iterator[Tensor]:
    """How often each mask is sampled in K draws with replacement, `(chunk, K)` at a time; always the same draws."""
    if 0 < count * masks <= _REMEMBERED:
        parts: Iterable[Tensor] = torch.split(_remembered_resamples(count, masks), next(_chunks(count, masks)))
    else:
        parts = _draw_resamples(count, masks)
    for part in parts:
        yield part.to(device, torch.float64)


@lru_cache(maxsize=1)
def _remembered_resamples(count: int, masks: int) -> Tensor:
    return torch.cat(list(_draw_resamples(count, masks)))


def _draw_resamples(count: int, masks: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(0xB005)
    for size in _chunks(count, masks):
        drawn = torch.randint(masks, (size, masks), generator=generator)
        counts = torch.zeros((size, masks), dtype=torch.int32)
        yield counts.scatter_add_(1, drawn, torch.ones((), dtype=torch.int32).expand_as(counts))


def _chunks(count: int, masks: int) -> Iterator[int]:
    size = max(1, CHUNK_ELEMENTS // masks)
    for start in range(0, count, size):
        yield min(size, count - start)


def permuted_rho(problem: WeightedMasks, orders: Tensor) -> Tensor:
    """Rho `(B,)` with the explanation weights assigned to the masks in each of the orders `(B, K)`."""
    # index_select takes a quarter of an index's time
    moved = problem.explanation.index_select(0, orders.flatten()).reshape(orders.shape) @ problem.masks
    return rank_correlation(problem.ranks[0], doubled_ranks(moved, problem.grid[1]))


def resampled_rho(problem: WeightedMasks, counts: Tensor) -> Tensor:
    """Rho and reliability of resamples in which mask i occurs `counts[b, i]` times; counts `(B, K)`.

    Returns:
        `(B, 3)`: rho of the resample; the rank correlation of its prediction sensitivity with that of all masks; the
        same for the explanation.
    """
    drawn = counts.sum(1, keepdim=True)
    totals, kept, *sums = torch.split(counts @ problem.columns, [2, *[problem.masks.shape[1]] * 3], 1)
    if problem.estimator == "centred":
        sums = [own - total[:, None] * kept / drawn for own, total in zip(sums, totals.unbind(1), strict=True)]
    ranks = [doubled_ranks(own, grid) for own, grid in zip(sums, problem.grid, strict=True)]
    agreement = [rank_correlation(own, whole) for own, whole in zip(ranks, problem.ranks, strict=True)]
    return torch.stack([rank_correlation(*ranks), *agreement], dim=1)


def population_interval(rho: Tensor, resampled: Tensor) -> Tensor:
    """95% interval `(R, 2)` for the rho of infinitely many masks, from rho `(R,)` and resamples `(R, B, 3)`.

    Noise in a sensitivity shuffles its ranks, so rho of few masks is too close to 0. Rho of a resample has the noise
    twice and is closer still, so the percentile interval lies too low and may not even contain rho. We correct this as
    Spearman did, by dividing rho by the root of the product of both reliabilities. The reliability of a sensitivity is
    the share of its variance over features that is not noise. It follows from the resamples: if their ranks correlate
    with those of all masks by a, the noise is `1 / a^2 - 1` of the variance, and the reliability is `2 - 1 / a^2`. The
    percentile interval, widened and moved in the same way, has its middle at the corrected rho. The result spans this
    interval and the percentile interval, because the correction is noisy itself, and noise that both weights share
    through the masks acts against it.

    Where the masks do not distinguish the features, the reliability is about 0 and the interval is [-1, 1].

    Sources: Efron and Tibshirani, "An introduction to the bootstrap" (1993), ch. 13; Spearman, "The proof and
    measurement of association between two things" (1904). Coverage: docs/senc-bias.md.
    """
    ends = quantiles(resampled[..., 0])
    agreement = resampled[..., 1:].mean(1).clamp(min=0.1)
    reliability = 2 - 1 / agreement.square()
    shrinkage = reliability.clamp(min=_RELIABLE).prod(1).sqrt()[:, None]
    half = (ends[:, 1:] - ends[:, :1]) / 2
    corrected = torch.cat([rho[:, None] - half, rho[:, None] + half], dim=1) / shrinkage
    unknown = torch.tensor([-1.0, 1.0], dtype=ends.dtype, device=ends.device)
    corrected = torch.where((reliability.amin(1) < _RELIABLE)[:, None], unknown, corrected)
    low, high = torch.minimum(ends[:, 0], corrected[:, 0]), torch.maximum(ends[:, 1], corrected[:, 1])
    return torch.stack([torch.minimum(low, rho), torch.maximum(high, rho)], dim=1).clamp(-1.0, 1.0)


def quantiles(values: Tensor) -> Tensor:
    """The central 95% `(R, 2)` of each row `(R, B)`, interpolated."""
    ordered = values.sort(dim=1).values
    ends = []
    for level in _LEVELS:
        place = level * (values.shape[1] - 1)
        below = int(place)
        above = min(below + 1, values.shape[1] - 1)
        ends.append(torch.lerp(ordered[:, below], ordered[:, above], place - below))
    return torch.stack(ends, dim=1)
