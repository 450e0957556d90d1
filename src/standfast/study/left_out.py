"""What a manifest says of a limited time: what was chosen, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: the key of the choice in a manifest (`standfast.study.time_limit.Choice.describe`)
KEY = "limit"


def describe_left_out(limit: Mapping[str, Any]) -> list[str]:
    """What a time limit has left out, in a few words for each part; empty if nothing.

    Args:
        limit: what the manifest says of it (`Choice.describe`).
    """
    parts: list[str] = []
    for name, (done, whole) in (limit.get("samples") or {}).items():
        if done < whole:
            parts.append(f"{done} of {whole} samples of {name}")
    whole_options = limit.get("without limit") or {}
    for label, options in (limit.get("settings") or {}).items():
        own = whole_options.get(label) or {}
        changed = ", ".join(f"{name}={value} instead of {own.get(name)}" for name, value in options.items())
        parts.append(f"{label} with {changed}")
    dropped = limit.get("left out controls") or []
    if dropped:
        parts.append(f"without the controls {', '.join(dropped)}")
    checked = limit.get("checked")
    if checked == 0:
        parts.append("without sanity checks")
    return parts
