"""What the options of a table mean for rows of F columns: which parameters there are, and what each of them changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from standfast.errors import check
from standfast.neighbourhoods.copula import Copula, fit_copula
from standfast.neighbourhoods.plausibility import check_table
from standfast.neighbourhoods.rules import Rule
from standfast.neighbourhoods.tables.categories import Category, drop_missing, make_category
from standfast.neighbourhoods.tables.features import Feature
from standfast.neighbourhoods.tables.layout import Layout, read_layout
from standfast.neighbourhoods.tables.options import TableOptions


@dataclass(frozen=True)
class Number:
    """A column of numbers that changes."""

    name: str
    column: int
    feature: Feature

    @property
    def relative(self) -> bool:
        """Whether the parameter is in percent; with a step it is in the data's units, also for a range in percent."""
        return self.feature.percent and not self.feature.step


@dataclass(frozen=True)
class Ends:
    """How far numbers may change, as a user says it and as the data allow, `(m,)` each.

    Attributes:
        lowest_change, highest_change: in the data's units or in percent; 0 for numbers that are free.
        lowest_value, highest_value: of the data, but for missing cells; 0 without data.
        percent: whether changes are in percent.
        free: whether any value of the data is possible.
    """

    lowest_change: Tensor
    highest_change: Tensor
    lowest_value: Tensor
    highest_value: Tensor
    percent: Tensor
    free: Tensor

    def to(self, device: torch.device) -> Ends:
        """The same on a device."""
        return Ends(**{name: values.to(device) for name, values in vars(self).items()})


@dataclass(frozen=True)
class ColumnPlan:
    """What changes and which rules hold, for rows of F columns.

    Attributes:
        numbers, categories: what changes; their parameters come first, in this order.
        groups: the columns of each category, also of those that do not change.
        rules, definitions: as in `Layout`.
        continuous: the columns of a copula.
        mean, std: of the units of the data, `(F,)`.
        ends: of the numbers.
        can_become_missing: columns whose cells may become missing; their parameters come last.
    """

    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    groups: tuple[tuple[int, ...], ...]
    rules: tuple[Rule, ...]
    definitions: tuple[Rule, ...]
    continuous: tuple[int, ...]
    mean: Tensor
    std: Tensor
    ends: Ends
    can_become_missing: tuple[int, ...]


@lru_cache(maxsize=16)
def plan_columns(options: TableOptions, count: int) -> ColumnPlan:
    """The plan of a table of so many columns.

    Raises:
        ArgumentError: options do not fit together, or do not fit the table.
    """
    layout = read_layout(options, count)
    features = _choose_features(options, layout)
    mean, std = _find_units(options, count)
    numbers: list[Number] = []
    categories: list[Category] = []
    for name, feature in features.items():
        columns = _find_columns(layout, name)
        if feature.categories is None:
            _check_number(options, layout, name, feature)
            numbers.append(Number(name, columns[0], feature))
        else:
            categories.append(make_category(options, name, columns, feature, (mean, std)))
    groups = _list_groups(options, layout, categories)
    # the columns of a category are no quantities, and a defined one is computed: no distance for either
    without_distance = {column for group in groups for column in group} | layout.defined
    continuous = tuple(column for column in range(count) if column not in without_distance)
    missing_codes = options.missing or (None,) * count
    _check_data(options, count, missing_codes)
    changing = [number.column for number in numbers]
    changing += [column for category in categories for column in category.columns]
    return ColumnPlan(
        numbers=tuple(numbers),
        categories=tuple(categories),
        groups=groups,
        rules=layout.rules,
        definitions=layout.definitions,
        continuous=continuous,
        mean=mean,
        std=std,
        can_become_missing=_find_those_that_become_missing(options, changing, missing_codes),
        ends=_find_ends(options, numbers, (mean, std), missing_codes),
    )


def _choose_features(options: TableOptions, layout: Layout) -> dict[str, Feature]:
    """How each column or group changes: those that the user names, or all that can change by themselves."""
    if isinstance(options.changes, Mapping):
        features: dict[str, Feature] = dict(options.changes)
    else:
        assert isinstance(options.changes, Feature)
        features = {}
        # grouped columns change as one category, a rule computes the defined ones
        left_out = layout.fixed | layout.grouped | layout.defined
        for column, name in enumerate(layout.names):
            if column not in left_out:
                features[name] = options.changes
        for name, group in layout.groups.items():
            if not layout.fixed & set(group):
                features[name] = Feature(categories="data")
    check(len(features) > 0, "changes", "at least one column that changes", "none")
    return features


def _find_units(options: TableOptions, count: int) -> tuple[Tensor, Tensor]:
    """The mean and the standard deviation of each column, `(F,)` each."""
    mean, std = options.units or ((0.0,) * count, (1.0,) * count)
    return torch.tensor(mean, dtype=torch.float64), torch.tensor(std, dtype=torch.float64)


def _find_columns(layout: Layout, name: str) -> tuple[int, ...]:
    """The columns that change by one name: those of a group, or a single one that changes by itself."""
    if name in layout.groups:
        return layout.groups[name]
    column = layout.find(name, "changes")
    check(column not in layout.grouped, "changes", f"the group of {name!r} in one_hot", repr(name))
    check(
        column not in layout.defined,
        "changes",
        f"no change of {name!r}, which a rule computes",
        repr(name),
    )
    return (column,)


def _check_number(options: TableOptions, layout: Layout, name: str, feature: Feature) -> None:
    """Raise `ArgumentError` for a group that is no number, and for any value of data that is not there."""
    expected = f"'category' for {name!r}, which is a group in one_hot"
    check(name not in layout.groups, "changes", expected, repr(feature.by))
    lacks_data = feature.by == "any" and options.data is None
    check(
        not lacks_data, "data", f"training rows, as {name!r} may have any value of the data", None
    )


def _list_groups(
    options: TableOptions, layout: Layout, categories: Sequence[Category]
) -> tuple[tuple[int, ...], ...]:
    """The columns of each category of the table, whether it changes or not."""
    changing = {category.columns for category in categories}
    coded = [(column,) for column, count in enumerate(options.codes or ()) if count]
    return tuple(dict.fromkeys([*layout.groups.values(), *changing, *coded]))


def _check_data(options: TableOptions, count: int, missing_codes: Sequence[float | None]) -> None:
    """Raise `ArgumentError` if the data has other columns, or a copula has no data or missing cells."""
    if options.data is not None:
        check_table(torch.empty(1, count), options.table)
    if options.prior == "independent":
        return
    # options alone are checked earlier, but not where a data frame may still bring the data
    check(options.data is not None, "data", "training rows, for prior 'copula'", None)
    is_whole = all(code is None for code in missing_codes)
    check(is_whole, "prior", "'independent' for columns with missing cells", options.prior)


def _find_those_that_become_missing(
    options: TableOptions, changing: Sequence[int], missing_codes: Sequence[float | None]
) -> tuple[int, ...]:
    """The columns whose cells may become missing: all that change, if any does."""
    if not options.may_become_missing:
        return ()
    with_code = tuple(column for column in changing if missing_codes[column] is not None)
    every_cell_can = len(with_code) == len(changing)
    check(
        every_cell_can,
        "may_become_missing",
        "0 without a number for missing cells",
        options.may_become_missing,
    )
    return with_code


def _find_ends(
    options: TableOptions,
    numbers: Sequence[Number],
    units: tuple[Tensor, Tensor],
    missing_codes: Sequence[float | None],
) -> Ends:
    """How far each number may change, as its feature and the data say."""
    lowest_limits = [number.feature.limits[0] for number in numbers]
    highest_limits = [number.feature.limits[1] for number in numbers]
    # "any" has infinite ones, which become 0: `free` says that the values of the data count instead
    lowest_change = torch.tensor(lowest_limits, dtype=torch.float64).nan_to_num(0.0, 0.0, 0.0)
    highest_change = torch.tensor(highest_limits, dtype=torch.float64).nan_to_num(0.0, 0.0, 0.0)
    lowest_value = highest_value = torch.zeros_like(lowest_change)
    columns = [number.column for number in numbers]
    if options.data is not None and columns:
        rows = options.table.inputs.double()
        cells = [drop_missing(rows[:, column], missing_codes[column]) for column in columns]
        mean, std = (part[columns] for part in units)
        lowest_value = torch.stack([present.min() for present in cells]) * std + mean
        highest_value = torch.stack([present.max() for present in cells]) * std + mean
    return Ends(
        lowest_change,
        highest_change,
        lowest_value,
        highest_value,
        percent=torch.tensor([number.feature.percent for number in numbers], dtype=torch.bool),
        free=torch.tensor([number.feature.by == "any" for number in numbers], dtype=torch.bool),
    )


# What is found in the data later, since it takes long, or is not always needed


@lru_cache(maxsize=8)
def fit_copula_of(options: TableOptions, count: int) -> Copula:
    """The copula of the data's continuous columns, of which numbers move."""
    plan = plan_columns(options, count)
    table = options.table.inputs.double() * plan.std + plan.mean
    moving = tuple(plan.continuous.index(number.column) for number in plan.numbers)
    discrete = tuple(number.feature.step is not None for number in plan.numbers)
    return fit_copula(table[:, list(plan.continuous)], moving, options.size, discrete)


@lru_cache(maxsize=16)
def find_lowest(options: TableOptions) -> Tensor:
    """The smallest number of each column's cells that are not missing, in the inputs' units, `(F,)`; 0 without data."""
    if options.lowest is not None:
        return torch.tensor(options.lowest, dtype=torch.float64)
    assert options.missing is not None
    if options.data is None:
        return torch.zeros(len(options.missing), dtype=torch.float64)
    rows = options.table.inputs.double()
    return torch.stack(
        [drop_missing(rows[:, column], code).min() for column, code in enumerate(options.missing)]
    )
