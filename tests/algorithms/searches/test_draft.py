"""Search with drafts: what is found has a value of the objective itself, drafts are paid for, and else it is auto."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from standfast.algorithms import AutoSearch, DraftSearch
from standfast.algorithms.searches.base import (
    Draft,
    GradientObjective,
    Outcome,
    SearchResult,
    differentiate_outcome,
)
from standfast.neighbourhoods import LinfBall, Region

PROBLEMS, SHAPE = 3, (1, 6, 6)


class Sums:
    """`w . x + shift`, added up one by one, so that no bit depends on the batch; counts the evaluations."""

    def __init__(self, seed: int = 3, shift: float = 0.0) -> None:
        self.w = torch.randn(36, generator=torch.Generator().manual_seed(seed))
        self.shift = shift
        self.evaluations = torch.zeros(PROBLEMS, dtype=torch.int64)

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
        self.evaluations.index_add_(0, problem, torch.ones_like(problem))
        value = (x.flatten(1) * self.w).sum(1) + self.shift
        return Outcome(value, torch.full_like(value, -torch.inf))

    def gradient(
        self, x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0
    ) -> Tensor:
        with torch.enable_grad():
            leaf = x.clone().requires_grad_(True)
            return differentiate_outcome(self(leaf, problem), leaf, feasible)


def make_region() -> Region:
    centres = torch.rand((PROBLEMS, *SHAPE), generator=torch.Generator().manual_seed(5))
    return LinfBall(0.2).around(centres, (0.0, 1.0))


def search(
    objective: Sums,
    rough: Sums,
    budget: int,
    rows: tuple[int, int] = (1, 4),
    follows_gradients: bool = True,
    region: Region | None = None,
    searching: DraftSearch | None = None,
) -> SearchResult:
    gradients: tuple[GradientObjective | None, ...] = (None, None)
    if follows_gradients:
        gradients = (objective.gradient, rough.gradient)
    draft = Draft(rough, gradients[1], *rows, made_before=1)
    around = make_region() if region is None else region
    return (searching or DraftSearch()).run(objective, around, budget, 0, gradients[0], draft)


def find_optimum(objective: Sums, region: Region) -> Tensor:
    """The corner of the box where each term is largest."""
    lower, upper = region.lower.flatten(1), region.upper.flatten(1)
    return torch.where(objective.w > 0, objective.w * upper, objective.w * lower).sum(1)


@pytest.mark.parametrize("follows_gradients", [True, False])
def test_the_optimum_of_a_sum_is_found_by_drafts_and_confirmed(follows_gradients: bool) -> None:
    """Drafts are nearly free here, and 22 evaluations in full are too few for block search of 36 features."""
    objective, region = Sums(), make_region()
    found = search(objective, Sums(shift=7.0), 150, (1, 50), follows_gradients)
    optimum = find_optimum(objective, region)
    start = (region.centre.flatten(1) * objective.w).sum(1)
    assert bool(((optimum - found.value) / (optimum - start) < 0.01).all())
    alone = AutoSearch().run(Sums(), region, 150 - math.ceil((found.drafts + 1) / 50), 0)
    assert bool(((optimum - alone.value) / (optimum - start) > 0.1).all())


@pytest.mark.parametrize("shift", [1000.0, -1000.0, math.nan])
def test_a_value_is_never_that_of_a_draft(shift: float) -> None:
    objective = Sums()
    found = search(objective, Sums(shift=shift), 100)
    assert found.drafts > 0
    problem = torch.arange(PROBLEMS)
    assert torch.equal(found.value, objective(found.inputs, problem).value)
    assert torch.equal(found.trace.value[:, -1], found.value)
    assert bool((found.trace.value <= find_optimum(objective, make_region())[:, None] + 1e-4).all())


def test_a_draft_that_says_the_opposite_does_no_harm_to_the_best_point() -> None:
    """Then the shortlist is worse than the centre, which stays until block search has improved it."""
    objective, opposite, region = Sums(), Sums(), make_region()
    opposite.w = -opposite.w
    found = search(objective, opposite, 100, searching=DraftSearch(share=0.5))
    start = (region.centre.flatten(1) * objective.w).sum(1)
    assert bool((found.value > start).all())


@pytest.mark.parametrize("rows", [(1, 4), (5, 33), (52, 202), (3, 4)])
@pytest.mark.parametrize("budget", [1, 2, 3, 7, 30, 203])
def test_all_evaluations_are_paid_for(budget: int, rows: tuple[int, int]) -> None:
    objective, rough = Sums(), Sums()
    found = search(objective, rough, budget, rows)
    assert bool((rough.evaluations == found.drafts).all())
    # that of the clean input, made by who has the objective
    drafts = found.drafts + 1 if found.drafts else 0
    spent = objective.evaluations + math.ceil(drafts * rows[0] / rows[1])
    assert bool((spent <= budget).all())
    assert bool((spent >= 0.9 * budget - 1).all())
    assert found.trace.evaluations[-1] == spent[0]


@pytest.mark.parametrize("follows_gradients", [True, False])
def test_a_problem_does_not_depend_on_its_batch(follows_gradients: bool) -> None:
    region = make_region()
    whole = search(Sums(), Sums(4), 120, follows_gradients=follows_gradients)
    for rows in ([1], [2, 0]):
        part = search(
            Sums(), Sums(4), 120, follows_gradients=follows_gradients, region=region.select(rows)
        )
        assert torch.equal(part.inputs, whole.inputs[rows])
        assert torch.equal(part.value, whole.value[rows])
        assert torch.equal(part.trace.value, whole.trace.value[rows])


def test_the_best_of_each_part_of_the_search_is_confirmed() -> None:
    """The draft's own optimum is among them, and the best of them by the objective is kept."""

    class Recorded(Sums):
        def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
            calls.append(x.reshape(PROBLEMS, -1, *SHAPE))
            return super().__call__(x, problem)

    sizes, best_by_draft, rough = [], [], Sums(4)
    for confirmed in (1, 8):
        calls: list[Tensor] = []
        found = search(
            Recorded(),
            rough,
            120,
            follows_gradients=False,
            searching=DraftSearch(confirmed=confirmed),
        )
        centre, shortlist, *changes = calls
        sizes.append(shortlist.shape[1])
        best_by_draft.append((shortlist.flatten(2) * rough.w).sum(2).amax(1))
        by_objective = (torch.cat([centre, shortlist], 1).flatten(2) * Sums().w).sum(2).amax(1)
        after = found.trace.evaluations.tolist().index(120 - sum(each.shape[1] for each in changes))
        assert torch.allclose(found.trace.value[:, after], by_objective, atol=1e-5)
    assert sizes == [1, 8]
    assert torch.equal(*best_by_draft)


def test_without_a_draft_and_for_few_parameters_it_is_auto() -> None:
    region = make_region()
    plain = AutoSearch().run(Sums(), region, 80, 0)
    same = DraftSearch().run(Sums(), region, 80, 0)
    assert torch.equal(plain.inputs, same.inputs)
    assert same.drafts == 0
    ignored = AutoSearch().run(Sums(), region, 80, 0, None, Draft(Sums(4), None, 1, 4))
    assert torch.equal(plain.inputs, ignored.inputs)

    class Height(Sums):
        def __call__(self, x: Tensor, problem: Tensor) -> Outcome:
            value = -(x.flatten(1) - 0.4).square().sum(1)
            return Outcome(value, torch.full_like(value, -torch.inf))

    few = LinfBall(0.2).around(torch.full((1, 2), 0.5), (0.0, 1.0))
    draft = Draft(Sums(), None, 1, 4)
    assert torch.equal(
        DraftSearch().run(Height(), few, 30, 0, None, draft).inputs,
        AutoSearch().run(Height(), few, 30, 0).inputs,
    )
