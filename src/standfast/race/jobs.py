"""How the jobs of a race and of its confirmation are done."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from standfast.study.executors import Executor
from standfast.study.forecast.limited import TimeLimit
from standfast.study.jobs import Job
from standfast.study.plan import Plan
from standfast.study.progress import Progress
from standfast.study.run import run_grid
from standfast.study.store import Store


@dataclass(frozen=True)
class Means:
    """How jobs are done.

    Attributes:
        executor: does them.
        limit: of the time; None for as long as it takes.
        progress: as of `run_grid`.
    """

    executor: Executor
    limit: TimeLimit | None = None
    progress: Callable[[Progress], None] | None = None

    def find_seconds(self, kept: float = 0.0) -> float:
        """The seconds that are left, but for a share of the limit that is kept; infinite without a limit."""
        if self.limit is None:
            return math.inf
        return max(self.limit.left - kept * 60 * self.limit.minutes, 0.0)


def do_jobs(plan: Plan, jobs: Sequence[Job], store: Store, means: Means, kept: float = 0.0) -> bool:
    """Do some jobs of a plan, and write a manifest that has these alone.

    Returns:
        Whether the time was enough.
    """
    manifest = {**plan.manifest, "jobs": [job.identity for job in jobs]}
    summary = run_grid(
        plan.grid,
        store,
        plan=replace(plan, jobs=list(jobs), manifest=manifest),
        executor=means.executor,
        progress=means.progress,
        seconds=means.find_seconds(kept),
    )
    return not summary.stopped
