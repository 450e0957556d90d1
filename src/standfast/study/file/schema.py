"""The study file as a JSON schema, from which editors complete and check it as it is written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import BaseModel

from standfast import similarity
from standfast.metrics.base import find_neighbourhood_option
from standfast.study.file.data_sources import DataEntry
from standfast.study.file.entries import EXECUTORS
from standfast.study.file.evaluations import ExplainerFunction, MetricFunction
from standfast.study.file.model_sources import ModelEntry
from standfast.study.file.names import (
    DATA,
    EXPLAINERS,
    METRICS,
    MODELS,
    NEIGHBOURHOODS,
    SEARCHES,
    TASKS,
    Names,
)
from standfast.study.file.options import describe_options, options_model
from standfast.study.file.references import BackgroundEntry
from standfast.study.file.spec import Study

Schema = dict[str, Any]
_ONE_KEY: Schema = {"type": "object", "minProperties": 1, "maxProperties": 1}


def json_schema() -> Schema:
    """The schema (JSON Schema 2020-12), with the names that are registered now: plug-ins included once imported.

    >>> sorted(json_schema()["properties"])[:4]
    ['choose', 'controls', 'data', 'device']
    """
    definitions: Schema = {}
    for names, base in ((DATA, DataEntry), (MODELS, ModelEntry)):
        forms = {form.form: _model(definitions, form) for form in base.__subclasses__()}
        definitions[f"{names.section}.options"] = forms.pop("")
        options = dict.fromkeys(names.listed, _refer(f"{names.section}.options"))
        entry = f"{names.section}.entry"
        _define_entry(definitions, entry, names, options, [*forms.values()])
        _define_section(definitions, names, entry)
    for names, function in ((EXPLAINERS, ExplainerFunction), (METRICS, MetricFunction)):
        _define_kinds(definitions, names, [_model(definitions, function)])
        _define_section(definitions, names, names.registry.kind)
    definitions["controls"] = {"anyOf": [{"type": "boolean"}, _refer(EXPLAINERS.section)]}
    _define_kinds(definitions, SEARCHES)
    _define_kinds(definitions, TASKS)
    _define_kinds(definitions, NEIGHBOURHOODS)
    one = _refer("neighbourhood")
    several = {"type": "array", "minItems": 1, "items": one}
    definitions["neighbourhoods"] = {"anyOf": [one, several]}
    similarities = similarity.names()
    definitions["similarity"] = {"anyOf": [{"enum": similarities}, _beginning_with(similarities)]}
    number = {"type": "number"}
    numbers = [number, {"type": "array", "minItems": 1, "items": number}]
    definitions["background"] = {
        "anyOf": [*numbers, {"type": "string"}, _model(definitions, BackgroundEntry)]
    }
    kinds = [_model(definitions, kind) for kind in EXECUTORS.values()]
    definitions["executor"] = {"anyOf": [{"enum": list(EXECUTORS)}, *kinds]}
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "standfast study"}
    return {**about, **_model(definitions, Study), "$defs": definitions}


def _define_kinds(definitions: Schema, names: Names, forms: Iterable[Schema] = ()) -> None:
    """One of the registered classes."""
    what = names.registry.kind
    by_name: Schema = {}
    for name in names.registry:
        options = definitions[f"{what}.{name}"] = _model(
            definitions, options_model(names.registry[name], name)
        )
        neighbourhood_option = find_neighbourhood_option(names.registry[name])
        if neighbourhood_option:
            # the file's own may stand for it, and a list is evaluated in turn
            required = options.get("required", ())
            options["required"] = [option for option in required if option != neighbourhood_option]
            options["properties"][neighbourhood_option]["anyOf"].append(_refer("neighbourhoods"))
        first = None
        if names.scalar:
            first = names.scalar(names.registry[name])
        value = [options["properties"][first]] if first else []
        options_of_name = _refer(f"{what}.{name}")
        by_name[name] = {"anyOf": [options_of_name, *value]}
    # aliases stand for entries of other packages, whose options are not known here
    by_name |= {alias: {"type": "object"} for alias in names.registry.aliases}
    _define_entry(definitions, what, names, by_name, forms)


def _define_entry(
    definitions: Schema, what: str, names: Names, by_name: Schema, forms: Iterable[Schema] = ()
) -> None:
    """One entry: a name, options beneath a name, or a form without a name.

    Args:
        definitions: to be added to.
        what: the name of the definition.
        names: what can be named.
        by_name: the options of each name.
        forms: of entries without a name.
    """

    # a name alone is allowed only where no option is required
    def must_have_options(options: Schema) -> bool:
        model = definitions.get(
            str(options.get("anyOf", [{}])[0].get("$ref")).rpartition("/")[2], {}
        )
        return bool(model.get("required"))

    alone = [name for name, options in by_name.items() if not must_have_options(options)]
    # whose options are theirs
    prefixes = _beginning_with([*names.prefixes, *names.registry.packages])
    texts = [prefixes]
    if names.in_text:
        texts.append(_beginning_with(by_name))
    none = {"type": "null"}
    beneath = {
        **_ONE_KEY,
        "properties": {name: {"anyOf": [options, none]} for name, options in by_name.items()},
        "patternProperties": {prefixes["pattern"]: {"type": ["object", "null"]}},
        "additionalProperties": False,
    }
    definitions[what] = {"anyOf": [{"enum": alone}, *texts, *forms, beneath]}


def _define_section(definitions: Schema, names: Names, entry: str) -> None:
    """A list of entries, any of them under a label, or a mapping from labels to entries."""
    labelled = {"type": "object", "minProperties": 1, "additionalProperties": _refer(entry)}
    items = {"anyOf": [_refer(entry), {**labelled, **_ONE_KEY}]}
    definitions[names.section] = {
        "anyOf": [{"type": "array", "minItems": 1, "items": items}, labelled]
    }


def _refer(definition: str) -> Schema:
    return {"$ref": f"#/$defs/{definition}"}


def _beginning_with(names: Iterable[str]) -> Schema:
    """Texts that begin with one of the names and a colon."""
    # `(?!)` matches nothing, where there are no names
    choices = "|".join(map(re.escape, names)) or "(?!)"
    return {"type": "string", "pattern": rf"^({choices}):.+$"}


def _model(definitions: Schema, model: type[BaseModel]) -> Schema:
    """The schema of a pydantic model; the models inside it become definitions."""
    schema: Schema = _resolve(model.model_json_schema())
    for key, text in describe_options(model).items():
        schema["properties"][key].setdefault("description", text)
    definitions |= schema.pop("$defs", {})
    return {**schema, "description": (model.__doc__ or "").partition("\n")[0]}


def _resolve(value: Any) -> Any:
    """With references to our definitions."""
    if isinstance(value, list):
        return [_resolve(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    resolved: Schema = {}
    if "$reference" in value:
        resolved |= _refer(value["$reference"])
    for key, entry in value.items():
        if key != "$reference":
            resolved[key] = _resolve(entry)
    return resolved
