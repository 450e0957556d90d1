"""Similarities of maps of which only a part is seen, such as after a rotation has moved a part out of the image.

Each rule compares what is left when the unseen values are dropped:

- `pearson`, `cosine`, `mse`, `spearman`, `kendall`: over the seen values. This is exact.
- `ssim`: the mean over the windows that are wholly seen.
- `topk_intersection`, `lens_precision`, `lens_recall`, `lens_distance`: the largest of the seen positions. A share k is
  one of the seen positions; of a number k at most as many as are seen.
- `lens_spearman`, `lens_kendall`: maps are smoothed with unseen positions as positions outside the map, which count
  as 0. Then the seen positions are compared.
- `centre_of_mass`, and every function of a user: both maps are 0 where they are not seen.

A pair of which nothing is seen has no similarity: NaN.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from standfast.errors import check
from standfast.similarity.diverse import resolve_k
from standfast.similarity.local import (
    SHARES,
    Share,
    compare_sets,
    lens_kendall,
    lens_precision,
    lens_recall,
    lens_spearman,
    reduce_pair,
)
from standfast.similarity.pointwise import _normalised_product, _Rows, cosine, mse, pearson
from standfast.similarity.profile import check_options, lens_distance
from standfast.similarity.rank import (
    CHUNK_ELEMENTS,
    _centred_ranks,
    _correlate_counts,
    _correlation,
    _rank_products,
    kendall,
    spearman,
    where_finite,
)
from standfast.similarity.rows import binade, check_pair, is_constant, row_sum, working_dtype
from standfast.similarity.structural import compare_windows, ssim
from standfast.similarity.windows import smooth
from standfast.tensors import is_on_host


def compare_seen(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    """The similarity `(N,)` of maps `(N, ...)` on the part that is seen; see `Similarity.compare_seen`."""
    if isinstance(seen, Tensor) and seen.ndim == a.ndim + 1:
        seen = seen.all(1)
    fits = isinstance(seen, Tensor) and seen.dtype == torch.bool and _broadcasts(seen.shape, a.shape)
    check(fits, "seen", f"a bool tensor that broadcasts to {tuple(a.shape)}", _describe(seen))
    check_pair(a, b)
    seen = seen.expand(a.shape)
    # A row that is wholly seen takes the usual way, so that it has the same bits whatever the rows beside it are.
    whole = seen.flatten(1).all(1)
    if not is_on_host(whole):  # computing both takes less time than to ask which are needed
        found = torch.where(seen.flatten(1).any(1), _compare_part(function, a, b, seen), torch.nan)
        usual = whole.reshape(-1, *[1] * (a.ndim - 1))  # what is not used must not bring NaN into a gradient
        return torch.where(whole, function(torch.where(usual, a, 0), torch.where(usual, b, 0)).to(found.dtype), found)
    if bool(whole.all()):
        return function(a, b)
    part, rest = (~whole).nonzero()[:, 0], whole.nonzero()[:, 0]
    found = _compare_part(function, a[part], b[part], seen[part])
    found = torch.where(seen[part].flatten(1).any(1), found, torch.nan)
    if not len(rest):
        return found
    parted = torch.cat([found, function(a[rest], b[rest]).to(found.dtype)])
    return parted[torch.cat([part, rest]).argsort()]


def _broadcasts(shape: torch.Size, wanted: torch.Size) -> bool:
    own = shape[::-1]
    return len(own) <= len(wanted) and all(n in (1, most) for n, most in zip(own, wanted[::-1], strict=False))


def _describe(seen: object) -> str:
    return f"{seen.dtype} of shape {tuple(seen.shape)}" if isinstance(seen, Tensor) else type(seen).__name__


def _compare_part(function: Callable[[Tensor, Tensor], Tensor], a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    base, options = function, dict[str, Any]()
    if isinstance(function, partial) and not function.args:
        base, options = function.func, dict(function.keywords)
    own = _RULES.get(base)
    if own is not None:
        return own(a, b, seen, **options)
    return function(torch.where(seen, a, 0), torch.where(seen, b, 0))


def _find_extremes(x: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Smallest and largest seen value of each row `(N, F)`; NaN if one of them is NaN."""
    x = x.detach()
    return torch.where(seen, x, torch.inf).amin(1), torch.where(seen, x, -torch.inf).amax(1)


def _pearson(a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    dtype, seen = working_dtype(a, b), seen.flatten(1)
    return _normalised_product(_centre(a, seen, dtype), _centre(b, seen, dtype))


def _centre(a: Tensor, seen: Tensor, dtype: torch.dtype) -> _Rows:
    """As for whole maps: the middle of the range is subtracted first, the mean after rescaling."""
    x = a.flatten(1).to(dtype)
    low, high = _find_extremes(x, seen)
    middle, half_range = (low / 2 + high / 2)[:, None], high / 2 - low / 2
    x = torch.where(seen, x - middle, 0) / binade(half_range)[:, None]
    mean = row_sum(x) / seen.sum(1).clamp(min=1)
    x = torch.where(seen, x - mean[:, None], 0)
    return _Rows(x, is_constant(low, high, torch.finfo(a.dtype).eps), half_range.isfinite())


def _cosine(a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    return cosine(torch.where(seen, a, 0), torch.where(seen, b, 0))


def _mse(a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    mean = mse(torch.where(seen, a, 0), torch.where(seen, b, 0))
    share = a[0].numel() / seen.flatten(1).sum(1).clamp(min=1).to(mean.dtype)
    return (mean * share).clamp(max=torch.finfo(mean.dtype).max)


def _rank_rows(a: Tensor, b: Tensor, seen: Tensor, compare: Callable[..., Tensor]) -> Tensor:
    """Compare the order of rows whose unseen values come last, all equal; 0 for constant rows, NaN without a number."""
    x, y, seen = a.detach().flatten(1), b.detach().flatten(1), seen.flatten(1)
    constant = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    for rows in (x, y):
        low, high = _find_extremes(rows.to(working_dtype(rows)), seen)
        constant |= is_constant(low, high, torch.finfo(rows.dtype).eps)
    last = [torch.where(seen, rows, torch.inf) for rows in (x, y)]
    parts = zip(*(torch.split(each, max(1, CHUNK_ELEMENTS // x.shape[1])) for each in (*last, seen)), strict=True)
    found = torch.where(constant, 0, torch.cat([compare(*part) for part in parts]))
    return where_finite(torch.where(seen, x, 0), torch.where(seen, y, 0), found)


def _spearman(a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    def compare(x: Tensor, y: Tensor, seen: Tensor) -> Tensor:
        # twice the rank less F - 1; of the n seen values it is to be twice the rank less n - 1
        shift = x.shape[1] - seen.sum(1, keepdim=True)
        p, q = (torch.where(seen, _centred_ranks(rows) + shift, 0) for rows in (x, y))
        return _correlation(_rank_products(p, q), _rank_products(p, p), _rank_products(q, q), working_dtype(x, y))

    return _rank_rows(a, b, seen, compare)


def _kendall(a: Tensor, b: Tensor, seen: Tensor) -> Tensor:
    return _rank_rows(a, b, seen, lambda x, y, seen: _correlate_counts(x, y, (~seen).sum(1)))


def _ssim(a: Tensor, b: Tensor, seen: Tensor, **options: Any) -> Tensor:
    # an unseen value gets one that its channel has anyway, so that it changes no range
    def fill(maps: Tensor) -> Tensor:
        per_channel = 2 if maps.ndim > 2 else 1
        lowest = torch.where(seen, maps.detach(), torch.inf).flatten(per_channel).amin(-1)
        lowest = torch.where(lowest == torch.inf, 0, lowest)
        return torch.where(seen, maps, lowest.view(*lowest.shape, *[1] * (maps.ndim - lowest.ndim)))

    return compare_windows(fill(a), fill(b), seen=seen, **options)


def _sets(share: Share, a: Tensor, b: Tensor, seen: Tensor, **options: Any) -> Tensor:
    """Chosen sets: k for each pair by the number of its seen positions, for all pairs with the same k at once."""
    channels, k = options.pop("channels", "abs_sum"), options.pop("k", None)
    if a.ndim == 4:
        seen = seen.all(1)
    dtype = working_dtype(a, b)
    x, y = (_put_last(maps.detach().to(dtype), seen) for maps in reduce_pair(a, b, channels))
    positions, visible = seen[0].numel(), seen.flatten(1).sum(1)
    asked = resolve_k(k, positions)
    counts = visible.clamp(max=asked)
    if k is None or isinstance(k, float):
        counts = torch.tensor([resolve_k(k, max(1, n)) for n in visible.tolist()], device=x.device)
    found = torch.full((len(x),), torch.nan, dtype=dtype, device=x.device)
    for count in sorted(set(counts[visible > 0].tolist())):
        rows = ((counts == count) & (visible > 0)).nonzero()[:, 0]
        found[rows] = compare_sets(share, x[rows], y[rows], count, seen=seen[rows], **options)
    return found


def _put_last(maps: Tensor, seen: Tensor) -> Tensor:
    """Maps `(N, ...)` whose unseen values lie below all others, so that they are chosen last."""
    low = torch.where(seen, maps, torch.inf).flatten(1).amin(1)
    below = torch.nextafter(low, torch.full_like(low, -torch.inf)).view(-1, *[1] * (maps.ndim - 1))
    return torch.where(seen, maps, below)


def _lens_distance(a: Tensor, b: Tensor, seen: Tensor, **options: Any) -> Tensor:
    ks, ws, alphas, betas = check_options(**options)
    kept = {name: options[name] for name in ("diverse", "channels") if name in options}
    total: Tensor | None = None
    for k, alpha in zip(ks, alphas, strict=True):
        for w, beta in zip(ws, betas, strict=True):
            shares = [_sets(SHARES[one], a, b, seen, k=k, w=w, **kept) for one in (lens_precision, lens_recall)]
            term = alpha * beta * ((1 - shares[0]) + (1 - shares[1]))
            total = term if total is None else total + term
    assert total is not None
    return total


def _smoothed(compare: Callable[..., Tensor], a: Tensor, b: Tensor, seen: Tensor, **options: Any) -> Tensor:
    w, channels = options.get("w", 1), options.get("channels", "abs_sum")
    if a.ndim == 4:
        seen = seen.all(1)
    x, y = (torch.where(seen, maps.detach(), 0) for maps in reduce_pair(a, b, channels))
    found = compare(smooth(x, w), smooth(y, w), seen)
    # a constant map has no order, although smoothing lowers its values beside unseen positions
    constant = [
        is_constant(*_find_extremes(rows.flatten(1), seen.flatten(1)), torch.finfo(rows.dtype).eps) for rows in (x, y)
    ]
    return torch.where((constant[0] | constant[1]) & found.isfinite(), 0, found)


_RULES: dict[Callable[..., Tensor], Callable[..., Tensor]] = {
    pearson: _pearson,
    cosine: _cosine,
    mse: _mse,
    spearman: _spearman,
    kendall: _kendall,
    ssim: _ssim,
    lens_spearman: partial(_smoothed, _spearman),
    lens_kendall: partial(_smoothed, _kendall),
    lens_distance: _lens_distance,
    **{function: partial(_sets, share) for function, share in SHARES.items()},
}
