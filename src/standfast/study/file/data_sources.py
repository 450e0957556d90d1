"""Data in a study file: of a loader, in a file, or from a function."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PrivateAttr,
)
from torch import Tensor

from standfast import data
from standfast.data import Dataset
from standfast.data.user_files import Content, TextContent, as_inputs, as_labels, read_texts
from standfast.errors import ArgumentError, check
from standfast.question.grid import Samples
from standfast.question.inputs import find_given_kind
from standfast.question.texts import GivenTexts
from standfast.study.file.entries import (
    Count,
    Name,
    Numbers,
    OptionValues,
    PerChannel,
    Reference,
    as_tuple,
)
from standfast.study.file.imports import call_function
from standfast.study.file.problems import (
    Entry,
    errors_at,
    in_words,
)
from standfast.study.file.references import read_data_at
from standfast.study.file.texts import find_texts
from standfast.tensors import describe_bounds


def _check_order(bounds: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
    lower, upper = ((b if isinstance(b, tuple) else (b,)) for b in bounds)
    size = max(len(lower), len(upper))
    fits = {len(lower), len(upper)} <= {1, size}
    # one number is that of all channels
    pairs = zip(lower * size, upper * size, strict=False)
    if not fits or not all(low < high for low, high in pairs):
        raise ValueError
    return bounds


Bounds = Annotated[
    tuple[float | PerChannel, float | PerChannel],
    BeforeValidator(as_tuple),
    AfterValidator(_check_order),
    in_words("a lower and a higher bound, [0, 1], or two lists with one for each channel"),
]
Size = Annotated[
    tuple[Count, Count], BeforeValidator(as_tuple), in_words("[height, width] in pixels")
]


def per_channel(numbers: Numbers, inputs: Tensor, argument: str) -> Tensor:
    """One number, or one for each channel of `inputs` `(N, C, ...)`, as a tensor that broadcasts against an input."""
    values = numbers if isinstance(numbers, tuple) else (numbers,)
    channels = inputs.shape[1]
    check(
        len(values) in (1, channels),
        argument,
        f"one number, or {channels} (one for each channel)",
        len(values),
    )
    further_axes = inputs.ndim - 2
    return torch.tensor(values, dtype=inputs.dtype).reshape(-1, *[1] * further_axes)


class DataEntry(Entry):
    """Data under a name.

    Args:
        targets: classes to explain: the model's own predictions, or the labels.
        samples: take this many from the start.
    """

    #: the key that only entries of this form have; none for those with a name
    form: ClassVar[str] = ""

    targets: Literal["predicted", "labels"] = "predicted"
    samples: Count | None = None

    def load(self, base: Path, samples: int | None = None) -> Any:
        """What the entry stands for, in memory, as its kind of inputs takes it (`Inputs.given`), such as `Samples`.

        Args:
            base: the folder that paths are relative to and that functions are imported from.
            samples: how many to take from the start where the entry does not say.

        Raises:
            StudyFieldError: files, functions or values that do not fit; at the key of the entry that is at fault.
        """
        count = samples if self.samples is None else self.samples
        with errors_at(keys=self.known(), key=self.form):
            data = self._load(base, count)
            _check_count(data, count)
            if isinstance(data, Samples):
                return self._set_bounds(_take_first(data, count))
            return data

    def _load(self, base: Path, count: int | None) -> Any:
        raise NotImplementedError

    def _set_bounds(self, samples: Samples) -> Samples:
        """The samples with the bounds of the entry, within which they must lie."""
        bounds = getattr(self, "bounds", None)
        if bounds is not None:
            lower, upper = (
                b if isinstance(b, float) else per_channel(b, samples.inputs, "bounds")
                for b in bounds
            )
            samples = replace(samples, bounds=(lower, upper))
        _check_range(samples)
        return samples

    def _from_dataset(self, dataset: Dataset) -> Samples:
        return self._as_samples(
            dataset, {"name": dataset.name, "classes": list(dataset.classes)}, **dataset.extras
        )

    def _as_samples(
        self, content: Dataset | Content, about: Mapping[str, Any], **extras: Tensor
    ) -> Samples:
        if content.labels is not None:
            rows = len(content.inputs)
            count = len(content.labels)
            check(count == rows, "path", f"as many labels as inputs ({rows})", f"{count} labels")
            extras = {"labels": content.labels, **extras}
            classes = not content.labels.is_floating_point()
            check(
                classes or self.targets != "labels",
                "targets",
                "predicted, as the labels are no classes",
                "labels",
            )
        else:
            check(
                self.targets != "labels", "targets", "predicted, as there are no labels", "labels"
            )
        labels = content.labels if self.targets == "labels" else None
        tokens = content.tokens if isinstance(content, Dataset) else None
        return Samples(
            content.inputs,
            labels,
            content.bounds,
            about,
            extras,
            content.features,
            tokens,
            sample_names=content.sample_names,
        )


class NamedData(DataEntry):
    """Data of a loader, as `standfast list datasets` shows them.

    Args:
        download: fetch what is missing.
    """

    download: bool = False
    _name: str = PrivateAttr("")

    def _load(self, base: Path, count: int | None) -> Samples:
        return self._from_dataset(data.load(self._name, download=self.download))


class DataFile(DataEntry):
    """Data in a file, or a folder of images.

    Args:
        path: a .npz (arrays inputs or x, labels or y, names of features), .npy or .safetensors file, a .csv table with
            a header (a column label, y, class or target has the classes, or the one named by `label`), a .ts or .tsv
            file of series, or a folder of images with or without a subfolder for each class; relative to the study
            file. uint8 is scaled to [0, 1].
        bounds: valid values of an input, [lower, upper]; [0, 1] where nothing else is known.
        size: resize images to [height, width].
        grayscale: read images with one channel; by default if all are gray.
        label: the column of a table that has the classes.
        text: the column of a .csv, .jsonl or .parquet table that has texts, for models that read these.
    """

    form = "path"
    path: Name
    text: Name | None = None
    bounds: Bounds | None = None
    size: Size | None = None
    grayscale: bool | None = None
    label: Name | None = None

    def _load(self, base: Path, count: int | None) -> Samples | GivenTexts:
        if self.text is not None:
            for key in ("bounds", "size", "grayscale"):
                check(getattr(self, key) is None, key, f"no {key} for texts", "one")
            return _give_texts(
                read_texts(base / self.path, self.text, self.label, count), self.targets
            )
        data = read_data_at(base / self.path, count, self.size, self.grayscale, self.label)
        return self._as_samples(data, data.about)


class DataFunction(DataEntry):
    """Data that a function of the user's returns.

    Args:
        function: module:function that returns a standfast Dataset, inputs, or (inputs, labels), where inputs are a
            tensor, an array, or strings; the module may lie beside the study file.
        options: arguments of the function.
        bounds: valid values of an input, [lower, upper]; [0, 1] where nothing else is known.
        trust: import a module from outside of the study's folder.
    """

    form = "function"
    function: Reference
    options: OptionValues = Field({})
    bounds: Bounds | None = None
    trust: bool = False

    def _load(self, base: Path, count: int | None) -> Any:
        with errors_at("function"):
            returned = call_function(self.function, self.options, [str(base)], self.trust, "data")
        if isinstance(returned, Samples):
            return self._choose_targets(returned)
        # a function may return a data set of its own, which knows more than a pair does
        if isinstance(returned, Dataset):
            return self._from_dataset(returned)
        # kinds of plug-ins are asked before texts and arrays, as their data may look like these
        kind = find_given_kind(returned)
        if kind is not None:
            self._check_decided(kind.words, count)
            return returned
        about = {"function": self.function}
        texts = find_texts(returned, count, about)
        if texts is not None:
            check(self.bounds is None, "bounds", "no bounds for texts", "some")
            return _give_texts(texts, self.targets)
        is_pair = isinstance(returned, tuple | list) and len(returned) == 2
        inputs, raw_labels = returned if is_pair else (returned, None)
        labels = None
        if raw_labels is not None:
            labels = as_labels(raw_labels, "function")
        return self._as_samples(Content(as_inputs(inputs, "function"), labels, about), about)

    def _check_decided(self, words: str, count: int | None) -> None:
        """Raise `ArgumentError` for what the function decides itself when it returns data of a kind of their own."""
        expected = f"none, since the function returns {words} and chooses them"
        check(count is None, "samples", expected, count)
        for name in ("targets", "bounds"):
            check(name not in self.model_fields_set, name, expected, repr(getattr(self, name)))

    def _choose_targets(self, samples: Samples) -> Samples:
        """Samples of the user's with the targets that the entry asks for."""
        # what the file does not say leaves the targets of the samples as they are
        if self.targets == "predicted" and "targets" in self.model_fields_set:
            return replace(samples, targets=None)
        check(
            self.targets != "labels" or samples.targets is not None,
            "targets",
            "Samples with targets",
            "none",
        )
        return samples


def _give_texts(content: TextContent, explained: str) -> GivenTexts:
    """Texts as their kind of inputs takes them; `explained` are `"labels"` or what is `"predicted"`."""
    return GivenTexts(content.texts, content.labels, explained == "labels", content.about)


def _check_count(data: Any, count: int | None) -> None:
    """Raise `ArgumentError` if there are fewer samples than are to be taken."""
    if count is not None:
        about: Mapping[str, Any] = getattr(data, "about", {})
        name = next(
            (about[key] for key in ("name", "path", "function") if key in about), "the data"
        )
        check(count <= len(data), "samples", f"at most the {len(data)} samples of {name}", count)


def _take_first(samples: Samples, count: int | None) -> Samples:
    if count is None:
        return samples
    return replace(
        samples,
        # a copy, because a part of a tensor keeps all of it in memory
        inputs=samples.inputs[:count].clone(),
        targets=None if samples.targets is None else samples.targets[:count].clone(),
        extras={name: values[:count].clone() for name, values in samples.extras.items()},
        tokens=None if samples.tokens is None else samples.tokens[:count],
        lengths=None if samples.lengths is None else samples.lengths[:count],
        sample_names=None if samples.sample_names is None else samples.sample_names[:count],
    )


def _check_range(samples: Samples) -> None:
    lower, upper = (torch.as_tensor(b, dtype=samples.inputs.dtype) for b in samples.bounds)
    slack = 1e-5 * (upper - lower)  # as Model allows
    is_outside = (samples.inputs < lower - slack) | (samples.inputs > upper + slack)
    if bool(is_outside.any()):
        expected = f"the range of the values, which are within {describe_bounds((samples.inputs, samples.inputs))}"
        raise ArgumentError("bounds", expected, describe_bounds(samples.bounds))
