"""How the user has called `evaluate`, as the manifest holds it; `standfast.question.calls` writes it there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class GivenPart:
    """An explainer or a metric of the call.

    Attributes:
        name: by which results know an explainer; the label of a metric, empty where it has none of the user's.
        code: that makes it; None if there is none.
        is_placed: whether it is a metric with a neighbourhood.
        movable: its text without the neighbourhood, which then is an argument of the call; None if there is none.
    """

    name: str
    code: str | None
    is_placed: bool = False
    movable: str | None = None


@dataclass(frozen=True)
class GivenParts:
    """The explainers or the metrics of the call.

    Attributes:
        are_named: whether they were a mapping from names.
        parts: one for each.
    """

    are_named: bool
    parts: tuple[GivenPart, ...]


@dataclass(frozen=True)
class GivenCall:
    """A call of `evaluate`.

    Attributes:
        model: whether the model was a `"model"`, a `"module"` or `"models"`; empty where that is not known.
        explainers, metrics: None where they are not known.
        options: the code of every other argument that was given.
    """

    model: str = ""
    explainers: GivenParts | None = None
    metrics: GivenParts | None = None
    options: Mapping[str, str] = field(default_factory=dict)


def read_call(manifest: Mapping[str, Any]) -> GivenCall:
    """The call that a manifest holds; an empty one where it holds none, as of a study or of an earlier version.

    >>> read_call({"call": {"model": "model", "options": {"seed": "3"}, "explainers": None}})
    GivenCall(model='model', explainers=None, metrics=None, options={'seed': '3'})
    """
    stored = manifest.get("call")
    if not isinstance(stored, Mapping):
        return GivenCall()
    options = stored.get("options")
    if not isinstance(options, Mapping):
        options = {}
    return GivenCall(
        str(stored.get("model") or ""),
        _read_parts(stored.get("explainers")),
        _read_parts(stored.get("metrics")),
        {str(name): str(code) for name, code in options.items()},
    )


def _read_parts(stored: Any) -> GivenParts | None:
    parts = None
    if isinstance(stored, Mapping):
        parts = stored.get("parts")
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        return None
    return GivenParts(bool(stored.get("named")), tuple(_read_part(part) for part in parts))


def _read_part(stored: Mapping[str, Any]) -> GivenPart:
    return GivenPart(
        str(stored.get("name") or ""),
        _read_text(stored.get("code")),
        bool(stored.get("placed")),
        _read_text(stored.get("movable")),
    )


def _read_text(stored: Any) -> str | None:
    return stored if isinstance(stored, str) else None
