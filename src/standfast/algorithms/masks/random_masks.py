"""Random masks over features, the sensitivities that follow from them, and whether two sensitivities agree.

Problem: switch random subsets of m features off, K times. Each mask has two weights: how similar the prediction is to
that without a mask, and how similar the explanation is. Are both sensitive to the same features?

Source: SenC, "sensitivity consistency", Sec. 3.2, Eq. 1 to 5. Where we depart from it, and why: see
`mask_sensitivity` and docs/senc-bias.md. The published sum is available as `estimator="paper"`.

These are pure functions on tensors that know no model. Every problem is computed alone and draws from a random stream
of its own, so its result does not depend on the other problems.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.algorithms.masks.resampling import (
    Estimator,
    WeightedMasks,
    draw_counts,
    draw_orders,
    order_rows,
    permuted_rho,
    population_interval,
    quantiles,
    rank_correlation,
    resampled_rho,
    top_agreement,
)
from standfast.errors import check, check_integer
from standfast.tensors import Streams, is_on_host, send

_LUCK = 1.2  # how much nearer than the tolerance the ends must be
_ESTIMATORS = ("centred", "paper")

#: more masks fit into no memory
_MOST = 10**8


def draw_masks(count: int, features: Tensor | int, keep: float, streams: Streams) -> Tensor:
    """Masks that keep each feature with probability `keep`, independently; True is kept.

    Each problem draws from its own stream, and only for the features that it has. A further call continues where the
    last one stopped: on the CPU two calls of 50 give the masks of one call of 100. A GPU's generator does not guarantee
    this, so use streams on the CPU.

    Args:
        count: masks for each problem.
        features: how many features the problems have: one number, or int `(R,)`.
        keep: probability in (0, 1) that a feature is kept.
        streams: of R problems.

    Returns:
        bool `(R, count, m)` on the streams' device, m the largest number of features; False beyond a problem's own.

    >>> masks = draw_masks(4, torch.tensor([3, 2]), 0.8, Streams([1, 2], torch.device("cpu")))
    >>> masks.shape, masks[1, :, 2].any().item()
    (torch.Size([2, 4, 3]), False)
    """
    check_integer(count, "count", 0)
    check(count <= _MOST, "masks", f"at most {_MOST:,}", f"{count:,}")
    check(0 < keep < 1, "keep", "a probability between 0 and 1", keep)
    if isinstance(features, int):
        numbers = [features] * len(streams)
    else:
        numbers = [int(f) for f in features.tolist()]
    problems = len(streams)
    expected = f"a number for each of {problems} problems"
    check(len(numbers) == problems, "features", expected, len(numbers))
    fewest = min(numbers, default=1)
    check(fewest >= 1, "features", "at least one feature", fewest)
    shape = (problems, count, max(numbers, default=0))
    masks = torch.zeros(shape, dtype=torch.bool, device=streams.device)
    rows_of_number: dict[int, list[int]] = {}
    for row, number in enumerate(numbers):
        rows_of_number.setdefault(number, []).append(row)
    for number, rows in rows_of_number.items():
        uniform = streams.select(rows).uniform((count, number), torch.float32)
        masks[rows, :, :number] = uniform < keep
    return masks


def mask_sensitivity(weights: Tensor, masks: Tensor, estimator: Estimator = "centred") -> Tensor:
    """How much of the weight of a mask depends on keeping each feature.

        paper:    S_k = sum_i w_i M_ik                              (SenC, Eq. 1 and 2)
        centred:  S_k = sum_i (w_i - mean w) (M_ik - mean_i M_ik)

    **The published sum is biased.** Prediction and explanation share the masks, and so the random number of times that
    feature k was kept, `n_k = sum_i M_ik`. Since `S_k` is about `n_k` times the mean weight, two unrelated weights give
    nearly the same order of features: with means 0.9 and 0.5 and standard deviation 0.1 their rank correlation is 0.96.
    And two weights that depend on the features in exactly the same order can have a rank correlation of 0 or less,
    where the features matter little: a mean weight that is small or negative has less of the common term, or its
    opposite. Centring removes the common term. In the limit of many masks both estimators give the same order of
    features, that of `cov(w, M_k)`, or of the coefficients of a regression of the weight on the mask.
    See docs/senc-bias.md.

    Args:
        weights: `(R, K)`, one for each mask: high where prediction or explanation changed little.
        masks: bool or 0/1, `(K, m)` for all problems or `(R, K, m)`.
        estimator: `"centred"` or `"paper"`.

    Returns:
        float64 `(R, m)`; NaN where a weight is.

    >>> masks = torch.tensor([[1, 1], [1, 0], [0, 1], [1, 0]], dtype=torch.bool)
    >>> mask_sensitivity(torch.tensor([[0.9, 0.9, 0.1, 0.9]]), masks)
    tensor([[ 0.60, -0.40]], dtype=torch.float64)
    """
    check(estimator in _ESTIMATORS, "estimator", "'centred' or 'paper'", repr(estimator))
    _check_masks(weights, masks)
    values = weights.to(torch.float64)
    if estimator == "centred" and weights.shape[1]:
        values = values - values.mean(1, keepdim=True)
    shape = (len(weights), masks.shape[-1])
    out = torch.empty(shape, dtype=torch.float64, device=weights.device)
    shared = masks.to(torch.float64) if masks.ndim == 2 else None
    # one product each, so that no bit depends on the other problems
    for row in range(len(weights)):
        masks_of_row = shared
        if masks_of_row is None:
            masks_of_row = masks[row].to(torch.float64)
        out[row] = values[row] @ masks_of_row
    return out


@dataclass(frozen=True)
class Consistency:
    """Whether prediction and explanation are sensitive to the same features; R problems with up to m features.

    All tensors are float64 unless said otherwise.

    Attributes:
        rho: Spearman's rank correlation of the two sensitivities over a problem's features, `(R,)`; tied features
            share their average rank. The sensitivity to features that all valid masks kept, or all dropped, is not
            identifiable: the centred estimator leaves them out of the order, and gives them a sensitivity of 0.
        rho_paper: rho of the published sums, whichever estimator was asked for, `(R,)`; of all features.
        interval: 95% interval `(R, 2)` for the rho of infinitely many masks. Where all true sensitivities are equal
            there is no such rho, and the interval is mostly [-1, 1].
        p_value: `(R,)`, one-sided: the share of the `permutations` and the true order with a rho at least as high. It
            is one-sided, since the claim to be shown is agreement; a rho below the null band is disagreement. Ties
            count as at least as high, which with few features makes p a little too large, never too small.
        null_band: central 95% of rho when the explanation weights are assigned to the masks at random, `(R, 2)`. For
            any number of masks it reaches at least about `2 / sqrt(m - 1)` to either side: m features in random order
            agree that well.
        top1: 1 where the most sensitive feature is the same, else 0, `(R,)`; Eq. 5 with k = 1. Of tied features the
            first counts.
        top3: share of the three most sensitive features that are the same, `(R,)`; with fewer features, of all.
        prediction_sensitivity: `(R, m)`, NaN in padding.
        explanation_sensitivity: `(R, m)`, NaN in padding.
        masks_used: how many masks have two valid weights, int64 `(R,)`.
        degenerate: bool `(R,)`: a sensitivity is the same for all features. Then rho is 0, p is 1 and interval, null
            band, top1 and top3 are NaN.
    """

    rho: Tensor
    rho_paper: Tensor
    interval: Tensor
    p_value: Tensor
    null_band: Tensor
    top1: Tensor
    top3: Tensor
    prediction_sensitivity: Tensor
    explanation_sensitivity: Tensor
    masks_used: Tensor
    degenerate: Tensor


def measure_consistency(
    weights: Tensor,
    masks: Tensor,
    *,
    features: Tensor | None = None,
    estimator: Estimator = "centred",
    permutations: int = 999,
    resamples: int = 500,
    streams: Streams | None = None,
) -> Consistency:
    """Rank correlation of the sensitivities of prediction and explanation, with an interval and a null.

    The null of a problem permutes its explanation weights over the masks: the same weights and the same masks, without
    a common cause. With `estimator="paper"` it has the bias of that estimator, so a p-value is valid for either. All
    problems share one set of permutations and one of resamples, which are applied to the masks in an order of the
    problem's own. So a problem's result depends on the problem alone. They are all rotations of a few random ones
    (`resampling`): each is as random as one that was drawn alone, and any two are nearly independent. A resample draws
    from parts of the masks, of 50 or more each, which have nearly the variance of all.

    Time for a problem of 5000 masks and 20 features with the defaults: about 5 ms on one core.

    Args:
        weights: `(2, R, K)`: of each mask, high where the prediction changed little, and where the explanation did.
            Masks with a weight that is not finite are left out.
        masks: bool or 0/1, True is kept: `(K, m)` for all problems or `(R, K, m)`.
        features: int `(R,)`, if problems have fewer than m features; theirs are the first.
        estimator: see `mask_sensitivity`.
        permutations: for p-value and null band; with 0 both are NaN.
        resamples: for the interval; with 0 it is NaN.
        streams: of R problems; drawing from them advances them. Without streams, some that are keyed by the weights,
            so that a result can be repeated.

    Raises:
        ArgumentError: shapes do not fit or a number is out of range.

    >>> masks = draw_masks(400, 4, 0.8, Streams([0], torch.device("cpu")))
    >>> weight = masks[0].double() @ torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    >>> found = measure_consistency(torch.stack([weight, weight**2])[:, None], masks)
    >>> found.rho.item(), round(found.p_value.item(), 2) < 0.1
    (1.0, True)
    """
    check(estimator in _ESTIMATORS, "estimator", "'centred' or 'paper'", repr(estimator))
    check_integer(permutations, "permutations", 0)
    check_integer(resamples, "resamples", 0)
    is_pair = weights.ndim == 3 and len(weights) == 2
    check(is_pair, "weights", "shape (2, R, K)", tuple(weights.shape))
    _check_masks(weights[0], masks)
    valid = weights.isfinite().all(0)
    problems = len(valid)
    most = masks.shape[-1]
    if features is None:
        sizes = [most] * problems
    else:
        sizes = [int(size) for size in features.tolist()]
    fits = len(sizes) == problems and all(1 <= size <= most for size in sizes)
    check(fits, "features", f"{problems} numbers from 1 to {most}", sizes)
    if streams is None:
        weights_of_problems = torch.cat([*weights], dim=1)
        streams = Streams.for_rows(weights_of_problems.cpu(), 0)
    expected = f"one for each of {problems} problems"
    check(len(streams) == problems, "streams", expected, len(streams))
    with torch.no_grad():
        run = _Run(weights, masks, valid, sizes, estimator)
        run.compute(permutations, resamples, streams)
    return run.result()


class _Run:
    """All problems, each computed alone."""

    def __init__(
        self, weights: Tensor, masks: Tensor, valid: Tensor, sizes: list[int], estimator: Estimator
    ) -> None:
        self.weights = weights
        self.masks = masks
        self.valid = valid
        self.sizes = sizes
        self.estimator = estimator
        self.device = weights.device
        self.used = valid.sum(1)
        # one answer for all problems: whether it has all masks, and then all features can be told apart
        kept = masks.sum(-2)
        count, features = masks.shape[-2:]
        columns = torch.arange(features, device=self.device)
        is_beyond = columns >= send(sizes, self.device)[:, None]
        varies = (kept > 0) & (kept < count)
        whole = valid.all(1)
        identifiable = whole & (varies | is_beyond).all(1)
        self.whole, self.identifiable = torch.stack([whole, identifiable]).tolist()
        self.rho = self._full(0.0)
        self.top1 = self._full(math.nan)
        self.top3 = self._full(math.nan)
        self.p_value = self._full(1.0)
        self.rho_paper = self._full(0.0)
        self.degenerate = torch.ones(len(valid), dtype=torch.bool, device=self.device)
        self.interval = self._full(math.nan, 2)
        self.band = self._full(math.nan, 2)
        self.sensitivity = (self._full(math.nan, features), self._full(math.nan, features))

    def _full(self, value: float, *shape: int) -> Tensor:
        size = (len(self.valid), *shape)
        return torch.full(size, value, dtype=torch.float64, device=self.device)

    def _problem(self, row: int) -> WeightedMasks:
        """The problem of a row, with all its features and the weights as they are."""
        valid = self.valid[row]
        masks = self.masks if self.masks.ndim == 2 else self.masks[row]
        kept_masks = masks[:, : self.sizes[row]]
        weights = self.weights[:, row]
        if not self.whole[row]:
            kept_masks = kept_masks[valid]
            weights = weights[:, valid]
        return WeightedMasks.of(kept_masks, *weights)

    def compute(self, permuted: int, resampled: int, streams: Streams) -> None:
        """Sensitivities, rho and agreement of all problems; null and interval of those that have an order."""
        null = self._full(math.nan, permuted)
        spread = self._full(math.nan, resampled, 3)
        for row, size in enumerate(self.sizes):
            problem = self._problem(row)
            # the published sum keeps the common term n_k, so it is computed before centring
            self.rho_paper[row] = rank_correlation(*problem.ranks)[0]
            chosen: slice | Tensor = slice(None)
            if self.estimator == "centred":
                if not self.identifiable[row]:
                    chosen = problem.find_identifiable()
                problem = problem.centre(chosen)
            for whole, values in zip(self.sensitivity, problem.sensitivities, strict=True):
                whole[row, :size] = 0.0
                whole[row, :size][chosen] = values
            p, q = problem.ranks
            # a sensitivity that is the same for all features has no order: no rho, and no permutations of it
            self.degenerate[row] = degenerate = ~(p.any() & q.any())
            if is_on_host(degenerate) and bool(degenerate):
                continue
            self.rho[row] = rank_correlation(p, q)[0]
            for agreement, k in ((self.top1, 1), (self.top3, 3)):
                share = top_agreement(p, q, k)[0]
                agreement[row] = torch.where(degenerate, torch.nan, share)
            if permuted or resampled:
                masks = len(problem.masks)
                # all problems share their permutations, so each shuffles its masks first by its own stream
                chance = streams.select([row]).uniform((masks,), torch.float64)
                order = order_rows(chance)[0]
                shuffled = problem.reorder(send(order, self.device))
                if permuted:
                    orders = send(draw_orders(permuted, masks), self.device)
                    null[row] = permuted_rho(shuffled, orders, permuted)
                if resampled:
                    counts = send(draw_counts(resampled, masks), self.device)
                    spread[row] = resampled_rho(shuffled, counts, resampled)
        self._judge(null, spread)

    def _judge(self, null: Tensor, spread: Tensor) -> None:
        """P-values, null bands and intervals from the rhos of permutations `(R, B)` and resamples `(R, B', 3)`."""
        rows = ~self.degenerate
        if not null.shape[1]:
            self.p_value[rows] = math.nan
        else:
            reached = (null >= self.rho[:, None]).sum(1)
            # a permutation test counts the true order among them, so p is never 0
            p_value = (1 + reached.to(torch.float64)) / (1 + null.shape[1])
            self.p_value = torch.where(rows, p_value, self.p_value)
            self.band = torch.where(rows[:, None], quantiles(null), self.band)
        if spread.shape[1]:
            interval = population_interval(self.rho, spread)
            self.interval = torch.where(rows[:, None], interval, self.interval)

    def result(self) -> Consistency:
        return Consistency(
            rho=self.rho,
            rho_paper=self.rho_paper,
            interval=self.interval,
            p_value=self.p_value,
            null_band=self.band,
            top1=self.top1,
            top3=self.top3,
            prediction_sensitivity=self.sensitivity[0],
            explanation_sensitivity=self.sensitivity[1],
            masks_used=self.used,
            degenerate=self.degenerate,
        )


def plan_checks(masks: int, first: int = 200) -> list[int]:
    """At which numbers of masks to check whether to stop: half as many again each time, and at last all of them.

    >>> plan_checks(1000)
    [200, 300, 450, 675, 1000]
    """
    check(masks >= 1, "masks", "a whole number of at least 1", masks)
    check(first >= 1, "first", "a whole number of at least 1", first)
    checks = []
    next_check = first
    while next_check < masks:
        checks.append(next_check)
        next_check += max(1, next_check // 2)
    return [*checks, masks]


def is_settled(found: Consistency, tolerance: float) -> Tensor:
    """Problems `(R,)` where both ends of the interval lie well within `tolerance` of rho, so no more masks are needed.

    If masks stop there, rho is within `tolerance` of the rho of infinitely many masks in at least 95% of the problems
    that stopped. The distance to the ends decides, not half the width, since rho need not be in the middle. It counts
    1.2 times, since repeated checks stop too early by chance. Both were measured, see papers/senc/README.md. Degenerate
    problems are not settled.
    """
    check(tolerance > 0, "tolerance", "a number above 0", tolerance)
    distances = (found.interval - found.rho[:, None]).abs()
    return distances.amax(1) * _LUCK <= tolerance


def _check_masks(weights: Tensor, masks: Tensor) -> None:
    check(weights.ndim == 2, "weights", "shape (R, K)", tuple(weights.shape))
    fits = masks.ndim in (2, 3) and masks.shape[-2] == weights.shape[1]
    if masks.ndim == 3:
        fits = fits and len(masks) == len(weights)
    expected = f"shape (K, m) or (R, K, m) for weights {tuple(weights.shape)}"
    check(fits, "masks", expected, tuple(masks.shape))
