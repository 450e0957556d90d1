"""The study file as a JSON schema, from which editors complete and check it as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from standfast.study.file.entries import EXECUTORS
from standfast.study.file.names import DATA, EXPLAINERS, METRICS, MODELS, NEIGHBOURHOODS, SEARCHES, SIMILARITIES, Names
from standfast.study.file.options import describe_options, options_model
from standfast.study.file.problems import Entry
from standfast.study.file.sources import BackgroundEntry, DataEntry, ModelEntry
from standfast.study.file.spec import ExplainerFunction, MetricFunction, Study

Schema = dict[str, Any]
_ONE_KEY: Schema = {"type": "object", "minProperties": 1, "maxProperties": 1}


def json_schema() -> Schema:
    """The schema (JSON Schema 2020-12), with the names that are registered now: plug-ins included once imported.

    >>> sorted(json_schema()["properties"])[:4]
    ['data', 'device', 'executor', 'explainers']
    """
    definitions: Schema = {}
    _define_sources(definitions, DATA, DataEntry)
    _define_sources(definitions, MODELS, ModelEntry)
    _define_kinds(definitions, "explainer", EXPLAINERS, ExplainerFunction)
    _define_kinds(definitions, "metric", METRICS, MetricFunction)
    _define_kinds(definitions, "search", SEARCHES)
    _define_kinds(definitions, "neighbourhood", NEIGHBOURHOODS)
    one = _refer("neighbourhood")
    definitions["neighbourhoods"] = {"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]}
    known = {"enum": SIMILARITIES.listed}
    options = {**_ONE_KEY, "propertyNames": known, "additionalProperties": {"type": "object"}}
    definitions["similarity"] = {"anyOf": [known, _beginning_with(SIMILARITIES.listed), options]}
    background = _model(definitions, BackgroundEntry)
    background["properties"]["data"] = {"anyOf": _names(DATA)}
    forms = [{**background, "required": required} for required in (["path"], ["data", "samples"])]
    numbers = [{"type": "number"}, {"type": "array", "minItems": 1, "items": {"type": "number"}}]
    definitions["background"] = {"anyOf": [*numbers, {"type": "string"}, *forms]}
    kinds = [_model(definitions, kind) for kind in EXECUTORS.values()]
    definitions["executor"] = {"anyOf": [{"enum": list(EXECUTORS)}, *kinds]}
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "standfast study"}
    return {**about, **_model(definitions, Study), "$defs": definitions}


def _define_kinds(definitions: Schema, what: str, names: Names, function: type[Entry] | None = None) -> None:
    """One of the registered classes in every form of a name; with `function`, also the section of them.

    Args:
        definitions: to be added to.
        what: the name of the definition.
        names: of the classes. A value alone may stand for an option (`names.scalar`); a name alone then means nothing
            where this option must be given.
        function: the entry of a function of the user's.
    """
    by_name: Schema = {}
    alone: list[str] = []
    for name in names.registry:
        options = definitions[f"{what}.{name}"] = _model(definitions, options_model(names.registry[name], name))
        options["properties"] = {"name": {"const": name}, **options["properties"]}
        if "neighbourhood" in options.get("required", ()):  # the file's own may stand for it
            options["required"].remove("neighbourhood")
        if what == "metric" and "neighbourhood" in options["properties"]:  # a list is evaluated in turn
            own = options["properties"]["neighbourhood"]
            own["anyOf"] = [*own["anyOf"], _refer("neighbourhoods")]
        first = names.scalar(names.registry[name]) if names.scalar else None
        value = {"type": "null"} if first is None else options["properties"][first]
        by_name[name] = {"anyOf": [_refer(f"{what}.{name}"), value]}
        if not options.get("required"):
            alone.append(name)
    packages = names.registry.packages
    theirs = _beginning_with(packages) if packages else {"enum": []}
    patterns = {theirs["pattern"]: {"type": ["object", "null"]}} if packages else {}  # whose options are theirs
    text = [{"enum": alone}] if names.scalar else [{"enum": list(by_name)}, _beginning_with([*by_name, *packages])]
    kinds = [*(_refer(f"{what}.{name}") for name in by_name), {"properties": {"name": theirs}}]
    beside: list[Schema] = [{"type": "object", "required": ["name"], "anyOf": kinds}]
    beside += [_model(definitions, function)] if function else []
    _define(definitions, what, names, by_name, patterns, [*text, *beside])


def _define_sources(definitions: Schema, names: Names, base: type[Entry]) -> None:
    """A section of entries with several forms, of which the one with `name` may be written as a name alone."""
    forms = {form.form: _model(definitions, form) for form in base.__subclasses__()}
    properties = forms["name"]["properties"]
    properties["name"] |= {"anyOf": _names(names)}
    beneath = {key: value for key, value in properties.items() if key != "name"}
    definitions[f"{names.section}.options"] = {**forms["name"], "properties": beneath, "required": []}
    options = {"anyOf": [_refer(f"{names.section}.options"), {"type": "null"}]}
    theirs = {_beginning_with(names.prefixes)["pattern"]: options}
    forms_of_one = [*_names(names), *forms.values()]
    _define(definitions, f"{names.section}.entry", names, dict.fromkeys(names.listed, options), theirs, forms_of_one)


def _define(
    definitions: Schema, what: str, names: Names, by_name: Schema, patterns: Schema, others: list[Schema]
) -> None:
    """One entry, and the section of them: a list, any of them under a label, or a mapping from labels to entries.

    Args:
        definitions: to be added to.
        what: the name of the definition of one.
        names: of the section.
        by_name: the options of each name; under a label that is a name, they alone are an entry.
        patterns: the same for names that are not listed.
        others: the forms of an entry without options beneath its name.
    """
    beneath = {**_ONE_KEY, "properties": by_name, "patternProperties": patterns, "additionalProperties": False}
    definitions[what] = {"anyOf": [*others, beneath]}
    if not names.sources:
        return
    labels, theirs = (
        {name: {"anyOf": [options, _refer(what)]} for name, options in each.items()} for each in (by_name, patterns)
    )
    mapping = {"properties": labels, "patternProperties": theirs, "additionalProperties": _refer(what)}
    item = {"anyOf": [_refer(what), {**_ONE_KEY, "additionalProperties": _refer(what)}]}
    definitions[names.section] = {
        "anyOf": [{"type": "array", "minItems": 1, "items": item}, {"type": "object", "minProperties": 1, **mapping}]
    }


def _refer(definition: str) -> Schema:
    return {"$ref": f"#/$defs/{definition}"}


def _beginning_with(names: Iterable[str]) -> Schema:
    """Texts that begin with one of the names and a colon."""
    return {"type": "string", "pattern": rf"^({'|'.join(map(re.escape, names))}):.+$"}


def _names(names: Names) -> list[Schema]:
    """Names that are listed, and those of places that have names of their own: `ucr:GunPoint:test`."""
    return [{"enum": names.listed}, _beginning_with(names.prefixes)]


def _model(definitions: Schema, model: type[BaseModel]) -> Schema:
    """The schema of a pydantic model; the models inside it become definitions."""
    schema: Schema = _tidy(model.model_json_schema())
    for key, text in describe_options(model).items():
        schema["properties"][key].setdefault("description", text)
    definitions |= schema.pop("$defs", {})
    return {**schema, "description": (model.__doc__ or "").partition("\n")[0]}


def _tidy(value: Any) -> Any:
    """Without titles, which repeat the names of the keys or are for errors, and with references to our definitions."""
    if isinstance(value, list):
        return [_tidy(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    # under "properties" keys are names of the file, "title" among them
    kept = {key: entry for key, entry in value.items() if key != "title" or not isinstance(entry, str)}
    reference = _refer(kept.pop("$reference")) if "$reference" in kept else {}
    return {key: _tidy(entry) for key, entry in {**reference, **kept}.items()}
