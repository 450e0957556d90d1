"""The exact interval of a proportion."""

from __future__ import annotations

from scipy.special import betaincinv


def proportion_interval(hits: int, samples: int, level: float) -> tuple[float, float]:
    """The exact interval of a proportion, from `hits` of `samples`. Source: Clopper and Pearson, Biometrika 26 (1934).

    >>> [round(end, 4) for end in proportion_interval(19, 20, 0.95)]
    [0.7513, 0.9987]
    """
    tail = (1 - level) / 2
    low = float(betaincinv(hits, samples - hits + 1, tail)) if hits > 0 else 0.0
    high = float(betaincinv(hits + 1, samples - hits, 1 - tail)) if hits < samples else 1.0
    return low, high
