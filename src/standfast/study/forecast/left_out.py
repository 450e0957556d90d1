"""What a manifest says of a limited time: what was chosen, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: the key of the choice in a manifest (`standfast.study.forecast.choice.Choice.describe`)
KEY = "limit"
#: the key, in the choice, of metrics that are not evaluated with some explainers
LEFT_OUT_PAIRS = "left out pairs"
#: the key, in an earlier choice, of the seconds that its first jobs took
MEASURED = "measured"
#: the key, in the choice, of metrics that have no result with some explainers when the time is up
NOT_BEGUN = "not begun"


def describe_left_out(limit: Mapping[str, Any]) -> list[str]:
    """What a time limit has left out, in a few words for each part; empty if nothing.

    Args:
        limit: what the manifest says of it (`Choice.describe`).
    """
    parts = _describe_samples(limit.get("samples") or {})
    pairs = [*(limit.get(LEFT_OUT_PAIRS) or []), *(limit.get(NOT_BEGUN) or [])]
    parts += _describe_pairs(pairs)
    usual_settings = limit.get("without limit") or {}
    parts += _describe_settings(limit.get("settings") or {}, usual_settings)
    dropped_controls = limit.get("left out controls") or []
    if dropped_controls:
        names = ", ".join(dropped_controls)
        parts.append(f"without the controls {names}")
    checked = limit.get("checked")
    if checked == 0:
        parts.append("without sanity checks")
    elif checked is not None:
        available = limit.get("checked without limit")
        parts.append(f"sanity checks with {checked} instead of {available} samples")
    return parts


def _describe_samples(samples: Mapping[str, Sequence[int]]) -> list[str]:
    """The data sets of which not all samples were evaluated."""
    parts: list[str] = []
    for name, (evaluated, available) in samples.items():
        if evaluated < available:
            parts.append(f"{evaluated} of {available} samples of {name}")
    return parts


def _describe_pairs(pairs: Sequence[Sequence[str]]) -> list[str]:
    """The metrics that were not evaluated with some explainers."""
    explainers_of: dict[str, list[str]] = {}
    for label, explainer in pairs:
        explainers_of.setdefault(label, []).append(explainer)
    parts: list[str] = []
    for label, explainers in explainers_of.items():
        names = ", ".join(explainers)
        parts.append(f"no {label} of {names}, of which not one sample fits into the time")
    return parts


def _describe_settings(
    settings: Mapping[str, Mapping[str, Any]], usual_settings: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    """The options that were chosen, and those that metrics would have without a limit."""
    parts: list[str] = []
    for label, options in settings.items():
        usual = usual_settings.get(label) or {}
        changes: list[str] = []
        for name, value in options.items():
            changes.append(f"{name}={value} instead of {usual.get(name)}")
        words = ", ".join(changes)
        parts.append(f"{label} with {words}")
    return parts
