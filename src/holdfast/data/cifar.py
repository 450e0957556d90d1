"""CIFAR-10 from its files in any of three forms, which are found on this computer or downloaded.

Krizhevsky, Learning multiple layers of features from tiny images, technical report, University of Toronto, 2009.
Collected by A. Krizhevsky, V. Nair and G. Hinton, who state no licence and ask to be cited.

Five training batches and a test batch of 10,000 images each. The three forms, with their folders under `data_root()`:

- `cifar-10-batches-py/`, the python version: pickles `data_batch_1` .. `data_batch_5` and `test_batch`, read without
  running anything that is in them (`read_pickle`);
- `cifar-10-batches-bin/`, the binary version: `data_batch_1.bin`, ...; for each image a byte for the label, then 3072
  bytes: 1024 red, 1024 green, 1024 blue, rows first;
- `cifar10/`, mosaics: `data_batch_1.webp`, ..., lossless WebP pictures of 32x32 tiles, each row of tiles from left to
  right, and `labels.npz` with the labels of all five training batches in order (`train`) and of the test batch
  (`test`).
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

from holdfast.data.dataset import Dataset
from holdfast.data.root import VARIABLE, MissingDataError, data_root
from holdfast.errors import ArgumentError, check

Bytes = npt.NDArray[np.uint8]

SIDE = 32
VALUES = 3 * SIDE * SIDE
BATCHES = {"train": tuple(f"data_batch_{number}" for number in range(1, 6)), "test": ("test_batch",)}
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
MD5 = "c32a1d4ab5d03f1284b67883e8d87530"


@dataclass(frozen=True)
class Form:
    """One of the forms: a folder under the data root, what follows a batch's name, and how a batch is read."""

    folder: str
    suffix: str
    read: Callable[[Path], tuple[Bytes, Bytes]]  # images (N, 3, 32, 32) and labels (N,)
    beside: tuple[str, ...] = ()  # other files that must be there

    def present(self, split: str) -> list[str]:
        """The names of the split's batches that are there."""
        folder = data_root() / self.folder
        if not all((folder / name).is_file() for name in self.beside):
            return []
        return [name for name in BATCHES[split] if (folder / f"{name}{self.suffix}").is_file()]


def cifar10(split: str = "train", download: bool = False) -> Dataset:
    """CIFAR-10, photographs of ten things: inputs (N, 3, 32, 32) in [0, 1], N = 50,000 ("train") or 10,000 ("test").

    Of the forms above, the one with the most batches of the split is taken, the first of equals. Training batches may
    be
    missing: then N is smaller, and the data set's name says which are in it, as "cifar10:train (batches 1, 2 of 5)".

    Args:
        split: "train" or "test".
        download: unless all batches of the split are there, fetch the binary version (170 MB, and 184 MB unpacked) into
            `cifar-10-batches-bin/` under `data_root()`, checksum verified.

    Raises:
        MissingDataError: no batch of the split is there, and none was to be or could be downloaded.
        ArgumentError: the split is unknown, or a file is not what it should be.

    >>> cifar10("test", download=True).inputs.shape  # doctest: +SKIP
    torch.Size([10000, 3, 32, 32])
    """
    check(split in BATCHES, "split", " or ".join(BATCHES), repr(split))
    form, names = _found(split)
    if len(names) < len(BATCHES[split]) and download:
        _download()
        form, names = _found(split)
    if not names:
        folders = " or ".join(str(data_root() / each.folder) for each in FORMS)
        raise MissingDataError(
            f"cifar10: no {BATCHES[split][0]} (pickle, .bin, or .webp with labels.npz) in {folders}. Put the files"
            f" there, set {VARIABLE} to the folder that holds these, or pass download=True."
        )
    images, labels = [], []
    for name in names:
        path = data_root() / form.folder / f"{name}{form.suffix}"
        found, classes = form.read(path)
        largest = int(classes.max(initial=0))
        check(largest < len(CLASSES), str(path), f"labels below {len(CLASSES)}", largest)
        images.append(found)
        labels.append(classes)
    inputs = torch.from_numpy(np.concatenate(images)).to(torch.float32).div_(255)
    targets = torch.from_numpy(np.concatenate(labels).astype(np.int64))
    return Dataset(_name(split, names), inputs, targets, CLASSES)


def _found(split: str) -> tuple[Form, list[str]]:
    """The form with the most batches, and the names of those."""
    return max(((form, form.present(split)) for form in FORMS), key=lambda found: len(found[1]))


def _name(split: str, names: list[str]) -> str:
    if len(names) == len(BATCHES[split]):
        return f"cifar10:{split}"
    numbers = ", ".join(name.rpartition("_")[2] for name in names)
    return f"cifar10:{split} (batch{'es' if len(names) > 1 else ''} {numbers} of {len(BATCHES[split])})"


# the binary version


def read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one `.bin` file; `ArgumentError` unless it has whole records."""
    content = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    whole = len(content) > 0 and len(content) % (VALUES + 1) == 0
    check(whole, str(path), f"records of {VALUES + 1} bytes", f"{len(content)} bytes")
    records = content.reshape(-1, VALUES + 1)
    return records[:, 1:].reshape(-1, 3, SIDE, SIDE), records[:, 0]


def _download() -> None:
    """The binary version, unpacked into its folder; of the archive only the files that we know are taken."""
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
    """The 32x32 RGB tiles of a WebP picture: (rows, columns, 3, 32, 32); `ArgumentError` unless all are whole."""
    try:
        with Image.open(path, formats=("WEBP",)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ArgumentError(str(path), "a WebP picture", f"a broken or other one ({error})") from error
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
    """Images (N, 3, 32, 32) and labels (N,) of one pickled batch; nothing in the pickle is ever imported or run.

    A pickle can name any function of any module and have it called. Here a batch may name four things, those that an
    array of bytes and a byte string are pickled with, and for each of them stands a class of our own that only keeps
    what it is given: so not even NumPy's functions run on what the file says. Anything else is an `ArgumentError`.
    """
    try:
        with path.open("rb") as file:
            batch = _Batch(file, encoding="bytes").load()
    except OSError:
        raise
    except Exception as error:  # a broken pickle can raise nearly anything
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
    """For `numpy.dtype`: only unsigned bytes."""

    def __init__(self, kind: object, *_: object) -> None:
        if kind not in ("u1", b"u1"):
            raise pickle.UnpicklingError(f"expected an array of bytes (u1), got {kind!r}")

    def __setstate__(self, state: object) -> None:
        """Byte order and the like, which bytes do not have."""


class _Array:
    """For `numpy.ndarray` and the function that makes an empty one; the state brings shape and content."""

    def __init__(self, *_: object) -> None:
        self.rows, self.content, self.columns_first = 0, b"", False

    def __setstate__(self, state: tuple[int, tuple[int, int], _Dtype, bool, bytes]) -> None:
        _, (self.rows, columns), dtype, self.columns_first, self.content = state
        if type(dtype) is not _Dtype or type(self.rows) is not int or columns != VALUES:
            raise pickle.UnpicklingError(f"expected bytes of shape (N, {VALUES}), got ({self.rows}, {columns})")


class _Encoded:
    """For `_codecs.encode`, which Python 3 writes byte strings with in old protocols."""

    def __new__(cls, text: str, encoding: str) -> bytes:  # type: ignore[misc]
        if encoding != "latin1":
            raise pickle.UnpicklingError(f"expected latin1, got {encoding!r}")
        return text.encode("latin1")

    def __setstate__(self, state: object) -> None:
        """There is none."""


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


BINARY = Form("cifar-10-batches-bin", ".bin", read_binary)
FORMS = (
    Form("cifar-10-batches-py", "", read_pickle),
    BINARY,
    Form("cifar10", ".webp", _read_labelled_mosaic, beside=("labels.npz",)),
)
