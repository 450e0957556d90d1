"""MNIST, CIFAR-10 and GTSRB in each of their formats, written here from their descriptions; downloads."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import struct
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pooch
import pytest
import torch
from PIL import Image

from standfast import data
from standfast.data import image_sets
from standfast.data.image_sets import FASHION_MNIST, MNIST, read_idx
from standfast.errors import ArgumentError, StandfastError

Bytes = npt.NDArray[np.uint8]
TRAIN = [f"data_batch_{number}" for number in range(1, 6)]


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def random_images(*shape: int, seed: int = 0) -> Bytes:
    return np.random.default_rng(seed).integers(256, size=(*shape, 3, 32, 32), dtype=np.uint8)


def webp(tiles: Bytes) -> bytes:
    """A lossless mosaic of tiles (rows, columns, 3, 32, 32)."""
    picture = np.concatenate([np.concatenate(list(row), axis=2) for row in tiles], axis=1)
    file = io.BytesIO()
    Image.fromarray(picture.transpose(1, 2, 0)).save(file, "WEBP", lossless=True, exact=True)
    return file.getvalue()


def assert_holds(loaded: data.Dataset, images: Bytes, labels: Iterable[int]) -> None:
    """Bit for bit, and of the right types."""
    assert loaded.inputs.dtype == torch.float32
    assert loaded.inputs.is_contiguous()
    assert torch.equal(loaded.inputs, torch.from_numpy(images.astype(np.float32)) / 255)
    assert loaded.labels.dtype == torch.int64
    assert loaded.labels.tolist() == list(labels)
    assert loaded.bounds == (0.0, 1.0)


# MNIST and Fashion-MNIST


def idx_bytes(values: torch.Tensor, kind: int = 8) -> bytes:
    """The IDX file of a uint8 tensor, written straight from the format's description."""
    sizes = b"".join(struct.pack(">I", size) for size in values.shape)
    return bytes([0, 0, kind, values.ndim]) + sizes + bytes(values.flatten().tolist())


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(
        256, (7, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8
    )


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([3, 1, 4, 1, 5, 9, 2], dtype=torch.uint8)


def test_idx_sizes_are_big_endian_and_rows_come_first(tmp_path: Path) -> None:
    content = (
        b"\0\0\x08\x03" + b"\0\0\0\x01" + b"\0\0\0\x02" + b"\0\0\0\x03" + bytes([1, 2, 3, 4, 5, 6])
    )
    assert read_idx(write(tmp_path / "file", content), dimensions=3).tolist() == [
        [[1, 2, 3], [4, 5, 6]]
    ]


def good() -> bytes:
    return idx_bytes(torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4))


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "at least 16 bytes, got 0 bytes"),
        (good()[:10], "at least 16 bytes, got 10 bytes"),
        (good()[:-1], "24 values for sizes .2, 3, 4., got 23 values"),
        (good() + b"\0", "24 values for sizes .2, 3, 4., got 25 values"),
        (b"\x01" + good()[1:], "magic number 2051"),
        (
            idx_bytes(torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4), kind=9),
            "magic number 2051 .* 2307",
        ),
        (idx_bytes(torch.arange(24, dtype=torch.uint8)), "magic number 2051 .* got 2049"),
        (b"\0\0\x08\x03" + b"\0" * 12, "no empty dimension"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "values for sizes"),
        (gzip.compress(good(), mtime=0)[:-12], "a complete gzip file"),
        (gzip.compress(good(), mtime=0)[:15], "a complete gzip file"),
        (
            gzip.compress(good(), mtime=0)[:12] + b"junk" + gzip.compress(good(), mtime=0)[16:],
            "a complete gzip file",
        ),
        (gzip.compress(good()[:-1], mtime=0), "got 23 values"),
    ],
)
def test_broken_idx_is_refused_with_its_path(
    tmp_path: Path, content: bytes, complaint: str
) -> None:
    path = write(tmp_path / "broken-idx3-ubyte", content)
    with pytest.raises(ArgumentError, match=complaint) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("loader", [data.mnist, data.fashion_mnist], ids=["mnist", "fashion_mnist"])
@pytest.mark.parametrize(
    ("split", "prefix", "pack", "suffix", "layout"),
    [("train", "train", bytes, "", 0), ("test", "t10k", gzip.compress, ".gz", 1)],
)
def test_files_are_found(
    root: Path,
    images: torch.Tensor,
    labels: torch.Tensor,
    loader: Callable[..., data.Dataset],
    split: str,
    prefix: str,
    pack: Callable[[bytes], bytes],
    suffix: str,
    layout: int,
) -> None:
    source = MNIST if loader is data.mnist else FASHION_MNIST
    folder = root / source.folders[layout]
    write(folder / f"{prefix}-images-idx3-ubyte{suffix}", pack(idx_bytes(images)))
    write(folder / f"{prefix}-labels-idx1-ubyte{suffix}", pack(idx_bytes(labels)))
    loaded = loader(split)
    assert loaded.name == f"{source.name}:{split}"
    assert loaded.inputs.shape == (7, 1, 28, 28)
    assert loaded.inputs.dtype == torch.float32
    torch.testing.assert_close(loaded.inputs[:, 0], images / 255, rtol=0, atol=0)
    assert loaded.labels.tolist() == labels.tolist()
    assert loaded.labels.dtype == torch.int64
    assert len(loaded.classes) == 10
    assert loaded.bounds == (0.0, 1.0)
    assert torch.equal(data.load(f"{source.name}:{split}").inputs, loaded.inputs)


def test_images_and_labels_must_match(
    root: Path, images: torch.Tensor, labels: torch.Tensor
) -> None:
    write(root / "mnist" / "t10k-images-idx3-ubyte", idx_bytes(images))
    path = write(root / "mnist" / "t10k-labels-idx1-ubyte", idx_bytes(labels[:-1]))
    with pytest.raises(ArgumentError, match="7 labels, as many as images, got 6") as caught:
        data.mnist("test")
    assert str(path) in str(caught.value)
    write(path, idx_bytes(labels + 1))
    with pytest.raises(ArgumentError, match="labels below 10, got 10"):
        data.mnist("test")
    write(root / "mnist" / "t10k-images-idx3-ubyte", idx_bytes(images[:, 1:]))
    with pytest.raises(ArgumentError, match="images of 28x28 pixels"):
        data.mnist("test")


# CIFAR-10: 6 images in each of the batches

IMAGES = random_images(6, 6)  # batch 5 of these is the test batch
LABELS = np.random.default_rng(1).integers(10, size=(6, 6)).astype(np.uint8)


def write_binary(root: Path, batch: str, images: Bytes, labels: Bytes) -> None:
    records = b"".join(
        bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True)
    )
    write(root / "cifar-10-batches-bin" / f"{batch}.bin", records)


def write_mosaic(root: Path, batch: str, images: Bytes, labels: Bytes) -> None:
    folder = root / "cifar10"
    write(folder / f"{batch}.webp", webp(images.reshape(2, -1, 3, 32, 32)))
    np.savez(
        folder / "labels.npz",
        train=LABELS[:5].reshape(-1),
        test=LABELS[5],
        classes=np.array(image_sets.CIFAR_CLASSES),
    )


WRITERS = {"binary": write_binary, "mosaic": write_mosaic}
Writer = Callable[[Path, str, Bytes, Bytes], None]
each_form = pytest.mark.parametrize("write_batch", WRITERS.values(), ids=WRITERS)


@each_form
def test_cifar10_is_read_as_written(root: Path, write_batch: Writer) -> None:
    for index, batch in enumerate([*TRAIN, "test_batch"]):
        write_batch(root, batch, IMAGES[index], LABELS[index])
    train, test = data.cifar10("train"), data.cifar10("test")
    assert_holds(train, IMAGES[:5].reshape(-1, 3, 32, 32), LABELS[:5].reshape(-1))
    assert_holds(test, IMAGES[5], LABELS[5])
    assert (train.name, test.name) == ("cifar10:train", "cifar10:test")
    assert train.classes[3] == "cat"
    assert torch.equal(data.load("cifar10:train").inputs, train.inputs)
    assert torch.equal(data.load("cifar10:test").inputs, test.inputs)


@each_form
def test_the_training_batches_that_are_there_are_loaded_and_named(
    root: Path, write_batch: Writer
) -> None:
    write_batch(root, TRAIN[3], IMAGES[3], LABELS[3])
    only = data.cifar10("train")
    assert_holds(only, IMAGES[3], LABELS[3])
    assert only.name == "cifar10:train (batch 4 of 5)"
    write_batch(root, TRAIN[1], IMAGES[1], LABELS[1])
    both = data.cifar10("train")
    assert_holds(both, IMAGES[[1, 3]].reshape(-1, 3, 32, 32), LABELS[[1, 3]].reshape(-1))
    assert both.name == "cifar10:train (batches 2, 4 of 5)"
    with pytest.raises(data.MissingDataError, match="test_batch"):
        data.cifar10("test")


def test_the_form_with_most_batches_is_taken(root: Path) -> None:
    write_binary(root, TRAIN[0], IMAGES[0], LABELS[0])
    for index in (1, 2):
        write_mosaic(root, TRAIN[index], IMAGES[index], LABELS[index])
    assert data.cifar10().name == "cifar10:train (batches 2, 3 of 5)"
    write_binary(root, TRAIN[1], IMAGES[1], LABELS[1])
    assert data.cifar10().name == "cifar10:train (batches 1, 2 of 5)"


def test_broken_binary_batches_are_refused(root: Path) -> None:
    path = root / "cifar-10-batches-bin" / "test_batch.bin"
    for content in (b"", bytes(3072), bytes(3074)):
        write(path, content)
        with pytest.raises(ArgumentError, match="records of 3073 bytes") as caught:
            data.cifar10("test")
        assert str(path) in str(caught.value)
    write(path, bytes([10]) + bytes(3072))
    with pytest.raises(ArgumentError, match="labels below 10, got 10"):
        data.cifar10("test")


def test_broken_mosaics_are_refused(root: Path) -> None:
    folder = root / "cifar10"
    write_mosaic(root, "test_batch", IMAGES[5], LABELS[5])
    picture = (folder / "test_batch.webp").read_bytes()
    for content in (b"", picture[:-100], b"\x89PNG" + picture[4:]):
        write(folder / "test_batch.webp", content)
        with pytest.raises(ArgumentError, match="a WebP picture"):
            data.cifar10("test")
    file = io.BytesIO()
    Image.new("RGB", (64, 33)).save(file, "WEBP")
    write(folder / "test_batch.webp", file.getvalue())
    with pytest.raises(ArgumentError, match="whole tiles of 32x32 pixels, got 64x33"):
        data.cifar10("test")
    write(folder / "test_batch.webp", picture)
    np.savez(folder / "labels.npz", test=LABELS[5][:-1])
    with pytest.raises(
        ArgumentError,
        match=r"uint8 test labels, 6 for each of 1 batches, got uint8 of shape \(5,\)",
    ):
        data.cifar10("test")
    np.savez(folder / "labels.npz", train=LABELS[5])
    with pytest.raises(ArgumentError, match="the array 'test' in a NumPy archive"):
        data.cifar10("test")
    np.savez(folder / "labels.npz", test=np.array([None] * 6))  # objects are pickles
    with pytest.raises(ArgumentError, match="the array 'test' in a NumPy archive"):
        data.cifar10("test")
    (folder / "labels.npz").unlink()
    with pytest.raises(data.MissingDataError, match=r"labels.npz"):
        data.cifar10("test")


@pytest.mark.parametrize(
    ("loader", "words"),
    [
        (
            data.mnist,
            ["mnist", "MNIST/raw", "t10k-images-idx3-ubyte", "STANDFAST_DATA", "download=True"],
        ),
        (data.cifar10, ["cifar-10-batches-bin", "test_batch", "STANDFAST_DATA", "download=True"]),
        (data.gtsrb, ["gtsrb_small", "torchvision:GTSRB:test"]),
    ],
)
def test_missing_data_and_unknown_splits(
    root: Path, loader: Callable[..., data.Dataset], words: list[str]
) -> None:
    with pytest.raises(data.MissingDataError) as caught:
        loader("test")
    assert isinstance(caught.value, (StandfastError, FileNotFoundError))
    assert all(word in str(caught.value) for word in (str(root), *words))
    with pytest.raises(ArgumentError, match="split: expected train or test, got 'validation'"):
        loader("validation")


# GTSRB


def write_small(folder: Path, rows: list[list[Any]], tiles: Bytes) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        write(folder / f"{split}.webp", webp(np.roll(tiles, seed, axis=1)))
    with (folder / "sources.csv").open("w", newline="") as file:
        csv.writer(file).writerows([["split", "class_id", "column", "original_file"], *rows])


def test_small_mosaics(root: Path) -> None:
    tiles = random_images(43, 3)
    places = [
        (label, column) for label in range(43) for column in range(3 if label < 40 else 2)
    ]  # the last rows end early
    rows = [[split, *place, "a.ppm"] for split in ("train", "test") for place in places]
    write_small(root / "gtsrb_small", rows, tiles)
    labels, columns = (np.array(each) for each in zip(*places, strict=True))
    train, test = data.gtsrb("train"), data.gtsrb("test")
    assert_holds(train, tiles[labels, columns], labels)
    assert_holds(test, tiles[labels, columns - 1], labels)
    assert (train.name, test.name) == ("gtsrb:train (gtsrb_small)", "gtsrb:test (gtsrb_small)")
    assert train.classes[14] == "stop"
    assert len(set(train.classes)) == 43


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (["train", 0, 3, ""], r"expected tiles within 2 rows and 3 columns, got \('train', 0, 3\)"),
        (["train", 2, 0, ""], "expected tiles within"),
        (["train", "", 0, ""], "expected tiles within"),
        (["train", "x", 0, ""], "a table with the columns split, class_id, column"),
        (["test", 0, 0, ""], "lines for the split train"),
    ],
)
def test_broken_small_mosaics_are_refused(root: Path, row: list[Any], complaint: str) -> None:
    write_small(root / "gtsrb_small", [row], random_images(2, 3))
    with pytest.raises(ArgumentError, match=complaint):
        data.gtsrb("train")


# downloads: pooch checks and stores, only the transport is replaced


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """URL -> content; anything else is as without a network."""
    served: dict[str, bytes] = {}

    def fetch(self: Any, url: str, output_file: str, pooch_: Any, check_only: bool = False) -> None:
        if url not in served:
            raise ConnectionError(f"no network for {url}")
        Path(output_file).write_bytes(served[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", fetch)
    return served


def test_a_download_is_checked_stored_and_found_again(
    root: Path,
    images: torch.Tensor,
    labels: torch.Tensor,
    mirror: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = {
        "t10k-images-idx3-ubyte.gz": gzip.compress(idx_bytes(images)),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(idx_bytes(labels)),
    }
    for name, content in files.items():
        monkeypatch.setitem(MNIST.md5, name, hashlib.md5(content).hexdigest())
    mirror.update({MNIST.mirror + name: content for name, content in files.items()})
    fetched = data.mnist("test", download=True)
    assert torch.equal(fetched.inputs[:, 0], images / 255)
    assert sorted(path.name for path in (root / "mnist").iterdir()) == sorted(files)
    mirror.clear()
    assert torch.equal(data.load("mnist:test", download=True).inputs, fetched.inputs)
    assert torch.equal(data.mnist("test").inputs, fetched.inputs)


def test_a_wrong_checksum_leaves_nothing_behind(
    root: Path, images: torch.Tensor, mirror: dict[str, bytes]
) -> None:
    mirror[MNIST.mirror + "t10k-images-idx3-ubyte.gz"] = gzip.compress(idx_bytes(images))
    with pytest.raises(data.MissingDataError, match="could not download"):
        data.mnist("test", download=True)
    assert list((root / "mnist").iterdir()) == []


def test_cifar10_is_downloaded_checked_and_unpacked(
    root: Path, tmp_path: Path, mirror: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, batch in enumerate([*TRAIN, "test_batch"]):
        write_binary(tmp_path, batch, IMAGES[index], LABELS[index])
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
        packed.add(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", "../outside.bin")
    mirror[image_sets.CIFAR_URL] = file.getvalue()
    write_mosaic(root, TRAIN[0], IMAGES[0], LABELS[0])  # a part of it is there already
    # the checksum is another
    with pytest.raises(data.MissingDataError, match="could not download"):
        data.cifar10("train", download=True)
    monkeypatch.setattr(image_sets, "CIFAR_MD5", hashlib.md5(file.getvalue()).hexdigest())
    train = data.cifar10("train", download=True)
    assert train.name == "cifar10:train"
    assert_holds(train, IMAGES[:5].reshape(-1, 3, 32, 32), LABELS[:5].reshape(-1))
    mirror.clear()
    assert_holds(data.cifar10("test", download=True), IMAGES[5], LABELS[5])
    assert not (tmp_path / "outside.bin").exists()
    assert len(list((root / "cifar-10-batches-bin").iterdir())) == 6


@pytest.mark.parametrize(
    "loader", [data.cifar10, data.fashion_mnist], ids=["cifar10", "fashion_mnist"]
)
def test_without_a_network_a_download_says_so(
    root: Path, mirror: dict[str, bytes], loader: Callable[..., data.Dataset]
) -> None:
    with pytest.raises(data.MissingDataError, match=r"could not download http.*no network"):
        loader("test", download=True)


# the real files


def real(loader: Callable[..., data.Dataset], split: str) -> data.Dataset:
    try:
        return loader(split)
    except data.MissingDataError as missing:
        pytest.skip(str(missing))


def test_real_cifar10() -> None:
    test = real(data.cifar10, "test")
    assert test.inputs.shape == (10000, 3, 32, 32)
    assert test.labels.bincount().tolist() == [1000] * 10
    # a cat, two ships, an airplane, ...
    assert test.labels[:10].tolist() == [
        3,
        8,
        8,
        0,
        6,
        6,
        1,
        6,
        3,
        1,
    ]
    # published for the training images, and nearly the same here
    assert test.inputs.mean((0, 2, 3)).tolist() == pytest.approx(
        [0.4914, 0.4822, 0.4465], abs=0.005
    )
    assert test.inputs.std((0, 2, 3)).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.005)


def test_real_gtsrb() -> None:
    train, test = real(data.gtsrb, "train"), real(data.gtsrb, "test")
    for each in (train, test):
        assert each.inputs.shape[1:] == (3, 32, 32)
        assert (each.labels.bincount() > 0).sum() == 43
    assert test.labels.bincount().unique().numel() == 1
    stop, ahead = (train.inputs[train.labels == label].mean((0, 2, 3)) for label in (14, 35))
    assert stop[0] > stop[2]  # red
    assert ahead[2] > ahead[0]  # blue


def test_real_mnist() -> None:
    for loader in (data.mnist, data.fashion_mnist):
        test = real(loader, "test")
        assert test.inputs.shape == (10000, 1, 28, 28)
        published = [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]  # counts of the digits
        assert test.labels.bincount().tolist() == (
            published if loader is data.mnist else [1000] * 10
        )
