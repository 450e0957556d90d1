"""Cells of Arrow's types in columns of pandas: `pandas.ArrowDtype`, as `dtype_backend="pyarrow"` makes them."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from standfast.errors import check
from standfast.frames.columns import Cells, CellType, Column, check_finite, check_whole, read_categories
from standfast.frames.decimals import find_decimal_limits, read_decimals, write_decimals
from standfast.frames.moments import count_in_unit, find_limits, read_times
from standfast.tensors import Array


def _import_arrow() -> Any:
    """Arrow, which is there where pandas has columns of its types."""
    return importlib.import_module("pyarrow")


def read_arrow(series: Any, label: Any, order: Sequence[Any] | None) -> Cells:
    """The cells of a pandas series of one of Arrow's types; the arguments are those of `read_pandas`."""
    pa = _import_arrow()

    array = _join(pa.array(series.array))
    own, dtype, types = array.type, series.dtype, pa.types
    if types.is_boolean(own):
        return Cells(CellType("flag", dtype), _as_floats(array), (False, True))
    if types.is_integer(own):
        info = np.iinfo(own.to_pandas_dtype())
        limits = float(info.min), float(info.max)
        return Cells(CellType("whole", dtype, limits=limits), check_whole(label, _as_floats(array)))
    if types.is_floating(own):
        return _read_floats(array, label, dtype)
    if types.is_decimal(own):
        return _read_decimals(array, label, dtype)
    if types.is_timestamp(own) or types.is_date(own) or types.is_duration(own):
        return _read_times(array, label, dtype)
    values = own.value_type if types.is_dictionary(own) else own
    texts = types.is_string(values) or types.is_large_string(values) or types.is_null(values)
    check(texts, "frame", f"numbers, texts, categories or dates in {str(label)!r}", str(dtype))
    numbers, categories = read_categories(label, array.to_pylist(), order)
    return Cells(CellType("category" if order is None else "ordered", dtype), numbers, categories)


def _join(array: Any) -> Any:
    """One array of the chunks that a column may have."""
    pa = _import_arrow()

    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _find_gone(array: Any) -> Array:
    """Which cells are missing, bool `(N,)`; NaN is not."""
    gone: Array = np.asarray(array.is_null(nan_is_null=False).to_numpy(zero_copy_only=False), dtype=bool)
    return gone


def _as_floats(array: Any) -> Array:
    """Numbers or flags in double precision `(N,)`, NaN for missing cells."""
    gone = _find_gone(array)
    numbers = np.full(len(array), np.nan)
    numbers[~gone] = array.drop_null().to_numpy(zero_copy_only=False).astype(float)
    return numbers


def _read_floats(array: Any, label: Any, dtype: Any) -> Cells:
    numbers = check_finite(label, _as_floats(array))
    largest = float(np.finfo(array.type.to_pandas_dtype()).max)
    cell_type = CellType("number", dtype, two_gaps=True, limits=(-largest, largest))
    return Cells(cell_type, numbers, nan=np.isnan(numbers) & ~_find_gone(array))


def _read_decimals(array: Any, label: Any, dtype: Any) -> Cells:
    decimals = max(array.type.scale, 0)
    limits = find_decimal_limits(array.type.precision, array.type.scale)
    numbers = read_decimals(label, array.to_pylist(), decimals)
    return Cells(CellType("number", dtype, holds="decimals", decimals=decimals, limits=limits), numbers)


def _find_unit(own: Any) -> str:
    """The unit that a type of times counts in."""
    pa = _import_arrow()

    if pa.types.is_date32(own):
        return "D"
    return "ms" if pa.types.is_date64(own) else str(own.unit)


def _read_times(array: Any, label: Any, dtype: Any) -> Cells:
    pa = _import_arrow()

    own, known = array.type, ~_find_gone(array)
    unit, zone = _find_unit(own), getattr(own, "tz", None) or ""
    whole = pa.int32() if unit == "D" else pa.int64()
    counts = array.drop_null().view(whole).to_numpy(zero_copy_only=False).astype(np.int64)
    numbers = np.full(len(array), np.nan)
    numbers[known], number_unit = read_times(label, counts, unit, zone)
    if pa.types.is_date64(own):
        check(number_unit == "D", "frame", f"whole days in {str(label)!r}", str(dtype))
    duration = bool(pa.types.is_duration(own))
    limits = find_limits(number_unit, unit, zone)
    return Cells(CellType("date", dtype, unit=number_unit, zone=zone, duration=duration, limits=limits), numbers)


def write_arrow(column: Column, numbers: Array, nan: Array) -> Any:
    """A pandas series of numbers `(N,)` that `Column.decode` has made, and of the cells that are NaN, bool `(N,)`."""
    import pandas as pd

    pa = _import_arrow()

    own, gone = column.dtype.pyarrow_dtype, np.isnan(numbers) & ~nan
    filled = np.where(gone, 0.0, numbers)
    if column.type.holds == "decimals":
        array = pa.array(write_decimals(numbers, column.type.decimals or 0), type=own)
    elif column.kind == "date":
        unit = _find_unit(own)
        counts = count_in_unit(filled, column.unit, unit, column.type.zone)
        whole = counts.astype(np.int32) if unit == "D" else counts
        array = pa.array(whole, mask=gone).view(own)
    elif column.kind == "number":
        array = pa.array(filled.astype(own.to_pandas_dtype()), type=own, mask=gone)
    elif column.kind == "whole":
        array = pa.array(filled.astype(np.int64), mask=gone).cast(own)
    else:
        array = _write_categories(column, filled, gone, own)
    return pd.Series(pd.arrays.ArrowExtensionArray(array))


def _write_categories(column: Column, filled: Array, gone: Array, own: Any) -> Any:
    """An array of texts or flags."""
    pa = _import_arrow()

    pairs = zip(filled.astype(int).tolist(), gone.tolist(), strict=True)
    values = [None if empty else column.categories[code] for code, empty in pairs]
    if not pa.types.is_dictionary(own):
        return pa.array(values, type=own)
    array = pa.array(values, type=own.value_type)
    return array.dictionary_encode().cast(own)
