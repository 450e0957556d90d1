"""`Worker`: does jobs, and packs the result or the failure of each for the store."""

from __future__ import annotations

import time
import traceback
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import polars as pl
import torch
from torch import Tensor

from standfast.errors import ModelError
from standfast.metrics import Metric
from standfast.model import Model
from standfast.study.grid import Grid
from standfast.study.guard import Guard
from standfast.study.identity import ask_model, read_own_modules
from standfast.study.plan import Job, inputs_for, job_seed
from standfast.study.store import COORDINATES, JobFiles, pack, pack_failure

#: how many models a worker keeps on its device; jobs are ordered by model
_KEPT = 2
#: how many inputs a model is asked for, to prove that it is the planned one
_PROVED = 8
_SECONDS_BETWEEN_SHARES = 0.5
#: the share of a job that takes more evaluations than expected; it is done when its result is there
_ALMOST = 0.99


def record_of(grid: Grid, job: Job) -> dict[str, Any]:
    """The beginning of a job's record: its identity and its coordinates."""
    metric = grid.measured[job.label].name
    own = {name: getattr(job, name) for name in (*COORDINATES, "start", "stop") if name != "metric"}
    return {"job": job.identity, **own, "metric": metric, "seconds": 0.0}


def _tell_share(expect: Callable[[], int], tell: Callable[[float], None] | None) -> Callable[[int], None]:
    """From counts of inputs to calls of `tell` with the share of the expected evaluations, twice a second at most."""
    count, last = 0, time.monotonic()

    def on_inputs(inputs: int) -> None:
        nonlocal count, last
        count += inputs
        if tell is not None and time.monotonic() - last >= _SECONDS_BETWEEN_SHARES:
            last, share = time.monotonic(), count / max(1, expect())
            try:
                tell(min(share, _ALMOST))
            except Exception as error:
                raise _TellError(error) from error

    return on_inputs


class _TellError(BaseException):
    """Carries an error of `tell` past all that handles errors of the job: metrics, other packages and the worker."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def describe_failure(error: BaseException) -> tuple[str, str]:
    """One line, and the traceback, of any exception: also of one that cannot say what it is.

    >>> describe_failure(ValueError("no such layer"))[0]
    'ValueError: no such layer'
    """
    try:
        line, whole = f"{type(error).__name__}: {error}", "".join(traceback.format_exception(error))
    except Exception as second:  # its own __str__ fails
        line = f"{type(error).__name__} (its message cannot be shown: {type(second).__name__})"
        whole = "".join([*traceback.format_tb(error.__traceback__), line])
    # half of a surrogate pair cannot be stored
    line, whole = (text.encode(errors="backslashreplace").decode() for text in (line, whole))
    return line, whole


class Worker:
    """Does jobs of a grid in this process.

    Args:
        grid: of the jobs; its `device` is where models run.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._ready: OrderedDict[tuple[str, str], tuple[Model, Tensor, Tensor | None]] = OrderedDict()
        self._guards: dict[tuple[str, str], Guard] = {}
        self._metrics: dict[tuple[str, str], Metric] = {}

    def run(self, job: Job, tell: Callable[[float], None] | None = None) -> JobFiles:
        """Evaluate the samples of a job. An exception is packed as a failure with its traceback.

        Exceptions of `tell` are no failures of the job; they are raised.

        Args:
            job: of the grid.
            tell: called now and then with the share of the job that is done, about.
        """
        record = record_of(self.grid, job)
        try:
            return self._run(job, record, tell)
        finally:
            self._clean_up(job)

    def _run(self, job: Job, record: dict[str, Any], tell: Callable[[float], None] | None) -> JobFiles:
        explainer = self.grid.explainers[job.explainer]
        began = time.perf_counter()
        try:
            model, inputs, targets = self._prepare(job)
            record["device"] = str(model.device)
            rows, metric = slice(job.start, job.stop), self._metric(job)
            share = _tell_share(lambda: metric.cost(model.classes).evaluations * (job.stop - job.start), tell)
            with model.watch(share):
                result = metric.bind(inputs=inputs, rows=rows)(
                    model,
                    explainer,
                    inputs[rows],
                    None if targets is None else targets[rows],
                    generator=torch.Generator().manual_seed(job_seed(self.grid.seed, job.repeat)),
                )
            frame = result.frame()
            where = [pl.lit(record[name]).alias(name) for name in COORDINATES]
            frame = frame.select(*where, pl.col("sample") + job.start, pl.exclude("sample"))
            record["seconds"] = time.perf_counter() - began
            record["choices"] = "; ".join(f"{option} {chosen}" for option, chosen in result.choices.items()) or None
            return pack(record, frame, result.tensors())
        except _TellError as carrier:
            raise carrier.error from None
        except (Exception, SystemExit) as error:  # a model or explainer may call sys.exit
            record["seconds"] = time.perf_counter() - began
            return pack_failure(record, *describe_failure(error))

    def _metric(self, job: Job) -> Metric:
        """The metric of the job, with the extras of the job's data that it names."""
        key = (job.data, job.label)
        if key not in self._metrics:
            self._metrics[key] = self.grid.measured[job.label].bind(extras=self.grid.data[job.data].extras)
        return self._metrics[key]

    def _clean_up(self, job: Job) -> None:
        """Undo what the job has left behind on the model."""
        key = (job.data, job.model)
        if key in self._guards and not self._guards[key].clean_up(job.explainer):
            # it is built again, and has to prove once more that it is the planned model
            del self._ready[key], self._guards[key]

    def _prepare(self, job: Job) -> tuple[Model, Tensor, Tensor | None]:
        """The model of the job, and the inputs and targets on the model's device.

        Raises:
            ModelError: it is another one than the jobs were planned with.
        """
        key = (job.data, job.model)
        if key not in self._ready:
            while len(self._ready) >= _KEPT:
                self._guards.pop(self._ready.popitem(last=False)[0], None)
            samples = self.grid.data[job.data]
            model = self.grid.models[job.model].model(samples, self.grid.device)
            inputs, targets = inputs_for(model, samples)
            self._prove(job, model, inputs)
            self._guards[key] = Guard(model, inputs[:1])
            self._ready[key] = (model.with_reference(inputs), inputs, targets)
        self._ready.move_to_end(key)
        return self._ready[key]

    def _prove(self, job: Job, model: Model, inputs: Tensor) -> None:
        """Compare the model, and the user's modules, with those of the plan."""
        here, changed = read_own_modules(), []
        changed = [name for name, code in self.grid.code.items() if here.get(name, code) != code]
        if changed:
            raise ModelError(
                f"{', '.join(changed)}: changed since the jobs were planned; run the study again in a new process"
            )
        planned = self.grid.planned.get((job.data, job.model))
        if planned is None or not planned.numbers:
            return
        different = planned.find_difference(ask_model(model, inputs[:_PROVED]), model.precision)
        if different:
            raise ModelError(
                f"model {job.model!r}: its answers ({different}) are not those of the model that the jobs were planned"
                " with. Does its builder make another model each time, or from a file that has changed? Seed all"
                " generators that it uses, such as numpy.random.default_rng(0)"
            )
