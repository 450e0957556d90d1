"""From a grid to jobs. A job is (data, model, explainer, metric, chunk of samples, repeat).

Its identity is a hash of everything that determines its result, so the store can tell which jobs are done. Its random
numbers come from the seed of the study, the repeat, and the content of each sample, and not from the explainer or the
chunk. So all explainers meet the same noise, and results do not depend on how samples are cut into jobs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from standfast.explainers import Explainer
from standfast.metrics.base import Metric, plain
from standfast.metrics.sanity import RULES
from standfast.model import Model, module_name
from standfast.segments import check_one_for_all
from standfast.study.grid import Grid, Samples
from standfast.study.identity import (
    MOST_ANSWERS,
    Answers,
    Description,
    ask_explainer,
    ask_model,
    describe_model,
    read_own_modules,
)
from standfast.study.store import digest, tensor_digest

#: the first sample, that after the last one, and the digests of inputs and targets
_Chunk = tuple[int, int, list[str | None]]
#: an explanation runs the model forward and backward, which takes about as long as three passes forward
_PASSES = 3


@dataclass(frozen=True)
class Job:
    """One unit of work: a few samples of one data set, for one model, explainer, metric and repeat.

    Attributes:
        identity: the hash by which the store knows the job.
        label: of the configured metric.
        start, stop: the range of samples.
        work: about what the model does for the job, in forward passes of one row.
    """

    identity: str
    data: str
    model: str
    explainer: str
    label: str
    repeat: int
    start: int
    stop: int
    work: float


@dataclass(frozen=True, eq=False)
class Plan:
    """The jobs of a grid, in the order in which they should be done, and the manifest of the grid."""

    grid: Grid
    jobs: list[Job]
    manifest: dict[str, Any] = field(repr=False)


def make_plan(grid: Grid, about: Mapping[str, Any] | None = None, earlier: Mapping[str, Any] | None = None) -> Plan:
    """Make all jobs of a grid. Every model is built once, checked with its data, and asked for its answers.

    Args:
        grid: what to evaluate.
        about: the title and other facts, for the manifest.
        earlier: the manifest of results that the plan may continue. Where its models answered the same but for
            rounding, its jobs keep their identities.

    Raises:
        ArgumentError: inputs or targets do not fit a model; a metric holds values for another number of samples, or
            names extras that the data do not have; an explainer holds label maps for single samples.
        ModelError: a model answers differently each time, or depending on the other inputs of the batch.
    """
    explainers = {name: Description(explainer) for name, explainer in grid.explainers.items()}
    measured = grid.measured
    described_metrics = {label: Description(metric) for label, metric in measured.items()}
    metrics = {label: found.digest for label, found in described_metrics.items()}
    own_code = any(found.own for found in (*explainers.values(), *described_metrics.values()))
    chunks = {name: _chunks(samples, grid.samples_per_job) for name, samples in grid.data.items()}
    jobs: list[Job] = []
    models: dict[str, dict[str, Any]] = {}
    planned: dict[tuple[str, str], Answers] = {}
    known = _Known(earlier or {})
    for data, model_name in grid.combinations():
        samples, source = grid.data[data], grid.models[model_name]
        model = source.model(samples, "cpu")
        inputs, targets = inputs_for(model, samples)
        model.warn_of_units(inputs)
        for explainer in grid.explainers.values():
            check_one_for_all(explainer, inputs)
        described = describe_model(model, source.about)
        own_code = own_code or bool(described[4])
        # after the description, because forward may change attributes
        parts = samples.split(model, slice(0, MOST_ANSWERS))
        first, some = parts[0]
        first.check_repeatable(inputs[some], in_batches=True)
        asked = Answers.join([ask_model(each, inputs[rows]) for each, rows in parts])
        planned[data, model_name] = asked
        answers = known.remember(asked, data, model_name, digest(described[:-1]))
        reference = model.with_reference(inputs).reference
        rows = [] if reference is None else [tensor_digest(reference.rows), tensor_digest(reference.median)]
        # only the kind of the device counts, because results depend on it; "auto" leaves it to the worker
        combination = digest([described, answers, grid.device.partition(":")[0], *rows])
        models[model_name] = {
            "module": module_name(model.module),
            "parameters": sum(p.numel() for p in model.module.parameters()),
            "task": repr(model.task),
            "kept": model.task.kept,
            "of classes": model.task.classes,
            "words": vars(model.task.words),
            "digest": digest([described, answers]),
            "network": digest([described[:-1], answers]),  # without versions: the same after an upgrade
            **source.about,
        }
        own = {name: [found.digest] for name, found in explainers.items()}
        for name in (name for name, found in explainers.items() if found.own):
            maps = ask_explainer(grid.explainers[name], first, inputs[some], None if targets is None else targets[some])
            own[name].append(known.remember(maps, data, model_name, own[name][0]))
        here = {label: metric.bind(extras=samples.extras) for label, metric in measured.items()}
        work: list[tuple[int, _Chunk, dict[str, Metric]]] = []
        if grid.sanity is not None:
            work.append((0, _chunks(samples, grid.sanity.samples)[0], {grid.sanity.name: grid.sanity}))
        work += [(repeat, chunk, dict(grid.metrics)) for repeat in range(grid.repeats) for chunk in chunks[data]]
        for repeat, (start, stop, content), chosen in work:
            for label, metric in chosen.items():
                sliced = here[label].bind(inputs=inputs, rows=slice(start, stop))
                configured = metrics[label] if sliced is metric else Description(sliced).digest
                for name in grid.explainers_of(metric):
                    place = [combination, content, data, model_name, start, repeat, grid.seed]
                    identity = digest([*place, label, configured, name, own[name]])
                    passes = (stop - start) * expected_work(metric, grid.explainers[name], model.classes)
                    jobs.append(Job(identity, data, model_name, name, label, repeat, start, stop, passes))
    grid = replace(grid, planned=planned, code=read_own_modules() if own_code else {})
    return Plan(grid, jobs, _manifest(grid, models, jobs, about, known.answers))


class _Known:
    """The answers of this plan, for the manifest; in the place of those that differ from earlier ones by rounding only.

    Args:
        earlier: the manifest of earlier results.
    """

    def __init__(self, earlier: Mapping[str, Any]) -> None:
        self.earlier: Mapping[str, Mapping[str, str]] = earlier.get("answers", {})
        self.answers: dict[str, dict[str, str]] = {}

    def remember(self, asked: Answers, data: str, model: str, what: str) -> str:
        """A hash of the answers, or of the earlier ones of the same thing (`what`, a hash) if they are the same.

        A study that has grown has more inputs: then those that both know are compared.
        """
        place = digest([data, model, what])
        stored = self.earlier.get(place, {})
        before = Answers.from_plain({name: text for name, text in stored.items() if name != "identity"})
        same = bool(before.numbers) and not before.find_difference(asked)
        identity = stored["identity"] if same else digest(asked.plain)
        longer = before if same and len(before) > len(asked) else asked
        self.answers[place] = {"identity": identity, **longer.plain}
        return identity


def expected_work(metric: Metric, explainer: Explainer, classes: int | None) -> float:
    """About what a model of so many classes does for one sample, in forward passes of one row."""
    cost = metric.cost(classes)
    return cost.explanations * explainer.rows_per_input * _PASSES + cost.predictions


def inputs_for(model: Model, samples: Samples) -> tuple[Tensor, Tensor | None]:
    """The inputs and targets in the model's type and on its device.

    Raises:
        ArgumentError: they do not fit the model.
    """
    inputs = model.check_inputs(samples.inputs.to(model.dtype))
    if samples.targets is None:
        return inputs, None
    first, some = samples.split(model)[0]  # a task makes answers of targets, wherever they are used
    first.check_targets(samples.targets[some], inputs[some])
    return inputs, samples.targets.to(inputs.device)


def job_seed(seed: int, repeat: int) -> int:
    """The seed of a repeat; the first repeat has the seed of the study.

    >>> job_seed(7, 0), job_seed(7, 1) != job_seed(7, 2)
    (7, True)
    """
    if repeat == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed}/{repeat}".encode()).digest()[:7], "big")


def _chunks(samples: Samples, size: int) -> list[_Chunk]:
    found: list[_Chunk] = []
    for start in range(0, len(samples), size):
        stop = min(start + size, len(samples))
        targets = None if samples.targets is None else tensor_digest(samples.targets[start:stop])
        found.append((start, stop, [tensor_digest(samples.inputs[start:stop]), targets]))
    return found


def describe_grid(grid: Grid) -> dict[str, Any]:
    """The part of the manifest that is known before a model is built: nothing about the models, and no jobs."""
    return _manifest(grid, {name: {} for name in grid.models}, [], None, {})


def _manifest(
    grid: Grid,
    models: Mapping[str, Any],
    jobs: list[Job],
    about: Mapping[str, Any] | None,
    answers: Mapping[str, Any],
) -> dict[str, Any]:
    data = {}
    for name, samples in grid.data.items():
        extras = {name: tensor_digest(values) for name, values in samples.extras.items()}
        labels = extras.pop("labels", None)  # which the accuracy alone depends on
        lower, upper = (torch.as_tensor(bound) for bound in samples.bounds)
        data[name] = {
            "samples": len(samples),
            "input_shape": list(samples.inputs.shape[1:]),
            "bounds": [[float(lower.min()), float(lower.max())], [float(upper.min()), float(upper.max())]],
            "targets": "predicted" if samples.targets is None else "given",
            "digest": tensor_digest(samples.inputs),
            **({} if samples.targets is None else {"targets_digest": tensor_digest(samples.targets)}),
            **({"extras": extras} if extras else {}),
            **({} if labels is None else {"labels_digest": labels}),
            **({} if samples.features is None else {"features": list(samples.features)}),
            **({} if samples.tokens is None else {"tokens": [list(words) for words in samples.tokens]}),
            **samples.about,
        }
    metrics = {
        label: {
            "metric": metric.name,
            "direction": metric.direction,
            "citation": metric.bibtex or metric.citation,
            "options": metric.options(),
        }
        for label, metric in grid.metrics.items()
    }
    return {
        "seed": grid.seed,
        "repeats": grid.repeats,
        "samples_per_job": grid.samples_per_job,
        "device": grid.device,
        "data": data,
        "models": dict(models),
        "pairs": [list(pair) for pair in grid.combinations()],
        "explainers": {name: plain(explainer) for name, explainer in grid.explainers.items()},
        "controls": [name for name, explainer in grid.explainers.items() if explainer.control],
        "metrics": metrics,
        "sanity": None if grid.sanity is None else {**grid.sanity.options(), "rules": RULES},
        "misfits": grid.misfits(),
        "about": dict(about or {}),
        "code": dict(grid.code),
        "answers": dict(answers),
        "jobs": [job.identity for job in jobs],
    }
