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

from holdfast.errors import check_integer
from holdfast.study.grid import Grid
from holdfast.study.plan import Job
from holdfast.study.store import JobFiles, Store, pack_failure
from holdfast.study.worker import record_of


@dataclass(frozen=True)
class JobOutcome:
    """A job that was done and stored, or that failed."""

    job: Job
    failed: bool = False


#: called with a job and the share of it that is done, 0 to 1, while it runs
Tell = Callable[[Job, float], None]


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
