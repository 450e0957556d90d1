"""Labelled series in text files of the UCR and UEA archives: `.tsv`, and the `.ts` format of aeon and tsml.

`.tsv` (Dau et al., The UCR time series archive, 2019): a row for each series, its class first, all separated by tabs.
There is one channel. NaN stands for missing values, and fills the end of shorter series.

`.ts` (https://www.aeon-toolkit.org/en/stable/api_reference/data_format.html): lines with `#` are comments, those with
`@` describe the set, and below `@data` there is a line for each series. Colons separate its channels and, at the end,
its class; commas separate the values of a channel; `?` or NaN stands for a missing value. Channels and series may have
different lengths. Files with time stamps, or with numbers to predict in place of classes, are refused.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from standfast.errors import ArgumentError, check
from standfast.files import find_room, read_file

ENDINGS = (".ts", ".tsv")
_Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class LabelledSeries:
    """The series in a file.

    Attributes:
        values: float32 `(N, channels, steps)`, with NaN for missing values and after the end of shorter series.
        steps: how many steps each series has, int64 `(N,)`.
        labels: the class of each series as in the file; None where there are no classes.
    """

    values: _Array
    steps: _Array
    labels: tuple[str, ...] | None


def read_series(path: Path) -> LabelledSeries:
    """Read the series in a `.ts` or `.tsv` file.

    Raises:
        ArgumentError: the file is not there, has another ending, or a line does not have the format.

    >>> import tempfile
    >>> text = "@univariate false\\n@classLabel true up down\\n@data\\n1,2,?:3,4,5:up\\n7,8:9,9:down\\n"
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = (Path(folder) / "a.ts").write_text(text)
    ...     found = read_series(Path(folder) / "a.ts")
    >>> found.values.tolist()
    [[[1.0, 2.0, nan], [3.0, 4.0, 5.0]], [[7.0, 8.0, nan], [9.0, 9.0, nan]]]
    >>> found.steps.tolist(), found.labels
    ([3, 2], ('up', 'down'))
    """
    check(
        path.suffix.lower() in ENDINGS,
        "path",
        f"a file that ends with {' or '.join(ENDINGS)}",
        repr(path.name),
    )
    try:
        content = read_file(path)
    except OSError as error:
        raise ArgumentError(
            "path", f"a {path.suffix} file that can be read", f"{path}: {error.strerror}"
        ) from error
    lines = content.decode("utf-8-sig", "replace").splitlines()
    read = _read_ts if path.suffix.lower() == ".ts" else _read_tsv
    series, labels = read(path.name, lines)
    check(len(series) > 0, "path", "at least one series", f"{path.name} without any")
    channel_counts = {len(channels) for channels in series}
    got = f"{path.name} with {sorted(channel_counts)}"
    check(len(channel_counts) == 1, "path", "as many channels in all series", got)
    steps = np.array([max(map(len, channels)) for channels in series])
    shape = (len(series), channel_counts.pop(), int(steps.max()))
    room = find_room(len(content))  # one long series makes all others as long
    check(
        4 * math.prod(shape) <= room,
        "path",
        f"series of less than {room:,} bytes",
        f"{path.name} with {shape}",
    )
    # shorter series end with NaN, as in the archive's own files
    values = np.full(shape, np.nan, np.float32)
    for number, channels in enumerate(series):
        for channel, numbers in enumerate(channels):
            values[number, channel, : len(numbers)] = numbers
    labels_of_series = None if labels is None else tuple(labels)
    return LabelledSeries(values, steps, labels_of_series)


def number_labels(
    labels: Iterable[Sequence[str]],
) -> tuple[tuple[str, ...], list[npt.NDArray[np.int64]]]:
    """The classes in several lists of labels, numbers in their order and texts after them; and each list as numbers.

    >>> classes, numbers = number_labels([["10", "9", "b"], ["b", "-1"]])
    >>> classes, [array.tolist() for array in numbers]
    (('-1', '9', '10', 'b'), [[2, 1, 3], [3, 0]])
    """
    lists = [list(labels_of_list) for labels_of_list in labels]
    # over all lists together, so that a class has one number in both splits
    classes = sorted(set(itertools.chain.from_iterable(lists)), key=_sort_key)
    number_of = {label: number for number, label in enumerate(classes)}
    numbers: list[npt.NDArray[np.int64]] = []
    for labels_of_list in lists:
        numbers_of_list = [number_of[label] for label in labels_of_list]
        numbers.append(np.array(numbers_of_list, np.int64))
    return tuple(classes), numbers


def _sort_key(label: str) -> tuple[int, float, str, str]:
    """Sorts numbers by value, and texts after them, as if in small letters: aeon reads all letters as small ones."""
    try:
        return 0, float(label), "", label
    except ValueError:
        return 1, 0.0, label.lower(), label


def _read_tsv(name: str, lines: Sequence[str]) -> tuple[list[list[_Array]], list[str]]:
    series = []
    labels = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            label, *values = line.rstrip().split("\t")
            expected = "a class and at least one value, separated by tabs"
            check(len(values) > 0, "path", expected, f"{name}, line {number}: {line[:40]!r}")
            series.append([_to_numbers(values, name, number)])
            labels.append(_name_class(label))
    return series, labels


def _read_ts(name: str, lines: Sequence[str]) -> tuple[list[list[_Array]], list[str] | None]:
    about: dict[str, list[str]] = {}
    series: list[list[_Array]] = []
    labels: list[str] = []
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith("#"):
            continue
        # descriptions end at this line
        if "data" not in about:
            got = f"{name}, line {number}: {line[:40]!r}"
            check(line.startswith("@"), "path", "lines with # or @ before @data", got)
            key, *words = line[1:].split()
            about[key.lower()] = words
            _check_supported(name, key.lower(), words)
            continue
        parts = line.split(":")
        if _is_true(about.get("classlabel")):
            *parts, label = parts
            labels.append(label.strip())
        if labels:
            what = "values of each channel, and the class"
        else:
            what = "values of each channel"
        check(
            len(parts) > 0,
            "path",
            f"{what}, separated by colons",
            f"{name}, line {number}: {line[:40]!r}",
        )
        series.append([_to_numbers(part.split(","), name, number) for part in parts])
    check("data" in about, "path", "a line with @data", f"{name} without it")
    return series, labels if _is_true(about.get("classlabel")) else None


def _check_supported(name: str, key: str, words: Sequence[str]) -> None:
    """Raise `ArgumentError` for what a `.ts` file may have, and this module does not read."""
    if key == "timestamps":
        check(
            not _is_true(words),
            "path",
            "series without time stamps",
            f"{name} with @timeStamps true",
        )
    if key == "targetlabel":
        check(
            not _is_true(words),
            "path",
            "series with classes",
            f"{name} with numbers to predict (@targetLabel true)",
        )


def _is_true(words: Sequence[str] | None) -> bool:
    return bool(words) and words[0].lower() == "true"  # type: ignore[index]


def _to_numbers(values: Sequence[str], name: str, number: int) -> _Array:
    try:
        numbers = ["nan" if value.strip() == "?" else value for value in values]
        return np.array(numbers, dtype=np.float32)
    except ValueError as error:
        expected = "numbers, or ? or NaN for missing ones"
        raise ArgumentError("path", expected, f"{name}, line {number}: {error}") from None


def _name_class(label: str) -> str:
    """The name of a class; whole numbers, which some files write as 1.0000000e+00, without their decimals."""
    try:
        value = float(label)
    except ValueError:
        return label.strip()
    # a class has one name, however a file writes it
    if value.is_integer():
        return str(int(value))
    return label.strip()
