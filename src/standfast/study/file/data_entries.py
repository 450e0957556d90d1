"""Data in a study file: of a loader, in a file, or from a function; and how they are loaded.

Reference inputs of an explainer are data, too.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, cast

import torch
from pydantic import AfterValidator, Field, Strict, model_validator
from torch import Tensor

from standfast import data
from standfast.data import Dataset
from standfast.data.user_files import Content, as_inputs, as_labels, read_data
from standfast.errors import ArgumentError, check
from standfast.explainers import Background, Explainer
from standfast.metrics.base import Metric
from standfast.model import Bound
from standfast.neighbourhoods import Corruption, Neighbourhood
from standfast.neighbourhoods.corruptions import read_photographs
from standfast.records import set_fields
from standfast.study.file.entries import (
    Count,
    Flag,
    Name,
    Numbers,
    OptionValues,
    PerChannel,
    Reference,
    Text,
    per_channel,
)
from standfast.study.file.imports import call_function
from standfast.study.file.names import DATA
from standfast.study.file.problems import Collector, Entry, Expected, errors_at, errors_of, misfit, show
from standfast.study.grid import Samples
from standfast.tensors import describe_bounds


def _check_order(bounds: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
    lower, upper = ((b if isinstance(b, tuple) else (b,)) for b in bounds)
    size = max(len(lower), len(upper))
    fits = {len(lower), len(upper)} <= {1, size}
    if not fits or not all(low < high for low, high in zip(lower * size, upper * size, strict=False)):
        raise ValueError
    return bounds


Bounds = Annotated[
    tuple[float | PerChannel, float | PerChannel],
    Strict(False),
    AfterValidator(_check_order),
    Expected("a lower and a higher bound, [0, 1], or two lists with one for each channel"),
]
OwnBounds = Annotated[
    Bounds | None, Field(description="Valid values of an input, [lower, upper]; [0, 1] where nothing else is known.")
]
Targets = Annotated[Literal["predicted", "labels"], Expected("predicted or labels", ("predicted", "labels"))]


E = TypeVar("E", bound=Explainer | Metric | Neighbourhood)


class DataEntry(Entry):
    """Data under a name."""

    targets: Targets = Field("predicted", description="Classes to explain: the model's own predictions, or the labels.")
    samples: Count | None = Field(None, description="Take this many from the start.")

    def load(self, base: Path, samples: int | None = None) -> Samples:
        """What the entry stands for, in memory.

        Args:
            base: the folder that paths are relative to and that functions are imported from.
            samples: how many to take from the start where the entry does not say.

        Raises:
            Misfit: files, functions or values that do not fit; at the key of the entry that is at fault.
        """
        count = samples if self.samples is None else self.samples
        with errors_of("data", self.form, self.words()):
            found = _take_first(self._load(base, count), count)
            if isinstance(self, DataFile | DataFunction) and self.bounds is not None:
                lower, upper = (_bound_of(bound, found.inputs) for bound in self.bounds)
                found = replace(found, bounds=(lower, upper))
            _check_range(found)
        return found

    def _load(self, base: Path, count: int | None) -> Samples:
        raise NotImplementedError


class NamedData(DataEntry):
    """Data of a loader."""

    form: ClassVar[str] = "name"
    name: Name = Field(description="Of a loader, as `standfast list datasets` shows them.")
    download: Flag = Field(False, description="Fetch what is missing.")

    def _load(self, base: Path, count: int | None) -> Samples:
        return _from_dataset(data.load(self.name, download=self.download), self.targets)


class DataFile(DataEntry):
    """Data in a file, or a folder of images."""

    form: ClassVar[str] = "path"
    path: Name = Field(
        description="A .npz (arrays inputs or x, labels or y, names of features), .npy or .safetensors file, a .csv"
        " table with a header (a column label, y, class or target has the classes, or the one named by `label`), a .ts"
        " or .tsv file of series, or a folder of images with or without a subfolder for each class; relative to the"
        " study file. uint8 is scaled to [0, 1]."
    )
    bounds: OwnBounds = None
    size: Annotated[tuple[Count, Count], Strict(False), Expected("[height, width] in pixels")] | None = Field(
        None, description="Resize images to [height, width]."
    )
    grayscale: Flag | None = Field(None, description="Read images with one channel; by default if all are gray.")
    label: Name | None = Field(None, description="The column of a table that has the classes.")

    def _load(self, base: Path, count: int | None) -> Samples:
        content = read_data(base / self.path, count, self.size, self.grayscale, self.label)
        return _from_content(content, self.targets)


class DataFunction(DataEntry):
    """Data that a function of the user's returns."""

    form: ClassVar[str] = "function"
    function: Reference = Field(
        description="module:function that returns a standfast Dataset, inputs, or (inputs, labels); the module may lie"
        " beside the study file."
    )
    options: OptionValues = Field({}, description="Arguments of the function.")
    bounds: OwnBounds = None

    def _load(self, base: Path, count: int | None) -> Samples:
        with errors_at("function"):
            found = call_function(self.function, self.options, [str(base)], "data")
        if isinstance(found, Samples):
            if self.targets == "predicted" and "targets" in self.model_fields_set:
                return replace(found, targets=None)
            check(self.targets != "labels" or found.targets is not None, "targets", "Samples with targets", "none")
            return found
        if isinstance(found, Dataset):
            return _from_dataset(found, self.targets)
        inputs, labels = found if isinstance(found, tuple | list) and len(found) == 2 else (found, None)
        labels = None if labels is None else as_labels(labels, "function")
        return _from_content(Content(as_inputs(inputs, "function"), labels, {"function": self.function}), self.targets)


def _from_dataset(found: Dataset, targets: str) -> Samples:
    about = {"name": found.name, "classes": list(found.classes)}
    labels = found.labels if targets == "labels" else None
    extras = {"labels": found.labels, **found.extras}
    return Samples(found.inputs, labels, found.bounds, about, extras, found.features, found.tokens)


def _from_content(found: Content, targets: str) -> Samples:
    if found.labels is not None:
        rows = len(found.inputs)
        check(len(found.labels) == rows, "path", f"as many labels as inputs ({rows})", f"{len(found.labels)} labels")
    check(targets != "labels" or found.labels is not None, "targets", "predicted, as there are no labels", "labels")
    labels = found.labels if targets == "labels" else None
    extras = {} if found.labels is None else {"labels": found.labels}
    return Samples(found.inputs, labels, found.bounds, found.about, extras, found.features)


def _take_first(found: Samples, count: int | None) -> Samples:
    if count is None:
        return found
    name = next((found.about[key] for key in ("name", "path", "function") if key in found.about), "the data")
    check(count <= len(found), "samples", f"at most the {len(found)} samples of {name}", count)
    targets = None if found.targets is None else found.targets[:count].clone()
    extras = {name: values[:count].clone() for name, values in found.extras.items()}
    tokens = None if found.tokens is None else found.tokens[:count]
    return replace(found, inputs=found.inputs[:count].clone(), targets=targets, extras=extras, tokens=tokens)


def _bound_of(bound: Numbers, inputs: Tensor) -> Bound:
    """A number as it is, and a list as a tensor with one value for each channel."""
    return bound if isinstance(bound, float | int) else per_channel(bound, inputs, "bounds")


def _check_range(samples: Samples) -> None:
    lower, upper = (torch.as_tensor(b, dtype=samples.inputs.dtype) for b in samples.bounds)
    slack = 1e-5 * (upper - lower)  # as Model allows
    if bool(((samples.inputs < lower - slack) | (samples.inputs > upper + slack)).any()):
        expected = f"the range of the values, which are within {describe_bounds((samples.inputs, samples.inputs))}"
        raise ArgumentError("bounds", expected, describe_bounds(samples.bounds))


# Reference inputs of explainers

BACKGROUND_FORMS = "a number, one for each channel, a file of reference inputs, or {data: NAME, samples: N}"


def _check_name(name: str) -> str:
    if not DATA.knows(name):
        raise DATA.make_unknown_error(name)
    return name


class BackgroundEntry(Entry):
    """Reference inputs: a file or a data set, and how many to take from its start."""

    key: ClassVar[str] = "a key of a background"

    path: Text | None = Field(None, description="As of data, relative to the study file.")
    data: Annotated[Text, AfterValidator(_check_name)] | None = None
    samples: Count | None = Field(None, description="Take this many from the start.")

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
        with errors_of("data", "path", self.entry.words()):
            found = data.load(name).inputs if name is not None else read_data(base / str(self.entry.path)).inputs
            least = f"at most the {len(found)} samples that there are"
            check(samples is None or samples <= len(found), "samples", least, samples)
            return Background(found[:samples])


def with_backgrounds(explainer: E, base: Path) -> E:
    """The explainer or metric with the backgrounds that its options name read from `base`.

    Those of its neighbourhood and of the parts of a composition, too.
    """
    if not dataclasses.is_dataclass(explainer):
        return explainer
    problems, read = Collector(), {}
    for field in dataclasses.fields(explainer):
        value = found = getattr(explainer, field.name)
        folder = value.entry.path if isinstance(explainer, Corruption) and isinstance(value, StoredBackground) else None
        with problems.at(field.name), errors_of("images", "path"):
            # photographs may differ in size
            found = _with_read(value, base) if folder is None else read_photographs(base / folder)
        if found is not value:
            read[field.name] = found
    problems.finish()
    return cast(E, dataclasses.replace(explainer, **read) if read else explainer)


def _with_read(value: Any, base: Path) -> Any:
    """An option with the backgrounds in it read; the same object if there are none."""
    if isinstance(value, StoredBackground):
        return value.read(base)
    if isinstance(value, Neighbourhood):
        return with_backgrounds(value, base)
    if isinstance(value, tuple):
        problems, read = Collector(), list(value)
        for index, entry in enumerate(value):
            with problems.at(index):
                read[index] = _with_read(entry, base)
        problems.finish()
        found = tuple(read)
        return value if all(one is other for one, other in zip(found, value, strict=True)) else found
    return value
