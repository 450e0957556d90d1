"""One run at a time works in a folder of results, wherever the other one is; one that was killed leaves it free."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from standfast.study import folders, lease
from standfast.study.folders import Folder, LocalFolder, WriteError, open_folder
from standfast.study.lease import RunningError, hold_lease

LOCKS = pytest.mark.skipif(lease.fcntl is None, reason="needs locks of the system")
#: waits in a second process until it is killed, with the lease of the folder that is its argument
HOLD = """
import sys, time
from standfast.study.folders import LocalFolder
from standfast.study.lease import hold_lease
with hold_lease(LocalFolder(sys.argv[1])):
    print("held", flush=True)
    time.sleep(300)
"""


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "SECONDS_TO_SETTLE", 0.01)
    monkeypatch.setattr(lease, "_RENEWED", 0.05)
    monkeypatch.setattr(lease, "_WATCHED", 0.5)


class SimulatedWaits:
    """In the place of `time` for a run that finds another one's file: it waits for no time.

    Attributes:
        now: the seconds since some beginning.
        meanwhile: what the other run does at each second.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> SimulatedWaits:
    """Waits of the usual lengths, which are simulated."""
    found = SimulatedWaits()
    monkeypatch.setattr(lease, "time", found)
    monkeypatch.setattr(lease, "_WATCHED", 45.0)
    return found


@pytest.fixture(params=["local", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Folder:
    return open_folder(
        tmp_path / "results" if request.param == "local" else f"memory://leases/{tmp_path.name}"
    )


def content(folder: Folder) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(folder.read("running.json"))
    return found


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end, "took too long"
        time.sleep(0.01)


def test_a_second_run_is_refused_and_a_later_one_is_not(folder: Folder) -> None:
    with hold_lease(folder):
        token = content(folder)["token"]
        with pytest.raises(RunningError, match="another run works here"), hold_lease(folder):
            pass
        wait_until(lambda: content(folder)["renewals"] >= 2)
        assert content(folder)["token"] == token
    assert not folder.exists("running.json")
    with hold_lease(folder):
        assert content(folder)["token"] != token


def test_the_file_says_nothing_of_processes_and_clocks(folder: Folder) -> None:
    with hold_lease(folder):
        assert content(folder).keys() == {"token", "host", "system", "renewals"}


def test_a_run_elsewhere_is_watched(folder: Folder, waits: SimulatedWaits) -> None:
    """Its lock does not reach here. While its file is renewed it is at work, whatever its clock and its name are."""
    other = {"token": "t", "host": "elsewhere", "system": "another one", "renewals": 0}

    def renew() -> None:
        if waits.now >= 40.0:
            other["renewals"] = 1
            folder.write("running.json", json.dumps(other).encode())

    folder.write("running.json", json.dumps(other).encode())
    waits.meanwhile = renew
    with pytest.raises(RunningError, match="on elsewhere"), hold_lease(folder):
        pass
    waits.meanwhile = lambda: None
    began = waits.now
    with hold_lease(folder):
        assert waits.now - began >= 45.0
        assert content(folder)["token"] != "t"
    assert not folder.exists("running.json")


@pytest.mark.parametrize("left", [b"", b"no JSON", b"[]"])
def test_a_file_that_says_nothing_is_watched_and_taken_over(
    folder: Folder, waits: SimulatedWaits, left: bytes
) -> None:
    folder.write("running.json", left)
    with hold_lease(folder):
        assert waits.now >= 45.0
        assert content(folder)["renewals"] >= 0


@LOCKS
def test_a_killed_run_of_this_computer_leaves_its_folder_free_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its process is not known by number, which may be another one's in another container."""
    monkeypatch.setattr(lease, "_WATCHED", 300.0)
    folder = open_folder(tmp_path)
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry),
    }
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(RunningError), hold_lease(folder):
            pass
        other.kill()
    assert folder.exists("running.json")
    if not lease._system():
        pytest.skip("this system does not say when it was started")
    with hold_lease(folder):
        pass
    assert not folder.exists("running.json")


@LOCKS
def test_what_was_forked_by_a_run_that_has_ended_does_not_block_the_next(tmp_path: Path) -> None:
    with hold_lease(open_folder(tmp_path)):
        if not (child := os.fork()):
            time.sleep(300)
    try:
        with hold_lease(open_folder(tmp_path)):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_of_many_that_take_over_one_does(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    # all find that nobody lives before one of them writes; on this computer a lock lets one look at all
    all_have_watched = threading.Barrier(1 if isinstance(folder, LocalFolder) else 6)

    def watch(folder: Folder, left: bytes) -> bool:
        all_have_watched.wait(30)
        return False

    monkeypatch.setattr(lease, "_is_renewed", watch)
    monkeypatch.setattr(folders, "SECONDS_TO_SETTLE", 0.2)
    folder.write("running.json", b"left behind")
    working: list[int] = []
    # whoever has the lease keeps it until all others have it, too, or were refused
    all_have_tried = threading.Barrier(6)

    def work(number: int) -> None:
        try:
            with hold_lease(folder):
                working.append(number)
                all_have_tried.wait(30)
        except RunningError:
            all_have_tried.wait(30)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(working) == 1


def test_a_run_that_lost_its_lease_says_so_and_leaves_the_file(
    folder: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), hold_lease(folder):
        folder.write("running.json", b'{"token": "of another run"}')
        wait_until(lambda: "has taken over" in caplog.text)
    assert content(folder) == {"token": "of another run"}


def test_a_folder_that_cannot_be_made_is_an_error_in_words(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(WriteError, match="could not be written"),
        hold_lease(open_folder(tmp_path / "file" / "results")),
    ):
        pass
