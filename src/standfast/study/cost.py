"""Estimate what a study costs before it runs: evaluations, time and memory of each metric and explainer.

Each metric is tried on the samples of its first job, for about a second: as it is, and if it does not end in that time
also as its pilot (`Metric.pilot`), a cheaper configuration. What the trials took is scaled to all jobs.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch

from standfast.display import show_nothing
from standfast.errors import StandfastError, check
from standfast.metrics import Metric
from standfast.question.grid import Grid, Part
from standfast.study.plan import Job, Plan, inputs_for, job_seed

#: the first run of a metric loads and compiles things; a trial that takes less than so many seconds is repeated
_FIRST = 2.0
#: a pilot that is expected to take so many times as long as a trial may is not begun: it would not come to its end
_HOPELESS = 50


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
    groups: dict[tuple[str, str, str, str], list[Job]] = {}
    for job in plan.jobs:
        groups.setdefault((job.data, job.model, job.explainer, job.label), []).append(job)
    lines, trials = list[Line](), None
    for (data, model, explainer, label), jobs in groups.items():
        left = [job for job in jobs if job.identity not in done]
        line = Line(data, model, explainer, label, len(jobs), len(jobs) - len(left), evaluations=0, seconds=0.0)
        if left:
            if trials is None or trials.pair != (data, model):
                trials = _Trials(plan.grid, data, model)
            if progress:
                progress(f"trying {label} with {explainer}, {model} on {data}")
            line = trials.fill_in(line, left, seconds)
        lines.append(line)
    return Estimate(tuple(lines))


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
        self.grid, self.pair, self.samples = grid, (data, model), grid.data[data]
        loaded = grid.models[model].model(self.samples, grid.device)
        self.inputs, self.targets = inputs_for(loaded, self.samples)
        self.model = loaded.with_reference(self.inputs)
        # find the batch sizes, so that no trial has to; a model may have no gradients, or fail altogether: the trials
        # that need what it does not have show it
        for kind in ("forward", "backward"):
            with contextlib.suppress(Exception), torch.inference_mode(False), self.model.session():
                first = self.samples.split(self.model, slice(0, 1))[0]
                first.model.row_budget(first.take(self.inputs), 1, kind, 1 << 20)

    def fill_in(self, line: Line, jobs: Sequence[Job], limit: float) -> Line:
        """The line with what its jobs cost, by trials with the samples of the first."""
        job, error = jobs[0], ""
        rows = self._choose(job).rows
        metric = self.grid.measured[job.label].bind(extras=self.samples.extras, inputs=self.inputs, rows=rows)
        count = len(self.inputs[rows])
        try:
            metric = metric.bind(module=self.model.module)
            found = self._predict(metric, job, limit)
        except (Exception, SystemExit) as failure:  # the other lines are still valid; an explainer may call sys.exit
            error = f"{type(failure).__name__}: {failure}"
            found = _Trial(math.nan, metric.cost(self.model.classes).evaluations * count, 0.0, 0, True)
        scale = sum(job.stop - job.start for job in jobs) / count
        evaluations, seconds = round(scale * found.evaluations), scale * found.seconds
        return replace(line, evaluations=evaluations, seconds=seconds, memory=found.memory, error=error)

    def _choose(self, job: Job) -> Part:
        """The model with those samples of a job that are tried."""
        return self.samples.split(self.model, slice(job.start, job.stop))[0]

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
        count = len(self.inputs[self._choose(job).rows])
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
        part = self._choose(job)
        model, inputs = part.model, part.take(self.inputs)
        targets = None if self.targets is None else self.targets[part.rows]
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
        model = copy.copy(model)  # metrics remember things of a model, which no trial must find ready
        watched = model.watch(on_inputs)
        with show_nothing(), measure_peak(self.model.device) as peak, contextlib.suppress(_TimeIsUp), watched:
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
