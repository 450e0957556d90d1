"""Executors on this computer: one job after another in this process, or in several processes."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
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
    Crew,
    Executor,
    JobOutcome,
    Limits,
    Lost,
    Member,
    Said,
    Tell,
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
#: variables that libraries read when they are loaded
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "STANDFAST_THREADS")


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
                yield store_failure(store, grid, job, error)
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
        return _ProcessCrew(self, grid, store).serve(jobs, tell)


@dataclass(eq=False)
class _Process(Member):
    """A worker process, and the connection to it."""

    process: BaseProcess
    connection: Connection

    @property
    def ends(self) -> tuple[Connection, int]:
        """What is ready when it has something to say, and when it has ended."""
        return self.connection, self.process.sentinel

    def send(self, job: Job) -> None:
        with suppress(OSError):  # it is dead, which `take` will notice
            self.connection.send(job)

    def take(self) -> Said:
        """What it says, or how it was lost."""
        try:
            said: Said | StandfastError = self.connection.recv() if self.connection.poll() else self._describe_end()
        except (EOFError, OSError):
            said = self._describe_end()
        if isinstance(said, StandfastError):
            raise said
        return said

    def _describe_end(self) -> Lost:
        self.process.join()
        code = self.process.exitcode or 0
        how = f"signal {-code} ({signal.Signals(-code).name})" if code < 0 else f"exit code {code}"
        if not self.ready:
            raise StandfastError(
                f"workers: a worker process ended before it could start ({how}). A script that asks for workers needs"
                ' `if __name__ == "__main__":` around what it does.'
            )
        hint = "SIGKILL is what the system sends when memory runs out" if code == -signal.SIGKILL else ""
        return Lost(f"the worker process ended with {how}", hint)

    def memory(self) -> int:
        return memory_of(self.process.pid or 0) or 0

    def end(self, patience: float = 0.0) -> None:
        self.connection.close()
        if self.process.pid is None:  # it was not started
            return
        started = _descendants(self.process.pid)
        self.process.join(patience)  # a thread that a job has left behind keeps it longer
        self.process.kill()
        self.process.join()
        _end_all(self.process.pid, started)


class _ProcessCrew(Crew[_Process]):
    """The workers of a run on this computer. They store their results themselves."""

    def __init__(self, executor: Processes, grid: Grid, store: Store) -> None:
        super().__init__(grid, store, executor.workers, _LIVES, executor.limits)
        self.threads, self.packed = executor.threads, executor.pack(grid)

    def start(self, number: int) -> None:
        context: Any = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.packed, self.store, self.threads, _device(self.grid.device, number))
        process = context.Process(target=_run_worker, args=arguments, name=f"standfast-{number}")
        # a new process gets the path of this one
        with _starting(self.threads), importing_from(self.grid.paths):
            # if it is interrupted, a process that has started all the same finds the connection closed, and ends
            self.members.append(_Process(number, process, ours))
            try:
                process.start()
            except (AttributeError, TypeError, RuntimeError) as error:  # what pickling raises
                raise StandfastError(
                    f"workers: expected models, explainers and metrics that can be sent to another process, got"
                    f" {type(error).__name__}: {error}. Functions must be importable (no lambdas). An exported program"
                    " needs a study file that names its file (path: model.pt2). Or use one worker."
                ) from error
        theirs.close()

    def hear(self, seconds: float | None) -> list[tuple[_Process, Said]]:
        ready = wait([end for member in self.members for end in member.ends], seconds)
        heard = [(member, member.take()) for member in self.members if any(end in ready for end in member.ends)]
        memory = Limits(memory_gb=self.limits.memory_gb)
        for member, said in heard:
            if said is None and (why := member.exceeds(memory)):
                raise StandfastError(f"memory_gb: expected more than a worker takes before its first job, got: {why}")
        return heard


def _run_worker(connection: Connection, packed: Grid | bytes, store: Store, threads: int, device: str) -> None:
    """What a worker process does: jobs, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is handled by the parent process, which ends this one
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a group of its own, so that what the jobs start can be ended with it
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        grid: Grid = pickle.loads(packed) if isinstance(packed, bytes) else packed
        worker = Worker(replace(grid, device=device))
        connection.send(None)
        while True:
            done = worker.run(connection.recv(), connection.send)
            store.put(done)
            connection.send(done.failed)
    except EOFError:  # no job is left
        return
    except Exception as error:
        said = str(error) if isinstance(error, WriteError) else traceback.format_exc()
        with suppress(OSError):  # nobody listens any more
            connection.send(StandfastError(f"a worker process could not start or store its results:\n{said}"))


def _end_with_parent() -> None:
    """Wait until the parent has ended, however that was, and end this process with what its jobs have started."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _end_all(os.getpid(), _descendants(os.getpid()))
    os._exit(1)


def _end_all(leader: int, others: Sequence[int]) -> None:
    """End processes, and then the group of a process, if it leads one."""
    if hasattr(os, "killpg"):
        for process in others:
            with suppress(OSError):  # it has ended
                os.kill(process, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """What a process has started, and what that has started, and so on; only on Linux."""
    found = list[int]()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            for child in map(int, file.read_text().split()):
                found += [child, *_descendants(child)]
    return found


def memory_of(process: int) -> int | None:
    """The resident memory of a process in bytes; None where it cannot be read.

    >>> memory_of(os.getpid()) is None or memory_of(os.getpid()) > 10**7
    True
    """
    with suppress(OSError, IndexError, AttributeError, ValueError):
        pages = Path(f"/proc/{process}/statm").read_text().split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    with suppress(Exception):  # not installed, or the process is gone
        import psutil  # type: ignore[import-untyped]

        return int(psutil.Process(process).memory_info().rss)
    return None


def _device(device: str, number: int) -> str:
    """The device of a worker: with several GPUs, the workers take turns."""
    cards = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return f"cuda:{number % cards}" if cards and device in ("auto", "cuda") else device


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Processes that are started inside find the number of their threads in the environment, and never get Ctrl-C."""
    before = {name: os.environ.get(name) for name in _THREADS}
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    mask: Any = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # it starts with the first process, and would unblock the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            del os.environ[name]
            os.environ.update({} if value is None else {name: value})


def local(
    workers: int | str = 1, threads: int | None = None, device: str = "auto", limits: Limits = UNLIMITED
) -> Executor:
    """The executor for so many workers on this computer; `"auto"` is one for each GPU, or else for each core.

    One worker is this process itself, unless there are limits, which only another process can keep.
    """
    if workers == "auto":
        cards = torch.cuda.device_count() if torch.cuda.is_available() and device != "cpu" else 0
        workers = cards or available_cpus()
    check_integer(workers, "workers", also=("auto",))
    assert isinstance(workers, int)
    alone = workers == 1 and threads is None and limits == UNLIMITED
    return InProcess() if alone else Processes(workers, threads, limits)
