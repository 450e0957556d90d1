"""Overlaps of top-k sets for several k and several windows, from a single sort of each map; and their weighted sum."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check, is_number
from standfast.similarity.diverse import find_turns, pick_from_maps, resolve_k, split_maps
from standfast.similarity.local import check_rules, reduce_pair
from standfast.similarity.rank import where_finite
from standfast.similarity.rows import working_dtype
from standfast.similarity.windows import Channels, check_channels, window_minimum
from standfast.tensors import compile_loops, is_on_host, send


def lens_distance(
    a: Tensor,
    b: Tensor,
    k: int | float | Sequence[int | float] | None = None,
    w: int | Sequence[int] = 1,
    diverse: bool = False,
    alpha: float | Sequence[float] | None = None,
    beta: float | Sequence[float] | None = None,
    channels: Channels = "abs_sum",
) -> Tensor:
    """A discrepancy: `sum_k alpha_k sum_w beta_w ((1 - precision) + (1 - recall))` over the given k and w.

    For one k and one w, with weights of 1, it is the paper's d_k^(w). It decreases as w grows (Proposition 1). At w = 0
    it is the same sum of |S_k delta T_k| / k, a metric on rankings, which is an upper bound for all w (Proposition 2).
    For w above 0 it is no metric: different maps can have distance 0.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating.
        b: maps of the same shape.
        k: as in `topk_intersection`; one number or several.
        w: positions at most w away along each axis are near; at least 0; one number or several.
        diverse: select positions none of which lies in the window of another.
        alpha: weight of each k, at least 0 (the paper's weights decrease with k); by default equal weights of sum 1.
        beta: weight of each w, at least 0; by default equal weights of sum 1.
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).

    Returns:
        `(N,)` in [0, 2], times the sums of both weights; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> a, b = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0, 4.0, 0.0]])
    >>> lens_distance(a, b, k=2, w=1), lens_distance(a, b, k=2, w=[0, 1, 2])
    (tensor([1.]), tensor([1.]))
    """
    ks, ws, alphas, betas = check_options(k, w, diverse, alpha, beta, channels)
    shares = _profile(a, b, ks, ws, (diverse,), channels)[diverse]
    missing = (1 - shares.precision) + (1 - shares.recall)
    total = missing.new_zeros(len(missing))
    for i, alpha_k in enumerate(alphas):  # one addition at a time: the same bits in any batch
        for j, beta_w in enumerate(betas):
            total = total + alpha_k * beta_w * missing[:, i, j]
    return total


@dataclass(frozen=True)
class LensProfile:
    """Overlaps of the largest positions of N pairs of maps, for K numbers k and W windows w.

    Attributes:
        k: numbers of positions; shares of the map are converted to numbers.
        w: half widths of the windows.
        intersection: `|S_k n T_k| / k`, `(N, K)`.
        precision: `|S_k n N_w(T_k)| / k`, `(N, K, W)`.
        recall: `|T_k n N_w(S_k)| / k`, `(N, K, W)`.
        intersection_diverse, precision_diverse, recall_diverse: the same for the sets that are diverse for the same w,
            `(N, K, W)`; None if they were not requested.
    """

    k: tuple[int, ...]
    w: tuple[int, ...]
    intersection: Tensor
    precision: Tensor
    recall: Tensor
    intersection_diverse: Tensor | None = None
    precision_diverse: Tensor | None = None
    recall_diverse: Tensor | None = None


def lens_profile(
    a: Tensor,
    b: Tensor,
    k: Sequence[int | float],
    w: Sequence[int],
    diverse: bool = True,
    channels: Channels = "abs_sum",
) -> LensProfile:
    """`topk_intersection`, `lens_precision` and `lens_recall` for all k and w, from a single sort of each map.

    The numbers equal those of the single functions. The chosen positions for a smaller k are the first of those for the
    largest k. So each map is sorted once, and positions are chosen once for each w. A position is near T_k if the first
    chosen position in its window is among the first k, so one number per position and w serves all k.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating.
        b: maps of the same shape.
        k: numbers of positions, or shares of them, as in `topk_intersection`.
        w: half widths of windows, at least 0.
        diverse: also compute the overlaps of diverse sets.
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).

    Returns:
        Shares in [0, 1]; NaN for rows that hold a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or an option is out of range.

    >>> a, b = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0, 4.0, 0.0]])
    >>> lens_profile(a, b, k=[1, 2], w=[0, 1, 2]).precision
    tensor([[[0.00, 0.00, 1.00],
             [0.00, 0.50, 1.00]]])
    """
    check(isinstance(k, Sequence) and len(k) > 0, "k", "a sequence of numbers or shares", k)
    check(isinstance(w, Sequence) and len(w) > 0, "w", "a sequence of whole numbers, at least 0", w)
    check_options(k, w, diverse, channels=channels)
    found = _profile(a, b, k, w, (False, True) if diverse else (False,), channels)
    positions = a.shape[2 if a.ndim == 4 else 1 :].numel()
    counts = tuple(resolve_k(entry, positions) for entry in k)
    plain = (found[False].intersection[:, :, 0], found[False].precision, found[False].recall)
    return LensProfile(counts, tuple(w), *plain, *(found[True] if diverse else ()))


def check_options(
    k: Any = None,
    w: Any = 1,
    diverse: Any = False,
    alpha: Any = None,
    beta: Any = None,
    channels: Any = "abs_sum",
    ties: Any = "position",
    protocol: Any = "paper",
) -> tuple[Sequence[Any], Sequence[int], Sequence[float], Sequence[float]]:
    """k, w and their weights as sequences; raises `ArgumentError` for options that are invalid for every map."""
    ks, ws = _as_sequence(k), _as_sequence(w)
    for entry in ks:
        if entry is not None:
            whole = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 1
            share = isinstance(entry, float) and 0 < entry < 1
            check(whole or share, "k", "a whole number, at least 1, or a share in (0, 1)", entry)
    for entry in ws:
        check_rules(diverse, entry, ties, protocol)
    check_channels(channels)
    return ks, ws, _weights("alpha", alpha, ks), _weights("beta", beta, ws)


def _as_sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def _weights(name: str, given: Any, entries: Sequence[Any]) -> Sequence[float]:
    if given is None:
        return [1 / len(entries)] * len(entries)
    weights = _as_sequence(given)
    fit = len(weights) == len(entries) and all(is_number(w) and 0 <= w < math.inf for w in weights)
    check(fit, name, f"finite numbers, at least 0, as many as there are of {'k' if name == 'alpha' else 'w'}", given)
    return weights


class _Shares(NamedTuple):
    intersection: Tensor  # (N, K, W)
    precision: Tensor
    recall: Tensor


def _profile(
    a: Tensor,
    b: Tensor,
    k: Sequence[int | float | None],
    w: Sequence[int],
    kinds: Sequence[bool],
    channels: Channels,
) -> dict[bool, _Shares]:
    """The shares for plain sets (key False) and for diverse sets (key True), for the requested `kinds`."""
    x, y = (m.detach() for m in reduce_pair(a, b, channels))
    shape = x.shape[1:]
    counts = [resolve_k(entry, shape.numel()) for entry in k]
    dtype = working_dtype(a, b)
    wanted = [(reach if diverse else 0, reach) for diverse in kinds for reach in w]  # the window excluded, and w
    count = _make_counter(shape, counts, compiled=is_on_host(x) and any(window for window, _ in wanted))
    overlaps, sizes = [], []
    for pair in split_maps(x, y):
        sets = [pick_from_maps(maps, max(counts), [window for window, _ in wanted]) for maps in pair]
        overlaps.append(torch.stack([count(sets[0][window], sets[1][window], reach) for window, reach in wanted], -1))
        size = [{window: (one < shape.numel()).sum(1) for window, one in own.items()} for own in sets]
        sizes.append(torch.stack([torch.stack([own[window] for window, _ in wanted], -1) for own in size]))
    of_x, of_y = torch.minimum(torch.cat(sizes, 1)[:, :, None], send(counts, x.device)[:, None])
    shares = torch.cat(overlaps, 1).to(dtype) / torch.stack((torch.maximum(of_x, of_y), of_x, of_y))
    flat = x.flatten(1), y.flatten(1)
    finite = where_finite(*flat, torch.zeros(len(x), dtype=dtype, device=x.device))  # NaN where they are not
    by_kind = torch.split(finite[:, None, None] + shares, len(w), dim=-1)
    return {diverse: _Shares(*own.unbind(0)) for diverse, own in zip(kinds, by_kind, strict=True)}


def _make_counter(shape: torch.Size, counts: Sequence[int], compiled: bool) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The function `(s, t, w)` that counts the overlaps `(3, N, K)` of picked positions `(N, k)`.

    They are `|S_k n T_k|`, `|S_k n N_w(T_k)|` and `|T_k n N_w(S_k)|` for each k of `counts`.
    """
    add = compile_overlaps() if compiled else None
    if add is None:
        return functools.partial(_count_overlaps, shape=shape, counts=counts)
    height, width = shape if len(shape) == 2 else (1, *shape)
    turns = np.full((2, shape.numel()), max(counts), dtype=np.int32)
    most = np.array(counts)

    def count(s: Tensor, t: Tensor, w: int) -> Tensor:
        found = np.zeros((3, len(s), len(most)), dtype=np.int64)
        picked = (one.contiguous().numpy() for one in (s, t))
        add(*picked, height, width, min(w, max(height, width)), most, turns, found)
        return torch.from_numpy(found)

    return count


def _count_overlaps(s: Tensor, t: Tensor, w: int, shape: torch.Size, counts: Sequence[int]) -> Tensor:
    """The overlaps that `_make_counter` describes.

    The i-th position of S is in S_k for k > i. It is near T_k if k is larger than the smallest turn of T in its window.
    """
    of_s, of_t = find_turns(s, shape), find_turns(t, shape)
    common = _needed(s, of_t)
    precise = _needed(s, window_minimum(of_t, w))
    recalled = _needed(t, window_minimum(of_s, w))
    return torch.stack([torch.stack([(one < k).sum(1) for k in counts], 1) for one in (common, precise, recalled)])


def _needed(picked: Tensor, turns: Tensor) -> Tensor:
    """For each picked position the number that k must exceed for it to count, `(N, k)`; the largest int32 for none."""
    own = torch.arange(picked.shape[1], device=picked.device, dtype=turns.dtype)
    flat = turns.flatten(1)
    needed = torch.maximum(flat.gather(1, picked.clamp(max=flat.shape[1] - 1)), own)
    return torch.where(picked < flat.shape[1], needed, torch.iinfo(turns.dtype).max)


@functools.cache
def compile_overlaps() -> Callable[..., None] | None:
    """`_add_overlaps` as machine code; None without numba (extra `fast`)."""
    signature = "void(int64[:, ::1], int64[:, ::1], int64, int64, int64, int64[::1], int32[:, ::1], int64[:, :, ::1])"
    return compile_loops(_add_overlaps, signature)


def _add_overlaps(s: Any, t: Any, height: int, width: int, w: int, counts: Any, turns: Any, found: Any) -> None:
    """Add to `found` `(3, N, K)` what `_count_overlaps` returns; visits only the windows of chosen positions.

    `turns` `(2, P)` is working memory for the turn of each position in T and in S. A position that was not chosen has
    the largest of `counts`, and is in no set; all have it before and after.
    """
    positions, picks, least, none = height * width, s.shape[1], counts.min(), counts.max()
    for row in range(len(s)):
        for side in range(2):
            others = t if side == 0 else s
            for turn in range(picks):
                if others[row, turn] < positions:
                    turns[side, others[row, turn]] = turn
        for side in range(2):
            picked = s if side == 0 else t
            for turn in range(picks):
                position = picked[row, turn]
                if position >= positions:
                    break
                if side == 0:
                    needed = max(turn, turns[0, position])
                    for place in range(len(counts)):
                        found[0, row, place] += needed < counts[place]
                i, j = position // width, position % width
                nearest, near_enough = none, max(turn, least - 1)
                for p in range(max(i - w, 0), min(i + w + 1, height)):
                    for q in range(p * width + max(j - w, 0), p * width + min(j + w + 1, width)):
                        nearest = min(nearest, turns[side, q])
                    if nearest <= near_enough:
                        break  # a still smaller turn changes no number
                needed = max(turn, nearest)
                for place in range(len(counts)):
                    found[1 + side, row, place] += needed < counts[place]
        for side in range(2):
            others = t if side == 0 else s
            for turn in range(picks):
                if others[row, turn] < positions:
                    turns[side, others[row, turn]] = none
