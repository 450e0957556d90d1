"""Counter-examples of linear models, of which the smallest change is known."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import get
from standfast.metrics.probe import Call
from standfast.metrics.reasons.counter_search import FoundFalls, SoughtFalls, find_falls
from standfast.metrics.reasons.places import Speaking, mark_first, measure_sizes
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.neighbourhoods.tables import TableChanges

WEIGHTS = [3.0, -2.0, 1.0, 0.1]
ROW = [0.5, 0.6, 0.9, 0.5]  # weights times values: 1.5, -1.2, 0.9, 0.05


def make_model(bias: float = 9.0) -> standfast.Model:
    layer = nn.Linear(4, 2).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0] * 4, WEIGHTS]))
        layer.bias.copy_(torch.tensor([0.0, bias]))
    return standfast.Model(layer, (0.0, 1.0), device="cpu")


def seek(features: list[int], top: int, speaking: Speaking = "both") -> SoughtFalls:
    signs = torch.tensor(WEIGHTS).sign()
    return SoughtFalls(
        torch.zeros(len(features), dtype=torch.int64),
        torch.tensor(features),
        signs[features],
        top,
        speaking,
    )


def search(
    neighbourhood: Neighbourhood,
    sought: SoughtFalls,
    budget: int = 300,
    bias: float = 9.0,
    row: list[float] = ROW,
) -> FoundFalls:
    model, inputs = make_model(bias), torch.tensor([row]).double()
    with model.session():
        return find_falls(
            Call(model, get("input_x_gradient"), inputs), neighbourhood, sought, budget, seed=0
        )


def test_the_smallest_change_of_one_column_is_found() -> None:
    falls = search(
        TableChanges({"0": 0.4, "1": 0.4}, columns=("0", "1", "2", "3")), seek([0, 1], top=2)
    )
    assert falls.found.tolist() == [True, True]
    # the third contribution, 0.9, has to be reached, by one column alone
    expected = torch.tensor([[0.9 / 3, 0.6, 0.9, 0.5], [0.5, 0.9 / 2, 0.9, 0.5]]).double()
    torch.testing.assert_close(falls.inputs, expected, rtol=0, atol=3e-6)
    assert falls.turned.tolist() == [False, False]


def test_a_reason_that_cannot_fall_is_not_found_to_fall() -> None:
    inputs = torch.tensor([ROW]).double()
    falls = search(LinfBall(0.01), seek([0], top=2))  # 3 * 0.49 stays above 0.91
    assert falls.found.tolist() == [False]
    torch.testing.assert_close(falls.inputs, inputs)


def test_the_answer_stays() -> None:
    """The margin is 1.25 + bias; a fall of the first reason takes 0.6 of it away, and that of the second adds to it."""
    changes = TableChanges({"0": 0.4, "1": 0.4}, columns=("0", "1", "2", "3"))
    falls = search(changes, seek([0, 1], top=2), bias=-0.8)
    assert falls.found.tolist() == [True, True]
    changed = falls.inputs @ torch.tensor(WEIGHTS).double() - 0.8
    assert bool((changed > 0).all())
    only_first = TableChanges({"0": 0.4}, columns=("0", "1", "2", "3"))
    assert search(only_first, seek([0], top=2), bias=-0.8).found.tolist() == [False]
    assert search(only_first, seek([0], top=2), bias=9.0).found.tolist() == [True]


def test_a_reason_may_turn() -> None:
    """One step leads from 0.1 to -0.2: the contribution is still the first, and speaks the other way."""
    model = standfast.Model(make_model().module, (-3.0, 3.0), device="cpu")
    inputs = torch.tensor([[0.1, 0.0, 0.0, 0.0]]).double()
    changes = TableChanges({"0": {"by": 0.3, "step": 0.3}}, columns=("0", "1", "2", "3"))
    with model.session():
        falls = find_falls(
            Call(model, get("input_x_gradient"), inputs), changes, seek([0], top=1), 100, seed=0
        )
    assert falls.found.tolist() == [True]
    assert falls.inputs[0, 0].item() == pytest.approx(-0.2)
    assert falls.turned.tolist() == [True]


@pytest.mark.parametrize("budget", [3, 10, 40, 150])
def test_no_more_is_explained_than_the_budget_allows(budget: int) -> None:
    falls = search(LinfBall(0.3), seek([0, 1], top=2), budget)
    assert int(falls.evaluations.max()) <= budget


def test_steps_and_categories_stay_what_they_are() -> None:
    changes = TableChanges({"0": {"by": 0.4, "step": 0.08}}, columns=("0", "1", "2", "3"))
    falls = search(changes, seek([0], top=2))
    # 0.5 - 3 * 0.08 is the first step at or below 0.3
    assert falls.inputs[0, 0].item() == pytest.approx(0.26)


@pytest.mark.parametrize("speaking", ["both", "for"])
@pytest.mark.parametrize("top", [1, 3, 5])
def test_a_reason_has_fallen_where_the_places_say_so(speaking: Speaking, top: int) -> None:
    generator = torch.Generator().manual_seed(0)
    maps = torch.randn(400, 5, generator=generator).double().mul(3).round()  # with ties and zeros
    maps *= 1 + 1e-8 * torch.randn(400, 5, generator=generator).double()  # ties up to rounding
    features = torch.randint(0, 5, (400,), generator=generator)
    signs = (
        torch.ones(400)
        if speaking == "for"
        else torch.randint(0, 2, (400,), generator=generator) * 2.0 - 1
    )
    sought = SoughtFalls(torch.zeros_like(features), features, signs, top, speaking)
    fallen = sought.measure_excess(maps, torch.arange(400)) >= 0
    expected = ~_are_named(maps, features, signs, top, speaking)
    assert bool((fallen == expected).all())
    assert 0 < int(fallen.sum()) < 400


def _are_named(
    maps: Tensor, features: Tensor, signs: Tensor, top: int, speaking: Speaking
) -> Tensor:
    marked = mark_first(measure_sizes(maps, speaking), top, shares_places=False) * maps.sign()
    return marked.gather(1, features[:, None])[:, 0] == signs
