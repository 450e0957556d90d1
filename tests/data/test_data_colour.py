"""CIFAR-10 and GTSRB in each of their forms, written here from their descriptions; hostile pickles; downloads."""

from __future__ import annotations

import csv
import hashlib
import io
import os
import pickle
import tarfile
import zipfile
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
from standfast.data import cifar
from standfast.data.gtsrb_files import MD5, MIRROR
from standfast.errors import ArgumentError

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


# CIFAR-10: 6 images in each of the batches

IMAGES = random_images(6, 6)  # batch 5 of these is the test batch
LABELS = np.random.default_rng(1).integers(10, size=(6, 6)).astype(np.uint8)


def pickled(images: Bytes, labels: Bytes, protocol: int = 2, /, **changes: Any) -> bytes:
    """As in the official files: byte strings for keys, a list of numbers, an array (N, 3072)."""
    batch = {b"batch_label": b"training batch 1 of 5", b"labels": labels.tolist(), b"data": images.reshape(-1, 3072)}
    batch |= {b"filenames": [b"a_%d.png" % i for i in range(len(images))]}
    return pickle.dumps(batch | {key.encode(): value for key, value in changes.items()}, protocol)


def write_python(root: Path, batch: str, images: Bytes, labels: Bytes) -> None:
    write(root / "cifar-10-batches-py" / batch, pickled(images, labels))


def write_binary(root: Path, batch: str, images: Bytes, labels: Bytes) -> None:
    records = b"".join(bytes([label]) + image.tobytes() for image, label in zip(images, labels, strict=True))
    write(root / "cifar-10-batches-bin" / f"{batch}.bin", records)


def write_mosaic(root: Path, batch: str, images: Bytes, labels: Bytes) -> None:
    folder = root / "cifar10"
    write(folder / f"{batch}.webp", webp(images.reshape(2, -1, 3, 32, 32)))
    np.savez(folder / "labels.npz", train=LABELS[:5].reshape(-1), test=LABELS[5], classes=np.array(cifar.CLASSES))


WRITERS = {"python": write_python, "binary": write_binary, "mosaic": write_mosaic}
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
def test_the_training_batches_that_are_there_are_loaded_and_named(root: Path, write_batch: Writer) -> None:
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
    write_python(root, TRAIN[0], IMAGES[0], LABELS[0])
    for index in (1, 2):
        write_binary(root, TRAIN[index], IMAGES[index], LABELS[index])
    assert data.cifar10().name == "cifar10:train (batches 2, 3 of 5)"
    write_python(root, TRAIN[1], IMAGES[1], LABELS[1])
    assert data.cifar10().name == "cifar10:train (batches 1, 2 of 5)"


@pytest.mark.parametrize("protocol", range(1, 5))
def test_pickles_of_any_protocol_with_a_plain_array(tmp_path: Path, protocol: int) -> None:
    path = write(tmp_path / "batch", pickled(IMAGES[0], LABELS[0], protocol))
    images, labels = cifar.read_pickle(path)
    assert np.array_equal(images, IMAGES[0])
    assert np.array_equal(labels, LABELS[0])


def test_a_pickle_of_python_2(tmp_path: Path) -> None:
    """Its strings are opcodes of their own; these are those of the official files, one image."""
    image = IMAGES[0, :1].tobytes()
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntU\x01btR(I1\n(I1\nI3072\nt"
    array += b"cnumpy\ndtype\n(U\x02u1I0\nI1\ntR(I3\nU\x01|NNNI-1\nI-1\nI0\ntb"
    array += b"I00\nT" + len(image).to_bytes(4, "little") + image + b"tb"
    path = write(tmp_path / "batch", b"\x80\x02}(U\x04data" + array + b"U\x06labels](I7\neu.")
    images, labels = cifar.read_pickle(path)
    assert np.array_equal(images, IMAGES[0, :1])
    assert labels.tolist() == [7]


def test_an_array_in_column_order(tmp_path: Path) -> None:
    columns_first = np.asfortranarray(IMAGES[0].reshape(-1, 3072))
    images, _ = cifar.read_pickle(write(tmp_path / "batch", pickled(IMAGES[0], LABELS[0], data=columns_first)))
    assert np.array_equal(images, IMAGES[0])


class Evil:
    """Makes a folder when it is unpickled the usual way."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "function",
    [os.mkdir, os.makedirs, np.load, np.memmap, exec, getattr, __import__],
    ids=lambda function: function.__name__,
)
def test_a_hostile_pickle_is_not_run(root: Path, tmp_path: Path, function: Callable[..., Any], protocol: int) -> None:
    witness = tmp_path / "witness"
    argument = f"__import__('os').mkdir({str(witness)!r})" if function is exec else str(witness)
    hostile = Evil(function, argument)
    write(root / "cifar-10-batches-py" / "test_batch", pickled(IMAGES[0], LABELS[0], protocol, evil=hostile))
    with pytest.raises(ArgumentError, match="which no batch needs"):
        data.cifar10("test")
    assert not witness.exists()
    if function in (os.mkdir, os.makedirs, exec):  # and otherwise it would have been
        pickle.loads(pickle.dumps(hostile, protocol))
        assert witness.exists()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "EOFError"),
        (pickled(IMAGES[0], LABELS[0])[:-500], "a pickled batch"),
        (b"\x80\x02cnumpy\nload\n.", "numpy.load, which no batch needs"),
        (b"\x80\x04\x8c\x05numpy\x8c\x0fcore.multiarray\x93.", "which no batch needs"),
        (b"\x80\x02cnumpy\ndtype\n(U\x02O8tR.", "an array of bytes"),
        (b"\x80\x02cnumpy\ndtype\n}U\x08__init__Nsb.", "a pickled batch"),  # a new state for a class
        (b"\x80\x02c_codecs\nencode\n(X\x01\0\0\0aX\x06\0\0\0base64tR.", "expected latin1"),
        (b"\x80\x02Pname\n.", "a pickled batch"),
        (pickle.dumps([1, 2]), "a dictionary, got list"),
        (pickle.dumps({b"labels": [1]}), "data: bytes of shape"),
        (pickled(IMAGES[0], LABELS[0], data=IMAGES[0]), "a pickled batch"),
        (pickled(IMAGES[0], LABELS[0], data=IMAGES[0].reshape(-1, 3072).astype(np.float32)), "an array of bytes"),
        (pickled(IMAGES[0], LABELS[0], 4, data=np.empty((0, 3072), np.uint8)), "data: bytes of shape"),
        (pickled(IMAGES[0], LABELS[0], data=b"0" * 3072), "data: bytes of shape"),
        (pickled(IMAGES[0], LABELS[0][:-1]), "6 labels, as many as images, got 5"),
        (pickled(IMAGES[0], LABELS[0] + 10), "labels: a list of numbers below 10"),
        (pickled(IMAGES[0], LABELS[0], labels=["1"] * 6), "labels: a list of numbers below 10"),
    ],
)
def test_a_broken_pickle_is_refused_with_its_path(tmp_path: Path, content: bytes, complaint: str) -> None:
    path = write(tmp_path / "data_batch_1", content)
    with pytest.raises(ArgumentError, match=complaint) as caught:
        cifar.read_pickle(path)
    assert str(path) in str(caught.value)


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
    with pytest.raises(ArgumentError, match=r"uint8 test labels, 6 for each of 1 batches, got uint8 of shape \(5,\)"):
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


@pytest.mark.parametrize("loader", [data.cifar10, data.gtsrb], ids=["cifar10", "gtsrb"])
def test_missing_data_and_unknown_splits(root: Path, loader: Callable[..., data.Dataset]) -> None:
    with pytest.raises(data.MissingDataError) as caught:
        loader("test")
    for word in (root, "STANDFAST_DATA", "download=True"):
        assert str(word) in str(caught.value)
    with pytest.raises(ArgumentError, match="split: expected train or test, got 'validation'"):
        loader("validation")


# GTSRB


def ppm(image: Bytes) -> bytes:
    """A picture (3, H, W), binary, written straight from the format's description."""
    _, height, width = image.shape
    return b"P6\n%d %d\n255\n" % (width, height) + image.transpose(1, 2, 0).tobytes()


HEADER = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"
FRAMED = np.random.default_rng(2).integers(256, size=(43, 3, 44, 42), dtype=np.uint8)  # the sign is at [6:38, 5:37]
SIGNS = FRAMED[:, :, 6:38, 5:37]


def write_class(images: Path, label: int, row: str = "00000_00000.ppm;42;44;5;6;37;38;{label}") -> Path:
    folder = images / f"{label:05}"
    write(folder / "00000_00000.ppm", ppm(FRAMED[label]))
    lines = [HEADER, row.format(label=label)]
    return write(folder / f"GT-{label:05}.csv", ("\r\n".join(lines) + "\r\n").encode())


def write_test(images: Path, table: Path, labels: list[int]) -> None:
    rows = [HEADER]
    for number, label in enumerate(labels):
        write(images / f"{number:05}.ppm", ppm(FRAMED[label]))
        rows.append(f"{number:05}.ppm;42;44;5;6;37;38;{label}")
    write(table, "\n".join(rows).encode())


@pytest.mark.parametrize("base", ["GTSRB", "gtsrb/GTSRB"])
def test_official_training_images(root: Path, base: str) -> None:
    for label in range(42):
        write_class(root / base / "Final_Training" / "Images", label)
    with pytest.raises(data.MissingDataError):  # a class is not there yet
        data.gtsrb("train")
    write_class(root / base / "Final_Training" / "Images", 42)
    loaded = data.gtsrb("train")
    assert loaded.name == "gtsrb:train"
    assert_holds(loaded, SIGNS, range(43))
    assert len(set(loaded.classes)) == 43
    assert (loaded.classes[14], loaded.classes[33], loaded.classes[40]) == ("stop", "turn right", "roundabout")
    assert torch.equal(data.load("gtsrb:train").inputs, loaded.inputs)


@pytest.mark.parametrize(
    "table", ["GTSRB/Final_Test/Images", "GTSRB/Final_Test", "GTSRB", "."], ids=["images", "test", "base", "root"]
)
def test_official_test_images(root: Path, table: str) -> None:
    write_test(root / "GTSRB/Final_Test/Images", root / table / "GT-final_test.csv", [7, 3, 7, 42])
    loaded = data.gtsrb("test")
    assert loaded.name == "gtsrb:test"
    assert_holds(loaded, SIGNS[[7, 3, 7, 42]], [7, 3, 7, 42])
    assert torch.equal(data.load("gtsrb:test").inputs, loaded.inputs)


def test_signs_are_scaled_without_their_margin(root: Path) -> None:
    """A sign of one colour in a frame of another: nothing of the frame is left, at any size."""
    folder = root / "GTSRB/Final_Test/Images"
    for width, height in ((96, 40), (15, 20)):
        picture = np.zeros((3, height + 11, width + 13), np.uint8)
        picture[:, 5:-6, 6:-7] = np.array([10, 100, 200], np.uint8)[:, None, None]
        write(folder / "0.ppm", ppm(picture))
        row = f"0.ppm;{width + 13};{height + 11};6;5;{6 + width};{5 + height};1"
        write(folder / "GT-final_test.csv", f"{HEADER}\n{row}\n".encode())
        expected = torch.tensor([10, 100, 200])[None, :, None, None].expand(1, 3, 32, 32) / 255
        assert torch.equal(data.gtsrb("test").inputs, expected)


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("00000_00000.ppm;42;44;5;6;43;38;1", "a region of interest within 42x44 pixels"),
        ("00000_00000.ppm;42;44;5;6;5;38;1", "a region of interest within"),
        ("00000_00000.ppm;42;44;-1;6;37;38;1", "a region of interest within"),
        ("00000_00000.ppm;42;44;5;6;37;38;43", r"line 2: expected a class in 0 \.\. 42, got 43"),
        ("00000_00000.ppm;42;44;5;6;37;38;", "line 2: expected whole numbers"),
        ("00000_00000.ppm;42;44;5", "line 2: expected whole numbers"),
        ("00001_00000.ppm;42;44;5;6;37;38;1", "a PPM picture"),
        ("../00002/00000_00000.ppm;42;44;5;6;37;38;1", "line 2: expected the name of a file"),
        ("GT-00001.csv;42;44;5;6;37;38;1", "a PPM picture"),
        ("", "at least one image"),
        ("\xff;;", "a table as text"),
    ],
)
def test_broken_official_tables_are_refused(root: Path, row: str, complaint: str) -> None:
    images = root / "GTSRB/Final_Training/Images"
    for label in range(43):
        write_class(images, label)
    path = write_class(images, 1, row)
    path.write_bytes(path.read_bytes().replace("\xff".encode(), b"\xff"))
    with pytest.raises(ArgumentError, match=complaint) as caught:
        data.gtsrb("train")
    assert "00001" in str(caught.value)
    write(path, b"Filename;ClassId\n")
    with pytest.raises(ArgumentError, match=r"columns Filename, Roi.X1, .* got Filename, ClassId"):
        data.gtsrb("train")


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
    write_test(root / "GTSRB/Final_Test/Images", root / "GTSRB/GT-final_test.csv", [1])
    assert data.gtsrb("test").name == "gtsrb:test"  # the official images come first
    assert data.gtsrb("train").name == "gtsrb:train (gtsrb_small)"


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        (["train", 0, 3, ""], "line 2: expected a tile within 2 rows and 3 columns"),
        (["train", 2, 0, ""], "line 2: expected a tile within"),
        (["train", 43, 0, ""], r"line 2: expected a class in 0 \.\. 42"),
        (["train", "", 0, ""], "line 2: expected whole numbers"),
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


def test_cifar10_is_downloaded_checked_and_unpacked(
    root: Path, tmp_path: Path, mirror: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    for index, batch in enumerate([*TRAIN, "test_batch"]):
        write_binary(tmp_path, batch, IMAGES[index], LABELS[index])
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as packed:
        packed.add(tmp_path / "cifar-10-batches-bin", "cifar-10-batches-bin")
        packed.add(tmp_path / "cifar-10-batches-bin" / "test_batch.bin", "../outside.bin")
    mirror[cifar.URL] = file.getvalue()
    write_mosaic(root, TRAIN[0], IMAGES[0], LABELS[0])  # a part of it is there already
    with pytest.raises(data.MissingDataError, match="could not download"):  # the checksum is another
        data.cifar10("train", download=True)
    monkeypatch.setattr(cifar, "MD5", hashlib.md5(file.getvalue()).hexdigest())
    train = data.cifar10("train", download=True)
    assert train.name == "cifar10:train"
    assert_holds(train, IMAGES[:5].reshape(-1, 3, 32, 32), LABELS[:5].reshape(-1))
    mirror.clear()
    assert_holds(data.cifar10("test", download=True), IMAGES[5], LABELS[5])
    assert not (tmp_path / "outside.bin").exists()
    assert len(list((root / "cifar-10-batches-bin").iterdir())) == 6


def zipped(folder: Path, names: Iterable[str]) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as packed:
        for name in names:
            packed.write(folder / name, name)
        packed.writestr("../outside.ppm", b"")
    return file.getvalue()


def test_gtsrb_is_downloaded_checked_and_unpacked(
    root: Path, tmp_path: Path, mirror: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    for label in range(43):
        write_class(source / "GTSRB/Final_Training/Images", label)
    write_test(source / "GTSRB/Final_Test/Images", source / "GT-final_test.csv", [5, 4])
    files = [str(file.relative_to(source)) for file in source.rglob("*") if file.is_file()]
    archives = {
        "GTSRB_Final_Training_Images.zip": zipped(source, [name for name in files if "Training" in name]),
        "GTSRB_Final_Test_Images.zip": zipped(source, [name for name in files if "Final_Test/" in name]),
        "GTSRB_Final_Test_GT.zip": zipped(source, ["GT-final_test.csv"]),
    }
    mirror.update({MIRROR + name: content for name, content in archives.items()})
    with pytest.raises(data.MissingDataError, match="could not download"):  # the checksum is another
        data.gtsrb("train", download=True)
    for split, md5s in MD5.items():
        found = {name: hashlib.md5(archives[name]).hexdigest() for name in md5s}
        monkeypatch.setitem(MD5, split, found)
    assert_holds(data.gtsrb("train", download=True), SIGNS, range(43))
    assert_holds(data.gtsrb("test", download=True), SIGNS[[5, 4]], [5, 4])
    mirror.clear()
    assert data.gtsrb("test", download=True).name == "gtsrb:test"
    folders = {path.name for path in root.iterdir()}
    assert folders - set(archives) <= {"GTSRB"}
    assert not (tmp_path / "outside.ppm").exists()


@pytest.mark.parametrize("loader", [data.cifar10, data.gtsrb], ids=["cifar10", "gtsrb"])
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
    train, test = real(data.cifar10, "train"), real(data.cifar10, "test")
    assert test.inputs.shape == (10000, 3, 32, 32)
    assert test.labels.bincount().tolist() == [1000] * 10
    assert test.labels[:10].tolist() == [3, 8, 8, 0, 6, 6, 1, 6, 3, 1]  # a cat, two ships, an airplane, ...
    assert len(train) % 10000 == 0
    assert train.inputs.shape[1:] == (3, 32, 32)
    # of all training images: 0.4914, 0.4822, 0.4465 and 0.2470, 0.2435, 0.2616
    assert train.inputs.mean((0, 2, 3)).tolist() == pytest.approx([0.4914, 0.4822, 0.4465], abs=0.005)
    assert train.inputs.std((0, 2, 3)).tolist() == pytest.approx([0.2470, 0.2435, 0.2616], abs=0.005)


def test_real_gtsrb() -> None:
    train, test = real(data.gtsrb, "train"), real(data.gtsrb, "test")
    for each in (train, test):
        assert each.inputs.shape[1:] == (3, 32, 32)
        assert (each.labels.bincount() > 0).sum() == 43
    if "gtsrb_small" in test.name:
        assert test.labels.bincount().unique().numel() == 1
    else:
        assert (len(train), len(test)) == (39209, 12630)
    stop, ahead = (train.inputs[train.labels == label].mean((0, 2, 3)) for label in (14, 35))
    assert stop[0] > stop[2]  # red
    assert ahead[2] > ahead[0]  # blue
