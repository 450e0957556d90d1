"""Names for classes and functions: what a study file or a command line can ask for."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from holdfast.errors import ArgumentError, HoldfastError, UnknownNameError, check

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to things of one kind, with an error that suggests the nearest name.

    Other installed packages add theirs through entry points: they are listed at once, and imported when asked for. Our
    own names cannot be taken.

    Args:
        kind: what to call one of them in messages.
        group: the entry points' group, such as `"holdfast.metrics"`; None for a registry without plug-ins.
        fits: whether a plug-in's object is one of them.
        packages: packages whose things are named `"package:Title"`, and for each the function, as `"module:function"`,
            that makes the entry from such a name. It is imported when a name of that package is asked for.

    >>> shapes: Registry[type] = Registry("shape")
    >>> shapes.add("list", list)
    >>> shapes["list"]
    <class 'list'>
    >>> shapes["lisst"]
    Traceback (most recent call last):
        ...
    holdfast.errors.UnknownNameError: shape: expected one of list, got 'lisst' (did you mean 'list'?)
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        fits: Callable[[object], bool] = callable,
        packages: Mapping[str, str] | None = None,
    ) -> None:
        self.kind, self.group, self._fits, self.packages = kind, group, fits, dict(packages or {})
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register `entry` under `name`; a name is taken once."""
        if name in self._entries:
            raise ArgumentError(f"{self.kind} name", "a name that is still free", repr(name))
        self._entries[name] = entry

    def register(self, name: str) -> Callable[[T], T]:
        """The same as a decorator."""

        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """The entry points of other packages, by name."""
        return {} if self.group is None else {point.name: point for point in entry_points(group=self.group)}

    def is_elsewhere(self, name: object) -> bool:
        """Whether a name has the form of one of another package, `"package:Title"`, known or not."""
        return isinstance(name, str) and ":" in name and name.partition(":")[0] in self.packages

    def __getitem__(self, name: str) -> T:
        if self.is_elsewhere(name):
            module, _, function = self.packages[name.partition(":")[0]].partition(":")
            made: T = getattr(import_module(module), function)(name)
            return made
        if name not in self._entries:
            if name not in self.plugins:
                raise UnknownNameError(self.kind, name, self.names())
            entry = self._load(self.plugins[name])
            self._entries.setdefault(name, entry)  # loading it may have registered it
        return self._entries[name]

    def _load(self, point: EntryPoint) -> T:
        origin = f"the plug-in {point.value} of {point.dist.name if point.dist else 'an unknown package'}"
        try:
            entry = point.load()
        except Exception as error:
            raise HoldfastError(
                f"{self.kind} {point.name}: {origin} could not be loaded: {type(error).__name__}: {error}"
            ) from error
        if not self._fits(entry):
            raise ArgumentError(f"{self.kind} {point.name}", f"a {self.kind}", f"{entry!r} from {origin}")
        loaded: T = entry
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries.keys() | self.plugins.keys())


def build(kinds: Registry[type[T]], text: str, options: Mapping[str, Any] | None = None) -> T:
    """One of the registered dataclasses from `"name"` or `"name:option=value,option=value"`, and further options.

    Raises:
        UnknownNameError: no such name.
        ArgumentError: a malformed or unknown option; a value that the dataclass refuses.
    """
    package, colon, title = text.partition(":")
    name, _, rest = title.partition(":") if colon and package in kinds.packages else text.partition(":")
    name = f"{package}:{name}" if colon and package in kinds.packages else name
    kind = kinds[name.strip()]
    options = {**parse_options(rest, kinds.kind), **(options or {})}
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for option in options:
        if option not in known:
            own = getattr(kind, "name", name)
            expected = f"an option of {own}: {', '.join(known)}" if known else f"no options for {own}"
            raise ArgumentError(option, expected, f"{option}={options[option]!r}")
    return kind(**options)


def parse_options(text: str, what: str) -> dict[str, Any]:
    """`"steps=64,baseline=0"` as options; values are Python literals, or else strings."""
    options: dict[str, Any] = {}
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        check(bool(key and separator and value), what, "name:option=value,option=value", repr(part))
        try:
            options[key] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            options[key] = value
    return options
