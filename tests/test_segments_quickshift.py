"""Quickshift as a way to cut images."""

from __future__ import annotations

import pytest
import torch
from skimage.segmentation import quickshift
from torch import Tensor

import standfast
from standfast.segments import check_segments, make_grid, segment


def rand(*shape: int) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(0))


def test_about_forty_pieces_of_digits(digits: standfast.data.Dataset) -> None:
    x = digits.inputs[:30]
    cut = segment(x, "quickshift")
    assert not cut.fallback.any()
    assert 35 <= cut.count.double().mean() <= 47
    assert int(cut.count.min()) >= 3
    assert int(cut.count.max()) <= cut.width
    for labels, count in zip(cut.labels, cut.count, strict=True):
        assert torch.equal(labels.unique(), torch.arange(int(count)))
    assert torch.equal(segment(x[7:8], "quickshift").labels[0], cut.labels[7])
    assert segment(x[7:8], "quickshift").width == cut.width
    assert torch.equal(segment(x.flip(0), "quickshift").labels.flip(0), cut.labels)
    # the range does not matter
    assert torch.equal(segment(0.5 * x, "quickshift").labels, cut.labels)


def test_pieces_follow_the_strokes(digits: standfast.data.Dataset) -> None:
    x = digits.inputs[:8]

    def within(labels: Tensor) -> float:
        flat = [(i[0].flatten(), row.flatten()) for i, row in zip(x, labels, strict=True)]
        return sum(
            float(((v[r == k] - v[r == k].mean()) ** 2).sum()) for v, r in flat for k in r.unique()
        )

    assert within(segment(x, "quickshift").labels) < 0.6 * within(
        torch.from_numpy(make_grid((28, 28), 42)).expand(8, 28, 28)
    )


def test_colour_is_compared_in_cielab() -> None:
    """Shapes of two colours as bright as each other; scikit-image's own conversion gives the same pieces."""
    x = torch.zeros(1, 3, 48, 48)
    x[:, 0, :, :24], x[:, 1, :, 24:] = 0.7, 0.45
    x = x + 0.1 * rand(1, 3, 48, 48)
    cut = segment(x, "quickshift")
    assert not cut.fallback.any()
    for label in range(int(cut.count[0])):
        columns = (cut.labels[0] == label).nonzero()[:, 1]
        assert columns.max() < 24 or columns.min() >= 24
    image = x[0].double()
    image = (image - image.min()) / (image.max() - image.min())
    theirs = quickshift(
        image.numpy(), ratio=0.2, kernel_size=1, max_dist=4, convert2lab=True, channel_axis=0, rng=0
    )
    assert torch.equal(cut.labels[0], torch.from_numpy(theirs).to(torch.int64))


def test_scales_grow_with_the_image() -> None:
    x = torch.zeros(1, 1, 112, 112)
    x[:, :, 30:80, 30:80] = 1.0
    x = (x + 0.02 * rand(1, 1, 112, 112)).clamp(0, 1)
    count = int(segment(x, "quickshift").count[0])
    theirs = quickshift(
        100 * (x[0] / x.max()).double().numpy(),
        ratio=0.5,
        kernel_size=1,
        max_dist=4,
        convert2lab=False,
        channel_axis=0,
    )
    assert count < 0.5 * (theirs.max() + 1)


def test_images_without_pieces_get_a_grid() -> None:
    flat, noise = torch.full((1, 1, 64, 64), 0.5), rand(1, 1, 64, 64)
    cut = segment(torch.cat([flat, noise]), "quickshift")
    assert cut.fallback.tolist() == [True, True]
    assert torch.equal(cut.labels[0], torch.from_numpy(make_grid((64, 64), 81)))


def test_only_images() -> None:
    assert check_segments("quickshift") == "quickshift"
    for x, kind in ((rand(2, 1, 20), "series"), (rand(2, 20), "flat features")):
        with pytest.raises(standfast.ArgumentError, match=f"cuts {kind}, got 'quickshift'"):
            segment(x, "quickshift")
