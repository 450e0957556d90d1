"""Decisions on a requirement: does the whole interval lie on the right side, on the wrong side, or neither?

A requirement on the share of samples, on a quantile or on the median is a statement about one probability: that of a
sample which meets a condition. Its interval is exact (Clopper and Pearson 1934) for any distribution of values.

Whoever looks several times, with more samples each time, gets several chances of a wrong decision. `spend_level` gives
the first look four fifths of the allowed error and look k the part `1 / (5 k (k - 1))`; the parts of all looks,
however many, add up to the whole. So the error is controlled whatever the looks depend on (Bonferroni), at the price of
somewhat wider intervals.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import stdtrit

from standfast.errors import check, check_integer
from standfast.statistics.paired import ROUNDING
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array

Outcome = Literal["pass", "fail", "undecided"]

_FIRST = 0.8  # of the allowed error: most checks are one look
_MOST = 10**7  # samples; a requirement that needs more will not be decided


@dataclass(frozen=True)
class IntervalEstimate:
    """A number with its interval.

    Attributes:
        value: the estimate.
        low, high: the ends of the interval; infinite where it is open.
        level: its confidence.
        count: number of samples.
    """

    value: float
    low: float
    high: float
    level: float
    count: int

    def decide(self, limit: float, better: Literal["higher", "lower"]) -> Outcome:
        """Whether the number is on the better side of `limit`, which itself belongs to that side.

        >>> found = IntervalEstimate(0.7, 0.6, 0.8, 0.95, 20)
        >>> found.decide(0.6, "higher"), found.decide(0.7, "lower")
        ('pass', 'undecided')
        """
        low = self.low
        high = self.high
        # lower is better: turned over, so that one comparison serves both
        if better == "lower":
            low, high, limit = -high, -low, -limit
        if math.isnan(low) or math.isnan(high):
            return "undecided"
        if low >= limit:
            return "pass"
        return "fail" if high < limit else "undecided"


def spend_level(level: float, look: int, requirements: int = 1) -> float:
    """The confidence level for one requirement at one look, so that all decisions together hold with `level`.

    Args:
        level: with this probability no decision on any requirement at any look is wrong.
        look: its number, from 1.
        requirements: how many there are.

    >>> round(spend_level(0.95, 1), 6), round(spend_level(0.95, 2, 5), 6)
    (0.96, 0.999)
    """
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    check_integer(look, "look")
    check_integer(requirements, "requirements")
    part = _FIRST
    # 1 / (k (k - 1)) over k from 2 on adds up to 1, so all later looks have the rest of the error
    if look > 1:
        part = (1 - _FIRST) / (look * (look - 1))
    return 1 - (1 - level) * part / requirements


def estimate_share(
    met: int, unmet: int, unknown: int, level: float, mistaken: float = 0.0
) -> IntervalEstimate:
    """The share of samples that meet a condition, with the interval of Clopper and Pearson.

    Samples of which it is not known whether they meet it count against the share at the lower end, and for it at the
    upper end. The value is the middle of what is possible.

    Args:
        met, unmet, unknown: numbers of samples.
        level: confidence level of the interval.
        mistaken: the largest probability that a sample which does not meet the condition counts as one that does, or
            the other way round. Of p, the share that meets it, at most `p + mistaken (1 - p)` then count as met, and at
            most `1 - p + mistaken p` as unmet; the ends are solved for p.

    >>> found = estimate_share(met=19, unmet=1, unknown=0, level=0.95)
    >>> found.value, round(found.low, 4), round(found.high, 4)
    (0.95, 0.7513, 0.9987)
    """
    count = met + unmet + unknown
    if count == 0:
        return IntervalEstimate(math.nan, 0.0, 1.0, level, 0)
    # a sample that is not known counts as the worse case at each end
    low, _ = proportion_interval(met, count, level)
    _, high = proportion_interval(met + unknown, count, level)
    low = max(0.0, (low - mistaken) / (1 - mistaken))
    high = min(1.0, high / (1 - mistaken))
    share = (met + unknown / 2) / count
    return IntervalEstimate(share, low, high, level, count)


def estimate_mean(values: Array, level: float) -> IntervalEstimate:
    """The mean of `values` (n,) with the wider of Student's interval and Hall's, at each end.

    Student's is exact for normal distributions, and wrong on one side for skewed ones. Hall's (1992, "On the removal of
    skewness by transformation") corrects for the skewness of the sample, and is too narrow for heavy tails.
    `docs/checks.md` has simulations. With fewer than two values, or with equal ones, it is the whole line: nothing is
    known about how values differ.

    >>> found = estimate_mean(np.array([1.0, 2.0, 3.0]), 0.95)
    >>> found.value, round(found.high, 3)
    (2.0, 4.484)
    """
    count = len(values)
    value = math.nan
    deviation = 0.0
    if count:
        value = float(values.mean())
    if count > 1:
        deviation = float(values.std(ddof=1))
    # equal values, or one: nothing is known of how others differ
    if not deviation:
        return IntervalEstimate(value, -math.inf, math.inf, level, count)
    quantile = float(stdtrit(count - 1, 1 - (1 - level) / 2))
    reach = quantile / math.sqrt(count)
    lower = -reach
    upper = reach
    if count > 2:
        offset = values - value
        variance = (offset**2).mean()
        skewness = float((offset**3).mean() / variance**1.5)
        # the unbiased skewness of a sample, G1
        skewness *= math.sqrt(count * (count - 1)) / (count - 2)
        lower = min(lower, _remove_skewness(-reach, skewness, count))
        upper = max(upper, _remove_skewness(reach, skewness, count))
    low = value - upper * deviation
    high = value - lower * deviation
    return IntervalEstimate(value, low, high, level, count)


def _remove_skewness(w: float, skewness: float, count: int) -> float:
    """The inverse of Hall's cubic `t + g t^2 / 3 + g^2 t^3 / 27 + g / (6 n)`, which makes t about normal."""
    # without skewness the cubic is the identity, and its inverse would divide by 0
    if abs(skewness) < 1e-9:
        return w
    cube = 1 + skewness * (w - skewness / (6 * count))
    return 3 / skewness * (float(np.cbrt(cube)) - 1)


def count_until(decided: Callable[[int], bool], start: int) -> int | None:
    """The smallest number of samples above `start`, to about 5%, for which `decided` holds; None if 10^7 are too few.

    >>> count_until(lambda count: count >= 1000, 20)
    1008
    """
    low = start
    high = max(start + 1, 2)
    while not decided(high):
        low, high = high, 2 * high
        if high > _MOST:
            return None
    while high - low > max(1, high // 20):
        middle = (low + high) // 2
        if decided(middle):
            high = middle
        else:
            low = middle
    return high


def foresee_share(estimate: IntervalEstimate, share: float, mistaken: float = 0.0) -> int | None:
    """About how many samples decide whether at least `share` of all meet the condition, if the estimate is right.

    None where the estimate is at the limit itself, so that no number of samples is enough.

    >>> foresee_share(estimate_share(19, 1, 0, 0.95), 0.9), foresee_share(estimate_share(9, 1, 0, 0.95), 0.9)
    (141, None)
    """
    rate = estimate.value

    def decided(count: int) -> bool:
        met = round(rate * count)
        return (
            estimate_share(met, count - met, 0, estimate.level, mistaken).decide(share, "higher")
            != "undecided"
        )

    if math.isnan(rate) or abs(rate - share) < 1e-3:
        return None
    return count_until(decided, estimate.count)


def foresee_mean(estimate: IntervalEstimate, limit: float) -> int | None:
    """About how many samples decide on which side of `limit` the mean is, if mean and deviation stay as they are."""
    reach = (estimate.high - estimate.low) / 2
    distance = abs(estimate.value - limit)
    if not (math.isfinite(reach) and reach > 0) or distance < 1e-3 * reach:
        return None
    # intervals shrink as the root of the count
    needed = math.ceil(estimate.count * (reach / distance) ** 2)
    return max(estimate.count + 1, needed)


def count_met(
    low: Array, high: Array, limit: float, better: Literal["higher", "lower"]
) -> tuple[int, int, int]:
    """How many of values known to lie in `[low, high]` (n,) meet the limit, do not, and of how many it is not known.

    >>> count_met(np.array([1.0, 3.0, 1.0]), np.array([1.0, 3.0, 5.0]), 2.0, "higher")
    (1, 1, 1)
    >>> count_met(np.array([0.9999999999999998]), np.array([0.9999999999999998]), 1.0, "higher")  # but for rounding
    (1, 0, 0)
    """
    margin = ROUNDING * abs(limit)
    if better == "higher":
        met = low >= limit - margin
        unmet = high < limit - margin
    else:
        met = high <= limit + margin
        unmet = low > limit + margin
    unknown = ~met & ~unmet
    return int(met.sum()), int(unmet.sum()), int(unknown.sum())
