"""`Reference`: rows of a table, of which explainers and metrics take the values of columns that they replace."""

from __future__ import annotations

from dataclasses import dataclass, replace

from torch import Tensor

from standfast.tensors import content_keys

#: how many rows an explainer averages over; each costs as much as a single baseline
MOST_ROWS = 32
#: of fewer rows, the median is too often a value of the explained row itself
FEWEST_ROWS = 8


@dataclass(frozen=True, eq=False)
class Reference:
    """What is known of the values of a table's columns.

    Attributes:
        count: how many rows were given.
        rows: at most 32 of them, `(B, F)`. Which ones, and their order, depends on their values alone.
        median: of each column, `(F,)`: of an even number of values the lower one in the middle, so that codes of
            categories stay codes.
        mean, sd: of each column, `(F,)`.
        known: all rows that were given, on the CPU.
    """

    count: int
    rows: Tensor
    median: Tensor
    mean: Tensor
    sd: Tensor
    known: Tensor

    def redraw(self, seed: int) -> Reference:
        """The same with other rows, drawn by a seed."""
        chosen = self.known[content_keys(self.known, seed).argsort(stable=True)[:MOST_ROWS]]
        return replace(self, rows=chosen.to(self.rows))


def make_reference(rows: Tensor) -> Reference:
    """The reference of rows `(N, F)`, on their device; it does not depend on their order.

    >>> import torch
    >>> found = make_reference(torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]]))
    >>> found.median.tolist(), len(found.rows)
    ([2.0, 0.0], 3)
    """
    known = rows.detach().cpu()
    chosen = known[content_keys(known, seed=0).argsort(stable=True)[:MOST_ROWS]]
    ordered = known.double().sort(0).values  # so that the last bits of sums do not depend on the order of rows
    found = (chosen, ordered[(len(known) - 1) // 2], ordered.mean(0), ordered.std(0, correction=0))
    first, median, mean, sd = (values.to(rows.device, rows.dtype) for values in found)
    return Reference(len(known), first, median, mean, sd, known)
