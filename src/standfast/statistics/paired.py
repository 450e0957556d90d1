"""Intervals and tests for values over samples, some of which may be censored.

A censored value is not known exactly; only a bound is known. It stands for the interval `(-inf, bound]` (side
`"upper"`) or `[bound, inf)` (side `"lower"`). One rule applies everywhere: **values whose order is not certain are
tied**. Two censored values of a row are always tied. A censored and an uncensored value are tied if the uncensored one
lies in the interval or on the bound; else their order is certain. The rank of a value is
`(k + 1)/2 + (number certainly below - number certainly above)/2`: the midrank if nothing is censored, else Gehan's
(1965) score. The ranks of a row sum to `k (k + 1)/2`. Means are not computed over bounds.

Both tests are conditional on these ranks: they permute them within a row, or flip signs. So they keep their level for
all patterns of ties, if under the null hypothesis censoring does not depend on the explainer. A common floor is such a
censoring.

Sources: Efron 1987 (JASA 82); Friedman 1937 (JASA 32); Iman and Davenport 1980 (Comm. Stat. A9); Conover 1999
(Practical Nonparametric Statistics); Wilcoxon 1945 (Biometrics Bull. 1); Pratt 1959 (JASA 54); Streitberg and Röhmel
1986 (Stat. Software Newsl. 12); Holm 1979 (Scand. J. Stat. 6); Kerby 2014 (Compr. Psychol. 3); Gehan 1965 (Biometrika
52).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Literal, Protocol

import numpy as np
from scipy.special import bdtr, fdtrc, ndtr, ndtri

from standfast.errors import check
from standfast.statistics.bootstrap import intervals_of_means
from standfast.tensors import Array

Side = Literal["upper", "lower"]

#: up to this number of differences the signed-rank test is exact; for more it uses a normal approximation
EXACT_DIFFERENCES = 200
#: up to this number of rows Friedman's test permutes; for more it uses Iman and Davenport's F
PERMUTED_ROWS = 50
#: steps of a bisection to the precision of a float
_HALVINGS = 48
#: of so many values the means of all pairs are made and ordered, in a twentieth of the time of a bisection
_FEW_TO_PAIR = 200
#: values that differ by no more than this share of the larger one are equal: they differ by rounding. It is half of the
#: sixth digit, and eight times the precision of single numbers
ROUNDING = 5e-7
_CELLS = 2_000_000  # numbers in memory at a time, in a permutation test


class Readable(Protocol):
    """How to read the results of a configured metric: its column, the better direction, the censored values."""

    @property
    def column(self) -> str:
        """The column of `Results.samples` with the values."""

    @property
    def direction(self) -> str | None:
        """Which values are better, `"higher"` or `"lower"`; None if the metric is not ranked."""

    @property
    def censored(self) -> str | None:
        """The column that is True for values that are bounds."""

    @property
    def censored_side(self) -> Side:
        """`"upper"`: the true value lies at or below a bound; `"lower"`: at or above."""

    @property
    def only(self) -> tuple[str, ...]:
        """Columns that must be True for a row to count."""

    @property
    def varied(self) -> str | None:
        """The column that is False for rows that do not count, since there was nothing to vary."""


@dataclass(frozen=True)
class Interval:
    """A statistic over samples and its confidence interval.

    Attributes:
        value: the statistic. It is an upper bound if `bound` is `"upper"`, a lower bound if `bound` is `"lower"`, and
            NaN if `bound` is `"unknown"`.
        low, high: the ends of the interval; None if there is no interval (a single value), infinite if it is open.
        count: number of values.
        coverage: the confidence of the interval. For a median it is the attained confidence. This is at least the
            requested level, except where no interval between order statistics reaches it (five values or fewer at
            0.95).
        bound: None if the value is exact.
        between: the range in which the statistic lies with certainty; both ends are equal if it is exact.
        low_bound: if `low` is minus infinity, an upper bound of the lower end; None if there is no finite one.
        high_bound: if `high` is infinite, a lower bound of the upper end; None if there is no finite one.
    """

    value: float
    low: float | None
    high: float | None
    count: int
    coverage: float
    bound: Literal["upper", "lower", "unknown"] | None
    between: tuple[float, float]
    low_bound: float | None = None
    high_bound: float | None = None

    @property
    def exact(self) -> bool:
        """Whether the statistic does not depend on censored values."""
        return self.bound is None


def bootstrap_interval(
    values: Array,
    statistic: Literal["median", "mean"] = "median",
    censored: Array | None = None,
    censored_side: Side = "upper",
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval | None:
    """The mean or median of `values` (n,) with its interval. None if there are no values; no interval for one value.

    The mean has Efron's (1987) BCa interval with jackknife acceleration. It is a method for large samples. In
    simulations of normal, exponential, t (3) and discrete populations, its actual coverage at the 95% level is 80% to
    87% for n = 5, 87% to 94% for n = 10, 89% to 95% for n = 20 and 92% to 95% for n = 100; it is lowest for heavy
    tails.

    The median has an exact interval, not a bootstrap one: bootstrap and jackknife values of a median take only a few
    order statistics, so the acceleration has no meaning, and ties make this worse. The median lies between the l-th
    smallest and the l-th largest value with probability `1 - 2 P(Bin(n, 1/2) < l)`, or more if there are ties. The
    largest l that keeps the level is used; if there is none, the smallest and the largest value. `coverage` is the
    attained probability. The interval is monotone in the data, so censored values move its ends no further than their
    bounds allow, and the coverage holds for the true values.

    Args:
        values: (n,), without NaN.
        statistic: `"median"` or `"mean"`.
        censored: bool (n,), True for values that are bounds. There is no mean of bounds.
        censored_side: `"upper"`: the true value lies at or below the recorded one, and the interval may be open below;
            `"lower"`: at or above, and the interval may be open above.
        level: confidence level.
        resamples, seed: options of the bootstrap.

    Raises:
        ArgumentError: a mean of censored values was requested, or a value is NaN.

    >>> bootstrap_interval(np.array([-3.0, -5.0, -20.0]), censored=np.array([False, False, True])).exact
    True
    >>> found = bootstrap_interval(np.array([-3.0, -20.0, -20.0]), censored=np.array([False, True, True]))
    >>> found.value, found.bound, found.low, found.low_bound, found.high, found.coverage
    (-20.0, 'upper', -inf, -20.0, -3.0, 0.75)
    """
    values, flags = check_values(values, censored, censored_side, 1)
    check(statistic in ("median", "mean"), "statistic", "'median' or 'mean'", repr(statistic))
    missing = int(np.isnan(values).sum())
    check(missing == 0, "values", "no NaN", f"{missing} NaN")
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    if len(values) == 0:
        return None
    if statistic == "median":
        return median_interval(*to_bounds(values, flags, censored_side), level, censored_side)
    check(
        not flags.any(),
        "statistic",
        "'median' for censored values, because bounds have no mean",
        "'mean'",
    )
    check(bool(np.isfinite(values).all()), "values", "finite numbers for a mean", "an infinity")
    check(resamples > 0, "resamples", "a positive number", resamples)
    return _mean_interval(values, level, resamples, seed)


def median_over_repeats(
    values: Array, censored: Array | None = None, censored_side: Side = "upper"
) -> tuple[Array, Array]:
    """Medians (n, k) over the first axis of `values` (r, n, k), and a mask of those that are bounds.

    NaN values are ignored; the median is NaN if all values are. It is a bound if censored values can change it.

    >>> values = np.array([-3.0, -20.0, -4.0]).reshape(3, 1, 1)
    >>> median_over_repeats(values, values < -10), median_over_repeats(values, values < -3.5)
    ((array([[-4.]]), array([[False]])), (array([[-4.]]), array([[ True]])))
    """
    values, flags = check_values(values, censored, censored_side, 3)
    low_values, high_values = to_bounds(values, flags, censored_side)
    low = _nanmedian(low_values)
    high = _nanmedian(high_values)
    medians = high if censored_side == "upper" else low
    is_bound = (low != high) & ~np.isnan(high)
    return medians, is_bound


def midranks(low: Array, high: Array | None = None) -> Array:
    """Ranks along the last axis (..., k), 1 for the smallest, of values known to lie in `[low, high]`.

    Values whose order is not certain are tied.

    >>> midranks(np.array([3.0, 1.0, 3.0]))
    array([2.5, 1. , 2.5])
    >>> midranks(np.array([-np.inf, -15.0, -20.0]), np.array([-10.0, -15.0, -20.0]))
    array([2. , 2.5, 1.5])
    """
    if high is None:
        high = low
    k = low.shape[-1]
    if low.ndim == 1:
        below = np.searchsorted(np.sort(high), low, side="left")
        up_to = np.searchsorted(np.sort(low), high, side="right")
        above = k - up_to
    else:
        before = high[..., None, :] < low[..., :, None]
        below = before.sum(axis=-1)
        above = before.sum(axis=-2)
    return np.asarray((k + 1 + below - above) / 2)


def friedman(ranks: Array, permutations: int = 9999, seed: int = 0) -> tuple[float, float]:
    """Friedman's chi-square of `ranks` (n, k), corrected for ties, and its p-value.

    The chi-square distribution is a poor approximation for few rows. For up to 50 rows that are not all tied, the
    p-value is that of a permutation test: `(1 + number as large) / (1 + number drawn)` over ranks permuted within their
    rows. For more rows it is that of Iman and Davenport's F, and at least the smallest p-value that a permutation test
    can give.

    >>> friedman(np.array([[1.0, 2, 3]] * 3))[0]
    6.0
    >>> friedman(np.full((5, 3), 2.0))
    (0.0, 1.0)
    """
    k = ranks.shape[1]
    # twice the ranks minus their mean are integers, so equal statistics compare as equal
    centred = np.rint(2 * ranks).astype(np.int64) - (k + 1)
    # a row whose values are all tied is the same after each permutation
    differs = (centred != 0).any(axis=1)
    centred = centred[differs]
    rows = len(centred)
    if rows == 0:
        return 0.0, 1.0
    column_sums = centred.sum(axis=0)
    spread = int((column_sums**2).sum())
    scale = (k - 1) / int((centred**2).sum())
    statistic = scale * spread
    if rows > PERMUTED_ROWS:
        rest = rows * (k - 1) - statistic
        # where all rows agree, Iman and Davenport's F is infinite
        ratio = math.inf
        if rest > 1e-9:
            ratio = (rows - 1) * statistic / rest
        p = float(fdtrc(k - 1, (rows - 1) * (k - 1), ratio))
        smallest = math.exp((1 - rows) * math.lgamma(k + 1))
        return statistic, max(p, smallest)
    rng = np.random.Generator(np.random.PCG64(seed))
    as_large = 0
    step = max(1, _CELLS // centred.size)
    for start in range(0, permutations, step):
        size = (min(step, permutations - start), rows, k)
        copies = np.broadcast_to(centred, size)
        drawn = rng.permuted(copies, axis=-1)
        drawn_sums = drawn.sum(axis=1)
        drawn_spread = (drawn_sums**2).sum(axis=1)
        as_large += int((drawn_spread >= spread).sum())
    return statistic, (1 + as_large) / (1 + permutations)


def signed_rank(low: Array, high: Array | None = None) -> tuple[float, float, int]:
    """Wilcoxon's signed-rank test of differences (n,) known to lie in `[low, high]`.

    Returns the two-sided p-value, the rank-biserial correlation r, and the number of nonzero differences.

    A difference whose sign is not certain counts as zero. Zeros are ranked and then dropped (Pratt 1959), so their
    number affects the ranks. The p-value is exact, conditional on ties and zeros, for up to 200 nonzero differences
    (Streitberg and Röhmel 1986); for more it uses a normal approximation. `scipy.stats.wilcoxon` is exact only without
    ties, or for up to 13 differences. Censored data have many ties, and for few nonzero differences the normal
    approximation is wrong.

    The effect r is Kerby's (2014) simple difference, `(W+ - W-) / (n (n + 1) / 2)`. Zeros count in the denominator but
    in neither W, so a few differences among many ties are a small effect.

    >>> signed_rank(np.array([1.0, 2.0, 3.0, 4.0]))
    (0.125, 1.0, 4)
    >>> signed_rank(np.array([0.0, 2.0]))
    (1.0, 0.666, 1)
    """
    if high is None:
        high = low
    sign = (low > 0).astype(float) - (high < 0)
    both_sizes = np.abs(np.stack([low, high]))
    smaller_and_larger = np.sort(both_sizes, axis=0)
    sizes = np.where(sign == 0, 0.0, smaller_and_larger)
    # sizes that differ only by rounding are tied, such as 0.3 - 0.2 and 0.2 - 0.1
    largest = sizes[np.isfinite(sizes)].max(initial=0.0)
    if largest > 0:
        sizes = np.round(sizes / largest, 12)
    ranks = midranks(sizes[0], sizes[1])
    count = len(ranks)
    balance = float((sign * ranks).sum())
    effect = 0.0
    if count:
        effect = balance / (count * (count + 1) / 2)
    is_untied = sign != 0
    weights = np.rint(2 * ranks[is_untied]).astype(np.int64)  # integers
    untied = len(weights)
    if untied == 0 or balance == 0:
        return 1.0, effect, untied
    if untied > EXACT_DIFFERENCES:
        deviations = abs(balance) / math.sqrt((weights**2).sum())
        return float(2 * ndtr(-2 * deviations)), effect, untied
    chance = _sum_chances(weights)
    is_positive = sign[is_untied] > 0
    positive = int(weights[is_positive].sum())
    # one tail in either direction: the observed sum counts in both
    low_tail = chance[: positive + 1].sum()
    high_tail = chance[positive:].sum()
    tail = min(low_tail, high_tail)
    return float(min(1.0, 2 * tail)), effect, untied


def shift_interval(low: Array, high: Array, below: float, above: float) -> Interval:
    """The shift of differences (n,) known to lie in `[low, high]`: what the signed-rank test tests, with its interval.

    The shift is the median of the means of all pairs of differences, each with itself included (Hodges and Lehmann
    1963). Its interval has the shifts that the test does not reject (Moses 1965), so it excludes 0 where the test does,
    except for ties: the interval is that of the test without ties.

    Args:
        low, high: bounds of each difference.
        below, above: the errors of the lower and of the upper end; the confidence is 1 - below - above.

    >>> shift_interval(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0]), np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0]), 0.025, 0.025)
    Interval(value=3.5, low=1.0, high=7.0, count=6, coverage=0.95, bound=None, between=(3.5, 3.5), ...)
    """
    count = len(low)
    pairs = count * (count + 1) // 2
    least = most = _find_median_mean(low)
    if not np.array_equal(low, high):
        most = _find_median_mean(high)
    bounds = np.concatenate([low, high])
    largest = np.abs(bounds[np.isfinite(bounds)]).max(initial=1.0)
    # they differ by rounding
    if abs(least - most) <= 1e-9 * largest:
        least = most
    bound: Literal["unknown"] | None = None
    value = most
    if least != most:
        bound = "unknown"
        value = math.nan
    below_count = _count_rejected(count, below)
    above_count = _count_rejected(count, above)
    start = -math.inf
    end = math.inf
    if below_count:
        start = _select_mean_of_pair(low, below_count - 1)
    if above_count:
        end = _select_mean_of_pair(high, pairs - above_count)
    return Interval(value, start, end, count, 1 - below - above, bound, (least, most))


def _find_median_mean(values: Array) -> float:
    """The median of the means of all pairs of values, each with itself included."""
    pairs = len(values) * (len(values) + 1) // 2
    lower = _select_mean_of_pair(values, (pairs - 1) // 2)
    upper = _select_mean_of_pair(values, pairs // 2)
    return sum([lower, upper]) / 2


def _select_mean_of_pair(values: Array, rank: int) -> float:
    """The mean that has `rank` smaller ones, of the means of all pairs of values, each with itself included."""
    sizes = np.abs(values[np.isfinite(values)])
    largest = sizes.max(initial=0.0) or 1.0
    # in the place of infinity: its mean with any finite number is beyond all of these
    far = 4 * largest
    ordered = np.sort(np.clip(values, -far, far))
    if len(ordered) <= _FEW_TO_PAIR:
        sums = (ordered[:, None] + ordered)[np.tri(len(ordered), dtype=bool)]
        mean = float(np.partition(sums, rank)[rank]) / 2
    else:
        mean = _bisect_mean_of_pair(ordered, rank)
    if abs(mean) <= 1.25 * largest:
        return mean
    return math.copysign(math.inf, mean)


def _bisect_mean_of_pair(ordered: Array, rank: int) -> float:
    """The same of ascending values, in memory for the values and not for the pairs."""
    low = float(ordered[0])
    high = float(ordered[-1])
    for _ in range(_HALVINGS):
        middle = low + (high - low) / 2
        largest_partners = 2 * middle - ordered
        both_orders = int(np.searchsorted(ordered, largest_partners, side="right").sum())
        with_itself = int(np.searchsorted(ordered, middle, side="right"))
        # each pair was counted in both orders, and each value once with itself
        if (both_orders + with_itself) // 2 > rank:
            high = middle
        else:
            low = middle
    partner = np.searchsorted(ordered, 2 * high - ordered, side="right") - 1
    # the largest of those up to `high` is the one: exactly, unless values span more than eight orders of magnitude
    sums = ordered + ordered[partner]
    means = sums[partner >= 0] / 2
    return float(means.max(initial=-math.inf))


def _count_rejected(count: int, error: float) -> int:
    """How many of the smallest means of pairs lie outside of an interval with this error at its end; 0 if none can."""
    pairs = count * (count + 1) // 2
    if count > EXACT_DIFFERENCES:
        # the normal approximation of the signed-rank sum, whose variance is n (n + 1) (2 n + 1) / 24
        variance = count * (count + 1) * (2 * count + 1) / 24
        quantile = float(ndtri(error))
        rank = math.floor(pairs / 2 + quantile * math.sqrt(variance))
        return max(0, rank + 1)
    chance = np.cumsum(_signed_rank_chances(count))
    return int(np.searchsorted(chance, error + 1e-12, side="right"))


@cache
def _signed_rank_chances(count: int) -> Array:
    """`_sum_chances` of so many differences without ties."""
    return _sum_chances(range(1, count + 1))


def _sum_chances(ranks: Iterable[int]) -> Array:
    """The probability of every sum of the positive ranks, if each sign is positive with probability 1/2."""
    chance = np.ones(1)
    for rank in ranks:
        # a sum that includes this rank is as probable as one without it
        half = chance / 2
        chance = np.concatenate([half, np.zeros(rank)])
        chance[rank:] += half
    return chance


def holm(p_values: Array) -> Array:
    """Holm's (1979) adjusted p-values.

    >>> holm(np.array([0.01, 0.04, 0.03]))
    array([0.03, 0.06, 0.06])
    """
    order = np.argsort(p_values, kind="stable")
    tests_left = np.arange(len(order), 0, -1)
    products = p_values[order] * tests_left
    adjusted = np.empty(len(order))
    # a step-down method: no adjusted p-value is below that of a smaller one
    adjusted[order] = np.maximum.accumulate(products)
    return np.minimum(adjusted, 1.0)


def find_holm_levels(p_values: Array, level: float) -> Array:
    """The level at which Holm's method tests each p-value: what it rejects is at most that, and the others are more.

    >>> find_holm_levels(np.array([0.001, 0.9, 0.5]), 0.06)
    array([0.02, 0.03, 0.03])
    """
    count = len(p_values)
    order = np.argsort(p_values, kind="stable")
    rejected = int((holm(p_values) <= level).sum())
    left = count - np.minimum(np.arange(count), rejected)
    levels = np.empty(count)
    levels[order] = level / left
    return levels


def check_values(
    values: Array, censored: Array | None, side: str, axes: int
) -> tuple[Array, Array]:
    """The values as floats and the mask of the censored ones; raises `ArgumentError` for wrong shapes or sides."""
    values = np.asarray(values, dtype=float)
    shape = values.shape
    check(values.ndim == axes, "values", f"an array of {axes} axes", f"shape {shape}")
    if censored is None:
        flags = np.zeros(shape, dtype=bool)
    else:
        flags = np.asarray(censored, dtype=bool)
    check(flags.shape == shape, "censored", f"the shape of the values, {shape}", flags.shape)
    check(side in ("upper", "lower"), "censored_side", "'upper' or 'lower'", repr(side))
    return values, flags & ~np.isnan(values)


def merge_rounding(values: Array) -> Array:
    """Values (n, k), where those of a row that differ only by rounding are the same: `ROUNDING` of the larger one.

    Differences of numbers of the usual size may be near 0 by rounding, too. So no smaller size counts than the median.

    >>> merge_rounding(np.array([[1.0, 0.9999999999999998, 0.9], [0.3, 0.2, 0.1 + 0.2]])).tolist()
    [[0.9999999999999998, 0.9999999999999998, 0.9], [0.3, 0.2, 0.3]]
    """
    if not values.size:
        return values
    is_number = np.isfinite(values) & (values != 0)
    sizes = np.abs(values[is_number])
    usual = 0.0
    if len(sizes):
        usual = float(np.median(sizes))
    order = np.argsort(values, axis=1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=1)
    with np.errstate(invalid="ignore"):  # the difference of two infinities
        gaps = np.diff(ordered, axis=1)
    size = np.abs(ordered)
    larger = np.maximum(size[:, 1:], size[:, :-1])
    rounding = ROUNDING * np.maximum(larger, usual)
    is_same = np.isfinite(gaps) & (gaps <= rounding)
    # of each value the column at which its run of equal values begins
    columns = np.arange(values.shape[1])
    begins_run = ~np.pad(is_same, ((0, 0), (1, 0)))
    run_starts = np.maximum.accumulate(np.where(begins_run, columns, 0), axis=1)
    first_of_runs = np.take_along_axis(ordered, run_starts, axis=1)
    merged = np.empty_like(values)
    np.put_along_axis(merged, order, first_of_runs, axis=1)
    return merged


def to_bounds(values: Array, censored: Array, side: Side) -> tuple[Array, Array]:
    """Lower and upper bounds of the true values."""
    if side == "upper":
        return np.where(censored, -np.inf, values), values
    return values, np.where(censored, np.inf, values)


def subtract(a: tuple[Array, Array], b: tuple[Array, Array]) -> tuple[Array, Array]:
    """Lower and upper bounds of the differences a - b; the difference of two equal infinities is zero."""
    a_low, a_high = a
    b_low, b_high = b
    with np.errstate(invalid="ignore"):
        low = a_low - b_high
        high = a_high - b_low
    # infinity less infinity is NaN: no difference where both values are known, and else nothing is known
    both_known = (a_low == a_high) & (b_low == b_high)
    low_of_nan = np.where(both_known, 0.0, -np.inf)
    high_of_nan = np.where(both_known, 0.0, np.inf)
    low = np.where(np.isnan(low), low_of_nan, low)
    high = np.where(np.isnan(high), high_of_nan, high)
    return low, high


def _median_of_sorted(ordered: Array) -> float:
    count = len(ordered)
    a = float(ordered[(count - 1) // 2])
    b = float(ordered[count // 2])
    # two infinities have no mean but themselves, and the sum of large numbers may overflow
    if a == b:
        return a
    return a / 2 + b / 2


def _nanmedian(values: Array) -> Array:
    """`np.nanmedian` over the first axis, but also for infinite values, and without a warning if all are NaN."""
    ordered = np.sort(values, axis=0)  # NaN comes last
    present = (~np.isnan(values)).sum(axis=0)[None]
    lower_middle = np.maximum((present - 1) // 2, 0)
    a = _take(ordered, lower_middle)
    b = _take(ordered, present // 2)
    middle = a / 2 + b / 2
    medians = np.where(a == b, a, middle)
    return np.asarray(medians)


def _take(ordered: Array, index: Array) -> Array:
    """The entries along the first axis, at most the last ones; `index` has one entry along it."""
    index = np.minimum(index, len(ordered) - 1)
    entries = np.take_along_axis(ordered, index, axis=0)
    return np.asarray(entries[0])


def median_interval(low: Array, high: Array, level: float, side: Side = "upper") -> Interval:
    """The median of values known to lie between `low` and `high` `(n,)`, and its binomial interval.

    `bootstrap_interval` checks the arguments and describes the method. If the median has a finite lower and a finite
    upper bound, `side` decides which one is the value.
    """
    count = len(low)
    low = np.sort(low)
    high = np.sort(high)
    least = _median_of_sorted(low)
    most = _median_of_sorted(high)
    bound: Literal["upper", "lower", "unknown"] | None = None
    value = most
    if least != most:
        bound = _find_bound(least, most, side)
    if bound == "lower":
        value = least
    elif bound == "unknown":
        value = math.nan
    if count < 2:
        return Interval(value, None, None, count, 0.0, bound, (least, most))
    # the number of values below the median has the distribution Bin(n, 1/2)
    below = bdtr(np.arange(count + 1), count, 0.5)
    # l must be at least 1, and at most half of the values can lie on either side
    order = int(np.searchsorted(2 * below, 1 - level + 1e-12, side="right"))
    order = max(1, min(count // 2, order))
    first = order - 1
    last = count - order
    return Interval(
        value,
        low=float(low[first]),
        high=float(high[last]),
        count=count,
        coverage=float(1 - 2 * below[first]),
        bound=bound,
        between=(least, most),
        low_bound=_bound_open_end(low[first], high[first]),
        high_bound=_bound_open_end(high[last], low[last]),
    )


def _find_bound(least: float, most: float, side: Side) -> Literal["upper", "lower", "unknown"]:
    """Which end of the range of a median is its value: that of `side`, or else the other one, if it is finite."""
    is_finite: dict[Side, bool] = {"upper": math.isfinite(most), "lower": math.isfinite(least)}
    if is_finite[side]:
        return side
    other: Side = "lower" if side == "upper" else "upper"
    if is_finite[other]:
        return other
    return "unknown"


def _bound_open_end(end: float, bound: float) -> float | None:
    """What an infinite end is known to be beyond; None for a finite end, or where that is infinite, too."""
    if math.isinf(end) and math.isfinite(bound):
        return float(bound)
    return None


def _mean_interval(values: Array, level: float, resamples: int, seed: int) -> Interval:
    count = len(values)
    mean = float(values.mean())
    # every resample of equal values is the same
    if values.min() == values.max():
        value = float(values[0])
        if count == 1:
            return Interval(value, None, None, count, 0.0, None, (value, value))
        return Interval(value, value, value, count, level, None, (value, value))
    _, low, high = intervals_of_means(
        values[:, None], level=level, resamples=resamples, seed=seed, fewest=2
    )
    # squares may overflow
    start = float(low[0]) if math.isfinite(low[0]) else None
    end = float(high[0]) if math.isfinite(high[0]) else None
    return Interval(mean, start, end, count, level, None, (mean, mean))
