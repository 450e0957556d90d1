"""Exact intervals of a proportion."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np
from scipy.special import betaincinv

from standfast.tensors import Array


def proportion_interval(hits: int, samples: int, level: float) -> tuple[float, float]:
    """The exact interval of a proportion, from `hits` of `samples`. Source: Clopper and Pearson, Biometrika 26 (1934).

    >>> [round(end, 4) for end in proportion_interval(19, 20, 0.95)]
    [0.7513, 0.9987]
    """
    low, high = proportion_intervals(np.asarray(hits), np.asarray(samples), level)
    return float(low), float(high)


def proportion_intervals(hits: Array, samples: Array, level: float) -> tuple[Array, Array]:
    """The lower and upper ends of `proportion_interval` for many counts, which need not be whole numbers.

    >>> low, high = proportion_intervals(np.array([19.0, 9.5]), np.array([20.0, 10.0]), 0.95)
    >>> low.round(3), high.round(3)
    (array([0.751, 0.619]), array([0.999, 1.   ]))
    """
    tail = (1 - level) / 2
    with np.errstate(invalid="ignore"):
        # with no hit the lower end is 0, with nothing else the upper end is 1: those quantiles do not exist
        low = np.where(hits > 0, betaincinv(hits, samples - hits + 1, tail), 0.0)
        upper_end = betaincinv(hits + 1, samples - hits, 1 - tail)
        high = np.where(hits < samples, upper_end, 1.0)
    return low, high


@functools.lru_cache(maxsize=4096)
def stopped_interval(
    hits: int, samples: int, looks: tuple[tuple[int, int], ...], level: float
) -> tuple[float, float]:
    """The exact interval of a proportion whose samples were counted several times, and ended once there were enough.

    It inverts the two tails of the number of samples and hits, as Clopper and Pearson do for hits alone. An end with
    fewer samples counts as larger, and among those with as many samples the one with more hits. Source: Jennison and
    Turnbull, "Confidence intervals for a binomial parameter following a multistage test", Technometrics 25 (1983).

    Args:
        hits, samples: where it ended.
        looks: numbers of samples after which it could end, each with the fewest hits that end it, up to `samples` at
            least. With the first of them, or without any, the interval is that of `proportion_interval`.

    >>> [round(end, 4) for end in stopped_interval(60, 400, ((200, 40), (400, 40)), 0.95)]
    [0.1164, 0.1888]
    """
    from scipy.optimize import brentq

    earlier_looks = [look for look in looks if look[0] < samples]
    if not earlier_looks:
        return proportion_interval(hits, samples, level)
    tail = (1 - level) / 2

    def count_larger(p: float, least: int) -> float:
        """The probability of ending earlier, or with at least so many hits at the last look."""
        return 1 - _go_on(p, (*earlier_looks, (samples, least)))

    def solve(least: int, probability: float) -> float:
        """The proportion for which that probability is this one; it grows with the proportion."""
        return float(
            brentq(lambda p: count_larger(p, least) - probability, 0.0, 1.0, xtol=1e-12, rtol=1e-9)
        )

    low = solve(hits, tail) if hits else 0.0
    high = solve(hits + 1, 1 - tail) if hits < samples else 1.0
    return low, high


def _go_on(p: float, looks: Sequence[tuple[int, int]]) -> float:
    """The probability that none of these looks finds enough hits."""
    from scipy.stats import binom

    drawn = 0
    chances = np.ones(1)  # of each number of hits, without an end so far
    for samples, least in looks:
        more = binom.pmf(np.arange(least), samples - drawn, p)
        chances = np.convolve(chances, more)[:least]
        drawn = samples
    return math.fsum(chances)
