"""Inputs and labels from files: NumPy arrays, safetensors, CSV tables, series of the UCR archive, folders of images.

Nothing in them is ever executed.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_safetensors
from torch import Tensor

from standfast.data.csv_text import MISSING_WORDS, decode_text, read_csv_text
from standfast.data.dataset import Dataset
from standfast.data.image_files import load_images
from standfast.data.samples import Size
from standfast.data.series_files import ENDINGS, number_labels, read_series
from standfast.errors import (
    FINITE,
    ArgumentError,
    MissingExtraError,
    check,
    suggest_name,
    warn_user,
)
from standfast.files import load_npy, load_npz, read_file
from standfast.tensors import Bound, suggest_layout, widen_half

INPUTS = ("inputs", "x")
LABELS = ("labels", "y")
#: the columns of a table that may have the labels
LABEL_COLUMNS = ("label", "labels", "y", "class", "target")
#: what reads the bytes of a file of arrays
_ARRAYS: Mapping[str, Callable[[bytes], dict[str, Any]]] = {
    ".npz": lambda content: load_npz(content, (*INPUTS, *LABELS, "features", "classes")),
    ".npy": lambda content: {"inputs": load_npy(content)},
    ".safetensors": load_safetensors,
}
#: where a table of other cells is evaluated
_OTHER_CELLS = (
    " (texts, dates and missing cells: {table: FILE} in a study, evaluate(pipeline, ...,"
    " frame, ...) in Python)"
)
#: what is wrong with a table whose rows do not fit its header
_MORE_CELLS = (
    "a row has more cells than the header has names (decimal commas beside commas between cells?)"
)
_KINDS = "a .npz, .npy, .safetensors, .csv, .ts or .tsv file, or a folder of images"


@dataclass(frozen=True, eq=False)
class Content:
    """The data in a file.

    Attributes:
        inputs: `(N, ...)`, floats.
        labels: int64 `(N,)`, or None.
        about: plain values that describe the source: the name of the file, its checksum or the number of images, the
            names of the classes.
        features: the names of the columns of a table; None where there are none.
        bounds: the valid values of an input, where the kind of file says that: series have none.
        sample_names: the files of a folder of images; None of other data.
    """

    inputs: Tensor
    labels: Tensor | None
    about: Mapping[str, Any]
    features: tuple[str, ...] | None = None
    bounds: tuple[float, float] = (0.0, 1.0)
    sample_names: tuple[str, ...] | None = None


def from_file(
    path: str | Path,
    *,
    name: str | None = None,
    label: str | None = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Bound, Bound] | None = None,
    size: Size | None = None,
    grayscale: bool | None = None,
) -> Dataset:
    """Load labelled inputs from a file, or from a folder with a subfolder of images for each class.

    The kinds of files are those of `read_data`. In a study file, `path:` names such a file. Nothing in it is executed.

    Args:
        path: the file or the folder.
        name: of the data set; by default that of the file.
        label: the column of a table that has the classes; by default see `read_table`.
        classes: names of the classes; by default those in the file, or the numbers up to the largest label.
        bounds: range of the input values; by default [0, 1] for arrays and images, none for series, and for a table the
            range of its values.
        size: resize images to `(height, width)`, or to a square.
        grayscale: whether images get one channel or three; by default one if all images have one.

    Raises:
        ArgumentError: as of `read_data`; there are no labels, or a value is outside the bounds.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "flowers.csv"
    ...     _ = file.write_text("petal,sepal,class\\n1.4,5.1,setosa\\n4.7,7.0,versicolor\\n")
    ...     flowers = from_file(file)
    >>> flowers.features, flowers.classes, flowers.labels.tolist()
    (('petal', 'sepal'), ('setosa', 'versicolor'), [0, 1])
    """
    path = Path(path)
    content = read_data(path, None, size, grayscale, label)
    labels = content.labels
    if labels is None:
        raise ArgumentError(
            "path",
            "samples with labels; for a table, `label` names their column",
            f"{path.name} without",
        )
    got = f"{labels.dtype} of shape {tuple(labels.shape)}"
    check(
        not labels.is_floating_point(),
        "path",
        "labels as whole numbers of shape (N,), the classes",
        got,
    )
    # without names, classes are called by their numbers
    if classes is None:
        numbers = range(max(labels.tolist(), default=-1) + 1)
        classes = [str(name) for name in content.about.get("classes", numbers)]
    if bounds is None:
        least, most = (float(value) for value in content.inputs.aminmax())
        # a table has no natural range but that of its values
        bounds = (least, most) if path.suffix.lower() == ".csv" else content.bounds
    inputs = content.inputs.float()
    return Dataset(
        name or path.stem,
        inputs,
        labels,
        tuple(classes),
        bounds,
        features=content.features,
        sample_names=content.sample_names,
    )


def read_data(
    path: Path,
    count: int | None = None,
    size: Size | None = None,
    grayscale: bool | None = None,
    label: str | None = None,
) -> Content:
    """Read inputs and labels from a file or a folder of images.

    Args:
        path: a `.npz` (arrays `inputs` or `x`, `labels` or `y`, names of `features` and `classes`), `.npy`,
            `.safetensors` or `.csv` file (see `read_table`), a `.ts` or `.tsv` file (see `read_labelled_series`), or a
            folder.
        count: read at most this many images.
        size: resize images to `(height, width)`.
        grayscale: whether images get one channel or three; by default one if all images have one.
        label: the column of a table that has the classes; by default see `read_table`.

    uint8 values are divided by 255, and images of whole numbers are scaled to [0, 1]. Other values stay as they are;
    NumPy's doubles become single precision, with which most models were trained.

    Raises:
        ArgumentError: the file is missing, of another kind or broken, or its content is not valid. Its argument is
            `path`, or the option that is wrong.
    """
    check(path.exists(), "path", "a file or a folder that exists", repr(str(path)))
    kind = "" if path.is_dir() else path.suffix.lower()
    check(
        label is None or kind == ".csv",
        "label",
        "no label but for a .csv table",
        f"one for {path.name}",
    )
    if path.is_dir():
        return read_images(path, count, size, grayscale)
    for option, value in (("size", size), ("grayscale", grayscale)):
        check(
            value is None,
            option,
            f"no {option} for a file: only a folder of images has it",
            f"one for {path.name}",
        )
    check(kind in (*_ARRAYS, *ENDINGS, ".csv"), "path", _KINDS, repr(path.name))
    if kind in ENDINGS:
        return read_labelled_series(path)
    if kind == ".csv":
        return read_table(path, label)
    return read_arrays(path)


def read_arrays(path: Path) -> Content:
    """Read a `.npz`, `.npy` or `.safetensors` file.

    Raises:
        ArgumentError: it is none, or has no inputs.
    """
    try:
        content = read_file(path)
        arrays = _ARRAYS[path.suffix.lower()](content)
    except (OSError, ValueError, KeyError, TypeError, MemoryError, SafetensorError) as error:
        reason = " ".join(str(error).split())
        # NumPy's words for it name an option that the user does not have
        if "allow_pickle" in reason or "pickled" in reason:
            reason = "Python objects, which are refused because they could run code"
        raise ArgumentError(
            "path", f"a {path.suffix} file of numbers", f"{path.name}: {reason}"
        ) from error
    inputs = _find_array(arrays, INPUTS)
    labels = _find_array(arrays, LABELS)
    if inputs is None:
        raise ArgumentError(
            "path", "an array called inputs or x", f"{path.name} with {', '.join(arrays) or 'none'}"
        )
    about = _describe(path, content)
    features, classes = (_read_names(arrays.get(key)) for key in ("features", "classes"))
    if classes is not None:
        about["classes"] = list(classes)
    numbers = None
    if labels is not None:
        numbers = as_labels(labels)
    return Content(as_inputs(inputs), numbers, about, features)


def _read_names(array: Any) -> tuple[str, ...] | None:
    if array is None:
        return None
    return tuple(str(name) for name in np.asarray(array).reshape(-1))


def _describe(path: Path, content: bytes) -> dict[str, Any]:
    return {"path": path.name, "sha256": hashlib.sha256(content).hexdigest()}


def read_table(path: Path, label: str | None = None) -> Content:
    """Read a CSV table with a header: a row for each sample, and a column of numbers for each feature.

    It may have semicolons, tabs or bars between cells, then also decimal commas, and the encodings of `decode_text`.

    Args:
        path: the file.
        label: the column with the classes; by default the one called label, labels, y, class or target, if there is
            one. It has whole numbers of at least 0, or texts, whose sorted order numbers the classes.

    Raises:
        ArgumentError: the file is no such table; a cell is empty or no number.
    """
    content = _read_content(path, "a .csv table")
    with _reading(path, "a .csv table"):
        table = pl.read_csv(read_csv_text(path, content), infer_schema_length=None)
    label_column = _find_label(path, table.columns, label)
    features = [name for name in table.columns if name != label_column]
    check(
        bool(features) and table.height > 0,
        "path",
        "columns of numbers",
        f"{path.name} without any",
    )
    for name in table.columns:
        _check_column(path, table[name], label_column)
    about = _describe(path, content)
    # single precision, as models are trained
    inputs = as_inputs(table.select(features).cast(pl.Float32).to_numpy())
    labels = None
    if label_column is not None:
        labels, classes = number_classes(table[label_column])
        if classes:
            about["classes"] = classes
    return Content(inputs, labels, about, tuple(features))


def _read_content(path: Path, expected: str) -> bytes:
    try:
        return read_file(path)
    except OSError as error:
        raise ArgumentError(
            "path", expected, f"{path.name}: {' '.join(str(error).split())}"
        ) from error


@contextlib.contextmanager
def _reading(path: Path, expected: str) -> Iterator[None]:
    """Inside the block, errors of packages that read tables are `ArgumentError`s."""
    try:
        yield
    except ArgumentError:
        raise
    except (
        OSError,
        ValueError,
        ImportError,
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:
        reason = " ".join(str(error).split())
        if "truncate_ragged_lines" in reason:  # an option that the user cannot give
            reason = _MORE_CELLS
        raise ArgumentError("path", expected, f"{path.name}: {reason}") from error


def _find_label(path: Path, columns: Sequence[str], label: str | None) -> str | None:
    """The column of the labels: the given one, or the one with a usual name; None without one."""
    if label is not None:
        got = f"{label!r}{suggest_name(label, columns)}"
        check(label in columns, "label", f"one of {', '.join(columns)}", got)
        return label
    usual = [name for name in columns if name.lower() in LABEL_COLUMNS]
    check(len(usual) <= 1, "path", "one column of labels", f"{path.name} with {', '.join(usual)}")
    return usual[0] if usual else None


def _check_column(path: Path, column: pl.Series, label: str | None) -> None:
    """Raise `ArgumentError` for a column with empty cells, or for one of texts that is not that of the labels."""
    empty = column.null_count()
    name = column.name
    cells = "1 empty cell" if empty == 1 else f"{empty} empty cells"
    check(
        empty == 0,
        "path",
        f"a value in every cell{_OTHER_CELLS}",
        f"{path.name}: {cells} in the column {name}",
    )
    expected = "columns of numbers"
    if label is None:
        expected += ", and the name of the column of classes as `label`"
    got = f"{path.name}: the column {name} has {column.dtype} values"
    if column.dtype == pl.String:
        got += f", such as {column[0]!r}"
    check(name == label or column.dtype.is_numeric(), "path", expected + _OTHER_CELLS, got)


def number_classes(column: pl.Series) -> tuple[Tensor, list[str]]:
    """The labels of a column without empty cells, and the names of the classes where these are no numbers.

    >>> number_classes(pl.Series(["yes", "no"]))
    (tensor([1, 0]), ['no', 'yes'])
    """
    # numbers with fractions are what a regression learns
    if column.dtype.is_float() and bool((column != column.round()).any()):
        return as_labels(column.to_numpy()), []
    if column.dtype.is_integer():
        return as_labels(torch.tensor(column.to_list(), dtype=torch.int64)), []
    # sorted, so that the order of the rows does not decide
    classes = sorted(str(value) for value in column.unique())
    return as_labels(
        torch.tensor([classes.index(str(value)) for value in column], dtype=torch.int64)
    ), classes


def read_frame(
    path: Path, types: Mapping[str, str | Sequence[str]], count: int | None = None
) -> tuple[Any, dict[str, Any]]:
    """Read a table with any cells as a data frame of pandas.

    Args:
        path: a `.csv` table with a header, or a `.parquet` file.
        types: of columns that a .csv file does not tell: "text", "date", "category", or all categories in their order.
            A cell of a .csv file is missing if it is empty, or a word for a missing value such as NA; in a column of
            the type "text" only if it is empty, and a category of the given ones is never missing.
        count: read at most so many rows from the start.

    Returns:
        The frame, and plain values that describe the source.

    Raises:
        ArgumentError: the file is no such table; `types` has other columns, or they do not fit.
        MissingExtraError: pandas is missing.
    """
    try:
        import pandas as pd
    except ImportError as error:
        raise MissingExtraError("a table of texts, dates or missing cells", "export") from error
    kind = path.suffix.lower()
    check(
        kind in (".csv", ".parquet") and path.is_file(),
        "path",
        "a .csv or .parquet file",
        repr(str(path)),
    )
    content = _read_content(path, f"a {kind} table")
    with _reading(path, f"a {kind} table"):
        if kind == ".parquet":
            frame = pd.read_parquet(io.BytesIO(content))[:count]
        else:
            frame = _parse_csv(path, content, types, count)
    for name, how in types.items():
        columns = list(map(str, frame.columns))
        check(
            name in columns,
            "types",
            f"columns of {path.name}",
            f"{name!r}{suggest_name(name, columns)}",
        )
        if how == "date":
            frame[name] = _read_dates(frame[name])
        elif how == "category":
            frame[name] = frame[name].astype("category")
    return frame, _describe(path, content)


def _parse_csv(
    path: Path, content: bytes, types: Mapping[str, str | Sequence[str]], count: int | None
) -> Any:
    """The frame of a .csv table; columns of texts are strings, of which only empty cells are missing."""
    import pandas as pd

    # dates are read afterwards
    strings = [name for name, how in types.items() if how != "date"]
    source = read_csv_text(path, content, strings)
    options: dict[str, Any] = {
        "dtype": dict.fromkeys(strings, str),
        # in one pass, or a column could have another type in each part
        "low_memory": False,
        "nrows": count,
    }
    if any(how not in ("date", "category") for how in types.values()):
        header = pd.read_csv(io.BytesIO(source), nrows=0).columns
        # only with such columns, since one list is then needed for every column
        options["na_values"] = {name: _list_missing_words(types.get(name)) for name in header}
        options["keep_default_na"] = False
    frame = pd.read_csv(io.BytesIO(source), **options)
    # pandas would take the first cell of longer rows as their name
    has_row_names = not frame.index.equals(pd.RangeIndex(len(frame)))
    check(not has_row_names, "path", "a .csv table", f"{path.name}: {_MORE_CELLS}")
    return frame


def _list_missing_words(how: str | Sequence[str] | None) -> list[str]:
    """The cells of a column that are missing: of texts empty ones alone, of ordered categories no category."""
    if how == "text":
        return [""]
    categories = [] if how is None or isinstance(how, str) else how
    return ["", *sorted(MISSING_WORDS.difference(categories))]


def _read_dates(column: Any) -> Any:
    import pandas as pd

    try:
        # where pandas would guess the format cell by cell
        with warnings.catch_warnings(action="error"):
            return pd.to_datetime(column)
    except (ValueError, TypeError, UserWarning) as error:
        reason = str(error).partition("\n")[0]
        raise ArgumentError("types", f"dates in the column {column.name}", reason) from error


@dataclass(frozen=True, eq=False)
class TextContent:
    """Texts of a file.

    Attributes:
        texts: as they are in the file.
        labels: int64 `(N,)`, or None.
        about: as of `Content`.
    """

    texts: tuple[str, ...]
    labels: Tensor | None
    about: Mapping[str, Any]


def read_texts(
    path: Path, column: str, label: str | None = None, count: int | None = None
) -> TextContent:
    """Read a column of texts, and one of labels.

    Args:
        path: a `.csv` table with a header, a `.jsonl` file with an object in each line, both in UTF-8, or a `.parquet`
            file.
        column: with the texts.
        label: the column with the classes; by default the one called label, labels, y, class or target, if there is
            one without empty cells.
        count: take so many from the start.

    Raises:
        ArgumentError: the file is no such table, or has no such columns; a text or a label is missing.
    """
    table, content = read_strings(path)
    for key, name in (("text", column), ("label", label)):
        expected = f"a column of {path.name} ({', '.join(table.columns)})"
        got = f"{name!r}{suggest_name(str(name), table.columns)}"
        check(name is None or name in table.columns, key, expected, got)
    texts = _check_texts(path, table[column], count)
    about = _describe(path, content)
    # a column that was named has to be complete; one that is guessed is left out instead
    label_column = _find_complete_label(table, column) if label is None else label
    if label_column is None:
        return TextContent(texts, None, about)
    labels = table[label_column]
    empty = labels.null_count()
    check(
        empty == 0,
        "label",
        f"a label in every row of the column {label_column}",
        f"{empty} without",
    )
    # all cells of a .csv table were read as texts
    if path.suffix.lower() == ".csv":
        labels = _read_numbers(labels)
    numbers, classes = number_classes(labels)
    if classes:
        about["classes"] = classes
    return TextContent(texts, numbers[:count], about)


def _check_texts(path: Path, column: pl.Series, count: int | None) -> tuple[str, ...]:
    """The texts of a column; raises `ArgumentError` if one of the first `count` is missing or blank."""
    expected = f"a text in every cell of the column {column.name}"
    fits = len(column) > 0 and column.dtype == pl.String
    check(fits, "text", expected, f"{len(column)} cells of type {column.dtype}")
    texts = column[:count].to_list()
    for row, text in enumerate(texts, 1):
        what = "none" if text is None else "blanks"
        check(
            text is not None and bool(text.strip()),
            "text",
            expected,
            f"{what} in row {row} of {path.name}",
        )
    return tuple(texts)


def _find_complete_label(table: pl.DataFrame, texts: str) -> str | None:
    """The first column with a usual name of labels and no empty cell, other than that of the texts; None without."""
    usual = [name for name in table.columns if name.lower() in LABEL_COLUMNS and name != texts]
    return next((name for name in usual if not table[name].null_count()), None)


def _read_numbers(column: pl.Series) -> pl.Series:
    """A column of strings as whole numbers, or as numbers, if all are; else as it is."""
    for kind in (pl.Int64, pl.Float64):
        numbers = column.cast(kind, strict=False)
        if not numbers.null_count():
            return numbers
    return column


def read_strings(path: Path) -> tuple[pl.DataFrame, bytes]:
    """The table of a file, where all cells of a `.csv` file are strings; and its content.

    Raises:
        ArgumentError: it is no `.csv`, `.jsonl` or `.parquet` file, or has an encoding that is not read
            (`csv_text.decode_text`).
    """
    kind = path.suffix.lower()
    expected = "a .csv, .jsonl or .parquet file of texts"
    check(
        kind in (".csv", ".jsonl", ".parquet") and path.is_file(), "path", expected, repr(str(path))
    )
    content = _read_content(path, f"a {kind} table")
    with _reading(path, f"a {kind} table"):
        if kind == ".csv":  # texts stay as they are, such as 007
            table = pl.read_csv(read_csv_text(path, content, texts=None), infer_schema=False)
        elif kind == ".parquet":
            table = pl.read_parquet(io.BytesIO(content))
        else:
            table = pl.read_ndjson(decode_text(path, content).encode(), infer_schema_length=None)
    return table, content


def read_labelled_series(path: Path) -> Content:
    """Read a `.ts` or `.tsv` file: series `(N, channels, steps)` as they are, and their classes; no bounds.

    Raises:
        ArgumentError: the file does not have the format (see `series_files`), values are missing, or series have
            different lengths.
    """
    series = read_series(path)
    expected = "series of one length without missing values (a set of the archives, ucr:<name>, may have both)"
    lengths = f"{series.steps.min()} to {series.steps.max()} steps"
    is_even = bool((series.steps == series.steps[0]).all())
    check(is_even, "path", expected, f"{path.name} with series of {lengths}")
    has_hole = np.isnan(series.values).any((1, 2))
    holes = int(has_hole.sum())
    check(
        not holes,
        "path",
        expected,
        f"{path.name} with missing values in {holes} of {len(series.values)} series",
    )
    about = _describe(path, read_file(path))
    labels = None
    if series.labels is not None:
        classes, (numbers,) = number_labels([series.labels])
        about["classes"] = list(classes)
        labels = as_labels(numbers)
    return Content(as_inputs(series.values), labels, about, bounds=(-math.inf, math.inf))


def _find_array(arrays: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    return next((arrays[name] for name in names if arrays.get(name) is not None), None)


def as_inputs(values: Any, argument: str = "path") -> Tensor:
    """Convert an array or a tensor to inputs: uint8 is scaled to [0, 1], NumPy's doubles become single precision.

    Raises:
        ArgumentError: the values have another type, fewer than two dimensions or no entries, or are NaN or infinite.

    >>> as_inputs(np.array([[0, 255]], dtype=np.uint8))
    tensor([[0., 1.]])
    """
    if isinstance(values, np.ndarray):
        check(
            values.dtype.kind in "fu",
            argument,
            "inputs as floats or uint8",
            f"values of type {values.dtype}",
        )
        if values.dtype.kind == "f":
            # models are trained in single precision
            values = values.astype(np.float32)
        values = torch.from_numpy(np.ascontiguousarray(values))
    check(
        isinstance(values, Tensor),
        argument,
        "inputs as a tensor or an array",
        type(values).__name__,
    )
    inputs = widen_half(values.detach().cpu())
    # before values are changed, by which pictures are recognised
    warn_of_pictures(inputs)
    if inputs.dtype == torch.uint8:
        inputs = inputs.to(torch.float32).div_(255)
    check(
        inputs.is_floating_point(),
        argument,
        "inputs as floats or uint8",
        f"values of type {inputs.dtype}",
    )
    shape = tuple(inputs.shape)
    check(
        inputs.ndim >= 2 and inputs.numel() > 0,
        argument,
        "inputs of shape (N, ...)",
        f"shape {shape}",
    )
    check(bool(torch.isfinite(inputs).all()), argument, FINITE, "NaN or infinity among them")
    return inputs.contiguous()


def warn_of_pictures(inputs: Tensor) -> None:
    """Warn if uint8 inputs look like pictures `(N, H, W)` or `(N, H, W, C)`: as inputs they are `(N, C, H, W)`."""
    hint = suggest_layout(
        inputs, lambda x: x.ndim == 4 and len(x) == len(inputs) and x.shape[1] in (1, 3, 4)
    )
    if hint and inputs.dtype == torch.uint8 and inputs.ndim > 2 and inputs.shape[1] > 4:
        shape = tuple(inputs.shape)
        kind = "series (N, C, T)" if inputs.ndim == 3 else "images (N, C, H, W)"
        warn_user(f"inputs: shape {shape} is read as {kind}. If that is wrong, they are {hint}")


def as_labels(values: Any, argument: str = "path") -> Tensor:
    """Convert an array or a tensor to labels `(N,)`: classes as int64, or numbers that a regressor learns as float32.

    Raises:
        ArgumentError: the values are no whole numbers of at least 0, and no finite ones, in one dimension.

    >>> as_labels(np.array([1, 0], dtype=np.uint8))
    tensor([1, 0])
    """
    if isinstance(values, Tensor):
        labels = values.detach().cpu()
    else:
        labels = torch.as_tensor(np.asarray(values))
    fits = not labels.is_complex() and labels.dtype != torch.bool
    got = f"{labels.dtype} of shape {tuple(labels.shape)}"
    check(fits and labels.ndim == 1, argument, "labels as numbers of shape (N,)", got)
    if labels.is_floating_point():
        check(
            bool(labels.isfinite().all()), argument, "finite labels", "NaN or infinity among them"
        )
        return labels.float()
    labels = labels.to(torch.int64)
    least = min(labels.tolist(), default=0)
    check(least >= 0, argument, "labels of at least 0", least)
    return labels


def read_images(
    folder: Path, count: int | None = None, size: Size | None = None, grayscale: bool | None = None
) -> Content:
    """Read the images in a folder, `(N, channels, height, width)`, in the order of their names.

    Subfolders are classes, in the order of their names, and give the labels. Then the samples are the
    first image of each class, the second of each, and so on, so the first few samples have all classes.
    Images have one channel if all of them are gray, else three; transparency is ignored. Values of 8 and 16 bits are
    scaled to [0, 1]; those of a TIFF of floats stay as they are. Photos are not turned as their EXIF orientation says,
    with a warning. Of an animation the first picture is taken.

    Raises:
        ArgumentError: there are no images; there are images both in the folder and in its subfolders; a file is not an
            image, or a stack of several; the images have several sizes; some are floats and others are not.
    """
    images = load_images(folder, count, size, grayscale)
    about: dict[str, Any] = {"path": folder.name, "images": images.count}
    if images.classes:
        about["classes"] = list(images.classes)
    if images.floats:
        about["floats"] = True
    return Content(images.inputs, images.labels, about, sample_names=images.names)
