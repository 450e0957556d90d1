"""Values as the Python that makes them, for lines that a user copies into a session."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from types import FunctionType
from typing import Any

from standfast.records import TensorOption

_PACKAGE = "standfast"


def spell(value: object) -> str | None:
    """The code of a value; None for what has none, such as a tensor or an object of the user's.

    Of a dataclass of this package, it has the options that differ from their defaults. A function is its name, which
    the session of the user has.

    >>> from standfast.neighbourhoods import LinfBall, Rotation
    >>> spell({"small": LinfBall(0.1), "turned": Rotation(20)})
    "{'small': standfast.LinfBall(0.1), 'turned': standfast.neighbourhoods.Rotation(degrees=(-20.0, 20.0))}"
    >>> spell([0.5, None, "lrp"]), spell(object())
    ("[0.5, None, 'lrp']", None)
    """
    if value is None or isinstance(value, bool | int | str):
        # texts and numbers are their own code
        return repr(value)
    # infinity has no literal
    if isinstance(value, float):
        if math.isfinite(value):
            return repr(value)
        return None
    if isinstance(value, Mapping):
        return _spell_mapping(value)
    if isinstance(value, list | tuple):
        return _spell_entries(value, isinstance(value, tuple))
    if isinstance(value, type):
        return find_public_name(value)
    if isinstance(value, FunctionType):
        # what is defined in another function has a name that the session cannot reach
        if value.__qualname__.isidentifier():
            return value.__name__
        return None
    return _spell_configuration(value)


def find_public_name(kind: type) -> str | None:
    """Under which name a class of this package can be reached after `import standfast`; None for another class.

    >>> from standfast.neighbourhoods import LinfBall, Rotation
    >>> find_public_name(LinfBall), find_public_name(Rotation), find_public_name(dict)
    ('standfast.LinfBall', 'standfast.neighbourhoods.Rotation', None)
    """
    package, _, rest = kind.__module__.partition(".")
    if package != _PACKAGE:
        return None
    if kind.__name__ in sys.modules[_PACKAGE].__all__:
        return f"{_PACKAGE}.{kind.__name__}"
    room = f"{_PACKAGE}.{rest.partition('.')[0]}"
    # the class could be reached under this name and be another one
    is_public = getattr(sys.modules[room], kind.__name__, None) is kind
    if is_public:
        return f"{room}.{kind.__name__}"
    return None


def spell_options(value: Any, without: Iterable[str] = ()) -> dict[str, str] | None:
    """By name the code of each option of a dataclass that differs from its default; None if one has no code.

    Args:
        value: an instance.
        without: names of options that are left out.
    """
    codes: dict[str, str] = {}
    for option in fields(value):
        option_value = getattr(value, option.name)
        if not option.init or option.name in without or _is_default(option, option_value):
            continue
        code = spell(option_value)
        if code is None:
            return None
        codes[option.name] = code
    return codes


def _spell_mapping(value: Mapping[Any, Any]) -> str | None:
    entries = [(spell(key), spell(entry)) for key, entry in value.items()]
    if any(key is None or entry is None for key, entry in entries):
        return None
    return "{" + ", ".join(f"{key}: {entry}" for key, entry in entries) + "}"


def _spell_entries(value: Iterable[Any], is_tuple: bool) -> str | None:
    codes: list[str] = []
    for entry in value:
        code = spell(entry)
        if code is None:
            return None
        codes.append(code)
    inner = ", ".join(codes)
    if not is_tuple:
        return f"[{inner}]"
    # a tuple of one needs its comma
    if len(codes) == 1:
        return f"({inner},)"
    return f"({inner})"


def _spell_configuration(value: Any) -> str | None:
    """A dataclass of this package; the first option has no name where it must be given."""
    name = find_public_name(type(value))
    if name is None or not is_dataclass(value) or isinstance(value, TensorOption):
        return None
    codes = spell_options(value)
    if codes is None:
        return None
    first = next((option for option in fields(value) if option.init), None)
    required = None
    if first is not None and first.default is MISSING:
        required = first.name
    arguments = [
        code if option == required else f"{option}={code}" for option, code in codes.items()
    ]
    return f"{name}({', '.join(arguments)})"


def _is_default(option: Field[Any], option_value: object) -> bool:
    """Whether an option has the value that it has if it is not given; what is compared may be an array."""
    default = option.default
    if option.default_factory is not MISSING:
        default = option.default_factory()
    return (
        default is not MISSING
        and type(default) is type(option_value)
        and bool(default == option_value)
    )
