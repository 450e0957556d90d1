"""End a call after so many seconds, wherever it is: within a long explanation, too."""

from __future__ import annotations

import ctypes
import math
import sys
import threading
from collections.abc import Callable
from types import FrameType

#: an error that a callback has swallowed is raised again after so many seconds
_SECONDS_BETWEEN_TRIES = 10.0
#: and what is being imported is asked for again after so many
_SECONDS_BETWEEN_LOOKS = 0.05
#: an import that takes longer than this is ended all the same: it may wait for something, or train a model
_MOST_SECONDS_OF_IMPORT = 60.0


class TimeIsUp(BaseException):
    """Ends what is running; no `except Exception` in a metric or in another package may stop it."""


class _Watch:
    """Raises `TimeIsUp` in the thread that has made it, as long as it is open.

    Attributes:
        expired: whether it has.
    """

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        # a daemon, so that it never keeps the process from ending
        self._watcher = threading.Thread(target=self._wait, args=(seconds,), daemon=True)

    def start(self) -> None:
        self._watcher.start()

    def close(self) -> None:
        """Raise nothing any more, also not what was raised at the last moment, and has not arrived yet."""
        with self._lock:
            self._closed.set()
            _set_pending(self._thread, None)

    def _wait(self, seconds: float) -> None:
        looks_left = round(_MOST_SECONDS_OF_IMPORT / _SECONDS_BETWEEN_LOOKS)
        while not self._closed.wait(seconds):
            # the lock, so that nothing is raised after `close` has taken back what was pending
            with self._lock:
                # it may have been closed while this thread waited for the lock
                if self._closed.is_set():
                    return
                if looks_left and self._is_importing():
                    looks_left -= 1
                    seconds = _SECONDS_BETWEEN_LOOKS
                    continue
                self.expired = True
                _set_pending(self._thread, TimeIsUp)
            seconds = _SECONDS_BETWEEN_TRIES

    def _is_importing(self) -> bool:
        """Whether the call imports something: ended there, half a package would be left to the rest of the process."""
        frame = sys._current_frames().get(self._thread)
        # up to the call that is watched, which may itself be part of an import
        while frame is not None and not self._watches(frame):
            if frame.f_code.co_filename == "<frozen importlib._bootstrap>":
                return True
            frame = frame.f_back
        return False

    def _watches(self, frame: FrameType) -> bool:
        is_call = frame.f_code is run_within.__code__
        return is_call and frame.f_locals.get("watch") is self


def run_within(seconds: float, function: Callable[[], None]) -> bool:
    """Call a function, and end it after so many seconds as if its next line raised an error.

    What runs in C, such as a single pass of a network, comes to its end before that, and so does an import of
    less than a minute. Ctrl-C ends a function in the same way, so all that puts something back afterwards does.

    Returns:
        Whether it came to its end.

    >>> run_within(60, lambda: None)
    True
    >>> def wait() -> None:
    ...     while True:
    ...         pass
    >>> run_within(0.05, wait)
    False
    """
    if math.isinf(seconds):
        function()
        return True
    watch = _Watch(seconds)
    try:
        try:
            watch.start()
            function()
        finally:
            watch.close()
    except TimeIsUp:
        watch.close()  # it may have arrived before the line above
        if not watch.expired:  # it is that of a call around this one
            raise
        return False
    return True


def _set_pending(thread: int, error: type[BaseException] | None) -> None:
    """Have an error raised in a thread at its next line; with None, none."""
    pending = None
    if error is not None:
        pending = ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), pending)
