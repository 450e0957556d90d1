"""How often all reasons are named together."""

from __future__ import annotations

import math

import numpy as np

from standfast.results.reasons.draws import AllDraws, StoredDraws, Wanted
from standfast.results.reasons.tally import Tally
from standfast.statistics.clusters import clustered_interval
from standfast.statistics.decisions import estimate_mean
from standfast.statistics.proportions import proportion_interval

_LEVEL = 0.95


def estimate_same(tally: Tally, all_draws: AllDraws, wanted: Wanted) -> tuple[float, float, float]:
    """The probability that all reasons are named, with its interval; of many reasons the share that is named again."""
    unknown = math.nan, math.nan, math.nan
    if not wanted.decides_each:
        return _estimate_again(tally, all_draws)
    drawn = tally.draws > 0
    if not drawn.any():
        return unknown
    share = float(tally.same.sum() / tally.draws.sum())
    # of large maps it is not known whether draws of other models name the reasons together
    if math.isnan(share):
        return unknown
    if tally.is_all:
        return share, share, share
    if tally.is_clustered:
        return share, *clustered_interval(tally.same[drawn], tally.draws[drawn], _LEVEL)
    return share, *proportion_interval(int(tally.same[0]), int(tally.draws[0]), _LEVEL)


def _estimate_again(tally: Tally, all_draws: AllDraws) -> tuple[float, float, float]:
    """The mean share of many reasons that is named again, with its interval; NaN where it is not known."""
    if not all_draws.retrained and not all_draws.others:
        return _read_estimate(all_draws.given)
    if tally.again is None or not len(tally.again[0]):
        return math.nan, math.nan, math.nan
    shares, models = tally.again
    if tally.is_all:
        return (float(shares.mean()),) * 3
    if tally.is_clustered:
        shares = np.array([shares[models == model].mean() for model in np.unique(models)])
    mean = estimate_mean(shares, _LEVEL)
    return mean.value, max(0.0, mean.low), min(1.0, mean.high)


def _read_estimate(given: StoredDraws) -> tuple[float, float, float]:
    """The estimate that is stored, which is that of the given model and explainer alone."""
    stored = (given.row.get(name) for name in ("value", "low", "high"))
    value, low, high = (math.nan if number is None else float(number) for number in stored)
    return value, low, high
