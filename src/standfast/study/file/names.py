"""How things are named in a study file: one grammar for data, models, explainers, metrics, neighbourhoods, searches.

An entry is one of

    saliency                                     a registered name, or one of a package, `captum:Saliency`
    integrated_gradients:steps=4                 with options in a text (explainers, metrics and searches)
    {integrated_gradients: {steps: 4}}           with options beneath the name
    {function: "mymodule:explain"}               the user's own; `path` and `architecture` are such keys, too

and a section is a list of entries, of which any may be `{label: entry}`, or a mapping from labels to entries. What has
none of these forms is a `StudyFieldError`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from standfast import data, zoo
from standfast.algorithms.searches.base import searches
from standfast.errors import suggest_name
from standfast.explainers import explainers
from standfast.metrics.base import metrics
from standfast.neighbourhoods import neighbourhoods
from standfast.neighbourhoods.naming import find_first_option, join_label
from standfast.registry import Registry, parse_options
from standfast.study.file.problems import (
    Keys,
    StudyFieldError,
    errors_at,
    join_names,
    raise_all,
    reject,
    show,
    with_article,
)
from standfast.tasks import tasks
from standfast.zoo.hub import HUBS

T = TypeVar("T")


@dataclass(frozen=True)
class Names:
    """What can be named in one place of the file.

    Attributes:
        section: what several of them are called, and the section of the file if there is one.
        registry: the names that are registered, and packages with names of their own.
        prefixes: what other names begin with, before a colon: archives and hubs.
        forms: keys of entries that have no name, but say where they come from.
        in_text: options may stand in the text of a name.
        scalar: for a class, the option that a value alone stands for; None where a value needs the name of its option.
        also: further words that stand for one.
    """

    section: str
    registry: Registry[Any]
    prefixes: tuple[str, ...] = ()
    forms: tuple[str, ...] = ()
    in_text: bool = False
    scalar: Callable[[Any], str | None] | None = None
    also: tuple[str, ...] = ()

    @property
    def one(self) -> str:
        """What one of them is called, with its article."""
        return with_article(self.registry.kind)

    @property
    def listed(self) -> list[str]:
        """The names that can be listed."""
        return [*self.also, *self.registry]

    def knows(self, name: object) -> bool:
        """Whether a name is known."""
        if not isinstance(name, str):
            return False
        prefix, colon, _ = name.partition(":")
        return (
            name in self.registry
            or self.registry.is_from_package(name)
            or bool(colon and prefix in self.prefixes)
        )

    def make_unknown_error(self, name: object, *path: str) -> StudyFieldError:
        """The error for a name that is not."""
        looks_like_file = re.search(r"[/.]", str(name)) is not None
        note = "files stand under path:" if "path" in self.forms and looks_like_file else ""
        near = suggest_name(name, [*self.listed, *self.forms])
        expected = f"{self.one} ({join_names(self.listed)})"
        return reject(expected, f"{show(name)}{near}", *path, note=note)

    def describes(self, raw: object) -> bool:
        """Whether a value is an entry, also one with something wrong in it, and no options without a name."""
        if not isinstance(raw, Mapping):
            return isinstance(raw, str)
        return any(form in raw for form in self.forms) or (
            len(raw) == 1 and self.knows(next(iter(raw)))
        )


_FORMS = ("path", "function", "architecture")
DATA = Names("data", data.datasets, tuple(data.ARCHIVES), (*_FORMS[:2], "table"))
MODELS = Names("models", zoo.models, tuple(HUBS), (*_FORMS, "transformers"))
EXPLAINERS = Names("explainers", explainers, forms=("function",), in_text=True)
CONTROLS = replace(EXPLAINERS, section="controls")
METRICS = Names("metrics", metrics, forms=("function",), in_text=True)
SEARCHES = Names("searches", searches, in_text=True)
TASKS = Names("tasks", tasks, in_text=True, scalar=find_first_option)
NEIGHBOURHOODS = Names("neighbourhoods", neighbourhoods, scalar=find_first_option)


@dataclass(frozen=True)
class NamedEntry:
    """An entry that has been read.

    Attributes:
        names: what can be named.
        name: the name, or the value of the key `form`.
        options: plain values; of an entry without a name, all of it.
        path: where the options stand, relative to the entry.
        form: the key that says where an entry without a name comes from.
    """

    names: Names = field(repr=False)
    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    path: Keys = ()
    form: str = ""


def read_entry(raw: object, names: Names) -> NamedEntry:
    """An entry in any of its forms.

    >>> read_entry({"block": {"starts": 9}}, SEARCHES)
    NamedEntry(name='block', options={'starts': 9}, path=('block',), form='')
    """
    if isinstance(raw, str):
        return _read_text(raw, names)
    content = raw if isinstance(raw, Mapping) else {}
    used_forms = [form for form in names.forms if content.get(form) is not None]
    if len(used_forms) > 1:
        raise reject(
            f"{names.one} with exactly one of {', '.join(names.forms)}",
            f"{' and '.join(used_forms)} at once",
        )
    if used_forms:
        form = used_forms[0]
        return NamedEntry(names, str(content[form]), content, form=form)
    if len(content) == 1:
        ((name, value),) = content.items()
        if not names.knows(name):
            raise names.make_unknown_error(name, name)
        first = None
        if names.scalar:
            first = names.scalar(names.registry[name])
        if isinstance(value, Mapping | None):
            return NamedEntry(names, name, value or {}, (name,))
        if first is None:
            raise reject(f"options of {name}, each with its value", show(value), name)
        return NamedEntry(names, name, {first: value}, (name,))
    hint = next(
        filter(None, (suggest_name(key, [*names.forms, *names.listed]) for key in content)), ""
    )
    forms = ""
    if names.forms:
        forms = f", or one with {', '.join(names.forms)}"
    raise reject(
        f"{names.one}: its name, or its options beneath its name{forms}", f"{show(raw)}{hint}"
    )


def _read_text(text: str, names: Names) -> NamedEntry:
    if names.in_text:
        # an option must follow the colon, as names of packages and archives have colons, too
        match = re.fullmatch(r"(.*?):(\w+\s*=.*)", text, re.DOTALL)
    else:
        match = None
    if match:
        name, options = match[1].strip(), match[2]
    else:
        name, options = text, ""
    if not names.knows(name):
        raise names.make_unknown_error(name)
    return NamedEntry(names, name, parse_options(options, names.one))


@dataclass(frozen=True)
class CheckedEntry(Generic[T]):
    """An entry of a section, checked.

    Attributes:
        value: what it stands for: a data or model entry, an explainer, a metric, or a function to be imported.
        plain: the entry in the form `{name: {option: value}}`, defaults included.
        name: as in the file.
        path: where its options stand in the file.
        label: in the file, if it has one there.
        variant: what tells it from others of the same entry, where one of its options has several values in turn.
        given: the names of the options that the file sets.
    """

    value: T
    plain: Mapping[str, Any]
    name: str
    path: Keys = ()
    label: str | None = None
    variant: str = ""
    given: frozenset[str] = frozenset()


def read_section(
    raw: object,
    names: Names,
    build: Callable[[NamedEntry], Mapping[str, tuple[T, Mapping[str, Any]]]],
    labels: Callable[[Sequence[CheckedEntry[T]]], Sequence[str]],
) -> dict[str, CheckedEntry[T]]:
    """The entries of a list or a mapping, by label.

    Args:
        raw: as in the file.
        names: what can be named.
        build: makes of an entry what it stands for, and its plain form: one, or several, each with a few words.
        labels: for all entries, of those that have none in the file.
    """
    if not raw:
        raise reject(f"at least one {names.registry.kind}", show(raw))
    if not isinstance(raw, Mapping | list | tuple):
        expected = f"a list of {names.section}, or a mapping from labels to {names.section}"
        raise reject(expected, show(raw))
    errors: list[StudyFieldError] = []
    checked_entries: list[CheckedEntry[T]] = []
    for label, entry, path in _list_items(raw, names):
        # errors are collected, so that a file shows all of its problems at once
        with errors_at(*path, into=errors):
            if label is not None and (not isinstance(label, str) or not label):
                raise reject("a label as text", show(label))
            named = read_entry(entry, names)
            # errors within the options need the place of the options
            path = (*path, *named.path)
            with errors_at(*named.path):
                for words, (value, plain) in build(named).items():
                    joined_label = None
                    if label is not None:
                        joined_label = join_label(label, words)
                    checked = CheckedEntry(
                        value=value,
                        plain=plain,
                        name=named.name,
                        path=(names.section, *path),
                        label=joined_label,
                        variant=words,
                        given=frozenset(named.options),
                    )
                    checked_entries.append(checked)
    raise_all(errors)
    return _by_label(checked_entries, labels(checked_entries), names)


def _list_items(
    raw: Mapping[Any, object] | Sequence[object], names: Names
) -> list[tuple[Any, object, Keys]]:
    """The label of each entry, which may be None, the entry, and where it stands in its section."""
    if isinstance(raw, Mapping):
        return [(label, entry, (label,)) for label, entry in raw.items()]
    return [_split_label(item, index, names) for index, item in enumerate(raw)]


def _split_label(item: object, index: int, names: Names) -> tuple[Any, object, Keys]:
    """An item of a list, which may be `{label: entry}`."""
    if isinstance(item, Mapping) and len(item) == 1:
        ((key, entry),) = item.items()
        # a known name with options beneath it looks the same as a label, and is taken for the name
        if key not in names.forms and not names.knows(key) and names.describes(entry):
            return key, entry, (index, key)
    return None, item, (index,)


def _by_label(
    entries: Sequence[CheckedEntry[T]], own_labels: Sequence[str], names: Names
) -> dict[str, CheckedEntry[T]]:
    """The entries by label; no label and no entry without one may be there twice."""
    labelled: dict[str, CheckedEntry[T]] = {}
    for entry, name in zip(entries, own_labels, strict=True):
        label = entry.label or name
        twin = labelled.get(label)
        if twin is None and entry.label is None:
            unlabelled = [other for other in labelled.values() if other.label is None]
            twin = next((other for other in unlabelled if other.plain == entry.plain), None)
        if twin is not None:
            expected = f"{names.section} that differ, or a label of its own for each"
            raise reject(
                expected,
                f"{entry.label or entry.name!r}, as {names.section}[{twin.path[1]}]",
                *entry.path[1:],
            )
        labelled[label] = entry
    return labelled
