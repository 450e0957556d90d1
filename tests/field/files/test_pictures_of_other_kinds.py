"""Folders of pictures that are no photos of 8 bits: floats, 16 bits, palettes, stacks, turned and printed ones."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import standfast
from standfast.data.samples import from_pillow
from standfast.data.user_files import read_images
from standfast.errors import ArgumentError

RAMP = np.linspace(0, 1, 64, dtype=np.float32).reshape(8, 8)


def save_in_classes(folder: Path, picture: Image.Image, ending: str = "tif") -> None:
    for label in ("a", "b"):
        (folder / label).mkdir()
        picture.save(folder / label / f"1.{ending}")


@pytest.mark.parametrize(
    ("scale", "bounds"), [(1.0, None), (1000.0, (0.0, 1000.0)), (-2.5, (-2.5, 0.0))]
)
def test_floats_keep_their_values(
    tmp_path: Path, scale: float, bounds: tuple[float, float] | None
) -> None:
    save_in_classes(tmp_path, Image.fromarray(scale * RAMP))
    found = standfast.data.from_file(tmp_path, bounds=bounds)
    assert found.inputs.shape == (2, 1, 8, 8)
    assert np.array_equal(found.inputs[1, 0].numpy(), scale * RAMP)


def test_floats_outside_of_the_bounds_are_refused(tmp_path: Path) -> None:
    save_in_classes(tmp_path, Image.fromarray(1000 * RAMP))
    with pytest.raises(ArgumentError, match=r"expected values in \[0, 1\], got \[0, 1000\]"):
        standfast.data.from_file(tmp_path)


def test_floats_that_are_not_finite_are_refused_by_name(tmp_path: Path) -> None:
    holes = RAMP.copy()
    holes[2, 3] = np.nan
    save_in_classes(tmp_path, Image.fromarray(holes))
    with pytest.raises(ArgumentError, match=r"finite values.*NaN or infinity in a/1\.tif"):
        standfast.data.from_file(tmp_path)


def test_floats_are_resized_within_their_range(tmp_path: Path) -> None:
    Image.fromarray(1000 * RAMP).save(tmp_path / "a.tiff")
    small = read_images(tmp_path, size=4).inputs
    stored = torch.tensor(1000 * RAMP)[None, None]
    expected = torch.nn.functional.interpolate(stored, 4, mode="bilinear", antialias=True)
    assert torch.allclose(small, expected)


def test_floats_beside_whole_numbers_are_refused(tmp_path: Path) -> None:
    Image.fromarray(RAMP).save(tmp_path / "a.tif")
    Image.new("L", (8, 8), 9).save(tmp_path / "b.png")
    with pytest.raises(ArgumentError, match=r"floats in a\.tif, and whole numbers in b\.png"):
        read_images(tmp_path)


def test_sixteen_bits(tmp_path: Path) -> None:
    grey = np.round(65535 * RAMP).astype(np.uint16)
    for name in ("a.png", "b.tif"):
        Image.fromarray(grey).save(tmp_path / name)
    assert np.allclose(read_images(tmp_path).inputs.numpy(), grey / 65535, atol=1e-7)


def test_whole_numbers_of_more_bits_are_refused(tmp_path: Path) -> None:
    counts = np.arange(64, dtype=np.int32).reshape(8, 8) * 2000
    Image.fromarray(counts).save(tmp_path / "counts.tif")
    with pytest.raises(ArgumentError, match=r"0 to 65535.*values from 0 to 126000 in counts\.tif"):
        read_images(tmp_path)
    with pytest.raises(ArgumentError, match="values from -1 to -1"):
        from_pillow(Image.new("I", (2, 2), -1))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr", "HSV"])
def test_modes_are_what_pillow_makes_of_them(mode: str) -> None:
    """Grey stays one channel, all else are the red, green and blue that Pillow makes, without transparency."""
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (5, 4, 3), dtype=np.uint8))
    between = "P" if mode == "PA" else "RGB"  # a palette with transparency
    picture = photo.convert(between).convert(mode)
    grey = mode in ("1", "L", "LA")
    expected = np.asarray(picture.convert("L" if grey else "RGB"), dtype=np.float32) / 255
    expected = expected[None] if grey else expected.transpose(2, 0, 1)
    assert np.allclose(from_pillow(picture).numpy(), expected, atol=1e-7)


def test_a_stack_is_refused_and_previews_are_not(tmp_path: Path) -> None:
    page = Image.fromarray(RAMP)
    page.save(tmp_path / "stack.tif", save_all=True, append_images=[page, page])
    with pytest.raises(ArgumentError, match=r"one picture in each file, got 3 pages in stack\.tif"):
        read_images(tmp_path)
    page.save(tmp_path / "stack.tif", save_all=True, append_images=[page.resize((2, 2))])
    assert np.array_equal(read_images(tmp_path).inputs[0, 0].numpy(), RAMP)


def test_an_animation_is_its_first_picture(tmp_path: Path) -> None:
    first, second = Image.new("L", (3, 2), 51), Image.new("L", (3, 2), 204)
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    assert torch.allclose(read_images(tmp_path).inputs, torch.tensor(0.2))


def test_turned_photos_are_read_as_stored_with_a_warning(tmp_path: Path) -> None:
    photo = Image.new("RGB", (6, 4), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6
    photo.save(tmp_path / "a.jpg", exif=exif, quality=100)
    with pytest.warns(
        UserWarning, match=r"1 of 1 images, such as a\.jpg, have an EXIF orientation"
    ):
        assert read_images(tmp_path).inputs.shape == (1, 3, 4, 6)
    exif[0x0112] = 1
    photo.save(tmp_path / "a.jpg", exif=exif, quality=100)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_images(tmp_path).inputs.shape == (1, 3, 4, 6)
