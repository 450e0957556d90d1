"""The share of a neighbourhood that keeps the class, beside the numbers of every metric over neighbourhoods."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import scipy.stats
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.metrics import (
    AttributionAttack,
    LocalLipschitz,
    MaxSensitivity,
    MisinterpretationProbability,
    WorstCase,
)
from standfast.metrics.kept_class import plan_draws
from standfast.neighbourhoods import Brightness

BALL = standfast.LinfBall(0.2)
#: class 0 where the mean is below 0.5, of inputs whose first value is far from it
INPUTS = torch.tensor([[0.2, 0.3, 0.4, 0.1], [0.4, 0.5, 0.55, 0.5], [0.45, 0.5, 0.5, 0.5]])[:, None]


class Threshold(nn.Module):
    """Class 1 where the mean of the values is above 0.5, with one map for either class."""

    def forward(self, x: Tensor) -> Tensor:
        over = x.flatten(1).mean(1) - 0.5
        return torch.stack([torch.zeros_like(over), 40 * over], dim=1)


@pytest.fixture(scope="module")
def threshold() -> standfast.Model:
    return standfast.Model(Threshold(), bounds=(0.0, 1.0))


def jump(module: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """A map that depends on the class predicted: its own values, or reversed and ten times as large."""
    over = inputs.flatten(1).mean(1) > 0.5
    shape = (-1, *[1] * (inputs.ndim - 1))
    return torch.where(over.view(shape), 10 * inputs.flip(-1), inputs)


METRICS: list[Any] = [
    WorstCase(BALL, search="random", budget=2100),
    MisinterpretationProbability(BALL, threshold=0.9, method="monte_carlo", samples=400),
    MisinterpretationProbability(
        BALL, threshold=0.9, particles=100, first=4.0, moves=1, error=None
    ),
    MaxSensitivity(BALL, samples=200),
    LocalLipschitz(BALL, samples=200),
]


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_the_share_is_that_of_the_neighbourhood(metric: Any, threshold: standfast.Model) -> None:
    result = metric(threshold, standfast.explainers.from_callable(jump), INPUTS)
    drawn = BALL.around(INPUTS, (0.0, 1.0)).lower[:, None] + 0.4 * torch.rand(
        3, 40_000, 1, 4, generator=torch.Generator().manual_seed(1)
    )
    exact = (drawn.flatten(2).mean(2) < 0.5).double().mean(1)
    assert exact[0] == 1
    assert 0.3 < exact[1] < 0.7 < 1
    assert bool(
        ((result.class_kept - exact).abs() <= 4 * (exact * (1 - exact) / 100).sqrt() + 1e-9).all()
    )
    assert bool((result.class_kept_low < result.class_kept_high).all())
    frame = result.frame()
    assert frame["class_kept"].to_list() == result.class_kept.tolist()
    assert {"class_kept_low", "class_kept_high"} <= set(frame.columns)
    # the interval is that of as many draws
    draws = {"worst_case": 100, "misinterpretation_probability": 400}.get(metric.name, 200)
    draws = 100 if metric.options().get("search") == "random" else draws
    for share, low, high in zip(
        result.class_kept, result.class_kept_low, result.class_kept_high, strict=True
    ):
        known = scipy.stats.binomtest(round(float(share) * draws), draws).proportion_ci(
            method="exact"
        )
        assert (low.item(), high.item()) == pytest.approx((known.low, known.high), abs=1e-9)


def test_the_share_is_that_of_the_first_population_alone(threshold: standfast.Model) -> None:
    # later populations all lie in the event, where the class has changed
    own = MisinterpretationProbability(
        BALL, event="misclassification", particles=50, first=4.0, moves=2, error=None
    )
    result = own(threshold, standfast.explainers.from_callable(jump), INPUTS)
    plain = MisinterpretationProbability(
        BALL, event="misclassification", method="monte_carlo", samples=300
    )
    counted = plain(threshold, standfast.explainers.from_callable(jump), INPUTS)
    assert result.class_kept is not None
    assert counted.class_kept is not None
    assert torch.allclose(result.class_kept, counted.class_kept, atol=0.15)
    # the same samples
    assert torch.allclose(counted.class_kept[1:], 1 - counted.log_probability[1:].exp())
    assert counted.class_kept[0] == 1
    # a budget makes the first population smaller: here by as much as first=1 does
    inputs, shares = INPUTS[2:] - 0.075, []
    for options in ({"first": 1.0}, {"first": 4.0, "budget": 800}):
        metric = MisinterpretationProbability(
            BALL, "misclassification", particles=100, moves=2, error=None, **options
        )
        shares.append(
            metric(threshold, standfast.explainers.from_callable(jump), inputs).class_kept
        )
    assert shares[0] == shares[1]


def test_the_share_counts_in_the_budget_and_belongs_to_its_sample(
    threshold: standfast.Model,
) -> None:
    assert [plan_draws(budget) for budget in (10, 40, 500, 2000, 100_000)] == [0, 2, 25, 100, 100]
    for evaluations in (1, 200, 5000):
        budget = WorstCase.plan_budget(evaluations)
        assert budget - WorstCase.own_evaluations - plan_draws(budget) == evaluations
    explainer = standfast.explainers.from_callable(jump)
    metric = WorstCase(Brightness(0.2), search="random", budget=400)
    together = metric(threshold, explainer, INPUTS, generator=torch.Generator().manual_seed(3))
    assert together.model_evaluations.tolist() == [400] * 3
    alone = metric(threshold, explainer, INPUTS[1:2], generator=torch.Generator().manual_seed(3))
    assert alone.class_kept[0] == together.class_kept[1]
    small = WorstCase(BALL, search="random", budget=10)(threshold, explainer, INPUTS)
    assert bool(small.class_kept.isnan().all())  # too small for a share
    skipped = metric(threshold, explainer, INPUTS, torch.tensor([0, 1, 0]))
    assert skipped.class_kept.isnan().tolist() == [False, True, False]


def test_draws_from_a_ball_in_many_features_are_few() -> None:
    probe = type("P", (), {"region": standfast.L2Ball(1.0).around(torch.zeros(1, 3, 100, 100))})()
    assert plan_draws(5000, probe) == (1 << 17) // 30_000
    probe.region = BALL.around(torch.zeros(1, 3, 100, 100))
    assert plan_draws(5000, probe) == 100


@pytest.mark.parametrize("kind", [MaxSensitivity, LocalLipschitz])
def test_sensitivities_of_copies_that_keep_the_class(kind: Any, threshold: standfast.Model) -> None:
    explainer = standfast.explainers.from_callable(jump)
    every, kept = (
        kind(BALL, samples=60, same_class=same)(
            threshold, explainer, INPUTS, generator=torch.Generator().manual_seed(0)
        )
        for same in (False, True)
    )
    assert every.value[0] == kept.value[0]  # all copies keep the class
    assert bool((kept.value[1:] < every.value[1:] / 5).all())
    # where a copy keeps the class, the map moves as the input does
    assert bool((kept.value <= (0.4 + 1e-6 if kind is MaxSensitivity else 1 + 1e-4)).all())
    assert torch.equal(every.class_kept, kept.class_kept)
    bright = kind(Brightness((0.19, 0.2)), samples=5, same_class=True)(threshold, explainer, INPUTS)
    assert bright.value.isnan().tolist() == [False, True, True]  # no copy of the others is left
    assert bright.class_kept.tolist() == [1.0, 0.0, 0.0]
    assert bright.frame()["value"].is_null().to_list() == [False, True, True]
    assert_refused(partial(kind, BALL), same_class=[1])


def test_attacks_on_attributions_have_the_share(
    lenet: standfast.Model, digits: standfast.data.Dataset
) -> None:
    attack = AttributionAttack(BALL, steps=10, restarts=2)
    result = attack(lenet, "saliency", digits[:2].inputs)
    assert result.class_kept is not None
    assert bool((result.class_kept > 0).all())
    assert result.model_evaluations.tolist() == [attack.cost().evaluations] * 2
    blind = AttributionAttack(BALL, "random_sign")(lenet, "saliency", digits[:2].inputs)
    assert bool(blind.class_kept.isnan().all())
