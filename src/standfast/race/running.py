"""The race on a grid: jobs are done look by look, and decisions are made of what the store has.

The jobs are those of an ordinary evaluation of all explainers on the samples of the race, of which it does a part. So a
race that was interrupted goes on where it has ended, and `evaluate` with the same samples finds what is done.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from standfast.question.grid import Grid
from standfast.race.confirming import Confirmed
from standfast.race.jobs import Means, do_jobs
from standfast.race.split import Split
from standfast.report import Results, load_results
from standfast.results.formatting import shorten_error
from standfast.results.metric_summary import estimate, read_samples
from standfast.results.quality import find_bad_p_value, find_references
from standfast.results.races import (
    Entrant,
    Left,
    Measured,
    Race,
)
from standfast.statistics.elimination import Departure, Finish, RaceRules, run_race
from standfast.statistics.paired import bootstrap_interval
from standfast.study.jobs import Job
from standfast.study.plan import Plan
from standfast.study.store import Store
from standfast.tensors import Array
from standfast.value_spec import ValueSpec

#: the largest share of a time limit that is kept for the confirmation
_MOST_KEPT = 0.5


@dataclass(frozen=True)
class Terms:
    """What a race goes by.

    Attributes:
        label: of the metric that ranks.
        stability: the labels of the metrics by which an explainer leaves if it is shown to be unstable.
        level: the largest probability that the best leaves as unstable or as worse.
        ladder: the numbers of samples at which it looks.
        budget: the largest share of the cost of evaluating everything.
    """

    label: str
    stability: tuple[str, ...]
    level: float
    ladder: tuple[int, ...]
    budget: float


@dataclass(eq=False)
class RunningRace:
    """A race on the first part of the samples.

    Attributes:
        plan: of all jobs on the samples of the race.
        store: for their results.
        terms: what it goes by.
        split: which samples it has.
        means: how jobs are done.
        kept: the share of the time that is kept for the confirmation, from the second look on.
    """

    plan: Plan
    store: Store
    terms: Terms
    split: Split
    means: Means
    kept: float = 0.0
    _asked: dict[str, None] = field(default_factory=dict)
    _left: dict[str, Entrant] = field(default_factory=dict)
    _out_of_time: bool = False
    _looks: int = 0

    @property
    def grid(self) -> Grid:
        """What is raced on."""
        return self.plan.grid

    @property
    def names(self) -> list[str]:
        """Of the explainers that race."""
        return [name for name in self.grid.explainers if name not in self.grid.controls]

    @property
    def place(self) -> tuple[str, str]:
        """The names of the data and of the model."""
        return self.grid.combinations()[0]

    def keep_time(self) -> None:
        """Keep a part of the time for the confirmation: its part of all work, at most half.

        The first look may use all of the time, since without a leader there is nothing to confirm.
        """
        confirmation = self._foresee_confirmation_work()
        race = max(self._foresee_first_look(), self._foresee_race())
        self.kept = min(confirmation / max(confirmation + race, 1.0), _MOST_KEPT)

    def _foresee_confirmation_work(self) -> float:
        """What the confirmation takes at most: the leader, its twin with scrambled weights, and its checks."""
        work = find_work(self.plan)
        checks = max((work.of_checks(name) for name in self.names), default=0.0)
        return 2 * foresee_confirmation(self) + checks

    def _foresee_first_look(self) -> float:
        """What the checks and the first look take, if nobody leaves by the checks."""
        return _sum_checks(self) + self.terms.ladder[0] * sum(self._list_costs())

    def _foresee_race(self) -> float:
        """What the checks and the race take, if all of the budget is used."""
        allowed = self.terms.budget * sum_everything(self) - foresee_confirmation(self)
        return _sum_checks(self) + allowed

    def find_minutes(self, spent: float) -> float | None:
        """About how many minutes suffice for the first look and the confirmation; None without a limit, or if unknown.

        Args:
            spent: seconds that the jobs took so far.
        """
        limit = self.means.limit
        done = sum(job.work for job in self.list_done())
        if limit is None or done <= 0:
            return None
        work = self._foresee_first_look() + self._foresee_confirmation_work()
        jobs_seconds = spent * work / done / self.means.executor.at_once
        waited = max(60 * limit.minutes - limit.left - spent / self.means.executor.at_once, 0.0)
        return math.ceil((jobs_seconds + waited) / 6) / 10

    def run(self) -> tuple[list[Entrant], Results]:
        """Race until one is left, the budget is spent, all samples are used or the time is up.

        Returns:
            The entrants, those at the end first and the best of them at the beginning; and what was measured.
        """
        finish = run_race(self._make_rules(), self._measure)
        results = self._load()
        return self._list_entrants(finish, results), results

    def _make_rules(self) -> RaceRules:
        """The confirmation is taken off the budget; the checks are not, as an evaluation would have them all, too."""
        terms = self.terms
        spec = self._spec_of(terms.label)
        return RaceRules(
            terms.ladder,
            len(self.names),
            "lower" if spec.direction == "lower" else "higher",
            self._level_of_ranking,
            tuple(self._list_costs()),
            terms.budget * sum_everything(self) - foresee_confirmation(self),
            spec.censored_side,
        )

    def _list_costs(self) -> list[float]:
        """What one sample of each explainer takes by the metrics by which it may leave."""
        work = find_work(self.plan)
        raced = dict.fromkeys([self.terms.label, *self.terms.stability])
        return [sum(work.per_sample(label, name) for label in raced) for name in self.names]

    @property
    def _level_of_ranking(self) -> float:
        """Half of the error is for the looks at stability, if there are any."""
        if self._can_judge_stability:
            return self.terms.level / 2
        return self.terms.level

    @property
    def _can_judge_stability(self) -> bool:
        """The checks measure what unrelated maps would get."""
        return bool(self.terms.stability) and self.grid.sanity is not None

    @property
    def _error_of_stability(self) -> float:
        """Of one explainer by one metric at one look."""
        claims = len(self.names) * len(self.terms.stability) * len(self.terms.ladder)
        return self.terms.level / 2 / claims

    def _spec_of(self, label: str) -> ValueSpec:
        return ValueSpec.from_stored(self.plan.manifest["metrics"][label]["values"])

    def _measure(self, columns: Sequence[int], count: int) -> tuple[Array, Array] | None:
        """Checks first, then stability, then the metric that ranks; None where the time is up."""
        alive = [self.names[column] for column in columns]
        sanity = self.grid.sanity
        if sanity is not None and not self._looks:
            if not self._do([sanity.name], alive, count):
                return None
            self._leave_by_failure(self._load(), alive, 0)
            self._leave_by_checks(self._keep(alive))
        if self._can_judge_stability:
            if not self._do(self.terms.stability, self._keep(alive), count):
                return None
            self._leave_by_stability(self._keep(alive), count)
        if not self._do([self.terms.label], self._keep(alive), count):
            return None
        self._looks += 1
        results = self._load()
        self._leave_by_failure(results, self._keep(alive), count)
        return self._read_values(results, alive, count)

    def _keep(self, names: Sequence[str]) -> list[str]:
        return [name for name in names if name not in self._left]

    def _do(self, labels: Sequence[str], names: Sequence[str], count: int) -> bool:
        """Do the jobs of some metrics and explainers on the first samples; whether the time was enough."""
        jobs = [
            job
            for job in self.plan.jobs
            if job.label in labels and job.explainer in names and job.start < count
        ]
        self._asked.update(dict.fromkeys(job.identity for job in jobs))
        asked_jobs = [job for job in self.plan.jobs if job.identity in self._asked]
        kept = self.kept if self._looks else 0.0
        ended = do_jobs(self.plan, asked_jobs, self.store, self.means, kept)
        self._out_of_time = self._out_of_time or not ended
        return ended

    def _load(self) -> Results:
        return load_results(self.store, jobs=list(self._asked))

    def _leave_by_checks(self, names: Sequence[str]) -> None:
        """Those leave that fail a check; and those on which they are undecided, if any other passes.

        What the checks do not pass may not be shown, so it must not push out what may.
        """
        results = self._load()
        checks = {name: results.sanity[(*self.place, name)] for name in names}
        some_pass = any(sanity.state == "passed" for sanity in checks.values())
        for name, sanity in checks.items():
            reason = sanity.reason
            if reason is None or (sanity.state == "undecided" and not some_pass):
                continue
            left: Left = "check" if sanity.state == "failed" else "open check"
            self._left[name] = Entrant(name, left, 0, question=reason.question)

    def _leave_by_stability(self, names: Sequence[str], count: int) -> None:
        """Those leave that are shown to be nearer to maps of other inputs than to the same map."""
        results = self._load()
        for label in self.terms.stability:
            view = results.metric_results(*self.place, label)
            for name in self._keep(names):
                checks = results.sanity_rows
                if len(checks):
                    checks = checks.filter(checks["explainer"] == name)
                references = find_references(view.spec, label, checks)
                rows = view.spec.select_valid(_first(view.rows_for(name), count))
                if references is None or not len(rows):
                    continue
                _, values, bounds = read_samples(view.spec, rows)
                if (
                    find_bad_p_value(view.spec, values, bounds, references)
                    <= self._error_of_stability
                ):
                    value = Measured.of(estimate(view.spec, rows))
                    self._left[name] = Entrant(name, "unstable", count, label, value=value)

    def _leave_by_failure(self, results: Results, names: Sequence[str], count: int) -> None:
        errors = {
            str(failure["explainer"]): str(failure["error"])
            for failure in reversed(results.failures)
        }
        for name in names:
            if name in errors:
                self._left[name] = Entrant(name, "failed", count, error=shorten_error(errors[name]))

    def _read_values(
        self, results: Results, names: Sequence[str], count: int
    ) -> tuple[Array, Array]:
        """The values `(count, names)` by the metric that ranks, and which are bounds; NaN of those that have left."""
        view = results.metric_results(*self.place, self.terms.label)
        values = np.full((count, len(names)), np.nan)
        bounds = np.zeros(values.shape, dtype=bool)
        for column, name in enumerate(names):
            rows = view.spec.select_valid(_first(view.rows_for(name), count))
            if name in self._left or not len(rows):
                continue
            samples, own_values, own_bounds = read_samples(view.spec, rows)
            values[samples, column] = own_values
            bounds[samples, column] = own_bounds
        return values, bounds

    def _list_entrants(self, finish: Finish, results: Results) -> list[Entrant]:
        seconds = dict.fromkeys(self.names, 0.0)
        for explainer, spent in results.jobs.select("explainer", "seconds").iter_rows():
            seconds[explainer] = seconds.get(explainer, 0.0) + (spent or 0.0)
        # some have left at a last look for which the time or the budget did not suffice, so that it decided no more
        turned_away = [
            self._left[self.names[column]]
            for column in finish.order
            if self.names[column] in self._left
        ]
        ended = [
            self._describe_finalist(column, finish, results)
            for column in finish.order
            if self.names[column] not in self._left
        ]
        if ended and turned_away:
            ended[0] = replace(ended[0], behind=None)
        left = [
            self._describe_departure(departure, results)
            for departure in reversed(finish.departures)
        ]
        return [
            replace(entrant, seconds=seconds[entrant.name])
            for entrant in (*ended, *turned_away, *left)
        ]

    def _describe_finalist(self, column: int, finish: Finish, results: Results) -> Entrant:
        name = self.names[column]
        gap = finish.gaps.get(column)
        behind = None
        if gap is not None:
            behind = Measured.of(gap.difference)
        return Entrant(
            name,
            None,
            finish.samples,
            value=self._estimate(name, finish.samples, results),
            behind=behind,
        )

    def _describe_departure(self, departure: Departure, results: Results) -> Entrant:
        name = self.names[departure.column]
        if name in self._left:
            return self._left[name]
        behind = None
        if departure.gap is not None:
            behind = Measured.of(departure.gap.difference)
        value = self._estimate(name, departure.samples, results)
        return Entrant(
            name, departure.why, departure.samples, self.terms.label, value=value, behind=behind
        )

    def _estimate(self, name: str, count: int, results: Results) -> Measured | None:
        """The median by the metric that ranks, over the first samples."""
        view = results.metric_results(*self.place, self.terms.label)
        rows = view.spec.select_valid(_first(view.rows_for(name), count))
        if not len(rows):
            return None
        _, values, bounds = read_samples(view.spec, rows)
        return Measured.of(
            bootstrap_interval(values, censored=bounds, censored_side=view.spec.censored_side)
        )

    @property
    def out_of_time(self) -> bool:
        """Whether the time was up."""
        return self._out_of_time

    def list_done(self) -> list[Job]:
        """The jobs that were asked for and are done."""
        statuses = self.store.statuses()
        return [
            job
            for job in self.plan.jobs
            if job.identity in self._asked and job.identity in statuses
        ]


def _first(rows: Any, count: int) -> Any:
    """The rows of the first samples."""
    if len(rows):
        return rows.filter(rows["sample"] < count)
    return rows


@dataclass(frozen=True)
class PlannedWork:
    """What the jobs of a plan take, in forward passes of one row, by label and explainer.

    Attributes:
        work, samples: of all jobs together.
        checks: the label of the sanity checks; empty without checks.
    """

    work: Mapping[tuple[str, str], float]
    samples: Mapping[tuple[str, str], int]
    checks: str

    def per_sample(self, label: str, name: str) -> float:
        """Of one sample; 0 where the metric does not evaluate the explainer."""
        return self.work.get((label, name), 0.0) / max(self.samples.get((label, name), 0), 1)

    def of_checks(self, name: str) -> float:
        """Of all sanity checks of an explainer."""
        return self.work.get((self.checks, name), 0.0)


def find_work(plan: Plan) -> PlannedWork:
    """What the jobs of a plan take."""
    work: dict[tuple[str, str], float] = {}
    samples: dict[tuple[str, str], int] = {}
    for job in plan.jobs:
        kind = job.label, job.explainer
        work[kind] = work.get(kind, 0.0) + job.work
        samples[kind] = samples.get(kind, 0) + job.stop - job.start
    sanity = plan.grid.sanity
    name_of_checks = ""
    if sanity is not None:
        name_of_checks = sanity.name
    return PlannedWork(work, samples, name_of_checks)


def make_race(
    running: RunningRace,
    entrants: Sequence[Entrant],
    confirmed: Confirmed,
    seconds: float,
    **further: Any,
) -> Race:
    """The race as it is stored.

    Args:
        running: the race, which is over.
        entrants: in their order.
        confirmed: what became of the confirmation.
        seconds: that all jobs took.
        further: `minutes`, `minutes_needed` and `left_out`.
    """
    terms = running.terms
    split = running.split
    data, model = running.place
    spec = running._spec_of(terms.label)
    done = sum(job.work for job in running.list_done()) + sum(job.work for job in confirmed.jobs)
    return Race(
        data=data,
        model=model,
        label=terms.label,
        direction=spec.direction,
        decimals=spec.decimals,
        level=terms.level,
        ladder=terms.ladder,
        entrants=tuple(entrants),
        samples=len(split.race) + len(split.confirmation),
        rows=split.race,
        confirmation_rows=split.confirmation,
        cost=done / (sum_everything(running) + _sum_checks(running)),
        budget=terms.budget,
        seconds=seconds,
        out_of_time=running.out_of_time,
        confirmation=confirmed.confirmation,
        second=confirmed.second,
        **further,
    )


def sum_everything(running: RunningRace) -> float:
    """What all explainers take on all samples by all metrics, without checks and controls."""
    samples = len(running.split.race) + len(running.split.confirmation)
    return samples * sum(_sum_metrics(running))


def foresee_confirmation(running: RunningRace) -> float:
    """What one of the explainers takes at most on the samples that are kept, without checks and controls."""
    return len(running.split.confirmation) * max(_sum_metrics(running))


def _sum_metrics(running: RunningRace) -> list[float]:
    """What each explainer takes for one sample by all metrics."""
    work = find_work(running.plan)
    return [
        sum(work.per_sample(label, name) for label in running.grid.metrics)
        for name in running.names
    ]


def _sum_checks(running: RunningRace) -> float:
    """What the checks of all explainers take."""
    work = find_work(running.plan)
    return sum(work.of_checks(name) for name in running.names)
