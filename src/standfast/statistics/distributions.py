"""Probabilities and quantiles: the normal distribution, Student's t, beta, F and the binomial.

In float64. The tests compare with scipy: relative errors are below 1e-11 for counts up to 100,000, and grow slowly
with larger counts. They are here because scipy takes 143 MB, and standfast needs nothing else of it.

All but the normal distribution follow from the regularised incomplete beta function I_x(a, b), which is a continued
fraction (DLMF 8.17.22) times x^a (1 - x)^b / (a B(a, b)). For large a and b, differences of the logarithms of gamma
functions would lose most digits of that factor. So it is computed from deviances and the errors of Stirling's formula:
Loader, "Fast and accurate computation of binomial probabilities", 2000.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
import torch

from standfast.tensors import Array

_TINY = 1e-300
#: above so many degrees of freedom a series about the normal quantile is exact to 1e-12
_MANY = 1000.0


def normal_cdf(x: npt.ArrayLike) -> Array:
    """P(Z <= x) of a standard normal Z.

    >>> normal_cdf([-1.0, 0.0]).round(4).tolist()
    [0.1587, 0.5]
    """
    return np.asarray(torch.special.erfc(torch.as_tensor(-np.asarray(x, dtype=float) / math.sqrt(2))).numpy() / 2)


def normal_quantile(p: npt.ArrayLike) -> Array:
    """The z with P(Z <= z) = p of a standard normal Z.

    >>> normal_quantile([0.5, 0.975]).round(4).tolist()
    [0.0, 1.96]
    """
    return np.asarray(torch.special.ndtri(torch.as_tensor(np.asarray(p, dtype=float))).numpy())


@functools.lru_cache(maxsize=4096)
def t_quantile(p: float, degrees: float) -> float:
    """The quantile of Student's t distribution for p in [0.5, 1); the degrees of freedom may be infinite.

    >>> [round(t_quantile(0.975, degrees), 3) for degrees in (1, 10, math.inf)]
    [12.706, 2.228, 1.96]
    """
    if degrees <= _MANY or math.isnan(degrees):
        ratio = beta_quantile(2 * (1 - p), degrees / 2, 0.5)
        return math.sqrt(degrees * (1 - ratio) / ratio)
    z, n = float(normal_quantile(p)), degrees
    # Abramowitz and Stegun 26.7.5
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return z + sum(term / n**power for power, term in enumerate(terms, 1))


@functools.lru_cache(maxsize=4096)
def beta_quantile(p: float, a: float, b: float) -> float:
    """The x with I_x(a, b) = p, for p in (0, 1), a and b above 0; NaN where one of them is NaN.

    >>> beta_quantile(0.5, 2.0, 2.0)
    0.5
    """
    if math.isnan(p + a + b):
        return math.nan
    # Newton's method for the logit of x, within an interval that is halved where a step would leave it
    low, high = -700.0, 36.0
    logit, x = math.log(a / b), a / (a + b)
    while True:
        miss, slope = incomplete_beta(x, a, b) - p, _factor(x, a, b)
        low, high = (logit, high) if miss < 0 else (low, logit)
        step = logit - miss / slope if slope > 0 else math.inf
        step = step if low <= step <= high else (low + high) / 2
        x = 1 / (1 + math.exp(-step))
        if abs(step - logit) <= 1e-9:  # the error after a step is about the square of the step
            return x
        logit = step


def proportion_interval(hits: int, samples: int, level: float) -> tuple[float, float]:
    """The exact interval of a proportion, from `hits` of `samples`. Source: Clopper and Pearson, Biometrika 26 (1934).

    >>> [round(end, 4) for end in proportion_interval(19, 20, 0.95)]
    [0.7513, 0.9987]
    """
    tail = (1 - level) / 2
    low = beta_quantile(tail, hits, samples - hits + 1) if hits > 0 else 0.0
    high = beta_quantile(1 - tail, hits + 1, samples - hits) if hits < samples else 1.0
    return low, high


def f_tail(x: float, above: float, below: float) -> float:
    """P(F > x) for an F distribution with `above` and `below` degrees of freedom.

    >>> round(f_tail(4.9646, 1, 10), 4)
    0.05
    """
    return 0.0 if math.isinf(x) else incomplete_beta(below / (below + above * x), below / 2, above / 2)


@functools.lru_cache(maxsize=256)
def binomial_cdf(count: int, q: float) -> Array:
    """P(B <= k) for k = 0 ... `count`, of B successes in `count` trials with probability q in (0, 1); read-only.

    >>> binomial_cdf(2, 0.5).round(6).tolist()
    [0.25, 0.75, 1.0]
    """
    between = [_factor(q, k, count - k) * count / (k * (count - k)) for k in range(1, count)]
    found: Array = np.minimum(np.cumsum([(1 - q) ** count, *between, q**count] if count else [1.0]), 1.0)
    found.flags.writeable = False  # it is kept for the next call
    return found


def incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function I_x(a, b), for x in [0, 1].

    >>> [round(incomplete_beta(x, 2.0, 3.0), 6) for x in (0.0, 0.5, 1.0)]
    [0.0, 0.6875, 1.0]
    """
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # the fraction converges faster on the other side
        return 1 - incomplete_beta(1 - x, b, a)
    # Lentz's method
    d = 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > _TINY else _TINY)
    c, value, change, m = 1.0, d, 0.0, 0
    while abs(change - 1) > 1e-15:
        m += 1
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        for term in (even, odd):
            d, c = 1 + term * d, 1 + term / c
            d, c = 1 / (d if abs(d) > _TINY else _TINY), c if abs(c) > _TINY else _TINY
            change = c * d
            value *= change
    return _factor(x, a, b) / a * value


def _factor(x: float, a: float, b: float) -> float:
    """x^a (1 - x)^b / B(a, b)."""
    n = a + b
    off = a - n * x
    deviance = a * math.log1p(off / (n * x)) + b * math.log1p(-off / (n * (1 - x)))
    error = _stirling_error(n) - _stirling_error(a) - _stirling_error(b)
    return math.sqrt(a * b / (2 * math.pi * n)) * math.exp(error - deviance)


def _stirling_error(z: float) -> float:
    """ln Gamma(z) less Stirling's formula for it, (z - 1/2) ln z - z + ln(2 pi) / 2."""
    if z < 15:
        return math.lgamma(z) - (z - 0.5) * math.log(z) + z - math.log(2 * math.pi) / 2
    s = z**-2
    return (1 / 12 - s * (1 / 360 - s * (1 / 1260 - s * (1 / 1680 - s * (1 / 1188 - s * 691 / 360360))))) / z
