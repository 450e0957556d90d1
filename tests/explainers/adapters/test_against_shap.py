"""The SHAP family equals the package `shap`, if it is installed (extra `peers`)."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import standfast
from standfast.explainers import Background, DeepSHAP, GradientSHAP, KernelSHAP, ShapleySampling

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    shap = pytest.importorskip("shap")


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    convolutions = (nn.Conv2d(1, 6, 3), nn.ReLU(), nn.Conv2d(6, 8, 3, stride=2), nn.ReLU(), nn.Flatten())
    return nn.Sequential(*convolutions, nn.Linear(8 * 5 * 5, 16), nn.ReLU(), nn.Linear(16, 4)).eval()


def theirs(explainer: Any, x: Tensor, **options: Any) -> Tensor:
    """The package's attributions for class 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.as_tensor(explainer.shap_values(x, **options)[..., 1]).float()


def test_deep_shap(net: nn.Module) -> None:
    x, references = rand(3, 1, 14, 14), rand(20, 1, 14, 14, seed=1)
    ours = DeepSHAP(background=Background(references))(standfast.Model(net, (0.0, 1.0), device="cpu"), x, 1)
    expected = theirs(shap.DeepExplainer(net, references), x, check_additivity=False)
    torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-6)


def test_gradient_shap_within_sampling_error(net: nn.Module) -> None:
    x, references = rand(2, 1, 14, 14), rand(20, 1, 14, 14, seed=1)
    model = standfast.Model(net, (0.0, 1.0), device="cpu")
    ours = GradientSHAP(background=Background(references), samples=1000)(model, x, 1)
    one, other = (theirs(shap.GradientExplainer(net, references), x, nsamples=2000, rseed=seed) for seed in (0, 1))
    spread = float((one - other).norm())
    assert spread < 0.05 * float(one.norm())
    assert (
        float((ours - one).norm()) < 1.5 * spread
    )  # ours has hardly any sampling error; without any, the value would be about 0.7


def test_kernel_shap_and_shapley_sampling() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, 3)).eval()
    x, empty = rand(1, 6), torch.zeros(1, 6)
    explainer = shap.KernelExplainer(lambda z: net(torch.as_tensor(z).float()).detach().numpy(), empty.numpy())
    expected = theirs(explainer, x.numpy(), nsamples=500, silent=True).reshape(1, 6)
    model = standfast.Model(net, (0.0, 1.0), device="cpu")
    torch.testing.assert_close(KernelSHAP(samples=62)(model, x, 1), expected, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(ShapleySampling(permutations=720)(model, x, 1), expected, rtol=1e-3, atol=1e-5)
