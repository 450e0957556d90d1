"""Explainers compared on the same samples: mean ranks, tests of all pairs, effect sizes, cliques.

Friedman's test asks whether the explainers differ at all; if it rejects, Wilcoxon's signed-rank tests with Holm's
correction say which pairs do (Demšar 2006, JMLR 7; García and Herrera 2008, JMLR 9). Ties and censored values are
treated by the rule of `holdfast.statistics.paired`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from holdfast.errors import check
from holdfast.statistics.paired import (
    Array,
    Interval,
    Side,
    bounds,
    checked,
    friedman,
    holm,
    median_interval,
    midranks,
    signed_rank,
    subtract,
)


@dataclass(frozen=True, eq=False)
class Comparison:
    """k explainers on the same samples. Index i and j are places in `names`; n samples have a value for all of them.

    Attributes:
        names: of the explainers.
        direction: `"higher"` or `"lower"` is better.
        level: of the tests.
        count: n, the samples compared.
        left_out: samples left out for lack of a value.
        censored: how many of the n x k values are bounds.
        used: (samples,) of bool, which were compared.
        ranks: (n, k), 1 is best.
        mean_ranks: (k,); NaN without samples.
        friedman_statistic: chi-square with ties accounted for; NaN for k = 2, where Wilcoxon's test stands alone.
        friedman_p: of `friedman`; of Wilcoxon's test for k = 2.
        p_values: (k, k), two-sided Wilcoxon signed-rank tests, adjusted by Holm; 1 on the diagonal.
        effects: (k, k), matched-pairs rank-biserial correlation: 1 where i is better in every sample, -1 where j is.
        differences: k x k medians of `value of i - value of j`, as recorded and not turned by the direction.
        smallest_p: the smallest adjusted p that so many untied samples could have given.
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
        """Whether any pair could have differed significantly."""
        return self.smallest_p <= self.level

    @property
    def significant(self) -> Array:
        """(k, k) of bool: the pair differs, and so do the explainers altogether (Friedman)."""
        return np.asarray((self.p_values <= self.level) & (self.friedman_p <= self.level))

    @property
    def order(self) -> tuple[int, ...]:
        """Places in `names` by mean rank, the best first; equal ones as in `names`."""
        return tuple(int(place) for place in np.argsort(self.mean_ranks, kind="stable"))

    @property
    def cliques(self) -> tuple[tuple[int, ...], ...]:
        """Groups within which no pair differs significantly, contiguous in `order`, none within another (Demšar 2006).

        Everything where Friedman's test does not reject. An explainer on its own is a group of one.
        """
        order, differ = self.order, self.significant
        found: list[tuple[int, ...]] = []
        end = 0
        for start in range(len(order)):
            stop = start + 1
            while stop < len(order) and not differ[order[stop], list(order[start:stop])].any():
                stop += 1
            if stop > end:
                found.append(order[start:stop])
                end = stop
        return tuple(found)

    @property
    def winner_set(self) -> tuple[int, ...]:
        """The best by mean rank and all that are not shown to be worse than it, in `order`."""
        best = self.order[0]
        worse = self.significant[best] & (self.effects[best] > 0)
        return tuple(place for place in self.order if not worse[place])

    def sentence(self) -> str:
        """What was found, in a sentence."""
        names, k, order = self.names, len(self.names), self.order
        if self.count == 0:
            return f"No sample has a value for all of {_listed(names)}, so nothing is ranked."
        best, significant = order[0], self.significant
        samples = f"{self.count} sample{'s' if self.count > 1 else ''}"
        samples += f" ({self.left_out} left out)" if self.left_out else ""
        first = [names[place] for place in order if self.mean_ranks[place] == self.mean_ranks[best]]
        if len(first) == k and not significant.any():
            return f"All have the same mean rank; {samples}."
        rank = f"mean rank {self.mean_ranks[best]:.2f} of {k}"
        who = f"{_listed(first)} {'is' if len(first) == 1 else 'are'} ranked best ({rank})"
        if not self.conclusive_possible:
            reason = "too few" if k * (k - 1) * 2.0**-self.count > self.level else "too often tied"
            return f"{who}, but {samples}: {reason} for any difference to be significant (p ≥ {self.smallest_p:.2g})."
        if not significant.any():
            test = "Wilcoxon" if k == 2 else "Friedman"
            also = ", but no pair on its own" if self.friedman_p <= self.level else ""
            return f"{who}, but no difference is demonstrated ({test}: {_p(self.friedman_p)}{also}); {samples}."
        ahead = self.effects[best] > 0
        others = [place for place in order if place != best]
        said = []
        for words, which in (
            ("differs from", significant[best] & ahead),
            ("is surpassed, weighing each difference by its size, by", significant[best] & ~ahead),
            ("not demonstrably from", ~significant[best]),
        ):
            found = [f"{names[j]} ({_p(self.p_values[best, j])})" for j in others if which[j]]
            if 3 < len(found) == len(others):
                found = [f"all others (each {_p(self.p_values[best, others].max(), '≤')})"]
            said += [f"{words} {_listed(found)}"] if found else []
        if not significant[best].any():
            said = ["does " + said[0].replace("not demonstrably", "not demonstrably differ")]
        subject = "it" if len(first) == 1 else names[best]
        return f"{who}; {subject} {' but '.join(said)}; {samples}."


def compare(
    values: Array,
    names: Sequence[str],
    direction: Literal["higher", "lower"],
    censored: Array | None = None,
    censored_side: Side = "upper",
    level: float = 0.05,
    permutations: int = 9999,
    seed: int = 0,
) -> Comparison:
    """Compare k explainers on the same samples: Friedman's test, then Wilcoxon's on every pair with Holm's correction.

    Rows with a NaN are left out; infinite values are ranked. A pair's difference is a bound where one end is censored:
    its sign is taken where it is certain, and its size, at least the recorded one, is tied with all the larger ones;
    where the sign is not certain, as with both ends censored, the difference is zero.

    Args:
        values: (samples, k).
        names: k different ones.
        direction: whether higher or lower values are better.
        censored: (samples, k) of bool.
        censored_side: `"upper"`: the true value lies at or below a recorded bound.
        level: of the tests, family-wise over the pairs.
        permutations, seed: of Friedman's test.

    >>> noise = np.random.default_rng(0).normal(size=(20, 3))
    >>> found = compare(noise + [2, 1.9, 0], ["a", "b", "c"], "higher")
    >>> found.cliques, found.winner_set
    (((0, 1), (2,)), (0, 1))
    >>> print(found.sentence().replace("; ", ";\\n"))
    a and b are ranked best (mean rank 1.55 of 3);
    a differs from c (p < 0.001) but not demonstrably from b (p = 0.78);
    20 samples.
    """
    values, flags = checked(values, censored, censored_side, 2)
    k = values.shape[1]
    check(k >= 2, "values", "at least two columns", k)
    check(len(names) == k == len(set(names)), "names", f"{k} different ones", list(names))
    check(direction in ("higher", "lower"), "direction", "'higher' or 'lower'", repr(direction))
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    used: Array = np.asarray(~np.isnan(values).any(axis=1))
    low, high = bounds(values[used], flags[used], censored_side)
    bad_low, bad_high = (low, high) if direction == "lower" else (-high, -low)  # from here on less is better
    ranks, count = midranks(bad_low, bad_high), int(used.sum())
    p_values, effects = np.eye(k), np.zeros((k, k))
    differences: list[list[Interval | None]] = [[None] * k for _ in range(k)]
    above = list(zip(*np.triu_indices(k, 1), strict=True))
    untied = 0
    for i, j in above if count else ():
        gain = subtract((bad_low[:, j], bad_high[:, j]), (bad_low[:, i], bad_high[:, i]))
        p_values[i, j], effects[i, j], told_apart = signed_rank(*gain)
        effects[j, i] = -effects[i, j]
        untied = max(untied, told_apart)
        for a, b in ((i, j), (j, i)):
            apart = subtract((low[:, a], high[:, a]), (low[:, b], high[:, b]))
            differences[a][b] = median_interval(*apart, 1 - level)
    upper = np.triu_indices(k, 1)
    raw = p_values[upper] if count else np.ones(len(above))
    p_values[upper] = p_values.T[upper] = holm(raw)
    statistic, p = (math.nan, float(raw[0])) if k == 2 else friedman(ranks, permutations, seed)
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
        smallest_p=min(1.0, len(above) * 2.0 ** (1 - untied)),
    )


def _p(p: float, sign: str = "=") -> str:
    return "p < 0.001" if p < 0.001 else f"p {sign} {p:.2g}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
