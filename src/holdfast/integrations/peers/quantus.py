"""What is particular of Quantus's metrics; see `peers`. Quantus is under the LGPL: it is called, nothing is copied."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.metadata import version as installed
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import nn

from holdfast.errors import ArgumentError, MissingExtraError, ModelError, UnknownNameError, check, check_integer
from holdfast.integrations.peers.base import PeerMetric, Reduce, fields_from
from holdfast.integrations.peers.sample import Sample
from holdfast.records import set_fields

#: what aggregates, plots or prints: not part of a sample's value
_OUTPUT = frozenset(
    {"return_aggregate", "aggregate_func", "default_plot_func", "disable_warnings", "display_progressbar"}
)
#: they compare the samples of a batch with each other, so one alone has no value
_COMPANY = ("Consistency", "SensitivityN", "Sufficiency")
#: several numbers for each sample: the mean is the area under the curve, for steps of equal width
_CURVES = ("PixelFlipping", "RegionPerturbation", "Selectivity", "ROAD")
#: the averages over layers that Quantus itself offers
_AVERAGES = ("MPRT", "SmoothMPRT")


def version() -> str:
    """The package and its version."""
    _quantus()
    return f"quantus {installed('quantus')}"


def _quantus() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return import_module("quantus")
    except ImportError as error:
        raise MissingExtraError(f"a metric of Quantus ({error})", "peers") from error


@cache
def metrics() -> dict[str, type[Any]]:
    """Quantus's classes by name."""
    groups = _quantus().AVAILABLE_METRICS.values()
    return {kind.__name__: kind for group in groups for kind in group.values()}


def refusal(title: str) -> str:
    """Why a metric cannot be used here; nothing if it can."""
    if title in _COMPANY:
        return "compares samples with each other, so its value depends on the batch"
    if str(getattr(metrics()[title], "evaluation_category", "")).endswith("LOCALISATION"):
        return "needs a mask of the object for each sample (s_batch)"
    return ""


def direction_of(title: str) -> Literal["higher", "lower"] | None:
    """What Quantus says of it."""
    said = str(getattr(getattr(metrics()[title], "score_direction", None), "value", ""))
    return "higher" if said == "higher" else "lower" if said == "lower" else None


def fields_of(title: str) -> tuple[list[tuple[str, Any, Any]], tuple[str, ...], dict[str, Any]]:
    """The options as fields, the names of those that go to the constructor, and what else the class has."""
    own = []
    for name, kind, default in fields_from(metrics()[title].__init__, _OUTPUT):
        if name == "num_classes":  # None is the model's own number
            kind, default = int | None, field(default=None)
        elif name == "return_average_correlation" and title in _AVERAGES:
            default = field(default=True)
        elif callable(default.default):  # None is Quantus's own function
            kind, default = Any, field(default=None)
        own.append((name, kind, default))
    more = [
        ("softmax", bool | None, field(default=None)),
        ("reduce", Reduce | None, field(default="mean" if title in _CURVES else None)),
    ]
    return [*own, *more], tuple(name for name, *_ in own), {"title": title}


@dataclass(frozen=True)
class Base(PeerMetric):
    """A metric of Quantus."""

    title: ClassVar[str] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        reduce = getattr(self, "reduce", None)
        check(reduce in (None, "mean", "last", "max"), "reduce", "mean, last, max or None", repr(reduce))
        softmax = getattr(self, "softmax", None)
        check(softmax is None or isinstance(softmax, bool), "softmax", "True, False or None", repr(softmax))
        for name in ("nr_samples", "nr_runs", "features_in_step", "n_perturb_samples", "patch_size", "nr_steps"):
            value = getattr(self, name, 1)
            check_integer(value, name)
        if getattr(self, "order", None) == "lerf":  # least relevant first: what was better is worse
            set_fields(self, direction="lower" if type(self).direction == "higher" else "higher")
        self._build(2)  # a wrong option is an error at once

    def _build(self, classes: int) -> Any:
        options = {}
        for name in self.passed_on:
            value = getattr(self, name)
            if name == "num_classes" and value is None:
                value = classes
            if value is not None:
                options[name] = _function(name, value) if name.endswith("_func") else value
        if getattr(self, "perturb_func_kwargs", None) is not None:
            options["perturb_func_kwargs"] = dict(self.perturb_func_kwargs)  # type: ignore[attr-defined]
        quiet = {"disable_warnings": True, "display_progressbar": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return metrics()[self.title](**options, **quiet)
            except Exception as error:
                got = f"{type(error).__name__}: {error}".rstrip(": ")
                raise ArgumentError("options", f"options that {self.name} accepts", got) from error

    def score_one(self, sample: Sample) -> object:
        """See `PeerMetric`."""
        if sample.classifier.dtype != torch.float32:
            raise ModelError(f"{self.name}: expected a module in float32, which Quantus makes of all inputs")
        metric = self._build(sample.classes)

        def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
            x, classes = torch.as_tensor(np.asarray(inputs)), torch.as_tensor(np.asarray(targets))
            return sample.explain(x, classes, model).cpu().numpy()

        taken = inspect.signature(type(metric).__call__).parameters
        softmax = {} if getattr(self, "softmax", None) is None else {"softmax": self.softmax}  # type: ignore[attr-defined]
        answer = metric(
            model=sample.module,
            x_batch=sample.inputs.cpu().numpy(),
            y_batch=sample.targets.cpu().numpy(),
            a_batch=sample.maps.cpu().numpy(),
            s_batch=None,
            channel_first=True,
            explain_func=explain,
            device=str(sample.classifier.device),
            **{name: value for name, value in softmax.items() if name in taken},
        )
        if isinstance(answer, Mapping) and self.title in _AVERAGES:  # the whole curve, of which the first is 1
            answer = {layer: values for layer, values in answer.items() if layer != "original"}
        return answer


def _function(option: str, value: object) -> Callable[..., Any]:
    """A function, or the one of Quantus of that name."""
    if not isinstance(value, str):
        check(callable(value), option, "a function, or the name of one of Quantus's", repr(value))
        return value  # type: ignore[return-value]
    constants: Any = import_module("quantus.helpers.constants")
    tables: dict[str, Mapping[str, Any]] = {
        "similarity_func": constants.AVAILABLE_SIMILARITY_FUNCTIONS,
        "perturb_func": constants.AVAILABLE_PERTURBATION_FUNCTIONS,
        "normalise_func": constants.AVAILABLE_NORMALISATION_FUNCTIONS,
    }
    if option == "loss_func":
        return value  # type: ignore[return-value]
    known = tables.get(option, {})
    if not known:
        raise ArgumentError(option, "a function (it has no name that a file could hold)", repr(value))
    if value not in known:
        raise UnknownNameError(option, value, known)
    found: Callable[..., Any] = known[value]
    return found
