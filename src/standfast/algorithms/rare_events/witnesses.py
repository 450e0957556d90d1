"""Witnesses: points of the event that another search found, from which particles go back to the prior.

Subset simulation cannot see a way to the event that none of its particles took. A witness may lie on such a way. It
does not have to be probable: it is moved towards the middle of Gaussian space as far as it stays in the event.
"""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.algorithms.rare_events.population import Population
from standfast.tensors import broadcast_rows

SHRINKING = 20  # positions between a witness and the middle that are tried


def shrink_witnesses(population: Population, witnesses: Tensor) -> list[Tensor]:
    """Of each problem, the witnesses within the event, as particles that are as near to the prior as they can be.

    Worst cases lie in the corners of a box, where the prior has hardly any probability. Each is moved towards the
    middle of Gaussian space as far as it stays within the event.
    """
    inputs = witnesses.to(population.prior.device, population.prior.dtype)
    # a random walk has no Gaussian space in which to move towards the middle
    if population.proposal == "random_walk":
        scores = population.evaluate(inputs)
        in_event = (scores >= 0).all(2)
        density = population.prior.log_density(inputs)
        within = in_event & (density > -torch.inf)
        return [witnesses[inside] for witnesses, inside in zip(inputs, within, strict=True)]
    particles = population.prior.to_gaussian(inputs)
    nearest = particles
    within = torch.zeros(particles.shape[:2], dtype=torch.bool, device=particles.device)
    for factor in torch.linspace(1.0, 1 / SHRINKING, SHRINKING).tolist():
        nearer = factor * particles
        points = population.points(nearer)
        weight = population.prior.log_weight(points)
        inside = (population.evaluate(points) >= 0).all(2)
        if weight is not None:
            inside &= weight > -torch.inf
        within |= inside
        nearest = torch.where(broadcast_rows(inside, nearest), nearer, nearest)
    return [of_problem[inside] for of_problem, inside in zip(nearest, within, strict=True)]
