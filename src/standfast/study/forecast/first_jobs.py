"""The first jobs: those of the first samples that take little time. They show what the others will take."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from standfast.study.forecast.estimate import Basis, Estimate, EstimateLine
from standfast.study.jobs import Job

#: a job that takes more than this share of the time is long, and comes after the others of its turn
LONG = 1 / 10

#: seconds of a job, as they are forecast; NaN if that is not known
ForecastJob = Callable[[Job], float]


class _Place(NamedTuple):
    """What has a line in an estimate."""

    data: str
    model: str
    label: str
    explainer: str


def is_rough(estimate: Estimate) -> bool:
    """Whether some times follow from those of single explanations, or of the model alone."""
    return any(line.basis in ("explanations", "model") for line in estimate.lines)


def sort_jobs(
    jobs: Sequence[Job], unknown: Sequence[str], is_long: Callable[[Job], bool] | None = None
) -> list[Job]:
    """Jobs in the order in which they are worth most if the time ends between two of them: the first samples first.

    Several models take turns, but not after each sample, since each turn builds a model: the first sample of each, then
    two samples more, four more, and so on. In a turn, long jobs come after the others, so that one that does not end
    takes nothing from them. Metrics of which nobody knows what they cost come last.
    """
    models = list(dict.fromkeys((job.data, job.model) for job in jobs))

    def find_place(job: Job) -> tuple[int, int, int, bool, int, bool]:
        # 0, 1, 2 to 3, 4 to 7 and so on: each turn has as many samples as all before
        turn = job.start.bit_length()
        model = models.index((job.data, job.model))
        comes_late = is_long is not None and is_long(job)
        is_unknown = job.label in unknown
        return job.repeat, turn, model, comes_late, job.start, is_unknown

    return sorted(jobs, key=find_place)


def find_first_jobs(jobs: Sequence[Job], is_long: Callable[[Job], bool]) -> list[Job]:
    """The jobs of the first samples that are not long; if all of them are, the first one."""
    of_first_samples = []
    for job in jobs:
        if job.start == 0 and job.repeat == 0:
            of_first_samples.append(job)
    short = [job for job in of_first_samples if not is_long(job)]
    return short or of_first_samples[:1]


def learn(
    estimate: Estimate, jobs: Sequence[Job], spent: Mapping[str, float], forecast_job: ForecastJob
) -> Estimate:
    """The estimate, corrected by what some jobs took.

    What is not known of a metric with an explainer is between the forecast and what other explainers of the metric
    say: searches fill batches of few rows up, which explainers of many rows do not need. So the factor is the root of
    theirs.

    Args:
        estimate: of all jobs.
        jobs: some of them.
        spent: seconds that they took, by their identities.
        forecast_job: what the estimate says of each.
    """
    quotients = _compare(jobs, spent, forecast_job)
    corrected: list[EstimateLine] = []
    for line in estimate.lines:
        line_place = _Place(line.data, line.model, line.label, line.explainer)
        if line_place in quotients:
            corrected.append(_scale(line, quotients[line_place], "trial"))
        else:
            factor = _guess_quotient(line_place, quotients)
            corrected.append(_scale(line, factor, line.basis))
    return replace(estimate, lines=tuple(corrected))


def _compare(
    jobs: Sequence[Job], spent: Mapping[str, float], forecast_job: ForecastJob
) -> dict[_Place, float]:
    """How many times as long jobs took as was forecast, for each place that has some."""
    spent_at: dict[_Place, float] = {}
    forecast_at: dict[_Place, float] = {}
    for job in jobs:
        forecast = forecast_job(job)
        seconds = spent.get(job.identity, 0.0)
        # what has no forecast, or was not run, has no quotient
        if forecast > 0 and seconds > 0:
            cell = _Place(job.data, job.model, job.label, job.explainer)
            spent_at[cell] = spent_at.get(cell, 0.0) + seconds
            forecast_at[cell] = forecast_at.get(cell, 0.0) + forecast
    return {cell: spent_at[cell] / forecast_at[cell] for cell in spent_at}


def _guess_quotient(cell: _Place, quotients: Mapping[_Place, float]) -> float:
    """The root of the geometric mean of other explainers' quotients by the same metric; 1 where there are none."""
    logarithms: list[float] = []
    for other, quotient in quotients.items():
        # all but the explainer
        if other[:3] == cell[:3]:
            logarithms.append(math.log(quotient))
    if not logarithms:
        return 1.0
    # half of the logarithm is the root
    return math.exp(statistics.fmean(logarithms) / 2)


def _scale(line: EstimateLine, factor: float, basis: Basis) -> EstimateLine:
    """The line with a multiple of its seconds."""
    seconds = factor * line.seconds
    start = factor * line.start
    return replace(line, seconds=seconds, start=start, basis=basis)
