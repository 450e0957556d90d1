"""Which configurations differ in one option and in nothing else: what a chart can compare.

Options are compared by path: `{"search": {"name": "genetic", "population": 50}}` has the options `search`, which is
`"genetic"`, and `search.population`, which is 50. An option may belong to another one: `search.population` belongs to
`search`, and a metric can declare such parts (`Metric.roles`). Where two configurations differ in an option, what
belongs to it is not compared.
"""

from __future__ import annotations

import json
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from standfast.errors import StandfastError
from standfast.neighbourhoods.naming import label_neighbourhood, read_stored
from standfast.records import split_tag
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
        unit: what values must share to stand on one axis. Only configurations with the same unit are compared.
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
            if math.isfinite(value):
                return float(value)
            return None
        except OverflowError:
            return None

    def key(self, path: str) -> Hashable:
        """Equal for equal values: 1 and 1.0 are equal, 1 and True are not. None for an option that is not set."""
        if path not in self.options:
            return None
        number = self.number(path)
        if number is not None:
            return number
        value = self.options[path]
        return type(value).__name__, json.dumps(value, sort_keys=True, default=repr)

    def belongs(self, path: str, option: str) -> bool:
        """Whether a path is this option or belongs to it."""
        while path and path != option:
            path = self.owners.get(path) or path.rpartition(".")[0]
        return bool(path)


@dataclass(frozen=True)
class Member:
    """A configuration in a group: its name, the value of the option in words, and this value if it is a number."""

    name: str
    text: str
    x: float | None = None


@dataclass(frozen=True)
class OptionGroup:
    """Configurations that differ in one option and in nothing else.

    Attributes:
        kind: of the configurations.
        option: the path of the option.
        members: by their values if these are numbers, else in the order of the study.
    """

    kind: str
    option: str
    members: tuple[Member, ...]


class _Tag(str):
    """The name of a thing whose own options are given. The bare name is another value: it has its default options.

    Attributes:
        words: for the thing with its options; empty where they are shown one by one.
    """

    words: str = ""


def flatten_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Options by path.

    >>> flatten_options({"search": {"name": "genetic", "population": 50}, "attack": "fmn:steps=5", "floor": -8})
    {'search': 'genetic', 'search.population': 50, 'attack': 'fmn', 'attack.steps': 5, 'floor': -8}
    """
    flat: dict[str, Any] = {}
    for option, value in options.items():
        parsed = _parse(value) if isinstance(value, str) else value
        if not isinstance(parsed, Mapping):
            flat[str(option)] = value
            continue
        kind, title, rest = split_tag(parsed)
        if kind:
            flat[str(option)] = tag = _Tag(title)
            neighbourhood = read_stored(parsed)
            if neighbourhood is not None:
                tag.words = label_neighbourhood(neighbourhood)
        for path, part in flatten_options(rest).items():
            if kind == "transformation":
                part = _find_extent(part)
            flat[f"{option}.{path}"] = part
    return flat


def _find_extent(value: Any) -> Any:
    """The number r for a range from -r to r, so that several such ranges have places on an axis; else the value."""
    if not isinstance(value, list) or len(value) != 2:
        return value
    are_numbers = all(isinstance(end, int | float) for end in value)
    if are_numbers and value[0] == -value[1]:
        return value[1]
    return value


def _parse(text: str) -> str | dict[str, Any]:
    """`"fmn:steps=5"` as `{"name": "fmn", "steps": 5}`; any other text as it is."""
    name, _, rest = text.partition(":")
    if "=" not in rest:
        return text
    try:
        return {"name": name, **parse_options(rest, name)}
    except StandfastError:
        # a text of the user's that only looks like options
        return text


def find_groups(configurations: Sequence[Configuration]) -> list[OptionGroup]:
    """What can be compared: a group for each option that differs and for each setting of all other options."""
    alike: dict[tuple[str, Hashable, str, Hashable], list[Configuration]] = {}
    options = [path for configuration in configurations for path in configuration.options]
    for option, configuration in product(dict.fromkeys(options), configurations):
        others = [path for path in configuration.options if not configuration.belongs(path, option)]
        rest = frozenset((path, configuration.key(path)) for path in others)
        key = (configuration.kind, configuration.unit, option, rest)
        alike.setdefault(key, []).append(configuration)
    groups = []
    for (kind, _, option, _), group in alike.items():
        values = {configuration.key(option) for configuration in group}
        if len(values) > 1:
            groups.append(OptionGroup(kind, option, _make_members(group, option)))
    return groups


def _make_members(configurations: Sequence[Configuration], option: str) -> tuple[Member, ...]:
    members = []
    for configuration in configurations:
        text = _in_words(configuration.options.get(option, "not set"))
        members.append(Member(configuration.name, text, configuration.number(option)))
    if has_places(members):
        members.sort(key=lambda member: member.x or 0.0)
    return tuple(members)


def has_places(members: Sequence[Member]) -> bool:
    """Whether the values of the members are different numbers, which have places on an axis."""
    numbers = {member.x for member in members if member.x is not None}
    return len(numbers) == len(members)


def _in_words(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 1e5:
        return f"{value:,}"
    if isinstance(value, int | float) and not isinstance(value, bool):
        return f"{value:z.6g}".replace("-", "−")
    if value is None:
        return "default"
    if isinstance(value, _Tag) and value.words:
        return value.words
    neighbourhood = read_stored(value) if isinstance(value, Mapping) else None
    if neighbourhood is not None:
        return label_neighbourhood(neighbourhood)
    if isinstance(value, list | tuple):
        return ", ".join(_in_words(entry) for entry in value) or "none"
    text = str(value)
    if len(text) <= _LONGEST:
        return text
    return text[: _LONGEST - 1] + "…"
