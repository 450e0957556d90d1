"""Similarities of the order of the features: Spearman's rho and Kendall's tau-b.

Ranks and pair counts are integers, so the results are exact up to one final division. They are not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from holdfast.similarity.rows import check_pair, is_degenerate, working_dtype

CHUNK_ELEMENTS = 2**20  # features processed at a time; each needs about 100 bytes of working memory
#: up to this number of features F, sums of products of doubled ranks, at most F (F^2 - 1) / 3, fit into 63 bits
SUMMABLE = 3_000_000


def spearman(a: Tensor, b: Tensor) -> Tensor:
    """Spearman's rank correlation over all features of a map; tied features have their average rank.

    Constant maps (`is_degenerate`) have similarity 0 with every map. Cost O(F log F) per row.

    Args:
        a: maps `(N, ...)`, floating.
        b: maps of the same shape.

    Returns:
        `(N,)` in [-1, 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit.

    Source: Spearman, Am. J. Psychol. 15 (1904); equals `scipy.stats.spearmanr`.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[1.0, 9.0, 3.0, 10.0]]))
    tensor([0.80])
    """
    return _by_chunks(_spearman_rows, a, b)


def kendall(a: Tensor, b: Tensor) -> Tensor:
    """Kendall's tau-b over all features of a map: concordant minus discordant pairs, corrected for ties.

    Constant maps (`is_degenerate`) have similarity 0 with every map. Cost O(F log F) per row: three sorts and one count
    of inversions, without a list of all pairs.

    Args:
        a: maps `(N, ...)`, floating.
        b: maps of the same shape.

    Returns:
        `(N,)` in [-1, 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit.

    Source: Kendall, Biometrika 33 (1945); Knight, JASA 61 (1966); equals `scipy.stats.kendalltau`.

    >>> kendall(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([0.67])
    """
    return _by_chunks(_kendall_rows, a, b)


def where_finite(x: Tensor, y: Tensor, result: Tensor) -> Tensor:
    """The result `(N,)`, NaN where a row `(N, F)` of either map holds a NaN or an infinity."""
    # Two reductions per map, without a mask of its size: a NaN or an infinity changes an extreme value.
    extremes = torch.stack((x.amin(1), x.amax(1), y.amin(1), y.amax(1)))
    return torch.where(extremes.isfinite().all(0), result, torch.nan)


def _by_chunks(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Apply a function of rows `(n, F)` to a bounded number of them at a time."""
    check_pair(a, b)
    x, y = a.detach().flatten(1), b.detach().flatten(1)
    rows = max(1, CHUNK_ELEMENTS // x.shape[1])
    pairs = zip(torch.split(x, rows), torch.split(y, rows), strict=True)
    # Adding 0.0 turns -0.0 into 0.0: the two are equal, but a radix sort would order them.
    result = torch.cat([function(p + 0.0, q + 0.0) for p, q in pairs])
    result = torch.where(is_degenerate(a) | is_degenerate(b), 0, result)
    return where_finite(x, y, result)


def _correlation(covariance: Tensor, x_variance: Tensor, y_variance: Tensor, dtype: torch.dtype) -> Tensor:
    """Correlation from integer moments; the variances are 0 only in rows that the caller replaces."""
    norms = x_variance.clamp(min=1).to(dtype).sqrt() * y_variance.clamp(min=1).to(dtype).sqrt()
    return (covariance.to(dtype) / norms).clamp(-1, 1)


def _find_starts(ordered: Tensor) -> Tensor:
    """Mask of the positions where a run of equal values begins, in sorted rows."""
    starts = torch.ones_like(ordered, dtype=torch.bool)
    starts[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return starts


def _find_runs(starts: Tensor) -> tuple[Tensor, Tensor]:
    """The run `(N, F)` of each position, and bounds `(N, F + 1)`: run i goes from `bounds[i]` to `bounds[i + 1]`.

    Runs that do not exist are empty and lie at the end.
    """
    features = starts.shape[1]
    run = starts.cumsum(1) - 1
    positions = torch.arange(features, device=starts.device).expand_as(run)
    bounds = run.new_full((run.shape[0], features + 1), features)
    # Positions that start no run all write `features` to the last column, which has this value already.
    bounds.scatter_(1, torch.where(starts, run, features), torch.where(starts, positions, features))
    return run, bounds


def _tied_pairs(bounds: Tensor) -> Tensor:
    lengths = bounds.diff(dim=1)
    return (lengths * (lengths - 1) // 2).sum(1)


def _centred_ranks(x: Tensor) -> Tensor:
    """Twice the average rank less twice the mean rank: integers `(N, F)` that sum to exactly 0."""
    ordered, order = x.sort(dim=1)
    run, bounds = _find_runs(_find_starts(ordered))
    doubled = bounds.gather(1, run) + bounds.gather(1, run + 1) - x.shape[1]
    return torch.empty_like(doubled).scatter_(1, order, doubled)


def _rank_products(p: Tensor, q: Tensor) -> Tensor:
    """Sums `(N,)` over features of products of doubled ranks: int64, or float64 where int64 could overflow.

    In float64 the two halves of the products are summed separately, as integers, so that the order of the features
    does not change the result.
    """
    products = p * q  # below F^2, and so are Kendall's counts of pairs; they fit up to F = 2^31
    if p.shape[1] <= SUMMABLE:
        return products.sum(1)
    return (products >> 32).sum(1).double() * 2.0**32 + (products & 0xFFFFFFFF).sum(1).double()


def _spearman_rows(x: Tensor, y: Tensor) -> Tensor:
    p, q = _centred_ranks(x), _centred_ranks(y)
    return _correlation(_rank_products(p, q), _rank_products(p, p), _rank_products(q, q), working_dtype(x, y))


def _kendall_rows(x: Tensor, y: Tensor) -> Tensor:
    # Knight's algorithm: sort by (x, y); then the discordant pairs are the inversions of y.
    y_ordered, by_y = y.sort(dim=1, stable=True)
    y_run, y_bounds = _find_runs(_find_starts(y_ordered))
    x_ordered, by_x = x.gather(1, by_y).sort(dim=1, stable=True)
    x_starts = _find_starts(x_ordered)
    sequence = y_run.gather(1, by_x)  # y as integers, in the order of (x, y)
    _, x_bounds = _find_runs(x_starts)
    _, joint_bounds = _find_runs(x_starts | _find_starts(sequence))

    # A stable sort keeps the order of ties, so they are no inversions. A permutation and its inverse have equally many.
    discordant = _inversions(sequence.sort(dim=1, stable=True).indices)
    pairs = x.shape[1] * (x.shape[1] - 1) // 2
    x_ties, y_ties, joint_ties = _tied_pairs(x_bounds), _tied_pairs(y_bounds), _tied_pairs(joint_bounds)
    excess = pairs - x_ties - y_ties + joint_ties - 2 * discordant  # concordant - discordant
    return _correlation(excess, pairs - x_ties, pairs - y_ties, working_dtype(x, y))


def _inversions(permutation: Tensor) -> Tensor:
    """The number of pairs out of order in each row `(N, F)`, a permutation of 0 ... F - 1.

    A merge sort from the top. Each level splits every block of values by one bit into a lower and an upper half, keeps
    the order within the halves, and counts for each lower value the upper values before it. The rows are padded to a
    power of two with values that are in order, so that all blocks have equal length and half of their values are upper.
    """
    features = permutation.shape[1]
    levels = (features - 1).bit_length()
    position = torch.arange(2**levels, device=permutation.device)
    values = torch.cat((permutation, position[features:].expand(permutation.shape[0], -1)), dim=1)
    count = permutation.new_zeros(permutation.shape[0])
    for level in reversed(range(levels)):
        upper = (values >> level) & 1
        block = position >> (level + 1)
        upper_before = upper.cumsum(1) - upper - (block << level)
        count = count + ((1 - upper) * upper_before).sum(1)
        upper_start = (block << (level + 1)) + (1 << level)
        target = torch.where(upper.bool(), upper_start + upper_before, position - upper_before)
        values = torch.empty_like(values).scatter_(1, target, values)
    return count
