"""The first jobs: those of the first samples that take little time. They show what the others will take."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from standfast.study.forecast.estimate import Estimate, Line
from standfast.study.plan import Job

#: a job that takes more than this share of the time is long, and comes after the others of its turn
LONG = 1 / 10

#: data, model, explainer and label
_Place = tuple[str, str, str, str]
#: seconds of a job, as they are forecast; NaN if that is not known
ForecastJob = Callable[[Job], float]


def is_rough(estimate: Estimate) -> bool:
    """Whether some times follow from those of single explanations, or of the model alone."""
    return any(line.basis in ("explanations", "model") for line in estimate.lines)


def sort_jobs(jobs: Sequence[Job], unknown: Sequence[str], is_long: Callable[[Job], bool] | None = None) -> list[Job]:
    """Jobs in the order in which they are worth most if the time ends between two of them: the first samples first.

    Several models take turns, but not after each sample, since each turn builds a model: the first sample of each, then
    two samples more, four more, and so on. In a turn, long jobs come after the others, so that one that does not end
    takes nothing from them. Metrics of which nobody knows what they cost come last.
    """
    models = list(dict.fromkeys((job.data, job.model) for job in jobs))

    def find_place(job: Job) -> tuple[int, int, int, bool, int, bool]:
        turn = job.start.bit_length()
        comes_late = is_long is not None and is_long(job)
        return job.repeat, turn, models.index((job.data, job.model)), comes_late, job.start, job.label in unknown

    return sorted(jobs, key=find_place)


def find_first_jobs(jobs: Sequence[Job], is_long: Callable[[Job], bool]) -> list[Job]:
    """The jobs of the first samples that are not long; if all of them are, the first one."""
    of_first_samples = [job for job in jobs if job.start == 0 and job.repeat == 0]
    short = [job for job in of_first_samples if not is_long(job)]
    return short or of_first_samples[:1]


def learn(estimate: Estimate, jobs: Sequence[Job], spent: Mapping[str, float], forecast_job: ForecastJob) -> Estimate:
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
    corrected: list[Line] = []
    for line in estimate.lines:
        place = line.data, line.model, line.explainer, line.label
        if place in quotients:
            corrected.append(_scale(line, quotients[place], is_measured=True))
            continue
        logarithms = [math.log(quotient) for other, quotient in quotients.items() if _is_related(place, other)]
        mean = math.fsum(logarithms) / max(len(logarithms), 1)
        corrected.append(_scale(line, math.exp(mean / 2), is_measured=False))
    return replace(estimate, lines=tuple(corrected))


def _compare(jobs: Sequence[Job], spent: Mapping[str, float], forecast_job: ForecastJob) -> dict[_Place, float]:
    """Of each data set, model, explainer and metric how many times as long its jobs took as was forecast."""
    spent_at: dict[_Place, float] = {}
    forecast_at: dict[_Place, float] = {}
    for job in jobs:
        forecast = forecast_job(job)
        if job.identity not in spent or not forecast > 0:
            continue
        place = job.data, job.model, job.explainer, job.label
        spent_at[place] = spent_at.get(place, 0.0) + spent[job.identity]
        forecast_at[place] = forecast_at.get(place, 0.0) + forecast
    return {place: spent_at[place] / forecast_at[place] for place in spent_at if spent_at[place] > 0}


def _is_related(place: _Place, other: _Place) -> bool:
    """Whether both are of the same data, model and metric."""
    return (place[0], place[1], place[3]) == (other[0], other[1], other[3])


def _scale(line: Line, factor: float, is_measured: bool) -> Line:
    """The line with a multiple of its seconds."""
    basis = "trial" if is_measured else line.basis
    return replace(line, seconds=factor * line.seconds, start=factor * line.start, basis=basis)
