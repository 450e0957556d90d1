"""How things are named in a study file: one grammar for data, models, explainers, metrics, neighbourhoods, searches.

An entry is one of

    saliency                                     a registered name, or one of a package, `captum:Saliency`
    integrated_gradients:steps=4                 with options in a text (explainers, metrics and searches)
    {integrated_gradients: {steps: 4}}           with options beneath the name
    {name: integrated_gradients, steps: 4}       with options beside the name
    {function: "mymodule:explain"}               the user's own; `path` and `architecture` are such keys, too

and a section is a list of entries, of which any may be `{label: entry}`, or a mapping from labels to entries. Where a
label is a registered name itself, its options alone are an entry. What has none of these forms is a `Misfit`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from standfast import data, similarity, zoo
from standfast.algorithms.searches.base import searches
from standfast.explainers import explainers
from standfast.metrics.base import metrics
from standfast.neighbourhoods import neighbourhoods
from standfast.neighbourhoods.naming import find_first_option, join_label
from standfast.registry import Registry, parse_options
from standfast.study.file.problems import (
    Collector,
    Keys,
    Misfit,
    errors_of,
    find_nearest,
    join_names,
    make_unknown_error,
    misfit,
    show,
    with_article,
)

T = TypeVar("T")


@dataclass(frozen=True)
class Names:
    """What can be named in one place of the file.

    Attributes:
        section: what several of them are called, and the section of the file if there is one.
        registry: the names that are registered, and packages with names of their own.
        prefixes: what other names begin with, before a colon: archives and hubs.
        sources: keys beside `name` that say where an entry comes from.
        in_text: options may stand in the text of a name.
        scalar: for a class, the option that a value alone stands for; None where a value needs the name of its option.
        also: further words that stand for one.
    """

    section: str
    registry: Registry[Any]
    prefixes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
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

    @property
    def keys(self) -> tuple[str, ...]:
        """Those that say what an entry is."""
        return ("name", *self.sources)

    def knows(self, name: object) -> bool:
        """Whether a name is known."""
        if not isinstance(name, str):
            return False
        prefix, colon, _ = name.partition(":")
        return name in self.registry or self.registry.is_from_package(name) or bool(colon and prefix in self.prefixes)

    def find(self, named: ParsedEntry) -> Any:
        """The class of a name; errors of a plug-in or of another package are at the name."""
        with errors_of(self.one, "name"):
            return self.registry[named.name]

    def make_unknown_error(self, name: object, *path: str | int) -> Misfit:
        """The error for a name that is not."""
        note = "files stand under path:" if "path" in self.sources and re.search(r"[/.]", str(name)) else ""
        return make_unknown_error(self.one, name, self.listed, *path, note=note)

    def describes(self, raw: object) -> bool:
        """Whether a mapping says by itself what it is: it has such a key, or is a name with its options."""
        if not isinstance(raw, Mapping):
            return False
        return (len(raw) == 1 and self.knows(next(iter(raw)))) or any(raw.get(key) is not None for key in self.keys)


_FORMS = ("path", "function", "architecture")
DATA = Names("data", data.datasets, tuple(data.prefixes()), _FORMS[:2])
MODELS = Names("models", zoo.models, tuple(zoo.hubs()), _FORMS)
EXPLAINERS = Names("explainers", explainers, sources=("function",), in_text=True)
METRICS = Names("metrics", metrics, sources=("function",), in_text=True)
SEARCHES = Names("searches", searches, in_text=True)
SIMILARITIES = Names("similarities", similarity.similarities, in_text=True)
NEIGHBOURHOODS = Names("neighbourhoods", neighbourhoods, scalar=find_first_option)


@dataclass(frozen=True)
class ParsedEntry:
    """An entry that has been read: what it names, its options, and where the two stand in the file.

    Attributes:
        names: what can be named.
        name: the value of the key `source`.
        options: plain values.
        source: `"name"`, or another key that says where the entry comes from.
        at_name, at_options: relative to the entry.
        moved: places of options that are not where their names say: a value alone, or one of several.
        turn: of several values that the study has for an option, the one that is meant.
    """

    names: Names = field(repr=False)
    name: Any
    options: Mapping[str, Any] = field(default_factory=dict)
    source: str = "name"
    at_name: Keys = ()
    at_options: Keys = ()
    moved: Mapping[str | int, Keys] = field(default_factory=dict, repr=False)
    turn: int | None = field(default=None, repr=False)

    def choose(self, option: str, index: int) -> ParsedEntry:
        """The same with one of the values that an option has in turn."""
        options = {**self.options, option: self.options[option][index]}
        return replace(self, options=options, moved={**self.moved, option: (option, index)})

    def place(self, path: Keys) -> Keys:
        """Where a problem of `{source: name, **options}` stands in the file.

        >>> read_entry({"lrp": {"epsilon": -1}}, EXPLAINERS).place(("epsilon",))
        ('lrp', 'epsilon')
        """
        if path[:1] == (self.source,) and self.source not in self.options:
            return self.at_name
        return (*self.at_options, *self.moved.get(path[0], path[:1]), *path[1:]) if path else self.at_options


def read_entry(raw: object, names: Names, label: str | None = None) -> ParsedEntry:
    """An entry in any of its forms; `label` is the one it stands under.

    >>> read_entry({"block": {"starts": 9}}, SEARCHES)
    ParsedEntry(name='block', options={'starts': 9}, source='name', at_name=('block',), at_options=('block',))
    """
    if isinstance(raw, str):
        return _read_text(raw, names)
    if not isinstance(raw, Mapping):
        raise misfit(f"{names.one} ({join_names(names.listed)})", show(raw))
    given = [key for key in names.keys if raw.get(key) is not None]
    if len(given) > 1:
        raise misfit(f"{names.one} with exactly one of {', '.join(names.keys)}", f"{' and '.join(given)} at once")
    if given:
        (source,) = given
        if source == "name" and not names.knows(raw["name"]):
            raise names.make_unknown_error(raw["name"], "name")
        return ParsedEntry(
            names, raw[source], {key: value for key, value in raw.items() if key != source}, source, (source,)
        )
    if label is not None and names.knows(label) and not names.describes(raw):
        return ParsedEntry(names, label, raw)
    if len(raw) == 1:
        ((name, options),) = raw.items()
        if names.knows(name):
            if isinstance(options, Mapping | None):
                return ParsedEntry(names, name, options or {}, "name", (name,), (name,))
            option = names.scalar(names.registry[name]) if names.scalar else None
            if option is None:
                raise misfit(f"options of {name}, each with its value", show(options), name)
            return ParsedEntry(names, name, {option: options}, "name", (name,), (name,), {option: ()})
        if isinstance(options, Mapping | None) or names.scalar:
            raise names.make_unknown_error(name, name)
    keys = f"one of the keys {', '.join(names.keys)}" if names.sources else "the key name"
    hints = (find_nearest(label, names.listed), *(find_nearest(key, [*names.keys, *names.listed]) for key in raw))
    form = f"{names.one} with its options beneath it, or with {keys}"
    raise misfit(form, show(raw), near=next(filter(None, hints), None))


def _read_text(text: str, names: Names) -> ParsedEntry:
    match = re.fullmatch(r"(.*?):(\w+\s*=.*)", text, re.DOTALL) if names.in_text else None
    name, options = (match[1].strip(), match[2]) if match else (text, "")
    if not names.knows(name):
        raise names.make_unknown_error(name)
    return ParsedEntry(names, name, parse_options(options, names.one))


@dataclass(frozen=True)
class CheckedEntry(Generic[T]):
    """An entry of a section, checked.

    Attributes:
        value: what it stands for: a data or model entry, an explainer, a metric, or a function to be imported.
        plain: the entry in the form `{name: ..., option: value}`, defaults included.
        named: how it was written.
        path: where it stands in its section.
        label: in the file, if it has one there.
        variant: what tells it from others of the same entry, where one of its options has several values in turn.
    """

    value: T
    plain: Mapping[str, Any]
    named: ParsedEntry
    path: Keys = ()
    label: str | None = None
    variant: str = ""

    def place(self, path: Keys) -> Keys:
        """Where a problem of the entry stands in its section."""
        return (*self.path, *self.named.place(path))


def read_section(
    raw: object,
    names: Names,
    build: Callable[[ParsedEntry], tuple[T, Mapping[str, Any]]],
    labels: Callable[[Sequence[CheckedEntry[T]]], Sequence[str]],
    sweep: Callable[[ParsedEntry], Mapping[str, ParsedEntry]] = lambda named: {"": named},
) -> dict[str, CheckedEntry[T]]:
    """The entries of a list or a mapping, by label.

    Args:
        raw: as in the file.
        names: what can be named.
        build: makes of an entry what it stands for, and its plain form.
        labels: for all entries, of those that have none in the file.
        sweep: makes several of an entry, each with a few words, where an option has several values in turn.
    """
    if raw is None or (isinstance(raw, Mapping | list | tuple) and not raw):
        raise misfit(f"at least one {names.registry.kind}", show(raw))
    if not isinstance(raw, Mapping | list | tuple):
        words = f"a list of {names.section}, or a mapping from labels to {names.section}"
        raise misfit(words, show(raw), near=find_nearest(raw, names.listed) if isinstance(raw, str) else None)
    problems = Collector()
    found: list[CheckedEntry[T]] = []
    for key, item in raw.items() if isinstance(raw, Mapping) else enumerate(raw):
        label, entry, path = (key, item, (key,)) if isinstance(raw, Mapping) else _split_label(item, key, names)
        with problems.at(*path):
            if label is not None and (not isinstance(label, str) or not label):
                raise misfit("a label as text", show(label))
            named = read_entry({} if entry is None and names.knows(label) else entry, names, label)
            variants: Mapping[str, ParsedEntry] = {}
            with problems.at(*path, place=named.place):
                variants = sweep(named)
            for words, variant in variants.items():
                with problems.at(*path, place=variant.place):
                    own = join_label(label, words) if label is not None else None
                    found.append(CheckedEntry(*build(variant), variant, path, own, words))
    problems.finish()
    return _by_label(found, labels(found), names)


def _split_label(item: object, index: int, names: Names) -> tuple[Any, object, Keys]:
    """An item of a list, which may be `{label: entry}`."""
    if isinstance(item, Mapping) and len(item) == 1:
        ((key, entry),) = item.items()
        if key not in names.keys and not names.knows(key) and (isinstance(entry, str) or names.describes(entry)):
            return key, entry, (index, key)
    return None, item, (index,)


def _by_label(found: Sequence[CheckedEntry[T]], own: Sequence[str], names: Names) -> dict[str, CheckedEntry[T]]:
    """The entries by label; no label and no entry without one may be there twice."""
    labelled: dict[str, CheckedEntry[T]] = {}
    for entry, name in zip(found, own, strict=True):
        others = (other for other in labelled.values() if entry.label is other.label is None)
        twin = labelled.get(entry.label or name) or next((o for o in others if o.plain == entry.plain), None)
        if twin is not None:
            other = f"{names.section}[{twin.path[0]}]"
            if twin.plain == entry.plain:
                raise misfit(f"{names.section} that differ", f"the same as {other}", *entry.path)
            raise misfit("a label of its own", f"{entry.label or name!r}, which is the label of {other}", *entry.path)
        labelled[entry.label or name] = entry
    return labelled
