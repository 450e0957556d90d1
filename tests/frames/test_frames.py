"""Data frames as numbers and back, and the five classic traps."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from credit_frames import (
    START,
    explain_linear,
    fit_linear,
    fit_logistic,
    make_encoders,
    make_frame,
    score,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OrdinalEncoder

import standfast
from standfast import Table
from standfast.cells.words import describe_cell
from standfast.errors import ArgumentError, ModelError
from standfast.frames import make_model
from standfast.neighbourhoods import TableChanges

N = 24
PANDAS: dict[str, Any] = {
    "float": [0.1, np.nan, *np.linspace(-3, 9, N - 2)],
    "float32": np.linspace(0, 1, N, dtype=np.float32),
    "whole": np.arange(N) * 10**9,
    "small": np.arange(N, dtype=np.int8),
    "nullable": pd.array([None, *range(N - 1)], dtype="Int64"),
    "flag": np.arange(N) % 2 == 0,
    "maybe": pd.array([None, True] * (N // 2), dtype="boolean"),
    "text": ["a", "b", None] * (N // 3),
    "category": pd.Categorical(["z", "a", None] * (N // 3), categories=["z", "a", "never"]),
    "order": pd.Categorical(["lo", "hi"] * (N // 2), categories=["lo", "hi"], ordered=True),
    "day": START + pd.to_timedelta(np.arange(N), unit="D"),
    "moment": START + pd.to_timedelta(np.arange(N) * 1.5, unit="h"),
    "zone": (START + pd.to_timedelta(np.arange(N), unit="h")).tz_localize("Europe/Berlin"),
    "gone": [pd.NaT, *pd.date_range("1999-12-30", periods=N - 1)],
    "span": pd.to_timedelta(np.arange(N) * 90, unit="s"),
    "mixed": [1, "one"] * (N // 2),
}


@contextmanager
def refused(argument: str, got: str) -> Iterator[None]:
    """An `ArgumentError` about this argument, whose message has what came."""
    with pytest.raises(ArgumentError) as caught:
        yield
    assert caught.value.argument == argument
    assert re.search(got, str(caught.value)), str(caught.value)


@pytest.mark.parametrize("name", PANDAS)
def test_columns_of_pandas_come_back_as_they_were(name: str) -> None:
    frame = pd.DataFrame({name: PANDAS[name], "other": 1.0}, index=np.arange(N) + 7)
    table = Table.read(frame)
    rows = table.encode(frame)
    assert rows.dtype == torch.float64
    assert bool(rows.isfinite().all())
    lower, upper = table.bounds
    assert bool(((rows >= lower) & (rows <= upper)).all())
    pd.testing.assert_frame_equal(table.decode(rows), frame.reset_index(drop=True))


def test_columns_of_polars_come_back_as_they_were() -> None:
    frame = pl.DataFrame(
        {
            "float": [0.5, None, 2.5],
            "whole": pl.Series([1, None, 3], dtype=pl.Int16),
            "flag": [True, None, False],
            "text": ["a", None, "b"],
            "kind": pl.Series(["x", "y", None], dtype=pl.Categorical),
            "order": pl.Series(["lo", "hi", "lo"], dtype=pl.Enum(["lo", "mid", "hi"])),
            "day": [START.date(), None, pd.Timestamp("2024-02-29").date()],
            "moment": pl.Series(
                [START, None, pd.Timestamp("2024-02-29 12:30")], dtype=pl.Datetime("us")
            ),
            "nothing": pl.Series([None, None, None], dtype=pl.String),
        }
    )
    table = Table.read(frame)
    back = table.decode(table.encode(frame))
    assert back.schema == frame.schema
    assert back.equals(frame)
    assert [column.kind for column in table.columns][4:6] == ["category", "ordered"]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.one_of(st.none(), st.floats(-1e12, 1e12)), min_size=2, max_size=9))
def test_any_floats_come_back(cells: list[float | None]) -> None:
    frame = pl.DataFrame({"x": pl.Series(cells, dtype=pl.Float64), "y": list(range(len(cells)))})
    table = Table.read(frame)
    assert table.decode(table.encode(frame)).equals(frame)


def test_any_number_is_a_cell() -> None:
    """Searches and noise ask for numbers between codes: the nearest category, the nearest whole number, or missing.

    Numbers outside of the range of the table are numbers.
    """
    frame = pl.DataFrame({"age": [20, 40, None], "town": ["Bonn", "Kiel", "Ulm"]})
    table = Table.read(frame)
    assert table.missing == (0.0, None)
    asked = torch.tensor([[20.4, 0.4], [9.9, 1.6], [10.1, -3.0], [99.0, 9.0]], dtype=torch.float64)
    assert table.decode(asked).rows() == [(20, "Bonn"), (None, "Ulm"), (10, "Bonn"), (99, "Ulm")]


def test_a_row_is_described_in_the_users_units() -> None:
    frame = make_frame()
    table = Table.read(frame)
    row = table.describe_row(table.encode(frame)[0])
    first = frame.iloc[0]
    assert row["income"] == "missing"
    assert (row["town"], row["grade"], row["married"]) == (
        first.town,
        first.grade,
        str(first.married),
    )
    assert row["opened"] == first.opened.strftime("%Y-%m-%d")
    assert describe_cell({"kind": "date", "unit": "s", "duration": True}, 3725.0) == "1:02:05"


# The five traps


def test_mixed_types_in_a_column_are_categories() -> None:
    frame = make_frame(60).assign(mixed=[1, "one", 2.5] * 20)
    table = Table.read(frame)
    assert table.columns[-1].categories == (1, "one", 2.5)
    assert table.decode(table.encode(frame))["mixed"].tolist() == frame["mixed"].tolist()
    numbers = make_frame(60).assign(mixed=pd.Series([1, 2.5] * 30, dtype=object).to_numpy())
    with refused("frame", "'mixed'"):
        Table.read(numbers)


def test_an_unseen_category_gets_the_models_own_answer_or_an_error() -> None:
    train = make_frame(120)
    pipeline, frame = (
        fit_linear(train),
        make_frame(120)[:4].assign(town=["Rome", "Bonn", "Kiel", "Ulm"]),
    )
    table = Table.read(train, frame)
    model = make_model(pipeline, table)
    np.testing.assert_allclose(
        model.logits(table.encode(frame))[:, 0], pipeline.predict(frame), rtol=1e-12
    )
    with refused("frame", "'Rome'"):
        Table.read(train).encode(frame)
    strict = Pipeline([("town", OrdinalEncoder()), ("model", LinearRegression())]).fit(
        train[["town"]], score(train)
    )
    with pytest.raises(ModelError, match="Rome"):
        make_model(strict, Table.read(train[["town"]], frame[["town"]])).logits(
            table.encode(frame)[:, 2:3]
        )
    # another type, which a booster might read as other codes
    other = train.assign(grade=train["grade"].astype(str))
    with refused("reference", "'grade'"):
        Table.read(train, other)


def test_an_unseen_category_stays_where_others_change() -> None:
    train, frame = make_frame(120), make_frame(120)[:1].assign(town="Rome")
    table = Table.read(train, frame)
    region = table.bind(TableChanges({"town": {"categories": "data", "rate": 0.5}})).around(
        table.encode(frame), table.bounds
    )
    drawn = region.sample(400, region.streams(0))
    towns = table.decode(region.perturb(drawn[0], torch.zeros(400, dtype=torch.int64)))["town"]
    assert set(towns) == {"Bonn", "Kiel", "Rome", "Ulm"}
    assert abs((towns == "Rome").mean() - 0.5) < 0.09


@pytest.mark.parametrize("cells", [np.nan, None])
def test_a_column_of_missing_cells_stays_so(cells: Any) -> None:
    frame = make_frame(60).assign(
        empty=pd.Series([cells] * 60, dtype=float if cells is not None else object).to_numpy()
    )
    table = Table.read(frame)
    assert table.decode(table.encode(frame))["empty"].isna().all()
    assert "empty" not in table.default_changes().changes
    pipeline = fit_linear(frame[make_frame(9).columns])
    encoders = make_encoders()
    encoders.transformers.append(("rest", "drop", ["empty"]))
    pipeline = Pipeline([("encoders", encoders), ("model", LinearRegression())]).fit(
        frame, score(frame)
    )
    found = standfast.explainers.get("occlusion")(
        make_model(pipeline, table), table.encode(frame)[:3]
    )
    assert found[:, -1].tolist() == [0.0, 0.0, 0.0]


def test_columns_of_one_name_are_refused() -> None:
    frame = make_frame(20)
    frame.columns = ["income", "income", "town", "grade", "opened", "married"]
    with refused("frame", "'income' twice"):
        Table.read(frame)
    with refused("frame", "'1' twice"):  # which reports could not tell apart
        Table.read(pd.DataFrame({1: [0.0], "1": [0.0]}))


def test_the_index_does_not_matter() -> None:
    frame = make_frame(30)
    table = Table.read(frame)
    shuffled = frame.sample(frac=1, random_state=1)
    places = [frame.index.get_loc(label) for label in shuffled.index]
    assert torch.equal(table.encode(shuffled), table.encode(frame)[places])
    again = frame.set_axis([5] * 30)
    assert torch.equal(table.encode(again), table.encode(frame))


# Other errors, at the boundary


def test_what_is_no_frame_is_refused() -> None:
    frame = make_frame(20)
    table = Table.read(frame)
    with refused("frame", "list"):
        Table.read([[1.0]])
    with refused("frame", "'grade' missing"):
        table.encode(frame.drop(columns="grade"))
    with refused("frame", "'x' more"):
        table.encode(frame.assign(x=1))
    with refused("frame", "pandas"):
        table.encode(pl.DataFrame({"income": [1.0]}))
    with refused("frame", "infinite"):
        Table.read(frame.assign(age=np.inf))
    with refused("frame", "2\\^53"):
        Table.read(frame.assign(age=2**60))
    with refused("frame", "float64"):
        table.encode(frame.assign(town=1.0))
    whole = Table.read(make_frame(20, missing=False))
    with refused("frame", "1"):
        whole.encode(make_frame(20)[:1])


def test_models_that_do_not_fit_are_refused_at_once() -> None:
    frame = make_frame()
    linear = fit_linear(frame)
    with refused("frame", "'x' more"):
        make_model(linear, Table.read(frame.assign(x=1.0)))
    with refused("model", "LinearRegression"):
        make_model(LinearRegression, Table.read(frame))
    complete = make_frame(missing=False)
    bare = LinearRegression().fit(complete[["income", "age"]], score(complete))
    with pytest.raises(ModelError, match="income with missing cells"):
        make_model(bare, Table.read(frame[["income", "age"]]))
    losing = TableChanges({"income": "2%"}, may_become_missing=0.1)
    with pytest.raises(ModelError, match="missing cell in 'income'"):
        standfast.evaluate(
            bare,
            "occlusion",
            complete[["income", "age"]][:4],
            [standfast.metrics.WorstCase(losing)],
            reference=None,
        )


def test_a_default_needs_training_rows() -> None:
    frame = make_frame()
    with refused("reference", "neither"):
        standfast.evaluate(fit_linear(frame), "occlusion", frame[:4], "worst_case")
    ball = standfast.metrics.WorstCase(standfast.LinfBall(0.1))
    with refused("neighbourhood", "LinfBall"):
        standfast.evaluate(fit_linear(frame), "occlusion", frame[:4], ball, reference=frame)


def test_classes_have_their_names() -> None:
    frame = make_frame()
    found = standfast.evaluate(
        fit_logistic(frame),
        {"mine": explain_linear},
        frame[:8],
        "aopc:samples=2,steps=3",
        sanity=False,
        controls=False,
        progress=False,
    )
    stored = found.manifest["data"]["inputs"]
    assert stored["classes"] == ["no", "yes"]
    assert list(stored["features"]) == list(frame.columns)
    assert [column["kind"] for column in stored["columns"]] == [
        "number",
        "whole",
        "category",
        "ordered",
        "date",
        "flag",
    ]
    assert found.failures == []


def test_of_flags_that_tie_false_stands_for_removed_ones_and_of_categories_the_first() -> None:
    frame = pl.DataFrame(
        {"owner": [True, True, False, False], "town": ["Ulm", "Bonn", "Ulm", "Bonn"]}
    )
    for rows, town in ((frame, "Ulm"), (frame[::-1], "Bonn")):
        table = Table.read(rows)
        assert table.decode(table.make_reference().baseline[None]).rows() == [(False, town)]
