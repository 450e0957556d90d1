"""Data sets of the Hugging Face hub, and any object with their interface: rows by column name, and features.

By name, `huggingface:<name>:<split>`, they lie under `huggingface/<name>/<split>/` in `data_root()`, as `save_to_disk`
writes them; downloaded ones are put there. Needs the extra `data`; an object that you have needs nothing.
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

from holdfast.data.conversion import Size, chosen, collected, parsed, size_of
from holdfast.data.dataset import Dataset
from holdfast.data.root import VARIABLE, MissingDataError, data_root
from holdfast.errors import ArgumentError, MissingExtraError, check

PREFIX = "huggingface"
_FORM = "huggingface:<name>:<split>, as huggingface:ylecun/mnist:test:count=100"


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
    bounds: tuple[float, float] = (0.0, 1.0),
) -> Dataset:
    """A `datasets.Dataset`, or anything like it: rows by number as mappings, `column_names`, `features`.

    Pictures become `(1 or 3, H, W)` in [0, 1]; columns of numbers, as series or features, are taken as they are.

    Args:
        dataset: one split; a streamed one needs `count`, and takes it from the start.
        image: the column of inputs; by default the only one whose feature is an `Image`.
        label: the column of labels; by default the only one whose feature is a `ClassLabel`.
        name: for reports.
        size: resize pictures to `(height, width)`, or to a square; needed where they differ in size.
        count: read so many samples; all by default. Only these are decoded.
        seed: draw them at random rather than from the start.
        classes: names; by default those of the `ClassLabel`, or the labels themselves.
        bounds: of the values.

    Raises:
        ArgumentError: a `DatasetDict` rather than a split, a column that is not there or not to be told from others,
            labels or inputs that do not fit.

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
    image = _column("image", image, columns, features, "Image")
    label = _column("label", label, columns, features, "ClassLabel")
    if classes is None:
        names = getattr(features.get(label), "names", None)
        classes = None if names is None else tuple(str(each) for each in names)
    name = name or str(getattr(getattr(dataset, "info", None), "dataset_name", None) or type(dataset).__name__)
    pairs = ((row[image], row[label]) for row in _rows(dataset, count, seed, name))
    return collected(pairs, name, classes, size, bounds)


def _column(what: str, given: str | None, columns: Sequence[str], features: Any, kind: str) -> str:
    listed = ", ".join(map(str, columns))
    if given is not None:
        check(given in columns, what, f"one of the columns {listed}", repr(given))
        return given
    found = [column for column in columns if type(features.get(column)).__name__ == kind]
    got = f"{len(found)} ({', '.join(found)})" if found else "none"
    check(len(found) == 1, what, f"the name of a column ({listed}), unless just one of them is of type {kind}", got)
    return found[0]


def _rows(dataset: Any, count: int | None, seed: int | None, name: str) -> Iterator[Any]:
    if hasattr(dataset, "__len__"):
        return (dataset[place] for place in chosen(len(dataset), count, seed, name))
    check(count is not None and count >= 1, "count", "a number of samples, as this data set is a stream", count)
    check(seed is None, "seed", "none, as this data set is a stream: shuffle the stream itself", seed)
    return itertools.islice(iter(dataset), count)


def load_of_huggingface(name: str, download: bool = False) -> Dataset:
    """The set that `"huggingface:<name>:<split>"` asks for, with options behind another colon.

    Options: `image`, `label`, `size`, `count`, `seed` as of `from_huggingface`; `config`, which of the set's
    configurations. What `datasets` downloads is kept under `huggingface/` in `data_root()`, and later found there
    without a network. No code that comes with a data set is run.

    Raises:
        MissingExtraError: `datasets` is not installed.
        ArgumentError: a malformed name; `from_huggingface` says the rest.
        MissingDataError: it is not on this computer, and was not to be or could not be downloaded.
    """
    known: dict[str, Callable[[str], Any]] = dict.fromkeys(("image", "label", "config"), str)
    known |= {"size": size_of, "count": int, "seed": int}
    (_, repository, split), options = parsed(name, 3, known, _FORM)
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
                f" folder that holds {PREFIX}/, or pass download=True."
            )
        _fetch(package, repository, config, split, folder)
    try:
        found = package.load_from_disk(str(folder))
    except (OSError, ValueError, KeyError) as error:
        expected = "a split as save_to_disk writes it"
        raise ArgumentError(str(folder), expected, f"{type(error).__name__}: {error}") from error
    return from_huggingface(found, name=":".join((PREFIX, repository, split)), **options)


def _fetch(package: Any, repository: str, config: str | None, split: str, folder: Path) -> None:
    """Download a split; it appears under its name when it is whole."""
    try:
        found = package.load_dataset(repository, config, split=split)
    except Exception as error:  # of the hub's, the package's and the network's many kinds
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise MissingDataError(f"{PREFIX}:{repository}:{split}: it could not be downloaded: {said}") from error
    folder.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{split}."))
    try:
        found.save_to_disk(str(part))
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
