"""Dates, moments and durations as numbers: whole days, or seconds.

A column of whole days is counted in days since 1970. In a time zone these are local days: a cell is a whole day if it
is the first moment of its day there. So a day more is the next midnight, although some days have 23 or 25 hours.
All other moments are seconds since 1970 in UTC.
"""

from __future__ import annotations

import datetime
import zoneinfo
from collections.abc import Callable
from functools import lru_cache

import numpy as np

from standfast.errors import check
from standfast.tensors import Array

#: seconds of a day
DAY = 86400
#: units of time that libraries count in, but for days: how many of them make a second
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_EPOCH_DAY = datetime.date(1970, 1, 1).toordinal()
#: the first and the last day that Python's dates can hold in every time zone, since 1970
FIRST_DAY, LAST_DAY = (
    datetime.date(*day).toordinal() - _EPOCH_DAY for day in ((1, 1, 3), (9999, 12, 29))
)


# Time zones


def name_zone(zone: datetime.tzinfo | str | None, label: object) -> str:
    """The name of a time zone, as `find_zone` reads it; empty for None.

    Raises:
        ArgumentError: a time zone without a name.

    >>> name_zone(zoneinfo.ZoneInfo("Europe/Berlin"), "when")
    'Europe/Berlin'
    >>> name_zone(datetime.timezone(datetime.timedelta(hours=1)), "when")
    '+01:00'
    """
    if zone is None or isinstance(zone, str):
        return zone or ""
    for attribute in ("key", "zone"):  # of zoneinfo, and of pytz
        name = getattr(zone, attribute, None)
        if isinstance(name, str):
            return name
    offset = zone.utcoffset(None)  # None where it depends on the moment
    check(
        offset is not None,
        "frame",
        f"a time zone with a name in {str(label)!r} (.dt.tz_convert)",
        repr(zone),
    )
    assert offset is not None
    if not offset:
        return "UTC"
    # a moment with this offset ends with it
    moment = datetime.datetime(2000, 1, 1, tzinfo=datetime.timezone(offset))
    return moment.isoformat()[19:]


@lru_cache(maxsize=64)
def find_zone(name: str) -> datetime.tzinfo:
    """The time zone of a name such as `"Europe/Berlin"`, or of an offset such as `"+01:00"`.

    Raises:
        zoneinfo.ZoneInfoNotFoundError: this machine does not know it.
    """
    if name == "UTC":  # which needs no data of time zones
        return datetime.UTC
    if name[:1] in ("+", "-"):
        zone = datetime.datetime.fromisoformat(f"2000-01-01T00:00:00{name}").tzinfo
        assert zone is not None
        return zone
    return zoneinfo.ZoneInfo(name)


@lru_cache(maxsize=1 << 16)
def _find_start(zone: str, day: int) -> int:
    """The first moment of a local day, in seconds since 1970 in UTC.

    A midnight that a change of the clock leaves out is the moment of the change; of one that comes twice it is the
    first.
    """
    day_within = min(max(day, FIRST_DAY), LAST_DAY)
    date = datetime.date.fromordinal(day_within + _EPOCH_DAY)
    time_zone = find_zone(zone)
    midnight = datetime.datetime(date.year, date.month, date.day, tzinfo=time_zone)
    return round((midnight - _EPOCH).total_seconds())


@lru_cache(maxsize=1 << 16)
def _find_day(zone: str, second: int) -> int:
    """The local day of a moment in seconds since 1970 in UTC."""
    moment = _EPOCH + datetime.timedelta(seconds=second)
    return moment.astimezone(find_zone(zone)).date().toordinal() - _EPOCH_DAY


def _map_unique(function: Callable[[str, int], int], zone: str, numbers: Array) -> Array:
    """A function of a zone and a whole number, for each of `numbers` `(N,)`; called once for equal ones."""
    values, inverse = np.unique(numbers, return_inverse=True)
    results_of_values = [function(zone, int(value)) for value in values]
    results = np.array(results_of_values, dtype=np.int64)
    return results[inverse]


# Reading


def read_times(label: object, counts: Array, unit: str, zone: str = "") -> tuple[Array, str]:
    """Cells that are not missing as numbers: days where all are whole days, else seconds.

    Args:
        label: of the column.
        counts: since 1970 in UTC, or of durations since 0, int64 `(N,)`.
        unit: of the counts: `"D"`, `"s"`, `"ms"`, `"us"` or `"ns"`.
        zone: the name of the time zone; empty for none.

    Returns:
        The numbers, float64 `(N,)`, and their unit, `"D"` or `"s"`.

    Raises:
        ArgumentError: numbers in double precision cannot tell such moments apart.
    """
    if unit == "D":
        return counts.astype(np.float64), "D"
    per_second = _PER_SECOND[unit]
    seconds, rest = np.divmod(counts, per_second)
    if not rest.any():
        if not zone and not (seconds % DAY).any():
            return (seconds // DAY).astype(np.float64), "D"
        if zone and _are_starts(zone, seconds):
            return _map_unique(_find_day, zone, seconds).astype(np.float64), "D"
    numbers = seconds + rest / per_second
    same = np.array_equal(count_in_unit(numbers, "s", unit), counts)
    expected = f"moments that are whole microseconds in {str(label)!r} (.dt.floor('us')), not too far from 1970"
    check(same, "frame", expected, "others")
    return numbers, "s"


def _are_starts(zone: str, seconds: Array) -> bool:
    """Whether all moments are the first of their local days."""
    first = float(FIRST_DAY) * DAY
    last = float(LAST_DAY) * DAY
    is_inside = (seconds > first) & (seconds < last)
    inside = bool(is_inside.all())
    moments = map(int, np.unique(seconds))
    return inside and all(
        _find_start(zone, _find_day(zone, second)) == second for second in moments
    )


def convert_to_seconds(days: Array, zone: str = "") -> Array:
    """Days since 1970 `(N,)`, local ones in a zone, as seconds since 1970 in UTC; NaN stays."""
    if not zone:
        return days * DAY
    seconds = np.full(len(days), np.nan)
    is_known = ~np.isnan(days)
    seconds[is_known] = _map_unique(_find_start, zone, days[is_known])
    return seconds


# Writing


def count_in_unit(numbers: Array, unit: str, stored_unit: str, zone: str = "") -> Array:
    """Numbers `(N,)` in days or seconds, as `unit` says, as counts of another unit since 1970 in UTC, int64 `(N,)`."""
    if unit == "D":
        days = np.round(numbers).astype(np.int64)
        if stored_unit == "D":
            return days
        if zone:
            starts = _map_unique(_find_start, zone, days)
        else:
            starts = days * DAY
        return starts * _PER_SECOND[stored_unit]
    # exact to the microsecond, although nanoseconds since 1970 need more than the 53 bits of a double
    per_second = _PER_SECOND[stored_unit]
    whole = np.floor(numbers)
    most_steps = min(per_second, 10**6)
    rest = np.round((numbers - whole) * most_steps).astype(np.int64)
    step = max(per_second // 10**6, 1)
    return whole.astype(np.int64) * per_second + rest * step


def find_limits(unit: str, stored_unit: str, zone: str = "") -> tuple[float, float]:
    """The smallest and the largest number, in days or seconds as `unit` says, that a column of counts can hold."""
    most = 2.0**62
    if stored_unit != "D":
        most = (2.0**63) * (1 - 1e-9) / _PER_SECOND[stored_unit]
        if unit == "D":
            most = most / DAY
    if not zone:
        return -most, most
    length = 1 if unit == "D" else DAY
    first, last = FIRST_DAY * length, LAST_DAY * length
    return max(-most, first), min(most, last)


def describe_time(number: float, unit: str, zone: str = "", duration: bool = False) -> str:
    """A number as a date, a moment with the offset of its time zone, or a duration.

    >>> describe_time(366.0, "D"), describe_time(3725.0, "s", duration=True)
    ('1971-01-02', '1:02:05')
    >>> describe_time(1_719_784_800.0, "s", "Europe/Berlin")
    '2024-07-01 00:00:00+02:00'
    """
    try:
        if unit == "D":
            length = datetime.timedelta(days=number)
        else:
            length = datetime.timedelta(seconds=number)
        if duration:
            return str(length)
        moment = _EPOCH + length
        if unit == "D":
            return moment.strftime("%Y-%m-%d")
        if zone:
            return moment.astimezone(_find_zone_or_utc(zone)).isoformat(" ", "seconds")
        return moment.strftime("%Y-%m-%d %H:%M:%S")
    except OverflowError:  # before the year 1, or after the year 9999
        in_words = "days" if unit == "D" else "seconds"
        return f"{number:g} {in_words}"


def _find_zone_or_utc(name: str) -> datetime.tzinfo:
    """A report may be made on a machine that does not know the zone; the offset says which moment is meant."""
    try:
        return find_zone(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError):
        return datetime.UTC
