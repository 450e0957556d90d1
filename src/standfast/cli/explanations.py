"""`standfast explain NAME`: what a thing with a name is, its options, how it is used, and its source, as plain text."""

from __future__ import annotations

import inspect
import json
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import partial
from typing import Any

from standfast.cli.kinds import KINDS, Kind, docstring_of, find_needs, first_part
from standfast.errors import (
    ArgumentError,
    MissingExtraError,
    StandfastError,
    UnknownNameError,
    suggest_name,
)
from standfast.registry import Registry
from standfast.study.file.options import describe_options, to_plain

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
        raise ArgumentError(
            "name", "the name of a single thing", f"{name!r}; standfast list {name} shows them"
        )
    kinds = []
    for word, kind in KINDS.items():
        if _knows(kind.load(), name):
            kinds.append(word)
    # metrics are known at once, explainers when they are used
    if ":" in name and "metrics" in kinds:
        kinds = ["metrics"]
    if not kinds:
        all_names = {listed for kind in KINDS.values() for listed in kind.load()}
        near = suggest_name(name, all_names)
        raise ArgumentError("name", "a name that standfast list shows", f"{name!r}{near}")
    return kinds


def _knows(registry: Registry[Any], name: str) -> bool:
    if not registry.is_from_package(name):
        return name in registry
    try:
        entry = registry[name]
        if isinstance(entry, partial):
            entry()  # an explainer: only its options can be wrong then
    except (StandfastError, TypeError) as error:
        if isinstance(error, MissingExtraError):
            raise
        # else the package has no such thing of this kind
        return not isinstance(error, UnknownNameError)
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
    texts = [explain_kind(name, KINDS[word], width) for word in find_kinds(name)]
    return f"\n\n{'-' * width}\n\n".join(texts)


def explain_kind(name: str, kind: Kind, width: int = 100) -> str:
    """The text about the thing of one kind that has this name."""
    entry = kind.load()[name]
    texts = [kind.describe(name, entry)]
    # the method is in the docstring of the module
    if kind.one == "metric" and isinstance(entry, type):
        texts.append(inspect.cleandoc(sys.modules[entry.__module__].__doc__ or ""))
    elif kind.one == "model":
        texts.append(docstring_of(entry))
    parts = [f"{name} ({kind.one})"]
    for text in texts:
        parts += _paragraphs(first_part(text), width)
    if needs := find_needs(kind, entry):
        parts.append(f"Needs: {needs}.")
    # a trained model has none
    if kind.one != "model":
        options = list(_list_options(entry, width))
    else:
        options = []
    if options:
        parts.append("\n".join(["Options:", *options]))
    usual_options = ""
    if kind.one == "task":
        usual_options = getattr(entry, "usual", "")
    spelled = f"{name}:{usual_options}" if usual_options else name
    names = {"name": spelled, "title": getattr(entry, "__name__", "")}
    uses = []
    for form in (kind.python, kind.study):
        if form:
            uses.append(f"  {form.format(**names)}")
    parts.append("\n".join(["Example:", *uses]))
    if bibtex := getattr(entry, "bibtex", ""):
        parts.append(f"Source:\n\n{textwrap.indent(bibtex.strip(), '  ')}")
    return "\n\n".join(parts)


def _paragraphs(text: str, width: int) -> Iterator[str]:
    """Paragraphs in lines of the given width, without backticks; formulas and lists keep their own lines."""
    for paragraph in filter(None, re.split(r"\n\s*\n", text.replace("`", ""))):
        lines = paragraph.splitlines()
        # a formula or a list would lose its lines
        if lines[0].startswith(" ") or any(line.startswith(("- ", "    ")) for line in lines):
            yield "\n".join(lines)
        else:
            yield textwrap.fill(
                " ".join(paragraph.split()), width, break_long_words=False, break_on_hyphens=False
            )


def _list_options(entry: Any, width: int) -> Iterator[str]:
    """Each option with its type and its default, and what it means."""
    # a registry may hold a function with some arguments set
    function = getattr(entry, "func", entry)
    if not callable(function):
        return
    notes = describe_options(function)
    fields = getattr(function, "__dataclass_fields__", {})
    for option in inspect.signature(function).parameters.values():
        # a study gives these itself, unless they are options of a dataclass
        comes_from_study = option.name in _GIVEN and option.name not in fields
        if comes_from_study or option.kind in (option.VAR_KEYWORD, option.VAR_POSITIONAL):
            continue
        has_factory = option.name in fields and callable(fields[option.name].default_factory)
        if has_factory:
            default = fields[option.name].default_factory()
        else:
            default = option.default
        kind = ""
        if isinstance(option.annotation, str):
            kind = f": {option.annotation}"
        if default is option.empty:
            value = " (must be given)"
        else:
            value = f" = {_write(default)}"
        yield f"  {option.name}{kind}{value}"
        meaning = notes.get(option.name, "").replace("`", "")
        if meaning:
            yield textwrap.fill(meaning, width, initial_indent=" " * 6, subsequent_indent=" " * 6)


def _write(value: object) -> str:
    """A value as in a study file."""
    plain = to_plain(value)
    if isinstance(plain, str) and plain:
        return plain
    return json.dumps(plain, ensure_ascii=False)
