"""Similarities that use positions: LENS, overlaps of top-k sets, rank correlations of smoothed maps, mass centres.

Maps are images `(N, H, W)`, series `(N, T)`, or `(N, C, H, W)`, whose channels are reduced first; a tensor of three
dimensions is always a batch of images. S_k and T_k are the k largest positions of the first and the second map.
N_w(S) are all positions at most w away from a position of S along each axis; windows end at the border.

With `diverse=True` the sets are those of `top_k_diverse` for the same w: no position lies in the window of another.
If fewer than k positions fit, shares refer to the actual number. With w = 0, diverse sets equal the plain ones.

`ties` says which of equal values come first, as in `top_k`. With `protocol="authors"` sets and windows are those of the
authors' script instead of the paper's definitions (`authors_protocol`), which has a rule for ties of its own.

Source: Kamath, Mittal, Deshpande, Balasubramanian, "Rethinking Robustness of Model Attributions", AAAI 2024.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

import torch
from torch import Tensor

from standfast.errors import check
from standfast.records import CountFromZero, CountOrFraction
from standfast.similarity.authors_protocol import (
    CANDIDATES,
    Protocol,
    choose_as_authors,
    dilate_as_authors,
)
from standfast.similarity.base import Correlation, Discrepancy, Similarity, similarities
from standfast.similarity.chance import ChanceLevel, expect_share, measure_chance
from standfast.similarity.diverse import Ties, resolve_k, split_maps, top_k, top_k_diverse
from standfast.similarity.rank import Kendall, Spearman, where_finite
from standfast.similarity.rows import (
    binade,
    check_pair,
    find_extremes,
    is_constant,
    is_degenerate,
    row_sum,
    working_dtype,
)
from standfast.similarity.windows import Channels, check_positions, dilate, per_position, smooth


@dataclass(frozen=True)
class Positional(Similarity):
    """The base of similarities that use positions.

    Args:
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`). By default metrics sum them with
            their signs, since they pass absolute values where signs are ignored; a call sums absolute values.
    """

    _: KW_ONLY
    channels: Channels | None = None

    def of_maps(self, maps: Tensor) -> Tensor:
        return per_position(maps, self.channels or "sum")

    def reduce_pair(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        """Check a pair of maps and reduce them to one value per position: `(N, H, W)` or `(N, T)`."""
        return reduce_pair(a, b, self.channels or "abs_sum")


def reduce_pair(a: Tensor, b: Tensor, channels: Channels) -> tuple[Tensor, Tensor]:
    """Check a pair of maps and reduce them to one value per position: `(N, H, W)` or `(N, T)`."""
    check_pair(a, b)
    check(a.ndim in (2, 3, 4), "a", "shape (N, H, W), (N, T) or (N, C, H, W)", tuple(a.shape))
    if a.ndim == 4:
        return per_position(a, channels), per_position(b, channels)
    return a, b


@dataclass(frozen=True)
class SetSimilarity(Positional):
    """The base of shares of the k largest positions of maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`.

    After the reduction of channels, values are compared with their sign. Among equal values, lower indices of the
    flattened map come first by default, so of a constant map the first k positions are selected. A pair is NaN if it is
    undefined by `ties`.

    Args:
        k: a number of positions, at least 1, or a share of them in (0, 1), rounded to the nearest number but at least
            1; by default a tenth.
        w: positions at most w away along each axis are near; at least 0.
        diverse: select positions none of which lies in the window of another. If fewer than k fit, shares refer to
            their number.
        ties: which of equal values come first: `position`, lower indices; `random`, positions in a random order, the
            same for both maps and for every pair; `undefined`, none: a pair of whose chosen values one is 0 has no
            value. So zeros cannot fill a set.
        protocol: `paper`, the paper's definitions; `authors`, the steps of the authors' script (`choose_as_authors`),
            which divides by k, also where fewer were chosen.
    """

    low = 0.4
    high = 0.6
    range = (0.0, 1.0)

    k: CountOrFraction | None = None
    w: CountFromZero = 1
    diverse: bool = False
    ties: Ties = "position"
    protocol: Protocol = "paper"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.diverse and self.protocol == "authors":
            check(
                self.w in CANDIDATES,
                "w",
                "1, 2 or 3, for which the authors give a number of candidates",
                self.w,
            )
        fits = self.protocol == "paper" or self.ties == "position"
        check(
            fits,
            "ties",
            "no other than the default, since protocol=authors has a rule of its own",
            repr(self.ties),
        )

    @abstractmethod
    def find_common(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        """The positions of two sets `(n, ...)` that count, and the number `(n,)` by which their number is divided."""

    def expect(self, x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The level of chance of plain sets, float64 `(N,)`, and for which pairs it holds."""
        return expect_share(x, y, k, self.w, self.ties)

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = (maps.detach() for maps in self.reduce_pair(a, b))
        count = resolve_k(self.k, x.shape[1:].numel())
        return self._compare_sets(x, y, count)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """The largest positions of the part; a share k is one of these, of a number k at most as many as there are."""
        if a.ndim == 4:
            mask = mask.all(1)
        dtype = working_dtype(a, b)
        x, y = (_put_last(maps.detach().to(dtype), mask) for maps in self.reduce_pair(a, b))
        left = mask.flatten(1).sum(1)
        if self.k is None or isinstance(self.k, float):
            counts_of_shares = [resolve_k(self.k, max(1, positions)) for positions in left.tolist()]
            counts = torch.tensor(counts_of_shares, device=x.device)
        else:
            counts = left.clamp(max=resolve_k(self.k, mask[0].numel()))
        compared = torch.full((len(x),), torch.nan, dtype=dtype, device=x.device)
        has_part = left > 0
        # all pairs with the same k at once
        for count in sorted(set(counts[has_part].tolist())):
            has_count = (counts == count) & has_part
            rows = has_count.nonzero()[:, 0]
            compared[rows] = self._compare_sets(x[rows], y[rows], count, mask[rows])
        return compared

    def _compare_sets(self, x: Tensor, y: Tensor, count: int, mask: Tensor | None = None) -> Tensor:
        maps = (x, y) if mask is None else (x, y, mask)
        parts = []
        for p, q, *part in split_maps(*maps):
            s = self._choose(p, count)
            t = self._choose(q, count)
            if part:
                s = s & part[0]
                t = t & part[0]
            common, of = self.find_common(s, t)
            size = of if self.protocol == "paper" else count
            value = _count(common).to(working_dtype(x, y)) / size
            # an empty set has no share
            has_share = (_count(s) > 0) & (_count(t) > 0)
            parts.append(torch.where(has_share, value, torch.nan))
        return where_finite(x.flatten(1), y.flatten(1), torch.cat(parts))

    def _choose(self, a: Tensor, count: int) -> Tensor:
        """The chosen positions of maps `(N, H, W)` or `(N, T)`, as a mask; all False where there is no set."""
        if self.protocol == "authors":
            return choose_as_authors(a, count, self.w, self.diverse)
        if self.diverse:
            return top_k_diverse(a, count, self.w, self.ties)
        return top_k(a, count, self.ties)

    def _dilate(self, mask: Tensor) -> Tensor:
        if self.protocol == "paper":
            return dilate(mask, self.w)
        return dilate_as_authors(mask, self.w)

    def chance(self, a: Tensor, b: Tensor, draws: int = 32, seed: int = 0) -> ChanceLevel:
        """The exact level of plain sets, where it is known; else drawn."""
        x, y = (maps.detach() for maps in self.reduce_pair(a, b))
        exact = None
        if not self.diverse and self.protocol == "paper":
            count = resolve_k(self.k, x.shape[1:].numel())
            exact = self.expect(x, y, count)
        return measure_chance(self.compare, x, y, draws, seed, exact)


@similarities.register("topk_intersection")
@dataclass(frozen=True)
class TopKIntersection(SetSimilarity):
    """Share of the k largest positions of one map that are among the k largest of the other.

    With diverse positions, the share is that of the larger of the two sets; w has no effect without `diverse`.

    Source: Ghorbani, Abid, Zou, AAAI 2019; the diverse sets of Kamath et al., AAAI 2024, Sec. 4.

    >>> TopKIntersection(k=2)(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([[3.0, 0.0, 1.0, 2.0]]))
    tensor([0.50])
    """

    name = "topk_intersection"

    def find_common(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return s & t, torch.maximum(_count(s), _count(t))

    def expect(self, x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return expect_share(x, y, k, 0, self.ties)


@similarities.register("lens_precision")
@dataclass(frozen=True)
class LensPrecision(SetSimilarity):
    """Share of the k largest positions of `a` that lie near one of the k largest of `b`: |S_k n N_w(T_k)| / |S_k|.

    This is the paper's w-LENS-prec@k, where `a` is the original map; with `diverse` w-LENS-prec@k-div. It is not
    symmetric: for exchanged maps it is `LensRecall`. With w = 0 it equals `TopKIntersection`, and it increases with w.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0, 4.0, 0.0]])
    >>> LensPrecision(k=2, w=1)(a, b), LensPrecision(k=2, w=2)(a, b)
    (tensor([0.50]), tensor([1.]))
    """

    name = "lens_precision"
    symmetric = False

    def find_common(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return s & self._dilate(t), _count(s)


@similarities.register("lens_recall")
@dataclass(frozen=True)
class LensRecall(LensPrecision):
    """Share of the k largest positions of `b` that lie near one of the k largest of `a`: |T_k n N_w(S_k)| / |T_k|.

    This is the paper's w-LENS-recall@k, where `a` is the original map.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[5.0, 0.0, 0.0, 0.0, 4.0]]), torch.tensor([[0.0, 5.0, 4.0, 0.0, 0.0]])
    >>> LensRecall(k=2, w=1)(a, b), LensPrecision(k=2, w=1)(a, b)
    (tensor([0.50]), tensor([0.50]))
    """

    name = "lens_recall"

    def find_common(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        return super().find_common(t, s)

    def expect(self, x: Tensor, y: Tensor, k: int) -> tuple[Tensor, Tensor]:
        return super().expect(y, x, k)


@dataclass(frozen=True)
class SmoothedSimilarity(Positional, Correlation):
    """The base of rank correlations of smoothed maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`.

    A map that is constant (`is_degenerate`) before or after smoothing has similarity 0 with every map.

    Args:
        w: half width of the window to smooth over (`smooth`), at least 0.
    """

    ranked: ClassVar[Similarity]

    w: CountFromZero = 1

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = (maps.detach() for maps in self.reduce_pair(a, b))
        parts = []
        for p, q in split_maps(x, y):
            smooth_p = smooth(p, self.w)
            smooth_q = smooth(q, self.w)
            parts.append(self.ranked.compare(smooth_p, smooth_q))
        # A constant map has no order, although smoothing lowers its values near the border.
        constant = is_degenerate(x) | is_degenerate(y)
        result = torch.where(constant, 0, torch.cat(parts))
        return where_finite(x.flatten(1), y.flatten(1), result)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        """Compare the part; in smoothing, the other positions count as 0, as positions outside the map do."""
        if a.ndim == 4:
            mask = mask.all(1)
        x, y = (torch.where(mask, maps.detach(), 0) for maps in self.reduce_pair(a, b))
        smooth_x = smooth(x, self.w)
        smooth_y = smooth(y, self.w)
        compared = self.ranked.compare_part(smooth_x, smooth_y, mask)
        # a constant map has no order, although smoothing lowers its values beside positions that are left out
        constant = torch.zeros(len(x), dtype=torch.bool, device=x.device)
        for maps in (x, y):
            low, high = find_extremes(maps.flatten(1), mask.flatten(1))
            constant |= is_constant(low, high, torch.finfo(maps.dtype).eps)
        is_zero = constant & compared.isfinite()
        return torch.where(is_zero, 0, compared)

    def chance(self, a: Tensor, b: Tensor, draws: int = 32, seed: int = 0) -> ChanceLevel:
        x, y = (maps.detach() for maps in self.reduce_pair(a, b))
        return measure_chance(self.compare, x, y, draws, seed)


@similarities.register("lens_spearman")
@dataclass(frozen=True)
class LensSpearman(SmoothedSimilarity):
    """Spearman's rank correlation of the smoothed maps.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[0.0, 9.0, 1.0, 7.0, 2.0, 0.0]]), torch.tensor([[9.0, 0.0, 7.0, 1.0, 0.0, 2.0]])
    >>> LensSpearman(w=0)(a, b), LensSpearman(w=1)(a, b)
    (tensor([-0.79]), tensor([0.52]))
    """

    name = "lens_spearman"
    ranked = Spearman()


@similarities.register("lens_kendall")
@dataclass(frozen=True)
class LensKendall(SmoothedSimilarity):
    """Kendall's tau-b of the smoothed maps. Time O(P log P) and memory O(P) for P positions.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[0.0, 9.0, 1.0, 7.0, 2.0, 0.0]]), torch.tensor([[9.0, 0.0, 7.0, 1.0, 0.0, 2.0]])
    >>> LensKendall(w=0)(a, b), LensKendall(w=1)(a, b)
    (tensor([-0.64]), tensor([0.44]))
    """

    name = "lens_kendall"
    ranked = Kendall()


def mass_centre(a: Tensor) -> Tensor:
    """Centre of mass of a map's absolute values, as a position on each axis: (row, column) for images.

    Differentiable, with gradients of size 1 / (mass of the map). The centre of a map of zeros is the middle, as for
    every other constant map; its gradient is 0.

    Args:
        a: images `(N, H, W)` or series `(N, T)`, floating; half precision is computed in float32.

    Returns:
        `(N, 2)` or `(N, 1)`, each in [0, length - 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: `a` has another shape or type.

    Source: Ghorbani, Abid, Zou, AAAI 2019 (mass-centre attack).

    >>> mass_centre(torch.tensor([[[0.0, 1.0, 1.0], [0.0, 1.0, -1.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]]))
    tensor([[0.50, 1.50],
            [0.50, 1.00]])
    """
    check_positions(a)
    x = a.to(working_dtype(a)).abs()
    size = x.detach().flatten(1).amax(1)
    axes = x.ndim - 1
    # The centre does not change when the map is scaled: gradients need not flow through the scale.
    x = x / binade(size).view(-1, *(1,) * axes)
    mass = torch.where(size == 0, 1, row_sum(x.flatten(1)))
    centre = []
    for dim in range(1, x.ndim):
        length = x.shape[dim]
        # from the middle of the axis, which is the centre of a map of zeros
        middle = (length - 1) / 2
        offset = torch.arange(length, device=x.device, dtype=x.dtype) - middle
        offset_of_axis = offset.view(-1, *(1,) * (axes - dim))
        moment = row_sum((x * offset_of_axis).flatten(1))
        centre.append(middle + moment / mass)
    is_finite = size.isfinite()[:, None]
    return torch.where(is_finite, torch.stack(centre, 1), torch.nan)


@similarities.register("centre_of_mass")
@dataclass(frozen=True)
class CentreOfMass(Positional, Discrepancy):
    """Euclidean distance between the centres of mass of two maps, in positions: a discrepancy.

    Maps are `(N, H, W)`, `(N, T)` or `(N, C, H, W)`; `mass_centre` uses the absolute values that are left after the
    reduction of channels. Differentiable; the gradient is 0 where the centres coincide. The distance depends on the
    size of the image.

    Source: Ghorbani, Abid, Zou, AAAI 2019.

    >>> a = torch.zeros(1, 5, 5)
    >>> b = a.clone()
    >>> a[0, 0, 0], b[0, 3, 4] = 2.0, 1.0
    >>> CentreOfMass()(a, b)
    tensor([5.])
    """

    name = "centre_of_mass"
    differentiable = True

    def compare(self, a: Tensor, b: Tensor) -> Tensor:
        x, y = self.reduce_pair(a, b)
        squares = (mass_centre(x) - mass_centre(y)).square().unbind(1)
        total = squares[0]
        # images have a second axis
        if len(squares) > 1:
            total = total + squares[1]
        moved = total != 0  # the square root has no derivative at 0
        distance = torch.where(moved, total, 1).sqrt()
        return torch.where(moved, distance, 0)

    def compare_part(self, a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
        part_of_a = torch.where(mask, a, 0)
        part_of_b = torch.where(mask, b, 0)
        return self.compare(part_of_a, part_of_b)


def _count(mask: Tensor) -> Tensor:
    return mask.flatten(1).sum(1)


def _put_last(maps: Tensor, mask: Tensor) -> Tensor:
    """Maps `(N, ...)` whose values outside of the mask lie below all others, so that they are chosen last."""
    least = torch.where(mask, maps, torch.inf).flatten(1).amin(1)
    below_all = torch.full_like(least, -torch.inf)
    positions = [1] * (maps.ndim - 1)
    below = torch.nextafter(least, below_all).view(-1, *positions)
    return torch.where(mask, maps, below)
