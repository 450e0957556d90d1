"""Executors on this computer: one job after another in this process, or in several processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import secrets
import signal
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from standfast.errors import StandfastError, check, check_integer
from standfast.study.executors.base import (
    UNLIMITED,
    Executor,
    JobOutcome,
    Limits,
    Tell,
    check_workers,
    store_failure,
    store_result,
)
from standfast.study.file.imports import importing_from
from standfast.study.folders import WriteError
from standfast.study.grid import Grid
from standfast.study.plan import Job
from standfast.study.store import Store
from standfast.study.worker import Worker
from standfast.tensors import available_cpus, thread_budget

#: a job with which this many workers have died counts as failed, if the limits do not say otherwise
_LIVES = 2
#: how often time and memory of the workers are looked at
_SECONDS_BETWEEN_LOOKS = 0.25
#: how long a worker may take to end when no job is left
_SECONDS_TO_END = 5.0
#: the variable of the environment that holds the marks of a worker: what its jobs start inherits it
_MARKS = "STANDFAST_WORKER"
#: what a worker sends first. A worker that dies before this could not start
_STARTED = ("started",)


class _DiedError(Exception):
    """A worker process died during a job."""


class InProcess(Executor):
    """Does one job after another in this process.

    A crash or `os._exit` ends this process, and nobody is left to say which job did it. So the store has a note of the
    current job. A job during which the last run was lost comes last, and one during which two were lost has failed.

    Args:
        noted: whether to write the note; not if several processes do jobs for one store.
    """

    name = "local"

    def __init__(self, noted: bool = True) -> None:
        self.noted = noted

    def run(self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None) -> Iterator[JobOutcome]:
        """Do `jobs` in this order."""
        worker = Worker(grid)
        lost, times = store.begun() if self.noted else ("", 0)
        for job in sorted(jobs, key=lambda job: job.identity == lost):
            losses = times if job.identity == lost else 0
            if losses >= _LIVES:
                error = f"ProcessDied: {losses} runs ended during this job (a crash, os._exit, or killed)"
                yield store_failure(store, grid, job, error, error)
                continue
            if self.noted:
                store.begin(job.identity, losses + 1)
            packed = worker.run(job, None if tell is None else partial(tell, job))
            yield store_result(store, job, packed)


class Processes(Executor):
    """Several processes on this computer. Each gets the models and data once, and then one job after another.

    A worker that dies (for example, killed for its memory) is replaced, and its job is done again. A job with which two
    workers died is recorded as failed, as is one that exceeds a limit. The workers end when this process ends, for
    whatever reason.

    Args:
        workers: the number of processes.
        threads: of each worker; None divides the threads of this process among them.
        limits: what one job may take.

    Raises:
        ArgumentError: a limit of memory where the memory of a process cannot be read (without /proc and psutil).
    """

    name = "local"

    def __init__(self, workers: int, threads: int | None = None, limits: Limits = UNLIMITED) -> None:
        check_integer(workers, "workers")
        check_integer(threads, "threads", also=(None,))
        self.workers = workers
        self.threads = threads or max(1, thread_budget() // workers)
        readable = limits.memory_gb is None or memory_of(os.getpid()) is not None
        check(readable, "memory_gb", "None on a system without /proc, or psutil to be installed", limits.memory_gb)
        self.limits = limits
        #: makes what is sent to the workers; a Slurm task has functions that only cloudpickle can send on
        self.pack: Callable[[Grid], Grid | bytes] = lambda grid: grid

    def run(self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None) -> Iterator[JobOutcome]:
        """Do `jobs`; each worker takes the next one when it is free."""
        with _end_workers_on_sigterm():
            yield from self._run(grid, store, jobs, tell)

    def _run(self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None) -> Iterator[JobOutcome]:
        packed = self.pack(grid)
        queue, deaths = deque(jobs), dict.fromkeys((job.identity for job in jobs), 0)
        count = min(self.workers, len(jobs))
        pool: list[_Process] = []
        try:
            for number in range(count):
                with _delay_interrupts():  # until the process is in the list, from which `finally` ends it
                    pool.append(_Process.start(grid, packed, store, self.threads, number))
            for process in pool:
                process.give(queue)
            while pool:
                ends = [end for p in pool for end in (p.connection, p.process.sentinel)]
                ready = wait(ends, _SECONDS_BETWEEN_LOOKS if self.limits.watched else None)
                for process in [p for p in pool if p.connection in ready or p.process.sentinel in ready]:
                    try:
                        outcome = process.take()
                    except _DiedError:
                        lost = process.job
                        assert lost is not None
                        deaths[lost.identity] += 1
                        if store.is_done(lost.identity):  # it died after it had stored the result
                            yield JobOutcome(lost)
                        elif deaths[lost.identity] < self.limits.tries(_LIVES):
                            queue.appendleft(lost)
                        else:
                            tries = deaths[lost.identity]
                            yield _store_death(store, grid, lost, process.process.exitcode, tries)
                        self._replace(process, pool, grid, packed, store).give(queue)
                    else:
                        if isinstance(outcome, float):
                            if tell is not None and process.job is not None:
                                tell(process.job, outcome)
                        elif outcome is None:  # the worker has only started
                            if process.exceeds(replace(self.limits, timeout=None)):
                                raise StandfastError(
                                    f"memory_gb: expected more than a worker takes before its first job"
                                    f" ({(memory_of(process.process.pid or 0) or 0) / 1e9:.2f} GB), got"
                                    f" {self.limits.memory_gb:g}"
                                )
                        else:
                            yield outcome
                            process.give(queue)
                for process in [p for p in pool if self.limits.watched and p.job is not None]:
                    if (why := process.exceeds(self.limits)) and not process.connection.poll():
                        job = process.job
                        assert job is not None
                        process.kill()
                        done = store.is_done(job.identity)
                        yield JobOutcome(job) if done else store_failure(store, grid, job, why, why)
                        self._replace(process, pool, grid, packed, store).give(queue)
                idle = [p for p in pool if p.job is None]
                for process in idle:
                    if queue:  # the job of a dead worker was put back when this one had found the queue empty
                        process.give(queue)
                    else:
                        process.dismiss()
                        pool.remove(process)
        finally:
            for process in pool:
                process.process.kill()
            for process in pool:
                process.kill()
                process.connection.close()

    def _replace(
        self, process: _Process, pool: list[_Process], grid: Grid, packed: Grid | bytes, store: Store
    ) -> _Process:
        """A new worker in the place of one that is dead."""
        with _delay_interrupts():
            fresh = _Process.start(grid, packed, store, self.threads, process.number)
            pool[pool.index(process)] = fresh
        process.kill()
        process.connection.close()
        return fresh


def _store_death(store: Store, grid: Grid, job: Job, code: int | None, tries: int) -> JobOutcome:
    how = f"signal {-code} ({signal.Signals(-code).name})" if code is not None and code < 0 else f"exit code {code}"
    many = f"{tries} worker processes" if tries > 1 else "the worker process"
    error = f"WorkerDied: {many} ended with {how} during this job"
    hint = "; SIGKILL is what the system sends when memory runs out" if code == -signal.SIGKILL else ""
    return store_failure(store, grid, job, error, error + hint)


@dataclass
class _Process:
    """A worker process, the connection to it, and its current job."""

    process: BaseProcess
    connection: Connection
    number: int
    mark: str
    job: Job | None = None
    started: bool = False
    since: float = float("inf")  # when its job began

    @classmethod
    def start(cls, grid: Grid, packed: Grid | bytes, store: Store, threads: int, number: int) -> _Process:
        context: Any = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, packed, store, threads, _device(grid.device, number))
        process = context.Process(target=_run_worker, args=arguments, name=f"standfast-{number}")
        mark = f"{os.getpid()}-{secrets.token_hex(8)}"
        _start_tracker()  # without the mark, since it serves all workers
        # a new process gets the path of this one
        with _set_environment(threads, mark), importing_from(grid.paths):
            try:
                process.start()
            except (AttributeError, TypeError, RuntimeError) as error:  # what pickling raises
                raise StandfastError(
                    f"workers: expected models, explainers and metrics that can be sent to another process, got"
                    f" {type(error).__name__}: {error}. Functions must be importable (no lambdas). An exported program"
                    " needs a study file that names its file (path: model.pt2). Or use one worker."
                ) from error
        theirs.close()
        return cls(process, ours, number, mark)

    def give(self, queue: deque[Job]) -> None:
        """The next job, if there is one."""
        self.job = queue.popleft() if queue else None
        if self.started:  # or else when it says that it has started
            self.since = time.monotonic()
        if self.job is not None:
            try:
                self.connection.send(self.job)
            except OSError:  # it is dead; `take` will notice
                return

    def take(self) -> JobOutcome | float | None:
        """What it has done: the outcome of its job, the share of it that is done, or None if it has only started.

        Raises `_DiedError` if it died during a job.
        """
        try:
            sent = self.connection.recv() if self.connection.poll() else None
        except (EOFError, OSError):
            sent = None
        if isinstance(sent, str):
            raise StandfastError(f"a worker process could not start or store its results:\n{sent}")
        if sent is None:
            self.process.join()
            if not self.started:
                raise StandfastError(
                    f"workers: a worker process ended before it could start (exit code {self.process.exitcode}). A"
                    ' script that asks for workers needs `if __name__ == "__main__":` around what it does.'
                )
            raise _DiedError
        self.started = True
        if sent == _STARTED:
            self.since = time.monotonic()
            return None
        if isinstance(sent, float):
            return sent
        assert self.job is not None
        job, self.job = self.job, None
        return JobOutcome(job, bool(sent))

    def exceeds(self, limits: Limits) -> str:
        """Which limit its job exceeds, as the error of the job; empty if none."""
        seconds = time.monotonic() - self.since
        if limits.timeout is not None and seconds > limits.timeout:
            return f"TimeoutError: the job ran for {seconds:.1f} s, and the limit is {limits.timeout:g} s"
        if limits.memory_gb is not None and self.started:
            used = (memory_of(self.process.pid or 0) or 0) / 1e9
            if used > limits.memory_gb:
                return f"MemoryError: the worker took {used:.2f} GB, and the limit is {limits.memory_gb:g} GB"
        return ""

    def dismiss(self) -> None:
        """End it, because no job is left."""
        self.connection.close()
        self.process.join(_SECONDS_TO_END)  # a thread that a job has left behind keeps it longer
        self.kill()

    def kill(self) -> None:
        """End it at once, if it has not ended, and the processes that its jobs have started."""
        if self.process.exitcode is None:
            self.process.kill()
        self.process.join()
        if hasattr(os, "killpg"):
            with suppress(ProcessLookupError, PermissionError):  # nobody is left; or it had not yet a group of its own
                assert self.process.pid
                os.killpg(self.process.pid, signal.SIGKILL)
        _end_marked(self.mark)


def _end_marked(mark: str) -> None:
    """End all processes but this one that have a worker's mark in their environment, also those with their own session.

    Only on Linux. A process that clears its environment is not found.
    """
    for _ in range(10):  # what is started while the list is read is found in the next round
        marked = []
        for entry in Path("/proc").glob("[1-9]*/environ"):
            with suppress(OSError):  # it has ended, or belongs to somebody else
                if mark.encode() in entry.read_bytes() and entry.parent.name != str(os.getpid()):
                    marked.append(int(entry.parent.name))
        if not marked:
            return
        for process in marked:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, signal.SIGKILL)


def _start_tracker() -> None:
    """Start the process that multiprocessing has for all others, if there is such a process on this system."""
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()


def memory_of(process: int) -> int | None:
    """The resident memory of a process in bytes; None where it cannot be read.

    >>> memory_of(os.getpid()) is None or memory_of(os.getpid()) > 10**7
    True
    """
    try:
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, AttributeError, ValueError):
        pass
    try:
        import psutil  # type: ignore[import-untyped]

        return int(psutil.Process(process).memory_info().rss)
    except Exception:  # not installed, or the process is gone
        return None


def _device(device: str, number: int) -> str:
    """The device of a worker: with several GPUs, the workers take turns."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{number % cards}" if cards and device in ("auto", "cuda") else device


@contextmanager
def _set_environment(threads: int, mark: str) -> Iterator[None]:
    """Give child processes a mark, and the number of threads before they load any library."""
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "STANDFAST_THREADS", _MARKS)
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, str(threads)))
    os.environ[_MARKS] = f"{before[_MARKS] or ''} {mark}"  # a worker may start workers, which end with it
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _delay_interrupts() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM until the end of the block; processes that are started inside never get Ctrl-C."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    _start_tracker()  # it starts with the first process, and would unblock the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # child processes inherit this
    # another thread may receive the signal, which then interrupts the main one
    main = threading.current_thread() is threading.main_thread()
    came: list[int] = []
    wanted = (signal.SIGINT, signal.SIGTERM) if main else ()
    handlers = {number: signal.signal(number, lambda number, _: came.append(number)) for number in wanted}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for delayed in dict.fromkeys(came):
            signal.raise_signal(delayed)


@contextmanager
def _end_workers_on_sigterm() -> Iterator[None]:
    """Inside, SIGTERM raises `SystemExit`, so that the workers are ended before this process."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run_worker(connection: Connection, packed: Grid | bytes, store: Store, threads: int, device: str) -> None:
    """What a worker process does: jobs, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process, which ends this one
    if hasattr(os, "setpgid") and multiprocessing.parent_process() is not None:
        os.setpgid(0, 0)  # a group of its own, so that what the jobs start can be ended with it
    mark = os.environ.get(_MARKS, "").rpartition(" ")[2]
    threading.Thread(target=_end_with_parent, args=(mark,), daemon=True).start()
    torch.set_num_threads(threads)
    try:
        grid: Grid = pickle.loads(packed) if isinstance(packed, bytes) else packed
        worker = Worker(replace(grid, device=device))
        connection.send(_STARTED)
        while True:
            try:
                job = connection.recv()
            except EOFError:
                return
            done = worker.run(job, connection.send)
            store.put(done)
            connection.send(done.failed)
    except Exception as error:
        said = str(error) if isinstance(error, WriteError) else traceback.format_exc()
        with suppress(OSError):  # nobody listens any more
            connection.send(said)


def _end_with_parent(mark: str) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    if mark:
        _end_marked(mark)
    if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def local(
    workers: int | str = 1, threads: int | None = None, device: str = "auto", limits: Limits = UNLIMITED
) -> Executor:
    """The executor for so many workers on this computer; `"auto"` is one for each GPU, or else for each core.

    One worker is this process itself, unless there are limits, which only another process can keep.
    """
    if workers == "auto":
        cards = torch.cuda.device_count() if torch.cuda.is_available() and device != "cpu" else 0
        workers = cards or available_cpus()
    check_workers(workers)
    assert isinstance(workers, int)
    alone = workers == 1 and threads is None and limits == UNLIMITED
    return InProcess() if alone else Processes(workers, threads, limits)
