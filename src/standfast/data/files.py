"""Data sets in a single file: NumPy arrays, a table, or series."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from standfast.data.dataset import Dataset
from standfast.data.user_files import read_labelled_series, read_table, warn_of_pictures
from standfast.errors import FINITE, ArgumentError, check
from standfast.files import load_npz, read_file
from standfast.tensors import Bound

_INPUTS, _LABELS = ("inputs", "x"), ("labels", "y")


def from_npz(
    path: str | Path,
    *,
    name: str | None = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Bound, Bound] = (0.0, 1.0),
) -> Dataset:
    """Load a `.npz` file with the arrays `inputs` or `x` (N, ...), `labels` or `y` (N,), and optionally `classes`
    and `features` (the names of columns or channels).

    Inputs of type uint8 are divided by 255; others are converted to float32. Nothing in the file is executed: arrays of
    Python objects are refused. In a study file, `path:` names such a file.

    Args:
        path: the file.
        name: name of the data set; by default the name of the file.
        classes: names of the classes; by default those in the file, or the numbers up to the largest label.
        bounds: range of the input values.

    Raises:
        ArgumentError: the file does not exist or has another format, an array is missing or has the wrong shape or
            type, or a value is outside the bounds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "noise.npz", x=np.random.rand(3, 1, 4, 4), y=[0, 1, 1])
    ...     found = from_npz(Path(folder) / "noise.npz", classes=["quiet", "loud"])
    >>> found.name, found.inputs.shape, found.labels.tolist()
    ('noise', torch.Size([3, 1, 4, 4]), [0, 1, 1])
    """
    path = Path(path)
    check(path.is_file(), "path", "a .npz file that exists", str(path))
    try:
        arrays = load_npz(read_file(path), (*_INPUTS, *_LABELS, "classes", "features"))
    except (OSError, ValueError) as error:
        code = "Python objects, which are refused because they could run code" if "pickle" in str(error) else ""
        raise ArgumentError("path", "a .npz file of numbers", f"{path.name}: {code or error}") from error
    inputs, labels = (next((arrays[key] for key in keys if key in arrays), None) for keys in (_INPUTS, _LABELS))
    if inputs is None or labels is None:
        raise ArgumentError("path", "arrays inputs (or x) and labels (or y)", f"{path.name} with {', '.join(arrays)}")
    check(inputs.dtype.kind in "fu" and inputs.ndim >= 2, "inputs", "floats or uint8 (N, ...)", _describe(inputs))
    fine = labels.dtype.kind in "iu" and labels.shape == inputs.shape[:1]
    check(fine, "labels", f"{len(inputs)} whole numbers", _describe(labels))
    check(inputs.dtype.kind == "f" or inputs.dtype == np.uint8, "inputs", "floats or uint8", _describe(inputs))
    values = torch.from_numpy(np.ascontiguousarray(inputs))
    warn_of_pictures(values)
    values = values.float() / 255 if values.dtype == torch.uint8 else values.float()
    check(bool(values.isfinite().all()), "inputs", FINITE, "NaN or infinity")
    targets = torch.from_numpy(labels.astype(np.int64))
    if classes is None:
        largest = int(targets.max()) if len(targets) else -1
        named = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else range(largest + 1)
        classes = [str(each) for each in named]
    features = tuple(map(str, arrays["features"].reshape(-1))) if "features" in arrays else None
    return Dataset(name or path.stem, values, targets, tuple(classes), bounds, features=features)


def from_csv(
    path: str | Path,
    *,
    label: str | None = None,
    name: str | None = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Bound, Bound] | None = None,
) -> Dataset:
    """Load a table with a header: a row for each sample, a column of numbers for each feature, and one with the class.

    The header gives the names of the features. In a study file, `path:` names such a file.

    Args:
        path: the file.
        label: the column with the classes: whole numbers of at least 0, or texts. By default the column called label,
            labels, y, class or target.
        name: name of the data set; by default the name of the file.
        classes: names of the classes; by default the texts in the file, or the numbers up to the largest label.
        bounds: range of the input values; by default that of the values in the file.

    Raises:
        ArgumentError: the file does not exist or is no such table, a cell is empty or no number, or a value is outside
            the bounds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flowers.csv"
    ...     _ = file.write_text("petal,sepal,class\\n1.4,5.1,setosa\\n4.7,7.0,versicolor\\n")
    ...     flowers = from_csv(file)
    >>> flowers.features, flowers.classes, flowers.labels.tolist()
    (('petal', 'sepal'), ('setosa', 'versicolor'), [0, 1])
    """
    path = Path(path)
    check(path.is_file(), "path", "a .csv file that exists", str(path))
    found = read_table(path, label)
    labels = found.labels
    if labels is None:
        expected = f"the name of the column with the classes, of {', '.join(found.features or ())}"
        raise ArgumentError("label", expected, "none, and no column is called label, y, class or target")
    if classes is None:
        classes = found.about.get("classes") or [str(number) for number in range(int(labels.max()) + 1)]
    least, most = (float(value) for value in found.inputs.aminmax())
    limits = (least, most) if bounds is None else bounds
    return Dataset(name or path.stem, found.inputs, labels, tuple(classes), limits, features=found.features)


def from_series(path: str | Path, *, name: str | None = None) -> Dataset:
    """Load the labelled series in a `.ts` or `.tsv` file, the formats of the UCR and UEA archives, as they are.

    The inputs are `(N, channels, steps)` without bounds. The classes are in the order of their numbers or texts. In a
    study file, `path:` names such a file. A whole set of the archives, which may have missing values and series of
    different lengths, is loaded by `ucr`.

    Args:
        path: the file.
        name: name of the data set; by default the name of the file.

    Raises:
        ArgumentError: the file does not exist or has another format, it has no classes, values are missing, or series
            have different lengths.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "beats.tsv").write_text("-1\\t0.5\\t1.5\\t2.0\\n1\\t1.0\\t0.0\\t-3.5\\n")
    ...     beats = from_series(Path(folder) / "beats.tsv")
    >>> beats.inputs.shape, beats.classes, beats.labels.tolist()
    (torch.Size([2, 1, 3]), ('-1', '1'), [0, 1])
    """
    path = Path(path)
    check(path.is_file(), "path", "a .ts or .tsv file that exists", str(path))
    found = read_labelled_series(path)
    if found.labels is None:
        raise ArgumentError("path", "the class of each series (@classLabel true)", f"{path.name} without classes")
    return Dataset(name or path.stem, found.inputs, found.labels, tuple(found.about["classes"]), found.bounds)


def _describe(array: np.ndarray[tuple[int, ...], np.dtype[np.generic]]) -> str:
    return f"{array.dtype} {array.shape}"
