"""Estimate what a study costs before it runs: evaluations, time and memory of each metric and explainer.

Each metric is tried on the samples of its first job, for about a second: as it is, and if it does not end in that time
also as its pilot (`Metric.pilot`), a cheaper configuration. What the trials took is scaled to all jobs.
"""

from __future__ import annotations

import contextlib
import copy
import logging
import math
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from standfast.errors import StandfastError, check
from standfast.metrics import Metric
from standfast.model import Model
from standfast.study.grid import Grid
from standfast.study.plan import Job, Plan, expected_work, inputs_for, job_seed
from standfast.study.store import Store

logger = logging.getLogger(__name__)

#: the first run of a metric loads and compiles things; a trial that takes less than so many seconds is repeated
_FIRST = 2.0
#: a pilot that is expected to take so many times as long as a trial may is not begun: it would not come to its end
_HOPELESS = 50
#: a run that is expected to take more seconds than this is announced
_LONG = 120.0
#: metrics do up to a hundred times as much as forward passes alone, so a run with so many seconds of them may be long
_SHORT = 1.0
#: trials before a run take this share of it, and so many seconds at least and at most
_SHARE, _LEAST, _MOST = 0.03, 0.3, 15.0
#: seconds of the first trial of a metric and explainer, and how many times longer each further one is
_TRIAL, _LONGER = 0.25, 4
#: forward passes are timed with more and more rows, until a batch takes so many seconds
_BATCH_SECONDS, _ROWS = 0.02, 256
#: data, model, explainer and label
_Key = tuple[str, str, str, str]


@dataclass(frozen=True)
class Line:
    """One row of the estimate: what a configured metric costs for one explainer.

    Attributes:
        data, model, explainer, label: which.
        jobs, done: the number of planned jobs, and how many of them the store has.
        evaluations: about how many inputs the jobs that are left predict and explain.
        seconds: about how long one worker needs for them; NaN if the trial failed.
        memory: the largest number of bytes that a worker has in use: of the GPU, or of its process with everything that
            it has loaded. A lower bound where the trial was stopped before its end: later parts of the metric may need
            more. NaN where it cannot be measured, and if nothing is left to do.
        error: why the trial failed, as its job will; empty where it did not.
    """

    data: str
    model: str
    explainer: str
    label: str
    jobs: int
    done: int
    evaluations: int
    seconds: float
    memory: float = math.nan
    error: str = ""


@dataclass(frozen=True, repr=False)
class Estimate:
    """What a grid costs, with a `Line` for every data set, model, explainer and metric.

    All numbers are for one worker like this process; several workers divide the time.
    """

    lines: tuple[Line, ...]

    def __repr__(self) -> str:
        time = "an unknown time" if math.isnan(self.seconds) else f"about {self.seconds:.3g} s with one worker"
        memory = "" if math.isnan(self.memory) else f", {self.memory / 1e9:.2g} GB"
        failed = "".join(f"; {text}" for text in self.describe_failures())
        return f"Estimate({self.evaluations:,} evaluations, {time}{memory}; frame() has a row for each metric{failed})"

    def describe_failures(self) -> list[str]:
        """Why trials failed, a text for each error; empty if none did."""
        broken: dict[str, list[str]] = {}
        for line in self.lines:
            if line.error:
                broken.setdefault(line.error, []).append(f"{line.label} with {line.explainer}")
        more = {error: f", and {len(who) - 1} more" if len(who) > 1 else "" for error, who in broken.items()}
        begin = "trials failed, and their jobs will"
        return [f"{begin}: {who[0]}{more[error]}: {error}" for error, who in broken.items()]

    @property
    def evaluations(self) -> int:
        """Of all lines together."""
        return sum(line.evaluations for line in self.lines)

    @property
    def seconds(self) -> float:
        """Of all lines whose trial did not fail; NaN if all failed."""
        known = [line.seconds for line in self.lines if not math.isnan(line.seconds)]
        return math.fsum(known) if known else math.nan

    @property
    def memory(self) -> float:
        """The largest of all lines, in bytes; NaN if it is not known."""
        return max((line.memory for line in self.lines if not math.isnan(line.memory)), default=math.nan)

    def frame(self) -> pl.DataFrame:
        """A row for each line."""
        return pl.DataFrame([vars(line) for line in self.lines])


def estimate_plan(
    plan: Plan, done: set[str], progress: Callable[[str], None] | None = None, seconds: float = 1.0
) -> Estimate:
    """What the jobs of a plan cost that are not done, in the plan's order.

    Args:
        plan: of the grid.
        done: identities of the jobs that are done already.
        progress: called with a text that says what is tried.
        seconds: how long a trial of a metric and explainer may take, about; that of its pilot may take twice as long,
            and a trial that ends soon is repeated. With infinity, metrics are evaluated to their end.

    Raises:
        ArgumentError: `seconds` is no number above 0.
    """
    fits = type(seconds) in (int, float) and seconds > 0
    check(fits, "seconds", "a number above 0", repr(seconds))
    everything = Counter(map(_key_of, plan.jobs))
    lines = {key: Line(*key, jobs=count, done=count, evaluations=0, seconds=0.0) for key, count in everything.items()}
    for trials, groups in _settings(plan.grid, [job for job in plan.jobs if job.identity not in done]):
        trials.calibrate()
        for key, jobs in groups.items():
            data, model, explainer, label = key
            if progress:
                progress(f"trying {label} with {explainer}, {model} on {data}")
            line, _ = trials.try_jobs(jobs, seconds)
            lines[key] = replace(line, jobs=everything[key], done=everything[key] - len(jobs))
    return Estimate(tuple(lines.values()))


def _settings(grid: Grid, jobs: Sequence[Job]) -> Iterator[tuple[_Trials, dict[_Key, list[Job]]]]:
    """For each data set and model that has jobs: what tries them, and the jobs of each explainer and metric."""
    for pair in grid.combinations():
        groups: dict[_Key, list[Job]] = {}
        for job in jobs:
            if (job.data, job.model) == pair:
                groups.setdefault(_key_of(job), []).append(job)
        if groups:
            yield _Trials(grid, *pair), groups


class _TimeIsUp(BaseException):
    """Ends a trial; no `except Exception` in a metric or in another package may stop it."""


@dataclass(frozen=True)
class _Trial:
    """What a run of a metric took.

    Attributes:
        seconds: from the beginning to the end.
        evaluations: of all samples together.
        start: seconds until the samples themselves were predicted and explained; of a stopped run, its first half.
        started: evaluations until then.
        ended: whether it came to its end.
        memory: the peak, in bytes.
    """

    seconds: float
    evaluations: float
    start: float
    started: int
    ended: bool
    memory: float = math.nan

    def scaled_to(self, evaluations: float) -> float:
        """Seconds for so many evaluations: what the start takes is paid once."""
        rate = (self.seconds - self.start) / max(self.evaluations - self.started, 1)
        return self.start + rate * max(evaluations - self.started, 0)


class _Trials:
    """Runs metrics on a model of a grid and a data set, each for a limited time."""

    def __init__(self, grid: Grid, data: str, model: str) -> None:
        self.grid, self.samples = grid, grid.data[data]
        loaded = grid.models[model].model(self.samples, grid.device)
        self.inputs, self.targets = inputs_for(loaded, self.samples)
        self.model = loaded.with_reference(self.inputs)

    def calibrate(self) -> None:
        """Find the batch sizes, so that no trial has to; a worker does it once for each model.

        A model may have no gradients, or fail altogether: the trials that need what it does not have show it.
        """
        for kind in ("forward", "backward"):
            with contextlib.suppress(Exception), torch.inference_mode(False), self.model.session():
                self.model.row_budget(self.inputs[:1], 1, kind, 1 << 20)

    def try_jobs(self, jobs: Sequence[Job], limit: float) -> tuple[Line, bool]:
        """What jobs of one metric and explainer cost, by trials with the samples of the first, and if one ended."""
        job, error = jobs[0], ""
        rows = slice(job.start, job.stop)
        metric = self.grid.measured[job.label].bind(extras=self.samples.extras, inputs=self.inputs, rows=rows)
        count = len(self.inputs[rows])
        try:
            metric = metric.bind(module=self.model.module)
            found = self._predict(metric, job, limit)
        except (Exception, SystemExit) as failure:  # the other lines are still valid; an explainer may call sys.exit
            error = f"{type(failure).__name__}: {failure}"
            found = _Trial(math.nan, metric.cost(self.model.classes).evaluations * count, 0.0, 0, True)
        scale = sum(job.stop - job.start for job in jobs) / count
        costs = round(scale * found.evaluations), scale * found.seconds
        return Line(*_key_of(job), len(jobs), 0, *costs, found.memory, error), found.ended

    def _predict(self, metric: Metric, job: Job, limit: float) -> _Trial:
        """What the metric will take for a job, by a trial of itself and, if that has no end, of its pilot."""
        whole = self._run_warm(metric, job, limit)
        if whole.ended:
            return whole
        try:
            pilot = metric.pilot()
        except StandfastError:  # options of the user's do not go together with those of the preset
            pilot = metric
        most = getattr(metric, "budget", None)
        if most is not None and getattr(pilot, "budget", most) is None:
            metric = replace(metric, budget=None)  # type: ignore[call-arg]  # the pilot has none either
        count = len(self.inputs[job.start : job.stop])
        expected, few = (count * each.cost(self.model.classes).evaluations for each in (metric, pilot))
        small = whole
        if few < expected and whole.scaled_to(few) < _HOPELESS * limit:
            small = self._run_warm(pilot, job, 2 * limit)
        # what the pilot took more or less than it was expected to, the metric will, too
        evaluations = expected * small.evaluations / max(1, few) if small.ended else expected
        if isinstance(most, int):
            evaluations = min(evaluations, most * count)
        evaluations = max(evaluations, whole.evaluations)
        # the pilot went through all parts of the method, but with small batches and some costs that do not grow; the
        # trial did the first part as it will be done. Neither is always nearer, so this is their geometric mean
        seconds = math.sqrt((small if small.ended else whole).scaled_to(evaluations) * whole.scaled_to(evaluations))
        return replace(whole, seconds=seconds, evaluations=evaluations)

    def _run_warm(self, metric: Metric, job: Job, limit: float) -> _Trial:
        """A trial; if it ends within a second or so it is the first run of many things, and a second one counts."""
        first = self._run(metric, job, limit)
        return self._run(metric, job, limit) if first.ended and first.seconds < _FIRST else first

    def _run(self, metric: Metric, job: Job, limit: float) -> _Trial:
        rows = slice(job.start, job.stop)
        inputs, targets = self.inputs[rows], None if self.targets is None else self.targets[rows]
        count, start, half = 0, (0.0, 0), (0.0, 0)
        began = time.perf_counter()

        def on_inputs(inputs_seen: int) -> None:
            nonlocal count, start, half
            count += inputs_seen
            now = time.perf_counter() - began, count
            if not start[1]:
                start = now if count >= len(inputs) else start
            elif not half[1]:
                half = now if now[0] > limit / 2 else half
            elif now[0] > limit:  # after half of the time there was at least one chunk, also of a slow model
                raise _TimeIsUp

        result = None
        generator = torch.Generator().manual_seed(job_seed(self.grid.seed, job.repeat))
        model = copy.copy(self.model)  # metrics remember things of a model, which no trial must find ready
        watched = model.watch(on_inputs)
        with measure_peak(self.model.device) as peak, contextlib.suppress(_TimeIsUp), watched:
            result = metric(model, self.grid.explainers[job.explainer], inputs, targets, generator=generator)
        seconds = time.perf_counter() - began
        self.model.classes = self.model.classes or model.classes
        if result is not None:
            count = int(result.model_evaluations.sum())
        elif start[1] < half[1] < count:
            start = half  # a metric may prepare much before its first evaluations; its rate shows later
        return _Trial(seconds, count, *start, result is not None, peak[0])


@contextlib.contextmanager
def measure_peak(device: torch.device) -> Iterator[list[float]]:
    """Gives a list with one number: after the block, the most bytes that were in use within it; NaN if not known."""
    found = [math.nan]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield found
        found[0] = float(torch.cuda.max_memory_allocated(device))
        return
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # on Linux, this resets the peak
    yield found
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        found[0] = 1024.0 * int(next(line for line in lines if line.startswith("VmHWM")).split()[1])


def announce_cost(
    plan: Plan,
    pending: Sequence[Job],
    store: Store,
    *,
    workers: int = 1,
    quick: Callable[[], Mapping[str, Metric]] | None = None,
    way: str = 'preset="quick"',
) -> None:
    """Say on standard error how long a run will take, before it begins, if that is more than two minutes.

    The forward passes that the jobs need, times what one takes, show whether a run can be long. Only then metrics are
    tried, which takes about 3% of the time of the run, and at most about 15 s. Whatever fails here, the run begins.

    Args:
        plan: of the grid.
        pending: the jobs that are left.
        store: of the results. It has a note while metrics are tried. If a trial ends the process, the next run finds
            it, and tries nothing.
        workers: how many there are.
        quick: gives the metrics of the grid, in their order, with the preset `"quick"`; None if the user can choose no
            other preset.
        way: how the user chooses it.
    """
    if store.begun()[0]:
        return
    try:
        rates = _find_rates(plan.grid, pending, store)
        seconds = math.fsum(job.work * rates[_key_of(job)] for job in pending)
        if seconds <= _LONG * workers:
            return
        text = f"this takes about {describe_duration(seconds)} with one worker"
        text += f" (there are {workers})" if workers > 1 else ""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what was said when the grid was made
            shorter = math.inf if quick is None else _predict_quick(plan, rates, quick())
        text += f"; {way} would take about {describe_duration(shorter)}" if shorter < seconds / 2 else ""
    except (Exception, SystemExit) as error:
        logger.debug("what the run will take is not known: %s: %s", type(error).__name__, error)
        return
    print(f"{text}. It can be stopped at any time: the same call continues.", file=sys.stderr, flush=True)


def _key_of(job: Job) -> _Key:
    return job.data, job.model, job.explainer, job.label


def _find_rates(grid: Grid, pending: Sequence[Job], store: Store) -> dict[_Key, float]:
    """About how many seconds a unit of `Job.work` takes for each metric and explainer, from few trials."""
    rates: dict[_Key, float] = {}
    for trials, groups in _settings(grid, pending):
        own = dict.fromkeys(groups, _time_rows(trials.model, trials.inputs))
        work = {key: math.fsum(job.work for job in jobs) for key, jobs in groups.items()}
        if sum(work[key] * own[key] for key in groups) > _SHORT / len(grid.combinations()):
            store.begin(pending[0].identity, 1)
            try:
                _try_groups(trials, groups, work, own)
            finally:
                store.end()
        rates |= own
    return rates


def _time_rows(model: Model, inputs: Tensor) -> float:
    """Seconds for a forward pass, in a batch that takes some milliseconds."""
    rows = 1
    while True:
        batch = inputs[torch.arange(rows) % len(inputs)]
        began = time.perf_counter()
        model.logits(batch)
        spent = time.perf_counter() - began
        if spent > _BATCH_SECONDS or rows >= _ROWS:
            return spent / rows
        rows *= 4


def _try_groups(
    trials: _Trials, groups: Mapping[_Key, list[Job]], work: Mapping[_Key, float], rates: dict[_Key, float]
) -> None:
    """Replace rates by those of trials: each metric once, then what takes longest, again and for a longer time."""
    limits: dict[_Key, float] = {}  # of the last trial
    ended: set[_Key] = set()
    trials.calibrate()
    began = time.perf_counter()
    while left := [key for key in groups if key not in ended]:
        expected = {key: work[key] * rates[key] for key in groups}
        tried = {label for *_, label in limits}
        if time.perf_counter() - began > min(_MOST, max(_LEAST, _SHARE * math.fsum(expected.values()))):
            return
        key = max(left, key=lambda key: (key[3] not in tried, expected[key]))
        limits[key] = _LONGER * limits[key] if key in limits else _TRIAL
        line, whole = trials.try_jobs(groups[key], limits[key])
        if whole or limits[key] * _LONGER > 1:
            ended.add(key)
        rates[key] = 0.0 if line.error else line.seconds / work[key]  # a job that fails ends soon
        same = [each for each in groups if each[3] == key[3]]
        known = [rates[each] for each in same if each in limits]
        rates |= {each: sum(known) / len(known) for each in same if each not in limits}


def _predict_quick(plan: Plan, rates: Mapping[_Key, float], quick: Mapping[str, Metric]) -> float:
    """Seconds for all jobs of a plan with other metrics in the place of its own."""
    grid, usual, seconds = plan.grid, sum(rates.values()) / len(rates), 0.0
    others = {**grid.measured, **dict(zip(grid.metrics, quick.values(), strict=True))}
    for job in plan.jobs:
        explainer = grid.explainers[job.explainer]
        before, after = (expected_work(each[job.label], explainer, None) for each in (grid.measured, others))
        seconds += rates.get(_key_of(job), usual) * job.work * after / before
    return seconds


def describe_duration(seconds: float) -> str:
    """Seconds in words, with the unit that a person would take.

    >>> describe_duration(38.2), describe_duration(840), describe_duration(9000), describe_duration(400000)
    ('38 s', '14 minutes', '2.5 hours', '4.6 days')
    """
    if seconds < 100:
        return f"{max(seconds, 1):.0f} s"
    if seconds < 100 * 60:
        return f"{seconds / 60:.0f} minutes"
    return f"{seconds / 3600:.1f} hours" if seconds < 48 * 3600 else f"{seconds / 86400:,.1f} days"
