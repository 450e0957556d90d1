"""SLIC, quickshift and CIELAB: the labels and the numbers of scikit-image, on images of every kind."""

from __future__ import annotations

import numpy as np
import pytest
import skimage.color
import skimage.segmentation

import standfast
from standfast import superpixels
from standfast.superpixels import Image, convert_to_lab, quickshift, slic


def smooth_images(count: int, *shape: int) -> list[Image]:
    """Random images, correlated over a few pixels, in [0, 1]."""
    rng, found = np.random.default_rng(0), []
    for _ in range(count):
        image = rng.random(shape)
        for axis in (1, 2):
            image = np.stack([np.roll(image, shift, axis) for shift in range(-3, 4)]).mean(0)
        found.append((image - image.min()) / (image.max() - image.min()))
    return found


def rescaled(images: np.ndarray) -> list[Image]:
    return [(image - image.min()) / (image.max() - image.min()) for image in images.astype(np.float64)]


def images_of(kind: str, digits: standfast.data.Dataset) -> list[Image]:
    rng = np.random.default_rng(0)
    kinds = {
        "digits": lambda: rescaled(digits.inputs[:40].numpy()),  # flat, with equal distances everywhere
        "noise": lambda: rescaled(rng.random((10, 1, 32, 32))),
        "two channels": lambda: rescaled(rng.random((10, 2, 20, 41))),
        "black and white": lambda: rescaled(rng.random((10, 1, 30, 31)) > 0.5),
        "blocks": lambda: rescaled((rng.random((10, 1, 6, 6)) > 0.5).repeat(6, 2).repeat(6, 3)),
        "colour": lambda: smooth_images(5, 3, 40, 32),
        "photo": lambda: smooth_images(2, 3, 120, 96),
        "wide": lambda: rescaled(rng.random((5, 1, 3, 90))),
        "narrow": lambda: rescaled(rng.random((5, 1, 90, 2))),
        "a row": lambda: rescaled(rng.random((5, 1, 1, 50))),
    }
    return kinds[kind]()


KINDS = ("digits", "noise", "two channels", "black and white", "blocks", "colour", "photo", "wide", "narrow", "a row")


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("_compile_assign", "_compile_connect"):
        monkeypatch.setattr(superpixels, name, lambda: None)


@pytest.mark.parametrize("compactness", [0.03, 0.3, 10.0])
@pytest.mark.parametrize("kind", KINDS)
def test_slic_gives_the_labels_of_scikit_image(kind: str, compactness: float, digits: standfast.data.Dataset) -> None:
    for image in images_of(kind, digits):
        places = image[0].size
        for count in (1, 3, 20, places // 50 + 1, places):
            theirs = skimage.segmentation.slic(
                image, count, compactness, convert2lab=False, start_label=0, channel_axis=0
            )
            assert np.array_equal(slic(image, count, compactness), theirs), (count, compactness)


@pytest.mark.parametrize("kind", KINDS)
def test_slic_without_numba(kind: str, digits: standfast.data.Dataset, without_numba: None) -> None:
    test_slic_gives_the_labels_of_scikit_image(kind, 0.3, digits)


def test_slic_of_many_centres_at_a_time_or_of_few(monkeypatch: pytest.MonkeyPatch, without_numba: None) -> None:
    (image,) = smooth_images(1, 3, 40, 50)
    whole = slic(image, 60, 0.3)
    for chunk in (1, 3000, 1 << 30):
        monkeypatch.setattr(superpixels, "_CHUNK", chunk)
        assert np.array_equal(slic(image, 60, 0.3), whole)


@pytest.mark.parametrize("kind", KINDS)
def test_quickshift_gives_the_labels_of_scikit_image(kind: str, digits: standfast.data.Dataset) -> None:
    for image in images_of(kind, digits):
        for ratio, kernel, reach in ((50.0, 1.0, 4.0), (5.0, 1.5, 3.0), (0.5, 2.0, 20.0)):
            theirs = skimage.segmentation.quickshift(
                image, ratio=ratio, kernel_size=kernel, max_dist=reach, convert2lab=False, channel_axis=0, rng=0
            )
            assert np.array_equal(quickshift(image, ratio, kernel, reach), theirs), (ratio, kernel, reach)


def test_cielab_is_that_of_scikit_image() -> None:
    image = np.random.default_rng(0).random((3, 20, 30))
    image[:, 0] *= 0.01  # where the curves are straight lines
    ours = convert_to_lab(image)
    np.testing.assert_allclose(ours, skimage.color.rgb2lab(image, channel_axis=0), rtol=0, atol=1e-12)
    # primary colours, from tables of CIELAB under D65
    primary = convert_to_lab(np.eye(3)[:, None, :])[:, 0].T
    expected = [[53.24, 80.09, 67.20], [87.74, -86.18, 83.18], [32.30, 79.19, -107.86]]
    np.testing.assert_allclose(primary, expected, atol=0.02)
