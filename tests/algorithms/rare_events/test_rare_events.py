"""Subset simulation and plain Monte Carlo against exact answers, down to 1e-20.

The statistical tests use fixed seeds. Their tolerances are stated as error probabilities: a test of a mean over R
runs allows 4 standard errors of the mean (1 in 16,000 for a correct estimator), coverage counts are tested
against the binomial distribution at 1 in 1000.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import cache, partial

import numpy as np
import pytest
import torch
from refusals import assert_refused
from repeated_runs import repeat_prior
from scipy import stats
from torch import Tensor

from exact import irwin_hall_log_sf, irwin_hall_threshold
from standfast import L2Ball, LinfBall
from standfast.algorithms import (
    RareEventEstimate,
    StandardNormal,
    SubsetSimulation,
    UnitBox,
    monte_carlo,
)
from standfast.algorithms.rare_events import plain_sampling, population, subset_sampling
from standfast.algorithms.rare_events.estimate import compute_log_interval
from standfast.algorithms.rare_events.genealogy import reduce_shared_parents
from standfast.algorithms.rare_events.population import Proposal
from standfast.algorithms.rare_events.subset_sampling import _next_level
from standfast.neighbourhoods import Region

METHODS: list[Callable[..., RareEventEstimate]] = [SubsetSimulation().run, monte_carlo]


@dataclasses.dataclass(frozen=True)
class Problem:
    name: str
    score: Callable[[Tensor], Tensor]
    prior: Region
    truth: float


def problems(features: int = 50) -> list[Problem]:
    """Probabilities that are the same for any number of features."""
    ten, twenty = (irwin_hall_threshold(features, math.log(10.0**-k)) for k in (10, 20))
    half, tails = stats.norm.isf(1e-12), stats.norm.isf(5e-9)
    first, second = stats.norm.isf(1e-4), stats.norm.isf(1e-5)
    return [
        Problem(
            "Irwin-Hall 1e-10",
            lambda x: x.sum(1) - ten,
            UnitBox(features),
            irwin_hall_log_sf(features, ten),
        ),
        Problem(
            "Irwin-Hall 1e-20",
            lambda x: x.sum(1) - twenty,
            UnitBox(features),
            irwin_hall_log_sf(features, twenty),
        ),
        Problem(
            "half-space 1e-12",
            lambda x: x.sum(1) / 60**0.5 - half,
            StandardNormal(60),
            math.log(1e-12),
        ),
        Problem(
            "two tails 1e-8",
            lambda x: (x.sum(1) / features**0.5).abs() - tails,
            StandardNormal(features),
            math.log(1e-8),
        ),
        Problem(
            "two stages 1e-9",
            lambda x: torch.stack([x[:, 0] - first, x[:, 1] - second], 1),
            StandardNormal(features),
            math.log(1e-9),
        ),
    ]


def repeat(problem: Problem, runs: int, **options: object) -> RareEventEstimate:
    """Independent runs as one batch."""
    generator = torch.Generator().manual_seed(2024)
    simulation = SubsetSimulation(**options)  # type: ignore[arg-type]
    return simulation.run(problem.score, repeat_prior(problem.prior, runs), generator=generator)


def find_errors(problem: Problem, estimate: RareEventEstimate) -> np.ndarray:
    return np.asarray(estimate.log_probability) - problem.truth


def count_covered(problem: Problem, estimate: RareEventEstimate) -> int:
    low, high = estimate.interval().unbind(1)
    return int(((low <= problem.truth) & (problem.truth <= high)).sum())


def check_unbiased_and_covering(problem: Problem, estimate: RareEventEstimate) -> None:
    errors, reported = find_errors(problem, estimate), np.asarray(estimate.std_error)
    runs = len(errors)
    # an unbiased P makes ln P low by half its variance; moves that mix less than perfectly do so here
    allowance = 0.5 * errors.var(ddof=1)
    assert (
        -allowance - 4 * errors.std(ddof=1) / runs**0.5
        < errors.mean()
        < 4 * errors.std(ddof=1) / runs**0.5
    )
    assert count_covered(problem, estimate) >= stats.binom.ppf(1e-3, runs, 0.93)
    # the standard error is the right one: the ratio of variances, with the t distribution's wide margin
    ratio = np.sqrt((reported**2).mean()) / errors.std(ddof=1)
    assert 0.6 < ratio < 1.6


@pytest.mark.parametrize(
    "problem",
    [
        pytest.param(
            problem, id=problem.name, marks=[pytest.mark.slow] if problem.truth < -25 else []
        )
        for problem in problems(16)
    ],
)
def test_exact_answers(problem: Problem) -> None:
    # the slow test has the defaults, and more features
    check_unbiased_and_covering(problem, repeat(problem, 20, particles=400, first=4.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"quantile": 0.1, "moves": 12}, {"quantile": 0.5, "moves": 10}], ids=str
)
@pytest.mark.parametrize("problem", problems(), ids=lambda p: p.name)
def test_exact_answers_over_200_runs(problem: Problem, options: dict[str, float]) -> None:
    estimate = repeat(problem, 200, **options)
    check_unbiased_and_covering(problem, estimate)
    assert 180 <= count_covered(problem, estimate) <= 199


def test_every_level_is_an_estimate() -> None:
    problem = problems()[0]
    threshold = irwin_hall_threshold(50, math.log(1e-10))
    estimate = repeat(problem, 1)
    (levels,) = estimate.levels
    exact = [irwin_hall_log_sf(50, threshold + t) for t in levels.threshold.tolist()]
    pull = (levels.log_probability.numpy() - np.array(exact)) / levels.std_error.numpy()
    assert len(exact) >= 10
    assert np.abs(pull).max() < 4
    assert (np.diff(levels.log_probability.numpy()) < 0).all()
    assert levels.threshold[-1] == 0
    # particles moved after every level but the last, and forgot enough to count as more than their families
    assert bool(((levels.acceptance > 0.1) & (levels.acceptance < 0.9))[:-1].all())
    assert levels.acceptance[-1].isnan()
    assert estimate.acceptance.item() == pytest.approx(levels.acceptance[:-1].mean().item())
    assert levels.independent[-1] > levels.families[-1]


@pytest.mark.parametrize("level", [0.5, 0.95, 0.999])
def test_the_interval_is_students(level: float) -> None:
    sampled = monte_carlo(lambda x: x[:, 0] - 0.5, UnitBox(1), samples=10)
    known = {
        "log_probability": torch.tensor([-9.0, -30.0]).double(),
        "own_error": torch.tensor([0.5, 2.0]).double(),
        "degrees": torch.tensor([3.0, 40.0]).double(),
        "censored": torch.tensor([False, False]),
        "resolved": torch.tensor([True, True]),
        "levels": repeat(problems()[2], 1, particles=10, floor=-2.0).levels * 2,
        "hits": torch.tensor([-1, -1]),
        "samples": torch.tensor([0, 0]),
    }
    estimate = dataclasses.replace(sampled, **known)  # type: ignore[arg-type]
    middle = [
        -9 + 0.5**2 / 2,
        -30 + 2**2 / 2,
    ]  # the logarithm of an unbiased estimate is too small by half its variance
    exact = stats.t.interval(level, [3, 40], loc=middle, scale=[0.5, 2])
    assert estimate.interval(level).T.tolist() == [
        pytest.approx(ends) for ends in np.minimum(exact, 0).tolist()
    ]


def test_the_interval_of_an_unbiased_estimate_misses_on_both_sides_alike() -> None:
    """P estimated by P exp(s z - s^2 / 2) with z standard normal, of which P is the mean."""
    error = torch.full((40_000,), 0.7, dtype=torch.float64)
    normal = torch.randn(40_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    low, high = compute_log_interval(
        -9 + error * normal - error**2 / 2, error, torch.full_like(error, math.inf), 0.95
    )
    # 1000 of 40,000 are expected, with a standard deviation of 31
    for misses in (
        low > -9,
        high < -9,
    ):
        assert int(misses.sum()) == pytest.approx(1000, abs=4 * 31)


def test_the_standard_error_of_a_run_that_is_not_resolved_is_that_of_its_interval() -> None:
    sampled = monte_carlo(lambda x: x[:, 0] - 0.5, UnitBox(1), samples=10)
    three = repeat(problems()[2], 1, particles=10, floor=-2.0).levels * 3
    known = {
        "log_probability": torch.tensor([-30.0, -30.0, -30.0]).double(),
        "own_error": torch.tensor([0.5, 0.5, torch.nan]).double(),
        "degrees": torch.tensor([40.0, 40.0, 40.0]).double(),
        "censored": torch.tensor([False, False, True]),
        "resolved": torch.tensor([True, False, False]),
        "levels": three,
        "hits": torch.tensor([-1, -1, -1]),
        "samples": torch.tensor([0, 0, 0]),
    }
    estimate = dataclasses.replace(sampled, **known)  # type: ignore[arg-type]
    low = -30 + 0.5**2 / 2 - stats.t.ppf(0.975, 40) * 0.5
    own, wide, missing = estimate.std_error.tolist()
    assert own == 0.5
    assert wide == pytest.approx((three[1].bound() - low) / (2 * stats.norm.ppf(0.975)))
    assert wide > 5
    assert math.isnan(missing)


@pytest.mark.parametrize("method", METHODS)
def test_common_events(method: Callable[..., RareEventEstimate]) -> None:
    for share in (0.9, 0.5, 0.05):
        estimate = method(lambda x, share=share: share - x[:, 0], UnitBox(12))
        low, high = estimate.interval(0.9999)[0].tolist()
        assert low <= math.log(share) <= high
        assert not estimate.censored.any()


@pytest.mark.parametrize("method", METHODS)
def test_certain_and_impossible_events(method: Callable[..., RareEventEstimate]) -> None:
    always = method(lambda x: torch.ones(len(x)), UnitBox(2))
    assert always.log_probability.item() == 0
    assert not always.censored.any()
    assert always.interval()[0, 1] == 0
    never = method(lambda x: -torch.ones(len(x)), UnitBox(2))
    assert never.censored.all()
    assert never.interval()[0, 0] == -torch.inf
    assert torch.isnan(never.std_error).all()
    far = LinfBall(0.5).around(torch.full((1, 2), 7.5))
    nothing = method(lambda x: torch.full((len(x),), torch.nan), far)
    assert nothing.censored.all()
    # a point of the prior, though none is near the event
    assert ((nothing.extreme - 7.5).abs() <= 0.5).all()


def test_the_first_stage_is_an_estimate_of_its_own() -> None:
    problem = next(p for p in problems(16) if p.name.startswith("two stages"))
    for levels in repeat(problem, 5, particles=400, first=4.0).levels:
        crossing = ((levels.stage == 0) & (levels.threshold == 0)).nonzero()[0, 0]
        assert (
            abs(levels.log_probability[crossing] - math.log(1e-4)) < 4 * levels.std_error[crossing]
        )
        assert (levels.stage.diff() >= 0).all()


@pytest.mark.parametrize("quantile", [0.1, 0.5])
def test_stages_that_few_pass_are_crossed_without_asking_for_the_next(quantile: float) -> None:
    score = lambda x: torch.stack([x[:, 0] - 0.8, x[:, 1] - 0.95], dim=1)  # noqa: E731
    problem = Problem("two stages", score, UnitBox(2), math.log(0.2 * 0.05))
    check_unbiased_and_covering(
        problem, repeat(problem, 20, quantile=quantile, moves=10, particles=400, first=4.0)
    )


def test_a_plateau_is_reported_and_does_not_loop() -> None:
    stuck = SubsetSimulation().run(lambda x: torch.where(x[:, 0] > 0.5, -1.0, -2.0), UnitBox(2))
    assert stuck.stalled.all()
    assert stuck.censored.all()
    assert stuck.log_probability.item() == pytest.approx(math.log(0.5), abs=0.2)


def test_the_extreme_point_is_the_deepest() -> None:
    for method in METHODS:
        estimate = method(lambda x: x[:, 0] - 0.5, UnitBox(2))
        assert estimate.extreme[0, 0] > 0.95


def test_ties_do_not_bias_the_estimate() -> None:
    # a score in whole steps: every level is a tie
    problem = Problem(
        "ties", lambda x: torch.floor(x[:, 0] * 2) - 9, StandardNormal(3), stats.norm.logsf(4.5)
    )
    errors = find_errors(problem, repeat(problem, 20, particles=400, first=4))
    assert abs(errors.mean()) < 4 * errors.std(ddof=1) / 20**0.5


def test_the_floor_censors() -> None:
    estimate = SubsetSimulation(floor=-40.0, particles=200).run(
        lambda x: x[:, 0] - 30, StandardNormal(5)
    )
    assert estimate.censored.all()
    assert not estimate.stalled.any()
    assert estimate.resolved.all()
    # the bound is the upper end of the interval of the last level, which is at -40 or a little below
    (run,) = estimate.levels
    last = run.log_probability[-1].item()
    assert -41 < last < -40
    error = run.std_error[-1].item()
    high = last + error**2 / 2 + stats.t.ppf(0.975, run.degrees[-1].item()) * error
    assert estimate.log_probability.item() == pytest.approx(high)
    assert estimate.interval()[0].tolist() == [-math.inf, estimate.log_probability.item()]


@pytest.mark.parametrize("prior", [UnitBox(4), StandardNormal(4)], ids=["box", "normal"])
def test_random_walk_has_the_right_acceptance_ratio(prior: Region) -> None:
    # with the ratio of the paper's Eq. 23, upside down, the normal one drifts outwards without end
    limit = 3.4 if isinstance(prior, StandardNormal) else 0.9999
    truth = stats.norm.logsf(3.4) if isinstance(prior, StandardNormal) else math.log(1e-4)
    problem = Problem("random walk", lambda x: x[:, 0] - limit, prior, truth)
    check_unbiased_and_covering(
        problem,
        repeat(
            problem, 20, proposal="random_walk", moves=30, quantile=0.1, particles=400, first=4.0
        ),
    )


@pytest.mark.slow
def test_a_random_walk_wider_than_the_box_stays_finite() -> None:
    """Levels that keep nine in ten are accepted too often for the width to be bounded by them; one feature is fixed."""
    prior = Region(
        centre=torch.full((1, 4), 0.5, dtype=torch.float64),
        lower=torch.tensor([[0.0, 0.0, 0.0, 0.5]], dtype=torch.float64),
        upper=torch.tensor([[1.0, 1.0, 1.0, 0.5]], dtype=torch.float64),
    )
    walk = SubsetSimulation(particles=100, moves=300, quantile=0.9, first=1, proposal="random_walk")
    found = walk.run(lambda x: x[:, 0] - 0.99, prior)
    assert not found.censored.any()
    assert abs(found.log_probability.item() - math.log(1e-2)) < 4 * found.std_error.item()
    assert found.std_error.item() < 0.3  # 2.7 without a largest width


def score_sum(x: Tensor) -> Tensor:
    return x.sum(1) - 2.08


@cache
def sample_ball(ball: LinfBall) -> tuple[Region, RareEventEstimate]:
    """Around a point near the edge; and what many plain draws from it say."""
    prior = ball.around(torch.tensor([[0.1, 0.5, 0.8]], dtype=torch.float64), (0.0, 1.0))
    return prior, monte_carlo(score_sum, prior, samples=200_000)


@pytest.mark.parametrize(
    "ball",
    [L2Ball(0.5), L2Ball(0.5, "truncated_normal", 0.2), LinfBall(0.5, "truncated_normal", 0.2)],
    ids=str,
)
@pytest.mark.parametrize("proposal", ["gaussian", "random_walk"])
def test_neighbourhoods_as_priors(ball: LinfBall, proposal: str) -> None:
    prior, exact = sample_ball(ball)
    assert -9 < exact.log_probability.item() < -3
    problem = Problem("ball", score_sum, prior, exact.log_probability.item())
    moves = 10 if proposal == "gaussian" else 30
    errors = find_errors(
        problem, repeat(problem, 12, particles=400, first=4.0, proposal=proposal, moves=moves)
    )
    assert (
        abs(errors.mean())
        < 4 * math.hypot(errors.std(ddof=1) / 12**0.5, exact.std_error.item()) + 0.02
    )


# an image has blocks, with sizes of their own in each problem
@pytest.mark.parametrize("shape", [(6,), (1, 2, 3)])
def test_problems_share_batches_and_nothing_else(shape: tuple[int, ...]) -> None:
    x = torch.rand(4, *shape)
    limits = torch.tensor([3.2, 3.6, 4.0, 9.0])
    prior = LinfBall(0.3).around(x, (0.0, 1.0))
    excess = limits - x.flatten(1).sum(1)

    def score(points: Tensor, problem: Tensor) -> Tensor:
        return (points - x[problem]).flatten(1).sum(1) - 0.2 * excess[problem].abs().clamp(min=1.0)

    simulation = SubsetSimulation(particles=200, floor=-20.0)
    together = simulation.run(score, prior, indexed=True)
    for row in (0, 3):
        alone = simulation.run(
            lambda p, _, row=row: score(p, _ + row), prior.select([row]), indexed=True
        )
        assert alone.log_probability[0] == together.log_probability[row]
        assert torch.equal(alone.extreme[0], together.extreme[row])
        assert alone.model_evaluations[0] == together.model_evaluations[row]
    many = monte_carlo(score, prior, samples=3000, indexed=True)
    for row in (1, 2):
        alone = monte_carlo(
            lambda p, _, row=row: score(p, _ + row), prior.select([row]), samples=3000, indexed=True
        )
        assert alone.hits[0] == many.hits[row]


def test_groups_that_bound_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    prior = LinfBall(0.3).around(torch.rand(5, 6), (0.0, 1.0))

    def score(p: Tensor) -> Tensor:
        return p.sum(1) - 4.5

    methods = (
        lambda: SubsetSimulation(particles=100, floor=-15.0).run(score, prior),
        lambda: monte_carlo(score, prior, samples=2500),
    )
    before = [m() for m in methods]
    for module in (subset_sampling, plain_sampling):
        monkeypatch.setattr(module, "_STATE_ELEMENTS", 1)
    for method, expected in zip(methods, before, strict=True):
        got = method()
        assert torch.equal(got.log_probability, expected.log_probability)
        assert torch.equal(got.extreme, expected.extreme)
        assert torch.equal(got.model_evaluations, expected.model_evaluations)


@pytest.mark.parametrize("ball", [LinfBall(0.3), L2Ball(0.9)], ids=str)
@pytest.mark.parametrize("proposal", ["gaussian", "random_walk"])
@pytest.mark.parametrize("shape", [(32,), (1, 4, 8)])
def test_particles_move_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
    ball: LinfBall | L2Ball,
    proposal: Proposal,
    shape: tuple[int, ...],
) -> None:
    prior = ball.around(
        torch.rand(2, *shape, generator=torch.Generator().manual_seed(4)), (0.0, 1.0)
    )
    middle = prior.centre.flatten(1)[:, :8].sum(1)
    rows: list[int] = []

    def score(p: Tensor, problem: Tensor) -> Tensor:
        rows.append(len(p))
        return p.flatten(1)[:, :8].sum(1) - middle[problem] - 0.8

    simulation = SubsetSimulation(particles=100, first=2, proposal=proposal, error=None)
    expected = simulation.run(score, prior, indexed=True)
    assert max(rows) == 2 * 200
    rows.clear()
    monkeypatch.setattr(population, "CHUNK_ELEMENTS", 25 * 32)
    got = simulation.run(score, prior, indexed=True)
    assert max(rows) == 2 * 25
    assert not got.censored.any()
    error = torch.hypot(got.std_error, expected.std_error)
    assert bool(((got.log_probability - expected.log_probability).abs() < 4 * error).all())
    # where a move draws normal numbers only, chunks of a multiple of 16 numbers give the same ones
    if proposal == "gaussian" and len(shape) == 1 and isinstance(ball, LinfBall):
        assert torch.equal(got.log_probability, expected.log_probability)
        assert torch.equal(got.extreme, expected.extreme)
        assert torch.equal(got.model_evaluations, expected.model_evaluations)


@pytest.mark.parametrize("wanted", [5, 7])
def test_particles_are_taken_in_place_or_into_fewer(
    monkeypatch: pytest.MonkeyPatch, wanted: int
) -> None:
    monkeypatch.setattr(population, "CHUNK_ELEMENTS", 20)
    state = torch.rand(2, 7, 3, 4)
    parents = torch.randint(7, (2, wanted))
    expected = torch.stack([own[rows] for own, rows in zip(state, parents, strict=True)])
    assert torch.equal(population.take_particles(state, parents), expected)


def test_evaluations_are_counted_and_generators_obeyed() -> None:
    seen = 0

    def score(x: Tensor) -> Tensor:
        nonlocal seen
        seen += len(x)
        return x.sum(1) - 20

    first = SubsetSimulation(particles=200).run(
        score, UnitBox(30), generator=torch.Generator().manual_seed(5)
    )
    assert first.model_evaluations.item() == seen
    again = SubsetSimulation(particles=200).run(
        score, UnitBox(30), generator=torch.Generator().manual_seed(5)
    )
    other = SubsetSimulation(particles=200).run(
        score, UnitBox(30), generator=torch.Generator().manual_seed(6)
    )
    assert torch.equal(first.log_probability, again.log_probability)
    assert not torch.equal(first.log_probability, other.log_probability)
    state = torch.random.get_rng_state()
    SubsetSimulation(particles=100).run(score, UnitBox(30))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_monte_carlo_intervals_are_clopper_pearsons() -> None:
    estimate = monte_carlo(lambda x: x[:, 0] - 0.995, UnitBox(1), samples=2000)
    exact = stats.binomtest(int(estimate.hits.item()), 2000).proportion_ci(0.9, method="exact")
    assert estimate.interval(0.9)[0].exp().tolist() == pytest.approx([exact.low, exact.high])


def test_bad_arguments() -> None:
    assert_refused(
        SubsetSimulation,
        particles=[5, 10**12],
        moves=[0],
        quantile=[1.0],
        proposal=["walk"],
        floor=[1.0],
    )
    assert_refused(SubsetSimulation, first=[0.5, float("inf"), 1e9])
    assert_refused(
        partial(SubsetSimulation().run, prior=UnitBox(2)), score=[lambda x: x.sum(), lambda x: 1.0]
    )


@pytest.mark.parametrize(("kept", "count"), [(30, 50), (25, 50), (12, 50), (50, 40)])
def test_shared_parents_are_reduced_by_equal_numbers_of_children(kept: int, count: int) -> None:
    generator = np.random.default_rng(0)
    shared = []
    for _ in range(200):
        more = generator.permutation(kept)[: count % kept]
        family = np.bincount(
            np.concatenate([*[np.arange(kept)] * (count // kept), more]), minlength=kept
        )
        shared.append((family * (family - 1)).sum() / (count * (count - 1)))
    error = 4 * np.std(shared) / len(shared) ** 0.5
    assert 1 / kept - reduce_shared_parents(kept, count) == pytest.approx(
        np.mean(shared), abs=error + 1e-12
    )


def test_adaptive_levels_are_unbiased_in_the_logarithm() -> None:
    # the level is the kept-th largest of N: ln P(above it), averaged, is what an estimate of it should average to
    count, keep = 40, 4
    values = torch.rand(
        4000, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    stages = torch.zeros(count, dtype=torch.int64)
    found = [_next_level(stages, row - 2, 1, keep) for row in values]
    levels = np.array([level[1] + 2 for level in found if level is not None])
    estimates = np.array([level[2] for level in found if level is not None])
    error = np.log(1 - levels) - estimates
    assert len(error) == 4000
    assert abs(error.mean()) < 4 * error.std() / 4000**0.5
    assert abs((error + estimates - math.log(keep / count)).mean()) > 4 * error.std() / 4000**0.5


def test_a_stage_that_is_reached_is_a_level_and_those_beyond_it_count() -> None:
    found = _next_level(torch.tensor([0, 1, 1, 2]), torch.zeros(4, dtype=torch.float64), 2, 2)
    assert found is not None
    assert (found[0], found[1], found[3].tolist()) == (1, -math.inf, [False, True, True, True])
    assert found[2] == pytest.approx(math.log(0.75))


def test_deep_runs_with_few_particles_start_new_genealogies() -> None:
    threshold = irwin_hall_threshold(16, math.log(1e-20))
    problem = Problem(
        "deep", lambda x: x.sum(1) - threshold, UnitBox(16), irwin_hall_log_sf(16, threshold)
    )
    estimate = repeat(problem, 20, particles=60)
    errors = find_errors(problem, estimate)
    reported = np.asarray(estimate.std_error)
    assert np.sqrt((reported**2).mean()) > 0.6 * errors.std(ddof=1)
    assert count_covered(problem, estimate) >= stats.binom.ppf(1e-3, 20, 0.95)
