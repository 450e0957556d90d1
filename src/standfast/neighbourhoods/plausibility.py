"""How close rows are to the rows of a table, and how plausible that makes them.

The distance of two rows is `sqrt(sum_j ((a_j - b_j) / s_j)^2 + sum_g 1[a_g != b_g])`: numbers count in standard
deviations `s_j` of the table, and each category that differs counts 1. A column that is constant in the table counts in
its own units. Of a data frame, a missing cell against another cell counts 1, and `s_j` is that of the other cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from standfast.errors import check
from standfast.records import Background

_PAIRS = 1 << 22  # of rows that are compared at once
_REFERENCES = 2000  # rows of the table whose own distance is measured, at most

Groups = Sequence[Sequence[int]]
#: of each column, the number at or below which a cell is missing; minus infinity where none is
Missing = tuple[float, ...] | None


def measure_plausibility(
    rows: Tensor, data: Tensor | Background, categories: Groups = (), missing: Missing = None
) -> Tensor:
    """The share of the data's rows that are at least as far from their nearest other row as each of `rows` is.

    A row that is as close to the data as the data's rows are to each other has about 0.5 on average; a row that is
    further away than all of them has 0; a row of the data itself has 1. If `rows` come from the same distribution as
    the data, the figure is about uniform, so that it can be read like a p-value.

    Args:
        rows: `(M, F)`.
        data: `(n, F)`, at least two rows, in the same units; of more than 2000 rows, 2000 evenly spaced ones are
            those whose own distance is measured, and all are possible neighbours.
        categories: groups of columns that hold one category each: one column of codes, or several of a one-hot code.
        missing: of each column, the number at or below which a cell is missing, minus infinity where none is. None:
            all cells are numbers.

    Returns:
        `(M,)`, from 0 to 1, float64.

    Raises:
        ArgumentError: rows and data do not fit together.

    >>> data = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.1]])
    >>> measure_plausibility(torch.tensor([[1.0, 1.0], [1.0, 1.5], [9.0, 9.0]]), data).tolist()
    [1.0, 1.0, 0.0]
    """
    if isinstance(data, Tensor):
        data = Background(data)
    check_table(rows, data)
    nearest = measure_nearest(rows, data, categories, missing)
    groups = tuple(tuple(group) for group in categories)
    distances_of_data = _measure_own_distances(data, groups, missing).to(rows.device)
    # how many of the sorted distances are at least as large
    closer = torch.searchsorted(distances_of_data, nearest, right=False)
    return 1 - closer.double() / len(distances_of_data)


def measure_nearest(
    rows: Tensor, data: Background, categories: Groups = (), missing: Missing = None
) -> Tensor:
    """The distance of each of `rows` `(M, F)` from the nearest row of the data, float64 `(M,)`."""
    table = data.inputs.to(rows.device, torch.float64)
    rows_at_once = max(1, _PAIRS // len(table))
    nearest = []
    for part in torch.split(rows.detach().double(), rows_at_once):
        distances = _measure_distances(part, table, categories, missing)
        nearest.append(distances.amin(1))
    return torch.cat(nearest)


def check_table(rows: Tensor, data: Background) -> None:
    """Raise `ArgumentError` unless `rows` are `(M, F)` and the data has at least two rows of as many columns."""
    got = tuple(data.shape)
    check(
        len(got) == 2 and got[0] >= 2, "data", "a table (n, F) of at least two rows", f"shape {got}"
    )
    check(rows.ndim == 2, "inputs", "rows of a table (N, F)", f"shape {tuple(rows.shape)}")
    check(
        rows.shape[1] == got[1],
        "data",
        f"a table with the {rows.shape[1]} columns of the inputs",
        f"{got[1]} columns",
    )


def _measure_distances(
    rows: Tensor, table: Tensor, categories: Groups, missing: Missing = None
) -> Tensor:
    """`(M, n)`; column by column, so that a row's distances do not depend on the other rows."""
    scale = table.std(dim=0)
    scale = torch.where(scale > 0, scale, 1.0)
    grouped = {column for group in categories for column in group}
    total = torch.zeros(len(rows), len(table), dtype=table.dtype, device=table.device)
    for column in range(table.shape[1]):
        if column in grouped:
            continue
        cells = rows[:, column]
        of_table = table[:, column]
        if missing is not None and missing[column] > -math.inf:
            total += _measure_with_missing(cells, of_table, missing[column])
        else:
            differences = cells[:, None] - of_table
            total += (differences / scale[column]).square_()
    # a one-hot category differs in several columns and counts once
    for group in categories:
        differs = torch.zeros_like(total, dtype=torch.bool)
        for column in group:
            # rounding of float32, in proportion to the largest code
            of_table = table[:, column]
            rounding = 2e-6 * of_table.abs().amax()
            differences = rows[:, column, None] - of_table
            differs |= differences.abs() > rounding
        total += differs
    return total.sqrt_()


def _measure_with_missing(cells: Tensor, of_table: Tensor, code: float) -> Tensor:
    """The squared distances `(M, n)` of cells of one column, at or below the code for missing ones."""
    gone = cells <= code
    gone_in_table = of_table <= code
    present = of_table[~gone_in_table]
    # a single number has no deviation
    scale = present.new_zeros(())
    if len(present) > 1:
        scale = present.std()
    scale = torch.where(scale > 0, scale, 1.0)
    cells = cells[:, None]
    distances = ((cells - of_table) / scale).square_()
    # a missing cell has no distance from a number: it counts as another category does
    either = gone[:, None] | gone_in_table
    differs = (cells != of_table).to(distances)
    return torch.where(either, differs, distances)


@lru_cache(maxsize=4)
def _measure_own_distances(
    data: Background, categories: tuple[tuple[int, ...], ...], missing: Missing
) -> Tensor:
    """The distances of rows of the data from their nearest other rows, sorted."""
    table = data.inputs.double()
    count = len(table)
    spread_rows = torch.linspace(0, count - 1, min(count, _REFERENCES))
    chosen = spread_rows.round().long()
    parts = []
    for row_numbers in torch.split(chosen, max(1, _PAIRS // count)):
        distance = _measure_distances(table[row_numbers], table, categories, missing)
        own_rows = torch.arange(len(row_numbers))
        # a row is no neighbour of itself
        distance[own_rows, row_numbers] = torch.inf
        parts.append(distance.amin(1))
    return torch.cat(parts).sort().values
