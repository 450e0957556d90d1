"""Cells of Arrow's types in columns of pandas: `pandas.ArrowDtype`, as `dtype_backend="pyarrow"` makes them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from standfast.cells.moments import count_in_unit, find_limits, read_times
from standfast.errors import check
from standfast.frames.columns import (
    Cells,
    CellType,
    Column,
    Kind,
    check_finite,
    check_whole,
    read_categories,
)
from standfast.frames.decimals import find_decimal_limits, read_decimals, write_decimals
from standfast.tensors import Array


def _import_arrow() -> Any:
    """Arrow, which is there where pandas has columns of its types."""
    # imported late, since pandas works without it
    return importlib.import_module("pyarrow")


def read_arrow(series: Any, label: Any, order: Sequence[Any] | None) -> Cells:
    """The cells of a pandas series of one of Arrow's types; the arguments are those of `read_pandas`."""
    pa = _import_arrow()

    array = _join(pa.array(series.array))
    stored = array.type
    dtype = series.dtype
    types = pa.types
    if types.is_boolean(stored):
        return Cells(CellType("flag", dtype), _as_floats(array), (False, True))
    if types.is_integer(stored):
        limits = np.iinfo(stored.to_pandas_dtype())
        lowest, highest = float(limits.min), float(limits.max)
        whole = CellType("whole", dtype, limits=(lowest, highest))
        return Cells(whole, check_whole(label, _as_floats(array)))
    if types.is_floating(stored):
        return _read_floats(array, label, dtype)
    if types.is_decimal(stored):
        return _read_decimals(array, label, dtype)
    if types.is_timestamp(stored) or types.is_date(stored) or types.is_duration(stored):
        return _read_times(array, label, dtype)
    values = stored.value_type if types.is_dictionary(stored) else stored
    texts = types.is_string(values) or types.is_large_string(values) or types.is_null(values)
    check(texts, "frame", f"numbers, texts, categories or dates in {str(label)!r}", str(dtype))
    numbers, categories = read_categories(label, array.to_pylist(), order)
    kind: Kind = "category" if order is None else "ordered"
    return Cells(CellType(kind, dtype), numbers, categories)


def _join(array: Any) -> Any:
    """One array of the chunks that a column may have."""
    pa = _import_arrow()

    if isinstance(array, pa.ChunkedArray):
        return array.combine_chunks()
    return array


def _find_missing(array: Any) -> Array:
    """Which cells are missing, bool `(N,)`; NaN is not."""
    is_missing: Array = np.asarray(
        array.is_null(nan_is_null=False).to_numpy(zero_copy_only=False), dtype=bool
    )
    return is_missing


def _as_floats(array: Any) -> Array:
    """Numbers or flags in double precision `(N,)`, NaN for missing cells."""
    is_missing = _find_missing(array)
    numbers = np.full(len(array), np.nan)
    # missing cells are left out first, because Arrow would turn whole numbers into floats
    present = array.drop_null().to_numpy(zero_copy_only=False)
    numbers[~is_missing] = present.astype(float)
    return numbers


def _read_floats(array: Any, label: Any, dtype: Any) -> Cells:
    numbers = check_finite(label, _as_floats(array))
    largest = float(np.finfo(array.type.to_pandas_dtype()).max)
    cell_type = CellType("number", dtype, tells_nan=True, limits=(-largest, largest))
    is_nan = np.isnan(numbers) & ~_find_missing(array)
    return Cells(cell_type, numbers, is_nan=is_nan)


def _read_decimals(array: Any, label: Any, dtype: Any) -> Cells:
    decimals = max(array.type.scale, 0)
    limits = find_decimal_limits(array.type.precision, array.type.scale)
    numbers = read_decimals(label, array.to_pylist(), decimals)
    return Cells(
        CellType("number", dtype, holds="decimals", decimals=decimals, limits=limits), numbers
    )


def _find_unit(stored: Any) -> str:
    """The unit that a type of times counts in."""
    types = _import_arrow().types
    if types.is_date32(stored):
        return "D"
    # Arrow stores these days in milliseconds
    if types.is_date64(stored):
        return "ms"
    return str(stored.unit)


def _read_times(array: Any, label: Any, dtype: Any) -> Cells:
    pa = _import_arrow()
    stored_unit = _find_unit(array.type)
    zone = getattr(array.type, "tz", None) or ""
    if stored_unit == "D":
        integers = pa.int32()
    else:
        integers = pa.int64()
    present = array.drop_null().view(integers).to_numpy(zero_copy_only=False)
    counts = present.astype(np.int64)
    numbers = np.full(len(array), np.nan)
    numbers[~_find_missing(array)], unit = read_times(label, counts, stored_unit, zone)
    if pa.types.is_date64(array.type):
        check(unit == "D", "frame", f"whole days in {str(label)!r}", str(dtype))
    cell_type = CellType(
        "date",
        dtype,
        unit=unit,
        zone=zone,
        duration=bool(pa.types.is_duration(array.type)),
        limits=find_limits(unit, stored_unit, zone),
    )
    return Cells(cell_type, numbers)


def write_arrow(column: Column, numbers: Array, is_nan: Array) -> Any:
    """A pandas series of numbers `(N,)` that `Column.decode` has made, and of the cells that are NaN, bool `(N,)`."""
    import pandas as pd

    pa = _import_arrow()

    stored = column.dtype.pyarrow_dtype
    is_missing = np.isnan(numbers) & ~is_nan
    # Arrow needs a number also where a cell is masked
    filled = np.where(is_missing, 0.0, numbers)
    if column.type.holds == "decimals":
        decimals = write_decimals(numbers, column.type.decimals or 0)
        array = pa.array(decimals, type=stored)
    elif column.kind == "date":
        array = _write_times(column, filled, is_missing)
    elif column.kind == "number":
        stored_numbers = filled.astype(stored.to_pandas_dtype())
        array = pa.array(stored_numbers, type=stored, mask=is_missing)
    elif column.kind == "whole":
        integers = pa.array(filled.astype(np.int64), mask=is_missing)
        array = integers.cast(stored)
    else:
        array = _write_categories(column, filled, is_missing)
    return pd.Series(pd.arrays.ArrowExtensionArray(array))


def _write_times(column: Column, filled: Array, is_missing: Array) -> Any:
    stored = column.dtype.pyarrow_dtype
    unit = _find_unit(stored)
    counts = count_in_unit(filled, column.unit, unit, column.type.zone)
    # Arrow stores days in 32 bits
    if unit == "D":
        integers = counts.astype(np.int32)
    else:
        integers = counts
    return _import_arrow().array(integers, mask=is_missing).view(stored)


def _write_categories(column: Column, filled: Array, is_missing: Array) -> Any:
    """An array of texts or flags."""
    pa = _import_arrow()
    stored = column.dtype.pyarrow_dtype
    codes = filled.astype(int).tolist()
    values = []
    for code, is_empty in zip(codes, is_missing.tolist(), strict=True):
        values.append(None if is_empty else column.categories[code])
    if not pa.types.is_dictionary(stored):
        return pa.array(values, type=stored)
    return pa.array(values, type=stored.value_type).dictionary_encode().cast(stored)
