"""`standfast explain NAME`: what a thing with a name is, its options, how it is used, and its source, as plain text."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any, get_type_hints

from standfast.cli.kinds import DEFAULT_RADIUS, KINDS, Kind, docstring_of, first_part, get_kind
from standfast.errors import ArgumentError, MissingExtraError, StandfastError, UnknownNameError
from standfast.neighbourhoods import LinfBall, Neighbourhood
from standfast.neighbourhoods.naming import find_first_option
from standfast.registry import Registry
from standfast.study.file.options import describe_options, options_model, plain_options, to_plain
from standfast.study.file.problems import describe

#: how a thing of a kind is used, with its name as {name} and the same with options as {call} (Python), {text} (in
#: one text), {entry} (in a study file); for neighbourhoods also the class as {title} and its first option as {value}
_USES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "metrics": (
        ("Python", "standfast.metrics.get({call})"),
        ("study file", "metrics: [{entry}]"),
    ),
    "explainers": (
        ("Python", "standfast.explainers.get({call})"),
        ("study file", "explainers: [{entry}]"),
    ),
    "similarities": (
        ("Python", "standfast.similarity.get({text!r})"),
        ("study file", "metrics: [{{worst_case: {{similarity: {text!r}}}}}]"),
    ),
    "neighbourhoods": (
        ("Python", "standfast.neighbourhoods.{title}({value})"),
        ("study file", "neighbourhood: {entry}"),
    ),
    "searches": (
        ("Python", "standfast.metrics.WorstCase(standfast.LinfBall(0.1), search={text!r})"),
        ("study file", "metrics: [{{worst_case: {{search: {text!r}}}}}]"),
    ),
    "attacks": (
        ("Python", "standfast.metrics.CEval(attack={text!r})"),
        ("study file", "metrics: [{{c_eval: {{attack: {text!r}}}}}]"),
    ),
    "attribution_attacks": (
        ("Python", "standfast.metrics.AttributionAttack(standfast.LinfBall(0.1), attack={text!r})"),
        ("study file", "metrics: [{{attribution_attack: {{attack: {text!r}}}}}]"),
    ),
    "datasets": (
        ("Python", "standfast.data.load({name!r})"),
        ("study file", "data: [{entry}]"),
    ),
    "models": (
        ("Python", "standfast.zoo.load({name!r})"),
        ("study file", "models: [{entry}]"),
    ),
    "architectures": (
        ("command line", "standfast train --model {name} --data mnist"),
        ("study file", "models: [{{architecture: {name}, weights: model.safetensors}}]"),
    ),
    "schemes": (("command line", "standfast train --scheme {text}"),),
}


def find_name(name: str, word: str | None = None) -> str:
    """The name as `standfast list` shows it, where it differs in capitals, hyphens, spaces or underscores only.

    >>> find_name("AOPc"), find_name("WorstCase"), find_name("Integrated gradients"), find_name("nothing")
    ('aopc', 'worst_case', 'integrated_gradients', 'nothing')
    """
    registries = [KINDS[each].load() for each in (KINDS if word is None or word not in KINDS else [word])]
    if any(name in registry for registry in registries):
        return name
    known = {own for registry in registries for own in registry if _simplify(own) == _simplify(name)}
    return known.pop() if len(known) == 1 else name


def _simplify(name: str) -> str:
    """A name without capitals, spaces, hyphens and underscores, for comparison."""
    return re.sub(r"[\s_-]", "", name).casefold()


def find_kinds(name: str, word: str | None = None) -> list[str]:
    """The kinds of a name, by the words of `standfast list`; most often one, and only `word` where it is given.

    Raises:
        UnknownNameError: no such name, with the nearest one.
        ArgumentError: it is the word for a kind, or nothing has this name.
    """
    if word is not None:
        kind = get_kind(word)
        if not _knows(kind.load(), name):
            raise UnknownNameError(kind.one, name, kind.load())
        return [word]
    if name in KINDS:
        raise ArgumentError("name", "the name of a single thing", f"{name!r}; standfast list {name} shows them")
    found = [word for word, kind in KINDS.items() if _knows(kind.load(), name)]
    if ":" in name and "metrics" in found:  # metrics are known at once, explainers when they are used
        found = ["metrics"]
    if not found:
        names = {known for kind in KINDS.values() for known in kind.load()}
        # hundreds of names do not help: the message has only the nearest
        near = UnknownNameError("name", name, names).args[0].partition("(did you mean ")[2].rstrip(")?")
        hint = f" (did you mean {near}?)" if near else ""
        raise ArgumentError("name", "a name that standfast list shows", f"{name!r}{hint}")
    return found


def _knows(registry: Registry[Any], name: str) -> bool:
    if not registry.is_from_package(name):
        return name in registry
    try:
        entry = registry[name]
        if isinstance(entry, partial):
            entry()  # an explainer: only its options can be wrong then
    except UnknownNameError:  # the package has no such thing of this kind
        return False
    except (StandfastError, TypeError) as error:
        if isinstance(error, MissingExtraError):
            raise
    return True


def explain_name(name: str, word: str | None = None, width: int = 100) -> str:
    """The text of `standfast explain`, in lines of at most `width` characters where words allow it.

    Things of several kinds with one name follow each other, as `random`, which is an explainer and a search.

    Raises:
        UnknownNameError, ArgumentError: as `find_kinds`.

    >>> print(explain_name("saliency").partition("\\n\\nSimonyan")[0])
    saliency (explainer)
    <BLANKLINE>
    The gradient of the target's logit: |d f_t(x) / d x|.
    """
    name = find_name(name, word)
    kinds = find_kinds(name, word)
    texts = [_explain_one(name, kind, width) for kind in kinds]
    if len(kinds) == 1:
        return texts[0]
    names = " and ".join(f"{KINDS[kind].one} (--kind {kind})" for kind in kinds)
    return f"\n\n{'-' * width}\n\n".join([f"{name} is the name of {len(kinds)} things: {names}.", *texts])


def _explain_one(name: str, word: str, width: int) -> str:
    """The text about the thing of one kind."""
    kind = KINDS[word]
    entry = kind.load()[name]
    parts = [f"{name} ({kind.one})", *_say(name, kind, entry, width)]
    if needs := kind.needs(name, entry):
        parts.append(f"Needs: {needs}.")
    if direction := _direction(entry):
        parts.append(f"A {direction} value is better.")
    options = [] if word == "models" else list(_options(name, entry, width))  # a trained model has none
    if options:
        parts.append("\n".join(["Options:", *options]))
    uses = _uses(word, name, entry)
    if uses:
        parts.append("\n".join(["Example:", *uses]))
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


def _direction(entry: Any) -> str:
    """`higher` or `lower` for a metric by default, else empty."""
    from standfast.metrics.base import Metric

    if not (isinstance(entry, type) and issubclass(entry, Metric)):
        return ""
    example = _defaults(entry)
    return example.direction or "" if example is not None else ""


def _defaults(kind: Any) -> Any:
    """An instance with all options as they are by default, and an example for those that must be given."""
    options = {f.name: f for f in dataclasses.fields(kind) if f.init}
    required = [name for name, f in options.items() if f.default is f.default_factory is dataclasses.MISSING]
    examples = {"neighbourhood": LinfBall(0.1), "radius": 0.1}
    if not set(required) <= set(examples):
        return None
    return kind(**{name: examples[name] for name in required})


def _options(name: str, entry: Any, width: int) -> Iterator[str]:
    for option, (default, words, meaning) in _describe_options(name, entry).items():
        missing = "must be given"
        if option == "neighbourhood":
            missing = f"must be given; in evaluate by default {DEFAULT_RADIUS}"
        head = f"  {option}" + (f" = {default}" if default else f" ({missing})")
        text = ": ".join(filter(None, (words, meaning)))
        yield head
        if text:
            indent = " " * 6
            yield textwrap.fill(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False)


def _describe_options(name: str, entry: Any) -> dict[str, tuple[str, str, str]]:
    """Of each option the default as a text (empty if there is none), its type in words, and what it means."""
    if isinstance(entry, type) and dataclasses.is_dataclass(entry):
        found = {}
        model = options_model(entry, name)
        for field, annotation in zip(model.model_fields.values(), model.known().values(), strict=True):
            default = "" if field.is_required() else _write(field.get_default(call_default_factory=True))
            found[str(field.alias)] = default, describe(annotation), (field.description or "").replace("`", "")
        shared = [field.name for field in dataclasses.fields(entry) if field.kw_only]  # such as preset: last
        return dict(sorted(found.items(), key=lambda item: item[0] in shared))
    function = getattr(entry, "func", entry)
    if not callable(function):
        return {}
    ready = {
        "self",
        "split",
        "download",
        "name",
        "method",
    }  # what the name stands for, or whoever calls it gives
    notes, hints = describe_options(function), _type_hints(function)
    found = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ready or parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        default = "" if parameter.default is parameter.empty else _write(parameter.default)
        words = describe(hints[parameter.name]) if parameter.name in hints else ""
        found[parameter.name] = default, words, notes.get(parameter.name, "").replace("`", "")
    return found


def _type_hints(function: Any) -> dict[str, Any]:
    try:
        return get_type_hints(vars(function)["__init__"] if isinstance(function, type) else function)
    except NameError:  # a type that is imported for the type checker only
        return {}


def _write(value: object) -> str:
    """A value as in a study file."""
    plain = to_plain(value)
    return plain if isinstance(plain, str) and plain else json.dumps(plain, ensure_ascii=False)


#: of options of neighbourhoods that must be given: as in Python, and as in a study file
_EXAMPLES = {
    "radius": ("0.1", "0.1"),
    "name": ("'motion_blur'", "motion_blur"),
    "parts": (
        "(standfast.neighbourhoods.Rotation(10), standfast.neighbourhoods.Brightness(0.1))",
        "[{rotation: 10}, {brightness: 0.1}]",
    ),
    "changes": (
        "{'income': '2%', 'age': {'by': 3, 'step': 1}}, columns=('income', 'age')",
        "{changes: {income: 2%, age: {by: 3, step: 1}}, columns: [income, age]}",
    ),
    "embedding": (
        "model.embedding.weight, {4: (5, 6), 8: (9,)}",
        "{embedding: embedding.npy, table: {4: [5, 6], 8: [9]}}",
    ),
}


def _use_neighbourhood(name: str, kind: type[Neighbourhood]) -> dict[str, str]:
    """The class with its first option, in Python and in a study file."""
    first = find_first_option(kind)
    default = next((f.default for f in dataclasses.fields(kind) if f.name == first), dataclasses.MISSING)
    if default is not dataclasses.MISSING:
        numbers = [f"{number:g}" for number in (default if isinstance(default, tuple) else [default])]
        text = ", ".join(numbers)
        value, own = (f"({text})", f"[{text}]") if len(numbers) > 1 else (text, text)
    else:
        value, own = _EXAMPLES.get(str(first), ("...", "..."))
    return {"title": kind.__name__, "value": value, "entry": f"{{{_quote(name)}: {own}}}"}


def _uses(word: str, name: str, entry: Any) -> list[str]:
    """A line for each way to name the thing, with its first option where that has a plain default."""
    options: dict[str, Any] = {}
    if isinstance(entry, type) and dataclasses.is_dataclass(entry):
        example = _defaults(entry)
        given = {} if example is None else plain_options(example)
        needed = [f.name for f in dataclasses.fields(entry) if f.default is f.default_factory is dataclasses.MISSING]
        first = [key for key, value in given.items() if isinstance(value, int | float | str) and key != "preset"][:1]
        options = {key: given[key] for key in [*needed, *first] if key in given}
    call = ", ".join([repr(name), *(f"{key}={_as_python(value)}" for key, value in options.items())])
    short = {key: _shorten(value) for key, value in options.items()}
    entry_text = f"{{{_quote(name)}: {{{', '.join(f'{k}: {_as_yaml(v)}' for k, v in short.items())}}}}}"
    plain = {key: value for key, value in options.items() if not isinstance(value, dict)}
    text = f"{name}:{','.join(f'{key}={value}' for key, value in plain.items())}" if plain else name
    forms = {"name": name, "call": call, "entry": entry_text if options else _quote(name), "text": text}
    if word == "neighbourhoods":
        forms |= _use_neighbourhood(name, entry)
    return [f"  {where + ':':14}{form.format(**forms)}" for where, form in _USES[word]]


def _shorten(value: Any) -> Any:
    return {value["name"]: value["radius"]} if isinstance(value, dict) and "radius" in value else value


def _as_python(value: Any) -> str:
    if isinstance(value, dict) and "radius" in value:
        return f"standfast.LinfBall({value['radius']})"
    return repr(value)


def _as_yaml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_as_yaml(each)}" for key, each in value.items()) + "}"
    return value if isinstance(value, str) else json.dumps(value)


def _quote(name: str) -> str:
    return f'"{name}"' if ":" in name else name
