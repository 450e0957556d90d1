"""Data sets of hubs, on small files of the right format: through `datasets` itself, and stand-ins of torchvision's."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

import standfast
from standfast import data
from standfast.data.samples import to_input
from standfast.data.user_files import read_data

Bytes = npt.NDArray[np.uint8]
RNG = np.random.default_rng(0)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty data root."""
    monkeypatch.setenv("STANDFAST_DATA", str(tmp_path))
    return tmp_path


def pixels(count: int, height: int = 6, width: int = 5) -> Bytes:
    return RNG.integers(256, size=(count, height, width, 3), dtype=np.uint8)


def as_tensor(images: Bytes) -> torch.Tensor:
    return torch.from_numpy(images.astype(np.float32) / 255).permute(0, 3, 1, 2)


# inputs one by one


def test_pictures_of_every_mode() -> None:
    rgb = pixels(1)[0]
    picture = Image.fromarray(rgb)
    torch.testing.assert_close(to_input(picture), as_tensor(rgb[None])[0], rtol=0, atol=1e-7)
    grey = picture.convert("L")
    expected = torch.from_numpy(np.asarray(grey, dtype=np.float32) / 255)[None]
    torch.testing.assert_close(to_input(grey), expected, rtol=0, atol=1e-7)
    assert to_input(picture.convert("RGBA")).shape == (3, 6, 5)
    assert to_input(picture.convert("P")).shape == (3, 6, 5)
    assert to_input(picture.convert("CMYK")).shape == (3, 6, 5)
    assert set(to_input(picture.convert("1")).unique().tolist()) <= {0.0, 1.0}
    deep = Image.fromarray(np.array([[0, 65535, 32768]], dtype=np.uint16))
    assert to_input(deep).flatten().tolist() == pytest.approx([0.0, 1.0, 32768 / 65535])


def test_resizing_is_that_of_pillow() -> None:
    smooth = np.add.outer(np.arange(32), 2 * np.arange(48)).astype(np.float32) / 160
    picture = Image.fromarray((smooth * 255).astype(np.uint8))
    ours = to_input(picture, size=(8, 12))[0].numpy() * 255
    theirs = np.asarray(picture.resize((12, 8), Image.Resampling.BILINEAR), dtype=np.float32)
    np.testing.assert_allclose(ours, theirs, atol=1.0)
    assert to_input(picture, size=7).shape == (1, 7, 7)
    for wrong in (0, (3,), (3, 0), "3"):
        with pytest.raises(standfast.ArgumentError, match="size"):
            to_input(picture, size=wrong)  # type: ignore[arg-type]
    with pytest.raises(standfast.ArgumentError, match="size: expected none"):
        to_input(torch.zeros(3), size=2)


def test_numbers_are_taken_as_they_are_laid_out() -> None:
    assert to_input([[1, 2], [3, 4]]).tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert to_input(np.array([0, 255], dtype=np.uint8)).tolist() == [0.0, 1.0]
    assert to_input(torch.tensor([0.5], dtype=torch.float64)).dtype == torch.float32
    with pytest.raises(
        standfast.ArgumentError, match="input: expected a picture, a tensor, or numbers"
    ):
        to_input([[1.0], [1.0, 2.0]])
    with pytest.raises(standfast.ArgumentError, match="input"):
        to_input({"bytes": b""})


# NumPy files


def test_npz_holds_what_was_saved(tmp_path: Path) -> None:
    images, labels = pixels(4).transpose(0, 3, 1, 2), np.array([2, 0, 1, 1])
    np.savez_compressed(
        tmp_path / "a.npz", inputs=images, labels=labels, classes=np.array(["x", "y", "z"])
    )
    found = data.from_file(tmp_path / "a.npz")
    torch.testing.assert_close(found.inputs, torch.from_numpy(images / np.float32(255)))
    assert (found.name, found.labels.tolist(), found.classes) == (
        "a",
        [2, 0, 1, 1],
        ("x", "y", "z"),
    )
    series = RNG.normal(size=(4, 1, 9))
    np.savez(tmp_path / "b.npz", x=series, y=labels.astype(np.uint8))
    found = data.from_file(str(tmp_path / "b.npz"), name="series", bounds=(-10.0, 10.0))
    np.testing.assert_array_equal(found.inputs.numpy(), series.astype(np.float32))
    assert (found.name, found.bounds, found.classes) == ("series", (-10.0, 10.0), ("0", "1", "2"))


@pytest.mark.parametrize(
    ("shape", "use"),
    [
        ((4, 16, 16), r"x\[:, None\]"),
        ((4, 16, 16, 3), r"x.movedim\(-1, 1\)"),
        ((4, 1, 16, 16), ""),
        ((4, 3, 16), ""),  # a series
        ((4, 16), ""),
        ((4, 5, 16, 16), ""),
    ],
)
def test_pictures_in_another_layout_are_warned_of(
    tmp_path: Path, shape: tuple[int, ...], use: str
) -> None:
    np.savez(tmp_path / "x.npz", inputs=np.zeros(shape, np.uint8), labels=[0, 1, 0, 1])
    for read in (data.from_file, read_data):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert read(tmp_path / "x.npz").inputs.shape == shape
        assert [bool(re.search(use, str(each.message))) for each in caught] == [True] * bool(use)


@pytest.mark.parametrize(
    ("arrays", "expected"),
    [
        ({"x": np.zeros((2, 3))}, "path: expected samples with labels; .* got a.npz without"),
        ({"y": np.zeros(2, int)}, "path: expected an array called inputs or x, got a.npz with y"),
        (
            {"x": np.zeros((2, 3)), "y": np.zeros(3, int)},
            r"labels: expected shape \(2,\), got \(3,\)",
        ),
        (
            {"x": np.zeros((2, 3)), "y": np.zeros(2)},
            r"labels as whole numbers of shape \(N,\), the classes, got torch.float32",
        ),
        ({"x": np.zeros((2, 3), int), "y": np.zeros(2, int)}, "inputs as floats or uint8"),
        ({"x": np.full((2, 3), np.nan), "y": np.zeros(2, int)}, "expected finite values"),
        (
            {"x": np.full((2, 3), 7.0), "y": np.zeros(2, int)},
            r"inputs: expected values in \[0, 1\]",
        ),
        ({"x": np.array([[{}]]), "y": np.zeros(1, int)}, "refused because they could run code"),
    ],
)
def test_npz_that_does_not_fit(tmp_path: Path, arrays: dict[str, Any], expected: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(standfast.ArgumentError, match=expected):
        data.from_file(tmp_path / "a.npz")


def test_files_that_are_no_npz(tmp_path: Path) -> None:
    with pytest.raises(standfast.ArgumentError, match="a file or a folder that exists"):
        data.from_file(tmp_path / "none.npz")
    (tmp_path / "broken.npz").write_bytes(b"PK\3\4 and no more")
    (tmp_path / "junk.npz").write_bytes(b"abc")
    (tmp_path / "junk.npy").write_bytes(b"abc")
    for name in ("broken.npz", "junk.npz", "junk.npy"):
        with pytest.raises(
            standfast.ArgumentError, match=f"a {Path(name).suffix} file of numbers, got {name}"
        ) as refused:
            data.from_file(tmp_path / name)
        assert "Python objects" not in str(refused.value)


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    images = pixels(3)
    write(tmp_path / "pets" / "cat", images[:2], [0, 0])
    write(tmp_path / "pets" / "dog", images[2:], [0])
    found = data.from_file(tmp_path / "pets", size=4)
    assert (found.name, found.inputs.shape) == ("pets", (3, 3, 4, 4))
    # the first of each class, ...
    assert (found.labels.tolist(), found.classes) == (
        [0, 1, 0],
        ("cat", "dog"),
    )


# torchvision: its data sets' arguments and what they return, on folders of pictures


class Folder:
    """Pictures `<root>/<where>/<split>/<number>-<label>.png`, as torchvision gives them: Pillow's, and a number."""

    where = ""

    def __init__(self, root: str, split: str, download: bool = False) -> None:
        folder = Path(root) / self.where / split
        if download:
            write(folder, pixels(3), [0, 1, 0])
        if not folder.is_dir():
            raise RuntimeError(
                "Dataset not found or corrupted. You can use download=True to download it"
            )
        self.files, self.opened = sorted(folder.glob("*.png")), 0

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Any, Any]:
        self.opened += 1
        return Image.open(self.files[place]).convert("RGB"), int(
            self.files[place].stem.partition("-")[2]
        )


class CIFAR10(Folder):
    where, classes = "cifar-10-batches-py", ["airplane", "automobile"]

    def __init__(
        self, root: str, train: bool = True, transform: Any = None, download: bool = False
    ) -> None:
        super().__init__(root, "train" if train else "test", download)


class GTSRB(Folder):
    where = "gtsrb"

    def __init__(
        self, root: str, split: str = "train", transform: Any = None, download: bool = False
    ) -> None:
        if split not in ("train", "test"):
            raise ValueError(
                f"Unknown value '{split}' for argument split. Valid values are {{'train', 'test'}}."
            )
        super().__init__(root, split, download)


class Caltech101(Folder):
    where, categories = "caltech101", ["ant", "barrel"]

    def __init__(
        self,
        root: str,
        target_type: str = "category",
        transform: Any = None,
        download: bool = False,
    ) -> None:
        super().__init__(root, "all", download)


class ImageFolder:
    def __init__(self, root: str, transform: Any = None) -> None:
        # FileNotFoundError, as torchvision
        self.classes = sorted(path.name for path in Path(root).iterdir())
        self.files = [
            (file, n)
            for n, name in enumerate(self.classes)
            for file in sorted((Path(root) / name).iterdir())
        ]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[Any, int]:
        return Image.open(self.files[place][0]).convert("RGB"), self.files[place][1]


class ImageNet(Folder):
    classes = [("tench", "Tinca tinca"), ("goldfish",)]  # noqa: RUF012 - as torchvision

    def __init__(self, root: str, split: str = "train", **kwargs: Any) -> None:
        super().__init__(root, split)


def write(folder: Path, images: Bytes, labels: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for place, (image, label) in enumerate(zip(images, labels, strict=True)):
        Image.fromarray(image).save(folder / f"{place:03d}-{label}.png")


@pytest.fixture
def vision(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder in which torchvision searches; a stand-in replaces torchvision itself."""
    sets = (CIFAR10, GTSRB, Caltech101, ImageFolder, ImageNet)
    module = ModuleType("torchvision.datasets")
    for kind in sets:
        setattr(module, kind.__name__, kind)
    module.__all__ = [kind.__name__ for kind in sets]  # type: ignore[attr-defined]
    package = ModuleType("torchvision")
    package.datasets = module  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torchvision", package)
    monkeypatch.setitem(sys.modules, "torchvision.datasets", module)
    return root / "torchvision"


@pytest.mark.parametrize(
    ("name", "where", "classes"),
    [
        ("CIFAR10:test", "cifar-10-batches-py/test", ("airplane", "automobile")),
        ("CIFAR10:train", "cifar-10-batches-py/train", ("airplane", "automobile")),
        ("GTSRB:test", "gtsrb/test", ("0", "1")),
        ("Caltech101:all", "caltech101/all", ("ant", "barrel")),
        ("ImageNet:val", "imagenet/val", ("tench, Tinca tinca", "goldfish")),
    ],
)
def test_sets_of_torchvision_by_name(
    vision: Path, name: str, where: str, classes: tuple[str, ...]
) -> None:
    images, labels = pixels(4), [1, 0, 1, 1]
    write(vision / where, images, labels)
    found = data.load(f"torchvision:{name}")
    torch.testing.assert_close(found.inputs, as_tensor(images), rtol=0, atol=1e-7)
    assert (found.labels.tolist(), found.classes) == (labels, classes)
    assert (found.name, found.bounds) == (f"torchvision:{name}", (0.0, 1.0))


def test_options_in_the_name(vision: Path) -> None:
    images, labels = pixels(6), [0, 0, 0, 1, 1, 1]
    write(vision / "gtsrb" / "test", images, labels)
    found = data.load("torchvision:GTSRB:test:count=4,size=3x2")
    assert (found.labels.tolist(), found.inputs.shape) == ([0, 0, 0, 1], (4, 3, 3, 2))
    drawn = [data.load(f"torchvision:GTSRB:test:count=4,seed={seed}") for seed in (0, 0, 1)]
    assert torch.equal(drawn[0].inputs, drawn[1].inputs)
    assert not torch.equal(drawn[0].inputs, drawn[2].inputs)
    originals = as_tensor(images)
    places = [(each == originals).flatten(1).all(1).nonzero().item() for each in drawn[0].inputs]
    assert len(set(places)) == 4
    assert drawn[0].labels.tolist() == [labels[int(place)] for place in places]
    for wrong, argument in (
        ("colour=1", "name"),
        ("size", "name"),
        ("count=few", "count"),
        ("seed=-1", "seed"),
    ):
        with pytest.raises(standfast.ArgumentError, match=f"{argument}: expected"):
            data.load(f"torchvision:GTSRB:test:{wrong}")
    with pytest.raises(standfast.ArgumentError, match=r"count: expected 1 \.\. 6"):
        data.load("torchvision:GTSRB:test:count=7")


def test_folders_of_folders(vision: Path) -> None:
    images = pixels(3)
    write(vision / "pets" / "cat", images[:2], [0, 0])
    write(vision / "pets" / "dog", images[2:], [0])
    found = data.load("torchvision:ImageFolder:pets")
    torch.testing.assert_close(found.inputs, as_tensor(images), rtol=0, atol=1e-7)
    assert (found.labels.tolist(), found.classes) == ([0, 0, 1], ("cat", "dog"))
    for wrong in ("../pets", "/pets"):
        with pytest.raises(standfast.ArgumentError, match="a folder under torchvision/"):
            data.load(f"torchvision:ImageFolder:{wrong}")
    with pytest.raises(data.MissingDataError, match="pass download=True"):
        data.load("torchvision:ImageFolder:birds")


def test_what_is_not_there_says_what_to_do(vision: Path) -> None:
    with pytest.raises(
        data.MissingDataError, match=r"torchvision:GTSRB:test: not in .*torchvision.*pass"
    ):
        data.load("torchvision:GTSRB:test")
    assert len(data.load("torchvision:GTSRB:test", download=True)) == 3
    with pytest.raises(standfast.ArgumentError, match=r"did you mean 'GTSRB'"):
        data.load("torchvision:GTSBR:test")
    for name, wanted in (
        ("CIFAR10:val", "train or test"),
        ("GTSRB:val", "a split of GTSRB"),
        ("Caltech101:x", "all, since"),
    ):
        with pytest.raises(standfast.ArgumentError, match=f"split: expected {wanted}"):
            data.load(f"torchvision:{name}")
    for malformed in ("torchvision:CIFAR10", "torchvision::test"):
        with pytest.raises(standfast.ArgumentError, match="torchvision:<class>:<split>"):
            data.load(malformed)


def test_without_torchvision_the_extra_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torchvision.datasets", None)
    with pytest.raises(standfast.MissingExtraError, match=r"pip install 'standfast\[data\]'"):
        data.load("torchvision:CIFAR10:test")
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(standfast.MissingExtraError, match=r"pip install 'standfast\[data\]'"):
        data.load("huggingface:ylecun/mnist:test")


def test_any_set_of_torch() -> None:
    inputs, labels = torch.rand(6, 1, 4, 4), torch.tensor([0, 1, 2, 0, 1, 2])
    found = data.from_samples(
        torch.utils.data.TensorDataset(inputs, labels), name="own", classes="abc"
    )
    assert torch.equal(found.inputs, inputs)
    assert torch.equal(found.labels, labels)
    assert (found.name, found.classes) == ("own", ("a", "b", "c"))
    texts = [(torch.zeros(2), "b"), (torch.ones(2), "a")]
    assert data.from_samples(texts).labels.tolist() == [1, 0]
    with pytest.raises(
        standfast.ArgumentError,
        match=r"inputs of one shape; or size=.*\(2,\) \(sample 0\) and \(3,\)",
    ):
        data.from_samples([(torch.zeros(2), 0), (torch.zeros(3), 0)])
    with pytest.raises(standfast.ArgumentError, match="entries that are pairs"):
        data.from_samples([torch.zeros(2)])
    assert data.from_samples(iter(texts), count=1).classes == ("b",)
    with pytest.raises(standfast.ArgumentError, match="pairs of an input and a label, got int"):
        data.from_samples(5)
    with pytest.raises(
        standfast.ArgumentError, match="columns: expected none for samples that are pairs"
    ):
        data.from_samples(texts, columns=("x", "y"))
    with pytest.raises(
        standfast.ArgumentError, match="got -1, which stands for labels that are not published"
    ):
        data.from_samples([(torch.zeros(2), -1)])
    with pytest.raises(standfast.ArgumentError, match="labels that are whole numbers"):
        data.from_samples([(torch.zeros(2), 0.5)])
    with pytest.raises(standfast.ArgumentError, match="at least one sample"):
        data.from_samples([])
    with pytest.raises(standfast.ArgumentError, match=r"values in \[0, 1\]"):
        data.from_samples([(torch.full((2,), -1.0), 0)])


def test_only_what_is_taken_is_decoded(vision: Path) -> None:
    write(vision / "gtsrb" / "test", pixels(9), [0] * 9)
    made = GTSRB(str(vision), "test")
    assert len(data.from_samples(made, count=2)) == 2
    assert made.opened == 2
    some = data.from_samples(
        torch.utils.data.Subset(CIFAR10(str(vision), train=True, download=True), [1])
    )
    assert (len(some), some.classes) == (1, ("airplane", "automobile"))


# Hugging Face


class Rows:
    """The part of `datasets.Dataset` that is needed."""

    def __init__(self, rows: list[dict[str, Any]], **features: Any) -> None:
        self.rows, self.features, self.column_names = rows, features, list(rows[0])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.rows[place]


class Stream:
    """The same of `datasets.IterableDataset`: no length, and no end."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows, self.features, self.column_names = rows, None, list(rows[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            yield from self.rows


ClassLabel = type("ClassLabel", (SimpleNamespace,), {})
Feature = type("Image", (SimpleNamespace,), {})


def rows(images: Bytes, labels: list[Any]) -> list[dict[str, Any]]:
    return [
        {"img": Image.fromarray(i), "fine": k, "note": "-"}
        for i, k in zip(images, labels, strict=True)
    ]


def test_anything_with_columns_and_features() -> None:
    images = pixels(3)
    features = {"img": Feature(), "fine": ClassLabel(names=["cat", "dog"]), "note": None}
    found = data.from_samples(Rows(rows(images, [1, 0, 1]), **features))
    torch.testing.assert_close(found.inputs, as_tensor(images), rtol=0, atol=1e-7)
    assert (found.labels.tolist(), found.classes, found.name) == ([1, 0, 1], ("cat", "dog"), "Rows")
    found = data.from_samples(Rows(rows(images, ["x", "z", "x"])), columns=("img", "fine"), size=3)
    assert (found.labels.tolist(), found.classes, found.inputs.shape) == (
        [0, 1, 0],
        ("x", "z"),
        (3, 3, 3, 3),
    )
    with pytest.raises(
        standfast.ArgumentError, match=r"columns: expected names of img, fine, note.*got 0"
    ):
        data.from_samples(Rows(rows(images, [0, 0, 0])))
    with pytest.raises(
        standfast.ArgumentError, match="columns: expected one of img, fine, note, got 'coarse'"
    ):
        data.from_samples(Rows(rows(images, [0, 0, 0]), **features), columns=(None, "coarse"))
    with pytest.raises(standfast.ArgumentError, match="one split.*got a dict of splits: train"):
        data.from_samples({"train": None})


def test_streams_are_read_from_the_start() -> None:
    stream = Stream(rows(pixels(2), [1, 0]))
    found = data.from_samples(stream, columns=("img", "fine"), count=5)
    assert found.labels.tolist() == [1, 0, 1, 0, 1]
    with pytest.raises(
        standfast.ArgumentError,
        match="count: expected a number of samples, because this data set is",
    ):
        data.from_samples(stream, columns=("img", "fine"))


def test_names_of_the_hub_are_refused_where_they_could_leave_the_folder(root: Path) -> None:
    for name in ("a/../../b:test", "/etc:test", "a:..", "a/b/c:test", "a:test:config=../x", "a"):
        with pytest.raises(standfast.ArgumentError, match="name: expected"):
            data.load(f"huggingface:{name}")


def test_data_sets_of_datasets_itself(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    datasets.disable_progress_bars()
    images, labels = pixels(5), [1, 0, 1, 1, 0]
    features = datasets.Features(
        {"picture": datasets.Image(), "answer": datasets.ClassLabel(names=["no", "yes"])}
    )
    content = {"picture": [Image.fromarray(image) for image in images], "answer": labels}
    made = datasets.Dataset.from_dict(content, features=features)
    found = data.from_samples(made, count=3)
    torch.testing.assert_close(found.inputs, as_tensor(images[:3]), rtol=0, atol=1e-7)
    assert (found.labels.tolist(), found.classes) == (labels[:3], ("no", "yes"))
    splits = datasets.DatasetDict({"train": made, "test": made.select([4, 3])})
    assert data.from_samples(made.to_iterable_dataset(), count=2).labels.tolist() == labels[:2]
    # what save_to_disk wrote is found by name
    with pytest.raises(data.MissingDataError, match="pass download=True"):
        data.load("huggingface:us/pictures:test")
    splits.save_to_disk(str(root / "huggingface" / "us" / "pictures"))
    found = data.load("huggingface:us/pictures:test:size=3")
    assert (found.labels.tolist(), found.inputs.shape) == ([0, 1], (2, 3, 3, 3))
    assert found.name == "huggingface:us/pictures:test"
    # a download is kept there, whole or not at all
    asked: list[tuple[Any, ...]] = []

    def load_dataset(path: str, name: str | None, *, split: str) -> Any:
        asked.append((path, name, split))
        if path == "us/missing":
            raise ConnectionError("no network")
        return made

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    for download in (True, False):
        found = data.load("huggingface:us/other:train:config=small", download=download)
        assert found.labels.tolist() == labels
    assert asked == [("us/other", "small", "train")]
    with pytest.raises(
        data.MissingDataError, match="could not be downloaded: ConnectionError: no network"
    ):
        data.load("huggingface:us/missing:train", download=True)
    assert not (root / "huggingface" / "us" / "missing").exists()
    (root / "huggingface" / "us" / "broken" / "test").mkdir(parents=True)
    with pytest.raises(standfast.ArgumentError, match="a split in the format of save_to_disk"):
        data.load("huggingface:us/broken:test")
