"""What a number of a column of a table means, in the user's units and names.

A report says it of what is stored, where no frame and no model is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from standfast.cells.moments import describe_time


def describe_cell(column: Mapping[str, Any], number: float) -> str:
    """A number of a column, described as `standfast.frames.Column.plain` does, in the user's units and names.

    >>> describe_cell({"kind": "category", "categories": ["red", "blue"], "missing": None}, 1.0)
    'blue'
    >>> day = {"kind": "date", "unit": "D", "missing": -3.0, "low": 0.0}
    >>> describe_cell(day, 366.0), describe_cell(day, -3.0)
    ('1971-01-02', 'missing')
    """
    if not math.isfinite(number):
        return "missing"
    empty = _describe_empty(column, number)
    if empty:
        return empty
    categories = column.get("categories")
    if categories:
        last = len(categories) - 1
        code = min(max(round(number), 0), last)
        return str(categories[code])
    kind = column["kind"]
    if kind == "date":
        is_duration = bool(column.get("duration"))
        return describe_time(number, column["unit"], column.get("zone", ""), is_duration)
    if kind == "whole":
        return f"{number:.0f}"
    return ""


def _describe_empty(column: Mapping[str, Any], number: float) -> str:
    """Which kind of empty cell a number stands for; an empty text where it is another cell."""
    missing = column.get("missing")
    if missing is None:
        return ""
    edge = (missing + column["low"]) / 2
    if number >= edge:
        return ""
    nan = column.get("nan")
    if nan is None:
        return "missing"
    if nan == missing:
        return "NaN"
    edge_of_nan = (missing + nan) / 2
    return "NaN" if number < edge_of_nan else "missing"
