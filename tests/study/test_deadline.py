"""A call that is ended when its time is up, and what follows it is not."""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
import time
from pathlib import Path

import pytest

from standfast.study.deadline import TimeIsUp, run_within


def spin(seconds: float) -> None:
    began = time.perf_counter()
    while time.perf_counter() - began < seconds:
        pass


def test_what_comes_to_its_end_is_not_ended() -> None:
    seen: list[int] = []
    assert run_within(30, lambda: seen.append(1))
    assert seen == [1]


def test_no_except_exception_holds_it() -> None:
    def hold() -> None:
        while True:
            with contextlib.suppress(Exception):
                spin(1)

    began = time.perf_counter()
    assert not run_within(0.05, hold)
    assert time.perf_counter() - began < 5


def test_an_error_that_arrives_at_the_last_moment_stays_inside() -> None:
    """The call ends about when its time is up, before or after: nothing reaches the lines behind it."""
    ended = 0
    for step in range(200):
        ended += run_within(0.002, lambda step=step: spin(0.0015 + step % 10 * 1e-4))  # type: ignore[misc]
        spin(0.0002)
    assert 0 <= ended <= 200
    spin(0.05)


def test_an_import_comes_to_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has loaded stays, and a package of which a half is missing could not be imported again."""
    lines = ["import time", "for _ in range(20):", "    time.sleep(0.01)", "is_whole = True"]
    (tmp_path / "slowly_imported.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))

    def load() -> None:
        importlib.import_module("slowly_imported")
        spin(60)

    assert not run_within(0.05, load)
    assert sys.modules.pop("slowly_imported").is_whole


def test_a_module_that_calls_while_it_is_imported_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        "from test_deadline import run_within, spin",
        "ended = run_within(0.05, lambda: spin(60))",
    ]
    (tmp_path / "calls_at_once.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "test_deadline", sys.modules[__name__])
    assert importlib.import_module("calls_at_once").ended is False
    del sys.modules["calls_at_once"]


def test_the_outer_of_two_calls_ends_both() -> None:
    after: list[str] = []

    def inner() -> None:
        run_within(60, lambda: spin(60))
        after.append("inner")

    assert not run_within(0.1, inner)
    assert after == []


def test_it_works_in_any_thread() -> None:
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(run_within(0.05, lambda: spin(60))))
    thread.start()
    thread.join(30)
    assert results == [False]


def test_errors_of_the_call_are_raised() -> None:
    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_within(30, fail)
    with pytest.raises(TimeIsUp):  # somebody else's
        run_within(30, lambda: (_ for _ in ()).throw(TimeIsUp()))
