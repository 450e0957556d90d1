"""The k largest positions of a map, and the k largest positions that are not close to each other (diverse positions).

Diverse positions are chosen greedily: the largest, then the largest outside its window, and so on (Kamath, Mittal,
Deshpande, Balasubramanian, AAAI 2024, Sec. 4). The paper says that this set has the largest total. In general it does
not: sets without close neighbours form no matroid, and one large position can exclude two positions with a larger sum.

On a CPU with numba (extra `fast`), compiled code walks down the ranking. Without numba, a loop in Python does so for
large maps. For small maps without numba, and on other devices, parallel rounds choose the same: each round chooses
every position that comes first in its window, and excludes the windows of these.

Equal values have no order. Where they decide which positions are chosen, `ties` says how; a map of zeros outside of a
few positions is the usual case.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor

from standfast.errors import as_number, check, check_choice, check_integer
from standfast.similarity.rows import order_rows
from standfast.similarity.windows import check_positions, dilate, window_minimum
from standfast.tensors import compile_loops, count_at_once, is_on_host, widen_half

# positions processed at a time; each needs about 40 bytes of working memory
CHUNK_ELEMENTS = 1 << 17
#: how equal values are ordered: by position, at random, or not at all (a set that needs a zero is then undefined)
Ties = Literal["position", "random", "undefined"]
_LARGE_MAP = 1 << 13  # positions from which on it is worth while to rank only some of them
_ROUNDS = 8  # rounds between two tests for the end: a test waits for the device


def top_k(a: Tensor, k: int | float | None = None, ties: Ties = "position") -> Tensor:
    """The k positions with the largest values, S_k.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values are compared with their sign.
        k: a number of positions, from 1 to all; or a share of them in (0, 1), rounded to the nearest number but at
            least 1; by default a tenth.
        ties: which of equal values come first: `position`, lower flat indices; `random`, positions in a random order,
            which depends on the shape of the maps only, so that equal maps have equal sets; `undefined`, no set for
            a map of whose k largest values one is 0.

    Returns:
        A bool mask of the shape of `a`; all False for a map with a NaN or an infinity, or without a set.

    Raises:
        ArgumentError: `a` has another shape or type, or an option is out of range.

    >>> top_k(torch.tensor([[3.0, 1.0, 3.0, 2.0], [0.0, 0.0, 0.0, 0.0]]), 2)
    tensor([[ True, False,  True, False],
            [ True,  True, False, False]])
    """
    check_positions(a)
    check_choice(ties, "ties", get_args(Ties))
    x = a.detach().flatten(1)
    positions = x.shape[1]
    count = resolve_k(k, positions)
    if ties == "random":
        order = shuffle_positions(positions, x.device)
        mask = torch.empty_like(x, dtype=torch.bool)
        mask[:, order] = mask_largest(x[:, order], count)
    else:
        mask = mask_largest(x, count)
    return _keep_defined(mask, x, ties).view(a.shape)


def top_k_diverse(
    a: Tensor, k: int | float | None = None, w: int = 1, ties: Ties = "position"
) -> Tensor:
    """Up to k positions with large values, none in the window of another, chosen greedily.

    The largest value comes first. The choice is greedy, not optimal: another such set may have a larger total. The set
    for k is contained in the set for any larger k. With w = 0 the result is that of `top_k`.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; values are compared with their sign.
        k: as in `top_k`.
        w: a chosen position excludes all positions at most w away along each axis; at least 0.
        ties: as in `top_k`.

    Returns:
        A bool mask of the shape of `a`, with fewer than k positions where no more fit; all False for a map with a NaN
        or an infinity, or without a set.

    Raises:
        ArgumentError: `a` has another shape or type, or an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 4.

    >>> top_k_diverse(torch.tensor([[9.0, 8.0, 7.0, 6.0, 5.0]]), 2, w=1)
    tensor([[ True, False,  True, False, False]])
    """
    check_positions(a)
    check_integer(w, "w", 0)
    check_choice(ties, "ties", get_args(Ties))
    count = resolve_k(k, a.shape[1:].numel())
    if w == 0:
        return top_k(a, k, ties)
    parts = []
    for x in split_maps(a.detach()):
        flat = x.flatten(1)
        shape = x.shape[1:]
        if ties == "random":
            shuffled = shuffle_positions(shape.numel(), x.device)
            order = shuffled[rank_positions(flat[:, shuffled])]
            picked = pick_positions(order, shape, count, w)
        else:
            picked = pick_from_maps(x, count, [w])[w]
        mask = (find_turns(picked, shape) < count).flatten(1)
        parts.append(_keep_defined(mask, flat, ties).view(x.shape))
    return torch.cat(parts)


def shuffle_positions(positions: int, device: torch.device) -> Tensor:
    """All positions in a random order, int64 `(P,)`; the same in every call."""
    generator = torch.Generator().manual_seed(positions)
    return torch.randperm(positions, generator=generator).to(device)


def resolve_k(k: int | float | None, positions: int) -> int:
    """The number of positions that `k` stands for, of `positions` in all; raises `ArgumentError` if out of range."""
    number: int | float = 0.1 if k is None else as_number(k)
    expected = f"a whole number from 1 to {positions} or a share in (0, 1)"
    if isinstance(number, float):
        check(0 < number < 1, "k", expected, number)
        return max(1, round(number * positions))
    check(
        isinstance(number, int) and not isinstance(number, bool) and 1 <= number <= positions,
        "k",
        expected,
        number,
    )
    return number


def mask_largest(x: Tensor, k: int) -> Tensor:
    """Mask `(N, P)` of the first k positions of a stable descending sort, computed without sorting."""
    threshold = x.topk(k, dim=1).values[:, -1:]
    above = x > threshold
    tied = x == threshold
    # a tie at the threshold: the first ones in the map fill what is left
    room_for_ties = k - above.sum(1, keepdim=True)
    has_room = tied.cumsum(1) <= room_for_ties
    return above | (tied & has_room)


def rank_positions(x: Tensor, most: int | None = None) -> Tensor:
    """Positions of `(N, P)`, int64, in descending order of value; among equal values the lower position comes first.

    Args:
        x: the values.
        most: how many are wanted; by default all P. The first tenth of a large map takes a quarter of the time.

    Returns:
        `(N, P)` or `(N, most)`; arbitrary for a row with a NaN.
    """
    below = 0.0 - x  # ascending, which is descending for x; 0.0 - 0.0 and 0.0 - -0.0 are equal
    positions = x.shape[1]
    if most is None:
        most = positions
    most = min(most, positions)
    is_large = is_on_host(x) and positions >= _LARGE_MAP
    if not is_large or 2 * most > positions or not len(x):
        return order_rows(below)[:, :most]
    orders = []
    for row in below:  # a row of a large map is enough work for one call
        values = widen_half(row).numpy()
        threshold = np.partition(values, most - 1)[most - 1]
        kept = np.flatnonzero(values <= threshold)
        if len(kept) < most:  # a row with NaN
            kept = np.arange(positions)
        kept_values = torch.from_numpy(values[kept])[None]
        order = order_rows(kept_values)[0, :most]
        orders.append(kept[order.numpy()])
    return torch.from_numpy(np.stack(orders))


def pick_from_maps(x: Tensor, k: int, windows: Sequence[int]) -> dict[int, Tensor]:
    """For each window w, the first k positions of the ranking of maps `(N, ...)`, as `pick_positions` chooses them.

    Only the part of the ranking is computed from which the positions are likely to come, and all of it if they do not.
    """
    flat = x.flatten(1)
    shape = x.shape[1:]
    positions = flat.shape[1]
    widest = max(windows)
    # how many positions of the ranking are needed; None for all
    first = None
    if widest == 0:
        if is_on_host(x):
            first = k
    elif _find_walk(x.device, shape) is not None:
        # on smooth maps about (w + 1)^2 positions have to be passed for each that is chosen
        first = round(k * (widest + 1.5) ** 2)
    order = rank_positions(flat, first)
    picked = {}
    for w in sorted(set(windows)):
        chosen = pick_positions(order, shape, k, w)
        # P stands in the last place: the beginning of the ranking was too short for k positions
        is_partial = order.shape[1] < positions
        if is_partial and bool((chosen[:, -1] == positions).any()):
            order = rank_positions(flat)
            chosen = pick_positions(order, shape, k, w)
        picked[w] = chosen
    return picked


def pick_positions(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """The first k positions of a ranking of maps of that shape, each outside the windows of those before it.

    Args:
        order: the ranking, `(N, P)`; or only its beginning, `(N, m)`, from `pick_from_maps`.
        shape: of a map, with P positions.
        k: how many are chosen at most.
        w: half width of the windows.

    Returns:
        Positions `(N, k)`, int64, in the order in which they are chosen; P where no more fit.
    """
    if w == 0:
        return order[:, :k]
    # a series is an image of one row
    height = shape[0] if len(shape) == 2 else 1
    width = shape[-1]
    w = min(w, max(height, width))
    walk = _find_walk(order.device, shape)
    if walk is None:
        return _rounds(order, shape, k, w)
    picked = np.full((len(order), k), shape.numel())
    rankings = order.contiguous().numpy()
    walk(rankings, height, width, w, picked)
    return torch.from_numpy(picked)


def find_turns(picked: Tensor, shape: torch.Size) -> Tensor:
    """When each position was chosen, int32 `(N, *shape)`, counted from 0; the largest int32 if it was not chosen."""
    positions = shape.numel()
    never = torch.iinfo(torch.int32).max
    turns = picked.new_full((len(picked), positions + 1), never, dtype=torch.int32)
    turn = torch.arange(picked.shape[1], device=picked.device, dtype=torch.int32)
    # P, which means none, goes to the last column, which is cut off
    turns.scatter_(1, picked, turn.expand(picked.shape))
    return turns[:, :positions].reshape(-1, *shape)


def split_maps(*maps: Tensor) -> Iterator[Any]:
    """Split a batch of maps into split_maps of a bounded size; several batches are split at the same rows."""
    positions = maps[0].shape[1:].numel()
    elements = count_at_once(CHUNK_ELEMENTS, maps[0])
    rows = max(1, elements // positions)
    parts = [torch.split(entry, rows) for entry in maps]
    if len(maps) == 1:
        return iter(parts[0])
    return zip(*parts, strict=True)


def _find_walk(device: torch.device, shape: torch.Size) -> Callable[..., None] | None:
    """The fastest walk down the rankings of maps of that shape; None where the parallel rounds are faster."""
    if not is_on_host(device):
        return None
    compiled = compile_walk()
    if compiled is not None:
        return compiled
    if shape.numel() >= _LARGE_MAP:
        return _walk_by_slices
    return None


@functools.cache
def compile_walk() -> Callable[..., None] | None:
    """`_walk` as machine code; None without numba (extra `fast`)."""
    return compile_loops(_walk, "void(int64[:, ::1], int64, int64, int64, int64[:, ::1])")


def _walk(order: Any, height: int, width: int, w: int, picked: Any) -> None:
    """Go down each ranking `(N, m)`, skip the excluded positions, and stop when `picked` `(N, k)` is full."""
    rows, ranked = order.shape
    most = picked.shape[1]
    excluded = np.empty(height * width, np.bool_)
    for row in range(rows):
        excluded[:] = False
        count = 0
        for turn in range(ranked):
            position = order[row, turn]
            if excluded[position]:
                continue
            picked[row, count] = position
            count += 1
            if count == most:
                break
            i = position // width
            j = position % width
            for p in range(max(i - w, 0), min(i + w + 1, height)):
                for q in range(max(j - w, 0), min(j + w + 1, width)):
                    excluded[p * width + q] = True


def _walk_by_slices(order: Any, height: int, width: int, w: int, picked: Any) -> None:
    """The same choice as `_walk`, for Python: it excludes a window by one assignment."""
    for ranking, chosen in zip(order.tolist(), picked, strict=True):
        free = np.ones((height, width), dtype=bool)
        flat = free.reshape(-1)
        count = 0
        for position in ranking:
            if not flat[position]:
                continue
            chosen[count] = position
            count += 1
            if count == len(chosen):
                break
            i, j = divmod(position, width)
            rows = slice(max(i - w, 0), i + w + 1)
            columns = slice(max(j - w, 0), j + w + 1)
            free[rows, columns] = False


def _rounds(order: Tensor, shape: torch.Size, k: int, w: int) -> Tensor:
    """The same choice as `_walk`, in parallel rounds over whole maps.

    Each round chooses all free positions that come first in their window. The number of rounds is the length of the
    longest chain of positions each of which has to wait for the one before it.
    """
    positions = order.shape[1]
    last = torch.iinfo(torch.int32).max
    numbers = torch.arange(positions, device=order.device, dtype=torch.int32)
    ranks_of_positions = torch.empty_like(order, dtype=torch.int32)
    ranks_of_positions.scatter_(1, order, numbers.expand(order.shape))
    rank = ranks_of_positions.view(-1, *shape)
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
        next_free_of_map = next_free.view(-1, *(1,) * len(shape))
        is_final = chosen & (rank < next_free_of_map)
        final = is_final.flatten(1).sum(1)
        is_short = (final < k) & (next_free < last)
        undecided = bool(is_short.any())
    rank_of_chosen = torch.where(chosen, rank, last).flatten(1)
    ranks = rank_of_chosen.topk(k, dim=1, largest=False).values.long()
    picked = order.gather(1, ranks.clamp(max=positions - 1))
    return torch.where(ranks < last, picked, positions)


def _keep_defined(mask: Tensor, x: Tensor, ties: Ties) -> Tensor:
    """The sets `(N, P)` chosen from maps `(N, P)`; empty for maps that are not finite or have no set."""
    defined = _finite(x)
    if ties == "undefined":
        has_zero = (mask & (x == 0)).any(1, keepdim=True)
        defined = defined & ~has_zero
    return mask & defined


def _finite(x: Tensor) -> Tensor:
    """Whether each row `(N, P)` is finite, `(N, 1)`: whether its extreme values are."""
    least = x.amin(1, keepdim=True)
    most = x.amax(1, keepdim=True)
    return torch.isfinite(least) & torch.isfinite(most)
