"""What the searches for a worst case share: the objective's contract, the order of candidates, the result.

A search maximises `value(x)` subject to `violation(x) < 0` or `<= 0` over the region around each of P centres, all P
at once. It is handed a black box and knows nothing of explanations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch
from torch import Tensor

from holdfast.errors import check_integer
from holdfast.neighbourhood import Region
from holdfast.registry import Registry
from holdfast.tensors import rows_to

#: of an outcome with a NaN: below all others
NAN_KEY = -(1 << 63)


@dataclass(frozen=True)
class Outcome:
    """What the objective says of M points.

    Attributes:
        value: to be made as large as possible, `(M,)`.
        violation: how far the constraint is from being met; at most 0 where it is met. `(M,)`
    """

    value: Tensor
    violation: Tensor

    def key(self) -> Tensor:
        """Feasible points by value, and below all of them the others by violation (Deb 2000); int64 `(M,)`.

        Exact for float32: unequal values never tie. NaN comes last of all.

        >>> seen = Outcome(torch.tensor([1.0, 2.0, 9.0, torch.nan]), torch.tensor([0.0, -1.0, 0.5, -1.0]))
        >>> seen.key().argsort(descending=True).tolist()
        [1, 0, 2, 3]
        """
        value, violation = _ordered(self.value), _ordered(self.violation)
        key = torch.where(self.violation <= 0, value + (1 << 62), -violation)
        return torch.where(self.value.isnan() | self.violation.isnan(), NAN_KEY, key)

    def select(self, rows: Tensor) -> Outcome:
        """The outcome of some points."""
        return Outcome(self.value[rows], self.violation[rows])


def _ordered(x: Tensor) -> Tensor:
    """Integers up to `2^61` in magnitude, in the order of the floats `x`: their bits, in two's complement."""
    bits = (x.double() + 0.0).view(torch.int64)
    return torch.where(bits < 0, bits ^ ((1 << 63) - 1), bits) >> 2


class Objective(Protocol):
    """A black box on points `(M, *shape)`, `problem` `(M,)` saying whose each is."""

    def __call__(self, x: Tensor, problem: Tensor) -> Outcome: ...


class GradientObjective(Protocol):
    """Where to go from points `(M, *shape)`, on a smoothed model; for white-box searches only.

    Gradients of the value where the constraint is met (`feasible` `(M,)`), and of minus the violation elsewhere, like
    `x` and without NaN. The work is cut as memory demands by who knows the model.
    """

    def __call__(self, x: Tensor, problem: Tensor, feasible: Tensor) -> Tensor: ...


def ascent(outcome: Outcome, x: Tensor, feasible: Tensor) -> Tensor:
    """What a `GradientObjective` returns, from an outcome with a graph that leads to `x`; zeros where none does."""
    goal = torch.where(feasible, outcome.value, -outcome.violation)
    if not goal.requires_grad:
        return torch.zeros_like(x)
    (direction,) = torch.autograd.grad(goal.sum(), x, allow_unused=True)
    if direction is None:
        return torch.zeros_like(x)
    return direction.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


@dataclass(frozen=True)
class Trace:
    """The best candidate so far, after some of the evaluations.

    Attributes:
        evaluations: for each problem so far, `(T,)`.
        value, violation: of the best candidate, `(P, T)`.
    """

    evaluations: Tensor
    value: Tensor
    violation: Tensor


@dataclass(frozen=True)
class SearchResult:
    """The best point of each problem, as the search saw it; the caller re-checks it.

    Attributes:
        inputs: `(P, *shape)`.
        value, violation: `(P,)`.
        trace: how it got there.
        population: the last one, `(P, n, *shape)`, where the search keeps one.
    """

    inputs: Tensor
    value: Tensor
    violation: Tensor
    trace: Trace
    population: Tensor | None = None


@dataclass(frozen=True)
class Search(ABC):
    """One way to search; options in the constructor."""

    name: ClassVar[str]
    white_box: ClassVar[bool] = False  # needs the gradient objective

    @abstractmethod
    def run(
        self,
        objective: Objective,
        region: Region,
        budget: int,
        seed: int,
        gradient: GradientObjective | None = None,
    ) -> SearchResult:
        """Spend at most `budget` evaluations on each problem of `region`.

        Every point handed to `objective` lies in the region. Randomness comes from `region.streams(seed)`.
        """


searches: Registry[type[Search]] = Registry("search")


def look(objective: Objective, x: Tensor) -> Outcome:
    """The outcome `(P, n)` of n points for each of P problems, `(P, n, *shape)`."""
    problems, count = x.shape[:2]
    problem = torch.arange(problems, device=x.device).repeat_interleave(count)
    seen = objective(x.flatten(0, 1), problem)
    return Outcome(seen.value.reshape(problems, count), seen.violation.reshape(problems, count))


class Best:
    """The best point of each problem so far: `x` `(P, *shape)` and its outcome `(P,)`. The first to get there stays.

    Starts with the centres, which cost one evaluation each: so `changed_explanation` and its like always end
    with a point that meets the constraint.
    """

    def __init__(self, objective: Objective, region: Region) -> None:
        self.x = region.centre.clone()
        seen = look(objective, self.x[:, None])
        self.outcome = Outcome(seen.value[:, 0].clone(), seen.violation[:, 0].clone())
        self.key = self.outcome.key()

    def offer(self, x: Tensor, seen: Outcome) -> None:
        """Candidates `(P, n, *shape)` and their outcome `(P, n)`."""
        key, row = seen.key().max(dim=1)
        better = key > self.key
        self.key = torch.where(better, key, self.key)
        self.x = torch.where(rows_to(better, self.x), take(x, row[:, None])[:, 0], self.x)
        self.outcome = Outcome(
            torch.where(better, seen.value.gather(1, row[:, None])[:, 0], self.outcome.value),
            torch.where(better, seen.violation.gather(1, row[:, None])[:, 0], self.outcome.violation),
        )

    def result(self, trace: Trace, population: Tensor | None = None) -> SearchResult:
        """What the search hands back."""
        return SearchResult(self.x, self.outcome.value, self.outcome.violation, trace, population)


def take(x: Tensor, rows: Tensor) -> Tensor:
    """Points `rows` `(P, k)` of each problem's `x` `(P, n, *shape)`."""
    return x[torch.arange(len(x), device=x.device)[:, None], rows]


class Tracer:
    """Collects a trace of at most about `length` points while a search runs."""

    def __init__(self, budget: int, length: int = 200) -> None:
        check_integer(budget, "budget")
        self._every, self._next = max(1, budget // length), 0
        self._evaluations: list[int] = []
        self._values: list[Tensor] = []
        self._violations: list[Tensor] = []

    def note(self, evaluations: int, best: Outcome, last: bool = False) -> None:
        """The best outcome `(P,)` after this many evaluations for each problem."""
        if evaluations >= self._next or last:
            self._next = evaluations + self._every
            if self._evaluations and self._evaluations[-1] == evaluations:
                return
            self._evaluations.append(evaluations)
            self._values.append(best.value.clone())
            self._violations.append(best.violation.clone())

    def trace(self) -> Trace:
        """All that was noted."""
        return Trace(
            torch.tensor(self._evaluations),
            torch.stack(self._values, dim=1),
            torch.stack(self._violations, dim=1),
        )
