"""Categories of a table: the codes that they have, how probable each is, and what a uniform number chooses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.tables.features import Feature, is_finite
from standfast.neighbourhoods.tables.options import TableOptions

#: two codes are the same category within this share of the largest code: rounding in float32
CODE_TOLERANCE = 2e-6


@dataclass(frozen=True)
class Category:
    """A column or one-hot group of categories: the `codes` `(K, C)` of its K categories, as the model gets them.

    Their probabilities are `shares` `(K,)`.
    """

    name: str
    columns: tuple[int, ...]
    codes: Tensor
    shares: Tensor
    rate: float | None

    def find(self, rows: Tensor) -> Tensor:
        """The index of the category of each row, `(M,)`; -1 for one that is not known."""
        # codes that are all 0 have no size to compare with
        scale = self.codes.abs().amax(0).clamp(min=1e-6)
        codes = self.codes.to(rows.device)
        cells = rows[:, None, list(self.columns)]
        distance = ((cells - codes) / scale.to(rows.device)).abs().amax(2)
        least, nearest = distance.min(1)
        return torch.where(least <= CODE_TOLERANCE, nearest, -1)

    def choose(self, clean: Tensor, uniform: Tensor) -> Tensor:
        """The index of the category for uniform numbers `(M,)`, where `clean` `(M,)` is the clean row's."""
        order, shares, ends = self._divide_unit(clean)
        # the part of the interval that the number lies in
        part = (uniform.double()[:, None] >= ends).sum(1)
        # the last of those that have a probability
        last_part = (shares > 0).long().cumsum(1).argmax(1)
        part = torch.minimum(part, last_part)
        # 0 stands for the row's own category, also if it has no probability
        part = torch.where(uniform <= 0, torch.zeros_like(part), part)
        return order.gather(1, part[:, None])[:, 0]

    def list_points(self, clean: Tensor) -> tuple[Tensor, Tensor]:
        """How many categories can come of each row, `(M,)`, and uniform numbers that choose them, `(M, K)`.

        The row's own category, `clean` `(M,)`, is the first one. Numbers beyond the count choose nothing new.
        """
        _, shares, ends = self._divide_unit(clean)
        zeros = torch.zeros_like(ends[:, :1])
        starts = torch.cat([zeros, ends[:, :-1]], dim=1)
        middles = (starts + ends) / 2
        # the row's own category comes first, and 0 stands for it
        middles[:, 0] = 0
        possible = shares > 0
        possible[:, 0] = True
        listed = possible.long().argsort(dim=1, descending=True, stable=True)
        return possible.sum(1), middles.gather(1, listed)

    def _divide_unit(self, clean: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """How categories share the interval from 0 to 1, for rows whose own category is `clean` `(M,)`.

        Returns:
            The categories in the order of their parts, the row's own one first; their shares; where their parts end.
            Each is `(M, K)`.
        """
        shares = self.shares.to(clean.device)
        position = torch.arange(len(shares), device=clean.device).expand(len(clean), -1)
        clean_category = clean[:, None]
        # the row's own category first; those that come before it make room for it
        order = torch.where(position <= clean_category, position - 1, position)
        order = torch.where(position == 0, clean_category, order)
        sorted_shares = shares[order]
        if self.rate is not None:
            others = sorted_shares[:, 1:]
            whole = others.sum(1, keepdim=True)
            shares_of_rate = self.rate * others / whole.clamp(min=1e-300)
            moved = torch.where(whole > 0, shares_of_rate, 0.0)
            stays = 1 - moved.sum(1, keepdim=True)
            sorted_shares = torch.cat([stays, moved], dim=1)
        ends = sorted_shares.cumsum(1)
        # rounding of the sum must not leave a gap before 1
        return order, sorted_shares, ends / ends[:, -1:]


def make_category(
    options: TableOptions,
    name: str,
    columns: tuple[int, ...],
    feature: Feature,
    units: tuple[Tensor, Tensor],
) -> Category:
    """The category of a column, or of a one-hot group. A missing cell is no category: the row keeps it.

    Args:
        options: of the table.
        name: of the column or the group.
        columns: one, or several of a one-hot code.
        feature: how it changes.
        units: mean and standard deviation of all columns, `(F,)` each.

    Raises:
        ArgumentError: codes are not known, or do not fit the data.
    """
    cells = _find_cells(options, columns)
    mean, std = (part[list(columns)] for part in units)
    category_count = 0 if options.codes is None else options.codes[columns[0]]
    if isinstance(feature.categories, tuple):
        is_plain = name not in options.one_hot
        check(
            is_plain,
            "categories",
            f"'data' for {name!r}, which is a one-hot code",
            repr(feature.categories),
        )
        coded = all(map(is_finite, feature.categories))
        check(
            coded,
            "categories",
            f"codes for {name!r}; names are for data frames",
            repr(feature.categories),
        )
        codes_in_units = torch.tensor(feature.categories, dtype=torch.float64)
        codes = (codes_in_units[:, None] - mean) / std
        codes, shares = _count_listed(options, name, codes, cells, category_count, feature)
    elif cells is not None and category_count:
        # a row may have a category that the data does not have: u = 0 keeps it, and no other row moves to it
        codes = torch.arange(category_count, dtype=torch.float64)[:, None]
        shares = (cells == codes.T).double().sum(0)
    elif cells is not None:
        codes, counts = torch.unique(cells, dim=0, return_counts=True)
        shares = counts.double()
    else:
        is_one_hot = name in options.one_hot
        check(
            is_one_hot,
            "data",
            f"training rows, or a list of codes, for the categories of {name!r}",
            None,
        )
        codes = (torch.eye(len(columns), dtype=torch.float64) - mean) / std
        shares = torch.ones(len(codes), dtype=torch.float64)
    return Category(name, columns, codes, shares / shares.sum(), feature.rate)


def drop_missing(cells: Tensor, missing_code: float | None) -> Tensor:
    """The cells `(n,)` that are not missing; all of them if none is there."""
    if missing_code is None:
        return cells
    present = cells[cells > missing_code]
    if not len(present):
        return cells
    return present


def _find_cells(options: TableOptions, columns: Sequence[int]) -> Tensor | None:
    """The data's cells `(n, C)` of the columns, without missing ones of a single column; None without data."""
    if options.data is None:
        return None
    cells = options.table.inputs.double()[:, list(columns)]
    if options.missing is None or len(columns) > 1:
        return cells
    (column,) = columns
    return drop_missing(cells[:, 0], options.missing[column])[:, None]


def _count_listed(
    options: TableOptions,
    name: str,
    codes: Tensor,
    cells: Tensor | None,
    category_count: int,
    feature: Feature,
) -> tuple[Tensor, Tensor]:
    """Codes `(K, 1)` that a user lists, and how often the data has each, `(K,)`; without data all equally often.

    Of a data frame, the others follow with a share of 0: a row may have another category, to which no row moves. They
    are all `category_count` of the column, or where this is 0, those of the data.
    """
    if cells is None:
        return codes, torch.ones(len(codes), dtype=torch.float64)
    scale = codes.abs().amax(0).clamp(min=1e-6)
    distance = ((cells[:, None] - codes) / scale).abs().amax(2)
    shares = (distance <= CODE_TOLERANCE).double().sum(0)
    check(
        bool(shares.sum() > 0),
        "categories",
        f"codes of {name!r} that the data has",
        repr(feature.categories),
    )
    if not options.comes_from_frame:
        return codes, shares
    if category_count:
        others = torch.arange(category_count).to(cells)[:, None]
    else:
        others = torch.unique(cells, dim=0)
    is_listed = torch.isin(others[:, 0], codes[:, 0])
    others = others[~is_listed]
    shares_of_others = shares.new_zeros(len(others))
    return torch.cat([codes, others]), torch.cat([shares, shares_of_others])
