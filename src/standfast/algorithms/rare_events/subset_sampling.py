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

An estimate stops when it is known (`error`). With the defaults (N = 1000), one after the other:

1. Up to 8,000 plain draws, which end when they have enough hits. Hits are counted seven times, and the interval is
   exact for this (`stopped_interval`).
2. A short run from these draws: 800 particles and 2 moves. It ends at a level above which half a draw is
   expected. From there on, 8,000 draws are too few to see every way to the event.
3. A lean run, whose first population has the 8,000 draws and 24,000 more. Its populations become smaller by 5% a level,
   and as they do they make more moves.
4. A wide run, from the same 32,000 draws: its populations become smaller by 30% a level. It is made only where the
   variance of the run before is more than 2.2 times that of independent particles (1.7 after a short run; see
   `History.excess`): then few particles lead to the event, such as those of a mode that early levels do not favour. A
   wide run without this sign has lost what the run before had seen: another one is made, and both are pooled.

With `error=None` or `from_event` there is only a wide run, and with fewer than 267 particles there are only plain draws
and a wide run.

Cost, in scores for each problem: 337 where P is one half, 2,800 above 3e-2, 8,000 above 1e-2, 24,000 above 1e-4, 85,000
at 1e-6, then 4,000 a level. Where the variance of ln P exceeds its limits, wide runs follow: 310,000 to 400,000 in a
corner of a box where many features must all be near an end of their ranges. A wide run takes `N (1 + moves * levels)`,
with about `ln P / ln quantile` levels, and 95 N for its large first populations, less the draws that were made before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, TypeVar

import torch
from torch import Tensor

from standfast.algorithms.rare_events.estimate import RareEventEstimate, Score
from standfast.algorithms.rare_events.genealogy import History
from standfast.algorithms.rare_events.plain_sampling import Looks, draw_until_known, plan_looks
from standfast.algorithms.rare_events.pooling import (
    AGREEMENT,
    MOST_RUNS,
    concatenate,
    move,
    pool,
    run_until,
    select,
)
from standfast.algorithms.rare_events.population import (
    CHUNK_ELEMENTS,
    Population,
    Proposal,
    order_keys,
    sort_by_key,
)
from standfast.algorithms.rare_events.return_to_prior import estimate_from_event, join_groups
from standfast.algorithms.rare_events.witnesses import SHRINKING, shrink_witnesses
from standfast.errors import check, check_integer
from standfast.neighbourhoods import Region
from standfast.records import ConfigurationType, Count, Fraction, Positive, Range
from standfast.tensors import draw_seed, send

#: where estimates are while problems are looked at one by one
HOST = torch.device("cpu")

# numbers in the particles of one group of problems: a quarter of a gigabyte
_STATE_ELEMENTS = 1 << 26
_MOST_LEVELS = 1000
_NEARLY_ALL = 0.9
# from the event back to the prior few particles go, with many moves: there slow particles make a bias, not a variance
_FEWEST_RETURNING = 30
_RETURNING_SHARE = 1 / 16
_RETURNING_MOVES = 8  # times `moves` in each level
_STEPS_IN_EVENT = 50  # before the first level
# particles in the first population, at least, where runs are repeated for an error
_FIRST_IF_REPEATED = 32_000
_FIRST_ELEMENTS = 1 << 26  # numbers in the first population of one problem, at most
_MOST = 10**8  # more particles fit into no memory
_SHRINK = 0.7  # each population is that much smaller than the one before, down to `particles`
_LARGE = 4  # populations of more than that many times `particles` make fewer moves, since they are that diverse
_LEAN = 2.25  # the second population of a lean run over the last
_SLOWLY = 0.95  # each population of a lean run is that much smaller than the one before
_HIDDEN = 2.2  # a variance that exceeds that of independent particles by more is the sign of a hidden mode
_HINT = 1.7  # the same for a short run
_LARGER = 4  # the first population of a full run over that of a short one
_ENOUGH = 4  # a short run has at least that many times `particles` draws
_SHORT_SHARE = 0.8
# after so many levels independent particles may have the error that is wanted, at least
_FEWEST_LEVELS = 6
_EXPECTED = 0.5  # a short run stops at levels above which so many of its draws were expected
_MORE = 1 << 60  # what changes the seed of the draws that a full run adds


T = TypeVar("T")
#: the sizes of the populations and their moves, level by level; the last are those of all later levels
Plan = list[tuple[int, int]]


@dataclass(frozen=True)
class SubsetSimulation(metaclass=ConfigurationType):
    """Estimates `ln P(score(x) >= 0)` for x from each of P distributions.

    Args:
        particles: N, from 10 to 10^8.
        moves: Metropolis steps for each particle and level, at least 1.
        quantile: rho, the share of particles that a level keeps; strictly between 0 and 1.
        first: the first population of a lean or a wide run has `first * particles` particles, as far as memory allows.
            It finds ways to the event that few particles take at first. Where runs are repeated, it has at least
            32,000 particles, since a mode that it misses is lost. Below 16 there are no short and lean runs.
        proposal: `"gaussian"` or the paper's `"random_walk"`.
        floor: the ln P at which a run stops; the estimate is then `censored`.
        error: the standard error of ln P that is wanted. A problem for which it is reached is done. With a budget, wide
            runs are repeated and pooled until it is reached: with as many particles again, or twice as many while the
            result is not resolved; at most 20 runs. Without a budget there is one wide run at most.
            `RareEventEstimate.reaches` tells for which problems it was reached. None: one wide run.
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
    error: Positive | None = 0.15
    budget: Count | None = None
    from_event: bool = False

    def __post_init__(self) -> None:
        population = round(self.first * self.particles)
        expected = f"at most {_MOST:,} particles in the first population"
        check(population <= _MOST, "first", expected, f"{population:,}")
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
        options = self
        if witnesses is not None:
            options = replace(self, from_event=True)
            shape = tuple(witnesses.shape)
            has_problems = shape[:1] == (len(prior),)
            fits = has_problems and shape[2:] == tuple(prior.shape)
            expected = ", ".join(map(str, (len(prior), "W", *prior.shape)))
            check(fits, "witnesses", f"shape (P, W, *shape) = ({expected})", shape)
        seed = draw_seed(generator)
        problems = _Problems(score, prior, options, witnesses, seed, indexed)
        with torch.no_grad():
            first = problems.begin()
            if self.error is None or self.budget is None:
                return first
            return run_until(problems.simulate, first, self.particles, self.error, self.budget)


def plan_first(options: SubsetSimulation, features: int) -> int:
    """The size of the first population of a full run.

    It finds ways to the event that few particles take at first. It has `first * particles` particles, or fewer where
    they would not fit into memory, or would take more than a sixteenth of the budget.
    """
    particles: float = options.first * options.particles
    if options.budget is not None:
        # `first` of 1 says that the first population is no larger than the others
        is_repeated = options.error is not None and options.first != 1
        if is_repeated:
            particles = max(particles, _FIRST_IF_REPEATED)
        particles = min(particles, options.budget / 16)
    most = _FIRST_ELEMENTS // features
    return max(options.particles, min(round(particles), most))


def plan_few(options: SubsetSimulation, largest: int) -> int:
    """How many plain draws are made before levels, where a lean run has a first population of this size.

    They are all of them if so few would not be enough for a short run, or so few particles for the error.
    """
    few = largest // _LARGER
    is_enough = few >= _ENOUGH * options.particles
    # a level adds about 1 / particles to the variance of ln P, so this is how many levels the error allows
    short_run_helps = (
        options.error is not None and options.particles * options.error**2 >= _FEWEST_LEVELS
    )
    return few if short_run_helps and is_enough else largest


def plan_short(options: SubsetSimulation, few: int) -> Plan:
    """The levels of a short run."""
    second = round(_SHORT_SHARE * options.particles)
    moves = max(1, options.moves // 2)
    return [(few, 0), (second, moves)]


def plan_lean(options: SubsetSimulation, largest: int) -> Plan:
    """The levels of a lean run: populations become smaller, and make more moves, so that all of them cost as much.

    >>> plan_lean(SubsetSimulation(), 32_000)[:3], plan_lean(SubsetSimulation(), 32_000)[-2:]
    ([(32000, 0), (2250, 1), (2138, 1)], [(1042, 2), (1000, 4)])
    """
    levels = [(largest, 0)]
    size = _LEAN * options.particles
    while size > options.particles:
        moves = round(options.moves * _LEAN / 4 * options.particles / size)
        levels.append((round(size), max(1, moves)))
        size *= _SLOWLY
    return [*levels, (options.particles, options.moves)]


def plan_wide(options: SubsetSimulation, largest: int) -> Plan:
    """The levels of a wide run. Populations that are much larger than the last one make fewer moves.

    >>> plan_wide(SubsetSimulation(100), 500)
    [(500, 0), (350, 4), (245, 4), (172, 4), (120, 4), (100, 4)]
    """
    levels = [(largest, 0)]
    size = largest
    while size > options.particles:
        size = max(options.particles, round(_SHRINK * size))
        moves = options.moves
        if size > _LARGE * options.particles:
            moves = max(1, options.moves // 4)
        levels.append((size, moves))
    if len(levels) == 1:
        levels.append((options.particles, options.moves))
    return levels


def plan_return(particles: int, moves: int, levels: int) -> tuple[int, int, int]:
    """How many particles go from the event back to the prior, their moves in each level, and all evaluations.

    >>> plan_return(1000, 4, 20)
    (62, 32, 42842)
    """
    count = max(_FEWEST_RETURNING, round(_RETURNING_SHARE * particles))
    moves = _RETURNING_MOVES * moves
    evaluations = 1 + _STEPS_IN_EVENT + moves * levels
    return count, moves, count * evaluations


class _Problems:
    """The problems of one call, which run in groups that fit into memory."""

    def __init__(
        self,
        score: Score,
        prior: Region,
        options: SubsetSimulation,
        witnesses: Tensor | None,
        seed: int,
        indexed: bool,
    ) -> None:
        self.score = score
        self.prior = prior
        self.options = options
        self.indexed = indexed
        self.witnesses = witnesses
        self.seed = seed
        self.features = math.prod(prior.shape)

    def begin(self) -> RareEventEstimate:
        """Plain draws, a short run, a lean and a wide one: each for the problems that the one before leaves open."""
        options = self.options
        every = list(range(len(self.prior)))
        limit = math.inf if options.budget is None else float(options.budget)
        if options.error is None or options.from_event:
            limits = [limit] * len(every)
            return self.simulate(every, options.particles, limits, 0)
        largest = plan_first(options, self.features)
        few = plan_few(options, largest)
        is_short = few < largest
        looks = plan_looks(few, options.error)
        estimates, open_problems = self._draw_first(few, looks, limit, is_short)
        if is_short:
            self._run_longer(open_problems, looks, largest, options.error)
        for problem in open_problems:
            estimates[problem.number] = problem.latest
        return self._join([estimates[number] for number in every])

    def _draw_first(
        self, few: int, looks: Looks, limit: float, is_short: bool
    ) -> tuple[dict[int, RareEventEstimate], list[_Open]]:
        """The estimates of problems for which plain draws are enough, and the others, after a short or a wide run."""
        options = self.options
        plan = plan_wide(options, few)
        if is_short:
            plan = plan_short(options, few)
            floor = max(options.floor, math.log(_EXPECTED / few))
            options = replace(options, floor=floor)
        estimates: dict[int, RareEventEstimate] = {}
        open_problems: list[_Open] = []
        for group in self._split(range(len(self.prior)), few):
            population = self._gather(group, self.seed)
            estimates |= draw_until_known(population, looks)
            if all(number in estimates for number in group):
                continue
            draws = zip(population.problems.tolist(), population.scores, strict=True)
            part = [_Open(number, scores, few, limit) for number, scores in draws]
            self._descend(part, population, plan, options)
            open_problems += part
        return estimates, open_problems

    def _run_longer(
        self, problems: Sequence[_Open], looks: Looks, largest: int, error: float
    ) -> None:
        """A lean run after a short one that shows no hidden mode, and a wide run where one of both shows it."""
        options = self.options
        unfinished = [problem for problem in problems if not bool(problem.latest.reaches(error))]
        hinting, quiet = _split_by_excess(unfinished, _HINT)
        for part in self._split(quiet, largest):
            self._descend(
                part,
                self._draw_again(part, looks, largest),
                plan_lean(options, largest),
                options,
                True,
            )
        hiding, _ = _split_by_excess(quiet, _HIDDEN)
        unresolved = [
            problem
            for problem in quiet
            if problem.excess > _HIDDEN or not bool(problem.latest.resolved)
        ]
        for part in (*self._split(hinting, largest), *self._split(unresolved, largest)):
            self._descend(
                part, self._draw_again(part, looks, largest), plan_wide(options, largest), options
            )
        # a wide run without the sign has lost what the run before had seen
        _, lost = _split_by_excess([*hinting, *hiding], _HIDDEN)
        self._repeat_lost(lost)

    def _repeat_lost(self, lost: Sequence[_Open]) -> None:
        """Another wide run, pooled with the first, for problems of which the first has lost what was seen before it."""
        if not lost:
            return
        size = self.options.particles
        numbers = [problem.number for problem in lost]
        budgets = [problem.limit - problem.spent for problem in lost]
        # no other run has this number
        again = move(self.simulate(numbers, size, budgets, MOST_RUNS), HOST)
        for row, problem in enumerate(lost):
            runs = [problem.latest, select(again, row)]
            problem.estimate = pool(runs, [size, size])
            problem.spent = int(problem.estimate.model_evaluations)

    def simulate(
        self, numbers: list[int], particles: int, budgets: list[float], run: int
    ) -> RareEventEstimate:
        """Wide runs of these problems, with populations of this size."""
        options = replace(self.options, particles=particles)
        estimates: list[RareEventEstimate] = []
        largest = plan_first(options, self.features)
        plan = plan_wide(options, largest)
        for rows in self._split(range(len(numbers)), largest):
            numbers_of_part = [numbers[row] for row in rows]
            population = self._gather(numbers_of_part, self.seed + run)
            population.draw(largest)
            part = []
            for row, scores in zip(rows, population.scores, strict=True):
                part.append(_Open(numbers[row], scores, largest, budgets[row]))
            self._descend(part, population, plan, options, run=run)
            estimates += [problem.latest for problem in part]
        return self._join(estimates)

    def _join(self, parts: Sequence[RareEventEstimate]) -> RareEventEstimate:
        on_host = [move(part, HOST) for part in parts]
        return move(concatenate(on_host), self.prior.device)

    def _draw_again(self, part: Sequence[_Open], looks: Looks, largest: int) -> Population:
        """The first population of these problems: the draws with known scores, and others if they are too few."""
        population = self._gather([problem.number for problem in part], self.seed)
        scores = torch.stack([problem.scores for problem in part])
        # particles were not kept: the same stream draws them again in the same steps, and their scores are known
        for draws, _ in looks:
            known_scores = scores[:, population.count : draws]
            population.draw(draws - population.count, known_scores)
        count = population.count
        population.streams = population.prior.streams(self.seed ^ _MORE)
        other_scores = None
        if scores.shape[1] == largest:
            other_scores = scores[:, count:]
        population.draw(largest - count, other_scores)
        for problem, all_scores in zip(part, population.scores, strict=True):
            problem.spent += largest - len(problem.scores)
            problem.scores = all_scores
        return population

    def _descend(
        self,
        part: Sequence[_Open],
        population: Population,
        plan: Plan,
        options: SubsetSimulation,
        lean: bool = False,
        run: int = 0,
    ) -> None:
        """Run these problems from their first population; both ways where this was asked for."""
        budgets = [problem.limit for problem in part]
        process = _Run(
            population, plan, options, budgets, [problem.spent for problem in part], lean
        )
        estimates = process.result()
        if options.from_event:

            def gather(positions: list[int], seed: int) -> Population:
                return self._gather([part[position].number for position in positions], seed)

            rows = [problem.number for problem in part]
            if self.witnesses is None:
                witnesses = None
            else:
                witnesses = self.witnesses[send(rows, self.witnesses.device)]
            # ~ gives the way back streams that no run towards the event has
            estimates = _return_to_prior(process, estimates, gather, ~(self.seed + run), witnesses)
        estimates = move(estimates, HOST)  # which is read problem by problem
        for row, problem in enumerate(part):
            estimate = select(estimates, row)
            ended_early = bool(estimate.censored) and not bool(estimate.resolved)
            # a run that ended early says less than one before it that did not
            if problem.estimate is None or not ended_early or bool(problem.estimate.censored):
                problem.estimate = estimate
            problem.spent = int(process.evaluations[row])
            problem.excess = process.histories[row].excess()

    def _gather(self, problems: Sequence[int], seed: int) -> Population:
        """These problems, without particles."""
        rows = torch.tensor(problems)
        options = self.options
        prior = self.prior.select(rows)
        numbers = send(rows, prior.device)
        return Population(
            self.score, prior, numbers, prior.streams(seed), options.proposal, self.indexed
        )

    def _split(self, items: Sequence[T], largest: int) -> list[Sequence[T]]:
        """Groups of problems whose largest populations fit into memory together."""
        # the memory of the module's text: the particles, and eight times a chunk of them
        chunk = min(largest, CHUNK_ELEMENTS // self.features)
        size = self.features * (largest + 8 * chunk)
        together = max(1, _STATE_ELEMENTS // size)
        groups = []
        for start in range(0, len(items), together):
            groups.append(items[start : start + together])
        return groups


@dataclass
class _Open:
    """A problem between two runs.

    Attributes:
        number: of the problem.
        scores: of the draws that were made for it, `(n, S)`.
        spent: all scores that were computed.
        limit: its budget.
        estimate: of its last run.
        excess: `History.excess` of that run.
    """

    number: int
    scores: Tensor
    spent: int
    limit: float
    estimate: RareEventEstimate | None = None
    excess: float = math.inf

    @property
    def latest(self) -> RareEventEstimate:
        """The estimate of the last run that counts, with all that was spent."""
        assert self.estimate is not None
        return replace(
            self.estimate,
            model_evaluations=torch.full_like(self.estimate.model_evaluations, self.spent),
        )


def _split_by_excess(problems: Sequence[_Open], limit: float) -> tuple[list[_Open], list[_Open]]:
    """The problems whose last run has a larger excess of variance, and the others."""
    above: list[_Open] = []
    others: list[_Open] = []
    for problem in problems:
        group = above if problem.excess > limit else others
        group.append(problem)
    return above, others


class _Run:
    """The problems of one group, level by level; those that have ended are removed from the batch."""

    def __init__(
        self,
        population: Population,
        plan: list[tuple[int, int]],
        options: SubsetSimulation,
        budgets: list[float],
        spent: list[int],
        lean: bool = False,
    ) -> None:
        self.population = population
        self.plan = plan
        self.options = options
        self.budgets = budgets
        self.lean = lean
        self.level = 0
        total = len(population)
        self.active = list(range(total))  # their positions in the result
        self.histories = [History() for _ in range(total)]
        self.evaluations = torch.tensor(spent)
        self.censored = torch.zeros(total, dtype=torch.bool)
        self.stalled = torch.zeros(total, dtype=torch.bool)
        self.out_of_budget = torch.zeros(total, dtype=torch.bool)
        #: for the way back, a few particles in the event, by the problem's position
        self.within: dict[int, Tensor] = {}
        # what the host does not need before the next level, or before the end, so that it does not wait for it
        self.moved: Tensor | None = None
        self.parents: list[tuple[list[int], Tensor]] = []
        first_particles = population.state[:, :1]
        self.extreme = population.points(first_particles)[:, 0].clone()

    def level_plan(self, level: int) -> tuple[int, int]:
        """How many particles the population of a level has, and their moves."""
        last = len(self.plan) - 1
        return self.plan[min(level, last)]

    def result(self) -> RareEventEstimate:
        """Raise levels until no problem is left; the estimates in the order of the problems."""
        while self.active:
            self._raise_levels()
            if self.lean and self.level == len(self.plan) - 1:
                self._drop_hidden()
            if self.active:
                self._move()
        self._record_parents()
        levels, degrees = zip(*(h.levels() for h in self.histories), strict=True)
        last = torch.stack([level.log_probability[-1] for level in levels])
        error = torch.stack([level.std_error[-1] for level in levels])
        # a run that ended early only knows that P lies below the last level that it can rely on
        bound = torch.tensor([level.bound() for level in levels], dtype=torch.float64)
        trusted = torch.stack([level.trusted[-1] for level in levels])
        acceptance = [_average_acceptance(history) for history in self.histories]
        device = self.extreme.device
        return RareEventEstimate(
            log_probability=send(torch.where(self.censored, bound, last), device),
            own_error=send(torch.where(self.censored, torch.nan, error), device),
            censored=send(self.censored, device),
            resolved=send(trusted & ~self.out_of_budget & ~self.stalled, device),
            stalled=send(self.stalled, device),
            acceptance=send(acceptance, device),
            model_evaluations=send(self.evaluations, device),
            levels=levels,
            extreme=self.extreme,
            degrees=send(degrees, device, torch.float64),
            hits=torch.full_like(self.evaluations, -1, device=device),
            samples=torch.zeros_like(self.evaluations, device=device),
        )

    def _raise_levels(self) -> None:
        """Set each problem's next level, keep the particles at or above it, and replace the others by copies."""
        population = self.population
        stages, values = self._read_keys()
        last = population.scores.shape[2]
        ended: list[tuple[int, int, int]] = []  # row, position and best particle
        going_on = []
        level_stage = []
        level_value = []
        survivors = []
        count = population.count
        following, moves = self.level_plan(self.level + 1)
        # of a population that is much larger than the next one, no more are kept than that one has room for
        considered = min(count, math.ceil(following / _SHRINK))
        keep = max(1, round(self.options.quantile * considered))
        keep = min(count - 1, keep)
        for row, position in enumerate(self.active):
            history = self.histories[position]
            best = int(sort_by_key(stages[row], values[row])[-1])
            ended.append((row, position, best))
            level = _next_level(stages[row], values[row], last, keep, not history.stage)
            if level is None or len(history.stage) >= _MOST_LEVELS:
                self.censored[position] = self.stalled[position] = True
                # no level was reached: P is below 1, and nothing else is known
                if not history.stage:
                    everyone = torch.ones(count, dtype=torch.bool)
                    history.record(0, -math.inf, 0.0, everyone)
                continue
            stage, value, log_ratio, above = level
            log_probability = log_ratio
            if history.log_probability:
                log_probability = history.log_probability[-1] + log_ratio
            # reaching a stage is crossing the threshold of the column before it
            if stage and value == -math.inf:
                history.record(stage - 1, 0.0, log_probability, above)
            else:
                history.record(stage, value, log_probability, above)
            if stage == last:
                if self.options.from_event:
                    self.within[position] = self._choose_within(row, above)
                continue
            # the moves of the next level are counted before they are made, so that the budget is not exceeded
            spent = int(self.evaluations[position]) + following * moves
            below = log_probability < self.options.floor
            if below or spent > self.budgets[position]:
                self.censored[position] = True
                self.out_of_budget[position] = not below
                continue
            # this problem goes on, so its best particle is not the last one
            ended.pop()
            going_on.append(row)
            level_stage.append(stage)
            level_value.append(value)
            survivors.append(above)
        device = population.scores.device
        if ended:
            rows, positions, best = send(ended, device).T
            self.extreme[positions] = population.select_points(rows, best)
        self.active = [self.active[row] for row in going_on]
        population.keep(going_on)
        if not going_on:
            return
        self.level_stage = send(level_stage, device)[:, None]
        self.level_value = send(level_value, device, torch.float64)[:, None]
        self.level += 1
        self.parents.append((self.active, population.refill(survivors, following)))

    def _choose_within(self, row: int, inside: Tensor) -> Tensor:
        """A few of the particles in the event, evenly spaced, from which the way back can begin."""
        numbers = inside.nonzero()[:, 0]
        particles, _ = self.plan[-1]
        count, _, _ = plan_return(particles, 1, 0)
        step = max(1, len(numbers) // count)
        few = numbers[::step]
        state = self.population.state
        return state[row][send(few, state.device)]

    def _read_keys(self) -> tuple[Tensor, Tensor]:
        """What particles are ordered by, `(P, n)` each, on the host; records what the last moves did.

        One copy for all problems, the only one in a level.
        """
        keys = [key.double() for key in order_keys(self.population.scores)]
        columns = keys
        if self.moved is not None:
            columns = [*keys, self.moved.double().T]
        on_host = torch.cat(columns, dim=1).cpu()
        count = keys[0].shape[1]
        stages = on_host[:, :count].long()
        values = on_host[:, count : 2 * count]
        if self.moved is not None:
            rates_and_memory = on_host[:, 2 * count :].tolist()
            for position, (rate, kept) in zip(self.active, rates_and_memory, strict=True):
                history = self.histories[position]
                history.acceptance[-1] = rate
                history.memory[-1] = kept
        return stages, values

    def _drop_hidden(self) -> None:
        """End the problems of which the rest would be in vain: few particles lead to the event."""
        self._record_parents()
        stay: list[int] = []
        ended: list[int] = []
        for row, position in enumerate(self.active):
            if self.histories[position].excess() <= _HIDDEN:
                stay.append(row)
            else:
                ended.append(position)
        self.censored[ended] = True
        self.active = [self.active[row] for row in stay]
        self.level_stage = self.level_stage[stay]
        self.level_value = self.level_value[stay]
        self.population.keep(stay)

    def _record_parents(self) -> None:
        """Record the parents of all levels since the last time, by one copy."""
        if not self.parents:
            return
        flat = [parents.flatten() for _, parents in self.parents]
        on_host = torch.cat(flat).cpu()
        parts = torch.split(on_host, [len(parents) for parents in flat])
        for (positions, parents), part in zip(self.parents, parts, strict=True):
            parents_of_problems = part.view(parents.shape)
            for position, row in zip(positions, parents_of_problems, strict=True):
                self.histories[position].parents.append(row)
        self.parents = []

    def _move(self) -> None:
        """Metropolis steps of every particle within its problem's level."""
        count, moves = self.level_plan(self.level)
        self.moved = self.population.move(moves, self.level_stage, self.level_value)
        self.evaluations[self.active] += moves * count


def _return_to_prior(
    run: _Run,
    forward: RareEventEstimate,
    gather: Callable[[list[int], int], Population],
    seed: int,
    witnesses: Tensor | None,
) -> RareEventEstimate:
    """The estimates, with those from the event where it was reached and the budget allows.

    Args:
        run: that has ended.
        forward: its estimates.
        gather: from positions of problems and a seed to these problems, without particles.
        seed: of the way back.
        witnesses: of all problems of the run, `(P, W, *shape)`.
    """
    particles = run.plan[-1][0]
    options = run.options
    plans = [plan_return(particles, options.moves, len(history.stage)) for history in run.histories]
    tries = 0 if witnesses is None else witnesses.shape[1]
    # a random walk leaves its witnesses where they are (`shrink_witnesses`), so each is tried once
    if run.population.proposal != "random_walk":
        tries *= SHRINKING
    costs = [evaluations + tries for _, _, evaluations in plans]
    positions = []
    for position in sorted(run.within):
        evaluations = int(run.evaluations[position]) + costs[position]
        if evaluations <= run.budgets[position]:
            positions.append(position)
    device = forward.log_probability.device
    problems = len(forward.censored)
    back = torch.full((problems,), torch.nan, dtype=torch.float64, device=device)
    error = torch.full_like(back, torch.nan)
    seen_from_outside = torch.zeros_like(forward.censored)
    if positions:
        count, moves, _ = plans[0]
        groups, alike = _find_starts(
            run, positions, lambda: gather(positions, seed), witnesses, device
        )
        estimates = []
        for number, starts in enumerate(groups):
            # both groups have streams of their own
            population = gather(positions, seed ^ (number << 61))
            _place_at(population, starts, size=(count + number) // len(groups))
            levels = [_list_levels(run.histories[position]) for position in positions]
            estimates.append(estimate_from_event(population, levels, moves, _STEPS_IN_EVENT))
        on_device = [
            (value.to(device), error_of_value.to(device)) for value, error_of_value in estimates
        ]
        values, errors = join_groups(on_device, alike)
        back[positions] = values
        error[positions] = errors
        seen_from_outside[positions] = ~alike
        for position in positions:
            run.evaluations[position] += costs[position]
    spent = send(run.evaluations, device)
    both = replace(
        forward,
        from_event=back,
        from_event_error=error,
        from_witnesses=seen_from_outside,
        model_evaluations=spent,
    )
    return replace(both, resolved=both.resolved & ~both.contradicts(AGREEMENT))


def _find_starts(
    run: _Run,
    positions: Sequence[int],
    gather: Callable[[], Population],
    witnesses: Tensor | None,
    device: torch.device,
) -> tuple[list[list[Tensor]], Tensor]:
    """Where the way back starts, for each group of particles: points of the event, `(n, D)` for each problem.

    Returns:
        The particles of the run and, with witnesses, a second group that starts there; and for which problems both
        start at the same points, bool `(P,)`.
    """
    particles = [run.within[position] for position in positions]
    if witnesses is None:
        return [particles], torch.ones(len(positions), dtype=torch.bool, device=device)
    witnessed = shrink_witnesses(gather(), witnesses[list(positions)])
    starts = []
    lacks_witness = []
    for of_run, points in zip(particles, witnessed, strict=True):
        lacks_witness.append(len(points) == 0)
        starts.append(points if len(points) else of_run)
    return [particles, starts], send(lacks_witness, device)


def _place_at(population: Population, starts: Sequence[Tensor], size: int) -> None:
    """Give each problem so many particles, drawn from its starting points."""
    picks = population.streams.refill([len(points) for points in starts], size)
    picked = [points[pick] for points, pick in zip(starts, picks, strict=True)]
    population.place(torch.stack(picked))


def _average_acceptance(history: History) -> float:
    """The mean share of accepted moves over the levels that moved; NaN where none did."""
    accepted = [share for share in history.acceptance if not math.isnan(share)]
    if not accepted:
        return math.nan
    return sum(accepted) / len(accepted)


def _list_levels(history: History) -> list[tuple[int, float]]:
    """The stages and thresholds of all levels."""
    return list(zip(history.stage, history.threshold, strict=True))


def _next_level(
    stages: Tensor, values: Tensor, last: int, keep: int, first: bool = True
) -> tuple[int, float, float, Tensor] | None:
    """The next level of one problem: `(stage, value, ln of the share kept, who is kept)`; None on a plateau."""
    count = len(stages)
    order = sort_by_key(stages, values)
    nth = order[count - keep]
    stage = int(stages[nth])
    value = float(values[nth])
    if stage < last:
        above = (stages > stage) | ((stages == stage) & (values >= value))
        # all particles down to the lowest are tied: continue with those strictly above
        if bool(above.all()):
            above = (stages > stage) | ((stages == stage) & (values > value))
            if not bool(above.any()):
                return None
            lowest = order[count - int(above.sum())]
            stage = int(stages[lowest])
            value = float(values[lowest])
    crossed = stages >= stage
    # reaching a stage is a level of its own (Eq. 13); if nearly all of the prior is in it, no moves are made for it
    cheap = first and float(crossed.float().mean()) > _NEARLY_ALL
    if stage == last or (int(stages.min()) < stage and not cheap):
        share = int(crossed.sum()) / count
        return stage, -math.inf, math.log(share), crossed
    kept = int(above.sum())
    ratio = math.log(kept / count)
    # without ties the level is an order statistic: then this is the exact mean of the logarithm
    if kept == keep:
        of_kept = torch.digamma(torch.tensor(float(kept)))
        of_all = torch.digamma(torch.tensor(count + 1.0))
        ratio = float(of_kept - of_all)
    return stage, value, ratio, above
