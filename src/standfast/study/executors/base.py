"""`Executor`: does jobs somewhere. With every executor, the store says which jobs are left."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from standfast.errors import check, check_integer
from standfast.study.grid import Grid
from standfast.study.plan import Job
from standfast.study.store import JobFiles, Store, pack_failure
from standfast.study.worker import record_of


@dataclass(frozen=True)
class JobOutcome:
    """A job that was done and stored, or that failed."""

    job: Job
    failed: bool = False


#: called with a job and the share of it that is done, 0 to 1, while it runs
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
            fits = value is None or (isinstance(value, int | float) and 0 < value < float("inf"))
            check(fits and not isinstance(value, bool), what, "a number above 0, or None", repr(value))
        check_integer(self.retries, "retries", least=0, also=(None,))

    @property
    def watched(self) -> bool:
        """Whether a job has to be watched while it runs."""
        return self.timeout is not None or self.memory_gb is not None

    def tries(self, default: int) -> int:
        """How often a job may lose its worker before it counts as failed."""
        return default if self.retries is None else self.retries + 1


#: no limits
UNLIMITED = Limits()


class Executor(ABC):
    """Does jobs, and yields a `JobOutcome` for each when stored. Stops its workers when the generator is closed."""

    name: str

    @abstractmethod
    def run(self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None) -> Iterator[JobOutcome]:
        """Do `jobs`, roughly in this order. Those whose workers can say so `tell` how far a job is."""


def store_result(store: Store, job: Job, packed: JobFiles) -> JobOutcome:
    """Store what a worker has made of a job."""
    store.put(packed)
    return JobOutcome(job, packed.failed)


def store_failure(store: Store, grid: Grid, job: Job, error: str, traceback: str) -> JobOutcome:
    """Store a job as failed, because its worker was lost."""
    return store_result(store, job, pack_failure(record_of(grid, job), error, traceback))


def check_workers(workers: int | str, argument: str = "workers") -> None:
    """Raise `ArgumentError` unless `workers` is a whole number of at least 1, or `"auto"`."""
    check_integer(workers, argument, also=("auto",))


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
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        parts = name.split(".")
        places = [Path(folder, *parts[:-1], f"{parts[-1]}.py") for folder in folders]
        places += [Path(folder, *parts, "__init__.py") for folder in folders]
        if isinstance(file, str) and Path(file) in places:
            found.append(module)
    return found
