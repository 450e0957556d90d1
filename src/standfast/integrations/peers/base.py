"""Metrics of Quantus and Captum ("peers") as standfast metrics: `quantus:MaxSensitivity`, `captum:infidelity`.

Each metric is called, not reimplemented. It becomes a `Metric` whose options are those of the peer's constructor or
function. So a study can compare them with ours on the same models, inputs and explainers, in one report. Around a call:

* Peers draw from the global generators and compute on whole batches. Here each sample is passed on its own, with the
  global generators seeded from its content and restored afterwards. So no result depends on the batch size, the order
  or the other samples. (Quantus normalises maps by the largest value of the batch; here, by that of the sample.)
* If a sample yields NaN or infinity, or its values cause an error, the sample is flagged, and the column `failure` has
  the message. The other samples are evaluated. A wrong option raises an error.
* Inputs that a peer perturbs may lie outside the model's bounds, as in the peer's own package.

Cost: all model evaluations that the peer requests, predictions and explanations.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import polars as pl
import torch
from torch import Tensor

from standfast.errors import ArgumentError, StandfastError, check
from standfast.integrations.peers.sample import Sample, isolate
from standfast.metrics.base import Cost, Metric, metrics, plain
from standfast.metrics.probe import Call, Probe
from standfast.metrics.result import Result
from standfast.records import set_fields
from standfast.registry import build
from standfast.tensors import content_keys
from standfast.value_spec import Direction

Reduce = Literal["mean", "last", "max"]

#: errors that do not depend on a sample's values: the peer does not run here, or its options contradict each other
_PROGRAMMING_ERRORS = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)


@dataclass(frozen=True)
class PeerResult(Result):
    """The result of a metric of another package.

    Attributes:
        value: the value of the metric, float64 `(N,)`; NaN if there is none.
        failed: True if the metric gave NaN or infinity or raised an error for the sample, bool `(N,)`; the status of
            the sample is then `"nonfinite"`.
        failure: the error message or another reason for a failure; None for samples without one.
    """

    failed: Tensor
    failure: tuple[str | None, ...] = ()

    def columns(self) -> dict[str, Any]:
        """The columns of `Result`, and `failure`."""
        return {**super().columns(), "failure": pl.Series(list(self.failure), dtype=pl.String)}


@dataclass(frozen=True)
class PeerMetric(Metric):
    """A metric of another package; `standfast.integrations.peers.names.peer_class` makes the concrete classes."""

    #: the direction that the package states, for its default options
    stated: ClassVar[Direction] = None
    #: the package's name and version: part of a job's identity
    package: ClassVar[str] = ""

    def __post_init__(self) -> None:
        # an attribute of the object, not only of the class: identities are computed from an object's attributes
        set_fields(self, _package=self.package)

    def __reduce__(self) -> tuple[Any, ...]:
        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        # the class is made at run time, so pickle cannot find it by its name
        return _restore, (self.name,), {"given": options}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        set_fields(self, **state["given"])

    @classmethod
    def direction_of(cls, options: Mapping[str, Any]) -> Direction:
        """The direction that the package states."""
        return cls.stated

    def options(self) -> dict[str, Any]:
        """The options as plain values, functions by their names; and the package with its version."""
        options = {
            field.name: _describe(getattr(self, field.name)) for field in dataclasses.fields(self)
        }
        return options | {"package": self.package}

    def cost(self, classes: int | None = None) -> Cost:
        """The number of samples that the peer draws, if an option gives it; else an estimate."""
        counts = (
            getattr(self, name, None) for name in ("nr_samples", "n_perturb_samples", "nr_runs")
        )
        drawn = next((count for count in counts if isinstance(count, int)), 50)
        return Cost(predictions=0, explanations=1 + drawn)

    def score_one(self, sample: Sample) -> object:
        """The peer's answer for one sample: a number, or the numbers of a curve."""
        raise NotImplementedError

    def reduce_answer(self, answer: object) -> float:
        """Reduce the answer to one number.

        Raises:
            ArgumentError: the answer has several numbers, and `reduce` is not set.
        """
        values = _flatten(answer)
        if len(values) == 1:
            return values[0]
        how: Reduce | None = getattr(self, "reduce", None)
        if how is None or not values:
            expected = (
                f"mean, last or max, because {self.name} has {len(values)} numbers for a sample"
            )
            raise ArgumentError("reduce", expected, how)
        return {"mean": math.fsum(values) / len(values), "last": values[-1], "max": max(values)}[
            how
        ]

    def evaluate(self, call: Call) -> PeerResult:
        """Evaluate the samples one at a time, as the module's docstring describes."""
        task = call.model.task
        check(task.classes, "model", f"a classification for {self.name}", f"the task {task.name}")
        probe = Probe(call)
        inputs = call.inputs
        # from the content of each sample, so that no result depends on the batch
        seeds = content_keys(inputs, call.seed).tolist()
        score = torch.full((len(inputs),), torch.nan, dtype=torch.float64, device=inputs.device)
        failure: list[str | None] = [None] * len(inputs)
        for row in probe.usable().tolist():
            part = slice(row, row + 1)
            maps = probe.maps[part]
            classes = probe.logits.shape[1]
            sample = Sample(
                call.model, call.explainer, inputs[part], probe.targets[part], maps, classes
            )
            with isolate(sample, seeds[row]):
                value, failure[row] = self._score_sample(sample)
            probe.charge(probe.usable().new_tensor([row]), sample.evaluations)
            if failure[row] is None:
                score[row] = value
            else:
                score[row] = torch.nan
        failed = torch.tensor([message is not None for message in failure], device=inputs.device)
        probe.skip(failed, "nonfinite")
        return PeerResult(
            **probe.common_fields(self),
            value=score,
            failed=failed,
            failure=tuple(failure),
        )

    def _score_sample(self, sample: Sample) -> tuple[float, str | None]:
        """The value of one sample and None, or NaN and the reason for the failure."""
        try:
            answer = self.score_one(sample)
        except StandfastError:  # an error of the user's explainer or model
            raise
        except _PROGRAMMING_ERRORS as error:
            raise StandfastError(
                f"{self.name} of {self.package} does not run: {_describe_error(error)}"
            ) from error
        except Exception as error:
            # an error of the user's explainer or model is no matter of the peer
            if sample.error is not None:
                raise sample.error from error
            return math.nan, _describe_error(error)
        value = self.reduce_answer(answer)
        if math.isfinite(value):
            return (value, None)
        return (math.nan, f"{self.name} gave {value}")


def _restore(name: str) -> Metric:
    """A metric of the class that pickle cannot find, because it is made at run time."""
    return build(metrics, name)


def _flatten(answer: object) -> list[float]:
    """All numbers of an answer, which is a number, or an array, a list or a mapping of numbers."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu().numpy()
    if isinstance(answer, Mapping):
        return [number for value in answer.values() for number in _flatten(value)]
    if isinstance(answer, list | tuple | np.ndarray) and np.ndim(answer) > 0:
        return [number for value in answer for number in _flatten(value)]
    return [float(answer)]  # type: ignore[arg-type]


def _describe_error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _describe(value: object) -> Any:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, Mapping):
        return {str(key): _describe(entry) for key, entry in value.items()}
    return plain(value)
