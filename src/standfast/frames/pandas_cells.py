"""Cells of columns of pandas: NumPy's types, pandas' own, and objects of Python. Arrow's are in `arrow_cells.py`."""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Any

import numpy as np

from standfast.cells.moments import (
    FIRST_DAY,
    LAST_DAY,
    count_in_unit,
    find_limits,
    name_zone,
    read_times,
)
from standfast.errors import check
from standfast.frames.arrow_cells import read_arrow, write_arrow
from standfast.frames.columns import (
    Cells,
    CellType,
    Column,
    Kind,
    check_finite,
    check_whole,
    read_categories,
)
from standfast.frames.decimals import read_decimals, write_decimals
from standfast.tensors import Array

_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
#: objects that have a type of columns of their own, with an order that texts do not have
_TIMES = (datetime.datetime, datetime.time, datetime.timedelta, np.datetime64, np.timedelta64)


# Reading


def read_pandas(series: Any, label: Any, order: Sequence[Any] | None = None) -> Cells:
    """The cells of a pandas series.

    Args:
        series: N cells.
        label: of its column.
        order: for a column of texts, its categories in their order.

    Raises:
        ArgumentError: a type of cells that is not known, or cells that numbers in double precision cannot tell apart.
    """
    import pandas as pd

    dtype = series.dtype
    kinds = pd.api.types
    if isinstance(dtype, pd.SparseDtype):
        return _rename_type(read_pandas(series.sparse.to_dense(), label, order), dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        return _read_categorical(series, label, order)
    if isinstance(dtype, pd.ArrowDtype):
        return read_arrow(series, label, order)
    if kinds.is_numeric_dtype(dtype):
        return _read_numbers(series, label)
    if kinds.is_datetime64_any_dtype(dtype) or kinds.is_timedelta64_dtype(dtype):
        return _read_times(series, label)
    plain = kinds.is_object_dtype(dtype) or kinds.is_string_dtype(dtype)
    expected = f"numbers, texts, categories or dates in {str(label)!r}"
    check(plain, "frame", expected, str(dtype))
    return _read_objects(series, label, order)


def _rename_type(cells: Cells, dtype: Any) -> Cells:
    """The same cells in a column of another type."""
    return Cells(
        CellType(**{**vars(cells.type), "dtype": dtype}),
        cells.numbers,
        cells.categories,
        cells.is_nan,
    )


def _read_categorical(series: Any, label: Any, order: Sequence[Any] | None) -> Cells:
    dtype = series.dtype
    categories = tuple(dtype.categories)
    codes = series.cat.codes.to_numpy(dtype=float)
    is_missing = codes < 0
    if order is None:
        kind: Kind = "ordered" if dtype.ordered else "category"
        numbers = np.where(is_missing, np.nan, codes)
        return Cells(CellType(kind, dtype), numbers, categories)
    unknown = [repr(category) for category in order if category not in set(categories)]
    expected = f"categories that {str(label)!r} can have"
    check(not unknown, "ordered", expected, ", ".join(unknown[:3]))
    values = [None if code < 0 else categories[int(code)] for code in codes]
    numbers, in_order = read_categories(label, values, order)
    return Cells(CellType("ordered", dtype), numbers, in_order)


def _read_numbers(series: Any, label: Any) -> Cells:
    """Numbers and flags of NumPy's types, and of pandas' own such as Int64, Float32 and boolean."""
    dtype = series.dtype
    of_numpy = isinstance(dtype, np.dtype)
    stored = dtype if of_numpy else dtype.numpy_dtype
    check(stored.kind in "biuf", "frame", f"real numbers in {str(label)!r}", str(dtype))
    is_missing = series.isna().to_numpy()
    # missing cells have no number in plain types
    present = series[~is_missing].to_numpy(dtype=stored)
    numbers = np.full(len(series), np.nan)
    numbers[~is_missing] = present.astype(float)
    if stored.kind == "b":
        return Cells(CellType("flag", dtype), numbers, (False, True))
    if stored.kind in "iu":
        limits = np.iinfo(stored)
        lowest, highest = float(limits.min), float(limits.max)
        whole = CellType("whole", dtype, limits=(lowest, highest))
        return Cells(whole, check_whole(label, numbers))
    # extended precision would lose digits without a word
    same = np.array_equal(present.astype(float).astype(stored), present, equal_nan=True)
    expected = f"numbers in double precision in {str(label)!r}"
    check(same, "frame", expected, str(dtype))
    largest = float(min(np.finfo(stored).max, np.finfo(np.float64).max))
    cell_type = CellType("number", dtype, tells_nan=not of_numpy, limits=(-largest, largest))
    is_nan = np.isnan(numbers) & ~is_missing
    return Cells(cell_type, check_finite(label, numbers), is_nan=is_nan)


def _read_times(series: Any, label: Any) -> Cells:
    import pandas as pd

    dtype = series.dtype
    stored_unit = _find_unit(dtype)
    zone = name_zone(getattr(dtype, "tz", None), label)
    is_present = ~series.isna().to_numpy()
    # whole numbers, as floats lose the last digits of nanoseconds
    counts = series.astype("int64").to_numpy()[is_present]
    numbers = np.full(len(series), np.nan)
    numbers[is_present], unit = read_times(label, counts, stored_unit, zone)
    cell_type = CellType(
        "date",
        dtype,
        unit=unit,
        zone=zone,
        duration=bool(pd.api.types.is_timedelta64_dtype(dtype)),
        limits=find_limits(unit, stored_unit, zone),
    )
    return Cells(cell_type, numbers)


def _find_unit(dtype: Any) -> str:
    """The unit that a column of times counts in, with or without a zone."""
    without_zone = dtype if isinstance(dtype, np.dtype) else dtype.base
    return np.datetime_data(without_zone)[0]


def _read_objects(series: Any, label: Any, order: Sequence[Any] | None) -> Cells:
    """Texts, decimal numbers, days, and values of several types."""
    dtype = series.dtype
    is_missing = series.isna().to_numpy()
    cells = series.tolist()
    missing_cell = _find_missing_cell(cells, is_missing, label)
    values = [None if empty else cell for cell, empty in zip(cells, is_missing, strict=True)]
    present = [value for value in values if value is not None]
    if not present:  # nothing tells whether it would hold texts
        cell_type = CellType("category", dtype, missing_cell=missing_cell)
        return Cells(cell_type, np.full(len(values), np.nan))
    if order is not None:
        numbers, categories = read_categories(label, values, order)
        cell_type = CellType("ordered", dtype, missing_cell=missing_cell)
        return Cells(cell_type, numbers, categories)
    if all(isinstance(value, decimal.Decimal) for value in present):
        return _read_decimals(values, label, dtype, missing_cell)
    # exactly dates: moments are dates as well, in Python
    if all(type(value) is datetime.date for value in present):
        return _read_days(values, dtype, missing_cell)
    _check_objects(present, label, dtype)
    numbers, categories = read_categories(label, values, None)
    cell_type = CellType("category", dtype, missing_cell=missing_cell)
    return Cells(cell_type, numbers, categories)


def _find_missing_cell(cells: Sequence[Any], is_missing: Array, label: Any) -> Any:
    """What a missing cell is: None, NaN, NaT or NA; None if there is none.

    Raises:
        ArgumentError: several kinds, which an encoder may tell apart, although pandas does not.
    """
    # NaN and None are both missing for pandas, and not for every encoder
    missing_cells: dict[type, Any] = {}
    for cell, is_empty in zip(cells, is_missing, strict=True):
        if is_empty:
            missing_cells[type(cell)] = cell
    expected = f"missing cells of one kind in {str(label)!r} (.where, .fillna)"
    got = " and ".join(map(repr, missing_cells.values()))
    check(len(missing_cells) <= 1, "frame", expected, got)
    return next(iter(missing_cells.values()), None)


def _check_objects(known: Sequence[Any], label: Any, dtype: Any) -> None:
    """Raise `ArgumentError` for numbers and times, which have an order and a distance, in a column of objects."""
    numeric = all(
        isinstance(value, int | float | complex) and not isinstance(value, bool) for value in known
    )
    expected = f"numbers in {str(label)!r} stored as numbers (pandas.to_numeric), or as texts"
    check(not numeric, "frame", expected, f"dtype {dtype}")
    mixed = [value for value in known if isinstance(value, decimal.Decimal)]
    check(
        not mixed,
        "frame",
        f"decimal numbers alone in {str(label)!r}, or none",
        "others beside them",
    )
    times = [value for value in known if isinstance(value, (*_TIMES, datetime.date))]
    expected = f"times in {str(label)!r} stored as times (pandas.to_datetime, pandas.to_timedelta), or days alone"
    got = type(times[0]).__name__ if times else ""
    check(not times, "frame", expected, got)


def _read_decimals(
    values: Sequence[decimal.Decimal | None], label: Any, dtype: Any, missing_cell: Any
) -> Cells:
    exponents = [value.as_tuple().exponent for value in values if value is not None]
    # the longest of them, so that all come back as they were
    lengths = [-exponent for exponent in exponents if isinstance(exponent, int)]
    decimals = max(0, *lengths)
    numbers = read_decimals(label, values, decimals)
    cell_type = CellType(
        "number", dtype, holds="decimals", missing_cell=missing_cell, decimals=decimals
    )
    return Cells(cell_type, numbers)


def _read_days(values: Sequence[datetime.date | None], dtype: Any, missing_cell: Any) -> Cells:
    days = np.full(len(values), np.nan)
    for row, value in enumerate(values):
        if value is not None:
            days[row] = value.toordinal() - _EPOCH_DAY
    limits = float(FIRST_DAY), float(LAST_DAY)
    return Cells(
        CellType("date", dtype, holds="days", missing_cell=missing_cell, unit="D", limits=limits),
        days,
    )


# Writing


def write_pandas(column: Column, numbers: Array, is_nan: Array) -> Any:
    """A pandas series of numbers `(N,)` that `Column.decode` has made, and of the cells that are NaN, bool `(N,)`."""
    import pandas as pd

    dtype = column.dtype
    if isinstance(dtype, pd.SparseDtype):
        return _write_numbers(column, numbers, is_nan, dtype.subtype).astype(dtype)
    if isinstance(dtype, pd.CategoricalDtype):
        return _write_categorical(column, numbers)
    if isinstance(dtype, pd.ArrowDtype):
        return write_arrow(column, numbers, is_nan)
    if column.type.holds or column.kind in ("category", "ordered"):
        return _write_objects(column, numbers)
    if column.kind == "date":
        return _write_times(column, numbers)
    return _write_numbers(column, numbers, is_nan, dtype)


def _write_categorical(column: Column, numbers: Array) -> Any:
    import pandas as pd

    number_of = {category: code for code, category in enumerate(column.dtype.categories)}
    # -1 stands for a missing cell in pandas
    pandas_codes = [number_of[category] for category in column.categories]
    order = np.array(pandas_codes or [-1])
    codes = order[np.nan_to_num(numbers).astype(int)]
    codes[np.isnan(numbers)] = -1
    return pd.Series(pd.Categorical.from_codes(codes, dtype=column.dtype))


def _write_objects(column: Column, numbers: Array) -> Any:
    import pandas as pd

    empty = np.isnan(numbers)
    cells = np.full(len(numbers), column.type.missing_cell, dtype=object)
    cells[~empty] = _list_objects(column, numbers[~empty])
    return pd.Series(cells, dtype=object).astype(column.dtype)


def _list_objects(column: Column, numbers: Array) -> Array:
    """The objects that numbers `(n,)` of known cells stand for."""
    objects: list[Any]
    if column.type.holds == "decimals":
        objects = list(write_decimals(numbers, column.type.decimals or 0))
    elif column.type.holds == "days":
        objects = [datetime.date.fromordinal(int(number) + _EPOCH_DAY) for number in numbers]
    else:
        objects = [column.categories[int(number)] for number in numbers]
    # an array is filled afterwards, since NumPy would make a second axis of tuples
    array = np.empty(len(objects), dtype=object)
    array[:] = objects
    return array


def _write_times(column: Column, numbers: Array) -> Any:
    import pandas as pd

    cell_type = column.type
    unit = _find_unit(column.dtype)
    filled = np.nan_to_num(numbers)
    counts = count_in_unit(filled, cell_type.unit, unit, cell_type.zone)
    kind = "timedelta64" if cell_type.duration else "datetime64"
    times = pd.Series(counts.view(f"{kind}[{unit}]"))
    if cell_type.zone:
        # numbers count in UTC
        times = times.dt.tz_localize("UTC").dt.tz_convert(column.dtype.tz)
    return times.mask(np.isnan(numbers))


def _write_numbers(column: Column, numbers: Array, is_nan: Array, dtype: Any) -> Any:
    """Numbers and flags of NumPy's types and of pandas' own."""
    import pandas as pd

    is_missing = np.isnan(numbers) & ~is_nan
    filled = np.nan_to_num(numbers)
    if isinstance(dtype, np.dtype):
        if column.kind == "number" or not is_missing.any():
            return pd.Series(numbers.astype(dtype))
        return _write_with_missing_cells(column, numbers, is_missing)
    # missing cells are masked, and NaN stays a number
    if column.kind == "number":
        stored = numbers.astype(dtype.numpy_dtype)
        return pd.Series(pd.arrays.FloatingArray(stored, is_missing))
    if column.kind == "flag":
        masked = pd.arrays.BooleanArray
    else:
        masked = pd.arrays.IntegerArray
    return pd.Series(masked(filled.astype(dtype.numpy_dtype), is_missing))


def _write_with_missing_cells(column: Column, numbers: Array, is_missing: Array) -> Any:
    """Plain integers, or flags, have no missing cells: as pandas reads such columns, they are floats, or objects."""
    import pandas as pd

    if column.kind == "whole":
        return pd.Series(numbers)
    flags = np.nan_to_num(numbers).astype(bool).astype(object)
    flags[is_missing] = None
    return pd.Series(flags, dtype=object)
