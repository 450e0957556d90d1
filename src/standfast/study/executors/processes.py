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
from standfast.question.grid import Grid
from standfast.study.executors.base import (
    UNLIMITED,
    Crew,
    CrewMember,
    Executor,
    Limits,
    Lost,
    Outcomes,
    Said,
    Tell,
    store_result,
)
from standfast.study.import_paths import importing_from
from standfast.study.jobs import Job
from standfast.study.store import Store
from standfast.study.worker import Worker
from standfast.tensors import available_cpus, thread_budget

#: a job with which this many workers have died counts as failed, if the limits do not say otherwise
_LIVES = 2
#: variables that libraries read when they are loaded
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "POLARS_MAX_THREADS", "STANDFAST_THREADS")


class InProcess(Executor):
    """Does one job after another in this process. A crash or `os._exit` of a job ends it."""

    name = "local"

    def run(
        self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None
    ) -> Outcomes:
        """Do `jobs` in this order."""
        worker = Worker(grid)
        for job in jobs:
            if tell is not None:
                tell(job, 0.0)
            tell_of_job = None
            if tell is not None:
                tell_of_job = partial(tell, job)
            yield store_result(store, job, worker.run(job, tell_of_job))


class Processes(Executor):
    """Several processes on this computer. Each gets the models and data once, and then one job after another.

    An explainer with code that is not ours has processes of its own: one that has done a job of it is replaced before
    it would get a job of another explainer.

    A worker that dies (for example, killed for its memory) is replaced, and its job is done again. A job with which two
    workers died is recorded as failed, as is one that exceeds a limit. The workers end when this process ends, for
    whatever reason.

    Args:
        workers: the number of processes.
        threads: of each worker; None divides the threads of this process among them.
        limits: what one job may take.

    Raises:
        ArgumentError: a limit of memory where the memory of a process cannot be read (without /proc).
    """

    name = "local"
    isolates = True

    def __init__(
        self, workers: int, threads: int | None = None, limits: Limits = UNLIMITED
    ) -> None:
        check_integer(workers, "workers")
        check_integer(threads, "threads", also=(None,))
        self.workers = workers
        # cores are divided, because threads of several workers on one core wait for each other
        self.threads = threads or max(1, thread_budget() // workers)
        readable = limits.memory_gb is None or memory_of(os.getpid()) is not None
        check(readable, "memory_gb", "None on a system without /proc", limits.memory_gb)
        self.limits = limits
        #: what pickles the grid; a Slurm task has functions that only cloudpickle can send on
        self.dumps: Callable[[Grid], bytes] = pickle.dumps

    @property
    def at_once(self) -> int:
        return self.workers

    def run(
        self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None
    ) -> Outcomes:
        """Do `jobs`; each worker takes the next one when it is free."""
        return _ProcessCrew(self, grid, store).serve(jobs, tell)


@dataclass(eq=False)
class _Process(CrewMember):
    """A worker process, the connection to it, and the pickled grid until it was sent."""

    process: BaseProcess
    connection: Connection
    packed: bytes

    @property
    def ends(self) -> tuple[Connection, int]:
        """What is ready when it has something to say, and when it has ended."""
        return self.connection, self.process.sentinel

    def assign(self, job: Job) -> None:
        with suppress(OSError):  # it is dead, which `hear` will notice
            self.connection.send(job)

    def hear(self) -> Said:
        """What it says, or how it was lost."""
        try:
            if self.connection.poll():
                said: Said | StandfastError = self.connection.recv()
            else:
                said = self._describe_end()
        except (EOFError, OSError):
            said = self._describe_end()
        if isinstance(said, StandfastError):
            raise said
        # it has come to read; earlier, whoever writes more than a pipe holds would have to wait
        if self.packed:
            with suppress(OSError):
                self.connection.send_bytes(self.packed)
            self.packed = b""
        return said

    def _describe_end(self) -> Lost:
        self.process.join()
        code = self.process.exitcode or 0
        if code < 0:
            how = f"signal {-code} ({signal.Signals(-code).name})"
        else:
            how = f"exit code {code}"
        if not self.ready:
            raise StandfastError(
                f"workers: a worker process ended before it could start ({how}). A script that asks for workers needs"
                ' `if __name__ == "__main__":` around what it does.'
            )
        hint = ""
        if code == -signal.SIGKILL:
            hint = "SIGKILL is what the system sends when memory runs out"
        return Lost(f"the worker process ended with {how}", hint)

    def memory(self) -> int:
        return memory_of(self.process.pid or 0) or 0

    def stop(self, patience: float = 0.0) -> None:
        # whoever waits for a job reads the end of the connection, and ends by itself
        self.connection.close()
        if self.process.pid is None:  # it was not started
            return
        # before it is killed: then its children would belong to the system, and could not be found
        started = _descendants(self.process.pid)
        self.process.join(patience)  # a thread that a job has left behind keeps it longer
        self.process.kill()
        self.process.join()
        _end_all(self.process.pid, started)


class _ProcessCrew(Crew[_Process]):
    """The workers of a run on this computer."""

    def __init__(self, executor: Processes, grid: Grid, store: Store) -> None:
        super().__init__(grid, store, executor.workers, _LIVES, executor.limits)
        self.threads = executor.threads
        try:
            # as bytes: what multiprocessing pickles shares the memory of its tensors, so that a job that changes the
            # weights of a model would change those of all workers
            self.packed = executor.dumps(grid)
        except (AttributeError, TypeError, RuntimeError, pickle.PickleError) as error:
            raise StandfastError(
                f"workers: expected models, explainers and metrics that can be sent to another process, got"
                f" {type(error).__name__}: {error}. Functions must be importable (no lambdas). An exported program"
                " needs a study file that names its file (path: model.pt2). Or use one worker."
            ) from error

    def start(self, number: int) -> None:
        # no fork: a card or threads that are in use do not survive it
        context: Any = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        arguments = (theirs, self.threads, _device(self.grid.device, number))
        process = context.Process(target=_run_worker, args=arguments, name=f"standfast-{number}")
        # a new process gets the path of this one
        with _starting(self.threads), importing_from(self.grid.paths):
            # if it is interrupted, a process that has started all the same finds the connection closed, and ends
            self.members.append(_Process(number, process, ours, self.packed))
            process.start()
        # ours would never see the end of a connection of which this process holds both sides
        theirs.close()

    def poll(self, seconds: float | None) -> list[tuple[_Process, Said]]:
        ends_of_all = [end for member in self.members for end in member.ends]
        ready = set(wait(ends_of_all, seconds))
        heard = [
            (member, member.hear()) for member in self.members if not ready.isdisjoint(member.ends)
        ]
        # before its first job only memory can be exceeded: the clock of a job has not begun
        memory = Limits(memory_gb=self.limits.memory_gb)
        for member, said in heard:
            if said is None and (why := member.exceeds(memory)):
                raise StandfastError(
                    f"memory_gb: expected more than a worker takes before its first job, got: {why}"
                )
        return heard


def _run_worker(connection: Connection, threads: int, device: str) -> None:
    """What a worker process does: jobs, until the connection is closed."""
    # Ctrl-C is handled by the parent process, which ends this one
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)  # a group of its own, so that what the jobs start can be ended with it
    # also a parent that is killed leaves no worker behind
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(threads)
    try:
        connection.send(0.0)
        worker = Worker(replace(pickle.loads(connection.recv_bytes()), device=device))
        connection.send(None)
        while True:
            connection.send(worker.run(connection.recv(), connection.send))
    except EOFError:  # no job is left
        return
    except Exception:  # what the grid holds may raise anything when it is unpickled
        with suppress(OSError):  # nobody listens any more
            connection.send(
                StandfastError(f"a worker process could not start:\n{traceback.format_exc()}")
            )


def _end_with_parent() -> None:
    """Wait until the parent has ended, however that was, and end this process with what its jobs have started."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    wait([parent.sentinel])
    _end_all(os.getpid(), _descendants(os.getpid()))
    os._exit(1)


def _end_all(leader: int, others: Sequence[int]) -> None:
    """End processes, and then the group of a process, if it leads one."""
    # Windows has no groups of processes
    if hasattr(os, "killpg"):
        for process in others:
            with suppress(OSError):  # it has ended
                os.kill(process, signal.SIGKILL)
        with suppress(OSError):
            os.killpg(leader, signal.SIGKILL)


def _descendants(process: int) -> list[int]:
    """What a process has started, and what that has started, and so on; only on Linux."""
    descendants = list[int]()
    for file in Path(f"/proc/{process}/task").glob("*/children"):
        with suppress(OSError):  # it has ended
            for child in map(int, file.read_text().split()):
                descendants += [child, *_descendants(child)]
    return descendants


def memory_of(process: int) -> int | None:
    """The resident memory of a process in bytes; None where it cannot be read.

    >>> memory_of(os.getpid()) is None or memory_of(os.getpid()) > 10**7
    True
    """
    # only Linux has /proc
    with suppress(OSError, IndexError, AttributeError, ValueError):
        sizes = Path(f"/proc/{process}/statm").read_text().split()
        pages = sizes[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")
    return None


def _device(device: str, number: int) -> str:
    """The device of a worker: with several GPUs, the workers take turns."""
    if torch.cuda.is_available():
        cards = torch.cuda.device_count()
    else:
        cards = 0
    if cards and device in ("auto", "cuda"):
        return f"cuda:{number % cards}"
    return device


@contextmanager
def _starting(threads: int) -> Iterator[None]:
    """Processes that are started inside find the number of their threads in the environment, and never get Ctrl-C."""
    before = {name: os.environ.get(name) for name in _THREADS}
    # a library reads the variables when it is loaded, which is before our code runs in the worker
    os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    mask: Any = None
    if hasattr(signal, "pthread_sigmask"):
        resource_tracker.ensure_running()  # it starts with the first process, and would unblock the signal
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    # another thread may get the signal all the same; Python would then interrupt a start that is half done
    came: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    handler = None
    if in_main:
        handler = signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for name, value in before.items():
            del os.environ[name]
            if value is not None:
                os.environ[name] = value
    # Ctrl-C that came meanwhile is handled now, when the start is complete
    if came and callable(handler):
        handler(signal.SIGINT, None)


def local(
    workers: int | str = 1,
    threads: int | None = None,
    device: str = "auto",
    limits: Limits = UNLIMITED,
) -> Executor:
    """The executor for so many workers on this computer; `"auto"` is one for each GPU, or else for each core.

    One worker is this process itself, unless there are limits, which only another process can keep.
    """
    if workers == "auto":
        if torch.cuda.is_available() and device != "cpu":
            cards = torch.cuda.device_count()
        else:
            cards = 0
        workers = cards or available_cpus()
    check_integer(workers, "workers", also=("auto",))
    assert isinstance(workers, int)
    alone = workers == 1 and threads is None and limits == UNLIMITED
    if alone:
        return InProcess()
    return Processes(workers, threads, limits)
