"""What an event in one corner of a box costs: as much as `docs/estimators.md` says, and its interval holds."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from standfast.algorithms import SubsetSimulation, UnitBox
from standfast.algorithms.rare_events.estimate import RareEventEstimate

FEATURES = 20


def estimate_corner(
    near_the_end: int, probability: float, simulation: SubsetSimulation
) -> RareEventEstimate:
    """The first `near_the_end` of 20 uniform features are all above a limit, with this probability."""
    limit = 1 - probability ** (1 / near_the_end)

    def score(x: Tensor) -> Tensor:
        return x[:, :near_the_end].amin(1) - limit

    return simulation.run(score, UnitBox(FEATURES), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("near_the_end", "probability", "least", "most"),
    [
        (1, 6e-5, 24_000, 26_000),
        (1, 1e-6, 84_000, 89_000),
        (20, 6e-5, 310_000, 345_000),
        (20, 1e-6, 360_000, 405_000),
    ],
)
def test_the_cost_is_the_documented_one(
    near_the_end: int, probability: float, least: int, most: int
) -> None:
    found = estimate_corner(near_the_end, probability, SubsetSimulation())
    assert least <= int(found.model_evaluations) <= most
    assert bool(found.resolved)
    low, high = found.interval()[0].tolist()
    assert low <= math.log(probability) <= high


def test_a_budget_caps_the_cost() -> None:
    found = estimate_corner(20, 1e-6, SubsetSimulation(budget=200_000))
    assert int(found.model_evaluations) <= 200_000
    assert found.interval()[0, 1] >= math.log(1e-6)


def test_one_wide_run_costs_less() -> None:
    found = estimate_corner(20, 1e-6, SubsetSimulation(error=None))
    assert int(found.model_evaluations) < 180_000
    low, high = found.interval()[0].tolist()
    assert low <= math.log(1e-6) <= high
