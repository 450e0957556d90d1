"""Arguments that must be refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from standfast.errors import ArgumentError


def assert_refused(make: Callable[..., object], /, **wrong: list[object]) -> None:
    """Give `make` each value alone, under its name: an `ArgumentError` names that argument."""
    for argument, values in wrong.items():
        for value in values:
            with pytest.raises(ArgumentError) as caught:
                make(**{argument: value})
            assert re.search(rf"\b{argument}$", caught.value.argument), f"{caught.value} for {value!r}"
