"""The genetic algorithm of SAFARI: a population that selects, crosses and mutates.

Problem: `max value(x) subject to violation(x) <= 0` over the region. While fewer than half of a population meets the
constraint, the fitness is `F1 = -violation`; afterwards it is `F2`, the value, with everybody who violates the
constraint behind everybody who does not (Eq. 7 and 8).

Source: Huang et al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023),
Sec. 4 and App. 8.3. Where we depart from it, or fill in what it leaves open:
- Selection in proportion to fitness (Eq. 20) needs positive fitness; ours is in proportion to linear ranks: the best
  is `pressure` times as likely a parent as the average, the worst `2 - pressure` times.
- "Children and parents will be the individuals for the next generation": the best half of both together (mu + lambda).
- Crossover exchanges each element with probability 1/2. "Some elements are altered": each with probability
  `mutation`, drawn anew from the region's box or moved by normal noise, as likely as not, and then projected.
- The centre is evaluated first and stands in the initial population; it is the answer if nothing better is found.

Cost: `budget` evaluations for each problem, `population` of them for each generation.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from holdfast.algorithms.searches.base import (
    Best,
    GradientObjective,
    Objective,
    Outcome,
    Search,
    SearchResult,
    Tracer,
    look,
    searches,
    take,
)
from holdfast.errors import check, check_integer
from holdfast.neighbourhood import Region
from holdfast.tensors import Streams


@searches.register("genetic")
@dataclass(frozen=True)
class GeneticSearch(Search):
    """SAFARI's genetic algorithm.

    Args:
        population: individuals, the centre among them; as many children in each generation.
        mutation: expected share of a child's elements that are altered.
        noise: standard deviation of the normal mutations, as a share of the box's half width.
        pressure: of linear ranking, in [1, 2].
        patience: stop after this many generations without a better best of any problem; None: never.
    """

    population: int = 1000
    mutation: float = 0.02
    noise: float = 0.5
    pressure: float = 2.0
    patience: int | None = None
    name: ClassVar[str] = "genetic"

    def __post_init__(self) -> None:
        check_integer(self.population, "population", 2)
        check(0 <= self.mutation <= 1, "mutation", "a share between 0 and 1", self.mutation)
        check(self.noise > 0, "noise", "a number above 0", self.noise)
        check(1 <= self.pressure <= 2, "pressure", "a number between 1 and 2", self.pressure)
        patient = self.patience is None or (type(self.patience) is int and self.patience >= 1)
        check(patient, "patience", "a whole number of at least 1 or None", self.patience)

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """See `Search`."""
        tracer, streams = Tracer(budget), region.streams(seed)
        best, spent = Best(objective, region), 1
        tracer.note(spent, best.outcome, last=budget == 1)
        x = best.x[:, None]
        seen = Outcome(best.outcome.value[:, None], best.outcome.violation[:, None])
        if budget > 1:
            first = region.project(region.sample(self.population - 1, streams))[:, : budget - spent]
            x, seen = torch.cat([x, first], dim=1), _join(seen, self._score(objective, first, best))
            spent += first.shape[1]
            tracer.note(spent, best.outcome, last=spent == budget)
        idle = 0
        while spent < budget and (self.patience is None or idle < self.patience):
            order = _fitness(seen).argsort(dim=1, descending=True, stable=True)
            x, seen = take(x, order), _take(seen, order)
            children = self._children(x, region, streams)[:, : budget - spent]
            before = best.key
            newcomers = self._score(objective, children, best)
            spent += children.shape[1]
            tracer.note(spent, best.outcome, last=spent == budget)
            idle = 0 if bool((best.key > before).any()) else idle + 1
            x, seen = torch.cat([x, children], dim=1), _join(seen, newcomers)
            stay = _fitness(seen).argsort(dim=1, descending=True, stable=True)[:, : self.population]
            x, seen = take(x, stay), _take(seen, stay)
        tracer.note(spent, best.outcome, last=True)
        return best.result(tracer.trace(), population=x)

    @staticmethod
    def _score(objective: Objective, x: Tensor, best: Best) -> Outcome:
        seen = look(objective, x)
        best.offer(x, seen)
        return seen

    def _children(self, x: Tensor, region: Region, streams: Streams) -> Tensor:
        """As many children as there are individuals `x` `(P, n, *shape)`, which stand in the order of fitness."""
        pairs = (x.shape[1] + 1) // 2
        ranks = torch.linspace(self.pressure, 2 - self.pressure, x.shape[1], device=x.device, dtype=torch.float64)
        ladder = (ranks / ranks.sum()).cumsum(0)
        draws = streams.uniform((2, pairs), torch.float64)
        parents = torch.searchsorted(ladder, draws).clamp(max=x.shape[1] - 1)
        mother, father = take(x, parents[:, 0]), take(x, parents[:, 1])
        exchanged = streams.uniform(mother.shape[1:], x.dtype) < 0.5
        daughters, sons = torch.where(exchanged, father, mother), torch.where(exchanged, mother, father)
        return self._mutate(torch.cat([daughters, sons], dim=1), region, streams)

    def _mutate(self, x: Tensor, region: Region, streams: Streams) -> Tensor:
        lower, upper = region.lower[:, None], region.upper[:, None]
        chance = streams.uniform(x.shape[1:], x.dtype)
        redrawn = lower + (upper - lower) * (chance * (2 / max(self.mutation, 1e-12))).clamp(max=1.0)
        moved = x + streams.normal(x.shape[1:], x.dtype) * (self.noise / 2) * (upper - lower)
        x = torch.where(chance < self.mutation, moved, x)
        return region.project(torch.where(chance < self.mutation / 2, redrawn, x))


def _fitness(seen: Outcome) -> Tensor:
    """F1 or F2 of each individual as a sortable key, `(P, n)`."""
    few = (seen.violation <= 0).double().mean(dim=1, keepdim=True) < 0.5
    satisfied = Outcome(-seen.violation, torch.where(seen.violation.isnan(), torch.nan, -torch.inf))
    return torch.where(few, satisfied.key(), seen.key())


def _join(a: Outcome, b: Outcome) -> Outcome:
    return Outcome(torch.cat([a.value, b.value], dim=1), torch.cat([a.violation, b.violation], dim=1))


def _take(seen: Outcome, rows: Tensor) -> Outcome:
    return Outcome(seen.value.gather(1, rows), seen.violation.gather(1, rows))
