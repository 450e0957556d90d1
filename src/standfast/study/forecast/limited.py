"""Run a grid in a limited time: estimate, choose, say what was chosen, and evaluate until the time is up."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from standfast.question.grid import Grid
from standfast.study.executors import Executor
from standfast.study.forecast.choice import Choice, choose, explain_nothing
from standfast.study.forecast.costs import ENOUGH, Costs, Pair, forecast_job
from standfast.study.forecast.estimate import Estimate
from standfast.study.forecast.first_jobs import (
    LONG,
    ForecastJob,
    find_first_jobs,
    is_rough,
    learn,
    sort_jobs,
)
from standfast.study.forecast.left_out import KEY, MEASURED, NOT_BEGUN, describe_left_out
from standfast.study.forecast.trials import estimate_plan, try_unknown
from standfast.study.jobs import Job
from standfast.study.plan import Plan, make_plan
from standfast.study.progress import Progress
from standfast.study.run import GridOrigin, RunSummary, run_grid
from standfast.study.store import Store

#: how long the costs are measured at most, and which share of the time
MOST_SECONDS = 10.0
_MOST_SHARE = 1 / 6
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


#: is told what was chosen: the grid as it would be without a limit, what it costs, and the choice; or in words why
#: nothing is added when all of the last one is done
TellChoice = Callable[[Grid, Estimate, Choice | str], None]
#: from a choice to where its grid comes from, with the options that were chosen
FindOrigin = Callable[[Choice], GridOrigin]


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
    _plans: dict[str, Plan] = field(default_factory=dict, init=False, repr=False)

    def run(self, plan: Plan) -> RunSummary:
        """Estimate, choose, and evaluate until the time is up or nothing is left.

        Where the estimate is rough, the first jobs are done first, and what remains is chosen anew.
        When all of it is done and time is left, settings are raised, which is new work, or what was left out is added.
        If the time then ends before as many samples are done as before, the results are those of the earlier settings.

        Args:
            plan: of all jobs of the grid.

        Raises:
            ArgumentError: the time is too short for one sample.
        """
        estimate = self._estimate(plan)
        # settings of an earlier run stay, so that what is done counts
        choice = self._choose(estimate, self.store.earlier_manifest().get(KEY))
        assert choice is not None
        summary: RunSummary | None = None
        if is_rough(estimate):
            summary, estimate = self._do_first_jobs(choice, estimate)
            # no time is left for anything else
            if summary is not None and summary.stopped:
                return summary
            measured = 0.0 if summary is None else summary.seconds
            earlier = self.store.earlier_manifest().get(KEY)
            if earlier is not None:
                # the first jobs may show that a pair takes far too long
                choice = self._choose(estimate, {**earlier, MEASURED: measured})
        return self._run_choices(choice, estimate, summary)

    def _run_choices(
        self, choice: Choice | None, estimate: Estimate, summary: RunSummary | None
    ) -> RunSummary:
        """Evaluate a choice, and then what more fits."""
        kept: Mapping[str, Any] = {}
        manifest: Mapping[str, Any] = {}
        while choice is not None:
            self._tell(estimate, choice)
            part = self._run_choice(choice, estimate)
            summary = part if summary is None else _add(summary, part)
            manifest = self.store.manifest()
            # results with higher settings and a few samples say less than those before
            if kept and _is_poorer(manifest[KEY]["samples"], kept[KEY]["samples"]):
                # the earlier manifest names the earlier jobs, which are still there
                self.store.write_manifest(kept)
                return summary
            kept = manifest
            # a rest this short is not worth new work
            if part.stopped or self.limit.left < _WORTH_IT * 60 * self.limit.minutes:
                return summary
            if part.done and not part.earlier:  # else the forecast is of more than was done now
                workers = self.executor.at_once
                estimate = _correct(estimate, part.seconds * workers, choice.seconds * workers)
            choice = self._choose(estimate, manifest[KEY], must_add=True)
        if describe_left_out(manifest[KEY]):
            limit = self.limit
            workers = self.executor.at_once
            why = explain_nothing(
                self.grid, estimate, manifest[KEY], limit.minutes, limit.left, workers
            )
            self._tell(estimate, why)
        assert summary is not None
        return summary

    def _tell(self, estimate: Estimate, choice: Choice | str) -> None:
        if self.tell is not None:
            self.tell(self.grid, estimate, choice)

    def _estimate(self, plan: Plan) -> Estimate:
        """What all jobs cost.

        They are as long as those that will be done: a sample costs more in a job of few, whose batches are smaller.
        """
        plan = plan.with_shorter_jobs(
            self._job_seconds, self.store.earlier_manifest(), self.executor.at_once
        )
        seconds = min(MOST_SECONDS, _MOST_SHARE * self.limit.left)
        # a trial needs some time, also when the limit is nearly over
        estimate = estimate_plan(plan, set(), seconds=max(seconds, 0.1))
        if estimate.unknown:
            estimate = try_unknown(plan, estimate, _PILOTS * self.limit.left)
        return estimate

    def _choose(
        self,
        estimate: Estimate,
        earlier: Mapping[str, Any] | None,
        must_add: bool = False,
    ) -> Choice | None:
        return choose(
            self.grid,
            estimate,
            self.limit.minutes,
            self.limit.left,
            workers=self.executor.at_once,
            earlier=earlier,
            must_add=must_add,
        )

    def _do_first_jobs(
        self, choice: Choice, estimate: Estimate
    ) -> tuple[RunSummary | None, Estimate]:
        """Do the first jobs of a choice, unless an earlier run has, and learn from the time that they take."""
        plan = self._plan(choice, estimate)
        first_jobs = find_first_jobs(plan.jobs, self._is_long(choice, estimate))
        statuses = self.store.statuses()
        summary: RunSummary | None = None
        # what an earlier run has done tells its time without being done again
        if any(job.identity not in statuses for job in first_jobs):
            self._tell(estimate, choice)
            summary = self._run_jobs(choice, plan, first_jobs)
        spent = self._read_seconds(first_jobs)
        return summary, learn(estimate, first_jobs, spent, self._find_forecasts(choice, estimate))

    def _read_seconds(self, jobs: Sequence[Job]) -> dict[str, float]:
        """What jobs that are done took, by their identities."""
        statuses = self.store.statuses()
        seconds: dict[str, float] = {}
        for job in jobs:
            if statuses.get(job.identity) == "done":
                record, _ = self.store.read(job.identity)
                seconds[job.identity] = record["seconds"]
        return seconds

    def _run_choice(self, choice: Choice, estimate: Estimate) -> RunSummary:
        """Evaluate a choice until the time is up."""
        plan = self._plan(choice, estimate)
        return self._run_jobs(choice, plan, plan.jobs)

    def _run_jobs(self, choice: Choice, plan: Plan, jobs: Sequence[Job]) -> RunSummary:
        """Do jobs of a plan until the time is up, and note how many samples of all jobs of the plan are done."""
        manifest = {
            # the manifest lists what is run now; `run_grid` shortens it again if the time ends
            **plan.manifest,
            KEY: choice.describe(self.grid),
            "jobs": [job.identity for job in jobs],
        }
        summary = run_grid(
            plan.grid,
            self.store,
            plan=replace(plan, jobs=list(jobs), manifest=manifest),
            executor=self.executor,
            origin=self.find_origin(choice),
            progress=self.progress,
            seconds=max(self.limit.left, 0.0),
        )
        # of all jobs of the plan, not only those that were run now
        counts, pairs = _count_complete(plan, self.store)
        written = self.store.manifest()
        ended = {"samples": counts, NOT_BEGUN: [list(pair) for pair in pairs]}
        self.store.write_manifest({**written, KEY: {**written[KEY], **ended}})
        return summary

    @property
    def _job_seconds(self) -> float:
        """How long a job may take, about."""
        return _JOB * 60 * self.limit.minutes

    def _plan(self, choice: Choice, estimate: Estimate) -> Plan:
        """The jobs of a choice, in the order in which they are done."""
        # all that jobs depend on; pairs that are left out do not change them
        what = repr((choice.settings, choice.controls, choice.checked, choice.extras))
        if what not in self._plans:  # models are asked for each
            self._plans[what] = make_plan(
                choice.apply(self.grid),
                self.find_origin(choice).about,
                self.store.earlier_manifest(),
                self.executor.at_once,
                seconds=self._job_seconds,
            )
        plan = self._plans[what]
        jobs = [job for job in plan.jobs if _pair_of(job) not in choice.left_out]
        in_order = sort_jobs(jobs, choice.unknown, self._is_long(choice, estimate))
        return replace(plan, jobs=in_order)

    def _find_forecasts(self, choice: Choice, estimate: Estimate) -> ForecastJob:
        """What an estimate says of each job of a choice."""
        costs = Costs(self.grid, estimate, self.executor.at_once)
        levels = costs.find_levels(choice.settings)
        return lambda job: forecast_job(costs, job, levels, choice.checked)

    def _is_long(self, choice: Choice, estimate: Estimate) -> Callable[[Job], bool]:
        """Whether a job of a choice takes a large part of the time."""
        forecast = self._find_forecasts(choice, estimate)
        longest = LONG * 60 * self.limit.minutes
        return lambda job: forecast(job) > longest


def _count_complete(plan: Plan, store: Store) -> tuple[dict[str, list[int]], list[Pair]]:
    """How many of the first samples of each data set are done by all metrics, of how many; and what is not begun.

    A metric that has not one result with an explainer does not count, if others have some.
    """
    statuses = store.statuses()
    jobs = [job for job in plan.jobs if not _checks_sanity(plan.grid, job)]
    begun = {_pair_of(job) for job in jobs if job.identity in statuses}
    not_begun: dict[Pair, None] = {}
    firsts = {name: len(samples) for name, samples in plan.grid.data.items()}
    for job in jobs:
        if begun and _pair_of(job) not in begun:
            not_begun[_pair_of(job)] = None
        elif job.identity not in statuses:
            firsts[job.data] = min(firsts[job.data], job.start)
    counts = {name: [first, len(plan.grid.data[name])] for name, first in firsts.items()}
    return counts, list(not_begun)


def _pair_of(job: Job) -> Pair:
    return job.label, job.explainer


def _checks_sanity(grid: Grid, job: Job) -> bool:
    return grid.sanity is not None and job.label == grid.sanity.name


def _is_poorer(counts: Mapping[str, Sequence[int]], before: Mapping[str, Sequence[int]]) -> bool:
    """Whether too few samples are done to replace earlier results, which have lower settings."""
    return any(first < min(before[name][0], ENOUGH) for name, (first, _) in counts.items())


def _correct(estimate: Estimate, spent: float, forecast: float) -> Estimate:
    """The estimate, scaled to what a part of it took."""
    # nothing was foretold, as of metrics with a random cost
    factor = spent / forecast if forecast > 0 else 1.0
    lines = [
        replace(line, seconds=factor * line.seconds, start=factor * line.start)
        for line in estimate.lines
    ]
    return Estimate(tuple(lines))


def _add(first: RunSummary, second: RunSummary) -> RunSummary:
    """Two runs as one."""
    # what failed first and then worked is no failure of the run
    tried_again = {job.identity for job in second.failed}
    return RunSummary(
        second.planned,
        second.earlier,
        first.done + second.done,
        [*(job for job in first.failed if job.identity not in tried_again), *second.failed],
        first.seconds + second.seconds,
        second.stopped,
    )
