"""Metrics of Quantus and Captum under our roof: `quantus:MaxSensitivity`, `captum:infidelity`.

Nothing of them is written anew. Each becomes a `Metric` whose options are those of the peer's own constructor (or
function), so that a study compares them with ours on the same models, inputs and explainers, in one report. What is
done around them:

* The peers draw from the global generators and compute on whole batches. Here every sample is handed over alone, with
  these generators seeded from its content and put back afterwards: no result depends on the batch size, the order or
  the company. (Quantus normalises maps by the largest value of the whole batch: alone, by the sample's own.)
* NaN, infinity, or an error that the values of a sample provoke is a flag of that sample, with the error's words in
  the column `failure`; the rest goes on. A wrong option is an error.
* Inputs that the peers disturb may leave the classifier's bounds, as they do there.

Cost: what the peer asks for; counted as looks, predictions and explanations alike.
"""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import polars as pl
import torch
from torch import Tensor

from holdfast.errors import ArgumentError, HoldfastError
from holdfast.explainers import Explainer
from holdfast.integrations.peers.sample import Sample, alone
from holdfast.metrics import get
from holdfast.metrics.base import Metric, plain
from holdfast.metrics.probe import Probe
from holdfast.metrics.result import Result
from holdfast.model import Classifier
from holdfast.records import set_fields
from holdfast.tensors import content_keys, draw_seed

Reduce = Literal["mean", "last", "max"]

#: what an input's values cannot be blamed for: the peer does not run here, or its options do not fit together
_PROGRAMMING = (AttributeError, ImportError, NameError, NotImplementedError, TypeError)


class Source(Protocol):
    """What is particular of one package: `captum.py` and `quantus.py` are such modules."""

    #: the class that metrics of this package derive from
    Base: type[PeerMetric]

    def version(self) -> str:
        """The package and its version."""

    def metrics(self) -> Mapping[str, Callable[..., Any]]:
        """The package's metrics by name."""

    def refusal(self, title: str) -> str:
        """Why a metric cannot be used here; empty if it can."""

    def direction_of(self, title: str) -> Literal["higher", "lower"] | None:
        """What the package says of it."""

    def fields_of(self, title: str) -> tuple[list[tuple[str, Any, Any]], tuple[str, ...], dict[str, Any]]:
        """The options as fields, the names of those that go to the package, and what else the class has."""


@dataclass(frozen=True)
class PeerResult(Result):
    """What a metric of another package says of each sample.

    Attributes:
        score: its value, float64; NaN where there is none. `(N,)`
        failed: it gave NaN or infinity, or raised an error, for an evaluated sample, whose status is then
            `"nonfinite"`. bool `(N,)`
        failure: the error's words, or what else was wrong; None for samples with nothing wrong.
    """

    score: Tensor
    failed: Tensor
    failure: tuple[str | None, ...] = ()

    def columns(self) -> dict[str, Any]:
        """See `Result`; with the failures in words."""
        return {**super().columns(), "failure": pl.Series(list(self.failure), dtype=pl.String)}


@dataclass(frozen=True)
class PeerMetric(Metric):
    """A metric of another package; concrete classes are made by `holdfast.integrations.peers.names.peer_class`."""

    headline: ClassVar[str] = "score"
    #: which options are of the peer's constructor or function, and go there as they are
    passed_on: ClassVar[tuple[str, ...]] = ()
    #: the package's name and version: part of a job's identity
    origin: ClassVar[str] = ""

    def __post_init__(self) -> None:
        # kept by the object, not the class: what a configuration consists of must tell versions apart
        set_fields(self, _origin=self.origin)

    def __reduce__(self) -> tuple[Any, ...]:
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return get, (self.name,), {"given": given}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        set_fields(self, **state["given"])

    @classmethod
    def example(cls) -> PeerMetric:
        """See `Metric`."""
        return cls()

    def options(self) -> dict[str, Any]:
        """See `Metric`; functions by their names."""
        return {f.name: _told(getattr(self, f.name)) for f in dataclasses.fields(self)} | {"package": self.origin}

    def expected_evaluations(self) -> int:
        """The samples that it draws, where an option says how many; a guess otherwise."""
        counts = (getattr(self, name, None) for name in ("nr_samples", "n_perturb_samples", "nr_runs"))
        return 1 + next((count for count in counts if isinstance(count, int)), 50)

    def score_one(self, sample: Sample) -> object:
        """The peer's answer for one sample: a number, or several of a curve."""
        raise NotImplementedError

    def number_of(self, answer: object) -> float:
        """The answer as one number.

        Raises:
            ArgumentError: it has several, and `reduce` does not say what becomes of them.
        """
        values = _flat(answer)
        if len(values) == 1:
            return values[0]
        how: Reduce | None = getattr(self, "reduce", None)
        if how is None or not values:
            raise ArgumentError("reduce", f"mean, last or max, as {self.name} has {len(values)} numbers a sample", how)
        return {"mean": math.fsum(values) / len(values), "last": values[-1], "max": max(values)}[how]

    def evaluate(
        self,
        classifier: Classifier,
        explainer: Explainer,
        inputs: Tensor,
        targets: Tensor | None,
        generator: torch.Generator | None,
    ) -> PeerResult:
        """See `Metric`. A sample at a time, see above."""
        probe = Probe(classifier, explainer, inputs, targets)
        seeds = content_keys(inputs, draw_seed(generator)).tolist()
        score = torch.full((len(inputs),), torch.nan, dtype=torch.float64, device=inputs.device)
        failure: list[str | None] = [None] * len(inputs)
        for row in probe.usable().tolist():
            part = slice(row, row + 1)
            maps, classes = probe.maps[part], probe.logits.shape[1]
            sample = Sample(classifier, explainer, inputs[part], probe.targets[part], maps, classes)
            with alone(sample, seeds[row]):
                value, failure[row] = self._one(sample)
            probe.charge(probe.usable().new_tensor([row]), sample.looks)
            score[row] = value if failure[row] is None else torch.nan
        failed = torch.tensor([words is not None for words in failure], device=inputs.device)
        probe.skip(failed, "nonfinite")
        return PeerResult(
            **probe.common_fields(self),
            value=score,
            score=score,
            failed=failed,
            failure=tuple(failure),
        )

    def _one(self, sample: Sample) -> tuple[float, str | None]:
        try:
            answer = self.score_one(sample)
        except HoldfastError:  # ours: of the user's explainer or model
            raise
        except _PROGRAMMING as error:
            raise HoldfastError(f"{self.name} of {self.origin} does not run: {_words(error)}") from error
        except Exception as error:
            if sample.error is not None:
                raise sample.error from error
            return math.nan, _words(error)
        value = self.number_of(answer)
        return (value, None) if math.isfinite(value) else (math.nan, f"{self.name} gave {value}")


def _flat(answer: object) -> list[float]:
    """All numbers of an answer: a number, an array, a list or a mapping of them."""
    if isinstance(answer, Tensor):
        answer = answer.detach().cpu().numpy()
    if isinstance(answer, Mapping):
        return [number for value in answer.values() for number in _flat(value)]
    if isinstance(answer, list | tuple | np.ndarray) and np.ndim(answer) > 0:
        return [number for value in answer for number in _flat(value)]
    return [float(answer)]  # type: ignore[arg-type]


def _words(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _told(value: object) -> Any:
    if callable(value):
        return getattr(value, "__qualname__", type(value).__name__)
    if isinstance(value, Mapping):
        return {str(key): _told(entry) for key, entry in value.items()}
    return plain(value)


def fields_from(function: Callable[..., Any], left_out: frozenset[str]) -> list[tuple[str, Any, Any]]:
    """The options of a constructor or function, as `(name, type, default)`; types by the defaults."""
    found: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name in left_out or name == "self" or variadic:
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        kind = type(default) if isinstance(default, bool | int | float) else Any
        settled = dataclasses.field(default=default)
        if isinstance(default, list | dict | set):
            settled = dataclasses.field(default_factory=partial(copy.copy, default))
        found.append((name, kind, settled))
    return found
