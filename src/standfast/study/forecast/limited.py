"""Run a grid in a limited time: estimate, choose, say what was chosen, and evaluate until the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from standfast.question.grid import Grid
from standfast.study.executors import Executor
from standfast.study.forecast.choice import ENOUGH, Choice, choose
from standfast.study.forecast.estimate import Estimate
from standfast.study.forecast.left_out import KEY
from standfast.study.forecast.trials import estimate_plan, try_unknown
from standfast.study.plan import Job, Plan, make_plan
from standfast.study.progress import Progress
from standfast.study.run import Origin, RunSummary, run_grid
from standfast.study.store import Store

#: how long the costs are measured at most, and which share of the time
MOST_SECONDS, _MOST_SHARE = 10.0, 1 / 6
#: the share of the time for pilots of metrics whose cost is random
_PILOTS = 1 / 8
#: a job takes about this share of the time at most, as what is not done in time is lost
_JOB = 1 / 30
#: settings are raised again while so much of the time is left
_WORTH_IT = 0.1


@dataclass(frozen=True)
class TimeLimit:
    """How long a run may take.

    Attributes:
        minutes: from the call on.
        began: when that was, by `time.monotonic`.
    """

    minutes: float
    began: float

    @property
    def left(self) -> float:
        """Seconds that are left; 0 or less when the time is up."""
        return 60 * self.minutes - (time.monotonic() - self.began)


#: is told what was chosen: the grid as it would be without a limit, what it costs, and the choice
TellChoice = Callable[[Grid, Estimate, Choice], None]
#: from a choice to where its grid comes from, with the options that were chosen
FindOrigin = Callable[[Choice], Origin]


@dataclass(frozen=True)
class LimitedRun:
    """Evaluates what fits into the time.

    Attributes:
        grid: as it would be without a limit.
        store: for the results. What it has already counts.
        limit: the time.
        executor: does the jobs.
        find_origin: says where the grid of a choice comes from.
        tell: is told each choice, before it is run.
        progress: as of `run_grid`.
    """

    grid: Grid
    store: Store
    limit: TimeLimit
    executor: Executor
    find_origin: FindOrigin
    tell: TellChoice | None = None
    progress: Callable[[Progress], None] | None = None

    def run(self, plan: Plan) -> RunSummary:
        """Estimate, choose, and evaluate until the time is up or nothing is left.

        When all samples are done and time is left, settings are raised, which is new work. If the time then ends before
        as many samples are done as before, the results are those of the earlier settings.

        Args:
            plan: of all jobs of the grid.

        Raises:
            ArgumentError: the time is too short for one sample.
        """
        estimate = self._estimate(plan)
        choice = self._choose(estimate, self.store.earlier_manifest().get(KEY))
        assert choice is not None
        summary: RunSummary | None = None
        kept: Mapping[str, Any] = {}
        while choice is not None:
            if self.tell is not None:
                self.tell(self.grid, estimate, choice)
            part, counts = self._run_choice(choice)
            summary = part if summary is None else _add(summary, part)
            manifest = self.store.manifest()
            if kept and _is_poorer(counts, kept[KEY]["samples"]):
                self.store.write_manifest(kept)
                return summary
            kept = manifest
            if part.stopped or self.limit.left < _WORTH_IT * 60 * self.limit.minutes:
                return summary
            if part.done:
                workers = self.executor.at_once
                estimate = _correct(estimate, part.seconds * workers, choice.seconds * workers)
            choice = self._choose(estimate, manifest[KEY], must_rise=True)
        assert summary is not None
        return summary

    def _estimate(self, plan: Plan) -> Estimate:
        """What all jobs cost."""
        seconds = min(MOST_SECONDS, _MOST_SHARE * self.limit.left)
        estimate = estimate_plan(plan, set(), seconds=max(seconds, 0.1))
        if estimate.unknown:
            estimate = try_unknown(plan, estimate, _PILOTS * self.limit.left)
        return estimate

    def _choose(self, estimate: Estimate, earlier: Mapping[str, Any] | None, must_rise: bool = False) -> Choice | None:
        return choose(
            self.grid,
            estimate,
            self.limit.minutes,
            self.limit.left,
            workers=self.executor.at_once,
            earlier=earlier,
            must_rise=must_rise,
        )

    def _run_choice(self, choice: Choice) -> tuple[RunSummary, dict[str, list[int]]]:
        """Evaluate a choice until the time is up; and how many samples of each data set are done with all metrics."""
        origin = self.find_origin(choice)
        plan = make_plan(
            choice.apply(self.grid),
            origin.about,
            self.store.earlier_manifest(),
            self.executor.at_once,
            seconds=_JOB * 60 * self.limit.minutes,
        )
        # a metric of which nobody knows what it costs must not take the time of the others
        jobs = sorted(plan.jobs, key=lambda job: (job.repeat, job.start, job.label in choice.unknown))
        manifest = {**plan.manifest, KEY: choice.describe(self.grid), "jobs": [job.identity for job in jobs]}
        plan = replace(plan, jobs=jobs, manifest=manifest)
        summary = run_grid(
            plan.grid,
            self.store,
            plan=plan,
            executor=self.executor,
            origin=origin,
            progress=self.progress,
            seconds=max(self.limit.left, 0.0),
        )
        counts = _count_complete(plan, self.store)
        written = self.store.manifest()
        self.store.write_manifest({**written, KEY: {**written[KEY], "samples": counts}})
        return summary, counts


def _count_complete(plan: Plan, store: Store) -> dict[str, list[int]]:
    """How many of the first samples of each data set are done by all metrics, and how many it has."""
    statuses = store.statuses()
    firsts: dict[str, int] = {name: len(samples) for name, samples in plan.grid.data.items()}
    for job in plan.jobs:
        is_open = job.identity not in statuses
        if is_open and not _checks_sanity(plan.grid, job):
            firsts[job.data] = min(firsts[job.data], job.start)
    return {name: [first, len(plan.grid.data[name])] for name, first in firsts.items()}


def _checks_sanity(grid: Grid, job: Job) -> bool:
    return grid.sanity is not None and job.label == grid.sanity.name


def _is_poorer(counts: Mapping[str, list[int]], before: Mapping[str, list[int]]) -> bool:
    """Whether too few samples are done to replace earlier results, which have lower settings."""
    return any(first < min(before[name][0], ENOUGH) for name, (first, _) in counts.items())


def _correct(estimate: Estimate, spent: float, forecast: float) -> Estimate:
    """The estimate, scaled to what a part of it took."""
    factor = spent / forecast if forecast > 0 else 1.0
    lines = [replace(line, seconds=factor * line.seconds, start=factor * line.start) for line in estimate.lines]
    return Estimate(tuple(lines))


def _add(first: RunSummary, second: RunSummary) -> RunSummary:
    """Two runs as one."""
    return RunSummary(
        second.planned,
        second.earlier,
        first.done + second.done,
        [*first.failed, *second.failed],
        first.seconds + second.seconds,
        second.stopped,
    )
