"""Subset simulation: the probability of a rare event as a product of probabilities that are not rare.

Problem: `P = P(score(x) >= 0)` for x from a prior, where P may be 1e-40 and the score is a black box.

    P = prod_i P(score >= L_i | score >= L_{i-1}),   L_i the (1 - quantile) quantile of the current population.

N particles are drawn from the prior. Those at or above the level survive, and the others are replaced by copies of
survivors that are drawn uniformly. Then all are moved by `moves` Metropolis steps, which do not change the distribution
of the prior within the level.

Sources: Au and Beck, "Estimation of small failure probabilities in high dimensions by subset simulation" (2001);
Cerou, Del Moral, Furon and Guyader, "Sequential Monte Carlo for rare event estimation" (2012); SAFARI (Huang et al.
2023), Sec. 5 and App. 8.4. Where we depart from SAFARI, and why:

- Particles move in Gaussian space: all features change a little, or a block of them is replaced; see `moves`. A random
  walk on 784 pixels is hardly ever accepted, or hardly moves. `proposal="random_walk"` is for comparison.
- `ln(kept / N)` of an adaptive level is too large, since the level is itself an order statistic. For adaptive levels
  we use `digamma(kept) - digamma(N + 1)`, the exact mean of the logarithm.
- Eq. 16 with lambda = 0 treats copies as independent. The standard error here uses genealogies; see `genealogy`.

Memory: `itemsize * features * (particles + 8 * chunk)` bytes for the problems that run together, and what the score
needs. Only the particles are held as a whole. Noise, proposals, inputs and steps exist for one chunk of them, which has
at most 2^23 numbers for each problem.

Cost: `N (1 + moves * levels)` scores for each problem, about `ln P / ln quantile` levels, and 95 N for the large first
populations with `first=32` and 4 moves.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import RareEventEstimate, Score
from standfast.algorithms.rare_events.genealogy import History
from standfast.algorithms.rare_events.pooling import AGREEMENT, concatenate, run_until
from standfast.algorithms.rare_events.population import CHUNK_ELEMENTS, Population, Proposal, order_keys
from standfast.algorithms.rare_events.return_to_prior import estimate_from_event, join_groups
from standfast.algorithms.rare_events.witnesses import SHRINKING, shrink_witnesses
from standfast.errors import check, check_integer
from standfast.neighbourhoods import Region
from standfast.records import ConfigurationType, Count, Fraction, Positive, Range
from standfast.tensors import draw_seed, send

_STATE_ELEMENTS = 1 << 26  # numbers in the particles of one group of problems: a quarter of a gigabyte
_MOST_LEVELS = 1000
_NEARLY_ALL = 0.9
# from the event back to the prior few particles go, with many moves: there slow particles make a bias, not a variance
_FEWEST_RETURNING = 30
_RETURNING_SHARE = 1 / 16
_RETURNING_MOVES = 8  # times `moves` in each level
_STEPS_IN_EVENT = 50  # before the first level
_FIRST_WITH_ERROR = 32_000  # particles in the first population, at least, where an error is asked for
_FIRST_ELEMENTS = 1 << 26  # numbers in the first population of one problem, at most
_MOST = 10**8  # more particles fit into no memory
_SHRINK = 0.7  # each population is that much smaller than the one before, down to `particles`
_LARGE = 4  # populations of more than that many times `particles` make fewer moves, since they are that diverse


@dataclass(frozen=True)
class SubsetSimulation(metaclass=ConfigurationType):
    """Estimates `ln P(score(x) >= 0)` for x from each of P distributions.

    Args:
        particles: N, from 10 to 10^8.
        moves: Metropolis steps for each particle and level, at least 1.
        quantile: rho, the share of particles that a level keeps; strictly between 0 and 1.
        first: the first population has `first * particles` particles, as far as memory allows. Later ones shrink
            level by level to `particles`. It finds ways to the event that few particles take at first. Where `error`
            is given, it has at least 32,000 particles, since a mode that it misses is lost.
        proposal: `"gaussian"` or the paper's `"random_walk"`.
        floor: the ln P at which a run stops; the estimate is then `censored`.
        error: the standard error of ln P that is wanted. Runs are then repeated and pooled until it is reached: with
            as many particles again, or twice as many while the result is not resolved; at most 20 runs, and without a
            budget at most 32 times the particles. None: one run.
        budget: scores at most for each problem, at least `particles`; None: no limit. A run that would exceed it ends
            and is `censored`.
        from_event: also estimate ln P from the event back to the prior, if the event was reached and the budget allows.
            It costs `r (51 + 8 moves * levels)` scores with `r = max(30, particles / 16)`. Where both directions
            contradict each other, the result is not resolved. Without witnesses it starts at the particles of this
            run: it shows that they moved too little, but both directions agree also where the run missed the way to
            the event that matters.

    Raises:
        ArgumentError: a value outside these ranges, or more than 10^8 particles in the first population.

    >>> from standfast.algorithms import UnitBox
    >>> half = SubsetSimulation(particles=500).run(lambda x: x[:, 0] - 0.5, UnitBox(2))
    >>> bool((half.log_probability.exp() - 0.5).abs() < 0.1)
    True
    """

    particles: Annotated[int, Range(least=10, most=_MOST)] = 1000
    moves: Count = 4
    quantile: Fraction = 0.5
    first: Annotated[float, Range(least=1)] = 32.0
    proposal: Proposal = "gaussian"
    floor: Annotated[float, Range(below=0)] = -100.0
    error: Positive | None = None
    budget: Count | None = None
    from_event: bool = False

    def __post_init__(self) -> None:
        population = round(self.first * self.particles)
        words = f"at most {_MOST:,} particles in the first population"
        check(population <= _MOST, "first", words, f"{population:,}")
        check_integer(self.budget, "budget", self.particles, also=(None,))

    def run(
        self,
        score: Score,
        prior: Region,
        witnesses: Tensor | None = None,
        generator: torch.Generator | None = None,
        indexed: bool = False,
    ) -> RareEventEstimate:
        """The estimates for the P distributions of `prior`.

        Args:
            score: maps points `(M, *shape)` to scores `(M,)`; failure is `score >= 0`. It may return `(M, S)` for an
                event in S stages (Eq. 13 to 15): all of the columns `>= 0`, reached one after the other. NaN is never a
                failure.
            prior: a neighbourhood around inputs (`ball.around(inputs, bounds)`), `UnitBox(d)` or `StandardNormal(d)`.
            witnesses: points of the event, `(P, W, *shape)`, such as worst cases; half of the particles that go back
                start there, and estimate ln P by themselves. Those that are not in the event are left out. They imply
                `from_event`, and have no effect where the event was not reached; the result's `from_witnesses` says
                where they were used. They show the ways to the event on which they lie, and no others.
            generator: the seed is drawn from it; without one the seed is always the same.
            indexed: call `score(x, problem)` with the problem's number for every row, int64 `(M,)`.

        Raises:
            ArgumentError: witnesses or scores of the wrong shape.
        """
        if witnesses is not None:
            given, wanted = tuple(witnesses.shape), ", ".join(map(str, (len(prior), "W", *prior.shape)))
            fits = given[:1] == (len(prior),) and given[2:] == tuple(prior.shape)
            check(fits, "witnesses", f"shape (P, W, *shape) = ({wanted})", given)
        seed, features = draw_seed(generator), math.prod(prior.shape)
        options = self if witnesses is None else replace(self, from_event=True)

        def simulate(problems: list[int], count: int, budgets: list[float], number: int) -> RareEventEstimate:
            wanted = self.first * count
            if self.error is not None and self.first != 1:
                wanted = max(wanted, _FIRST_WITH_ERROR)
            sizes = plan_sizes(count, limit_first(wanted, self.budget), features)
            together = _count_together(sizes[0], features)
            parts = []
            for start in range(0, len(problems), together):
                rows, limits = torch.tensor(problems[start : start + together]), budgets[start : start + together]

                def gather(places: list[int], own_seed: int, rows: Tensor = rows) -> Population:
                    chosen = rows[places]
                    part, device = prior.select(chosen), prior.device
                    streams = part.streams(own_seed)
                    return Population(score, part, send(chosen, device), streams, self.proposal, indexed)

                run = _Run(gather(list(range(len(rows))), seed + number), sizes, options, limits)
                found = run.result()
                if options.from_event:
                    own = None if witnesses is None else witnesses[rows.to(witnesses.device)]
                    found = _return_to_prior(run, found, gather, ~(seed + number), own)
                parts.append(found)
            return concatenate(parts)

        with torch.no_grad():
            return run_until(simulate, len(prior), self.particles, self.error, self.budget)


def limit_first(wanted: float, budget: int | None) -> int:
    """The size of the first population, of which a sixteenth of the budget leaves room for other levels."""
    return round(wanted if budget is None else min(wanted, budget / 16))


def plan_sizes(particles: int, first: int, features: int) -> list[int]:
    """The sizes of the populations, level by level; the last one is that of all later levels.

    The first population finds ways to the event that few particles take at first. It has `first` particles, or fewer
    where they would not fit into memory.

    >>> plan_sizes(100, 300, 50)
    [300, 210, 147, 103, 100]
    """
    size = max(particles, min(first, _FIRST_ELEMENTS // features))
    sizes = [size]
    while sizes[-1] > particles:
        sizes.append(max(particles, round(_SHRINK * sizes[-1])))
    return sizes


def _count_together(largest: int, features: int) -> int:
    """How many problems with such a first population run together."""
    return max(1, _STATE_ELEMENTS // (features * (largest + 8 * min(largest, CHUNK_ELEMENTS // features))))


def count_moves(size: int, particles: int, moves: int) -> int:
    """The moves of a level's population."""
    return max(1, moves // 4) if size > _LARGE * particles else moves


def plan_return(particles: int, moves: int, levels: int) -> tuple[int, int, int]:
    """How many particles go from the event back to the prior, their moves in each level, and all evaluations.

    >>> plan_return(1000, 4, 20)
    (62, 32, 42842)
    """
    count, moves = max(_FEWEST_RETURNING, round(_RETURNING_SHARE * particles)), _RETURNING_MOVES * moves
    return count, moves, count * (1 + _STEPS_IN_EVENT + moves * levels)


class _Run:
    """The problems of one group, level by level; those that have ended are removed from the batch."""

    def __init__(
        self,
        population: Population,
        sizes: list[int],
        options: SubsetSimulation,
        budgets: list[float],
    ) -> None:
        self.population, self.sizes, self.options, self.budgets = population, sizes, options, budgets
        self.level = 0
        total = len(population)
        self.active = list(range(total))  # their places in the result
        self.histories = [History() for _ in range(total)]
        self.evaluations = torch.full((total,), sizes[0], dtype=torch.int64)
        self.censored = torch.zeros(total, dtype=torch.bool)
        self.stalled = torch.zeros(total, dtype=torch.bool)
        self.out_of_budget = torch.zeros(total, dtype=torch.bool)
        #: for the way back, a few particles in the event, by the problem's place
        self.within: dict[int, Tensor] = {}
        # what the host does not need before the next level, or before the end, so that it does not wait for it
        self.moved: Tensor | None = None
        self.parents: list[tuple[list[int], Tensor]] = []
        population.draw(sizes[0])
        self.extreme = population.points(population.state[:, :1])[:, 0].clone()

    @property
    def count(self) -> int:
        """How many particles the population of this level has."""
        return self.sizes[min(self.level, len(self.sizes) - 1)]

    def result(self) -> RareEventEstimate:
        """Raise levels until no problem is left; the estimates in the order of the problems."""
        while self.active:
            self._raise_levels()
            if self.active:
                self._move()
        self._record_parents()
        levels, degrees = zip(*(h.levels() for h in self.histories), strict=True)
        last = torch.stack([level.log_probability[-1] for level in levels])
        error = torch.stack([level.std_error[-1] for level in levels])
        # a run that ended early only knows that P lies below the last level that it can rely on
        bound = torch.tensor([level.bound() for level in levels], dtype=torch.float64)
        trusted = torch.stack([level.trusted[-1] for level in levels])
        accepted = [[a for a in h.acceptance if not math.isnan(a)] for h in self.histories]
        device = self.extreme.device
        return RareEventEstimate(
            log_probability=send(torch.where(self.censored, bound, last), device),
            own_error=send(torch.where(self.censored, torch.nan, error), device),
            censored=send(self.censored, device),
            resolved=send(trusted & ~self.out_of_budget & ~self.stalled, device),
            stalled=send(self.stalled, device),
            acceptance=send([sum(a) / len(a) if a else math.nan for a in accepted], device),
            model_evaluations=send(self.evaluations, device),
            levels=levels,
            extreme=self.extreme,
            degrees=send(degrees, device, torch.float64),
        )

    def _raise_levels(self) -> None:
        """Set each problem's next level, keep the particles at or above it, and replace the others by copies."""
        population = self.population
        stages, values = self._read_keys()
        last = population.scores.shape[2]
        ended: list[tuple[int, int, int]] = []  # row, place and best particle
        going_on, level_stage, level_value, survivors = [], [], [], []
        keep = min(self.count - 1, max(1, round(self.options.quantile * self.count)))
        for row, place in enumerate(self.active):
            history = self.histories[place]
            ended.append((row, place, int(_order(stages[row], values[row])[-1])))
            level = _next_level(stages[row], values[row], last, keep, not history.stage)
            if level is None or len(history.stage) >= _MOST_LEVELS:
                self.censored[place] = self.stalled[place] = True
                if not history.stage:  # no level was reached: P is below 1, and nothing else is known
                    history.record(0, -math.inf, 0.0, torch.ones(self.count, dtype=torch.bool))
                continue
            stage, value, log_ratio, above = level
            before = history.log_probability[-1] if history.log_probability else 0.0
            # reaching a stage is crossing the threshold of the column before it
            column = (stage - 1, 0.0) if stage and value == -math.inf else (stage, value)
            history.record(*column, before + log_ratio, above)
            if stage == last:
                if self.options.from_event:
                    inside = above.nonzero()[:, 0]
                    few = inside[:: max(1, len(inside) // plan_return(self.sizes[-1], 1, 0)[0])]
                    self.within[place] = population.state[row][send(few, population.state.device)]
                continue
            spent = int(self.evaluations[place]) + self._plan_evaluations()
            below = before + log_ratio < self.options.floor
            if below or spent > self.budgets[place]:
                self.censored[place] = True
                self.out_of_budget[place] = not below
                continue
            ended.pop()
            going_on.append(row)
            level_stage.append(stage)
            level_value.append(value)
            survivors.append(above)
        device = population.scores.device
        if ended:
            rows, places, best = send(ended, device).T
            self.extreme[places] = population.select_points(rows, best)
        self.active = [self.active[row] for row in going_on]
        population.keep(going_on)
        if not going_on:
            return
        self.level_stage = send(level_stage, device)[:, None]
        self.level_value = send(level_value, device, torch.float64)[:, None]
        self.level += 1
        self.parents.append((self.active, population.refill(survivors, self.count)))

    def _read_keys(self) -> tuple[Tensor, Tensor]:
        """What particles are ordered by, `(P, n)` each, on the host; records what the last moves did.

        One copy for all problems, the only one in a level.
        """
        keys = [key.double() for key in order_keys(self.population.scores)]
        told = torch.cat(keys if self.moved is None else [*keys, self.moved.double().T], dim=1).cpu()
        count = keys[0].shape[1]
        if self.moved is not None:
            for place, (rate, kept) in zip(self.active, told[:, 2 * count :].tolist(), strict=True):
                self.histories[place].acceptance[-1] = rate
                self.histories[place].memory[-1] = kept
        return told[:, :count].long(), told[:, count : 2 * count]

    def _record_parents(self) -> None:
        """Record the parents of all levels, by one copy."""
        if not self.parents:
            return
        flat = torch.cat([own.flatten() for _, own in self.parents]).cpu()
        parts = torch.split(flat, [own.numel() for _, own in self.parents])
        for (places, own), part in zip(self.parents, parts, strict=True):
            for place, row in zip(places, part.view(own.shape), strict=True):
                self.histories[place].parents.append(row)

    def _plan_evaluations(self) -> int:
        """The evaluations of the next level for each problem."""
        size = self.sizes[min(self.level + 1, len(self.sizes) - 1)]
        return size * count_moves(size, self.sizes[-1], self.options.moves)

    def _move(self) -> None:
        """`moves` Metropolis steps of every particle within its problem's level."""
        moves = count_moves(self.count, self.sizes[-1], self.options.moves)
        self.moved = self.population.move(moves, self.level_stage, self.level_value)
        self.evaluations[self.active] += moves * self.count


def _return_to_prior(
    run: _Run,
    found: RareEventEstimate,
    gather: Callable[[list[int], int], Population],
    seed: int,
    witnesses: Tensor | None,
) -> RareEventEstimate:
    """The estimates, with those from the event where it was reached and the budget allows."""
    plans = [plan_return(run.sizes[-1], run.options.moves, len(history.stage)) for history in run.histories]
    count, moves = plans[0][:2]
    walk = run.population.proposal == "random_walk"
    tries = 0 if witnesses is None else witnesses.shape[1] * (1 if walk else SHRINKING)
    spend = [evaluations + tries for _, _, evaluations in plans]
    places = [place for place in sorted(run.within) if int(run.evaluations[place]) + spend[place] <= run.budgets[place]]
    device = found.log_probability.device
    back, error = torch.full((2, len(found.censored)), torch.nan, dtype=torch.float64, device=device)
    seen_from_outside = torch.zeros_like(found.censored)
    if places:
        groups = [[run.within[place] for place in places]]
        alike = torch.ones(len(places), dtype=torch.bool, device=device)
        if witnesses is not None:
            known = shrink_witnesses(gather(places, seed), witnesses[places])
            alike = send([len(points) == 0 for points in known], device)
            groups.append([points if len(points) else own for own, points in zip(groups[0], known, strict=True)])
        levels = [list(zip(h.stage, h.threshold, strict=True)) for h in (run.histories[p] for p in places)]
        estimates = []
        for number, starts in enumerate(groups):
            population = gather(places, seed ^ (number << 61))
            size = (count + number) // len(groups)
            picks = population.streams.refill([len(points) for points in starts], size)
            population.place(torch.stack([points[pick] for points, pick in zip(starts, picks, strict=True)]))
            estimates.append(estimate_from_event(population, levels, moves, _STEPS_IN_EVENT))
        values, errors = join_groups([(v.to(device), e.to(device)) for v, e in estimates], alike)
        back[places], error[places], seen_from_outside[places] = values, errors, ~alike
        for place in places:
            run.evaluations[place] += spend[place]
    spent = send(run.evaluations, device)
    both = replace(
        found, from_event=back, from_event_error=error, from_witnesses=seen_from_outside, model_evaluations=spent
    )
    return replace(both, resolved=both.resolved & ~both.contradicts(AGREEMENT))


def _order(stages: Tensor, values: Tensor) -> Tensor:
    """Particles from the lowest key to the highest."""
    by_value = values.argsort(stable=True)
    return by_value[stages[by_value].argsort(stable=True)]


def _next_level(
    stages: Tensor, values: Tensor, last: int, keep: int, first: bool = True
) -> tuple[int, float, float, Tensor] | None:
    """The next level of one problem: `(stage, value, ln of the share kept, who is kept)`; None on a plateau."""
    count = len(stages)
    order = _order(stages, values)
    nth = order[count - keep]
    stage, value = int(stages[nth]), float(values[nth])
    if stage < last:
        above = (stages > stage) | ((stages == stage) & (values >= value))
        if bool(above.all()):  # all particles down to the lowest are tied: continue with those strictly above
            above = (stages > stage) | ((stages == stage) & (values > value))
            if not bool(above.any()):
                return None
            lowest = order[count - int(above.sum())]
            stage, value = int(stages[lowest]), float(values[lowest])
    crossed = stages >= stage
    # reaching a stage is a level of its own (Eq. 13); if nearly all of the prior is in it, no moves are made for it
    cheap = first and float(crossed.float().mean()) > _NEARLY_ALL
    if stage == last or (int(stages.min()) < stage and not cheap):
        return stage, -math.inf, math.log(int(crossed.sum()) / count), crossed
    kept = int(above.sum())
    ratio = math.log(kept / count)
    if kept == keep:
        ratio = float(torch.digamma(torch.tensor(float(kept))) - torch.digamma(torch.tensor(count + 1.0)))
    return stage, value, ratio, above
