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

Only the particles are held as a whole. Proposals, inputs and maps exist for one chunk of them; see `expect_memory`.

Cost: `N (1 + moves * levels)` scores for each problem, about `ln P / ln quantile` levels, and 95 N for the large first
populations with `first=32` and 4 moves.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from holdfast.algorithms.rare_events.estimate import RareEventEstimate, Score, as_columns
from holdfast.algorithms.rare_events.genealogy import History
from holdfast.algorithms.rare_events.moves import GaussianMoves, RandomWalk
from holdfast.algorithms.rare_events.pooling import concatenate, run_until
from holdfast.algorithms.rare_events.priors import Prior
from holdfast.errors import check, check_integer
from holdfast.tensors import broadcast_rows, draw_seed

Proposal = Literal["gaussian", "random_walk"]

_STATE_ELEMENTS = 1 << 26  # numbers in the particles of one group of problems: a quarter of a gigabyte
_MOST_LEVELS = 1000
_NEARLY_ALL = 0.9
_FIRST_WITH_ERROR = 32_000  # particles in the first population, at least, where an error is asked for
_FIRST_ELEMENTS = 1 << 26  # numbers in the first population of one problem, at most
_CHUNK_ELEMENTS = 1 << 23  # numbers in the particles of one problem that are moved together
_SHRINK = 0.7  # each population is that much smaller than the one before, down to `particles`
_LARGE = 4  # populations of more than that many times `particles` make fewer moves, since they are that diverse


def subset_simulation(
    score: Score,
    prior: Prior,
    particles: int = 1000,
    moves: int = 4,
    quantile: float = 0.5,
    first: float = 32.0,
    proposal: Proposal = "gaussian",
    floor: float = -100.0,
    error: float | None = None,
    budget: int | None = None,
    generator: torch.Generator | None = None,
    indexed: bool = False,
) -> RareEventEstimate:
    """Estimate `ln P(score(x) >= 0)` for x from each of the prior's P distributions.

    Args:
        score: maps points `(M, *shape)` to scores `(M,)`; failure is `score >= 0`. It may return `(M, S)` for an
            event in S stages (Eq. 13 to 15): all of the columns `>= 0`, reached one after the other. NaN is never a
            failure.
        prior: a neighbourhood around inputs (`ball.around(inputs, bounds)`), `UnitBox(d)` or `StandardNormal(d)`.
        particles: N, at least 10.
        moves: Metropolis steps for each particle and level, at least 1.
        quantile: rho, the share of particles that a level keeps; strictly between 0 and 1.
        proposal: `"gaussian"` or the paper's `"random_walk"`.
        first: the first population has `first * particles` particles, as far as memory allows. Later ones shrink
            level by level to `particles`. It finds ways to the event that few particles take at first. Where `error`
            is given, it has at least 32,000 particles, since a mode that it misses is lost.
        floor: the ln P at which a run stops; the estimate is then `censored`.
        error: the standard error of ln P that is wanted. Runs are then repeated and pooled until it is reached: with
            as many particles again, or twice as many while the result is not resolved; at most 20 runs, and without a
            budget at most 32 times the particles. None: one run.
        budget: scores at most for each problem; None: no limit. A run that would exceed it ends and is `censored`.
        generator: the seed is drawn from it; without one the seed is always the same.
        indexed: call `score(x, problem)` with the problem's number for every row, int64 `(M,)`.

    Raises:
        ArgumentError: for a value outside these ranges, or a score of the wrong shape.

    >>> from holdfast.algorithms import UnitBox
    >>> half = subset_simulation(lambda x: x[:, 0] - 0.5, UnitBox(2), particles=500)
    >>> bool((half.log_probability.exp() - 0.5).abs() < 0.1)
    True
    """
    check_integer(particles, "particles", 10)
    check_integer(moves, "moves")
    check(0 < quantile < 1, "quantile", "a number between 0 and 1", quantile)
    check(proposal in get_args(Proposal), "proposal", f"one of {', '.join(get_args(Proposal))}", repr(proposal))
    check(floor < 0, "floor", "a number below 0", floor)
    check(first >= 1, "first", "a number of at least 1", first)
    check(error is None or error > 0, "error", "a number above 0, or None", error)
    check_integer(budget, "budget", particles, also=(None,))
    seed = draw_seed(generator)
    features = math.prod(prior.shape)

    def simulate(problems: list[int], count: int, budgets: list[float], number: int) -> RareEventEstimate:
        wanted = first * count if error is None or first == 1 else max(first * count, _FIRST_WITH_ERROR)
        most = wanted if budget is None else min(wanted, budget / 16)  # leaves room for other levels
        sizes = plan_sizes(count, round(most), features)
        together = max(1, _STATE_ELEMENTS // (sizes[0] * features))
        parts = []
        for start in range(0, len(problems), together):
            rows, limits = torch.tensor(problems[start : start + together]), budgets[start : start + together]
            run = _Run(score, prior, rows, seed + number, sizes, moves, quantile, proposal, floor, limits, indexed)
            parts.append(run.result())
        return concatenate(parts)

    with torch.no_grad():
        return run_until(simulate, len(prior), particles, error, budget)


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


def expect_memory(particles: int, first: int, shape: torch.Size, problems: int = 1, itemsize: int = 4) -> int:
    """Bytes at the peak of a run, without what the score itself needs.

    `itemsize * features * (particles + 8 * chunk)`: the particles of the problems that run together, and about eight
    tensors of a chunk (noise, proposals, inputs, steps). A chunk has at most 2^23 numbers for each problem.

    >>> round(expect_memory(1000, 1000, torch.Size((3, 224, 224))) / 1e9, 2)
    0.87
    """
    features = math.prod(shape)
    largest = plan_sizes(particles, first, features)[0]
    together = min(problems, max(1, _STATE_ELEMENTS // (largest * features)))
    chunk = min(largest, max(1, _CHUNK_ELEMENTS // features))
    return itemsize * features * together * (largest + 8 * chunk)


def count_moves(size: int, particles: int, moves: int) -> int:
    """The moves of a level's population."""
    return max(1, moves // 4) if size > _LARGE * particles else moves


class _Run:
    """The problems of one group, level by level; those that have ended are removed from the batch."""

    def __init__(
        self,
        score: Score,
        prior: Prior,
        rows: Tensor,
        seed: int,
        sizes: list[int],
        moves: int,
        quantile: float,
        proposal: Proposal,
        floor: float,
        budgets: list[float],
        indexed: bool,
    ) -> None:
        self.score, self.indexed = score, indexed
        self.problems = rows.to(prior.device)  # numbers of the problems still running
        self.prior = prior.select(rows)
        self.streams = self.prior.streams(seed)
        self.sizes, self.moves, self.quantile, self.proposal = sizes, moves, quantile, proposal
        self.floor, self.budgets = floor, budgets
        self.level = 0
        total = len(rows)
        self.active = list(range(total))  # their places in the result
        self.histories = [History() for _ in range(total)]
        self.evaluations = torch.zeros(total, dtype=torch.int64)
        self.censored = torch.zeros(total, dtype=torch.bool)
        self.stalled = torch.zeros(total, dtype=torch.bool)
        self.out_of_budget = torch.zeros(total, dtype=torch.bool)
        self._draw_first()
        self.kernel = RandomWalk(self.prior, self.state) if proposal == "random_walk" else GaussianMoves(self.state)
        self.extreme = self._points(self.state[:, :1])[:, 0].clone()

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
        levels, degrees = zip(*(h.levels() for h in self.histories), strict=True)
        last = torch.stack([level.log_probability[-1] for level in levels])
        error = torch.stack([level.std_error[-1] for level in levels])
        # a run that ended early only knows that P lies below the last level that it can rely on
        bound = torch.tensor([level.bound() for level in levels], dtype=torch.float64)
        trusted = torch.stack([level.trusted[-1] for level in levels])
        accepted = [[a for a in h.acceptance if not math.isnan(a)] for h in self.histories]
        device = self.extreme.device
        return RareEventEstimate(
            log_probability=torch.where(self.censored, bound, last).to(device),
            std_error=torch.where(self.censored, torch.nan, error).to(device),
            censored=self.censored.to(device),
            resolved=(trusted & ~self.out_of_budget & ~self.stalled).to(device),
            stalled=self.stalled.to(device),
            acceptance=torch.tensor([sum(a) / len(a) if a else math.nan for a in accepted], device=device),
            model_evaluations=self.evaluations.to(device),
            levels=levels,
            extreme=self.extreme,
            degrees=torch.tensor(degrees, device=device, dtype=torch.float64),
        )

    def _evaluate(self, points: Tensor) -> Tensor:
        """Scores `(A, N, S)` of points `(A, N, *shape)`."""
        rows = points.shape[0] * points.shape[1]
        flat = points.reshape(rows, *points.shape[2:])
        if self.indexed:
            values = self.score(flat, self.problems.repeat_interleave(points.shape[1]))
        else:
            values = self.score(flat)
        return as_columns(values, rows).reshape(*points.shape[:2], -1)

    def _points(self, state: Tensor) -> Tensor:
        """The inputs of these particles; the random walk's particles are inputs already."""
        return state if self.proposal == "random_walk" else self.prior.from_gaussian(state)

    def _chunks(self, count: int) -> list[slice]:
        """The particles, in parts whose size depends on the features only: a problem's bits depend on it."""
        size = max(1, _CHUNK_ELEMENTS // math.prod(self.prior.shape))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]

    def _draw_first(self) -> None:
        """The first population and its scores."""
        shape = (len(self.active), self.count, *self.prior.shape)
        self.state = torch.empty(shape, dtype=self.prior.dtype, device=self.prior.device)
        weights, scores = [], []
        for part in self._chunks(self.count):
            drawn = self.prior.sample_gaussian(part.stop - part.start, self.streams)
            points = self.prior.from_gaussian(drawn)
            self.state[:, part] = points if self.proposal == "random_walk" else drawn
            weights.append(self._log_target(points))
            scores.append(self._evaluate(points))
        self.weight = None if weights[0] is None else torch.cat([w for w in weights if w is not None], dim=1)
        self.scores = torch.cat(scores, dim=1)
        self.evaluations += self.count

    def _log_target(self, points: Tensor) -> Tensor | None:
        """Log density of the target relative to the distribution that the proposal preserves."""
        return self.prior.log_density(points) if self.proposal == "random_walk" else self.prior.log_weight(points)

    def _raise_levels(self) -> None:
        """Set each problem's next level, keep the particles at or above it, and replace the others by copies."""
        stages, values = (key.cpu() for key in _keys(self.scores))  # one copy for all problems
        going_on, level_stage, level_value, survivors = [], [], [], []
        keep = min(self.count - 1, max(1, round(self.quantile * self.count)))
        for row, place in enumerate(self.active):
            history = self.histories[place]
            best = _order(stages[row], values[row])[-1]
            self.extreme[place] = self._point(row, int(best))
            level = _next_level(stages[row], values[row], self.scores.shape[2], keep, not history.stage)
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
            if stage == self.scores.shape[2]:
                continue
            spent = int(self.evaluations[place]) + self._plan_evaluations()
            below = before + log_ratio < self.floor
            if below or spent > self.budgets[place]:
                self.censored[place] = True
                self.out_of_budget[place] = not below
                continue
            going_on.append(row)
            level_stage.append(stage)
            level_value.append(value)
            survivors.append(above)
        self._keep_problems(going_on)
        if not going_on:
            return
        device = self.scores.device
        self.level_stage = torch.tensor(level_stage, device=device)[:, None]
        self.level_value = torch.tensor(level_value, device=device, dtype=torch.float64)[:, None]
        self._refill(survivors)

    def _plan_evaluations(self) -> int:
        """The evaluations of the next level for each problem."""
        size = self.sizes[min(self.level + 1, len(self.sizes) - 1)]
        return size * count_moves(size, self.sizes[-1], self.moves)

    def _point(self, row: int, particle: int) -> Tensor:
        point = self.state[row : row + 1, particle : particle + 1]
        return (point if self.proposal == "random_walk" else self.prior.select([row]).from_gaussian(point))[0, 0]

    def _keep_problems(self, rows: list[int]) -> None:
        if len(rows) == len(self.active):
            return
        self.active = [self.active[row] for row in rows]
        self.prior, self.streams = self.prior.select(rows), self.streams.select(rows)
        index = torch.tensor(rows, device=self.problems.device, dtype=torch.int64)
        self.problems, self.state, self.scores = self.problems[index], self.state[index], self.scores[index]
        if self.weight is not None:
            self.weight = self.weight[index]
        self.kernel.select(index)

    def _refill(self, survivors: list[Tensor]) -> None:
        alive = [above.nonzero()[:, 0].to(self.state.device) for above in survivors]
        self.level += 1
        picks = self.streams.refill([len(a) for a in alive], self.count)
        parents = torch.stack([survivor[pick] for survivor, pick in zip(alive, picks, strict=True)])
        for place, own in zip(self.active, parents.cpu(), strict=True):
            self.histories[place].parents.append(own)
        rows = torch.arange(len(alive), device=parents.device)[:, None]
        self.state, self.scores = _take(self.state, parents), self.scores[rows, parents]
        if self.weight is not None:
            self.weight = self.weight[rows, parents]

    def _move(self) -> None:
        """`moves` Metropolis steps of every particle within its problem's level, adapting their width as they go."""
        accepted = torch.zeros(len(self.active), device=self.state.device)
        moves = count_moves(self.count, self.sizes[-1], self.moves)
        self.kernel.begin_level(self.state)
        for _ in range(moves):
            self.kernel.begin_move()
            for part in self._chunks(self.count):
                self._move_part(part)
            accepted += self.kernel.end_move()
        self.evaluations[self.active] += moves * self.count
        ends = torch.stack([accepted / moves, self.kernel.memory]).tolist()
        for place, rate, kept in zip(self.active, *ends, strict=True):
            self.histories[place].acceptance[-1] = rate
            self.histories[place].memory[-1] = kept

    def _move_part(self, part: slice) -> None:
        """One Metropolis step of some of the particles; the others are left as they are."""
        state, old = self.state[:, part], self.scores[:, part]
        proposed, correction = self.kernel.propose(state, self.streams)
        points = self._points(proposed)
        weight = self._log_target(points)
        scores = self._evaluate(points)
        del points
        stages, values = _keys(scores)
        accept = (stages > self.level_stage) | ((stages == self.level_stage) & (values >= self.level_value))
        if weight is not None and self.weight is not None:
            chance = self.streams.uniform(weight.shape[1:], weight.dtype)
            accept &= torch.log(chance) < weight - self.weight[:, part] + correction
            self.weight[:, part] = torch.where(accept, weight, self.weight[:, part])
        self.kernel.record(proposed - state, accept)
        self.state[:, part] = torch.where(broadcast_rows(accept, state), proposed, state)
        self.scores[:, part] = torch.where(accept[..., None], scores, old)


def _take(state: Tensor, parents: Tensor) -> Tensor:
    """The particles `(P, n, *shape)` with these numbers `(P, m)`; in place, feature by feature, where m = n."""
    rows = torch.arange(len(parents), device=parents.device)[:, None]
    same = parents.shape[1] == state.shape[1]
    out = state if same else state.new_empty((*parents.shape, *state.shape[2:]))
    before, after = state.flatten(2), out.flatten(2)
    features = max(1, _CHUNK_ELEMENTS // max(parents.shape[1], state.shape[1]))
    for start in range(0, before.shape[2], features):
        part = slice(start, start + features)
        after[:, :, part] = before[:, :, part][rows, parents]
    return out


def _keys(scores: Tensor) -> tuple[Tensor, Tensor]:
    """What particles are ordered by: how many stages each has passed, and its value in the next one."""
    passed = (scores >= 0).to(torch.int64).cumprod(-1).sum(-1)
    padded = torch.cat([scores, scores[..., -1:]], dim=-1)  # after the last stage the last column decides
    return passed, padded.gather(-1, passed[..., None])[..., 0]


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
