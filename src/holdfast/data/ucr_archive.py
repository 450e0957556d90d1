"""Sets of the UCR and UEA archives of time series by name: from `.npz` files on this computer, or through aeon.

Dau et al., The UCR time series archive, IEEE/CAA Journal of Automatica Sinica 6, 2019. Bagnall et al., The UEA
multivariate time series classification archive, 2018. The sets state no licence but for some; free for research.

`<name>.npz`, in the folder `ucr/` under `data_root()`, holds `X_train` and `X_test`, floating, (N, channels, steps),
with NaN where a series is shorter than others; `y_train` and `y_test`, whole numbers from 0; and `classes`, the labels
that the archive has for them. A set that has no such file comes through aeon (extra `timeseries`): one of the few that
are in its package, one that was downloaded before into `ucr/<name>/`, or, with `download`, any that it knows.
"""

from __future__ import annotations

import importlib
import math
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from holdfast.data.dataset import Dataset
from holdfast.data.root import VARIABLE, MissingDataError, data_root
from holdfast.errors import ArgumentError, MissingExtraError, check

PREFIX, FOLDER = "ucr", "ucr"
SPLITS = ("train", "test")

#: the 19 sets of Wei, Turbe and Mengaldo (2024), Table B.I
PAPER = (
    "Blink",
    "CBF",
    "ElectricDevices",
    "EMOPain",
    "FordA",
    "FreezerRegularTrain",
    "GunPointAgeSpan",
    "ItalyPowerDemand",
    "MoteStrain",
    "MotionSenseHAR",
    "PenDigits",
    "SonyAIBORobotSurface1",
    "SonyAIBORobotSurface2",
    "SpokenArabicDigits",
    "StarLightCurves",
    "Strawberry",
    "TwoLeadECG",
    "TwoPatterns",
    "Wafer",
)

_Array = npt.NDArray[Any]
_Arrays = tuple[dict[str, _Array], dict[str, npt.NDArray[np.int64]], tuple[str, ...]]


def is_of_archive(name: str) -> bool:
    """Whether a name such as "ucr:ECG200:train" asks for a set of the archives; not whether there is one.

    >>> is_of_archive("ucr:ECG200:train"), is_of_archive("mnist:train")
    (True, False)
    """
    return name.partition(":")[0] == PREFIX and ":" in name


def load_of_archive(name: str, download: bool = False) -> Dataset:
    """The set that "ucr:<name>:<split>" asks for; raises as `ucr` does."""
    parts = name.split(":")
    check(len(parts) == 3, "name", "ucr:<name>:train or ucr:<name>:test", repr(name))
    return ucr(parts[1], parts[2], download)


def ucr(name: str, split: str = "train", download: bool = False, *, standardize: bool = True) -> Dataset:
    """A set of the UCR or UEA archive: inputs (N, channels, steps), unbounded.

    Series that are shorter than others, and gaps in them, are filled with 0: after `standardize`, the channel's mean.
    Where there are any, the boolean `extras["observed"]`, like the inputs, says what was measured.

    Args:
        name: as the archive spells it, such as "GunPoint".
        split: "train" or "test".
        download: let aeon fetch what is missing into `ucr/` under `data_root()`.
        standardize: each channel minus its mean and divided by its standard deviation over the training split, whatever
            the split; a channel that is constant there is only moved. Most sets have been normalised by series already,
            some hold raw values of thousands.

    Raises:
        ArgumentError: no such split, a name that is none, or a file that is not what it should be.
        MissingDataError: the set is not on this computer, and was not to be or could not be downloaded.
        MissingExtraError: it is not on this computer, and aeon is not installed.

    >>> gun = ucr("GunPoint", "test")  # doctest: +SKIP
    >>> gun.inputs.shape, gun.classes  # doctest: +SKIP
    (torch.Size([150, 1, 150]), ('1', '2'))
    """
    check(split in SPLITS, "split", " or ".join(SPLITS), repr(split))
    check(re.fullmatch(r"\w[\w-]*", name) is not None, "name", "a set's name, such as GunPoint", repr(name))
    file = data_root() / FOLDER / f"{name}.npz"
    inputs, labels, classes = _from_file(file) if file.is_file() else _from_aeon(name, file, download)
    series = {each: torch.from_numpy(np.ascontiguousarray(inputs[each], np.float32)) for each in SPLITS}
    observed = ~series[split].isnan()
    values = series[split]
    if standardize:
        mean, deviation = moments(series["train"])
        values = (values - mean) / deviation
    values = torch.where(observed, values, 0.0)
    check(bool(values.isfinite().all()), f"ucr:{name}", "finite values, or NaN where there are none", "infinity")
    extras = {} if bool(observed.all()) else {"observed": observed}
    targets = torch.from_numpy(labels[split])
    return Dataset(f"{PREFIX}:{name}:{split}", values, targets, classes, (-math.inf, math.inf), extras)


def moments(series: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of each channel of `series` (N, C, T), (C, 1) each, without what is NaN.

    The deviation of a channel that is constant, or has no values, is given as 1.

    >>> mean, deviation = moments(torch.tensor([[[1.0, 3.0], [5.0, 5.0]], [[1.0, float("nan")], [5.0, 5.0]]]))
    >>> mean.flatten().tolist(), deviation.flatten().tolist()
    ([1.6667, 5.0], [0.9428, 1.0])
    """
    wide = series.transpose(0, 1).flatten(1).double()  # (C, N T)
    mean = torch.nan_to_num(wide.nanmean(1, keepdim=True))
    deviation = torch.nan_to_num((wide - mean).square().nanmean(1, keepdim=True)).sqrt()
    constant = deviation <= 1e-9 * mean.abs()  # by its own scale: some sets hold volts or teslas
    return mean.to(series.dtype), torch.where(constant, 1.0, deviation).to(series.dtype)


def _from_file(file: Path) -> _Arrays:
    try:
        with file.open("rb") as opened, np.load(opened) as stored:
            arrays = {key: stored[key] for key in stored.files}
    except (OSError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:  # broken, or with pickles in it
        raise ArgumentError(str(file), "a set of series as .npz", f"none or a broken one ({error})") from error
    wanted = {"classes", *(f"{what}_{split}" for what in "Xy" for split in SPLITS)}
    check(wanted <= arrays.keys(), str(file), f"arrays {', '.join(sorted(wanted))}", ", ".join(sorted(arrays)))
    classes = tuple(str(label) for label in arrays["classes"].reshape(-1))
    inputs = {split: arrays[f"X_{split}"] for split in SPLITS}
    labels = {split: arrays[f"y_{split}"] for split in SPLITS}
    for split in SPLITS:
        series, where = inputs[split], f"{file}, X_{split}"
        fine = series.ndim == 3 and series.size > 0 and np.issubdtype(series.dtype, np.floating)
        check(fine, where, "floating point numbers (N, channels, steps)", f"{series.dtype} {series.shape}")
        check(series.shape[1:] == inputs["train"].shape[1:], where, "the shape of X_train", series.shape)
        targets, where = labels[split], f"{file}, y_{split}"
        fine = targets.shape == series.shape[:1] and np.issubdtype(targets.dtype, np.integer)
        check(fine, where, f"{len(series)} whole numbers", f"{targets.dtype} {targets.shape}")
        known = f"classes 0 .. {len(classes) - 1}"
        check(
            bool(((targets >= 0) & (targets < len(classes))).all()), where, known, f"{targets.min()} .. {targets.max()}"
        )
    return inputs, {split: labels[split].astype(np.int64) for split in SPLITS}, classes


def _from_aeon(name: str, file: Path, download: bool) -> _Arrays:
    try:
        archive: Any = importlib.import_module("aeon.datasets")
    except ImportError as error:
        raise MissingExtraError(f"ucr:{name} (there is no {file}) through aeon ({error})", "timeseries") from error
    own, ours = Path(str(archive.__file__)).parent / "data", file.parent

    def there(folder: Path) -> bool:
        return all((folder / name / f"{name}_{split.upper()}.ts").is_file() for split in SPLITS)

    place = None if there(own) else ours
    if place is not None and not there(place) and not download:
        raise MissingDataError(
            f"ucr:{name}: no {file}, no {name}/ beside it, and it is not one of those in aeon's package. Put the files"
            f" there, set {VARIABLE} to the folder that holds {FOLDER}/, or pass download=True."
        )
    loaded = {}
    try:
        for split in SPLITS:  # as they were published: we fill in ourselves what is missing
            loaded[split] = archive.load_classification(
                name,
                split=split,
                extract_path=None if place is None else str(place),
                load_equal_length=False,
                load_no_missing=False,
            )
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:  # no network, no such set, broken files
        raise MissingDataError(f"ucr:{name}: aeon could not load it: {type(error).__name__}: {error}") from error
    longest = max(np.shape(each)[1] for split in SPLITS for each in loaded[split][0])
    inputs = {split: _padded(loaded[split][0], longest) for split in SPLITS}
    found = sorted({str(label) for split in SPLITS for label in loaded[split][1]}, key=_order)
    number = {label: index for index, label in enumerate(found)}
    labels = {split: np.array([number[str(label)] for label in loaded[split][1]], np.int64) for split in SPLITS}
    return inputs, labels, tuple(found)


def _padded(series: Sequence[_Array], steps: int) -> _Array:
    """Series (C, T_i), NaN after their ends: (N, C, steps)."""
    filled = np.full((len(series), np.shape(series[0])[0], steps), np.nan, np.float32)
    for row, each in zip(filled, series, strict=True):
        row[:, : np.shape(each)[1]] = each
    return filled


def _order(label: str) -> tuple[int, float, str]:
    """Numbers by value, then texts."""
    try:
        return 0, float(label), label
    except ValueError:
        return 1, 0.0, label
