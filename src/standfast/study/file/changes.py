"""Changes of a study file for one run, as `samples=80` or `explainers+=smoothgrad`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from standfast.errors import check
from standfast.study.file.document import UNREADABLE, Document, parse

_CHANGE = re.compile(r"(?P<key>\w+)(?P<adds>\+?)=(?P<value>.*)", re.DOTALL)
_FORM = "KEY=VALUE, or KEY+=VALUE for one more explainer or metric, with values as in a study file"


def apply_changes(document: Document, changes: Sequence[str]) -> Document:
    """The document with other values of some of its keys; the file stays as it is.

    Args:
        document: of a study.
        changes: `KEY=VALUE` replaces the value of a key, and `KEY+=VALUE` adds one entry to a list or a mapping. Values
            are YAML.

    Raises:
        ArgumentError: a change has another form.
    """
    # what is no mapping is refused later, with the words for a study
    if not isinstance(document.content, Mapping):
        return document
    content = dict(document.content)
    lines = dict(document.lines)
    for change in changes:
        key, value, adds = _read_change(change)
        if adds:
            content[key] = _add(content.get(key), value)
            continue
        content[key] = value
        # what is wrong with it stands in no line of the file
        lines = {path: line for path, line in lines.items() if path[:1] != (key,)}
    return replace(document, content=content, lines=lines)


def _read_change(change: str) -> tuple[str, Any, bool]:
    """The key, the value, and whether it is added.

    >>> _read_change("samples=80"), _read_change("explainers+={lrp: {epsilon: 0.1}}")
    (('samples', 80, False), ('explainers', {'lrp': {'epsilon': 0.1}}, True))
    """
    parts = _CHANGE.fullmatch(change)
    check(parts is not None, "set", _FORM, repr(change))
    assert parts is not None
    try:
        value = parse(parts["value"])
    except UNREADABLE:
        value = None
    check(value is not None, "set", _FORM, repr(change))
    return parts["key"], value, bool(parts["adds"])


def _add(entries: Any, entry: Any) -> Any:
    """The entries of a section with one more, which has its own name in a mapping.

    Raises:
        ArgumentError: there is an entry of this name, which would be lost.

    >>> _add(["lrp"], "saliency"), _add({"mine": "lrp"}, {"smoothgrad": {"samples": 8}})
    (['lrp', 'saliency'], {'mine': 'lrp', 'smoothgrad': {'smoothgrad': {'samples': 8}}})
    """
    if not isinstance(entries, Mapping):
        if entries is None:
            return [entry]
        if isinstance(entries, list):
            return [*entries, entry]
        return [entries, entry]
    if isinstance(entry, Mapping) and entry:
        name = next(iter(entry))
    else:
        name = str(entry)
    check(name not in entries, "set", "a name that the study does not have yet", repr(name))
    return {**entries, name: entry}
