"""Noise: quantiles and distributions against scipy.stats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from standfast.neighbourhoods import GaussianNoise, ImpulseNoise, ShotNoise, SpeckleNoise
from standfast.neighbourhoods.noise import Noise, find_poisson_quantile
from standfast.tensors import Streams

CHANNELS = (
    torch.tensor([-1.0, 0.0, 0.0]).reshape(3, 1, 1),
    torch.tensor([1.0, 1.0, 255.0]).reshape(3, 1, 1),
)


def draw_shares(kind: Noise, share: float, strength: float, count: int = 400) -> np.ndarray:
    """Entries of one brightness with noise of one strength, as shares of their range, channel by channel `(3, k)`."""
    low, high = (bound.double() for bound in CHANNELS)
    image = (low + (high - low) * share).expand(1, 3, 5, 5).clone()
    fixed = type(kind)((strength, strength))  # type: ignore[call-arg]
    region = fixed.around(image, CHANNELS)
    points = region.sample(count, Streams([3], torch.device("cpu")))[0]
    noisy = region.perturb(points, torch.zeros(count, dtype=torch.int64))
    return ((noisy - low) / (high - low)).transpose(0, 1).flatten(1).numpy()


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.4, 3.0, 17.5, 260.0, 9_900.0])
def test_poisson_quantiles_are_scipys(mean: float) -> None:
    u = torch.cat(
        [
            torch.rand(2000, dtype=torch.float64),
            torch.tensor([0.0, 1e-6, 1 - 1e-6, 1.0], dtype=torch.float64),
        ]
    )
    cut = u.numpy().clip(2.0**-24, 1 - 2.0**-24)
    expected = stats.poisson.ppf(cut, mean) if mean else np.zeros(len(u))
    assert np.array_equal(find_poisson_quantile(torch.full_like(u, mean), u).numpy(), expected)


def test_gaussian_noise_is_normal_and_clipped() -> None:
    for found in draw_shares(GaussianNoise(), 0.5, 0.1):
        assert stats.kstest(found, stats.norm(0.5, 0.1).cdf).pvalue > 1e-3
    dark = draw_shares(GaussianNoise(), 0.0, 0.1)
    assert dark.min() == 0.0
    assert np.mean(dark == 0.0) == pytest.approx(0.5, abs=0.02)


def test_speckle_noise_is_proportional_to_the_value() -> None:
    for found in draw_shares(SpeckleNoise(), 0.4, 0.3):
        assert stats.kstest(found, stats.norm(0.4, 0.12).cdf).pvalue > 1e-3
    assert np.abs(draw_shares(SpeckleNoise(), 0.0, 0.3)).max() == 0.0


@pytest.mark.parametrize("photons", [25, 3])
def test_shot_noise_counts_photons(photons: int) -> None:
    for found in draw_shares(ShotNoise(), 0.3, photons**-0.5):
        counts = np.rint(found * photons)
        assert np.abs(found * photons - counts).max() < 1e-4
        most = min(photons, 15)  # brighter ones are clipped, or rare
        observed = np.bincount(np.minimum(counts, most).astype(int), minlength=most + 1)
        law = stats.poisson(0.3 * photons)
        expected = len(found) * np.append(law.pmf(np.arange(most)), law.sf(most - 1))
        assert stats.chisquare(observed, expected).pvalue > 1e-3


def test_shot_noise_of_many_photons_goes_over_into_a_continuous_law() -> None:
    """On both sides of the mean at which counts are no longer counted."""
    image = torch.full((1, 1, 1, 999), 0.5, dtype=torch.float64)
    u = torch.linspace(0.001, 0.999, 999, dtype=torch.float64)
    for scale in (0.0071, 0.00705):  # 9,919 and 10,060 photons on average
        points = torch.cat([torch.tensor([scale], dtype=torch.float64), u])[None]
        found = ShotNoise(0.1).around(image, (0.0, 1.0)).perturb(points, torch.tensor([0]))
        expected = stats.poisson.ppf(u.numpy(), 0.5 / scale**2) * scale**2
        assert np.abs(found.flatten().numpy() - expected).max() <= 0.6 * scale**2


def test_impulse_noise_replaces_the_share_of_entries() -> None:
    for found in draw_shares(ImpulseNoise(), 0.3, 0.2, count=2000):
        for value, share in ((0.0, 0.1), (1.0, 0.1)):
            assert (
                stats.binomtest(int((np.abs(found - value) < 1e-6).sum()), len(found), share).pvalue
                > 1e-3
            )
        assert np.isin(found.round(6), [0.0, 0.3, 1.0]).all()


@pytest.mark.parametrize("kind", [GaussianNoise, SpeckleNoise, ShotNoise, ImpulseNoise])
def test_extreme_numbers_are_finite(kind: type[Noise]) -> None:
    image = torch.tensor([[[[0.0, 0.2, 1.0]]]])
    points = torch.tensor([[0.5, 0.0, 1.0, 0.0], [0.01, 1.0, 0.0, 1.0]])
    found = kind(1.0).around(image, (0.0, 1.0)).perturb(points, torch.tensor([0, 0]))  # type: ignore[call-arg]
    assert torch.isfinite(found).all()
