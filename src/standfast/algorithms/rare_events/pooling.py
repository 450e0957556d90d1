"""Several independent runs on one problem, pooled on P, until an error or a budget is reached."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import RareEventEstimate
from standfast.tensors import send

MOST_RUNS = 20
#: runs or directions whose intervals at this level have no common point contradict each other
AGREEMENT = 0.999
#: with that many runs their spread is compared with their own standard errors
_FEWEST_FOR_SPREAD = 3

#: `simulate(problems, particles, budgets, run)` gives one run's estimates of these problems
Simulate = Callable[[list[int], int, list[float], int], RareEventEstimate]


def run_until(
    simulate: Simulate, first: RareEventEstimate, particles: int, error: float, budget: float
) -> RareEventEstimate:
    """Repeat runs until each problem has a standard error of at most `error`, or has used its `budget`.

    A problem that is not resolved gets twice as many particles in the next run; one whose error is too large gets
    another run of the same size. There are at most 20 runs. Problems do not influence each other.

    Args:
        first: the estimates of the first runs, which had so many `particles`.
    """
    count = len(first.censored)
    runs = [[select(first, row)] for row in range(count)]
    sizes = [[particles] for _ in range(count)]
    for number in range(1, MOST_RUNS):
        problems_of_size: dict[int, list[int]] = {}
        for problem in range(count):
            size = _plan_next(runs[problem], sizes[problem], error, budget)
            if size is not None:
                problems_of_size.setdefault(size, []).append(problem)
        if not problems_of_size:
            break
        for size, problems in problems_of_size.items():
            budgets = []
            for problem in problems:
                spent = sum(int(run.model_evaluations) for run in runs[problem])
                budgets.append(budget - spent)
            estimates = simulate(problems, size, budgets, number)
            for row, problem in enumerate(problems):
                runs[problem].append(select(estimates, row))
                sizes[problem].append(size)
    pooled = []
    for runs_of_problem, sizes_of_problem in zip(runs, sizes, strict=True):
        pooled.append(pool(runs_of_problem, sizes_of_problem))
    return concatenate(pooled)


def _plan_next(
    runs: Sequence[RareEventEstimate], sizes: Sequence[int], error: float, budget: float
) -> int | None:
    """How many particles the next run of a problem has; None where it is done, or another run would cost too much."""
    pooled = pool(runs, sizes)
    size = sizes[-1]
    is_resolved = bool(pooled.resolved)
    if is_resolved and not float(pooled.std_error) > error:  # no error: the floor was reached
        return None
    next_size = size if is_resolved else 2 * size
    cost = int(runs[-1].model_evaluations) * next_size / size
    if int(pooled.model_evaluations) + cost <= budget:
        return next_size
    return None


def pool(runs: Sequence[RareEventEstimate], sizes: Sequence[int]) -> RareEventEstimate:
    """One estimate from several runs of one problem, with so many particles each.

    P is the mean over the resolved runs of the largest size; a run that reached the floor counts as 0. Its standard
    error follows from theirs, or from the spread between three or more runs where that is larger. If their intervals
    have no common point, the result is not resolved, and its interval contains all of them. If no run is resolved, the
    largest one is returned.
    """
    evaluations = torch.stack([run.model_evaluations for run in runs]).sum(0)
    resolved = [number for number, run in enumerate(runs) if bool(run.resolved)]
    if not resolved:
        return replace(_choose_unresolved(runs, sizes), model_evaluations=evaluations)
    size = max(sizes[number] for number in resolved)
    used = [runs[number] for number in resolved if sizes[number] == size]
    reached = [run for run in used if not bool(run.censored)]
    if len(used) == 1 or not reached:
        return replace(used[-1], model_evaluations=evaluations)
    mean, error, degrees = _pool_errors(reached, len(used))
    ends = torch.cat([run.interval(AGREEMENT) for run in used])
    highest_low_end = ends[:, 0].max()
    lowest_high_end = ends[:, 1].min()
    have_common_point = (highest_low_end <= lowest_high_end)[None]
    acceptance = torch.stack([run.acceptance for run in used]).mean(0)
    device = evaluations.device
    best = max(reached, key=lambda run: float(run.log_probability))
    from_event, from_event_error, from_witnesses = _pool_from_event(reached)
    pooled = replace(
        reached[-1],
        log_probability=mean.to(device),
        own_error=error.to(device),
        degrees=degrees.to(device),
        resolved=have_common_point.to(device),
        acceptance=acceptance,
        model_evaluations=evaluations,
        extreme=best.extreme,
        runs=(tuple(used),),
        from_event=from_event,
        from_event_error=from_event_error,
        from_witnesses=from_witnesses,
    )
    is_consistent = ~pooled.contradicts(AGREEMENT)
    return replace(pooled, resolved=pooled.resolved & is_consistent)


def _choose_unresolved(
    runs: Sequence[RareEventEstimate], sizes: Sequence[int]
) -> RareEventEstimate:
    """Of runs that are all not resolved: one that reached the event, of these the largest, of these the last."""
    best = (False, 0, 0)
    for number, (run, size) in enumerate(zip(runs, sizes, strict=True)):
        has_reached = not bool(run.censored)
        best = max(best, (has_reached, size, number))
    return runs[best[2]]


def _pool_errors(reached: Sequence[RareEventEstimate], count: int) -> tuple[Tensor, Tensor, Tensor]:
    """The logarithm of the mean of P over so many runs, of which the others reached the floor and count as 0.

    Returns:
        The mean, its standard error and the degrees of freedom of that, `(1,)` each, on the host.
    """
    values = torch.cat([run.log_probability for run in reached]).cpu()
    errors = torch.cat([run.own_error for run in reached]).cpu()
    degrees = torch.cat([run.degrees for run in reached]).cpu()
    total = torch.logsumexp(values, 0)
    shares_of_reached = (values - total).exp()
    shares = torch.zeros(count, dtype=torch.float64)  # of each run in the sum
    shares[: len(reached)] = shares_of_reached
    parts = (shares_of_reached * errors) ** 2
    # Welch and Satterthwaite's degrees of freedom of a sum of independent variances
    variance = parts.sum()
    freedom = variance**2 / (parts**2 / degrees).sum()
    spread = count * shares.var()  # relative variance of the mean
    if count >= _FEWEST_FOR_SPREAD and spread > variance:
        variance = spread
        freedom = torch.tensor(count - 1.0, dtype=torch.float64)
    mean = total - math.log(count)
    return mean[None], variance.sqrt()[None], freedom[None]


def _pool_from_event(
    runs: Sequence[RareEventEstimate],
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The logarithm of the mean of P from the event, over the runs that have it, its standard error, and whether all
    of these runs started at witnesses."""
    with_way_back = []
    for run in runs:
        if run.from_event is not None and not bool(run.from_event.isnan()):
            with_way_back.append(run)
    if not with_way_back:
        last = runs[-1]
        return last.from_event, last.from_event_error, last.from_witnesses

    def join(name: str) -> Tensor:
        return torch.cat([getattr(run, name) for run in with_way_back])

    values = join("from_event")
    errors = join("from_event_error")
    at_witnesses = join("from_witnesses")
    total = torch.logsumexp(values, 0, keepdim=True)
    shares = (values - total).exp()
    error = (shares * errors).square().sum(0, keepdim=True).sqrt()
    return total - math.log(len(with_way_back)), error, at_witnesses.all(0, keepdim=True)


def select(estimate: RareEventEstimate, row: int) -> RareEventEstimate:
    """The estimate of one of the problems."""
    chosen: dict[str, Any] = {}
    for field in fields(estimate):
        value = getattr(estimate, field.name)
        is_by_problem = isinstance(value, Tensor | tuple) and field.name != "looks"
        if is_by_problem:
            value = value[row : row + 1]
        chosen[field.name] = value
    return RareEventEstimate(**chosen)


def move(estimate: RareEventEstimate, device: torch.device) -> RareEventEstimate:
    """The same estimate on another device, of which a loop over problems may read without a wait."""
    tensors: dict[str, Any] = {}
    for field in fields(estimate):
        value = getattr(estimate, field.name)
        if isinstance(value, Tensor):
            tensors[field.name] = send(value, device)
    return replace(estimate, **tensors)


def concatenate(parts: Sequence[RareEventEstimate]) -> RareEventEstimate:
    """The estimates of the problems of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, Any] = {}
    for field in fields(RareEventEstimate):
        values = [getattr(part, field.name) for part in parts]
        if isinstance(values[0], Tensor):
            joined[field.name] = torch.cat(values)
        elif field.name == "runs":  # empty where a problem had one run
            runs_of_problems: list[tuple[RareEventEstimate, ...]] = []
            for part in parts:
                runs_of_problems.extend(part.runs or ((),) * len(part.censored))
            joined[field.name] = tuple(runs_of_problems)
        elif isinstance(values[0], tuple) and field.name != "looks":
            joined[field.name] = sum(values, ())
        else:
            joined[field.name] = values[0]
    return RareEventEstimate(**joined)
