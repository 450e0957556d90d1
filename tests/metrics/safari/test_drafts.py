"""Worst cases by drafts: stored values are those of the full setting, everything is counted, and the result says so."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from standfast.algorithms import AutoSearch, DraftSearch
from standfast.errors import ArgumentError
from standfast.explainers import Explainer, KernelSHAP, get
from standfast.explainers.base import Explanation
from standfast.metrics import WorstCase
from standfast.metrics.safari.worst_case_result import WorstCaseResult
from standfast.model import Model
from standfast.neighbourhoods import L2Ball, LinfBall, Rotation
from standfast.similarity import Pearson
from standfast.testing import SHAPES, small_net

BALL = LinfBall(0.05)
NAMES = [
    "integrated_gradients:steps=8",
    "smoothgrad:samples=8",
    "kernel_shap:samples=40,segments=9",
]


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(small_net(SHAPES["image"]), bounds=(0.0, 1.0), device="cpu")


@pytest.fixture(scope="module")
def x() -> Tensor:
    return torch.rand(3, *SHAPES["image"], generator=torch.Generator().manual_seed(1))


def search(
    model: Model, explainer: str | Explainer, x: Tensor, budget: int = 40, **options: Any
) -> WorstCaseResult:
    metric = WorstCase(
        BALL, search=options.pop("search", "draft:share=0.6"), budget=budget, **options
    )
    return metric(model, explainer, x)


@pytest.mark.parametrize("name", NAMES)
def test_the_value_is_that_of_the_full_setting_bit_for_bit(
    name: str, model: Model, x: Tensor
) -> None:
    """So it would not be if the draft's value, or its map of the clean input, were reported."""
    result, explainer = search(model, name, x), get(name)
    assert result.drafts is not None
    clean, worst = explainer(model, x), explainer(model, result.inputs)
    assert torch.equal(result.origin_maps, clean)
    assert torch.equal(result.maps, worst)
    assert torch.equal(result.value, Pearson()(clean.abs(), worst.abs()))
    rough = explainer.with_dial(explainer.draft_share or 0.25)
    assert rough is not None
    by_draft = Pearson()(rough(model, x).abs(), rough(model, result.inputs).abs())
    assert not torch.equal(by_draft, result.value)
    last = result.trace.similarity[:, -1]
    assert torch.allclose(last.to(result.value), result.value, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_does_not_depend_on_batch_order_and_chunk(
    name: str, model: Model, x: Tensor
) -> None:
    whole = search(model, name, x)
    module = model.module
    for batch_size in (16, 64):
        other = search(Model(module, (0.0, 1.0), batch_size=batch_size), name, x.flip(0))
        assert torch.equal(other.inputs.flip(0), whole.inputs)
        assert torch.equal(other.value.flip(0), whole.value)
    alone = search(model, name, x[1:2])
    assert torch.equal(alone.inputs, whole.inputs[1:2])
    assert torch.equal(alone.model_evaluations, whole.model_evaluations[1:2])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("budget", [3, 4, 5, 23, 40])
def test_the_budget_is_kept(name: str, budget: int, model: Model, x: Tensor) -> None:
    result = search(model, name, x[:2], budget)
    assert (result.model_evaluations <= budget).all()
    assert (result.model_evaluations >= budget - 1).all()  # drafts are rounded up
    assert (result.drafts is None) == (budget < 5)


def test_every_map_is_counted_by_the_rows_that_it_takes(
    model: Model, x: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 40 and 10 coalitions, with the input and the baseline: 42 and 12 rows."""
    maps: dict[int, int] = {}
    attribute_all = KernelSHAP.attribute_all

    def count(self: KernelSHAP, model: Model, x: Tensor, *more: Any) -> Explanation:
        maps[self.samples] = maps.get(self.samples, 0) + len(x)
        return attribute_all(self, model, x, *more)

    monkeypatch.setattr(KernelSHAP, "attribute_all", count)
    result = search(model, NAMES[2], x[:2], 60)
    draws = 60 // 20  # predictions of the share that keeps the class
    assert result.drafts is not None
    assert sum(result.drafts.tolist()) == maps[10]
    spent = [math.ceil(drafts * 12 / 42) for drafts in result.drafts.tolist()]
    assert sum(result.model_evaluations.tolist()) == maps[40] + sum(spent) + 2 * draws


def test_a_linear_model_has_one_worst_case_with_and_without_drafts() -> None:
    """Maps are `w x` with any number of steps. The worst case of two features that count is at known corners."""
    layer = nn.Linear(6, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[4.0, 3.0, 2.0, 1.0, 0.5, 0.1], [0.0] * 6]))
        layer.bias.zero_()
    model = Model(layer, bounds=(0.0, 1.0), device="cpu")
    x = torch.tensor([[0.5, 0.6, 0.4, 0.7, 0.3, 0.8]])
    corners = torch.cartesian_prod(*[torch.tensor([-1.0, 1.0])] * 6) * 0.05 + x
    w = layer.weight[0].detach()
    worst = Pearson()((w * x).expand(64, -1), w * corners).min()
    for search_name in ("draft", "auto:drafts=False"):
        found = search(model, "integrated_gradients", x, 300, search=search_name)
        assert found.value.item() == pytest.approx(worst.item(), abs=2e-4)


def test_the_result_says_with_which_settings(model: Model, x: Tensor) -> None:
    x = x[:1]
    result = search(model, "integrated_gradients:steps=32", x)
    assert result.choices == {"steps": "4 in drafts of the search, 32 in values"}
    assert "drafts" in result.frame().columns
    plain = search(model, "integrated_gradients:steps=16", x, search="block")
    assert plain.choices == {}
    assert "drafts" not in plain.frame().columns


def test_effort_sets_the_dial(model: Model, x: Tensor) -> None:
    result = search(model, "smoothgrad:samples=8", x, search="draft:effort=0.5")
    assert result.choices == {"samples": "4 in drafts of the search, 8 in values"}
    with pytest.raises(ArgumentError):
        WorstCase(BALL, search="draft:effort=1")


@pytest.mark.parametrize("name", ["saliency", "occlusion", "integrated_gradients:steps=2"])
def test_without_a_lower_setting_it_is_auto(name: str, model: Model, x: Tensor) -> None:
    draft, auto = (search(model, name, x[:1], search=how) for how in ("draft", "auto"))
    assert torch.equal(draft.inputs, auto.inputs)
    assert draft.drafts is None


def test_misclassification_needs_no_maps_and_so_no_drafts(model: Model, x: Tensor) -> None:
    result = search(model, NAMES[0], x, event="misclassification")
    assert result.drafts is None
    same = search(model, NAMES[0], x, event="misclassification", search="auto")
    assert torch.equal(result.value, same.value)


@pytest.mark.parametrize("name", ["integrated_gradients", "kernel_shap"])
def test_auto_takes_drafts_where_they_were_shown_to_be_better(name: str) -> None:
    explainer = get(name)
    for budget in (100, 300):
        metric = WorstCase(BALL, budget=budget)
        assert isinstance(metric.choose_search(explainer), DraftSearch)
        assert metric.bind(explainer=explainer) == WorstCase(
            BALL, budget=budget, search=DraftSearch()
        )
    for other in (
        WorstCase(BALL, budget=301),
        WorstCase(BALL, similarity="spearman", budget=100),
        WorstCase(BALL, "changed_class", budget=100),
        WorstCase(BALL, "misclassification", budget=100),
        WorstCase(L2Ball(0.5), budget=100),
        WorstCase(Rotation(10), budget=100),
        WorstCase(BALL, search="auto:drafts=False", budget=100),
        WorstCase(BALL, search=AutoSearch(white=0.5), budget=100),
        WorstCase(BALL, search="block", budget=100),
    ):
        assert other.choose_search(explainer) == other.make_search()
        assert other.bind(explainer=explainer) == other


@pytest.mark.parametrize(
    "name", ["smoothgrad", "lime", "gradient_shap", "saliency", "randomised:integrated_gradients"]
)
def test_auto_stays_where_nothing_was_shown(name: str) -> None:
    assert isinstance(WorstCase(BALL, budget=100).choose_search(get(name)), AutoSearch)
