"""The study file as a JSON schema, from which editors complete and check it as it is written."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args, get_origin

from holdfast import data, similarity, zoo
from holdfast.algorithms.searches.base import Search, searches
from holdfast.explainers import Background, Explainer, explainers
from holdfast.metrics.base import metrics
from holdfast.neighbourhood import Neighbourhood, neighbourhoods
from holdfast.similarity import Similarity
from holdfast.study.file.options import SHORT, described, hints, json_schema_of, members, spelled
from holdfast.study.file.spec import Study

Schema = dict[str, Any]

#: names of metrics of other packages
PEER = rf"^({'|'.join(metrics.packages)}):\w+$"
_ELSEWHERE = rf"^({'|'.join(explainers.packages)}):.+$"
_REFERENCE: Schema = {"type": "string", "pattern": r"^[\w.]+:[\w.]+$"}
_SPECIAL: tuple[tuple[type, str], ...] = (
    (Neighbourhood, "neighbourhood"),
    (Search, "search"),
    (Similarity, "similarity"),
    (Explainer, "explainer"),
    (Background, "background"),
)


def json_schema() -> Schema:
    """The schema (JSON Schema 2020-12), with the names that are registered now: plug-ins included once imported.

    >>> sorted(json_schema()["properties"])[:4]
    ['data', 'device', 'executor', 'explainers']
    """
    schema = _without_titles(Study.model_json_schema())
    definitions: Schema = schema["$defs"]
    _name_or_section(definitions, "DataEntry", _names(data.names(), data.prefixes()))
    _name_or_section(definitions, "ModelEntry", _names(zoo.names(), zoo.hubs()))
    _name_or_section(definitions, "ExecutorEntry", {"enum": ["local", "ray", "slurm"]})
    known = {name: explainers[name] for name in explainers}
    definitions |= {
        "neighbourhood": _neighbourhood(definitions),
        "similarity": _similarity(),
        "search": _named(definitions, "search", "name", {name: searches[name] for name in searches}),
        "background": _background(),
        "explainer": _named(definitions, "explainer", "explainer", known),
        "explainers": _section("explainer", known),
        "metric": _named(definitions, "metric", "metric", {name: metrics[name] for name in metrics}),
        "metrics": _section("metric", {name: metrics[name] for name in metrics}),
    }
    definitions["explainer"]["anyOf"] += [_function(), *_elsewhere()]
    definitions["metric"]["anyOf"] += _peers()
    definitions["metrics"]["anyOf"][1]["patternProperties"] = {PEER: {"type": ["object", "null", "string"]}}
    schema["properties"]["executor"].pop("default")
    for section in ("neighbourhood", "explainers", "metrics"):
        schema["properties"][section]["$ref"] = f"#/$defs/{section}"
    about = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "holdfast study"}
    return {**about, **schema}


def _without_titles(value: Any) -> Any:
    """pydantic's titles repeat the names of the keys."""
    if isinstance(value, list):
        return [_without_titles(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    # under "properties" keys are names of the file, "title" among them
    kept = {k: v for k, v in value.items() if k != "title" or not isinstance(v, str)}
    return {k: _without_titles(v) for k, v in kept.items()}


def _names(known: Iterable[str], prefixes: Iterable[str]) -> Schema:
    """Names that are known, and those of places that have names of their own: `ucr:GunPoint:test`."""
    return {"anyOf": [{"enum": list(known)}, {"type": "string", "pattern": f"^({'|'.join(prefixes)}):.+$"}]}


def _name_or_section(definitions: Schema, name: str, names: Schema) -> None:
    """Where a section may be written as a name alone."""
    section = definitions[name]
    section["properties"]["name"] = {**names, "description": section["properties"]["name"]["description"]}
    definitions[name] = {"anyOf": [names, section], "description": section.pop("description", "")}


def _neighbourhood(definitions: Schema) -> Schema:
    kinds = {name: neighbourhoods[name] for name in neighbourhoods}
    form = _named(
        definitions,
        "neighbourhood",
        "name",
        kinds,
        scalar={"type": "number", "minimum": 0, "description": "The radius."},
    )
    for name in kinds:
        distribution = definitions[f"neighbourhood.{name}"]["properties"]["distribution"]
        distribution["enum"] = [*distribution["enum"], *SHORT]
    return {**form, "description": "Where perturbed inputs may lie, such as {linf: 0.1}."}


def _similarity() -> Schema:
    names = similarity.names()
    forms = [_single(name, {"type": "object"}) for name in names]
    options = {"type": "string", "pattern": rf"^({'|'.join(map(re.escape, names))}):.+$"}
    return {"description": "A similarity of explanations.", "anyOf": [{"enum": names}, options, *forms]}


def _background() -> Schema:
    count = {"type": "integer", "minimum": 1, "description": "Take this many from the start."}
    path = {"type": "string", "description": "As of data, relative to the study file."}
    known = _names(data.names(), data.prefixes())
    named = {"properties": {"data": known, "samples": count}, "required": ["data", "samples"]}
    stored = {"properties": {"path": path, "samples": count}, "required": ["path"]}
    forms = [{"type": "object", **form, "additionalProperties": False} for form in (stored, named)]
    numbers = [{"type": "number"}, {"type": "array", "minItems": 1, "items": {"type": "number"}}]
    return {"description": "Reference inputs of an explainer.", "anyOf": [*numbers, {"type": "string"}, *forms]}


def _named(definitions: Schema, what: str, key: str, kinds: Mapping[str, type], scalar: Schema | None = None) -> Schema:
    """A name, a name with options (or one number) beneath it, or options with the name among them."""
    forms: list[Schema] = [] if scalar else [{"enum": list(kinds)}]
    if key == "explainer":
        forms.append({"type": "string", "pattern": rf"^({'|'.join(map(re.escape, kinds))}):.+$"})
    for name, kind in kinds.items():
        definitions[f"{what}.{name}"] = _options(kind, key, name)
        reference = {"$ref": f"#/$defs/{what}.{name}"}
        forms.append(_single(name, {"anyOf": [reference, scalar or {"type": "null"}]}))
        forms.append({"allOf": [reference], "required": [key]})
    return {"anyOf": forms}


def _section(key: str, kinds: Mapping[str, type]) -> Schema:
    """A list, or a mapping from labels."""
    single = {"$ref": f"#/$defs/{key}"}
    own = {name: {"anyOf": [{"$ref": f"#/$defs/{key}.{name}"}, {"type": "null"}, single]} for name in kinds}
    labelled = {"type": "object", "minProperties": 1, "properties": own, "additionalProperties": single}
    if key == "explainer":
        labelled["patternProperties"] = {_ELSEWHERE: {"type": ["object", "null"]}}
    return {"anyOf": [{"type": "array", "minItems": 1, "items": single}, labelled]}


def _function() -> Schema:
    properties = {
        "function": {**_REFERENCE, "description": "module:function of (module, inputs, targets), or an Explainer."},
        "differentiable": {"type": "boolean", "default": False},
        "rows_per_input": {"type": "integer", "minimum": 1, "default": 1},
        "options": {"type": "object", "description": "Of a class of explainers."},
    }
    return {"type": "object", "properties": properties, "required": ["function"], "additionalProperties": False}


def _peers() -> list[Schema]:
    """Metrics of other packages, whose names and options are known where these are installed."""
    name = {"type": "string", "pattern": PEER, "description": "A metric of Captum or Quantus."}
    options = {"type": ["object", "null"], "description": "Arguments of its function or constructor."}
    single = {"type": "object", "patternProperties": {PEER: options}, "additionalProperties": False}
    flat = {"type": "object", "properties": {"metric": name}, "required": ["metric"]}
    return [name, {**single, "minProperties": 1, "maxProperties": 1}, flat]


def _elsewhere() -> list[Schema]:
    """Explainers of other packages: their options are theirs."""
    name = {"type": "string", "pattern": _ELSEWHERE, "description": "Of another package, as package:Class."}
    options = {"type": ["object", "null"], "description": "Of its constructor or its call, and of the adapter."}
    single = {"patternProperties": {_ELSEWHERE: options}, "minProperties": 1, "maxProperties": 1}
    return [
        name,
        {"type": "object", **single, "additionalProperties": False},
        {"type": "object", "properties": {"explainer": name}, "required": ["explainer"]},
    ]


def _single(name: str, inner: Schema) -> Schema:
    return {"type": "object", "properties": {name: inner}, "required": [name], "additionalProperties": False}


def _options(kind: type, key: str | None, name: str) -> Schema:
    """The options of a dataclass: types and defaults from its fields, descriptions from its docstring."""
    notes, annotations, needed = descriptions(kind), hints(kind), []
    properties: Schema = {key: {"const": name}} if key else {}
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        option = _value(annotations[field.name], field.default)
        if field.default is not dataclasses.MISSING:
            option["default"] = spelled(field.default)
        elif field.default_factory is dataclasses.MISSING and field.name != "neighbourhood":  # that may stand above
            needed.append(field.name)
        if field.name in notes:
            option["description"] = notes[field.name]
        properties[field.name] = option
    lines = (kind.__doc__ or "").strip().splitlines()
    schema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**schema, "required": needed, "description": lines[0] if lines else ""}


def _value(annotation: Any, default: object) -> Schema:
    kinds = members(annotation)
    for kind, name in _SPECIAL:
        if any(isinstance(member, type) and issubclass(member, kind) for member in kinds):
            own = (
                [{"const": default}] if kind is Search and isinstance(default, str) and default not in searches else []
            )
            nothing = [{"type": "null"}] if type(None) in kinds else []
            return {"anyOf": [{"$ref": f"#/$defs/{name}"}, *own, *nothing]}
    if len(kinds) == 1 and get_origin(kinds[0]) is Literal:
        return {"enum": list(get_args(kinds[0]))}
    nested = [kind for kind in kinds if isinstance(kind, type) and dataclasses.is_dataclass(kind)]
    if nested:
        return {"anyOf": [_options(kind, None, kind.__name__) for kind in nested]}
    found = json_schema_of(annotation)
    return {"description": described(annotation)} if found is None else dict(_without_titles(found))


def descriptions(kind: type) -> dict[str, str]:
    """What a class's docstring says of its options, under `Args:`; of several at once, the same for each.

    >>> from holdfast.explainers import Saliency
    >>> descriptions(Saliency)["absolute"][:20]
    'take absolute values'
    """
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        found |= _from_docstring(base.__doc__ or "")
    elsewhere = re.search(r"Arguments are those of `(\w+)`", kind.__doc__ or "")
    if elsewhere:
        found |= descriptions(getattr(sys.modules[kind.__module__], elsewhere[1], object))
    return found


def _from_docstring(text: str) -> dict[str, str]:
    section = re.search(r"^ *Args:\n((?:(?: {8,}.*)?\n)*)", text + "\n", re.MULTILINE)
    entries = re.findall(r"^ {8}(\w[\w, ]*): +(.+(?:\n {9,}.+)*)", section[1] if section else "", re.MULTILINE)
    return {name.strip(): " ".join(said.split()) for names, said in entries for name in names.split(",")}
