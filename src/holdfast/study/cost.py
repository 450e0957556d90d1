"""Estimate what a study costs before it runs: jobs, evaluations, and time from a short calibration."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from holdfast.explainers import Explainer
from holdfast.metrics.probe import Probe
from holdfast.model import Classifier
from holdfast.similarity import get as get_similarity
from holdfast.study.plan import Plan, inputs_for

_ROWS = 256
_SECONDS = 0.4
#: the factor for a metric's own work beside predicting, explaining and comparing, measured on the bundled network
_ALLOWANCE = 1.1


@dataclass(frozen=True)
class Line:
    """One row of the estimate: what a configured metric costs for one explainer.

    Attributes:
        jobs, done: the number of planned jobs, and how many of them the store has.
        evaluations: about how many inputs the jobs that are left predict and explain.
        seconds: about how long one worker needs for them; NaN if the explainer failed.
    """

    data: str
    model: str
    explainer: str
    label: str
    jobs: int
    done: int
    evaluations: int
    seconds: float


def estimate(plan: Plan, done: set[str], progress: Callable[[str], None] | None = None) -> list[Line]:
    """A line for every data set, model, explainer and metric of a plan, in the plan's order.

    Every combination of model and explainer is timed on perturbed copies of the first samples, for about half a second.
    How long a metric takes depends on what it finds, so the time is only an order of magnitude.

    Args:
        plan: of the grid.
        done: identities of the jobs that are done already.
        progress: called with a text that says what is being timed.
    """
    grid = plan.grid
    rates: dict[tuple[str, str, str], float] = {}
    for data, model in grid.combinations():
        samples, source = grid.data[data], grid.models[model]
        classifier = source.classifier(samples, grid.device)
        inputs, targets = inputs_for(classifier, samples)
        for name, explainer in grid.explainers.items():
            if progress:
                progress(f"timing {name} of {model} on {data}")
            few = None if targets is None else targets[:4]
            try:
                rates[data, model, name] = evaluation_rate(classifier, explainer, inputs[:4], few)
            except Exception:  # the run records the reason; the other lines are still valid
                rates[data, model, name] = math.nan
    lines: dict[tuple[str, str, str, str], Line] = {}
    for job in plan.jobs:
        key = (job.data, job.model, job.explainer, job.label)
        before = lines.get(key, Line(*key, 0, 0, 0, 0.0))
        found = job.identity in done
        count = 0 if found else (job.stop - job.start) * grid.metrics[job.label].expected_evaluations()
        seconds = _ALLOWANCE * count / rates[key[:3]]
        lines[key] = Line(
            *key, before.jobs + 1, before.done + found, before.evaluations + count, before.seconds + seconds
        )
    return list(lines.values())


def evaluation_rate(
    classifier: Classifier, explainer: Explainer, inputs: torch.Tensor, targets: torch.Tensor | None = None
) -> float:
    """How many inputs are predicted, explained and compared in one second; measured on copies for half a second."""
    with torch.inference_mode(False), classifier.session():
        probe = Probe(
            classifier, explainer, inputs, targets, get_similarity("pearson"), absolute=True, explain="predicted"
        )
        x, rows = _perturb_copies(classifier, inputs, 1)
        seconds = _time_query(probe, x, rows)  # this call also finds the batch size and warms up
        if seconds > _SECONDS:
            return len(x) / seconds
        x, rows = _perturb_copies(
            classifier, inputs, max(1, int(min(_ROWS, len(x) * _SECONDS / seconds)) // len(inputs))
        )
        _time_query(probe, x, rows)
        count, spent = 0, 0.0
        while count == 0 or spent < _SECONDS:
            spent += _time_query(probe, x, rows)
            count += len(x)
        return count / spent


def _perturb_copies(classifier: Classifier, inputs: torch.Tensor, each: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Perturbed copies, `each` of every input, and the row of the input that each was made from."""
    rows = torch.arange(len(inputs), device=inputs.device).repeat_interleave(each)
    generator = torch.Generator(device=inputs.device).manual_seed(0)
    noise = torch.rand(inputs[rows].shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
    lower, upper = (bound.isfinite().all() for bound in map(torch.as_tensor, classifier.bounds))
    if not (lower and upper):
        return inputs[rows] + 0.01 * (noise - 0.5) * inputs.std(), rows
    low, high = classifier.bounds
    return inputs[rows] + 0.01 * (low + (high - low) * noise - inputs[rows]), rows


def _time_query(probe: Probe, x: torch.Tensor, rows: torch.Tensor) -> float:
    began = time.perf_counter()
    _ = probe.query(x, rows).margin.sum().item()  # waits for the device
    return time.perf_counter() - began
