"""A lease on a folder of results: only one run at a time works in it.

The run that holds it has a file `running.json` in the folder, and adds to a number in it now and then. A run that finds
the file watches it for longer than that, and takes it over if nothing happens. No clocks and no processes are compared,
so it does not matter where the other run works. On a local disk a run also holds a lock of the system on the folder.
With it, a second run on this computer is refused at once, and the folder of a run that was killed is free at once.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from standfast.errors import StandfastError
from standfast.study.folders import Folder, LocalFolder, WriteError

try:
    import fcntl
except ImportError:  # on Windows only the file counts
    fcntl = None  # type: ignore[assignment]

_FILE = "running.json"
#: how often the file is renewed, and for how long a run that was not heard of may be at work
_RENEWED = 15.0
_WATCHED = 45.0
_log = logging.getLogger(__name__)


class RunningError(StandfastError):
    """Another run works in the same folder."""

    def __init__(self, folder: Folder) -> None:
        host = _read(folder)[1].get("host", "this computer")
        advice = "Wait for its end, or give this run another folder."
        super().__init__(
            f"{folder.address}: another run works here (on {host}), or what it has started. {advice}"
        )


@contextlib.contextmanager
def hold_lease(folder: Folder) -> Iterator[None]:
    """Hold the lease of a folder inside the block.

    Raises:
        RunningError: another run holds it.
    """
    own_record = {"token": secrets.token_hex(8), "host": socket.gethostname(), "system": _system()}
    ended = threading.Event()

    def describe(renewals: int = 0) -> bytes:
        return json.dumps({**own_record, "renewals": renewals}).encode()

    def renew() -> None:
        for renewals in itertools.count(1):
            if ended.wait(_RENEWED):
                return
            with contextlib.suppress(Exception):  # the next time will do
                _, record = _read(folder)
                if record.get("token", own_record["token"]) != own_record["token"]:
                    _log.warning(
                        "another run has taken over %s, because this one was not heard of",
                        folder.address,
                    )
                    return
                folder.write(_FILE, describe(renewals))

    # the lock first: it decides at once, and needs no waiting
    with _locked(folder) as locked:
        if not folder.create(_FILE, describe()):
            lease, other = _read(folder)
            # the lock reaches all processes of one system, so a run that was alive there would have it
            gone = locked and other.get("system") == own_record["system"] != ""
            if not gone and _is_renewed(folder, lease):
                raise RunningError(folder)
            if gone:
                # the lock is ours, so nobody else can write
                folder.write(_FILE, describe())
            elif not folder.replace(_FILE, describe()):
                # another run may have found the same lease at the same moment
                raise RunningError(folder)
        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield
        finally:
            # stopped before the file is deleted, or it could be written once more
            ended.set()
            thread.join()
            # another run may have taken over
            if _read(folder)[1].get("token") == own_record["token"]:
                folder.delete(_FILE)


def has_run(folder: Folder) -> bool:
    """Whether a folder has a run that has not ended: it works, or was lost."""
    return folder.exists(_FILE)


@contextlib.contextmanager
def _locked(folder: Folder) -> Iterator[bool]:
    """Hold the lock of a folder inside the block, and say whether it has one."""
    if fcntl is None or not isinstance(folder, LocalFolder):
        yield False
        return
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder.path, os.O_RDONLY)
    except OSError as error:
        raise WriteError(folder.path, error) from error
    locked = False
    try:
        try:
            # without waiting: whoever holds it works for hours
            fcntl.flock(handle, fcntl.LOCK_NB | fcntl.LOCK_EX)
            locked = True
        except BlockingIOError as error:
            raise RunningError(folder) from error
        except OSError as error:
            # some network file systems have none; the file alone counts then
            _log.debug("%s: the file system has no locks: %s", folder.address, error)
        yield locked
    finally:
        if locked:
            fcntl.flock(handle, fcntl.LOCK_UN)  # also for processes that were forked inside
        os.close(handle)


def _is_renewed(folder: Folder, lease: bytes) -> bool:
    """Whether another run is heard of, which has written what was found."""
    _log.warning(
        "%s: waiting %g s for a sign of life of a run that has not ended", folder.address, _WATCHED
    )
    end = time.monotonic() + _WATCHED
    while time.monotonic() < end:
        time.sleep(min(1.0, _WATCHED / 10))
        # an empty file is being written, and says nothing
        if _read(folder)[0] not in (lease, b""):
            return True
    return False


def _read(folder: Folder) -> tuple[bytes, dict[str, Any]]:
    """The file of the lease as it is, and what it says, if it says anything."""
    try:
        stored = folder.read(_FILE)
    except OSError:
        return b"", {}
    try:
        content = json.loads(stored)
    except ValueError:
        return stored, {}
    if not isinstance(content, dict):
        content = {}
    return stored, content


def _system() -> str:
    """What all processes that run since this computer was started have in common, in all containers; only on Linux."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""
