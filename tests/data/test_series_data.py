"""Sets of the UCR and UEA archives, from files written here by their descriptions; aeon by a stand-in."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from refusals import assert_refused

from standfast import data
from standfast.data.series_files import read_series
from standfast.data.ucr_archive import measure_channels
from standfast.errors import ArgumentError, MissingExtraError

Array = npt.NDArray[Any]
splits = ("train", "test")


# UCR and UEA


def arrays(seed: int = 0, **changes: Any) -> dict[str, Array]:
    numbers = np.random.default_rng(seed)
    made = {
        "X_train": numbers.normal(5, 3, (6, 2, 9)).astype(np.float32),
        "y_train": np.array([0, 1, 2, 0, 1, 2]),
        "X_test": numbers.normal(5, 3, (4, 2, 9)).astype(np.float32),
        "y_test": np.array([2, 1, 0, 0]),
        "classes": np.array([-1, 1, 3]),
    }
    return made | changes


def write_npz(root: Path, name: str, content: dict[str, Array]) -> Path:
    (root / "ucr").mkdir(parents=True, exist_ok=True)
    np.savez(root / "ucr" / f"{name}.npz", **content)
    return root / "ucr" / f"{name}.npz"


def test_files_are_read_and_standardised_by_the_training_split(root: Path) -> None:
    stored = arrays()
    write_npz(root, "Small", stored)
    mean, deviation = stored["X_train"].mean((0, 2)), stored["X_train"].std((0, 2))
    for split in ("train", "test"):
        found = data.load(f"ucr:Small:{split}")
        assert (found.name, found.classes) == (f"ucr:Small:{split}", ("-1", "1", "3"))
        assert found.labels.tolist() == stored[f"y_{split}"].tolist()
        wanted = (stored[f"X_{split}"] - mean[:, None]) / deviation[:, None]
        assert np.allclose(found.inputs, wanted, atol=1e-5)
        assert found.inputs.dtype == torch.float32
        assert dict(found.extras) == {}
        assert found.bounds == (-np.inf, np.inf)
        assert torch.equal(
            data.ucr("Small", split, standardize=False).inputs,
            torch.from_numpy(stored[f"X_{split}"]),
        )


def test_what_was_not_measured_is_filled_and_told(root: Path) -> None:
    stored = arrays()
    stored["X_train"][0, :, 6:] = np.nan
    stored["X_test"][1, 0, 3] = np.nan
    write_npz(root, "Ragged", stored)
    found = data.ucr("Ragged", "test")
    hole = torch.zeros(4, 2, 9, dtype=torch.bool)
    hole[1, 0, 3] = True
    assert torch.equal(found.extras["observed"], ~hole)
    assert float(found.inputs[1, 0, 3]) == 0
    mean = np.nanmean(stored["X_train"], (0, 2))
    deviation = np.nanstd(stored["X_train"], (0, 2))
    wanted = np.where(hole, 0, (stored["X_test"] - mean[:, None]) / deviation[:, None])
    assert np.allclose(found.inputs, wanted, atol=1e-5)
    assert found[1:2].extras["observed"].sum() == 17


def test_a_constant_channel_is_only_moved() -> None:
    series = torch.randn(5, 2, 7)
    series[:, 1] = 1e4
    mean, deviation = measure_channels(series)
    assert deviation[1].item() == 1
    assert float(((series - mean) / deviation)[:, 1].abs().max()) == 0


@pytest.mark.parametrize("scale", [1e-13, 1e-6, 1.0, 1e6])
def test_values_are_standardised_in_every_unit(root: Path, scale: float) -> None:
    """Teslas, volts: a small scale is not a constant."""
    stored = arrays()
    write_npz(
        root,
        "Tiny",
        {**stored, **{f"X_{split}": stored[f"X_{split}"] * np.float32(scale) for split in splits}},
    )
    write_npz(root, "Plain", stored)
    for split in splits:
        assert torch.allclose(
            data.ucr("Tiny", split).inputs, data.ucr("Plain", split).inputs, atol=1e-4
        )


@pytest.mark.parametrize("level", [0.0, 0.1, -1e-9, 1e4])
def test_a_constant_is_told_from_a_small_scale(level: float) -> None:
    _, deviation = measure_channels(torch.full((50, 1, 33), level))
    assert deviation.item() == 1


def test_broken_arrays_are_refused(root: Path) -> None:
    def make(**change: object) -> object:
        write_npz(root, "Broken", arrays(**change))
        return data.ucr("Broken", "test")

    assert_refused(make, X_train=[np.zeros((6, 9), np.float32)])
    assert_refused(make, X_test=[np.zeros((4, 2, 8), np.float32), np.zeros((4, 2, 9), np.int64)])
    assert_refused(
        make, y_train=[np.zeros(5, np.int64), np.full(6, 0.5)], y_test=[np.array([0, 1, 2, 3])]
    )
    with pytest.raises(ArgumentError, match="ucr:Broken: expected finite values"):
        make(X_test=np.full((4, 2, 9), np.inf, np.float32))


def test_broken_files_are_refused_with_their_path(root: Path) -> None:
    file = write_npz(root, "Broken", {"X_train": np.zeros((2, 1, 3), np.float32)})
    with pytest.raises(
        ArgumentError, match=r"expected arrays X_test, X_train, .*got X_train"
    ) as caught:
        data.ucr("Broken")
    assert str(file) in str(caught.value)
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(ArgumentError, match=r"expected a set of series as \.npz"):
        data.ucr("Broken")
    np.savez(file, X_train=np.array([{}], dtype=object))
    with pytest.raises(ArgumentError, match="broken one"):
        data.ucr("Broken")
    with file.open("wb") as opened:
        np.save(opened, np.zeros(3))
    with pytest.raises(ArgumentError, match="broken one"):
        data.ucr("Broken")


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("ucr:GunPoint", "name: expected ucr:<name>:train or ucr:<name>:test, got 'ucr:GunPoint'"),
        ("ucr:GunPoint:validation", "split: expected train or test"),
        ("ucr:../mnist/x:train", "name: expected the name of a set"),
        ("ucr::train", "name: expected the name of a set"),
    ],
)
def test_names_are_checked(root: Path, name: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        data.load(name)


# the archive's own text files

TS = """# a comment: with, signs @ of the format
@problemName Small
@timeStamps false
@missing {missing}
@univariate false
@dimensions 2
@equalLength {equal}
@classLabel true -1 1 3
@data
"""


def write_texts(root: Path, name: str, content: dict[str, Array], ending: str) -> None:
    """The arrays of a set as the archives write them: NaN as ? or NaN, without what follows after a series."""
    folder = root / "ucr" / name
    folder.mkdir(parents=True)
    classes = content["classes"]
    for split in splits:
        lines = []
        for series, label in zip(content[f"X_{split}"], content[f"y_{split}"], strict=True):
            if ending == "tsv":
                lines.append(
                    "\t".join([f"{classes[label]:.7e}", *map(repr, map(float, series[0]))])
                )
                continue
            length = np.flatnonzero(np.isfinite(series).any(0)).max() + 1
            cells = [
                ["?" if np.isnan(v) else repr(float(v)) for v in channel[:length]]
                for channel in series
            ]
            lines.append(":".join([*(",".join(channel) for channel in cells), str(classes[label])]))
        head = TS.format(missing="true", equal="false") if ending == "ts" else ""
        (folder / f"{name}_{split.upper()}.{ending}").write_text(head + "\n".join(lines) + "\n")


@pytest.mark.parametrize("ending", ["ts", "tsv"])
def test_the_archives_own_files_are_the_same_set(
    root: Path, ending: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against the arrays that they were written from: several channels, gaps, and series of different lengths."""
    for module in ("aeon", "aeon.datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    stored = arrays()
    stored["X_train"][0, :, 6:] = np.nan
    stored["X_train"][3, 1, 2] = np.nan
    if ending == "tsv":
        stored |= {f"X_{split}": stored[f"X_{split}"][:, :1] for split in splits}
    write_npz(root, "Arrays", stored)
    write_texts(root, "Texts", stored, ending)
    for split in splits:
        expected, found = (data.load(f"ucr:{name}:{split}") for name in ("Arrays", "Texts"))
        assert torch.equal(found.inputs, expected.inputs)
        assert torch.equal(found.labels, expected.labels)
        assert found.classes == expected.classes == ("-1", "1", "3")
        assert found.extras.keys() == expected.extras.keys()
        for name in found.extras:
            assert torch.equal(found.extras[name], expected.extras[name])


def test_the_longest_series_may_be_in_either_split(root: Path) -> None:
    stored = arrays()
    stored["X_test"][:, :, 7:] = np.nan
    write_texts(root, "Short", stored, "ts")
    found = data.ucr("Short", "test")
    assert found.inputs.shape == (4, 2, 9)
    assert not found.extras["observed"][:, :, 7:].any()


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "a.ts",
            "@timeStamps true\n@data\n(0,1),(1,2):a\n",
            "series without time stamps, got a.ts with @timeStamps",
        ),
        (
            "a.ts",
            "@targetLabel true\n@data\n1,2:0.5\n",
            r"series with classes, got a.ts with numbers to predict",
        ),
        (
            "a.ts",
            "@classLabel true a\n1,2,3:a\n",
            "lines with # or @ before @data, got a.ts, line 2: '1,2,3:a'",
        ),
        ("a.ts", "@classLabel true a\n", "a line with @data, got a.ts without it"),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2,x:a\n",
            "numbers, or . or NaN for missing ones, got a.ts, line 3",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2,3\n",
            "and the class, separated by colons, got a.ts, line 3",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2:3,4:a\n1,2:a\n",
            r"as many channels in all series, got a.ts",
        ),
        ("a.ts", "@classLabel true a\n@data\n", "at least one series, got a.ts without any"),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2,3:a\n1,2:a\n",
            "of one length .*ucr:<name>.*series of 2 to 3 steps",
        ),
        (
            "a.ts",
            "@classLabel true a\n@data\n1,2,3:a\n1,?,3:a\n",
            "missing values in 1 of 2 series",
        ),
        ("a.ts", "@classLabel false\n@data\n1,2,3\n4,5,6\n", "samples with labels; .*a.ts without"),
        (
            "a.tsv",
            "1\t2\t3\n2\n",
            "a class and at least one value, separated by tabs, got a.tsv, line 2: '2'",
        ),
        ("a.tsv", "1\t2\t3\n2\t2\tNaN\n", "missing values in 1 of 2 series"),
        ("a.tsv", "1,2,3\n", "separated by tabs, got a.tsv, line 1"),
        ("a.arff", "", "a .npz, .npy, .safetensors, .csv, .ts or .tsv file, .* got 'a.arff'"),
    ],
)
def test_text_files_are_checked(tmp_path: Path, name: str, text: str, complaint: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ArgumentError, match=complaint):
        data.from_file(tmp_path / name)


def test_a_mark_of_the_order_of_bytes_is_not_read(tmp_path: Path) -> None:
    """Editors on Windows write one; it would be part of the first class."""
    (tmp_path / "a.tsv").write_bytes(b"\xef\xbb\xbf1\t0.5\t1.0\n1\t2.0\t3.0\n")
    assert read_series(tmp_path / "a.tsv").labels == ("1", "1")
    (tmp_path / "a.ts").write_bytes(b"\xef\xbb\xbf@classLabel true up\n@data\n1,2:up\n")
    assert read_series(tmp_path / "a.ts").labels == ("up",)


def test_splits_of_text_files_fit_together(root: Path) -> None:
    write_texts(root, "Broken", arrays(), "ts")
    (root / "ucr" / "Broken" / "Broken_TEST.ts").write_text("@classLabel true 1\n@data\n1,2,3:1\n")
    with pytest.raises(
        ArgumentError, match=r"Broken_TEST.ts: expected 2 channels, as in the training split, got 1"
    ):
        data.ucr("Broken")
    (root / "ucr" / "Broken" / "Broken_TEST.ts").write_text(
        "@classLabel false\n@data\n1,2,3:3,4,5\n"
    )
    with pytest.raises(ArgumentError, match=r"Broken_TEST.ts: expected the class of each series"):
        data.ucr("Broken")


@pytest.mark.skipif(
    importlib.util.find_spec("aeon") is None, reason="aeon is not installed: extra timeseries"
)
@pytest.mark.parametrize("name", ["GunPoint", "BasicMotions", "JapaneseVowels"])
def test_text_files_are_read_as_aeon_reads_them(name: str) -> None:
    archive: Any = importlib.import_module("aeon.datasets")
    file = Path(archive.__file__).parent / "data" / name / f"{name}_TEST.ts"
    series, labels = archive.load_from_ts_file(str(file))
    found = read_series(file)
    assert [label.lower() for label in found.labels or ()] == [str(label) for label in labels], (
        "aeon's are small"
    )
    for ours, steps, theirs in zip(found.values, found.steps, series, strict=True):
        assert theirs.shape[1] == steps
        np.testing.assert_allclose(ours[:, :steps], theirs, rtol=1e-6)


def put(folder: Path, name: str) -> None:
    (folder / name).mkdir(parents=True)
    for split in ("TRAIN", "TEST"):
        (folder / name / f"{name}_{split}.ts").write_text("@classLabel true a\n@data\n1,2,3:a\n")


@pytest.fixture
def aeon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the sets in a package that stands in for aeon; it can download the set Wafer."""

    def load(name: str, split: str, extract_path: str) -> None:
        if name != "Wafer":
            raise ValueError(f"Invalid dataset name ={name}")
        put(Path(extract_path), name)

    package, module = ModuleType("aeon"), ModuleType("aeon.datasets")
    package.__spec__ = ModuleSpec("aeon", None, is_package=True)
    package.__spec__.submodule_search_locations = [str(tmp_path / "aeon")]
    module.load_classification = load  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "aeon", package)
    monkeypatch.setitem(sys.modules, "aeon.datasets", module)
    return tmp_path / "aeon" / "datasets" / "data"


def test_sets_in_the_package_of_aeon(root: Path, aeon: Path) -> None:
    put(aeon, "Vowels")
    assert data.ucr("Vowels", "train", standardize=False).inputs.tolist() == [[[1, 2, 3]]]
    assert data.load("ucr:Vowels:test").classes == ("a",)


def test_other_sets_are_downloaded_only_when_asked_for(root: Path, aeon: Path) -> None:
    with pytest.raises(data.MissingDataError, match="ucr:Wafer: no Wafer.npz.*download=True"):
        data.ucr("Wafer")
    assert len(data.load("ucr:Wafer:train", download=True)) == 1
    assert len(data.ucr("Wafer")) == 1
    with pytest.raises(
        data.MissingDataError, match="aeon could not load it: ValueError: Invalid dataset name"
    ):
        data.ucr("Nothing", download=True)


def test_without_aeon_the_extra_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("aeon", "aeon.datasets"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(data.MissingDataError, match=r"aeon \(extra timeseries\)"):
        data.ucr("Wafer")
    with pytest.raises(MissingExtraError, match=r"ucr:Wafer .*standfast\[timeseries\]"):
        data.ucr("Wafer", download=True)


@pytest.mark.skipif(
    importlib.util.find_spec("aeon") is None, reason="aeon is not installed: extra timeseries"
)
@pytest.mark.parametrize(
    ("name", "sizes", "shape", "classes"),
    [
        ("GunPoint", (50, 150), (1, 150), 2),
        ("BasicMotions", (40, 40), (6, 100), 4),
        ("ItalyPowerDemand", (67, 1029), (1, 24), 2),
        ("JapaneseVowels", (270, 370), (12, 29), 9),
    ],
)
def test_aeon_itself(
    root: Path,
    name: str,
    sizes: tuple[int, int],
    shape: tuple[int, int],
    classes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The sets in its package, without files of ours and without a network; and the same as our files, if any."""
    made = {split: data.load(f"ucr:{name}:{split}") for split in splits}
    assert not root.exists()
    for split, size in zip(splits, sizes, strict=True):
        found = made[split]
        assert found.inputs.shape == (size, *shape)
        assert len(found.classes) == classes
        assert set(found.labels.tolist()) == set(range(classes))
        assert ("observed" in found.extras) == (name == "JapaneseVowels")
    if name == "JapaneseVowels":  # series of 7 to 26 or 29 steps, the rest is filled up
        lengths = made["test"].extras["observed"].sum(2)
        assert (int(lengths.min()), int(lengths.max())) == (7, 29)
        assert bool((lengths == lengths[:, :1]).all())
    monkeypatch.undo()
    for split in splits:
        try:
            ours = data.load(f"ucr:{name}:{split}")
        except data.MissingDataError:
            continue
        assert torch.allclose(ours.inputs, made[split].inputs, atol=1e-5)
        assert torch.equal(ours.labels, made[split].labels)


@pytest.mark.parametrize("name", ["ECG200", "JapaneseVowels", "GunPointAgeSpan"])
def test_real_files(name: str) -> None:
    try:
        train, test = (data.load(f"ucr:{name}:{split}") for split in ("train", "test"))
    except (data.MissingDataError, MissingExtraError) as missing:
        pytest.skip(str(missing))
    published = {"ECG200": (100, 100, 1, 96, 2), "JapaneseVowels": (270, 370, 12, 29, 9)}
    shape = (len(train), len(test), *train.inputs.shape[1:], len(train.classes))
    assert shape == published.get(name, (135, 316, 1, 150, 2))
    seen = train.extras.get("observed", torch.ones_like(train.inputs, dtype=torch.bool))
    for channel in range(train.inputs.shape[1]):
        values = train.inputs[:, channel][seen[:, channel]].double()
        assert abs(float(values.mean())) < 1e-3
        assert float(values.std()) == pytest.approx(1, abs=1e-2)
