"""Similarities of the order of the features: Spearman's rho and Kendall's tau-b.

Ranks and pair counts are integers, so the results are exact up to one final division. They are not differentiable.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity.base import Correlation, similarities
from standfast.similarity.rows import (
    check_map,
    check_pair,
    extremes,
    find_extremes,
    find_runs,
    find_starts,
    is_constant,
    is_degenerate,
    order_runs,
    ordered_bits,
    sort_rows,
    working_dtype,
)
from standfast.tensors import count_at_once, is_on_host

CHUNK_ELEMENTS = 2**20  # features processed at a time; each needs about 100 bytes of working memory
#: up to this number of features F, sums of products of doubled ranks, at most F (F^2 - 1) / 3, fit into 63 bits
SUMMABLE = 3_000_000
_PACKED_ELEMENTS = 1 << 17  # features packed and sorted at a time: as many as fit into a cache
_COMPARED = 24  # up to this number of features, comparing all pairs takes less time than sorting
_SMALLEST_BLOCK = 8  # numbers whose inversions are counted by comparing all pairs


@similarities.register("spearman")
@dataclass(frozen=True)
class Spearman(Correlation):
    """Spearman's rank correlation over all features of maps `(N, ...)`; tied features have their average rank.

    Constant maps (`is_degenerate`) have similarity 0 with every map. Cost O(F log F) per row.

    Source: Spearman, Am. J. Psychol. 15 (1904); equals `scipy.stats.spearmanr`.

    >>> Spearman()(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[1.0, 9.0, 3.0, 10.0]]))
    tensor([0.80])
    """

    name = "spearman"
    words = "rank correlation"

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        return _by_chunks(_spearman_rows, a, b)

    def prepare(self, reference: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """The references are ranked once (`RankedReference`)."""
        ranked = RankedReference(reference)

        def compare(maps: Tensor, rows: Tensor) -> Tensor:
            correlations, _ = ranked.compare(maps, rows)
            return correlations

        return compare

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:

        def rank_part(rows: Tensor, mask: Tensor) -> Tensor:
            # twice the rank less F - 1; of the n values that are left it is to be twice the rank less n - 1
            shift = rows.shape[1] - mask.sum(1, keepdim=True)
            return torch.where(mask, _centred_ranks(rows) + shift, 0)

        def compare(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
            dtype = working_dtype(x, y)
            return _correlate_ranks(rank_part(x, mask), rank_part(y, mask), dtype)

        return _compare_part(compare, a, b, mask)


@similarities.register("kendall")
@dataclass(frozen=True)
class Kendall(Correlation):
    """Kendall's tau-b over all features of maps `(N, ...)`: concordant minus discordant pairs, corrected for ties.

    Constant maps (`is_degenerate`) have similarity 0 with every map. Cost O(F log F) per row: three sorts and one count
    of inversions, without a list of all pairs.

    Source: Kendall, Biometrika 33 (1945); Knight, JASA 61 (1966); equals `scipy.stats.kendalltau`.

    >>> Kendall()(torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[1.0, 3.0, 2.0, 4.0]]))
    tensor([0.67])
    """

    name = "kendall"

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        return _by_chunks(lambda x, y: _correlate_counts(x, y, 0), a, b)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        def compare(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
            left_out = (~mask).sum(1)
            return _correlate_counts(x, y, left_out)

        return _compare_part(compare, a, b, mask)


def where_finite(x: Tensor, y: Tensor, result: Tensor) -> Tensor:
    """The result `(N,)`, NaN where a row `(N, F)` of either map holds a NaN or an infinity."""
    # Two reductions per map, without a mask of its size: a NaN or an infinity changes an extreme value.
    extremes = torch.stack((x.amin(1), x.amax(1), y.amin(1), y.amax(1)))
    is_finite = extremes.isfinite().all(0)
    return torch.where(is_finite, result, torch.nan)


def _by_chunks(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Apply a function of rows `(n, F)` to a bounded number of them at a time."""
    check_pair(a, b)
    x = a.detach().flatten(1)
    y = b.detach().flatten(1)
    results = []
    parts = zip(_chunks(x, CHUNK_ELEMENTS), _chunks(y, CHUNK_ELEMENTS), strict=True)
    for p, q in parts:
        results.append(function(p, q))
    is_zero = is_degenerate(a) | is_degenerate(b)
    result = torch.where(is_zero, 0, torch.cat(results))
    return where_finite(x, y, result)


def _compare_part(compare: Callable[..., Tensor], a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Compare the order of rows whose other values come last, all equal; 0 for constant rows, NaN without a number."""
    x = a.detach().flatten(1)
    y = b.detach().flatten(1)
    mask = mask.flatten(1)
    constant = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for rows in (x, y):
        low, high = find_extremes(rows.to(working_dtype(rows)), mask)
        constant |= is_constant(low, high, torch.finfo(rows.dtype).eps)
    rows_at_once = max(1, CHUNK_ELEMENTS // x.shape[1])
    x_last = torch.split(torch.where(mask, x, torch.inf), rows_at_once)
    y_last = torch.split(torch.where(mask, y, torch.inf), rows_at_once)
    masks = torch.split(mask, rows_at_once)
    results = []
    for x_part, y_part, mask_part in zip(x_last, y_last, masks, strict=True):
        results.append(compare(x_part, y_part, mask_part))
    compared = torch.where(constant, 0, torch.cat(results))
    return where_finite(torch.where(mask, x, 0), torch.where(mask, y, 0), compared)


def _correlation(
    covariance: Tensor, x_variance: Tensor, y_variance: Tensor, dtype: torch.dtype
) -> Tensor:
    """Correlation from integer moments; the variances are 0 only in rows that the caller replaces."""
    x_norm = x_variance.clamp(min=1).to(dtype).sqrt()
    y_norm = y_variance.clamp(min=1).to(dtype).sqrt()
    norms = x_norm * y_norm
    return (covariance.to(dtype) / norms).clamp(-1, 1)


def _centred_ranks(x: Tensor) -> Tensor:
    """Twice the average rank less twice the mean rank: integers `(N, F)` that sum to exactly 0."""
    features = x.shape[1]
    order, starts = order_runs(x)
    if not is_on_host(x):  # how many runs there are is not asked
        first, last = _find_ends(starts)
        doubled = first + last - (features - 1)
    else:
        begin, length = find_runs(starts)
        position = begin % features
        doubled_of_run = 2 * position + length - features
        doubled = doubled_of_run.repeat_interleave(length).view_as(order)
    return torch.empty_like(doubled).scatter_(1, order, doubled)


def _find_ends(starts: Tensor) -> tuple[Tensor, Tensor]:
    """The first and the last place, `(N, F)` each, of the run at each place of sorted rows."""
    features = starts.shape[1]
    positions = torch.arange(features, device=starts.device)
    ends = torch.ones_like(starts)
    ends[:, :-1] = starts[:, 1:]
    first = torch.where(starts, positions, 0).cummax(1).values
    position_of_end = torch.where(ends, positions, features)
    last = position_of_end.flip(1).cummin(1).values.flip(1)
    return first, last


def _number_values(x: Tensor) -> tuple[Tensor, Tensor]:
    """How many different values are below each value of a row, `(N, F)`; and the number `(N,)` of tied pairs."""
    order, starts = order_runs(x)
    return torch.empty_like(order).scatter_(1, order, starts.cumsum(1) - 1), _count_tied_pairs(
        starts
    )


def _count_tied_pairs(starts: Tensor) -> Tensor:
    rows, features = starts.shape
    # the places within a run of n add up to n (n - 1) / 2
    if not is_on_host(starts):
        positions = torch.arange(features, device=starts.device)
        first, _ = _find_ends(starts)
        return (positions - first).sum(1)
    if bool(starts.all()):
        return torch.zeros(rows, dtype=torch.int64, device=starts.device)
    begin, length = find_runs(starts)
    tied = (length > 1).nonzero()[:, 0]
    row = begin[tied] // features
    length = length[tied]
    pairs = length * (length - 1) // 2
    return begin.new_zeros(rows).index_add_(0, row, pairs)


def _rank_products(p: Tensor, q: Tensor) -> Tensor:
    """Sums `(N,)` over features of products of doubled ranks: int64, or float64 where int64 could overflow.

    In float64 the two halves of the products are summed separately, as integers, so that the order of the features
    does not change the result.
    """
    products = p * q  # below F^2, and so are Kendall's counts of pairs; they fit up to F = 2^31
    if p.shape[1] <= SUMMABLE:
        return products.sum(1)
    upper = (products >> 32).sum(1).double()
    lower = (products & 0xFFFFFFFF).sum(1).double()
    return upper * 2.0**32 + lower


def _spearman_rows(x: Tensor, y: Tensor) -> Tensor:
    return _correlate_ranks(_centred_ranks(x), _centred_ranks(y), working_dtype(x, y))


def _correlate_ranks(p: Tensor, q: Tensor, dtype: torch.dtype) -> Tensor:
    covariance = _rank_products(p, q)
    return _correlation(covariance, _rank_products(p, p), _rank_products(q, q), dtype)


def _correlate_counts(x: Tensor, y: Tensor, left_out: int | Tensor) -> Tensor:
    """Tau-b of rows `(N, F)`, without the `left_out` `(N,)` entries that are equal and the largest in both maps.

    Such an entry is tied with the others, and concordant with every entry that is not left out.
    """
    # Knight's algorithm: sort by (x, y); then the discordant pairs are the inversions of y.
    of_x, x_ties = _number_values(x)
    of_y, y_ties = _number_values(y)
    # in one sort: the rank by x in the upper half, that by y in the lower half
    joint = sort_rows(of_x.bitwise_left_shift_(32).bitwise_or_(of_y))
    discordant = _count_inversions(joint & 0xFFFFFFFF)
    counted = x.shape[1] - left_out
    pairs = counted * (counted - 1) // 2
    # entries that are left out are tied with each other in both maps
    tied = left_out * (left_out - 1) // 2
    x_pairs = pairs - (x_ties - tied)
    y_pairs = pairs - (y_ties - tied)
    joint_ties = _count_tied_pairs(find_starts(joint)) - tied
    # the pairs that are tied in neither map are concordant or discordant
    untied = x_pairs + y_pairs - pairs + joint_ties
    excess = untied - 2 * discordant  # concordant - discordant
    return _correlation(excess, x_pairs, y_pairs, working_dtype(x, y))


def _count_inversions(values: Tensor) -> Tensor:
    """The number of pairs out of order, int64 `(N,)`, in each row of whole numbers `(N, F)`, from 0 to below F.

    A merge sort from the bottom. Each level sorts blocks whose two halves are sorted. The last bit of a number says
    that it came from the upper half. A number of the lower half at place p, with q numbers of its own half before it,
    is behind `p - q` of the upper half, and the sum of all q is known. Equal numbers of the lower half come first, so
    they are in order. The rows are padded to a power of two with numbers that are in order.
    """
    rows, features = values.shape
    length = max(_SMALLEST_BLOCK, 1 << (features - 1).bit_length())
    # keys are doubled below
    dtype = torch.int32 if length <= 1 << 30 else torch.int64
    keys = torch.empty((rows, length), dtype=dtype, device=values.device)
    keys[:, :features] = values
    keys[:, features:] = torch.arange(features, length, device=values.device)
    # the smallest blocks by comparing all pairs; the places of a block come first, so that long rows are compared
    blocks = keys.view(rows, length // _SMALLEST_BLOCK, _SMALLEST_BLOCK).movedim(2, 0).contiguous()
    count = torch.zeros_like(values[:, 0])
    for gap in range(1, _SMALLEST_BLOCK):
        is_inverted = blocks[:-gap] > blocks[gap:]
        count = count + is_inverted.sum(0).sum(1)
    # room for the bit that tells the halves of a block apart
    keys <<= 1
    last_bits = torch.empty_like(keys)
    half = _SMALLEST_BLOCK
    while half < length:
        whole = 2 * half
        halves = keys.view(rows, length // whole, 2, half)
        halves[:, :, 1] |= 1
        keys = sort_rows(keys.view(rows, length // whole, whole))
        # how many blocks have a number of the upper half at each place
        is_upper = torch.bitwise_and(keys, 1, out=last_bits.view_as(keys))
        upper = is_upper.sum(1, dtype=keys.dtype)
        positions = torch.arange(whole, device=keys.device)
        places_of_upper = (upper * positions).sum(1)
        all_places = half * (whole - 1)
        within_halves = half * (half - 1) // 2
        count = count + (length // whole * (all_places - within_halves) - places_of_upper)
        # the bit is free again for the next level
        keys &= -2
        half = whole
    return count


class RankedReference:
    """Reference maps `(N, ...)`, ranked once; `compare(maps, rows)` compares other maps with them.

    The results have the same bits as those of `Spearman`, at a fraction of its time. On a CPU,
    float32 maps are packed into integers, the value in the upper half and the reference's rank in the lower half. NumPy
    sorts these several times as fast as a sort that returns indices.

    Args:
        reference: floating maps `(N, ...)`.

    >>> reference = RankedReference(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    >>> reference.compare(torch.tensor([[1.0, 9.0, 3.0, 10.0], [0.0, 0.0, 0.0, 0.0]]), torch.tensor([0, 0]))[0]
    tensor([0.80, 0.00])
    """

    def __init__(self, reference: Tensor) -> None:
        check_map(reference, "reference")
        flat = reference.detach().flatten(1)
        self.dtype = reference.dtype
        self.shape = reference.shape[1:]
        self._constant = is_degenerate(flat)
        self._finite = torch.isfinite(flat).all(1)
        # + 0.0: -0.0 and 0.0 become equal
        ranks = [_centred_ranks(rows) for rows in _chunks(flat + 0.0)]
        self._ranks = torch.cat(ranks)
        variances = [_rank_products(rows, rows) for rows in _chunks(self._ranks)]
        self._variance = torch.cat(variances)

    def compare(self, maps: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Rank correlations `(M,)` of `maps` `(M, ...)` with the references of index `rows` `(M,)`.

        They are 0 if either map is constant, NaN if either has a NaN or an infinity. And a mask `(M,)` of the maps that
        are constant.
        """
        shape = ", ".join(map(str, self.shape))
        check(maps.shape[1:] == self.shape, "maps", f"shape (M, {shape})", tuple(maps.shape))
        check(maps.dtype == self.dtype, "maps", f"{self.dtype}, as the references", maps.dtype)
        flat = maps.detach().flatten(1)
        features = flat.shape[1]
        if is_on_host(flat) and flat.dtype == torch.float32 and features <= SUMMABLE:
            moments = _moments_by_comparing if features <= _COMPARED else _moments_by_packing
            pieces = _chunks(flat, _PACKED_ELEMENTS)
        else:
            moments = _moments_by_sorting
            pieces = _chunks(flat, CHUNK_ELEMENTS)
        rows_of_pieces = torch.split(rows, [len(piece) for piece in pieces])
        parts = []
        for piece, rows_of_piece in zip(pieces, rows_of_pieces, strict=True):
            # + 0.0: -0.0 and 0.0 become equal
            parts.append(moments(piece + 0.0, self._ranks, rows_of_piece))
        covariance, variance, low, high = (torch.cat(column) for column in zip(*parts, strict=True))
        constant = is_constant(low, high, torch.finfo(self.dtype).eps)
        result = _correlation(covariance, self._variance[rows], variance, working_dtype(flat))
        is_zero = constant | self._constant[rows]
        result = torch.where(is_zero, 0, result)
        finite = self._finite[rows] & torch.isfinite(low) & torch.isfinite(high)
        return torch.where(finite, result, torch.nan), constant & finite


def _chunks(flat: Tensor, elements: int = CHUNK_ELEMENTS) -> tuple[Tensor, ...]:
    elements_at_once = count_at_once(elements, flat)
    rows_at_once = max(1, elements_at_once // flat.shape[1])
    return torch.split(flat, rows_at_once)


def _moments_by_sorting(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Sums `(n,)` over features of ranks x reference ranks and of squared ranks; the extremes of `x` `(n, F)`."""
    ranks = _centred_ranks(x)
    covariance = _rank_products(ranks, references[rows])
    variance = _rank_products(ranks, ranks)
    low, high = extremes(x.to(working_dtype(x)))
    return covariance, variance, low, high


def _moments_by_comparing(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """`_moments_by_sorting` for few features on the CPU: a doubled rank counts the smaller values, less the larger."""
    values = np.ascontiguousarray(x.numpy().T)
    # doubled ranks of so few features fit into a byte
    ranks = np.zeros(values.shape, dtype=np.int8)
    for position in range(len(values) - 1):
        one = values[position]
        others = values[position + 1 :]
        is_above = (one > others).view(np.int8)
        is_below = (one < others).view(np.int8)
        signs = is_above - is_below
        ranks[position] += signs.sum(0, dtype=np.int8)
        ranks[position + 1 :] -= signs
    wide = ranks.astype(np.int64)
    ranks_of_references = references.numpy().T[:, rows.numpy()]
    covariance = (wide * ranks_of_references).sum(0)
    variance = (wide * wide).sum(0)
    moments = (covariance, variance, values.min(0), values.max(0))
    return tuple(torch.from_numpy(moment) for moment in moments)


def _moments_by_packing(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """The same for float32 on the CPU; in NumPy, whose small operations do not wait for threads.

    Features that are 0 in all maps, as those of input x gradient on a black background, are not sorted: they have the
    rank of 0. Partial sums may overflow int64 and wrap around. The total fits into int64, so it is correct.
    """
    values = x.contiguous().numpy()
    others = references.numpy()
    rows_of_others = rows.numpy()
    features = x.shape[1]
    kept = np.asarray(values.any(0))
    kept[0] = True  # at least one
    left_out = others[:, ~kept].sum(1)
    zeros = features - int(kept.sum())
    if zeros:
        values = values.compress(kept, 1)
        others = others.compress(kept, 1)
    count, width = values.shape
    keys = ordered_bits(values.view(np.int32)).astype(np.int64)
    keys <<= 32
    keys |= others[rows_of_others] + features  # the offset makes them positive
    keys.sort(axis=1)
    others = (keys & 0xFFFFFFFF).reshape(-1)
    keys >>= 32
    starts = np.ones((count, width), dtype=bool)
    later = keys[:, 1:]
    earlier = keys[:, :-1]
    np.not_equal(later, earlier, out=starts[:, 1:])
    first = np.flatnonzero(starts)  # the first position of every run of ties, in the flattened rows
    length = np.diff(first, append=count * width)
    position = first % width
    ranks = 2 * position + length - width  # twice the mean rank of the run, centred
    begin = np.flatnonzero(position == 0)
    smallest_and_largest = keys[:, [0, -1]].astype(np.int32)
    ends = ordered_bits(smallest_and_largest).view(np.float32)
    low, high = ends[:, 0], ends[:, 1]
    rank_of_zeros: Any = 0  # the rank of the zeros that were left out
    if zeros:
        # zeros that were left out lie above the negative values and below the positive ones
        signs = np.sign(keys.reshape(-1)[first])
        ranks += zeros * signs
        rank_of_zeros = -np.add.reduceat(signs * length, begin)
        low = np.minimum(low, 0)
        high = np.maximum(high, 0)
    # the offset drops out: all ranks sum to 0
    others_of_runs = np.add.reduceat(others, first)
    covariance = np.add.reduceat(others_of_runs * ranks, begin)
    covariance += rank_of_zeros * (left_out[rows_of_others] + features * zeros)
    variance = np.add.reduceat(ranks * ranks * length, begin)
    variance += zeros * rank_of_zeros * rank_of_zeros
    moments = (covariance, variance, np.ascontiguousarray(low), np.ascontiguousarray(high))
    return tuple(torch.from_numpy(moment) for moment in moments)
