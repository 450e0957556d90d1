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
        waiting: dict[int, list[int]] = {}
        for problem, own in enumerate(runs):
            pooled, size = pool(own, sizes[problem]), sizes[problem][-1]
            if bool(pooled.resolved) and not float(pooled.std_error) > error:  # no error: the floor was reached
                continue
            grown = size if bool(pooled.resolved) else 2 * size
            spent = int(pooled.model_evaluations)
            expected = spent + int(own[-1].model_evaluations) * grown / size
            if expected <= budget:
                waiting.setdefault(grown, []).append(problem)
        if not waiting:
            break
        for size, problems in waiting.items():
            left = [budget - sum(int(run.model_evaluations) for run in runs[p]) for p in problems]
            found = simulate(problems, size, left, number)
            for row, problem in enumerate(problems):
                runs[problem].append(select(found, row))
                sizes[problem].append(size)
    return concatenate([pool(own, size) for own, size in zip(runs, sizes, strict=True)])


def pool(runs: Sequence[RareEventEstimate], sizes: Sequence[int]) -> RareEventEstimate:
    """One estimate from several runs of one problem, with so many particles each.

    P is the mean over the resolved runs of the largest size; a run that reached the floor counts as 0. Its standard
    error follows from theirs, or from the spread between three or more runs where that is larger. If their intervals
    have no common point, the result is not resolved, and its interval contains all of them. If no run is resolved, the
    largest one is returned.
    """
    evaluations = torch.stack([run.model_evaluations for run in runs]).sum(0)
    resolved = [i for i, run in enumerate(runs) if bool(run.resolved)]
    if not resolved:
        last = max(range(len(runs)), key=lambda i: (not bool(runs[i].censored), sizes[i], i))
        return replace(runs[last], model_evaluations=evaluations)
    size = max(sizes[i] for i in resolved)
    used = [runs[i] for i in resolved if sizes[i] == size]
    reached = [run for run in used if not bool(run.censored)]
    if len(used) == 1 or not reached:
        return replace(used[-1], model_evaluations=evaluations)
    values = torch.cat([run.log_probability for run in reached]).cpu()
    errors = torch.cat([run.own_error for run in reached]).cpu()
    total = torch.logsumexp(values, 0)
    share = torch.zeros(len(used), dtype=torch.float64)  # of each run in the sum
    share[: len(reached)] = (values - total).exp()
    parts = (share[: len(reached)] * errors) ** 2
    degrees = torch.cat([run.degrees for run in reached]).cpu()
    variance, freedom = parts.sum(), parts.sum() ** 2 / (parts**2 / degrees).sum()
    spread = len(used) * share.var()  # relative variance of the mean
    if len(used) >= _FEWEST_FOR_SPREAD and spread > variance:
        variance, freedom = spread, torch.tensor(len(used) - 1.0, dtype=torch.float64)
    ends = torch.cat([run.interval(AGREEMENT) for run in used])
    device = evaluations.device
    best = max(reached, key=lambda run: float(run.log_probability))
    from_event, from_event_error, from_witnesses = _pool_from_event(reached)
    pooled = replace(
        reached[-1],
        log_probability=(total - math.log(len(used)))[None].to(device),
        own_error=variance.sqrt()[None].to(device),
        degrees=freedom[None].to(device),
        resolved=(ends[:, 0].max() <= ends[:, 1].min())[None].to(device),
        acceptance=torch.stack([run.acceptance for run in used]).mean(0),
        model_evaluations=evaluations,
        extreme=best.extreme,
        runs=(tuple(used),),
        from_event=from_event,
        from_event_error=from_event_error,
        from_witnesses=from_witnesses,
    )
    return replace(pooled, resolved=pooled.resolved & ~pooled.contradicts(AGREEMENT))


def _pool_from_event(runs: Sequence[RareEventEstimate]) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """The logarithm of the mean of P from the event, over the runs that have it, its standard error, and whether all
    of these runs started at witnesses."""
    names = ("from_event", "from_event_error", "from_witnesses")
    known = [run for run in runs if run.from_event is not None and not bool(run.from_event.isnan())]
    if not known:
        return runs[-1].from_event, runs[-1].from_event_error, runs[-1].from_witnesses
    values, errors, seen = (torch.cat([getattr(run, name) for run in known]) for name in names)
    total = torch.logsumexp(values, 0, keepdim=True)
    error = ((values - total).exp() * errors).square().sum(0, keepdim=True).sqrt()
    return total - math.log(len(known)), error, seen.all(0, keepdim=True)


def select(estimate: RareEventEstimate, row: int) -> RareEventEstimate:
    """The estimate of one of the problems."""
    chosen = {f.name: getattr(estimate, f.name) for f in fields(estimate)}
    chosen = {
        name: value[row : row + 1] if isinstance(value, Tensor | tuple) and name != "looks" else value
        for name, value in chosen.items()
    }
    return RareEventEstimate(**chosen)


def move(estimate: RareEventEstimate, device: torch.device) -> RareEventEstimate:
    """The same estimate on another device, of which a loop over problems may read without a wait."""
    tensors = {f.name: getattr(estimate, f.name) for f in fields(estimate)}
    moved: dict[str, Any] = {name: send(own, device) for name, own in tensors.items() if isinstance(own, Tensor)}
    return replace(estimate, **moved)


def concatenate(parts: Sequence[RareEventEstimate]) -> RareEventEstimate:
    """The estimates of the problems of all parts, one after the other."""
    if len(parts) == 1:
        return parts[0]
    joined: dict[str, object] = {}
    for f in fields(RareEventEstimate):
        values = [getattr(part, f.name) for part in parts]
        if isinstance(values[0], Tensor):
            joined[f.name] = torch.cat(values)
        elif f.name == "runs":
            joined[f.name] = tuple(own for part in parts for own in part.runs or ((),) * len(part.censored))
        elif isinstance(values[0], tuple) and f.name != "looks":
            joined[f.name] = sum(values, ())
        else:
            joined[f.name] = values[0]
    return RareEventEstimate(**joined)  # type: ignore[arg-type]
