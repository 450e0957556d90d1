"""A lease on a folder of results: only one run at a time works in it.

The run that holds it renews the file `running.json` now and then. A file that was not renewed for two minutes, or whose
process is gone, was left behind by a run that was killed, and is taken over.
"""

from __future__ import annotations

import contextlib
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
from standfast.study.folders import Folder

_FILE = "running.json"
_SECONDS, _RENEWED = 120.0, 20.0
_log = logging.getLogger(__name__)


class RunningError(StandfastError):
    """Another run works in the same folder."""


@contextlib.contextmanager
def hold_lease(folder: Folder) -> Iterator[None]:
    """Hold the lease of a folder inside the block.

    Raises:
        RunningError: another run holds it.
    """
    own = {
        "token": secrets.token_hex(8),
        "host": socket.gethostname(),
        "process": os.getpid(),
        "began": _beginning(os.getpid()),
    }
    if not folder.create(_FILE, _write(own)):
        found, other = _read_both(folder)
        if other is not None and _is_alive(other):
            raise RunningError(
                f"{folder.address}: another run works here (process {other.get('process')} on {other.get('host')})."
                f" Wait for its end, or give this run another folder. If there is none, remove {_FILE} there."
            )
        if not folder.take_over(_FILE, found, _write(own)):
            raise RunningError(f"{folder.address}: another run has just begun to work here.")
    ended = threading.Event()

    def renew() -> None:
        while not ended.wait(_RENEWED):
            with contextlib.suppress(Exception):  # the next time will do
                if (_read(folder) or own).get("token") != own["token"]:
                    _log.warning("another run has taken over %s, because this one was not heard of", folder.address)
                    return
                folder.write(_FILE, _write(own))

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        if (_read(folder) or {}).get("token") == own["token"]:
            folder.delete(_FILE)


def _write(own: dict[str, Any]) -> bytes:
    return json.dumps({**own, "renewed": time.time()}).encode()


def _read(folder: Folder) -> dict[str, Any] | None:
    return _read_both(folder)[1]


def _read_both(folder: Folder) -> tuple[bytes, dict[str, Any] | None]:
    """The file of the lease as it is, and what it says, if it says anything."""
    try:
        found = folder.read(_FILE)
    except OSError:
        return b"", None
    try:
        content = json.loads(found)
    except ValueError:
        return found, None
    return found, content if isinstance(content, dict) else None


def _is_alive(other: dict[str, Any]) -> bool:
    """Whether the run that wrote this is still at work: its process lives, or it was heard of lately.

    On Windows, and for another machine, only the second is known.
    """
    here = other.get("host") == socket.gethostname() and isinstance(other.get("process"), int)
    if here and os.name == "posix":
        try:
            os.kill(other["process"], 0)
        except ProcessLookupError:
            return False
        except OSError:  # it belongs to somebody else
            pass
        began = _beginning(other["process"])
        return began == other.get("began") if began else True  # or its number was given to another process
    renewed = other.get("renewed")
    return isinstance(renewed, int | float) and time.time() - renewed < _SECONDS


def _beginning(process: int) -> str:
    """When a process began, where the system says so; numbers of processes are used again."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""
