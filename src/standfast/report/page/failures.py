"""What failed and why: equal reasons stand together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


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
