"""Which configured metrics differ in one option, or in two, and in nothing else: what can be compared in a figure.

Options are compared by dotted paths: `{"search": {"name": "genetic", "population": 50}}` has `search`, which is
`"genetic"`, and `search.population`, which is 50. A difference in `search` covers all beneath it.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from typing import Any

#: how plain values name the kind of a thing that has options of its own
_KINDS = ("name", "norm")
#: letters of a value in words
_LONGEST = 60
_SPELLED = re.compile(r"[\w-]+:\s*\w+\s*=[^,=]+(,\s*\w+\s*=[^,=]+)*")


@dataclass(frozen=True)
class Variant:
    """Something configured.

    Attributes:
        name: in the study.
        kind: what it is a configuration of; only the same kinds are compared.
        options: by dotted path.
        unit: what must be equal for values to stand on one axis.
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    unit: Hashable = None


@dataclass(frozen=True)
class Member:
    """A variant and its place in a comparison.

    Attributes:
        name: the variant's.
        x: the value on the axis; None where it has none: drawn over the whole axis.
        text: the value of the option in words; of a reference, what it differs in.
        across: the second option's value in words; None where it has none, or the comparison is of one option.
    """

    name: str
    x: float | None
    text: str
    across: str | None = None


@dataclass(frozen=True)
class Group:
    """Variants that differ in `option`, or in `option` and `across`, and in nothing else.

    Attributes:
        kind: of the variants.
        option: the dotted path on the axis, or that rows are named after.
        across: the second one.
        numeric: whether there is an axis of numbers.
        members: in the order of their values if numeric, else of the study.
        references: variants without one of the two options, which differ in one further thing that explains it, such
            as another method that knows no such option; and those whose value is no number.
        same: the options that all members share, in words.
        comparable: whether all values have the same unit.
        title: what it is called, apart from all others.
    """

    kind: str
    option: str
    across: str | None
    numeric: bool
    members: tuple[Member, ...]
    references: tuple[Member, ...] = ()
    same: tuple[str, ...] = ()
    comparable: bool = True
    title: str = ""

    @property
    def names(self) -> list[str]:
        """The names of all variants in it, each once."""
        return list(dict.fromkeys(member.name for member in (*self.members, *self.references)))


def dotted(options: Any, idle: Iterable[str] = ()) -> dict[str, Any]:
    """Options by dotted path, without those of `idle`, which have no effect.

    >>> dotted({"search": {"name": "genetic", "population": 50}, "attack": "fmn:steps=5", "floor": -8}, ["floor"])
    {'search': 'genetic', 'search.population': 50, 'attack': 'fmn', 'attack.steps': 5}
    """
    found: dict[str, Any] = {}
    _into(found, "", options if isinstance(options, Mapping) else {})
    dead = tuple(idle)
    return {path: value for path, value in found.items() if not any(_within(path, d) for d in dead)}


def _into(found: dict[str, Any], path: str, value: Any) -> None:
    if isinstance(value, str) and _SPELLED.fullmatch(value):
        name, _, rest = value.partition(":")
        pairs = (part.partition("=") for part in rest.split(","))
        value = {"name": name, **{key.strip(): _literal(text.strip()) for key, _, text in pairs}}
    if not isinstance(value, Mapping):
        found[path] = value
        return
    kind = next((key for key in _KINDS if path and isinstance(value.get(key), str)), None)
    if kind is not None:
        found[path] = value[kind]
    for key, inner in value.items():
        if key != kind:
            _into(found, f"{path}.{key}" if path else str(key), inner)


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> list[str]:
    """The dotted paths in which options differ; what follows from another difference is left out.

    An option that only one of them has counts where nothing else differs (else another one usually rules it out), and
    beneath a thing of the same kind. All of a thing's options missing on one side is one difference.

    >>> differences({"method": "subset", "moves": 4}, {"method": "plain", "samples": 99})
    ['method']
    >>> differences({"search": "genetic"}, {"search": "genetic", "search.population": 50, "search.noise": 1})
    ['search']
    """
    paths = [path for path in dict.fromkeys([*a, *b]) if not _same(a, b, path)]
    both = [path for path in paths if path in a and path in b]
    if not both:
        return list(dict.fromkeys(_whole(a, b, path) for path in paths))
    top = [path for path in both if not any(_under(path, other) for other in both)]
    for path in paths:
        parent = path.rpartition(".")[0]
        if path not in both and parent in a and _same(a, b, parent) and not any(_within(path, t) for t in top):
            top.append(_whole(a, b, path))
    return list(dict.fromkeys(top))


def groups(variants: Sequence[Variant]) -> list[Group]:
    """What can be compared, in order of importance: figures over two options first, then over a number, then others.

    No comparison of two variants is shown twice, if it can be avoided.
    """
    found: list[Group] = []
    for kind in dict.fromkeys(variant.kind for variant in variants):
        own: dict[Any, Variant] = {}
        for variant in variants:
            if variant.kind == kind:
                own.setdefault(tuple(sorted((path, _key(value)) for path, value in variant.options.items())), variant)
        found += _Finder(list(own.values())).groups()
    return _titled(found, variants)


class _Finder:
    """The groups of variants of one kind, no two of which are the same."""

    def __init__(self, variants: list[Variant]) -> None:
        self.variants = variants
        self.place = {variant.name: place for place, variant in enumerate(variants)}
        paths = dict.fromkeys(path for variant in variants for path in variant.options)
        options = [variant.options for variant in variants]
        self.paths = [p for p in paths if any(not _same(options[0], other, p) for other in options)]
        self.differ = cache(lambda i, j: tuple(differences(variants[i].options, variants[j].options)))

    def groups(self) -> list[Group]:
        pairs = [g for a, b in combinations(self.paths, 2) if not _related(a, b) for g in self._pairs(a, b)]
        pairs.sort(key=lambda group: -len(group.names))
        numeric = [group for path in self.paths for group in self._numeric(path)]
        plain = [group for path in self.paths for group in self._plain(path)]
        found, shown = [], set[frozenset[str]]()
        for group in (*pairs, *numeric, *plain):
            edges = self._edges(group)
            if not edges <= shown:
                found.append(group)
                shown |= edges
        return found

    def _edges(self, group: Group) -> set[frozenset[str]]:
        """Its comparisons of two variants that differ in one thing."""
        places = (self.place[name] for name in group.names)
        return {
            frozenset((self.variants[i].name, self.variants[j].name))
            for i, j in combinations(places, 2)
            if len(self.differ(i, j)) == 1
        }

    def _alike(self, among: Iterable[int], *paths: str) -> Iterator[list[int]]:
        """Sets of variants that differ pairwise in nothing but these options and what is beneath them."""
        left = list(among)
        while left:
            taken = [left[0]]
            for i in left[1:]:
                if all(self._only(i, j, paths) for j in taken):
                    taken.append(i)
            left = [i for i in left if i not in taken]
            if len(taken) > 1:
                yield taken

    def _only(self, i: int, j: int, paths: Sequence[str]) -> bool:
        return all(any(_within(d, path) for path in paths) for d in self.differ(i, j))

    def _by_unit(self) -> Iterator[list[int]]:
        for unit in dict.fromkeys(variant.unit for variant in self.variants):
            yield [i for i, variant in enumerate(self.variants) if variant.unit == unit]

    def _pairs(self, first: str, second: str) -> Iterator[Group]:
        """Both options vary: at least two lines of at least two points, or it is none."""
        for taken in (t for unit in self._by_unit() for t in self._alike(unit, first, second)):
            for option, across in self._orders(first, second, taken):
                texts = self._texts(taken, across)
                on_axis = [i for i in taken if _number(self._value(i, option)) is not None]
                lines: dict[str, set[float | None]] = {}
                for i in on_axis:
                    lines.setdefault(texts[i], set()).add(_number(self._value(i, option)))
                if sum(len(line) > 1 for line in lines.values()) > 1:
                    yield self._group(taken, option, across)
                    break

    def _orders(self, first: str, second: str, taken: list[int]) -> list[tuple[str, str]]:
        """Which is on the axis: numbers rather than others, and of two the one with more values."""
        count = {p: len({_number(self._value(i, p)) for i in taken} - {None}) for p in (first, second)}
        orders = [(first, second), (second, first)]
        return sorted(orders, key=lambda order: -count[order[0]])

    def _numeric(self, option: str) -> Iterator[Group]:
        for taken in (t for unit in self._by_unit() for t in self._alike(unit, option)):
            if len({_number(self._value(i, option)) for i in taken} - {None}) > 1:
                yield self._group(taken, option, None)

    def _plain(self, option: str) -> Iterator[Group]:
        """Rows for what has one unit; whatever has several is left to the metric."""
        for whole in self._alike(range(len(self.variants)), option):
            units = dict.fromkeys(self.variants[i].unit for i in whole)
            parts = [[i for i in whole if self.variants[i].unit == unit] for unit in units]
            for taken in parts if len(parts) == 1 else (*parts, whole):
                values = [self._value(i, option) for i in taken]
                numbers = {_number(value) for value in values} - {None}
                comparable = taken is not whole or len(parts) == 1
                if len({_key(value) for value in values}) > 1 and (len(numbers) < 2 or not comparable):
                    texts = self._texts(taken, option)
                    members = tuple(Member(self.variants[i].name, None, texts[i]) for i in taken)
                    kind, same = self.variants[0].kind, self._shared(taken, option)
                    yield Group(kind, option, None, False, members, (), same, comparable)

    def _group(self, taken: list[int], option: str, across: str | None) -> Group:
        """The figure over an option: those with a number, and in `references` whoever has none."""
        paths = [option] if across is None else [option, across]
        other = dict.fromkeys(taken) if across is None else self._texts(taken, across)
        own = self._texts(taken, option)
        members, references = [], []
        for i in taken:
            x = _number(self._value(i, option))
            member = Member(self.variants[i].name, x, own[i], other[i])
            if x is None:
                references.append(replace(member, text=f"{option}: {own[i]}"))
            else:
                members.append(member)
        axis = [i for i in taken if _number(self._value(i, option)) is not None]
        lines = [] if across is None else self._ordered(axis, across, other)
        members.sort(key=lambda m: (0 if m.across is None else lines.index(m.across), m.x))
        unit = self.variants[axis[0]].unit
        others = [i for i, variant in enumerate(self.variants) if i not in taken and variant.unit == unit]
        references += self._references(others, axis, paths, other)
        kind, same = self.variants[0].kind, self._shared(axis, *paths)
        return Group(kind, option, across, True, tuple(members), tuple(references), same)

    def _ordered(self, axis: Sequence[int], across: str, texts: Mapping[int, str | None]) -> list[str | None]:
        """The second option's values in words: numbers by size, anything else in the study's order."""
        values = {texts[i]: _number(self._value(i, across)) for i in axis}
        given = list(values)
        if any(value is None for value in values.values()):
            return given
        return sorted(given, key=lambda text: values[text] or 0.0)

    def _references(
        self, others: Sequence[int], axis: Sequence[int], paths: Sequence[str], texts: Mapping[int, str | None]
    ) -> list[Member]:
        """Those that lack one of the options and differ in one other thing."""
        found: list[tuple[int, str, str | None]] = []
        for i in others:
            options = self.variants[i].options
            rest = {d for j in axis for d in self.differ(i, j) if not any(_within(d, path) for path in paths)}
            if len(rest) != 1 or all(path in options for path in paths):
                continue
            same = [j for j in axis if _same(options, self.variants[j].options, paths[-1])]
            if len(paths) == 1 or paths[1] not in options or same:
                across = texts[same[0]] if len(paths) > 1 and paths[1] in options else None
                found.append((i, rest.pop(), across))
        members = []
        for i, reason, across in found:
            value = _key(self._value(i, reason))
            rivals = [j for j, other, _ in found if other == reason and _key(self._value(j, reason)) == value]
            told = [p for p in self.paths if not any(_within(p, own) for own in (*paths, reason)) or _under(p, reason)]
            told = [p for p in told if len({_key(self._value(j, p)) for j in rivals}) > 1]
            text = f"{reason}: {_told(self._value(i, reason))}"
            text += " with its own defaults" if all(_key(self._value(j, reason)) == value for j in axis) else ""
            text = ", ".join([text, *(f"{p} {_told(self._value(i, p))}" for p in told)])
            members.append(Member(self.variants[i].name, _number(self._value(i, paths[0])), text, across))
        return members

    def _value(self, i: int, path: str) -> Any:
        return self.variants[i].options.get(path, _NOT_SET)

    def _texts(self, taken: Sequence[int], path: str) -> dict[int, str]:
        """A value in words for each, with what is beneath it where that tells some apart."""
        beneath = [p for p in self.paths if _under(p, path)]
        texts = {}
        for i in taken:
            value = self._value(i, path)
            rivals = [j for j in taken if _key(self._value(j, path)) == _key(value)]
            told = [p for p in beneath if len({_key(self._value(j, p)) for j in rivals}) > 1]
            more = [f"{p[len(path) + 1 :]} {_told(self._value(i, p))}" for p in told if p in self.variants[i].options]
            texts[i] = ", ".join([_told(value), *more])
        told = list(texts.values())
        # what looks the same in words is told apart by name
        unclear = {text for text in told if told.count(text) > 1 and not self._one(taken, texts, text, path)}
        return {i: f"{text} ({self.variants[i].name})" if text in unclear else text for i, text in texts.items()}

    def _one(self, taken: Sequence[int], texts: Mapping[int, str], text: str, path: str) -> bool:
        """Whether all variants with this text have the same value, and the same beneath it."""
        first, *rest = (self.variants[i].options for i in taken if texts[i] == text)
        paths = [path, *(p for p in self.paths if _under(p, path))]
        return all(_same(first, other, p) for other in rest for p in paths)

    def _shared(self, taken: Sequence[int], *paths: str) -> tuple[str, ...]:
        options = self.variants[taken[0]].options
        return tuple(
            f"{path} {_told(value)}"
            for path, value in options.items()
            if not any(_within(path, own) for own in paths)
            and all(path in self.variants[i].options and _same(options, self.variants[i].options, path) for i in taken)
        )


@dataclass(frozen=True)
class _NotSet:
    words: str = field(default="not set")


_NOT_SET = _NotSet()


def _titled(found: list[Group], variants: Sequence[Variant]) -> list[Group]:
    """Names for groups; where two would have the same one, with the options that tell them apart."""
    options = {variant.name: variant.options for variant in variants}
    plain = [f"{g.kind}: {g.option}" + (f" and {g.across}" if g.across else "") for g in found]
    titled = []
    for group, title in zip(found, plain, strict=True):
        rivals = [other for other, same in zip(found, plain, strict=True) if same == title]
        own = options[group.members[0].name]
        told = dict.fromkeys(d for r in rivals for d in differences(own, options[r.members[0].name]))
        shown = (group.option, group.across)
        parts = [f"{path} {_told(own[path])}" for path in told if path in own and path not in shown]
        titled.append(replace(group, title=f"{title} ({', '.join(parts)})" if parts else title))
    return titled


def _number(value: Any) -> float | None:
    """A finite number as such; None for all else, truth values included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:
        return None


def _key(value: Any) -> tuple[str, Any]:
    """Equal for equal values; 1 and 1.0 are, 1 and True are not."""
    number = _number(value)
    if number is not None:
        return "number", str(number)
    return type(value).__name__, json.dumps(value, sort_keys=True, default=repr)


def _same(a: Mapping[str, Any], b: Mapping[str, Any], path: str) -> bool:
    return (path in a) == (path in b) and _key(a.get(path)) == _key(b.get(path))


def _told(value: Any) -> str:
    """A value in words."""
    number = _number(value)
    if number is not None:
        return f"{number:.6g}".replace("-", "−") if abs(number) < 1e5 or number % 1 else f"{int(number):,}"
    if value is None:
        return "default"
    if isinstance(value, list | tuple):
        return ", ".join(_told(inner) for inner in value) or "none"
    text = value.words if isinstance(value, _NotSet) else str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"


def _whole(a: Mapping[str, Any], b: Mapping[str, Any], path: str) -> str:
    """The thing that an option belongs to, where one side has none of its options; else the option."""
    parent = path.rpartition(".")[0]
    return parent if parent and any(not any(_under(other, parent) for other in side) for side in (a, b)) else path


def _under(path: str, parent: str) -> bool:
    return path.startswith(f"{parent}.")


def _within(path: str, parent: str) -> bool:
    return path == parent or _under(path, parent)


def _related(a: str, b: str) -> bool:
    return _within(a, b) or _within(b, a)
