"""Data sets of the UCR and UEA archives of time series, read from files on this computer or loaded by aeon.

Dau et al., The UCR time series archive, IEEE/CAA Journal of Automatica Sinica 6, 2019. Bagnall et al., The UEA
multivariate time series classification archive, 2018. Most sets state no licence; all are free for research.

The file `<name>.npz`, in the folder `ucr/` under `data_root()`, has the arrays `X_train` and `X_test`, floating
(N, channels, steps), with NaN after the end of shorter series; `y_train` and `y_test`, whole numbers from 0; and
`classes`, the labels of the archive. Without such a file, the archive's own files `ucr/<name>/<name>_TRAIN.ts` and
`<name>_TEST.ts`, or `.tsv`, are read (see `series_files`). The package aeon (extra `timeseries`) contains such files of
a few sets and, with `download`, fetches those of any other.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from standfast.data.dataset import Dataset
from standfast.data.root import MissingDataError, data_root, report_missing
from standfast.data.series_files import ENDINGS, number_labels, read_series
from standfast.errors import ArgumentError, MissingExtraError, check
from standfast.files import load_npz, read_file

FOLDER = "ucr"  # under the data root
SPLITS = ("train", "test")

_Array = npt.NDArray[Any]
_Arrays = tuple[dict[str, _Array], dict[str, npt.NDArray[np.int64]], tuple[str, ...]]


def load_from_archive(name: str, download: bool = False) -> Dataset:
    """Load the data set with the name "ucr:<name>:<split>"; errors are those of `ucr`."""
    parts = name.split(":")
    check(len(parts) == 3, "name", "ucr:<name>:train or ucr:<name>:test", repr(name))
    _, series, split = parts
    return ucr(series, split, download)


def ucr(
    name: str, split: str = "train", download: bool = False, *, standardize: bool = True
) -> Dataset:
    """A set of the UCR or UEA archive: inputs (N, channels, steps), unbounded.

    Shorter series and gaps are filled with 0, which is the mean of the channel after `standardize`. In this case
    `extras["observed"]`, bool with the shape of the inputs, is True for measured values.

    Args:
        name: the name in the archive, such as "GunPoint".
        split: "train" or "test".
        download: let aeon download missing files into `ucr/` under `data_root()`.
        standardize: subtract from each channel its mean over the training split, and divide by its standard deviation
            over the training split unless it is 0. Most sets are already normalised series by series; some have raw
            values of several thousand.

    Raises:
        ArgumentError: the split is unknown, the name is malformed, or the file has the wrong format.
        MissingDataError: the set is not on this computer, and `download` is False or the download failed.
        MissingExtraError: a download, and aeon is not installed.

    >>> gun = ucr("GunPoint", "test")  # doctest: +SKIP
    >>> gun.inputs.shape, gun.classes  # doctest: +SKIP
    (torch.Size([150, 1, 150]), ('1', '2'))
    """
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    # the name becomes part of a path
    check(
        re.fullmatch(r"\w[\w-]*", name) is not None,
        "name",
        "the name of a set, such as GunPoint",
        repr(name),
    )
    inputs, labels, classes = _find_and_load(name, data_root() / FOLDER, download)
    values = _to_tensor(inputs[split])
    observed = ~values.isnan()
    if standardize:
        # always of the training split, as a model meets test series on the scale of its training
        mean, deviation = measure_channels(_to_tensor(inputs["train"]))
        values = (values - mean) / deviation
    # after the scaling, in which 0 is the mean
    values = torch.where(observed, values, 0.0)
    check(
        bool(values.isfinite().all()),
        f"ucr:{name}",
        "finite values, or NaN for missing ones",
        "infinity",
    )
    extras = {} if bool(observed.all()) else {"observed": observed}
    targets = torch.from_numpy(labels[split])
    return Dataset(f"ucr:{name}:{split}", values, targets, classes, (-math.inf, math.inf), extras)


def _to_tensor(series: _Array) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(series, np.float32))


def measure_channels(series: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of `series` (N, C, T), each (C, 1); NaN values are ignored.

    The deviation of a channel that is constant, or has no values, is 1.

    >>> mean, deviation = measure_channels(torch.tensor([[[1.0, 3.0], [5.0, 5.0]], [[1.0, float("nan")], [5.0, 5.0]]]))
    >>> mean.flatten().tolist(), deviation.flatten().tolist()
    ([1.6667, 5.0], [0.9428, 1.0])
    """
    wide = series.transpose(0, 1).flatten(1).double()  # (C, N T)
    # a channel may have no value at all
    mean = torch.nan_to_num(wide.nanmean(1, keepdim=True))
    squares = (wide - mean).square()
    variance = torch.nan_to_num(squares.nanmean(1, keepdim=True))
    deviation = variance.sqrt()
    # relative to the mean: the units of the sets differ by many orders
    constant = deviation <= 1e-9 * mean.abs()
    scale = torch.where(constant, 1.0, deviation)
    return mean.to(series.dtype), scale.to(series.dtype)


def _find_and_load(name: str, folder: Path, download: bool) -> _Arrays:
    file = folder / f"{name}.npz"
    # a file of this package's layout wins over the archive's own
    if file.is_file():
        return _load_file(file)
    texts = _find_texts(folder, name) or _find_texts(_find_package(), name)
    if not texts and download:
        _download(name, folder)
        texts = _find_texts(folder, name)
    if not texts:
        what = f"{file.name}, and no {name}/{name}_TRAIN.ts with {name}_TEST.ts (or .tsv)"
        hint = " The package aeon (extra timeseries) contains a few sets, and downloads the others."
        missing = report_missing(f"ucr:{name}", what, [folder])
        raise MissingDataError(f"{missing}{hint}")
    return _load_texts(texts)


def _find_texts(folder: Path, name: str) -> dict[str, Path]:
    """The archive's own files of both splits, or nothing."""
    for ending in ENDINGS:
        files = {}
        for split in SPLITS:
            files[split] = folder / name / f"{name}_{split.upper()}{ending}"
        if all(file.is_file() for file in files.values()):
            return files
    return {}


def _load_texts(files: Mapping[str, Path]) -> _Arrays:
    series = {split: read_series(file) for split, file in files.items()}
    channels = {split: of_split.values.shape[1] for split, of_split in series.items()}
    expected = f"{channels['train']} channels, as in the training split"
    check(channels["train"] == channels["test"], str(files["test"]), expected, channels["test"])
    # both splits get one length, since a model has one
    longest = max(of_split.values.shape[2] for of_split in series.values())
    inputs = {}
    for split, of_split in series.items():
        has_labels = of_split.labels is not None
        where = str(files[split])
        check(has_labels, where, "the class of each series", "series without classes")
        missing_steps = longest - of_split.values.shape[2]
        widths = ((0, 0), (0, 0), (0, missing_steps))
        inputs[split] = np.pad(of_split.values, widths, constant_values=np.nan)
    labels_of_splits = [of_split.labels or () for of_split in series.values()]
    classes, labels = number_labels(labels_of_splits)
    return inputs, dict(zip(series, labels, strict=True)), classes


def _load_file(file: Path) -> _Arrays:
    names = {"classes"}
    for split in SPLITS:
        names |= {f"X_{split}", f"y_{split}"}
    try:
        arrays = load_npz(read_file(file), names)
    except (OSError, ValueError) as error:  # broken, or contains pickles
        got = f"a different or broken one ({error})"
        raise ArgumentError(str(file), "a set of series as .npz", got) from error
    expected = f"arrays {', '.join(sorted(names))}"
    check(names <= arrays.keys(), str(file), expected, ", ".join(sorted(arrays)))
    classes = tuple(str(label) for label in arrays["classes"].reshape(-1))
    inputs = {split: arrays[f"X_{split}"] for split in SPLITS}
    labels = {split: arrays[f"y_{split}"] for split in SPLITS}
    numbers = {}
    for split in SPLITS:
        count = len(inputs[split])
        _check_series(inputs[split], inputs["train"], f"{file}, X_{split}")
        _check_labels(labels[split], count, len(classes), f"{file}, y_{split}")
        numbers[split] = labels[split].astype(np.int64)
    return inputs, numbers, classes


def _check_series(series: _Array, training_series: _Array, where: str) -> None:
    fits = series.ndim == 3 and series.size > 0 and np.issubdtype(series.dtype, np.floating)
    expected = "floating point numbers (N, channels, steps)"
    check(fits, where, expected, f"{series.dtype} {series.shape}")
    has_shape = series.shape[1:] == training_series.shape[1:]
    check(has_shape, where, "the shape of X_train", series.shape)


def _check_labels(labels: _Array, count: int, classes: int, where: str) -> None:
    fits = labels.shape == (count,) and np.issubdtype(labels.dtype, np.integer)
    check(fits, where, f"{count} whole numbers", f"{labels.dtype} {labels.shape}")
    least = labels.min()
    most = labels.max()
    is_inside = bool(least >= 0 and most < classes)
    check(is_inside, where, f"classes 0 .. {classes - 1}", f"{least} .. {most}")


def _find_package() -> Path:
    """The folder of the sets in the package of aeon; one that is not there without aeon."""
    # looked up, as the import takes seconds
    aeon = importlib.util.find_spec("aeon")
    folders: list[str] = []
    if aeon is not None:
        folders += aeon.submodule_search_locations or ()
    return Path(*folders[:1], "datasets", "data")


def _download(name: str, folder: Path) -> None:
    """Let aeon put the files of a set into `folder`."""
    try:
        archive: Any = importlib.import_module("aeon.datasets")
    except ImportError as error:
        raise MissingExtraError(
            f"the download of ucr:{name} by aeon ({error})", "timeseries"
        ) from error
    try:
        # one split brings the files of both
        archive.load_classification(name, split="train", extract_path=str(folder))
    except (
        OSError,
        ValueError,
        KeyError,
        zipfile.BadZipFile,
    ) as error:
        # no network, no such set, broken files
        raise MissingDataError(
            f"ucr:{name}: aeon could not load it: {type(error).__name__}: {error}"
        ) from error
