"""Cells of every type of pandas and polars: a frame that was read and written again is the same, or was refused."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast import Table
from standfast.errors import ArgumentError

NUMPY = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NULLABLE = ["Int8", "Int16", "Int32", "Int64", "UInt8", "UInt16", "UInt32", "UInt64"]
ZONES = ["Europe/Berlin", "America/Sao_Paulo", "America/Havana", "Asia/Kathmandu", "UTC"]
UNITS = ["s", "ms", "us", "ns"]


def read_or_refuse(frame: Any) -> Table | None:
    """The table of a frame; None where it was refused with the name of its first column."""
    try:
        return Table.read(frame)
    except ArgumentError as error:
        if "'cell'" not in str(error):
            raise
        return None


def check_pandas(series: pd.Series[Any]) -> None:
    """The series comes back as it was, or is refused with its name, also by a table that has read others, too."""
    frame = pd.DataFrame({"cell": series, "other": 1.0})
    table = read_or_refuse(frame)
    if table is None:
        return
    rows = table.encode(frame)
    lower, upper = table.bounds
    assert bool(((rows >= lower) & (rows <= upper)).all())
    again = table.decode(rows)
    pd.testing.assert_frame_equal(again, frame)
    assert again["cell"].isna().equals(frame["cell"].isna())
    half = frame[: (len(frame) + 1) // 2]
    table_of_both = Table.read(half, frame)
    pd.testing.assert_frame_equal(table_of_both.decode(table_of_both.encode(frame)), frame)


def check_polars(series: pl.Series) -> None:
    frame = pl.DataFrame([series.alias("cell"), pl.Series("other", [1.0] * len(series))])
    table = read_or_refuse(frame)
    if table is None:
        return
    again = table.decode(table.encode(frame))
    assert again.schema == frame.schema
    assert again.equals(frame)


def lists(cells: Any) -> Any:
    return st.lists(cells, min_size=1, max_size=8)


def maybe(cells: Any) -> Any:
    return lists(st.one_of(st.none(), cells))


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(NUMPY))
def test_integers_of_numpy(data: Any, dtype: str) -> None:
    ends = np.iinfo(dtype)
    check_pandas(
        pd.Series(data.draw(lists(st.integers(int(ends.min), int(ends.max)))), dtype=dtype)
    )


@settings(max_examples=12, deadline=None)
@given(st.data(), st.sampled_from(NULLABLE))
def test_integers_of_pandas_arrow_and_polars(data: Any, dtype: str) -> None:
    ends = np.iinfo(dtype.lower())
    cells = data.draw(maybe(st.integers(int(ends.min), int(ends.max))))
    check_pandas(pd.Series(pd.array(cells, dtype=dtype)))
    check_polars(pl.Series(cells, dtype=getattr(pl, dtype)))
    pa = pytest.importorskip("pyarrow")
    arrow = getattr(pa, dtype.lower())()
    check_pandas(pd.Series(pd.array(cells, dtype=pd.ArrowDtype(arrow))))


@settings(max_examples=12, deadline=None)
@given(maybe(st.floats(width=32)), st.sampled_from(["32", "64"]))
def test_floats(cells: list[float | None], width: str) -> None:
    numbers = np.array([np.nan if cell is None else cell for cell in cells])
    gone = np.array([cell is None for cell in cells])
    check_pandas(pd.Series(numbers.astype(f"float{width}")))
    check_pandas(pd.Series(pd.arrays.FloatingArray(numbers.astype(f"float{width}"), gone)))
    check_polars(pl.Series(cells, dtype=getattr(pl, f"Float{width}")))
    pa = pytest.importorskip("pyarrow")
    array = pa.array(numbers.astype(f"float{width}"), mask=gone)
    check_pandas(pd.Series(pd.arrays.ArrowExtensionArray(array)))


@settings(max_examples=12, deadline=None)
@given(maybe(st.booleans()))
def test_flags(cells: list[bool | None]) -> None:
    check_pandas(pd.Series(pd.array(cells, dtype="boolean")))
    check_pandas(pd.Series(cells, dtype=object))
    check_polars(pl.Series(cells, dtype=pl.Boolean))
    if None not in cells:
        check_pandas(pd.Series(cells, dtype=bool))
    pa = pytest.importorskip("pyarrow")
    check_pandas(pd.Series(pd.array(cells, dtype=pd.ArrowDtype(pa.bool_()))))


@settings(max_examples=12, deadline=None)
@given(maybe(st.text(max_size=3)), st.sampled_from([object, "string", "category"]))
def test_texts(cells: list[str | None], dtype: Any) -> None:
    check_pandas(pd.Series(pd.Series(cells, dtype=object), dtype=dtype))
    check_polars(pl.Series(cells, dtype=pl.String))
    check_polars(pl.Series(cells, dtype=pl.Categorical))
    names = sorted({cell for cell in cells if cell is not None})
    check_polars(pl.Series(cells, dtype=pl.Enum(names)))
    pa = pytest.importorskip("pyarrow")
    for arrow in (pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())):
        check_pandas(pd.Series(pd.array(cells, dtype=pd.ArrowDtype(arrow))))


@settings(max_examples=12, deadline=None)
@given(
    maybe(st.integers(-(10**10), 10**10)), st.sampled_from(UNITS), st.sampled_from([1, 900, 86400])
)
def test_moments_and_durations(cells: list[int | None], unit: str, length: int) -> None:
    """Multiples of seconds, of quarters of an hour, and of days; a sub-second part in units that have one."""
    # pandas' nanoseconds end in 2262, polars' dates in 262143
    limit = 9 * 10**9 if unit == "ns" else 2 * 10**11
    factor = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    seconds = [None if cell is None else (cell * length) % limit for cell in cells]
    part = factor // 1000 if factor > 1 and length == 1 else 0
    counts = [None if cell is None else cell * factor + part for cell in seconds]
    gone = np.array([count is None for count in counts])
    known = np.array([count or 0 for count in counts], dtype=np.int64)
    for kind in ("datetime64", "timedelta64"):
        check_pandas(pd.Series(known.view(f"{kind}[{unit}]")).mask(gone))
    if unit != "s":
        check_polars(pl.Series(counts, dtype=pl.Int64).cast(pl.Datetime(unit)))  # type: ignore[arg-type]
        check_polars(pl.Series(counts, dtype=pl.Int64).cast(pl.Duration(unit)))  # type: ignore[arg-type]
    pa = pytest.importorskip("pyarrow")
    for arrow in (pa.timestamp(unit), pa.timestamp(unit, "Europe/Berlin"), pa.duration(unit)):
        check_pandas(
            pd.Series(pd.arrays.ArrowExtensionArray(pa.array(known, mask=gone).cast(arrow)))
        )


@settings(max_examples=12, deadline=None)
@given(
    lists(st.integers(0, 25_000)), st.sampled_from(ZONES), st.sampled_from(UNITS), st.integers(0, 1)
)
def test_days_and_moments_in_a_zone(days: list[int], zone: str, unit: str, hours: int) -> None:
    """Local midnights, or the first moment of days without one, and hours after them."""
    wall = pd.Series(pd.Timestamp("1970-01-01") + pd.to_timedelta(days, unit="D")).astype(
        f"datetime64[{unit}]"
    )
    local = wall.dt.tz_localize(
        zone, ambiguous=np.ones(len(wall), dtype=bool), nonexistent="shift_forward"
    )
    series = local + pd.Timedelta(hours=hours * 5)
    check_pandas(series)
    if not hours:
        assert Table.read(pd.DataFrame({"cell": series})).columns[0].unit == "D"
    if unit != "s":
        check_polars(
            pl.Series(
                series.dt.tz_convert("UTC").dt.tz_localize(None).to_list(), dtype=pl.Datetime(unit)
            )
            .dt.replace_time_zone("UTC")
            .dt.convert_time_zone(zone)
        )  # type: ignore[arg-type]


@settings(max_examples=12, deadline=None)
@given(maybe(st.dates(datetime.date(1, 1, 3), datetime.date(9999, 12, 29))))
def test_days(cells: list[datetime.date | None]) -> None:
    check_pandas(pd.Series(cells, dtype=object))
    check_polars(pl.Series(cells, dtype=pl.Date))
    pa = pytest.importorskip("pyarrow")
    for arrow in (pa.date32(), pa.date64()):
        check_pandas(pd.Series(pd.array(cells, dtype=pd.ArrowDtype(arrow))))


@settings(max_examples=12, deadline=None)
@given(maybe(st.decimals(-(10**9), 10**9, places=4, allow_nan=False)))
def test_decimals(cells: list[Decimal | None]) -> None:
    check_pandas(pd.Series(cells, dtype=object))
    check_polars(pl.Series(cells, dtype=pl.Decimal(18, 4)))
    pa = pytest.importorskip("pyarrow")
    check_pandas(pd.Series(pd.array(cells, dtype=pd.ArrowDtype(pa.decimal128(18, 4)))))


OTHERS: dict[str, Any] = {
    "half": np.array([0.5, 1.5], dtype=np.float16),
    "long": np.array([0.5, 1.5], dtype=np.longdouble),
    "sparse": pd.arrays.SparseArray([0.0, np.nan, 2.0]),
    "sparse flags": pd.arrays.SparseArray([False, True, True]),
    "numbers as categories": pd.Categorical([3, None, 1]),
    "days as categories": pd.Categorical(pd.to_datetime(["2020-01-01", "2020-02-01"])),
    "ranges": pd.cut(pd.Series([1.0, 2.0, 3.0]), 2),
    "order": pd.Categorical(["b", None, "a"], categories=["c", "b", "a"], ordered=True),
    "no categories": pd.Categorical([None, None]),
    "nothing": pd.Series([None, None], dtype=object),
    "no moment": pd.Series([pd.NaT, pd.NaT]),
    "mixed": pd.Series([1, "one", 2.5], dtype=object),
    "pairs": pd.Series([(1, 2), (2, 3)], dtype=object),
    "bytes": pd.Series([b"a", b"b"], dtype=object),
    "large": np.array([1e17, 1e17 + 16, np.nan]),
    "ancient": np.array(["-4000-01-05T01", "20000-12-01T02"], dtype="datetime64[s]"),
    "zero": np.array([-0.0, 0.0, 1.0]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_columns_come_back(name: str) -> None:
    frame = pd.DataFrame({name: OTHERS[name]})
    table = Table.read(frame)
    pd.testing.assert_frame_equal(table.decode(table.encode(frame)), frame)


REFUSED: dict[str, Any] = {
    "complex": np.array([1j, 2.0]),
    "months": pd.period_range("2020", periods=2, freq="M"),
    "intervals": pd.arrays.IntervalArray.from_breaks([0, 1, 2]),
    "lists": pd.Series([[1], [2]], dtype=object),
    "numbers": pd.Series([1, 2.5], dtype=object),
    "range": np.array([-1.7e308, 1.7e308]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_columns_are_refused_with_their_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        Table.read(pd.DataFrame({name: REFUSED[name]}))


@pytest.mark.parametrize("cells", [[datetime.time(1)], [[1]], [b"a"], [{"a": 1}]])
def test_other_columns_of_polars_are_refused_with_their_name(cells: list[Any]) -> None:
    with pytest.raises(ArgumentError, match="'odd'"):
        Table.read(pl.DataFrame({"odd": cells}))


MIXED: dict[str, list[Any]] = {
    "numbers and flags": ["a", 1, True, 1.0],
    "flags and numbers": [True, 1, False, 0],
    "inside of tuples": [(1, 2), (1.0, 2), (3, 4)],
    "texts of NumPy": [np.str_("a"), "a", "b"],
    "two zeros": ["a", 0.0, -0.0],
}


@pytest.mark.parametrize("name", MIXED)
def test_equal_values_of_several_types_are_refused(name: str) -> None:
    """They would come back as the first of them; alone, or where none are equal, each comes back."""
    cells = MIXED[name]
    with pytest.raises(ArgumentError, match="equal values of the same type in 'cell'"):
        Table.read(pd.DataFrame({"cell": pd.Series(cells, dtype=object)}))
    first, second = (
        pd.DataFrame({"cell": pd.Series([cells[place], "z", None], dtype=object)})
        for place in (-2, -1)
    )
    for frame in (first, second):
        table = Table.read(frame)
        back = table.decode(table.encode(frame))["cell"].tolist()
        assert [type(cell) for cell in back] == [type(cell) for cell in frame["cell"]]
    if second["cell"][0] == first["cell"][0]:
        with pytest.raises(ArgumentError, match="equal values of the same type in 'cell'"):
            Table.read(first, second)
        with pytest.raises(ArgumentError, match="equal values of the same type in 'cell'"):
            Table.read(first).encode(second)
