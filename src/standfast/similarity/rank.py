"""Similarities of the order of the features: Spearman's rho and Kendall's tau-b.

Ranks and pair counts are integers, so the results are exact up to one final division. They are not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from standfast.similarity.rows import (
    check_pair,
    find_runs,
    find_starts,
    is_degenerate,
    order_runs,
    sort_rows,
    working_dtype,
)
from standfast.tensors import count_at_once, is_on_host

CHUNK_ELEMENTS = 2**20  # features processed at a time; each needs about 100 bytes of working memory
#: up to this number of features F, sums of products of doubled ranks, at most F (F^2 - 1) / 3, fit into 63 bits
SUMMABLE = 3_000_000
_SMALLEST_BLOCK = 8  # numbers whose inversions are counted by comparing all pairs


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
    rows = max(1, count_at_once(CHUNK_ELEMENTS, x) // x.shape[1])
    pairs = zip(torch.split(x, rows), torch.split(y, rows), strict=True)
    result = torch.cat([function(p, q) for p, q in pairs])
    result = torch.where(is_degenerate(a) | is_degenerate(b), 0, result)
    return where_finite(x, y, result)


def _correlation(covariance: Tensor, x_variance: Tensor, y_variance: Tensor, dtype: torch.dtype) -> Tensor:
    """Correlation from integer moments; the variances are 0 only in rows that the caller replaces."""
    norms = x_variance.clamp(min=1).to(dtype).sqrt() * y_variance.clamp(min=1).to(dtype).sqrt()
    return (covariance.to(dtype) / norms).clamp(-1, 1)


def _centred_ranks(x: Tensor) -> Tensor:
    """Twice the average rank less twice the mean rank: integers `(N, F)` that sum to exactly 0."""
    features = x.shape[1]
    order, starts = order_runs(x)
    if not is_on_host(x):  # how many runs there are is not asked
        first, last = _find_ends(starts)
        return torch.empty_like(order).scatter_(1, order, first + last - (features - 1))
    begin, length = find_runs(starts)
    doubled = (2 * (begin % features) + length - features).repeat_interleave(length).view_as(order)
    return torch.empty_like(doubled).scatter_(1, order, doubled)


def _find_ends(starts: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last place, `(N, F)` each, of the run at each place of sorted rows."""
    features, place = starts.shape[1], torch.arange(starts.shape[1], device=starts.device)
    ends = torch.ones_like(starts)
    ends[:, :-1] = starts[:, 1:]
    first = torch.where(starts, place, 0).cummax(1).values
    return first, torch.where(ends, place, features).flip(1).cummin(1).values.flip(1)


def _number_values(x: Tensor) -> tuple[Tensor, Tensor]:
    """How many different values are below each value of a row, `(N, F)`; and the number `(N,)` of tied pairs."""
    order, starts = order_runs(x)
    return torch.empty_like(order).scatter_(1, order, starts.cumsum(1) - 1), _count_tied_pairs(starts)


def _count_tied_pairs(starts: Tensor) -> Tensor:
    if not is_on_host(starts):  # the places within a run of n add up to n (n - 1) / 2
        return (torch.arange(starts.shape[1], device=starts.device) - _find_ends(starts)[0]).sum(1)
    if bool(starts.all()):
        return torch.zeros(len(starts), dtype=torch.int64, device=starts.device)
    begin, length = find_runs(starts)
    tied = (length > 1).nonzero()[:, 0]
    begin, length = begin[tied], length[tied]
    return begin.new_zeros(len(starts)).index_add_(0, begin // starts.shape[1], length * (length - 1) // 2)


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
    return _correlate_counts(x, y, 0)


def _correlate_counts(x: Tensor, y: Tensor, left_out: int | Tensor) -> Tensor:
    """Tau-b of rows `(N, F)`, without the `left_out` `(N,)` entries that are equal and the largest in both maps.

    Such an entry is tied with the others, and concordant with every entry that is not left out.
    """
    # Knight's algorithm: sort by (x, y); then the discordant pairs are the inversions of y.
    (of_x, x_ties), (of_y, y_ties) = _number_values(x), _number_values(y)
    joint = sort_rows(of_x.bitwise_left_shift_(32).bitwise_or_(of_y))
    discordant = _count_inversions(joint & 0xFFFFFFFF)
    counted = x.shape[1] - left_out
    pairs = counted * (counted - 1) // 2
    tied = left_out * (left_out - 1) // 2
    x_ties, y_ties, joint_ties = x_ties - tied, y_ties - tied, _count_tied_pairs(find_starts(joint)) - tied
    excess = pairs - x_ties - y_ties + joint_ties - 2 * discordant  # concordant - discordant
    return _correlation(excess, pairs - x_ties, pairs - y_ties, working_dtype(x, y))


def _count_inversions(values: Tensor) -> Tensor:
    """The number of pairs out of order, int64 `(N,)`, in each row of whole numbers `(N, F)`, from 0 to below F.

    A merge sort from the bottom. Each level sorts blocks whose two halves are sorted. The last bit of a number says
    that it came from the upper half. A number of the lower half at place p, with q numbers of its own half before it,
    is behind `p - q` of the upper half, and the sum of all q is known. Equal numbers of the lower half come first, so
    they are in order. The rows are padded to a power of two with numbers that are in order.
    """
    rows, features = values.shape
    length = max(_SMALLEST_BLOCK, 1 << (features - 1).bit_length())
    keys = torch.empty((rows, length), dtype=torch.int32 if length <= 1 << 30 else torch.int64, device=values.device)
    keys[:, :features] = values
    keys[:, features:] = torch.arange(features, length, device=values.device)
    # the smallest blocks by comparing all pairs; the places of a block come first, so that long rows are compared
    places = keys.view(rows, length // _SMALLEST_BLOCK, _SMALLEST_BLOCK).movedim(2, 0).contiguous()
    gaps = range(1, _SMALLEST_BLOCK)
    count = sum((places[:-gap] > places[gap:]).sum(0).sum(1) for gap in gaps) + torch.zeros_like(values[:, 0])
    keys <<= 1
    last_bits = torch.empty_like(keys)
    half = _SMALLEST_BLOCK
    while half < length:
        keys.view(rows, length // (2 * half), 2, half)[:, :, 1] |= 1
        keys = sort_rows(keys.view(rows, length // (2 * half), 2 * half))
        # how many blocks have a number of the upper half at each place
        upper = torch.bitwise_and(keys, 1, out=last_bits.view_as(keys)).sum(1, dtype=keys.dtype)
        places_of_upper = (upper * torch.arange(2 * half, device=keys.device)).sum(1)
        all_places, own = half * (2 * half - 1), half * (half - 1) // 2
        count = count + (length // (2 * half) * (all_places - own) - places_of_upper)
        keys &= -2
        half *= 2
    return count
