"""Days and moments in a time zone: changes of whole local days, and reports that write the local day."""

from __future__ import annotations

import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch

import standfast
from standfast import Table
from standfast.cells.moments import name_zone
from standfast.cells.words import describe_cell
from standfast.errors import ArgumentError
from standfast.frames import make_model
from standfast.neighbourhoods import TableChanges


class Age:
    """The number of days since 2020, in local time."""

    def predict(self, frame: pd.DataFrame) -> Any:
        when = frame["when"]
        if when.dt.tz is not None:
            when = when.dt.tz_convert("Europe/Berlin").dt.tz_localize(None)
        return (
            when - pd.Timestamp("2020-01-01")
        ).dt.total_seconds().to_numpy() / 86400 + 0 * frame["x"].to_numpy()


@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_days_change_by_days_with_and_without_a_zone(zone: str | None) -> None:
    rng = np.random.default_rng(0)
    days = pd.Series(
        pd.Timestamp("2025-01-01") - pd.to_timedelta(rng.integers(100, 1500, 200), unit="D")
    )
    frame = pd.DataFrame(
        {"when": days if zone is None else days.dt.tz_localize(zone), "x": rng.normal(size=200)}
    )
    table = Table.read(frame)
    model = make_model(Age(), table, task="regression:tolerance=500")
    changes = table.bind(TableChanges({"when": 30}))
    worst = standfast.metrics.WorstCase(changes, event="misclassification", budget=200)
    found = worst(model, "occlusion", table.rows[:4])
    moved_frame = table.decode(found.inputs)
    moved = np.abs(Age().predict(moved_frame) - Age().predict(frame[:4]))
    assert 20 < moved.max() <= 30.01
    assert (moved == moved.round()).all()
    assert table.describe_row(table.rows[0])["when"] == frame["when"][0].strftime("%Y-%m-%d")


#: a day in each of which the clock changes, with its midnight
CHANGES = [
    ("Europe/Berlin", "2024-03-31", "2024-03-31T00:00:00+01:00"),  # 23 hours
    ("Europe/Berlin", "2024-10-27", "2024-10-27T00:00:00+02:00"),  # 25 hours
    ("America/Sao_Paulo", "2018-11-04", "2018-11-04T01:00:00-02:00"),  # no midnight
    ("America/Havana", "2023-11-05", "2023-11-05T00:00:00-04:00"),  # two midnights: the first
    ("Asia/Kathmandu", "2024-02-29", "2024-02-29T00:00:00+05:45"),
    ("UTC", "2024-02-29", "2024-02-29T00:00:00+00:00"),
]


@pytest.mark.parametrize(("zone", "day", "start"), CHANGES)
@pytest.mark.parametrize("library", ["pandas", "arrow", "polars"])
def test_a_day_more_is_the_next_local_midnight(
    zone: str, day: str, start: str, library: str
) -> None:
    """From the day before, and to the day after, when the clock changes on this day."""
    moment = datetime.datetime.fromisoformat(start).astimezone(ZoneInfo(zone))
    date = datetime.date.fromisoformat(day)
    around = [
        datetime.datetime.combine(date + datetime.timedelta(shift), datetime.time(), ZoneInfo(zone))
        for shift in (-1, 1)
    ]
    column = pl.Series("when", [around[0], moment, around[1]], dtype=pl.Datetime("us", zone))
    frame: Any = pl.DataFrame([column])
    if library != "polars":
        pytest.importorskip("pyarrow")
        frame = (
            frame.to_pandas()
            if library == "pandas"
            else frame.to_pandas(use_pyarrow_extension_array=True)
        )
    table = Table.read(frame)
    rows = table.encode(frame)
    assert table.columns[0].unit == "D"
    assert rows[:, 0].diff().tolist() == [1.0, 1.0]
    assert table.describe_row(rows[1]) == {"when": day}
    moved = table.decode(rows[:2] + 1)["when"]
    moments = moved.to_list() if library == "polars" else [each.to_pydatetime() for each in moved]
    assert [each.astimezone(datetime.UTC) for each in moments] == [
        each.astimezone(datetime.UTC) for each in (moment, around[1])
    ]


def test_days_that_zones_leave_out_are_the_next_ones() -> None:
    """30 December 2011 does not exist in Samoa."""
    days = pd.to_datetime(["2011-12-28", "2011-12-29"]).tz_localize("Pacific/Apia")
    table = Table.read(pd.DataFrame({"when": days}))
    moved = table.decode(table.rows[1:] + 1)["when"]
    assert moved[0] == pd.Timestamp("2011-12-31", tz="Pacific/Apia")


def test_moments_in_a_zone_are_written_with_their_local_time() -> None:
    moments = pd.to_datetime(["2024-07-01 09:30", "2024-01-01 00:00"]).tz_localize("Europe/Berlin")
    table = Table.read(pd.DataFrame({"when": moments}))
    assert [table.describe_row(row)["when"] for row in table.rows] == [
        "2024-07-01 09:30:00+02:00",
        "2024-01-01 00:00:00+01:00",
    ]
    stored = table.plain()[0]
    assert describe_cell({**stored, "zone": "No/Where"}, 0.0) == "1970-01-01 00:00:00+00:00"


def test_whole_days_and_hours_of_two_frames_are_read_together() -> None:
    """Days are counted in seconds then, as the clock of their zone goes; hours are refused where days are expected."""
    days = pd.DataFrame(
        {"when": pd.to_datetime(["2024-03-30", "2024-04-01"]).tz_localize("Europe/Berlin")}
    )
    hours = pd.DataFrame(
        {"when": pd.to_datetime(["2024-03-31 12:00"]).tz_localize("Europe/Berlin")}
    )
    table = Table.read(days, hours)
    assert table.columns[0].unit == "s"
    for frame in (days, hours):
        pd.testing.assert_frame_equal(table.decode(table.encode(frame)), frame)
    low, high = (float(bound) for bound in table.bounds)
    assert (low, high) == tuple(each.timestamp() for each in days["when"])
    with pytest.raises(ArgumentError, match="whole days in 'when'"):
        Table.read(days).encode(hours)
    zoneless = days.assign(when=days["when"].dt.tz_localize(None))
    with pytest.raises(ArgumentError, match="'when'"):
        Table.read(days).encode(zoneless)


class Unnamed(datetime.tzinfo):
    """A zone whose offset depends on the moment, and that nothing can find again."""

    def utcoffset(self, moment: datetime.datetime | None) -> datetime.timedelta | None:
        return None if moment is None else datetime.timedelta(hours=moment.month % 2)


def test_zones_of_every_kind_have_names() -> None:
    base = pd.Series(pd.to_datetime(["2024-03-30", "2024-03-31", "2024-04-01"]))
    fixed = datetime.timezone(datetime.timedelta(hours=1))
    for zone, name in (
        (ZoneInfo("Europe/Berlin"), "Europe/Berlin"),
        (fixed, "+01:00"),
        (datetime.UTC, "UTC"),
    ):
        frame = pd.DataFrame({"when": base.dt.tz_localize(zone)})
        table = Table.read(frame)
        assert table.plain()[0]["zone"] == name
        pd.testing.assert_frame_equal(table.decode(table.encode(frame)), frame)
    with pytest.raises(ArgumentError, match="a time zone with a name in 'when'"):
        name_zone(Unnamed(), "when")


def test_a_table_that_changes_by_days_stays_at_midnight() -> None:
    """All days of a year, each changed by up to 200 days: every cell is the first moment of its local day."""
    days = pd.Series(pd.date_range("2024-01-01", "2024-12-31", tz="Europe/Berlin"))
    table = Table.read(pd.DataFrame({"when": days}))
    region = table.bind(TableChanges({"when": 200})).around(table.rows[:30], table.bounds)
    drawn = region.sample(20, region.streams(0))
    moved = table.decode(
        region.perturb(drawn.flatten(0, 1), torch.arange(30).repeat_interleave(20))
    )["when"]
    assert (moved == moved.dt.normalize()).all()
    assert moved.nunique() > 100
