"""Where data and models of a study come from: what the entries of a study file stand for.

A model source holds the bytes of its files, so that a worker elsewhere needs neither the file nor a shared disk. Files
are read without ever running what is in them: weights as safetensors or with `weights_only=True`, programs as
TorchScript or torch.export. A `module:function` is the user's own code and does run.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from holdfast import data, zoo
from holdfast.data import Dataset
from holdfast.errors import ArgumentError, HoldfastError, ModelError, check
from holdfast.model import Bound, Classifier
from holdfast.study.file.entries import DataEntry, ModelEntry, Numbers, Scaling
from holdfast.study.file.files import Content, as_inputs, as_labels, read_data
from holdfast.study.file.imports import call, importable, place, resolve
from holdfast.study.file.problems import Problem, Wrong, raised, typed, unknown
from holdfast.study.file.programs import fill, kind_of_program, load_exported, load_torchscript, read_weights
from holdfast.study.grid import ModelSource, Samples
from holdfast.zoo.networks.names import architectures

# Data


def load_data(entry: DataEntry, base: Path, samples: int | None = None) -> Samples:
    """What an entry under `data` stands for, in memory.

    Args:
        entry: of the study file.
        base: the folder that paths are relative to and that functions are imported from.
        samples: how many to take from the start where the entry does not say.

    Raises:
        Wrong: files, functions or values that do not fit; at the key of the entry that is at fault.
    """
    count = samples if entry.samples is None else entry.samples
    try:
        found = _loaded(entry, base, count)
        chosen = _first(found, count)
        if entry.bounds is not None:
            chosen = replace(chosen, bounds=_bounds(entry.bounds, chosen.inputs))
        _check_range(chosen)
    except Wrong:
        raise
    except ArgumentError as error:
        path = (error.argument,) if error.argument in DataEntry.model_fields else (entry.kind,)
        raise Wrong(Problem(path, error.expected, str(error.got))) from error
    except HoldfastError as error:
        raise Wrong(Problem((entry.kind,), "data that can be loaded", str(error))) from error
    return chosen


def _loaded(entry: DataEntry, base: Path, count: int | None) -> Samples:
    if entry.name is not None:
        if not data.is_known(entry.name):
            note = "files stand under path:" if "/" in entry.name or "." in entry.name else ""
            raise Wrong(unknown("a data set", entry.name, data.names(), ("name",), note))
        return _from_dataset(data.load(entry.name, download=entry.download), entry.targets)
    if entry.path is not None:
        return _from_content(read_data(base / entry.path, count, entry.size, entry.grayscale), entry.targets)
    assert entry.function is not None
    try:
        found = call(entry.function, entry.options, [str(base)], "data")
    except Wrong as wrong:
        raise Wrong(*wrong.under("function")) from wrong.__cause__
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


def _first(found: Samples, count: int | None) -> Samples:
    if count is None:
        return found
    check(count <= len(found), "samples", f"at most the {len(found)} samples that there are", count)
    targets = None if found.targets is None else found.targets[:count].clone()
    extras = {name: values[:count].clone() for name, values in found.extras.items()}
    return replace(found, inputs=found.inputs[:count].clone(), targets=targets, extras=extras)


def _bounds(bounds: tuple[Numbers, Numbers], inputs: Tensor) -> tuple[Bound, Bound]:
    """Numbers as they are, and lists as a tensor with one value for each channel."""
    lower, upper = (_bound(bound, inputs) for bound in bounds)
    return lower, upper


def _bound(bound: Numbers, inputs: Tensor) -> Bound:
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

Preprocess = Scaling | str | None


@dataclass(frozen=True, eq=False)
class _Source(ModelSource):
    """What all sources of a study file share: preprocessing and the folder that functions come from."""

    preprocess: Preprocess = field(default=None, kw_only=True)
    batch_size: int | Literal["auto"] = field(default="auto", kw_only=True)
    forward: str | None = field(default=None, kw_only=True)
    paths: tuple[str, ...] = field(default=(), kw_only=True)
    about: Mapping[str, Any] = field(default_factory=dict, kw_only=True)

    @abstractmethod
    def module(self, device: str) -> nn.Module:
        """The model itself, new on every call; on the CPU or on `device`."""

    def classifier(self, samples: Samples, device: str) -> Classifier:
        """See `ModelSource`.

        Raises:
            Wrong: the model cannot be built, at the key of the entry that is at fault.
        """
        prepare = _preparation(self.preprocess, samples.inputs, self.paths)
        forward = _function_of_models(self.forward, self.paths)
        return Classifier(self.module(device), samples.bounds, prepare, device, self.batch_size, forward)


@dataclass(frozen=True, eq=False)
class ZooModel(_Source):
    """A model that comes with holdfast, by its name."""

    name: str

    def module(self, device: str) -> nn.Module:
        """See `_Source`."""
        return zoo.load(self.name)


@dataclass(frozen=True, eq=False)
class FunctionModel(_Source):
    """A module that the user's function returns, and weights for it.

    The function runs with torch's generator seeded, so that every worker builds the same module. Instead of a function
    it may be a module that is there already.
    """

    function: str
    options: Mapping[str, Any] = field(default_factory=dict)
    weights: bytes | None = None

    def module(self, device: str) -> nn.Module:
        """See `_Source`."""
        with _at("function"):
            found = resolve(self.function, self.paths)
            if isinstance(found, nn.Module):
                found = copy.deepcopy(found)
            else:
                found = call(self.function, self.options, self.paths, "a model")
            if not isinstance(found, nn.Module):
                raise Wrong(Problem((), "a torch.nn.Module", f"{typed(found)} from {self.function}"))
        if self.weights is not None:
            with _at("weights"):
                fill(found, read_weights(self.weights))
        return found


@dataclass(frozen=True, eq=False)
class ArchitectureModel(_Source):
    """An architecture of the zoo, by its name, and weights for it."""

    architecture: str
    weights: bytes = field(repr=False)
    options: Mapping[str, Any] = field(default_factory=dict)

    def module(self, device: str) -> nn.Module:
        """See `_Source`."""
        with _at("options"), torch.random.fork_rng(devices=[]):
            try:
                found = architectures[self.architecture](**self.options)
            except (TypeError, ValueError, RuntimeError) as error:
                expected = f"options of {self.architecture}, such as num_classes and in_channels"
                raise Wrong(Problem((), expected, raised(error))) from error
        with _at("weights"):
            fill(found, read_weights(self.weights))
        return found


@dataclass(frozen=True, eq=False)
class TorchScriptModel(_Source):
    """A TorchScript program, as the bytes of its file."""

    content: bytes = field(repr=False)

    def module(self, device: str) -> nn.Module:
        """See `_Source`."""
        with _at("path"):
            return load_torchscript(self.content)


@dataclass(frozen=True, eq=False)
class ExportedModel(_Source):
    """A torch.export program, as the bytes of its file; its batch dimension must be dynamic."""

    content: bytes = field(repr=False)

    def module(self, device: str) -> nn.Module:
        """See `_Source`."""
        with _at("path"):
            return load_exported(self.content, device)


@contextlib.contextmanager
def _at(key: str) -> Iterator[None]:
    """Problems inside are at this key of the entry."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(*wrong.under(key)) from wrong.__cause__


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


def _preparation(preprocess: Preprocess, inputs: Tensor, paths: tuple[str, ...]) -> Callable[[Tensor], Tensor] | None:
    if preprocess is None:
        return None
    with _at("preprocess"):
        if isinstance(preprocess, Scaling):
            try:
                parts = (
                    _per_channel(v if isinstance(v, tuple) else (v,), inputs, key)
                    for key, v in (("mean", preprocess.mean), ("std", preprocess.std))
                )
                return Scale(*parts)
            except ArgumentError as error:
                raise Wrong(Problem((error.argument,), error.expected, str(error.got))) from error
        function: Callable[[Tensor], Tensor] = resolve(preprocess, paths)
        if not callable(function):
            raise Wrong(Problem((), "a function of inputs", typed(function)))
        return function


def _function_of_models(reference: str | None, paths: tuple[str, ...]) -> Callable[[nn.Module, Tensor], Tensor] | None:
    if reference is None:
        return None
    with _at("forward"):
        function: Callable[[nn.Module, Tensor], Tensor] = resolve(reference, paths)
        if not callable(function):
            raise Wrong(Problem((), "a function (module, inputs) -> logits", typed(function)))
    return function


def model_source(entry: ModelEntry, base: Path) -> ModelSource:
    """What an entry under `models` stands for; its files are read here and now.

    Raises:
        Wrong: unknown names, files that are missing or of another kind; at the key of the entry.
    """
    about: dict[str, Any]
    shared: dict[str, Any] = {"preprocess": entry.preprocess, "batch_size": entry.batch_size, "paths": (str(base),)}
    shared["forward"] = entry.forward
    if entry.name is not None:
        if entry.name not in zoo.names() and not zoo.is_hub_name(entry.name):
            note = "files stand under path:" if "/" in entry.name or "." in entry.name else ""
            raise Wrong(unknown("a model of the zoo", entry.name, zoo.names(), ("name",), note))
        hub, _, place = entry.name.partition(":")
        local = hub == "transformers" and (base / place).is_dir()
        return ZooModel(f"{hub}:{base / place}" if local else entry.name, about={"name": entry.name}, **shared)
    if entry.architecture is not None:
        if entry.architecture not in architectures:
            raise Wrong(unknown("an architecture of the zoo", entry.architecture, architectures, ("architecture",)))
        if entry.weights is None:
            raise Wrong(Problem(("weights",), f"a file of weights for {entry.architecture}", "none"))
        content = _bytes(base / entry.weights, "weights")
        given = {"architecture": entry.architecture, "options": entry.options, "weights": entry.weights}
        about = given | {"sha256": hashlib.sha256(content).hexdigest()}
        return ArchitectureModel(entry.architecture, content, entry.options, about=about, **shared)
    if entry.function is not None:
        about = {"function": entry.function, "options": entry.options}
        weights = None
        if entry.weights is not None:
            weights = _bytes(base / entry.weights, "weights")
            about |= {"weights": entry.weights, "sha256": hashlib.sha256(weights).hexdigest()}
        return FunctionModel(entry.function, entry.options, weights, about=about, **shared)
    assert entry.path is not None
    content = _bytes(base / entry.path, "path")
    about = {"path": entry.path, "sha256": hashlib.sha256(content).hexdigest()}
    with _at("path"):
        program = {"torchscript": TorchScriptModel, "export": ExportedModel}[kind_of_program(content, entry.path)]
    return program(content=content, about=about, **shared)


def _bytes(path: Path, key: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        got = f"{str(path)!r}: {(error.strerror or str(error)).lower()}"
        raise Wrong(Problem((key,), "a file that can be read", got)) from error


def _gist(text: str) -> str:
    """What an error of a module says, without the traceback that TorchScript puts into its messages."""
    text = text.removeprefix("module: ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start, script, _ = text.partition("The following operation failed in the TorchScript")
    return f"{start}{lines[-1]}" if script else text


def try_out(source: ModelSource, samples: Samples) -> None:
    """Run a model once, on one sample and on the CPU, so that what cannot work is known before the study starts.

    Raises:
        Wrong: the model cannot be built, or does not take these samples.
    """
    paths = getattr(source, "paths", ())
    takes = f"a model that takes samples of shape {tuple(samples.inputs.shape[1:])}"
    try:
        with importable(paths):
            classifier = source.classifier(samples, "cpu")
            logits = classifier.logits(samples.inputs[:1])
    except Wrong:
        raise
    except ModelError as error:
        raise Wrong(Problem((), takes, _gist(str(error)))) from error
    except ArgumentError as error:
        raise Wrong(Problem((), f"{error.argument} to be {error.expected}", str(error.got))) from error
    except HoldfastError as error:
        raise Wrong(Problem((), "a model", str(error))) from error
    except Exception as error:  # the user's module may raise anything
        where = place(error, paths)
        raise Wrong(Problem((), takes, raised(error, where))) from error
    if samples.targets is not None and int(samples.targets.max()) >= logits.shape[1]:
        got = f"{int(samples.targets.max())} among them"
        raise Wrong(Problem((), f"labels from 0 to {logits.shape[1] - 1}, the model's classes", got))
