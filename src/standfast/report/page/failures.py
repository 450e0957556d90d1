"""What failed and why: equal reasons stand together."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from standfast.study.results import Results


def describe_failures(results: Results) -> list[str]:
    """A sentence for each reason of failed jobs: which explainers, by how many of the metrics, on which samples.

    Equal reasons stand together: "gradcam failed for 3 of 3 metrics: no convolution in the model".
    """
    reasons: dict[str, dict[str, dict[str, int]]] = {}
    for job in results.failures.iter_rows(named=True):
        labels = reasons.setdefault(shorten_error(job["error"]), {}).setdefault(job["explainer"], {})
        labels[job["label"]] = labels.get(job["label"], 0) + 1
    planned = results.jobs.group_by("explainer", "label").len()
    of = {(explainer, label): count for explainer, label, count in planned.iter_rows()}
    total, found = len(results.manifest.get("metrics") or {}), []
    for reason, explainers in reasons.items():
        together: dict[tuple[str, ...], list[str]] = {}
        for name, labels in explainers.items():
            together.setdefault(tuple(labels), []).append(name)
        for own, names in together.items():
            some = f" ({', '.join(own)})" if len(own) < total else ""
            parts = [explainers[name][label] / of[name, label] for name in names for label in own]
            part = "" if min(parts) == 1 else ", on a part of the samples"
            of_all = f"{len(own)} of {total} metric{'' if total == 1 else 's'}"
            found.append(f"{', '.join(names)} failed for {of_all}{some}{part}: {reason}")
    return found


def describe_misfits(misfits: Mapping[str, Mapping[str, str]]) -> list[str]:
    """A sentence for each metric that a study left some explainers out of, from a manifest's `misfits`.

    >>> describe_misfits({"attack": {"LIME": "the explainer has no gradient", "LRP": "the explainer has no gradient"}})
    ['attack: no results for LIME, LRP: the explainer has no gradient']
    """
    found = []
    for label, reasons in misfits.items():
        together: dict[str, list[str]] = {}
        for name, reason in reasons.items():
            together.setdefault(reason, []).append(name)
        found += [f"{label}: no results for {', '.join(names)}: {reason}" for reason, names in together.items()]
    return found


def shorten_error(error: object, width: int = 300) -> str:
    """The first line of a stored error, without the names of standfast's own exceptions.

    >>> shorten_error("ModelError: module: expected logits\\nmore")
    'module: expected logits'
    """
    text = str(error).strip().partition("\n")[0]
    for own in ("ArgumentError", "UnknownNameError", "ModelError", "SecondDerivativeError", "StandfastError"):
        text = text.removeprefix(f"{own}: ")
    return textwrap.shorten(text, width, placeholder=" ...")


def group_failures(failures: Iterable[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Failed parts with the same error and traceback as one: who failed and for what, the error, and the traceback.

    >>> job = {"explainer": "a", "error": "ValueError: no", "traceback": "..."}
    >>> group_failures([{**job, "label": "m"}, {**job, "label": "n"}, {**job, "label": "m"}])
    [('a: m (2 parts), n', 'ValueError: no', '...')]
    """
    groups: dict[tuple[str, str], dict[str, dict[str, int]]] = {}
    for job in failures:
        reason = (str(job["error"] or "failed"), str(job["traceback"] or ""))
        labels = groups.setdefault(reason, {}).setdefault(job["explainer"], {})
        labels[job["label"]] = labels.get(job["label"], 0) + 1
    return [
        ("; ".join(f"{who}: {', '.join(map(_count_parts, labels.items()))}" for who, labels in own.items()), *reason)
        for reason, own in groups.items()
    ]


def _count_parts(label: tuple[str, int]) -> str:
    name, count = label
    return name if count == 1 else f"{name} ({count} parts)"
