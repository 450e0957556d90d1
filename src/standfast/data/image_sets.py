"""MNIST, Fashion-MNIST, CIFAR-10 and GTSRB, read from files on this computer; all but the last can be downloaded.

LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.

Xiao, Rasul and Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017.

Krizhevsky, Learning multiple layers of features from tiny images, technical report, University of Toronto, 2009. The
authors state no licence and ask to be cited.

Stallkamp, Schlipsing, Salmen and Igel, Man vs. computer: benchmarking machine learning algorithms for traffic sign
recognition, Neural Networks 32, 2012. Released for research by the Institut fuer Neuroinformatik, Ruhr-Universitaet
Bochum; we know of no explicit licence.

There are three formats of files:

- IDX, plain or gzipped (MNIST): two zero bytes, the type of the values, the number of dimensions, the sizes as 32-bit
  integers, and the values in row-major order; all numbers are big-endian.
- Binary batches (CIFAR-10): for each image one byte for the label and 3072 for the pixels: 1024 red, 1024 green, 1024
  blue, row by row.
- Mosaics (CIFAR-10, GTSRB): lossless WebP pictures of 32x32 tiles, with a file that has the labels.
"""

from __future__ import annotations

import gzip
import io
import math
import struct
import tarfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import polars as pl
import torch
from PIL import Image
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.data.root import MissingDataError, data_root, fetch, report_missing
from standfast.errors import ArgumentError, check
from standfast.files import find_room, load_npz, read_file, write_atomically

Bytes = npt.NDArray[np.uint8]

PREFIXES = {"train": "train", "test": "t10k"}  # of the files of MNIST
UNSIGNED_BYTE = 0x08  # the only type of value that the MNIST files use
GZIP_MAGIC = b"\x1f\x8b"
SIDE = 32  # of the images of CIFAR-10 and GTSRB
BATCHES = {
    "train": tuple(f"data_batch_{number}" for number in range(1, 6)),
    "test": ("test_batch",),
}
BINARY = "cifar-10-batches-bin"
MOSAICS = "cifar10"
SIGNS = "gtsrb_small"
CIFAR_URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"
CIFAR_MD5 = "c32a1d4ab5d03f1284b67883e8d87530"
CIFAR_CLASSES = (
    "airplane",
    "automobile",
    "bird",
    "cat",
    "deer",
    "dog",
    "frog",
    "horse",
    "ship",
    "truck",
)
SIGN_CLASSES = (
    *(f"speed limit {speed}" for speed in (20, 30, 50, 60, 70, 80)),
    *(
        "end of speed limit 80",
        "speed limit 100",
        "speed limit 120",
        "no overtaking",
        "no overtaking by lorries",
    ),
    *(
        "priority at the next crossing",
        "priority road",
        "give way",
        "stop",
        "no vehicles",
        "no lorries",
        "no entry",
    ),
    *(
        "danger",
        "bend to the left",
        "bend to the right",
        "double bend",
        "uneven road",
        "slippery road",
    ),
    *(
        "road narrows on the right",
        "road works",
        "traffic lights",
        "pedestrians",
        "children",
        "bicycles",
    ),
    *(
        "ice or snow",
        "wild animals",
        "end of all restrictions",
        "turn right",
        "turn left",
        "straight ahead only",
    ),
    *("straight ahead or right", "straight ahead or left", "keep right", "keep left", "roundabout"),
    *("end of no overtaking", "end of no overtaking by lorries"),
)


@dataclass(frozen=True)
class IdxSource:
    """A data set in the format of MNIST: its folders under the data root, and where to download it."""

    name: str
    # under the data root; downloads go to the first, the others are torchvision's
    folders: tuple[str, ...]
    mirror: str
    md5: Mapping[str, str]  # checksums of the compressed files at the mirror
    classes: tuple[str, ...]


MNIST = IdxSource(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    mirror="https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5={
        "train-images-idx3-ubyte.gz": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte.gz": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte.gz": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte.gz": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    classes=tuple("0123456789"),
)
FASHION_MNIST = IdxSource(
    name="fashion_mnist",
    folders=("fashion_mnist", "FashionMNIST/raw"),
    mirror="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5={
        "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    classes=(
        *(
            "T-shirt/top",
            "Trouser",
            "Pullover",
            "Dress",
            "Coat",
            "Sandal",
            "Shirt",
            "Sneaker",
            "Bag",
        ),
        "Ankle boot",
    ),
)


def mnist(split: str = "train", download: bool = False) -> Dataset:
    """MNIST, handwritten digits: inputs (N, 1, 28, 28) in [0, 1], N = 60,000 ("train") or 10,000 ("test").

    The four IDX files, gzipped or not, are read from `mnist/` or `MNIST/raw/` under `data_root()`.

    Args:
        split: "train" or "test".
        download: download missing files (about 11 MB) into `mnist/` under `data_root()`, and verify their checksums.

    Raises:
        MissingDataError: files are missing, and `download` is False or the download failed.
        ArgumentError: the split is unknown, or a file is not the expected IDX file.

    >>> digits = mnist("test", download=True)  # doctest: +SKIP
    >>> digits.inputs.shape                    # doctest: +SKIP
    torch.Size([10000, 1, 28, 28])
    """
    return _load_idx(MNIST, split, download)


def fashion_mnist(split: str = "train", download: bool = False) -> Dataset:
    """Fashion-MNIST, articles of clothing: inputs (N, 1, 28, 28) in [0, 1], N = 60,000 ("train") or 10,000 ("test").

    Arguments and errors are those of `mnist`. The folders are `fashion_mnist/` and `FashionMNIST/raw/`; a download
    is about 31 MB.

    >>> fashion_mnist("test").classes[0]  # doctest: +SKIP
    'T-shirt/top'
    """
    return _load_idx(FASHION_MNIST, split, download)


def cifar10(split: str = "train", download: bool = False) -> Dataset:
    """CIFAR-10, photographs of ten things: inputs (N, 3, 32, 32) in [0, 1], N = 50,000 ("train") or 10,000 ("test").

    There are five training batches and one test batch of 10,000 images each. They are read from one of two folders
    under `data_root()`, the one that has more batches of the split:

    - `cifar-10-batches-bin/`, the binary version: `data_batch_1.bin`, ... and `test_batch.bin`;
    - `cifar10/`, mosaics: `data_batch_1.webp`, ... with the images row by row. `labels.npz` has the labels of all five
      training batches in order (`train`) and of the test batch (`test`).

    If training batches are missing, N is smaller, and the name of the data set lists the batches: "cifar10:train
    (batches 1, 2 of 5)". The Python version, which torchvision stores, is "torchvision:CIFAR10:train".

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
    names = BATCHES[split]
    files = _find_batches(names)
    # what is there is never loaded again
    if len(files) < len(names) and download:
        _download_batches()
        files = _find_batches(names)
    if not files:
        folders = [data_root() / folder for folder in (BINARY, MOSAICS)]
        raise report_missing("cifar10", f"{names[0]} (.bin, or .webp with labels.npz)", folders)
    title = f"cifar10:{split}"
    if len(files) < len(names):
        # the name says it, as results of some batches are not those of all
        numbers = ", ".join(file.stem.rpartition("_")[2] for file in files)
        plural = "es" if len(files) > 1 else ""
        title += f" (batch{plural} {numbers} of {len(names)})"
    batches = []
    for file in files:
        if file.suffix == ".bin":
            batches.append(_read_binary(file))
        else:
            batches.append(_read_labelled_mosaic(file, split))
    images, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    return _make_dataset(title, images, labels, CIFAR_CLASSES, files[0])


def gtsrb(split: str = "train", download: bool = False) -> Dataset:
    """A small copy of GTSRB, 43 German traffic signs: inputs (N, 3, 32, 32) in [0, 1].

    It is read from two mosaics in `gtsrb_small/` under `data_root()`, `train.webp` and `test.webp`, which have one row
    of tiles for each class. A tile shows a whole image, with its margin, scaled down. `sources.csv` has a line
    `split,class_id,column,original_file` for each tile with an image. All 26,640 and 12,630 images are
    "torchvision:GTSRB:train:size=32" and "torchvision:GTSRB:test:size=32".

    Several training images show the same sign (a "track", the number before `_` in the file's name), so a validation
    set should be split by tracks.

    Args:
        split: "train" or "test".
        download: these files cannot be downloaded; if they are missing, the error says what can.

    Raises:
        MissingDataError: the files were not found.
        ArgumentError: the split is unknown, or a file has the wrong format.

    >>> gtsrb("test").classes[14]  # doctest: +SKIP
    'stop'
    """
    check(split in BATCHES, "split", " or ".join(BATCHES), repr(split))
    folder = data_root() / SIGNS
    mosaic = folder / f"{split}.webp"
    table = folder / "sources.csv"
    if not (mosaic.is_file() and table.is_file()):
        whole = f'"torchvision:GTSRB:{split}:size=32" downloads the whole set (extra data)'
        raise MissingDataError(
            f"gtsrb: no {mosaic.name} with sources.csv in {folder}, and no download of them; {whole}"
        )
    tiles = read_mosaic(mosaic)
    types = {"split": pl.String, "class_id": pl.Int64, "column": pl.Int64}
    try:
        rows = pl.read_csv(table, columns=list(types), schema_overrides=types).filter(
            pl.col("split") == split
        )
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ArgumentError(
            str(table), f"a table with the columns {', '.join(types)}", str(error)
        ) from error
    labels = rows["class_id"].to_numpy()
    columns = rows["column"].to_numpy()
    check(len(rows) > 0, str(table), f"lines for the split {split}", "none")
    is_row = (labels >= 0) & (labels < len(tiles))
    is_column = (columns >= 0) & (columns < tiles.shape[1])
    inside = is_row & is_column
    expected = f"tiles within {len(tiles)} rows and {tiles.shape[1]} columns"
    check(bool(inside.all()), str(table), expected, rows.row(int(inside.argmin())))
    return _make_dataset(
        f"gtsrb:{split} ({SIGNS})", tiles[labels, columns], labels, SIGN_CLASSES, table
    )


def _make_dataset(
    name: str, images: Bytes, labels: npt.NDArray[np.integer], classes: Sequence[str], file: Path
) -> Dataset:
    """A data set from bytes `(N, C, H, W)` and labels that were read from `file`."""
    largest = int(labels.max(initial=0))
    check(largest < len(classes), str(file), f"labels below {len(classes)}", largest)
    inputs = torch.from_numpy(images).to(torch.float32).div_(255)
    numbers = torch.from_numpy(labels.astype(np.int64))
    return Dataset(name, inputs, numbers, tuple(classes))


# IDX


def _load_idx(source: IdxSource, split: str, download: bool) -> Dataset:
    check(split in PREFIXES, "split", " or ".join(PREFIXES), repr(split))
    image_path = _locate(source, f"{PREFIXES[split]}-images-idx3-ubyte.gz", download)
    label_path = _locate(source, f"{PREFIXES[split]}-labels-idx1-ubyte.gz", download)
    images = read_idx(image_path, dimensions=3).numpy()
    labels = read_idx(label_path, dimensions=1).numpy()
    check(images.shape[1:] == (28, 28), str(image_path), "images of 28x28 pixels", images.shape[1:])
    check(
        len(labels) == len(images),
        str(label_path),
        f"{len(images)} labels, as many as images",
        len(labels),
    )
    return _make_dataset(
        f"{source.name}:{split}", images[:, None], labels, source.classes, label_path
    )


def _locate(source: IdxSource, compressed: str, download: bool) -> Path:
    """The path of one file, compressed or not; it is downloaded if it is missing and `download` is set."""
    folders = [data_root() / folder for folder in source.folders]
    for folder in folders:
        # files of a mirror are compressed; people unpack them
        for name in (compressed, compressed.removesuffix(".gz")):
            if (folder / name).is_file():
                return folder / name
    if not download:
        raise report_missing(source.name, f"{compressed} (or unpacked)", folders)
    return fetch(source.mirror + compressed, f"md5:{source.md5[compressed]}", folders[0])


def read_idx(path: Path, dimensions: int) -> Tensor:
    """Read the unsigned bytes of the IDX file at `path`, as a uint8 tensor with `dimensions` dimensions.

    Raises `ArgumentError`, with the path, if the header, the sizes or the length of the file are wrong.
    """
    content = _unpack(path)
    header = 4 + 4 * dimensions
    check(
        len(content) >= header,
        str(path),
        f"an IDX file, at least {header} bytes",
        f"{len(content)} bytes",
    )
    magic = bytes([0, 0, UNSIGNED_BYTE, dimensions])
    expected = (
        f"the IDX magic number {int.from_bytes(magic)} (unsigned bytes in {dimensions} dimensions)"
    )
    check(content[:4] == magic, str(path), expected, int.from_bytes(content[:4]))
    sizes = struct.unpack(f">{dimensions}I", content[4:header])
    check(min(sizes) >= 1, str(path), "no empty dimension", f"sizes {sizes}")
    values = len(content) - header
    expected_values = math.prod(sizes)
    check(
        values == expected_values,
        str(path),
        f"{expected_values} values for sizes {sizes}",
        f"{values} values",
    )
    # a copy, as a tensor must be able to write to its memory
    return torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=header).reshape(sizes)


def _unpack(path: Path) -> bytes:
    raw = read_file(path)
    if not raw.startswith(GZIP_MAGIC):
        return raw
    # a few bytes can claim to become gigabytes
    most = find_room(len(raw))
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(raw)) as packed:
            # one byte more than allowed shows that there are more
            content = packed.read(most + 1)
    except (EOFError, OSError, zlib.error) as error:
        raise ArgumentError(
            str(path), "a complete gzip file", f"a broken file ({error})"
        ) from error
    check(len(content) <= most, str(path), f"at most {most:,} bytes when it is unpacked", "more")
    return content


# Batches of CIFAR-10


def _find_batches(names: Sequence[str]) -> list[Path]:
    """The files of the format that has more of these batches; binary ones if both have as many."""
    root = data_root()
    binary = [root / BINARY / f"{name}.bin" for name in names]
    binary = [file for file in binary if file.is_file()]
    mosaics = [root / MOSAICS / f"{name}.webp" for name in names]
    mosaics = [file for file in mosaics if file.is_file()]
    has_labels = (root / MOSAICS / "labels.npz").is_file()
    if has_labels and len(mosaics) > len(binary):
        return mosaics
    return binary


def _read_binary(path: Path) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one `.bin` file; raises `ArgumentError` for an incomplete record."""
    content = np.frombuffer(read_file(path), dtype=np.uint8)
    record = 1 + 3 * SIDE * SIDE
    whole = len(content) > 0 and len(content) % record == 0
    check(whole, str(path), f"records of {record} bytes", f"{len(content)} bytes")
    records = content.reshape(-1, record)
    labels = records[:, 0]
    pixels = records[:, 1:].reshape(-1, 3, SIDE, SIDE)
    return pixels, labels


def _download_batches() -> None:
    """Download the binary version and unpack the batches into their folder; other files of the archive are ignored."""
    archive = fetch(CIFAR_URL, f"md5:{CIFAR_MD5}", data_root())
    with tarfile.open(archive) as packed:
        for name in (*BATCHES["train"], *BATCHES["test"]):
            stored = packed.extractfile(f"{BINARY}/{name}.bin")
            assert stored is not None  # the checksum says so
            write_atomically(data_root() / BINARY / f"{name}.bin", stored.read())


# Mosaics


def read_mosaic(path: Path) -> Bytes:
    """The 32x32 RGB tiles of a WebP picture, (rows, columns, 3, 32, 32); raises `ArgumentError` for a partial tile."""
    try:
        # the kind is named, so that Pillow tries no other decoder
        with Image.open(path, formats=("WEBP",)) as picture:
            pixels = np.asarray(picture.convert("RGB"))
    except (OSError, SyntaxError, ValueError) as error:
        raise ArgumentError(
            str(path), "a WebP picture", f"a broken or different file ({error})"
        ) from error
    height, width, _ = pixels.shape
    whole = height % SIDE == 0 and width % SIDE == 0
    check(whole, str(path), f"whole tiles of {SIDE}x{SIDE} pixels", f"{width}x{height} pixels")
    tiles = pixels.reshape(height // SIDE, SIDE, width // SIDE, SIDE, 3)
    return np.ascontiguousarray(tiles.transpose(0, 2, 4, 1, 3))


def _read_labelled_mosaic(path: Path, split: str) -> tuple[Bytes, Bytes]:
    """Images (N, 3, 32, 32) and labels (N,) of one batch; `labels.npz` has those of all batches of a split."""
    images = read_mosaic(path).reshape(-1, 3, SIDE, SIDE)
    file = path.with_name("labels.npz")
    try:
        labels = load_npz(read_file(file), (split,))[split]
    except (OSError, ValueError, KeyError) as error:
        raise ArgumentError(
            str(file), f"the array {split!r} in a NumPy archive", f"none ({error})"
        ) from error
    batches = BATCHES[split]
    count = len(batches) * len(images)
    fine = labels.dtype == np.uint8 and labels.shape == (count,)
    expected = f"uint8 {split} labels, {len(images)} for each of {len(batches)} batches"
    check(fine, str(file), expected, f"{labels.dtype} of shape {labels.shape}")
    labels_of_batches = labels.reshape(len(batches), -1)
    return images, labels_of_batches[batches.index(path.stem)]
