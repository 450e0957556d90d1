"""Plain Monte Carlo: the baseline for events that are not too rare, with exact intervals."""

from __future__ import annotations

import math

import torch

from standfast.algorithms.rare_events.estimate import RareEventEstimate, Score, as_columns, clopper_pearson
from standfast.errors import check_integer
from standfast.neighbourhoods import Region
from standfast.tensors import draw_seed

_BLOCK = 1000  # samples drawn at once for each problem: a fixed number, so that results do not depend on memory
_STATE_ELEMENTS = 1 << 26


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
    size = max(1, _STATE_ELEMENTS // (_BLOCK * math.prod(prior.shape)))
    hits = torch.zeros(len(prior), dtype=torch.int64, device=prior.device)
    extreme = torch.empty((len(prior), *prior.shape), dtype=prior.dtype, device=prior.device)
    with torch.no_grad():
        for rows in torch.split(torch.arange(len(prior), device=prior.device), size):
            part = prior.select(rows)
            streams = part.streams(seed)
            highest = torch.full((len(rows),), -torch.inf, dtype=torch.float64, device=prior.device)
            for start in range(0, samples, _BLOCK):
                points = part.sample(min(_BLOCK, samples - start), streams)
                count = points.shape[1]
                flat = points.flatten(0, 1)
                values = score(flat, rows.repeat_interleave(count)) if indexed else score(flat)
                lowest = as_columns(values, len(flat)).amin(1).reshape(len(rows), count)
                hits[rows] += (lowest >= 0).sum(1)
                top, best = lowest.max(1)
                found = top > highest
                if start == 0:
                    found = torch.ones_like(found)
                extreme[rows[found]] = points[found, best[found]]
                highest = torch.maximum(highest, top)
    share = hits.double() / samples
    none = hits == 0
    return RareEventEstimate(
        log_probability=torch.where(none, clopper_pearson(hits, samples, 0.95)[:, 1], share.log()),
        own_error=torch.where(none, torch.nan, ((1 - share) / (share * samples)).sqrt()),
        censored=none,
        resolved=torch.ones_like(none),
        stalled=torch.zeros_like(none),
        acceptance=torch.full(hits.shape, torch.nan, device=hits.device),
        model_evaluations=torch.full_like(hits, samples),
        levels=(),
        extreme=extreme,
        degrees=torch.full(hits.shape, torch.inf, dtype=torch.float64, device=hits.device),
        hits=hits,
        samples=samples,
    )
