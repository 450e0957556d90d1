"""Models in a study file: of the zoo, in a program's file, from a function, or an architecture with weights.

`StudyModel` is what a worker gets: the entry with the bytes of its file, so that it needs neither the file nor a shared
disk. Files are read without running anything that is in them: weights as safetensors or with `weights_only=True`,
programs as TorchScript. A file of torch.export and a pickled estimator can run code when they are opened, and need
`trust: true`. A `module:function` is the user's own code and does run.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field, Strict, ValidatorFunctionWrapHandler, WrapValidator, model_validator
from torch import Tensor, nn

from standfast import zoo
from standfast.errors import ArgumentError, ModelError, StandfastError
from standfast.model import Model
from standfast.study.file.entries import (
    CountOrAuto,
    Flag,
    Name,
    Numbers,
    OptionValues,
    PerChannel,
    Reference,
    per_channel,
)
from standfast.study.file.imports import call_function, find_line, importing_from, resolve, resolve_function
from standfast.study.file.problems import (
    Entry,
    Expected,
    Misfit,
    describe_error,
    errors_at,
    errors_of,
    misfit,
    show,
    with_article,
)
from standfast.study.grid import ModelSource, Samples
from standfast.study.identity import is_estimator
from standfast.zoo.networks.names import architectures
from standfast.zoo.programs import as_module, check_program, fill, load_program, read_weights


def _check_positive(numbers: Numbers) -> Numbers:
    if not all(number > 0 for number in (numbers if isinstance(numbers, tuple) else (numbers,))):
        raise ValueError
    return numbers


def _check_architecture(name: str) -> str:
    _ = architectures[name]
    return name


class Scaling(Entry):
    """A normalisation: `(x - mean) / std`, one number or one for each channel."""

    mean: Annotated[float | PerChannel, Expected("a number, or one for each channel")]
    std: Annotated[
        float | PerChannel, AfterValidator(_check_positive), Expected("a number above 0, or one for each channel")
    ]

    @model_validator(mode="after")
    def _check_lengths(self) -> Scaling:
        if len({len(part) for part in (self.mean, self.std) if isinstance(part, tuple)}) > 1:
            raise misfit("as many numbers as mean has", show(self.std), "std")
        return self

    def module(self, inputs: Tensor) -> Scale:
        """The normalisation itself, for such inputs `(N, C, ...)`."""
        mean, std = (
            per_channel(numbers if isinstance(numbers, tuple) else (numbers,), inputs, key)
            for key, numbers in (("mean", self.mean), ("std", self.std))
        )
        return Scale(mean, std)


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


def _read_preprocess(raw: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A mapping is a scaling, anything else a function: two errors for one value would puzzle."""
    return Scaling.model_validate(raw) if isinstance(raw, Mapping) else handler(raw)


_PREPROCESS = Expected("mean and std, or a function as module:function")


class ModelEntry(Entry):
    """A model under a name."""

    preprocess: Annotated[Scaling | Reference | None, WrapValidator(_read_preprocess), _PREPROCESS] = Field(
        None, description="What to do with inputs before the module: {mean: ..., std: ...} or module:function."
    )
    forward: Reference | None = Field(
        None, description="module:function of (module, inputs) that returns logits; the module itself by default."
    )
    data: (
        Annotated[tuple[Name, ...], Field(min_length=1), Strict(False), Expected("a list of names of data")] | None
    ) = Field(None, description="The data that it meets; all by default.")
    batch_size: CountOrAuto = Field("auto", description="Rows to forward at once.")
    mixed_precision: Annotated[Literal["bfloat16"] | None, Expected("bfloat16", ("bfloat16",))] = Field(
        None, description="Run the module under autocast in this type; faster on accelerators."
    )

    #: the key of the file whose bytes the model needs
    file: ClassVar[str] = "weights"

    def source(self, base: Path) -> StudyModel:
        """What the entry stands for; its file, whose path is relative to `base`, is read here and now.

        Raises:
            Misfit: the file is missing or of another kind; at the key of the entry.
        """
        about = self.model_dump(include={self.form, "options", "weights"}, exclude_none=True)
        if not getattr(self, "pretrained", True):
            about["pretrained"] = False
        file = getattr(self, self.file, None)
        if file is None:
            return StudyModel(self, base, about=about)
        try:
            content = (base / file).read_bytes()
        except OSError as error:
            got = f"{str(base / file)!r}: {(error.strerror or str(error)).lower()}"
            raise misfit("a file that can be read", got, self.file) from error
        if isinstance(self, ModelProgram):
            with errors_of("a model", self.form):
                check_program(content, self.path, self.trust)
        return StudyModel(self, base, content, about | {"sha256": hashlib.sha256(content).hexdigest()})

    def build(self, base: Path, device: str, content: bytes | None) -> nn.Module | Model:
        """The module itself, on the CPU, or on `device`; or a model with bounds of its own.

        Args:
            base: the folder that functions are imported from.
            device: for programs that cannot be moved.
            content: of the entry's file.
        """
        raise NotImplementedError


class NamedModel(ModelEntry):
    """A model of the zoo or of a hub."""

    form: ClassVar[str] = "name"
    name: Name = Field(description="Of a model of the zoo, as `standfast list models` shows them.")
    pretrained: Flag = Field(True, description="With its trained weights; otherwise random ones, to try a study out.")

    def build(self, base: Path, device: str, content: bytes | None) -> nn.Module:
        """The model of the zoo; a folder of transformers may be beside the study file."""
        hub, _, place = self.name.partition(":")
        local = hub == "transformers" and (base / place).is_dir()
        return zoo.load(f"{hub}:{base / place}" if local else self.name, self.pretrained)


class ModelProgram(ModelEntry):
    """A program in a file."""

    form: ClassVar[str] = "path"
    file: ClassVar[str] = "path"
    path: Name = Field(
        description="A TorchScript (.pt) or torch.export (.pt2) file, or a pickled estimator (.joblib, .pkl, .pickle);"
        " relative to the study file."
    )
    trust: Flag = Field(False, description="Open a file that can run code that is in it: .pt2, or a pickle.")

    def build(self, base: Path, device: str, content: bytes | None) -> nn.Module:
        """The program of the file."""
        assert content is not None
        return load_program(content, self.path, device, self.trust)


_WEIGHTS = "A .safetensors file, or a torch file with nothing but tensors (weights_only)."


class ModelFunction(ModelEntry):
    """A module, an estimator or a model that a function of the user's returns."""

    form: ClassVar[str] = "function"
    function: Reference = Field(
        description="module:function that returns a torch.nn.Module, a fitted estimator with predict_proba, or a"
        " standfast.Model; with random numbers from a fixed seed."
    )
    options: OptionValues = Field({}, description="Arguments of the function.")
    weights: Name | None = Field(None, description=_WEIGHTS)

    def build(self, base: Path, device: str, content: bytes | None) -> nn.Module | Model:
        """What the function returns, with torch's generator seeded; or a copy of what is there already."""
        with errors_at("function"):
            found = resolve(self.function, [str(base)])
            if isinstance(found, nn.Module | Model) or is_estimator(found):
                found = copy.deepcopy(found)
            else:
                found = call_function(self.function, self.options, [str(base)], "a model")
            if isinstance(found, Model):
                return found
            try:
                found = as_module(found, "function")
            except ArgumentError as error:
                expected = f"{error.expected}, or a standfast.Model"
                raise misfit(expected, f"{with_article(str(error.got))} from {self.function}") from error
        if content is not None:
            fill(found, read_weights(content))
        return found


class ModelArchitecture(ModelEntry):
    """An architecture of the zoo with weights of `standfast train`."""

    form: ClassVar[str] = "architecture"
    architecture: Annotated[Name, AfterValidator(_check_architecture)] = Field(
        description="Of the zoo, as `standfast list architectures` shows them."
    )
    options: OptionValues = Field({}, description="num_classes and in_channels of the architecture.")
    weights: Annotated[str, Field(min_length=1), Expected("a file of weights")] = Field(description=_WEIGHTS)

    def build(self, base: Path, device: str, content: bytes | None) -> nn.Module:
        """The architecture with these weights."""
        assert content is not None
        try:
            with torch.random.fork_rng(devices=[]):
                found = architectures[self.architecture](**self.options)
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"options of {self.architecture}, such as num_classes and in_channels"
            raise misfit(expected, describe_error(error), "options") from error
        fill(found, read_weights(content))
        return found


@dataclass(frozen=True, eq=False)
class StudyModel(ModelSource):
    """A model of a study file, with the bytes of the file that its entry names.

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

    def model(self, samples: Samples, device: str) -> Model:
        """The model, new on every call, ready for these samples (their bounds) on `device`.

        Raises:
            Misfit: it cannot be built, at the key of the entry that is at fault.
        """
        entry, prepare, forward = self.entry, None, None
        with errors_at("preprocess"):
            if isinstance(entry.preprocess, str):
                prepare = resolve_function(entry.preprocess, self.paths, "a function of inputs")
            elif entry.preprocess is not None:
                with errors_of("a scaling", "mean", ("mean", "std")):
                    prepare = entry.preprocess.module(samples.inputs)
        with errors_at("forward"):
            if entry.forward is not None:
                forward = resolve_function(entry.forward, self.paths, "a function (module, inputs) -> logits")
        with errors_of("a model", entry.form, entry.words()):
            module = entry.build(self.base, device, self.content)
        if not isinstance(module, Model):
            mixed = entry.mixed_precision
            return Model(module, samples.bounds, prepare, device, entry.batch_size, forward, mixed)
        for key in {"preprocess", "forward", "batch_size", "mixed_precision"} & entry.model_fields_set:
            raise misfit("no such key beside a function that returns a standfast.Model", key, key)
        own = module  # with its bounds; the device is the study's
        bounds, mixed = (own.bounds[0], own.bounds[1]), own.mixed_precision
        moved = Model(own.module, bounds, own.preprocess, device, own.batch_size, mixed_precision=mixed)
        moved.reference = own.reference
        return moved


def try_out(source: ModelSource, samples: Samples) -> None:
    """Run a model once, on one sample and on the CPU, so that what cannot work is known before the study starts.

    Raises:
        Misfit: the model cannot be built, or does not take these samples.
    """
    paths = getattr(source, "paths", ())
    takes = f"a model that takes samples of shape {tuple(samples.inputs.shape[1:])}"
    try:
        with importing_from(paths):
            model = source.model(samples, "cpu")
            logits = model.logits(samples.inputs[:1])
    except Misfit:
        raise
    except ModelError as error:
        raise misfit(takes, _shorten_script_error(str(error))) from error
    except ArgumentError as error:
        raise misfit(f"{error.argument} to be {error.expected}", str(error.got)) from error
    except StandfastError as error:
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
