"""`Executor`: does jobs somewhere. `Crew`: gives jobs to workers, and does without those that are lost."""

from __future__ import annotations

import importlib
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from standfast.errors import MissingExtraError, StandfastError, check, check_integer
from standfast.question.grid import Grid
from standfast.study.executors.job_queue import JobQueue
from standfast.study.jobs import Job
from standfast.study.store import JobFiles, Store, pack_failure
from standfast.study.worker import record_of

#: how often the limits of jobs are looked at
SECONDS_BETWEEN_LOOKS = 0.25
#: so long workers may be silent before a run looks whether its own time is up
_SECONDS_OF_SILENCE = 1.0
#: how long a worker may take to end when no job is left
_SECONDS_TO_END = 5.0
#: so many starts of each worker may fail one after another: a lost node loses all workers that start on it
_STARTS = 3


@dataclass(frozen=True)
class JobOutcome:
    """A job that was done and stored, or that failed."""

    job: Job
    failed: bool = False


#: what an executor yields
Outcomes = Generator[JobOutcome, None, None]
#: called with a job and the share of it that is done, 0 to 1: when it begins, and while it runs
Tell = Callable[[Job, float], None]


@dataclass(frozen=True)
class Limits:
    """What one job may take. A job that takes more is recorded as failed, and its worker is replaced.

    Attributes:
        timeout: seconds from the start of the job; None for no limit.
        memory_gb: of its worker process as a whole, models and libraries included, in 10^9 bytes; None for no limit.
        retries: how often a job is tried again whose worker was lost, for example killed by the system or by a crash;
            None for the executor's own number. Exceptions and exceeded limits are not tried again in the same run.

    Raises:
        ArgumentError: a limit that is not above 0, a negative number of retries.

    >>> Limits(timeout=600, memory_gb=4)
    Limits(timeout=600, memory_gb=4, retries=None)
    """

    timeout: float | None = None
    memory_gb: float | None = None
    retries: int | None = None

    def __post_init__(self) -> None:
        for what in ("timeout", "memory_gb"):
            value = getattr(self, what)
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            fits = value is None or (is_number and 0 < value < float("inf"))
            check(fits, what, "a number above 0, or None", repr(value))
        check_integer(self.retries, "retries", least=0, also=(None,))

    @property
    def watched(self) -> bool:
        """Whether a job has to be watched while it runs."""
        return self.timeout is not None or self.memory_gb is not None


#: no limits
UNLIMITED = Limits()


class Executor(ABC):
    """Does jobs, and yields a `JobOutcome` for each when stored. Stops its workers when the generator is closed.

    Attributes:
        name: in study files.
        isolates: whether explainers of somebody else's (`Grid.isolated`) get processes of their own.
    """

    name: str
    isolates: bool = False

    @property
    def at_once(self) -> int:
        """About how many jobs it does at the same time."""
        return 1

    @abstractmethod
    def run(
        self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None
    ) -> Outcomes:
        """Do `jobs`, roughly in this order. Those whose workers can say so `tell` how far a job is."""


@dataclass(frozen=True)
class Lost:
    """What is heard of a worker that is no more, or that has to end because its job exceeds a limit.

    Attributes:
        words: what happened.
        hint: what may be the cause.
        final: whether its job has failed; otherwise it is tried again.
    """

    words: str
    hint: str = ""
    final: bool = False


#: what a worker has to say: that it is ready (None), the share of its job that is done (0.0 while it starts), the files
#: of its job, or that it is lost
Said = float | JobFiles | Lost | None


@dataclass(eq=False)
class CrewMember(ABC):
    """A worker of a crew, in a process of its own somewhere, and its current job.

    Attributes:
        owner: the isolated explainer of which it has had a job; it gets no others any more.
    """

    number: int
    job: Job | None = field(default=None, init=False)
    owner: str | None = field(default=None, init=False)
    ready: bool = field(default=False, init=False)
    began: float = field(default=0.0, init=False)

    @abstractmethod
    def assign(self, job: Job) -> None:
        """Have the worker do a job."""

    @abstractmethod
    def stop(self, patience: float = 0.0) -> None:
        """End the worker, with what its jobs have started. It may have so many seconds to end by itself."""

    def memory(self) -> int:
        """The bytes that the worker takes; 0 where that is not known."""
        return 0

    def exceeds(self, limits: Limits) -> str:
        """Which limit the worker exceeds, as the error of its job; empty if none."""
        if self.job:
            seconds = time.monotonic() - self.began
        else:
            seconds = 0.0
        if limits.timeout is not None and seconds > limits.timeout:
            return f"TimeoutError: the job ran for {seconds:.1f} s, and the limit is {limits.timeout:g} s"
        if limits.memory_gb is not None and (gigabytes := self.memory() / 1e9) > limits.memory_gb:
            return f"MemoryError: the worker took {gigabytes:.2f} GB, and the limit is {limits.memory_gb:g} GB"
        return ""


#: the kind of worker of a crew
M = TypeVar("M", bound=CrewMember)


class Crew(ABC, Generic[M]):
    """Workers for a run, each of which does one job after another.

    A worker that is lost is replaced, and its job is done again, unless that has cost too many workers. A worker that
    has had a job of an isolated explainer is replaced before the job of another one.

    Args:
        grid, store: of the jobs.
        size: how many workers there are at most.
        lives: a job with which so many workers were lost has failed, if the limits do not say otherwise.
        limits: what one job may take.
    """

    def __init__(self, grid: Grid, store: Store, size: int, lives: int, limits: Limits) -> None:
        self.grid = grid
        self.store = store
        self.size = size
        self.limits = limits
        # the first try is one life, each retry another
        if limits.retries is None:
            self.lives = lives
        else:
            self.lives = limits.retries + 1
        self.members: list[M] = []
        self.queue = JobQueue(grid.isolated)
        self.losses: Counter[str] = Counter()
        #: how many workers in a row were lost before they were ready
        self.lost_starts = 0

    @abstractmethod
    def start(self, number: int) -> None:
        """Start a worker as one of the `members`, with a number that no other has."""

    @abstractmethod
    def poll(self, seconds: float | None) -> list[tuple[M, Said]]:
        """Wait for what members have to say, so many seconds at most: at least one is starting, or has a job."""

    def serve(self, jobs: Sequence[Job], tell: Tell | None = None) -> Outcomes:
        """Have the jobs done, and yield their outcomes."""
        # after an error or Ctrl-C, workers get no time to end by themselves
        patience = 0.0
        self.queue.add(jobs)
        try:
            while self.queue or any(member.job for member in self.members):
                self._assign_jobs(tell)
                self._end_spent_workers()
                self._start_workers(min(self.size, len(jobs)))
                yield from self._hear_workers(tell)
            patience = _SECONDS_TO_END
        finally:
            for member in self.members:
                member.stop(patience)

    def _assign_jobs(self, tell: Tell | None) -> None:
        """Have the idle workers do jobs that wait, as far as they may do them."""
        for member in self._list_idle():
            busy = {other.owner for other in self.members if other is not member}
            job = self.queue.take(member.owner, busy)
            if job is not None:
                member.job = job
                member.owner = self.queue.find_owner(job)
                member.began = time.monotonic()
                member.assign(job)
                if tell is not None:
                    tell(job, 0.0)

    def _list_idle(self) -> list[M]:
        return [member for member in self.members if member.ready and member.job is None]

    def _end_spent_workers(self) -> None:
        """End idle workers that may do none of the jobs that wait, so that new ones start in their places."""
        starting = sum(not member.ready for member in self.members)
        working = Counter(member.owner for member in self.members if member.job is not None)
        # those that are starting will take some of the jobs
        needed = self.queue.count_beyond(working) - starting
        if self.queue and not working:
            # those that are starting may wait for the place of a spent one, as on a cluster without another free one
            needed = max(needed, 1)
        for member in self._list_idle()[: max(0, needed)]:
            member.stop(_SECONDS_TO_END)
            self.members.remove(member)

    def _start_workers(self, most: int) -> None:
        while self.queue and len(self.members) < most:
            numbers = {member.number for member in self.members}
            # a number that is free again, so that a new worker takes the card of the lost one
            self.start(next(number for number in count() if number not in numbers))

    def _hear_workers(self, tell: Tell | None) -> Iterator[JobOutcome]:
        for member, said in self._poll_with_limits():
            if not isinstance(said, float):
                yield from self._end_job(member, said)
            elif tell is not None and member.job is not None:
                tell(member.job, said)

    def _poll_with_limits(self) -> list[tuple[M, Said]]:
        if not self.limits.watched:
            return self.poll(_SECONDS_OF_SILENCE)
        heard = self.poll(SECONDS_BETWEEN_LOOKS)
        speakers = [id(member) for member, _ in heard]
        # who has just said something may have finished its job
        for member in self.members:
            is_silent = member.job is not None and id(member) not in speakers
            excess = member.exceeds(self.limits) if is_silent else ""
            if excess:
                heard.append((member, Lost(excess, final=True)))
        return heard

    def _end_job(self, member: M, said: JobFiles | Lost | None) -> Iterator[JobOutcome]:
        """What has become of the job of a member, if it has one, and if it is not tried again."""
        job, member.job, member.ready = member.job, None, True
        if isinstance(said, Lost):
            member.stop()
            self.members.remove(member)
        if job is None:  # it was only started
            self._count_start(said)
            return
        if isinstance(said, JobFiles):
            yield store_result(self.store, job, said)
        elif isinstance(said, Lost):
            yield from self._end_lost_job(job, said)

    def _end_lost_job(self, job: Job, said: Lost) -> Iterator[JobOutcome]:
        """The failure of a job whose worker was lost; nothing if the job is tried again."""
        self.losses[job.identity] += 1
        if said.final:
            # a limit that was exceeded would be exceeded again
            yield store_failure(self.store, self.grid, job, said.words)
        elif self.losses[job.identity] < self.lives:
            self.queue.put_back(job)
        else:
            times = ""
            if self.lives > 1:
                times = f", {self.lives} times"
            error = f"WorkerDied: {said.words} during this job{times}"
            yield store_failure(self.store, self.grid, job, error, said.hint)

    def _count_start(self, said: JobFiles | Lost | None) -> None:
        """Raise `StandfastError` if workers are lost again and again before they are ready."""
        if not isinstance(said, Lost):
            self.lost_starts = 0
            return
        self.lost_starts += 1
        if self.lost_starts >= _STARTS * self.size:
            raise StandfastError(
                f"workers: {self.lost_starts} in a row were lost before they could start. The last one: {said.words}"
                f" ({said.hint})"
            )


def store_result(store: Store, job: Job, packed: JobFiles) -> JobOutcome:
    """Store what a worker has made of a job."""
    store.put(packed)
    return JobOutcome(job, packed.failed)


def store_failure(store: Store, grid: Grid, job: Job, error: str, hint: str = "") -> JobOutcome:
    """Store a job as failed, because its worker was lost. The hint stands in the place of a traceback."""
    return store_result(
        store, job, pack_failure(record_of(grid, job), error, f"{error}\n{hint}".rstrip())
    )


def import_package(name: str, extra: str) -> Any:
    """The package that an executor needs; `MissingExtraError` says how to install it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingExtraError(f"the executor {extra}", extra) from error


@contextmanager
def pickle_modules_of(grid: Grid, cloudpickle: Any) -> Iterator[None]:
    """Inside, pickles contain the modules of the study's own folder, which other machines do not have."""
    modules = _modules_in(grid.paths)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_in(folders: Sequence[str]) -> list[ModuleType]:
    """The modules that were imported from these folders, but not from an environment beneath one of them."""
    modules = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        beneath = Path(*name.split("."))
        possible_files: list[Path] = []
        for folder in folders:
            possible_files.append(Path(folder, f"{beneath}.py"))
            possible_files.append(Path(folder, beneath, "__init__.py"))
        if isinstance(file, str) and Path(file) in possible_files:
            modules.append(module)
    return modules
