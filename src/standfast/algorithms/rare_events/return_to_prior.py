"""ln P from the event back to the prior: a check of subset simulation, whose errors go the other way.

    P = prod_i P(score >= L_i | score >= L_{i-1})

Subset simulation goes from the prior to the event, and a mode that its particles lose makes P too small. Here particles
start in the event and go back through the same levels `L_i`. In each level they make `moves` Metropolis steps, and the
share of them that is still at or above the next higher level estimates that level's factor.

Particles that have not moved enough are still too high, so P comes out too large: if x is drawn from the distribution
within `L_i`, and moves by an even number k of steps of a reversible kernel within `L_{i-1}`, the mean of the share is
`||K^{k/2} f||^2 / ||f||_1 >= P(L_i | L_{i-1})` with f the indicator of `L_i`. (Steps that adapt, or that take turns
with blocks, are not exactly such a kernel.) Together both directions bracket ln P, as in Grosse, Ghahramani and Adams,
"Sandwiching the marginal likelihood using bidirectional Monte Carlo" (2015). Their argument needs exact draws of the
event. Here the particles are those of the last population, and witnesses, after some steps within the event. So this is
a check and not a proof. It cannot see a mode in which no particle starts.

Particles of the population and witnesses go back apart from each other (`join_groups`). In a joint group each share
would be a mean over both parts of the event. A witness in a part that gets rare faster than the others would make every
share too small, and P too.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from standfast.algorithms.rare_events.population import Population, is_within
from standfast.tensors import send

Level = tuple[int, float]  # the column of the score, and its threshold

_PRIOR: Level = (-1, 0.0)  # every score is above it


def estimate_from_event(
    population: Population, levels: Sequence[Sequence[Level]], moves: int, first_moves: int
) -> tuple[Tensor, Tensor]:
    """Estimate each problem's ln P from particles within its event.

    Args:
        population: the particles, all within the events.
        levels: of each problem, from the lowest to the event.
        moves: steps within each level.
        first_moves: steps within the event, before the first level.

    Returns:
        ln P and its standard error, both `(P,)`. The error takes each starting point as one observation, so starting
        points that are alike make it too small.
    """
    device = population.state.device
    total = len(population)
    # from the prior, which is the last level on the way back
    paths = [[_PRIOR, *levels_of_problem] for levels_of_problem in levels]
    active = list(range(total))
    count = population.count
    # `certain` is the variance of levels in which all or no particles are above
    logarithm, error, certain = torch.zeros((3, total), dtype=torch.float64, device=device)
    influence = torch.zeros((total, count), dtype=torch.float64, device=device)
    depth = 0  # how many levels the particles have gone back
    while active:
        levels_of_active = [paths[problem][-1 - depth] for problem in active]
        stage, value = _as_columns(levels_of_active, device)
        moves_of_level = moves if depth else first_moves
        population.move(moves_of_level, stage, value)
        if depth:
            levels_above = [paths[problem][-depth] for problem in active]
            stage_above, value_above = _as_columns(levels_above, device)
            inside = is_within(population.scores, stage_above, value_above).double()
            hits = inside.sum(1)
            # without a particle left above, half a particle is counted
            share = hits.clamp(min=0.5) / count
            # each start's influence on ln P (delta method), which adds up over the levels
            influence_of_level = inside.T / share - 1
            influence += torch.where(hits > 0, influence_of_level, 0.0).T
            # the variance of ln p for a beta law of hits + 1/2 and misses + 1/2: all or no hits show no spread
            of_hits = torch.polygamma(1, hits + 0.5)
            of_all = torch.polygamma(1, torch.full_like(hits, count + 1.0))
            shows_no_spread = (hits == 0) | (hits == count)
            certain[active] += torch.where(shows_no_spread, of_hits - of_all, 0.0)
            logarithm[active] += share.log()
            variance = influence.square().mean(1) / count
            error[active] = (variance + certain[active]).sqrt()
        depth += 1
        going_on = [row for row, problem in enumerate(active) if depth < len(paths[problem])]
        active = [active[row] for row in going_on]
        influence = influence[going_on]
        if active:
            population.keep(going_on)
    return logarithm, error


def join_groups(estimates: Sequence[tuple[Tensor, Tensor]], alike: Tensor) -> tuple[Tensor, Tensor]:
    """ln P and its standard error, both `(P,)`, from those of one or two groups of particles.

    If the groups A and B start in two parts of the event and meet at level L, they estimate `P(L) P_A / P_A(L)` and
    `P(L) P_B / P_B(L)`, where `P_A` is the probability of part A and `P_A(L)` that of what belongs to it within L. The
    larger one is at least `P(L) (P_A + P_B) / (P_A(L) + P_B(L))`, which lies between them. This is at least P, since no
    point of L belongs to both parts. So the larger one errs to the expected side, and is taken. Where both groups see
    the same parts, the larger of two noisy estimates is too large by half of their standard error, on average.

    Args:
        estimates: of each group, one or two.
        alike: `(P,)`, both groups started at the same particles: the mean of P is taken.
    """
    if len(estimates) == 1:
        return estimates[0]
    (value_a, error_a), (value_b, error_b) = estimates
    # torch's logaddexp and hypot have other last bits in other batches
    distance = (value_a - value_b).abs()
    larger = torch.maximum(value_a, value_b)
    log_sum = larger + torch.log1p(torch.exp(-distance))
    mean = log_sum - math.log(2)
    part_a = ((value_a - mean).exp() * error_a).square()
    part_b = ((value_b - mean).exp() * error_b).square()
    error_of_mean = (part_a + part_b).sqrt() / 2
    is_larger = value_b > value_a
    larger_value = torch.where(is_larger, value_b, value_a)
    error_of_larger = torch.where(is_larger, error_b, error_a)
    value = torch.where(alike, mean, larger_value)
    error = torch.where(alike, error_of_mean, error_of_larger)
    return value, error


def _as_columns(levels: Sequence[Level], device: torch.device) -> tuple[Tensor, Tensor]:
    """Stages and values, each `(P, 1)`."""
    stages = [stage for stage, _ in levels]
    values = [value for _, value in levels]
    stage = send(stages, device)
    value = send(values, device, torch.float64)
    return stage[:, None], value[:, None]
