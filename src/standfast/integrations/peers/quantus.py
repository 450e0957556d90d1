"""The metrics of Quantus as peer metrics.

Quantus is under the LGPL. Its code is called, not copied.
"""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.metadata import version as installed
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn

from standfast.errors import (
    ArgumentError,
    MissingExtraError,
    ModelError,
    UnknownNameError,
    check,
    check_integer,
)
from standfast.integrations.peers.base import PeerMetric, Reduce
from standfast.integrations.peers.sample import Sample
from standfast.value_spec import Direction

#: options that aggregate, plot or print, and do not change the value of a sample
_OUTPUT = frozenset(
    {
        "return_aggregate",
        "aggregate_func",
        "default_plot_func",
        "disable_warnings",
        "display_progressbar",
    }
)
#: metrics that compare the samples of a batch with each other, so a single sample has no value
_OF_BATCHES = ("Consistency", "SensitivityN", "Sufficiency")
#: metrics with several numbers per sample, points of a curve; their mean is its area, for steps of equal width
_CURVES = ("PixelFlipping", "RegionPerturbation", "Selectivity", "ROAD")
#: metrics with a number per layer, of which Quantus can return the average
_OVER_LAYERS = ("MPRT", "SmoothMPRT")


def version() -> str:
    """The name of the package and its version."""
    _import_quantus()
    return f"quantus {installed('quantus')}"


def _import_quantus() -> Any:
    try:
        with warnings.catch_warnings():
            # it warns of its own optional packages
            warnings.simplefilter("ignore")
            return import_module("quantus")
    except ImportError as error:
        raise MissingExtraError(f"a metric of Quantus ({error})", "peers") from error


@cache
def metrics() -> dict[str, type[Any]]:
    """Quantus's classes of metrics by name."""
    groups = _import_quantus().AVAILABLE_METRICS.values()
    return {kind.__name__: kind for group in groups for kind in group.values()}


def names() -> list[str]:
    """The names of its metrics that can be used here."""
    return [title for title in metrics() if not _explain_refusal(title)]


def _explain_refusal(title: str) -> str:
    if title in _OF_BATCHES:
        return "compares samples with each other, so its value depends on the batch"
    if str(getattr(metrics()[title], "evaluation_category", "")).endswith("LOCALISATION"):
        return "needs a mask of the object for each sample (s_batch)"
    return ""


def _find_direction(title: str) -> Direction:
    stated = str(getattr(getattr(metrics()[title], "score_direction", None), "value", ""))
    # Quantus states the other one for drops of the prediction: larger is better
    if title == "RegionPerturbation":
        return "higher"
    directions: dict[str, Direction] = {"higher": "higher", "lower": "lower"}
    return directions.get(stated)


def describe(title: str) -> tuple[type[PeerMetric], list[tuple[str, Any, Any]], dict[str, Any]]:
    """The base class of a metric, its options as dataclass fields, and class attributes.

    Raises:
        ArgumentError: a metric that cannot be used here; says why.
    """
    if reason := _explain_refusal(title):
        expected = "a metric of quantus that evaluates each sample on its own"
        raise ArgumentError("metric", expected, f"{title}, which {reason}")
    quantus_options = []
    for name, kind, option in _read_options(metrics()[title].__init__):
        if name == "num_classes":  # None stands for the model's number of classes
            kind = int | None
            option = field(default=None)
        elif name == "return_average_correlation" and title in _OVER_LAYERS:
            option = field(default=True)
        elif callable(option.default):  # None stands for Quantus's default function
            kind = Any
            option = field(default=None)
        quantus_options.append((name, kind, option))
    usual_reduction = "mean" if title in _CURVES else None
    our_options = [
        ("softmax", bool | None, field(default=None)),
        ("reduce", Reduce | None, field(default=usual_reduction)),
    ]
    names = tuple(name for name, _, _ in quantus_options)
    attributes = {"title": title, "peer_options": names, "stated": _find_direction(title)}
    return Base, [*quantus_options, *our_options], attributes


def _read_options(function: Callable[..., Any]) -> list[tuple[str, Any, Any]]:
    """The options of a constructor as dataclass fields `(name, type, field)`, without those that change no value."""
    options: list[tuple[str, Any, Any]] = []
    for name, parameter in inspect.signature(function).parameters.items():
        is_variadic = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if name in _OUTPUT or name == "self" or is_variadic:
            continue
        default = None
        if parameter.default is not parameter.empty:
            default = parameter.default
        kind: Any = Any
        if isinstance(default, bool | int | float):
            kind = type(default)
        option = field(default=default)
        if isinstance(default, list | dict | set):
            option = field(default_factory=partial(copy.copy, default))
        options.append((name, kind, option))
    return options


@dataclass(frozen=True)
class Base(PeerMetric):
    """A metric of Quantus."""

    title: ClassVar[str] = ""
    #: the options of its constructor, which are passed unchanged
    peer_options: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        reduce = getattr(self, "reduce", None)
        check(
            reduce in (None, "mean", "last", "max"),
            "reduce",
            "mean, last, max or None",
            repr(reduce),
        )
        softmax = getattr(self, "softmax", None)
        check(
            softmax is None or isinstance(softmax, bool),
            "softmax",
            "True, False or None",
            repr(softmax),
        )
        for name in (
            "nr_samples",
            "nr_runs",
            "features_in_step",
            "n_perturb_samples",
            "patch_size",
            "nr_steps",
        ):
            value = getattr(self, name, 1)
            check_integer(value, name)
        self._build(2)  # raises an error for a wrong option

    @classmethod
    def direction_of(cls, options: Mapping[str, Any]) -> Direction:
        """The direction that Quantus states; least relevant first reverses it."""
        if cls.stated is None or options.get("order") != "lerf":
            return cls.stated
        return "lower" if cls.stated == "higher" else "higher"

    def _build(self, classes: int) -> Any:
        """Make Quantus's metric for a model with so many classes."""
        options: dict[str, Any] = {}
        for name in self.peer_options:
            value = getattr(self, name)
            if name == "num_classes" and value is None:
                value = classes
            if value is not None and name.endswith("_func"):
                value = _find_function(name, value)
            if value is not None:
                options[name] = value
        if getattr(self, "perturb_func_kwargs", None) is not None:
            options["perturb_func_kwargs"] = dict(self.perturb_func_kwargs)  # type: ignore[attr-defined]
        quiet = {"disable_warnings": True, "display_progressbar": False}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                return metrics()[self.title](**options, **quiet)
            except Exception as error:
                # whatever its constructor raises, as it checks little itself
                got = f"{type(error).__name__}: {error}".rstrip(": ")
                raise ArgumentError("options", f"options that {self.name} accepts", got) from error

    def score_one(self, sample: Sample) -> object:
        """Quantus's value of one sample."""
        if sample.model.dtype != torch.float32:
            raise ModelError(
                f"{self.name}: expected a module in float32, because Quantus converts all inputs to it"
            )
        metric = self._build(sample.classes)

        def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray[Any, Any]:
            x = torch.as_tensor(np.asarray(inputs))
            classes = torch.as_tensor(np.asarray(targets))
            return sample.explain(x, classes, model).cpu().numpy()

        accepted = inspect.signature(type(metric).__call__).parameters
        # not all metrics of Quantus take it
        softmax = getattr(self, "softmax", None)
        if softmax is not None and "softmax" in accepted:
            more = {"softmax": softmax}
        else:
            more = {}
        answer = metric(
            model=sample.module,
            x_batch=sample.inputs.cpu().numpy(),
            y_batch=sample.targets.cpu().numpy(),
            a_batch=sample.maps.cpu().numpy(),
            s_batch=None,
            channel_first=True,
            explain_func=explain,
            device=str(sample.model.device),
            **more,
        )
        # the first entry, the original model, is 1
        if isinstance(answer, Mapping) and self.title in _OVER_LAYERS:
            answer = {layer: values for layer, values in answer.items() if layer != "original"}
        return answer


def _find_function(option: str, value: object) -> Callable[..., Any]:
    """The function that an option gives: a function, or the name of a function of Quantus."""
    if not isinstance(value, str):
        check(
            callable(value), option, "a function, or the name of a function of Quantus", repr(value)
        )
        return value  # type: ignore[return-value]
    constants: Any = import_module("quantus.helpers.constants")
    tables: dict[str, Mapping[str, Any]] = {
        "similarity_func": constants.AVAILABLE_SIMILARITY_FUNCTIONS,
        "perturb_func": constants.AVAILABLE_PERTURBATION_FUNCTIONS,
        "normalise_func": constants.AVAILABLE_NORMALISATION_FUNCTIONS,
    }
    if option == "loss_func":
        return value  # type: ignore[return-value]
    functions = tables.get(option, {})
    if not functions:
        raise ArgumentError(
            option, "a function (Quantus has no names for this option)", repr(value)
        )
    if value not in functions:
        raise UnknownNameError(option, value, functions)
    function: Callable[..., Any] = functions[value]
    return function
