"""From the event back to the prior: exact answers, witnesses of a mode that was missed, and what it costs."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
import torch
from repeated_runs import Normals, repeat_prior, split_runs
from scipy import special, stats
from torch import Tensor
from traps import TRAPS

from exact import irwin_hall_log_sf, irwin_hall_threshold
from standfast import L2Ball, LinfBall
from standfast.algorithms import RareEventEstimate, StandardNormal, SubsetSimulation, UnitBox
from standfast.algorithms.rare_events import subset_sampling
from standfast.algorithms.rare_events.pooling import pool
from standfast.algorithms.rare_events.population import Population, Proposal
from standfast.algorithms.rare_events.return_to_prior import estimate_from_event, join_groups
from standfast.algorithms.rare_events.witnesses import shrink_witnesses
from standfast.errors import ArgumentError
from standfast.neighbourhoods import Distribution, Neighbourhood

SUM = irwin_hall_threshold(20, math.log(1e-8))


def count_covered(found: RareEventEstimate, truth: float) -> int:
    ends = found.interval_from_event()
    assert ends is not None
    low, high = ends.unbind(1)
    return int(((low <= truth) & (truth <= high)).sum())


@pytest.mark.parametrize(
    ("proposal", "features", "runs"), [("gaussian", 20, 20), ("random_walk", 4, 20)]
)
def test_exact_answers(proposal: Proposal, features: int, runs: int) -> None:
    """Both directions agree with the exact answer, and with each other."""
    generator = torch.Generator().manual_seed(6)
    limit = irwin_hall_threshold(features, math.log(1e-6))
    truth = irwin_hall_log_sf(features, limit)
    prior = repeat_prior(UnitBox(features), runs)
    found = SubsetSimulation(200, first=1, proposal=proposal, from_event=True).run(
        lambda x: x.sum(1) - limit, prior, generator=generator
    )
    assert found.from_event is not None
    errors = found.from_event - truth
    assert errors.mean().abs() < 4 * errors.std() / runs**0.5
    # 93% of 800 such intervals held the truth; at seed 5 only 13 of 20 do, which happens once in four thousand times
    assert count_covered(found, truth) >= stats.binom.ppf(1e-3, runs, 0.93)
    assert int(found.contradicts(0.999).sum()) <= 1
    assert torch.equal(found.from_prior, found.log_probability)


def test_particles_that_move_too_little_are_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subset_sampling, "_RETURNING_MOVES", 1)
    generator = torch.Generator().manual_seed(6)
    found = SubsetSimulation(200, moves=2, from_event=True).run(
        lambda x: x.sum(1) - SUM, repeat_prior(UnitBox(20), 5), generator=generator
    )
    value = found.from_event
    assert value is not None
    assert value.min() > irwin_hall_log_sf(20, SUM) + 1
    # the contradiction is seen, and the interval contains both
    low, high = found.interval().unbind(1)
    assert not bool(found.resolved.any())
    assert bool((low < found.log_probability).all())
    assert bool((found.log_probability < value).all())
    assert bool((value < high).all())


def test_a_witness_shows_a_mode_that_was_missed() -> None:
    """Few particles are misled by the meatball; points of the mode that they miss void a narrow interval."""
    meatball = TRAPS[1]
    witnesses = torch.tensor([[[-5.0, 0.0], [-4.8, 1.0], [0.0, 0.0]]], dtype=torch.float64)
    prior = repeat_prior(StandardNormal(2), 6)
    assert (meatball.score(witnesses[0]) >= 0).tolist() == [True, True, False]
    held = {}
    for given in (False, True):
        found = SubsetSimulation(500, first=1).run(
            meatball.score, prior, witnesses=witnesses.expand(6, 3, 2) if given else None
        )
        low, high = found.interval().unbind(1)
        is_held = (low <= meatball.log_probability) & (meatball.log_probability <= high)
        held[given] = int(is_held.sum())
    assert held[False] <= 4
    assert held[True] >= stats.binom.ppf(1e-3, 6, 0.95)


def score_cliff(z: Tensor) -> Tensor:
    """A slope to 7 along the first half of 30 features, and a cliff at 5.2 along the second, unseen below 4.5.

    The cliff holds nearly all of P. One of 300,000 random points is above 4.5.
    """
    first, second = z.unflatten(1, (2, 15)).sum(2).unbind(1)
    length = math.sqrt(15)
    return torch.maximum(
        first / length - 7,
        torch.where(second / length >= 4.5, 20 * (second / length - 5.2), -100.0),
    )


def test_agreement_without_witnesses_says_nothing_of_other_ways() -> None:
    """Both directions agree on a wrong number where no particle sees a mode; the result says where it started."""
    truth = stats.norm.logsf(5.2)
    same = Normals(torch.zeros(2, 30, dtype=torch.float64))  # both have the same random numbers
    witnesses = torch.zeros(2, 2, 30, dtype=torch.float64)
    witnesses[1, 0, 15:] = 6 / math.sqrt(15)  # all other points are not in the event
    found = SubsetSimulation(200, moves=2, first=20).run(score_cliff, same, witnesses=witnesses)
    assert found.from_event is not None
    assert found.from_witnesses is not None
    assert found.from_witnesses.tolist() == [False, True]
    assert float(found.log_probability[0]) == pytest.approx(stats.norm.logsf(7), abs=4)
    assert float(found.from_event[0]) < truth - 4  # -27 instead of -16
    assert found.log_probability[0] == found.log_probability[1]
    assert not bool(found.resolved[1])
    low, high = found.interval()[1].tolist()
    assert low <= truth <= high


def test_witnesses_in_corners_are_moved_towards_the_middle() -> None:
    ball = LinfBall(0.5).around(torch.full((1, 30), 0.5), (0.0, 1.0))
    corner = torch.ones(1, 2, 30)
    corner[0, 1] = 0.0  # not in the event

    def score(x: Tensor) -> Tensor:
        return x.sum(1) - 19.0

    found = SubsetSimulation(200, first=1).run(score, ball, witnesses=corner)
    assert not bool(found.contradicts(0.999))
    assert found.from_event is not None
    assert float(found.from_event) == pytest.approx(irwin_hall_log_sf(30, 19.0), abs=2.5)


def test_a_witness_in_a_part_that_does_not_matter_makes_no_error() -> None:
    """Two ways to the event: one with nearly all of P, and a much rarer one with the deepest corner."""
    features, runs = 100, 6
    truth = math.log(0.2**4 / math.factorial(4))  # a sum of four uniform numbers above 3.8

    def score(x: Tensor) -> Tensor:
        rare = (x[:, 4:] - 0.5).sum(1) / math.sqrt((features - 4) / 12) - 6.0
        return torch.maximum(x[:, :4].sum(1) - 3.8, 0.3 * rare)

    corner = torch.ones(1, 1, features, dtype=torch.float64)
    corner[..., :4] = 0.0
    assert float(score(corner[0])) > 0.3, "deeper than any point of the other way"
    generator = torch.Generator().manual_seed(7)
    found = SubsetSimulation(400, first=4).run(
        score,
        repeat_prior(UnitBox(features), runs),
        witnesses=corner.expand(runs, 1, features),
        generator=generator,
    )
    values, errors = found.from_event, found.from_event_error
    assert values is not None
    assert errors is not None
    # one group of both kinds of particles ends at about -12.5
    assert (values - truth).mean() > -4 * float(errors.square().mean().sqrt()) / runs**0.5
    assert count_covered(found, truth) >= stats.binom.ppf(1e-3, runs, 0.95)
    assert bool(found.resolved.all())


def test_groups_join_as_their_formula_says() -> None:
    first = torch.tensor([-3.0, -3.0, -2.0]), torch.tensor([0.1, 0.1, 0.4])
    second = torch.tensor([-4.0, -2.0, -5.0]), torch.tensor([0.2, 0.2, 0.3])
    value, error = join_groups([first, second], torch.tensor([False, False, True]))
    p = [math.exp(-2.0), math.exp(-5.0)]
    assert value.tolist() == pytest.approx([-3.0, -2.0, math.log(sum(p) / 2)], abs=1e-6)
    assert error.tolist() == pytest.approx(
        [0.1, 0.2, math.hypot(0.4 * p[0], 0.3 * p[1]) / sum(p)], abs=1e-6
    )


def test_witnesses_come_as_near_to_the_prior_as_they_stay_in_the_event() -> None:
    prior, witness = StandardNormal(3), torch.tensor([[[2.0, 0.0, 0.0]]], dtype=torch.float64)
    for score, nearest in (
        (lambda x: x[:, 0] - 1.0, 1.0),
        (lambda x: 0.05 - (x[:, 0] - 2.0).abs(), 2.0),
    ):
        particles = Population(
            score, prior, torch.tensor([0]), prior.streams(0), "gaussian", indexed=False
        )
        (found,) = shrink_witnesses(particles, witness)
        assert found.tolist() == [pytest.approx([nearest, 0.0, 0.0])]


def test_a_random_walk_too_starts_only_from_witnesses_in_the_event() -> None:
    ball = LinfBall(0.5).around(torch.full((1, 6), 0.5), (0.0, 1.0))
    both = torch.stack([torch.ones(1, 6), torch.zeros(1, 6)], 1)
    found = [
        SubsetSimulation(40, moves=1, first=1, proposal="random_walk").run(
            lambda x: x.sum(1) - 4.0,
            ball,
            witnesses=witnesses,
            generator=torch.Generator().manual_seed(0),
        )
        for witnesses in (both[:, :1], both)
    ]
    assert found[1].from_event is not None
    assert found[0].from_event.equal(found[1].from_event)


@pytest.mark.parametrize("distribution", ["uniform", "truncated_normal"])
@pytest.mark.parametrize("ball", [LinfBall, L2Ball])
def test_gaussian_coordinates_are_the_inverse(
    ball: type[Neighbourhood], distribution: Distribution
) -> None:
    region = ball(0.8, distribution).around(torch.rand(3, 7, dtype=torch.float64), (-0.5, 1.5))
    z = torch.randn(3, 40, 7, dtype=torch.float64)
    x = region.from_gaussian(z)
    assert torch.allclose(region.to_gaussian(x), z, atol=1e-6)
    faces = region.to_gaussian(torch.stack([region.lower, region.upper], 1))
    assert bool(faces.isfinite().all())
    assert torch.allclose(
        region.from_gaussian(faces), torch.stack([region.lower, region.upper], 1), atol=1e-4
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("distribution", ["uniform", "truncated_normal"])
def test_gaussian_coordinates_in_half_precision(
    dtype: torch.dtype, distribution: Distribution
) -> None:
    region = LinfBall(0.5, distribution).around(torch.full((1, 3), 0.5, dtype=dtype), (0.0, 1.0))
    point = torch.tensor([[[0.0, 0.25, 1.0]]], dtype=dtype)
    z = region.to_gaussian(point)
    assert z.dtype == dtype
    exact = region.to_gaussian(point.double())
    assert torch.allclose(z.double(), exact, rtol=0.05)


def test_problems_share_batches_and_nothing_else() -> None:
    x = 0.3 + 0.4 * torch.rand(4, 6)
    prior = LinfBall(0.3).around(x, (0.0, 1.0))
    limits = torch.tensor([0.2, 0.4, 0.6, 9.0])
    witnesses = torch.stack([prior.upper, prior.lower], 1)

    def score(points: Tensor, problem: Tensor) -> Tensor:
        return (points - x[problem]).sum(1) - limits[problem]

    simulation = SubsetSimulation(particles=100, first=2, floor=-20.0)
    together = simulation.run(score, prior, witnesses, indexed=True)
    # the last event was not reached
    assert together.from_event.isnan().tolist() == [
        False,
        False,
        False,
        True,
    ]
    for row in (0, 2):
        alone = simulation.run(
            lambda p, _, row=row: score(p, _ + row),
            prior.select([row]),
            witnesses[[row]],
            indexed=True,
        )
        assert alone.from_event[0] == together.from_event[row]
        assert alone.model_evaluations[0] == together.model_evaluations[row]


class _Still:
    """A population that does not move, with given scores at each level."""

    def __init__(self, scores: list[list[float]]) -> None:
        self.state = torch.zeros(1, len(scores[0]), 1)
        self.count = len(scores[0])
        self.all = [torch.tensor(row, dtype=torch.float64).reshape(1, -1, 1) for row in scores]

    def __len__(self) -> int:
        return 1

    def move(self, *_: object) -> None:
        self.scores = self.all.pop(0)

    def keep(self, rows: list[int]) -> None:
        assert rows == [0]


@pytest.mark.parametrize("hits", [0, 3, 5])
def test_the_error_from_the_event_is_that_of_its_formula(hits: int) -> None:
    """Some of five are above: the error of a binomial share; all or none: that of a beta distribution's logarithm."""
    within = [1.0] * 5
    scores = [within, [1.0] * hits + [-1.0] * (5 - hits)]
    population: Any = _Still(scores)
    value, error = estimate_from_event(population, [[(0, 0.0)]], 1, 1)
    assert value.item() == pytest.approx(math.log(max(hits, 0.5) / 5))
    share = hits / 5
    # the posterior of a share by Jeffreys' prior has this variance of its logarithm
    if hits in (
        0,
        5,
    ):
        expected = math.sqrt(special.polygamma(1, hits + 0.5) - special.polygamma(1, 6))
    else:
        expected = math.sqrt((1 - share) / share / 5)
    assert error.item() == pytest.approx(expected)


def test_evaluations_are_counted_and_the_budget_is_kept() -> None:
    calls: list[int] = []
    limit = irwin_hall_threshold(20, math.log(1e-4))

    def score(x: Tensor) -> Tensor:
        calls.append(len(x))
        return x.sum(1) - limit

    for witnesses in (None, torch.ones(1, 3, 20, dtype=torch.float64)):
        calls.clear()
        simulation = SubsetSimulation(40, moves=2, from_event=True)
        found = simulation.run(score, UnitBox(20), witnesses=witnesses)
        assert sum(calls) == int(found.model_evaluations)
        spent = int(found.model_evaluations)
        tight = replace(simulation, budget=spent - 1).run(score, UnitBox(20))
        assert int(tight.model_evaluations) < spent
        assert tight.from_event is not None


def test_pooled_runs_have_pooled_estimates_from_the_event() -> None:
    found = SubsetSimulation(200, from_event=True).run(
        lambda x: x.sum(1) - SUM, repeat_prior(UnitBox(20), 3)
    )
    runs = [run for run in split_runs(found) if bool(run.resolved)]
    assert len(runs) > 1
    pooled = pool(runs, [200] * len(runs))
    values = torch.cat([run.from_event for run in runs if run.from_event is not None])
    assert pooled.from_event is not None
    assert float(pooled.from_event) == pytest.approx(float(values.exp().mean().log()))
    errors = torch.cat([run.from_event_error for run in runs if run.from_event_error is not None])
    share = values.exp() / values.exp().sum()
    assert pooled.from_event_error is not None
    assert float(pooled.from_event_error) == pytest.approx(
        float((share * errors).square().sum().sqrt())
    )
    assert pooled.from_witnesses is not None
    assert not bool(pooled.from_witnesses)
    outside = [replace(run, from_witnesses=torch.tensor([True])) for run in runs]
    for parts, every in ((outside, True), ([*outside[1:], runs[0]], False)):
        assert pool(parts, [200] * len(runs)).from_witnesses == torch.tensor([every])
    # a run whose budget did not allow the way back counts for P, and not for P from the event
    without = replace(
        runs[0],
        from_event=torch.full((1,), torch.nan),
        from_event_error=torch.full((1,), torch.nan),
    )
    longer = pool([*runs, without], [200] * (len(runs) + 1))
    assert longer.from_event.equal(pooled.from_event)


@pytest.mark.parametrize("probability", [0.995, 0.5])
def test_common_events_are_no_contradiction(probability: float) -> None:
    """Also where all particles of a level are still in the event."""
    generator = torch.Generator().manual_seed(3)
    found = SubsetSimulation(300, first=1, from_event=True).run(
        lambda x: probability - x[:, 0], repeat_prior(UnitBox(2), 20), generator=generator
    )
    assert int(found.resolved.sum()) >= 18
    assert count_covered(found, math.log(probability)) >= stats.binom.ppf(1e-3, 20, 0.95)


def test_pooled_runs_compare_directions() -> None:
    """Errors of pooled runs are smaller, so that a small contradiction shows."""
    found = SubsetSimulation(100, from_event=True).run(
        lambda x: x.sum(1) - SUM, repeat_prior(UnitBox(20), 10)
    )
    runs = [run for run in split_runs(found) if bool(run.resolved)]
    assert bool(pool(runs, [100] * len(runs)).resolved)
    moved = [replace(run, from_event=run.from_prior + 2.5) for run in runs]
    assert sum(bool(run.contradicts(0.999)) for run in moved) <= 2
    assert not bool(pool(moved, [100] * len(runs)).resolved)


def test_bad_witnesses() -> None:
    with pytest.raises(
        ArgumentError, match=r"expected shape \(P, W, \*shape\) = \(1, W, 20\), got \(1, 20\)"
    ):
        SubsetSimulation(100).run(
            lambda x: x.sum(1) - SUM, UnitBox(20), witnesses=torch.ones(1, 20)
        )


def test_levels_fall_from_the_event_to_the_prior() -> None:
    """The levels that both directions share do not decrease, so their product is the probability of the event."""
    found = SubsetSimulation(100, first=1).run(lambda x: x.sum(1) - SUM, UnitBox(20))
    keys = list(
        zip(found.levels[0].stage.tolist(), found.levels[0].threshold.tolist(), strict=True)
    )
    assert all(a <= b for a, b in pairwise(keys))
