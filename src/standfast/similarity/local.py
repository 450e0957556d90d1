"""Similarities that use positions: LENS, overlaps of top-k sets, rank correlations of smoothed maps, mass centres.

Maps are images `(N, H, W)`, series `(N, T)`, or `(N, C, H, W)`, whose channels are reduced first; a tensor of three
dimensions is always a batch of images. S_k and T_k are the k largest positions of the first and the second map.
N_w(S) are all positions at most w away from a position of S along each axis; windows end at the border.

With `diverse=True` the sets are those of `top_k_diverse` for the same w: no position lies in the window of another.
If fewer than k positions fit, shares refer to the actual number. With w = 0, diverse sets equal the plain ones.

`ties` says which of equal values come first, as in `top_k`. With `protocol="authors"` sets and windows are those of the
authors' script instead of the paper's definitions (`authors`), which has a rule for ties of its own.

Source: Kamath, Mittal, Deshpande, Balasubramanian, "Rethinking Robustness of Model Attributions", AAAI 2024.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity import rank
from standfast.similarity.authors import Protocol, check_protocol, choose_as_authors, dilate_as_authors
from standfast.similarity.diverse import Ties, check_ties, resolve_k, split_maps, top_k, top_k_diverse
from standfast.similarity.rows import binade, check_pair, is_degenerate, row_sum, working_dtype
from standfast.similarity.windows import (
    Channels,
    check_channels,
    check_positions,
    check_window,
    dilate,
    per_position,
    smooth,
)


def topk_intersection(
    a: Tensor,
    b: Tensor,
    k: int | float | None = None,
    diverse: bool = False,
    w: int = 1,
    channels: Channels = "abs_sum",
    ties: Ties = "position",
    protocol: Protocol = "paper",
) -> Tensor:
    """Share of the k largest positions of one map that are among the k largest of the other.

    After the reduction of channels, values are compared with their sign. Among equal values, lower indices of the
    flattened map come first by default, so of a constant map the first k positions are selected.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating.
        b: maps of the same shape.
        k: a number of positions from 1 to all, or a share of them in (0, 1), rounded to the nearest number but
            at least 1; by default a tenth.
        diverse: select positions none of which lies in the window of another. If fewer than k fit, the share is that
            of the larger of the two sets.
        w: half width of the window of a diverse position; it has no effect without `diverse`.
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).
        ties: which of equal values come first: `position`, lower indices; `random`, positions in a random order, the
            same for both maps and for every pair; `undefined`, none: a pair of whose chosen values one is 0 has no
            value. So zeros cannot fill a set.
        protocol: `paper`, the paper's definitions; `authors`, the steps of the authors' script (`choose_as_authors`).

    Returns:
        `(N,)` in [0, 1]; NaN for a row that holds a NaN or an infinity, or that is undefined by `ties`.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or an option is out of range.

    Source: Ghorbani, Abid, Zou, AAAI 2019; the diverse sets of Kamath et al., AAAI 2024, Sec. 4.

    >>> topk_intersection(torch.tensor([[3.0, 2.0, 1.0, 0.0]]), torch.tensor([[3.0, 0.0, 1.0, 2.0]]), k=2)
    tensor([0.50])
    """
    return compare_sets(SHARES[topk_intersection], a, b, k, w, diverse, channels, ties, protocol)


def lens_precision(
    a: Tensor,
    b: Tensor,
    k: int | float | None = None,
    w: int = 1,
    diverse: bool = False,
    channels: Channels = "abs_sum",
    ties: Ties = "position",
    protocol: Protocol = "paper",
) -> Tensor:
    """Share of the k largest positions of `a` that lie near one of the k largest of `b`: |S_k n N_w(T_k)| / |S_k|.

    This is the paper's w-LENS-prec@k, where `a` is the original map. It is not symmetric: `lens_precision(a, b)` equals
    `lens_recall(b, a)`. With w = 0 it equals `topk_intersection`, and it increases with w.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating.
        b: maps of the same shape.
        k: as in `topk_intersection`.
        w: positions at most w away along each axis are near; at least 0.
        diverse: select positions none of which lies in the window of another (w-LENS-prec@k-div).
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).
        ties, protocol: as in `topk_intersection`.

    Returns:
        `(N,)` in [0, 1]; NaN for a row that holds a NaN or an infinity, or that is undefined by `ties`.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.0, 5.0, 4.0, 0.0]])
    >>> lens_precision(a, b, k=2, w=1), lens_precision(a, b, k=2, w=2)
    (tensor([0.50]), tensor([1.]))
    """
    return compare_sets(SHARES[lens_precision], a, b, k, w, diverse, channels, ties, protocol)


def lens_recall(
    a: Tensor,
    b: Tensor,
    k: int | float | None = None,
    w: int = 1,
    diverse: bool = False,
    channels: Channels = "abs_sum",
    ties: Ties = "position",
    protocol: Protocol = "paper",
) -> Tensor:
    """Share of the k largest positions of `b` that lie near one of the k largest of `a`: |T_k n N_w(S_k)| / |T_k|.

    This is the paper's w-LENS-recall@k, where `a` is the original map. Arguments, result and errors are those of
    `lens_precision`.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[5.0, 0.0, 0.0, 0.0, 4.0]]), torch.tensor([[0.0, 5.0, 4.0, 0.0, 0.0]])
    >>> lens_recall(a, b, k=2, w=1), lens_precision(a, b, k=2, w=1)
    (tensor([0.50]), tensor([0.50]))
    """
    return compare_sets(SHARES[lens_recall], a, b, k, w, diverse, channels, ties, protocol)


def lens_spearman(a: Tensor, b: Tensor, w: int = 1, channels: Channels = "abs_sum") -> Tensor:
    """Spearman's rank correlation of the smoothed maps.

    A map that is constant (`is_degenerate`) before or after smoothing has similarity 0 with every map.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating.
        b: maps of the same shape.
        w: half width of the window to smooth over (`smooth`), at least 0.
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).

    Returns:
        `(N,)` in [-1, 1]; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or an option is out of range.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[0.0, 9.0, 1.0, 7.0, 2.0, 0.0]]), torch.tensor([[9.0, 0.0, 7.0, 1.0, 0.0, 2.0]])
    >>> lens_spearman(a, b, w=0), lens_spearman(a, b, w=1)
    (tensor([-0.79]), tensor([0.52]))
    """
    return _compare_smoothed(rank.spearman, a, b, w, channels)


def lens_kendall(a: Tensor, b: Tensor, w: int = 1, channels: Channels = "abs_sum") -> Tensor:
    """Kendall's tau-b of the smoothed maps; arguments, result and errors are those of `lens_spearman`.

    Time O(P log P) and memory O(P) for P positions.

    Source: Kamath, Mittal, Deshpande, Balasubramanian, AAAI 2024, Sec. 3.1 and 3.2.

    >>> a, b = torch.tensor([[0.0, 9.0, 1.0, 7.0, 2.0, 0.0]]), torch.tensor([[9.0, 0.0, 7.0, 1.0, 0.0, 2.0]])
    >>> lens_kendall(a, b, w=0), lens_kendall(a, b, w=1)
    (tensor([-0.64]), tensor([0.44]))
    """
    return _compare_smoothed(rank.kendall, a, b, w, channels)


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
    # The centre does not change when the map is scaled: gradients need not flow through the scale.
    x = x / binade(size).view(-1, *(1,) * (x.ndim - 1))
    mass = torch.where(size == 0, 1, row_sum(x.flatten(1)))
    centre = []
    for dim in range(1, x.ndim):
        middle = (x.shape[dim] - 1) / 2
        offset = torch.arange(x.shape[dim], device=x.device, dtype=x.dtype) - middle
        moment = row_sum((x * offset.view(-1, *(1,) * (x.ndim - 1 - dim))).flatten(1))
        centre.append(middle + moment / mass)
    return torch.where(size.isfinite()[:, None], torch.stack(centre, 1), torch.nan)


def centre_of_mass(a: Tensor, b: Tensor, channels: Channels = "abs_sum") -> Tensor:
    """Euclidean distance between the centres of mass of two maps, in positions: a discrepancy.

    Differentiable; the gradient is 0 where the centres coincide. The distance depends on the size of the image, so no
    threshold suits all maps.

    Args:
        a: maps `(N, H, W)`, `(N, T)` or `(N, C, H, W)`, floating. `mass_centre` uses the absolute values that are left
            after the reduction of channels.
        b: maps of the same shape.
        channels: how the channels of `(N, C, H, W)` are reduced (`per_position`).

    Returns:
        `(N,)`, at least 0; NaN for a row that holds a NaN or an infinity.

    Raises:
        ArgumentError: shapes, devices or types do not fit, or the reduction is unknown.

    Source: Ghorbani, Abid, Zou, AAAI 2019.

    >>> a = torch.zeros(1, 5, 5)
    >>> b = a.clone()
    >>> a[0, 0, 0], b[0, 3, 4] = 2.0, 1.0
    >>> centre_of_mass(a, b)
    tensor([5.])
    """
    x, y = reduce_pair(a, b, channels)
    squares = (mass_centre(x) - mass_centre(y)).square().unbind(1)
    total = squares[0] if len(squares) == 1 else squares[0] + squares[1]
    moved = total != 0  # the square root has no derivative at 0
    return torch.where(moved, torch.where(moved, total, 1).sqrt(), 0)


def reduce_pair(a: Tensor, b: Tensor, channels: Channels) -> tuple[Tensor, Tensor]:
    """Check a pair of maps and reduce them to one value per position: `(N, H, W)` or `(N, T)`."""
    check_pair(a, b)
    check(a.ndim in (2, 3, 4), "a", "shape (N, H, W), (N, T) or (N, C, H, W)", tuple(a.shape))
    check_channels(channels)
    return (per_position(a, channels), per_position(b, channels)) if a.ndim == 4 else (a, b)


def choose_sets(a: Tensor, k: int, w: int, diverse: bool, ties: Ties, protocol: Protocol) -> Tensor:
    """The chosen positions of maps `(N, H, W)` or `(N, T)`, as a mask; all False where there is no set."""
    if protocol == "authors":
        return choose_as_authors(a, k, w, diverse)
    return top_k_diverse(a, k, w, ties) if diverse else top_k(a, k, ties)


def check_rules(diverse: bool, w: int, ties: Ties, protocol: Protocol) -> None:
    """Raise `ArgumentError` unless these options fit together."""
    check(isinstance(diverse, bool), "diverse", "True or False", diverse)
    check_window(w)
    check_ties(ties)
    check_protocol(protocol, w if diverse else None)
    own = protocol == "paper" or ties == "position"
    check(own, "ties", "no other than the default, since protocol=authors has a rule of its own", repr(ties))


def compare_sets(
    share: Share,
    a: Tensor,
    b: Tensor,
    k: int | float | None = None,
    w: int = 1,
    diverse: bool = False,
    channels: Channels = "abs_sum",
    ties: Ties = "position",
    protocol: Protocol = "paper",
    seen: Tensor | None = None,
) -> Tensor:
    """Compare the sets S_k and T_k of both maps, or what is `seen` of them, bool `(N, H, W)` or `(N, T)`.

    The authors divide by k, also where they have chosen fewer.
    """
    x, y = (m.detach() for m in reduce_pair(a, b, channels))
    check_rules(diverse, w, ties, protocol)
    count = resolve_k(k, x.shape[1:].numel())
    parts = []
    for p, q, *mask in split_maps(x, y) if seen is None else split_maps(x, y, seen):
        s, t = (choose_sets(m, count, w, diverse, ties, protocol) for m in (p, q))
        if mask:
            s, t = s & mask[0], t & mask[0]
        common, of = share(s, t, w, protocol)
        value = _count(common).to(working_dtype(a, b)) / (of if protocol == "paper" else count)
        parts.append(torch.where((_count(s) > 0) & (_count(t) > 0), value, torch.nan))
    return rank.where_finite(x.flatten(1), y.flatten(1), torch.cat(parts))


#: of two sets, with w and the protocol: the mask `(n, ...)` of the positions that count, and the number `(n,)` by which
#: it is divided
Share = Callable[[Tensor, Tensor, int, Protocol], tuple[Tensor, Tensor]]
SHARES: dict[Callable[..., Tensor], Share] = {
    topk_intersection: lambda s, t, w, protocol: (s & t, torch.maximum(_count(s), _count(t))),
    lens_precision: lambda s, t, w, protocol: (s & _dilate(t, w, protocol), _count(s)),
    lens_recall: lambda s, t, w, protocol: (t & _dilate(s, w, protocol), _count(t)),
}


def _dilate(mask: Tensor, w: int, protocol: Protocol) -> Tensor:
    return dilate(mask, w) if protocol == "paper" else dilate_as_authors(mask, w)


def _count(mask: Tensor) -> Tensor:
    return mask.flatten(1).sum(1)


def _compare_smoothed(
    function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, w: int, channels: Channels
) -> Tensor:
    x, y = (m.detach() for m in reduce_pair(a, b, channels))
    check_window(w)
    result = torch.cat([function(smooth(p, w), smooth(q, w)) for p, q in split_maps(x, y)])
    # A constant map has no order, although smoothing lowers its values near the border, where zeros are averaged in.
    result = torch.where(is_degenerate(x) | is_degenerate(y), 0, result)
    return rank.where_finite(x.flatten(1), y.flatten(1), result)
