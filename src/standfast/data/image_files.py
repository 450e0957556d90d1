"""Folders of images: which files are there, of which classes, and their pixels."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from standfast.data.samples import Size, from_pillow, resize
from standfast.errors import FINITE, ArgumentError, check, warn_user

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp", ".pgm", ".ppm")
#: the tag of EXIF for how a camera was held, and its value for a picture that is stored upright
_ORIENTATION = 0x0112
_UPRIGHT = 1


class _File(NamedTuple):
    """A file of a folder, and the number of its class; None without classes."""

    path: Path
    label: int | None


class _Picture(NamedTuple):
    """The pixels of a file `(1 or 3, height, width)`.

    `floats` says that they are stored as floats, and keep their values; `turned` that a viewer would turn them.
    """

    pixels: Tensor
    floats: bool
    turned: bool


@dataclass(frozen=True, eq=False)
class Images:
    """The images of a folder.

    Attributes:
        inputs: `(N, channels, height, width)`, in [0, 1], or floats as they are stored.
        labels: int64 `(N,)`; None without classes.
        classes: their names, those of the subfolders; empty without classes.
        count: how many images the folder has.
        floats: whether they are stored as floats.
        names: of the files, relative to the folder.
    """

    inputs: Tensor
    labels: Tensor | None
    classes: tuple[str, ...]
    count: int
    floats: bool
    names: tuple[str, ...]


def load_images(
    folder: Path, count: int | None, size: Size | None, grayscale: bool | None
) -> Images:
    """The images of a folder, and their classes, as `user_files.read_images` describes them.

    Raises:
        ArgumentError: as of `user_files.read_images`.
    """
    files, classes = _list_files(folder)
    chosen = files[:count]
    pictures = [_read_picture(file.path, folder) for file in chosen]
    names = [str(file.path.relative_to(folder)) for file in chosen]
    floats = _check_one_kind(names, pictures)
    _warn_of_orientations(names, pictures)
    if grayscale is None:
        grayscale = all(len(picture.pixels) == 1 for picture in pictures)
    pixels = []
    for picture in pictures:
        channels = _to_channels(picture.pixels, grayscale)
        pixels.append(channels if size is None else resize(channels, size))
    _check_one_size([file.path.name for file in chosen], pixels)
    labels = None
    if classes:
        labels = torch.tensor([file.label for file in chosen])
    return Images(torch.stack(pixels), labels, tuple(classes), len(files), floats, tuple(names))


def _list_files(folder: Path) -> tuple[list[_File], list[str]]:
    """The files of a folder, or those of its subfolders in turn, and the names of the subfolders, the classes."""
    classes = sorted(path.name for path in folder.iterdir() if path.is_dir() and _list_images(path))
    flat = _list_images(folder)
    # of images in both places nobody could say the class
    are_in_both = bool(classes and flat)
    expected = "images in the folder or in its subfolders"
    check(not are_in_both, "path", expected, f"both in {folder.name}")
    files = [_File(path, None) for path in flat] or _take_turns(folder, classes)
    check(len(files) > 0, "path", f"images ({', '.join(IMAGES)})", f"none in {folder.name}")
    return files, classes


def _take_turns(folder: Path, classes: list[str]) -> list[_File]:
    """The first image of each class, the second of each, and so on."""
    by_class: list[list[_File]] = []
    for label, name in enumerate(classes):
        by_class.append([_File(path, label) for path in _list_images(folder / name)])
    turns = itertools.zip_longest(*by_class)
    return [file for turn in turns for file in turn if file is not None]


def _list_images(folder: Path) -> list[Path]:
    images = filter(_is_image, folder.iterdir())
    return sorted(images, key=lambda file: file.name)


def _is_image(path: Path) -> bool:
    # hidden files are those of a system, such as thumbnails
    if path.name.startswith("."):
        return False
    return path.suffix.lower() in IMAGES and path.is_file()


def _read_picture(file: Path, folder: Path) -> _Picture:
    """The pixels of one file.

    Raises:
        ArgumentError: it is no image, a stack of pages, or has values that cannot be read.
    """
    from PIL import Image

    name = str(file.relative_to(folder))
    try:
        with Image.open(file) as image:
            _check_pages(name, image)
            floats = image.mode == "F"
            pixels = from_pillow(image)
            orientation = image.getexif().get(_ORIENTATION, _UPRIGHT)
    except ArgumentError as error:
        raise ArgumentError("path", error.expected, f"{error.got} in {name}") from error
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        # Pillow raises each of these for some broken file
        words = " ".join(str(error).split())
        got = f"{name}: {words}".replace(str(file), file.name)
        raise ArgumentError("path", "images that Pillow can read", got) from error
    check(bool(pixels.isfinite().all()), "path", FINITE, f"NaN or infinity in {name}")
    return _Picture(pixels, floats, turned=orientation != _UPRIGHT)


def _check_pages(name: str, image: Any) -> None:
    """Raise `ArgumentError` for pages of one size, such as a stack; smaller ones are previews.

    Of an animation, and of the several views that a telephone stores, the first picture is the image.
    """
    pages = getattr(image, "n_frames", 1)
    if image.format != "TIFF" or pages == 1:
        return
    size = image.size
    # an image is read page by page; the first is read afterwards, so it is put back
    image.seek(1)
    stacked = image.size == size
    image.seek(0)
    got = (
        f"{pages} pages in {name}; a stack can be given as an array (N, C, D, H, W) in a .npy file"
    )
    check(not stacked, "path", "one picture in each file", got)


def _check_one_kind(names: list[str], pictures: list[_Picture]) -> bool:
    """Whether the pictures are stored as floats.

    Raises:
        ArgumentError: some are, and others are not: those are scaled to [0, 1].
    """
    kinds = [picture.floats for picture in pictures]
    if len(set(kinds)) > 1:
        with_floats = names[kinds.index(True)]
        with_numbers = names[kinds.index(False)]
        got = f"floats in {with_floats}, and whole numbers in {with_numbers}"
        raise ArgumentError(
            "path",
            "images with one kind of numbers, since only whole ones are scaled to [0, 1]",
            got,
        )
    return kinds[0]


def _warn_of_orientations(names: list[str], pictures: list[_Picture]) -> None:
    """Warn of photos that viewers turn: most training code, torchvision's among it, reads them as they are stored."""
    turned = [name for name, picture in zip(names, pictures, strict=True) if picture.turned]
    if turned:
        warn_user(
            f"path: {len(turned)} of {len(names)} images, such as {turned[0]}, have an EXIF orientation, and are read"
            " as they are stored. If the model was trained with turned ones, store them so: PIL.ImageOps.exif_transpose"
        )


def _check_one_size(names: list[str], pictures: list[Tensor]) -> None:
    """Raise `ArgumentError` unless all pictures `(channels, height, width)` have one size."""
    _, height, width = pictures[0].shape
    for name, picture in zip(names, pictures, strict=True):
        if picture.shape != pictures[0].shape:
            _, other_height, other_width = picture.shape
            got = f"{height} x {width} ({names[0]}) and {other_height} x {other_width} ({name})"
            expected = "images of one size, or size: [height, width] to resize them"
            raise ArgumentError("path", expected, got)


def _to_channels(picture: Tensor, gray: bool) -> Tensor:
    """A picture `(1 or 3, height, width)` with one channel or three."""
    if gray == (len(picture) == 1):
        return picture
    if not gray:
        # copied, since expanded channels would share their memory
        return picture.expand(3, -1, -1).contiguous()
    weights = torch.tensor([0.299, 0.587, 0.114])  # ITU-R BT.601, as Pillow's
    weighted = picture * weights[:, None, None]
    return weighted.sum(0, keepdim=True).clamp_(0, 1)
