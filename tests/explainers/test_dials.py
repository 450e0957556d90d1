"""Dials of explainers: rougher maps for less work, with the same random numbers, and declarations that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import pytest
import torch
from refusals import assert_refused
from torch import Tensor, nn

import standfast
from standfast.errors import ArgumentError
from standfast.explainers import KernelSHAP, SmoothGrad, explainers, get
from standfast.explainers.base import Explainer, Explanation
from standfast.explainers.gradients.input_gradients import draw_shared_noise
from standfast.records import Count, CountFromZero, Range

DIALS = {
    "context_cite": "samples",
    "gradient_shap": "samples",
    "integrated_gradients": "steps",
    "kernel_shap": "samples",
    "lime": "samples",
    "rise": "samples",
    "shapley_sampling": "permutations",
    "smoothgrad": "samples",
}


def test_these_explainers_have_a_dial() -> None:
    ours = [
        name for name in explainers.names() if explainers[name].__module__.startswith("standfast.")
    ]
    assert {name: explainers[name].dial for name in ours if explainers[name].dial} == DIALS


@pytest.mark.parametrize("name", DIALS)
def test_a_lower_setting_takes_less_and_changes_nothing_else(name: str) -> None:
    explainer, x = get(name), torch.rand(2, 1, 28, 28)
    rough = explainer.with_dial(0.25)
    assert rough is not None
    setting, lower = getattr(explainer, explainer.dial), getattr(rough, explainer.dial)
    assert lower == round(0.25 * setting)
    assert rough.count_rows_of(x) < 0.35 * explainer.count_rows_of(x)
    assert get(name, **{explainer.dial: lower}) == rough


@pytest.mark.parametrize(
    "name", sorted(set(DIALS) - {"context_cite", "lime", "rise", "smoothgrad"})
)
def test_rough_maps_of_a_linear_model_are_those_of_the_full_setting(name: str) -> None:
    """`w (x - b)` with any number of steps, paths or orders, and with enough coalitions for as many features."""
    layer = nn.Linear(6, 2).double()
    model = standfast.Model(layer, bounds=(0.0, 1.0), device="cpu")
    x = torch.rand(3, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    explainer = get(name, samples=40) if name == "kernel_shap" else get(name)
    rough = explainer.with_dial(0.4)
    assert rough is not None
    expected = x * layer.weight[0].detach()
    for each in (explainer, rough):
        assert torch.allclose(each(model, x, 0), expected, atol=1e-9)


def test_rough_maps_meet_the_same_random_numbers() -> None:
    for shape in ((1, 28, 28), (16,)):
        noise, first = (
            draw_shared_noise(7, (count, *shape), torch.float32, torch.device("cpu"))
            for count in (16, 4)
        )
        assert torch.equal(noise[:4], first)
    model = standfast.Model(
        nn.Sequential(nn.Flatten(), nn.Linear(16, 3), nn.Tanh()), bounds=(0.0, 1.0), device="cpu"
    )
    x = torch.rand(2, 1, 4, 4)
    rough = SmoothGrad(samples=4, seed=7).with_dial(0.5)
    assert rough == SmoothGrad(samples=2, seed=7)
    assert rough is not None
    assert not torch.equal(rough(model, x, 0), SmoothGrad(samples=2, seed=8)(model, x, 0))


def test_coalitions_that_all_fit_the_lower_setting_are_those_of_the_full_one() -> None:
    rough = KernelSHAP().with_dial(0.25)
    assert rough is not None
    few, many = (
        explainer.draw_coalitions(5, torch.device("cpu")) for explainer in (rough, KernelSHAP())
    )
    assert len(few) == len(many) == 2**5
    assert torch.equal(few.masks, many.masks)
    assert torch.equal(few.fit, many.fit)


def test_a_setting_that_saves_nothing_has_no_rough_maps() -> None:
    assert get("saliency").with_dial(0.5) is None
    assert get("integrated_gradients", steps=2).with_dial(0.5) is None
    rough = get("integrated_gradients", steps=3).with_dial(0.01)
    assert rough is not None
    assert rough.rows_per_input == 3
    assert get("smoothgrad", samples=3, statistic="variance").with_dial(0.1) == get(
        "smoothgrad", samples=2, statistic="variance"
    )
    assert_refused(get("integrated_gradients").with_dial, share=[0, 1, -0.5, float("nan"), "half"])


@dataclass(frozen=True)
class Blurred(Explainer):
    """An explainer of a plug-in, with options of several kinds."""

    name: ClassVar[str] = "blurred"
    passes: Count = 8
    most: Annotated[int, Range(least=1, most=9)] = 5
    width: float = 1.0
    loops: int = 8
    extra: CountFromZero = 0
    fast: bool = True
    limit: Count | None = None

    def attribute(
        self, model: Any, x: Tensor, targets: Tensor | None, *, create_graph: bool = False
    ) -> Explanation:
        raise NotImplementedError


def declare(**declared: Any) -> type[Blurred]:
    kind: type[Blurred] = dataclass(frozen=True)(type("Plugin", (Blurred,), declared))
    return kind


@pytest.mark.parametrize("dial", ["passes", "most"])
def test_a_plugin_may_have_a_dial(dial: str) -> None:
    rough = declare(dial=dial, draft_share=0.4)().with_dial(0.4)
    assert rough is not None
    assert getattr(rough, dial) == {"passes": 3, "most": 2}[dial]


@pytest.mark.parametrize("dial", ["paces", "width", "loops", "extra", "fast", "limit"])
def test_a_dial_that_is_no_whole_number_from_1_on_is_refused(dial: str) -> None:
    kind = declare(dial=dial)
    with pytest.raises(ArgumentError) as caught:
        kind()
    assert caught.value.argument == "Plugin.dial"
    assert repr(dial) in str(caught.value)


@pytest.mark.parametrize(
    "declared",
    [
        {"dial": 3},
        {"dial": ("passes",)},
        {"draft_share": 0.25},
        {"dial": "passes", "draft_share": 1.0},
    ]
    + [{"dial": "passes", "draft_share": share} for share in (-0.1, "half", float("nan"))],
)
def test_declarations_that_cannot_be_are_refused_with_the_class(declared: dict[str, Any]) -> None:
    with pytest.raises(ArgumentError) as caught:
        declare(**declared)
    assert caught.value.argument in ("Plugin.dial", "Plugin.draft_share")
