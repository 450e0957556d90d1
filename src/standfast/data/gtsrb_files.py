"""GTSRB, German traffic signs, read from the official files or small mosaics on this computer, or downloaded.

Stallkamp, Schlipsing, Salmen and Igel, Man vs. computer: benchmarking machine learning algorithms for traffic sign
recognition, Neural Networks 32, 2012. Released for research by the Institut fuer Neuroinformatik, Ruhr-Universitaet
Bochum; we know of no explicit licence.

The two formats and their folders under `data_root()` are:

- `GTSRB/`, or torchvision's `gtsrb/GTSRB/`, the official images. The training images of class cc are
  `Final_Training/Images/000cc/*.ppm` with the table `GT-000cc.csv`. The test images are `Final_Test/Images/*.ppm` with
  the table `GT-final_test.csv`, which may also be in `Final_Test/`, in `GTSRB/` or in its parent folder. The tables,
  separated by semicolons, have the class of each file and its region of interest: the sign without the margin of about
  a tenth around it. (torchvision's training images, in `GTSRB/Training/`, are a different, smaller set; they are not
  read.)
- `gtsrb_small/`, mosaics: `train.webp` and `test.webp`, lossless WebP pictures of 32x32 tiles, one row of tiles for
  each class. `sources.csv` has a line `split,class_id,column,original_file` for each tile with an image. The tiles show
  whole images, with the margin, scaled down.
"""

from __future__ import annotations

import csv
import tempfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pooch
import torch
from PIL import Image

from standfast.data.cifar import SIDE, Bytes, read_mosaic
from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import ArgumentError, check

SPLITS = ("train", "test")
OFFICIAL = ("GTSRB", "gtsrb/GTSRB")
IMAGES = {"train": "Final_Training/Images", "test": "Final_Test/Images"}
TEST_TABLE = "GT-final_test.csv"
SMALL = "gtsrb_small"
MIRROR = "https://sid.erda.dk/public/archives/daaeac0d7ce1152aea9b61d9f1e19370/"
MD5 = {
    "train": {"GTSRB_Final_Training_Images.zip": "f33fd80ac59bff73c82d25ab499e03a3"},
    "test": {
        "GTSRB_Final_Test_Images.zip": "c7e4e6327067d32654124b0fe9e82185",
        "GTSRB_Final_Test_GT.zip": "fe31e9c9270bbcd7b84b7f21a9d9d9e5",
    },
}
CLASSES = (
    "speed limit 20",
    "speed limit 30",
    "speed limit 50",
    "speed limit 60",
    "speed limit 70",
    "speed limit 80",
    "end of speed limit 80",
    "speed limit 100",
    "speed limit 120",
    "no overtaking",
    "no overtaking by lorries",
    "priority at the next crossing",
    "priority road",
    "give way",
    "stop",
    "no vehicles",
    "no lorries",
    "no entry",
    "danger",
    "bend to the left",
    "bend to the right",
    "double bend",
    "uneven road",
    "slippery road",
    "road narrows on the right",
    "road works",
    "traffic lights",
    "pedestrians",
    "children",
    "bicycles",
    "ice or snow",
    "wild animals",
    "end of all restrictions",
    "turn right",
    "turn left",
    "straight ahead only",
    "straight ahead or right",
    "straight ahead or left",
    "keep right",
    "keep left",
    "roundabout",
    "end of no overtaking",
    "end of no overtaking by lorries",
)


def gtsrb(split: str = "train", download: bool = False) -> Dataset:
    """GTSRB, 43 German traffic signs: inputs (N, 3, 32, 32) in [0, 1], N = 39,209 ("train") or 12,630 ("test").

    The official images are cropped to their region of interest and scaled to 32x32 pixels (bilinear, antialiased). If
    they are missing, the mosaics are read: fewer images, not cropped; the data set's name is then
    "gtsrb:train (gtsrb_small)". Several training images show the same sign (a "track", the number before `_` in the
    file's name), so a validation set should be split by tracks.

    Args:
        split: "train" or "test".
        download: if the split is missing in both formats, download the official images (276 or 89 MB) into `GTSRB/`
            under `data_root()`, and verify their checksums.

    Raises:
        MissingDataError: the split was not found, and `download` is False or the download failed.
        ArgumentError: the split is unknown, or a file has the wrong format.

    >>> gtsrb("test", download=True).inputs.shape  # doctest: +SKIP
    torch.Size([12630, 3, 32, 32])
    """
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    tables, name = _find_tables(split), f"gtsrb:{split}"
    small = data_root() / SMALL
    has_small = all((small / file).is_file() for file in (f"{split}.webp", "sources.csv"))
    if not tables and not has_small and download:
        _download(split)
        tables = _find_tables(split)
    if tables:
        parts = [_read_table(table, images) for table, images in tables]
        tiles, labels = np.concatenate([part[0] for part in parts]), [label for part in parts for label in part[1]]
    elif has_small:
        tiles, labels = _read_small(small, split)
        name += f" ({SMALL})"
    else:
        folders = ", ".join(str(data_root() / folder / IMAGES[split]) for folder in OFFICIAL)
        raise MissingDataError(
            f"gtsrb: no {split} images with their GT-*.csv in {folders}, nor {split}.webp and sources.csv in {small}."
            f" Put the files there, set {VARIABLE} to the folder that contains GTSRB/, or pass download=True."
        )
    inputs = torch.from_numpy(tiles).to(torch.float32).div_(255)
    return Dataset(name, inputs, torch.tensor(labels, dtype=torch.int64), CLASSES)


# the official images


def _find_tables(split: str) -> list[tuple[Path, Path]]:
    """The tables of the split, each with the folder of its images; an empty list if a table is missing."""
    for folder in OFFICIAL:
        base = data_root() / folder
        images = base / IMAGES[split]
        if split == "train":
            folders = [images / f"{label:05}" for label in range(len(CLASSES))]
            tables = [(each / f"GT-{each.name}.csv", each) for each in folders]
        else:
            places = [place / TEST_TABLE for place in (images, images.parent, base, base.parent)]
            tables = [(place, images) for place in places if place.is_file() and images.is_dir()][:1]
        if tables and all(table.is_file() for table, _ in tables):
            return tables
    return []


def _read_table(table: Path, folder: Path) -> tuple[Bytes, list[int]]:
    """The images (N, 3, 32, 32) and labels that a table lists, in its order."""
    tiles, labels = [], []
    for line, row in _read_rows(table, ";", ("Filename", "Roi.X1", "Roi.Y1", "Roi.X2", "Roi.Y2", "ClassId")):
        file, *numbers = row
        left, top, right, bottom, label = _parse_numbers(table, line, numbers)
        _check_label(table, line, label)
        check(Path(file).name == file, f"{table}, line {line}", "the name of a file", repr(file))
        tiles.append(_crop(folder / file, (left, top, right, bottom)))
        labels.append(label)
    check(len(tiles) > 0, str(table), "at least one image", "none")
    return np.stack(tiles), labels


def _crop(path: Path, region: tuple[int, int, int, int]) -> Bytes:
    """A region (left, top, right, bottom; the last two excluded) of an image, scaled to 32x32 pixels: (3, 32, 32)."""
    try:
        with Image.open(path, formats=("PPM",)) as picture:
            width, height = picture.size
            left, top, right, bottom = region
            inside = 0 <= left < right <= width and 0 <= top < bottom <= height
            check(inside, str(path), f"a region of interest within {width}x{height} pixels", region)
            sign = picture.convert("RGB").crop(region).resize((SIDE, SIDE), Image.Resampling.BILINEAR)
    except ArgumentError:
        raise
    except (OSError, SyntaxError, ValueError) as error:
        raise ArgumentError(str(path), "a PPM picture", f"a missing, broken or different file ({error})") from error
    return np.ascontiguousarray(np.asarray(sign).transpose(2, 0, 1))


def _download(split: str) -> None:
    """Download the official images of the split, then their tables, so that no table exists without its images."""
    root = data_root()
    for name, md5 in MD5[split].items():
        try:
            archive = pooch.retrieve(MIRROR + name, f"md5:{md5}", fname=name, path=root)
            with zipfile.ZipFile(archive) as packed, tempfile.TemporaryDirectory(dir=root) as beside:
                packed.extractall(beside)  # only within the folder: zipfile removes drives, roots and ".."
                files = [file for file in Path(beside).rglob("*") if file.is_file()]
                for file in sorted(files, key=lambda file: (file.suffix == ".csv", file)):
                    inner = file.relative_to(beside)
                    target = root / (inner if inner.parts[0] == "GTSRB" else Path("GTSRB") / inner)
                    target.parent.mkdir(parents=True, exist_ok=True)
                    file.replace(target)
        # no network, a folder that cannot be written, a wrong checksum, a broken archive
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise MissingDataError(f"gtsrb: could not download {MIRROR}{name} to {root}: {error}") from error


# the mosaics


def _read_small(folder: Path, split: str) -> tuple[Bytes, list[int]]:
    """The tiles (N, 3, 32, 32) and labels that `sources.csv` lists for a split, in its order."""
    mosaic, table = read_mosaic(folder / f"{split}.webp"), folder / "sources.csv"
    rows, columns = mosaic.shape[:2]
    places: list[tuple[int, int]] = []
    for line, (tile_split, *numbers) in _read_rows(table, ",", ("split", "class_id", "column")):
        if tile_split == split:
            label, column = _parse_numbers(table, line, numbers)
            _check_label(table, line, label)
            inside = label < rows and 0 <= column < columns
            check(inside, f"{table}, line {line}", f"a tile within {rows} rows and {columns} columns", (label, column))
            places.append((label, column))
    check(len(places) > 0, str(table), f"lines for the split {split}", "none")
    labels, tile_columns = (list(each) for each in zip(*places, strict=True))
    return mosaic[labels, tile_columns], labels


# tables


def _read_rows(table: Path, delimiter: str, wanted: tuple[str, ...]) -> Iterable[tuple[int, list[str]]]:
    """The line number and the `wanted` columns of each line of a table."""
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file, delimiter=delimiter)
            columns = reader.fieldnames or []
            check(set(wanted) <= set(columns), str(table), f"columns {', '.join(wanted)}", ", ".join(columns) or "none")
            for row in reader:
                yield reader.line_num, [row[column] or "" for column in wanted]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ArgumentError(str(table), "a table as text", str(error)) from error


def _parse_numbers(table: Path, line: int, texts: list[str]) -> list[int]:
    try:
        return [int(text) for text in texts]
    except ValueError as error:
        raise ArgumentError(f"{table}, line {line}", "whole numbers", ", ".join(map(repr, texts))) from error


def _check_label(table: Path, line: int, label: int) -> None:
    known = f"a class in 0 .. {len(CLASSES) - 1}"
    check(0 <= label < len(CLASSES), f"{table}, line {line}", known, label)
