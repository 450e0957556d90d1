"""Witnesses: points of the event that another search found, from which particles go back to the prior.

Subset simulation cannot see a way to the event that none of its particles took. A witness may lie on such a way. It
does not have to be probable: it is moved towards the middle of Gaussian space as far as it stays in the event.

Problem: `max score(x)` over the region around each centre; of a score in stages, the last column, subject to the
others being at least 0.

Cost: `budget` scores for each problem.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from standfast.algorithms.rare_events.estimate import Score, as_columns
from standfast.algorithms.rare_events.population import Population
from standfast.algorithms.rare_events.priors import Prior
from standfast.algorithms.searches.base import Outcome, Search, differentiate_outcome, searches
from standfast.neighbourhoods import Region
from standfast.registry import build
from standfast.tensors import broadcast_rows, draw_seed

SHRINKING = 20  # positions between a witness and the middle that are tried
SEED = 1 << 62  # changes the seed, so that a search does not draw the particles of the simulation
_REACH = 8.0  # of the box that is searched where the prior has none: a normal number is beyond it once in 1e15


def find_witnesses(
    score: Score,
    prior: Prior,
    budget: int = 500,
    search: Search | str = "auto",
    differentiable: bool = False,
    generator: torch.Generator | None = None,
    indexed: bool = False,
) -> Tensor:
    """Search points of the event `score(x) >= 0`, as `witnesses` for `subset_simulation`.

    A search ends at the largest score that it finds. That may be the way to the event which the simulation takes as
    well, so several searches, and points that you know of, say more than one. Points of several sources are joined by
    `torch.cat([...], dim=1)`.

    Args:
        score, prior, indexed: as for `subset_simulation`.
        budget: scores at most for each problem, at least 1.
        search: a search or its name.
        differentiable: follow the gradients that autograd gives of the score. A search that needs them is refused
            without; `auto` does what it can.
        generator: the seed is drawn from it; without one the seed is always the same.

    Returns:
        The best point of each problem, `(P, 1, *shape)`. It need not be in the event: `subset_simulation` leaves those
        out that are not.

    Raises:
        ArgumentError: for a budget below 1, a search that needs gradients without them, or a score of the wrong shape.

    >>> from standfast.algorithms import StandardNormal, subset_simulation
    >>> def score(z):  # a way that all particles see (ln P = -27), and one that none of them sees (ln P = -15)
    ...     return torch.maximum(z[:, 0] - 7, torch.where(z[:, 1] < -4.5, -z[:, 1] - 5, -9.0))
    >>> prior = StandardNormal(2)
    >>> alone = subset_simulation(score, prior, 200, from_event=True)
    >>> alone.resolved.tolist(), alone.from_witnesses.tolist()
    ([True], [False])
    >>> found = subset_simulation(score, prior, 200, witnesses=find_witnesses(score, prior))
    >>> found.resolved.tolist(), found.from_witnesses.tolist()
    ([False], [True])
    """
    region = _choose_box(prior)
    search = build(searches, search) if isinstance(search, str) else search

    def call(x: Tensor, problem: Tensor) -> Tensor:
        return score(x, problem) if indexed else score(x)

    def measure(x: Tensor, problem: Tensor) -> Outcome:
        return _judge(as_columns(call(x, problem), len(x)))

    def climb(x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        with torch.enable_grad():
            points = x.detach().requires_grad_()
            return differentiate_outcome(_judge(call(points, problem).reshape(len(x), -1)), points, feasible)

    with torch.no_grad():
        found = search.run(measure, region, budget, draw_seed(generator) ^ SEED, climb if differentiable else None)
    return region.project(found.inputs[:, None])


def _judge(columns: Tensor) -> Outcome:
    """The last column is the value, and the others have to be at least 0."""
    return Outcome(columns[:, -1], -pad(columns[:, :-1], (1, 0)).amin(1))


def _choose_box(prior: Prior) -> Region:
    """Where to search: the prior's own region, or the box that holds nearly all of its probability."""
    if isinstance(prior, Region):
        return prior
    ends = torch.tensor([-_REACH, 0.0, _REACH], dtype=prior.dtype, device=prior.device)
    corners = ends.reshape(1, 3, *(1 for _ in prior.shape)).expand(len(prior), 3, *prior.shape)
    lower, centre, upper = prior.from_gaussian(corners).unbind(1)
    return Region(centre=centre, lower=lower, upper=upper)


def shrink_witnesses(population: Population, witnesses: Tensor) -> list[Tensor]:
    """Of each problem, the witnesses within the event, as particles that are as near to the prior as they can be.

    Worst cases lie in the corners of a box, where the prior has hardly any probability. Each is moved towards the
    middle of Gaussian space as far as it stays within the event.
    """
    inputs = witnesses.to(population.prior.device, population.prior.dtype)
    if population.proposal == "random_walk":
        scores = population.evaluate(inputs)
        within = (scores >= 0).all(2) & (population.prior.log_density(inputs) > -torch.inf)
        return [own[inside] for own, inside in zip(inputs, within, strict=True)]
    particles = population.prior.to_gaussian(inputs)
    found, within = particles, torch.zeros(particles.shape[:2], dtype=torch.bool, device=particles.device)
    for factor in torch.linspace(1.0, 1 / SHRINKING, SHRINKING).tolist():
        nearer = factor * particles
        points = population.points(nearer)
        weight = population.prior.log_weight(points)
        inside = (population.evaluate(points) >= 0).all(2)
        if weight is not None:
            inside &= weight > -torch.inf
        within |= inside
        found = torch.where(broadcast_rows(inside, found), nearer, found)
    return [own[inside] for own, inside in zip(found, within, strict=True)]
