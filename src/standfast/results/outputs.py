"""The ways to show results: `standfast.report` registers them when it is imported, and results do not import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from standfast.errors import StandfastError
from standfast.registry import Registry

#: functions of `Results`: `"text"` for print, `"notebook"` for Jupyter, `"plot"`, `"page"`
outputs: Registry[Callable[..., Any]] = Registry("output")


def show_as(kind: str, *arguments: Any) -> Any:
    """Call a registered output.

    Raises:
        StandfastError: `standfast.report` was not imported.
    """
    if kind not in outputs:
        raise StandfastError("nothing is registered that shows results: import standfast.report first")
    return outputs[kind](*arguments)
