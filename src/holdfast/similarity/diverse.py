"""The k largest positions of a map, and the k largest positions that are not close to each other (diverse positions).

Diverse positions are chosen greedily: the largest, then the largest outside its window, and so on (Kamath, Mittal,
Deshpande, Balasubramanian, AAAI 2024, Sec. 4). The paper says that this set has the largest total. In general it does
not: sets without close neighbours form no matroid, and one large position can exclude two positions with a larger sum.

On a CPU with numba (extra `fast`), compiled code walks down the ranking. On other devices, and without numba, parallel
rounds do the same: each round chooses every position that comes first in its window, and excludes their windows.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.similarity.windows import check_positions, check_window, dilate, window_minimum

CHUNK_ELEMENTS = 1 << 17  # positions processed at a time; each needs about 40 bytes of working memory
_ROUNDS = 8  # rounds between two tests for the end: a test waits for the device


def top_k(a: Tensor, k: int | float | None = None) -> Tensor:
    """The k positions with the largest values, S_k. Among equal values, lower flat indices come first.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values are compared with their sign.
        k: a number of positions, from 1 to all; or a share of them in (0, 1), rounded to the nearest number but at
            least 1; by default a tenth.

    Returns:
        A bool mask of the shape of `a`; all False for a map with a NaN or an infinity.

    Raises:
        ArgumentError: `a` has another shape or type, or k is out of range.

    >>> top_k(torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), 2)
    tensor([[ True, False,  True, False],
            [ True,  True, False, False]])
    """
    check_positions(a)
    x = a.detach().flatten(1)
    return (mask_largest(x, resolve_k(k, x.shape[1])) & _finite(x)).view(a.shape)


def top_k_diverse(a: Tensor, k: int | float | None = None, w: int = 1) -> Tensor:
    """Up to k positions with large values, none in the window of another, chosen greedily.

    The largest value comes first; among equal values, lower flat indices come first. The choice is greedy, not
    optimal: another such set may have a larger total. The set for k is contained in the set for any larger k.
    With w = 0 the result is that of `top_k`.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values are compared with their sign.
        k: as in `top_k`.
        w: a chosen position excludes all positions at most w away along each axis; at least 0.

    Returns:
        A bool mask of the shape of `a`, with fewer than k positions where no more fit; all False for a map with a NaN
        or an infinity.

    Raises:
        ArgumentError: `a` has another shape or type, or an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 4.

    >>> top_k_diverse(torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0]]), 2, w=1)
    tensor([[ True, False,  True, False, False]])
    """
    check_positions(a)
    check_window(w)
    count = resolve_k(k, a.shape[1:].numel())
    if w == 0:
        return top_k(a, k)
    parts = []
    for x in split_maps(a.detach()):
        turns = find_turns(pick_positions(rank_positions(x.flatten(1)), x.shape[1:], count, w), x.shape[1:])
        parts.append((turns < count) & _finite(x.flatten(1)).view(-1, *(1,) * (x.ndim - 1)))
    return torch.cat(parts)


def resolve_k(k: int | float | None, positions: int) -> int:
    """The number of positions that `k` stands for, of `positions` in all; raises `ArgumentError` if out of range."""
    if k is None:
        k = 0.1
    expected = f"a whole number from 1 to {positions} or a share in (0, 1)"
    if isinstance(k, float):
        check(0 < k < 1, "k", expected, k)
        return max(1, round(k * positions))
    check(isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= positions, "k", expected, k)
    return k


def mask_largest(x: Tensor, k: int) -> Tensor:
    """Mask `(N, P)` of the first k positions of a stable descending sort, computed without sorting."""
    threshold = x.topk(k, dim=1).values[:, -1:]
    above, tied = x > threshold, x == threshold
    wanted = k - above.sum(1, keepdim=True)
    return above | (tied & (tied.cumsum(1) <= wanted))


def rank_positions(x: Tensor) -> Tensor:
    """Positions `(N, P)`, int64, in descending order of value; among equal values the lower position comes first.

    On a CPU, float32 values are packed into integers, the value in the upper half and the position in the lower half.
    NumPy sorts these several times as fast as a sort that returns indices.
    """
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    x = x + 0.0  # -0.0 and 0.0 become equal
    if x.device.type != "cpu" or x.dtype != torch.float32 or x.shape[1] >= 1 << 31:
        return x.sort(dim=1, descending=True, stable=True).indices
    bits = x.contiguous().numpy().view(np.int32)
    ordered = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))  # integers in the order of the values
    keys = (~ordered).astype(np.int64)
    keys <<= 32
    keys |= np.arange(x.shape[1])
    keys.sort(axis=1)
    keys &= 0xFFFFFFFF
    return torch.from_numpy(keys)


def pick_positions(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """The first k positions of a ranking `(N, P)` of maps of that shape, each outside the windows of those before it.

    Returns:
        Positions `(N, k)`, int64, in the order in which they are chosen; P where no more fit.
    """
    if w == 0:
        return order[:, :k]
    height, width = shape if len(shape) == 2 else (1, *shape)
    w = min(w, max(height, width))
    walk = compile_walk() if order.device.type == "cpu" else None
    if walk is None:
        return _rounds(order, shape, k, w)
    picked = np.full((len(order), k), order.shape[1])
    walk(order.contiguous().numpy(), height, width, w, picked)
    return torch.from_numpy(picked)


def find_turns(picked: Tensor, shape: torch.Size) -> Tensor:
    """When each position was chosen, int32 `(N, *shape)`, counted from 0; the largest int32 if it was not chosen."""
    positions = shape.numel()
    turns = picked.new_full((len(picked), positions + 1), torch.iinfo(torch.int32).max, dtype=torch.int32)
    turn = torch.arange(picked.shape[1], device=picked.device, dtype=torch.int32)
    turns.scatter_(
        1, picked, turn.expand(picked.shape)
    )  # P, which means none, goes to the last column, which is cut off
    return turns[:, :positions].reshape(-1, *shape)


def split_maps(*maps: Tensor) -> Iterator[Any]:
    """Split a batch of maps into split_maps of a bounded size; several batches are split at the same rows."""
    rows = max(1, CHUNK_ELEMENTS // maps[0].shape[1:].numel())
    parts = [torch.split(entry, rows) for entry in maps]
    return iter(parts[0]) if len(maps) == 1 else zip(*parts, strict=True)


@functools.cache
def compile_walk() -> Callable[..., None] | None:
    """`_walk` as machine code, cached on disk if possible; None without numba (extra `fast`)."""
    try:
        import numba
    except ImportError:
        return None
    signature = "void(int64[:, ::1], int64, int64, int64, int64[:, ::1])"
    compiled: Callable[..., None]
    try:
        compiled = numba.njit(signature, nogil=True, cache=True)(_walk)
    except (RuntimeError, OSError):  # no directory for the cache
        compiled = numba.njit(signature, nogil=True)(_walk)
    return compiled


def _walk(order: Any, height: int, width: int, w: int, picked: Any) -> None:
    """Go down each ranking `(N, P)`, skip the excluded positions, and stop when `picked` `(N, k)` is full."""
    rows, positions = order.shape
    wanted = picked.shape[1]
    excluded = np.empty(positions, np.bool_)
    for row in range(rows):
        excluded[:] = False
        found = 0
        for turn in range(positions):
            position = order[row, turn]
            if excluded[position]:
                continue
            picked[row, found] = position
            found += 1
            if found == wanted:
                break
            i, j = position // width, position % width
            for p in range(max(i - w, 0), min(i + w + 1, height)):
                for q in range(max(j - w, 0), min(j + w + 1, width)):
                    excluded[p * width + q] = True


def _rounds(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """The same choice as `_walk`, in parallel rounds over whole maps.

    Each round chooses all free positions that come first in their window. The number of rounds is the length of the
    longest chain of positions each of which has to wait for the one before it.
    """
    positions = order.shape[1]
    last = torch.iinfo(torch.int32).max
    place = torch.arange(positions, device=order.device, dtype=torch.int32)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(1, order, place.expand(order.shape)).view(-1, *shape)
    free = torch.ones_like(rank, dtype=torch.bool)
    chosen = torch.zeros_like(free)
    undecided = len(order) > 0
    while undecided:
        for _ in range(_ROUNDS):
            waiting = torch.where(free, rank, last)
            first = free & (waiting == window_minimum(waiting, w))
            chosen |= first
            free &= ~dilate(first, w)
        # the chosen positions that rank before every free one are final
        next_free = torch.where(free, rank, last).flatten(1).amin(1)
        final = (chosen & (rank < next_free.view(-1, *(1,) * len(shape)))).flatten(1).sum(1)
        undecided = bool(((final < k) & (next_free < last)).any())
    ranks = torch.where(chosen, rank, last).flatten(1).topk(k, dim=1, largest=False).values.long()
    return torch.where(ranks < last, order.gather(1, ranks.clamp(max=positions - 1)), positions)


def _finite(x: Tensor) -> Tensor:
    """Whether each row `(N, P)` is finite, `(N, 1)`: whether its extreme values are."""
    return torch.isfinite(x.amin(1, keepdim=True)) & torch.isfinite(x.amax(1, keepdim=True))
