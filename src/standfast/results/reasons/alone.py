"""What each source of variation does without the others."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from standfast.results.reasons.card import Alone, Source
from standfast.results.reasons.draws import AllDraws, NamedReasons, Wanted
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array

_LEVEL = 0.95


def describe_alone(all_draws: AllDraws, wanted: Wanted, named: NamedReasons) -> tuple[Alone, ...]:
    """What each source does alone."""
    maps: dict[Source, Array] = {}
    for source, draws in all_draws.alone.items():
        if draws.kept_maps is not None and draws.varied:
            maps[source] = draws.kept_maps
    if all_draws.present:
        maps["retraining"] = np.stack([draws.origin for draws in all_draws.present])
    variances = _share_variance(maps, named)
    of_explainers = all_draws.of_given_model
    if len(of_explainers) > 1:  # in other units, so that there is no variance
        maps["explainer"] = np.stack([draws.origin for draws in of_explainers])
    return tuple(
        _describe_source(source, values, wanted, named, variances.get(source, math.nan))
        for source, values in maps.items()
    )


def _share_variance(maps: Mapping[Source, Array], named: NamedReasons) -> dict[Source, float]:
    """The share of each source in the variance of the reasons' values, of all sources with several maps."""
    variances: dict[Source, float] = {}
    for source, values in maps.items():
        if len(values) > 1:
            variances[source] = float(values[:, named.order].var(0, ddof=1).sum())
    total = sum(variances.values())
    if not total:
        return {}
    return {source: variance / total for source, variance in variances.items()}


def _describe_source(
    source: Source, maps: Array, wanted: Wanted, named: NamedReasons, variance: float
) -> Alone:
    """What one source does, by its maps `(R, F)`."""
    count = len(maps)
    if not count:
        return Alone(source, 0, math.nan, math.nan, math.nan, variance)
    signed = wanted.sign_first(maps)
    same = int(named.is_same(signed).sum())
    missing = (signed[:, named.order] != named.signs[named.order]).mean(0)
    share = same / count
    low, high = proportion_interval(same, count, _LEVEL)
    if source == "explainer":  # these are all that there are
        low = share
        high = share
    return Alone(source, count, share, low, high, variance, tuple(missing.tolist()))
