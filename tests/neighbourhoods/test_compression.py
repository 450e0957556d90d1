"""JPEG and lower resolutions: what pillow makes of the same bytes."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch
from PIL import Image
from refusals import assert_refused
from scipy import stats

from standfast.algorithms import GridSearch
from standfast.algorithms.searches.base import Outcome
from standfast.neighbourhoods import JPEG, Compose, Pixelate, Rotation
from standfast.tensors import Streams

BYTES = np.random.default_rng(0).integers(0, 256, (18, 25, 3), dtype=np.uint8)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("given", "quality"), [(40.0, 40), (74.6, 75), (100.0, 100)])
def test_jpeg_is_pillows(channels: int, given: float, quality: int) -> None:
    pixels = BYTES if channels == 3 else BYTES[..., 0]
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "JPEG", quality=quality)
    expected = np.asarray(Image.open(file)).reshape(18, 25, channels)
    # the bytes of a model whose inputs are normalised channel by channel
    low, high = (
        torch.tensor([-2.0, -1.0, 0.0][:channels]),
        torch.tensor([2.5, 3.0, 255.0][:channels]),
    )
    low, high = low.reshape(-1, 1, 1), high.reshape(-1, 1, 1)
    shares = torch.from_numpy(pixels.reshape(18, 25, channels)).permute(2, 0, 1)[None] / 255
    region = JPEG(10).around(low + (high - low) * shares, (low, high))
    found = (region.perturb(torch.tensor([[given]]), torch.tensor([0]))[0] - low) / (high - low)
    assert np.abs(found.permute(1, 2, 0).numpy() * 255 - expected).max() < 1e-3


@pytest.mark.parametrize("within", [False, True])
def test_whole_qualities_are_equally_probable(within: bool) -> None:
    """Each end as often as the others, by the files that are written; also as a part of a composition."""
    kind = Compose([Rotation(0), JPEG((30, 33))]) if within else JPEG((30, 33))
    image = torch.from_numpy(BYTES).permute(2, 0, 1)[None, :, :9, :8] / 255
    region = kind.around(image, (0.0, 1.0))
    points = region.sample(1000, Streams([0], image.device))[0]
    problem = torch.zeros(len(points), dtype=torch.int64)
    qualities, counts = region.effective_points(points, problem)[:, -1].unique(return_counts=True)
    assert qualities.tolist() == [30, 31, 32, 33]
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    fixed = [JPEG((q, q)).around(image, (0.0, 1.0)) for q in (30, 31, 32, 33)]
    written = torch.stack([one.perturb(one.centre, problem[:1])[0] for one in fixed])
    assert len(written.flatten(1).unique(dim=0)) == 4
    found = region.perturb(points[:100], problem[:100])
    own = (found[:, None] - written).flatten(2).abs().amax(2).argmin(1)
    assert torch.equal(found, written[own])
    assert torch.equal(own + 30, region.effective_points(points, problem)[:100, -1].long())


def test_the_ends_of_the_range_of_qualities() -> None:
    """The box is half a quality wider; its ends, and the centre, have the qualities of the range itself."""
    region = JPEG((31, 90)).around(torch.rand(1, 1, 8, 8), (0.0, 1.0))
    ends = torch.cat([region.lower, region.upper, region.centre])
    assert region.effective_points(ends, torch.zeros(3, dtype=torch.int64)).flatten().tolist() == [
        31,
        90,
        90,
    ]
    alone = JPEG((40, 40)).around(torch.rand(1, 1, 8, 8), (0.0, 1.0))
    assert alone.lower.item() == alone.upper.item() == 40


def test_a_grid_tries_every_quality() -> None:
    region = JPEG((30, 90)).around(torch.rand(1, 1, 8, 8), (0.0, 1.0))
    tried = []

    def count(x: torch.Tensor, problem: torch.Tensor) -> Outcome:
        tried.append(region.effective_points(x, problem))
        return Outcome(x[:, 0], torch.zeros(len(x)))

    GridSearch(dense=1.0).run(count, region, 62, 0)  # one evaluation is the centre's
    assert torch.cat(tried).unique().tolist() == list(range(30, 91))


@pytest.mark.parametrize("resolution", [0.25, 0.61, 1.0])
def test_pixelate_is_pillows(resolution: float) -> None:
    small = (max(1, int(25 * resolution)), max(1, int(18 * resolution)))
    expected = (
        Image.fromarray(BYTES)
        .resize(small, Image.Resampling.BOX)
        .resize((25, 18), Image.Resampling.BOX)
    )
    images = torch.from_numpy(BYTES).permute(2, 0, 1)[None].double() / 255
    region = Pixelate(0.1).around(images, (0.0, 1.0))
    found = region.perturb(torch.tensor([[resolution]], dtype=torch.float64), torch.tensor([0]))[0]
    assert np.abs(found.permute(1, 2, 0).numpy() * 255 - np.asarray(expected)).max() < 1e-6


def test_qualities_are_whole() -> None:
    assert_refused(JPEG, quality=[(30, 60.5)])
