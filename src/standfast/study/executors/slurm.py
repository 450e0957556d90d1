"""The executor on a Slurm cluster, with submitit: an array of tasks, which divide the jobs among them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standfast.errors import ArgumentError, check, check_integer
from standfast.question.grid import Grid
from standfast.study.executors.base import (
    UNLIMITED,
    Executor,
    JobOutcome,
    Limits,
    Outcomes,
    Tell,
    import_package,
    pickle_modules_of,
    store_failure,
)
from standfast.study.executors.processes import InProcess, Processes
from standfast.study.jobs import Job
from standfast.study.store import Store

_SECONDS_BETWEEN_CHECKS = 2.0
#: how many tasks are expected when jobs are planned, where their number follows from that of the jobs
_USUAL = 16
#: what the process that watches the jobs of a task takes itself
_BESIDE_GB = 1.0


class Slurm(Executor):
    """Tasks of a Slurm job array; each does every n-th job. All tasks write into the store, which they must reach.

    A task that is preempted or out of time is put into the queue again, and then continues with the jobs that the store
    does not have. If this process is stopped, the tasks are cancelled. A task with jobs of explainers with code that is
    not ours does them in a process beside it, which is replaced before another explainer's job.

    Args:
        tasks: of the array, or `"auto"` for one for each eight jobs, at most 64.
        folder: for submitit's files and logs, on a file system that all machines share.
        cluster: submitit's: `"slurm"`, or `"local"` for tasks on this computer.
        options: for submitit's executor, such as `timeout_min`, `slurm_partition`, `cpus_per_task`, `gpus_per_node`,
            `mem_gb`, `slurm_array_parallelism`.
        limits: what one job may take; each task then does its jobs in a process beside it, which it watches. Slurm is
            asked for the memory, unless `options` say how much. (`timeout_min` is the time of a task, which does many
            jobs.)
    """

    name = "slurm"
    isolates = True

    def __init__(
        self,
        tasks: int | str = "auto",
        folder: str | Path = "slurm",
        cluster: str = "slurm",
        options: Mapping[str, Any] | None = None,
        limits: Limits = UNLIMITED,
    ) -> None:
        check_integer(tasks, "tasks", also=("auto",))
        check(cluster in ("slurm", "local"), "cluster", "slurm or local", repr(cluster))
        self.tasks, self.folder, self.cluster = tasks, Path(folder), cluster
        if limits.memory_gb is None:
            memory = {}
        else:
            memory = {"mem_gb": limits.memory_gb + _BESIDE_GB}
        self.options = {**memory, **(options or {})}
        self.limits = limits

    @property
    def at_once(self) -> int:
        if isinstance(self.tasks, int):
            return self.tasks
        return _USUAL

    def run(
        self, grid: Grid, store: Store, jobs: Sequence[Job], tell: Tell | None = None
    ) -> Outcomes:
        """Submit the tasks, and yield their outcomes as they appear in the store."""
        submitit = import_package("submitit", "slurm")
        # files in memory are seen by one process only
        if store.folder.address.startswith("memory://"):
            raise ArgumentError("out", "a place that all machines reach", store.folder.address)
        if isinstance(self.tasks, int):
            most_tasks = self.tasks
        else:
            most_tasks = max(1, min(64, len(jobs) // 8))
        tasks = min(len(jobs), most_tasks)
        executor = submitit.AutoExecutor(folder=self.folder, cluster=self.cluster)
        try:
            executor.update_parameters(name="standfast", **self.options)
        except (NameError, TypeError, ValueError) as error:
            raise ArgumentError(
                "slurm", "options that submitit knows", str(error).split("\n")[0]
            ) from error
        # every n-th job: jobs that follow each other cost about the same, so all tasks take about the same time
        parts = [
            SlurmTask(grid, store, tuple(jobs[number::tasks]), self.limits)
            for number in range(tasks)
        ]
        with pickle_modules_of(grid, import_package("cloudpickle", "slurm")):
            submitted = executor.map_array(SlurmTask.__call__, parts)
        try:
            yield from self._collect(submitted, parts)
        except BaseException:
            # also after Ctrl-C: nobody would collect what the tasks store
            for task in submitted:
                task.cancel()
            raise

    def _collect(self, submitted: Sequence[Any], parts: Sequence[SlurmTask]) -> Outcomes:
        grid = parts[0].grid
        store = parts[0].store
        jobs_left = {job.identity: job for part in parts for job in part.jobs}
        ended = False
        while jobs_left and not ended:
            # before the store is read, so that nothing that ends in between is missed
            ended = all(task.done() for task in submitted)
            for identity, status in store.statuses().items():
                if identity in jobs_left:
                    yield JobOutcome(jobs_left.pop(identity), status == "failed")
            if jobs_left and not ended:
                seconds = _SECONDS_BETWEEN_CHECKS if self.cluster == "slurm" else 0.1
                time.sleep(seconds)
        for task, part in zip(submitted, parts, strict=True):
            error = task.exception()
            # a task that has ended without storing a job will not store it any more
            for job in part.jobs:
                if job.identity in jobs_left:
                    why = type(error).__name__ if error else "no result"
                    text = f"TaskDied: {why} in Slurm task {task.job_id}"
                    yield store_failure(
                        store, grid, job, text, f"{error}\nlogs: {task.paths.stderr}"
                    )


@dataclass
class SlurmTask:
    """One task of the array: does those of its jobs that the store does not have."""

    grid: Grid
    store: Store
    jobs: tuple[Job, ...]
    limits: Limits = UNLIMITED

    def __call__(self) -> int:
        """Do the jobs, and return how many there were to do."""
        statuses = self.store.statuses()
        jobs_left = [job for job in self.jobs if statuses.get(job.identity) != "done"]
        executor: Executor = InProcess()
        if self.limits != UNLIMITED or self.grid.isolated:
            executor = Processes(1, limits=self.limits)
            # functions of a notebook or a script can be pickled by value only
            executor.dumps = import_package("cloudpickle", "slurm").dumps
        return sum(1 for _ in executor.run(self.grid, self.store, jobs_left))

    def checkpoint(self, *_: Any) -> Any:
        """What submitit puts into the queue when the task is preempted: the same task; the store says what is left."""
        return import_package("submitit", "slurm").helpers.DelayedSubmission(self)
