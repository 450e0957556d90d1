"""Processes that have loaded the libraries when they start: forked from one that did, which takes it some seconds.

For tests of what a worker does. How one starts from nothing is the matter of a few tests, which use none of this.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

#: what a worker loads until it has done its first job; none of it starts a thread, which would not survive a fork
_LIBRARIES = [
    "torch",
    "polars",
    "scipy.stats",
    "safetensors.torch",
    "pytest",
    "standfast.cli",
    "standfast.data",
    "standfast.metrics",
    "standfast.explainers",
    "standfast.study.file.spec",
    "standfast.study.executors.processes",
    "standfast.study.worker",
    "standfast.zoo",
]


class QuickContext:
    """As `multiprocessing.get_context("spawn")`, for what standfast asks of it.

    Args:
        settings: names of attributes of modules of standfast, and what they are in the processes.
    """

    def __init__(self, settings: Mapping[str, object] | None = None) -> None:
        self._settings = dict(settings or {})
        context = multiprocessing.get_context("forkserver")
        assert isinstance(context, ForkServerContext)
        context.set_forkserver_preload(_LIBRARIES)
        self._context = context
        self.Pipe = context.Pipe

    def Process(self, target: Callable[..., object], args: Sequence[Any], name: str) -> BaseProcess:
        environment = dict(os.environ)
        return self._context.Process(
            target=run_in_environment, args=(environment, self._settings, target, args), name=name
        )


def run_in_environment(
    environment: Mapping[str, str],
    settings: Mapping[str, object],
    target: Callable[..., object],
    args: Sequence[Any],
) -> None:
    """Call a function with the variables of the process that asked for it, and not those of the server."""
    os.environ.clear()
    os.environ.update(environment)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setattr(name, value)
        target(*args)


def start_workers_quickly(
    patch: pytest.MonkeyPatch, settings: Mapping[str, object] | None = None
) -> None:
    """Have standfast start its workers as quick processes, with the settings that `QuickContext` takes."""
    context = QuickContext(settings)
    # of this module alone: explainers are asked in another context
    quick = SimpleNamespace(**{**vars(multiprocessing), "get_context": lambda kind: context})
    patch.setattr("standfast.study.executors.processes.multiprocessing", quick)


class QuickCommand:
    """The command line in a process of its own, as `subprocess.Popen` has it.

    Args:
        arguments: of the command.
        complaints: the file for what it writes to standard error.
        quick_workers: whether its workers start quickly, too.
    """

    def __init__(
        self, arguments: Sequence[object], complaints: Path, quick_workers: bool = True
    ) -> None:
        words = ["standfast", *map(str, arguments)]
        self._process = QuickContext().Process(
            run_command, (words, str(complaints), quick_workers), "command"
        )
        self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code; None while it runs."""
        return self._process.exitcode

    def wait(self, seconds: float = 60.0) -> int:
        """Its exit code, when it has ended."""
        self._process.join(seconds)
        code = self._process.exitcode
        assert code is not None, "it has not ended"
        return code


def run_command(words: Sequence[str], complaints: str, quick_workers: bool) -> None:
    """What the process of a command does; it leads a session, and what it writes elsewhere is lost."""
    from standfast.cli import main

    os.setsid()
    # the server may have been started where a worker is, whose Ctrl-C is its parent's
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.dup2(os.open(complaints, os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = list(words)
    with pytest.MonkeyPatch.context() as patch:
        if quick_workers:
            start_workers_quickly(patch)
        main()
