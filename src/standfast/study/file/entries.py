"""Types of values, executors, and requirements: what the numbers of a study must show, for `standfast check`.

requirements:
  - {metric: worst_case, explainer: gradcam, at_least: 0.6, share_of_samples: 0.95}
  - {metric: misinterpretation_probability, at_most_ln: -13.8}
  - {metric: data_senc, better_than: input_copy, level: 0.99}
  - {no_worse_than: baseline/2026-10, by: 0.05}
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainValidator, WithJsonSchema, model_validator

from standfast.study.executors import Executor, Limits, Ray, Slurm, local
from standfast.study.file.imports import REFERENCE
from standfast.study.file.problems import Entry, in_words, make_unknown_error, reject, show


def as_tuple(raw: object) -> object:
    """A list as a tuple, which strict checks tell apart; anything else as it is."""
    if isinstance(raw, list):
        return tuple(raw)
    return raw


Numbers = float | tuple[float, ...]
Name = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=1, lt=2**63)]
CountOrAuto = Literal["auto"] | Count
WholeNumber = Annotated[int, Field(ge=0, lt=2**63)]
PositiveNumber = Annotated[float, Field(gt=0)]
Reference = Annotated[str, Field(pattern=REFERENCE), in_words("a function, as module:function")]
OptionValues = dict[str, Any]
PerChannel = Annotated[tuple[float, ...], Field(min_length=1), BeforeValidator(as_tuple)]
Device = Annotated[
    str,
    Field(pattern=r"^(auto|cpu|cuda(:[0-9]+)?)$"),
    in_words("auto, cpu, cuda, or one of several as cuda:1"),
]


# Executors


class SlurmEntry(Entry):
    """What each Slurm job asks for.

    Args:
        partition: where jobs queue.
        time_minutes: time limit of a job.
        mem_gb: memory of a job.
        cpus_per_task: CPU cores of a job.
        gpus_per_node: GPUs of a job.
        array_parallelism: jobs that run at once; as many as workers by default.
        extra: further parameters of sbatch, handed on as they are.
    """

    partition: str | None = Field(None, serialization_alias="slurm_partition")
    time_minutes: Count = Field(60, serialization_alias="timeout_min")
    mem_gb: PositiveNumber | None = None
    cpus_per_task: Count = 1
    gpus_per_node: WholeNumber = 0
    array_parallelism: Count | None = Field(None, serialization_alias="slurm_array_parallelism")
    extra: OptionValues = Field({}, serialization_alias="slurm_additional_parameters")

    def parameters(self) -> dict[str, Any]:
        """What is set, under the names of submitit's `AutoExecutor`.

        >>> SlurmEntry(partition="gpu", extra={"account": "me"}).parameters()["slurm_additional_parameters"]
        {'account': 'me'}
        """
        # what is not set is left to Slurm's own defaults
        return {key: value for key, value in self.model_dump(by_alias=True).items() if value}


class ExecutorEntry(Entry):
    """Who does the work.

    Args:
        workers: how many work at once; auto: as many as there is room for.
        threads: of each worker.
        timeout: seconds that a job may take; no limit by default.
        memory_gb: memory that a worker may take; no limit by default.
        retries: how often a job is tried again whose worker was lost.
    """

    name: str
    workers: CountOrAuto = "auto"
    threads: Count | None = None
    timeout: PositiveNumber | None = None
    memory_gb: PositiveNumber | None = None
    retries: WholeNumber | None = None

    @property
    def limits(self) -> Limits:
        """What one job may take."""
        return Limits(self.timeout, self.memory_gb, self.retries)

    def executor(self, device: str) -> Executor:
        """The executor itself, for models on `device`."""
        raise NotImplementedError


class LocalEntry(ExecutorEntry):
    """Processes on this computer.

    Args:
        workers: how many work at once; auto: as many as there are GPUs or cores.
    """

    name: Literal["local"] = "local"
    workers: CountOrAuto = 1

    def executor(self, device: str) -> Executor:
        """The executor itself, for models on `device`."""
        return local(self.workers, self.threads, device, self.limits)


class RayEntry(ExecutorEntry):
    """A Ray cluster.

    Args:
        address: of the cluster; the running one by default.
        gpus_per_worker: GPUs of a worker, also a share of one.
        cpus_per_worker: CPU cores of a worker.
    """

    name: Literal["ray"] = "ray"
    address: str | None = None
    gpus_per_worker: Annotated[float, Field(ge=0)] = 0.0
    cpus_per_worker: PositiveNumber = 1.0

    def executor(self, device: str) -> Executor:
        """The executor itself; workers use the GPUs that they are given."""
        share = (self.cpus_per_worker, self.gpus_per_worker, self.threads)
        return Ray(self.address or "auto", self.workers, *share, limits=self.limits)


class SlurmJobsEntry(ExecutorEntry):
    """Slurm jobs.

    Args:
        slurm: what to ask Slurm for.
    """

    name: Literal["slurm"] = "slurm"
    slurm: SlurmEntry = SlurmEntry.model_validate({})

    def executor(self, device: str) -> Executor:
        """The executor itself; Slurm says where models run."""
        return Slurm(self.workers, options=self.slurm.parameters(), limits=self.limits)


EXECUTORS: dict[str, type[ExecutorEntry]] = {
    "local": LocalEntry,
    "ray": RayEntry,
    "slurm": SlurmJobsEntry,
}


def _read_executor(raw: object) -> object:
    """A name alone is an entry, and the name is local where there is none."""
    content = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(content, Mapping):
        raise reject("local, ray or slurm, or a mapping with name and workers", show(raw))
    name = content.get("name", "local")
    if not isinstance(name, str) or name not in EXECUTORS:
        raise make_unknown_error("one of", name, EXECUTORS, "name")
    return EXECUTORS[name].model_validate(content)


ExecutorField = Annotated[
    ExecutorEntry, PlainValidator(_read_executor), WithJsonSchema({"$reference": "executor"})
]


# Requirements

Share = Annotated[float, Field(gt=0, lt=1)]
Names = Annotated[
    tuple[Name, ...],
    Field(min_length=1),
    BeforeValidator(lambda raw: (raw,) if isinstance(raw, str) else as_tuple(raw)),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
            ]
        }
    ),
]

#: the keys of which a requirement has exactly one
LIMITS = ("at_least", "at_most", "at_most_ln", "at_most_one_in", "better_than", "no_worse_than")
_ON_VALUES = LIMITS[:4]


class ChooseEntry(Entry):
    """How the explainers of a study race, for `standfast choose`.

    Args:
        by: label or name of the metric that ranks; the first that asks for faithfulness, or else for stability, if not
            given.
        budget: what race and confirmation may cost, as a share of evaluating all explainers on all samples.
        level: the largest probability that the best explainer leaves as unstable, or as worse than another one.
    """

    by: Name | None = None
    budget: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.25
    level: Annotated[float, Field(gt=0, lt=1, allow_inf_nan=False)] = 0.05


class RequirementEntry(Entry):
    """A requirement on a number with its interval. It is checked for each data set, model and explainer that it names.

    Requirements on values say which share of all samples meets the limit: half of them by default, which is a
    requirement on the median.

    Args:
        metric: label or name of a metric; all that rank explainers if not given.
        explainer: explainers; all but controls if not given.
        data: data sets; all if not given.
        model: models; all if not given.
        at_least: the smallest value that meets the requirement.
        at_most: the largest value that meets the requirement.
        at_most_ln: the same for a probability, as its natural logarithm.
        at_most_one_in: the same for a probability of 1 in this number.
        share_of_samples: at least this share of all samples meets the limit; 0.5 (the median) if not given.
        mean: the mean over samples meets the limit, instead of a share of the samples.
        better_than: an explainer, such as a control, on the same samples.
        no_worse_than: a baseline, by `standfast baseline`, on the same samples.
        by: how much worse than the baseline a sample's value may be.
        level: confidence level; with several requirements that of all decisions together.
    """

    metric: Name | None = None
    explainer: Names | None = None
    data: Names | None = None
    model: Names | None = None
    at_least: float | None = None
    at_most: float | None = None
    at_most_ln: float | None = None
    at_most_one_in: Annotated[float, Field(gt=1)] | None = None
    share_of_samples: Share | None = None
    mean: bool = False
    better_than: Name | None = None
    no_worse_than: Name | None = None
    by: Annotated[float, Field(ge=0)] = 0.0
    level: Share = 0.95

    @model_validator(mode="after")
    def _check_kind(self) -> RequirementEntry:
        """One limit, and only the keys that belong to it."""
        # in the class and not in the fields, because what is allowed depends on the other keys
        limits = [key for key in LIMITS if getattr(self, key) is not None]
        if len(limits) != 1:
            raise reject(f"exactly one of {', '.join(LIMITS)}", " and ".join(limits) or "none")
        (kind,) = limits
        misplaced_key = self._find_misplaced_key(kind)
        if misplaced_key is not None:
            raise reject(f"no such key beside {kind}", misplaced_key, misplaced_key)
        if self.mean and self.share_of_samples is not None:
            raise reject(
                "the mean or a share of samples, not both", "mean and share_of_samples", "mean"
            )
        if self.better_than is not None and self.better_than in (self.explainer or ()):
            raise reject(
                "explainers other than that of better_than", repr(self.better_than), "explainer"
            )
        if kind in _ON_VALUES and self.metric is None:
            raise reject("the metric that the limit is for", "none", "metric")
        return self

    def _find_misplaced_key(self, kind: str) -> str | None:
        """The first key that does not belong to a kind of limit."""
        if self.share_of_samples is not None and kind == "better_than":
            return "share_of_samples"
        if self.mean and kind in ("better_than", "at_most_ln", "at_most_one_in"):
            return "mean"
        if self.by > 0 and kind != "no_worse_than":
            return "by"
        return None

    @property
    def kind(self) -> str:
        """The key of its limit."""
        return next(key for key in LIMITS if getattr(self, key) is not None)

    @property
    def limit(self) -> float:
        """Of a requirement on values, as a value of the metric: a probability's as a natural logarithm."""
        if self.at_most_one_in is not None:
            return -math.log(self.at_most_one_in)
        return float(getattr(self, self.kind))

    @property
    def side(self) -> Literal["higher", "lower"]:
        """Of a requirement on values: which side of the limit meets it."""
        if self.at_least is not None:
            return "higher"
        return "lower"

    @property
    def share(self) -> float:
        """The share of samples that has to meet the limit."""
        if self.share_of_samples is None:
            return 0.5
        return self.share_of_samples
