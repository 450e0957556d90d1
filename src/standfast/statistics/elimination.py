"""A race: contestants are compared on the same samples, at a few numbers of samples, and losers leave early.

At each look the leader is the contestant whose values are best beside all others, and those leave that are shown to be
worse than the leader. The test is the signed-rank test of the differences on the same samples. Whoever looks several
times, and compares with several others, gets several chances of a wrong decision. So the allowed error is shared
(Bonferroni): each comparison at each look has `level / (looks * (k - 1))`. The best of k contestants is compared with
k - 1 others at each look, whichever lead. So the probability that it ever leaves as a loser is at most `level`.

The bound holds for looks that are fixed before the race (`make_ladder`), whatever the values depend on between the
contestants. It asks what the signed-rank test asks: that the differences to an equal contestant are symmetric about 0.

Where a budget limits the race, each look gets an equal part of what is left, as in sequential halving (Karnin, Koren
and Somekh 2013, ICML): those that are behind leave if not all can be measured further. That is a matter of money and no
decision, so it has no stated error; `Departure.why` says which it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from standfast.errors import check, check_integer
from standfast.statistics.paired import (
    Interval,
    Side,
    check_values,
    merge_rounding,
    shift_interval,
    signed_rank,
    subtract,
    to_bounds,
)
from standfast.tensors import Array

Better = Literal["higher", "lower"]
#: why a contestant left: shown to be worse; behind, with no budget to go on; without any value
Why = Literal["worse", "budget", "no value"]

#: so many values have few enough means of pairs to list them
_FEW = 300
#: with one value no difference has an interval
_FEWEST = 2
#: two contestants go on wherever the budget allows it: a race of one is over
_LEAST_LEFT = 2


def make_ladder(first: int, most: int) -> tuple[int, ...]:
    """The numbers of samples at which a race looks: each twice the one before, and at the end all.

    Args:
        first: samples at the first look.
        most: samples that there are.

    >>> make_ladder(10, 100), make_ladder(10, 10), make_ladder(10, 90)
    ((10, 20, 40, 80, 100), (10,), (10, 20, 40, 90))
    """
    check_integer(first, "first")
    check(most >= first, "most", f"at least {first}, the samples of the first look", most)
    counts = [first]
    last = first
    while 2 * last <= most:
        last = 2 * last
        counts.append(last)
    # a last look that adds little takes the place of the one before
    if most >= 1.25 * last:
        counts.append(most)
    elif len(counts) > 1:
        counts[-1] = most
    return tuple(counts)


def count_first(contestants: int, looks: int, level: float) -> int:
    """The fewest samples with which a contestant can be shown to be worse: the smallest p-value is 2^-n.

    >>> count_first(8, 5, 0.05)
    10
    """
    comparisons = looks * max(contestants - 1, 1)
    return math.ceil(math.log2(comparisons / level))


@dataclass(frozen=True)
class Gap:
    """How far a contestant is behind the leader at a look.

    Attributes:
        column, leader: their places among the contestants.
        count: samples on which both have a value.
        p_value: of the claim that the leader is better, one-sided.
        difference: the shift of `value of the contestant - value of the leader` (`shift_interval`), with the error of
            one comparison at each end.
    """

    column: int
    leader: int
    count: int
    p_value: float
    difference: Interval


@dataclass(frozen=True)
class Standings:
    """What a look shows.

    Attributes:
        order: the contestants, the best first.
        gaps: of all but the leader, by column.
        silent: contestants without any value; they are not in `order`.
    """

    order: tuple[int, ...]
    gaps: dict[int, Gap]
    silent: tuple[int, ...]

    def list_losers(self, error: float) -> list[int]:
        """The contestants that are shown to be worse than the leader, with this error of one comparison."""
        return [column for column, gap in self.gaps.items() if gap.p_value <= error]


def rank_contestants(
    values: Array,
    better: Better,
    error: float,
    censored: Array | None = None,
    censored_side: Side = "upper",
) -> Standings:
    """The order of contestants on the same samples, and how far each is behind the first.

    The order is by the sum of the shifts to all others, so that what samples have in common cancels out.

    Args:
        values: (n, k), NaN where a contestant has no value; a pair is compared where both have one.
        better: which values are better.
        error: of one comparison, for the intervals.
        censored: bool (n, k), True for values that are bounds.
        censored_side: on which side the true value of a bound lies (`standfast.statistics.paired`).

    >>> noise = np.random.default_rng(0).normal(size=(20, 3))
    >>> standings = rank_contestants(noise + [2.0, 0.0, 1.9], "higher", 0.01)
    >>> standings.order, standings.list_losers(0.01)
    ((2, 0, 1), [1])
    """
    values, flags = check_values(values, censored, censored_side, 2)
    check(better in ("higher", "lower"), "better", "'higher' or 'lower'", repr(better))
    values = merge_rounding(values)
    low, high = to_bounds(values, flags, censored_side)
    if better == "lower":
        low, high = -high, -low
    present: list[int] = []
    silent: list[int] = []
    counts = (~np.isnan(values)).sum(axis=0)
    for column, count in enumerate(counts.tolist()):
        group = present if count >= _FEWEST else silent
        group.append(column)
    lead = dict.fromkeys(present, 0.0)
    for number, one in enumerate(present):
        for other in present[number + 1 :]:
            differences = _subtract_columns(low, high, one, other)
            shift = _find_shift(differences, error)
            # bounds may leave a shift open: such a pair says nothing about the order
            if math.isfinite(shift):
                lead[one] += shift
                lead[other] -= shift
    order = tuple(sorted(present, key=lambda column: -lead[column]))
    gaps = {}
    for column in order[1:]:
        gaps[column] = _measure_gap(low, high, column, order[0], error, better)
    return Standings(order, gaps, tuple(silent))


def _subtract_columns(low: Array, high: Array, one: int, other: int) -> tuple[Array, Array]:
    """The bounds of the differences of two columns, on the rows that both have."""
    is_missing = np.isnan(low[:, [one, other]])
    both = ~is_missing.any(axis=1)
    bounds_of_one = (low[both, one], high[both, one])
    bounds_of_other = (low[both, other], high[both, other])
    return subtract(bounds_of_one, bounds_of_other)


def _find_shift(differences: tuple[Array, Array], error: float) -> float:
    """The shift alone; NaN where bounds leave it open."""
    low, high = differences
    count = len(low)
    are_known = np.array_equal(low, high) and bool(np.isfinite(low).all())
    if not 0 < count <= _FEW or not are_known:
        return _measure_shift(differences, error).value
    # for few values all means of pairs are found faster than the one in the middle
    means = (low[:, None] + low) / 2
    each_pair_once = np.triu_indices(count)
    return float(np.median(means[each_pair_once]))


def _measure_shift(differences: tuple[Array, Array], error: float) -> Interval:
    """The shift of differences with its interval; unknown where there are none."""
    low, high = differences
    if not len(low):
        everywhere = (-math.inf, math.inf)
        return Interval(math.nan, *everywhere, 0, 1 - 2 * error, "unknown", everywhere)
    return shift_interval(low, high, error, error)


def _measure_gap(
    low: Array, high: Array, column: int, leader: int, error: float, better: Better
) -> Gap:
    """How far a contestant is behind the leader, of values of which more is better."""
    low_lag, high_lag = _subtract_columns(low, high, column, leader)
    count = len(low_lag)
    p_value = 1.0
    if count:
        both_sides, effect, _ = signed_rank(low_lag, high_lag)
        # one-sided, in the direction in which the contestant is behind
        p_value = 1 - both_sides / 2
        if effect < 0:
            p_value = both_sides / 2
    # in the direction of the values themselves
    difference = (low_lag, high_lag)
    if better == "lower":
        difference = (-high_lag, -low_lag)
    return Gap(column, leader, count, p_value, _measure_shift(difference, error))


@dataclass(frozen=True)
class Departure:
    """A contestant that has left a race.

    Attributes:
        column: its place among the contestants.
        why: the reason.
        look: the number of the look, from 1.
        samples: how many there were then.
        gap: how far it was behind; None without a value.
    """

    column: int
    why: Why
    look: int
    samples: int
    gap: Gap | None


@dataclass(frozen=True)
class RaceRules:
    """What a race has fixed before it begins.

    Attributes:
        ladder: the numbers of samples at which it looks, ascending.
        contestants: how many begin.
        better: which values are better.
        level: the largest probability that the best leaves as a loser.
        costs: of one sample for each contestant.
        budget: how much all samples together may cost; infinite for no limit. The first look is always paid.
        censored_side: on which side the true value of a bound lies.
    """

    ladder: tuple[int, ...]
    contestants: int
    better: Better
    level: float
    costs: tuple[float, ...]
    budget: float = math.inf
    censored_side: Side = "upper"

    @property
    def error(self) -> float:
        """Of one comparison at one look."""
        comparisons = len(self.ladder) * max(self.contestants - 1, 1)
        return self.level / comparisons


@dataclass(frozen=True)
class Finish:
    """How a race has ended.

    Attributes:
        order: those that were not shown to be worse and could be measured to the end, the best first.
        departures: the others, in the order in which they left.
        gaps: of those in `order` behind the first, by column.
        samples: at the last look.
        looks: how many there were.
        spent: what all samples together have cost.
    """

    order: tuple[int, ...]
    departures: tuple[Departure, ...]
    gaps: dict[int, Gap]
    samples: int
    looks: int
    spent: float


#: measures some contestants on the first so many samples: their values `(n, contestants)` and which are bounds; None
#: where it cannot go on
Measure = Callable[[Sequence[int], int], tuple[Array, Array] | None]


def run_race(rules: RaceRules, measure: Measure) -> Finish:
    """Measure contestants at one look after the other, until one is left, the budget is spent or all samples are.

    Where the budget does not suffice for the next look, the rest of it goes to the first two, without a decision.

    Args:
        rules: of the race.
        measure: gives the values of those that are still in the race. A column without values leaves.

    >>> populations = np.random.default_rng(0).normal([0.0, 0.1, 2.0], 1.0, size=(80, 3))
    >>> rules = RaceRules((10, 20, 40, 80), 3, "higher", 0.05, (1.0, 1.0, 1.0))
    >>> finish = run_race(rules, lambda columns, count: (populations[:count, columns], np.zeros((count, len(columns)))))
    >>> finish.order, [departure.column for departure in finish.departures], finish.samples
    ((2,), [1, 0], 10)
    """
    state = _State(list(range(rules.contestants)))
    for look, count in enumerate(rules.ladder, start=1):
        standings = state.measure(rules, measure, count)
        if standings is None:
            return state.finish()
        state.decide(rules, standings, look)
        if len(state.alive) < _LEAST_LEFT or look == len(rules.ladder):
            return state.finish()
        going_on = _choose_those_that_go_on(rules, state, look)
        if not going_on:
            break
        given_up = [column for column in state.alive if column not in going_on]
        state.leave(given_up, "budget", look)
    state.look_without_decision(rules, measure)
    return state.finish()


@dataclass
class _State:
    """A race that runs.

    Attributes:
        alive: those in the race, the best first.
        departures, gaps, samples, looks, spent: as of `Finish`.
    """

    alive: list[int]
    departures: list[Departure] = field(default_factory=list)
    gaps: dict[int, Gap] = field(default_factory=dict)
    samples: int = 0
    looks: int = 0
    spent: float = 0.0

    def measure(self, rules: RaceRules, measure: Measure, count: int) -> Standings | None:
        """Measure those in the race on so many samples; None where that cannot be done."""
        measured = measure(self.alive, count)
        if measured is None:
            return None
        standings = _rank(rules, self.alive, measured)
        # at the first look, those without values are turned away before they are measured; later ones leave at a look,
        # after a part of it, and count in full, so that the budget is kept
        is_first = not self.samples
        measured_columns = standings.order if is_first else self.alive
        self.spent += (count - self.samples) * sum(
            rules.costs[column] for column in measured_columns
        )
        self.samples = count
        self.gaps = standings.gaps
        return standings

    def decide(self, rules: RaceRules, standings: Standings, look: int) -> None:
        """Let those leave that have no value or are shown to be worse."""
        self.looks = look
        self.leave(standings.silent, "no value", look)
        self.leave(standings.list_losers(rules.error), "worse", look)
        gone = {departure.column for departure in self.departures}
        self.alive = [column for column in standings.order if column not in gone]

    def leave(self, columns: Sequence[int], why: Why, look: int) -> None:
        """Let some leave."""
        for column in columns:
            gap = self.gaps.get(column)
            self.departures.append(Departure(column, why, look, self.samples, gap))
        self.alive = [column for column in self.alive if column not in columns]

    def look_without_decision(self, rules: RaceRules, measure: Measure) -> None:
        """Use what is left of the budget for the first ones; their order may change, but nobody leaves as worse."""
        first = self.alive[:_LEAST_LEFT]
        step = rules.ladder[0]
        price = step * sum(rules.costs[column] for column in first)
        times = 0
        if price > 0:
            times = int((rules.budget - self.spent) / price)
        if times < 1:
            return
        self.leave(self.alive[_LEAST_LEFT:], "budget", self.looks)
        standings = self.measure(rules, measure, self.samples + times * step)
        if standings is not None:
            self.alive = [*standings.order, *standings.silent]

    def finish(self) -> Finish:
        """What has become of it."""
        gaps = {column: gap for column, gap in self.gaps.items() if column in self.alive}
        return Finish(
            tuple(self.alive), tuple(self.departures), gaps, self.samples, self.looks, self.spent
        )


def _choose_those_that_go_on(rules: RaceRules, state: _State, look: int) -> list[int]:
    """The first ones whose next look an equal part of the rest pays for; or two, if all of the rest does; or none."""
    left = rules.budget - state.spent
    looks_left = len(rules.ladder) - look
    step = rules.ladder[look] - state.samples
    going_on = _keep_affordable(rules, state.alive, step, left / looks_left)
    if len(going_on) >= _LEAST_LEFT:
        return going_on
    first = _keep_affordable(rules, state.alive[:_LEAST_LEFT], step, left)
    if len(first) >= _LEAST_LEFT:
        return first
    return []


def _rank(rules: RaceRules, alive: Sequence[int], measured: tuple[Array, Array]) -> Standings:
    """The standings of those in the race, with their places among all contestants."""
    values, bounds = measured
    standings = rank_contestants(values, rules.better, rules.error, bounds, rules.censored_side)
    gaps = {}
    for gap in standings.gaps.values():
        column = alive[gap.column]
        leader = alive[gap.leader]
        gaps[column] = Gap(column, leader, gap.count, gap.p_value, gap.difference)
    order = tuple(alive[column] for column in standings.order)
    silent = tuple(alive[column] for column in standings.silent)
    return Standings(order, gaps, silent)


def _keep_affordable(rules: RaceRules, order: Sequence[int], step: int, share: float) -> list[int]:
    """The first contestants that can all be measured on so many more samples for a share of the budget."""
    kept: list[int] = []
    price = 0.0
    for column in order:
        price += step * rules.costs[column]
        if price > share:
            break
        kept.append(column)
    return kept
