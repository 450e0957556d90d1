"""Spearman's rho of many maps with a few references that are ranked once."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.similarity.rank import CHUNK_ELEMENTS, SUMMABLE, _centred_ranks, _correlation, _rank_products
from holdfast.similarity.rows import check_map, degenerate, extremes, is_constant, working_dtype

_PACKED = 1 << 17  # features packed and sorted at a time: what fits into a cache


class RankedReference:
    """Reference maps `(N, ...)`, ranked once; `spearman(maps, rows)` compares others with them.

    The same bits as `holdfast.similarity.spearman` at a fraction of its time. On a CPU a float32 map is ranked by one
    sort of whole numbers, the value in their upper half and the reference's rank in the lower, which numpy does several
    times as fast as a sort that returns indices.

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
        self._constant = degenerate(flat)
        self._finite = torch.isfinite(flat).all(1)
        self._ranks = torch.cat([_centred_ranks(rows) for rows in _chunks(flat + 0.0)])
        self._variance = torch.cat([_rank_products(rows, rows) for rows in _chunks(self._ranks)])

    def spearman(self, maps: Tensor, rows: Tensor) -> Tensor:
        """Rank correlation `(M,)` of `maps` `(M, ...)` with the references numbered `rows` `(M,)`.

        0 where either map is constant, NaN where either holds a NaN or an infinity.
        """
        return self.compare(maps, rows)[0]

    def compare(self, maps: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
        """As `spearman`, and which of the maps are constant `(M,)`."""
        check(maps.shape[1:] == self.shape, "maps", f"shape (M, {', '.join(map(str, self.shape))})", tuple(maps.shape))
        check(maps.dtype == self.dtype, "maps", f"{self.dtype}, as the references", maps.dtype)
        flat = maps.detach().flatten(1)
        packs = flat.device.type == "cpu" and flat.dtype == torch.float32 and flat.shape[1] <= SUMMABLE
        moments = _packed if packs else _sorted
        pieces = _chunks(flat, _PACKED if moments is _packed else CHUNK_ELEMENTS)
        parts = [
            moments(part + 0.0, self._ranks, which)  # + 0.0: the two zeros are a tie
            for part, which in zip(pieces, torch.split(rows, [len(part) for part in pieces]), strict=True)
        ]
        covariance, variance, low, high = (torch.cat(column) for column in zip(*parts, strict=True))
        constant = is_constant(low, high, torch.finfo(self.dtype).eps)
        result = _correlation(covariance, self._variance[rows], variance, working_dtype(flat))
        result = torch.where(constant | self._constant[rows], 0, result)
        finite = self._finite[rows] & torch.isfinite(low) & torch.isfinite(high)
        return torch.where(finite, result, torch.nan), constant & finite


def _chunks(flat: Tensor, elements: int = CHUNK_ELEMENTS) -> tuple[Tensor, ...]:
    return torch.split(flat, max(1, elements // flat.shape[1]))


def _sorted(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """Sums over features `(n,)` of ranks x reference ranks, and of ranks squared; the extremes of `x` `(n, F)`."""
    ranks = _centred_ranks(x)
    covariance, variance = _rank_products(ranks, references[rows]), _rank_products(ranks, ranks)
    return covariance, variance, *extremes(x.to(working_dtype(x)))


def _packed(x: Tensor, references: Tensor, rows: Tensor) -> tuple[Tensor, ...]:
    """As `_sorted`, for float32 on the CPU; in numpy, whose small operations do not wait for threads.

    Parts of the sums may wrap around int64; their total, which fits, is then right again.
    """
    count, features = x.shape
    keys = _ordered(x.contiguous().numpy().view(np.int32)).astype(np.int64)
    keys <<= 32
    keys |= references.numpy()[rows.numpy()] + features  # above 0, and sorted along
    keys.sort(axis=1)
    others = (keys & 0xFFFFFFFF).reshape(-1)
    keys >>= 32
    starts = np.ones((count, features), dtype=bool)
    np.not_equal(keys[:, 1:], keys[:, :-1], out=starts[:, 1:])
    first = np.flatnonzero(starts)  # of every run of ties, in the flattened rows
    length = np.diff(first, append=count * features)
    place = first % features
    ranks = 2 * place + length - features  # twice the mean place of the run, centred
    begin = np.flatnonzero(place == 0)
    covariance = np.add.reduceat(np.add.reduceat(others, first) * ranks, begin)  # ranks sum to 0, so no centring here
    variance = np.add.reduceat(ranks * ranks * length, begin)
    ends = _ordered(keys[:, [0, -1]].astype(np.int32)).view(np.float32)
    low, high = (torch.from_numpy(np.ascontiguousarray(ends[:, side])) for side in (0, 1))
    return torch.from_numpy(covariance), torch.from_numpy(variance), low, high


def _ordered(bits: Any) -> Any:
    """Bits of float32 as whole numbers in the order of the floats (NaN at the ends), and back."""
    return bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))
