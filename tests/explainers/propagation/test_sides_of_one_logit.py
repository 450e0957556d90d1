"""What is explained of side 0 of one logit z is -z, and of a mean over pixels the part of each: the sign of maps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import get as get_explainer
from standfast.study.identity import Description
from standfast.tasks import Binary, Classification, Embedding, Segmentation

RELEVANCE = [
    "lrp",
    "lrp_composite",
    "lrp_epsilon_plus",
    "lrp_epsilon_plus_flat",
    "lrp_epsilon_alpha2_beta1",
    "lrp_epsilon_gamma_box",
    "deep_taylor",
    "attn_lrp",
]
OTHERS = [
    "saliency",
    "input_x_gradient",
    "integrated_gradients:steps=8",
    "smoothgrad",
    "gradient_shap",
    "guided_backprop",
    "deconvolution",
    "deeplift",
    "deep_shap",
    "gradcam",
    "guided_gradcam",
    "fullgrad",
]


class Opposites(nn.Module):
    """One logit z as the logits -z and z of two classes."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        z = self.module(x)
        return torch.cat([-1.0 * z, z], 1)


def make_network() -> nn.Sequential:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 1)
    ).double()
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.2)
    network[-1].bias.data.zero_()
    return network


def explain(name: str, module: nn.Module, task: Any, x: Tensor) -> Tensor:
    return get_explainer(name)(
        standfast.Model(module, bounds=(-1.0, 1.0), task=task, device="cpu"), x
    )


@pytest.fixture(scope="module")
def images() -> Tensor:
    """Images of both sides."""
    x = (
        torch.rand(8, 1, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64) * 2
        - 1
    )
    sides = make_network()(x)[:, 0] > 0
    assert set(sides.tolist()) == {True, False}
    return x


@pytest.mark.parametrize("name", [*RELEVANCE, *OTHERS])
@pytest.mark.filterwarnings("ignore::standfast.explainers.completeness.CompletenessWarning")
def test_a_side_has_the_map_of_a_class_with_its_logit(name: str, images: Tensor) -> None:
    """Of two classes with the logits -z and z the predicted one has the score of the side."""
    network = make_network()
    one, two = (
        explain(name, network, Binary(), images),
        explain(name, Opposites(network), Classification(), images),
    )
    assert float(two.abs().max()) > 0
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", RELEVANCE)
def test_the_relevance_of_side_0_of_a_linear_module_adds_up_to_its_score(name: str) -> None:
    weights = torch.tensor([[1.0, 0.5, 0.25]])
    layer = nn.Linear(3, 1, bias=False)
    layer.weight.data = -weights
    x = torch.tensor([[0.2, 0.9, 0.4], [0.5, 0.3, 0.1]])
    model = standfast.Model(nn.Sequential(layer), bounds=(0.0, 1.0), task="binary", device="cpu")
    assert model.predict(x).tolist() == [0, 0]
    maps = get_explainer(name)(model, x)
    torch.testing.assert_close(maps.sum(1), (x @ weights.T)[:, 0], rtol=1e-4, atol=1e-5)
    # which divide it in another way at the input
    if name not in (
        "lrp_epsilon_plus_flat",
        "deep_taylor",
    ):
        torch.testing.assert_close(maps, x * weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["lrp", "attn_lrp", "input_x_gradient"])
def test_each_pixel_of_a_segmentation_has_its_part_of_the_mean(name: str) -> None:
    """A 1 x 1 convolution: the map of a mask of m pixels is x_p w / m within it, and 0 elsewhere."""
    layer = nn.Conv2d(1, 2, 1, bias=False)
    layer.weight.data = torch.tensor([[[[0.0]]], [[[2.0]]]])
    x = torch.tensor([[[[0.1, 0.9], [0.4, -0.7]]]])
    task = Segmentation()
    model = standfast.Model(nn.Sequential(layer), bounds=(-1.0, 1.0), task=task, device="cpu")
    mask = (x > 0).float()
    torch.testing.assert_close(get_explainer(name)(model, x, 1), 2 * x * mask / mask.sum())


@pytest.mark.parametrize("name", ["lrp", "input_x_gradient"])
def test_relevance_of_a_linear_embedding_is_gradient_times_input(name: str) -> None:
    layer = nn.Linear(3, 2, bias=False)
    layer.weight.data = torch.tensor([[1.0, -0.5, 0.25], [0.5, 1.0, -1.0]])
    model = standfast.Model(
        nn.Sequential(layer), bounds=(-1.0, 1.0), task=Embedding(least=0.5), device="cpu"
    )
    x = torch.tensor([[0.2, 0.9, 0.4]])
    vector = layer(x).detach()
    expected = x * ((vector / vector.norm()) @ layer.weight.detach())
    torch.testing.assert_close(get_explainer(name)(model, x), expected)
    torch.testing.assert_close(expected.sum(), vector.norm())


def test_logits_that_are_masked_take_no_part() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            logits = self.layer(x)
            return torch.cat([logits, torch.full_like(logits[:, :1], -torch.inf)], 1)

    torch.manual_seed(0)
    masked, x = Masked(), torch.rand(2, 3)
    targets, explainer = torch.zeros(2, dtype=torch.int64), get_explainer("lrp")
    models = [
        standfast.Model(module, (0.0, 1.0), device="cpu") for module in (masked, masked.layer)
    ]
    # a call refuses such logits
    maps, bare = (explainer.attribute(model, x, targets)[0] for model in models)
    torch.testing.assert_close(maps, bare)


def test_only_explainers_by_relevance_have_another_version() -> None:
    """Their numbers changed for tasks other than classes; those of others did not, nor their identities."""
    versions = {name: type(get_explainer(name)).version for name in [*RELEVANCE, *OTHERS]}
    assert {versions[name] for name in RELEVANCE[1:-2]} == {3}
    assert (versions["lrp"], versions["deep_taylor"]) == (2, 4)
    assert {versions[name] for name in ["attn_lrp", "guided_backprop", "input_x_gradient"]} == {1}
    assert Description(get_explainer("input_x_gradient")).digest == "a6dcc3410869b63c"
