"""Tables that pandas has read with `dtype_backend="pyarrow"`."""

from __future__ import annotations

import datetime
from typing import Any

import pandas as pd
import pytest

from standfast import Table
from standfast.errors import ArgumentError

pa = pytest.importorskip("pyarrow")
START = datetime.datetime(2024, 1, 1)
TIMES = {
    "moment": ([START + datetime.timedelta(hours=5 * k) for k in range(40)], "timestamp[us]", "s"),
    "day": ([(START + datetime.timedelta(days=k)).date() for k in range(40)], "date32[day]", "D"),
    "wait": ([datetime.timedelta(minutes=k) for k in range(40)], "duration[us]", "s"),
}


@pytest.mark.parametrize("name", TIMES)
def test_times_of_arrow_are_dates(name: str) -> None:
    cells, kind, unit = TIMES[name]
    types: dict[str, Any] = {
        "moment": pa.timestamp("us"),
        "day": pa.date32(),
        "wait": pa.duration("us"),
    }
    frame = pd.DataFrame({name: pd.array(cells, dtype=pd.ArrowDtype(types[name]))})
    assert str(frame[name].dtype) == f"{kind}[pyarrow]"
    table = Table.read(frame)
    assert (table.columns[0].kind, table.columns[0].unit) == ("date", unit)
    assert table.decode(table.encode(frame)).equals(frame)
    assert (
        table.describe_row(table.rows[1])[name]
        == {
            "moment": "2024-01-01 05:00:00",
            "day": "2024-01-02",
            "wait": "0:01:00",
        }[name]
    )


@pytest.mark.parametrize("kind", [pa.binary(), pa.time64("us"), pa.list_(pa.int64())])
def test_other_types_of_arrow_are_refused_with_their_column(kind: Any) -> None:
    cells: dict[str, Any] = {"binary": b"a", "time64[us]": datetime.time(1)}
    frame = pd.DataFrame(
        {"odd": pd.array([cells.get(str(kind), [1])] * 3, dtype=pd.ArrowDtype(kind))}
    )
    with pytest.raises(ArgumentError, match="'odd'"):
        Table.read(frame)
