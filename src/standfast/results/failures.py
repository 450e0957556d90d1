"""What failed and why, as typed rows: equal reasons stand together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
    jobs = list(jobs)
    run = Counter(_find_key(job) for job in jobs)
    failed = [job for job in jobs if job["status"] == "failed"]
    # of each reason the first one: the others differ in the samples at most
    tracebacks: dict[str, str] = {}
    # by reason, explainer and label, how many jobs failed
    counts: dict[str, dict[str, Counter[str]]] = {}
    for job in failed:
        reason = shorten_error(job["error"])
        tracebacks.setdefault(reason, str(job.get("traceback") or ""))
        explainer, label = _find_key(job)
        counts.setdefault(reason, {}).setdefault(explainer, Counter())[label] += 1
    failures = []
    for reason, by_explainer in counts.items():
        for labels, names in _group_by_labels(by_explainer).items():
            partly = any(
                by_explainer[name][label] < run[name, label]
                for name, label in product(names, labels)
            )
            failures.append(
                Failure(reason, tuple(names), labels, metrics, partly, tracebacks[reason])
            )
    return failures


def _find_key(job: Mapping[str, Any]) -> tuple[str, str]:
    """The explainer and the label of a job; a failure that cannot be read has none."""
    return job["explainer"] or "unknown", job["label"] or "unknown"


def _group_by_labels(
    by_explainer: Mapping[str, Mapping[str, int]],
) -> dict[tuple[str, ...], list[str]]:
    """The explainers that failed with the same metrics, together."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for explainer, counts in by_explainer.items():
        labels = list(counts)
        # what fails with the metrics fails with the sanity checks, which are none
        if len(labels) > 1 and SANITY_CHECKS in labels:
            labels.remove(SANITY_CHECKS)
        groups.setdefault(tuple(labels), []).append(explainer)
    return groups


def group_misfits(misfits: Mapping[str, Mapping[str, str]]) -> list[tuple[str, Sequence[str], str]]:
    """Metrics that a study left some explainers out of: the label, these explainers, and why; from `misfits`.

    >>> group_misfits({"attack": {"LIME": "no gradient", "LRP": "no gradient"}})
    [('attack', ['LIME', 'LRP'], 'no gradient')]
    """
    groups: list[tuple[str, Sequence[str], str]] = []
    for label, reasons in misfits.items():
        names_of: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            names_of.setdefault(reason, []).append(name)
        groups += [(label, names, reason) for reason, names in names_of.items()]
    return groups
