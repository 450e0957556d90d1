"""Running a grid of explainers and metrics over samples into a store: goes on where it was, and past failures."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from types import CodeType, FunctionType
from typing import Any

import polars as pl
import torch
from torch import Tensor

from holdfast.errors import check
from holdfast.explainers import Explainer
from holdfast.metrics import Metric, Result
from holdfast.metrics.base import plain
from holdfast.model import Classifier
from holdfast.study.store import Store, digest, tensor_digest


@dataclass(frozen=True)
class Progress:
    """Where a run stands: units done of all, their share of the expected work, and what is next or has failed."""

    done: int
    total: int
    share: float
    current: str
    failed: int = 0


@dataclass(frozen=True)
class _Unit:
    identity: str
    explainer_name: str
    explainer: Explainer
    label: str
    metric: Metric
    start: int
    stop: int
    work: float


def run_grid(
    classifier: Classifier,
    explainers: Mapping[str, Explainer],
    inputs: Tensor,
    metrics: Mapping[str, Metric],
    store: Store,
    *,
    targets: Tensor | int | None = None,
    seed: int = 0,
    samples_per_unit: int = 4,
    about: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> list[dict[str, Any]]:
    """Evaluate every metric for every explainer on `inputs` `(N, ...)`, and store each unit as it ends.

    A unit is an explainer, a metric and a few samples. Units that the store has are not done again. A unit that fails
    is stored with its traceback and the others go on; it is tried again on the next run. Returns the records of the
    failed ones. Results do not depend on `samples_per_unit`: every sample has its own random stream.
    """
    check(len(explainers) > 0, "explainers", "at least one", "none")
    check(len(metrics) > 0, "metrics", "at least one", "none")
    check(samples_per_unit >= 1, "samples_per_unit", "a whole number of at least 1", samples_per_unit)
    inputs = classifier.check_inputs(inputs)
    checked = None if targets is None else classifier.check_targets(targets, inputs)
    units = _plan(classifier, explainers, inputs, metrics, checked, seed, samples_per_unit)
    store.write_manifest(
        {
            "seed": seed,
            "samples": len(inputs),
            "input_shape": list(inputs.shape[1:]),
            "bounds": [[float(b.min()), float(b.max())] for b in classifier.bounds],
            "device": str(classifier.device),
            "explainers": {name: plain(e) for name, e in explainers.items()},
            "metrics": {label: {"metric": m.name, **m.options()} for label, m in metrics.items()},
            "about": dict(about or {}),
            "units": [unit.identity for unit in units],
        }
    )
    pending = [unit for unit in units if store.status(unit.identity) != "done"]
    total, done_work = sum(unit.work for unit in pending), 0.0
    failures: list[dict[str, Any]] = []
    for number, unit in enumerate(pending):
        if progress:
            current = f"{unit.label}: {unit.explainer_name}"
            progress(Progress(number, len(pending), done_work / total, current, len(failures)))
        failure = _run_unit(classifier, inputs, checked, unit, seed, store)
        if failure is not None:
            failures.append(failure)
        done_work += unit.work
    if progress:
        progress(Progress(len(pending), len(pending), 1.0, "done", len(failures)))
    return failures


def _plan(
    classifier: Classifier,
    explainers: Mapping[str, Explainer],
    inputs: Tensor,
    metrics: Mapping[str, Metric],
    targets: Tensor | None,
    seed: int,
    samples_per_unit: int,
) -> list[_Unit]:
    state = {name: tensor_digest(t) for name, t in classifier.module.state_dict().items()}
    model = [
        repr(classifier.module),
        state,
        fingerprint(classifier.preprocess),
        [tensor_digest(b) for b in classifier.bounds],
        str(classifier.dtype),
        [version("holdfast"), torch.__version__],
    ]
    units = []
    for start in range(0, len(inputs), samples_per_unit):
        stop = min(start + samples_per_unit, len(inputs))
        data = [tensor_digest(inputs[start:stop]), None if targets is None else tensor_digest(targets[start:stop])]
        for label, metric in metrics.items():
            for name, explainer in explainers.items():
                description = [model, data, start, fingerprint(metric), fingerprint(explainer), name, label, seed]
                work = (stop - start) * metric.expected_evaluations() * explainer.rows_per_input
                units.append(_Unit(digest(description), name, explainer, label, metric, start, stop, work))
    return units


def fingerprint(value: object, depth: int = 6) -> Any:
    """What a configuration consists of, functions by their code and what they close over; no addresses.

    >>> fingerprint(lambda x: 2 * x) == fingerprint(lambda x: 3 * x)
    False
    """
    if isinstance(value, int | float | str | bool | bytes | None):
        return repr(value)
    if isinstance(value, Tensor):
        return tensor_digest(value)
    if isinstance(value, type) or depth == 0:
        return re.sub(r" at 0x[0-9a-f]+", "", repr(value))
    inner = partial(fingerprint, depth=depth - 1)
    if isinstance(value, CodeType):
        return [value.co_code.hex(), list(value.co_names), [inner(c) for c in value.co_consts]]
    if isinstance(value, FunctionType):
        closed = [inner(cell.cell_contents) for cell in value.__closure__ or ()]
        return [value.__module__, inner(value.__code__), inner(value.__defaults__), closed]
    if isinstance(value, torch.nn.Module):
        return [repr(value), inner(value.state_dict())]
    if isinstance(value, partial):
        return [inner(value.func), inner(value.args), inner(value.keywords)]
    if isinstance(value, Mapping):
        return {str(key): inner(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [inner(entry) for entry in value]
    state = {k: inner(v) for k, v in vars(value).items()} if hasattr(value, "__dict__") else None
    bound = inner(value.__self__) if hasattr(value, "__self__") else None
    return [type(value).__qualname__, re.sub(r" at 0x[0-9a-f]+", "", repr(value)) if state is None else state, bound]


def _run_unit(
    classifier: Classifier, inputs: Tensor, targets: Tensor | None, unit: _Unit, seed: int, store: Store
) -> dict[str, Any] | None:
    record: dict[str, Any] = {
        "explainer": unit.explainer_name,
        "explainer_options": plain(unit.explainer),
        "metric": unit.metric.name,
        "label": unit.label,
        "options": unit.metric.options(),
        "headline": unit.metric.headline,
        "direction": unit.metric.direction,
        "citation": unit.metric.citation,
        "samples": [unit.start, unit.stop],
        "seed": seed,
    }
    rows = slice(unit.start, unit.stop)
    began = time.perf_counter()
    try:
        result: Result = unit.metric(
            classifier,
            unit.explainer,
            inputs[rows],
            None if targets is None else targets[rows],
            generator=torch.Generator().manual_seed(seed),
        )
    except Exception as error:
        record |= {"seconds": time.perf_counter() - began, "error": f"{type(error).__name__}: {error}"}
        store.write_failure(unit.identity, record, traceback.format_exc())
        return record
    record["seconds"] = time.perf_counter() - began
    frame = result.frame().with_columns(pl.col("sample") + unit.start)
    store.write(unit.identity, record, frame, result.tensors())
    return None


def named_metrics(metrics: Mapping[str, Metric] | Sequence[Metric]) -> dict[str, Metric]:
    """Metrics under labels: the given ones, or each one's name with its event and, where two are alike, a number.

    >>> from holdfast.metrics import MaxSensitivity
    >>> from holdfast.neighbourhood import LinfBall
    >>> list(named_metrics([MaxSensitivity(LinfBall(0.1)), MaxSensitivity(LinfBall(0.2))]))
    ['max_sensitivity', 'max_sensitivity 2']
    """
    if isinstance(metrics, Mapping):
        return dict(metrics)
    named: dict[str, Metric] = {}
    for metric in metrics:
        check(isinstance(metric, Metric), "metrics", "holdfast metrics", type(metric).__name__)
        event = getattr(metric, "event", None)
        label = metric.name if event is None else f"{metric.name}: {event}"
        number = 2
        unique = label
        while unique in named:
            unique, number = f"{label} {number}", number + 1
        named[unique] = metric
    return named
