"""Removal: how far the margin falls without the features that a map marks, and without others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from standfast.metrics.sanity.samples import predict
from standfast.model import Model
from standfast.tasks import measure_margin
from standfast.tensors import Streams

#: shares of the features that are removed
REMOVED = (0.15, 0.35)
#: how many other samples give the values in their place
DONORS = 3
#: the same for tables, where a column is a larger part of the input, and a prediction costs less
TABLE_DONORS = 10
#: how many random orders of the features a map is compared with
ORDERS = 2


@dataclass(frozen=True)
class Removal:
    """Removes features from samples, which then have the values of other samples.

    Args:
        model: in a session.
        x: the samples, `(n, ...)`.
        answers: of which the margin is measured, `(n,)` or `(n, k)`.
    """

    model: Model
    x: Tensor
    answers: Tensor

    @property
    def features(self) -> int:
        """How many there are: the columns of a table, or the positions, with all their channels."""
        if self.x.ndim == 2:
            positions = self.x[0]
        else:
            positions = self.x[0, 0]
        return positions.numel()

    @cached_property
    def numbers(self) -> list[int]:
        """How many features are removed, ascending: at least one, and not all."""
        most = max(1, self.features - 1)
        rounded = [round(share * self.features) for share in REMOVED]
        return sorted({min(max(1, number), most) for number in rounded})

    @cached_property
    def donors(self) -> int:
        """From how many other samples the values come."""
        most = TABLE_DONORS if self.x.ndim == 2 else DONORS
        return min(most, len(self.x) - 1)

    @property
    def copies(self) -> int:
        """How many copies of each sample are predicted for an order."""
        return len(self.numbers) * self.donors

    def measure(self, order: Tensor) -> Tensor:
        """How far the model is from each answer without the first features of an order `(n, features)`.

        Returns:
            The mean over donors `(numbers, n)`; the larger, the less of the margin is left.
        """
        return torch.stack(
            [self._measure_without(mark_first(order, number)) for number in self.numbers]
        )

    def _measure_without(self, removed: Tensor) -> Tensor:
        """The mean over donors `(n,)`, where features are `removed`, bool `(n, features)`."""
        x = self.x
        count = len(self.x)
        if x.ndim > 2:
            removed = removed.reshape(count, 1, *x.shape[2:])
        samples = torch.arange(count, device=x.device)
        owners = samples.repeat(self.donors)
        # the other samples at equal distances, from the next one on
        shifts = []
        for donor in range(self.donors):
            shifts.append(1 + donor * (count - 1) // self.donors)
        sources = torch.cat([(samples + shift) % count for shift in shifts])
        without = torch.where(removed[owners], x[sources], x[owners])
        logits = predict(self.model, without)
        answers = self.answers[owners]
        margins = measure_margin(self.model.task, logits, answers, guide=True)
        return margins.double().reshape(self.donors, count).mean(0)

    def compare(self, maps: Sequence[Tensor], seed: int) -> tuple[Tensor, Tensor, int]:
        """Removing what the first map marks, against removing as much in other orders.

        Args:
            maps: `(n, ...)` each.
            seed: of the random orders.

        Returns:
            What `compare_margins` returns for M other orders: `ORDERS` random ones, and then those of the other maps;
            and how many copies of each sample were predicted.
        """
        shuffles = draw_shuffles(self.x, self.features, seed)
        first_shuffle, *other_shuffles = shuffles.unbind(1)
        first_order, *map_orders = [order_features(values, first_shuffle) for values in maps]
        other_orders = [*other_shuffles, *map_orders]
        margins = self.measure(first_order)
        other_margins = torch.stack([self.measure(order) for order in other_orders])
        is_equal = torch.stack([self.find_equal(first_order, order) for order in other_orders])
        wins, gains = compare_margins(margins, other_margins, is_equal)
        return wins, gains, (1 + len(other_orders)) * self.copies

    def find_equal(self, order: Tensor, other: Tensor) -> Tensor:
        """Where two orders remove the same features, bool `(numbers, n)`."""
        are_equal = []
        for number in self.numbers:
            is_same = mark_first(order, number) == mark_first(other, number)
            are_equal.append(is_same.all(1))
        return torch.stack(are_equal)


def compare_margins(margins: Tensor, others: Tensor, is_equal: Tensor) -> tuple[Tensor, Tensor]:
    """Compares what `Removal.measure` returns for an order with what it returns for M others.

    Args:
        margins: `(numbers, n)`.
        others: `(M, numbers, n)`.
        is_equal: whether the same features are removed, `(M, numbers, n)`; this is no comparison.

    Returns:
        The shares of removals that lower the margin more than those of the other order `(M, n)`, where ties are halves;
        NaN without a comparison. And by how much more the smallest removal lowers it, `(M, n)`: the more is removed,
        the less it matters in which order.
    """
    is_finite = (margins + others).isfinite()
    # equal margins count half
    won = (margins > others).double() + 0.5 * (margins == others).double()
    is_compared = is_finite & ~is_equal
    wins = torch.where(is_compared, won, torch.nan).nanmean(1)
    differences = torch.where(is_finite, margins - others, torch.nan)
    # by the first of them alone
    gains = differences[:, 0]
    return wins, gains


def draw_shuffles(x: Tensor, features: int, seed: int) -> Tensor:
    """Random orders of the features of each sample `(n, 1 + ORDERS, features)`; the first breaks ties in maps."""
    streams = Streams.for_rows(x, seed)
    numbers = streams.uniform((1 + ORDERS, features), torch.float64)
    return numbers.argsort(dim=2)


def order_features(maps: Tensor, shuffle: Tensor) -> Tensor:
    """The features by their values in the map, the largest first and equal ones as in `shuffle`, `(n, features)`."""
    if maps.ndim == 2:
        of_positions = maps
    else:
        of_positions = maps.sum(1)
    # in the order of the shuffle, so that a stable sort leaves ties in it
    values = of_positions.flatten(1).gather(1, shuffle)
    return shuffle.gather(1, values.argsort(dim=1, descending=True, stable=True))


def mark_first(order: Tensor, number: int) -> Tensor:
    """Which features are the first `number` of an order, bool `(n, features)`."""
    none = torch.zeros_like(order, dtype=torch.bool)
    return none.scatter_(1, order[:, :number], True)
