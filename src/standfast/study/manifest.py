"""The manifest: what stored results say of the grid that they belong to, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from standfast.metrics.base import plain
from standfast.question.grid import Grid, Samples
from standfast.study.store import tensor_digest
from standfast.tasks import TaskWords, read_common_words


def describe_grid(
    grid: Grid,
    models: Mapping[str, Any] | None = None,
    about: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The manifest of a grid without jobs. What is learned when jobs are planned has a key already, and is empty.

    Args:
        grid: to describe.
        models: what is known of each model, by name; None before any is built.
        about: the title and other facts.
    """
    if models is None:
        # before any model is built, its words are not known
        models = {name: {} for name in grid.models}
    words = read_common_words(models.values())
    explainers = grid.explainers
    controls = [
        name for name, explainer in explainers.items() if explainer.control or name in grid.controls
    ]
    return {
        "seed": grid.seed,
        "repeats": grid.repeats,
        "samples_per_job": grid.samples_per_job,
        "sizes": {},
        "device": grid.device,
        "data": {name: _describe_samples(samples) for name, samples in grid.data.items()},
        "models": dict(models),
        "pairs": [list(pair) for pair in grid.combinations()],
        "explainers": {name: plain(explainer) for name, explainer in explainers.items()},
        "signs": {name: explainer.has_signs for name, explainer in explainers.items()},
        "measures": {
            name: [explainer.measures, explainer.scale_of_values]
            for name, explainer in explainers.items()
        },
        "controls": controls,
        "metrics": _describe_metrics(grid, words),
        "sanity": None if grid.sanity is None else grid.sanity.options(),
        # which metrics do not fit which explainers, so that a missing row is no failure
        "misfits": grid.misfits(),
        "about": {**grid.about, **(about or {})},
        "code": {},
        "answers": {},
        "jobs": [],
    }


def _describe_metrics(grid: Grid, words: TaskWords) -> dict[str, dict[str, Any]]:
    """What the manifest says of each metric, by label: with how its numbers are read, in the words of the task."""
    return {
        label: {
            "metric": metric.name,
            "direction": metric.direction,
            "values": metric.describe_values(words),
            "controls": metric.controls,
            "citation": metric.bibtex or metric.citation,
            "options": metric.options(),
        }
        for label, metric in grid.metrics.items()
    }


def _describe_samples(samples: Samples) -> dict[str, Any]:
    """What the manifest says of a data set."""
    lower, upper = map(torch.as_tensor, samples.bounds)
    ranges = [[float(bound.min()), float(bound.max())] for bound in (lower, upper)]
    content: dict[str, Any] = {
        "samples": len(samples),
        "input_shape": list(samples.inputs.shape[1:]),
        "bounds": ranges,
        "targets": "predicted" if samples.targets is None else "given",
        "digest": tensor_digest(samples.inputs),
    }
    if samples.targets is not None:
        content["targets_digest"] = tensor_digest(samples.targets)
    extras = {name: tensor_digest(values) for name, values in samples.extras.items()}
    labels = extras.pop("labels", None)  # which the accuracy alone depends on
    if extras:
        content["extras"] = extras
    if labels is not None:
        content["labels_digest"] = labels
    if samples.features is not None:
        content["features"] = list(samples.features)
    if samples.tokens is not None:
        content["tokens"] = [list(words) for words in samples.tokens]
    if samples.sample_names is not None:
        content["sample_names"] = list(samples.sample_names)
    return {**content, **samples.about}
