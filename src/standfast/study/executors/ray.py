"""The executor on a Ray cluster of many machines. Results are sent back, and this process stores them."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from standfast.errors import MissingExtraError, StandfastError, check
from standfast.study.executors.base import (
    UNLIMITED,
    Executor,
    JobOutcome,
    Limits,
    Tell,
    check_workers,
    pickle_modules_of,
    store_failure,
    store_result,
)
from standfast.study.grid import Grid
from standfast.study.plan import Job
from standfast.study.store import JobFiles, Store
from standfast.study.worker import Worker

#: a job during which this many workers were lost counts as failed; a lost node loses all of its workers
_LIVES = 4
_SECONDS_OF_SILENCE, _SECONDS_BETWEEN_LOOKS = 30.0, 0.5
_log = logging.getLogger(__name__)


class Ray(Executor):
    """Workers on a Ray cluster, each with CPUs and GPUs of its own. Models and data go through the object store.

    A free worker gets the next job. The job of a lost worker is done again by another one.

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

    def __init__(
        self,
        address: str | None = "auto",
        workers: int | str = "auto",
        cpus_per_worker: float = 1.0,
        gpus_per_worker: float = 0.0,
        threads: int | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        check_workers(workers)
        check(cpus_per_worker > 0, "cpus_per_worker", "a number above 0", cpus_per_worker)
        check(gpus_per_worker >= 0, "gpus_per_worker", "a number of at least 0", gpus_per_worker)
        self.address, self.workers = address, workers
        self.cpus_per_worker, self.gpus_per_worker = cpus_per_worker, gpus_per_worker
        self.threads = threads or max(1, int(cpus_per_worker))
        self.limits = limits

    def run(self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None) -> Iterator[JobOutcome]:
        """Do `jobs` on the cluster; connects to it first, unless there is a connection."""
        ray = _import_ray()
        ours = not ray.is_initialized()
        if ours:
            self._connect(ray)
        workers: list[Any] = []
        try:
            device = grid.device
            if device == "auto":
                device = "cuda" if self.gpus_per_worker else "cpu"  # a worker sees only the GPUs that it was given
            with pickle_modules_of(grid, ray.cloudpickle):
                shared = ray.put(replace(grid, device=device))
            wanted: dict[str, Any] = {"num_cpus": self.cpus_per_worker, "num_gpus": self.gpus_per_worker}
            if self.limits.memory_gb is not None:
                wanted["memory"] = int(self.limits.memory_gb * 1e9)
            kind = ray.remote(**wanted)(_Remote)

            def start_worker() -> Any:
                workers.append(kind.remote(shared, self.threads))
                return workers[-1]

            yield from self._pull(ray, start_worker, grid, store, jobs)
        finally:
            for worker in workers:
                ray.kill(worker)
            if ours:
                ray.shutdown()

    def _connect(self, ray: Any) -> None:
        try:
            ray.init(address=self.address, log_to_driver=False, include_dashboard=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise StandfastError(
                f"ray: expected a cluster at {self.address!r}, got {type(error).__name__}: {error}"
                " (start one with `ray start --head`)"
            ) from error

    def _pull(self, ray: Any, start_worker: Any, grid: Grid, store: Store, jobs: Sequence[Job]) -> Iterator[JobOutcome]:
        queue, losses = deque(jobs), dict.fromkeys((job.identity for job in jobs), 0)
        # what a worker will send -> the worker and its job. A new worker first sends that it is ready: it may have to
        # wait for room in the cluster, and must not have a job until then
        awaited: dict[Any, tuple[Any, Job | None]] = {}
        began: dict[str, float] = {}
        idle: list[Any] = []  # they may be needed again for the job of a lost worker

        def add_worker() -> None:
            worker = start_worker()
            awaited[worker.ready.remote()] = (worker, None)

        def assign_jobs() -> None:
            while queue and idle:
                worker, job = idle.pop(), queue.popleft()
                began[job.identity] = time.monotonic()
                awaited[worker.run.remote(job)] = (worker, job)

        for _ in range(min(self._count(ray), len(jobs))):
            add_worker()
        while queue or any(job is not None for _, job in awaited.values()):
            sent = self._next(ray, awaited)
            for late in [] if sent is not None else self._overdue(awaited, began):
                worker, job = awaited.pop(late)
                ray.kill(worker)
                if job is not None:
                    text = f"TimeoutError: the job ran for longer than the limit of {self.limits.timeout:g} s"
                    yield store_failure(store, grid, job, text, text)
                add_worker()
            if sent is None:
                continue
            worker, job = awaited.pop(sent)
            try:
                packed: JobFiles | None = ray.get(sent)
            except ray.exceptions.RayTaskError:
                raise
            except ray.exceptions.RayError as error:  # the worker is lost, or the node that had its result
                if "creation task" in str(error):
                    raise StandfastError(f"ray: a worker could not start: {error}") from error
                ray.kill(worker)
                if job is not None:
                    losses[job.identity] += 1
                    if losses[job.identity] < self.limits.tries(_LIVES):
                        queue.appendleft(job)
                    else:
                        text = f"WorkerDied: {losses[job.identity]} Ray workers were lost during this job"
                        yield store_failure(store, grid, job, text, f"{text}\n{error}")
                assign_jobs()
                add_worker()
                continue
            idle.append(worker)
            assign_jobs()
            if job is not None and packed is not None:
                yield store_result(store, job, packed)

    def _next(self, ray: Any, awaited: dict[Any, tuple[Any, Job | None]]) -> Any:
        """The first of the awaited results; None now and then if jobs have a time limit.

        Warns if no worker can start because the cluster is full.
        """
        silence = time.monotonic()
        while True:
            seconds = _SECONDS_OF_SILENCE if self.limits.timeout is None else _SECONDS_BETWEEN_LOOKS
            done, _ = ray.wait(list(awaited), num_returns=1, timeout=seconds)
            if done:
                return done[0]
            if any(job is not None for _, job in awaited.values()) and self.limits.timeout is not None:
                return None
            if time.monotonic() - silence < _SECONDS_OF_SILENCE:
                continue
            silence = time.monotonic()
            if all(job is None for _, job in awaited.values()):
                there = {name: there for name, there in ray.cluster_resources().items() if name in ("CPU", "GPU")}
                wanted = f"{self.cpus_per_worker:g} CPUs and {self.gpus_per_worker:g} GPUs"
                _log.warning("ray: no worker has started yet; each wants %s, the cluster has %s", wanted, there)

    def _overdue(self, awaited: dict[Any, tuple[Any, Job | None]], began: dict[str, float]) -> list[Any]:
        """What is awaited of jobs that have taken too long."""
        earliest = time.monotonic() - (self.limits.timeout or 0.0)
        return [sent for sent, (_, job) in awaited.items() if job is not None and began[job.identity] < earliest]

    def _count(self, ray: Any) -> int:
        if isinstance(self.workers, int):
            return self.workers
        there = ray.cluster_resources()
        by_cpu = there.get("CPU", 1.0) / self.cpus_per_worker
        by_gpu = there.get("GPU", 0.0) / self.gpus_per_worker if self.gpus_per_worker else by_cpu
        return max(1, int(min(by_cpu, by_gpu)))


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


def _import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("the executor ray", "ray") from error
    return ray
