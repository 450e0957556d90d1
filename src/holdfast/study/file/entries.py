"""The sections of a study file, as pydantic models: types and words; `sources` has what they stand for.

Data, models and executors come in several forms, each a class of its own. The key that only this form has (`form`)
tells which it is, or the name of the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import AfterValidator, Field, Strict, ValidatorFunctionWrapHandler, WrapValidator, model_validator

from holdfast.study.executors import Executor, Ray, Slurm, local
from holdfast.study.file.imports import REFERENCE
from holdfast.study.file.names import Named
from holdfast.study.file.problems import Entry, Expected, either, misfit, nearest, show
from holdfast.zoo.networks.names import architectures

Numbers = float | tuple[float, ...]
F = TypeVar("F", bound=Entry)


def _check_order(bounds: tuple[Numbers, Numbers]) -> tuple[Numbers, Numbers]:
    lower, upper = ((b if isinstance(b, tuple) else (b,)) for b in bounds)
    size = max(len(lower), len(upper))
    fits = {len(lower), len(upper)} <= {1, size}
    if not fits or not all(low < high for low, high in zip(lower * size, upper * size, strict=False)):
        raise ValueError
    return bounds


def _check_positive(numbers: Numbers) -> Numbers:
    if not all(number > 0 for number in (numbers if isinstance(numbers, tuple) else (numbers,))):
        raise ValueError
    return numbers


def _check_architecture(name: str) -> str:
    _ = architectures[name]
    return name


# Types with their words. A list of the file becomes a tuple, which `Strict(False)` allows.
Text = Annotated[str, Expected("a text")]
Name = Annotated[str, Field(min_length=1), Expected("a name")]
Flag = Annotated[bool, Expected("true or false")]
Count = Annotated[int, Field(ge=1), Expected("a whole number of at least 1")]
CountOrAuto = Annotated[Count | Literal["auto"], Expected("auto or a whole number of at least 1", ("auto",))]
Seed = Annotated[int, Field(ge=0, lt=2**63), Expected("a whole number of at least 0")]
PositiveNumber = Annotated[float, Field(gt=0), Expected("a number above 0")]
Reference = Annotated[str, Field(pattern=REFERENCE), Expected("a function, as module:function")]
OptionValues = Annotated[dict[str, Any], Expected("options, each with its value")]
PerChannel = Annotated[tuple[float, ...], Field(min_length=1), Strict(False)]
Bounds = Annotated[
    tuple[float | PerChannel, float | PerChannel],
    Strict(False),
    AfterValidator(_check_order),
    Expected("a lower and a higher bound, [0, 1], or two lists with one for each channel"),
]
OwnBounds = Annotated[
    Bounds | None, Field(description="Valid values of an input, [lower, upper]; [0, 1] where nothing else is known.")
]
Device = Annotated[
    str,
    Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$", examples=["auto", "cpu", "cuda"]),
    Expected("auto, cpu, cuda, or one of several as cuda:1", ("auto", "cuda")),  # not cpu, which is nearest to gpu
]
Targets = Annotated[Literal["predicted", "labels"], Expected("predicted or labels", ("predicted", "labels"))]


# Data


class DataEntry(Entry):
    """Data under a name."""

    targets: Targets = Field("predicted", description="Classes to explain: the model's own predictions, or the labels.")
    samples: Count | None = Field(None, description="Take this many from the start.")


class NamedData(DataEntry):
    """Data of a loader."""

    form: ClassVar[str] = "name"
    name: Name = Field(description="Of a loader, as `holdfast list datasets` shows them.")
    download: Flag = Field(False, description="Fetch what is missing.")


class DataFile(DataEntry):
    """Data in a file, or a folder of images."""

    form: ClassVar[str] = "path"
    path: Name = Field(
        description="A .npz (arrays inputs or x, labels or y), .npy or .safetensors file, or a folder of images with"
        " or without a subfolder for each class; relative to the study file. uint8 is scaled to [0, 1]."
    )
    bounds: OwnBounds = None
    size: Annotated[tuple[Count, Count], Strict(False), Expected("[height, width] in pixels")] | None = Field(
        None, description="Resize images to [height, width]."
    )
    grayscale: Flag | None = Field(None, description="Read images with one channel; by default if all are gray.")


class DataFunction(DataEntry):
    """Data that a function of the user's returns."""

    form: ClassVar[str] = "function"
    function: Reference = Field(
        description="module:function that returns a holdfast Dataset, inputs, or (inputs, labels); the module may lie"
        " beside the study file."
    )
    options: OptionValues = Field({}, description="Arguments of the function.")
    bounds: OwnBounds = None


# Models


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


class NamedModel(ModelEntry):
    """A model of the zoo or of a hub."""

    form: ClassVar[str] = "name"
    name: Name = Field(description="Of a model of the zoo, as `holdfast list models` shows them.")


class ModelProgram(ModelEntry):
    """A program in a file."""

    form: ClassVar[str] = "path"
    path: Name = Field(description="A TorchScript (.pt) or torch.export (.pt2) file, relative to the study file.")


_WEIGHTS = "A .safetensors file, or a torch file with nothing but tensors (weights_only)."


class ModelFunction(ModelEntry):
    """A module that a function of the user's returns."""

    form: ClassVar[str] = "function"
    function: Reference = Field(
        description="module:function that returns a torch.nn.Module, with random numbers from a fixed seed."
    )
    options: OptionValues = Field({}, description="Arguments of the function.")
    weights: Name | None = Field(None, description=_WEIGHTS)


class ModelArchitecture(ModelEntry):
    """An architecture of the zoo with weights of `holdfast train`."""

    form: ClassVar[str] = "architecture"
    architecture: Annotated[Name, AfterValidator(_check_architecture)] = Field(
        description="Of the zoo, as `holdfast list architectures` shows them."
    )
    options: OptionValues = Field({}, description="num_classes and in_channels of the architecture.")
    weights: Annotated[str, Field(min_length=1), Expected("a file of weights")] = Field(description=_WEIGHTS)


def build_entry(base: type[F], named: Named) -> tuple[F, dict[str, Any]]:
    """The entry of the form that has the key by which it is named, and its plain form."""
    (kind,) = (form for form in base.__subclasses__() if form.form == named.source)
    entry = kind.model_validate({named.source: named.name, **named.options})
    left_out = {"targets"} - entry.model_fields_set  # a function's Samples have targets of their own
    return entry, entry.model_dump(mode="json", exclude_none=True, exclude=left_out)


# Explainers and metrics of the user's


class ExplainerFunction(Entry):
    """An explainer of the user's."""

    key: ClassVar[str] = "an option of a function"
    function: Reference = Field(
        description="A function of (module, inputs, targets), an Explainer, or a class of them."
    )
    options: OptionValues = Field({}, description="Of a class of explainers.")
    differentiable: Flag = Field(False, description="The function's result can be differentiated.")
    rows_per_input: Count = Field(1, description="Rows that the function forwards at once for one input.")


class MetricFunction(Entry):
    """A metric of the user's."""

    key: ClassVar[str] = "an option of a function"
    function: Reference = Field(description="A class of metrics, a Metric, or a function that returns one.")
    options: OptionValues = Field({}, description="Of the class, or arguments of the function.")


# Executors


class SlurmEntry(Entry):
    """What each Slurm job asks for."""

    partition: Text | None = Field(None, description="Where jobs queue.")
    time_minutes: Count = Field(60, description="Time limit of a job.")
    mem_gb: PositiveNumber | None = Field(None, description="Memory of a job.")
    cpus_per_task: Count = Field(1, description="CPU cores of a job.")
    gpus_per_node: Annotated[int, Field(ge=0), Expected("a whole number of at least 0")] = Field(
        0, description="GPUs of a job."
    )
    array_parallelism: Count | None = Field(None, description="Jobs that run at once; as many as workers by default.")
    extra: OptionValues = Field({}, description="Further parameters of sbatch, handed on as they are.")

    def parameters(self) -> dict[str, Any]:
        """The same under the names of submitit's `AutoExecutor`.

        >>> SlurmEntry(partition="gpu", gpus_per_node=1, extra={"account": "me"}).parameters()["slurm_partition"]
        'gpu'
        """
        parameters = {
            "slurm_partition": self.partition,
            "timeout_min": self.time_minutes,
            "mem_gb": self.mem_gb,
            "cpus_per_task": self.cpus_per_task,
            "gpus_per_node": self.gpus_per_node or None,
            "slurm_array_parallelism": self.array_parallelism,
            "slurm_additional_parameters": self.extra or None,
        }
        return {key: value for key, value in parameters.items() if value is not None}


class ExecutorEntry(Entry):
    """Who does the work."""

    name: str
    workers: CountOrAuto = Field("auto", description="How many work at once; auto: as many as there is room for.")
    threads: Count | None = Field(None, description="Of each worker.")

    def executor(self, device: str) -> Executor:
        """The executor itself, for models on `device`."""
        raise NotImplementedError


class LocalEntry(ExecutorEntry):
    """Processes on this computer."""

    form: ClassVar[str] = "local"
    name: Literal["local"] = "local"
    workers: CountOrAuto = Field(1, description="How many work at once; auto: as many as there are GPUs or cores.")

    def executor(self, device: str) -> Executor:
        """The executor itself, for models on `device`."""
        return local(self.workers, self.threads, device)


class RayEntry(ExecutorEntry):
    """A Ray cluster."""

    form: ClassVar[str] = "ray"
    name: Literal["ray"] = "ray"
    address: Text | None = Field(None, description="Of the cluster; the running one by default.")
    gpus_per_worker: Annotated[float, Field(ge=0), Expected("a number of at least 0")] = Field(
        0.0, description="GPUs of a worker, also a share of one."
    )
    cpus_per_worker: PositiveNumber = Field(1.0, description="CPU cores of a worker.")

    def executor(self, device: str) -> Executor:
        """The executor itself; workers use the GPUs that they are given."""
        return Ray(self.address or "auto", self.workers, self.cpus_per_worker, self.gpus_per_worker, self.threads)


class SlurmJobsEntry(ExecutorEntry):
    """Slurm jobs."""

    form: ClassVar[str] = "slurm"
    name: Literal["slurm"] = "slurm"
    slurm: SlurmEntry = Field(SlurmEntry.model_validate({}), description="What to ask Slurm for.")

    def executor(self, device: str) -> Executor:
        """The executor itself; Slurm says where models run."""
        return Slurm(self.workers, options=self.slurm.parameters())


EXECUTORS: dict[str, type[ExecutorEntry]] = {kind.form: kind for kind in (LocalEntry, RayEntry, SlurmJobsEntry)}


def executor_entry(raw: object) -> ExecutorEntry:
    """The section `executor`: a name, or a mapping with `name` (local by default) and options.

    >>> executor_entry({"workers": 2})
    LocalEntry(name='local', workers=2, threads=None)
    """
    content = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(content, Mapping):
        raise misfit("local, ray or slurm, or a mapping with name and workers", show(raw))
    name = content.get("name", "local")
    if not isinstance(name, str) or name not in EXECUTORS:
        raise misfit(either(list(EXECUTORS)), show(name), "name", near=nearest(name, EXECUTORS))
    return EXECUTORS[name].model_validate(content)
