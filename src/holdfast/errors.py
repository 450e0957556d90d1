"""Exceptions, and checks of arguments. A message names the argument, what was expected and what was given."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence


class HoldfastError(Exception):
    """Base class of every exception that holdfast raises on purpose."""


class ArgumentError(HoldfastError, ValueError):
    """An argument has a type, shape or value that the function does not accept.

    >>> raise ArgumentError("radius", "a number above 0", -1)
    Traceback (most recent call last):
        ...
    holdfast.errors.ArgumentError: radius: expected a number above 0, got -1
    """

    def __init__(self, argument: str, expected: str, got: object) -> None:
        self.argument, self.expected, self.got = argument, expected, got
        super().__init__(f"{argument}: expected {expected}, got {got}")


class ModelError(HoldfastError, RuntimeError):
    """The user's module does not behave like a classifier on these inputs."""


class SecondDerivativeError(ModelError):
    """The user's module cannot be differentiated twice, as a white-box search or attack needs."""


class MissingExtraError(HoldfastError, ImportError):
    """An optional package is missing. The message names the extra that installs it."""

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency: pip install 'holdfast[{extra}]'")


class UnknownNameError(ArgumentError):
    """A name is not in a registry; the message suggests the nearest. `name` is the unknown name, `names` are all."""

    def __init__(self, kind: str, name: object, known: Iterable[str]) -> None:
        self.name, self.names = name, sorted(known)
        known = self.names
        super().__init__(kind, f"one of {', '.join(known)}", f"{name!r}{suggest_name(name, known)}")


def suggest_name(name: object, known: Iterable[str]) -> str:
    """A hint at the nearest known name, for the end of a message; empty if none is near.

    >>> suggest_name("radios", ["radius", "norm"])
    " (did you mean 'radius'?)"
    """
    near = difflib.get_close_matches(str(name), list(known), n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def check_integer(value: object, argument: str, least: int = 1, also: Sequence[str | None] = ()) -> None:
    """Raise `ArgumentError` unless `value` is an `int` of at least `least`, or one of `also`.

    Booleans and floats are refused.

    >>> check_integer(0, "steps")
    Traceback (most recent call last):
        ...
    holdfast.errors.ArgumentError: steps: expected a whole number of at least 1, got 0
    """
    fits = (type(value) is int and value >= least) or any(
        type(value) is type(other) and value == other for other in also
    )
    check(fits, argument, ", or ".join([f"a whole number of at least {least}", *map(repr, also)]), repr(value))


def check(condition: bool, argument: str, expected: str, got: object) -> None:
    """Raise `ArgumentError` unless `condition` holds."""
    if not condition:
        raise ArgumentError(argument, expected, got)
