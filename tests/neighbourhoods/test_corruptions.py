"""Named corruptions: the formulas of the original, written again from its description, at whole severities."""

from __future__ import annotations

import io
import math

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage, stats
from skimage import color
from torch import Tensor

from holdfast.errors import ArgumentError
from holdfast.neighbourhoods import Corruption
from holdfast.neighbourhoods.blur import make_disks

LOW, HIGH = -1.0, 3.0
LEVELS = {
    "imagenet": {
        "gaussian_noise": [0.08, 0.12, 0.18, 0.26, 0.38],
        "shot_noise": [60, 25, 12, 5, 3],
        "impulse_noise": [0.03, 0.06, 0.09, 0.17, 0.27],
        "speckle_noise": [0.15, 0.2, 0.35, 0.45, 0.6],
        "gaussian_blur": [1, 2, 3, 4, 6],
        "brightness": [0.1, 0.2, 0.3, 0.4, 0.5],
        "contrast": [0.4, 0.3, 0.2, 0.1, 0.05],
        "saturate": [(0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)],
        "jpeg_compression": [25, 18, 15, 10, 7],
        "pixelate": [0.6, 0.5, 0.4, 0.3, 0.25],
    },
    "cifar10": {
        "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.10],
        "shot_noise": [500, 250, 100, 75, 50],
        "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
        "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],
        "gaussian_blur": [0.4, 0.6, 0.7, 0.8, 1],
        "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
        "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
        "saturate": [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
        "jpeg_compression": [80, 65, 58, 50, 40],
        "pixelate": [0.95, 0.9, 0.85, 0.75, 0.65],
    },
}


def corrupt(name: str, constant: object, x: np.ndarray, uniform: np.ndarray) -> np.ndarray:
    """One image `(H, W, 3)` in [0, 1]; noise from the quantiles of `uniform`."""
    if name == "gaussian_noise":
        return np.clip(x + constant * stats.norm.ppf(uniform), 0, 1)
    if name == "speckle_noise":
        return np.clip(x + x * constant * stats.norm.ppf(uniform), 0, 1)
    if name == "shot_noise":
        return np.clip(stats.poisson.ppf(uniform, x * constant) / constant, 0, 1)
    if name == "impulse_noise":
        return np.where(uniform < constant / 2, 0.0, np.where(uniform > 1 - constant / 2, 1.0, x))
    if name == "gaussian_blur":
        return ndimage.gaussian_filter(x, (constant, constant, 0), mode="nearest")
    if name == "contrast":
        mean = x.mean(axis=(0, 1), keepdims=True)
        return np.clip((x - mean) * constant + mean, 0, 1)
    if name in ("brightness", "saturate"):
        hsv = color.rgb2hsv(x)
        if name == "brightness":
            hsv[..., 2] = np.clip(hsv[..., 2] + constant, 0, 1)
        else:
            hsv[..., 1] = np.clip(hsv[..., 1] * constant[0] + constant[1], 0, 1)
        return np.clip(color.hsv2rgb(hsv), 0, 1)
    image = Image.fromarray(np.rint(x * 255).astype(np.uint8))
    if name == "pixelate":
        small = int(x.shape[1] * constant), int(x.shape[0] * constant)
        image = image.resize(small, Image.Resampling.BOX).resize(image.size, Image.Resampling.BOX)
    else:
        file = io.BytesIO()
        image.save(file, "JPEG", quality=constant)
        image = Image.open(file)
    return np.asarray(image) / 255


def perturb(kind: Corruption, shares: Tensor, severity: float, further: Tensor | None = None) -> np.ndarray:
    region = kind.around(LOW + (HIGH - LOW) * shares, (LOW, HIGH))
    points = torch.cat([torch.tensor([[severity]], dtype=torch.float64), region.centre[:, 1:]], 1)
    if further is not None and points.shape[1] > 1:
        points[:, 1:] = further
    found = region.perturb(points, torch.tensor([0]))[0]
    return ((found - LOW) / (HIGH - LOW)).permute(1, 2, 0).numpy()


@pytest.mark.parametrize("images", LEVELS)
@pytest.mark.parametrize("name", LEVELS["imagenet"])
def test_whole_severities_are_the_originals(name: str, images: str) -> None:
    generator = torch.Generator().manual_seed(0)
    shares = torch.rand(1, 3, 20, 16, generator=generator, dtype=torch.float64)
    uniform = torch.rand(1, 3, 20, 16, generator=generator, dtype=torch.float64)
    kind = Corruption(name, severity=5, images=images)  # type: ignore[arg-type]
    for severity, constant in enumerate(LEVELS[images][name], 1):
        arranged = [each[0].permute(1, 2, 0).numpy() for each in (shares, uniform)]
        expected = corrupt(name, constant, *arranged)
        alone = Corruption(name, severity=(severity, severity), images=images)  # type: ignore[arg-type]
        assert np.abs(perturb(alone, shares, severity, uniform.flatten(1)) - expected).max() < 1e-6
        # the same within a wider range; only a Gaussian ends later there
        assert np.abs(perturb(kind, shares, severity, uniform.flatten(1)) - expected).max() < 1e-3


def test_severities_in_between_are_interpolated() -> None:
    shares = torch.rand(1, 1, 5, 6, dtype=torch.float64)
    kind = Corruption("contrast", severity=5)
    mean = float(shares.mean())
    for severity, factor in [(0.0, 1.0), (0.75, 0.55), (1.25, 0.375), (3.8, 0.12), (5.0, 0.05)]:
        expected = mean + factor * (shares[0].permute(1, 2, 0).numpy() - mean)
        assert np.abs(perturb(kind, shares, severity) - expected).max() < 1e-9


def test_brightness_of_black_and_of_grey_images() -> None:
    black = torch.zeros(1, 3, 2, 2, dtype=torch.float64)
    assert np.allclose(perturb(Corruption("brightness", 5), black, 3.0), 0.3)
    grey = torch.full((1, 1, 2, 2), 0.9, dtype=torch.float64)
    assert np.allclose(perturb(Corruption("brightness", 5), grey, 1.0), 1.0)
    assert np.allclose(perturb(Corruption("brightness", 5, "cifar10"), grey, 1.0), 0.95)


def test_blurs_have_the_spread_of_the_originals() -> None:
    """The standard deviation of a bright point: of ImageMagick's half Gaussian, and of the disk with a soft edge."""

    def spread(name: str, images: str, severity: int) -> float:
        point = torch.zeros(1, 1, 61, 61, dtype=torch.float64)
        point[..., 30, 30] = 1.0
        kind = Corruption(name, (severity, severity), images)  # type: ignore[arg-type]
        further = torch.zeros(1, dtype=torch.float64) if name == "motion_blur" else None
        blurred = perturb(kind, point, severity, further)[..., 0]
        return float((blurred.sum(0) * np.arange(-30, 31) ** 2).sum() ** 0.5)

    motions = {
        "imagenet": [(10, 3), (15, 5), (15, 8), (15, 12), (20, 15)],
        "cifar10": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    }
    disks = {
        "imagenet": [(3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)],
        "cifar10": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    }
    for images in motions:
        for severity in range(1, 6):
            radius, sigma = motions[images][severity - 1]
            i = np.arange(2 * radius + 1)
            weights = np.exp(-(i**2) / (2 * sigma**2))
            expected = math.sqrt(np.cov(i, aweights=weights, ddof=0))
            # bilinear weights of points between pixels add up to 1/4 to the variance
            assert abs(spread("motion_blur", images, severity) ** 2 - expected**2) < 0.27
            radius, soft = disks[images][severity - 1]
            steps = np.arange(-max(8, math.ceil(radius)), max(8, math.ceil(radius)) + 1)
            disk = ((steps[:, None] ** 2 + steps[None, :] ** 2) <= radius**2).astype(float)
            edge = np.exp(-((np.arange(3 if radius <= 8 else 5) - (1 if radius <= 8 else 2)) ** 2) / (2 * soft**2))
            for axis in (0, 1):
                disk = ndimage.convolve1d(disk, edge / edge.sum(), axis=axis, mode="mirror")
            expected = math.sqrt((disk.sum(0) * steps**2).sum() / disk.sum())
            assert spread("defocus_blur", images, severity) == pytest.approx(expected, abs=0.01)
    assert make_disks(torch.tensor([3.0]), 4).sum() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Corruption("gausian_noise"), "name: expected one of .*did you mean 'gaussian_noise'"),
        (lambda: Corruption("contrast", 6), "severity: expected .* from 0 to 5"),
        (lambda: Corruption("contrast", images="mnist"), "images: expected one of imagenet, cifar10"),  # type: ignore[arg-type]
        (
            lambda: Corruption("saturate").around(torch.rand(1, 1, 2, 2), (0, 1)),
            "inputs: expected images of 3 channels",
        ),
        (lambda: Corruption("shot_noise").around(torch.rand(1, 1, 2, 2)), "bounds: expected finite bounds"),
    ],
)
def test_bad_arguments(make: object, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        make()  # type: ignore[operator]
