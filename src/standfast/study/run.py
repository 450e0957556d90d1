"""Run the jobs of a grid that the store does not have yet, with any executor; failed jobs do not stop the run."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from standfast.errors import check, warn_user
from standfast.metrics import Metric, get
from standfast.metrics.base import Preset
from standfast.metrics.base import metrics as registry
from standfast.neighbourhoods import Neighbourhood
from standfast.neighbourhoods.naming import join_label, label_neighbourhoods
from standfast.registry import build
from standfast.study.executors import Executor, InProcess
from standfast.study.executors.base import Tell
from standfast.study.file.imports import importing_from
from standfast.study.folders import LocalFolder
from standfast.study.grid import Grid
from standfast.study.lease import hold_lease
from standfast.study.plan import Job, Plan, make_plan
from standfast.study.provenance import environment
from standfast.study.store import Store

logger = logging.getLogger(__name__)

#: called before the first job with the plan, the jobs that are left, and the store
Announce = Callable[[Plan, Sequence[Job], Store], None]
#: the share of the work after which the time left is said; before it, the start of the workers is most of the time
_ENOUGH = 0.05
#: with this many jobs or more, results are also written into few files, which open faster
_COMPACT_FROM = 50


#: a metric and an explainer
_Kind = tuple[str, str]


@dataclass(frozen=True)
class Progress:
    """The state of a run.

    Attributes:
        done, total: the number of jobs of this run.
        share: the part of the expected work that is done, 0 to 1.
        current: what was done last.
        failed: the number of jobs that failed.
        earlier: the number of jobs that the store had before.
        left: about how many seconds are left; None while too little is known.
    """

    done: int
    total: int
    share: float
    current: str
    failed: int = 0
    earlier: int = 0
    left: float | None = None


class Pace:
    """How many seconds the work of each metric and explainer takes, and so how many are left.

    The expected work counts forward passes, and metrics differ tenfold in what they do beside them. One rate for all
    would mislead for as long as the first metrics are slower or faster than those to come. The share that a running job
    tells can be far too small: a probability expects as many forward passes as it may need, and is often done after a
    hundredth of them. So the pace of a metric is that of explainers with a finished job, where there are any.

    Args:
        jobs: those to be done.
        clock: gives seconds.
    """

    def __init__(self, jobs: Iterable[Job], clock: Callable[[], float] = time.monotonic) -> None:
        self.clock, self.last, self.ended = clock, clock(), 0.0
        self.total, self.done, self.seconds = (defaultdict[_Kind, float](float) for _ in range(3))
        self.running: dict[Job, float] = {}  # the work done for each that has told of itself
        self.finished: set[_Kind] = set()
        for job in jobs:
            self.total[_kind(job)] += job.work

    def record(self, job: Job, share: float) -> None:
        """Note that a share of a job is done; the time since the last note is that of all jobs that were running."""
        now, busy = self.clock(), list(self.running) or [job]
        for each in busy:
            self.seconds[_kind(each)] += (now - self.last) / len(busy)
        self.last = now
        self.done[_kind(job)] += share * job.work - self.running.get(job, 0.0)
        self.running[job] = share * job.work
        if share >= 1:
            self.ended += self.running.pop(job)
            self.finished.add(_kind(job))

    @property
    def share(self) -> float:
        """The share of all work that is done."""
        total = sum(self.total.values())
        return (self.ended + sum(self.running.values())) / total if total else 0.0

    def estimate_left(self) -> float | None:
        """The seconds left, at this pace; None unless most of them are for metrics that have begun."""
        known = unknown = 0.0
        spent, done = sum(self.seconds.values()), sum(self.done.values())
        for kind, total in self.total.items():
            same = [other for other in self.done if other[0] == kind[0] and self.done[other] > 0]
            same = [other for other in same if other in self.finished] or same
            own = [kind] if kind in same else same
            rest = max(total - self.done[kind], 0.0)
            if own:
                known += rest * sum(self.seconds[each] for each in own) / sum(self.done[each] for each in own)
            elif done:
                unknown += rest * spent / done
        return known + unknown if self.share >= _ENOUGH and known >= unknown else None


def _kind(job: Job) -> _Kind:
    return job.label, job.explainer


@dataclass(frozen=True)
class RunSummary:
    """What a run did: the number of all jobs, of those done before and done now, the failed jobs, and the seconds."""

    planned: int
    earlier: int
    done: int
    failed: list[Job]
    seconds: float


def run_grid(
    grid: Grid,
    store: Store,
    *,
    plan: Plan | None = None,
    executor: Executor | None = None,
    about: Mapping[str, Any] | None = None,
    study: Mapping[str, Any] | None = None,
    progress: Callable[[Progress], None] | None = None,
    folder: Path | None = None,
    origin: str | None = None,
    announce: Announce | None = None,
) -> RunSummary:
    """Evaluate a grid, and store each job when it ends.

    Jobs that the store has are not done again. If a job fails, its traceback is stored and the other jobs continue; the
    next run tries it again.

    Args:
        grid: what to evaluate.
        store: for the results; it may have some already.
        plan: of the grid, if it is made already, with what it says about it.
        executor: does the jobs; None for this process.
        about: the title and other facts, for the manifest.
        study: the study as plain values, for the manifest.
        progress: called before the first job, after each job, and now and then during a job.
        folder: the manifest records its git revision; by default, the current folder.
        origin: the path of the study file, for the manifest.
        announce: called before the first job.

    Raises:
        ArgumentError: the store is at the place of a file.
        RunningError: another run works in the same folder.
    """
    where = store.folder
    fits = not isinstance(where, LocalFolder) or not where.path.is_file()
    check(fits, "out", "a folder", f"the file {where.address}")
    # user code may import what lies beside the study file, now and in its jobs
    with contextlib.ExitStack() as stack:
        stack.enter_context(importing_from(grid.paths))
        plan, executor = plan or make_plan(grid, about, store.earlier_manifest()), executor or InProcess()
        stack.enter_context(hold_lease(where))
        store.sweep()
        _write_manifest(plan, store, {"study": dict(study or {}), "origin": origin, "environment": environment(folder)})
        statuses = _find_sound(plan, store)
        pending = [job for job in plan.jobs if statuses.get(job.identity) != "done"]
        earlier = len(plan.jobs) - len(pending)
        if announce and pending:
            announce(plan, pending, store)
        began = time.monotonic()
        text = "%d jobs, of which %d were done before; results are stored in %s"
        logger.info(text, len(plan.jobs), earlier, where.address)
        try:
            done, failed = _do_jobs(plan.grid, store, executor, pending, earlier, progress)
        finally:
            store.end()
            retried = [job.identity for job in pending if statuses.get(job.identity) == "failed"]
            after = store.statuses() if retried else {}
            store.forget_failures(job for job in retried if after.get(job) == "done")
        if len(plan.jobs) >= _COMPACT_FROM and pending:
            store.compact([job.identity for job in plan.jobs])
        seconds = time.monotonic() - began
        logger.info("%d jobs done, %d failed, in %.1f s", done, len(failed), seconds)
        return RunSummary(len(plan.jobs), earlier, done, failed, seconds)


def _write_manifest(plan: Plan, store: Store, about: Mapping[str, Any]) -> None:
    """Write the manifest, with what changed since earlier runs into the same store.

    If the one that is there is damaged or of another version, this raises an error, and nothing is overwritten.
    """
    before = store.earlier_manifest()
    here, environments = about["environment"], list[Any]()
    for entry in (*before.get("earlier_environments", []), before.get("environment")):
        if entry and entry != here and entry not in environments:
            environments.append(entry)
    changes = _code_changes(before, plan.manifest["code"])
    store.write_manifest({**plan.manifest, **about, "earlier_environments": environments, "code_changes": changes})


def _find_sound(plan: Plan, store: Store) -> dict[str, str]:
    """The statuses of the stored jobs, without those that are damaged, which are not done any more."""
    statuses = store.statuses()
    damaged = store.find_damage(job.identity for job in plan.jobs if statuses.get(job.identity) == "done")
    if damaged:
        many = len(damaged) > 1
        found = f"{len(damaged)} stored jobs are damaged and are" if many else "a stored job is damaged and is"
        warn_user(f"{found} done again{'; the first' * many}: {next(iter(damaged.values()))}")
    for job in damaged:
        store.forget(job)
        del statuses[job]
    return statuses


def _do_jobs(
    grid: Grid,
    store: Store,
    executor: Executor,
    pending: Sequence[Job],
    earlier: int,
    progress: Callable[[Progress], None] | None,
) -> tuple[int, list[Job]]:
    """Have jobs done, and say how many were, and which have failed."""
    pace, number, failed = Pace(pending), 0, list[Job]()

    def tell(job: Job, share: float) -> None:
        """Show that this share of a job is done."""
        pace.record(job, share)
        if progress:
            last = number == len(pending)
            whole, left = (1.0, None) if last else (pace.share, pace.estimate_left())
            progress(Progress(number, len(pending), whole, f"{job.label}: {job.explainer}", len(failed), earlier, left))

    if progress:
        progress(Progress(0, len(pending), 0.0, "starting", 0, earlier))
    with contextlib.closing(_outcomes(executor, grid, store, pending, tell)) as outcomes:
        for outcome in outcomes:
            job, number = outcome.job, number + 1
            if outcome.failed:
                failed.append(job)
            word, level = ("failed", logging.WARNING) if outcome.failed else ("done", logging.DEBUG)
            place = (job.explainer, job.label, job.model, job.data, job.start, job.stop - 1)
            text = "job %d of %d %s: %s by %s, %s on %s, samples %d to %d"
            logger.log(level, text, number, len(pending), word, *place)
            tell(job, 1.0)
    return number - len(failed), failed


def _outcomes(executor: Executor, grid: Grid, store: Store, pending: Sequence[Job], tell: Tell) -> Any:
    """What the executor yields, as a generator, which can be closed."""
    if pending:
        yield from executor.run(grid, store, pending, tell)


def _code_changes(before: Mapping[str, Any], code: Mapping[str, str]) -> list[Any]:
    """The user's modules and data files that changed from one run to the next, and when that was noticed."""
    earlier, found = before.get("code"), list(before.get("code_changes") or [])
    if earlier is None or earlier == code:
        return found
    changes = {
        "changed": sorted(name for name in code if name in earlier and earlier[name] != code[name]),
        "added": sorted(set(code) - set(earlier)),
        "removed": sorted(set(earlier) - set(code)),
    }
    logger.info(
        "since the last run, the code has changed: %s", {what: names for what, names in changes.items() if names}
    )
    return [*found, {"noticed": datetime.now(UTC).isoformat(timespec="seconds"), **changes}]


def named_metrics(
    metrics: Mapping[str, Metric | str] | Sequence[Metric | str],
    neighbourhood: Neighbourhood | Sequence[Neighbourhood] | None = None,
    preset: Preset = "standard",
) -> dict[str, Metric]:
    """Metrics by label: the given labels, or the metric's own label, with a number if several have the same.

    With several neighbourhoods, a metric that is given by name is there once for each, and its label says which.

    Args:
        metrics: metrics, or their names as `standfast.metrics.get` takes them.
        neighbourhood: for metrics that are given by name and have this option; one or several.
        preset: for metrics that are given by name and do not say which.

    >>> from standfast.neighbourhoods import LinfBall
    >>> list(named_metrics(["worst_case", "max_sensitivity", "max_sensitivity:samples=9"], LinfBall(0.1)))
    ['worst_case: changed_explanation', 'max_sensitivity', 'max_sensitivity 2']
    >>> list(named_metrics(["max_sensitivity", "aopc"], [LinfBall(0.1), LinfBall(0.2)]))
    ['max_sensitivity: linf 0.1', 'max_sensitivity: linf 0.2', 'aopc']
    """
    places = [neighbourhood] if isinstance(neighbourhood, Neighbourhood) else list(neighbourhood or ())
    labels, found = list[str](), list[Metric]()
    labelled = isinstance(metrics, Mapping)
    for label, metric in metrics.items() if isinstance(metrics, Mapping) else ((None, each) for each in metrics):
        if not isinstance(metric, str):
            made = {"": get(metric)}
        elif places and has_neighbourhood(metric):
            made = {
                words: build(registry, metric, defaults={"preset": preset, "neighbourhood": place})
                for words, place in zip(label_neighbourhoods(places), places, strict=True)
            }
        else:
            made = {"": build(registry, metric, defaults={"preset": preset})}
        labels += [join_label(one.own_label if label is None else label, words) for words, one in made.items()]
        found += made.values()
    return dict(zip(labels if labelled else number_labels(labels), found, strict=True))


def has_neighbourhood(metric: str | type[Metric], required: bool = False) -> bool:
    """Whether a metric, or the registered one of a name, has the option `neighbourhood`; or needs it, if `required`.

    >>> has_neighbourhood("worst_case:budget=100"), has_neighbourhood("aopc"), has_neighbourhood("worst_cas")
    (True, False, False)
    """
    if isinstance(metric, str):
        name = metric.partition(":")[0].strip()
        return name in registry and has_neighbourhood(registry[name], required)
    found = [field for field in fields(metric) if field.name == "neighbourhood"] if is_dataclass(metric) else []
    return any(field.default is MISSING or not required for field in found)


def number_labels(labels: Iterable[str]) -> list[str]:
    """The labels, with a number after each that occurred before.

    >>> number_labels(["a", "b", "a"])
    ['a', 'b', 'a 2']
    """
    found: dict[str, None] = {}
    for label in labels:
        numbered = chain([label], (f"{label} {number}" for number in count(2)))
        found[next(name for name in numbered if name not in found)] = None
    return list(found)
