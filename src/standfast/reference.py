"""`Reference`: rows of a table, of which explainers and metrics take the values of columns that they replace."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from standfast.tensors import content_keys

#: how many rows an explainer averages over; each costs as much as a single baseline
MOST_ROWS = 32
#: of fewer rows, the median is too often a value of the explained row itself
FEWEST_ROWS = 8


@dataclass(frozen=True)
class CellCodes:
    """What the numbers of a data frame's columns stand for, where they are no quantities.

    Attributes:
        names: of the columns.
        categories: whether numbers of a column are places of categories, which have no order and no distance.
        edges: numbers of a column below it stand for missing cells; minus infinity where it has none.
        lowest: the smallest number of a cell of the reference that is not missing.
        highest: the largest one.
    """

    names: tuple[str, ...]
    categories: tuple[bool, ...]
    edges: tuple[float, ...]
    lowest: tuple[float, ...]
    highest: tuple[float, ...]

    @property
    def plain(self) -> bool:
        """Whether all numbers are quantities."""
        has_no_edges = all(edge == -math.inf for edge in self.edges)
        return not any(self.categories) and has_no_edges


@dataclass(frozen=True, eq=False)
class Reference:
    """What is known of the values of a table's columns.

    Attributes:
        count: how many rows were given.
        rows: at most 32 of them, `(B, F)`. Which ones, and their order, depends on their values alone.
        baseline: what stands for a removed value of each column, `(F,)`. It is the median: of an even number of values
            the lower one in the middle, so that whole numbers stay whole. Of categories without an order it is the most
            frequent one: of equally frequent ones the one that the rows have first, of flags that tie, false. A missing
            cell stands for removed ones where more than half of the cells of a column are missing, or where it is more
            frequent than every category.
        mean, sd: of each column, `(F,)`, without missing cells; of categories the baseline and 0.
        known: all rows that were given, on the CPU.
        codes: of a data frame, what the numbers stand for; None for other tables.
        note: of a data frame, what stands for removed categories, in words.
    """

    count: int
    rows: Tensor
    baseline: Tensor
    mean: Tensor
    sd: Tensor
    known: Tensor
    codes: CellCodes | None = None
    note: str = ""

    def redraw(self, seed: int) -> Reference:
        """The same with other rows, drawn by a seed: with replacement where all that are known are taken anyway."""
        order = content_keys(self.known, seed).argsort(stable=True)
        chosen = self.known[order[:MOST_ROWS]]
        if len(self.known) <= MOST_ROWS:
            generator = np.random.default_rng(seed)
            numbers = generator.integers(0, len(chosen), size=len(chosen))
            chosen = chosen[numbers]
        return replace(self, rows=chosen.to(self.rows))

    def describe_baseline(self) -> str:
        """In words, what stands for removed values."""
        return f"median of {self.count} rows{self.note}"


def make_reference(rows: Tensor, codes: CellCodes | None = None) -> Reference:
    """The reference of rows `(N, F)`, on their device; it does not depend on their order.

    Args:
        rows: numbers.
        codes: of a data frame, what numbers of its columns stand for.

    >>> import torch
    >>> found = make_reference(torch.tensor([[1.0, 0.0], [2.0, 0.0], [4.0, 1.0]]))
    >>> found.baseline.tolist(), len(found.rows)
    ([2.0, 0.0], 3)
    """
    all_rows = rows.detach().cpu()
    order = content_keys(all_rows, seed=0).argsort(stable=True)
    chosen = all_rows[order[:MOST_ROWS]]
    # so that the last bits of sums do not depend on the order of rows
    ordered = all_rows.double().sort(0).values
    baseline = ordered[(len(all_rows) - 1) // 2]
    mean = ordered.mean(0)
    sd = ordered.std(0, correction=0)
    if codes is not None and not codes.plain:
        columns = zip(ordered.T, codes.categories, codes.edges, strict=True)
        middles = [_summarise_cells(cells, category, edge) for cells, category, edge in columns]
        baseline, mean, sd = torch.stack(middles, dim=1)
    chosen, baseline, mean, sd = (
        values.to(rows.device, rows.dtype) for values in (chosen, baseline, mean, sd)
    )
    return Reference(len(all_rows), chosen, baseline, mean, sd, all_rows, codes)


def _summarise_cells(cells: Tensor, category: bool, edge: float) -> Tensor:
    """Baseline, mean and standard deviation of the sorted cells `(N,)` of a column of a data frame, `(3,)`."""
    known_cells = cells[cells >= edge]
    if category:
        baseline = _find_most_frequent(cells, edge)
        return torch.stack([baseline, baseline, torch.zeros_like(baseline)])
    mostly_missing = 2 * len(known_cells) < len(cells)
    if mostly_missing:
        baseline = _find_most_frequent(cells[cells < edge], edge)
    else:
        baseline = known_cells[(len(known_cells) - 1) // 2]
    if len(known_cells) == 0:
        return torch.stack([baseline, baseline, torch.zeros_like(baseline)])
    return torch.stack([baseline, known_cells.mean(), known_cells.std(correction=0)])


def _find_most_frequent(cells: Tensor, edge: float) -> Tensor:
    """The most frequent of the sorted numbers `(n,)`; of equally frequent ones the lowest that is no missing cell.

    So it is false of flags that tie, in whatever order rows stand.
    """
    values, counts = torch.unique_consecutive(cells, return_counts=True)  # as they are sorted
    # categories are numbered by how often the reference has them, and then by which comes first: so no name decides
    candidates: Tensor = values[counts == counts.max()]
    known_values = candidates[candidates >= edge]
    if len(known_values):
        return known_values[0]
    return candidates[-1]
