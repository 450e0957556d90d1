"""`join_cells`: the column of a table that holds the cells of the reference, and of the rows to explain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from standfast.errors import check
from standfast.frames.columns import Cells, CellType, Column, Kind, check_equal_values
from standfast.tensors import Array


def join_cells(
    label: Any, references: Sequence[Cells], others: Sequence[Cells], missing: bool
) -> Column:
    """The column that holds the cells of all frames.

    Args:
        label: of the column.
        references: its cells in the frames of the reference, at least one.
        others: its cells in other frames.
        missing: whether cells may be missing although none is.

    Raises:
        ArgumentError: they have different types.
    """
    _check_types(label, [*references, *others])
    parts = _share_unit([*references, *others])
    first = parts[: len(references)]
    last = parts[len(references) :]
    cell_type = _widen_type([part.type for part in _list_telling(parts)])
    categories = _order_categories(label, cell_type.kind, first, last)
    known_in_reference = np.concatenate([part.known for part in first])
    known_in_all = np.concatenate([part.known for part in parts])
    reach = _find_range(known_in_all, categories)
    lowest, highest = reach
    # a reference of empty cells says nothing of the range
    numbers = known_in_reference if len(known_in_reference) else known_in_all
    low, high = _find_range(numbers, categories)
    empty_cells = _EmptyCells(
        missing=any(bool(part.is_missing.any()) for part in parts),
        nan=any(bool(part.is_nan.any()) for part in parts if part.is_nan is not None),
        may_come=missing,
    )
    missing_code, nan_code = _choose_codes((low, high), lowest, cell_type.kind, empty_cells)
    # a code further below may be infinite
    lowest_code = nan_code or missing_code or 0.0
    is_finite = math.isfinite(highest - lowest) and math.isfinite(lowest_code)
    expected = f"numbers in {str(label)!r} whose range is a finite number"
    check(is_finite, "frame", expected, f"{lowest:g} to {highest:g}")
    column = Column(
        name=str(label),
        label=label,
        type=cell_type,
        categories=categories,
        low=low,
        high=high,
        spread=_measure_spread(known_in_reference),
        varies=_count_distinct(first) > 1,
        reach=reach,
        missing=missing_code,
        nan=nan_code,
    )
    column.check_fits(known_in_all)
    return column


def _count_distinct(parts: Sequence[Cells]) -> int:
    """How many different known cells there are; parts may number their categories each in its own way."""
    distinct: set[Any] = set()
    for part in parts:
        if part.categories:
            distinct.update(_count_categories(part))
        else:
            distinct.update(np.unique(part.known).tolist())
    return len(distinct)


def _find_range(known: Array, categories: Sequence[Any]) -> tuple[float, float]:
    """The smallest and the largest number of cells; of categories those of all of them."""
    if categories:
        return 0.0, float(len(categories) - 1)
    if len(known) == 0:
        return 0.0, 0.0
    return float(known.min()), float(known.max())


def _measure_spread(numbers: Array) -> float:
    """The standard deviation of numbers `(n,)`, 0 without any; squares of the largest ones would overflow."""
    if len(numbers) == 0:
        return 0.0
    if np.abs(numbers).max() > 1e100:
        scale = float(np.abs(numbers).max())
    else:
        scale = 1.0
    return float((numbers / scale).std()) * scale


def _check_types(label: Any, parts: Sequence[Cells]) -> None:
    first = _list_telling(parts)[0].type
    for part in parts:
        other = part.type
        is_alike = (other.kind, other.holds) == (first.kind, first.holds)
        same = is_alike or len(part.known) == 0
        # numbers of other widths can be joined, but not categories
        kinds = {first.kind, other.kind}
        are_numbers = kinds in ({"number"}, {"whole"}, {"flag"})
        same &= other.dtype == first.dtype or are_numbers
        expected = f"the same type of {str(label)!r} in all frames ({first.dtype})"
        check(same, "reference", expected, f"{other.dtype}; use .astype or .cast")


def _list_telling(parts: Sequence[Cells]) -> list[Cells]:
    """The parts that have known cells, which tell what a column of objects holds; else all of them."""
    return [part for part in parts if len(part.known)] or list(parts)


def _share_unit(parts: Sequence[Cells]) -> list[Cells]:
    """The parts with the same unit: seconds where one of them has more than whole days."""
    units = {part.type.unit for part in parts if len(part.known)}
    if len(units) <= 1:
        return list(parts)
    return [part.in_seconds() for part in parts]


def _widen_type(types: Sequence[CellType]) -> CellType:
    """The first type, with as many decimals as any of them has, and the missing cells of one that has some."""
    decimals = [kind.decimals for kind in types if kind.decimals is not None]
    missing_cell = next(
        (kind.missing_cell for kind in types if kind.missing_cell is not None), None
    )
    return replace(types[0], decimals=max(decimals, default=None), missing_cell=missing_cell)


def _order_categories(
    label: Any, kind: Kind, references: Sequence[Cells], others: Sequence[Cells]
) -> tuple[Any, ...]:
    """The categories of all frames in the order of their numbers.

    Those without an order stand in the order of how often the reference has them, and of which comes first: names
    decide nothing. Those that no cell has come last.
    """
    parts = [*references, *others]
    categories_of_parts = [category for part in parts for category in part.categories]
    every = tuple(dict.fromkeys(categories_of_parts))
    if kind != "category":
        return every
    if str(parts[0].type.dtype) == "object":
        check_equal_values(label, categories_of_parts)
    counts: Counter[Any] = Counter()
    for part in references:
        counts.update(_count_categories(part))
    # those that only rows to explain have come after all of the reference
    appearing = list(counts)
    for part in others:
        appearing += _count_categories(part)
    distinct = dict.fromkeys(appearing)
    frequent_first = sorted(distinct, key=lambda category: -counts[category])
    return tuple(dict.fromkeys([*frequent_first, *every]))


def _count_categories(part: Cells) -> dict[Any, int]:
    """How often each category is in the cells; the one that comes first stands first."""
    numbers = part.known.astype(int)
    codes, firsts, times = np.unique(numbers, return_index=True, return_counts=True)
    counts = {}
    for number in np.argsort(firsts):
        category = part.categories[codes[number]]
        counts[category] = int(times[number])
    return counts


@dataclass(frozen=True)
class _EmptyCells:
    """Which cells without a value a column has: missing ones, NaN beside them; and whether missing ones may come."""

    missing: bool
    nan: bool
    may_come: bool


def _choose_codes(
    reference_range: tuple[float, float], lowest: float, kind: Kind, empty_cells: _EmptyCells
) -> tuple[float | None, float | None]:
    """The numbers of missing cells and of NaN, below all others.

    They depend on the reference alone, as random streams depend on them. Only a row to explain that lies further below
    the reference than half of its range moves them, so that it has room. A column that has NaN alone has one number,
    which is NaN: there a cell that gets lost becomes NaN, too.

    Args:
        reference_range: the smallest and the largest known number of the reference.
        lowest: the smallest known number of all frames.
        kind: of the cells.
        empty_cells: which of the codes are needed.
    """
    if not (empty_cells.missing or empty_cells.nan or empty_cells.may_come):
        return None, None
    low, high = reference_range
    if kind in ("flag", "category", "ordered"):
        return _pick_codes(-1.0, -2.0, empty_cells)
    # the last one: else large numbers would be no different
    smallest_visible = abs(low) * 2.0**-40
    step = max(high - low, 1.0, smallest_visible)
    # twice as far each time, so that few rows to explain move the codes
    while math.isfinite(step) and lowest < low - step / 2:
        step *= 2
    first = low - step
    second = low - 2 * step
    # whole numbers stay whole
    if kind != "number" and math.isfinite(second):
        first, second = math.floor(first), math.floor(second)
    return _pick_codes(float(first), float(second), empty_cells)


def _pick_codes(
    first: float, second: float, empty_cells: _EmptyCells
) -> tuple[float | None, float | None]:
    """Of two numbers below all others, that of missing cells and that of NaN."""
    if not empty_cells.nan:
        return first, None
    if empty_cells.missing:
        return (first, second)
    return (second, second)
