"""Plain Monte Carlo, for events that are not too rare, with exact intervals: a fixed number of draws, or as many as
an error needs."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import Levels, RareEventEstimate, Score, as_columns
from standfast.algorithms.rare_events.pooling import select
from standfast.algorithms.rare_events.population import Population, order_keys, sort_by_key
from standfast.errors import check_integer
from standfast.neighbourhoods import Region
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import draw_seed, send

#: numbers of draws after which hits are counted, each with the fewest hits that end the draws
Looks = tuple[tuple[int, int], ...]

_BLOCK = 1000  # samples drawn at once for each problem: a fixed number, so that results do not depend on memory
_STATE_ELEMENTS = 1 << 26
_GROWTH = 0.59  # the draws of each look over those of the next
_LOOKED = 24  # the first look has at least that part of the draws of the last


def monte_carlo(
    score: Score,
    prior: Region,
    samples: int = 10_000,
    generator: torch.Generator | None = None,
    indexed: bool = False,
) -> RareEventEstimate:
    """Estimate `ln P(score(x) >= 0)` by the share of hits among independent samples.

    Arguments and result are those of `SubsetSimulation`. Without a hit the estimate is `censored`, and
    `log_probability` is the upper end of the 95% Clopper-Pearson interval.

    >>> from standfast.algorithms import UnitBox
    >>> estimate = monte_carlo(lambda x: x[:, 0] - 0.75, UnitBox(2), samples=10_000)
    >>> bool((estimate.log_probability.exp() - 0.25).abs() < 0.02)
    True
    """
    check_integer(samples, "samples")
    seed = draw_seed(generator)
    elements_of_block = _BLOCK * math.prod(prior.shape)
    size = max(1, _STATE_ELEMENTS // elements_of_block)
    device = prior.device
    hits = torch.zeros(len(prior), dtype=torch.int64, device=device)
    shape = (len(prior), *prior.shape)
    extreme = torch.empty(shape, dtype=prior.dtype, device=device)
    problems = torch.arange(len(prior), device=device)
    with torch.no_grad():
        for rows in torch.split(problems, size):
            part = prior.select(rows)
            streams = part.streams(seed)
            highest = torch.full((len(rows),), -torch.inf, dtype=torch.float64, device=device)
            for start in range(0, samples, _BLOCK):
                points = part.sample(min(_BLOCK, samples - start), streams)
                count = points.shape[1]
                flat = points.flatten(0, 1)
                if indexed:
                    values = score(flat, rows.repeat_interleave(count))
                else:
                    values = score(flat)
                # the event has happened where all columns are at least 0, so the lowest decides
                columns = as_columns(values, len(flat))
                lowest = columns.amin(1).reshape(len(rows), count)
                hits[rows] += (lowest >= 0).sum(1)
                top, best = lowest.max(1)
                higher = top > highest
                # the first block always counts, so that a problem has a point even if all scores are minus infinity
                if not start:
                    higher = torch.ones_like(higher)
                extreme[rows[higher]] = points[higher, best[higher]]
                highest = torch.maximum(highest, top)
    return _estimate(hits, samples, extreme)


def plan_looks(most: int, error: float) -> Looks:
    """After how many draws hits are counted, `most` at last, and how many of them have at most this standard error.

    The standard error of ln P is about `sqrt((1 - p) / (n p))`, with a share p of n draws.

    >>> plan_looks(8000, 0.15)[-3:]
    ((2785, 44), (4720, 45), (8000, 45))
    >>> plan_looks(4, 0.15)
    ((1, 1), (2, 2), (4, 4))
    """
    draws = [most]
    while _GROWTH * draws[0] > max(1.0, most / _LOOKED):
        draws.insert(0, round(_GROWTH * draws[0]))
    looks = []
    for n in draws:
        if n:
            # error^2 = (1 - p) / (n p), solved for the number of hits n p
            hits = n / (1 + n * error**2)
            looks.append((n, math.ceil(hits)))
    return tuple(looks)


def draw_until_known(population: Population, looks: Looks) -> dict[int, RareEventEstimate]:
    """Draw for each problem until enough hits are counted at one of these looks.

    Returns:
        The estimates of these problems by their numbers. The population keeps the others, with all of their draws.
    """
    estimates: dict[int, RareEventEstimate] = {}
    for draws, fewest in looks:
        population.draw(draws - population.count)
        lowest = population.scores.amin(2)
        hits = (lowest >= 0).sum(1)
        have_enough = (hits >= fewest).tolist()
        rows = [row for row, is_enough in enumerate(have_enough) if is_enough]
        if not rows:
            continue
        highest = lowest[rows].argmax(1)
        extreme = population.select_points(send(rows, hits.device), highest)
        stages, values = (key[rows].cpu() for key in order_keys(population.scores))
        last = population.scores.shape[2]
        levels = []
        for stages_of_row, values_of_row in zip(stages, values, strict=True):
            levels.append(_read_levels(stages_of_row, values_of_row, last))
        estimate = _estimate(hits[rows], draws, extreme)
        of_rows = replace(estimate, levels=tuple(levels), looks=looks)
        for number, row in enumerate(rows):
            estimates[int(population.problems[row])] = select(of_rows, number)
        if all(have_enough):
            break
        population.keep([row for row, is_enough in enumerate(have_enough) if not is_enough])
    return estimates


def _estimate(hits: Tensor, samples: int, extreme: Tensor) -> RareEventEstimate:
    """The estimates from these hits `(P,)` in as many draws each."""
    device = hits.device
    share = hits.double() / samples
    none = hits == 0
    log_share = share.log()
    relative_error = ((1 - share) / (share * samples)).sqrt()
    # where nothing was hit, P is at most the upper end of its interval
    largest = [proportion_interval(count, samples, 0.95)[1] for count in hits.tolist()]
    log_largest = send(largest, device, torch.float64).log()
    return RareEventEstimate(
        log_probability=torch.where(none, log_largest, log_share),
        own_error=torch.where(none, torch.nan, relative_error),
        censored=none,
        resolved=torch.ones_like(none),
        stalled=torch.zeros_like(none),
        acceptance=torch.full(hits.shape, torch.nan, device=device),
        model_evaluations=torch.full_like(hits, samples),
        levels=(),
        extreme=extreme,
        degrees=torch.full(hits.shape, torch.inf, dtype=torch.float64, device=device),
        hits=hits,
        samples=torch.full_like(hits, samples),
    )


def _read_levels(stages: Tensor, values: Tensor, last: int) -> Levels:
    """The levels that 1/2, 1/4, ... of one problem's draws are above, and the ends of its stages."""
    count = len(stages)
    order = sort_by_key(stages, values)
    # the stage, the threshold, and how many draws are above it
    marks: list[tuple[int, float, int]] = []
    for stage in range(1, last + 1):
        crossed = int((stages >= stage).sum())
        marks.append((stage - 1, 0.0, crossed))
    _, _, in_event = marks[-1]
    kept = count // 2
    while kept > in_event:
        lowest = order[count - kept]
        stage = int(stages[lowest])
        value = float(values[lowest])
        is_further = stages > stage
        is_above = (stages == stage) & (values >= value)
        marks.append((stage, value, int((is_further | is_above).sum())))
        kept //= 2
    marks = [mark for mark in marks if mark[1] > -math.inf]
    marks.sort(key=lambda mark: (-mark[2], mark[0]))
    stage_of_marks, thresholds, kept_by_marks = zip(*marks, strict=True)
    families = torch.tensor(kept_by_marks, dtype=torch.float64)
    share = families / count
    return Levels(
        stage=torch.tensor(stage_of_marks),
        threshold=torch.tensor(thresholds, dtype=torch.float64),
        log_probability=share.log(),
        std_error=((1 - share) / (share * count)).sqrt(),
        acceptance=torch.full_like(share, torch.nan, dtype=torch.float32),
        families=families,
        independent=families,
        degrees=torch.full_like(share, torch.inf),
    )
