"""Arguments, and parts of a study, that must be refused by name."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from standfast.errors import ArgumentError
from standfast.study.file.document import StudyError


def assert_refused(make: Callable[..., object], /, **wrong: list[object]) -> None:
    """Give `make` each value alone, under its name: an `ArgumentError` names that argument."""
    for argument, values in wrong.items():
        for value in values:
            with pytest.raises(ArgumentError) as caught:
                make(**{argument: value})
            assert re.search(rf"\b{argument}$", caught.value.argument), (
                f"{caught.value} for {value!r}"
            )


def refused(study: Any, *words: str) -> None:
    """The grid of the study ends in a `StudyError` that has these words."""
    with pytest.raises(StudyError) as caught:
        study.grid()
    for word in words:
        assert word in str(caught.value), str(caught.value)
