"""Data sets of the Hugging Face hub, and any object with their interface: rows by column name, and features.

The name `huggingface:<name>:<split>` stands for the folder `huggingface/<name>/<split>/` under `data_root()`, in the
format of `save_to_disk`. Downloads are stored there too. Names need the extra `data`; `from_huggingface` does not.
"""

from __future__ import annotations

import importlib
import itertools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from standfast.data.conversion import Size, choose_samples, collect, parse_name, parse_size
from standfast.data.dataset import Dataset
from standfast.data.root import VARIABLE, MissingDataError, data_root
from standfast.errors import ArgumentError, MissingExtraError, check
from standfast.tensors import Bound

PREFIX = "huggingface"
_FORM = "huggingface:<name>:<split>, such as huggingface:ylecun/mnist:test:count=100"


def from_huggingface(
    dataset: Any,
    *,
    image: str | None = None,
    label: str | None = None,
    name: str | None = None,
    size: Size | None = None,
    count: int | None = None,
    seed: int | None = None,
    classes: Sequence[str] | None = None,
    bounds: tuple[Bound, Bound] = (0.0, 1.0),
) -> Dataset:
    """Make a data set from a `datasets.Dataset`, or an object like it.

    The object must return rows by number as mappings, and have `column_names` and `features`. Pictures become
    `(1 or 3, H, W)` in [0, 1]; columns of numbers, such as series or features, keep their values and shape.

    Args:
        dataset: one split. A streamed split needs `count`; its first samples are read.
        image: the column of inputs; by default the only one whose feature is an `Image`.
        label: the column of labels; by default the only one whose feature is a `ClassLabel`.
        name: name of the data set, for reports.
        size: resize pictures to `(height, width)`, or to a square; needed if they differ in size.
        count: how many samples to read and decode; all by default.
        seed: seed to draw the samples at random; by default the first ones are read.
        classes: names of the classes; by default those of the `ClassLabel`, or the labels.
        bounds: range of the input values.

    Raises:
        ArgumentError: `dataset` is a `DatasetDict`, not a split; a column does not exist, or several could be meant;
            labels or inputs are invalid.

    >>> class Rows(list):  # or datasets.load_dataset("ylecun/mnist", split="test")
    ...     column_names = ["series", "answer"]
    ...     features = {"series": None, "answer": None}
    >>> rows = Rows([{"series": [[0.5, 1.0]], "answer": "yes"}, {"series": [[0.0, 0.1]], "answer": "no"}])
    >>> found = from_huggingface(rows, image="series", label="answer")
    >>> found.inputs.shape, found.labels.tolist(), found.classes
    (torch.Size([2, 1, 2]), [1, 0], ('no', 'yes'))
    """
    columns: Any = getattr(dataset, "column_names", None)
    splits = f"a dict of splits: {', '.join(dataset)}" if isinstance(dataset, dict) else type(dataset).__name__
    check(isinstance(columns, list | tuple), "dataset", "one split of a data set, with column_names", splits)
    features = getattr(dataset, "features", None) or {}
    image = _find_column("image", image, columns, features, "Image")
    label = _find_column("label", label, columns, features, "ClassLabel")
    if classes is None:
        names = getattr(features.get(label), "names", None)
        classes = None if names is None else tuple(str(each) for each in names)
    name = name or str(getattr(getattr(dataset, "info", None), "dataset_name", None) or type(dataset).__name__)
    pairs = ((row[image], row[label]) for row in _iterate_rows(dataset, count, seed, name))
    return collect(pairs, name, classes, size, bounds)


def _find_column(what: str, given: str | None, columns: Sequence[str], features: Any, kind: str) -> str:
    listed = ", ".join(map(str, columns))
    if given is not None:
        check(given in columns, what, f"one of the columns {listed}", repr(given))
        return given
    found = [column for column in columns if type(features.get(column)).__name__ == kind]
    got = f"{len(found)} ({', '.join(found)})" if found else "none"
    expected = f"the name of a column ({listed}); optional only if exactly one column is of type {kind}"
    check(len(found) == 1, what, expected, got)
    return found[0]


def _iterate_rows(dataset: Any, count: int | None, seed: int | None, name: str) -> Iterator[Any]:
    if hasattr(dataset, "__len__"):
        return (dataset[index] for index in choose_samples(len(dataset), count, seed, name))
    check(count is not None and count >= 1, "count", "a number of samples, because this data set is a stream", count)
    check(seed is None, "seed", "none, because this data set is a stream: shuffle the stream instead", seed)
    return itertools.islice(iter(dataset), count)


def load_from_hub(name: str, download: bool = False) -> Dataset:
    """Load the data set with the name `"huggingface:<name>:<split>"`; options may follow after another colon.

    The options are `image`, `label`, `size`, `count`, `seed`, as in `from_huggingface`, and `config`, the set's
    configuration. Downloads of `datasets` are stored under `huggingface/` in `data_root()` and are later read from
    there, without a network. Code that is part of a data set is not run.

    Raises:
        MissingExtraError: `datasets` is not installed.
        ArgumentError: the name is malformed, or `from_huggingface` raises it.
        MissingDataError: the data set is not on this computer, and `download` is False or the download failed.
    """
    known: dict[str, Callable[[str], Any]] = dict.fromkeys(("image", "label", "config"), str)
    known |= {"size": parse_size, "count": int, "seed": int}
    (_, repository, split), options = parse_name(name, 3, known, _FORM)
    config = options.pop("config", None)
    for part in (repository, split, *([config] if config else ())):
        fine = re.fullmatch(r"\w[\w.-]*(/\w[\w.-]*)?", part) is not None and ".." not in part
        check(fine, "name", "letters, digits and . _ - in names, splits and configurations", repr(part))
    folder = data_root() / PREFIX / repository / (config or "") / split
    try:
        package: Any = importlib.import_module("datasets")
    except ImportError as error:
        raise MissingExtraError(f"{name} through datasets ({error})", "data") from error
    if not folder.is_dir():
        if not download:
            raise MissingDataError(
                f"{name}: there is no {folder}. Save the split there with its save_to_disk, set {VARIABLE} to the"
                f" folder that contains {PREFIX}/, or pass download=True."
            )
        _download(package, repository, config, split, folder)
    try:
        found = package.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        expected = "a split in the format of save_to_disk"
        raise ArgumentError(str(folder), expected, f"{type(error).__name__}: {error}") from error
    return from_huggingface(found, name=":".join((PREFIX, repository, split)), **options)


def _download(package: Any, repository: str, config: str | None, split: str, folder: Path) -> None:
    """Download a split; the folder appears only when it is complete."""
    try:
        found = package.load_dataset(repository, config, split=split)
    except Exception as error:  # the hub, the package and the network raise many kinds of errors
        message = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise MissingDataError(f"{PREFIX}:{repository}:{split}: could not be downloaded: {message}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{split}."))
    try:
        found.save_to_disk(str(part))
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
