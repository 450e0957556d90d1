"""A question as a race: its terms, its plan, the time that it has, and what becomes of it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from standfast.errors import ArgumentError, check, check_number
from standfast.metrics.sanity import make_checks
from standfast.question.grid import Freedom, Grid
from standfast.question.question import Question
from standfast.race.confirming import confirm, open_confirmation
from standfast.race.jobs import Means
from standfast.race.running import RunningRace, Terms, make_race
from standfast.race.scope import TRIALS, RaceCosts, TimeFrame, choose_scope
from standfast.race.split import Split, count_needed, take_part
from standfast.report import Results
from standfast.results.races import LIMIT, RACE, SETTINGS, Race
from standfast.results.sanity import FEWEST
from standfast.statistics.elimination import count_first, make_ladder
from standfast.study.cache import run_kept
from standfast.study.forecast.choice import Choice
from standfast.study.forecast.costs import Costs, list_settings
from standfast.study.forecast.left_out import describe_left_out
from standfast.study.forecast.limited import MOST_SECONDS, TimeLimit
from standfast.study.forecast.trials import estimate_plan
from standfast.study.plan import Plan, make_plan
from standfast.study.run import RunSummary
from standfast.study.store import Store
from standfast.value_spec import ValueSpec

#: options of metrics that a limited time has chosen, by label
Settings = Mapping[str, Mapping[str, Any]]
_AS_ASKED: Settings = {}


@dataclass(frozen=True)
class RaceOptions:
    """What `choose` is asked beyond the question.

    Attributes:
        by: the label or the name of the metric that ranks; None for the first of faithfulness, or else of stability.
        budget: the largest share of the cost of evaluating everything, beyond the first look.
        level: the largest probability that the best leaves as unstable or as worse than another one.
        minutes: the limit; None for as long as it takes.

    Raises:
        ArgumentError: an option is none of these.
    """

    by: str | None = None
    budget: float = 0.25
    level: float = 0.05
    minutes: float | None = None

    def __post_init__(self) -> None:
        check(
            self.by is None or isinstance(self.by, str),
            "by",
            "the label or the name of a metric",
            repr(self.by),
        )
        is_share = (
            isinstance(self.budget, int | float)
            and not isinstance(self.budget, bool)
            and 0 < self.budget <= 1
        )
        check(
            is_share,
            "budget",
            "a share of the cost of evaluating everything, above 0 and at most 1",
            repr(self.budget),
        )
        check_number(self.level, "level", above=0, below=1)


@dataclass(frozen=True)
class Scope:
    """What a race has.

    Attributes:
        split: its samples.
        settings: that the time allows.
        left_out: for the time, in a few words for each part.
    """

    split: Split
    settings: Settings = field(default_factory=dict)
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True)
class Held:
    """A race that was held.

    Attributes:
        race: how it went.
        results: of the samples of the race.
        confirmation: of the leader on the others, and of the runner-up if the leader fails; None if nobody was left.
    """

    race: Race
    results: Results
    confirmation: Results | None


@dataclass(frozen=True)
class Contest:
    """A question that explainers race for.

    Attributes:
        question: with one data set and one model.
        options: of the race.
        about: facts for the manifest.
        means: how jobs are done.
        folder: for the results; None for the cache folder.
        tell: is told what a limited time has left out.
        call: how `choose` was called (`standfast.question.calls.record_call`); empty for a study.
    """

    question: Question
    options: RaceOptions
    means: Means
    about: Mapping[str, Any]
    folder: str | Path | None = None
    tell: Callable[[str], None] | None = None
    call: Mapping[str, Any] = field(default_factory=dict)

    def hold(self) -> Held:
        """Race, and confirm the leader.

        Raises:
            ArgumentError: fewer than two explainers; no metric to race by; too few samples; too little time for them.
            ModelError: the model fails.
        """
        names = self._check_entrants()
        grid = self.question.make_grid()
        opening = _Opening(self, _strip(grid), names, grid.controls)
        split = opening.split()
        plan = opening.make_plan(split)
        # what cannot be raced by is said before anything is measured
        opening.find_terms(plan, split)
        if self.folder is not None:
            return opening.run(plan, Store(self.folder))
        races: list[Held] = []

        def run(plan: Plan, store: Store) -> RunSummary:
            races.append(opening.run(plan, store))
            race = races[-1].race
            return RunSummary(len(plan.jobs), 0, 0, [], race.seconds, race.out_of_time)

        _, _, delete = run_kept(plan, run)
        if delete is not None:
            weakref.finalize(races[0].results, delete)
        return races[0]

    def _check_entrants(self) -> tuple[str, ...]:
        """The names of the explainers.

        Raises:
            ArgumentError: fewer than two; several models or data sets.
        """
        inputs = self.question.inputs
        names = [
            name for name, explainer in self.question.explainers.items() if not explainer.control
        ]
        check(
            len(names) >= 2,
            "explainers",
            "at least two to choose from, none of which is a control",
            len(names),
        )
        check(len(inputs.samples) == 1, "data", "one data set to choose on", len(inputs.samples))
        check(len(inputs.models) == 1, "model", "one model to choose for", len(inputs.models))
        return tuple(names)


def _strip(grid: Grid) -> Grid:
    """The grid without controls, which come with the confirmation, and with nothing to choose but settings."""
    explainers = {
        name: explainer
        for name, explainer in grid.explainers.items()
        if name not in grid.controls and not explainer.control
    }
    return replace(
        grid, explainers=explainers, controls=(), free=Freedom(ladders=grid.free.ladders), repeats=1
    )


def apply_settings(grid: Grid, settings: Settings) -> Grid:
    """The grid with options of metrics that were chosen, by label."""
    metrics = dict(grid.metrics)
    for label, options in settings.items():
        metrics[label] = replace(metrics[label], **options)
    sanity = grid.sanity
    if sanity is not None:
        sanity = make_checks(sanity.samples, metrics)  # type: ignore[attr-defined]
    return replace(grid, metrics=metrics, sanity=sanity)


@dataclass(frozen=True)
class _Opening:
    """A contest whose grid is known.

    Attributes:
        contest: what is asked.
        grid: of all samples, without controls.
        names: of the explainers.
        controls: the names of those of the confirmation.
    """

    contest: Contest
    grid: Grid
    names: tuple[str, ...]
    controls: Sequence[str]

    def split(self, used: int | None = None) -> Split:
        """The samples of race and confirmation, of all or of so many."""
        ((_, samples),) = self.grid.data.items()
        available = len(samples) if used is None else used
        first = self._find_first(available)
        return Split.draw(len(samples), self.grid.seed, first, used)

    def _find_first(self, count: int) -> int:
        """The samples of the first look: enough for a decision, whatever the number of looks will be."""
        for_race = count - count // 3
        first = FEWEST
        for looks in range(1, for_race + 2):
            first = max(FEWEST, count_first(len(self.names), looks, self.contest.options.level / 2))
            if for_race < first or len(make_ladder(first, for_race)) <= looks:
                break
        return first

    def make_plan(self, split: Split, settings: Settings = _AS_ASKED) -> Plan:
        """All jobs of the race, cut so that each look ends with one."""
        first = self._find_first(split.count)
        grid = apply_settings(take_part(self.grid, split.race), settings)
        folder = self.contest.folder
        if folder is not None:
            earlier = Store(folder).earlier_manifest()
        else:
            earlier = {}
        workers = self.contest.means.executor.at_once
        plan = make_plan(replace(grid, samples_per_job=first), self.contest.about, earlier, workers)
        chosen = {label: dict(options) for label, options in settings.items()}
        return replace(plan, manifest={**plan.manifest, SETTINGS: chosen})

    def run(self, plan: Plan, store: Store) -> Held:
        """Race on the samples that the time allows, and confirm the leader."""
        limit = self.contest.means.limit
        if limit is None:
            scope = Scope(self.split())
        else:
            scope = self._limit(limit, store)
        if limit is not None:
            plan = self.make_plan(scope.split, scope.settings)
            had = {
                "minutes": max(limit.minutes, _read_limit(store).minutes),
                "samples": scope.split.count,
            }
            plan = replace(plan, manifest={**plan.manifest, LIMIT: had})
        running = RunningRace(
            plan, store, self.find_terms(plan, scope.split), scope.split, self.contest.means
        )
        running.keep_time()
        entrants, results = running.run()
        finalists = [
            entrant.name for entrant in entrants if entrant.left is None and entrant.samples
        ]
        rest = open_confirmation(store)
        confirmed = confirm(
            finalists,
            lambda names: self._plan_confirmation(names, scope, rest),
            rest,
            self.contest.means,
        )
        seconds = _sum_seconds(results)
        is_before_first_look = running.out_of_time and not finalists
        minutes_needed = running.find_minutes(seconds) if is_before_first_look else None
        if confirmed.results is not None:
            seconds += _sum_seconds(confirmed.results)
        race = make_race(
            running,
            entrants,
            confirmed,
            seconds,
            minutes=self.contest.options.minutes,
            minutes_needed=minutes_needed,
            left_out=scope.left_out,
            call=self.contest.call,
        )
        store.write_json(RACE, race.plain())
        return Held(race, results, confirmed.results)

    def _plan_confirmation(self, names: Sequence[str], scope: Scope, store: Store) -> Plan:
        """All jobs of some explainers and their controls on the samples that are kept.

        Args:
            names: of the explainers.
            scope: what the race has.
            store: of the confirmation.
        """
        explainers = {name: self.contest.question.explainers[name] for name in names}
        question = replace(self.contest.question, explainers=explainers, extras={})
        grid = apply_settings(
            take_part(question.make_grid(), scope.split.confirmation), scope.settings
        )
        earlier = store.earlier_manifest()
        return make_plan(grid, self.contest.about, earlier, self.contest.means.executor.at_once)

    def _limit(self, limit: TimeLimit, store: Store) -> Scope:
        """What the time allows.

        The settings and the samples of an earlier race in the same place stay, so that all that is done counts, and
        a second call goes on where the first has ended. A longer time may add samples.

        Raises:
            ArgumentError: the time is too short for the fewest samples of a race.
        """
        settings = store.earlier_manifest().get(SETTINGS)
        had = _read_limit(store)
        if settings is not None and had.minutes >= limit.minutes:
            return self._tell(self._use(had.samples), settings, {})
        plan = self.make_plan(self.split(), settings or _AS_ASKED)
        if settings is None:
            grid: Grid = plan.grid
        else:
            grid = replace(plan.grid, free=Freedom())
        try:
            choice, count = self._choose(plan, grid, limit)
            split = self._use(max(count, had.samples))
        except ArgumentError:
            # a longer time does not refuse what a shorter one has begun, however slow the machine is now
            if settings is None or not had.samples:
                raise
            return self._tell(self._use(had.samples), settings, {})
        if settings is None:
            settings = choice.settings
        return self._tell(split, settings, choice.describe(grid))

    def _use(self, used: int) -> Split:
        """The split of so many samples; of all where there are no more."""
        whole = self.split()
        if used >= whole.count:
            return whole
        return self.split(used)

    def _tell(self, split: Split, settings: Settings, described: Mapping[str, Any]) -> Scope:
        """The scope of a race, after what it leaves out was said.

        Args:
            split: its samples.
            settings: that the time allows.
            described: what the manifest would say of the choice.
        """
        ((name, _),) = self.grid.data.items()
        counts = [len(split.race), len(self.split().race)]
        left_out = tuple(describe_left_out({**described, "samples": {name: counts}}))
        if self.contest.tell is not None and left_out:
            self.contest.tell("; ".join(left_out))
        return Scope(split, settings, left_out)

    def _choose(self, plan: Plan, grid: Grid, limit: TimeLimit) -> tuple[Choice, int]:
        """The settings that the time allows, and the samples of race and confirmation together."""
        began = limit.left
        estimate = estimate_plan(plan, set(), seconds=max(min(MOST_SECONDS, TRIALS * began), 0.1))
        frame = TimeFrame(limit.minutes, limit.left, began - limit.left)
        whole = self.split()
        terms = self.find_terms(plan, whole)
        costs = RaceCosts.of(
            Costs(grid, estimate, self.contest.means.executor.at_once),
            [terms.label, *terms.stability],
            terms.budget,
            len(self.controls),
            self._find_first,
        )
        levels, count = choose_scope(costs, frame, self._count_fewest(), whole.count)
        choice = Choice(
            limit.minutes,
            list_settings(costs.costs, levels),
            seconds=costs.sum_seconds(levels, count),
            unknown=tuple(estimate.unknown),
        )
        return choice, count

    def _count_fewest(self) -> int:
        """The fewest samples of which there is a race, and a confirmation."""
        count = count_needed(FEWEST)
        while count_needed(self._find_first(count)) > count:
            count += 1
        return count

    def find_terms(self, plan: Plan, split: Split) -> Terms:
        """By what the explainers race.

        Raises:
            ArgumentError: no metric ranks explainers, or there is none of the name that was given.
        """
        specs: dict[str, ValueSpec] = {}
        for label, metric in plan.manifest["metrics"].items():
            specs[label] = ValueSpec.from_stored(metric["values"])
        stability = [
            label for label, spec in specs.items() if spec.asks == "stability" and spec.direction
        ]
        options = self.contest.options
        return Terms(
            _find_label(options.by, specs, plan.grid),
            tuple(stability),
            options.level,
            make_ladder(self._find_first(split.count), len(split.race)),
            options.budget,
        )


@dataclass(frozen=True)
class _HadLimit:
    """What an earlier race in the same place had: the minutes, and the samples; 0 where there was none."""

    minutes: float = 0.0
    samples: int = 0


def _read_limit(store: Store) -> _HadLimit:
    """The limit of an earlier race in this place."""
    return _HadLimit(**store.earlier_manifest().get(LIMIT, {}))


def _sum_seconds(results: Results) -> float:
    """What the jobs took."""
    return float(results.jobs["seconds"].sum() or 0.0)


def _find_label(by: str | None, specs: Mapping[str, ValueSpec], grid: Grid) -> str:
    """The label of the metric that ranks: the one that was asked for, or the first of faithfulness, or of stability."""
    ranking = {}
    for label, spec in specs.items():
        if spec.direction is not None:
            ranking[label] = spec
    if by is not None:
        named = []
        for label in ranking:
            if by in (label, grid.metrics[label].name):
                named.append(label)
        labels = ", ".join(ranking) or "none"
        check(
            len(named) > 0, "by", f"the label of a metric that ranks explainers: {labels}", repr(by)
        )
        return named[0]
    for asks in ("faithfulness", "stability", "other"):
        for label, spec in ranking.items():
            if spec.asks == asks:
                return label
    got = f"none that ranks: {', '.join(specs)}"
    raise ArgumentError(
        "metrics", "a question to race by: a metric of which one value is better than another", got
    )
