"""The entries for data and models in a study file, each of the form that has the key by which it is named."""

from __future__ import annotations

from typing import Any

from standfast.study.file.data_sources import DataEntry, NamedData
from standfast.study.file.model_sources import ModelEntry, NamedModel
from standfast.study.file.names import DATA, NamedEntry


def build_source(named: NamedEntry) -> dict[str, tuple[Any, dict[str, Any]]]:
    """The entry for data or a model, of the form that has the key by which it is named; and its plain form."""
    base = DataEntry if named.names is DATA else ModelEntry
    (kind,) = (kind for kind in base.__subclasses__() if kind.form == named.form)
    entry = kind.model_validate(named.options)
    # a function's Samples have targets of their own
    left_out = {"targets"} - entry.model_fields_set
    plain = entry.model_dump(mode="json", exclude_none=True, exclude=left_out)
    if isinstance(entry, NamedData | NamedModel):
        entry._name, plain = named.name, {named.name: plain}
    return {"": (entry, plain)}
