"""Comparison of explainers on the same samples: mean ranks, tests of all pairs, effect sizes; and controls.

Friedman's test answers whether the explainers differ at all. If it rejects, Wilcoxon's signed-rank tests with Holm's
correction find the pairs that differ (Demšar 2006, JMLR 7; García and Herrera 2008, JMLR 9). Ties and censored values
follow the rule of `standfast.statistics.paired`. Values of a sample that differ only by rounding are tied
(`merge_rounding`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from scipy.special import ndtri

from standfast.errors import check
from standfast.statistics.paired import (
    Interval,
    Side,
    check_values,
    find_holm_levels,
    friedman,
    holm,
    median_interval,
    merge_rounding,
    midranks,
    shift_interval,
    signed_rank,
    subtract,
    to_bounds,
)
from standfast.tensors import Array

#: more samples than this are not worth an estimate
_MANY = 10_000


@dataclass(frozen=True, eq=False)
class Comparison:
    """A comparison of k explainers on the n samples that have a value for all of them; i and j are indices in `names`.

    Attributes:
        names: names of the explainers.
        direction: which values are better, `"higher"` or `"lower"`.
        level: significance level of the tests.
        count: n, the number of samples compared.
        left_out: number of samples left out because a value is missing.
        censored: how many of the n x k values are bounds.
        used: bool (samples,), True for the samples compared.
        ranks: (n, k), 1 is best.
        mean_ranks: (k,); NaN without samples.
        friedman_statistic: chi-square, corrected for ties; NaN for k = 2, where only Wilcoxon's test is used.
        friedman_p: p-value of `friedman`; for k = 2 that of Wilcoxon's test.
        p_values: (k, k), two-sided Wilcoxon signed-rank tests, adjusted by Holm's method; 1 on the diagonal.
        effects: (k, k), matched-pairs rank-biserial correlation: 1 if i is better in every sample, -1 if j is.
        differences: k x k medians of `value of i - value of j`; the sign does not depend on the direction.
        smallest_p: the smallest adjusted p-value that is possible with this number of untied samples.
    """

    names: tuple[str, ...]
    direction: str
    level: float
    count: int
    left_out: int
    censored: int
    used: Array
    ranks: Array
    mean_ranks: Array
    friedman_statistic: float
    friedman_p: float
    p_values: Array
    effects: Array
    differences: tuple[tuple[Interval | None, ...], ...]
    smallest_p: float

    @property
    def conclusive_possible(self) -> bool:
        """Whether a significant difference was possible with this number of untied samples."""
        return self.smallest_p <= self.level

    @property
    def significant(self) -> Array:
        """Bool (k, k): the pair differs significantly, and Friedman's test rejects, too."""
        return np.asarray((self.p_values <= self.level) & (self.friedman_p <= self.level))

    @property
    def order(self) -> tuple[int, ...]:
        """Indices in `names` by mean rank, the best first; ties in the order of `names`."""
        order = np.argsort(self.mean_ranks, kind="stable")
        return tuple(map(int, order))

    @property
    def winner_set(self) -> tuple[int, ...]:
        """The best by mean rank, and all that are not significantly worse, in `order`."""
        best = self.order[0]
        worse = self.significant[best] & (self.effects[best] > 0)
        return tuple(index for index in self.order if not worse[index])

    @property
    def decided(self) -> bool:
        """Whether the tests show that some explainer is worse than the best by mean rank."""
        return self.count > 0 and len(self.winner_set) < len(self.names)


def count_needed(explainers: int, level: float = 0.05) -> int:
    """The fewest samples with which a difference between explainers can be significant at all.

    The smallest two-sided p-value of the signed-rank test is 2^(1 - n); Holm's method multiplies it by the number of
    pairs, k (k - 1) / 2.

    >>> count_needed(2), count_needed(6)
    (6, 10)
    """
    comparisons = explainers * (explainers - 1)
    return max(1, math.ceil(math.log2(comparisons / level)))


def estimate_needed(comparison: Comparison) -> int | None:
    """Roughly how many samples would make the largest difference significant, if it stays as large; None if too many.

    The level is divided by the number of pairs.
    """
    effect = float(np.abs(comparison.effects).max())
    k = len(comparison.names)
    if not effect > 0:
        return None
    shown = _count_for_effect(effect, comparison.level / (k * (k - 1)))
    needed = max(shown, count_needed(k, comparison.level), comparison.count + 1)
    if needed > _MANY:
        return None
    digits = math.floor(math.log10(needed))
    step = 10 ** max(0, digits - 1)
    return int(math.ceil(needed / step) * step)


def _count_for_effect(effect: float, error: float) -> float:
    """How many samples make a rank-biserial correlation significant in half of all cases, with an error on one side.

    With n untied samples the signed-rank test has z = r sqrt(3 n / 4) for a correlation r, so n = 4 z^2 / (3 r^2).
    """
    z = float(ndtri(1 - error))
    return 4 * z * z / (3 * effect * effect)


def count_more_against_controls(test: ControlTest, explainers: int) -> int | None:
    """Roughly how many samples more would decide a test against controls, if its effect stays as it is.

    Args:
        test: that is undecided.
        explainers: how many are tested, for which Holm's method corrects.

    Returns:
        None if there is no effect at all, or if too many would be needed.

    >>> test = ControlTest("mine", "random", 8, None, 0.6, 0.2, 1.0, 0.05)
    >>> count_more_against_controls(test, 1), count_more_against_controls(test, 10)
    (3, 17)
    """
    if not abs(test.effect) > 0:
        return None
    shown = _count_for_effect(test.effect, test.level / max(explainers, 1))
    # fewer than this are too few for any effect
    fewest = math.ceil(math.log2(max(explainers, 1) / test.level))
    needed = math.ceil(max(shown, fewest, test.count + 1))
    if needed > _MANY:
        return None
    return needed - test.count


def compare(
    values: Array,
    names: Sequence[str],
    direction: Literal["higher", "lower"],
    censored: Array | None = None,
    censored_side: Side = "upper",
    level: float = 0.05,
) -> Comparison:
    """Compare k explainers on the same samples: Friedman's test, then Wilcoxon's on every pair with Holm's correction.

    Rows with a NaN are left out; infinite values are ranked. If one value of a pair is censored, their difference is a
    bound. If its sign is certain, it is used, and the size is tied with all larger sizes. If the sign is not certain,
    for example because both values are censored, the difference counts as zero.

    Args:
        values: (samples, k).
        names: k different names.
        direction: whether higher or lower values are better.
        censored: bool (samples, k), True for values that are bounds.
        censored_side: `"upper"`: the true value lies at or below a recorded bound; `"lower"`: at or above.
        level: family-wise significance level over the pairs.

    >>> noise = np.random.default_rng(0).normal(size=(20, 3))
    >>> found = compare(noise + [2, 1.9, 0], ["a", "b", "c"], "higher")
    >>> found.order, found.winner_set
    ((0, 1, 2), (0, 1))
    """
    values, flags = check_values(values, censored, censored_side, 2)
    values = merge_rounding(values)
    k = values.shape[1]
    check(k >= 2, "values", "at least two columns", k)
    check(len(names) == k == len(set(names)), "names", f"{k} different names", list(names))
    check(direction in ("higher", "lower"), "direction", "'higher' or 'lower'", repr(direction))
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    used: Array = np.asarray(~np.isnan(values).any(axis=1))
    count = int(used.sum())
    low, high = to_bounds(values[used], flags[used], censored_side)
    bad_low, bad_high = _turn((low, high), direction)
    ranks = midranks(bad_low, bad_high)
    p_values = np.eye(k)
    effects = np.zeros((k, k))
    differences: list[list[Interval | None]] = [[None] * k for _ in range(k)]
    upper = np.triu_indices(k, 1)
    pairs = list(zip(*upper, strict=True))
    untied = 0
    for i, j in pairs if count else ():
        bad_i = (bad_low[:, i], bad_high[:, i])
        bad_j = (bad_low[:, j], bad_high[:, j])
        gain = subtract(bad_j, bad_i)
        p_values[i, j], effect, nonzero = signed_rank(*gain)
        effects[i, j] = effect
        effects[j, i] = -effect
        untied = max(untied, nonzero)
        for a, b in ((i, j), (j, i)):
            bounds_a = (low[:, a], high[:, a])
            bounds_b = (low[:, b], high[:, b])
            difference = subtract(bounds_a, bounds_b)
            differences[a][b] = median_interval(*difference, 1 - level)
    raw = p_values[upper] if count else np.ones(len(pairs))
    p_values[upper] = p_values.T[upper] = holm(raw)
    # of two explainers the signed-rank test of their only pair stands for Friedman's
    if k == 2:
        statistic, p = math.nan, float(raw[0])
    else:
        statistic, p = friedman(ranks)
    return Comparison(
        names=tuple(names),
        direction=direction,
        level=level,
        count=count,
        left_out=len(used) - count,
        censored=int(flags[used].sum()),
        used=used,
        ranks=ranks,
        mean_ranks=ranks.mean(axis=0) if count else np.full(k, np.nan),
        friedman_statistic=statistic,
        friedman_p=p,
        p_values=p_values,
        effects=effects,
        differences=tuple(map(tuple, differences)),
        # n differences give the signed-rank test at least 2^(1 - n), and Holm's first step multiplies by the pairs
        smallest_p=min(1.0, len(pairs) * 2.0 ** (1 - untied)),
    )


def _turn(bounds: tuple[Array, Array], direction: str) -> tuple[Array, Array]:
    """Lower and upper bounds of values of which less is better."""
    low, high = bounds
    if direction == "lower":
        return low, high
    return -high, -low


@dataclass(frozen=True)
class ControlTest:
    """What the tests say of one explainer beside its controls.

    Attributes:
        explainer: its name.
        control: the best control, which is the one that the explainer is furthest from beating: of all controls it
            gives the smallest `effect`.
        count: samples with a value for the explainer and all controls.
        difference: the shift of `value of the explainer - value of the control` that the test tests (`shift_interval`),
            with the errors of the two claims at its ends; None without samples.
        effect: matched-pairs rank-biserial correlation: 1 if the explainer is better in every sample, -1 if the control
            is.
        p_beats: p-value of the claim that the explainer is better than every control, adjusted by Holm's method for
            the number of explainers.
        p_worse: the same of the claim that it is worse than some control.
        level: significance level of the tests.
    """

    explainer: str
    control: str
    count: int
    difference: Interval | None
    effect: float
    p_beats: float
    p_worse: float
    level: float

    @property
    def verdict(self) -> Literal["beats", "worse", "undecided"]:
        """Whether the tests show the explainer to be better than every control, or worse than one, or neither."""
        if self.p_beats <= self.level:
            return "beats"
        return "worse" if self.p_worse <= self.level else "undecided"


def compare_with_controls(
    values: Array,
    names: Sequence[str],
    controls: Sequence[str],
    direction: Literal["higher", "lower"],
    censored: Array | None = None,
    censored_side: Side = "upper",
    level: float = 0.05,
) -> list[ControlTest]:
    """Test each explainer against the best of several controls, on the same samples.

    Wilcoxon's signed-rank test compares an explainer with each control. The claim "better than every control" takes the
    largest of the one-sided p-values, which keeps its level whichever control is the best (Berger 1982, Technometrics
    24): the choice of the best control from the same data needs no correction. The claim "worse than some control"
    takes the smallest, times the number of controls. Holm's method then corrects each claim for the number of
    explainers. Ties and censored values follow the rule of `standfast.statistics.paired`.

    Args:
        values: (samples, k). A row counts for an explainer if it has a value for it and for all controls.
        names: k different names.
        controls: those of them that are controls.
        direction: whether higher or lower values are better.
        censored: bool (samples, k), True for values that are bounds.
        censored_side: `"upper"`: the true value lies at or below a recorded bound; `"lower"`: at or above.
        level: family-wise significance level over the explainers, for each of the two claims.

    Returns:
        A test for each explainer that is not a control, in the order of `names`; none without controls.

    >>> noise = np.random.default_rng(0).normal(size=(20, 3))
    >>> found = compare_with_controls(noise + [2, 0, 0.5], ["mine", "random", "copy"], ["random", "copy"], "higher")
    >>> found[0].control, found[0].verdict
    ('copy', 'beats')
    """
    values, flags = check_values(values, censored, censored_side, 2)
    values = merge_rounding(values)
    check(
        len(names) == values.shape[1] == len(set(names)),
        "names",
        f"{values.shape[1]} different names",
        list(names),
    )
    check(set(controls) <= set(names), "controls", "some of the names", list(controls))
    check(direction in ("higher", "lower"), "direction", "'higher' or 'lower'", repr(direction))
    control_columns = [names.index(name) for name in controls]
    if not control_columns:
        return []
    tests: list[ControlTest] = []
    differences: list[tuple[Array, Array]] = []
    for column, name in enumerate(names):
        if name in controls:
            continue
        used = ~np.isnan(values[:, [column, *control_columns]]).any(axis=1)
        low, high = to_bounds(values[used], flags[used], censored_side)
        bad_low, bad_high = _turn((low, high), direction)
        bad = []
        for index in (column, *control_columns):
            bad.append((bad_low[:, index], bad_high[:, index]))
        against = [_test_one_sided(bad[0], bad_of_control) for bad_of_control in bad[1:]]
        # the control that is hardest to beat; of equal p-values that with the smallest effect
        best = max(
            range(len(against)), key=lambda index: (against[index].p_better, -against[index].effect)
        )
        best_column = control_columns[best]
        differences.append(
            subtract((low[:, column], high[:, column]), (low[:, best_column], high[:, best_column]))
        )
        p_beats_every = max(test.p_better for test in against)
        smallest = min(test.p_worse for test in against)
        p_worse_than_some = min(1.0, len(against) * smallest)
        effect = against[best].effect
        tests.append(
            ControlTest(
                name,
                controls[best],
                int(used.sum()),
                None,
                effect,
                p_beats_every,
                p_worse_than_some,
                level,
            )
        )
    if tests:
        return _correct_for_explainers(tests, differences, direction, len(control_columns))
    return []


@dataclass(frozen=True)
class _OneSided:
    """The signed-rank test of an explainer against one control: r, and the p-values of both claims."""

    effect: float
    p_better: float
    p_worse: float


def _test_one_sided(explainer: tuple[Array, Array], control: tuple[Array, Array]) -> _OneSided:
    """The test of bounds of values of which less is better."""
    p = 1.0
    effect = 0.0
    if len(explainer[0]):
        p, effect, _ = signed_rank(*subtract(control, explainer))
    # the one-sided p-values from the two-sided one, of a statistic that is symmetric under the hypothesis
    p_above = p / 2 if effect > 0 else 1 - p / 2
    p_below = p / 2 if effect < 0 else 1 - p / 2
    return _OneSided(effect, p_above, p_below)


def _correct_for_explainers(
    tests: Sequence[ControlTest],
    differences: Sequence[tuple[Array, Array]],
    direction: str,
    controls: int,
) -> list[ControlTest]:
    """The tests with p-values by Holm's method, and the intervals with the errors at which it tests each claim.

    Args:
        tests: with p-values of each explainer alone.
        differences: bounds of its values less those of its control.
        direction: whether higher or lower values are better.
        controls: how many there are.
    """
    level = tests[0].level
    beats = np.asarray([test.p_beats for test in tests])
    worse = np.asarray([test.p_worse for test in tests])
    beats_errors = find_holm_levels(beats, level)
    # the claim "worse" was multiplied by the number of controls, so each has that part of the error
    worse_errors = find_holm_levels(worse, level) / controls
    # an explainer beats its control where the interval lies above 0, or below where lower is better
    below, above = worse_errors, beats_errors
    if direction == "higher":
        below, above = beats_errors, worse_errors
    corrected = []
    for index, (test, p_beats, p_worse) in enumerate(
        zip(tests, holm(beats), holm(worse), strict=True)
    ):
        interval = None
        if test.count:
            interval = shift_interval(*differences[index], float(below[index]), float(above[index]))
        test = replace(test, p_beats=float(p_beats), p_worse=float(p_worse), difference=interval)
        corrected.append(_drop_contradicting_interval(test))
    return corrected


def _drop_contradicting_interval(test: ControlTest) -> ControlTest:
    """The test without the interval of its difference where ties let this disagree with the verdict."""
    difference = test.difference
    if difference is None or difference.low is None or difference.high is None:
        return test
    excludes_zero = difference.low > 0 or difference.high < 0
    if excludes_zero == (test.verdict != "undecided"):
        return test
    return replace(test, difference=replace(difference, low=None, high=None))
