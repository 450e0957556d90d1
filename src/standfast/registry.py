"""Registries: names for the classes and functions that a study file or a command line can use."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from standfast.errors import (
    ArgumentError,
    StandfastError,
    UnknownNameError,
    UnknownOptionError,
    check,
)

T = TypeVar("T")
# a comma between options, not within the brackets of a value
_BETWEEN = re.compile(r",(?![^()\[\]]*[)\]])")


class Registry(Generic[T]):
    """Maps names to entries of one kind. An unknown name raises an error that suggests the nearest name.

    Other installed packages can add entries (plug-ins) through entry points.
    A plug-in is listed at once and imported when it is first used. It cannot replace a built-in name.

    Args:
        kind: the word for one entry in error messages, such as `"metric"`.
        group: the group of the entry points, such as `"standfast.metrics"`; None for a registry without plug-ins.
        fits: returns True if an object is a valid entry; by default any object is.
        named: whether an entry must have a `name` of its own; if it has one, it is registered under that name.
        packages: maps another package to the function, as `"module:function"`, that gives the entry for a name of the
            form `"package:Title"`: a class, or a function of options. It is imported when such a name is first used.

    >>> shapes: Registry[type] = Registry("shape")
    >>> shapes.add("list", list)
    >>> shapes["list"]
    <class 'list'>
    >>> shapes["lisst"]
    Traceback (most recent call last):
        ...
    standfast.errors.UnknownNameError: shape: expected one of list, got 'lisst' (did you mean 'list'?)
    """

    def __init__(
        self,
        kind: str,
        group: str | None = None,
        fits: Callable[[object], bool] = lambda entry: True,
        named: bool = False,
        packages: Mapping[str, str] | None = None,
    ) -> None:
        self.kind = kind
        self.group = group
        self._fits = fits
        self._named = named
        self.packages = dict(packages or {})
        self.aliases: dict[str, str] = {}  # short names of entries of other packages
        self._entries: dict[str, T] = {}

    def add(self, name: str, entry: T) -> None:
        """Register `entry` under `name`.

        Raises:
            ArgumentError: the name is in use; `entry` is not one of this kind, or has another name.
        """
        check(
            name not in self._entries, f"{self.kind} name", "a name that is not in use", repr(name)
        )
        self._check(name, entry, repr(entry))
        self._entries[name] = entry

    def _check(self, name: str, entry: T, got: str) -> None:
        check(self._fits(entry), f"{self.kind} {name}", f"a {self.kind}", got)
        own_name = getattr(entry, "name", None if self._named else name)
        check(
            own_name == name,
            f"{self.kind} {name}",
            f"a {self.kind} whose name is {name!r}",
            f"the name {own_name!r} in {got}",
        )

    def register(self, name: str) -> Callable[[T], T]:
        """Return a decorator that registers a class or function under `name`."""

        def decorate(entry: T) -> T:
            self.add(name, entry)
            return entry

        return decorate

    @cached_property
    def plugins(self) -> dict[str, EntryPoint]:
        """The entry points that other packages provide, by name."""
        if self.group is None:
            return {}
        return {point.name: point for point in entry_points(group=self.group)}

    def is_from_package(self, name: object) -> bool:
        """Whether `name` has the form `"package:Title"` for one of `packages`; the title may be unknown.

        Options may follow, as in `"package:Title:option=value"`. Text whose options follow the first colon, such as
        `"lime:samples=50"`, names an entry of this registry.
        """
        if isinstance(name, str):
            package, colon, rest = self.aliases.get(name, name).partition(":")
        else:
            package, colon, rest = "", "", ""
        title = rest.partition(":")[0]
        return bool(colon) and package in self.packages and "=" not in title

    def __getitem__(self, name: str) -> T:
        name = self.aliases.get(name, name)
        if self.is_from_package(name):
            package = name.partition(":")[0]
            module, _, function = self.packages[package].partition(":")
            loaded_entry: T = getattr(import_module(module), function)(name)
            return loaded_entry
        if name not in self._entries:
            if name not in self.plugins:
                raise UnknownNameError(self.kind, name, self.names())
            entry = self._load(self.plugins[name])
            self._entries.setdefault(name, entry)  # the import may already have registered it
        return self._entries[name]

    def _load(self, point: EntryPoint) -> T:
        package = point.dist.name if point.dist else "an unknown package"
        plugin = f"the plug-in {point.value} of {package}"
        try:
            entry = point.load()
        except Exception as error:  # whatever the module of the plug-in raises
            raise StandfastError(
                f"{self.kind} {point.name}: {plugin} could not be loaded: {type(error).__name__}: {error}"
            ) from error
        self._check(point.name, entry, f"{entry!r} from {plugin}")
        loaded: T = entry
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self.plugins

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def find_name(self, entry: object) -> str | None:
        """The name under which `entry` is registered; None if it is not, or is a plug-in that nobody has asked for."""
        return next(
            (name for name, registered in self._entries.items() if registered is entry), None
        )

    def loaded(self) -> list[T]:
        """The entries that are registered, without the plug-ins that nobody has asked for."""
        return list(self._entries.values())

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries.keys() | self.plugins.keys())


def build(
    kinds: Registry[type[T]],
    text: str,
    options: Mapping[str, Any] | None = None,
    defaults: Mapping[str, Any] | None = None,
) -> T:
    """Make an instance of a registered dataclass.

    Args:
        kinds: a registry of dataclasses.
        text: `"name"` or `"name:option=value,option=value"`.
        options: further options; they override those in `text`.
        defaults: options for where neither has them.

    Entries of other packages, `"package:Title"`, may be functions of options; these check the options themselves.

    Raises:
        UnknownNameError: the registry has no such name.
        ArgumentError: an option is malformed, unknown or missing, or the dataclass refuses its value.
    """
    name, rest = _split_name(kinds, text)
    kind = kinds[name]
    options = {**(defaults or {}), **parse_options(rest, kinds.kind), **(options or {})}
    if is_dataclass(kind):
        names_of_options = [field.name for field in fields(kind)]
    else:
        names_of_options = list(options)
    for option in options:
        if option not in names_of_options:
            raise UnknownOptionError(
                getattr(kind, "name", name), option, options[option], names_of_options
            )
    _check_required(kind, name, options)
    return kind(**options)


def read_options(kinds: Registry[Any], text: str) -> dict[str, Any]:
    """The options in `"name:option=value,option=value"`.

    Raises:
        ArgumentError: they have another form.
    """
    return parse_options(_split_name(kinds, text)[1], kinds.kind)


def _split_name(kinds: Registry[Any], text: str) -> tuple[str, str]:
    """The name in a text and what stands behind it, where names of other packages have a colon of their own."""
    name, _, rest = text.partition(":")
    if kinds.is_from_package(text):
        title, _, rest = rest.partition(":")
        name = f"{name}:{title}"
    return name.strip(), rest


def _check_required(kind: type, name: str, options: Mapping[str, Any]) -> None:
    """Raise `ArgumentError` for an option without a default that is missing, with its value in `kind.example()`."""
    declared = fields(kind) if is_dataclass(kind) else ()
    for field in declared:
        if (
            field.init
            and field.name not in options
            and field.default is field.default_factory is MISSING
        ):
            expected = f"a value for {name}"
            example = getattr(kind, "example", None)
            if example is not None:
                value = getattr(example(), field.name)
                expected += f", such as {field.name}={_spell(value)}"
            raise ArgumentError(field.name, expected, "none")


def _spell(value: object) -> str:
    """A value as code; of a dataclass only the fields that differ from their defaults."""
    if not is_dataclass(value):
        return repr(value)
    options = {field.name: getattr(value, field.name) for field in fields(value)}
    spelled_options = [
        f"{field.name}={options[field.name]!r}"
        for field in fields(value)
        if options[field.name] != field.default
    ]
    return f"{type(value).__name__}({', '.join(spelled_options)})"


def parse_options(text: str, what: str) -> dict[str, Any]:
    """`"steps=64,baseline=0"` as options; values are Python literals, `true` or `false`, or else
    strings.

    >>> parse_options("steps=64,mode=fast,units=(32, 64)", "explainer")
    {'steps': 64, 'mode': 'fast', 'units': (32, 64)}

    Raises:
        ArgumentError: the text has another form; `what` names it in the message.
    """
    options: dict[str, Any] = {}
    parts = [part.strip() for part in _BETWEEN.split(text)]
    for part in filter(None, parts):
        key, separator, value = (piece.strip() for piece in part.partition("="))
        check(bool(key and separator and value), what, "name:option=value,option=value", repr(part))
        try:
            # what is no literal is a text, so that words need no quotation marks
            # as a study file writes them
            in_python = {"true": "True", "false": "False"}.get(value, value)
            options[key] = ast.literal_eval(in_python)
        except (ValueError, SyntaxError):
            options[key] = value
    return options
