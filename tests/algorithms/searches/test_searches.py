"""The searches for a worst case: known optima, and one contract that every registered search keeps."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import assert_refused
from scipy import stats
from scipy.optimize import linprog
from torch import Tensor

from standfast.algorithms import (
    AutoSearch,
    BlockSearch,
    GeneticSearch,
    GradientSearch,
    GridSearch,
    RandomSearch,
    SignSearch,
    searches,
)
from standfast.algorithms.searches.base import (
    GradientObjective,
    Outcome,
    SearchResult,
    SearchRun,
    differentiate_outcome,
)
from standfast.algorithms.searches.block import _MARGIN, _choose_changes
from standfast.errors import ArgumentError, ModelError, SecondDerivativeError
from standfast.neighbourhoods import L2Ball, LinfBall, Region

NAMES = searches.names()
SHAPES = [(1, 6, 6), (3, 5, 4), (2, 15), (17,)]


class Linear:
    """`max w.x subject to a.x <= b`, rows summed one by one so that no bit depends on the batch; counts the queries."""

    def __init__(
        self, features: int, problems: int, a: Tensor | None = None, b: float = 0.0
    ) -> None:
        generator = torch.Generator().manual_seed(3)
        self.w = torch.randn(features, generator=generator)
        self.a, self.b = a, b
        self.queries = torch.zeros(problems, dtype=torch.int64)
        self.region: Region | None = None

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        self.queries.index_add_(0, problem, torch.ones_like(problem))
        if self.region is not None:
            slack = 0.0 if self.region.radius is None else 1e-5
            region = self.region.select(problem)
            assert bool(region.contains(x.detach()[:, None], slack=slack).all())
        return self.outcome(x, problem)

    def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
        value = (x.flatten(1) * self.w).sum(1)
        if self.a is None:
            return Outcome(value, torch.full_like(value, -torch.inf))
        return Outcome(value, (x.flatten(1) * self.a).sum(1) - self.b)


class Rugged(Linear):
    """Many local optima around a slope, and a constraint that cuts the region in two."""

    def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
        flat = x.flatten(1)
        value = (flat * self.w).sum(1) + 0.3 * torch.sin(20 * flat * self.w).sum(1)
        return Outcome(value, flat[:, 0] - flat[:, -1] - 0.02)


class Patchy(Rugged):
    """NaN where the first feature is large, in the value or in the violation."""

    def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
        seen = super().outcome(x, problem)
        first = x.flatten(1)[:, 0]
        value = torch.where(first > 0.6, torch.nan, seen.value)
        return Outcome(value, torch.where(first < 0.3, torch.nan, seen.violation))


def gradient_of(objective: Linear) -> GradientObjective:
    """What the white-box searches want; counts as queries."""

    def gradient(x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        with torch.enable_grad():
            leaf = x.clone().requires_grad_(True)
            return differentiate_outcome(objective(leaf, problem), leaf, feasible)

    return gradient


def centres(problems: int, shape: tuple[int, ...]) -> Tensor:
    return torch.rand((problems, *shape), generator=torch.Generator().manual_seed(5))


def box(problems: int = 3, shape: tuple[int, ...] = (1, 6, 6), radius: float = 0.2) -> Region:
    return LinfBall(radius).around(centres(problems, shape), (0.0, 1.0))


def solve(name: str, objective: Linear, region: Region, budget: int, seed: int = 0) -> SearchResult:
    search = GeneticSearch(population=100) if name == "genetic" else searches[name]()
    gradient = gradient_of(objective) if search.white_box or search.takes_gradient else None
    return search.run(objective, region, budget, seed, gradient)


def same(a: SearchResult, b: SearchResult) -> bool:
    pairs = ((a.inputs, b.inputs), (a.value, b.value), (a.trace.value, b.trace.value))
    return all(torch.equal(x, y) for x, y in pairs)


# known optima


def box_optimum(objective: Linear, region: Region) -> Tensor:
    lower, upper = region.lower.flatten(1), region.upper.flatten(1)
    return torch.where(objective.w > 0, objective.w * upper, objective.w * lower).sum(1)


def gap(objective: Linear, region: Region, found: SearchResult, optimum: Tensor) -> Tensor:
    """What is missing from the centre's value to the optimum, as a share."""
    start = (region.centre.flatten(1) * objective.w).sum(1)
    return (optimum - found.value) / (optimum - start)


@pytest.mark.parametrize(
    ("name", "missing"),
    [("block", 1e-5), ("gradient", 1e-5), ("sign", 1e-5), ("auto", 1e-5), ("genetic", 0.1)],
)
def test_linear_maximum_over_a_box(name: str, missing: float) -> None:
    region = LinfBall(0.2).around(centres(2, (1, 6, 6)))
    objective = Linear(36, 2)
    found = solve(name, objective, region, budget=8000 if name == "genetic" else 1500)
    optimum = (region.centre.flatten(1) * objective.w).sum(1) + 0.2 * objective.w.abs().sum()
    assert torch.allclose(optimum, box_optimum(objective, region), rtol=1e-5)
    assert bool((gap(objective, region, found, optimum) <= missing).all())


@pytest.mark.parametrize(
    ("name", "missing"), [("block", 0.06), ("gradient", 0.03), ("auto", 0.03), ("genetic", 0.15)]
)
def test_linear_programme(name: str, missing: float) -> None:
    region = box(2, (12,))
    a = torch.randn(12, generator=torch.Generator().manual_seed(11)).abs() * Linear(12, 1).w.sign()
    for p in range(2):
        b = float((region.centre[p] * a).sum()) + 0.3
        objective = Linear(12, 1, a, b)
        found = solve(name, objective, region.select([p]), budget=3000)
        bounds = np.stack([region.lower[p].numpy(), region.upper[p].numpy()], axis=1)
        exact = linprog(-objective.w.numpy(), A_ub=a.numpy()[None], b_ub=[b], bounds=bounds)
        optimum = torch.tensor([-exact.fun])
        assert found.violation.item() <= 0
        assert optimum < box_optimum(objective, region.select([p])) - 1e-3  # the constraint matters
        share = gap(objective, region.select([p]), found, optimum)
        assert -1e-4 <= share.item() <= missing


@pytest.mark.parametrize(
    ("name", "missing"), [("block", 0.05), ("gradient", 0.01), ("auto", 0.01), ("genetic", 0.2)]
)
def test_linear_maximum_over_an_l2_ball(name: str, missing: float) -> None:
    region = L2Ball(0.7).around(centres(2, (1, 4, 4)))
    objective = Linear(16, 2)
    found = solve(name, objective, region, budget=3000)
    optimum = (region.centre.flatten(1) * objective.w).sum(1) + 0.7 * objective.w.norm()
    share = gap(objective, region, found, optimum)
    assert bool((share <= missing).all())
    assert bool((share >= -1e-4).all())


@pytest.mark.parametrize("name", ["sign", "gradient", "auto"])
def test_a_maximum_inside_the_region(name: str) -> None:
    """A concave value with its maximum, 0, away from the vertices: steps have to become smaller."""

    class Bowl(Linear):
        def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
            value = -(x.flatten(1) - aim[problem]).square().sum(1)
            return Outcome(value, torch.full_like(value, -torch.inf))

    region = box(2, (20,))
    aim = torch.lerp(region.lower, region.upper, torch.linspace(0.2, 0.8, 20))
    start = Bowl(20, 2).outcome(region.centre, torch.arange(2)).value
    found = solve(name, Bowl(20, 2), region, budget=1500)
    assert bool((found.value / start < 0.02).all())


@pytest.mark.parametrize("name", ["block", "gradient", "auto", "genetic"])
def test_least_violation_where_nothing_is_feasible(name: str) -> None:
    region = box(2, (20,))
    objective = Linear(20, 2, a=torch.ones(20), b=-1.0)
    found = solve(name, objective, region, budget=2000)
    least = region.lower.sum(1) + 1.0
    assert bool((found.violation > 0).all())
    start = region.centre.sum(1) + 1.0
    assert bool(((found.violation - least) / (start - least) < 0.1).all())


# the contract


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 30, 1203])
def test_budget_is_kept_and_used_for_every_problem(name: str, budget: int) -> None:
    objective, region = Rugged(36, 3), box()
    found = solve(name, objective, region, budget)
    assert bool((objective.queries <= budget).all())
    assert bool((objective.queries >= 0.9 * budget - 1).all())
    assert found.trace.evaluations[-1] == objective.queries[0]
    assert torch.equal(found.trace.value[:, -1], found.value)
    assert len(found.trace.evaluations) <= 202  # a long run is drawn by about 200 points


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("ball", [LinfBall(0.2), L2Ball(0.5)])
def test_all_points_lie_in_the_region_and_the_answer_is_what_it_says(
    name: str, shape: tuple[int, ...], ball: LinfBall | L2Ball
) -> None:
    region = ball.around(centres(2, shape), (0.0, 1.0))
    objective = Rugged(region.centre[0].numel(), 2)
    objective.region = region
    found = solve(name, objective, region, budget=300)
    assert found.inputs.shape == region.centre.shape
    again = objective(found.inputs, torch.arange(2))
    assert torch.equal(again.value, found.value)
    assert torch.equal(again.violation, found.violation)
    start = objective(region.centre, torch.arange(2))
    assert bool((found.trace.value[:, 0] == start.value).all())  # the centre comes first
    keys = torch.stack(
        [
            Outcome(v, j).key()
            for v, j in zip(found.trace.value.T, found.trace.violation.T, strict=True)
        ]
    )
    assert bool((keys.diff(dim=0) >= 0).all())


class Recorder(Rugged):
    """Keeps every point that is queried of each problem, in order."""

    def __init__(self, features: int, problems: int) -> None:
        super().__init__(features, problems)
        self.points: list[list[Tensor]] = [[] for _ in range(problems)]

    def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
        for number in problem.unique().tolist():
            self.points[number].append(x[problem == number].detach())
        return super().outcome(x, problem)


@cache
def solve_recorded(
    name: str, ball: LinfBall | L2Ball, shape: tuple[int, ...], rows: tuple[int, ...]
) -> Any:
    """The result for some of four problems, and the points that were queried."""
    region = ball.around(centres(4, shape), (0.0, 1.0)).select(list(rows))
    recorder = Recorder(int(np.prod(shape)), len(rows))
    return solve(name, recorder, region, budget=200), recorder.points


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("ball", "shape"),
    [(LinfBall(0.2), (1, 6, 6)), (L2Ball(0.5), (1, 6, 6)), (LinfBall(0.2), (3,))],
)
@settings(derandomize=True, max_examples=4, deadline=None, database=None)
@given(st.permutations(range(4)), st.integers(1, 4))
@example([2, 0, 1, 3], 1)
def test_a_problem_does_not_depend_on_its_batch(
    name: str, ball: LinfBall | L2Ball, shape: tuple[int, ...], order: list[int], count: int
) -> None:
    """All points that are queried have the same bits: torch's powers, for one, have not."""
    whole, every = solve_recorded(name, ball, shape, (0, 1, 2, 3))
    found, points = solve_recorded(name, ball, shape, tuple(order[:count]))
    for place, problem in enumerate(order[:count]):
        assert torch.equal(torch.cat(points[place]), torch.cat(every[problem]))
        assert torch.equal(found.inputs[place], whole.inputs[problem])
        assert torch.equal(found.trace.value[place], whole.trace.value[problem])


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bits_another_seed_others(name: str) -> None:
    region, state = box(), torch.get_rng_state()
    before = dataclasses.replace(region, centre=region.centre.clone())
    first = solve(name, Rugged(36, 3), region, budget=300)
    assert same(first, solve(name, Rugged(36, 3), region, budget=300))
    # it draws nothing
    assert same(first, solve(name, Rugged(36, 3), region, budget=300, seed=1)) == (name == "grid")
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(region.centre, before.centre)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("ball", [LinfBall(0.0), L2Ball(0.0)])
def test_radius_zero_is_the_centre(name: str, ball: LinfBall | L2Ball) -> None:
    region = ball.around(centres(2, (1, 4, 4)), (0.0, 1.0))
    found = solve(name, Rugged(16, 2), region, budget=50)
    assert torch.equal(found.inputs, region.centre)


@pytest.mark.parametrize("name", NAMES)
def test_nan_never_wins(name: str) -> None:
    region = LinfBall(0.4).around(torch.full((2, 1, 4, 4), 0.5), (0.0, 1.0))
    objective = Patchy(16, 2)
    found = solve(name, objective, region, budget=500)
    assert bool(found.value.isfinite().all())
    assert bool((found.violation <= 0).all())
    assert bool((found.value > objective(region.centre, torch.arange(2)).value).all())


@pytest.mark.parametrize("name", NAMES)
def test_all_nan_survives(name: str) -> None:
    class Nothing(Linear):
        def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
            nothing = x.flatten(1).sum(1) * torch.nan
            return Outcome(nothing, nothing)

    region = box(2)
    found = solve(name, Nothing(36, 2), region, budget=60)
    assert torch.equal(found.inputs, region.centre)


# the grid is for few parameters
@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("random", "grid")])
def test_better_than_random_on_a_rugged_slope(name: str) -> None:
    region = box(4)
    chance = solve("random", Rugged(36, 4), region, budget=1500)
    found = solve(name, Rugged(36, 4), region, budget=1500)
    assert bool(
        (
            Outcome(found.value, found.violation).key()
            > Outcome(chance.value, chance.violation).key()
        ).all()
    )


# few parameters


class Wave(Linear):
    """Sums of waves over `D` parameters: several peaks, of which the best lies inside or at an end."""

    def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
        flat = x.flatten(1)
        phase = torch.arange(1, flat.shape[1] + 1) + 0.7 * problem[:, None]
        value = (torch.sin(9 * flat + phase) + 0.4 * torch.sin(23 * flat - phase)).sum(1)
        return Outcome(value, self.limit(flat))

    def limit(self, flat: Tensor) -> Tensor:
        return (
            torch.full_like(flat[:, 0], -torch.inf)
            if self.a is None
            else (flat * self.a).sum(1) - self.b
        )


def scan(objective: Linear, region: Region, side: int) -> tuple[Tensor, Tensor]:
    """The largest and the smallest value of each problem on a fine grid, among the feasible points."""
    size = region.shape.numel()
    share = torch.cartesian_prod(*[torch.linspace(0, 1, side)] * size).reshape(-1, size)
    ends = []
    for p in range(len(region)):
        x = torch.lerp(region.lower[p].expand_as(share), region.upper[p].expand_as(share), share)
        seen = objective.outcome(x, torch.full((len(x),), p))
        values = seen.value[seen.violation <= 0]
        ends.append((values.max(), values.min()))
    highest, lowest = zip(*ends, strict=True)
    return torch.stack(highest), torch.stack(lowest)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "random"])
@pytest.mark.parametrize("limited", [False, True])
def test_an_optimum_over_one_parameter_is_found_with_200_evaluations(
    name: str, limited: bool
) -> None:
    region = LinfBall(1.0).around(torch.full((12, 1), 0.3))
    objective = Wave(1, 12, torch.ones(1) if limited else None, b=0.2)
    highest, lowest = scan(objective, region, 10_001)
    found = searches[name]().run(objective, region, 200, 0, gradient_of(objective))
    missing = (highest - found.value) / (highest - lowest)
    assert bool((missing < 0.01).all())
    assert bool((found.violation <= 0).all())
    assert bool((missing > -1e-3).all())


@pytest.mark.parametrize(
    ("name", "size", "side", "budget"),
    [
        *((name, 2, 201, 200) for name in ("sign", "gradient", "genetic", "grid")),
        ("genetic", 4, 21, 1500),
    ],
)
def test_an_optimum_over_more_parameters_is_found(
    name: str, size: int, side: int, budget: int
) -> None:
    region = LinfBall(0.5).around(torch.full((20, size), 0.3))
    objective = Wave(size, 20)
    highest, lowest = scan(objective, region, side)
    found = searches[name]().run(objective, region, budget, 0, gradient_of(objective))
    assert int((((highest - found.value) / (highest - lowest)) < 0.01).sum()) >= 19


@pytest.mark.parametrize(
    ("size", "side", "budget"), [(1, 10_001, 40), (1, 10_001, 200), (2, 201, 400), (3, 31, 1500)]
)
def test_the_stated_gap_of_a_grid_covers_the_true_one(size: int, side: int, budget: int) -> None:
    count = 20 if size < 3 else 10
    region = LinfBall(0.5).around(torch.full((count, size), 0.3))
    objective = Wave(size, count)
    highest, lowest = scan(objective, region, side)
    found = GridSearch().run(objective, region, budget, 0)
    missing, gap = highest - found.value, found.gap
    assert gap is not None
    assert bool((gap >= 0).all())
    assert int((missing <= gap + 1e-6).sum()) >= count - 1
    # and it says something
    assert float((gap / (highest - lowest)).median()) < (1 if size == 3 else 0.5)
    if budget >= 200:
        assert bool((missing / (highest - lowest) < 0.01).all())


def test_the_gap_of_a_grid_follows_its_formula() -> None:
    # a grid of 5 points and no refinement: slopes of 4, 2, 1 and 1 to the right of the points 0, 1/4, 1/2 and 3/4
    values = torch.tensor([0.0, 1.0, 0.5, 0.75, 0.5])

    class Steps(Linear):
        seen = values, torch.full((5,), -1.0)

        def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
            places = (4 * x[:, 0]).round().long()
            return Outcome(*(each[places] for each in self.seen))

    region = LinfBall(0.5).around(torch.tensor([[0.5]]))
    found = GridSearch(dense=1.0).run(Steps(1, 1), region, 6, 0)
    # slopes: 4, 4, 2, 1, 1, but at least half of 4 times the relative size of the cell, which is 1; reach 1/8
    potential = values + 3 * torch.tensor([4.0, 4.0, 2.0, 2.0, 2.0]) / 8
    assert found.gap.item() == pytest.approx(float(potential.max()) - 1.0)
    # the constraint cannot be met near the first two points: its slopes are at least 1.02 there, so it is above 0.11
    Steps.seen = (
        torch.tensor([5.0, 5.0, 0.5, 0.75, 0.5]),
        torch.tensor([0.5, 0.5, 0.5, -0.01, -0.01]),
    )
    found = GridSearch(dense=1.0).run(Steps(1, 1), region, 6, 0)
    assert found.gap.item() == pytest.approx(0.5 + 3 * 18 / 8 - 0.75)
    assert searches["random"]().run(Steps(1, 1), region, 6, 0).gap is None


def test_a_grid_of_one_point_is_cut_along_each_parameter_before_it_states_a_gap() -> None:
    region = LinfBall(0.5).around(torch.full((3, 5), 0.5))
    objective = Wave(5, 3)
    objective.region = region
    # the centre, the point, and five cuts
    for budget, known in (
        (1, None),
        (2, False),
        (6, False),
        (7, True),
    ):
        gap = GridSearch().run(objective, region, budget, 0).gap
        assert (
            gap is None
            if known is None
            else gap is not None and bool(gap.isfinite().all()) == known
        )
    peak = torch.tensor([0.1, 0.7, 0.3, 0.9, 0.6])

    class Peak(Linear):
        def outcome(self, x: Tensor, problem: Tensor) -> Outcome:
            return Outcome(-(x - peak).abs().sum(1), torch.full((len(x),), -1.0))

    for budget in (30, 70):  # both begin with a single point
        found = GridSearch().run(Peak(5, 3), region, budget, 0)
        assert found.gap is not None
        assert bool((found.gap >= -found.value).all())
    assert bool(((found.inputs - peak).abs() < 0.17).all())  # a third of each range or less is left


def test_starts_for_few_parameters_keep_the_budget() -> None:
    objective, region = Wave(2, 1), LinfBall(0.5).around(torch.full((1, 2), 0.5))
    for name in NAMES:
        for budget in (4, 9, 13, 14):
            objective.queries = torch.zeros_like(objective.queries)
            searches[name]().run(objective, region, budget, 0, gradient_of(objective))
            assert objective.queries.tolist() <= [budget]


def test_a_grid_includes_the_ends_and_leaves_fixed_parameters_alone() -> None:
    lower, upper = torch.tensor([[-1.0, 2.0, 0.0]]), torch.tensor([[3.0, 2.0, 1.0]])
    region = Region(torch.tensor([[0.0, 2.0, 0.0]]), lower, upper)
    objective = Linear(3, 1)
    objective.region = region
    objective.w = torch.tensor([1.0, 5.0, -1.0])
    found = GridSearch().run(objective, region, 30, 0)
    assert torch.equal(found.inputs, torch.tensor([[3.0, 2.0, 0.0]]))
    # where nothing is feasible, the gap says that nothing is known
    objective = Linear(3, 1, a=torch.ones(3), b=-5.0)
    nothing = GridSearch().run(objective, region, 30, 0)
    assert nothing.gap.tolist() == [torch.inf]
    with pytest.raises(
        ArgumentError, match="search: expected another one, since grid is for at most 64 parameters"
    ):
        GridSearch().run(Linear(65, 1), LinfBall(0.1).around(torch.zeros(1, 65)), 30, 0)


def test_auto_is_the_grid_for_at_most_four_parameters() -> None:
    for size, same_as_grid in ((1, True), (4, True), (5, False)):
        region = LinfBall(0.5).around(torch.full((2, size), 0.3))
        auto, grid = (
            kind().run(Wave(size, 2), region, 100, 0) for kind in (AutoSearch, GridSearch)
        )
        assert same(auto, grid) == same_as_grid
        assert (auto.gap is not None) == same_as_grid
    region = LinfBall(0.5).around(torch.full((2, 1), 0.3))
    assert AutoSearch(few=0).run(Wave(1, 2), region, 100, 0).gap is None


# parts


def test_auto_is_block_search_without_a_gradient_or_where_the_model_has_none() -> None:
    def refuse(x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        raise SecondDerivativeError("module: no second derivatives")

    region = box()
    block = BlockSearch().run(Rugged(36, 3), region, 300, 0)
    assert same(AutoSearch().run(Rugged(36, 3), region, 300, 0), block)
    refused, objective = AutoSearch(), Rugged(36, 3)
    found = refused.run(objective, region, 300, 0, refuse)
    assert bool((found.value > objective(region.centre, torch.arange(3)).value).all())
    assert objective.queries.tolist() == [301] * 3  # the budget, and the line above
    assert not found.followed_gradients

    def break_down(*arguments: object) -> Tensor:
        raise ModelError("module: out of memory")

    with pytest.raises(ModelError, match="out of memory"):  # other errors are not hidden
        AutoSearch().run(Rugged(36, 3), region, 300, 0, break_down)


def test_a_gradient_search_becomes_sharper_and_gives_up_restarts() -> None:
    asked: list[tuple[int, float]] = []

    def gradient(x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        asked.append((len(x), sharpness))
        return torch.ones_like(x)

    GradientSearch(restarts=8, halvings=2, smooth=0.5, sharp=6.0).run(
        Linear(36, 1), box(1), 800, 0, gradient
    )
    rows, sharpness = (torch.tensor(values) for values in zip(*asked, strict=True))
    assert rows[0] == 8
    assert rows[-1] == 2
    assert bool((rows.diff() <= 0).all())
    spent = 2.0 * rows.cumsum(0)
    assert 0.2 < float(spent[rows == 8][-1]) / 800 < 0.3
    assert 0.45 < float(spent[rows == 4][-1]) / 800 < 0.55
    assert bool((sharpness.diff() > 0).all())
    assert 0.5 <= float(sharpness[0]) < 0.55
    assert 5.8 < float(sharpness[-1]) <= 6.0


def test_combinations_are_optima_of_linear_programmes() -> None:
    """All changes; and then the better half of those made, the better quarter, and so on: the others are 0."""
    gain, rise = torch.randn(2, 6, 12, generator=torch.Generator().manual_seed(0)).double()
    gain, rise = (
        torch.where(torch.rand(6, 12, generator=torch.Generator().manual_seed(1)) < 0.2, 0.0, gain),
        rise + 0.3,
    )
    violation = torch.tensor([-0.1, -0.3, -1.0, -3.0, -0.5, -2.0]).double()
    amounts, score = _choose_changes(gain, rise, violation, 3)
    slack = _MARGIN * rise.abs().mean(1)
    for row in range(6):
        made, best = amounts[row, 0] > 0, score[row].argsort(descending=True)
        ranked = best[made[best]]
        for part in range(3):
            kept = torch.zeros(12, dtype=torch.bool)
            kept[ranked[: -(-len(ranked) // 2**part)]] = True
            limits = [(0, float(place)) for place in kept] if part else (0, 1)
            room = float(-violation[row] - slack[row])
            exact = linprog(
                -gain[row].numpy(), A_ub=rise[row].numpy()[None], b_ub=[room], bounds=limits
            )
            assert float((amounts[row, part] * gain[row]).sum()) == pytest.approx(
                -exact.fun, abs=1e-9
            )
            assert float((amounts[row, part] * rise[row]).sum()) <= room + 1e-9


def test_a_larger_random_search_contains_the_smaller_one() -> None:
    region = box()
    small, large = (solve("random", Rugged(36, 3), region, budget) for budget in (200, 500))
    assert bool((large.value >= small.value).all())
    steps = int((large.trace.evaluations <= 129).sum())
    assert torch.equal(
        large.trace.value[:, steps - 1], small.trace.value[:, small.trace.evaluations <= 129][:, -1]
    )


def test_genetic_returns_its_population() -> None:
    found = GeneticSearch(population=40).run(Rugged(36, 3), box(), 400, 0)
    assert found.population.shape == (3, 40, 1, 6, 6)


def test_a_pair_of_children_shares_out_the_elements_of_its_parents() -> None:
    region = LinfBall(1.0).around(torch.zeros(2, 300), (-1.0, 1.0))
    parents = (torch.arange(40.0) / 64).repeat(2, 1)[..., None].expand(-1, -1, 300).contiguous()
    children = GeneticSearch(population=40, mutation=0.0)._breed(parents, region, region.streams(0))
    daughters, sons = children[:, :20], children[:, 20:]
    total = daughters + sons  # exact, and the same for all elements of a pair
    assert torch.equal(total, total[..., :1].expand_as(total))
    low, high = (torch.minimum(daughters, sons)[..., 0], torch.maximum(daughters, sons)[..., 0])
    assert (low < high).double().mean() > 0.8
    # of the elements from one of the parents
    share = (daughters == low[..., None]).double().mean(2)[low < high]
    assert ((share - 0.5).abs() < 5 * 0.5 / 300**0.5).all()


@pytest.mark.parametrize("mutation", [0.0, 0.02, 1.0])
def test_mutations_are_half_uniform_over_the_box_and_half_normal(mutation: float) -> None:
    region = LinfBall(1.0).around(torch.zeros(1, 500), (-1.0, 1.0))
    search = GeneticSearch(mutation=mutation, noise=0.2)
    children = search._mutate(torch.zeros(1, 800, 500), region, region.streams(0))
    altered = children[children != 0].double().numpy()
    assert (
        abs(len(altered) / children.numel() - mutation)
        <= 5 * (mutation * (1 - mutation) / children.numel()) ** 0.5
    )
    if mutation:
        found = stats.kstest(
            altered, lambda x: 0.5 * stats.norm.cdf(x, scale=0.2) + 0.5 * (x + 1) / 2
        )
        assert found.pvalue > 1e-3


def test_mutations_use_the_box_of_their_own_problem_and_feature() -> None:
    lower = torch.tensor([[0.0, -2.0, 5.0, 1.0, 0.0], [3.0, 0.0, -1.0, -4.0, 2.0]])
    width = torch.tensor([[1.0, 4.0, 0.5, 2.0, 8.0], [0.25, 3.0, 6.0, 1.0, 0.5]])
    region = dataclasses.replace(
        LinfBall(0.1).around(lower + width / 2, (-10.0, 10.0)), lower=lower, upper=lower + width
    )
    search = GeneticSearch(mutation=1.0, noise=0.05)
    children = search._mutate(
        (lower + width / 2)[:, None].repeat(1, 5000, 1), region, region.streams(0)
    )
    share = ((children - lower[:, None]) / width[:, None]).double().numpy()
    for problem in range(2):
        for feature in range(5):
            found = stats.kstest(
                share[problem, :, feature],
                lambda u: 0.5 * stats.norm.cdf((u - 0.5) / 0.025) + 0.5 * u,
            )
            assert found.pvalue > 1e-4


def test_mutations_of_few_parameters_are_normal_of_many_sizes() -> None:
    region = LinfBall(1.0).around(torch.zeros(1, 2), (-1.0, 1.0))
    children = GeneticSearch(mutation=0.5)._mutate(
        torch.zeros(1, 100_000, 2), region, region.streams(0)
    )
    altered = children[children != 0].double().numpy()
    assert len(altered) / children.numel() == pytest.approx(0.5, abs=0.01)
    # the mean square of 0.1 * 2^(-8 u) times a normal number, u uniform
    expected = 0.1**2 * (1 - 2.0**-16) / (16 * np.log(2.0))
    assert np.mean(altered**2) == pytest.approx(expected, rel=0.05)
    assert stats.kurtosis(altered) > 3, "one size for all would be normal"


@pytest.mark.parametrize("name", [name for name in NAMES if searches[name].white_box])
def test_a_white_box_search_needs_a_gradient(name: str) -> None:
    with pytest.raises(
        ArgumentError, match="gradient: expected an objective that can be differentiated"
    ):
        searches[name]().run(Linear(36, 3), box(), 10, 0)


def test_a_budget_below_one_is_refused() -> None:
    with pytest.raises(ArgumentError, match="budget"):
        RandomSearch().run(Linear(36, 3), box(), 0, 0)


def test_options_are_checked() -> None:
    assert_refused(RandomSearch, block=[0])
    assert_refused(GeneticSearch, population=[1], mutation=[1.5])
    assert_refused(BlockSearch, proposals=[0], merges=[0], start=[0.0])
    assert_refused(AutoSearch, white=[0.0], start=[1.5], few=[-1])
    assert_refused(GradientSearch, halvings=[-1], sharp=[0.0], restarts=[0], step=[0.0])
    assert_refused(SignSearch, restarts=[0], step=[-0.1, 0.0])
    assert_refused(GridSearch, dense=[0.0], cells=[0])


def test_keys_are_exact_and_nan_is_last() -> None:
    one = torch.tensor(1.0)
    big = torch.tensor(1e10)
    value = torch.stack(
        [-big, -one, one, torch.nextafter(one, big), big, torch.nextafter(big, big * 2)]
    )
    assert bool((Outcome(value, torch.zeros(6)).key().diff() > 0).all())
    assert bool((Outcome(torch.zeros(6), value.abs().sort().values).key().diff() <= 0).all())
    mixed = Outcome(
        torch.tensor([-torch.inf, torch.inf, torch.nan]), torch.tensor([0.0, 1e-38, -1.0])
    )
    assert mixed.key().argsort(descending=True).tolist() == [0, 1, 2]


def test_the_first_of_equals_stays() -> None:
    region = box(1, (2,))
    objective = Linear(2, 1)
    objective.w = torch.zeros(2)
    run = SearchRun(objective, region, 2)
    run.query(region.lower[:, None])
    assert torch.equal(run.kept.x[:, 0], region.centre)
