"""Frames that come from a database: decimal numbers and days, as objects of Python."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from standfast import Table
from standfast.errors import ArgumentError
from standfast.neighbourhoods import TableChanges

RNG = np.random.default_rng(0)
PRICES = [Decimal(str(round(price, 2))) for price in RNG.uniform(1, 100, 60)]
DAYS = [datetime.date(2024, 1, 1) + datetime.timedelta(days=k) for k in range(60)]


def test_decimals_are_numbers_and_days_are_dates() -> None:
    frame = pd.DataFrame(
        {"price": pd.Series(PRICES, dtype=object), "day": pd.Series(DAYS, dtype=object)}
    )
    table = Table.read(frame)
    assert [column.kind for column in table.columns] == ["number", "date"]
    assert table.rows[0].tolist() == [float(PRICES[0]), 19723.0]
    assert table.decode(table.encode(frame)).equals(frame)
    assert table.describe_row(table.rows[1])["day"] == "2024-01-02"
    bound: Any = table.bind(TableChanges({"price": "5%", "day": 3})).changes
    assert bound["day"].step == 1
    changed = table.decode(table.rows[:1] + 0.004)
    assert changed["price"].tolist() == [PRICES[0]]  # in whole cents, as the column has them
    assert changed["day"].tolist() == DAYS[:1]


def test_decimals_of_other_libraries() -> None:
    frame = pl.DataFrame({"price": pl.Series(PRICES, dtype=pl.Decimal(10, 2))})
    table = Table.read(frame)
    assert table.columns[0].kind == "number"
    again = table.decode(table.encode(frame))
    assert again.schema == frame.schema
    assert again.equals(frame)
    pa = pytest.importorskip("pyarrow")
    arrow = pd.DataFrame({"price": pd.array(PRICES, dtype=pd.ArrowDtype(pa.decimal128(10, 2)))})
    pd.testing.assert_frame_equal(Table.read(arrow).decode(Table.read(arrow).encode(arrow)), arrow)


REFUSED: dict[str, list[Any]] = {
    "longer": [Decimal("1.1023456789012345678"), Decimal(1)],
    "infinite": [Decimal("Infinity"), Decimal(1)],
    "mixed": [Decimal("1.10"), "free"],
    "numbers": [Decimal("1.10"), 2],
    "moments": [datetime.datetime(2024, 1, 1), datetime.datetime(2024, 1, 2)],
    "days and moments": [datetime.date(2024, 1, 1), datetime.datetime(2024, 1, 2)],
    "days and texts": [datetime.date(2024, 1, 1), "never"],
    "hours": [datetime.time(1), datetime.time(2)],
    "spans": [datetime.timedelta(1), datetime.timedelta(2)],
    "gaps": ["a", None, float("nan")],
}


@pytest.mark.parametrize("name", REFUSED)
def test_other_objects_are_refused_with_their_column(name: str) -> None:
    with pytest.raises(ArgumentError, match=f"'{name}'"):
        Table.read(pd.DataFrame({name: pd.Series(REFUSED[name], dtype=object)}))


def test_missing_cells_of_objects_stay_what_they_are() -> None:
    """An encoder may tell None from NaN in a column of objects."""
    for gap in (None, np.nan, pd.NA):
        frame = pd.DataFrame({"town": pd.Series(["a", gap, "b"], dtype=object)})
        table = Table.read(frame)
        assert table.decode(table.encode(frame))["town"][1] is gap or gap is np.nan
        other = pd.DataFrame(
            {"town": pd.Series(["a", None if gap is not None else np.nan], dtype=object)}
        )
        with pytest.raises(ArgumentError, match="missing cells as .* in 'town'"):
            table.encode(other)


def test_decimals_have_as_many_digits_as_the_table_has_seen() -> None:
    coarse = pd.DataFrame({"price": pd.Series([Decimal("1.10"), Decimal("2.50")], dtype=object)})
    fine = pd.DataFrame({"price": pd.Series([Decimal("1.105")], dtype=object)})
    with pytest.raises(ArgumentError, match="at most 2 decimals in 'price'"):
        Table.read(coarse).encode(fine)
    assert Table.read(coarse, fine).decode(Table.read(coarse, fine).encode(fine)).equals(fine)
