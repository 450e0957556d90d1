"""Where data and models of a study come from: what the entries of a study file stand for.

A model source holds the bytes of its files, so that a worker elsewhere needs neither the file nor a shared disk. Files
are read without running anything that is in them: weights as safetensors or with `weights_only=True`, programs as
TorchScript or torch.export. A `module:function` is the user's own code and does run.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from holdfast import data, zoo
from holdfast.data import Dataset
from holdfast.data.user_files import Content, as_inputs, as_labels, read_data
from holdfast.errors import ArgumentError, HoldfastError, ModelError, check
from holdfast.model import Bound, Classifier
from holdfast.study.file.entries import (
    DataEntry,
    DataFile,
    DataFunction,
    ModelArchitecture,
    ModelEntry,
    ModelFunction,
    ModelProgram,
    NamedData,
    NamedModel,
    Numbers,
    Scaling,
)
from holdfast.study.file.imports import call_function, find_line, importing_from, resolve, resolve_function
from holdfast.study.file.problems import Misfit, describe_error, errors_at, errors_of, misfit, with_article
from holdfast.study.grid import ModelSource, Samples
from holdfast.zoo.networks.names import architectures
from holdfast.zoo.programs import check_program, fill, load_program, read_weights

# Data


def load_data(entry: DataEntry, base: Path, samples: int | None = None) -> Samples:
    """What an entry under `data` stands for, in memory.

    Args:
        entry: of the study file.
        base: the folder that paths are relative to and that functions are imported from.
        samples: how many to take from the start where the entry does not say.

    Raises:
        Misfit: files, functions or values that do not fit; at the key of the entry that is at fault.
    """
    count = samples if entry.samples is None else entry.samples
    with errors_of(entry, "data"):
        found = _take_first(_load(entry, base, count), count)
        if isinstance(entry, DataFile | DataFunction) and entry.bounds is not None:
            lower, upper = (_bound_of(bound, found.inputs) for bound in entry.bounds)
            found = replace(found, bounds=(lower, upper))
        _check_range(found)
    return found


def _load(entry: DataEntry, base: Path, count: int | None) -> Samples:
    if isinstance(entry, NamedData):
        return _from_dataset(data.load(entry.name, download=entry.download), entry.targets)
    if isinstance(entry, DataFile):
        return _from_content(read_data(base / entry.path, count, entry.size, entry.grayscale), entry.targets)
    assert isinstance(entry, DataFunction)
    with errors_at("function"):
        found = call_function(entry.function, entry.options, [str(base)], "data")
    if isinstance(found, Samples):
        if entry.targets == "predicted" and "targets" in entry.model_fields_set:
            return replace(found, targets=None)
        check(entry.targets != "labels" or found.targets is not None, "targets", "Samples with targets", "none")
        return found
    if isinstance(found, Dataset):
        return _from_dataset(found, entry.targets)
    inputs, labels = found if isinstance(found, tuple | list) and len(found) == 2 else (found, None)
    about = {"function": entry.function}
    content = Content(as_inputs(inputs, "function"), None if labels is None else as_labels(labels, "function"), about)
    return _from_content(content, entry.targets)


def _from_dataset(found: Dataset, targets: str) -> Samples:
    about = {"name": found.name, "classes": list(found.classes)}
    return Samples(found.inputs, found.labels if targets == "labels" else None, found.bounds, about, found.extras)


def _from_content(found: Content, targets: str) -> Samples:
    if found.labels is not None:
        rows = len(found.inputs)
        check(len(found.labels) == rows, "path", f"as many labels as inputs ({rows})", f"{len(found.labels)} labels")
    check(targets != "labels" or found.labels is not None, "targets", "predicted, as there are no labels", "labels")
    return Samples(found.inputs, found.labels if targets == "labels" else None, about=found.about)


def _take_first(found: Samples, count: int | None) -> Samples:
    if count is None:
        return found
    name = next((found.about[key] for key in ("name", "path", "function") if key in found.about), "the data")
    check(count <= len(found), "samples", f"at most the {len(found)} samples of {name}", count)
    targets = None if found.targets is None else found.targets[:count].clone()
    extras = {name: values[:count].clone() for name, values in found.extras.items()}
    return replace(found, inputs=found.inputs[:count].clone(), targets=targets, extras=extras)


def _bound_of(bound: Numbers, inputs: Tensor) -> Bound:
    """A number as it is, and a list as a tensor with one value for each channel."""
    return bound if isinstance(bound, float | int) else _per_channel(bound, inputs, "bounds")


def _per_channel(values: tuple[float, ...], inputs: Tensor, argument: str) -> Tensor:
    channels = inputs.shape[1]
    check(len(values) in (1, channels), argument, f"one number, or {channels} (one for each channel)", len(values))
    return torch.tensor(values, dtype=inputs.dtype).reshape(-1, *[1] * (inputs.ndim - 2))


def _check_range(samples: Samples) -> None:
    lower, upper = (torch.as_tensor(b, dtype=samples.inputs.dtype) for b in samples.bounds)
    slack = 1e-5 * (upper - lower)  # as Classifier allows
    if bool(((samples.inputs < lower - slack) | (samples.inputs > upper + slack)).any()):
        least, most = (float(value) for value in samples.inputs.aminmax())
        expected = f"the range of the values, which are within [{least:g}, {most:g}]"
        raise ArgumentError("bounds", expected, f"[{float(lower.min()):g}, {float(upper.max()):g}]")


# Models


@dataclass(frozen=True, eq=False)
class StudyModel(ModelSource):
    """A model of a study file, with the bytes of the file that its entry names.

    A function of the user's runs with torch's generator seeded, so that every worker builds the same module. Instead of
    a function it may be a module that is there already.

    Attributes:
        entry: of the study file.
        base: the folder that functions are imported from.
        content: of the file, if there is one.
    """

    entry: ModelEntry
    base: Path
    content: bytes | None = field(default=None, repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders to import from."""
        return (str(self.base),)

    def classifier(self, samples: Samples, device: str) -> Classifier:
        """The model, ready for these samples (their bounds) on `device`.

        Raises:
            Misfit: it cannot be built, at the key of the entry that is at fault.
        """
        entry, forward = self.entry, None
        prepare = _preparation(entry.preprocess, samples.inputs, self.paths)
        if entry.forward is not None:
            with errors_at("forward"):
                forward = resolve_function(entry.forward, self.paths, "a function (module, inputs) -> logits")
        return Classifier(self.module(device), samples.bounds, prepare, device, entry.batch_size, forward)

    def module(self, device: str) -> nn.Module:
        """The model itself, new on every call; on the CPU, or on `device`."""
        entry = self.entry
        with errors_of(entry, "a model"):
            if isinstance(entry, NamedModel):
                hub, _, place = entry.name.partition(":")
                local = hub == "transformers" and (self.base / place).is_dir()
                return zoo.load(f"{hub}:{self.base / place}" if local else entry.name)
            if isinstance(entry, ModelProgram):
                assert self.content is not None
                return load_program(self.content, entry.path, device)
            found = self._build()
            if self.content is not None:
                fill(found, read_weights(self.content))
        return found

    def _build(self) -> nn.Module:
        """The module of a function or of an architecture, without the weights of the file."""
        entry = self.entry
        if isinstance(entry, ModelArchitecture):
            try:
                with torch.random.fork_rng(devices=[]):
                    return architectures[entry.architecture](**entry.options)
            except (TypeError, ValueError, RuntimeError) as error:
                expected = f"options of {entry.architecture}, such as num_classes and in_channels"
                raise misfit(expected, describe_error(error), "options") from error
        assert isinstance(entry, ModelFunction)
        with errors_at("function"):
            found = resolve(entry.function, self.paths)
            if isinstance(found, nn.Module):
                return copy.deepcopy(found)
            found = call_function(entry.function, entry.options, self.paths, "a model")
            if not isinstance(found, nn.Module):
                got = f"{with_article(type(found).__name__)} from {entry.function}"
                raise misfit("a torch.nn.Module", got)
        return found


class Scale(nn.Module):
    """`(x - mean) / std`, one number or one for each channel."""

    def __init__(self, mean: Tensor, std: Tensor) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", mean)  # as buffers they belong to what the model is
        self.register_buffer("std", std)

    def forward(self, x: Tensor) -> Tensor:
        """The same values on another scale; `x` `(N, ...)`."""
        return (x - self.mean.to(x)) / self.std.to(x)


def _preparation(
    preprocess: Scaling | str | None, inputs: Tensor, paths: tuple[str, ...]
) -> Callable[[Tensor], Tensor] | None:
    if preprocess is None:
        return None
    if isinstance(preprocess, str):
        with errors_at("preprocess"):
            return resolve_function(preprocess, paths, "a function of inputs")
    parts = []
    for key, numbers in (("mean", preprocess.mean), ("std", preprocess.std)):
        try:
            parts.append(_per_channel(numbers if isinstance(numbers, tuple) else (numbers,), inputs, key))
        except ArgumentError as error:
            raise misfit(error.expected, str(error.got), "preprocess", key) from error
    return Scale(*parts)


def model_source(entry: ModelEntry, base: Path) -> StudyModel:
    """What an entry under `models` stands for; its file is read here and now.

    Raises:
        Misfit: the file is missing or of another kind; at the key of the entry.
    """
    about = entry.model_dump(include={entry.form, "options", "weights"}, exclude_none=True)
    key = "path" if isinstance(entry, ModelProgram) else "weights"
    file = getattr(entry, key, None)
    if file is None:
        return StudyModel(entry, base, about=about)
    try:
        content = (base / file).read_bytes()
    except OSError as error:
        got = f"{str(base / file)!r}: {(error.strerror or str(error)).lower()}"
        raise misfit("a file that can be read", got, key) from error
    if isinstance(entry, ModelProgram):
        with errors_of(entry, "a model"):
            check_program(content, entry.path)
    return StudyModel(entry, base, content, about | {"sha256": hashlib.sha256(content).hexdigest()})


def try_out(source: ModelSource, samples: Samples) -> None:
    """Run a model once, on one sample and on the CPU, so that what cannot work is known before the study starts.

    Raises:
        Misfit: the model cannot be built, or does not take these samples.
    """
    paths = getattr(source, "paths", ())
    takes = f"a model that takes samples of shape {tuple(samples.inputs.shape[1:])}"
    try:
        with importing_from(paths):
            classifier = source.classifier(samples, "cpu")
            logits = classifier.logits(samples.inputs[:1])
    except Misfit:
        raise
    except ModelError as error:
        raise misfit(takes, _shorten_script_error(str(error))) from error
    except ArgumentError as error:
        raise misfit(f"{error.argument} to be {error.expected}", str(error.got)) from error
    except HoldfastError as error:
        raise misfit("a model", str(error)) from error
    except Exception as error:  # the user's module may raise anything
        raise misfit(takes, describe_error(error, find_line(error, paths))) from error
    if samples.targets is not None and int(samples.targets.max()) >= logits.shape[1]:
        got = f"{int(samples.targets.max())} among them"
        raise misfit(f"labels from 0 to {logits.shape[1] - 1}, the model's classes", got)


def _shorten_script_error(text: str) -> str:
    """What an error of a module says, without the traceback that TorchScript puts into its messages."""
    text = text.removeprefix("module: ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start, script, _ = text.partition("The following operation failed in the TorchScript")
    return f"{start}{lines[-1]}" if script else text
