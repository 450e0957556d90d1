"""Names for classes and functions: what a study file or a command line can ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from holdfast.errors import ArgumentError, UnknownNameError

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to things of one kind, with an error that suggests the nearest name.

    >>> shapes: Registry[type] = Registry("shape")
    >>> shapes.add("list", list)
    >>> shapes["list"]
    <class 'list'>
    >>> shapes["lisst"]
    Traceback (most recent call last):
        ...
    holdfast.errors.UnknownNameError: shape: expected one of list, got 'lisst' (did you mean 'list'?)
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
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

    def __getitem__(self, name: str) -> T:
        if name not in self._entries:
            raise UnknownNameError(self.kind, name, self._entries)
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))

    def names(self) -> list[str]:
        """All names, sorted."""
        return sorted(self._entries)
