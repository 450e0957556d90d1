"""Pairs of samples: how similar their maps are, and what that says of each sample."""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.similarity import get as get_similarity

_ELEMENTS = 1 << 24  # numbers in the pairs of maps that are compared at once: 64 MB


def choose_partners(classes: Tensor) -> Tensor:
    """For each sample the number of the next one of another class, or of the next one where all are of one class."""
    count = len(classes)
    # the others, from the next one on
    steps = torch.arange(1, count)
    order = (torch.arange(count)[:, None] + steps) % count
    order = order.to(classes.device)
    is_other = classes[order] != classes[:, None]
    first_other = is_other.long().argmax(1, keepdim=True)
    return order.gather(1, first_other)[:, 0]


def pair_samples(classes: Tensor, same: bool = False) -> tuple[Tensor, Tensor]:
    """All pairs of samples of different classes, or of all samples where there is one class; or those of the `same`."""
    count = len(classes)
    first, second = torch.triu_indices(count, count, 1, device=classes.device)
    differ = classes[first] != classes[second]
    if same:
        return first[~differ], second[~differ]
    if bool(differ.any()):
        return first[differ], second[differ]
    return first, second


def exchange(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """All pairs, and all pairs with the two samples exchanged."""
    return torch.cat([first, second]), torch.cat([second, first])


def cut_pairs(pairs: Tensor, maps: Tensor) -> list[slice]:
    """Slices of the pairs whose maps may be held at once."""
    numbers_per_map = max(1, maps.shape[1:].numel())  # there may be no map
    size = max(1, _ELEMENTS // numbers_per_map)
    starts = range(0, len(pairs), size)
    return [slice(start, start + size) for start in starts]


def sum_first(values: Tensor, first: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The sum of the values of the pairs in which each sample stands first, and how many there are, `(count,)` each."""
    sums = values.new_zeros(count).index_add(0, first, values)
    weights = values.new_zeros(count).index_add(0, first, torch.ones_like(values))
    return sums, weights


def sum_pairs(values: Tensor, first: Tensor, second: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The sum of the values of each sample's pairs, and how many pairs it has, `(count,)` each."""
    ones = torch.ones_like(values)
    sums = values.new_zeros(count)
    weights = values.new_zeros(count)
    for numbers in (first, second):
        sums.index_add_(0, numbers, values)
        weights.index_add_(0, numbers, ones)
    return sums, weights


def compare_pairs(
    maps: Tensor,
    classes: Tensor,
    nearby: Tensor,
    is_there: Tensor | None = None,
    same: bool = False,
) -> tuple[Tensor, Tensor]:
    """The mean similarity of each map to those of other samples, and the pseudo-values of the excess, `(n,)` each.

    Args:
        maps: `(n, ...)`.
        classes: `(n,)`. The other samples are those of other classes, or those of the `same`.
        nearby: the similarity of each map to that of a nearby input, `(n,)`.
        is_there: of inputs that end at different places, bool `(n, W)`: maps are compared where both inputs are there.
        same: see `classes`.

    Returns:
        NaN where there is no other sample, and where `nearby` is NaN.
    """
    finite = nearby.isfinite()
    blank = torch.full_like(nearby, torch.nan)
    first, second = pair_samples(classes[finite], same)
    if not len(first):
        return blank, blank
    if is_there is not None:
        is_there = is_there[finite]
    similarities = _correlate(maps[finite], first, second, is_there)
    elsewhere, pseudo_values = find_pseudo_values(similarities, first, second, nearby[finite])
    return blank.masked_scatter(finite, elsewhere), blank.masked_scatter(finite, pseudo_values)


def _correlate(maps: Tensor, first: Tensor, second: Tensor, is_there: Tensor | None) -> Tensor:
    """The similarity of the maps of each pair, `(M,)`."""
    pearson = get_similarity("pearson")
    slices = cut_pairs(first, maps)
    if is_there is None:
        compare = pearson.prepare(maps)
        parts = []
        for part in slices:
            parts.append(compare(maps[second[part]], first[part]))
        return torch.cat(parts).double()
    parts = []
    for part in slices:
        one = first[part]
        other = second[part]
        both = is_there[one] & is_there[other]
        correlations = pearson.compare_masked(maps[one], maps[other], both)
        parts.append(correlations.nan_to_num())
    return torch.cat(parts).double()


def find_pseudo_values(
    similarities: Tensor, first: Tensor, second: Tensor, nearby: Tensor
) -> tuple[Tensor, Tensor]:
    """What `compare_pairs` returns, from the similarities of the pairs `(M,)` and those at nearby inputs `(n,)`."""
    count = len(nearby)
    pairs = len(similarities)
    sums, weights = sum_pairs(similarities, first, second, count)
    elsewhere = sums / weights
    # with one of two samples left out there is no pair
    if count < 3:
        return elsewhere, nearby - elsewhere
    total = similarities.sum()
    excess = nearby.mean() - total / pairs
    nearby_without = (nearby.sum() - nearby) / (count - 1)
    elsewhere_without = (total - sums) / (pairs - weights)
    excess_without = nearby_without - elsewhere_without
    # the jackknife's pseudo-values
    pseudo_values = count * excess - (count - 1) * excess_without
    # a sample that is in all pairs, such as the only one of its class, has no pseudo-value
    return elsewhere, torch.where(weights < pairs, pseudo_values, torch.nan)
