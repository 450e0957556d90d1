"""What the searches for a worst case share: the objective, the order of candidates, a run and its accounts, the result.

A search maximises `value(x)` subject to `violation(x) < 0` or `<= 0` over the region around each of P centres, for all
of them at once. The objective is a black box, and the search knows nothing of explanations.
"""

from __future__ import annotations

import bisect
import copy
import math
from abc import abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from standfast.errors import ArgumentError, check_integer
from standfast.neighbourhoods import Region
from standfast.records import ConfigurationType
from standfast.registry import Registry
from standfast.tensors import Streams, broadcast_rows

#: the key of an outcome with a NaN, below all others
NAN_KEY = -(1 << 63)

#: a region of at most so many parameters has optima inside its box, and few that are worth a visit
FEW = 4

_TRACE_POINTS = 200  # about how many entries a trace has at most
# of a search that proposes points round by round: about how many rounds, of small budgets; the fewest proposals of a
# round, since batches have at least that many rows anyway, and what they are a multiple of, as the rows of a batch are
_ROUNDS = 64
_FEWEST_PROPOSALS = 16
_ALIGNED = 8


@dataclass(frozen=True)
class Outcome:
    """What the objective says of M points.

    Attributes:
        value: what is maximised, `(M,)`.
        violation: how far the constraint is from being met; at most 0 where it is met. `(M,)`
    """

    value: Tensor
    violation: Tensor

    def key(self) -> Tensor:
        """Integers in the order of preference, int64 `(M,)`.

        Feasible points are ordered by value. All others lie below them, ordered by violation (Deb 2000). NaN comes
        last. The order is exact for float32: unequal values never tie.

        >>> seen = Outcome(torch.tensor([1.0, 2.0, 9.0, torch.nan]), torch.tensor([0.0, -1.0, 0.5, -1.0]))
        >>> seen.key().argsort(descending=True).tolist()
        [1, 0, 2, 3]
        """
        return self._key

    @cached_property
    def _key(self) -> Tensor:  # a search asks several times
        both = torch.stack([self.value.double(), self.violation.double()])
        value, violation = _to_integers(both)
        # both integers are at most 2^61, so all feasible keys lie above all others
        key = torch.where(self.violation <= 0, value + (1 << 62), -violation)
        return torch.where(self.value.isnan() | self.violation.isnan(), NAN_KEY, key)

    def gather(self, rows: Tensor) -> Outcome:
        """Of an outcome `(P, n)` the points numbered `rows` `(P, k)` of each problem, `(P, k)`."""
        return Outcome(self.value.gather(1, rows), self.violation.gather(1, rows))


def _to_integers(x: Tensor) -> Tensor:
    """Integers of at most `2^61` in magnitude, in the order of float64 `x`: their bits, in two's complement."""
    # -0.0 and 0.0 are equal, and have different bits
    bits = (x + 0.0).view(torch.int64)
    # the bits of a negative number grow as it falls: turned over, all are in order
    return torch.where(bits < 0, bits ^ ((1 << 63) - 1), bits) >> 2


class Objective(Protocol):
    """A black box: the outcome of points `(M, *shape)`; `problem` `(M,)` says to which problem each point belongs."""

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome: ...


class GradientObjective(Protocol):
    """The directions of steepest ascent at points `(M, *shape)`, on a smoothed model; for white-box searches only.

    Where `feasible` `(M,)` holds, the gradient of the value; elsewhere the gradient of minus the violation. Shaped like
    `x`, without NaN. The implementation cuts the work to what fits into memory. `sharpness` above 1 asks for a smoothed
    model that is nearer to the true one by this factor; below 1 for a smoother one.
    """

    def __call__(
        self, x: Tensor, problem: Tensor, feasible: Tensor, sharpness: float = 1.0
    ) -> Tensor: ...


@dataclass(frozen=True)
class Draft:
    """A cheaper objective for the same problems, which tells roughly what the objective says of a point.

    Attributes:
        objective, gradient: as those of a search; `gradient` is None where there is none.
        rows, whole_rows: what an evaluation of this objective takes, and one of the objective itself, in the same unit:
            rows that a module is given.
        made_before: how many drafts of each problem were needed before the search, which count too.
    """

    objective: Objective
    gradient: GradientObjective | None
    rows: int
    whole_rows: int
    made_before: int = 0

    def count_within(self, evaluations: int) -> int:
        """How many drafts a search may have, so that all cost at most as much as so many evaluations.

        >>> Draft(Objective, None, rows=9, whole_rows=33, made_before=1).count_within(100)
        365
        """
        return evaluations * self.whole_rows // self.rows - self.made_before

    def cost_of(self, drafts: int) -> int:
        """As how many evaluations so many drafts of a search count: what all drafts cost, rounded up.

        >>> Draft(Objective, None, rows=9, whole_rows=33, made_before=1).cost_of(365)
        100
        """
        rows = (drafts + self.made_before) * self.rows
        return math.ceil(rows / self.whole_rows)


def differentiate_outcome(outcome: Outcome, x: Tensor, feasible: Tensor) -> Tensor:
    """What a `GradientObjective` returns, from an outcome whose graph leads to `x`; zeros where no graph does."""
    goal = torch.where(feasible, outcome.value, -outcome.violation)
    if not goal.requires_grad:
        return torch.zeros_like(x)
    (direction,) = torch.autograd.grad(goal.sum(), x, materialize_grads=True)
    return direction.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Trace:
    """The outcome of the best candidate after some of the evaluations.

    Attributes:
        evaluations: for each problem so far, `(T,)`.
        value, violation: of the best candidate, `(P, T)`.
    """

    evaluations: Tensor
    value: Tensor
    violation: Tensor


@dataclass(frozen=True)
class SearchResult:
    """The best point of each problem, as the search saw it; the caller re-evaluates it.

    Attributes:
        inputs: `(P, *shape)`.
        value, violation: `(P,)`.
        trace: the best outcome against the number of evaluations.
        population: the last one, `(P, n, *shape)`; None for a search without one, and where the budget was spent on
            the centres.
        followed_gradients: whether the search used the gradient objective.
        gap: an estimate of how far the true optimum may be above `value`, `(P,)`, from a search that has one (`grid`);
            it is no bound, but where `exact` says that it is 0. Infinite where nothing feasible was found, NaN where
            nothing is known; None from the other searches.
        exact: whether all points that differ were evaluated, bool `(P,)`, from a search that may do so (`choices`).
        drafts: how many drafts of each problem were evaluated (`draft`); they are counted in the trace at their cost.
    """

    inputs: Tensor
    value: Tensor
    violation: Tensor
    trace: Trace
    population: Tensor | None = None
    followed_gradients: bool = False
    gap: Tensor | None = None
    exact: Tensor | None = None
    drafts: int = 0


class Incumbent:
    """The point `(P, 1, *shape)` of each problem that is kept, its outcome and its key, `(P,)` each."""

    def __init__(self, x: Tensor, seen: Outcome, key: Tensor) -> None:
        self.x = x
        self.seen = seen
        self.key = key

    def select(self, rows: Tensor) -> Incumbent:
        """The points of some problems."""
        return Incumbent(
            self.x[rows], Outcome(self.seen.value[rows], self.seen.violation[rows]), self.key[rows]
        )

    def replace_rows(self, rows: Tensor, other: Incumbent) -> None:
        """Take the points of some problems from elsewhere."""
        self.x = self.x.index_copy(0, rows, other.x)
        self.key = self.key.index_copy(0, rows, other.key)
        self.seen = Outcome(
            self.seen.value.index_copy(0, rows, other.seen.value),
            self.seen.violation.index_copy(0, rows, other.seen.violation),
        )

    def accept(self, y: Tensor, seen: Outcome) -> None:
        """The best of the points `y` `(P, n, *shape)`, the first of equals, replaces the incumbent if it is better."""
        key, row = seen.key().max(dim=1)
        better, row = key > self.key, row[:, None]
        outcome = seen.gather(row)
        self.key = torch.where(better, key, self.key)
        is_better = broadcast_rows(better, self.x)
        self.x = torch.where(is_better, take_points(y, row), self.x)
        self.seen = Outcome(
            torch.where(better, outcome.value[:, 0], self.seen.value),
            torch.where(better, outcome.violation[:, 0], self.seen.violation),
        )


class SearchRun:
    """One run of a search: it queries the objective, counts evaluations, and keeps the best point of each problem.

    It starts with the centres, at one evaluation each. So a search for an event that the centre satisfies always ends
    with a point that meets the constraint. Of equally good points the first one stays.

    Attributes:
        region: where all points must lie.
        budget: evaluations of each problem at most.
        spent: evaluations of each problem so far.
        kept: the best points so far, with their outcomes and keys.
        followed_gradients: whether the gradient objective was used.
        draft: a cheaper objective, where there is one.
        gap, exact, drafts: for a search that knows them, to set at its end; see `SearchResult`.
    """

    gap: Tensor | None = None
    exact: Tensor | None = None
    drafts: int = 0

    def __init__(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        gradient: GradientObjective | None = None,
        draft: Draft | None = None,
    ) -> None:
        self._objective = objective
        self._gradient = gradient
        self.draft = draft
        self.region = region
        self.budget = budget
        self.spent = 0
        self.followed_gradients = False
        self._every, self._next = max(1, budget // _TRACE_POINTS), 0
        self._trace: list[tuple[int, Outcome]] = []
        centre = region.centre.clone()[:, None]
        outcome = self._evaluate(centre)
        value = outcome.value[:, 0].clone()
        violation = outcome.violation[:, 0].clone()
        best = Outcome(value, violation)
        self.kept = Incumbent(centre, best, best.key())
        self._note()

    @property
    def left(self) -> int:
        """Evaluations of each problem that the budget still allows."""
        return self.budget - self.spent

    def query(self, x: Tensor, rows: Tensor | None = None) -> Outcome:
        """The outcome `(P, n)` of n candidates for each problem, `(P, n, *shape)`; better ones become the best.

        With `rows` `(Q,)`, only these problems have candidates: `x` is `(Q, n, *shape)`, and the outcome `(Q, n)`.
        """
        outcome = self._evaluate(x, rows)
        if rows is None:
            self.kept.accept(x, outcome)
        else:
            best = self.kept.select(rows)
            best.accept(x, outcome)
            self.kept.replace_rows(rows, best)
        self._note()
        return outcome

    def begin_part(self, rows: Tensor) -> SearchRun:
        """A run of some of the problems, `rows` `(Q,)`, that goes on from here, with what is left of the budget."""
        part = copy.copy(self)
        part._objective = lambda x, problem: self._objective(x, rows[problem])
        part.region = self.region.select(rows)
        part.kept = self.kept.select(rows)
        part._trace = [
            (spent, Outcome(outcome.value[rows], outcome.violation[rows]))
            for spent, outcome in self._trace
        ]
        return part

    def take_part(self, rows: Tensor, part: SearchRun) -> None:
        """Take over what a run of some of the problems has found, at the times of this run's trace."""
        self.kept.replace_rows(rows, part.kept)
        times = [spent for spent, _ in part._trace]
        whole = []
        for spent, outcome in self._trace:
            latest = part._trace[bisect.bisect_right(times, spent) - 1][1]
            value = outcome.value.index_copy(0, rows, latest.value.to(outcome.value))
            violation = outcome.violation.index_copy(
                0, rows, latest.violation.to(outcome.violation)
            )
            whole.append((spent, Outcome(value, violation)))
        self._trace = whole

    def skip(self, count: int) -> None:
        """Count evaluations as spent that no problem needs, so that a trace does not depend on the other problems."""
        self.spent += count
        self._note()

    @property
    def white_box(self) -> bool:
        """Whether there is a gradient objective."""
        return self._gradient is not None

    def find_ascent(self, x: Tensor, feasible: Tensor, sharpness: float = 1.0) -> Tensor:
        """The gradient objective's directions, like `x` `(P, n, *shape)`; `feasible` `(P, n)`. One evaluation each."""
        assert self._gradient is not None
        directions = self._gradient(
            x.flatten(0, 1), _number_problems(x), feasible.flatten(), sharpness
        )
        self.followed_gradients = True
        self.spent += x.shape[1]
        return directions.reshape(x.shape)

    def result(self, population: Tensor | None = None) -> SearchResult:
        """The best points, and how the run came to them."""
        self._note(last=True)
        evaluations, outcomes = zip(*self._trace, strict=True)
        trace = Trace(
            torch.tensor(evaluations),
            torch.stack([outcome.value for outcome in outcomes], dim=1),
            torch.stack([outcome.violation for outcome in outcomes], dim=1),
        )
        x = self.kept.x[:, 0]
        best = self.kept.seen
        return SearchResult(
            inputs=x,
            value=best.value,
            violation=best.violation,
            trace=trace,
            population=population,
            followed_gradients=self.followed_gradients,
            gap=self.gap,
            exact=self.exact,
            drafts=self.drafts,
        )

    def _evaluate(self, x: Tensor, rows: Tensor | None = None) -> Outcome:
        problem = _number_problems(x)
        if rows is not None:
            problem = rows[problem]
        outcome = self._objective(x.flatten(0, 1), problem)
        self.spent += x.shape[1]
        shape = x.shape[:2]
        return Outcome(outcome.value.reshape(shape), outcome.violation.reshape(shape))

    def _note(self, last: bool = False) -> None:
        """Add the best outcome to the trace, in steps of equal length."""
        is_noted = bool(self._trace) and self._trace[-1][0] == self.spent
        if not is_noted and (last or self.spent >= self._next):
            self._next = self.spent + self._every
            self._trace.append((self.spent, self.kept.seen))


@dataclass(frozen=True)
class Search(metaclass=ConfigurationType):
    """One way to search: options in the constructor, and the method in `search`."""

    name: ClassVar[str]
    #: whether it needs the gradient objective
    white_box: ClassVar[bool] = False
    #: whether it uses the gradient objective where there is one
    takes_gradient: ClassVar[bool] = False
    #: whether it uses a cheaper objective where there is one
    takes_draft: ClassVar[bool] = False

    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
        draft: Draft | None = None,
    ) -> SearchResult:
        """Search around each centre of `region`, with at most `budget` evaluations for each, the centre's included.

        Every point handed to `objective` lies in the region. Random numbers come from `region.streams(seed)`. A search
        that takes no draft ignores it.

        Raises:
            ArgumentError: a budget below 1, or no `gradient` for a white-box search.
        """
        check_integer(budget, "budget")
        if self.white_box and gradient is None:
            raise ArgumentError("gradient", "an objective that can be differentiated", None)
        if not self.takes_draft:
            draft = None
        run = SearchRun(objective, region, budget, gradient, draft)
        population = None
        if run.left:
            population = self.search(run, region.streams(seed))
        return run.result(population)

    @abstractmethod
    def search(self, run: SearchRun, streams: Streams) -> Tensor | None:
        """Spend what is left of the budget, by `run.query`; the last population if the search keeps one, else None.

        At least one evaluation is left. `streams` has a random stream for each problem.
        """


searches: Registry[type[Search]] = Registry("search")


def count_proposals(budget: int, most: int) -> int:
    """How many points of each problem one round evaluates: about 1.5% of the budget, at least 16, at most `most`.

    >>> count_proposals(10_000, most=80), count_proposals(3_000, most=80), count_proposals(100, most=80)
    (80, 48, 16)
    """
    aligned = round(budget / _ROUNDS / _ALIGNED) * _ALIGNED
    return min(most, max(_FEWEST_PROPOSALS, aligned))


def take_points(x: Tensor, rows: Tensor) -> Tensor:
    """The points numbered `rows` `(P, k)` of each problem's points `x` `(P, n, *shape)`."""
    problems = torch.arange(len(x), device=x.device)
    return x[problems[:, None], rows]


def draw_starts(region: Region, count: int, streams: Streams) -> Tensor:
    """Points `(P, count, *shape)` to start from: drawn from the region, or spread over the box of few parameters.

    In a box of at most `FEW` parameters they are a Kronecker sequence with a random shift, which leaves no large part
    of the box empty: point i has `shift + i / g^d` modulo 1 along parameter d, with `g^(D + 1) = g + 1`. Source:
    Roberts, "The unreasonable effectiveness of quasirandom sequences" (2018).
    """
    size = region.shape.numel()
    if size > FEW:
        return region.project(region.sample(count, streams))
    ratio = 1.5
    # the generalised golden ratio g, by iterating g = (1 + g)^(1 / (D + 1))
    for _ in range(60):
        ratio = (1 + ratio) ** (1 / (size + 1))
    powers = torch.arange(1, size + 1, device=region.device, dtype=torch.float64)
    numbers = torch.arange(count, device=region.device, dtype=torch.float64)
    steps = numbers[:, None] * ratio**-powers
    share = (streams.uniform((1, size), torch.float64) + steps) % 1
    share = share.to(region.dtype).reshape(len(region), count, *region.shape)
    lower, upper = (face[:, None].expand_as(share) for face in region.box)
    return region.project(torch.lerp(lower, upper, share))


def _number_problems(x: Tensor) -> Tensor:
    """The number of the problem of each of the points `(P, n, *shape)`, `(P * n,)`."""
    problems = torch.arange(len(x), device=x.device)
    return problems.repeat_interleave(x.shape[1])
