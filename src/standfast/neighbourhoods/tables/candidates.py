"""What a search can try for rows that change: steps of numbers, categories, and whether a cell is lost."""

from __future__ import annotations

import torch
from torch import Tensor

from standfast.neighbourhoods.choices import Choices
from standfast.neighbourhoods.tables.categories import Category
from standfast.neighbourhoods.tables.row_changes import RowChanges


def list_candidates(rows: RowChanges) -> Choices:
    """The candidates of all parameters. With a copula, steps depend on all numbers together, so numbers have none."""
    categories = [
        _list_category(rows, category, clean)
        for category, clean in zip(rows.plan.categories, rows.clean_categories, strict=True)
    ]
    return Choices.join([_list_steps(rows), *categories, _list_missing(rows)])


def _list_steps(rows: RowChanges) -> Choices:
    """The steps of numbers; a number without steps has candidates only where it cannot change, namely itself."""
    low, high = rows.find_ranges()
    step = torch.where(rows.step > 0, rows.step, 1.0)
    steps = ((high - low) / step).round().long()
    counts = torch.where(rows.step > 0, steps + 1, 0)
    counts = torch.where(high > low, counts, 1)
    if rows.options.prior == "copula":
        counts = torch.zeros_like(counts)
    steps_below = (-low / step).round().long()
    clean = torch.where(counts > 0, steps_below, 0)
    ordered = torch.ones(len(rows.columns), dtype=torch.bool, device=low.device)
    return Choices(
        counts,
        clean,
        ordered,
        lambda candidate_index: low[:, None] + step * candidate_index,
        _all_rows(rows),
    )


def _list_category(rows: RowChanges, category: Category, clean: Tensor) -> Choices:
    """The categories that rows may have whose `clean` `(M,)` one is given; -1, a missing cell, stays as it is."""
    counts, points = category.list_points(clean.clamp(min=0))
    counts = torch.where(clean < 0, 1, counts)[:, None]
    ordered = torch.zeros(1, dtype=torch.bool, device=clean.device)

    def find_points(candidate_index: Tensor) -> Tensor:
        return points.gather(1, candidate_index[..., 0])[..., None]

    return Choices(counts, torch.zeros_like(counts), ordered, find_points, _all_rows(rows))


def _list_missing(rows: RowChanges) -> Choices:
    """Whether each cell that can become missing does so; a cell that is missing already has one candidate."""
    columns = list(rows.plan.can_become_missing)
    counts = torch.where(rows.is_missing[:, columns], 1, 2)
    ordered = torch.zeros(len(columns), dtype=torch.bool, device=counts.device)
    # the middle of the uniform numbers that make a cell missing; 0 keeps it
    lost = 1 - rows.options.may_become_missing / 2
    return Choices(
        counts,
        torch.zeros_like(counts),
        ordered,
        lambda candidate_index: lost * candidate_index.double(),
        _all_rows(rows),
    )


def _all_rows(rows: RowChanges) -> Tensor:
    """True for each row: nothing but the candidates can come of a parameter that has some."""
    return torch.ones(len(rows.inputs), dtype=torch.bool, device=rows.inputs.device)
