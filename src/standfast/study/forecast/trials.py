"""Estimate what a study costs before it runs: evaluations, time and memory of each metric and explainer.

First the speed of predictions and of each explainer's explanations is measured. Then metrics are tried on the samples
of their first job, each for a share of the time: as they are, and if that has no end also as their pilot
(`Metric.pilot`), a cheaper configuration. What the trials took is scaled to all jobs. Where not even the first
explanation would end within its share, the cost of a metric is that of its explanations and predictions, and is marked
as such.
"""

from __future__ import annotations

import contextlib
import copy
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path

import torch

from standfast.display import show_nothing
from standfast.errors import StandfastError, check
from standfast.explainers import Explainer
from standfast.metrics import Metric
from standfast.metrics.base import remove_limit
from standfast.metrics.probe import Call, Probe
from standfast.model import ROW_ALIGNMENT
from standfast.question.grid import Grid, SamplesPart
from standfast.study.deadline import run_within
from standfast.study.forecast.estimate import Basis, Estimate, EstimateLine
from standfast.study.jobs import Job, count_passes, job_seed
from standfast.study.meeting import inputs_for
from standfast.study.plan import Plan

#: the first run of a metric loads and compiles things; a trial that takes less than so many seconds is repeated
_FIRST = 2.0
#: a pilot that is expected to take so many times as long as a trial may is not begun: it would not come to its end
_HOPELESS = 50
#: a trial that does not end tells the pace of a metric from so many evaluations on, beside those of the samples
_TELLING = 16
#: a trial that is within a single explanation is ended after so many times the seconds that it may take
_PATIENCE = 2.0
#: the share of the time in which the speed of explanations is measured
_SPEEDS = 0.5
#: the share of a metric's time for the trial of itself; the rest is for its pilot
_ITSELF = 1 / 3
#: a model runs so many rows in the time of a single one, which is filled up
_ROWS = 2 * ROW_ALIGNMENT
#: what jobs have in common: the data, the model, the explainer and the label of the metric
_Names = tuple[str, str, str, str]


def estimate_plan(
    plan: Plan, done: set[str], progress: Callable[[str], None] | None = None, seconds: float = 10.0
) -> Estimate:
    """What the jobs of a plan cost that are not done, in the plan's order.

    Args:
        plan: of the grid.
        done: identities of the jobs that are done already.
        progress: called with a text that says what is tried.
        seconds: how long all trials together may take, about. With infinity, metrics are evaluated to their end.

    Raises:
        ArgumentError: `seconds` is no number above 0.
    """
    fits = type(seconds) in (int, float) and seconds > 0
    check(fits, "seconds", "a number above 0", repr(seconds))
    groups: dict[_Names, list[Job]] = {}
    for job in plan.jobs:
        job_names = (job.data, job.model, job.explainer, job.label)
        groups.setdefault(job_names, []).append(job)
    jobs_left: dict[_Names, list[Job]] = {}
    for job_names, jobs in groups.items():
        jobs_left[job_names] = [job for job in jobs if job.identity not in done]
    ends = time.perf_counter() + seconds
    lines: dict[_Names, EstimateLine] = {}
    # a data set and a model: what is measured of them serves all metrics
    jobs_of_pairs: dict[tuple[str, str], dict[_Names, list[Job]]] = {}
    for job_names, jobs in jobs_left.items():
        if jobs:
            data, model, _, _ = job_names
            jobs_of_pairs.setdefault((data, model), {})[job_names] = jobs
    for number, (pair, jobs_of_pair) in enumerate(jobs_of_pairs.items()):
        # what one pair does not use is left to the others
        share = (ends - time.perf_counter()) / (len(jobs_of_pairs) - number)
        lines.update(_estimate_pair(plan.grid, pair, jobs_of_pair, share, progress))
    for job_names, jobs in groups.items():
        none = EstimateLine(*job_names, 0, 0, samples=0, evaluations=0, seconds=0.0)
        line = lines.get(job_names) or none
        done_jobs = len(jobs) - len(jobs_left[job_names])
        lines[job_names] = replace(line, jobs=len(jobs), done=done_jobs)
    return Estimate(tuple(lines[job_names] for job_names in groups))


def try_unknown(plan: Plan, estimate: Estimate, seconds: float) -> Estimate:
    """The estimate of all jobs of a plan with the costs of metrics that were not known, by their pilots.

    Args:
        plan: of which all jobs were estimated.
        estimate: of them.
        seconds: for all pilots together. What they do not reach stays unknown.
    """
    unknown = [line for line in estimate.lines if line.basis == "unknown"]
    tried: dict[EstimateLine, EstimateLine] = {}
    trials: _Trials | None = None
    ends = time.perf_counter() + seconds
    for number, line in enumerate(unknown):
        # the model is built once for neighbouring lines
        if trials is None or trials.pair != (line.data, line.model):
            trials = _Trials(plan.grid, line.data, line.model)
            # no time for explanations: only the trial of the metric is asked for
            trials.measure_speeds([line.explainer for line in unknown], 0.0)
        job_names = (line.data, line.model, line.explainer, line.label)
        jobs = []
        for job in plan.jobs:
            if (job.data, job.model, job.explainer, job.label) == job_names:
                jobs.append(job)
        share = (ends - time.perf_counter()) / (len(unknown) - number)
        tried[line] = trials.fill_in(line, jobs, max(share, 0.0), must_try=True)
    lines = [tried.get(line, line) for line in estimate.lines]
    return replace(estimate, lines=tuple(lines))


def _estimate_pair(
    grid: Grid,
    pair: tuple[str, str],
    jobs_left: Mapping[_Names, Sequence[Job]],
    seconds: float,
    progress: Callable[[str], None] | None,
) -> dict[_Names, EstimateLine]:
    """The lines of a data set and a model, within so many seconds; what is cheap is tried first."""
    data, model = pair
    ends = time.perf_counter() + seconds
    trials = _Trials(grid, data, model)
    if progress:
        progress(f"measuring the speed of {model} on {data}")
    explainers = list(dict.fromkeys(explainer for _, _, explainer, _ in jobs_left))
    trials.measure_speeds(explainers, _SPEEDS * seconds)
    lines: dict[_Names, EstimateLine] = {}
    # cheap ones first, so that the time that they save is left for the others
    by_work = sorted(jobs_left, key=lambda job_names: jobs_left[job_names][0].work)
    for number, job_names in enumerate(by_work):
        _, _, explainer, label = job_names
        if progress:
            progress(f"trying {label} with {explainer}, {model} on {data}")
        share = (ends - time.perf_counter()) / (len(by_work) - number)
        # 0 where the time is up: then the speed of explanations tells
        line = EstimateLine(*job_names, 0, 0, samples=0, evaluations=0, seconds=0.0)
        lines[job_names] = trials.fill_in(line, jobs_left[job_names], max(share, 0.0))
    return lines


class _EnoughSeen(BaseException):
    """Ends a trial; no `except Exception` in a metric or in another package may stop it."""


@dataclass(frozen=True)
class _Speed:
    """How long an explanation of an input takes.

    Attributes:
        seconds: for an input, which is also predicted.
        measured: whether it was explained; otherwise this is what its rows take that the model runs.
    """

    seconds: float
    measured: bool


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

    @property
    def is_known(self) -> bool:
        """Whether enough was seen of it: of a few evaluations, some may be far from the usual ones."""
        if self.ended:
            return True
        return self.started > 0 and self.evaluations - self.started >= _TELLING

    def scaled_to(self, evaluations: float) -> float:
        """Seconds for so many evaluations: what the start takes is paid once."""
        # at least one, since a run may end with the start
        evaluations_after_start = max(self.evaluations - self.started, 1)
        rate = (self.seconds - self.start) / evaluations_after_start
        return self.start + rate * max(evaluations - self.started, 0)


class _Trials:
    """Runs metrics on a model of a grid and a data set, each for a limited time."""

    def __init__(self, grid: Grid, data: str, model: str) -> None:
        self.grid = grid
        self.samples = grid.data[data]
        self.pair = (data, model)
        loaded = grid.models[model].model(self.samples, grid.device)
        # as jobs prepare it, so that a trial does the same work
        self.inputs, self.targets = inputs_for(loaded, self.samples)
        self.model = loaded.with_reference(self.inputs)
        #: seconds of a prediction, by the pace of as many rows as a single one is filled up to
        self.prediction = 0.0
        self.speeds: dict[str, _Speed] = {}

    def measure_speeds(self, explainers: Sequence[str], seconds: float) -> None:
        """Measure how long a prediction takes, and an explanation of each explainer, within so many seconds.

        What would take longer than its share is not run: its seconds are those of the rows that it needs.
        """
        ends = time.perf_counter() + seconds
        with contextlib.suppress(Exception):  # the trials of metrics say what fails
            self.prediction = self._time_predictions()
        # controls are cheap, and nobody has asked for them
        order = sorted(
            explainers,
            key=lambda name: (
                name in self.grid.controls,
                self.grid.explainers[name].rows_per_input,
            ),
        )
        for name in order:
            seconds_left = ends - time.perf_counter()
            # half of what is left, so that a slow explainer leaves some to the next
            self.speeds[name] = self._time_explanations(
                self.grid.explainers[name], seconds_left / 2
            )

    def _time_predictions(self) -> float:
        """Seconds of a prediction. It also finds the batch sizes, so that no trial has to."""
        part = self.samples.find_first(self.model, _ROWS)
        rows = part.take(self.inputs)
        # inference tensors could not be differentiated later
        with (
            torch.inference_mode(False),
            part.model.session(),
            torch.no_grad(),
            part.model.forgetting(),
        ):
            for kind in ("forward", "backward"):
                with contextlib.suppress(Exception):  # a model may have no gradients
                    # it finds how many rows fit, which takes longer than a single pass
                    part.model.row_budget(rows[:1], 1, kind, 1 << 20)
            # finding a batch size has run some of the rows
            with part.model.forgetting():
                began = time.perf_counter()
                part.model.logits(rows)
                return (time.perf_counter() - began) / self._count_filled(len(rows))

    def _count_filled(self, rows: int) -> int:
        """How many rows the model could run in the time of so many: a small batch is filled up."""
        if self.model.runs_rows_once:
            return rows
        return max(rows, _ROWS)

    def _count_together(self, explainer: Explainer) -> int:
        """How many inputs are explained in the time of one, whose rows are filled up."""
        if self.model.extras:  # each alone
            return 1
        fill_a_batch = max(1, _ROWS // explainer.rows_per_input)
        return min(fill_a_batch, self._count_neighbours())

    def _count_neighbours(self) -> int:
        """How many samples the model runs together, on average: texts are cut where the number of words changes."""
        lengths = self.samples.lengths
        if lengths is None:
            return _ROWS
        runs = sum(1 for _ in groupby(lengths))
        return max(1, round(len(lengths) / runs))

    def _time_explanations(self, explainer: Explainer, limit: float) -> _Speed:
        """How long an explanation takes; of an explainer that needs longer than the limit what its rows take."""
        rows = explainer.rows_per_input
        together = self._count_together(explainer)
        by_rows = _Speed(count_passes(explainer) * self.prediction, measured=False)
        part = self.samples.find_first(self.model, together)
        count = len(part.take(self.inputs))
        filled_inputs = self._count_filled(count * rows) / rows
        if filled_inputs * by_rows.seconds > limit:
            return by_rows
        inputs = part.take(self.inputs)
        targets = None
        if self.targets is not None:
            targets = self.targets[part.rows]
        # its caches must not be warm when the metric is tried
        model = copy.copy(part.model)

        def explain() -> None:
            with (
                show_nothing(),
                torch.inference_mode(False),
                model.session(),
                model.forgetting(),
            ):
                Probe(Call(model, explainer, inputs, targets))

        began = time.perf_counter()
        try:
            if not run_within(_PATIENCE * limit, explain):
                # the explainer takes at least that long
                return _Speed(max(by_rows.seconds, _PATIENCE * limit / count), measured=False)
        except (
            Exception,
            SystemExit,
        ):
            # the trials of metrics say what fails; an explainer may call sys.exit
            return by_rows
        seconds = time.perf_counter() - began
        return _Speed(seconds / max(count, together), measured=True)

    def fill_in(
        self, line: EstimateLine, jobs: Sequence[Job], limit: float, must_try: bool = False
    ) -> EstimateLine:
        """The line with what its jobs cost, by trials with the samples of the first, or by the speed of explanations.

        Args:
            line: without costs.
            jobs: those that are left.
            limit: seconds for the trials.
            must_try: try it also where the first explanation is expected to take longer.
        """
        job = jobs[0]
        rows = self._choose(job).rows
        metric = self.grid.measured[job.label].bind(
            extras=self.samples.extras, inputs=self.inputs, rows=rows
        )
        samples = sum(job.stop - job.start for job in jobs)
        line = replace(line, samples=samples)
        explanation_speed = self.speeds[job.explainer]
        try:
            metric = metric.bind(module=self.model.module)
            # the samples themselves are explained first, and nothing is seen of a metric before
            together = self._count_together(self.grid.explainers[job.explainer])
            seconds_of_explanations = explanation_speed.seconds * max(_count(rows), together)
            is_slow = seconds_of_explanations > limit
            if is_slow and not must_try:
                return self._fill_in_by_speed(line, metric, explanation_speed)
            return self._fill_in_by_trials(line, metric, job, limit)
        except (
            Exception,
            SystemExit,
        ) as failure:
            # the other lines are still valid; an explainer may call sys.exit
            evaluations = line.samples * metric.cost(self.model.classes).evaluations
            error = f"{type(failure).__name__}: {failure}"
            return replace(
                line, evaluations=evaluations, seconds=math.nan, error=error, basis="fails"
            )

    def _fill_in_by_speed(self, line: EstimateLine, metric: Metric, speed: _Speed) -> EstimateLine:
        """The line with what all explanations and predictions of the metric take, one after the other."""
        cost = metric.cost(self.model.classes)
        seconds_of_sample = cost.explanations * speed.seconds + cost.predictions * self.prediction
        seconds = line.samples * seconds_of_sample
        line = replace(
            line, evaluations=line.samples * cost.evaluations, start=line.samples * speed.seconds
        )
        if metric.has_random_cost:
            return replace(line, seconds=math.nan, basis="unknown")
        basis: Basis = "explanations" if speed.measured else "model"
        return replace(line, seconds=seconds, basis=basis)

    def _fill_in_by_trials(
        self, line: EstimateLine, metric: Metric, job: Job, limit: float
    ) -> EstimateLine:
        """The line with what the metric takes by a trial of itself and, if that has no end, of its pilot."""
        rows = self._choose(job).rows
        trial, basis = self._predict(metric, job, limit)
        if not trial.is_known:
            return self._fill_in_by_speed(line, metric, self.speeds[job.explainer])
        scale = line.samples / _count(rows)
        seconds = scale * trial.seconds
        start = min(scale * trial.start, seconds)
        evaluations = round(scale * trial.evaluations)
        if basis == "unknown":
            seconds = math.nan
        return replace(
            line,
            evaluations=evaluations,
            seconds=seconds,
            memory=trial.memory,
            basis=basis,
            start=start,
        )

    def _choose(self, job: Job) -> SamplesPart:
        """The model with those samples of a job that are tried."""
        parts = self.samples.split_answered(self.model, slice(job.start, job.stop))
        return parts[0]

    def _predict(self, metric: Metric, job: Job, limit: float) -> tuple[_Trial, Basis]:
        """What the metric will take for a job, and how that is known."""
        own_trial = self._run_warm(metric, job, _ITSELF * limit)
        if own_trial.ended or not own_trial.is_known:
            return own_trial, "trial"
        try:
            pilot = metric.pilot()
        except StandfastError:  # options of the user's do not go together with those of the preset
            pilot = metric
        most_evaluations = metric.most_evaluations
        if most_evaluations is not None and pilot.most_evaluations is None:
            metric = remove_limit(metric)  # the pilot has none either
        count = _count(self._choose(job).rows)
        classes = self.model.classes
        expected_evaluations = count * metric.cost(classes).evaluations
        pilot_evaluations = count * pilot.cost(classes).evaluations
        pilot_trial = own_trial
        pilot_limit = (1 - _ITSELF) * limit
        is_smaller = pilot_evaluations < expected_evaluations
        if is_smaller and own_trial.scaled_to(pilot_evaluations) < _HOPELESS * pilot_limit / 2:
            pilot_trial = self._run_warm(pilot, job, pilot_limit)
        # what the pilot took more or less than it was expected to, the metric will, too
        if pilot_trial.ended:
            evaluations = expected_evaluations * pilot_trial.evaluations / max(1, pilot_evaluations)
        else:
            evaluations = expected_evaluations
        if isinstance(most_evaluations, int):
            # no metric makes more than its limit
            evaluations = min(evaluations, most_evaluations * count)
        # what was seen was done
        evaluations = max(evaluations, own_trial.evaluations)
        # the pilot went through all parts of the method, but with small batches and some costs that do not grow; the
        # trial did the first part as it will be done. Neither is always nearer, so this is their geometric mean
        pilot_or_trial = pilot_trial if pilot_trial.ended else own_trial
        seconds_by_pilot = pilot_or_trial.scaled_to(evaluations)
        seconds_by_trial = own_trial.scaled_to(evaluations)
        seconds = math.sqrt(seconds_by_pilot * seconds_by_trial)
        predicted = replace(own_trial, seconds=seconds, evaluations=evaluations)
        if metric.has_random_cost and not pilot_trial.ended:
            return predicted, "unknown"
        basis: Basis = "pilot" if pilot_trial.ended else "trial"
        return predicted, basis

    def _run_warm(self, metric: Metric, job: Job, limit: float) -> _Trial:
        """A trial; if it ends within a second or so it is the first run of many things, and a second one counts."""
        first = self._run(metric, job, limit)
        if first.ended and first.seconds < min(_FIRST, limit):
            return self._run(metric, job, limit)
        return first

    def _run(self, metric: Metric, job: Job, limit: float) -> _Trial:
        part = self._choose(job)
        model = part.model
        inputs = part.take(self.inputs)
        targets = None
        if self.targets is not None:
            targets = self.targets[part.rows]
        count = 0
        start = (0.0, 0)
        half = (0.0, 0)
        seen_until = 0.0
        began = time.perf_counter()

        def on_inputs(inputs_seen: int) -> None:
            nonlocal count, start, half, seen_until
            count += inputs_seen
            now = time.perf_counter() - began, count
            seen_until = now[0]
            # what the samples themselves take is paid once, and is no part of the pace
            if not start[1]:
                start = now if count >= len(inputs) else start
            elif not half[1]:
                if now[0] > limit / 2:
                    half = now
            elif now[0] > limit:
                # after half of the time there was at least one chunk, also of a slow model
                raise _EnoughSeen

        result = None
        generator = torch.Generator().manual_seed(job_seed(self.grid.seed, job.repeat))
        # metrics remember things of a model, and some models what they answered, which no trial must find ready
        model = copy.copy(model)
        watched, forgetting = model.watch(on_inputs), model.forgetting()

        def evaluate() -> None:
            nonlocal result
            with show_nothing(), contextlib.suppress(_EnoughSeen), watched, forgetting:
                result = metric(
                    model, self.grid.explainers[job.explainer], inputs, targets, generator=generator
                )

        with measure_peak(self.model.device) as peak:
            # within a single explanation nothing is seen
            run_within(_PATIENCE * limit, evaluate)
        seconds = time.perf_counter() - began
        # the number of classes is known only after a pass, and costs depend on it
        self.model.classes = self.model.classes or model.classes
        if result is not None:
            count = int(result.model_evaluations.sum())
        elif count:
            seconds = seen_until  # what was begun after that is not counted either
        if result is None and start[1] < half[1] < count:
            start = (
                half  # a metric may prepare much before its first evaluations; its rate shows later
            )
        return _Trial(seconds, count, *start, result is not None, peak[0])


def _count(rows: slice) -> int:
    return int(rows.stop - rows.start)


@contextlib.contextmanager
def measure_peak(device: torch.device) -> Iterator[list[float]]:
    """Gives a list with one number: after the block, the most bytes that were in use within it; NaN if not known."""
    peak_bytes = [math.nan]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield peak_bytes
        peak_bytes[0] = float(torch.cuda.max_memory_allocated(device))
        return
    # not on other systems, and not in some containers
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # on Linux, this resets the peak
    yield peak_bytes
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        peak_bytes[0] = 1024.0 * int(
            next(line for line in lines if line.startswith("VmHWM")).split()[1]
        )
