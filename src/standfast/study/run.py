"""Run the jobs of a grid that the store does not have yet, with any executor; failed jobs do not stop the run."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from standfast.errors import check, warn_user
from standfast.question.grid import Grid
from standfast.study.deadline import run_within
from standfast.study.executors import Executor, InProcess, JobOutcome
from standfast.study.folders import LocalFolder
from standfast.study.import_paths import importing_from
from standfast.study.jobs import Job
from standfast.study.lease import hold_lease
from standfast.study.plan import Plan, make_plan
from standfast.study.progress import EtaEstimator, Progress
from standfast.study.provenance import environment
from standfast.study.store import Store

logger = logging.getLogger(__name__)

#: with this many jobs or more, results are also written into few files, which open faster
_COMPACT_FROM = 50


@dataclass(frozen=True)
class RunSummary:
    """What a run did: the number of all jobs, of those done before and done now, the failed jobs, and the seconds.

    `stopped` says whether it had to end before all jobs were done.
    """

    planned: int
    earlier: int
    done: int
    failed: list[Job]
    seconds: float
    stopped: bool = False


@dataclass(frozen=True)
class GridOrigin:
    """Where a grid comes from, for the manifest.

    Attributes:
        about: the title and other facts.
        study: the study as plain values.
        file: the path of the study file.
        folder: the manifest records its git revision; None for the current folder.
        call: how `evaluate` was called, as plain values; empty for a study.
    """

    about: Mapping[str, Any] = field(default_factory=dict)
    study: Mapping[str, Any] = field(default_factory=dict)
    file: str | None = None
    folder: Path | None = None
    call: Mapping[str, Any] = field(default_factory=dict)


def run_grid(
    grid: Grid,
    store: Store,
    *,
    plan: Plan | None = None,
    executor: Executor | None = None,
    origin: GridOrigin | None = None,
    progress: Callable[[Progress], None] | None = None,
    seconds: float = math.inf,
) -> RunSummary:
    """Evaluate a grid, and store each job when it ends.

    Jobs that the store has are not done again. If a job fails, its traceback is stored and the other jobs continue; the
    next run tries it again.

    Args:
        grid: what to evaluate.
        store: for the results; it may have some already.
        plan: of the grid, if it is made already, with the facts about it.
        executor: does the jobs; None for this process.
        origin: where the grid comes from.
        progress: called before the first job, when a job begins and when it is done, and now and then during a job.
        seconds: how long jobs may run. Then those that run are given up, and the manifest has only those that are done.

    Raises:
        ArgumentError: the store is at the place of a file.
        RunningError: another run works in the same folder.
    """
    where, origin = store.folder, origin or GridOrigin()
    fits = not isinstance(where, LocalFolder) or not where.path.is_file()
    check(fits, "out", "a folder", f"the file {where.address}")
    # user code may import what lies beside the study file, now and in its jobs
    with contextlib.ExitStack() as stack:
        stack.enter_context(importing_from(grid.paths))
        executor = executor or InProcess()
        plan = plan or make_plan(grid, origin.about, store.earlier_manifest(), executor.at_once)
        # before anything is read that another run could change
        stack.enter_context(hold_lease(where))
        store.sweep()
        # after the lease, so that no other run stores a job in between
        pending = _find_pending(plan, store)
        # with a time limit the order is that of their worth, and stays
        if math.isinf(seconds):
            pending = _put_isolated_last(pending, plan.grid)
        isolated = _record_isolation(plan, executor, pending, store.earlier_manifest())
        about_machine = environment(origin.folder)
        if isolated:
            about_machine["isolated"] = isolated
        about_run = {
            "study": dict(origin.study),
            "origin": origin.file,
            "environment": about_machine,
        }
        if origin.call:
            about_run["call"] = dict(origin.call)
        # before the first job, so that results can be opened while they grow
        store.write_manifest({**plan.manifest, **about_run})
        earlier = len(plan.jobs) - len(pending)
        began = time.monotonic()
        text = "%d jobs, of which %d were done before; results are stored in %s"
        logger.info(text, len(plan.jobs), earlier, where.address)
        tally = _Tally(pending, earlier, progress, ends=began + seconds)
        ended = run_within(seconds, lambda: _do_jobs(plan.grid, store, executor, tally))
        if not ended:
            # only what has ended, or the results would look incomplete
            store.write_manifest({**plan.manifest, **about_run, "jobs": _list_known(plan, store)})
        if len(plan.jobs) >= _COMPACT_FROM and pending:
            store.compact([job.identity for job in plan.jobs])
        spent = time.monotonic() - began
        logger.info("%d jobs done, %d failed, in %.1f s", tally.done, len(tally.failed), spent)
        return RunSummary(len(plan.jobs), earlier, tally.done, tally.failed, spent, not ended)


def _list_known(plan: Plan, store: Store) -> list[str]:
    """The jobs that have ended, in the order of the plan."""
    statuses = store.statuses()
    return [job.identity for job in plan.jobs if job.identity in statuses]


def _find_pending(plan: Plan, store: Store) -> list[Job]:
    """The jobs that are to be done. What the store has of those that failed or are damaged is removed."""
    statuses = store.statuses()
    # only those that count as done: the others are done again anyway
    damaged = store.find_damage(
        job.identity for job in plan.jobs if statuses.get(job.identity) == "done"
    )
    if damaged:
        many = len(damaged) > 1
        warning = "a stored job is damaged and is"
        if many:
            warning = f"{len(damaged)} stored jobs are damaged and are"
        others = "; the first" if many else ""
        first_problem = next(iter(damaged.values()))
        warn_user(f"{warning} done again{others}: {first_problem}")
    pending = [
        job for job in plan.jobs if statuses.get(job.identity) != "done" or job.identity in damaged
    ]
    for job in pending:
        if job.identity in statuses:
            store.forget(job.identity)
    return pending


def _put_isolated_last(jobs: Sequence[Job], grid: Grid) -> list[Job]:
    """The jobs of each isolated explainer together, after all others.

    So few workers have to be replaced, and where one process does all jobs, bundled explainers have come first.
    """
    turns = {name: number for number, name in enumerate(grid.isolated)}
    return sorted(jobs, key=lambda job: turns.get(job.explainer, -1))


def _record_isolation(
    plan: Plan, executor: Executor, pending: Sequence[Job], earlier: Mapping[str, Any]
) -> dict[str, bool]:
    """For each isolated explainer whether all its jobs, now and in earlier runs, have workers of its own."""
    environment_then = earlier.get("environment")
    if isinstance(environment_then, Mapping):
        recorded = environment_then.get("isolated")
    else:
        recorded = None
    earlier_runs = recorded if isinstance(recorded, Mapping) else {}
    waiting = Counter(job.explainer for job in pending)
    planned = Counter(job.explainer for job in plan.jobs)
    isolated: dict[str, bool] = {}
    for name in plan.grid.isolated:
        runs: list[bool] = []
        if waiting[name] < planned[name]:  # of jobs that an older version has done nothing is known
            runs.append(earlier_runs.get(name) is True)
        if waiting[name]:
            runs.append(executor.isolates)
        isolated[name] = all(runs)
    shared = [name for name, has_own in isolated.items() if not has_own]
    if shared:
        text = "explainers %s share a process with others, and could harm them; see docs/reliability.md"
        logger.info(text, ", ".join(shared))
    return isolated


class _Tally:
    """Counts the jobs of a run, and tells how far it is.

    Attributes:
        pending: the jobs that are to be done.
        ended: the number of jobs that have ended.
        failed: those of them that failed.
    """

    def __init__(
        self,
        pending: Sequence[Job],
        earlier: int,
        progress: Callable[[Progress], None] | None,
        ends: float = math.inf,
    ) -> None:
        self.pending = pending
        self.ended = 0
        self.failed: list[Job] = []
        self._earlier = earlier
        self._progress = progress
        self._ends = ends
        self._eta = EtaEstimator(pending)

    @property
    def done(self) -> int:
        """The number of jobs that have ended well."""
        return self.ended - len(self.failed)

    def begin(self) -> None:
        """Show that the run begins."""
        if self._progress:
            count = len(self.pending)
            self._progress(Progress(0, count, 0.0, "starting", 0, self._earlier, ends=self._ends))

    def tell(self, job: Job, share: float) -> None:
        """Show that this share of a job is done."""
        self._eta.record(job, share)
        if not self._progress:
            return
        is_last = self.ended == len(self.pending)
        progress = Progress(
            done=self.ended,
            total=len(self.pending),
            share=1.0 if is_last else self._eta.share,
            current=f"{job.label}: {job.explainer}",
            failed=len(self.failed),
            earlier=self._earlier,
            left=None if is_last else self._eta.estimate_left(),
            ends=self._ends,
        )
        self._progress(progress)

    def end(self, outcome: JobOutcome) -> None:
        """Note and show that a job has ended."""
        job = outcome.job
        self.ended += 1
        if outcome.failed:
            self.failed.append(job)
        if outcome.failed:
            word, level = "failed", logging.WARNING
        else:
            word, level = "done", logging.DEBUG
        coordinates = (job.explainer, job.label, job.model, job.data, job.start, job.stop - 1)
        text = "job %d of %d %s: %s by %s, %s on %s, samples %d to %d"
        logger.log(level, text, self.ended, len(self.pending), word, *coordinates)
        self.tell(job, 1.0)


def _do_jobs(grid: Grid, store: Store, executor: Executor, tally: _Tally) -> None:
    """Have the jobs of a tally done."""
    tally.begin()
    if not tally.pending:
        return
    # closed also after an error, which ends the workers
    with contextlib.closing(executor.run(grid, store, tally.pending, tally.tell)) as outcomes:
        for outcome in outcomes:
            tally.end(outcome)
