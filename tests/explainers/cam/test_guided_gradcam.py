"""Guided Grad-CAM equals Captum's, and the product of its two factors."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Literal

import captum.attr as ca
import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import GradCAM, GuidedBackprop, GuidedGradCAM


def images() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(2, 6, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 5, 3), nn.ReLU()),
        *(nn.Flatten(), nn.Linear(45, 12), nn.ReLU(), nn.Linear(12, 4)),
    )


def series() -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv1d(2, 6, 3), nn.ReLU(), nn.Conv1d(6, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(60, 4)
    )


KINDS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "images": (images, (2, 10, 10)),
    "series": (series, (2, 16)),
}


def setting(kind: str) -> tuple[standfast.Model, Tensor]:
    build, shape = KINDS[kind]
    x = torch.rand(9, *shape, generator=torch.Generator().manual_seed(3))
    return standfast.Model(build().eval(), (0.0, 1.0), device="cpu"), x


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_equals_captum(kind: str, interpolation: Literal["linear", "nearest"]) -> None:
    model, x = setting(kind)
    t = torch.arange(9) % 4
    mode = {"nearest": "nearest", "linear": "bilinear" if kind == "images" else "linear"}[
        interpolation
    ]
    for name in {"images": ("0", "1", "3"), "series": ("0", "2")}[kind]:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            method = ca.GuidedGradCam(model.module, model.module.get_submodule(name))
            theirs = method.attribute(
                x.clone().requires_grad_(True), target=t, interpolate_mode=mode
            ).detach()
        assert float(theirs.abs().max()) > 0
        ours = GuidedGradCAM(name, interpolation=interpolation)(model, x, t)
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6 * float(theirs.abs().max()))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("interpolation", ["linear", "nearest"])
def test_is_the_product_of_its_factors(
    kind: str, interpolation: Literal["linear", "nearest"]
) -> None:
    model, x = setting(kind)
    for layer in (None, "0"):
        product = GuidedBackprop()(model, x) * GradCAM(layer, interpolation=interpolation)(model, x)
        assert float(product.abs().max()) > 0
        assert torch.equal(GuidedGradCAM(layer, interpolation=interpolation)(model, x), product)


def test_errors() -> None:
    model, x = setting("images")
    with pytest.raises(standfast.ArgumentError, match="layer: expected one of '0', '1'"):
        GuidedGradCAM("conv")(model, x)
    with pytest.raises(standfast.ArgumentError, match="layer: expected a layer with outputs"):
        GuidedGradCAM("6")(model, x)
    twice = nn.Conv2d(2, 2, 3, padding=1)
    module = nn.Sequential(twice, nn.ReLU(), twice, nn.Flatten(), nn.Linear(200, 3))
    with pytest.raises(
        standfast.ModelError, match="guided_gradcam: expected layer '0' to run once a forward pass"
    ):
        GuidedGradCAM("0")(standfast.Model(module, (0.0, 1.0), device="cpu"), x)
