"""Overlaps of top-k sets for several k and several windows, from a single sort of each map; and their weighted sum."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from standfast.errors import check, check_integer
from standfast.records import CountFromZero, CountOrFraction
from standfast.similarity.base import Discrepancy, similarities
from standfast.similarity.diverse import find_turns, pick_from_maps, resolve_k, split_maps
from standfast.similarity.local import LensPrecision, LensRecall, Positional, reduce_pair
from standfast.similarity.rank import where_finite
from standfast.similarity.rows import working_dtype
from standfast.similarity.windows import window_minimum
from standfast.tensors import compile_loops, is_on_host, send


@similarities.register("lens_distance")
@dataclass(frozen=True)
class LensDistance(Positional, Discrepancy):
    """A discrepancy: the mean of `(1 - precision) + (1 - recall)` over the given k and w.

    For one k and one w it is the paper's d_k^(w). It decreases as w grows (Proposition 1). At w = 0 it is the same mean
    of |S_k delta T_k| / k, a metric on rankings, which is an upper bound for all w (Proposition 2). For w above 0 it is
    no metric: different maps can have distance 0. It lies in [0, 2].

    Args:
        k: as in `TopKIntersection`; one number or several.
        w: positions at most w away along each axis are near; at least 0; one number or several.
        diverse: select positions none of which lies in the window of another.

    Raises:
        ArgumentError: an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1.

    >>> a, b = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0, 4.0, 0.0]])
    >>> LensDistance(k=2, w=1)(a, b), LensDistance(k=2, w=(0, 1, 2))(a, b)
    (tensor([1.]), tensor([1.]))
    """

    name = "lens_distance"
    ordinal = True

    k: CountOrFraction | tuple[CountOrFraction, ...] | None = None
    w: CountFromZero | tuple[CountFromZero, ...] = 1
    diverse: bool = False

    def _average(self, find_shares: Callable[[int, int], tuple[Tensor, Tensor]]) -> Tensor:
        """The mean for precision and recall `(N,)` of the k and the w with these numbers."""
        ks = range(len(_as_sequence(self.k)))
        ws = range(len(_as_sequence(self.w)))
        weight = 1 / len(ks) * (1 / len(ws))
        # one addition at a time: the same bits in any batch
        total: Tensor | None = None
        for i, j in itertools.product(ks, ws):
            precision, recall = find_shares(i, j)
            distance = weight * ((1 - precision) + (1 - recall))
            total = distance if total is None else total + distance
        assert total is not None
        return total

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.reduce_pair(a, b)
        ks = _as_sequence(self.k)
        ws = _as_sequence(self.w)
        shares = _profile(x, y, ks, ws, (self.diverse,))[self.diverse]

        def find_shares(i: int, j: int) -> tuple[Tensor, Tensor]:
            return shares.precision[:, i, j], shares.recall[:, i, j]

        return self._average(find_shares)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """The largest positions of the part, as for `LensPrecision`."""
        ks = _as_sequence(self.k)
        ws = _as_sequence(self.w)

        def find_shares(i: int, j: int) -> tuple[Tensor, Tensor]:
            of_s = LensPrecision(ks[i], ws[j], self.diverse, channels=self.channels)
            of_t = LensRecall(ks[i], ws[j], self.diverse, channels=self.channels)
            return of_s.compare_part(a, b, mask), of_t.compare_part(a, b, mask)

        return self._average(find_shares)


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
    a: Tensor, b: Tensor, k: Sequence[int | float], w: Sequence[int], diverse: bool = True
) -> LensProfile:
    """`TopKIntersection`, `LensPrecision` and `LensRecall` for all k and w, from a single sort of each map.

    The numbers equal those of the single similarities. The chosen positions for a smaller k are the first of those for
    the largest k. So each map is sorted once, and positions are chosen once for each w. A position is near T_k if the
    first chosen position in its window is among the first k, so one number per position and w serves all k.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating; of channels, absolute values are summed.
        b: maps of the same shape.
        k: numbers of positions, or shares of them, as in `TopKIntersection`.
        w: half widths of windows, at least 0.
        diverse: also compute the overlaps of diverse sets.

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
    for entry in w:
        check_integer(entry, "w", 0)
    x, y = reduce_pair(a, b, "abs_sum")
    kinds = (False, True) if diverse else (False,)
    shares = _profile(x, y, k, w, kinds)
    positions = x.shape[1:].numel()
    counts = tuple(resolve_k(entry, positions) for entry in k)
    plain = shares[False]
    # plain sets do not depend on w, so the first window stands for all
    intersection = plain.intersection[:, :, 0]
    of_diverse_sets = shares[True] if diverse else ()
    return LensProfile(
        counts, tuple(w), intersection, plain.precision, plain.recall, *of_diverse_sets
    )


def _as_sequence(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


class _Shares(NamedTuple):
    intersection: Tensor  # (N, K, W)
    precision: Tensor
    recall: Tensor


def _profile(
    x: Tensor, y: Tensor, k: Sequence[int | float | None], w: Sequence[int], kinds: Sequence[bool]
) -> dict[bool, _Shares]:
    """The shares for plain sets (key False) and for diverse sets (key True), for the requested `kinds`."""
    x = x.detach()
    y = y.detach()
    shape = x.shape[1:]
    positions = shape.numel()
    counts = [resolve_k(entry, positions) for entry in k]
    dtype = working_dtype(x, y)
    # the window excluded, and w
    windows = []
    for diverse in kinds:
        for reach in w:
            window = reach if diverse else 0
            windows.append((window, reach))
    excluded = [window for window, _ in windows]
    count = _make_counter(shape, counts, compiled=is_on_host(x) and any(excluded))
    overlaps = []
    sizes = []
    for x_part, y_part in split_maps(x, y):
        of_x = pick_from_maps(x_part, max(counts), excluded)
        of_y = pick_from_maps(y_part, max(counts), excluded)
        overlaps_of_windows = []
        for window, reach in windows:
            overlaps_of_windows.append(count(of_x[window], of_y[window], reach))
        overlaps.append(torch.stack(overlaps_of_windows, -1))
        size_of_x = _count_picked(of_x, windows, positions)
        size_of_y = _count_picked(of_y, windows, positions)
        sizes.append(torch.stack([size_of_x, size_of_y]))
    # where fewer positions fit, shares refer to their number
    most = send(counts, x.device)[:, None]
    size_x, size_y = torch.minimum(torch.cat(sizes, 1)[:, :, None], most)
    # of the intersection the larger set counts, of precision and recall its own
    whole = torch.stack((torch.maximum(size_x, size_y), size_x, size_y))
    shares = torch.cat(overlaps, 1).to(dtype) / whole
    # NaN where they are not
    zeros = torch.zeros(len(x), dtype=dtype, device=x.device)
    finite = where_finite(x.flatten(1), y.flatten(1), zeros)
    by_kind = torch.split(finite[:, None, None] + shares, len(w), dim=-1)
    shares_of_kinds = {}
    for diverse, of_kind in zip(kinds, by_kind, strict=True):
        shares_of_kinds[diverse] = _Shares(*of_kind.unbind(0))
    return shares_of_kinds


def _count_picked(
    picked: Mapping[int, Tensor], windows: Sequence[tuple[int, int]], positions: int
) -> Tensor:
    """How many positions were picked, `(N, windows)`; where there are fewer, the number of all positions stands."""
    counts = {}
    for window, numbers in picked.items():
        counts[window] = (numbers < positions).sum(1)
    return torch.stack([counts[window] for window, _ in windows], -1)


def _make_counter(
    shape: torch.Size, counts: Sequence[int], compiled: bool
) -> Callable[[Tensor, Tensor, int], Tensor]:
    """The function `(s, t, w)` that counts the overlaps `(3, N, K)` of picked positions `(N, k)`.

    They are `|S_k n T_k|`, `|S_k n N_w(T_k)|` and `|T_k n N_w(S_k)|` for each k of `counts`.
    """
    add = compile_overlaps() if compiled else None
    if add is None:
        return functools.partial(_count_overlaps, shape=shape, counts=counts)
    # a series is an image of one row
    height_and_width = shape if len(shape) == 2 else (1, *shape)
    sides = np.array(height_and_width)
    widest = int(sides.max())
    turns = np.full((2, shape.numel()), max(counts), dtype=np.int32)
    most = np.array(counts)

    def count(s: Tensor, t: Tensor, w: int) -> Tensor:
        overlaps = np.zeros((3, len(s), len(most)), dtype=np.int64)
        of_s = s.contiguous().numpy()
        of_t = t.contiguous().numpy()
        add(of_s, of_t, sides, min(w, widest), most, turns, overlaps)
        return torch.from_numpy(overlaps)

    return count


def _count_overlaps(
    s: Tensor, t: Tensor, w: int, shape: torch.Size, counts: Sequence[int]
) -> Tensor:
    """The overlaps that `_make_counter` describes.

    The i-th position of S is in S_k for k > i. It is near T_k if k is larger than the smallest turn of T in its window.
    """
    of_s = find_turns(s, shape)
    of_t = find_turns(t, shape)
    common = _needed(s, of_t)
    precise = _needed(s, window_minimum(of_t, w))
    recalled = _needed(t, window_minimum(of_s, w))
    overlaps = []
    for needed in (common, precise, recalled):
        overlaps_of_counts = [(needed < k).sum(1) for k in counts]
        overlaps.append(torch.stack(overlaps_of_counts, 1))
    return torch.stack(overlaps)


def _needed(picked: Tensor, turns: Tensor) -> Tensor:
    """For each picked position the number that k must exceed for it to count, `(N, k)`; the largest int32 for none."""
    turns_of_picked = torch.arange(picked.shape[1], device=picked.device, dtype=turns.dtype)
    flat = turns.flatten(1)
    positions = flat.shape[1]
    # P stands for a position that was not chosen, and is no index
    turns_of_others = flat.gather(1, picked.clamp(max=positions - 1))
    needed = torch.maximum(turns_of_others, turns_of_picked)
    never = torch.iinfo(turns.dtype).max
    return torch.where(picked < positions, needed, never)


@functools.cache
def compile_overlaps() -> Callable[..., None] | None:
    """`_add_overlaps` as machine code; None without numba (extra `fast`)."""
    signature = "void(int64[:, ::1], int64[:, ::1], int64[::1], int64, int64[::1], int32[:, ::1], int64[:, :, ::1])"
    return compile_loops(_add_overlaps, signature)


def _add_overlaps(s: Any, t: Any, sides: Any, w: int, counts: Any, turns: Any, found: Any) -> None:
    """Add to `found` `(3, N, K)` what `_count_overlaps` returns; visits only the windows of chosen positions.

    `turns` `(2, P)` is working memory for the turn of each position in T and in S. A position that was not chosen has
    the largest of `counts`, and is in no set; all have it before and after.
    """
    height = sides[0]
    width = sides[1]
    positions = height * width
    picks = s.shape[1]
    least = counts.min()
    none = counts.max()
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
                # picks are in order, and what stands behind the first empty one is empty, too
                if position >= positions:
                    break
                if side == 0:
                    needed = max(turn, turns[0, position])
                    for number in range(len(counts)):
                        found[0, row, number] += needed < counts[number]
                i = position // width
                j = position % width
                nearest = none
                near_enough = max(turn, least - 1)
                for p in range(max(i - w, 0), min(i + w + 1, height)):
                    for q in range(p * width + max(j - w, 0), p * width + min(j + w + 1, width)):
                        nearest = min(nearest, turns[side, q])
                    if nearest <= near_enough:
                        break  # a still smaller turn changes no number
                needed = max(turn, nearest)
                for number in range(len(counts)):
                    found[1 + side, row, number] += needed < counts[number]
        for side in range(2):
            others = t if side == 0 else s
            for turn in range(picks):
                if others[row, turn] < positions:
                    turns[side, others[row, turn]] = none
