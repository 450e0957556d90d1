"""Reference inputs of an explainer, as a study file names them: in a file, or of a data set."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from torch import Tensor

from holdfast import data
from holdfast.errors import ArgumentError, HoldfastError
from holdfast.explainers import Background, Explainer
from holdfast.metrics.base import Metric
from holdfast.records import set_fields
from holdfast.study.file.files import read_data
from holdfast.study.file.problems import Collector, Problem, Wrong, nearest, shown, unknown

WORDS = "a number, one for each channel, a file of reference inputs, or {data: NAME, samples: N}"
_KEYS = ("path", "data", "samples")

E = TypeVar("E", bound=Explainer | Metric)


@dataclass(frozen=True, init=False)
class StoredBackground(Background):
    """Reference inputs that are not read yet: a study's are when its grid is built.

    Attributes:
        path: of a file as under `data`, relative to the study file; or None.
        data: a data set by its name; or None.
        samples: how many to take from the start; None for all of a file's.
    """

    path: str | None
    data: str | None
    samples: int | None

    def __init__(self, path: str | None = None, data: str | None = None, samples: int | None = None) -> None:
        set_fields(self, shape=(samples or 1,), digest="", path=path, data=data, samples=samples)

    @property
    def inputs(self) -> Tensor:
        """Not there yet."""
        raise ArgumentError("background", "reference inputs that have been read", self.written)

    @property
    def written(self) -> dict[str, Any]:
        """As in a study file."""
        return {key: getattr(self, key) for key in _KEYS if getattr(self, key) is not None}

    def read(self, base: Path) -> Background:
        """The reference inputs themselves.

        Raises:
            Wrong: the file or the data set is missing, broken, or has fewer samples.
        """
        try:
            found = data.load(self.data).inputs if self.data is not None else read_data(base / str(self.path)).inputs
            if self.samples is not None and self.samples > len(found):
                raise ArgumentError("samples", f"at most the {len(found)} samples that there are", self.samples)
            return Background(found[: self.samples])
        except ArgumentError as error:
            at = ("samples",) if error.argument == "samples" else ()
            raise Wrong(Problem(at, error.expected, str(error.got))) from error
        except HoldfastError as error:
            raise Wrong(Problem((), "data that can be loaded", str(error))) from error


def stored_background(raw: str | Mapping[Any, Any]) -> StoredBackground:
    """A file's path, `{path: FILE, samples: N}` or `{data: NAME, samples: N}`; nothing is read.

    Raises:
        Wrong: unknown keys or data sets, both kinds or none, a number of samples that is none.

    >>> stored_background({"data": "mnist:train", "samples": 20}).written
    {'data': 'mnist:train', 'samples': 20}
    """
    if isinstance(raw, str):
        return StoredBackground(path=raw)
    problems = Collector()
    for key in raw:
        if key not in _KEYS:
            expected = f"a key of a background ({', '.join(_KEYS)})"
            problems.problems.append(Problem((key,), expected, shown(key), near=nearest(key, _KEYS)))
    problems.finish()
    kinds = [key for key in ("path", "data") if key in raw]
    if len(kinds) != 1:
        got = shown(raw) if not kinds else "path and data at once"
        raise Wrong(Problem((), "a background with exactly one of path, data", got))
    (kind,) = kinds
    with problems.at(kind):
        if not isinstance(raw[kind], str):
            raise Wrong(Problem((), "a text", shown(raw[kind])))
        if kind == "data" and not data.is_known(raw[kind]):
            raise Wrong(unknown("a data set", raw[kind], data.names(), ()))
    samples = raw.get("samples")
    fine = (samples is None and kind == "path") or (type(samples) is int and samples >= 1)
    if not fine:
        got = shown(samples) if "samples" in raw else "nothing"
        problems.problems.append(Problem(("samples",), "a whole number of at least 1", got))
    problems.finish()
    return StoredBackground(**{kind: raw[kind]}, samples=samples)


def with_backgrounds(explainer: E, base: Path) -> E:
    """The explainer or metric with what its options name read from `base`; itself where they name nothing.

    Raises:
        Wrong: it cannot be read; at the option's name.
    """
    if not dataclasses.is_dataclass(explainer):
        return explainer
    problems, read = Collector(), {}
    for field in dataclasses.fields(explainer):
        value = getattr(explainer, field.name)
        if isinstance(value, StoredBackground):
            with problems.at(field.name):
                read[field.name] = value.read(base)
    problems.finish()
    return cast(E, dataclasses.replace(explainer, **read) if read else explainer)
