"""Cells of columns of polars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    import polars as pl


# Reading


def read_polars(series: pl.Series, label: Any, order: Sequence[Any] | None = None) -> Cells:
    """The cells of a polars series.

    Args:
        series: N cells.
        label: of its column.
        order: for a column of texts, its categories in their order.

    Raises:
        ArgumentError: a type of cells that is not known, or cells that numbers in double precision cannot tell apart.
    """
    import polars as pl

    dtype = series.dtype
    if dtype == pl.Boolean:
        return Cells(CellType("flag", dtype), _as_floats(series), (False, True))
    if dtype.is_integer():
        limits = float(pl.select(dtype.min()).item()), float(pl.select(dtype.max()).item())  # type: ignore[attr-defined]
        return Cells(
            CellType("whole", dtype, limits=limits), check_whole(label, _as_floats(series))
        )
    if dtype.is_float():
        return _read_floats(series, label)
    if isinstance(dtype, pl.Decimal):
        return _read_decimals(series, label)
    if dtype.is_temporal() and dtype != pl.Time:
        return _read_times(series, label)
    # an Enum of polars has an order; a column of texts has one only if the user says so
    if isinstance(dtype, pl.Enum) and order is None:
        order = dtype.categories.to_list()
    texts = dtype in (pl.String, pl.Categorical, pl.Null) or isinstance(dtype, pl.Enum)
    check(texts, "frame", f"numbers, texts, categories or dates in {str(label)!r}", str(dtype))
    numbers, categories = read_categories(label, series.to_list(), order)
    kind: Kind = "category" if order is None else "ordered"
    return Cells(CellType(kind, dtype), numbers, categories)


def _as_floats(series: pl.Series) -> Array:
    """Numbers or flags in double precision `(N,)`, NaN for null."""
    import polars as pl

    return series.cast(pl.Float64).to_numpy().astype(float)


def _read_floats(series: pl.Series, label: Any) -> Cells:
    dtype = series.dtype
    numbers = check_finite(label, _as_floats(series))
    largest = float(np.finfo(series.head(0).to_numpy().dtype).max)
    cell_type = CellType("number", dtype, tells_nan=True, limits=(-largest, largest))
    is_nan = np.isnan(numbers) & ~series.is_null().to_numpy()
    return Cells(cell_type, numbers, is_nan=is_nan)


def _read_decimals(series: pl.Series, label: Any) -> Cells:
    dtype: Any = series.dtype
    decimals = dtype.scale or 0
    numbers = read_decimals(label, series.to_list(), decimals)
    limits = find_decimal_limits(dtype.precision or 38, decimals)
    return Cells(
        CellType("number", dtype, holds="decimals", decimals=decimals, limits=limits), numbers
    )


def _find_unit(dtype: Any) -> str:
    """The unit that a type of times counts in."""
    import polars as pl

    if dtype == pl.Date:
        return "D"
    return str(dtype.time_unit)


def _read_times(series: pl.Series, label: Any) -> Cells:
    import polars as pl

    dtype = series.dtype
    stored_unit = _find_unit(dtype)
    zone = getattr(dtype, "time_zone", None) or ""
    # in the unit of the column, without rounding
    counts = series.drop_nulls().to_physical().cast(pl.Int64).to_numpy()
    numbers = np.full(len(series), np.nan)
    is_there = series.is_not_null().to_numpy()
    numbers[is_there], unit = read_times(label, counts, stored_unit, zone)
    cell_type = CellType(
        "date",
        dtype,
        unit=unit,
        zone=zone,
        duration=dtype == pl.Duration,
        limits=find_limits(unit, stored_unit, zone),
    )
    return Cells(cell_type, numbers)


# Writing


def write_polars(column: Column, numbers: Array, is_nan: Array) -> pl.Series:
    """A polars series of numbers `(N,)` that `Column.decode` has made, and of the cells that are NaN, bool `(N,)`."""
    import polars as pl

    is_missing = np.isnan(numbers) & ~is_nan
    # polars needs a number also where a cell is null
    filled = np.where(is_missing, 0.0, numbers)
    if column.type.holds == "decimals":
        return pl.Series(
            column.name, write_decimals(numbers, column.type.decimals or 0), dtype=column.dtype
        )
    if column.kind == "number":
        cells = pl.Series(column.name, filled).cast(column.dtype)
    elif column.categories:
        numbers_of_categories = pl.Series(filled.astype(np.int64))
        cells = (
            pl.Series(column.name, list(column.categories))
            .gather(numbers_of_categories)
            .cast(column.dtype)
        )
    elif column.kind in ("category", "ordered"):  # no cell of it is known
        return pl.Series(column.name, [None] * len(numbers), dtype=column.dtype)
    elif column.kind == "date":
        counts = count_in_unit(filled, column.unit, _find_unit(column.dtype), column.type.zone)
        cells = pl.Series(column.name, counts).cast(column.dtype)
    else:
        cells = pl.Series(column.name, filled.astype(np.int64)).cast(column.dtype)
    is_there = pl.Series(~is_missing)
    written = pl.select(pl.when(is_there).then(cells)).to_series()
    return written.alias(column.name)
