"""`Worker`: does jobs, and packs the result or the failure of each for the store."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import polars as pl
import torch
from torch import Tensor

from standfast.display import show_nothing
from standfast.errors import ModelError
from standfast.explainers.shared_passes import PassMemory, offer_memory
from standfast.metrics import Result
from standfast.model import Model
from standfast.question.grid import Grid, SamplesPart, Tried
from standfast.study.answers import AnswerNumbers, ask_model
from standfast.study.guard import Guard
from standfast.study.jobs import Job, job_seed
from standfast.study.meeting import inputs_for
from standfast.study.own_code import read_own_modules
from standfast.study.plan import PlannedGrid
from standfast.study.store import COORDINATES, JobFiles, pack, pack_failure
from standfast.tensors import seed_generators

#: how many inputs a model is asked for, to prove that it is the planned one
_PROVED = 8
_SECONDS_BETWEEN_SHARES = 0.5
#: the share of a job that takes more evaluations than expected; it is done when its result is there
_ALMOST = 0.99


def record_of(grid: Grid, job: Job) -> dict[str, Any]:
    """The beginning of a job's record: its identity and its coordinates."""
    metric = grid.measured[job.label].name
    coordinates = {
        name: getattr(job, name) for name in (*COORDINATES, "start", "stop") if name != "metric"
    }
    return {"job": job.identity, **coordinates, "metric": metric, "seconds": 0.0}


class _Share:
    """From counts of inputs and rows to calls of `tell` with the share of a job, twice a second at most.

    Args:
        expect: gives the number of evaluations that the job will make, about.
        rows_per_input: how many rows the module forwards for an explanation. Of many, an input takes long, and the rows
            say how far it is; other explainers than ours may run the module on more.
        tell: what is called.
    """

    def __init__(
        self, expect: Callable[[], int], rows_per_input: int, tell: Callable[[float], None] | None
    ) -> None:
        self._expect = expect
        self._rows_per_input = rows_per_input
        self._tell = tell
        self._inputs = self._rows_since = 0
        self._last, self._highest = time.monotonic(), 0.0

    def add_inputs(self, count: int) -> None:
        """Note that so many inputs more were evaluated."""
        self._inputs += count
        self._rows_since = 0
        self._tell_now_and_then()

    def add_rows(self, count: int) -> None:
        """Note that the module has run on so many rows more."""
        self._rows_since += count
        self._tell_now_and_then()

    def _tell_now_and_then(self) -> None:
        now = time.monotonic()
        if self._tell is None or now - self._last < _SECONDS_BETWEEN_SHARES:
            return
        self._last = now
        current_input = min(self._rows_since / self._rows_per_input, 1.0)
        share = (self._inputs + current_input) / max(1, self._expect())
        self._highest = max(self._highest, min(share, _ALMOST))
        with contextlib.suppress(Exception):  # what cannot be told is no failure of the job
            self._tell(self._highest)


def describe_failure(error: BaseException) -> tuple[str, str]:
    """One line, and the traceback, of any exception: also of one that cannot say what it is.

    >>> describe_failure(ValueError("no such layer"))[0]
    'ValueError: no such layer'
    """
    try:
        line = f"{type(error).__name__}: {error}"
        whole = "".join(traceback.format_exception(error))
    except Exception as second:  # its own __str__ fails
        line = f"{type(error).__name__} (its message cannot be shown: {type(second).__name__})"
        whole = "".join([*traceback.format_tb(error.__traceback__), line])
    # half of a surrogate pair cannot be stored
    storable = [text.encode(errors="backslashreplace").decode() for text in (line, whole)]
    return storable[0], storable[1]


@dataclass(frozen=True)
class _Ready:
    """A model with the inputs and targets of a data set, on its device."""

    data: str
    name: str
    model: Model
    inputs: Tensor
    targets: Tensor | None
    guard: Guard


def _join(parts: Sequence[Tensor]) -> Tensor:
    """The arrays of several samples, `(n, ...)` each; those that end earlier than others are filled up.

    Numbers are filled up with NaN, all else with 0.
    """
    if len({part.shape[1:] for part in parts}) == 1:
        return torch.cat(list(parts))
    shapes = [part.shape[1:] for part in parts]
    widest = [max(sides) for sides in zip(*shapes, strict=True)]
    # 0, because whole numbers and flags have no NaN
    fill = torch.nan if parts[0].is_floating_point() else 0
    rows = sum(map(len, parts))
    whole = parts[0].new_full((rows, *widest), fill)
    start = 0
    for part in parts:
        stop = start + len(part)
        corner = [slice(side) for side in part.shape[1:]]
        whole[(slice(start, stop), *corner)] = part
        start = stop
    return whole


def _join_tensors(results: Sequence[Result]) -> dict[str, Tensor]:
    """The arrays of all parts of a job, by name."""
    tensors_of_parts = [result.tensors() for result in results]
    joined: dict[str, Tensor] = {}
    for name in tensors_of_parts[0]:
        joined[name] = _join([tensors[name] for tensors in tensors_of_parts])
    return joined


class Worker:
    """Does jobs of a grid in this process.

    It keeps the model of the last job; jobs are ordered by model.

    Args:
        grid: of the jobs; its `device` is where models run.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._ready: _Ready | None = None
        #: whether no job has run here that could have changed any of the models
        self._is_fresh = True
        #: the explainer after whose job the model was not as before, and had to be built again
        self._suspect: str | None = None
        # passes that explainers of a metric have in common, of the last job and those before it with the same samples
        self._passes: tuple[tuple[object, ...], PassMemory] | None = None

    def run(self, job: Job, tell: Callable[[float], None] | None = None) -> JobFiles:
        """Evaluate the samples of a job. An exception is packed as a failure with its traceback.

        Args:
            job: of the grid.
            tell: called now and then with the share of the job that is done, about. Its exceptions are ignored.
        """
        record = record_of(self.grid, job)
        began = time.perf_counter()
        try:
            ready = self._prepare(job)
            record["device"] = str(ready.model.device)
            coordinates = [pl.lit(record[name]).alias(name) for name in COORDINATES]
            results: list[Result] = []
            frames: list[pl.DataFrame] = []
            for part in self._split(job, ready.model):
                result = self._evaluate(job, replace(ready, model=part.model), part, tell)
                results.append(result)
                # samples are numbered within the data set, and not within the part
                number = pl.col("sample") + part.rows.start
                frame = result.frame()
                frames.append(frame.select(*coordinates, number, pl.exclude("sample")))
            tensors = _join_tensors(results)
            record["seconds"] = time.perf_counter() - began
            choices = [f"{option} {chosen}" for option, chosen in results[0].choices.items()]
            record["choices"] = "; ".join(choices) or None
            # where no sample of a part was evaluated, a column may be missing
            return pack(record, pl.concat(frames, how="diagonal_relaxed"), tensors)
        except (Exception, SystemExit) as error:  # a model or explainer may call sys.exit
            record["seconds"] = time.perf_counter() - began
            return pack_failure(record, *describe_failure(error))
        finally:
            # also after a failure, as it may have changed the model before
            self._is_fresh = False
            if self._ready is not None and not self._ready.guard.clean_up(job.explainer):
                # it is built again, and has to prove that it is the planned model
                self._ready = self._passes = None
                self._suspect = job.explainer

    def _split(self, job: Job, model: Model) -> list[SamplesPart]:
        """The samples of a job that are evaluated together."""
        samples = self.grid.data[job.data]
        rows = slice(job.start, job.stop)
        compares_samples = self.grid.measured[job.label].samples_together is not None
        # texts of different lengths may be compared where the module runs them together
        if samples.lengths is not None and compares_samples and not model.extras:
            return [SamplesPart(model, rows)]
        return samples.split(model, rows)

    def _evaluate(
        self, job: Job, ready: _Ready, part: SamplesPart, tell: Callable[[float], None] | None
    ) -> Result:
        """The result of the metric for some samples of the job."""
        rows = part.rows
        extras = self.grid.data[job.data].extras
        metric = self.grid.measured[job.label].bind(extras=extras)
        metric = metric.bind(inputs=ready.inputs, rows=rows)
        explainer = self.grid.explainers[job.explainer]
        inputs = part.take(ready.inputs)
        share = _Share(
            expect=lambda: metric.cost(ready.model.classes).evaluations * (job.stop - job.start),
            rows_per_input=explainer.count_rows_of(inputs),
            tell=tell,
        )
        seed = job_seed(self.grid.seed, job.repeat)
        # an explainer of the user's may draw from the generators of the process: the same at each run, and put back
        seeded = seed_generators((seed + rows.start) % 2**63, ready.model.device)
        watched = ready.model.watch(share.add_inputs, share.add_rows)
        # whoever gave the job shows its progress
        with show_nothing(), watched, seeded, offer_memory(self._find_memory(job)):
            targets = None
            if ready.targets is not None:
                targets = ready.targets[rows]
            return metric(
                ready.model,
                explainer,
                inputs,
                targets,
                generator=torch.Generator().manual_seed(seed),
            )

    def _find_memory(self, job: Job) -> PassMemory | None:
        """What earlier jobs remember for this one; None if no other explainer of the metric has the same passes."""
        same = [
            self.grid.explainers[name]
            for name in self.grid.explainers_of(self.grid.measured[job.label])
        ]
        shared_pass = self.grid.explainers[job.explainer].shared_pass
        # alone it would keep passes that nobody asks for
        explainers_of_pass = [other for other in same if other.shared_pass == shared_pass]
        if shared_pass is None or len(explainers_of_pass) < 2:
            return None
        coordinates = (job.data, job.model, job.label, job.repeat, job.start, job.stop)
        if self._passes is None or self._passes[0] != coordinates:
            # memory of other samples is of no use, and would stay
            self._passes = coordinates, PassMemory()
        return self._passes[1]

    def _prepare(self, job: Job) -> _Ready:
        """The model of the job, which has proved that it is the planned one.

        Raises:
            ModelError: it is another one than the jobs were planned with.
        """
        is_other = True
        if self._ready is not None:
            is_other = (self._ready.data, self._ready.name) != (job.data, job.model)
        if self._ready is None or is_other:
            self._ready = None  # before another model takes memory
            samples = self.grid.data[job.data]
            model = self.grid.models[job.model].model(samples, self.grid.device)
            tried = self._find_tried(job, model)
            checked = None
            if tried is not None:
                checked = tried.inputs
            inputs, targets = inputs_for(model, samples, checked)
            # before the model is asked: other code could do anything
            self._prove_code()
            # what has answered in this process before any job needs no proof
            if tried is None or not self._is_fresh:
                self._prove(job, model, inputs)
            first = samples.find_first(model)
            guard = Guard(first.model, first.take(inputs))
            self._ready = _Ready(
                job.data, job.model, model.with_reference(inputs), inputs, targets, guard
            )
        return self._ready

    def _find_tried(self, job: Job, model: Model) -> Tried | None:
        """What is known of a model that was asked in this process; None for other ones."""
        tried = self.grid.tried.get((job.data, job.model))
        if tried is not None and tried.model is model:
            return tried
        return None

    def _prove_code(self) -> None:
        """Compare the user's modules with those of the plan."""
        if not isinstance(self.grid, PlannedGrid):
            return
        planned_code = self.grid.code
        # to read the modules takes long where there are many
        current_code = read_own_modules() if planned_code else {}
        changed = [
            # a module that is not imported here cannot have been used
            name
            for name, code in planned_code.items()
            if current_code.get(name, code) != code
        ]
        if changed:
            raise ModelError(
                f"{', '.join(changed)}: changed since the jobs were planned; run the study again in a new process"
            )

    def _prove(self, job: Job, model: Model, inputs: Tensor) -> None:
        """Compare the model with that of the plan."""
        # a grid that was not planned has nothing to compare with
        if isinstance(self.grid, PlannedGrid):
            planned_answers = self.grid.planned_answers
        else:
            planned_answers = {}
        planned = planned_answers.get((job.data, job.model))
        # without answers nothing can be compared, as of a model that fails
        if planned is None or not planned.numbers:
            return
        parts = self.grid.data[job.data].split_answered(model, slice(0, _PROVED))
        answers_of_parts = [ask_model(part.model, part.take(inputs)) for part in parts]
        answers = AnswerNumbers.join(answers_of_parts)
        different = planned.find_difference(answers, model.precision)
        if different:
            raise ModelError(
                f"model {job.model!r}: its answers ({different}) are not those of the model that the jobs were planned"
                f" with{self._explain_difference()}"
            )

    def _explain_difference(self) -> str:
        """Why a model may have other answers than when the jobs were planned, and what to do: the end of a sentence."""
        if self._suspect is None:
            return (
                ". Does its builder make another model each time, or from a file that has changed? Seed all generators"
                " that it uses, such as numpy.random.default_rng(0)"
            )
        return (
            f", since explainer {self._suspect!r} has changed something in this process that could not be undone. With"
            " two workers or more, or in a study of its own, it cannot harm other explainers"
        )
