"""The sections of a study file, as pydantic models; types and words here, what they stand for in `sources`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from holdfast.study.file.imports import is_reference
from holdfast.study.file.problems import Problem, Wrong, listed, nearest, shown

Numbers = float | tuple[float, ...]


def to_pydantic(wrong: Wrong, value: object) -> ValidationError:
    """Our problems as pydantic's, so that its own and ours come out together."""
    details: list[InitErrorDetails] = []
    for problem in wrong.problems:
        said = {"expected": problem.expected, "got": problem.got, "near": problem.near, "note": problem.note}
        error = PydanticCustomError("study", "expected {expected}", said)
        details.append(InitErrorDetails(type=error, loc=problem.path, input=value))
    return ValidationError.from_exception_data("study", details)


def expected(words: str, choices: tuple[str, ...] = ()) -> WrapValidator:
    """Whatever pydantic says against the value, the user reads that `words` were expected."""

    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        try:
            return handler(value)
        except (ValidationError, ValueError) as error:
            near = nearest(value, choices) if isinstance(value, str) else None
            raise to_pydantic(Wrong(Problem((), words, shown(value), near=near)), value) from error

    return WrapValidator(check)


def _listed_as_tuple(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    return handler(tuple(value) if isinstance(value, list) else value)


def _passing(test: Callable[[Any], bool]) -> WrapValidator:
    def check(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        value = handler(value)
        if not test(value):
            raise ValueError
        return value

    return WrapValidator(check)


def _ordered(bounds: tuple[Numbers, Numbers]) -> bool:
    lower, upper = ((b if isinstance(b, tuple) else (b,)) for b in bounds)
    if not lower or not upper or (len(lower) != len(upper) and 1 not in (len(lower), len(upper))):
        return False
    size = max(len(lower), len(upper))
    pairs = zip(lower * (size // len(lower)), upper * (size // len(upper)), strict=True)
    return all(low < high for low, high in pairs)


# `expected` stands last: the last of several wrapping validators is the outermost one
Text = Annotated[str, expected("a text")]
Flag = Annotated[bool, expected("true or false")]
Count = Annotated[int, Field(ge=1), expected("a whole number of at least 1")]
Seed = Annotated[int, Field(ge=0, lt=2**63), expected("a whole number of at least 0")]
Name = Annotated[str, Field(min_length=1), expected("a name")]
Reference = Annotated[str, _passing(is_reference), expected("a function, as module:function")]
Options = Annotated[dict[str, Any], expected("options, each with its value")]
Numeric = Annotated[Numbers, Field(union_mode="left_to_right"), WrapValidator(_listed_as_tuple)]
Bounds = Annotated[
    tuple[Numeric, Numeric],
    WrapValidator(_listed_as_tuple),
    _passing(_ordered),
    expected("a lower and a higher bound, [0, 1], or two lists with one for each channel"),
]
Device = Annotated[
    str,
    _passing(lambda device: re.fullmatch(r"auto|cpu|cuda(:\d+)?", device) is not None),
    expected("auto, cpu, cuda, or one of several as cuda:1", ("auto", "cuda")),  # not cpu, which is nearest to gpu
    WithJsonSchema({"type": "string", "pattern": r"^(auto|cpu|cuda(:\d+)?)$", "examples": ["auto", "cpu", "cuda"]}),
]


class Entry(BaseModel):
    """A section with known keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class _Source(Entry):
    """A section that names one of several kinds of source, each with keys of its own."""

    #: for each kind the keys that go with it
    kinds: ClassVar[Mapping[str, frozenset[str]]]
    what: ClassVar[str]

    @model_validator(mode="before")
    @classmethod
    def _one_kind(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return {"name": raw}
        forms = listed(cls.kinds)
        if not isinstance(raw, Mapping):
            raise to_pydantic(Wrong(Problem((), f"{cls.what}: a name, or a mapping with {forms}", shown(raw))), raw)
        given = [kind for kind in cls.kinds if raw.get(kind) is not None]
        if len(given) != 1:
            near = next((n for n in (nearest(key, cls.kinds) for key in raw if key not in cls.model_fields) if n), None)
            got = shown(raw) if not given else f"{' and '.join(given)} at once"
            raise to_pydantic(Wrong(Problem((), f"{cls.what} with exactly one of {forms}", got, near=near)), raw)
        fitting = cls.kinds[given[0]]
        foreign = [key for key in raw if key in cls.model_fields and key not in fitting and key != given[0]]
        if foreign:
            owners = [kind for kind, keys in cls.kinds.items() if foreign[0] in keys]
            words = f"no {foreign[0]}, which goes with {' or '.join(owners)}"
            raise to_pydantic(Wrong(Problem((foreign[0],), words, f"one beside {given[0]}")), raw)
        return raw

    @property
    def kind(self) -> str:
        """Which of its kinds it is."""
        return next(kind for kind in self.kinds if getattr(self, kind) is not None)


class DataEntry(_Source):
    """Data under a name: of a loader, in a file, or from a function."""

    what: ClassVar[str] = "data"
    kinds: ClassVar[Mapping[str, frozenset[str]]] = {
        "name": frozenset({"targets", "samples", "download"}),
        "path": frozenset({"targets", "samples", "bounds", "size", "grayscale"}),
        "function": frozenset({"targets", "samples", "bounds", "options"}),
    }

    name: Name | None = Field(default=None, description="Of a loader, as `holdfast list datasets` shows them.")
    path: Name | None = Field(
        default=None,
        description="A .npz (arrays inputs or x, labels or y), .npy or .safetensors file, or a folder of images with"
        " or without a subfolder for each class; relative to the study file. uint8 is scaled to [0, 1].",
    )
    function: Reference | None = Field(
        default=None,
        description="module:function that returns a holdfast Dataset, inputs, or (inputs, labels); the module may lie"
        " beside the study file.",
    )
    options: Options = Field(default_factory=dict, description="Arguments of the function.")
    bounds: Bounds | None = Field(
        default=None, description="Valid values of an input, [lower, upper]; [0, 1] where nothing else is known."
    )
    targets: Annotated[Literal["predicted", "labels"], expected("predicted or labels", ("predicted", "labels"))] = (
        Field(default="predicted", description="Classes to explain: the model's own predictions, or the labels.")
    )
    samples: Count | None = Field(default=None, description="Take this many from the start.")
    size: (
        Annotated[tuple[Count, Count], WrapValidator(_listed_as_tuple), expected("[height, width] in pixels")] | None
    ) = Field(default=None, description="Resize images to [height, width].")
    grayscale: Flag | None = Field(
        default=None, description="Read images with one channel; by default if all of them are gray."
    )
    download: Flag = Field(default=False, description="Fetch what is missing.")


class Scaling(Entry):
    """A normalisation: `(x - mean) / std`, one number or one for each channel."""

    mean: Annotated[Numeric, expected("a number, or one for each channel")]
    std: Annotated[
        Numeric,
        _passing(lambda std: all(s > 0 for s in (std if isinstance(std, tuple) else (std,)))),
        expected("a number above 0, or one for each channel"),
    ]

    @model_validator(mode="after")
    def _alike(self) -> Scaling:
        lengths = {len(part) for part in (self.mean, self.std) if isinstance(part, tuple)}
        if len(lengths) > 1:
            raise to_pydantic(Wrong(Problem(("std",), "as many numbers as mean has", shown(self.std))), self)
        return self


def _preprocess(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """A text is a function, a mapping a scaling: two errors for one value would puzzle."""
    if isinstance(value, str) and is_reference(value):
        return value
    if isinstance(value, Mapping):
        return Scaling.model_validate(value)
    words = "mean and std, or a function as module:function"
    raise to_pydantic(Wrong(Problem((), words, shown(value))), value)


class ModelEntry(_Source):
    """A model under a name: of the zoo, own weights for its architecture, from a function, or in a program's file."""

    what: ClassVar[str] = "a model"
    kinds: ClassVar[Mapping[str, frozenset[str]]] = {
        "name": frozenset({"preprocess", "forward", "data", "batch_size"}),
        "path": frozenset({"preprocess", "forward", "data", "batch_size"}),
        "function": frozenset({"preprocess", "forward", "data", "batch_size", "options", "weights"}),
        "architecture": frozenset({"preprocess", "forward", "data", "batch_size", "options", "weights"}),
    }

    name: Name | None = Field(default=None, description="Of a model of the zoo, as `holdfast list models` shows them.")
    path: Name | None = Field(
        default=None, description="A TorchScript (.pt) or torch.export (.pt2) file, relative to the study file."
    )
    function: Reference | None = Field(
        default=None,
        description="module:function that returns a torch.nn.Module, with random numbers from a fixed seed.",
    )
    architecture: Name | None = Field(
        default=None,
        description="Of the zoo, as `holdfast list architectures` shows them; for weights of `holdfast train`.",
    )
    options: Options = Field(
        default_factory=dict, description="Arguments of the function; num_classes and in_channels of an architecture."
    )
    weights: Name | None = Field(
        default=None,
        description="A .safetensors file, or a torch file with nothing but tensors (weights_only), for the module.",
    )
    preprocess: Annotated[Scaling | Reference, WrapValidator(_preprocess)] | None = Field(
        default=None, description="What to do with inputs before the module: {mean: ..., std: ...} or module:function."
    )
    forward: Reference | None = Field(
        default=None,
        description="module:function of (module, inputs) that returns logits; the module itself by default.",
    )
    data: (
        Annotated[
            tuple[Name, ...], Field(min_length=1), WrapValidator(_listed_as_tuple), expected("a list of names of data")
        ]
        | None
    ) = Field(default=None, description="The data that it meets; all by default.")
    batch_size: Annotated[
        int | Literal["auto"],
        _passing(lambda size: size == "auto" or size >= 1),
        expected("auto or a whole number of at least 1", ("auto",)),
    ] = Field(default="auto", description="Rows to forward at once.")


class SlurmEntry(Entry):
    """What each Slurm job asks for."""

    partition: Text | None = Field(default=None, description="Where jobs queue.")
    time_minutes: Count = Field(default=60, description="Time limit of a job.")
    mem_gb: Annotated[float, Field(gt=0), expected("a number above 0")] | None = Field(
        default=None, description="Memory of a job."
    )
    cpus_per_task: Count = Field(default=1, description="CPU cores of a job.")
    gpus_per_node: Annotated[int, Field(ge=0), expected("a whole number of at least 0")] = Field(
        default=0, description="GPUs of a job."
    )
    array_parallelism: Count | None = Field(
        default=None, description="Jobs that run at once; as many as workers by default."
    )
    extra: Options = Field(default_factory=dict, description="Further parameters of sbatch, handed on as they are.")

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

    own: ClassVar[Mapping[str, frozenset[str]]] = {
        "local": frozenset(),
        "ray": frozenset({"address", "gpus_per_worker", "cpus_per_worker"}),
        "slurm": frozenset({"slurm"}),
    }

    name: Annotated[Literal["local", "ray", "slurm"], expected("local, ray or slurm", ("local", "ray", "slurm"))] = (
        Field(default="local", description="Processes on this computer, a Ray cluster, or Slurm jobs.")
    )
    workers: Annotated[
        int | Literal["auto"],
        _passing(lambda workers: workers == "auto" or workers >= 1),
        expected("auto or a whole number of at least 1", ("auto",)),
    ] = Field(default=1, description="How many work at once; auto: as many as there are GPUs or cores.")
    threads: Count | None = Field(default=None, description="Of each worker.")
    address: Text | None = Field(default=None, description="Of the Ray cluster; ray only.")
    gpus_per_worker: Annotated[float, Field(ge=0), expected("a number of at least 0")] = Field(
        default=0.0, description="GPUs of a worker, also a share of one; ray only."
    )
    cpus_per_worker: Annotated[float, Field(gt=0), expected("a number above 0")] = Field(
        default=1.0, description="CPU cores of a worker; ray only."
    )
    slurm: SlurmEntry | None = Field(default=None, description="What to ask Slurm for; slurm only.")

    @model_validator(mode="before")
    @classmethod
    def _own_options(cls, raw: Any) -> Any:
        if isinstance(raw, str):
            return {"name": raw}
        if not isinstance(raw, Mapping):
            words = "local, ray or slurm, or a mapping with name and workers"
            raise to_pydantic(Wrong(Problem((), words, shown(raw))), raw)
        name = raw.get("name", "local")
        if not isinstance(name, str) or name not in cls.own:
            return raw
        foreign = {key: owner for owner, keys in cls.own.items() for key in keys if owner != name and key in raw}
        if foreign:
            problems = [Problem((k,), f"no {k}, which goes with {o}", f"one for {name}") for k, o in foreign.items()]
            raise to_pydantic(Wrong(*problems), raw)
        return raw
