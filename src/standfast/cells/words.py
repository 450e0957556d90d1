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
    missing, nan = column.get("missing"), column.get("nan")
    categories = column.get("categories") or []
    if not math.isfinite(number):
        return "missing"
    if missing is not None and number < (missing + column["low"]) / 2:
        is_nan = nan is not None and (nan == missing or number < (missing + nan) / 2)
        return "NaN" if is_nan else "missing"
    if categories:
        return str(categories[min(max(round(number), 0), len(categories) - 1)])
    if column["kind"] == "date":
        return describe_time(number, column["unit"], column.get("zone", ""), bool(column.get("duration")))
    return f"{number:.0f}" if column["kind"] == "whole" else ""
