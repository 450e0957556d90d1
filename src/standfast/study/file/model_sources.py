"""Models in a study file: of the zoo, in a file, or from a function.

A model needs neither its file nor a shared disk when it works: `StudyModel` is its entry with the bytes of its file.
Files are read without running anything that is in them: weights as safetensors or with `weights_only=True`, programs as
TorchScript. A file of torch.export, a pickled estimator and a `module:function` from outside of the study's folder run
code that the study does not show, and need `trust: true`.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    PrivateAttr,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)
from torch import Tensor, nn

from standfast import zoo
from standfast.errors import ArgumentError, StandfastError, check
from standfast.model import Model
from standfast.question.grid import ModelSource, Reader, Samples
from standfast.study.file.data_sources import per_channel
from standfast.study.file.document import read_content
from standfast.study.file.entries import (
    Count,
    CountOrAuto,
    Name,
    Numbers,
    OptionValues,
    PerChannel,
    Reference,
    WholeNumber,
    as_tuple,
)
from standfast.study.file.imports import call_function, find_line, resolve
from standfast.study.file.names import TASKS
from standfast.study.file.options import read_configured, to_plain
from standfast.study.file.problems import (
    Entry,
    StudyFieldError,
    describe_error,
    errors_at,
    reject,
    show,
    with_article,
)
from standfast.study.identity import is_estimator
from standfast.study.import_paths import importing_from
from standfast.tasks import Classification, Task
from standfast.texts import TextModel
from standfast.texts.model import Granularity, Removal
from standfast.zoo import architectures
from standfast.zoo.programs import (
    as_module,
    check_program,
    fill,
    load_estimator,
    load_program,
    read_weights,
)
from standfast.zoo.text_folders import load_text_folder, pack_text_folder


def _check_positive(numbers: Numbers) -> Numbers:
    listed = numbers if isinstance(numbers, tuple) else (numbers,)
    if not all(number > 0 for number in listed):
        raise reject("a number above 0, or one for each channel", show(numbers))
    return numbers


def _check_architecture(name: str) -> str:
    _ = architectures[name]
    return name


DataNames = Annotated[tuple[Name, ...], BeforeValidator(as_tuple), Field(min_length=1)]


TaskField = Annotated[
    Task,
    PlainValidator(partial(read_configured, names=TASKS)),
    PlainSerializer(to_plain),
    WithJsonSchema({"$reference": "task"}),
]
#: keys of a model of texts
_OF_TEXTS = {"labels", "template", "granularity", "removal", "word"}
_TEXTS = "texts ({path: reviews.csv, text: COLUMN}) for a model that reads these"
#: keys of a module, which a `Model` has of its own
_OF_MODULES = {"preprocess", "forward", "batch_size", "mixed_precision", "task", "output", "extras"}


class Scaling(Entry):
    """A normalisation: `(x - mean) / std`, one number or one for each channel."""

    mean: float | PerChannel
    std: Annotated[float | PerChannel, AfterValidator(_check_positive)]


class ScalingModule(nn.Module):
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
    if isinstance(raw, Mapping):
        return Scaling.model_validate(raw)
    return handler(raw)


class ModelEntry(Entry):
    """A model under a name.

    Args:
        preprocess: what to do with inputs before the module: {mean: ..., std: ...} or module:function.
        forward: module:function of (module, inputs) that returns logits; the module itself by default.
        data: the data that it meets; all by default.
        batch_size: rows to forward at once.
        mixed_precision: run the module under autocast in this type; faster on accelerators.
        task: what the module answers, such as {regression: {tolerance: 2.5}}.
        output: the answer's part of what the module returns: a key, an attribute or an index.
        extras: further inputs of the module, among the extras of the data, which go with their sample.
        trust: open a file that can run code that is in it (.pt2, a pickle), and import modules from outside of the
            study's folder.
    """

    preprocess: Annotated[Scaling | Reference, WrapValidator(_read_preprocess)] | None = None
    forward: Reference | None = None
    data: DataNames | None = None
    batch_size: CountOrAuto = "auto"
    mixed_precision: Literal["bfloat16"] | None = None
    task: TaskField = Classification()
    output: Name | int | None = None
    extras: Annotated[tuple[Name, ...], BeforeValidator(as_tuple)] = ()
    trust: bool = False

    #: the key that only entries of this form have; none for those with a name
    form: ClassVar[str] = ""
    #: the key of the file whose bytes the model needs
    file: ClassVar[str] = "weights"

    def spread(self, name: str) -> dict[str, ModelEntry]:
        """The entry under its name; or one for each seed, under name#0, name#1 and so on."""
        return {name: self}

    @property
    def given(self) -> set[str]:
        """The keys of a module that are not as they are by default."""
        return set(self.model_dump(include=_OF_MODULES, exclude_defaults=True))

    def source(self, base: Path) -> StudyModel:
        """What the entry stands for; its file, whose path is relative to `base`, is read here and now.

        Raises:
            StudyFieldError: the file is missing or of another kind; at the key of the entry.
        """
        if isinstance(self, NamedModel):
            named = {"name": self._name}
        else:
            named = {}
        about = named | self.model_dump(
            # what tells one model of a study from another: it is a part of the identity of stored jobs
            include={self.form, "options", "weights"},
            exclude_none=True,
        )
        about |= self.model_dump(include=_OF_TEXTS, exclude_defaults=True)
        # only where it is not the default, so that stored jobs keep their identities
        if not getattr(self, "pretrained", True):
            about["pretrained"] = False
        file = getattr(self, self.file, None)
        if file is None:
            return StudyModel(self, base, about=about)
        content = self.read(base / file)
        if isinstance(self, ModelProgram):
            # before anything is unpickled
            with errors_at(key=self.form):
                check_program(content, self.path, self.trust)
        return StudyModel(
            # the bytes count, and not the path, so that a file may be moved
            self,
            base,
            content,
            about | {"sha256": hashlib.sha256(content).hexdigest()},
        )

    def read(self, path: Path) -> bytes:
        """What is at the place of the entry's file."""
        return read_content(path, self.file)

    def load(self, base: Path, content: bytes) -> Any:
        """The thing itself, such as a fitted estimator, of which a kind of inputs makes models; None for other entries.

        Arguments are those of `build`.
        """
        return None

    def build(self, base: Path, device: str, content: bytes) -> nn.Module | Model:
        """The module itself, on the CPU, or on `device`; or a model with bounds of its own.

        Args:
            base: the folder that functions are imported from.
            device: for programs that cannot be moved.
            content: of the entry's file; empty if there is none.
        """
        raise NotImplementedError


class NamedModel(ModelEntry):
    """A model of the zoo, as `standfast list models` shows them, or of a hub.

    Args:
        pretrained: with its trained weights; otherwise random ones, to try a study out.
    """

    pretrained: bool = True
    _name: str = PrivateAttr("")

    def build(self, base: Path, device: str, content: bytes) -> nn.Module:
        """The model of the zoo; a folder of transformers may be beside the study file."""
        hub, _, folder = self._name.partition(":")
        # a folder beside the study file wins over a name of the hub
        local = hub == "transformers" and (base / folder).is_dir()
        if local:
            address = f"{hub}:{base / folder}"
        else:
            address = self._name
        return zoo.load(address, self.pretrained)


class ModelProgram(ModelEntry):
    """A program in a file.

    Args:
        path: a TorchScript (.pt) or torch.export (.pt2) file, or a pickled estimator (.joblib, .pkl, .pickle); relative
            to the study file.
    """

    form = "path"
    file = "path"
    path: Name

    def load(self, base: Path, content: bytes) -> Any:
        if check_program(content, self.path, self.trust) != "pickle":
            return None
        # pickles may name classes of modules that lie beside the study file
        with importing_from([str(base)]):
            return load_estimator(content, self.path)

    def build(self, base: Path, device: str, content: bytes) -> nn.Module:
        """The program of the file."""
        return load_program(content, self.path, device, self.trust, self.task)


class ModelFunction(ModelEntry):
    """A module, an estimator or a model that a function of the user's returns.

    Args:
        function: module:function that returns a torch.nn.Module, a fitted estimator (of classes, with
            predict_proba or decision_function; of a regression, with predict), or a standfast.Model; with random
            numbers from a fixed seed.
        options: arguments of the function.
        weights: a .safetensors file, or a torch file with nothing but tensors (weights_only).
        seeds: make this many models, name#0, name#1 and so on, with the further argument seed of the function: 0, 1
            and so on; for a model that is trained by it.
        windows: make a model for each of these, name@2023 and so on, with the further argument window of the function;
            for a model that is trained on a window of time.
    """

    form = "function"
    function: Reference
    options: OptionValues = Field({})
    seeds: Count | None = None
    windows: Annotated[tuple[Name | int, ...], BeforeValidator(as_tuple)] = ()
    weights: Name | None = None

    def spread(self, name: str) -> dict[str, ModelEntry]:
        arguments: dict[str, dict[str, Any]] = {
            f"{name}@{window}": {"window": window} for window in self.windows
        }
        if not arguments:
            arguments[name] = {}
        if self.seeds is not None:
            without_seeds, arguments = arguments, {}
            for window_name, window in without_seeds.items():
                for seed in range(self.seeds):
                    arguments[f"{window_name}#{seed}"] = {**window, "seed": seed}
        entries: dict[str, ModelEntry] = {}
        for entry_name, further in arguments.items():
            options = {**self.options, **further}
            entries[entry_name] = self.model_copy(
                update={"options": options, "seeds": None, "windows": ()}
            )
        return entries

    def load(self, base: Path, content: bytes) -> Any:
        with errors_at("function"):
            named = resolve(self.function, [str(base)], self.trust)
            # what is a model already is not called, although modules can be
            if isinstance(named, nn.Module | Model | TextModel) or is_estimator(named):
                # a copy, as jobs may change the model, and others take the same one
                loaded = copy.deepcopy(named)
            else:
                loaded = call_function(
                    self.function, self.options, [str(base)], self.trust, "a model"
                )
        if self.weights is not None and isinstance(loaded, TextModel):
            fill(loaded.model, read_weights(content))
        return loaded

    def build(self, base: Path, device: str, content: bytes) -> nn.Module | Model:
        """What the function returns, with torch's generator seeded; or a copy of what is there already."""
        loaded = self.load(base, content)
        with errors_at("function"):
            if isinstance(loaded, Model):
                return loaded
            if isinstance(loaded, TextModel):
                raise reject(_TEXTS, "other data")
            try:
                module = as_module(loaded, "function", self.task)
            except ArgumentError as error:
                expected = f"{error.expected}, or a standfast.Model"
                raise reject(
                    expected, f"{with_article(str(error.got))} from {self.function}"
                ) from error
        if self.weights is not None:
            fill(module, read_weights(content))
        return module


class ModelFolder(ModelEntry):
    """A model of texts of transformers with its tokenizer.

    Args:
        transformers: a folder that save_pretrained wrote, with weights as .safetensors; relative to the study file.
        granularity: what maps have a number for.
        removal: what stands in the place of removed words; of several each is measured, and explainers use the first.
        word: of a model that answers for each token, the number of the word, from 0, whose answer is explained.
        labels: of a language model, the words that stand for the classes.
        template: of a language model, the prompt, with {text} where the text stands.
    """

    form = "transformers"
    file = "transformers"
    transformers: Name
    granularity: Granularity = "word"
    removal: Annotated[Removal | tuple[Removal, ...], BeforeValidator(as_tuple)] | None = None
    word: WholeNumber | None = None
    labels: Annotated[tuple[Name, ...], BeforeValidator(as_tuple), Field(min_length=2)] | None = (
        None
    )
    template: Name | None = None

    def read(self, path: Path) -> bytes:
        with errors_at(key=self.form):
            return pack_text_folder(path, self.trust)

    def load(self, base: Path, content: bytes) -> TextModel:
        check(
            self.labels is not None or self.template is None,
            "labels",
            "some beside a template",
            "none",
        )
        options = self.model_dump(include=_OF_TEXTS, exclude_none=True)
        return load_text_folder(content, self.trust, **options)

    def build(self, base: Path, device: str, content: bytes) -> nn.Module:
        raise reject(_TEXTS, "other data")


class ModelArchitecture(ModelEntry):
    """An architecture of the zoo with weights of `standfast train`.

    Args:
        architecture: of the zoo, as `standfast list architectures` shows them.
        options: num_classes and in_channels of the architecture.
        weights: a .safetensors file, or a torch file with nothing but tensors (weights_only).
    """

    form = "architecture"
    architecture: Annotated[Name, AfterValidator(_check_architecture)]
    options: OptionValues = Field({})
    weights: Name

    def build(self, base: Path, device: str, content: bytes) -> nn.Module:
        """The architecture with these weights."""
        try:
            # weights are read afterwards, so the random ones must not move the generator of the process
            with torch.random.fork_rng(devices=[]):
                module = architectures[self.architecture](**self.options)
        except (TypeError, ValueError, RuntimeError) as error:
            expected = f"options of {self.architecture}, such as num_classes and in_channels"
            raise reject(expected, describe_error(error), "options") from error
        fill(module, read_weights(content))
        return module


@dataclass(frozen=True, eq=False)
class StudyModel(ModelSource):
    """A model of a study file, with the bytes of the file that its entry names.

    Attributes:
        entry: of the study file.
        base: the folder that functions are imported from.
        content: of the file; empty if there is none.
    """

    entry: ModelEntry
    base: Path
    content: bytes = field(default=b"", repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)

    @property
    def paths(self) -> tuple[str, ...]:
        """Folders to import from."""
        return (str(self.base),)

    def model(self, samples: Samples, device: str) -> Model:
        """The model, new on every call, ready for these samples (their bounds) on `device`.

        Raises:
            StudyFieldError: it cannot be built, at the key of the entry that is at fault.
        """
        model = self._make(samples, device)
        with errors_at("task"):
            return model.with_class_names(samples.class_names)

    def _make(self, samples: Samples, device: str) -> Model:
        """The model, before the names of the classes of the samples are known to its task."""
        # frames and texts: rows of numbers are made by their reader, which knows how to make models of them
        if samples.reader is not None:
            return self._make_for(samples.reader, device)
        entry = self.entry
        prepare = None
        forward = None
        with errors_at("preprocess"):
            if isinstance(entry.preprocess, str):
                prepare = resolve(entry.preprocess, self.paths, entry.trust, "a function of inputs")
            elif entry.preprocess is not None:
                with errors_at(keys=("mean", "std")):
                    mean = per_channel(entry.preprocess.mean, samples.inputs, "mean")
                    prepare = ScalingModule(
                        mean, per_channel(entry.preprocess.std, samples.inputs, "std")
                    )
        with errors_at("forward"):
            if entry.forward is not None:
                what = "a function (module, inputs) -> logits"
                forward = resolve(entry.forward, self.paths, entry.trust, what)
        with errors_at(keys=entry.known(), key=entry.form):
            module = entry.build(self.base, device, self.content)
        if not isinstance(module, Model):
            mixed = entry.mixed_precision
            size = entry.batch_size
            with errors_at("task"):
                task = entry.task.load_files(self.base)
            more: dict[str, Any] = {"task": task, "output": entry.output, "extras": entry.extras}
            return Model(module, samples.bounds, prepare, device, size, forward, mixed, **more)
        # such a model has all of this already, and nobody would know which one counts
        for key in entry.given:
            raise reject("no such key beside a function that returns a standfast.Model", key, key)
        return module.to(device)  # with its bounds; the device is the study's

    def _make_for(self, reader: Reader, device: str) -> Model:
        """The model of what the rows stand for, such as data frames or texts."""
        model = self.load(type(reader))
        with errors_at(keys=self.entry.known(), key=self.entry.form):
            task = None
            if "task" in self.entry.given:
                task = self.entry.task.load_files(self.base)
            return reader.make_model(model, task, device)

    def load(self, reader: type[Reader]) -> Any:
        """The model as the user has it, new on every call.

        Raises:
            StudyFieldError: it is another model, or cannot be loaded; at the key of the entry that is at fault.
        """
        entry = self.entry
        for key in entry.given - {"task"}:
            raise reject(f"no such key for {reader.words}", key, key)
        with errors_at(keys=entry.known(), key=entry.form):
            model = entry.load(self.base, self.content)
        if model is None:
            raise reject(reader.expected, "another model")
        if not reader.takes(model):
            raise reject(reader.expected, with_article(type(model).__name__), entry.form)
        return model


def try_out(source: ModelSource, samples: Samples, note: str = "") -> Model:
    """Run a model once, on one sample and on the CPU, so that what cannot work is known before the study starts.

    Args:
        source: of the model.
        samples: that it meets.
        note: for errors, such as the name of the data.

    Raises:
        StudyFieldError: the model cannot be built, or does not take these samples.
    """
    # only a `StudyModel` has folders to import from
    paths = getattr(source, "paths", ())
    try:
        with importing_from(paths):
            part = samples.find_first(source.model(samples, "cpu"))
            model = part.model
            logits = model.logits(part.take(samples.inputs))
    except StudyFieldError:
        raise
    except Exception as error:  # the user's module may raise anything
        # our own errors are in plain words already
        is_ours = isinstance(error, StandfastError)
        if is_ours:
            got = _shorten_script_error(str(error))
        else:
            got = describe_error(error, find_line(error, paths))
        raise reject(
            f"a model that takes samples of shape {tuple(samples.inputs.shape[1:])}", got, note=note
        ) from error
    labels = samples.extras.get("labels")
    if model.task.classes and labels is not None and labels.is_floating_point():
        expected = (
            "labels as whole numbers, as the model answers with classes (or another task of it)"
        )
        raise reject(expected, f"{labels.dtype} of shape {tuple(labels.shape)}", note=note)
    if (
        samples.targets is not None
        and model.task.classes
        and int(samples.targets.max()) >= logits.shape[1]
    ):
        got = f"{int(samples.targets.max())} among them"
        expected = f"labels from 0 to {logits.shape[1] - 1}, the model's classes"
        raise reject(expected, got, note=note)
    return model


def _shorten_script_error(text: str) -> str:
    """What an error of a module says, without the traceback that TorchScript puts into its messages."""
    text = text.removeprefix("module: ")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    start, script, _ = text.partition("The following operation failed in the TorchScript")
    if script:
        return f"{start}{lines[-1]}"
    return text
