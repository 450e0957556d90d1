"""What a study will cost, before it runs: jobs, evaluations, and time from a short calibration."""

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
#: a metric's own work beside predicting, explaining and comparing, as measured on the bundled network
_ALLOWANCE = 1.1


@dataclass(frozen=True)
class Line:
    """One row of the estimate: what a configured metric will cost for one explainer.

    Attributes:
        jobs, done: jobs planned, and how many of them the store has.
        evaluations: inputs predicted and explained in the jobs that are left, about.
        seconds: one worker will take for them, about; NaN where explaining failed.
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
    """Lines for every data set, model, explainer and metric of a plan, in its order.

    Each model and explainer that meet is timed on perturbed copies of the first samples, for about half a second. How
    long a metric takes depends on what it finds, so the time is an order of magnitude rather than a promise.

    Args:
        plan: of the grid.
        done: identities of jobs that need not be done any more.
        progress: told what is being timed.
    """
    grid = plan.grid
    rates: dict[tuple[str, str, str], float] = {}
    for data, model in grid.meetings():
        samples, source = grid.data[data], grid.models[model]
        classifier = source.classifier(samples, grid.device)
        inputs, targets = inputs_for(classifier, samples)
        for name, explainer in grid.explainers.items():
            if progress:
                progress(f"timing {name} of {model} on {data}")
            few = None if targets is None else targets[:4]
            try:
                rates[data, model, name] = evaluation_rate(classifier, explainer, inputs[:4], few)
            except Exception:  # the run will record why; the rest of the estimate stands
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
    """Inputs a second that are predicted, explained and compared; as many copies of them as half a second allows."""
    with torch.inference_mode(False), classifier.session():
        probe = Probe(
            classifier, explainer, inputs, targets, get_similarity("pearson"), absolute=True, explain="predicted"
        )
        x, rows = _copies(classifier, inputs, 1)
        seconds = _seconds(probe, x, rows)  # finds the batch size, and warms up
        if seconds > _SECONDS:
            return len(x) / seconds
        x, rows = _copies(classifier, inputs, max(1, int(min(_ROWS, len(x) * _SECONDS / seconds)) // len(inputs)))
        _seconds(probe, x, rows)
        count, spent = 0, 0.0
        while count == 0 or spent < _SECONDS:
            spent += _seconds(probe, x, rows)
            count += len(x)
        return count / spent


def _copies(classifier: Classifier, inputs: torch.Tensor, each: int) -> tuple[torch.Tensor, torch.Tensor]:
    """So many perturbed copies of each input, and whose they are."""
    rows = torch.arange(len(inputs), device=inputs.device).repeat_interleave(each)
    generator = torch.Generator(device=inputs.device).manual_seed(0)
    noise = torch.rand(inputs[rows].shape, generator=generator, device=inputs.device, dtype=inputs.dtype)
    lower, upper = (bound.isfinite().all() for bound in map(torch.as_tensor, classifier.bounds))
    if not (lower and upper):
        return inputs[rows] + 0.01 * (noise - 0.5) * inputs.std(), rows
    low, high = classifier.bounds
    return inputs[rows] + 0.01 * (low + (high - low) * noise - inputs[rows]), rows


def _seconds(probe: Probe, x: torch.Tensor, rows: torch.Tensor) -> float:
    began = time.perf_counter()
    _ = probe.query(x, rows).margin.sum().item()  # waits for the device
    return time.perf_counter() - began
