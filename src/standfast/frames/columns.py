"""`Column`: what is known of a column of a data frame, and its cells as numbers, from pandas or polars and back.

| kind | cells | number |
| --- | --- | --- |
| `number` | floating-point numbers | the number itself |
| `whole` | integers | the number itself |
| `flag` | true and false | 1 and 0 |
| `category` | texts, and categories without an order | the place of the category, from 0 |
| `ordered` | categories with an order | the place of the category in its order, from 0 |
| `date` | dates, times, durations | days, or seconds, since 1970 or since 0 |

A missing cell is a number of its own, below all others.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from standfast.errors import ArgumentError, check
from standfast.tensors import Array

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["number", "whole", "flag", "category", "ordered", "date"]
#: seconds of a unit in which dates are stored
_SECONDS = {"D": 86400.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
#: whole numbers beyond this are not exact in double precision
_LARGEST = 2**53


@dataclass(frozen=True, eq=False)
class Cells:
    """The cells of one column of one frame.

    Attributes:
        kind: what they are.
        numbers: float64 `(N,)`, NaN where a cell is missing.
        dtype: of the column, as its library has it.
        categories: of a flag, a category or an ordered one, in the order of their numbers.
        unit: of dates: `"D"` or `"s"`.
    """

    kind: Kind
    numbers: Array
    dtype: Any
    categories: tuple[Any, ...] = ()
    unit: str = ""


@dataclass(frozen=True, eq=False)
class Column:
    """What is known of one column of the user's.

    Attributes:
        name: as reports show it.
        label: as the frame has it, a text or something else.
        kind: of its cells.
        dtype: as the library of the frame has it.
        categories: of a flag, a category or an ordered one.
        low, high: the smallest and the largest number of the known cells.
        spread: the standard deviation of the known cells.
        missing: the number of a missing cell; None where the column has none.
        unit: of dates.
    """

    name: str
    label: Any
    kind: Kind
    dtype: Any
    categories: tuple[Any, ...]
    low: float
    high: float
    spread: float
    missing: float | None
    unit: str = ""

    @property
    def bounds(self) -> tuple[float, float]:
        """The range of the numbers of its cells; never empty."""
        low = self.low if self.missing is None else self.missing
        return low, self.high if self.high > low else low + 1.0

    def encode(self, cells: Cells) -> Array:
        """The numbers `(N,)` of cells of the same kind, with one for missing cells.

        Raises:
            ArgumentError: a category that the column does not have, or a missing cell where it can have none.
        """
        numbers = cells.numbers
        if self.categories:
            places = {category: place for place, category in enumerate(self.categories)}
            unknown = [repr(each) for each in cells.categories if each not in places]
            used = {cells.categories[int(n)] for n in np.unique(numbers[~np.isnan(numbers)])}
            unknown = [each for each in unknown if each in set(map(repr, used))]
            expected = f"known categories in {self.name!r} ({', '.join(map(str, self.categories[:8]))})"
            check(not unknown, "frame", expected, ", ".join(unknown[:3]))
            order = np.array([places.get(each, 0) for each in cells.categories] or [0], dtype=float)
            known = np.nan_to_num(numbers).astype(int)
            numbers = np.where(np.isnan(numbers), np.nan, order[known])
        empty = np.isnan(numbers)
        expected = f"no missing cells in {self.name!r}, as the reference has none there (Table.read(..., missing=True))"
        check(self.missing is not None or not empty.any(), "frame", expected, f"{int(empty.sum())}")
        return np.where(empty, self.missing if self.missing is not None else np.nan, numbers)

    def decode(self, numbers: Array) -> Array:
        """The nearest possible numbers `(N,)` of cells, NaN for missing ones; any number is a cell."""
        empty = np.zeros(len(numbers), dtype=bool)
        if self.missing is not None:
            empty = numbers < (self.missing + self.low) / 2
        known = np.clip(numbers, self.low, self.high)
        if self.kind != "number":
            known = np.round(known) if self.unit != "s" else np.round(known, 6)
        return np.where(empty, np.nan, known)

    def plain(self) -> dict[str, Any]:
        """What a report needs to write its cells, as JSON can hold it."""
        return {
            "name": self.name,
            "kind": self.kind,
            "unit": self.unit,
            "low": self.low,
            "missing": self.missing,
            "categories": [str(each) for each in self.categories],
            "duration": "duration" in str(self.dtype).lower() or "timedelta" in str(self.dtype),
        }


def join_cells(label: Any, parts: Sequence[Cells], missing: bool) -> Column:
    """The column that holds the cells of all parts.

    Args:
        label: of the column.
        parts: its cells in one or several frames.
        missing: whether cells may be missing although none is.

    Raises:
        ArgumentError: they have different types.
    """
    first = parts[0]
    for other in parts[1:]:
        same = other.kind == first.kind and (other.dtype == first.dtype or first.kind in ("number", "whole", "flag"))
        expected = f"the same type of {str(label)!r} in all frames ({first.dtype})"
        check(same or not len(other.numbers), "reference", expected, f"{other.dtype}; use .astype or .cast")
    every = tuple(dict.fromkeys(category for part in parts for category in part.categories))
    if first.kind == "category" and all(
        part.categories == tuple(sorted(part.categories, key=_order)) for part in parts
    ):
        every = tuple(sorted(every, key=_order))
    numbers = np.concatenate([part.numbers for part in parts])
    known = numbers[~np.isnan(numbers)]
    if every:
        low, high = 0.0, float(len(every) - 1)
    else:
        low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    empty = missing or len(known) < len(numbers)
    code = low - max(high - low, 1.0) if empty else None
    if code is not None and first.kind != "number":
        code = float(math.floor(code))
    spread = float(known.std()) if len(known) else 0.0
    unit = first.unit if all(part.unit == first.unit for part in parts) else "s"
    return Column(str(label), label, first.kind, first.dtype, every, low, high, spread, code, unit)


def _order(category: Any) -> tuple[str, Any]:
    """Categories of several types have an order, too."""
    return type(category).__name__, category


def _check_numbers(label: Any, numbers: Array) -> Array:
    infinite = np.isinf(numbers)
    expected = f"finite numbers or missing cells in {str(label)!r}"
    check(not infinite.any(), "frame", expected, f"{int(infinite.sum())} infinite")
    return numbers


def _check_whole(label: Any, numbers: Array) -> Array:
    known = numbers[~np.isnan(numbers)]
    large = len(known) > 0 and float(np.abs(known).max()) > _LARGEST
    check(not large, "frame", f"whole numbers up to 2^53 in {str(label)!r} (names are texts)", "larger ones")
    return numbers


def _read_categories(label: Any, values: Sequence[Any], order: Sequence[Any] | None) -> tuple[Array, tuple[Any, ...]]:
    """The places of texts, or of other values, in the order of their categories; None is a missing cell."""
    try:
        known = {value for value in values if value is not None}
        categories = tuple(sorted(known, key=_order)) if order is None else tuple(order)
    except TypeError as error:
        raise ArgumentError("frame", f"numbers, texts or dates in {str(label)!r}", str(error)) from None
    unknown = sorted(map(repr, known - set(categories)))
    check(not unknown, "ordered", f"all categories of {str(label)!r}", f"none for {', '.join(unknown[:3])}")
    places = {category: float(place) for place, category in enumerate(categories)}
    return np.array([math.nan if value is None else places[value] for value in values], dtype=float), categories


# pandas


def read_pandas(series: Any, label: Any, order: Sequence[Any] | None = None) -> Cells:
    """The cells of a pandas series."""
    import pandas as pd

    dtype, empty = series.dtype, series.isna().to_numpy()
    kinds = pd.api.types
    if isinstance(dtype, pd.CategoricalDtype) and order is None:
        numbers = np.where(empty, np.nan, series.cat.codes.to_numpy(dtype=float))
        return Cells("ordered" if dtype.ordered else "category", numbers, dtype, tuple(dtype.categories))
    if kinds.is_bool_dtype(dtype) and not isinstance(dtype, pd.CategoricalDtype):
        return Cells("flag", _as_floats(series, empty), dtype, (False, True))
    if kinds.is_integer_dtype(dtype):
        return Cells("whole", _check_whole(label, _as_floats(series, empty)), dtype)
    if kinds.is_float_dtype(dtype):
        return Cells("number", _check_numbers(label, _as_floats(series, empty)), dtype)
    if kinds.is_datetime64_any_dtype(dtype) or kinds.is_timedelta64_dtype(dtype):
        return _read_time(series.astype("int64").to_numpy(), empty, dtype, np.datetime_data(_plain_time(dtype))[0])
    plain = kinds.is_object_dtype(dtype) or kinds.is_string_dtype(dtype) or isinstance(dtype, pd.CategoricalDtype)
    check(plain, "frame", f"numbers, texts, categories or dates in {str(label)!r}", str(dtype))
    values = [None if gone else value for gone, value in zip(empty, series.tolist(), strict=True)]
    known = [value for value in values if value is not None]
    numeric = bool(known) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in known)
    expected = f"numbers in {str(label)!r} stored as numbers (pandas.to_numeric), or as texts"
    check(not numeric or order is not None, "frame", expected, f"dtype {dtype}")
    if not known:  # nothing tells whether it would hold texts
        return Cells("category", np.full(len(values), np.nan), dtype, ())
    numbers, categories = _read_categories(label, values, order)
    return Cells("category" if order is None else "ordered", numbers, dtype, categories)


def _as_floats(series: Any, empty: Array) -> Array:
    numbers = np.full(len(series), np.nan)
    numbers[~empty] = series[~empty].to_numpy(dtype=float)
    return numbers


def _plain_time(dtype: Any) -> Any:
    """The type of times without their zone."""
    return getattr(dtype, "base", dtype) if getattr(dtype, "tz", None) is not None else dtype


def _read_time(numbers: Array, empty: Array, dtype: Any, unit: str) -> Cells:
    """Days where all are whole days, else seconds."""
    seconds = np.where(empty, np.nan, numbers * _SECONDS[unit])
    whole = unit == "D" or not np.any(numbers[~empty] % round(_SECONDS["D"] / _SECONDS[unit]))
    return Cells("date", seconds / _SECONDS["D"] if whole else seconds, dtype, (), "D" if whole else "s")


def write_pandas(column: Column, numbers: Array) -> Any:
    """A pandas series of decoded numbers `(N,)`."""
    import pandas as pd

    empty = np.isnan(numbers)
    filled = np.nan_to_num(numbers)
    if isinstance(column.dtype, pd.CategoricalDtype):
        codes = np.where(empty, -1, filled).astype(int)
        if tuple(column.dtype.categories) == column.categories:
            return pd.Series(pd.Categorical.from_codes(codes, dtype=column.dtype))
    if column.categories:
        every = np.empty(len(column.categories) + 1, dtype=object)
        every[:-1], every[-1] = column.categories, None
        values = pd.Series(every[np.where(empty, -1, filled.astype(int))], dtype=object)
        numpy_bool = column.kind == "flag" and column.dtype == bool
        return values.astype(object if numpy_bool and empty.any() else column.dtype)
    if column.kind == "date":
        unit = np.datetime_data(_plain_time(column.dtype))[0]
        counts = _count_time(column, filled, unit)
        kind = "timedelta64" if pd.api.types.is_timedelta64_dtype(column.dtype) else "datetime64"
        times = pd.Series(counts.view(f"{kind}[{unit}]"))
        zone = getattr(column.dtype, "tz", None)
        times = times if zone is None else times.dt.tz_localize("UTC").dt.tz_convert(zone)
        return times.mask(empty)
    if column.kind == "whole" and isinstance(column.dtype, np.dtype):  # a plain integer has no missing cells
        return pd.Series(numbers if empty.any() else filled.astype(column.dtype))
    if column.kind in ("number", "whole") and isinstance(column.dtype, np.dtype):
        return pd.Series(numbers.astype(column.dtype))
    if column.kind != "category":
        return pd.Series(pd.array(filled, dtype="float64")).mask(empty).astype(column.dtype)
    return pd.Series([None] * len(numbers), dtype=column.dtype)  # no cell of it is known


def _count_time(column: Column, numbers: Array, unit: str) -> Array:
    factor = _SECONDS[column.unit] / _SECONDS[unit]
    return np.round(numbers).astype(np.int64) * round(factor) if column.unit == "D" else _split(numbers, factor)


def _split(seconds: Array, factor: float) -> Array:
    """Seconds in smaller units, exact to the microsecond although nanoseconds since 1970 need more than 53 bits."""
    whole = np.floor(seconds)
    rest = np.round((seconds - whole) * min(factor, 1e6)).astype(np.int64) * round(max(factor / 1e6, 1))
    return whole.astype(np.int64) * round(factor) + rest


# polars


def read_polars(series: pl.Series, label: Any, order: Sequence[Any] | None = None) -> Cells:
    """The cells of a polars series."""
    import polars as pl

    dtype, empty = series.dtype, series.is_null().to_numpy()
    if dtype == pl.Boolean:
        return Cells("flag", series.cast(pl.Float64).to_numpy().astype(float), dtype, (False, True))
    if dtype.is_integer():
        return Cells("whole", _check_whole(label, series.cast(pl.Float64).to_numpy().astype(float)), dtype)
    if dtype.is_float():
        return Cells("number", _check_numbers(label, series.cast(pl.Float64).to_numpy().astype(float)), dtype)
    if dtype.is_temporal() and dtype != pl.Time:
        unit = "D" if dtype == pl.Date else str(dtype.time_unit)  # type: ignore[attr-defined]
        return _read_time(series.to_physical().cast(pl.Int64).fill_null(0).to_numpy(), empty, dtype, unit)
    if isinstance(dtype, pl.Enum) and order is None:
        order = dtype.categories.to_list()
    texts = dtype in (pl.String, pl.Categorical, pl.Null) or isinstance(dtype, pl.Enum)
    check(texts, "frame", f"numbers, texts, categories or dates in {str(label)!r}", str(dtype))
    numbers, categories = _read_categories(label, series.to_list(), order)
    return Cells("category" if order is None else "ordered", numbers, dtype, categories)


def write_polars(column: Column, numbers: Array) -> pl.Series:
    """A polars series of decoded numbers `(N,)`."""
    import polars as pl

    empty = np.isnan(numbers)
    filled = np.nan_to_num(numbers)
    if column.kind == "number":
        found = pl.Series(column.name, filled).cast(column.dtype)
    elif column.categories:
        places = pl.Series(np.where(empty, 0, filled).astype(np.int64))
        found = pl.Series(column.name, list(column.categories)).gather(places).cast(column.dtype)
    elif column.kind == "category":
        return pl.Series(column.name, [None] * len(numbers), dtype=column.dtype)
    elif column.kind == "date":
        unit = "D" if column.dtype == pl.Date else str(column.dtype.time_unit)
        found = pl.Series(column.name, _count_time(column, filled, unit)).cast(column.dtype)
    else:
        found = pl.Series(column.name, filled.astype(np.int64)).cast(column.dtype)
    return pl.select(pl.when(pl.Series(~empty)).then(found)).to_series().alias(column.name)


def describe_cell(column: Mapping[str, Any], number: float) -> str:
    """A number of a column, described as `Column.plain` does, in the user's units and names.

    >>> describe_cell({"kind": "category", "categories": ["red", "blue"], "missing": None}, 1.0)
    'blue'
    >>> day = {"kind": "date", "unit": "D", "missing": -3.0, "low": 0.0}
    >>> describe_cell(day, 366.0), describe_cell(day, -3.0)
    ('1971-01-02', 'missing')
    """
    missing, categories = column.get("missing"), column.get("categories") or []
    if not math.isfinite(number) or (missing is not None and number < (missing + column["low"]) / 2):
        return "missing"
    if categories:
        return str(categories[min(max(round(number), 0), len(categories) - 1)])
    if column["kind"] == "date":
        length = datetime.timedelta(**{"days" if column["unit"] == "D" else "seconds": number})
        if column.get("duration"):
            return str(length)
        moment = datetime.datetime(1970, 1, 1) + length
        return moment.strftime("%Y-%m-%d" if column["unit"] == "D" else "%Y-%m-%d %H:%M:%S")
    return f"{number:.0f}" if column["kind"] == "whole" else ""
