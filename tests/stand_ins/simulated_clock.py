"""A clock on which waiting takes no time, for tests of time limits: what they find does not depend on the machine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from standfast.study import deadline
from standfast.study.deadline import TimeIsUp

#: how much time passes between two looks at the clock, so that nothing takes no time at all
_TICK = 1e-6


class SimulatedClock:
    """Time passes where somebody waits, and nowhere else.

    Attributes:
        now: the seconds since some beginning.
    """

    def __init__(self) -> None:
        self.now = 1000.0
        self._limits: list[_SimulatedLimit] = []

    def read(self) -> float:
        """The time, as of `time.monotonic` and `time.perf_counter`."""
        self.now += _TICK
        return self.now

    def wait(self, seconds: float) -> None:
        """Let time pass; `TimeIsUp` where a limit has passed meanwhile."""
        self.now += seconds
        passed = [limit for limit in self._limits if limit.ends <= self.now]
        for limit in passed:
            limit.expired = True
        if passed:
            raise TimeIsUp

    def limit(self, seconds: float) -> _SimulatedLimit:
        """What `run_within` opens for a call with so many seconds."""
        return _SimulatedLimit(self, seconds)


class _SimulatedLimit:
    """The limit of one call, in the place of a thread that waits."""

    def __init__(self, clock: SimulatedClock, seconds: float) -> None:
        self.expired = False
        self.ends = clock.now + seconds
        self._open_limits = clock._limits

    def start(self) -> None:
        self._open_limits.append(self)

    def close(self) -> None:
        """Close it; it may be closed already."""
        if self in self._open_limits:
            self._open_limits.remove(self)


#: the clock that is simulated now
_clocks: list[SimulatedClock] = []


def sleep(seconds: float) -> None:
    """Let time pass on the simulated clock; where none is simulated, as `time.sleep`, which others than tests call."""
    if _clocks:
        _clocks[-1].wait(seconds)
    else:
        time.sleep(seconds)


@contextmanager
def simulate_time() -> Iterator[SimulatedClock]:
    """Have the time limits of standfast go by a simulated clock."""
    clock = SimulatedClock()
    _clocks.append(clock)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(time, "monotonic", clock.read)
            patch.setattr(time, "perf_counter", clock.read)
            patch.setattr(deadline, "_Watch", clock.limit)
            yield clock
    finally:
        _clocks.remove(clock)
