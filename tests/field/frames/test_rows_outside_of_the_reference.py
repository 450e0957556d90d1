"""A table that is read from the training rows alone, and other rows with values that these do not have."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from standfast import Table
from standfast.errors import ArgumentError
from standfast.frames import make_model


@contextmanager
def refused_by_name(column: str) -> Iterator[None]:
    """What is done inside may be refused, with the name of the column."""
    try:
        yield
    except ArgumentError as error:
        if f"'{column}'" not in str(error):
            raise


def make_train() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    train = pd.DataFrame({"income": rng.normal(size=100), "age": rng.integers(20, 60, 100)})
    train.loc[0, "income"] = np.nan
    return train


def test_values_outside_are_kept_or_refused() -> None:
    table = Table.read(make_train())
    rows = pd.DataFrame({"income": [0.5, 99.0, -3.0], "age": [30, 90, 5]})
    pd.testing.assert_frame_equal(table.decode(table.encode(rows)), rows)
    with pytest.raises(ArgumentError, match="cells of at least .* in 'income'.*got -99"):
        table.encode(pd.DataFrame({"income": [0.5, 99.0, -99.0], "age": [30, 90, 5]}))
    wider = Table.read(make_train(), rows.assign(income=-99.0))
    again = wider.decode(wider.encode(rows.assign(income=-99.0)))
    assert again["income"].tolist() == [-99.0] * 3


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9)), min_size=1, max_size=6),
    st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=1, max_size=6),
)
def test_no_number_becomes_a_missing_cell(
    reference: list[float | None], cells: list[float | None]
) -> None:
    table = Table.read(pl.DataFrame({"x": pl.Series(reference, dtype=pl.Float64)}))
    frame = pl.DataFrame({"x": pl.Series(cells, dtype=pl.Float64)})
    with refused_by_name("x"):
        assert table.decode(table.encode(frame)).equals(frame)


TYPES: list[tuple[Any, Any, str]] = [
    (np.int8, [300], "fits int8"),
    (np.uint8, [-1], "fits uint8"),
    (np.int64, [0.5], "whole numbers"),
    ("Int16", [1 << 20], "fits Int16"),
    (np.float32, [1e300], "fits float32"),
]


@pytest.mark.parametrize(("dtype", "cells", "said"), TYPES)
def test_what_the_type_of_a_column_cannot_hold_is_refused(
    dtype: Any, cells: list[Any], said: str
) -> None:
    table = Table.read(pd.DataFrame({"x": pd.Series([1, 2, 3], dtype=dtype)}))
    with pytest.raises(ArgumentError, match=f"{said}.*'x'"):
        table.encode(pd.DataFrame({"x": cells}))


def test_moments_finer_than_microseconds_are_refused() -> None:
    for frame in (
        pd.DataFrame({"when": pd.to_datetime([1, 2, 3])}),
        pl.DataFrame({"when": pl.Series([1, 2, 3]).cast(pl.Datetime("ns"))}),
    ):
        with pytest.raises(ArgumentError, match="whole microseconds in 'when'"):
            Table.read(frame)


def test_texts_where_the_reference_has_no_cell_are_refused() -> None:
    table = Table.read(
        pd.DataFrame({"town": pd.Series([None, None], dtype=object), "x": [1.0, 2.0]})
    )
    with pytest.raises(ArgumentError, match="'town'"):
        table.encode(pd.DataFrame({"town": ["Bonn"], "x": [1.0]}))


def test_a_change_leaves_a_row_below_the_reference_where_it_is() -> None:
    """A lowest number of the training rows is no limit for a row that is lower, where cells may be missing."""
    train, low = make_train(), pd.DataFrame({"income": [-20.0], "age": [30]})
    table = Table.read(train, low)

    class Rule:
        def predict(self, frame: pd.DataFrame) -> Any:
            return frame["income"].fillna(0.0).to_numpy() + frame["age"].to_numpy()

    make_model(Rule(), table)
    changes = table.default_changes()
    region = changes.around(table.encode(low), table.bounds)
    still = region.perturb(
        region.sample(1, region.streams(0))[0] * 0, np.zeros(1, dtype=int).tolist()
    )
    assert table.decode(still)["income"].tolist() == [-20.0]
