"""Rank correlation of two sensitivities, and its distribution under permutations and resamples of the masks.

These are the parts of `random_masks.measure_consistency`, for one problem at a time: K masks over m features and two
weights for each mask. The masks come in a random order. So a random permutation of the weights, rotated by 1, 2, 3, ...
masks, gives further random permutations, and a random resample gives further resamples. The sensitivities after all
rotations are a circular correlation with the masks, which fast Fourier transforms compute in `O(K m log K)`: a thousand
permutations take about as long as ten sums of weighted masks.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from standfast.tensors import count_at_once, holds_everywhere, is_on_host

Estimator = Literal["centred", "paper"]

# numbers transformed at a time, and sensitivities ranked: as many as fit into a cache
CHUNK_ELEMENTS = 1 << 17
# sensitivities that differ by less than this share of the summed weights are a tie, up to rounding
_GRID = 2.0**-44
_RELIABLE = 0.02  # below this reliability the order of the features is unknown
_LEVELS = (0.025, 0.975)
# masks in a lane: a resample of n masks has `1 - 1 / n` of the variance of one of all masks
_SHORTEST = 50
_CANDIDATES = 16  # draws of resamples of which one is taken


@dataclass(frozen=True)
class WeightedMasks:
    """Masks `(K, m)` in float64 and the two weights `(K,)` of each, which are centred or not.

    `grid` has, for prediction and explanation, the difference of sensitivities that counts as rounding.
    """

    masks: Tensor
    prediction: Tensor
    explanation: Tensor
    grid: tuple[Tensor, Tensor]
    centred: bool = False

    @classmethod
    def of(cls, masks: Tensor, prediction: Tensor, explanation: Tensor) -> WeightedMasks:
        """The problem of finite weights `(K,)`, as the published sums take them."""
        p = prediction.to(torch.float64)
        e = explanation.to(torch.float64)
        grid = (_GRID * p.abs().sum(), _GRID * e.abs().sum())
        return cls(masks.to(torch.float64), p, e, grid)

    def find_identifiable(self) -> Tensor:
        """Features that some masks keep and some drop, bool `(m,)`."""
        kept = self.masks.sum(0)
        return (kept > 0) & (kept < len(self.masks))

    def centre(self, features: slice | Tensor = slice(None)) -> WeightedMasks:
        """The problem of some features, with centred weights."""
        p = self.prediction
        e = self.explanation
        # the mean of nothing is NaN
        if len(p):
            p = p - p.mean()
            e = e - e.mean()
        return WeightedMasks(self.masks[:, features], p, e, self.grid, centred=True)

    def reorder(self, order: Tensor) -> WeightedMasks:
        """The same masks and their weights in another order."""
        masks = self.masks.index_select(0, order)
        p = self.prediction.index_select(0, order)
        e = self.explanation.index_select(0, order)
        return WeightedMasks(masks, p, e, self.grid, self.centred)

    @cached_property
    def sensitivities(self) -> tuple[Tensor, Tensor]:
        """Those of the prediction and of the explanation, `(m,)` each.

        Centring the weights is enough, since `sum_i (w_i - mean w) mean M` is 0.
        """
        return self.prediction @ self.masks, self.explanation @ self.masks

    @cached_property
    def ranks(self) -> tuple[Tensor, Tensor]:
        """Doubled centred ranks of both, `(1, m)` each."""
        prediction, explanation = self.sensitivities
        return doubled_ranks(prediction[None], self.grid[0]), doubled_ranks(
            explanation[None], self.grid[1]
        )

    @cached_property
    def average(self) -> Tensor:
        """How often each feature is kept, `(m,)`."""
        return self.masks.mean(0)

    def split_columns(self, copies: int) -> Iterator[Tensor]:
        """The masks of some features at a time, less their average, `(c, K)`; `copies` of them fit into a cache."""
        elements = count_at_once(CHUNK_ELEMENTS, self.masks)
        size = max(1, elements // (copies * len(self.masks)))
        parts = torch.split(self.masks, size, 1)
        averages = torch.split(self.average, size)
        for masks, average in zip(parts, averages, strict=True):
            yield masks.T.contiguous().sub_(average[:, None])


def doubled_ranks(values: Tensor, grid: float | Tensor) -> Tensor:
    """Twice the centred average rank of each value in its row; `(N, m)` in float64, whole numbers that sum to 0.

    Values that agree after rounding to multiples of `grid` share their average rank. O(m log m) a row.

    >>> doubled_ranks(torch.tensor([[0.3, 0.1, 0.1 + 1e-9]]), grid=1e-6)
    tensor([[ 2., -1., -1.]], dtype=torch.float64)
    """
    if not isinstance(grid, Tensor):
        grid = values.new_full((), grid)
    # adding 0.0 makes a tie of -0.0 and 0.0
    on_grid = (values / grid).round() + 0.0
    values = torch.where(grid > 0, on_grid, 0.0)
    order = order_rows(values)  # ties share a rank, so any order will do
    ordered = values.gather(1, order)
    count = values.shape[1]
    position = torch.arange(count, device=values.device)
    differs = ordered[:, 1:] != ordered[:, :-1]
    if holds_everywhere(differs):  # mostly so, and then most of the work is saved
        doubled = 2 * position - (count - 1)
        ranks = doubled.to(torch.float64).expand_as(order)
        return torch.empty_like(ordered).scatter_(1, order, ranks)
    starts = torch.ones_like(ordered, dtype=torch.bool)
    ends = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = differs
    ends[:, :-1] = differs
    first = torch.where(starts, position, 0).cummax(1).values
    position_of_end = torch.where(ends, position, count)
    last = position_of_end.flip(1).cummin(1).values.flip(1)
    # doubled, since the average rank of ties may end in one half
    doubled = first + last - (count - 1)
    ranks = doubled.to(torch.float64)
    return torch.empty_like(ranks).scatter_(1, order, ranks)


def order_rows(values: Tensor) -> Tensor:
    """The places of the values of each row `(N, m)` in ascending order; ties in any order."""
    if is_on_host(values):  # numpy takes a third of the time
        return torch.from_numpy(np.argsort(values.numpy(), axis=1))
    return values.argsort(dim=1)


def rank_correlation(p: Tensor, q: Tensor) -> Tensor:
    """Spearman's rho `(N,)` of rows of doubled ranks; 0 where a row is constant.

    The sums are whole numbers, so the result is exact up to the last division, for fewer than 300 000 features.
    """
    covariance = (p * q).sum(1)
    variances = p.square().sum(1) * q.square().sum(1)
    norm = variances.sqrt()
    rho = covariance / norm.clamp(min=1.0)
    return torch.where(norm > 0, rho, 0.0).clamp(-1.0, 1.0)


def top_agreement(p: Tensor, q: Tensor, k: int) -> Tensor:
    """Share `(N,)` of the k highest ranks of `p` that are among those of `q`; of ties the lower index is first."""
    k = min(k, p.shape[1])
    chosen = []
    for ranks in (p, q):
        order = ranks.sort(dim=1, descending=True, stable=True).indices
        nothing = torch.zeros_like(ranks, dtype=torch.bool)
        chosen.append(nothing.scatter_(1, order[:, :k], True))
    shared = chosen[0] & chosen[1]
    return shared.sum(1).to(torch.float64) / k


def count_lanes(count: int, masks: int) -> int:
    """Into how many lanes of equal length K masks are cut, for `count` rotations: as many as have that many masks each.

    Lanes are rotated at the same time. Transforms of many short lanes take less time than those of a long one. A lane
    has at least 50 masks, if there are as many, also for fewer rotations.
    """
    return max(1, masks // max(_SHORTEST, count))


@lru_cache(maxsize=4)
def draw_orders(count: int, masks: int) -> Tensor:
    """Random orders of the masks, int64 `(b, K)`, that have `count` rotations or more; always the same ones."""
    # a fixed seed: all problems share these orders, so a result depends on the problem alone
    generator = torch.Generator().manual_seed(0x5E2C)
    length = masks // count_lanes(count, masks)
    needed = -(-count // length)
    orders = [torch.randperm(masks, generator=generator) for _ in range(needed)]
    return torch.stack(orders)


@lru_cache(maxsize=4)
def draw_counts(count: int, masks: int) -> Tensor:
    """How often each mask occurs in random resamples, float64 `(b, K)`, that have `count` rotations or more.

    Each lane is resampled alone, with replacement, so that its masks occur once on average over the rotations. The few
    masks beyond the lanes occur once. Always the same draws.

    The rotations of a draw have the same variance of counts, and all problems share the draws. By chance it can be 12%
    off with a few hundred masks, and then all intervals are too wide or too narrow by about half of that. So of 16 such
    draws we take the one whose variance is nearest to that of independent resamples of all masks, on average.
    """
    # a fixed seed, as for orders
    generator = torch.Generator().manual_seed(0xB005)
    lanes = count_lanes(count, masks)
    length = masks // lanes
    needed = -(-count // length)
    shape = (_CANDIDATES, needed, lanes, length)
    drawn = torch.randint(length, shape, generator=generator)
    counts = torch.zeros(shape, dtype=torch.float64)
    counts.scatter_add_(3, drawn, torch.ones_like(counts))
    variance = (counts - 1).square().mean((1, 2, 3))
    # counts of an independent resample of K masks have the variance 1 - 1 / K
    excess = variance - (1 - 1 / masks)
    nearest = counts[excess.abs().argmin()]
    # masks beyond the lanes occur once
    beyond = masks - lanes * length
    return torch.nn.functional.pad(nearest.flatten(1), (0, beyond), value=1.0)


def sum_rotated(columns: Tensor, turned: Tensor, lanes: int) -> Tensor:
    """Sums over the masks of `columns` `(c, K)` times every rotation of `turned` `(b, K)`; `(b, n, c)`.

    Each of the lanes has `n = K // lanes` masks, and all are rotated at the same time. Fewer masks than there are lanes
    are left over; they stay where they are. Rounding is least for columns that are 0 on average.

    >>> columns = torch.tensor([[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]])
    >>> sum_rotated(columns, torch.tensor([[1.0, 2.0, 4.0]]), 1).round()
    tensor([[[1., 6.],
             [4., 3.],
             [2., 5.]]])
    """
    length = columns.shape[1] // lanes
    used = lanes * length
    columns_of_lanes = columns[:, :used].reshape(-1, lanes, length)
    turned_lanes = turned[:, :used].reshape(-1, lanes, length)
    ours = torch.fft.rfft(columns_of_lanes)
    theirs = torch.fft.rfft(turned_lanes)
    # a circular correlation is a product with the conjugate transform
    conjugate = theirs.conj().resolve_conj()
    products = (ours * conjugate[:, None]).sum(2)
    sums: Tensor = torch.fft.irfft(products, n=length)
    # masks beyond the lanes are not rotated, so every rotation has the same sum of them
    if used < columns.shape[1]:
        beyond = turned[:, used:] @ columns[:, used:].T
        sums += beyond[:, :, None]
    return sums.transpose(1, 2)


def _count_at_once(problem: WeightedMasks, resamples: Tensor) -> int:
    """How many of the orders or counts `(b, K)` are computed at once, for memory."""
    elements = count_at_once(CHUNK_ELEMENTS, resamples)
    return max(1, elements // problem.masks.numel())


def permuted_rho(problem: WeightedMasks, orders: Tensor, count: int) -> Tensor:
    """Rho `(count,)` with the explanation weights assigned to the masks in rotations of the orders `(b, K)`."""
    lanes = count_lanes(count, len(problem.masks))
    orders_at_once = _count_at_once(problem, orders)
    correlations = []
    # `split_columns` takes each average away; it comes back, times the sum of the weights
    shift = problem.explanation.sum() * problem.average
    for part in torch.split(orders, orders_at_once):
        turned = problem.explanation[part]
        sums_of_columns = []
        for columns in problem.split_columns(1):
            sums_of_columns.append(sum_rotated(columns, turned, lanes))
        sums = torch.cat(sums_of_columns, 2).flatten(0, 1)[:count]
        ranks = doubled_ranks(sums + shift, problem.grid[1])
        correlations.append(rank_correlation(problem.ranks[0], ranks))
    return torch.cat(correlations)[:count]


def resampled_rho(problem: WeightedMasks, counts: Tensor, count: int) -> Tensor:
    """Rho and reliability of resamples: of rotations of `counts` `(b, K)`, how often each mask occurs.

    Returns:
        `(count, 3)`: rho of the resample; the rank correlation of its prediction sensitivity with that of all masks;
        the same for the explanation.
    """
    masks = len(problem.masks)
    results = []
    lanes = count_lanes(count, masks)
    weights = torch.stack((problem.prediction, problem.explanation))
    for part in torch.split(counts, _count_at_once(problem, counts)):
        parts = []
        for columns in problem.split_columns(3):
            # the masks alone, and times both weights
            weighted = torch.stack((columns, columns, columns))
            weighted[1:] *= weights[:, None]
            sums_of_columns = sum_rotated(weighted.flatten(0, 1), part, lanes)
            parts.append(sums_of_columns.reshape(len(part), -1, 3, len(columns)))
        sums_of_resamples = torch.cat(parts, 3).flatten(0, 1)[:count]
        kept, *sums = sums_of_resamples.unbind(1)
        # centring takes the average of the resample's masks away; the published sum keeps that of all masks
        if problem.centred:
            rest = kept / -masks
        else:
            rest = problem.average
        sums_of_weights = sum_rotated(weights, part, lanes).flatten(0, 1)
        totals = sums_of_weights[:count].unbind(1)
        ranks = []
        for sums_of_part, total, grid in zip(sums, totals, problem.grid, strict=True):
            sensitivities = sums_of_part + total[:, None] * rest
            ranks.append(doubled_ranks(sensitivities, grid))
        agreement = [
            rank_correlation(of_part, of_whole)
            for of_part, of_whole in zip(ranks, problem.ranks, strict=True)
        ]
        results.append(torch.stack([rank_correlation(*ranks), *agreement], dim=1))
    return torch.cat(results)[:count]


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
    low, high = ends.unbind(1)
    # below 0.1 the reliability is far below 0 and counts as none; at 0 it would not be finite
    agreement = resampled[..., 1:].mean(1).clamp(min=0.1)
    reliability = 2 - 1 / agreement.square()
    shrinkage = reliability.clamp(min=_RELIABLE).prod(1).sqrt()
    half = (high - low) / 2
    is_unreliable = reliability.amin(1) < _RELIABLE
    # an end at -1 and one at 1: nothing is known
    corrected_low = torch.where(is_unreliable, -1.0, (rho - half) / shrinkage)
    corrected_high = torch.where(is_unreliable, 1.0, (rho + half) / shrinkage)
    low = torch.minimum(torch.minimum(low, corrected_low), rho)
    high = torch.maximum(torch.maximum(high, corrected_high), rho)
    return torch.stack([low, high], dim=1).clamp(-1.0, 1.0)


def quantiles(values: Tensor) -> Tensor:
    """The central 95% `(R, 2)` of each row `(R, B)`, interpolated."""
    ordered = values.sort(dim=1).values
    last = values.shape[1] - 1
    ends = []
    for level in _LEVELS:
        rank = level * last
        below = int(rank)
        above = min(below + 1, last)
        share = rank - below
        ends.append(torch.lerp(ordered[:, below], ordered[:, above], share))
    return torch.stack(ends, dim=1)
