"""Configured objects (metrics, explainers, searches, neighbourhoods) from plain values, as their annotations say.

Whatever is a dataclass with annotated options can be configured from a study file, also what plug-ins register later:
a pydantic model is made of its options, which checks them and gives their JSON schema.
"""

from __future__ import annotations

import dataclasses
import json
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic.errors import PydanticInvalidForJsonSchema
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import PydanticOmit

from standfast import similarity
from standfast.algorithms.searches.base import Search, searches
from standfast.explainers import Background, Explainer
from standfast.explainers.base import Baseline
from standfast.metrics.base import plain
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import label_neighbourhoods
from standfast.records import TensorOption
from standfast.similarity import Similarity
from standfast.study.file.entries import as_tuple
from standfast.study.file.names import (
    EXPLAINERS,
    NEIGHBOURHOODS,
    SEARCHES,
    TASKS,
    Names,
    read_entry,
)
from standfast.study.file.problems import (
    Entry,
    StudyFieldError,
    describe_error,
    errors_at,
    raise_all,
    reject,
    show,
    with_article,
)
from standfast.study.file.references import BackgroundEntry, StoredBackground, find_name_in_file
from standfast.tasks import Task

T = TypeVar("T")
#: the alternatives of an annotation
Kinds = tuple[Any, ...]


class OptionsEntry(Entry):
    """The options of a class, each under its name as an alias: any word may be the name of an option."""

    def given(self) -> dict[str, Any]:
        """The options that the file has, converted."""
        fields = type(self).model_fields.items()
        return {
            str(field.alias): getattr(self, name)
            for name, field in fields
            if name in self.model_fields_set
        }


@cache
def options_model(kind: type[Any], name: str) -> type[OptionsEntry]:
    """The pydantic model of the options of the dataclass `kind`, which the file calls `name`."""
    notes = describe_options(kind)
    fields = {}
    annotations = annotations_of(kind)
    if dataclasses.is_dataclass(kind):
        options = dataclasses.fields(kind)
    else:
        options = ()
    # numbered, as pydantic forbids some words as names of fields; the alias has the true name
    for number, field in enumerate(option for option in options if option.init):
        default: dict[str, Any] = {}
        if field.default is not dataclasses.MISSING:
            default = {"default": to_plain(field.default)}
        elif field.default_factory is not dataclasses.MISSING:
            default = {"default_factory": field.default_factory}
        value = _type_of_option(annotations.get(field.name, Any), field.default)
        fields[f"option_{number}"] = (
            value,
            Field(alias=field.name, description=notes.get(field.name), **default),
        )
    about = (kind.__doc__ or "").strip().partition("\n")[0]
    return create_model(name, __base__=OptionsEntry, __doc__=about, **fields)  # type: ignore[call-overload, no-any-return]


def annotations_of(kind: Any) -> dict[str, Any]:
    """The annotations of a class or function; none where a type is imported for the type checker only."""
    try:
        return get_type_hints(kind)
    except NameError:
        return {}


def configure(kind: type[T], name: str, raw: Mapping[str, Any]) -> T:
    """An instance of the dataclass `kind`, called `name` in the file, with options from the file.

    Args:
        kind: the class.
        name: what the user calls it.
        raw: its options as plain values; neighbourhoods, searches and reference inputs may be there already.

    Raises:
        StudyFieldError: unknown options, values that do not fit their annotations, options that are missing, and
            whatever the class itself rejects.

    >>> from standfast.explainers import IntegratedGradients
    >>> configure(IntegratedGradients, "integrated_gradients", {"steps": 4, "baseline": [0, 1]})
    IntegratedGradients(steps=4, baseline=(0.0, 1.0))
    """
    model = options_model(kind, name)  # type: ignore[arg-type]
    with errors_at():
        values = model.model_validate(raw).given()
    return make(kind, name, values, model.known())


def make(
    kind: Callable[..., T], name: str, values: Mapping[str, Any], options_of_kind: Sequence[str]
) -> T:
    """What a class or function, called `name`, makes of options; errors may be about `options_of_kind`."""
    try:
        with errors_at(keys=options_of_kind):
            return kind(**values)
    except StudyFieldError:
        raise
    except Exception as error:  # a class of another package may raise anything
        raise reject(f"options that {name} accepts", describe_error(error)) from error


def _members(annotation: Any) -> tuple[Any, ...]:
    """The alternatives of an annotation, unions and `Annotated` taken apart."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return _members(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return tuple(member for part in get_args(annotation) for member in _members(part))
    return (annotation,)


def _type_of_option(annotation: Any, default: object = None) -> Any:
    """What pydantic checks an option with: its annotation, in which special things are read as a file has them."""
    kinds = _members(annotation)
    special = _find_special(kinds)
    null = [{"type": "null"}] * (type(None) in kinds)
    if special is not None:
        # a metric's word for its own search, such as "sample", is no registered search
        own_words = [{"const": word} for word in _own_words(default) if special.kind is Search]
        schema = {
            "title": special.title,
            "anyOf": [{"$reference": special.reference}, *own_words, *null],
        }

        def read(raw: object) -> Any:
            # a neighbourhood has to be of a kind that the option takes, which `read` checks
            ready = isinstance(raw, special.kind) and special.kind is not Neighbourhood
            if ready or (raw is None and null):
                return raw
            return special.read(raw, default, kinds)

        return Annotated[Any, PlainValidator(read), WithJsonSchema(schema)]
    items = []
    for kind in kinds:
        if get_origin(kind) is tuple and get_args(kind):
            items.append(get_args(kind)[0])
    if items and _find_special(_members(items[0])):
        several: Any = tuple[_type_of_option(items[0]), ...]  # type: ignore[misc]
        return Annotated[several, BeforeValidator(as_tuple), Field(min_length=1)]
    schema = json_schema_of(annotation) or {"not": {}}  # a study file cannot hold it
    return Annotated[Any, PlainValidator(partial(_convert, annotation)), WithJsonSchema(schema)]


def _find_special(kinds: Kinds) -> _Special | None:
    """The first of the alternatives that has a form of its own in a file."""
    classes = [kind for kind in kinds if isinstance(kind, type)]
    for special in _SPECIAL:
        if any(issubclass(kind, special.kind) for kind in classes):
            return special
    return None


class _Schemas(GenerateJsonSchema):
    """Schemas without what a study file cannot hold, such as tensors."""

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> Any:
        """Leave it out of the alternatives."""
        raise PydanticOmit


@cache
def _adapt(annotation: Any) -> TypeAdapter[Any] | None:
    """What checks values of an annotation; None for classes that pydantic knows nothing of."""
    try:
        # strict, so that a text never becomes a number
        return TypeAdapter(annotation, config=ConfigDict(arbitrary_types_allowed=True, strict=True))
    except (PydanticUserError, NameError):  # no schema, or a class that sees to itself
        return None


def json_schema_of(annotation: Any) -> dict[str, Any] | None:
    """The JSON schema of what a study file can hold of an annotation; None if that is nothing."""
    kinds = _members(annotation)
    kept = tuple(
        kind for kind in kinds if not (isinstance(kind, type) and issubclass(kind, TensorOption))
    )
    if kept != kinds:
        annotation = Union[kept]  # noqa: UP007
    adapter = _adapt(annotation)
    try:
        if adapter is None:
            return None
        return adapter.json_schema(schema_generator=_Schemas)
    except (PydanticInvalidForJsonSchema, PydanticOmit):
        return None


def _convert(annotation: Any, raw: object) -> Any:
    adapter = _adapt(annotation)
    if adapter is None:
        raise reject(
            f"a {getattr(annotation, '__name__', annotation)}, which a study file cannot hold",
            show(raw),
        )
    # as JSON, strict means: whole numbers may stand for floats and lists for tuples, and nothing else is converted
    value = adapter.validate_json(json.dumps(raw, default=str))
    lists = any(kind is list or get_origin(kind) is list for kind in _members(annotation))
    # hashable, as configurations are
    if isinstance(value, list) and not lists:
        return tuple(value)
    return value


# Options that have a name or a form of their own in a file


def read_configured(raw: object, names: Names) -> Any:
    """One of the registered classes, by its name or with options.

    >>> read_configured({"l2": 2}, NEIGHBOURHOODS)
    L2Ball(radius=2.0, distribution='uniform', sigma=None)
    """
    named = read_entry(raw, names)
    with errors_at(*named.path):
        return configure(names.registry[named.name], named.name, named.options)


def neighbourhood_from(
    raw: object, default: object = None, kinds: Kinds = (Neighbourhood,)
) -> Neighbourhood:
    """`{linf: 0.3}` or `{l2: {radius: 2, distribution: uniform}}` as a neighbourhood of one of these kinds."""
    if isinstance(raw, Neighbourhood):
        neighbourhood: Any = raw
    else:
        neighbourhood = read_configured(raw, NEIGHBOURHOODS)
    if not isinstance(neighbourhood, kinds):
        words = " or ".join(with_article(kind.__name__.lower()) for kind in kinds)
        raise reject(words, with_article(type(neighbourhood).__name__))
    return neighbourhood  # type: ignore[no-any-return]


def neighbourhoods_from(raw: Sequence[object]) -> dict[str, Neighbourhood]:
    """A list of neighbourhoods, each evaluated in turn, by their labels; a single one needs no label.

    >>> list(neighbourhoods_from([{"linf": 0.1}, {"l2": 2}])), list(neighbourhoods_from([{"linf": 0.1}]))
    (['linf 0.1', 'l2 2'], [''])
    """
    errors: list[StudyFieldError] = []
    index_of: dict[Neighbourhood, int] = {}
    for index, entry in enumerate(raw):
        with errors_at(index, into=errors):
            value = neighbourhood_from(entry)
            if value in index_of:
                raise reject(
                    "neighbourhoods that differ",
                    f"the same as number {index_of[value] + 1} of the list",
                )
            index_of[value] = index
    raise_all(errors)
    if not index_of:
        raise reject("at least one neighbourhood", "an empty list")
    return dict(zip(label_neighbourhoods(list(index_of)), index_of, strict=True))


def search_from(raw: object, default: object = None, kinds: Kinds = ()) -> Search | str:
    """A search's name, as it is, or a configured search from `{block: {starts: 100}}`."""
    own_words = _own_words(default)
    # words stay texts, since the metric knows what they mean for it
    if isinstance(raw, str) and raw in [*own_words, *searches]:
        return raw
    search: Search = read_configured(raw, dataclasses.replace(SEARCHES, also=tuple(own_words)))
    return search


def _own_words(default: object) -> list[str]:
    """A metric may know a word instead of a search, which is then its default (max_sensitivity: "sample")."""
    if isinstance(default, str) and default not in searches:
        return [default]
    return []


def similarity_from(raw: object, default: object = None, kinds: Kinds = ()) -> str:
    """`"ssim"` or `"ssim:window=11"`, as it is."""
    if not isinstance(raw, str):
        raise reject("a similarity as text, such as ssim:window=11", show(raw))
    return similarity.get(raw).name


def background_from(
    raw: object, default: object = None, kinds: Kinds = ()
) -> Background | Baseline:
    """A number, one for each channel, or what names reference inputs: a path, `{data: NAME, samples: N}`.

    >>> background_from([0, 1]), background_from("references.npy").written
    ((0.0, 1.0), {'path': 'references.npy'})
    """
    if raw == "reference":  # that of the model, for explainers that take it
        return raw  # type: ignore[return-value]
    if isinstance(raw, str | Mapping):
        content = {"path": raw} if isinstance(raw, str) else raw
        return StoredBackground(BackgroundEntry.model_validate(content))
    try:
        baseline: Baseline = _convert(Baseline, raw)
    except ValidationError as error:
        expected = "a number, one for each channel, a file of reference inputs, or {data: NAME, samples: N}"
        raise reject(expected, show(raw)) from error
    return baseline


class _Special(NamedTuple):
    """Options of a class that have a form of their own: how they are read, and their JSON schema."""

    kind: type
    read: Callable[[object, object, Kinds], Any]
    reference: str
    title: str


_SPECIAL = (
    _Special(
        Neighbourhood, neighbourhood_from, "neighbourhood", "a neighbourhood such as {linf: 0.1}"
    ),
    _Special(Search, search_from, "search", "a search"),
    _Special(Similarity, similarity_from, "similarity", "a similarity"),
    _Special(
        Explainer, lambda raw, *_: read_configured(raw, EXPLAINERS), "explainer", "an explainer"
    ),
    _Special(Task, lambda raw, *_: read_configured(raw, TASKS), "task", "a task"),
    _Special(
        Background,
        background_from,
        "background",
        "a number, one for each channel, or reference inputs",
    ),
)


# Words


def describe_options(kind: Callable[..., Any]) -> dict[str, str]:
    """What a docstring says of the options of a class or function, under `Args:`; of several at once, the same.

    >>> from standfast.explainers import Saliency
    >>> describe_options(Saliency)["absolute"][:20]
    'take absolute values'
    """
    texts: dict[str, str] = {}
    # from the base on, so that a class can describe an option of its base in its own words
    for base in reversed(getattr(kind, "__mro__", (kind,))):
        # pages of our docstrings are indented by four, so options stand at eight and their second lines deeper
        text = f"{base.__doc__ or ''}\n"
        section = re.search(r"^ *Args:\n((?:(?: {8,}.*)?\n)*)", text, re.MULTILINE)
        text = section[1] if section else ""
        entries = re.findall(r"^ {8}(\w[\w, ]*): +(.+(?:\n {9,}.+)*)", text, re.MULTILINE)
        for names, meaning in entries:
            for name in names.split(","):
                texts[name.strip()] = " ".join(meaning.split())
    elsewhere = re.search(r"Arguments are those of `(\w+)`", kind.__doc__ or "")
    if elsewhere:
        module = sys.modules[kind.__module__]
        texts |= describe_options(getattr(module, elsewhere[1], object))
    return texts


# Back to plain values


def to_plain(value: object) -> Any:
    """A configured value as a study file would have it.

    >>> from standfast.neighbourhoods import LinfBall
    >>> to_plain(LinfBall(0.1))
    {'linf': {'radius': 0.1, 'distribution': 'uniform', 'sigma': None}}
    """
    return plain(value, _write)


def _write(value: Any) -> Any:
    if isinstance(value, StoredBackground):
        return value.written
    name = find_name_in_file(value)
    if name:
        return {name: plain_options(value)}
    return plain_options(value)


def plain_options(value: Any) -> dict[str, Any]:
    """All options of a configured object, defaults included."""
    options = {}
    for f in dataclasses.fields(value):
        if f.init:
            options[f.name] = to_plain(getattr(value, f.name))
    return options
