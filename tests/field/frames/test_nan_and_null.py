"""NaN beside null in a column of floats: a measurement that failed, and one that was not made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import standfast
from standfast import Table
from standfast.errors import ArgumentError
from standfast.frames import make_model
from standfast.neighbourhoods import TableChanges


class Rule:
    def predict(self, frame: pl.DataFrame) -> Any:
        return frame["x"].fill_null(0.0).fill_nan(5.0).to_numpy() + frame["y"].to_numpy()


def make_frame() -> pl.DataFrame:
    rng = np.random.default_rng(0)
    x: list[float | None] = rng.normal(size=60).tolist()
    x[::5], x[1::5] = [float("nan")] * 12, [None] * 12
    return pl.DataFrame({"x": x, "y": rng.normal(size=60)})


def test_nan_and_null_of_polars_stay_different() -> None:
    frame = make_frame()
    table = Table.read(frame)
    found = make_model(Rule(), table).logits(table.encode(frame))[:, 0].numpy()
    np.testing.assert_allclose(found, Rule().predict(frame))
    assert [table.describe_row(row)["x"] for row in table.rows[:2]] == ["NaN", "missing"]


def test_both_stay_where_others_change() -> None:
    frame = make_frame()
    table = Table.read(frame)
    region = table.bind(TableChanges({"x": 0.5, "y": 0.5})).around(table.rows, table.bounds)
    drawn = region.sample(10, region.streams(0))
    owners = torch.arange(60).repeat_interleave(10)
    moved = table.decode(region.perturb(drawn.flatten(0, 1), owners))
    rows = frame[owners.numpy()]
    assert moved["x"].is_null().equals(rows["x"].is_null())
    assert moved["x"].is_nan().equals(rows["x"].is_nan())
    known = (moved["x"] - rows["x"]).drop_nulls().drop_nans()
    assert 0.2 < float(known.abs().max()) <= 0.5  # type: ignore[arg-type]
    model = make_model(Rule(), table)
    worst = standfast.metrics.WorstCase(table.default_changes(), budget=40)(
        model, "occlusion", table.rows[:4]
    )
    assert table.decode(worst.inputs)["x"].is_nan()[0]


def test_a_column_with_nan_alone_loses_cells_to_nan() -> None:
    """As it knows no null, which its model may not know either."""
    frame = pl.DataFrame({"x": [1.0, float("nan"), 3.0]})
    table = Table.read(frame, missing=True)
    assert table.decode(table.encode(frame)).equals(frame)
    lost = table.decode(torch.tensor([[table.missing[0]]], dtype=torch.float64))
    assert lost["x"].is_nan().to_list() == [True]
    with pytest.raises(ArgumentError, match="no missing cells in 'x'"):
        table.encode(pl.DataFrame({"x": [None]}, {"x": pl.Float64}))
    known = Table.read(pl.DataFrame({"x": [1.0, None]}))
    with pytest.raises(ArgumentError, match="no NaN in 'x'"):
        known.encode(frame)


def test_nullable_floats_of_pandas_have_both_too() -> None:
    cells = pd.arrays.FloatingArray(
        np.array([np.nan, 1.0, 2.0, 9.0]), np.array([False, False, True, False])
    )
    frame = pd.DataFrame({"x": cells})
    table = Table.read(frame)
    again = table.decode(table.encode(frame))
    pd.testing.assert_frame_equal(again, frame)
    assert again["x"].isna().tolist() == frame["x"].isna().tolist()
    assert [table.describe_row(row)["x"] for row in table.rows[[0, 2]]] == ["NaN", "missing"]
