"""Reference inputs of explainers, metrics and neighbourhoods: named in the file, read when the grid is built."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, model_validator
from torch import Tensor

from standfast import data
from standfast.data.dataset import Dataset
from standfast.data.user_files import Content, read_data
from standfast.errors import ArgumentError, check
from standfast.explainers import Background
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import find_name
from standfast.records import set_fields
from standfast.study.file.entries import Count
from standfast.study.file.names import DATA
from standfast.study.file.problems import Entry, errors_at, reject, show

T = TypeVar("T")


def read_data_at(path: Path, *how: Any) -> Content:
    """The data in a file or a folder, by `data.user_files.read_data`; pipes and devices are refused."""
    fits = path.is_file() or path.is_dir() or not path.exists()
    check(
        fits,
        "path",
        "a file or a folder",
        f"{str(path)!r}: a pipe or a device, of which reading may never end",
    )
    return read_data(path, *how)


def _check_data(name: str) -> str:
    if not DATA.knows(name):
        raise DATA.make_unknown_error(name)
    return name


class BackgroundEntry(Entry):
    """Reference inputs: a file or a data set, and how many to take from its start.

    Args:
        path: as of data, relative to the study file.
        data: a data set.
        samples: take this many from the start.
    """

    path: str | None = None
    data: Annotated[str, AfterValidator(_check_data)] | None = None
    samples: Count | None = None

    @model_validator(mode="after")
    def _check_source(self) -> BackgroundEntry:
        if (self.path is None) == (self.data is None):
            got = "path and data at once"
            if self.path is None:
                got = show(self.model_dump(exclude_none=True))
            raise reject("a background with exactly one of path, data", got)
        # a data set of the zoo may have thousands of samples, and each costs a pass
        if self.data is not None and self.samples is None:
            raise reject("a value beside data", "nothing", "samples")
        return self


@dataclass(frozen=True, init=False)
class StoredBackground(Background):
    """Reference inputs that are not read yet.

    Args:
        entry: of the file.
    """

    entry: BackgroundEntry

    def __init__(self, entry: BackgroundEntry) -> None:
        set_fields(self, shape=(entry.samples or 1,), digest="", entry=entry)

    @property
    def inputs(self) -> Tensor:
        """Not there yet."""
        raise ArgumentError("background", "reference inputs that have been read", self.written)

    @property
    def written(self) -> dict[str, Any]:
        """As in a study file."""
        return self.entry.model_dump(exclude_none=True)

    def read(self, base: Path) -> Background:
        """The reference inputs themselves, with paths relative to `base`."""
        entry = self.entry
        with errors_at(keys=entry.known(), key="path"):
            rows: Dataset | Content
            if entry.data is not None:
                rows = data.load(entry.data)
            else:
                rows = read_data_at(base / str(entry.path))
            least = f"at most the {len(rows.inputs)} samples that there are"
            check(
                entry.samples is None or entry.samples <= len(rows.inputs),
                "samples",
                least,
                entry.samples,
            )
            return Background(rows.inputs[: entry.samples])


@dataclass(frozen=True)
class ReferenceReader:
    """Reads the reference inputs that configurations of a study name, each of them once.

    Args:
        base: the folder that paths are relative to.
    """

    base: Path
    _known: dict[StoredBackground, Background] = field(default_factory=dict)

    def read_in(self, value: T, *keys: str | int) -> T:
        """The same explainer, metric or neighbourhood with its reference inputs.

        Raises:
            StudyFieldError: they cannot be read; at the option, beneath `keys`. This is said once for each.
        """
        name = find_name_in_file(value) if keys else ""
        names = [name] if name else []
        with errors_at(*keys, *names):
            return self._read_in(value)  # type: ignore[no-any-return]

    def _read_in(self, value: Any) -> Any:
        if isinstance(value, StoredBackground):
            # noted before it is read, so that what cannot be read is said once
            if value not in self._known:
                self._known[value] = value
                self._known[value] = value.read(self.base)
            return self._known[value]
        if isinstance(value, tuple):
            parts = tuple(self.read_in(part, index) for index, part in enumerate(value))
            # the same object where nothing has changed, so that nothing is made twice
            if all(one is other for one, other in zip(parts, value, strict=True)):
                return value
            return parts
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        changed: dict[str, Any] = {}
        for option in dataclasses.fields(value):
            if not option.init:
                continue
            stored_value = getattr(value, option.name)
            read_value = self.read_in(stored_value, option.name)
            if read_value is not stored_value:
                changed[option.name] = read_value
        # the class checks again, and may refuse what was read
        with errors_at(keys=list(changed)):
            if changed:
                return dataclasses.replace(value, **changed)
            return value


def find_name_in_file(value: object) -> str:
    """The name that a configured value has in a study file; empty if it has none."""
    if isinstance(value, Neighbourhood):
        return find_name(type(value))
    if dataclasses.is_dataclass(value):
        return str(getattr(value, "name", ""))
    return ""
