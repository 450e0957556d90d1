"""Blurs: against scipy's filters with the same kernels and the same rule at the edge."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor

from standfast.neighbourhoods import DefocusBlur, GaussianBlur, MotionBlur, Transformation


@pytest.fixture
def images() -> Tensor:
    return torch.rand(2, 2, 9, 12, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def perturb(kind: Transformation, images: Tensor, *parameters: float) -> np.ndarray:
    points = torch.tensor([parameters], dtype=images.dtype).expand(len(images), -1)
    return kind.around(images, (0.0, 1.0)).perturb(points, torch.arange(len(images))).numpy()


@pytest.mark.parametrize("sigma", [0.3, 1.0, 2.7])
def test_gaussian_blur_is_scipys(images: Tensor, sigma: float) -> None:
    expected = ndimage.gaussian_filter(
        images.numpy(), (0, 0, sigma, sigma), mode="nearest", truncate=4.0
    )
    assert np.abs(perturb(GaussianBlur((sigma, sigma)), images, sigma) - expected).max() < 1e-12
    # with a wider range the weights end later, where they are below 4e-4 of the largest
    assert np.abs(perturb(GaussianBlur(2 * sigma), images, sigma) - expected).max() < 1e-3


@pytest.mark.parametrize(("length", "angle"), [(3.0, 0.0), (4.6, 30.0), (2.2, -75.0), (5.0, 90.0)])
def test_motion_blur_is_the_mean_of_shifted_images(
    images: Tensor, length: float, angle: float
) -> None:
    """Of scipy's shifts by whole and broken pixels; `ndimage.shift` moves content by rows down and columns right."""
    points = 2 * 5 + 1
    expected = np.zeros(images.shape)
    for k in range(points):
        step = ((k + 0.5) / points - 0.5) * length
        shift = (0, 0, -step * math.sin(math.radians(angle)), step * math.cos(math.radians(angle)))
        expected += ndimage.shift(images.numpy(), shift, order=1, mode="nearest") / points
    assert np.abs(perturb(MotionBlur(5), images, length, angle) - expected).max() < 1e-12


@pytest.mark.parametrize("radius", [0.7, 1.5, 3.0])
def test_defocus_blur_is_a_convolution_with_a_disk(images: Tensor, radius: float) -> None:
    kernel = np.zeros((9, 9))
    for i in range(-4, 5):
        for j in range(-4, 5):
            kernel[i + 4, j + 4] = min(max(radius + 0.5 - math.sqrt(i * i + j * j), 0.0), 1.0)
    kernel /= kernel.sum()
    expected = [
        [ndimage.convolve(channel, kernel, mode="nearest") for channel in image]
        for image in images.numpy()
    ]
    assert np.abs(perturb(DefocusBlur(3.5), images, radius) - np.array(expected)).max() < 1e-12
