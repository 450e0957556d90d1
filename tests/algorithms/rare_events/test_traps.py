"""Landscapes that mislead, and runs that cannot be relied on: the interval holds, or the result says so."""

from __future__ import annotations

import math
from dataclasses import fields
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from refusals import assert_refused
from repeated_runs import repeat_prior, split_runs
from scipy import stats
from torch import Tensor
from traps import TRAPS, Trap, integrate_meatball

from exact import irwin_hall_log_sf, irwin_hall_threshold
from standfast import LinfBall
from standfast.algorithms import RareEventEstimate, StandardNormal, SubsetSimulation
from standfast.algorithms.rare_events import genealogy
from standfast.algorithms.rare_events.estimate import Score
from standfast.algorithms.rare_events.genealogy import History
from standfast.algorithms.rare_events.pooling import pool, select
from standfast.algorithms.rare_events.subset_sampling import plan_first, plan_lean, plan_wide
from standfast.neighbourhoods import Region


def run_trap(trap: Trap, runs: int, dimension: int, **options: object) -> list[RareEventEstimate]:
    generator = torch.Generator().manual_seed(11)
    prior = repeat_prior(StandardNormal(dimension * trap.blocks), runs)
    return split_runs(SubsetSimulation(**options).run(trap.score, prior, generator=generator))


def count_covered(estimates: list[RareEventEstimate], truth: float) -> int:
    return sum(low <= truth <= high for low, high in (e.interval()[0].tolist() for e in estimates))


def test_the_answer_of_the_meatball() -> None:
    assert integrate_meatball() == pytest.approx(TRAPS[1].log_probability, abs=1e-3)


@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.name)
def test_intervals_hold_on_traps(trap: Trap) -> None:
    """At least 90% hold, tested at an error probability of 1 in 1000; fewer than 20% of the runs may be unresolved."""
    # the slow test has 100 of each, and larger dimensions
    runs = 8
    estimates = run_trap(trap, runs, 1)
    assert count_covered(estimates, trap.log_probability) >= stats.binom.ppf(1e-3, runs, 0.9)
    assert sum(not bool(e.resolved) for e in estimates) <= stats.binom.ppf(1 - 1e-3, runs, 0.2)


@pytest.mark.parametrize("runs", [5, pytest.param(20, marks=pytest.mark.slow)])
def test_populations_of_one_size_are_misled(runs: int) -> None:
    """What the larger first populations are for: without them most narrow intervals miss, and with them none."""
    for first, fewest, most in ((1.0, 0.4 * runs, runs), (32.0, 0, 0)):
        estimates = run_trap(TRAPS[1], runs, 1, first=first)
        narrow = [
            bool(e.resolved) and float(e.interval()[0, 1]) < TRAPS[1].log_probability
            for e in estimates
        ]
        assert fewest <= sum(narrow) <= most


@pytest.mark.slow
@pytest.mark.parametrize("trap", TRAPS, ids=lambda t: t.name)
@pytest.mark.parametrize("dimension", [1, 50])
def test_intervals_hold_on_traps_in_100_runs(trap: Trap, dimension: int) -> None:
    estimates = run_trap(trap, 100, dimension)
    assert count_covered(estimates, trap.log_probability) >= 90
    assert sum(not bool(e.resolved) for e in estimates) < 20


@pytest.mark.parametrize("particles", [20, pytest.param(50, marks=pytest.mark.slow)])
def test_small_populations_are_not_resolved_and_hold(particles: int) -> None:
    """A deep event with few particles: one family is left, and the interval says how little is known."""
    far = stats.norm.isf(1e-12)

    def score(z: Tensor) -> Tensor:
        return z.sum(1) / 50**0.5 - far

    generator = torch.Generator().manual_seed(3)
    prior = repeat_prior(StandardNormal(50), 20)
    estimates = split_runs(SubsetSimulation(particles).run(score, prior, generator=generator))
    assert sum(bool(e.resolved) for e in estimates) <= 4
    assert count_covered(estimates, math.log(1e-12)) >= stats.binom.ppf(1e-3, 20, 0.95)
    for estimate in estimates:
        if not bool(estimate.resolved):
            low, high = estimate.interval()[0].tolist()
            assert high > estimate.levels[0].log_probability[estimate.levels[0].trusted][-1]
            assert low <= estimate.log_probability.item()


def test_an_error_is_reached_by_more_runs_or_more_particles() -> None:
    far = stats.norm.isf(1e-8)
    found = SubsetSimulation(100, error=0.25, budget=4_000_000).run(
        lambda z: z[:, 0] - far, StandardNormal(20)
    )
    assert bool(found.reaches(0.25))
    assert float(found.std_error) <= 0.25
    low, high = found.interval()[0].tolist()
    assert low <= math.log(1e-8) <= high
    one = SubsetSimulation(particles=100, error=0.25).run(
        lambda z: z[:, 0] - far, StandardNormal(20)
    )
    assert not bool(one.reaches(0.25))
    assert int(found.model_evaluations) > int(one.model_evaluations)


def test_a_budget_is_never_exceeded() -> None:
    calls = []

    def score(z: Tensor) -> Tensor:
        calls.append(len(z))
        return z[:, 0] - 6

    for budget in (100, 1000, 5000, 40_000):
        for error in (None, 0.3):
            calls.clear()
            found = SubsetSimulation(particles=50, budget=budget, error=error).run(
                score, StandardNormal(5)
            )
            assert sum(calls) == int(found.model_evaluations) <= budget
            low, high = found.interval()[0].tolist()
            assert low <= stats.norm.logsf(6) <= high
            if bool(found.censored):
                assert not bool(found.resolved)


def test_problems_with_an_error_do_not_depend_on_the_batch() -> None:
    prior = LinfBall(0.3).around(
        torch.rand(4, 12, generator=torch.Generator().manual_seed(1)), (0.0, 1.0)
    )
    limits = torch.tensor([7.2, 6.5, 8.6, 6.0])

    def score(x: Tensor, problem: Tensor) -> Tensor:
        return x.sum(1) - limits[problem]

    simulation = SubsetSimulation(20, error=0.5, budget=8000, floor=-30.0)
    together = simulation.run(score, prior, indexed=True)
    # some problems needed more runs than others
    assert len(set(together.model_evaluations.tolist())) > 2
    for row in range(4):
        alone = simulation.run(
            lambda x, p, row=row: score(x, p + row), prior.select([row]), indexed=True
        )
        for name in ("log_probability", "std_error", "resolved", "model_evaluations", "extreme"):
            torch.testing.assert_close(
                getattr(alone, name)[0],
                getattr(together, name)[row],
                rtol=0,
                atol=0,
                equal_nan=True,
            )


def test_runs_are_pooled_on_the_probability() -> None:
    runs = run_trap(TRAPS[2], 3, 1)
    assert all(bool(run.resolved) for run in runs)
    values = torch.cat([run.log_probability for run in runs]).exp()
    errors = torch.cat([run.std_error for run in runs]) * values  # of P
    pooled = pool(runs, [1000] * 3)
    assert pooled.log_probability.exp().item() == pytest.approx(values.mean().item())
    own, spread = (errors**2).sum().sqrt() / 3, values.std() / 3**0.5
    assert pooled.std_error.item() == pytest.approx((max(own, spread) / values.mean()).item())
    assert int(pooled.model_evaluations) == sum(int(run.model_evaluations) for run in runs)
    # only the largest size counts; the spread of two runs says too little
    pooled = pool(runs, [500, 1000, 1000])
    assert pooled.log_probability.exp().item() == pytest.approx(values[1:].mean().item())
    assert pooled.std_error.item() == pytest.approx(
        ((errors[1:] ** 2).sum().sqrt() / 2 / values[1:].mean()).item()
    )


def test_runs_that_reached_the_floor_count_as_nothing() -> None:
    found = [run_trap(TRAPS[2], 1, 1, floor=floor)[0] for floor in (-100.0, -3.0)]
    assert [bool(run.censored) for run in found] == [False, True]
    assert all(bool(run.resolved) for run in found)
    pooled = pool(found, [1000, 1000])
    assert pooled.log_probability.item() == pytest.approx(
        found[0].log_probability.item() - math.log(2)
    )


@pytest.mark.parametrize("runs", [4, pytest.param(15, marks=pytest.mark.slow)])
def test_an_error_is_no_reason_to_miss_the_mode(runs: int) -> None:
    """Few particles, and an error that one misled run would claim to have."""
    generator = torch.Generator().manual_seed(4)
    found = split_runs(
        SubsetSimulation(100, error=0.5, budget=600_000).run(
            TRAPS[1].score, repeat_prior(StandardNormal(2), runs), generator=generator
        )
    )
    held = count_covered([e for e in found if bool(e.resolved)], TRAPS[1].log_probability)
    fewest = runs - 2
    assert sum(bool(e.resolved) for e in found) >= fewest
    assert held >= stats.binom.ppf(1e-3, fewest, 0.9)


def test_runs_that_contradict_each_other_are_not_resolved() -> None:
    base = run_trap(TRAPS[2], 1, 1)[0]

    def move(value: float) -> RareEventEstimate:
        chosen = {f.name: getattr(base, f.name) for f in fields(base)}
        changed = {"log_probability": torch.tensor([value], dtype=torch.float64)}
        sure = {
            "own_error": torch.tensor([0.1], dtype=torch.float64),
            "resolved": torch.tensor([True]),
        }
        return RareEventEstimate(**{**chosen, **changed, **sure})

    pooled = pool([move(-10.0), move(-17.0)], [1000, 1000])
    assert not bool(pooled.resolved)
    low, high = pooled.interval()[0].tolist()
    assert low < -17.0
    assert high > -10.0
    assert bool(pool([move(-10.0), move(-10.1)], [1000, 1000]).resolved)
    assert select(pooled, 0).log_probability.item() == pooled.log_probability.item()


def test_families_are_counted_from_what_particles_remember() -> None:
    """Four particles; at the second level all descend from the first one, at the last from two of the second."""
    every = torch.ones(4, dtype=torch.bool)
    history = History()
    for number, memory in enumerate((-0.1, -2.0, 0.0)):
        history.record(0, 0.0, -float(number), every)
        history.memory[-1] = memory
    history.parents += [torch.tensor([0, 0, 0, 0]), torch.tensor([0, 0, 1, 1])]
    assert history.count_families() == [4, 1, 1]
    assert [history.find_forgotten(level) for level in range(3)] == [0, 0, 1]
    assert history.count_independent() == [4, 1, 2]


def test_the_variance_of_one_level_and_its_degrees_of_freedom() -> None:
    """Three of four particles above: three families of a third each, so `-ln(1 - 1/3) - 1/4` with 2 degrees."""
    history = History()
    history.record(0, 0.0, 0.0, torch.tensor([True, True, False, True]))
    ((variance, degrees),) = history.variance()
    assert variance == pytest.approx(math.log(1.5) - 0.25)
    assert degrees == pytest.approx(2.0)
    alone = History()
    alone.record(0, 0.0, 0.0, torch.tensor([True, False, False, False]))
    assert alone.variance()[0][1] == 1.0


def test_the_variance_does_not_fall_when_a_large_family_dies_out() -> None:
    """Six particles: families of 3, 1, 1 and 1 at the second level, and of 1, 2, 2 and 1 at the third."""
    every = torch.ones(6, dtype=torch.bool)
    history = History()
    for number in range(3):
        history.record(0, 0.0, -float(number), every)
    history.parents += [torch.tensor([0, 0, 0, 1, 2, 3]), torch.tensor([0, 3, 3, 4, 4, 5])]
    # all survive, so no pair shares a parent by the resampling, and what is left of the constant is -1 / 6
    (first, _), (second, two), (third, three) = history.variance()
    assert first == pytest.approx(math.log(6 / 5) - 1 / 6)
    assert second == pytest.approx(math.log(36 / 24) - 1 / 6)
    assert math.log(36 / 26) - 1 / 6 < third == second
    assert three == two == pytest.approx(2 / 3 * 36 / 12)


def test_degrees_of_freedom_are_those_of_exponential_families() -> None:
    """A Poisson number of families of exponential sizes: two over the relative variance of the sum of squares."""
    generator = np.random.default_rng(5)
    squares, effective = [], []
    for number in generator.poisson(60, size=20_000):
        sizes = generator.exponential(size=number)
        squares.append((sizes**2).sum())
        effective.append(sizes.sum() ** 2 / squares[-1])
    degrees = 2 * np.mean(squares) ** 2 / np.var(squares)
    # the mean effective number is larger than half of 60 by about a half, so the ratio is 2 / 3 up to 2%; noise is 2%
    assert genealogy._DEGREES_OF_FAMILY * np.mean(effective) == pytest.approx(degrees, rel=0.07)


def draw_two_stages(
    first: float, second: float, runs: int, half: int = 50
) -> tuple[Score, Region, float]:
    """The sums of two halves of uniform numbers, each above a threshold; as many problems, each with its own stream."""
    corner = torch.arange(runs, dtype=torch.float64)[:, None].expand(runs, 2 * half)

    def score(x: Tensor, problem: Tensor) -> Tensor:
        return (x - corner[problem]).reshape(len(x), 2, half).sum(2) - x.new_tensor([first, second])

    truth = irwin_hall_log_sf(half, first) + irwin_hall_log_sf(half, second)
    return score, Region(centre=corner + 0.5, lower=corner, upper=corner + 1.0), truth


def find_held(found: RareEventEstimate, truth: float) -> Tensor:
    """Whether each interval holds the truth, `(P,)` bool."""
    low, high = found.interval().unbind(1)
    return (low <= truth) & (truth <= high)


def test_intervals_hold_on_two_stages() -> None:
    """Few particles, so that few families are left; with an error probability of 1 in 1000."""
    limit = irwin_hall_threshold(20, -8.2)
    score, prior, truth = draw_two_stages(limit, limit, 12, half=20)
    found = SubsetSimulation(200, first=4).run(
        score, prior, indexed=True, generator=torch.Generator().manual_seed(3)
    )
    assert int(found.resolved.sum()) >= 6
    assert int(find_held(found, truth).sum()) >= stats.binom.ppf(1e-3, 12, 0.93)


@pytest.mark.slow
def test_intervals_hold_on_two_deep_stages_in_600_runs() -> None:
    """At least 93% of the intervals of resolved runs hold, and 90% at each depth; with defaults.

    Of intervals of which 95% hold, this fails once in 25 times: once in 35 for the 460 resolved runs together, once in
    70 for the 100 at the largest depth. The seeds are fixed, so on one machine it always ends in the same way.
    """
    held, resolved = 0, 0
    # ln P = -16.4, -33.2 and -49.9
    for first, second in (
        (32.0, 32.0),
        (35.0, 36.0),
        (38.0, 38.0),
    ):
        own, count = 0, 0
        for seed in range(10):
            score, prior, truth = draw_two_stages(first, second, 20)
            found = SubsetSimulation().run(
                score, prior, indexed=True, generator=torch.Generator().manual_seed(seed)
            )
            own += int((find_held(found, truth) & found.resolved).sum())
            count += int(found.resolved.sum())
        assert own >= 0.9 * count
        held, resolved = held + own, resolved + count
    assert resolved > 450
    assert held >= 0.93 * resolved


def test_sizes_and_moves_of_populations() -> None:
    simulation = SubsetSimulation()
    wide = plan_wide(simulation, plan_first(simulation, 784))
    assert wide[0] == (32_000, 0)
    assert wide[-1] == (1000, 4)
    assert all(0.69 < later[0] / size[0] <= 1 for size, later in pairwise(wide))
    assert plan_first(simulation, 3 * 224 * 224) == 1000  # more would not fit into memory
    assert plan_wide(simulation, 1000) == [(1000, 0), (1000, 4)]
    assert [moves for size, moves in wide[1:] if size > 4000] == [1] * 5
    assert [moves for size, moves in wide[1:] if size <= 4000] == [4] * 5
    for moves, early in ((1, 1), (8, 2), (40, 10)):  # a quarter, but at least one
        assert plan_wide(SubsetSimulation(moves=moves), 32_000)[1][1] == early
    lean = plan_lean(simulation, 32_000)
    assert lean[-1] == (1000, 4)
    assert all(1500 <= size * moves <= 3100 for size, moves in lean[1:-1])
    # with a budget, a sixteenth of it, and 32,000 where runs are repeated
    assert plan_first(SubsetSimulation(budget=160_000), 784) == 10_000
    assert plan_first(SubsetSimulation(50, budget=10**7), 784) == 32_000
    assert plan_first(SubsetSimulation(50, budget=10**7, error=None), 784) == 1600


def test_bad_arguments() -> None:
    assert_refused(partial(SubsetSimulation, 1000), first=[0.5], error=[0.0], budget=[500])
