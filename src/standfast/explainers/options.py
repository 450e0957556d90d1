"""How an explainer declares its options: each with its default and the check of its value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any, get_args

from standfast.errors import check, check_choice, check_integer, check_number


def declare(default: Any, check: Callable[[Any, str], object]) -> Any:
    """An option of an explainer: a field of its dataclass with a default and a check, which runs when it is made.

    Args:
        default: of the option.
        check: of its value and its name; raises `ArgumentError`. What it returns is held in place of the value, unless
            it is None.
    """
    return field(default=default, metadata={"check": check})


def declare_integer(default: int, least: int = 1) -> Any:
    """An option that is a whole number of at least `least`."""
    return declare(default, partial(check_integer, least=least))


def declare_number(default: float, least: float = -math.inf, above: float = -math.inf, below: float = math.inf) -> Any:
    """An option that is a number of at least `least`, above `above` and below `below`."""
    return declare(default, partial(check_number, least=least, above=above, below=below))


def declare_choice(default: str, choices: Any) -> Any:
    """An option that is one of a `Literal`."""
    return declare(default, partial(check_choice, choices=get_args(choices)))


def declare_flag(default: bool) -> Any:
    """An option that is True or False."""
    return declare(default, lambda value, name: check(isinstance(value, bool), name, "True or False", repr(value)))
