"""What the sections of a study file are made of: types with their words, functions of the user's, executors.

Data, models and executors come in several forms, each a class of its own. The key that only this form has (`form`)
tells which it is, or the name of the executor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from standfast.errors import check
from standfast.study.executors import Executor, Limits, Ray, Slurm, local
from standfast.study.file.imports import REFERENCE
from standfast.study.file.names import ParsedEntry
from standfast.study.file.problems import Entry, Expected, either, find_nearest, misfit, show

Numbers = float | tuple[float, ...]
F = TypeVar("F", bound=Entry)


# Types with their words.
Text = Annotated[str, Expected("a text")]
Name = Annotated[str, Field(min_length=1), Expected("a name")]
Flag = Annotated[bool, Expected("true or false")]
Count = Annotated[int, Field(ge=1), Expected("a whole number of at least 1")]
CountOrAuto = Annotated[Count | Literal["auto"], Expected("auto or a whole number of at least 1", ("auto",))]
Seed = Annotated[int, Field(ge=0, lt=2**63), Expected("a whole number of at least 0")]
PositiveNumber = Annotated[float, Field(gt=0), Expected("a number above 0")]
Reference = Annotated[str, Field(pattern=REFERENCE), Expected("a function, as module:function")]
OptionValues = Annotated[dict[str, Any], Expected("options, each with its value")]
PerChannel = Annotated[
    tuple[float, ...],
    Field(min_length=1),
    BeforeValidator(lambda raw: tuple(raw) if isinstance(raw, list) else raw),  # older unions overrule `Strict(False)`
]
Device = Annotated[
    str,
    Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$", examples=["auto", "cpu", "cuda"]),
    Expected("auto, cpu, cuda, or one of several as cuda:1", ("auto", "cuda")),  # not cpu, which is nearest to gpu
]


def build_entry(base: type[F], named: ParsedEntry) -> tuple[F, dict[str, Any]]:
    """The entry of the form that has the key by which it is named, and its plain form."""
    (kind,) = (form for form in base.__subclasses__() if form.form == named.source)
    entry = kind.model_validate({named.source: named.name, **named.options})
    left_out = {"targets"} - entry.model_fields_set  # a function's Samples have targets of their own
    return entry, entry.model_dump(mode="json", exclude_none=True, exclude=left_out)


def per_channel(values: tuple[float, ...], inputs: Tensor, argument: str) -> Tensor:
    """One number, or one for each channel of `inputs` `(N, C, ...)`, as a tensor that broadcasts against an input."""
    channels = inputs.shape[1]
    check(len(values) in (1, channels), argument, f"one number, or {channels} (one for each channel)", len(values))
    return torch.tensor(values, dtype=inputs.dtype).reshape(-1, *[1] * (inputs.ndim - 2))


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
    timeout: PositiveNumber | None = Field(None, description="Seconds that a job may take; no limit by default.")
    memory_gb: PositiveNumber | None = Field(None, description="Memory that a worker may take; no limit by default.")
    retries: Annotated[int, Field(ge=0), Expected("a whole number of at least 0")] | None = Field(
        None, description="How often a job is tried again whose worker was lost."
    )

    @property
    def limits(self) -> Limits:
        """What one job may take."""
        return Limits(self.timeout, self.memory_gb, self.retries)

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
        return local(self.workers, self.threads, device, self.limits)


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
        share = (self.cpus_per_worker, self.gpus_per_worker, self.threads)
        return Ray(self.address or "auto", self.workers, *share, limits=self.limits)


class SlurmJobsEntry(ExecutorEntry):
    """Slurm jobs."""

    form: ClassVar[str] = "slurm"
    name: Literal["slurm"] = "slurm"
    slurm: SlurmEntry = Field(SlurmEntry.model_validate({}), description="What to ask Slurm for.")

    def executor(self, device: str) -> Executor:
        """The executor itself; Slurm says where models run."""
        return Slurm(self.workers, options=self.slurm.parameters(), limits=self.limits)


EXECUTORS: dict[str, type[ExecutorEntry]] = {kind.form: kind for kind in (LocalEntry, RayEntry, SlurmJobsEntry)}


def executor_entry(raw: object) -> ExecutorEntry:
    """The section `executor`: a name, or a mapping with `name` (local by default) and options.

    >>> executor_entry({"workers": 2})
    LocalEntry(name='local', workers=2, threads=None, timeout=None, memory_gb=None, retries=None)
    """
    content = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(content, Mapping):
        raise misfit("local, ray or slurm, or a mapping with name and workers", show(raw))
    name = content.get("name", "local")
    if not isinstance(name, str) or name not in EXECUTORS:
        raise misfit(either(list(EXECUTORS)), show(name), "name", near=find_nearest(name, EXECUTORS))
    return EXECUTORS[name].model_validate(content)
