"""MNIST and Fashion-MNIST, read from IDX files on this computer, or downloaded.

LeCun, Bottou, Bengio and Haffner, Gradient-based learning applied to document recognition, 1998.

Xiao, Rasul and Vollgraf, Fashion-MNIST: a novel image dataset for benchmarking machine learning algorithms, 2017.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pooch
import torch

from standfast.data.dataset import Dataset
from standfast.data.idx import read_idx
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import check

SIDE = 28
PREFIXES = {"train": "train", "test": "t10k"}


@dataclass(frozen=True)
class IdxSource:
    """A data set in the format of MNIST: its folders under the data root, and where to download it."""

    name: str
    folders: tuple[str, ...]  # under the data root; downloads go to the first, the others are torchvision's
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
        "T-shirt/top",
        "Trouser",
        "Pullover",
        "Dress",
        "Coat",
        "Sandal",
        "Shirt",
        "Sneaker",
        "Bag",
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
    return _load(MNIST, split, download)


def fashion_mnist(split: str = "train", download: bool = False) -> Dataset:
    """Fashion-MNIST, articles of clothing: inputs (N, 1, 28, 28) in [0, 1], N = 60,000 ("train") or 10,000 ("test").

    Arguments and errors are those of `mnist`. The folders are `fashion_mnist/` and `FashionMNIST/raw/`; a download
    is about 31 MB.

    >>> fashion_mnist("test").classes[0]  # doctest: +SKIP
    'T-shirt/top'
    """
    return _load(FASHION_MNIST, split, download)


def _load(source: IdxSource, split: str, download: bool) -> Dataset:
    check(split in PREFIXES, "split", " or ".join(PREFIXES), repr(split))
    image_path = _locate(source, f"{PREFIXES[split]}-images-idx3-ubyte.gz", download)
    label_path = _locate(source, f"{PREFIXES[split]}-labels-idx1-ubyte.gz", download)
    images, labels = read_idx(image_path, dimensions=3), read_idx(label_path, dimensions=1)
    size = tuple(images.shape[1:])
    check(size == (SIDE, SIDE), str(image_path), f"images of {SIDE}x{SIDE} pixels", size)
    check(len(labels) == len(images), str(label_path), f"{len(images)} labels, as many as images", len(labels))
    largest = int(labels.max())
    check(largest < len(source.classes), str(label_path), f"labels below {len(source.classes)}", largest)
    inputs = images.unsqueeze(1).to(torch.float32).div_(255)
    return Dataset(f"{source.name}:{split}", inputs, labels.to(torch.int64), source.classes)


def _locate(source: IdxSource, compressed: str, download: bool) -> Path:
    """The path of one file, compressed or not; it is downloaded if it is missing and `download` is set."""
    folders = [data_root() / folder for folder in source.folders]
    for folder in folders:
        for name in (compressed, compressed.removesuffix(".gz")):
            if (folder / name).is_file():
                return folder / name
    if not download:
        raise MissingDataError(
            f"{source.name}: no {compressed} (or unpacked) in {' or '.join(map(str, folders))}. Put the IDX "
            f"files there, set {VARIABLE} to the folder that contains {source.folders[0]}/, or pass "
            "download=True."
        )
    url = source.mirror + compressed
    try:
        return Path(pooch.retrieve(url, f"md5:{source.md5[compressed]}", fname=compressed, path=folders[0]))
    except (OSError, ValueError) as error:  # no network, a folder that cannot be written, a wrong checksum
        reason = f"could not download {url} to {folders[0]}: {error}"
        raise MissingDataError(f"{source.name}: {reason}") from error
