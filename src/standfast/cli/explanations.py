"""`standfast explain NAME`: what a thing with a name is, its options, how it is used, and its source, as plain text."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Annotated, Any, get_type_hints

from standfast.cli.kinds import DEFAULT_RADIUS, KINDS, Kind, docstring_of, find_needs, first_part
from standfast.errors import ArgumentError, MissingExtraError, StandfastError, UnknownNameError, suggest_name
from standfast.neighbourhoods import LinfBall
from standfast.neighbourhoods.naming import find_first_option
from standfast.registry import Registry
from standfast.study.file.options import describe_options, json_schema_of, options_model, plain_options, to_plain

#: values of options that must be given, for examples of neighbourhoods in a study file
_EXAMPLES = {
    "radius": "0.1",
    "name": "motion_blur",
    "parts": "[{rotation: 10}, {brightness: 0.1}]",
    "changes": "{changes: {income: 2%, age: {by: 3, step: 1}}, columns: [income, age]}",
    "embedding": "{embedding: embedding.npy, table: {4: [5, 6], 8: [9]}}",
}
#: arguments of functions that their name stands for, or that whoever calls them gives
_GIVEN = {"a", "b", "self", "split", "download", "name", "method"}


def find_kinds(name: str) -> list[str]:
    """The kinds of a name, by the words of `standfast list`; most often one.

    Raises:
        ArgumentError: it is the word for a kind, or nothing has this name.

    >>> find_kinds("saliency"), find_kinds("random")
    (['explainers'], ['explainers', 'searches'])
    """
    if name in KINDS:
        raise ArgumentError("name", "the name of a single thing", f"{name!r}; standfast list {name} shows them")
    found = [word for word, kind in KINDS.items() if _knows(kind.load(), name)]
    if ":" in name and "metrics" in found:  # metrics are known at once, explainers when they are used
        found = ["metrics"]
    if not found:
        near = suggest_name(name, {known for kind in KINDS.values() for known in kind.load()})
        raise ArgumentError("name", "a name that standfast list shows", f"{name!r}{near}")
    return found


def _knows(registry: Registry[Any], name: str) -> bool:
    if not registry.is_from_package(name):
        return name in registry
    try:
        entry = registry[name]
        if isinstance(entry, partial):
            entry()  # an explainer: only its options can be wrong then
    except (UnknownNameError, MissingExtraError) as error:
        if isinstance(error, MissingExtraError):
            raise
        return False  # the package has no such thing of this kind
    except (StandfastError, TypeError):
        pass
    return True


def explain_name(name: str, width: int = 100) -> str:
    """The text of `standfast explain`, in lines of at most `width` characters where words allow it.

    Things of several kinds with one name follow each other, as `random`, which is an explainer and a search.

    Raises:
        ArgumentError: as `find_kinds`.

    >>> print(explain_name("saliency").partition("\\n\\nSimonyan")[0])
    saliency (explainer)
    <BLANKLINE>
    The gradient of the target's logit: |d f_t(x) / d x|.
    """
    return f"\n\n{'-' * width}\n\n".join(explain_kind(name, KINDS[word], width) for word in find_kinds(name))


def explain_kind(name: str, kind: Kind, width: int = 100) -> str:
    """The text about the thing of one kind that has this name."""
    entry = kind.load()[name]
    parts = [f"{name} ({kind.one})", *_say(name, kind, entry, width)]
    if needs := find_needs(kind, entry):
        parts.append(f"Needs: {needs}.")
    example = _make_example(entry)
    if direction := getattr(example, "direction", None):  # of a metric
        parts.append(f"A {direction} value is better.")
    options = [] if kind.one == "model" else list(_list_options(name, entry, width))  # a trained model has none
    if options:
        parts.append("\n".join(["Options:", *options]))
    parts.append("\n".join(["Example:", *_list_uses(name, kind, entry, example)]))
    if getattr(entry, "bibtex", ""):
        parts.append(f"Source:\n\n{textwrap.indent(entry.bibtex.strip(), '  ')}")
    return "\n\n".join(parts)


def _say(name: str, kind: Kind, entry: Any, width: int) -> Iterator[str]:
    """What a thing is, in paragraphs."""
    yield from _paragraphs(first_part(kind.describe(name, entry)), width)
    if kind.one == "metric" and isinstance(entry, type):  # the method is in the docstring of the module
        module = sys.modules[entry.__module__].__doc__ or ""
        yield from _paragraphs(first_part(inspect.cleandoc(module)), width)
    elif kind.one == "model":
        from standfast.zoo import card

        yield "\n".join(f"  {key}: {value}" for key, value in card(name).items() if not isinstance(value, dict))
        yield from _paragraphs(first_part(docstring_of(entry)), width)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Paragraphs in lines of the given width, without backticks; formulas and lists keep their own lines."""
    for paragraph in filter(None, re.split(r"\n\s*\n", text.replace("`", ""))):
        lines = paragraph.splitlines()
        if lines[0].startswith(" ") or any(line.startswith(("- ", "    ")) for line in lines):
            yield "\n".join(lines)
        else:
            yield textwrap.fill(" ".join(paragraph.split()), width, break_long_words=False, break_on_hyphens=False)


def _make_example(entry: Any) -> Any:
    """An instance of a dataclass with its defaults, and a ball where it must have a neighbourhood; else None."""
    if not (isinstance(entry, type) and dataclasses.is_dataclass(entry)):
        return None
    required = [f.name for f in dataclasses.fields(entry) if f.init and f.default is f.default_factory]
    examples = {"neighbourhood": LinfBall(0.1), "radius": 0.1}
    return entry(**{name: examples[name] for name in required}) if set(required) <= set(examples) else None


def _list_options(name: str, entry: Any, width: int) -> Iterator[str]:
    for option, default, words, meaning in _describe_options(name, entry):
        missing = "must be given"
        if option == "neighbourhood":
            missing = f"must be given; in evaluate by default {DEFAULT_RADIUS}"
        yield f"  {option}" + (f" = {default}" if default else f" ({missing})")
        text = ": ".join(filter(None, (words, meaning.replace("`", ""))))
        if text:
            yield textwrap.fill(text, width, initial_indent=" " * 6, subsequent_indent=" " * 6, break_long_words=False)


def _describe_options(name: str, entry: Any) -> list[tuple[str, str, str, str]]:
    """Of each option its name, the default as a text (empty if there is none), its type in words, and what it means."""
    if isinstance(entry, type) and dataclasses.is_dataclass(entry):
        model = options_model(entry, name)
        found = []
        for field in model.model_fields.values():
            default = "" if field.is_required() else _write(field.get_default(call_default_factory=True))
            words = _put_in_words(json_schema_of(Annotated[field.annotation, *field.metadata]))
            found.append((str(field.alias), default, words, field.description or ""))
        shared = [field.name for field in dataclasses.fields(entry) if field.kw_only]  # such as preset: last
        return sorted(found, key=lambda option: option[0] in shared)
    function = getattr(entry, "func", entry)
    if not callable(function):
        return []
    hints: dict[str, Any] = {}
    with contextlib.suppress(NameError):  # of a type that is imported for the type checker only
        hints = get_type_hints(vars(function)["__init__"] if isinstance(function, type) else function)
    notes, found = describe_options(function), []
    for option in inspect.signature(function).parameters.values():
        if option.name not in _GIVEN and option.kind not in (option.VAR_KEYWORD, option.VAR_POSITIONAL):
            default = "" if option.default is option.empty else _write(option.default)
            words = _put_in_words(json_schema_of(hints[option.name])) if option.name in hints else ""
            found.append((option.name, default, words, notes.get(option.name, "")))
    return found


_WORDS = {
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "string": "a text",
    "array": "a list",
    "object": "a mapping",
}


def _put_in_words(schema: Mapping[str, Any] | None) -> str:
    """What a JSON schema accepts: its title if it has one; empty for none.

    >>> _put_in_words({"anyOf": [{"type": "integer"}, {"type": "null"}]}), _put_in_words({"enum": ["a", 2]})
    ('a whole number or null', 'a or 2')
    """
    found = schema or {"title": ""}
    if "title" in found:
        return str(found["title"])
    if "anyOf" in found:
        return " or ".join(dict.fromkeys(map(_put_in_words, found["anyOf"])))
    if "enum" in found or "const" in found:
        return " or ".join(map(str, found.get("enum", [found.get("const")])))
    kind = str(found.get("type", "value"))
    return _WORDS.get(kind, kind)


def _write(value: object) -> str:
    """A value as in a study file."""
    plain = to_plain(value)
    return plain if isinstance(plain, str) and plain else json.dumps(plain, ensure_ascii=False)


def _list_uses(name: str, kind: Kind, entry: Any, example: Any) -> Iterator[str]:
    """A line for each way to name the thing, with its first option where that has a plain default."""
    given = {} if example is None else plain_options(example)
    options = [f"{k}={v}" for k, v in given.items() if isinstance(v, int | float | str) and k != "preset"]
    words = {"name": name, "text": ":".join([name, *options[:1]])}
    if kind.one == "neighbourhood":
        first = find_first_option(entry)
        default = next((f.default for f in dataclasses.fields(entry) if f.name == first), dataclasses.MISSING)
        value = _EXAMPLES.get(str(first), "...") if default is dataclasses.MISSING else json.dumps(to_plain(default))
        words |= {"title": entry.__name__, "value": value}
    where = "command line" if kind.python.startswith("standfast train") else "Python"
    for place, form in ((where, kind.python), ("study file", kind.study)):
        if form:
            yield f"  {place + ':':14}{form.format(**words)}"
