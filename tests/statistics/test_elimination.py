"""Races of contestants: the error of losing the best, the budget, and an independent count of what a look decides."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy import stats

from standfast.errors import ArgumentError
from standfast.statistics.elimination import (
    RaceRules,
    count_first,
    make_ladder,
    rank_contestants,
    run_race,
)
from standfast.tensors import Array

LADDER = (10, 20, 40, 80)


def race(
    values: Array,
    level: float = 0.05,
    budget: float = float("inf"),
    ladder: tuple[int, ...] = LADDER,
) -> object:
    """A race of columns of values that cost the same."""
    contestants = values.shape[1]
    rules = RaceRules(ladder, contestants, "higher", level, (1.0,) * contestants, budget)
    return run_race(
        rules,
        lambda columns, count: (
            values[:count, columns],
            np.zeros((count, len(columns)), dtype=bool),
        ),
    )


def count_lost(
    means: Sequence[float], races: int, seed: int, level: float = 0.05, heavy: bool = False
) -> int:
    """In how many races the first contestant, which is best, leaves as worse than another one."""
    lost = 0
    for number in range(races):
        generator = np.random.default_rng([seed, number])
        shape = (LADDER[-1], len(means))
        noise = generator.standard_t(2, shape) if heavy else generator.normal(size=shape)
        values = np.asarray(means) + noise + generator.normal(size=(LADDER[-1], 1))
        finish = race(values, level)
        lost += any(
            departure.column == 0 and departure.why == "worse" for departure in finish.departures
        )
    return lost


def check_error(lost: int, races: int, level: float) -> None:
    """The error is not shown to be above the level."""
    p_value = stats.binomtest(lost, races, level, alternative="greater").pvalue
    assert p_value > 0.001, (lost, races)


@pytest.mark.parametrize(
    ("means", "heavy"), [([0.0] * 5, False), ([0.0] * 4, True)], ids=["ties", "heavy tails"]
)
def test_the_best_is_lost_no_more_often_than_stated(means: list[float], heavy: bool) -> None:
    """With a level of 30%, so that 60 races show an error that is not kept."""
    check_error(count_lost(means, 60, seed=1, level=0.3, heavy=heavy), 60, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("means", "heavy"),
    [([0.0] * 8, False), ([0.02, 0.0, 0.01, 0.0], False), ([0.0] * 2, False), ([0.0] * 4, True)],
    ids=["ties", "near ties", "two", "heavy tails"],
)
def test_the_best_is_lost_no_more_often_than_stated_over_many_seeds(
    means: list[float], heavy: bool, seed: int
) -> None:
    check_error(count_lost(means, 400, seed=10 + seed, heavy=heavy), 400, 0.05)


def test_looks_without_a_correction_lose_the_best_too_often() -> None:
    """So that the tests above can fail: each comparison has the whole level."""
    contestants = 5
    error = 0.05
    without = error * len(LADDER) * (contestants - 1)  # divided again in `RaceRules.error`
    assert RaceRules(
        LADDER, contestants, "higher", without, (1.0,) * contestants
    ).error == pytest.approx(error)
    lost = 0
    for number in range(60):
        values = np.random.default_rng([3, number]).normal(size=(LADDER[-1], contestants))
        rules = RaceRules(LADDER, contestants, "higher", without, (1.0,) * contestants)
        finish = run_race(
            rules,
            lambda columns, count, v=values: (v[:count, columns], np.zeros((count, len(columns)))),
        )
        lost += any(
            departure.column == 0 and departure.why == "worse" for departure in finish.departures
        )
    assert stats.binomtest(lost, 60, 0.05, alternative="greater").pvalue < 0.01


def test_a_look_agrees_with_scipy() -> None:
    """The p-value is that of the one-sided signed-rank test, and the shift the median of the means of all pairs."""
    values = np.random.default_rng(5).normal([0.0, 0.4, 1.0], 1.0, size=(15, 3))
    standings = rank_contestants(values, "higher", 0.01)
    assert standings.order == (2, 1, 0)
    for column in (0, 1):
        difference = values[:, column] - values[:, 2]
        gap = standings.gaps[column]
        assert gap.p_value == pytest.approx(
            stats.wilcoxon(difference, alternative="less", mode="exact").pvalue
        )
        means = (difference[:, None] + difference) / 2
        assert gap.difference.value == pytest.approx(np.median(means[np.triu_indices(15)]))
        assert gap.leader == 2


def test_lower_values_can_be_better() -> None:
    values = np.random.default_rng(5).normal([0.0, 2.0], 0.1, size=(20, 2))
    standings = rank_contestants(values, "lower", 0.01)
    assert standings.order == (0, 1)
    assert standings.list_losers(0.01) == [1]
    # in the direction of the values
    assert standings.gaps[1].difference.value == pytest.approx(2.0, abs=0.1)


def test_missing_and_censored_values() -> None:
    """A pair is compared where both have a value; a bound that says nothing of the order is a tie."""
    values = np.random.default_rng(5).normal([0.0, 2.0, 2.0], 0.1, size=(20, 3))
    values[:10, 0] = np.nan
    values[:, 2] = np.nan
    standings = rank_contestants(values, "higher", 0.01)
    assert standings.order == (1, 0)
    assert standings.silent == (2,)
    assert standings.gaps[0].count == 10
    bounds = np.zeros((20, 2), dtype=bool)
    bounds[:, 1] = True  # the true values of the better one may lie anywhere below
    censored = rank_contestants(
        np.where(np.isnan(values), 0.0, values)[:, :2], "higher", 0.01, bounds, "upper"
    )
    assert censored.list_losers(0.4) == []


def test_losers_leave_early_and_the_rest_goes_on() -> None:
    values = np.random.default_rng(0).normal([0.0, 0.05, 3.0, 2.95], 0.3, size=(80, 4))
    finish = race(values)
    departures = {departure.column: departure for departure in finish.departures}  # type: ignore[attr-defined]
    assert departures[0].samples == departures[1].samples == 10
    assert departures[0].why == "worse"
    assert set(finish.order) == {2, 3}  # type: ignore[attr-defined]
    assert finish.samples == 80  # type: ignore[attr-defined]
    assert finish.spent == 4 * 10 + 2 * 70  # type: ignore[attr-defined]


@pytest.mark.parametrize("budget", [40, 80, 120, 200])
def test_the_budget_is_kept_beyond_the_first_look(budget: int) -> None:
    values = np.random.default_rng(0).normal(0.0, 1.0, size=(80, 6))
    finish = race(values, budget=budget)
    assert finish.spent <= max(budget, 60)  # type: ignore[attr-defined]
    assert len(finish.order) >= 1  # type: ignore[attr-defined]
    assert {departure.why for departure in finish.departures} <= {"budget", "worse"}  # type: ignore[attr-defined]


def test_what_leaves_at_a_later_look_has_cost_it() -> None:
    """It may have been measured by another metric, which found it unstable, so its look is paid for."""
    values = np.random.default_rng(0).normal(0.0, 1.0, size=(80, 4))

    def measure(columns: Sequence[int], count: int) -> tuple[Array, Array]:
        has_left = (np.asarray(columns) == 3) & (count > 10)
        return np.where(has_left, np.nan, values[:count, columns]), np.zeros((count, len(columns)))

    finish = run_race(RaceRules(LADDER, 4, "higher", 0.05, (1.0,) * 4), measure)
    assert [(departure.column, departure.samples) for departure in finish.departures] == [(3, 20)]
    assert finish.spent == 4 * 20 + 3 * 60


def test_what_cannot_go_on_keeps_the_last_look() -> None:
    values = np.random.default_rng(0).normal([0.0, 0.1], 1.0, size=(80, 2))

    def measure(columns: Sequence[int], count: int) -> tuple[Array, Array] | None:
        return None if count > 20 else (values[:count, columns], np.zeros((count, 2)))

    finish = run_race(RaceRules(LADDER, 2, "higher", 0.05, (1.0, 1.0)), measure)
    assert (finish.samples, finish.looks, finish.spent) == (20, 2, 40.0)
    nothing = run_race(
        RaceRules(LADDER, 2, "higher", 0.05, (1.0, 1.0)), lambda columns, count: None
    )
    assert (nothing.order, nothing.samples) == ((0, 1), 0)


def test_a_ladder_doubles_and_ends_with_all() -> None:
    assert make_ladder(8, 20) == (8, 16, 20)
    assert make_ladder(8, 19) == (8, 19)
    assert make_ladder(8, 16) == (8, 16)
    assert make_ladder(8, 8) == (8,)
    with pytest.raises(ArgumentError, match="most"):
        make_ladder(9, 8)


@pytest.mark.parametrize(("contestants", "looks"), [(2, 1), (3, 3), (12, 5)])
def test_the_first_look_can_decide(contestants: int, looks: int) -> None:
    """With so many samples that all say the same, the p-value is below the error of one comparison; with fewer not."""
    count = count_first(contestants, looks, 0.05)
    error = RaceRules(
        tuple(range(1, looks + 1)), contestants, "higher", 0.05, (1.0,) * contestants
    ).error
    assert 2.0**-count <= error < 2.0 ** -(count - 1)
