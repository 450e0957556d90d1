"""The k largest positions of a map, and the k largest that keep apart from each other.

Diverse positions are taken greedily: the largest, then the largest outside of its window, and so on (Kamath, Mittal,
Deshpande, Balasubramanian, AAAI 2024, Sec. 4). The paper says that this is the set of the largest total. It is not,
in general: sets without close neighbours form no matroid, and one large position can bar two whose sum is larger.

There are two ways to the same set. On a CPU, with numba (extra `fast`), a compiled walk goes down the ranking.
On other devices, and without numba, parallel rounds take every position that comes first in its window, which is one
that the walk takes, and bar the windows of these.
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

CHUNK_ELEMENTS = 1 << 17  # positions worked on at a time; about 40 bytes of working memory each
_ROUNDS = 8  # between two looks at whether all is decided: a look waits for the device


def top_k(a: Tensor, k: int | float | None = None) -> Tensor:
    """The k positions of largest value, S_k; of equal values the position of lowest flat index comes first.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values count with their sign.
        k: a number of positions, from 1 to all, or a share of them in (0, 1), rounded to the nearest number but at
            least 1; by default a tenth.

    Returns:
        A bool mask, as `a`; nothing is chosen in a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: another shape or type, or k is out of range.

    >>> top_k(torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), 2)
    tensor([[ True, False,  True, False],
            [ True,  True, False, False]])
    """
    check_positions(a)
    x = a.detach().flatten(1)
    return (largest(x, resolve_k(k, x.shape[1])) & _finite(x)).view(a.shape)


def top_k_diverse(a: Tensor, k: int | float | None = None, w: int = 1) -> Tensor:
    """Up to k positions of large value, none in the window of another: greedily, the largest first.

    Greedy, not optimal: another such set may have a larger total. Of equal values the position of lowest flat
    index comes first. The sets for growing k are nested. With w = 0 the same as `top_k`.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values count with their sign.
        k: as in `top_k`.
        w: positions on each side that a chosen one bars, at least 0.

    Returns:
        A bool mask, as `a`, of fewer than k positions where no more fit; nothing is chosen in a row that holds a NaN
        or an infinity.

    Raises:
        ArgumentError: another shape or type, or an option is out of range.

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
    for x in chunks(a.detach()):
        turns = turns_of(pick(ranking(x.flatten(1)), x.shape[1:], count, w), x.shape[1:])
        parts.append((turns < count) & _finite(x.flatten(1)).view(-1, *(1,) * (x.ndim - 1)))
    return torch.cat(parts)


def resolve_k(k: int | float | None, positions: int) -> int:
    """How many of so many positions `k` means; raises `ArgumentError` where it means none."""
    if k is None:
        k = 0.1
    expected = f"a whole number from 1 to {positions} or a share in (0, 1)"
    if isinstance(k, float):
        check(0 < k < 1, "k", expected, k)
        return max(1, round(k * positions))
    check(isinstance(k, int) and not isinstance(k, bool) and 1 <= k <= positions, "k", expected, k)
    return k


def largest(x: Tensor, k: int) -> Tensor:
    """Mask `(N, P)` of the first k positions in a stable descending sort, without sorting."""
    threshold = x.topk(k, dim=1).values[:, -1:]
    above, tied = x > threshold, x == threshold
    wanted = k - above.sum(1, keepdim=True)
    return above | (tied & (tied.cumsum(1) <= wanted))


def ranking(x: Tensor) -> Tensor:
    """Positions `(N, P)`, int64, by descending value; of equal values the lower position first.

    On a CPU values up to float32 are sorted as whole numbers, the value in their upper half and the position in the
    lower, which numpy does several times as fast as a sort that returns indices.
    """
    if x.dtype in (torch.float16, torch.bfloat16):
        x = x.float()
    x = x + 0.0  # the two zeros are a tie
    if x.device.type != "cpu" or x.dtype != torch.float32 or x.shape[1] >= 1 << 31:
        return x.sort(dim=1, descending=True, stable=True).indices
    bits = x.contiguous().numpy().view(np.int32)
    ordered = bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF))  # whole numbers in the order of the values
    keys = (~ordered).astype(np.int64)
    keys <<= 32
    keys |= np.arange(x.shape[1])
    keys.sort(axis=1)
    keys &= 0xFFFFFFFF
    return torch.from_numpy(keys)


def pick(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """The first k of a ranking `(N, P)` of maps of that shape that lie in no earlier one's window.

    Returns:
        Positions `(N, k)`, int64, in the order in which they are taken; P where no more fit.
    """
    if w == 0:
        return order[:, :k]
    height, width = shape if len(shape) == 2 else (1, *shape)
    w = min(w, max(height, width))
    walk = compiled_walk() if order.device.type == "cpu" else None
    if walk is None:
        return _rounds(order, shape, k, w)
    picked = np.full((len(order), k), order.shape[1])
    walk(order.contiguous().numpy(), height, width, w, picked)
    return torch.from_numpy(picked)


def turns_of(picked: Tensor, shape: torch.Size) -> Tensor:
    """When each position was taken, int32 `(N, *shape)`, counted from 0; the largest int32 where it was not."""
    positions = shape.numel()
    turns = picked.new_full((len(picked), positions + 1), torch.iinfo(torch.int32).max, dtype=torch.int32)
    turn = torch.arange(picked.shape[1], device=picked.device, dtype=torch.int32)
    turns.scatter_(1, picked, turn.expand(picked.shape))  # what is none goes to the last place, which is cut off
    return turns[:, :positions].reshape(-1, *shape)


def chunks(*maps: Tensor) -> Iterator[Any]:
    """The maps, or rows of several at once, a bounded number of rows at a time."""
    rows = max(1, CHUNK_ELEMENTS // maps[0].shape[1:].numel())
    parts = [torch.split(entry, rows) for entry in maps]
    return iter(parts[0]) if len(maps) == 1 else zip(*parts, strict=True)


@functools.cache
def compiled_walk() -> Callable[..., None] | None:
    """`_walk` as machine code, kept on disk where that can be; None without numba (extra `fast`)."""
    try:
        import numba
    except ImportError:
        return None
    signature = "void(int64[:, ::1], int64, int64, int64, int64[:, ::1])"
    compiled: Callable[..., None]
    try:
        compiled = numba.njit(signature, nogil=True, cache=True)(_walk)
    except (RuntimeError, OSError):  # nowhere to keep it
        compiled = numba.njit(signature, nogil=True)(_walk)
    return compiled


def _walk(order: Any, height: int, width: int, w: int, picked: Any) -> None:
    """Down each ranking `(N, P)`, past the positions that are barred, until `picked` `(N, k)` is full."""
    rows, positions = order.shape
    wanted = picked.shape[1]
    barred = np.empty(positions, np.bool_)
    for row in range(rows):
        barred[:] = False
        found = 0
        for turn in range(positions):
            position = order[row, turn]
            if barred[position]:
                continue
            picked[row, found] = position
            found += 1
            if found == wanted:
                break
            i, j = position // width, position % width
            for p in range(max(i - w, 0), min(i + w + 1, height)):
                for q in range(max(j - w, 0), min(j + w + 1, width)):
                    barred[p * width + q] = True


def _rounds(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """As the walk, by whole maps at once; as many rounds as the longest chain of positions that wait for each other."""
    positions = order.shape[1]
    late = torch.iinfo(torch.int32).max
    place = torch.arange(positions, device=order.device, dtype=torch.int32)
    rank = torch.empty_like(order, dtype=torch.int32).scatter_(1, order, place.expand(order.shape)).view(-1, *shape)
    free = torch.ones_like(rank, dtype=torch.bool)
    taken = torch.zeros_like(free)
    undecided = len(order) > 0
    while undecided:
        for _ in range(_ROUNDS):
            waiting = torch.where(free, rank, late)
            first = free & (waiting == window_minimum(waiting, w))
            taken |= first
            free &= ~dilate(first, w)
        # What comes before all that is free is decided.
        next_free = torch.where(free, rank, late).flatten(1).amin(1)
        decided = (taken & (rank < next_free.view(-1, *(1,) * len(shape)))).flatten(1).sum(1)
        undecided = bool(((decided < k) & (next_free < late)).any())
    ranks = torch.where(taken, rank, late).flatten(1).topk(k, dim=1, largest=False).values.long()
    return torch.where(ranks < late, order.gather(1, ranks.clamp(max=positions - 1)), positions)


def _finite(x: Tensor) -> Tensor:
    """Whether each row `(N, P)` is finite, `(N, 1)`; the extremes tell."""
    return torch.isfinite(x.amin(1, keepdim=True)) & torch.isfinite(x.amax(1, keepdim=True))
