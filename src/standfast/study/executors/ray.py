"""The executor on a Ray cluster of many machines. Results are sent back, and this process stores them."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

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
    import_package,
    pickle_modules_of,
)
from standfast.study.jobs import Job
from standfast.study.store import JobFiles, Store
from standfast.study.worker import Worker

#: a job during which this many workers were lost counts as failed; a lost node loses all of its workers
_LIVES = 4
#: what a cluster of unknown size is taken for when jobs are planned
_USUAL = 16
#: so long after no worker has started, this is said
_SECONDS_OF_SILENCE = 60.0
_log = logging.getLogger(__name__)


class Ray(Executor):
    """Workers on a Ray cluster, each with CPUs and GPUs of its own. Models and data go through the object store.

    A free worker gets the next job. The job of a lost worker is done again by another one. Explainers with code that is
    not ours have workers of their own, as with `Processes`.

    Args:
        address: of the cluster: `"auto"` for the running one, `"host:port"`, `"ray://host:port"`; None starts one on
            this computer and stops it afterwards.
        workers: how many; `"auto"` for as many as the cluster's CPUs (or GPUs, if workers want some) allow.
        cpus_per_worker: CPUs, and threads, of each.
        gpus_per_worker: GPUs of each; a fraction lets several share one.
        threads: of each worker, if not one for each CPU.
        limits: what one job may take. The memory is also what Ray is asked for when it places a worker; it ends workers
            itself when a node has none left.
    """

    name = "ray"
    isolates = True

    def __init__(
        self,
        address: str | None = "auto",
        workers: int | str = "auto",
        cpus_per_worker: float = 1.0,
        gpus_per_worker: float = 0.0,
        threads: int | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        check_integer(workers, "workers", also=("auto",))
        check(cpus_per_worker > 0, "cpus_per_worker", "a number above 0", cpus_per_worker)
        check(gpus_per_worker >= 0, "gpus_per_worker", "a number of at least 0", gpus_per_worker)
        self.address = address
        self.workers = workers
        self.cpus_per_worker = cpus_per_worker
        self.gpus_per_worker = gpus_per_worker
        self.threads = threads or max(1, int(cpus_per_worker))
        self.limits = limits

    @property
    def at_once(self) -> int:
        if isinstance(self.workers, int):
            return self.workers
        return _USUAL

    def run(
        self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None
    ) -> Outcomes:
        """Do `jobs` on the cluster; connects to it first, unless there is a connection."""
        ray = import_package("ray", "ray")
        # a connection of the user's is left as it is
        ours = not ray.is_initialized()
        try:
            if ours:
                silent = {
                    "log_to_driver": False,
                    "include_dashboard": False,
                    "configure_logging": False,
                }
                ray.init(address=self.address, **silent)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise StandfastError(
                f"ray: expected a cluster at {self.address!r}, got {type(error).__name__}: {error}"
                " (start one with `ray start --head`)"
            ) from error
        try:
            yield from _RayCrew(self, ray, grid, store).serve(jobs, tell)
        finally:
            if ours:
                ray.shutdown()

    def count_workers(self, resources: dict[str, float]) -> int:
        """How many workers there are on a cluster with these resources."""
        if isinstance(self.workers, int):
            return self.workers
        by_cpu = resources.get("CPU", 1.0) / self.cpus_per_worker
        if self.gpus_per_worker:
            by_gpu = resources.get("GPU", 0.0) / self.gpus_per_worker
        else:
            by_gpu = by_cpu
        return max(1, int(min(by_cpu, by_gpu)))


@dataclass(eq=False)
class _Actor(CrewMember):
    """A worker of the cluster, and what will have the files of its job; None while it has no job."""

    ray: Any
    handle: Any
    awaited: Any

    def assign(self, job: Job) -> None:
        self.awaited = self.handle.run.remote(job)

    def stop(self, patience: float = 0.0) -> None:
        self.ray.kill(self.handle)


class _RayCrew(Crew[_Actor]):
    """The workers of a run on a cluster. A new one may have to wait for room, and says when it is ready."""

    def __init__(self, executor: Ray, ray: Any, grid: Grid, store: Store) -> None:
        self.executor = executor
        self.ray = ray
        #: when something was heard of a worker, or was said of their silence
        self.last_words = time.monotonic()
        super().__init__(
            grid, store, executor.count_workers(ray.cluster_resources()), _LIVES, executor.limits
        )
        # a worker sees only the GPUs that it was given
        automatic = "cuda" if executor.gpus_per_worker else "cpu"
        with pickle_modules_of(grid, ray.cloudpickle):
            device = automatic if grid.device == "auto" else grid.device
            self.shared = ray.put(replace(grid, device=device))
        resources: dict[str, Any] = {
            "num_cpus": executor.cpus_per_worker,
            "num_gpus": executor.gpus_per_worker,
        }
        if executor.limits.memory_gb is not None:
            resources["memory"] = int(executor.limits.memory_gb * 1e9)
        self.kind = ray.remote(**resources)(_Remote)

    def start(self, number: int) -> None:
        cluster_resources = self.ray.cluster_resources()
        if self.executor.cpus_per_worker > cluster_resources.get(
            "CPU", 0
        ) or self.executor.gpus_per_worker > cluster_resources.get("GPU", 0):
            needed_resources = (
                f"{self.executor.cpus_per_worker:g} CPUs and {self.executor.gpus_per_worker:g} GPUs"
            )
            _log.warning(
                "ray: a worker wants %s, and waits for more than the cluster has: %s",
                needed_resources,
                cluster_resources,
            )
        handle = self.kind.remote(self.shared, self.executor.threads)
        first_answer = handle.ready.remote()
        self.members.append(_Actor(number, self.ray, handle, first_answer))

    def poll(self, seconds: float | None) -> list[tuple[_Actor, Said]]:
        awaited = {member.awaited: member for member in self.members if member.awaited is not None}
        patience = _SECONDS_OF_SILENCE if seconds is None else seconds
        done, _ = self.ray.wait(list(awaited), num_returns=1, timeout=patience)
        working = any(member.job for member in self.members)
        # silence means that no worker starts; while one works, it may be silent
        if done or working:
            self.last_words = time.monotonic()
        elif time.monotonic() - self.last_words >= _SECONDS_OF_SILENCE:
            self._tell_of_silence()
        answers = []
        for reference in done:
            member = awaited[reference]
            answers.append((member, self._hear(member)))
        return answers

    def _tell_of_silence(self) -> None:
        """Say that no worker starts. Ray itself tries again for ever, where a node has no room or no memory left."""
        self.last_words = time.monotonic()
        text = "ray: no worker has started for %g s. Has the cluster room and memory? `ray status` says more"
        _log.warning(text, _SECONDS_OF_SILENCE)

    def _hear(self, member: _Actor) -> Said:
        sent, member.awaited = member.awaited, None
        try:
            said: Said = self.ray.get(sent)
        except self.ray.exceptions.RayTaskError:
            # an error of the task is one of our code, which another worker would repeat
            raise
        except self.ray.exceptions.RayError as error:
            # the worker is lost, or the node that had its result
            # Ray says only in words that it was the worker's start that failed
            if "creation task" in str(error):
                raise StandfastError(f"ray: a worker could not start: {error}") from error
            return Lost("the Ray worker was lost", str(error))
        return said


class _Remote:
    """A worker process of the cluster."""

    def __init__(self, grid: Grid, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.worker = Worker(grid)

    def ready(self) -> None:
        return None

    def run(self, job: Job) -> JobFiles:
        return self.worker.run(job)
