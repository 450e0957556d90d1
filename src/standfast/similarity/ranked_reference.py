"""Spearman's rho between many maps and a few reference maps, which are ranked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity.rank import CHUNK_ELEMENTS, SUMMABLE, _centred_ranks, _correlation, _rank_products
from standfast.similarity.rows import check_map, extremes, is_constant, is_degenerate, ordered_bits, working_dtype
from standfast.tensors import count_at_once, is_on_host

_PACKED_ELEMENTS = 1 << 17  # features packed and sorted at a time: as many as fit into a cache
_COMPARED = 24  # up to this number of features, comparing all pairs takes less time than sorting


class RankedReference:
    """Reference maps `(N, ...)`, ranked once; `spearman(maps, rows)` compares other maps with them.

    The results have the same bits as those of `standfast.similarity.spearman`, at a fraction of its time. On a CPU,
    float32 maps are packed into integers, the value in the upper half and the reference's rank in the lower half. NumPy
    sorts these several times as fast as a sort that returns indices.

    Args:
        reference: floating maps `(N, ...)`.

    >>> reference = RankedReference(torch.tensor([[1.0, 2.0, 3.0, 4.0]]))
    >>> reference.spearman(torch.tensor([[1.0, 9.0, 3.0, 10.0], [0.0, 0.0, 0.0, 0.0]]), torch.tensor([0, 0]))
    tensor([0.80, 0.00])
    """

    def __init__(self, reference: Tensor) -> None:
        check_map(reference, "reference")
        flat = reference.detach().flatten(1)
        self.dtype, self.shape = reference.dtype, reference.shape[1:]
        self._constant = is_degenerate(flat)
        self._finite = torch.isfinite(flat).all(1)
        self._ranks = torch.cat([_centred_ranks(rows) for rows in _chunks(flat + 0.0)])
        self._variance = torch.cat([_rank_products(rows, rows) for rows in _chunks(self._ranks)])

    def spearman(self, maps: Tensor, rows: Tensor) -> Tensor:
        """Rank correlation `(M,)` of `maps` `(M, ...)` with the references of index `rows` `(M,)`.

        0 if either map is constant, NaN if either has a NaN or an infinity.
        """
        return self.compare(maps, rows)[0]

    def compare(self, maps: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """The result of `spearman`, and a mask `(M,)` of the maps that are constant."""
        check(maps.shape[1:] == self.shape, "maps", f"shape (M, {', '.join(map(str, self.shape))})", tuple(maps.shape))
        check(maps.dtype == self.dtype, "maps", f"{self.dtype}, as the references", maps.dtype)
        flat = maps.detach().flatten(1)
        packs = is_on_host(flat) and flat.dtype == torch.float32 and flat.shape[1] <= SUMMABLE
        moments = _moments_by_packing if packs else _moments_by_sorting
        if packs and flat.shape[1] <= _COMPARED:
            moments = _moments_by_comparing
        pieces = _chunks(flat, _PACKED_ELEMENTS if packs else CHUNK_ELEMENTS)
        parts = [
            moments(part + 0.0, self._ranks, which)  # + 0.0: -0.0 and 0.0 become equal
            for part, which in zip(pieces, torch.split(rows, [len(part) for part in pieces]), strict=True)
        ]
        covariance, variance, low, high = (torch.cat(column) for column in zip(*parts, strict=True))
        constant = is_constant(low, high, torch.finfo(self.dtype).eps)
        result = _correlation(covariance, self._variance[rows], variance, working_dtype(flat))
        result = torch.where(constant | self._constant[rows], 0, result)
        finite = self._finite[rows] & torch.isfinite(low) & torch.isfinite(high)
        return torch.where(finite, result, torch.nan), constant & finite


def _chunks(flat: Tensor, elements: int = CHUNK_ELEMENTS) -> tuple[Tensor, ...]:
    return torch.split(flat, max(1, count_at_once(elements, flat) // flat.shape[1]))


def _moments_by_sorting(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Sums `(n,)` over features of ranks x reference ranks and of squared ranks; the extremes of `x` `(n, F)`."""
    ranks = _centred_ranks(x)
    covariance, variance = _rank_products(ranks, references[rows]), _rank_products(ranks, ranks)
    return covariance, variance, *extremes(x.to(working_dtype(x)))


def _moments_by_comparing(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """The same for few features on the CPU: a doubled rank is how many values are smaller, less how many are larger."""
    values = np.ascontiguousarray(x.numpy().T)
    ranks = np.zeros(values.shape, dtype=np.int8)
    for place in range(len(values) - 1):
        one, others = values[place], values[place + 1 :]
        signs = (one > others).view(np.int8) - (one < others).view(np.int8)
        ranks[place] += signs.sum(0, dtype=np.int8)
        ranks[place + 1 :] -= signs
    wide = ranks.astype(np.int64)
    covariance = (wide * references.numpy().T[:, rows.numpy()]).sum(0)
    ends = values.min(0), values.max(0)
    return tuple(torch.from_numpy(each) for each in (covariance, (wide * wide).sum(0), *ends))


def _moments_by_packing(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """The same for float32 on the CPU; in NumPy, whose small operations do not wait for threads.

    Features that are 0 in all maps, as those of input x gradient on a black background, are not sorted: they have the
    rank of 0. Partial sums may overflow int64 and wrap around. The total fits into int64, so it is correct.
    """
    values, others, features = x.contiguous().numpy(), references.numpy(), x.shape[1]
    kept = np.asarray(values.any(0))
    kept[0] = True  # at least one
    left_out = others[:, ~kept].sum(1)
    zeros = features - int(kept.sum())
    if zeros:
        values, others = values.compress(kept, 1), others.compress(kept, 1)
    count, width = values.shape
    keys = ordered_bits(values.view(np.int32)).astype(np.int64)
    keys <<= 32
    keys |= others[rows.numpy()] + features  # the offset makes them positive
    keys.sort(axis=1)
    others = (keys & 0xFFFFFFFF).reshape(-1)
    keys >>= 32
    starts = np.ones((count, width), dtype=bool)
    np.not_equal(keys[:, 1:], keys[:, :-1], out=starts[:, 1:])
    first = np.flatnonzero(starts)  # the first position of every run of ties, in the flattened rows
    length = np.diff(first, append=count * width)
    place = first % width
    ranks = 2 * place + length - width  # twice the mean rank of the run, centred
    begin = np.flatnonzero(place == 0)
    ends = ordered_bits(keys[:, [0, -1]].astype(np.int32)).view(np.float32)
    own: Any = 0  # the rank of the zeros that were left out
    if zeros:
        signs = np.sign(keys.reshape(-1)[first])
        ranks += zeros * signs
        own = -np.add.reduceat(signs * length, begin)
        ends = np.stack((np.minimum(ends[:, 0], 0), np.maximum(ends[:, 1], 0)), 1)
    # the offset drops out: all ranks sum to 0
    covariance = np.add.reduceat(np.add.reduceat(others, first) * ranks, begin)
    covariance += own * (left_out[rows.numpy()] + features * zeros)
    variance = np.add.reduceat(ranks * ranks * length, begin) + zeros * own * own
    low, high = (torch.from_numpy(np.ascontiguousarray(ends[:, side])) for side in (0, 1))
    return torch.from_numpy(covariance), torch.from_numpy(variance), low, high
