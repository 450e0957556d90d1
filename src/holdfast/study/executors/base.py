"""`Executor`: where jobs are done. Whatever it is, the store decides what is still to do."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from holdfast.study.grid import Grid
from holdfast.study.plan import Job
from holdfast.study.store import Packed, Store


@dataclass(frozen=True)
class Outcome:
    """What became of a job: stored as done, or as failed with an error."""

    job: Job
    failed: bool = False


class Executor(ABC):
    """Does jobs, and yields an `Outcome` for each as soon as it is stored. Stops its workers when it is closed."""

    name: str

    @abstractmethod
    def run(self, grid: Grid, store: Store, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Do `jobs`, in about their order."""


def store_result(store: Store, job: Job, packed: Packed) -> Outcome:
    """Keep what a worker made of a job."""
    store.put(packed)
    return Outcome(job, packed.failed)


@contextmanager
def travelling(grid: Grid, cloudpickle: Any) -> Iterator[None]:
    """Inside, what is pickled takes the modules of the study's own folder along: other machines do not have them."""
    modules = _modules_in(grid.paths)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in modules:
            cloudpickle.unregister_pickle_by_value(module)


def _modules_in(folders: Sequence[str]) -> list[ModuleType]:
    """Modules imported from these folders themselves: not from an environment that happens to lie beneath one."""
    found = []
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        parts = name.split(".")
        places = [Path(folder, *parts[:-1], f"{parts[-1]}.py") for folder in folders]
        places += [Path(folder, *parts, "__init__.py") for folder in folders]
        if isinstance(file, str) and Path(file) in places:
            found.append(module)
    return found
