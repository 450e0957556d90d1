"""What failed and why, as typed rows: equal reasons stand together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standfast.results.formatting import shorten_error
from standfast.value_spec import SANITY_CHECKS


@dataclass(frozen=True)
class Failure:
    """Failed parts of the work with the same reason, by the same metrics.

    Attributes:
        reason: the first line of the error.
        explainers: which failed.
        labels: by which configured metrics.
        metrics: how many metrics there are.
        partly: whether it was on a part of the samples only.
        traceback: of the first of them.
    """

    reason: str
    explainers: tuple[str, ...]
    labels: tuple[str, ...]
    metrics: int
    partly: bool
    traceback: str = ""


def group_failures(jobs: Iterable[Mapping[str, Any]], metrics: int) -> list[Failure]:
    """The reasons of failed jobs, from all jobs that were run.

    Args:
        jobs: with `explainer`, `label`, `status` and `error`.
        metrics: how many metrics there are.

    >>> job = {"explainer": "gradcam", "label": "AOPC", "status": "failed", "error": "ModelError: no convolution"}
    >>> group_failures([job], 3)[0].reason
    'no convolution'
    """
    run: dict[tuple[str, str], int] = {}
    reasons: dict[str, dict[str, dict[str, int]]] = {}
    tracebacks: dict[str, str] = {}
    for job in jobs:
        explainer, label = place = (job["explainer"] or "unknown", job["label"] or "unknown")
        run[place] = run.get(place, 0) + 1
        if job["status"] == "failed":
            reason = shorten_error(job["error"])
            tracebacks.setdefault(reason, str(job.get("traceback") or ""))
            labels = reasons.setdefault(reason, {}).setdefault(explainer, {})
            labels[label] = labels.get(label, 0) + 1
    for explainers in reasons.values():
        for labels in explainers.values():
            # what fails with the metrics fails with the sanity checks, which are none
            if len(labels) > 1:
                labels.pop(SANITY_CHECKS, None)
    found = []
    for reason, explainers in reasons.items():
        together: dict[tuple[str, ...], list[str]] = {}
        for name, labels in explainers.items():
            together.setdefault(tuple(labels), []).append(name)
        for own, names in together.items():
            partly = any(
                explainers[name][label] < run[name, label] for name in names for label in own
            )
            found.append(Failure(reason, tuple(names), own, metrics, partly, tracebacks[reason]))
    return found


def group_misfits(misfits: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Sequence[str], str]]:
    """Metrics that a study left some explainers out of: the label, these explainers, and why; from `misfits`.

    >>> group_misfits({"attack": {"LIME": "no gradient", "LRP": "no gradient"}})
    [('attack', ['LIME', 'LRP'], 'no gradient')]
    """
    found: list[tuple[str, Sequence[str], str]] = []
    for label, reasons in misfits.items():
        together: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            together.setdefault(reason, []).append(name)
        found += [(label, names, reason) for reason, names in together.items()]
    return found
