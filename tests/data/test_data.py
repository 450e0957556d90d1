"""Data sets: the IDX format, where files are searched for, downloads, the bundled digits, the registry."""

import gzip
import hashlib
import struct
import warnings
from pathlib import Path

import numpy as np
import pooch
import pytest
import torch
from refusals import assert_refused
from torch import nn

import standfast
from standfast import data
from standfast.data.idx import read_idx
from standfast.data.mnist_files import FASHION_MNIST, MNIST
from standfast.errors import ArgumentError, StandfastError, UnknownNameError


def idx_bytes(values: torch.Tensor, kind: int = 8) -> bytes:
    """The IDX file of a uint8 tensor, written straight from the format's description."""
    sizes = b"".join(struct.pack(">I", size) for size in values.shape)
    return bytes([0, 0, kind, values.ndim]) + sizes + bytes(values.flatten().tolist())


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randint(256, (7, 28, 28), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)


@pytest.fixture
def labels() -> torch.Tensor:
    return torch.tensor([3, 1, 4, 1, 5, 9, 2], dtype=torch.uint8)


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


# the IDX format


@pytest.mark.parametrize("pack", [bytes, gzip.compress], ids=["plain", "gzip"])
def test_idx_is_read_as_written(tmp_path, images, labels, pack):
    image_path = write(tmp_path / "images", pack(idx_bytes(images)))
    label_path = write(tmp_path / "labels", pack(idx_bytes(labels)))
    assert torch.equal(read_idx(image_path, dimensions=3), images)
    assert torch.equal(read_idx(label_path, dimensions=1), labels)


def test_idx_sizes_are_big_endian_and_rows_come_first(tmp_path):
    content = b"\0\0\x08\x03" + b"\0\0\0\x01" + b"\0\0\0\x02" + b"\0\0\0\x03" + bytes([1, 2, 3, 4, 5, 6])
    assert read_idx(write(tmp_path / "file", content), dimensions=3).tolist() == [[[1, 2, 3], [4, 5, 6]]]


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
        (idx_bytes(torch.arange(24, dtype=torch.uint8).reshape(2, 3, 4), kind=9), "magic number 2051 .* 2307"),
        (idx_bytes(torch.arange(24, dtype=torch.uint8)), "magic number 2051 .* got 2049"),
        (b"\0\0\x08\x03" + b"\0" * 12, "no empty dimension"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "values for sizes"),
        (gzip.compress(good(), mtime=0)[:-12], "a complete gzip file"),
        (gzip.compress(good(), mtime=0)[:15], "a complete gzip file"),
        (gzip.compress(good(), mtime=0)[:12] + b"junk" + gzip.compress(good(), mtime=0)[16:], "a complete gzip file"),
        (gzip.compress(good()[:-1], mtime=0), "got 23 values"),
    ],
)
def test_broken_idx_is_refused_with_its_path(tmp_path, content, complaint):
    path = write(tmp_path / "broken-idx3-ubyte", content)
    with pytest.raises(ArgumentError, match=complaint) as caught:
        read_idx(path, dimensions=3)
    assert str(path) in str(caught.value)


# loading from a folder


@pytest.mark.parametrize("loader", [data.mnist, data.fashion_mnist], ids=["mnist", "fashion_mnist"])
@pytest.mark.parametrize(("split", "prefix"), [("train", "train"), ("test", "t10k")])
@pytest.mark.parametrize(("pack", "suffix"), [(bytes, ""), (gzip.compress, ".gz")], ids=["plain", "gzip"])
@pytest.mark.parametrize("layout", [0, 1], ids=["canonical", "torchvision"])
def test_files_are_found(root, images, labels, loader, split, prefix, pack, suffix, layout):
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


def test_missing_files_say_where_we_looked_and_what_to_do(root):
    with pytest.raises(data.MissingDataError) as caught:
        data.mnist("test")
    assert isinstance(caught.value, StandfastError)
    assert isinstance(caught.value, FileNotFoundError)
    for word in (
        root / "mnist",
        root / "MNIST" / "raw",
        "t10k-images-idx3-ubyte",
        "STANDFAST_DATA",
        "download=True",
    ):
        assert str(word) in str(caught.value)


def test_an_unknown_split_is_refused(root):
    with pytest.raises(ArgumentError, match="split: expected train or test, got 'validation'"):
        data.mnist("validation")


def test_images_and_labels_must_match(root, images, labels):
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


# downloads: pooch checks and stores, only the transport is replaced


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """URL -> content; anything else is as without a network. `pooch.HTTPDownloader` reads from it."""
    served: dict[str, bytes] = {}

    def fetch(self, url, output_file, pooch_, check_only=False):
        if url not in served:
            raise ConnectionError(f"no network for {url}")
        Path(output_file).write_bytes(served[url])

    monkeypatch.setattr(pooch.HTTPDownloader, "__call__", fetch)
    return served


def test_a_download_is_checked_stored_and_found_again(root, images, labels, mirror, monkeypatch):
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


def test_a_wrong_checksum_leaves_nothing_behind(root, images, mirror):
    mirror[MNIST.mirror + "t10k-images-idx3-ubyte.gz"] = gzip.compress(idx_bytes(images))
    with pytest.raises(data.MissingDataError, match="could not download"):
        data.mnist("test", download=True)
    assert list((root / "mnist").iterdir()) == []


def test_without_a_network_a_download_says_so(root, mirror):
    with pytest.raises(data.MissingDataError, match=r"could not download http.*no network"):
        data.fashion_mnist("train", download=True)


# the data root


def test_the_environment_names_the_root(root):
    assert data.data_root() == root


def test_the_root_beside_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("STANDFAST_DATA", raising=False)
    (tmp_path / "shared" / "data").mkdir(parents=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert data.data_root() == tmp_path / "shared" / "data"


def test_the_root_is_else_the_cache(tmp_path, monkeypatch):
    monkeypatch.delenv("STANDFAST_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("standfast.data.root._find_repository", list)
    assert data.data_root() == Path(pooch.os_cache("standfast"))


# the bundled digits


def test_bundled_digits():
    digits = data.bundled("digits")
    assert digits.name == "digits"
    assert len(digits) == 300
    assert digits.inputs.shape == (300, 1, 28, 28)
    assert digits.inputs.dtype == torch.float32
    assert digits.labels.dtype == torch.int64
    assert digits.classes == tuple("0123456789")
    assert digits.bounds == (0.0, 1.0)
    assert digits.inputs.min() == 0
    assert digits.inputs.max() == 1
    assert digits.labels.tolist() == list(range(10)) * 30
    assert 0.1 < digits.inputs.mean() < 0.16  # MNIST: 0.13
    assert len(digits.inputs.flatten(1).unique(dim=0)) == 300
    assert torch.equal(data.load("digits").inputs, digits.inputs)


def test_bundled_digits_can_be_changed_without_changing_the_next():
    data.bundled("digits").inputs.zero_()
    assert data.bundled("digits").inputs.max() == 1


def test_bundled_digits_are_the_first_of_the_test_set():
    try:
        test = data.mnist("test")
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    assert len(test) == 10000
    digits = data.bundled("digits")
    for label in range(10):
        expected = test.inputs[test.labels == label][:30]
        assert torch.equal(digits.inputs[digits.labels == label], expected)


@pytest.mark.parametrize("loader", [data.mnist, data.fashion_mnist], ids=["mnist", "fashion_mnist"])
def test_real_files(loader):
    try:
        test = loader("test")
    except data.MissingDataError as missing:
        pytest.skip(str(missing))
    assert test.inputs.shape == (10000, 1, 28, 28)
    if loader is data.fashion_mnist:
        assert test.labels.bincount().tolist() == [1000] * 10
    else:  # published counts of the test digits
        assert test.labels.bincount().tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


# the data set itself


@pytest.fixture
def small() -> data.Dataset:
    inputs = torch.linspace(0, 1, 6).reshape(6, 1, 1, 1)
    return data.Dataset("small", inputs, torch.tensor([1, 0, 1, 1, 0, 0]), ("a", "b"))


def test_slices_are_data_sets(small):
    part = small[1:4]
    assert isinstance(part, data.Dataset)
    assert (part.name, part.classes, part.bounds) == (small.name, small.classes, small.bounds)
    assert part.labels.tolist() == [0, 1, 1]
    assert torch.equal(part.inputs, small.inputs[1:4])
    assert len(small[:0]) == 0
    assert small[-2:].labels.tolist() == [0, 0]
    assert small[::-1].labels.tolist() == small.labels.tolist()[::-1]
    with pytest.raises(ArgumentError, match="index: expected a slice"):
        small[0]


def test_subsets_keep_the_order(small):
    part = small.subset(2)
    assert part.labels.tolist() == [1, 0, 1, 0]
    assert torch.equal(part.inputs, small.inputs[[0, 1, 2, 4]])
    assert small.subset(3).labels.tolist() == small.labels.tolist()
    assert small.subset(4, per_class=False).labels.tolist() == [1, 0, 1, 1]
    assert data.bundled("digits").subset(3).labels.tolist() == list(range(10)) * 3
    for n, per_class in [(0, True), (4, True), (7, False), (-1, False)]:
        with pytest.raises(ArgumentError, match="n: expected"):
            small.subset(n, per_class)


def test_taking_samples(small):
    assert torch.equal(small.take([3, 0]).inputs, small.inputs[[3, 0]])
    for index in (-1, 6):
        with pytest.raises(ArgumentError, match=r"indices: expected indices in 0 \.\. 5"):
            small.take([index])
    assert len(small.take([])) == 0
    for mask in ([True, False], [0.0, 1.0], [[0, 1]]):
        with pytest.raises(ArgumentError, match="indices: expected"):
            small.take(torch.tensor(mask))


def test_what_is_no_data_set_is_refused():
    def make(**change):
        given = {"inputs": torch.zeros(2, 1, 1, 1), "labels": torch.tensor([0, 1]), "classes": ("a", "b")}
        return data.Dataset("wrong", **(given | change))

    pixel = torch.ones(2, 1, 1, 1)
    assert_refused(make, inputs=[pixel.double(), pixel.byte(), pixel.numpy(), pixel[:, 0, 0, 0], 1.5 * pixel])
    assert_refused(make, inputs=[pixel * torch.nan], classes=[2, None, [0, 1], "ab"])
    assert_refused(make, labels=[torch.zeros(2), [0, 1], torch.tensor([0, 1]).numpy(), torch.tensor([0, 0, 0])])
    assert_refused(make, labels=[torch.tensor([0, 2]), torch.tensor([-1, 0])])
    bounds = [1.0, None, (0.0, 0.5, 1.0), ("0", "1"), (torch.zeros(3), torch.ones(2)), (1.0, 0.0)]
    assert_refused(make, bounds=bounds)
    with pytest.raises(ArgumentError, match=r"inputs: expected values in \[0, 1\], got \[0.5, 0.5\]"):
        make(inputs=torch.full((2, 2, 1, 1), 0.5), bounds=(0.0, torch.tensor([1.0, 0.4])[:, None, None]))
    with pytest.raises(ArgumentError, match=r"use x.float\(\), divided by 255"):
        make(inputs=pixel.byte())


def test_names_and_bounds_of_other_types_are_plain_in_a_data_set():
    """Such as the names of scikit-learn's data sets, which are an array."""
    x, y = torch.zeros(2, 1), torch.tensor([0, 1])
    found = data.Dataset("arrays", x, y, np.array(["a", "b"]), bounds=[torch.tensor(0), np.float64(1)])
    assert (found.classes, found.bounds) == (("a", "b"), (0, 1.0))


def test_the_bounds_of_a_classifier_are_accepted_wherever_bounds_are(tmp_path):
    x, y = torch.rand(3, 2, 4, 4), torch.tensor([0, 1, 1])
    np.savez(tmp_path / "x.npz", inputs=x.numpy(), labels=y.numpy())
    for bounds in ((0.0, 1.0), (torch.zeros(2, 1, 1), torch.tensor([1.0, 2.0])[:, None, None])):
        net = nn.Sequential(nn.Flatten(), nn.Linear(32, 2))
        model = standfast.Model(net, bounds, device="cpu")
        made = data.Dataset("own", x, y, ("a", "b"), model.bounds)
        for found in (
            made,
            made[:2],
            data.from_npz(tmp_path / "x.npz", bounds=model.bounds),
            data.conversion.collect(zip(x, y, strict=True), "pairs", bounds=model.bounds),
        ):
            for own, given in zip(found.bounds, bounds, strict=True):
                assert torch.equal(torch.as_tensor(own), torch.as_tensor(given))
            again = standfast.Model.from_callable(lambda rows: rows[:, 0, 0, 0], found.bounds)
            assert again.logits(found.inputs).shape == (len(found), 2)
            assert repr(found).endswith("bounds [0, 1])" if isinstance(bounds[0], float) else "bounds [0, 2])")
        region = standfast.LinfBall(0.3).around(x, model.bounds)
        upper = torch.as_tensor(made.bounds[1]).expand(3, 2, 4, 4)
        assert torch.equal(region.project(torch.full_like(x, 9.0)[:, None])[:, 0], torch.minimum(x + 0.3, upper))
        metric = standfast.metrics.AOPC(steps=2, samples=1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            standfast.evaluate(net, "saliency", made, metric, controls=False, progress=False)  # bounds of the data


def test_names_of_swapped_axes_are_noticed():
    series = torch.zeros(5, 20, 3)
    with pytest.raises(ArgumentError, match=r"features: .* got 3 for .*axes are swapped.*: use x.movedim\(-1, 1\)"):
        data.Dataset("s", series, torch.zeros(5, dtype=torch.int64), ("a",), features=("x", "y", "z"))


def test_unknown_names_suggest_a_near_one():
    with pytest.raises(UnknownNameError, match="did you mean 'digits'"):
        data.bundled("digit")
    with pytest.raises(UnknownNameError, match="did you mean 'mnist:test'"):
        data.load("mnist:tests")
