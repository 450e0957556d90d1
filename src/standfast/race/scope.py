"""What of a race fits into a limited time: which settings of metrics, and how many samples.

A race is foretold as it is held: the checks of all explainers, a first look at all of them, then as much as the budget
allows, and the confirmation of one of them with its controls. A time in which not even the first look and the
confirmation fit is refused before anything is raced, with the minutes that would do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from standfast.errors import check
from standfast.study.forecast.costs import ENOUGH, Costs, Levels
from standfast.study.forecast.limited import MOST_SECONDS

#: the share of the time that is planned; forecasts are not exact
_PLANNED = 0.85
#: the largest share of a time limit in which costs are measured
TRIALS = 1 / 6
#: samples of the race and of the confirmation together, for one of the race
ALL_FOR_ONE = 1.5


@dataclass(frozen=True)
class RaceCosts:
    """What a race takes, by an estimate of evaluating everything.

    Attributes:
        costs: of all explainers and metrics, without controls.
        raced: of the metrics by which explainers may leave, alone.
        budget: the largest share of the cost of evaluating everything.
        controls: how many controls the confirmation has.
        find_first: the samples of the first look, of so many for race and confirmation together.
    """

    costs: Costs
    raced: Costs
    budget: float
    controls: int
    find_first: Callable[[int], int]

    @classmethod
    def of(
        cls,
        costs: Costs,
        labels: Sequence[str],
        budget: float,
        controls: int,
        find_first: Callable[[int], int],
    ) -> RaceCosts:
        """The costs of a race by the metrics with these labels."""
        others = []
        for line in costs.lines:
            if line.label not in labels:
                others.append((line.label, line.explainer))
        return cls(costs, costs.without(others), budget, controls, find_first)

    def sum_seconds(self, levels: Levels, count: int, at_least: bool = False) -> float:
        """Seconds of a race on so many samples, with its confirmation.

        Args:
            levels: the settings of metrics.
            count: of the samples of race and confirmation together.
            at_least: those that it takes even if what was not measured is overestimated.
        """
        checks = self.costs.sum_seconds(levels, None, (), 0)
        first_look = self.raced.sum_seconds(
            levels, 0, (), self.find_first(count), at_least=at_least
        )
        one_sample = self.costs.sum_seconds(levels, 0, (), 1, at_least=at_least)
        leader = self._sum_leader(levels) * (count - round(count / ALL_FOR_ONE))
        race = max(first_look, self.budget * count * one_sample - leader)
        # its randomised twin takes as long as the leader, and other controls have no gradients
        with_controls = leader * (1 + min(self.controls, 1)) + self._sum_checks_of_leader()
        return checks + race + with_controls

    def _sum_leader(self, levels: Levels) -> float:
        """Seconds of one sample of the explainer that takes longest, by all metrics."""
        seconds: dict[str, float] = {}
        for spent, (_, explainer) in self.costs.rank_pairs(levels):
            seconds[explainer] = seconds.get(explainer, 0.0) + spent
        return max(seconds.values(), default=0.0)

    def _sum_checks_of_leader(self) -> float:
        """Seconds of the checks that take longest."""
        checks_seconds = [
            line.seconds for line in self.costs.check_lines if not math.isnan(line.seconds)
        ]
        return max(checks_seconds, default=0.0) / self.costs.workers


@dataclass(frozen=True)
class TimeFrame:
    """The time that a race has.

    Attributes:
        minutes: of the limit.
        left: seconds of it.
        trials: seconds in which costs were measured.
    """

    minutes: float
    left: float
    trials: float

    @property
    def planned(self) -> float:
        """The seconds that may be planned."""
        return _PLANNED * max(self.left, 0.0)

    def find_minutes(self, seconds: float) -> float:
        """The minutes of a limit with which so many seconds would be planned, rounded up.

        >>> TimeFrame(1.0, 48.0, 10.0).find_minutes(200.0), TimeFrame(0.1, 5.0, 1.0).find_minutes(6.8)
        (4.2, 0.2)
        """
        spent = max(60 * self.minutes - self.left - self.trials, 0.0)
        needed = seconds / _PLANNED + spent
        # costs are measured for a share of a longer time, too, and no longer than `MOST_SECONDS`
        needed = min(needed / (1 - TRIALS), needed + MOST_SECONDS)
        return math.ceil(needed / 6 - 1e-9) / 10


def choose_scope(
    costs: RaceCosts, frame: TimeFrame, fewest: int, available: int
) -> tuple[Levels, int]:
    """The settings, and the samples of race and confirmation together, that the time allows.

    Settings are raised while enough samples fit; then there are as many samples as fit.

    Args:
        costs: of the race.
        frame: the time that there is.
        fewest: samples with which there is a race.
        available: samples that there are.

    Raises:
        ArgumentError: the fewest do not fit, even if what was not measured is overestimated.
    """
    levels: Levels = dict.fromkeys(costs.costs.ladders, 0)
    if costs.sum_seconds(levels, fewest, at_least=True) > max(frame.left, 0.0):
        _refuse(costs, frame, fewest)
    enough = min(max(fewest, round(ALL_FOR_ONE * ENOUGH)), available)
    while (rise := costs.costs.find_cheapest_rise(levels, None, ())) is not None:
        labels, _ = rise
        higher = {**levels, **dict.fromkeys(labels, levels[labels[0]] + 1)}
        if costs.sum_seconds(higher, enough) > frame.planned:
            break
        levels = higher
    few = fewest
    many = available
    while few < many:
        middle = (few + many + 1) // 2
        if costs.sum_seconds(levels, middle) <= frame.planned:
            few = middle
        else:
            many = middle - 1
    return levels, few


def _refuse(costs: RaceCosts, frame: TimeFrame, fewest: int) -> None:
    """Say which minutes would do.

    Raises:
        ArgumentError: always.
    """
    levels: Levels = dict.fromkeys(costs.costs.ladders, 0)
    minutes = frame.find_minutes(costs.sum_seconds(levels, fewest))
    explainers = {line.explainer for line in costs.costs.lines}
    first = costs.find_first(fewest)
    what = f"a first look at {first} samples of {len(explainers)} explainers and a confirmation"
    check(False, "minutes", f"about {minutes:g} or more, for {what}", f"{frame.minutes:g}")
