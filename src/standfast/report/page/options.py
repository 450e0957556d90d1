"""Which configurations differ in one option, or in two, and in nothing else: what a figure can compare.

Options are compared by path: `{"search": {"name": "genetic", "population": 50}}` has the options `search`, which is
`"genetic"`, and `search.population`, which is 50. A number has a place on an axis, and any other value is a category.

An option may belong to another one: `search.population` belongs to `search`, and a metric can declare such parts
(`Metric.roles`). Where two configurations differ in an option, what belongs to it is not compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import Any

from standfast.errors import StandfastError
from standfast.neighbourhoods.naming import KEYS, label_neighbourhood, read_stored
from standfast.registry import parse_options

#: letters of a value in words
_LONGEST = 60


@dataclass(frozen=True)
class Configuration:
    """A configured metric or explainer.

    Attributes:
        name: in the study.
        kind: what it is a configuration of. Only configurations of the same kind are compared.
        options: those with an effect, by path (`flatten_options`).
        owners: the option that another one belongs to, where the path does not say it.
        unit: must be equal for values that stand on one axis.
    """

    name: str
    kind: str
    options: Mapping[str, Any]
    owners: Mapping[str, str] = field(default_factory=dict)
    unit: Hashable = None

    def number(self, path: str) -> float | None:
        """The value of an option if it is a finite number, else None; a truth value is no number."""
        value = self.options.get(path)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        try:
            return float(value) if math.isfinite(value) else None
        except OverflowError:
            return None

    def key(self, path: str) -> Hashable:
        """Equal for equal values: 1 and 1.0 are equal, 1 and True are not. None for an option that is not set."""
        if path not in self.options:
            return None
        number, value = self.number(path), self.options[path]
        return number if number is not None else (type(value).__name__, json.dumps(value, sort_keys=True, default=repr))

    def words(self, path: str, bare: bool = False) -> str:
        """The value of an option in words; with `bare`, of a thing that has options the name alone."""
        if path not in self.options:
            return "not set"
        value = self.options[path]
        return _in_words(str(value) if bare and isinstance(value, _Given) else value)


@dataclass(frozen=True)
class Member:
    """A configuration and its place in a group.

    Attributes:
        name: of the configuration.
        x: the value on the axis; None where it has none, and is drawn over the whole axis.
        text: the value of the option in words. For a reference: what it differs in.
        across: the second option's value in words; None where it has none, or where one option is compared.
    """

    name: str
    x: float | None
    text: str
    across: str | None = None


@dataclass(frozen=True)
class Group:
    """Configurations that differ in `option`, or in `option` and `across`, and in nothing else.

    Attributes:
        kind: of the configurations.
        option: the path of the option on the axis, or by which rows are named.
        across: the path of the second option, or None.
        members: by their values if these are numbers, else in the order of the study.
        references: configurations that have no number for one of the options: because its value is none, or because
            they have another value of the option that it belongs to, such as another search.
        same: the options that all members share, in words.
        comparable: whether all values have the same unit.
        title: a title that no other group has.
    """

    kind: str
    option: str
    across: str | None
    members: tuple[Member, ...]
    references: tuple[Member, ...] = ()
    same: tuple[str, ...] = ()
    comparable: bool = True
    title: str = ""

    @property
    def numeric(self) -> bool:
        """Whether the values of the option are numbers on an axis."""
        return self.members[0].x is not None

    @property
    def names(self) -> list[str]:
        """The names of all configurations in it, each once."""
        return list(dict.fromkeys(member.name for member in (*self.members, *self.references)))


class _Given(str):
    """The name of a thing whose own options are given. The bare name is another value: it has its default options.

    Attributes:
        words: for the thing with its options; empty where they are shown one by one.
        apart: whether the thing is compared with others of its kind in rows, and is no reference beside an axis.
    """

    words: str = ""
    apart: bool = False


def _name_given(key: str, options: Mapping[str, Any]) -> _Given:
    given = _Given(options[key])
    given.apart = key == "transformation"
    if key in KEYS and (known := read_stored(options)) is not None:
        given.words = label_neighbourhood(known)
    return given


def flatten_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by path.

    >>> flatten_options({"search": {"name": "genetic", "population": 50}, "attack": "fmn:steps=5", "floor": -8})
    {'search': 'genetic', 'search.population': 50, 'attack': 'fmn', 'attack.steps': 5, 'floor': -8}
    """
    found: dict[str, Any] = {}
    for option, value in options.items():
        inner = _parse(value) if isinstance(value, str) else value
        if not isinstance(inner, Mapping):
            found[str(option)] = value
            continue
        key = next((key for key in ("transformation", "norm", "name") if isinstance(inner.get(key), str)), None)
        if key is not None:
            found[str(option)] = _name_given(key, inner)
        own = flatten_options({name: each for name, each in inner.items() if name != key})
        if key == "transformation":
            own = {name: _find_extent(each) for name, each in own.items()}
        found |= {f"{option}.{path}": each for path, each in own.items()}
    return found


def _is_apart(one: Configuration, path: str) -> bool:
    value = one.options.get(path)
    return isinstance(value, _Given) and value.apart


def _find_extent(value: Any) -> Any:
    """The number r for a range from -r to r, so that several such ranges have places on an axis; else the value."""
    pair = isinstance(value, list) and len(value) == 2 and all(isinstance(each, int | float) for each in value)
    return value[1] if pair and value[0] == -value[1] else value


def _parse(text: str) -> str | dict[str, Any]:
    """`"fmn:steps=5"` as `{"name": "fmn", "steps": 5}`; any other text as it is."""
    name, _, rest = text.partition(":")
    try:
        return {"name": name, **parse_options(rest, name)} if "=" in rest else text
    except StandfastError:
        return text


def find_groups(configurations: Sequence[Configuration]) -> list[Group]:
    """What can be compared: first figures over two options, then over one number, then rows of categories.

    A group is left out where earlier ones show each of its pairs that differ in one option.
    """
    found: list[Group] = []
    for kind in dict.fromkeys(each.kind for each in configurations):
        different: dict[Hashable, Configuration] = {}
        for each in configurations:
            if each.kind == kind:
                different.setdefault(frozenset((path, each.key(path)) for path in each.options), each)
        found += _Kind(list(different.values())).find_groups()
    return _add_titles(found)


class _Kind:
    """Configurations of one kind, no two of which are the same."""

    def __init__(self, configurations: list[Configuration]) -> None:
        self.all = configurations
        self.owners = {path: owner for each in configurations for path, owner in each.owners.items()}
        paths = dict.fromkeys(path for each in configurations for path in each.options)
        self.varying = [path for path in paths if len({each.key(path) for each in configurations}) > 1]

    def find_groups(self) -> list[Group]:
        units = dict.fromkeys(each.unit for each in self.all)
        by_unit = [[each for each in self.all if each.unit == unit] for unit in units]
        pairs = [(a, b) for a, b in permutations(self.varying, 2) if not self._within(a, b) and not self._within(b, a)]
        two = [group for pair in pairs for among in by_unit for group in self._lines(among, *pair)]
        two.sort(key=lambda g: (-len(g.names), -len({m.x for m in g.members}), len(self._parts(g.across or ""))))
        one = [group for option in self.varying for among in by_unit for group in self._lines(among, option)]
        rows = [g for option in self.varying for among in (*by_unit, self.all) for g in self._rows(among, option)]
        found, shown = [], set[frozenset[str]]()
        for group in (*two, *one, *rows):
            compared = self._compared(group)
            if not compared <= shown:
                found.append(group)
                shown |= compared
        return found

    def _compared(self, group: Group) -> set[frozenset[str]]:
        """The pairs of its configurations that differ in one option."""
        found = set()
        for a, b in combinations([each for each in self.all if each.name in group.names], 2):
            differ = [path for path in self.varying if a.key(path) != b.key(path)]
            if sum(not self._within(self._owner(path), *differ) for path in differ) == 1:
                found.add(frozenset((a.name, b.name)))
        return found

    def _owner(self, path: str) -> str:
        return self.owners.get(path) or path.rpartition(".")[0]

    def _within(self, path: str, *options: str) -> bool:
        """Whether a path is one of these options or belongs to one."""
        while path and path not in options:
            path = self._owner(path)
        return bool(path)

    def _parts(self, option: str) -> list[str]:
        return [path for path in self.varying if path != option and self._within(path, option)]

    def _rest(self, one: Configuration, *options: str) -> Hashable:
        """Everything but these options and what belongs to them."""
        return frozenset((path, one.key(path)) for path in one.options if not self._within(path, *options))

    def _value(self, one: Configuration, option: str) -> Hashable:
        """An option with what belongs to it."""
        return tuple(one.key(path) for path in (option, *self._parts(option)))

    def _alike(self, among: Sequence[Configuration], *options: str) -> list[list[Configuration]]:
        """Sets of configurations that differ in nothing but these options and what belongs to them."""
        found: dict[Hashable, list[Configuration]] = {}
        for each in among:
            found.setdefault(self._rest(each, *options), []).append(each)
        return list(found.values())

    def _lines(self, among: Sequence[Configuration], option: str, across: str | None = None) -> Iterator[Group]:
        """Figures with numbers on the axis: at least one line of two points, and two where a second option varies."""
        options = (option,) if across is None else (option, across)
        for alike in self._alike([each for each in among if self._on_axis(each, *options)], *options):
            texts, line_of = self._words(alike, option), {} if across is None else self._words(alike, across)
            if across is not None:  # by its numbers, then other values in the order of the study
                alike.sort(key=lambda each: math.inf if (number := each.number(across)) is None else number)
            members = [Member(e.name, e.number(option), texts[e.name], line_of.get(e.name)) for e in alike]
            lines = list(dict.fromkeys(member.across for member in members))
            if sum(len({m.x for m in members if m.across == line}) > 1 for line in lines) >= len(options):
                members.sort(key=lambda member: (lines.index(member.across), member.x))
                references = tuple(self._references(alike[0], line_of, *options))
                yield Group(alike[0].kind, option, across, tuple(members), references, self._same(alike[0], *options))

    def _on_axis(self, one: Configuration, *options: str) -> bool:
        return one.number(options[0]) is not None and all(option in one.options for option in options)

    def _references(self, member: Configuration, line_of: Mapping[str, str], *options: str) -> Iterator[Member]:
        """Configurations without a place in the figure of `member`.

        They differ from it in one of the options, or in one that such an option belongs to, and else in nothing.
        """
        across = options[-1]
        lines = {self._value(each, across): line_of[each.name] for each in self.all if each.name in line_of}
        left = [each for each in self.all if each.unit == member.unit and not self._on_axis(each, *options)]
        left = [each for each in left if not lines or across not in each.options or self._value(each, across) in lines]
        for reason in dict.fromkeys(path for option in options for path in (option, self._owner(option)) if path):
            left = [each for each in left if not any(_is_apart(one, reason) for one in (each, member))]
            found = [e for e in left if self._rest(e, *options, reason) == self._rest(member, *options, reason)]
            left = [each for each in left if each not in found]
            for each, text in zip(found, self._words(found, reason).values(), strict=True):
                default = reason not in options and each.words(reason) == member.words(reason)
                text = f"{reason}: {text}{' with its own defaults' if default else ''}"
                yield Member(each.name, each.number(options[0]), text, lines.get(self._value(each, across)))

    def _rows(self, among: Sequence[Configuration], option: str) -> Iterator[Group]:
        """Rows of categories. Where their units differ, only figures of the metric's own can compare them."""
        for alike in self._alike(among, option):
            if len({each.key(option) for each in alike}) > 1:
                members = tuple(Member(name, None, text) for name, text in self._words(alike, option).items())
                comparable = len({each.unit for each in alike}) == 1
                yield Group(alike[0].kind, option, None, members, (), self._same(alike[0], option), comparable)

    def _words(self, alike: Sequence[Configuration], option: str) -> dict[str, str]:
        """The value of an option in words, by name; with its parts where they differ, or else with the name."""
        parts, texts, values = self._parts(option), {}, {}
        for each in alike:
            text = each.words(option)
            rivals = [other for other in alike if other.words(option) == text]
            own = [p for p in parts if p in each.options and len({rival.key(p) for rival in rivals}) > 1]
            more = [f"{path.removeprefix(f'{option}.')} {each.words(path)}" for path in own]
            texts[each.name] = ", ".join([text, *more])
            values[each.name] = self._value(each, option)
        unclear = [t for t in texts.values() if len({values[name] for name in texts if texts[name] == t}) > 1]
        return {name: f"{text} ({name})" if text in unclear else text for name, text in texts.items()}

    def _same(self, one: Configuration, *options: str) -> tuple[str, ...]:
        """What else is the same: other things in their words, and the thing that an option belongs to by its name."""
        whole = {path for path, value in one.options.items() if isinstance(value, _Given) and value.words}
        whole -= {path for path in whole for option in options if self._within(option, path)}
        shown = [path for path in one.options if not self._within(path, *options, *(whole - {path}))]
        return tuple(f"{path} {one.words(path, bare=path not in whole)}" for path in shown)


def _add_titles(found: list[Group]) -> list[Group]:
    """Titles for groups; where several would have the same one, with the options in which they differ."""
    plain = [f"{g.kind}: {g.option}" + (f" and {g.across}" if g.across else "") for g in found]
    titled = []
    for group, title in zip(found, plain, strict=True):
        rivals = [other for other, same in zip(found, plain, strict=True) if same == title]
        own = [text for text in group.same if not all(text in rival.same for rival in rivals)]
        titled.append(replace(group, title=f"{title} ({', '.join(own)})" if own else title))
    return titled


def _in_words(value: Any) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 1e5 else f"{value:z.6g}".replace("-", "−")
    if value is None:
        return "default"
    if isinstance(value, _Given) and value.words:
        return value.words
    if isinstance(value, Mapping) and (known := read_stored(value)) is not None:
        return label_neighbourhood(known)
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(each) for each in value) or "none"
    text = str(value)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
