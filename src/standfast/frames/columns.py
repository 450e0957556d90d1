"""`Column`: what is known of a column of a data frame, and its cells as numbers and back.

| kind | cells | number |
| --- | --- | --- |
| `number` | floating-point and decimal numbers | the number itself |
| `whole` | integers | the number itself |
| `flag` | true and false | 1 and 0 |
| `category` | texts, and categories without an order | the place of the category, from 0: the most frequent one first |
| `ordered` | categories with an order | the place of the category in its order, from 0 |
| `date` | dates, moments, durations | days, or seconds, since 1970 or since 0 |

Words for cells without a value, and for their numbers:

| word | meaning |
| --- | --- |
| empty | missing or NaN |
| missing | null, None, NA, NaT; NaN, too, in columns that cannot tell the two apart |
| NaN | in columns that have it beside missing cells: floats of polars, of Arrow, and pandas' own |
| `Column.missing`, `Column.nan` | their numbers: below all others, and NaN below missing |
| `Column.edge` | between these numbers and the others: no known cell is lower, `encode` refuses it |

These numbers, and `low`, `high`, `spread` and `varies`, come from the reference alone, so that rows to explain do not
matter to each other. Two things do depend on these rows: one far below the reference moves the number of missing cells
down, and categories that the reference does not have are numbered behind its own as they come.

Categories without an order are numbered by how often the reference has them, and then by which of them it has first.
So no number depends on what the categories are called.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from standfast.cells.moments import DAY, convert_to_seconds, describe_time
from standfast.errors import ArgumentError, check
from standfast.tensors import Array

Kind = Literal["number", "whole", "flag", "category", "ordered", "date"]
#: what a column whose library knows it as objects, or as decimal numbers, holds
Holds = Literal["", "decimals", "days"]
#: whole numbers beyond this are not exact in double precision
_LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class CellType:
    """How a column of a frame holds its cells, so that cells of the same type can be written again.

    Attributes:
        kind: what the cells are.
        dtype: of the column, as its library has it.
        holds: what cells are in columns of objects, or of decimal numbers.
        missing_cell: a missing cell in columns of objects.
        tells_nan: whether NaN is another thing than a missing cell.
        decimals: of decimal numbers: how many digits stand behind the point.
        unit: of dates, the one of their numbers: `"D"` or `"s"`.
        zone: of moments: the name of their time zone; empty for none.
        duration: whether dates are durations.
        limits: the smallest and the largest number that the column can hold.
    """

    kind: Kind
    dtype: Any
    holds: Holds = ""
    missing_cell: Any = None
    tells_nan: bool = False
    decimals: int | None = None
    unit: str = ""
    zone: str = ""
    duration: bool = False
    limits: tuple[float, float] = (-math.inf, math.inf)


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column of one frame.

    Attributes:
        type: what they are.
        numbers: float64 `(N,)`, NaN where a cell is missing or NaN itself.
        categories: of a flag, a category or an ordered one, in the order of their numbers.
        is_nan: which cells are NaN and not missing, bool `(N,)`; None where that is the same.
    """

    type: CellType
    numbers: Array
    categories: tuple[Any, ...] = ()
    is_nan: Array | None = None

    def __post_init__(self) -> None:
        if self.is_nan is None or not self.type.tells_nan:
            # the record is frozen
            no_nan = np.zeros(len(self.numbers), dtype=bool)
            object.__setattr__(self, "is_nan", no_nan)

    @property
    def is_empty(self) -> Array:
        """Which cells are missing or NaN, bool `(N,)`."""
        return np.isnan(self.numbers)

    @property
    def known(self) -> Array:
        """The numbers of the other cells."""
        return self.numbers[~self.is_empty]

    @property
    def is_missing(self) -> Array:
        """Which cells are missing, bool `(N,)`."""
        assert self.is_nan is not None
        return self.is_empty & ~self.is_nan

    def in_seconds(self) -> Cells:
        """Dates that are whole days, in seconds."""
        if self.type.unit != "D":
            return self
        first, last = self.type.limits
        limits = (first * DAY, last * DAY)
        in_seconds = replace(self.type, unit="s", limits=limits)
        numbers = convert_to_seconds(self.numbers, self.type.zone)
        return replace(self, type=in_seconds, numbers=numbers)


@dataclass(frozen=True, eq=False)
class Column:
    """What is known of one column of the user's.

    Attributes:
        name: as reports show it.
        label: as the frame has it, a text or something else.
        type: of its cells.
        categories: of a flag, a category or an ordered one, by their numbers.
        low, high: the smallest and the largest number of the reference's known cells; of categories, of all of them.
        spread: the standard deviation of the known cells of the reference.
        varies: whether the reference has two different known cells.
        reach: the smallest and the largest number of the known cells of all frames.
        missing: the number of a missing cell; None where the column has none.
        nan: the number of NaN, where that is another thing than a missing cell. It is `missing` itself where the column
            has NaN alone. None where it has none.
    """

    name: str
    label: Any
    type: CellType
    categories: tuple[Any, ...]
    low: float
    high: float
    spread: float
    varies: bool
    reach: tuple[float, float]
    missing: float | None
    nan: float | None = None

    @property
    def kind(self) -> Kind:
        """Of its cells."""
        return self.type.kind

    @property
    def dtype(self) -> Any:
        """As the library of the frame has it."""
        return self.type.dtype

    @property
    def unit(self) -> str:
        """Of dates."""
        return self.type.unit

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the numbers of its cells in all frames; never empty."""
        lowest, highest = self.reach
        numbers = (lowest, self.missing, self.nan)
        low = min(number for number in numbers if number is not None)
        # a column of one value needs a range, as bounds do
        if highest <= low:
            highest = low + 1.0
        return low, highest

    @property
    def edge(self) -> float:
        """Numbers below it stand for missing cells and for NaN; minus infinity where the column has none."""
        if self.missing is None:
            return -math.inf
        return (self.missing + self.low) / 2

    @property
    def codes_of_no_quantity(self) -> tuple[float, ...]:
        """The numbers of all categories, of a missing cell and of NaN, where it can have them."""
        codes = map(float, range(len(self.categories)))
        numbers = [*codes, self.missing, self.nan]
        return tuple(dict.fromkeys(number for number in numbers if number is not None))

    # cells as numbers

    def encode(self, cells: Cells) -> Array:
        """The numbers `(N,)` of cells, with one for missing cells.

        Raises:
            ArgumentError: a category that the column does not have, a missing cell where it can have none, or a number
                that it cannot hold.
        """
        self._check_kind(cells)
        self._check_dates(cells)
        if cells.type.unit != self.type.unit:
            # days and seconds meet in the finer unit
            cells = cells.in_seconds()
        is_nan = self._find_nan_cells(cells)
        is_missing = cells.is_empty & ~is_nan
        self._check_empty(cells, is_missing, is_nan)
        numbers = self._number_categories(cells)
        self.check_fits(numbers[~cells.is_empty])
        # nothing stands for an empty cell or a NaN where a column has none
        number_of_missing = np.nan if self.missing is None else self.missing
        number_of_nan = np.nan if self.nan is None else self.nan
        numbers = np.where(is_missing, number_of_missing, numbers)
        return np.where(is_nan, number_of_nan, numbers)

    def _find_nan_cells(self, cells: Cells) -> Array:
        """Which cells `(N,)` are NaN and not missing, in a column that tells these apart."""
        if not self.type.tells_nan or cells.is_nan is None:
            return np.zeros(len(cells.numbers), dtype=bool)
        return cells.is_nan

    def _check_kind(self, cells: Cells) -> None:
        kinds = {self.kind, cells.type.kind}
        # an empty column fits any type
        are_numbers = kinds == {"number", "whole"}
        fits = len(kinds) == 1 or are_numbers or bool(cells.is_empty.all())
        expected = f"a {self.kind} ({self.dtype}) in {self.name!r}"
        check(fits, "frame", expected, f"{cells.type.dtype}")

    def _check_dates(self, cells: Cells) -> None:
        if self.kind != "date" or len(cells.known) == 0:
            return
        mine = self.type
        theirs = cells.type
        same = (mine.zone, mine.duration, mine.holds) == (
            theirs.zone,
            theirs.duration,
            theirs.holds,
        )
        check(
            same,
            "frame",
            f"dates of the same type in {self.name!r} ({self.dtype})",
            f"{theirs.dtype}",
        )
        fits = mine.unit != "D" or theirs.unit == "D"
        expected = (
            f"whole days in {self.name!r}, as the reference has (or Table.read(reference, frame))"
        )
        check(fits, "frame", expected, "hours or less")

    def _check_empty(self, cells: Cells, is_missing: Array, is_nan: Array) -> None:
        """Raise `ArgumentError` for cells that are missing, or NaN, in a column that has no such cells."""
        takes_missing = self.missing is not None and self.missing != self.nan
        missing_count = int(is_missing.sum())
        expected = f"no missing cells in {self.name!r}, as the reference has none there (Table.read(..., missing=True))"
        check(takes_missing or not missing_count, "frame", expected, f"{missing_count}")
        nan_count = int(is_nan.sum())
        expected = f"no NaN in {self.name!r}, as the reference has none there (or Table.read(reference, frame))"
        check(self.nan is not None or not nan_count, "frame", expected, f"{nan_count}")
        # an encoder may tell None from NaN in a column of objects, although pandas does not
        objects = str(self.dtype) == str(cells.type.dtype) == "object"
        missing_cell, other_missing_cell = self.type.missing_cell, cells.type.missing_cell
        same = type(missing_cell) is type(other_missing_cell) or not objects
        expected = (
            f"missing cells as {missing_cell!r} in {self.name!r}, as the reference"
            " has (.where, .fillna)"
        )
        check(same or not missing_count, "frame", expected, repr(other_missing_cell))

    def _number_categories(self, cells: Cells) -> Array:
        """The numbers of cells, NaN for empty ones; of categories by this column's own order."""
        # numbers of the frame's own categories mean nothing here
        if not cells.categories:
            return cells.numbers
        codes = {category: float(code) for code, category in enumerate(self.categories)}
        numbers = np.unique(cells.known)
        used = [cells.categories[int(number)] for number in numbers]
        unknown = [repr(category) for category in used if category not in codes]
        first_categories = ", ".join(map(str, self.categories[:8]))
        expected = f"known categories in {self.name!r} ({first_categories})"
        check(not unknown, "frame", expected, ", ".join(unknown[:3]))
        # objects may be equal and of different types, such as 1 and True
        if str(self.dtype) == "object":
            check_equal_values(self.name, [*self.categories, *used])
        order = np.array([codes.get(category, math.nan) for category in cells.categories])
        own_numbers = np.nan_to_num(cells.numbers).astype(int)
        return np.where(cells.is_empty, np.nan, order[own_numbers])

    def check_fits(self, numbers: Array) -> None:
        """Raise `ArgumentError` for numbers of known cells `(n,)` that the column cannot hold as they are."""
        if len(numbers) == 0 or self.categories:
            # categories have no limits
            return
        smallest = float(numbers.min())
        largest = float(numbers.max())
        low, high = self.type.limits
        fits = low <= smallest and largest <= high
        got = f"{self._describe(smallest)} to {self._describe(largest)}"
        expected = f"a {self.kind} that fits {self.dtype} in {self.name!r}"
        check(fits, "frame", expected, got)
        self._check_digits(numbers)
        # a search, or a draw, may come close to the lowest number: so those of missing cells keep a distance from it
        expected = (
            f"cells of at least {self._describe(self.edge)} in {self.name!r}, below which numbers stand for missing"
            " cells (Table.read(reference, frame) makes room for lower ones)"
        )
        check(smallest >= self.edge, "frame", expected, self._describe(smallest))

    def _check_digits(self, numbers: Array) -> None:
        """Raise `ArgumentError` for numbers with more digits behind the point than the column has."""
        if self.kind == "whole":
            fits = bool((numbers == np.round(numbers)).all())
            check(fits, "frame", f"whole numbers in {self.name!r}, as the reference has", "others")
        decimals = self.type.decimals
        if decimals is not None:
            # decimal fractions are not exact in double precision
            rounded = np.round(numbers, decimals)
            fits = np.allclose(numbers, rounded, rtol=1e-14, atol=0)
            expected = (
                f"numbers of at most {decimals} decimals in {self.name!r}, as the reference has"
            )
            check(fits, "frame", f"{expected} (or Table.read(reference, frame))", "more")

    def _describe(self, number: float) -> str:
        """A number for messages: a date as one."""
        if self.kind != "date" or not math.isfinite(number):
            return f"{number:g}"
        return describe_time(number, self.type.unit, self.type.zone, self.type.duration)

    # numbers as cells

    def decode(self, numbers: Array) -> Array:
        """The nearest possible numbers `(N,)` of cells, NaN for missing ones and for NaN; any number is a cell."""
        return np.where(numbers < self.edge, np.nan, self._round(numbers))

    def find_nan(self, numbers: Array) -> Array:
        """Which numbers `(N,)` are NaN, and not missing, bool."""
        if self.nan is None or self.missing is None:
            return np.zeros(len(numbers), dtype=bool)
        if self.nan == self.missing:
            edge = self.edge
        else:
            edge = (self.nan + self.missing) / 2
        return numbers < edge

    def _round(self, numbers: Array) -> Array:
        if self.categories:
            last = len(self.categories) - 1
            return np.clip(np.round(numbers), 0, last)
        inside = np.clip(numbers, *self.type.limits)
        if self.kind == "number":
            if self.type.decimals is None:
                return inside
            return np.round(inside, self.type.decimals)
        if self.type.unit == "s":
            return np.round(inside, 6)
        return np.round(inside)

    def plain(self) -> dict[str, Any]:
        """What a report needs to write its cells, as JSON can hold it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "unit": self.type.unit,
            "zone": self.type.zone,
            "low": self.low,
            "missing": self.missing,
            "nan": self.nan,
            "categories": [str(category) for category in self.categories],
            "duration": self.type.duration,
        }


# Reading cells


def check_finite(label: Any, numbers: Array) -> Array:
    """The numbers; `ArgumentError` where some are infinite."""
    infinite = np.isinf(numbers)
    expected = f"finite numbers or missing cells in {str(label)!r}"
    count = int(infinite.sum())
    check(count == 0, "frame", expected, f"{count} infinite")
    return numbers


def check_whole(label: Any, numbers: Array) -> Array:
    """Whole numbers; `ArgumentError` where some are too large for double precision."""
    present = numbers[~np.isnan(numbers)]
    largest = float(np.abs(present).max(initial=0.0))
    large = largest >= _LARGEST
    check(
        not large,
        "frame",
        f"whole numbers up to 2^53 in {str(label)!r} (names are texts)",
        "larger ones",
    )
    return numbers


def read_categories(
    label: Any, values: Sequence[Any], order: Sequence[Any] | None
) -> tuple[Array, tuple[Any, ...]]:
    """The places of texts, or of other values, among their categories, and these; None is a missing cell.

    Args:
        label: of the column.
        values: `N` cells.
        order: the categories in their order; None for any order.

    Raises:
        ArgumentError: values that cannot be told apart, or that the order does not have.
    """
    try:
        present = [value for value in values if value is not None]
        distinct = dict.fromkeys(present)
        # what has no order often has no equality
        sorted(distinct, key=lambda value: (type(value).__name__, value))
    except TypeError as error:
        raise ArgumentError(
            "frame", f"numbers, texts or dates in {str(label)!r}", str(error)
        ) from None
    check_equal_values(label, present)
    categories = tuple(distinct)
    if order is not None:
        categories = tuple(order)
    unknown = sorted(map(repr, distinct.keys() - set(categories)))
    check(
        not unknown,
        "ordered",
        f"all categories of {str(label)!r}",
        f"none for {', '.join(unknown[:3])}",
    )
    codes = {category: float(code) for code, category in enumerate(categories)}
    numbers = [math.nan if value is None else codes[value] for value in values]
    return np.array(numbers, dtype=float), categories


def check_equal_values(label: Any, values: Sequence[Any]) -> None:
    """Raise `ArgumentError` for equal values of different types, such as 1 and True: they would become one category."""
    first_of_equals: dict[Any, Any] = {}
    for value in values:
        first = first_of_equals.setdefault(value, value)
        if first is not value and _find_form(first) != _find_form(value):
            expected = f"equal values of the same type in {str(label)!r} (.astype, .map)"
            raise ArgumentError("frame", expected, f"{first!r} and {value!r}")


def _find_form(value: Any) -> Any:
    """What tells equal values apart: their types, also inside of tuples, and the sign of 0."""
    if isinstance(value, tuple):
        return type(value), tuple(map(_find_form, value))
    if isinstance(value, frozenset):
        return type(value), frozenset(map(_find_form, value))
    if isinstance(value, float):
        return type(value), math.copysign(1.0, value)
    return type(value)
