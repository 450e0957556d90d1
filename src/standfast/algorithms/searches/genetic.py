"""The genetic algorithm of SAFARI: a population that selects, crosses and mutates.

Problem: `max value(x) subject to violation(x) <= 0` over the region. While fewer than half of a population meets the
constraint, the fitness is `F1 = -violation`. Afterwards it is `F2`, the value, and individuals that violate the
constraint come after all that meet it (Eq. 7 and 8).

Source: Huang et al., "SAFARI: Versatile and Efficient Evaluations for Robustness of Interpretability" (ICCV 2023),
Sec. 4 and App. 8.3. Where we depart from it, or fill in what it leaves open:
- Selection in proportion to fitness (Eq. 20) needs positive fitness. Ours is in proportion to linear ranks: the best
  individual is `pressure` times as likely a parent as the average, the worst `2 - pressure` times.
- "Children and parents will be the individuals for the next generation": the best half of both together (mu + lambda).
- Crossover exchanges each element with probability 1/2. "Some elements are altered": each with probability `mutation`,
  either sampled again from the region's box or moved by normal noise, with equal probability, and then projected.
- In a region of few parameters, such as an angle, 60% of the budget go to points that are spread over the box. The best
  of them are the first population, with at most a twentieth of the budget, and the fitness is always F2. At least half
  of the elements are altered, and a single one always, by normal noise only. It has a size of its own each time, from a
  fifth of `noise` down to 1/256 of that.
- The centre is evaluated first and belongs to the initial population; it is the result if nothing better is found.

Cost: `budget` evaluations for each problem, `population` of them for each generation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from standfast.algorithms.searches.base import (
    FEW,
    Outcome,
    Search,
    SearchRun,
    draw_starts,
    searches,
    take_points,
)
from standfast.neighbourhoods import Region
from standfast.records import Positive, Range
from standfast.tensors import Streams, raise_power

_RARE = 1e-3  # a smaller `mutation` is drawn in float64
_SPREAD = 0.6  # of the budget, for points that are spread over the box of few parameters


@searches.register("genetic")
@dataclass(frozen=True)
class GeneticSearch(Search):
    """SAFARI's genetic algorithm.

    Args:
        population: individuals, the centre among them; as many children in each generation.
        mutation: expected share of a child's elements that are altered.
        noise: standard deviation of the normal mutations, as a share of the box's half width.
        pressure: of linear ranking, in [1, 2].
    """

    population: Annotated[int, Range(least=2)] = 1000
    mutation: Annotated[float, Range(least=0, most=1)] = 0.02
    noise: Positive = 0.5
    pressure: Annotated[float, Range(least=1, most=2)] = 2.0
    name = "genetic"

    def search(self, run: SearchRun, streams: Streams) -> Tensor:
        """Generation after generation."""
        region = run.region
        size = region.shape.numel()
        few = max(2, run.budget // 20)
        share = max(0.5, 1 / size)
        starts = self.population - 1
        if size <= FEW:
            if self.population > few or self.mutation < share:
                population = min(self.population, few)
                mutation = max(self.mutation, share)
                fitted = replace(self, population=population, mutation=mutation)
                return fitted.search(run, streams)
            starts = max(starts, round(_SPREAD * run.left))
        first = draw_starts(region, starts, streams)[:, : run.left]
        best = run.kept.seen
        centre = Outcome(best.value[:, None], best.violation[:, None])
        x = torch.cat([run.kept.x, first], dim=1)
        outcome = _join(centre, run.query(first))
        while run.left:
            x, outcome = self._keep_fittest(x, outcome, run)  # more only at the start
            children = self._breed(x, region, streams)[:, : run.left]
            x = torch.cat([x, children], dim=1)
            outcome = _join(outcome, run.query(children))
            x, outcome = self._keep_fittest(x, outcome, run)
        return x

    def _keep_fittest(self, x: Tensor, outcome: Outcome, run: SearchRun) -> tuple[Tensor, Outcome]:
        """The fittest individuals, at most a population, and what the objective says of them."""
        order = _rank_fitness(outcome, run)[:, : self.population]
        return take_points(x, order), outcome.gather(order)

    def _breed(self, x: Tensor, region: Region, streams: Streams) -> Tensor:
        """As many children as there are individuals `x` `(P, n, *shape)`, which are sorted by fitness."""
        size = x.shape[1]
        pairs = (size + 1) // 2
        ranks = torch.linspace(
            self.pressure, 2 - self.pressure, size, device=x.device, dtype=torch.float64
        )
        ladder = (ranks / ranks.sum()).cumsum(0)
        draws = streams.uniform((2, pairs), torch.float64)
        parents = torch.searchsorted(ladder, draws).clamp(max=size - 1)
        mother = take_points(x, parents[:, 0])
        father = take_points(x, parents[:, 1])
        exchanged = streams.uniform(mother.shape[1:], x.dtype) < 0.5
        # filled in place: joining two halves would copy them
        children = mother.new_empty((len(x), 2 * pairs, *x.shape[2:]))
        torch.where(exchanged, father, mother, out=children[:, :pairs])
        torch.where(exchanged, mother, father, out=children[:, pairs:])
        return self._mutate(children, region, streams)

    def _mutate(self, x: Tensor, region: Region, streams: Streams) -> Tensor:
        """The children `x` `(P, n, *shape)`, contiguous, with some elements altered, in the region; `x` is overwritten.

        One uniform number decides for each element whether it is altered, how, and by how much; for few parameters a
        second one decides about the size of the noise.
        """
        features = region.shape.numel()
        few = features <= FEW
        genes = x.shape[1] * features  # of a problem
        # few float32 values are that small
        dtype = torch.float64 if self.mutation < _RARE else torch.float32
        chance = streams.uniform((genes,), dtype).flatten()
        # a small share, and only this is computed
        altered = torch.nonzero(chance < self.mutation)[:, 0]
        # the numbers of the features of all problems
        entry = altered // genes * features + altered % features
        lower = region.lower.flatten().index_select(0, entry)
        upper = region.upper.flatten().index_select(0, entry)
        width = upper - lower
        chance = chance.index_select(0, altered)
        share = chance / max(self.mutation, 1e-12)  # uniform in [0, 1)
        flat = x.view(-1)
        before = flat.index_select(0, altered)
        if few:
            # the starts for few parameters were spread over the box, so nothing is drawn again from all of it
            noise = self.noise / 2 * _to_normal(share)
            sizes = streams.uniform(x.shape[1:], torch.float32).flatten()
            size = sizes.index_select(0, altered)
            noise = 0.2 * noise * raise_power(2.0, -8 * size)
            moved = before + (noise * width).to(x.dtype)
        else:
            noise = self.noise / 2 * _to_normal(2 * share - 1)
            moved = before + (noise * width).to(x.dtype)
            drawn_again = (lower + width * (2 * share)).to(x.dtype)
            moved = torch.where(share < 0.5, drawn_again, moved)
        flat.index_copy_(0, altered, moved)
        return region.project(x)


def _to_normal(u: Tensor) -> Tensor:
    """Standard normal numbers from uniform ones in [0, 1); those below 0 count as 0."""
    step = 2.0**-24
    normal: Tensor = torch.special.ndtri(u.clamp(step, 1 - step))
    return normal


def _rank_fitness(seen: Outcome, run: SearchRun) -> Tensor:
    """The numbers of the individuals `(P, n)`, the fittest first, by F1 or F2; for few parameters always by F2."""
    key = seen.key()
    # the constraint may exclude most of the box, and must not blind the search
    if run.region.shape.numel() > FEW:
        share_of_feasible = (seen.violation <= 0).double().mean(dim=1, keepdim=True)
        few = share_of_feasible < 0.5
        # F1 of Eq. 7: the violation alone counts
        no_violation = torch.where(seen.violation.isnan(), torch.nan, -torch.inf)
        satisfied = Outcome(-seen.violation, no_violation)
        key = torch.where(few, satisfied.key(), key)
    return key.argsort(dim=1, descending=True, stable=True)


def _join(a: Outcome, b: Outcome) -> Outcome:
    value = torch.cat([a.value, b.value], dim=1)
    violation = torch.cat([a.violation, b.violation], dim=1)
    return Outcome(value, violation)
