"""Changes of light and colour: against scikit-image, colorsys and numpy."""

from __future__ import annotations

import colorsys

import numpy as np
import pytest
import torch
from skimage import exposure
from torch import Tensor

from standfast.neighbourhoods import Brightness, Contrast, Gamma, Hue, Saturation, Transformation

#: bounds of each channel, as for normalised inputs
CHANNELS = (
    torch.tensor([-2.1, -2.0, -1.8]).reshape(3, 1, 1),
    torch.tensor([2.2, 2.4, 2.6]).reshape(3, 1, 1),
)


def perturb(kind: Transformation, shares: Tensor, value: float) -> Tensor:
    """Images `(M, 3, H, W)` of shares of the range, perturbed in the units of `CHANNELS` and taken back."""
    low, high = (bound.to(shares) for bound in CHANNELS)
    images = (low + (high - low) * shares).clamp(low, high)
    points = torch.full((len(images), 1), value, dtype=images.dtype)
    perturbed = kind.around(images, (low, high)).perturb(points, torch.arange(len(images)))
    return (perturbed - low) / (high - low)


@pytest.fixture
def shares() -> Tensor:
    made = torch.rand(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    # greys
    made[0, :, 0, :3] = torch.tensor([[0.0], [0.5], [1.0]], dtype=torch.float64)[None, :, 0]
    made[0, :, 1, 0] = torch.tensor([0.7, 0.7, 0.2], dtype=torch.float64)  # two largest
    made[0, :, 1, 1] = torch.tensor([0.1, 0.9, 0.1], dtype=torch.float64)  # two smallest
    return made


@pytest.mark.parametrize("shift", [-0.4, 0.3])
def test_brightness(shares: Tensor, shift: float) -> None:
    expected = np.clip(shares.numpy() + shift, 0, 1)
    assert np.abs(perturb(Brightness(0.5), shares, shift).numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("factor", [0.3, 1.8])
def test_contrast(shares: Tensor, factor: float) -> None:
    mean = shares.numpy().mean(axis=(2, 3), keepdims=True)
    expected = np.clip((shares.numpy() - mean) * factor + mean, 0, 1)
    assert np.abs(perturb(Contrast((0, 2)), shares, factor).numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("gamma", [0.4, 2.2])
def test_gamma_is_skimages(shares: Tensor, gamma: float) -> None:
    expected = exposure.adjust_gamma(shares.numpy(), gamma)
    assert np.abs(perturb(Gamma((0.2, 3)), shares, gamma).numpy() - expected).max() < 1e-6


def convert(shares: Tensor, change: object) -> np.ndarray:
    """Every pixel through colorsys: `change` maps hue, saturation and value to new ones."""
    found = np.empty(shares.shape)
    for row, i, j in np.ndindex(len(shares), *shares.shape[2:]):
        hue, saturation, value = colorsys.rgb_to_hsv(*shares[row, :, i, j].tolist())
        found[row, :, i, j] = colorsys.hsv_to_rgb(*change(hue, saturation, value))  # type: ignore[operator]
    return found


@pytest.mark.parametrize("degrees", [-170.0, -20.0, 35.0, 120.0, 359.0])
def test_hue_is_colorsys(shares: Tensor, degrees: float) -> None:
    expected = convert(shares, lambda h, s, v: ((h + degrees / 360) % 1, s, v))
    assert np.abs(perturb(Hue(360), shares, degrees).numpy() - expected).max() < 1e-6


@pytest.mark.parametrize("factor", [0.0, 0.6, 1.7, 30.0])
def test_saturation_is_colorsys(shares: Tensor, factor: float) -> None:
    expected = convert(shares, lambda h, s, v: (h, min(s * factor, 1.0), v))
    assert np.abs(perturb(Saturation((0, 50)), shares, factor).numpy() - expected).max() < 1e-6


def test_gradients_of_black_and_grey_pixels_are_finite() -> None:
    """As parts of a composition need them."""
    for kind in (Gamma((0.2, 1)), Hue(20), Saturation(0.5), Contrast(0.5)):
        images = (
            torch.tensor([0.0, 0.0, 0.0, 0.5, 1.0, 1.0])
            .reshape(1, 1, 2, 3)
            .expand(1, 3, 2, 3)
            .clone()
        )
        images.requires_grad_()
        points = torch.tensor([[0.4]], requires_grad=True)
        bounds = torch.tensor(0.0), torch.tensor(1.0)
        kind.transform(images, points, bounds).square().sum().backward()  # type: ignore[no-untyped-call]
        assert images.grad is not None
        assert points.grad is not None
        assert torch.isfinite(images.grad).all()
        assert torch.isfinite(points.grad).all()
