"""Explainers declare whether the signs of their numbers say what speaks for the answer and what against it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import standfast
from conftest import small_net
from standfast.explainers import from_callable, get
from standfast.explainers import names as list_explainers
from standfast.study.identity import Description

UNSIGNED = {"saliency", "attention_rollout", "fullgrad", "centre", "edges", "rise", "deep_taylor"}
#: what they mark speaks for the answer, and what speaks against it is 0
ONE_SIDED = {"gradcam", "attention_relevance", "extremal_perturbations"}
#: see `tests/explainers/attention`
NEEDS_ATTENTION = {"attention_rollout", "attention_relevance"}
#: of a copy of the input and of random numbers, signs mean nothing that could be declared
UNKNOWN = {"input_copy", "random"}


@pytest.mark.parametrize("name", list_explainers())
def test_every_explainer_of_the_package_declares_its_signs(name: str) -> None:
    explainer = get(f"{name}:saliency" if name == "randomised" else name)
    if name in UNKNOWN:
        assert explainer.has_signs is None
    else:
        assert explainer.has_signs is (name not in UNSIGNED and name != "randomised")


@pytest.mark.parametrize(
    "name", sorted(set(list_explainers()) - UNKNOWN - NEEDS_ATTENTION - {"centre", "randomised"})
)
def test_what_is_declared_is_true_of_the_maps_of_a_small_network(name: str) -> None:
    """Numbers with signs are of both, of an answer whose features speak for and against it."""
    explainer = get("context_cite:penalty=0" if name == "context_cite" else name)
    model = standfast.Model(small_net((3, 8, 8)), (0.0, 1.0), device="cpu")
    inputs = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    maps = explainer(model, inputs)
    has_both = bool((maps < 0).any()) and bool((maps > 0).any())
    assert has_both is (bool(explainer.has_signs) and name not in ONE_SIDED)


@pytest.mark.parametrize("output", ["probability", "logit"])
def test_rise_has_no_signs_as_its_numbers_above_0_may_speak_against_the_answer(output: str) -> None:
    module = nn.Linear(3, 1, bias=True)
    module.load_state_dict(
        {"weight": torch.tensor([[2.0, -2.0, 0.0]]), "bias": torch.tensor([4.0])}
    )
    model = standfast.Model(module, (0.0, 1.0), task="binary", device="cpu")
    explainer = get(f"rise:output={output}")
    assert explainer.has_signs is False
    assert bool((explainer(model, torch.ones(1, 3)) > 0).all())


def test_deep_taylor_has_no_signs_as_all_values_have_that_of_the_logit() -> None:
    module = nn.Linear(3, 2, bias=False)
    module.load_state_dict({"weight": torch.tensor([[2.0, -2.0, 1.0], [-1.0, -2.0, -3.0]])})
    model = standfast.Model(module, (0.0, 1.0), device="cpu")
    explainer = get("deep_taylor")
    assert explainer.has_signs is False
    maps = explainer(model, torch.tensor([[0.5, 0.5, 0.5]]), 1)
    assert bool((maps <= 0).all())


@pytest.mark.parametrize(
    ("name", "has_signs"),
    [
        ("saliency:absolute=False", True),
        ("smoothgrad", True),
        ("smoothgrad:absolute=True", False),
        ("smoothgrad:statistic=variance", False),
        ("smoothgrad:statistic=mean_square", False),
        ("randomised:input_x_gradient", True),
    ],
)
def test_options_decide_where_numbers_lose_their_signs(name: str, has_signs: bool) -> None:
    explainer = get(name)
    assert explainer.has_signs is has_signs
    model = standfast.Model(small_net((3, 8, 8)), (0.0, 1.0), device="cpu")
    inputs = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    maps = explainer(model, inputs)
    assert bool((maps < 0).any()) is has_signs


def test_nothing_is_known_of_a_function_of_the_users() -> None:
    assert from_callable(lambda module, inputs, targets: inputs).has_signs is None


@pytest.mark.parametrize(
    ("method", "options", "has_signs"),
    [
        ("Saliency", {}, False),
        ("Saliency", {"abs": False}, True),
        ("IntegratedGradients", {}, True),
        ("Occlusion", {"sliding_window_shapes": (1,)}, True),
        ("LayerGradCam", {}, True),
        ("LayerActivation", {}, None),
    ],
)
def test_methods_of_captum_declare_theirs(
    method: str, options: dict[str, Any], has_signs: bool | None
) -> None:
    pytest.importorskip("captum")
    assert standfast.explainers.from_captum(method, **options).has_signs is has_signs


def test_a_noise_tunnel_has_the_signs_of_what_it_smooths() -> None:
    attr = pytest.importorskip("captum.attr")
    module = nn.Linear(3, 2)
    tunnel = attr.NoiseTunnel(attr.InputXGradient(module))
    assert standfast.explainers.from_captum(tunnel).has_signs is True
    assert standfast.explainers.from_captum(tunnel, nt_type="vargrad").has_signs is False
    sizes = attr.NoiseTunnel(attr.Saliency(module))
    assert standfast.explainers.from_captum(sizes).has_signs is False


def test_methods_of_shap_have_signs() -> None:
    pytest.importorskip("shap")
    assert standfast.explainers.from_shap("KernelExplainer").has_signs is True


def test_what_is_declared_is_no_part_of_what_a_job_is_known_by() -> None:
    for name in ("saliency", "input_x_gradient", "kernel_shap"):
        assert "signs" not in repr(Description(get(name)).content)
