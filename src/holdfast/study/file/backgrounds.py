"""Reference inputs of an explainer, as a study file names them: in a file, or of a data set."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeVar, cast

from pydantic import AfterValidator, Field, model_validator
from torch import Tensor

from holdfast import data
from holdfast.data.user_files import read_data
from holdfast.errors import ArgumentError, check
from holdfast.explainers import Background, Explainer
from holdfast.metrics.base import Metric
from holdfast.records import set_fields
from holdfast.study.file.names import DATA
from holdfast.study.file.problems import Collector, Entry, Expected, errors_of, misfit, show

BACKGROUND_FORMS = "a number, one for each channel, a file of reference inputs, or {data: NAME, samples: N}"

E = TypeVar("E", bound=Explainer | Metric)


def _check_name(name: str) -> str:
    if not DATA.knows(name):
        raise DATA.unknown(name)
    return name


class BackgroundEntry(Entry):
    """Reference inputs: a file or a data set, and how many to take from its start."""

    key: ClassVar[str] = "a key of a background"
    form: ClassVar[str] = "path"

    path: Annotated[str, Expected("a text")] | None = Field(None, description="As of data, relative to the study file.")
    data: Annotated[str, AfterValidator(_check_name), Expected("a text")] | None = None
    samples: Annotated[int, Field(ge=1), Expected("a whole number of at least 1")] | None = Field(
        None, description="Take this many from the start."
    )

    @model_validator(mode="after")
    def _check_source(self) -> BackgroundEntry:
        if (self.path is None) == (self.data is None):
            got = show(self.model_dump(exclude_none=True)) if self.path is None else "path and data at once"
            raise misfit("a background with exactly one of path, data", got)
        if self.data is not None and self.samples is None:
            raise misfit("a whole number of at least 1", "nothing", "samples")
        return self


@dataclass(frozen=True, init=False)
class StoredBackground(Background):
    """Reference inputs that are not read yet: those of a study are read when its grid is built."""

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
        """The reference inputs themselves; a path is relative to `base`."""
        name, samples = self.entry.data, self.entry.samples
        with errors_of(self.entry, "data"):
            found = data.load(name).inputs if name is not None else read_data(base / str(self.entry.path)).inputs
            least = f"at most the {len(found)} samples that there are"
            check(samples is None or samples <= len(found), "samples", least, samples)
            return Background(found[:samples])


def with_backgrounds(explainer: E, base: Path) -> E:
    """The explainer or metric with the backgrounds that its options name read from `base`."""
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
