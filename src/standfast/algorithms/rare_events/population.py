"""The particles of several problems: their scores, and how they move within a level."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from standfast.algorithms.rare_events.estimate import Score, as_columns
from standfast.algorithms.rare_events.moves import GaussianMoves, Moves, RandomWalk
from standfast.neighbourhoods import Region
from standfast.tensors import Streams, broadcast_rows, count_at_once, send

Proposal = Literal["gaussian", "random_walk"]

CHUNK_ELEMENTS = 1 << 23  # numbers in the particles of one problem that are moved together


class Population:
    """The particles of P problems. Proposals, inputs and maps exist for one chunk of them at a time.

    Attributes:
        problems: the numbers of the problems, int64 `(P,)`.
        state: the particles in Gaussian space, or as inputs for the random walk, `(P, n, *shape)`.
        scores: `(P, n, S)`.
    """

    kernel: Moves

    def __init__(
        self,
        score: Score,
        prior: Region,
        problems: Tensor,
        streams: Streams,
        proposal: Proposal,
        indexed: bool,
    ) -> None:
        self.score = score
        self.indexed = indexed
        self.proposal = proposal
        self.prior = prior
        self.problems = problems
        self.streams = streams
        self.state = torch.empty(
            (len(problems), 0, *prior.shape), dtype=prior.dtype, device=prior.device
        )
        self.scores = torch.empty((len(problems), 0, 1), dtype=torch.float64, device=prior.device)
        self.weight: Tensor | None = None

    def __len__(self) -> int:
        return len(self.problems)

    @property
    def count(self) -> int:
        """How many particles each problem has."""
        return self.state.shape[1]

    def draw(self, count: int, scores: Tensor | None = None) -> None:
        """Draw `count` particles for each problem from the prior, beside those that it has.

        Args:
            scores: theirs, `(P, count, S)`, where they are known.
        """
        prior = self.prior
        shape = (len(self), count, *prior.shape)
        state = torch.empty(shape, dtype=prior.dtype, device=prior.device)
        for part in self._chunks(count):
            drawn = prior.sample_gaussian(part.stop - part.start, self.streams)
            # a random walk moves the inputs themselves
            if self.proposal == "random_walk":
                drawn = prior.from_gaussian(drawn)
            state[:, part] = drawn
        self._add(state, scores)
        self._make_kernel(self.state)

    def place(self, state: Tensor) -> None:
        """Start with these particles, `(P, n, *shape)`."""
        self._add(state, None)
        # its steps are as wide as the prior, and these particles may not be
        walk = self.proposal == "random_walk"
        if walk:
            drawn = self.streams.normal((256, *self.prior.shape), self.prior.dtype)
        else:
            drawn = state
        self._make_kernel(self.prior.from_gaussian(drawn) if walk else state)

    def _add(self, state: Tensor, known: Tensor | None) -> None:
        """Add particles, with their scores."""
        weights: list[Tensor] = []
        parts_of_scores = [] if known is None else [known]
        for part in self._chunks(state.shape[1]):
            points = self.points(state[:, part])
            weight_of_part = self._log_target(points)
            if weight_of_part is not None:
                weights.append(weight_of_part)
            if known is None:
                parts_of_scores.append(self.evaluate(points))
        weight = torch.cat(weights, dim=1) if weights else None
        scores = torch.cat(parts_of_scores, dim=1)
        if self.count:
            state = torch.cat([self.state, state], dim=1)
            scores = torch.cat([self.scores, scores], dim=1)
            if weight is None or self.weight is None:
                weight = None
            else:
                weight = torch.cat([self.weight, weight], dim=1)
        self.state = state
        self.scores = scores
        self.weight = weight

    def _make_kernel(self, drawn: Tensor) -> None:
        """Make the moves; `drawn` is as wide as the prior."""
        if self.proposal == "random_walk":
            self.kernel = RandomWalk(self.prior, drawn)
        else:
            self.kernel = GaussianMoves(drawn)

    def points(self, state: Tensor) -> Tensor:
        """The inputs of these particles."""
        if self.proposal == "random_walk":
            return state
        return self.prior.from_gaussian(state)

    def select_points(self, rows: Tensor, particles: Tensor) -> Tensor:
        """The inputs `(k, *shape)` of k particles of the problems with these numbers, `(k,)` each."""
        state = self.state[rows, particles][:, None]
        # a random walk moves the inputs themselves
        if self.proposal != "random_walk":
            state = self.prior.select(rows).from_gaussian(state)
        return state[:, 0]

    def keep(self, rows: list[int]) -> None:
        """Keep these problems only."""
        if len(rows) == len(self):
            return
        self.prior = self.prior.select(rows)
        self.streams = self.streams.select(rows)
        index = send(rows, self.problems.device, torch.int64)
        self.problems, self.state, self.scores = (
            self.problems[index],
            self.state[index],
            self.scores[index],
        )
        if self.weight is not None:
            self.weight = self.weight[index]
        self.kernel.select(index)

    def refill(self, survivors: Sequence[Tensor], count: int) -> Tensor:
        """`count` particles from each problem's `survivors`, bool `(n,)`: these and random copies; the parents."""
        alive = [above.nonzero()[:, 0] for above in survivors]
        counts = [len(numbers) for numbers in alive]
        picks = torch.stack(self.streams.refill(counts, count))
        numbers_of_alive = send(pad_sequence(alive, batch_first=True), picks.device)
        parents = numbers_of_alive.gather(1, picks)
        rows = torch.arange(len(alive), device=parents.device)[:, None]
        self.state = take_particles(self.state, parents)
        self.scores = self.scores[rows, parents]
        if self.weight is not None:
            self.weight = self.weight[rows, parents]
        return parents

    def move(self, moves: int, stage: Tensor, value: Tensor) -> Tensor:
        """Metropolis steps of every particle within its problem's level; the size of the steps adapts.

        Args:
            stage, value: the levels, each `(P, 1)`.

        Returns:
            The share of accepted steps, and what is left of the positions (`Moves.memory`), `(2, P)`.
        """
        accepted = torch.zeros(len(self), device=self.state.device)
        self.kernel.begin_level(self.state)
        for _ in range(moves):
            self.kernel.begin_move()
            for part in self._chunks(self.count):
                self._move_part(part, stage, value)
            accepted += self.kernel.end_move()
        return torch.stack([accepted / moves, self.kernel.memory])

    def _move_part(self, part: slice, stage: Tensor, value: Tensor) -> None:
        """One Metropolis step of some of the particles; the others stay as they are."""
        state = self.state[:, part]
        proposed, correction = self.kernel.propose(state, self.streams)
        points = self.points(proposed)
        weight = self._log_target(points)
        scores = self.evaluate(points)
        # for memory: what follows needs no inputs
        del points
        accept = is_within(scores, stage, value)
        before = self.scores[:, part]
        # the moves preserve another distribution than the prior's: Metropolis accepts by the ratio of both
        if weight is not None and self.weight is not None:
            chance = self.streams.uniform(weight.shape[1:], weight.dtype)
            weight_before = self.weight[:, part]
            accept &= torch.log(chance) < weight - weight_before + correction
            self.weight[:, part] = torch.where(accept, weight, weight_before)
        self.kernel.record(proposed - state, accept)
        accept_features = broadcast_rows(accept, state)
        self.state[:, part] = torch.where(accept_features, proposed, state)
        self.scores[:, part] = torch.where(accept[..., None], scores, before)

    def evaluate(self, points: Tensor) -> Tensor:
        """Scores `(P, n, S)` of points `(P, n, *shape)`."""
        problems, particles = points.shape[:2]
        rows = problems * particles
        flat = points.reshape(rows, *points.shape[2:])
        if self.indexed:
            values = self.score(flat, self.problems.repeat_interleave(particles))
        else:
            values = self.score(flat)
        return as_columns(values, rows).reshape(problems, particles, -1)

    def _log_target(self, points: Tensor) -> Tensor | None:
        """Log density of the target relative to the distribution that the proposal preserves."""
        if self.proposal == "random_walk":
            return self.prior.log_density(points)
        return self.prior.log_weight(points)

    def _chunks(self, count: int) -> list[slice]:
        """The particles, in parts whose size depends on the features only: a problem's bits depend on it."""
        elements = count_at_once(CHUNK_ELEMENTS, self.prior.device)
        size = max(1, elements // math.prod(self.prior.shape))
        return [slice(start, min(start + size, count)) for start in range(0, count, size)]


def order_keys(scores: Tensor) -> tuple[Tensor, Tensor]:
    """What particles are ordered by: how many stages each has passed, and its value in the next one; `(P, n)` each."""
    has_passed = (scores >= 0).to(torch.int64)
    if scores.shape[-1] == 1:  # as below, in two steps instead of six
        return has_passed[..., 0], scores[..., 0]
    # a stage counts only if all before it were passed
    passed = has_passed.cumprod(-1).sum(-1)
    # after the last stage the last column decides
    padded = torch.cat([scores, scores[..., -1:]], dim=-1)
    values = padded.gather(-1, passed[..., None])
    return passed, values[..., 0]


def sort_by_key(stages: Tensor, values: Tensor) -> Tensor:
    """One problem's particles from the lowest key to the highest, `(n,)`."""
    # a stable sort by stage keeps the order of values within a stage
    by_value = values.argsort(stable=True)
    order = stages[by_value].argsort(stable=True)
    return by_value[order]


def is_within(scores: Tensor, stage: Tensor, value: Tensor) -> Tensor:
    """Whether particles are at or above their problem's level, bool `(P, n)`."""
    stages, values = order_keys(scores)
    return (stages > stage) | ((stages == stage) & (values >= value))


def take_particles(state: Tensor, parents: Tensor) -> Tensor:
    """The particles `(P, n, *shape)` with these numbers `(P, m)`; in place, feature by feature, where m = n."""
    rows = torch.arange(len(parents), device=parents.device)[:, None]
    size = state.shape[1]
    new_size = parents.shape[1]
    if new_size == size:
        out = state
    else:
        out = state.new_empty((*parents.shape, *state.shape[2:]))
    before = state.flatten(2)
    after = out.flatten(2)
    elements = count_at_once(CHUNK_ELEMENTS, state)
    features = max(1, elements // max(new_size, size))
    for start in range(0, before.shape[2], features):
        part = slice(start, start + features)
        values = before[:, :, part]
        after[:, :, part] = values[rows, parents]
    return out
