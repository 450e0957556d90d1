"""CIFAR-10, read from files on this computer in any of three formats, or downloaded.

Krizhevsky, Learning multiple layers of features from tiny images, technical report, University of Toronto, 2009.
Collected by A. Krizhevsky, V. Nair and G. Hinton, who state no licence and ask to be cited.

There are five training batches and one test batch of 10,000 images each. The formats and their folders under
`data_root()` are:

- `cifar-10-batches-py/`, the Python version: pickles `data_batch_1` .. `data_batch_5` and `test_batch`. They are read
  without running any code that they contain (`read_pickle`).
- `cifar-10-batches-bin/`, the binary version: `data_batch_1.bin`, ... Each image has one byte for the label and 3072
  bytes for the pixels: 1024 red, 1024 green, 1024 blue, row by row.
- `cifar10/`, mosaics: `data_batch_1.webp`, ..., lossless WebP pictures of 32x32 tiles, row by row from left to right.
  `labels.npz` has the labels of all five training batches in order (`train`) and of the test batch (`test`).
"""

from __future__ import annotations

import pickle
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pooch
import torch
from PIL import Image

from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import ArgumentError, check
from standfast.files import read_file

Bytes = npt.NDArray[np.uint8]

SIDE = 32
VALUES = 3 * SIDE * SIDE
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"


@dataclass(frozen=True)
class Format:
    """One of the formats of the files."""

    folder: str  # under the data root
    suffix: str  # of a batch's file name
    read: Callable[[Path], tuple[Bytes, Bytes]]  # images (N, 3, 32, 32) and labels (N,)
    companions: tuple[str, ...] = ()  # other files that must exist

    def find_batches(self, split: str) -> list[str]:
        """The names of the split's batches whose files exist."""
        folder = data_root() / self.folder
        if not all((folder / name).is_file() for name in self.companions):
            return []
        return [name for name in BATCHES[split] if (folder / f"{name}{self.suffix}").is_file()]


def cifar10(split: str = "train", download: bool = False) -> Dataset:
    """CIFAR-10, photographs of ten things: inputs (N, 3, 32, 32) in [0, 1], N = 50,000 ("train") or 10,000 ("test").

    Of the formats above, the one with the most batches of the split is read; among equals, the first. If training
    batches are missing, N is smaller, and the data set's name lists the batches: "cifar10:train (batches 1, 2 of 5)".

    Args:
        split: "train" or "test".
        download: if a batch of the split is missing, download the binary version (170 MB, and 184 MB unpacked) into
            `cifar-10-batches-bin/` under `data_root()`, and verify its checksum.

    Raises:
        MissingDataError: no batch of the split was found, and `download` is False or the download failed.
        ArgumentError: the split is unknown, or a file has the wrong format.

    >>> cifar10("test", download=True).inputs.shape  # doctest: +SKIP
    torch.Size([10000, 3, 32, 32])
    """
    check(split in BATCHES, "split", " or ".join(BATCHES), repr(split))
    format_, names = _find_format(split)
    if len(names) < len(BATCHES[split]) and download:
        _download()
        format_, names = _find_format(split)
    if not names:
        folders = " or ".join(str(data_root() / each.folder) for each in FORMATS)
        raise MissingDataError(
            f"cifar10: no {BATCHES[split][0]} (pickle, .bin, or .webp with labels.npz) in {folders}. Put the files"
            f" there, set {VARIABLE} to the parent folder, or pass download=True."
        )
    images, labels = [], []
    for name in names:
        path = data_root() / format_.folder / f"{name}{format_.suffix}"
        found, classes = format_.read(path)
        largest = int(classes.max(initial=0))
        check(largest < len(CLASSES), str(path), f"labels below {len(CLASSES)}", largest)
        images.append(found)
        labels.append(classes)
    inputs = torch.from_numpy(np.concatenate(images)).to(torch.float32).div_(255)
    targets = torch.from_numpy(np.concatenate(labels).astype(np.int64))
    return Dataset(_name(split, names), inputs, targets, CLASSES)


def _find_format(split: str) -> tuple[Format, list[str]]:
    """The format with the most batches, and their names."""
    return max(((each, each.find_batches(split)) for each in FORMATS), key=lambda found: len(found[1]))


def _name(split: str, names: list[str]) -> str:
    if len(names) == len(BATCHES[split]):
        return f"cifar10:{split}"
    numbers = ", ".join(name.rpartition("_")[2] for name in names)
    return f"cifar10:{split} (batch{'es' if len(names) > 1 else ''} {numbers} of {len(BATCHES[split])})"


# the binary version


def read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one `.bin` file; raises `ArgumentError` for an incomplete record."""
    content = np.frombuffer(read_file(path), dtype=np.uint8)
    whole = len(content) > 0 and len(content) % (VALUES + 1) == 0
    check(whole, str(path), f"records of {VALUES + 1} bytes", f"{len(content)} bytes")
    records = content.reshape(-1, VALUES + 1)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0]


def _download() -> None:
    """Download the binary version and unpack the batches into their folder; other files of the archive are ignored."""
    root = data_root()
    try:
        archive = pooch.retrieve(URL, f"md5:{MD5}", fname=URL.rpartition("/")[2], path=root)
        folder = root / BINARY.folder
        folder.mkdir(parents=True, exist_ok=True)
        with tarfile.open(archive) as packed:
            for name in (name for names in BATCHES.values() for name in names):
                stored = packed.extractfile(f"{BINARY.folder}/{name}{BINARY.suffix}")
                if stored is None:
                    raise ValueError(f"{name}{BINARY.suffix} is no file in {archive}")
                unfinished = folder / f"{name}.part"
                unfinished.write_bytes(stored.read())
                unfinished.replace(folder / f"{name}{BINARY.suffix}")
    # no network, a folder that cannot be written, a wrong checksum, a file that is not in the archive
    except (OSError, ValueError, KeyError, tarfile.TarError) as error:
        raise MissingDataError(f"cifar10: could not download {URL} to {root}: {error}") from error


# the mosaics


def read_mosaic(path: Path) -> Bytes:
    """The 32x32 RGB tiles of a WebP picture, (rows, columns, 3, 32, 32); raises `ArgumentError` for a partial tile."""
    try:
        with Image.open(path, formats=("WEBP",)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ArgumentError(str(path), "a WebP picture", f"a broken or different file ({error})") from error
    height, width, _ = pixels.shape
    whole = height % SIDE == 0 and width % SIDE == 0
    check(whole, str(path), f"whole tiles of {SIDE}x{SIDE} pixels", f"{width}x{height} pixels")
    tiles = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3))


def _read_labelled_mosaic(path: Path) -> tuple[Bytes, Bytes]:
    images = read_mosaic(path).reshape(-1, 3, SIDE, SIDE)
    labels, key = path.with_name("labels.npz"), "test" if path.stem == "test_batch" else "train"
    try:
        with np.load(labels, allow_pickle=False) as stored:
            known = stored[key]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise ArgumentError(str(labels), f"the array {key!r} in a NumPy archive", f"none ({error})") from error
    batches = BATCHES[key]
    fine = known.ndim == 1 and known.dtype == np.uint8 and len(known) == len(batches) * len(images)
    expected = f"uint8 {key} labels, {len(images)} for each of {len(batches)} batches"
    check(fine, str(labels), expected, f"{known.dtype} of shape {known.shape}")
    return images, known.reshape(len(batches), -1)[batches.index(path.stem)]


# the python version


def read_pickle(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one pickled batch, read without importing or running anything in it.

    A pickle can call any function of any module. A batch may only name the functions of `_ALLOWED`, which pickle uses
    for arrays of bytes and for byte strings. Each of them is replaced by our own class, which only stores its
    arguments, so not even NumPy's functions run. Any other name raises an `ArgumentError`.
    """
    try:
        with path.open("rb") as file:
            batch = _Batch(file, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # a broken pickle can raise almost any exception
        expected = "a pickled batch: a dictionary with arrays of bytes, byte strings, lists and numbers"
        raise ArgumentError(str(path), expected, f"{type(error).__name__}: {error}") from error
    check(isinstance(batch, dict), str(path), "a dictionary", type(batch).__name__)
    data, labels = (batch.get(key, batch.get(key.decode())) for key in (b"data", b"labels"))
    fine = isinstance(data, _Array) and isinstance(data.content, bytes) and len(data.content) == VALUES * data.rows
    check(fine and data.rows > 0, str(path), f"data: bytes of shape (N, {VALUES})", type(data).__name__)
    fine = isinstance(labels, list) and all(type(label) is int and 0 <= label < len(CLASSES) for label in labels)
    check(fine, str(path), f"labels: a list of numbers below {len(CLASSES)}", type(labels).__name__)
    check(len(labels) == data.rows, str(path), f"{data.rows} labels, as many as images", len(labels))
    images = np.frombuffer(data.content, dtype=np.uint8)
    images = images.reshape(VALUES, -1).T if data.columns_first else images
    return images.reshape(-1, 3, SIDE, SIDE), np.array(labels, dtype=np.uint8)


class _Dtype:
    """Replaces `numpy.dtype`; accepts only unsigned bytes."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"expected an array of bytes (u1), got {kind!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore the state: byte order and fields, which bytes do not have."""


class _Array:
    """Replaces `numpy.ndarray` and the function that makes an empty array; the state has the shape and the content."""

    def __init__(self, *_: object) -> None:
        self.rows, self.content, self.columns_first = 0, b"", False

    def __setstate__(self, state: tuple[int, tuple[int, int], _Dtype, bool, bytes]) -> None:
        _, (self.rows, columns), dtype, self.columns_first, self.content = state
        if type(dtype) is not _Dtype or type(self.rows) is not int or columns != VALUES:
            raise pickle.UnpicklingError(f"expected bytes of shape (N, {VALUES}), got ({self.rows}, {columns})")


class _Encoded:
    """Replaces `_codecs.encode`, with which Python 3 writes byte strings in old protocols."""

    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"expected latin1, got {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        """Ignore the state: byte strings have none."""


_ALLOWED: dict[tuple[str, str], type] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
    ("_codecs", "encode"): _Encoded,
}


class _Batch(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"the file names {module}.{name}, which no batch needs")
        return _ALLOWED[module, name]


BINARY = Format("cifar-10-batches-bin", ".bin", read_binary)
FORMATS = (
    Format("cifar-10-batches-py", "", read_pickle),
    BINARY,
    Format("cifar10", ".webp", _read_labelled_mosaic, companions=("labels.npz",)),
)
