"""Configured objects (metrics, explainers, searches, neighbourhoods) from plain values, as their annotations say.

Whatever is a dataclass with annotated options can be configured from a study file, also what plug-ins register later.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, PydanticUserError, TypeAdapter, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from holdfast import similarity
from holdfast.algorithms.searches.base import Search, searches
from holdfast.errors import ArgumentError
from holdfast.explainers import Background, Explainer, explainers
from holdfast.explainers import get as get_explainer
from holdfast.explainers.base import Baseline
from holdfast.neighbourhood import Neighbourhood, neighbourhoods
from holdfast.similarity import Similarity
from holdfast.study.file.backgrounds import WORDS, StoredBackground, stored_background
from holdfast.study.file.problems import (
    Collector,
    Keys,
    Problem,
    Wrong,
    from_argument,
    listed,
    nearest,
    raised,
    shown,
    unknown,
)

T = TypeVar("T")

#: how the distribution of a neighbourhood may be called for short
SHORT = {"normal": "truncated_normal"}


@dataclass(frozen=True)
class Named:
    """A name with options, and where in the file the two stand."""

    name: str
    options: Mapping[str, Any]
    at_name: Keys = ()
    at_options: Keys = ()


def named(raw: object, key: str, what: str, known: Sequence[str], scalar: str | None = None) -> Named:
    """`name`, `{name: {option: value}}` or `{key: name, option: value}`; with `scalar`, `{name: value of that option}`.

    Raises:
        Wrong: it is none of them, or the name is not `known`.

    >>> named({"block": {"starts": 9}}, "name", "a search", ["block"])
    Named(name='block', options={'starts': 9}, at_name=('block',), at_options=('block',))
    """
    found = _read(raw, key, what, known, scalar)
    if found.name not in known:
        raise Wrong(unknown(what, found.name, known, found.at_name))
    return found


def _read(raw: object, key: str, what: str, known: Sequence[str], scalar: str | None) -> Named:
    if isinstance(raw, str):
        return Named(raw, {})
    if not isinstance(raw, Mapping):
        raise Wrong(Problem((), f"{what} ({listed(known)})", shown(raw)))
    if key in raw:
        if not isinstance(raw[key], str):
            raise Wrong(Problem((key,), f"{what} ({listed(known)})", shown(raw[key])))
        return Named(raw[key], {k: v for k, v in raw.items() if k != key}, (key,))
    if len(raw) != 1:
        form = f"{what} with its options beneath it, or {key}: NAME beside them"
        near = next((n for n in (nearest(k, [key]) for k in raw) if n), None)
        raise Wrong(Problem((), form, shown(raw), near=near))
    ((name, options),) = raw.items()
    if options is None:
        options = {}
    elif not isinstance(options, Mapping):
        if scalar is None or name not in known:
            if name not in known:
                raise Wrong(unknown(what, name, known, (name,)))
            raise Wrong(Problem((name,), f"options of {name}, each with its value", shown(options)))
        options = {scalar: options}
    return Named(str(name), options, (name,), (name,))


def hints(kind: type) -> dict[str, Any]:
    """The annotations of a dataclass's options, by name."""
    names = [f.name for f in dataclasses.fields(kind) if f.init]
    try:
        found = get_type_hints(kind, include_extras=False)
    except NameError:  # a type that is imported for the type checker only
        found = {}
    return {name: found.get(name, Any) for name in names}


def configure(kind: type[T], name: str, raw: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> T:
    """An instance of the dataclass `kind`, called `name` in the file, with options from the file.

    Args:
        kind: the class.
        name: what the user calls it.
        raw: its options as plain values.
        defaults: ready values of options that `raw` does not have.

    Raises:
        Wrong: unknown options, values that do not fit their annotations, options that are missing, and whatever the
            class itself rejects.

    >>> from holdfast.explainers import IntegratedGradients
    >>> configure(IntegratedGradients, "integrated_gradients", {"steps": 4, "baseline": [0, 1]})
    IntegratedGradients(steps=4, baseline=(0.0, 1.0), method='gausslegendre')
    """
    annotations = hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind) if f.init}  # type: ignore[arg-type]
    problems, values = Collector(), dict(defaults or {})
    for key, value in raw.items():
        with problems.at():
            if key not in fields:
                expected = f"an option of {name} ({listed(fields)})" if fields else f"no options, as {name} has none"
                raise Wrong(Problem((key,), expected, shown(key), near=nearest(key, fields)))
        with problems.at(key):
            if key in fields:
                values[key] = convert(annotations[key], value, fields[key].default)
    for key, field in fields.items():
        if key not in values and key not in raw and _required(field):
            problems.problems.append(Problem((key,), described(annotations[key]), "nothing"))
    problems.finish()
    try:
        return kind(**values)
    except ArgumentError as error:
        raise Wrong(from_argument(error, fields)) from error
    except Exception as error:  # a class of a plug-in may raise anything
        raise Wrong(Problem((), f"options that {name} accepts", raised(error))) from error


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def convert(annotation: Any, raw: object, default: object = None) -> Any:
    """A plain value as what an option's annotation asks for.

    Raises:
        Wrong: it does not fit.

    >>> convert(float, 1), convert(tuple[float, ...], [1, 2]), convert(int | None, None)
    (1.0, (1.0, 2.0), None)
    """
    kinds = members(annotation)
    if raw is None and type(None) in kinds:
        return None
    for kind, converter in _CONVERTERS:
        if any(isinstance(member, type) and issubclass(member, kind) for member in kinds):
            return converter(raw, default)
    nested = [k for k in kinds if isinstance(k, type) and dataclasses.is_dataclass(k)]
    if isinstance(raw, Mapping) and len(nested) == 1:
        return configure(nested[0], nested[0].__name__, raw)
    return _checked(annotation, kinds, raw)


def members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation, unions and `Annotated` taken apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in members(part))
    return (annotation,)


@lru_cache(maxsize=512)
def _adapter(annotation: Any) -> TypeAdapter[Any] | None:
    try:
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
    except (PydanticUserError, NameError):  # no schema, or a class that sees to itself
        return None


def json_schema_of(annotation: Any) -> dict[str, Any] | None:
    """The JSON schema of an option's values; None where a study file cannot hold any."""
    adapter = _adapter(annotation)
    try:
        return None if adapter is None else adapter.json_schema()
    except PydanticInvalidForJsonSchema:
        return None


def _checked(annotation: Any, kinds: Sequence[Any], raw: object) -> Any:
    adapter = _adapter(annotation)
    expected = described(annotation)
    if adapter is None:
        raise Wrong(Problem((), f"{expected}, which a study file cannot hold", shown(raw)))
    try:
        # as JSON, strict means: whole numbers may stand for floats and lists for tuples, and nothing else is bent
        value = adapter.validate_json(json.dumps(raw, default=str))
    except ValidationError as error:
        choices = [str(c) for kind in kinds if get_origin(kind) is Literal for c in get_args(kind)]
        near = nearest(raw, choices) if isinstance(raw, str) else None
        raise Wrong(Problem((), expected, shown(raw), near=near)) from error
    lists = any(kind is list or get_origin(kind) is list for kind in kinds)
    return tuple(value) if isinstance(value, list) and not lists else value  # hashable, as configurations are


def described(annotation: Any) -> str:
    """What an option wants, in words.

    >>> described(int | None), described(Literal["a", "b"]), described(tuple[float, ...])
    ('a whole number or null', 'a or b', 'a list of numbers')
    """
    words = list(dict.fromkeys(_word(kind) for kind in members(annotation)))
    return " or ".join([w for w in words if w != "null"] + [w for w in words if w == "null"])


_WORDS: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "a text",
    type(None): "null",
    Any: "a value",
    dict: "a mapping",
    list: "a list",
    tuple: "a list",
}


def _word(kind: Any) -> str:
    if isinstance(kind, type) and get_origin(kind) is None:
        if kind in _WORDS:
            return _WORDS[kind]
        special = {
            Neighbourhood: "a neighbourhood such as {linf: 0.1}",
            Search: f"a search ({listed(searches)})",
            Similarity: f"a similarity ({listed(similarity.names())})",
            Explainer: f"an explainer ({listed(explainers)})",
            Background: WORDS,
        }
        return next((text for parent, text in special.items() if issubclass(kind, parent)), f"a {kind.__name__}")
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " or ".join(str(choice) for choice in inner)
    if origin is Callable or origin is types.FunctionType or str(kind).startswith("collections.abc.Callable"):
        return "a function"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return "a mapping"
    if isinstance(origin, type) and issubclass(origin, Sequence | set | frozenset) and inner:
        single = _word(inner[0]).removeprefix("a ")
        plain = {"whole number": "whole numbers", "number": "numbers", "text": "texts"}
        return f"a list of {plain.get(single, single)}"
    return _WORDS.get(kind, str(kind).rpartition(".")[2])


def neighbourhood_from(raw: object, default: object = None) -> Neighbourhood:
    """`{linf: 0.3}`, `{l2: {radius: 2, distribution: normal}}` or `{name: linf, radius: 0.3}` as a neighbourhood.

    Raises:
        Wrong: it is none.

    >>> neighbourhood_from({"l2": 2})
    L2Ball(radius=2.0, distribution='uniform', sigma=None)
    """
    if isinstance(raw, Neighbourhood):
        return raw
    found = named(raw, "name", "a neighbourhood", neighbourhoods.names(), scalar="radius")
    options = dict(found.options)
    if isinstance(options.get("distribution"), str):
        options["distribution"] = SHORT.get(options["distribution"], options["distribution"])
    with _under(found.at_options):
        return configure(neighbourhoods[found.name], found.name, options)


def search_from(raw: object, default: object = None) -> Search | str:
    """A search's name, as it is, or a configured search from `{block: {starts: 100}}`.

    Raises:
        Wrong: it is none.
    """
    if isinstance(raw, Search):
        return raw
    # a metric may know a word of its own, which is then its default (max_sensitivity: "sample")
    own = [default] if isinstance(default, str) and default not in searches else []
    if raw in own:
        return str(raw)
    found = named(raw, "name", "a search", [*own, *searches])
    if not found.options and not found.at_name:
        return found.name
    with _under(found.at_options):
        return configure(searches[found.name], found.name, found.options)


def similarity_from(raw: object, default: object = None) -> str:
    """`"ssim"`, `"ssim:window=11"` or `{ssim: {window: 11}}` in the form with a colon; lists with `+`.

    Raises:
        Wrong: it is none.

    >>> similarity_from({"ssim": {"window": 11, "gaussian": True}})
    'ssim:window=11,gaussian=true'
    >>> similarity_from({"lens_distance": {"k": [10, 100], "w": 1}})
    'lens_distance:k=10+100,w=1'
    """

    def spell(value: object) -> str:
        if isinstance(value, list | tuple):
            return "+".join(spell(entry) for entry in value)
        return str(value).lower() if isinstance(value, bool) else str(value)

    name = raw.partition(":")[0] if isinstance(raw, str) else raw
    found = named(name, "name", "a similarity", similarity.names())
    options = ",".join(f"{key}={spell(value)}" for key, value in found.options.items())
    text = raw if isinstance(raw, str) else found.name + (f":{options}" if options else "")
    try:
        return similarity.get(text).name
    except ArgumentError as error:
        known = error.expected.removeprefix("one of ").split(", ")
        near = nearest(str(error.got).strip("'"), known)
        expected = f"{error.argument} to be {error.expected}"
        raise Wrong(Problem(found.at_options, expected, str(error.got), near=near)) from error


def explainer_from(raw: object, default: object = None) -> Explainer:
    """`"saliency"`, `"integrated_gradients:steps=4"`, `{lrp: {epsilon: 1e-6}}` or `{explainer: lrp, ...}`.

    Raises:
        Wrong: it is none, or its options do not fit.
    """
    if isinstance(raw, str) and ":" in raw:
        named(raw.partition(":")[0].strip(), "explainer", "an explainer", explainers.names())
        try:
            return get_explainer(raw)
        except ArgumentError as error:
            known = error.expected.rpartition(": ")[2].split(", ")
            problem = Problem((), f"{error.argument} to be {error.expected}", str(error.got))
            raise Wrong(dataclasses.replace(problem, near=nearest(error.argument, known))) from error
    found = named(raw, "explainer", "an explainer", explainers.names())
    with _under(found.at_options):
        return configure(explainers[found.name], found.name, found.options)


def background_from(raw: object, default: object = None) -> Background | Baseline:
    """A number, one for each channel, or what names reference inputs: a path, `{data: NAME, samples: N}`.

    Raises:
        Wrong: it is none of them.

    >>> background_from([0, 1]), background_from("references.npy").written
    ((0.0, 1.0), {'path': 'references.npy'})
    """
    if isinstance(raw, Background):
        return raw
    if isinstance(raw, str | Mapping):
        return stored_background(raw)
    try:
        baseline: Baseline = convert(Baseline, raw)
    except Wrong as wrong:
        raise Wrong(Problem((), WORDS, shown(raw))) from wrong
    return baseline


@contextlib.contextmanager
def _under(path: Keys) -> Iterator[None]:
    """Problems inside are at this path."""
    try:
        yield
    except Wrong as wrong:
        raise Wrong(*wrong.under(*path)) from wrong.__cause__


_CONVERTERS: tuple[tuple[type, Callable[[object, object], Any]], ...] = (
    (Neighbourhood, neighbourhood_from),
    (Search, search_from),
    (Similarity, similarity_from),
    (Explainer, explainer_from),
    (Background, background_from),
)


def spelled(value: object) -> Any:
    """A configured value in the words of a study file.

    >>> from holdfast.neighbourhood import LinfBall
    >>> spelled(LinfBall(0.1))
    {'name': 'linf', 'radius': 0.1, 'distribution': 'uniform', 'sigma': None}
    """
    if isinstance(value, Similarity):
        return value.name
    if isinstance(value, Neighbourhood):
        norm = next((n for n in neighbourhoods if neighbourhoods[n] is type(value)), type(value).__name__)
        return {"name": norm, **spelled_options(value)}
    if isinstance(value, StoredBackground):
        return value.written
    if isinstance(value, Explainer):
        return {"explainer": value.name, **spelled_options(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        name = getattr(value, "name", None)
        return ({"name": name} if name else {}) | spelled_options(value)
    if isinstance(value, list | tuple):
        return [spelled(entry) for entry in value]
    if isinstance(value, Mapping):
        return {str(key): spelled(entry) for key, entry in value.items()}
    return value if isinstance(value, int | float | str | bool | None) else repr(value)


def spelled_options(value: Any) -> dict[str, Any]:
    """All options of a configured object, defaults included."""
    return {f.name: spelled(getattr(value, f.name)) for f in dataclasses.fields(value) if f.init}
