"""What a user says of a table that changes: the options of `TableChanges`, read and checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor

from standfast.errors import ArgumentError, check
from standfast.neighbourhoods.tables.features import (
    OPTIONS,
    Change,
    Feature,
    is_finite,
    read_change,
)
from standfast.neighbourhoods.transformations import Transformation
from standfast.records import Background, FrozenMapping, set_fields

TablePrior = Literal["independent", "copula"]


@dataclass(frozen=True)
class TableOptions(Transformation):
    """The options of a table, which `TableChanges` describes in full; reading them needs no rows."""

    takes = "any"

    #: what changes, and how far: one change for all columns, or a mapping from names to changes
    changes: Change
    #: the names of all F columns
    columns: tuple[str, ...] | None = None
    #: columns that stay as they are, where `changes` is for all
    fixed: tuple[str, ...] = ()
    #: the columns of each one-hot code, by a name for the code
    one_hot: Mapping[str, tuple[str, ...]] = FrozenMapping({})
    #: linear rules that every row keeps, as text
    rules: tuple[str, ...] = ()
    #: training rows `(n, F)`, in the inputs' units
    data: Background | Tensor | None = None
    #: mean and standard deviation of each column: the data's units are `input * std + mean`
    units: tuple[tuple[float, ...], tuple[float, ...]] | None = None
    #: how the changes are distributed
    prior: TablePrior = "independent"
    #: of a copula alone: how far rows move
    size: float = 0.25
    #: the number that stands for a missing cell of each column, in the inputs' units; None for a column without one
    missing: tuple[float | None, ...] | None = None
    #: the probability that a cell becomes missing
    may_become_missing: float = 0.0
    #: the smallest number of each column that is no missing cell, in the inputs' units
    lowest: tuple[float, ...] | None = None
    #: how many categories each column has, whose cells are then 0, 1 and so on; 0 for a column of other numbers
    codes: tuple[int, ...] | None = None
    #: the largest number of each column, in the inputs' units
    highest: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check(
            is_finite(self.size) and 0 < self.size <= 1,
            "size",
            "a number above 0 and at most 1",
            repr(self.size),
        )
        self._read_names()
        self._read_one_hot()
        if self.units is not None:
            set_fields(self, units=_read_units(self.units))
        if self.data is not None:
            set_fields(self, data=_read_data(self.data))
        set_fields(self, changes=self._read_changes())
        self._check_prior()
        rate = self.may_become_missing
        check(
            is_finite(rate) and 0 <= rate < 1,
            "may_become_missing",
            "a number from 0 to below 1",
            repr(rate),
        )
        for option in ("missing", "lowest", "codes", "highest"):
            if getattr(self, option) is not None:
                set_fields(self, **{option: tuple(getattr(self, option))})
        self._check_distribution()

    def _read_names(self) -> None:
        """Make tuples of names of columns and of rules."""
        if isinstance(self.rules, str):
            set_fields(self, rules=(self.rules,))
        for option in ("columns", "fixed", "rules"):
            names = getattr(self, option)
            if names is None and option == "columns":
                continue
            are_texts = isinstance(names, list | tuple) and all(
                isinstance(name, str) for name in names
            )
            check(are_texts, option, "a list of texts", repr(names))
            set_fields(self, **{option: tuple(names)})

    def _read_one_hot(self) -> None:
        are_groups = isinstance(self.one_hot, Mapping) and all(
            isinstance(group, list | tuple) and len(group) > 1 for group in self.one_hot.values()
        )
        check(
            are_groups,
            "one_hot",
            "a mapping from names to lists of two or more columns",
            repr(self.one_hot),
        )
        set_fields(
            self,
            one_hot=FrozenMapping({name: tuple(group) for name, group in self.one_hot.items()}),
        )

    def _read_changes(self) -> Any:
        """A `Feature` for all columns, or a mapping from names to features."""
        if not self._names_columns():
            return read_change(self.changes)
        assert isinstance(self.changes, Mapping)
        features = FrozenMapping(
            {str(name): read_change(change) for name, change in self.changes.items()}
        )
        check(
            not self.fixed,
            "fixed",
            "no columns, as changes names those that change",
            repr(self.fixed),
        )
        return features

    def _names_columns(self) -> bool:
        """Whether changes are a mapping from names of columns, and not the options of one change for all."""
        if not isinstance(self.changes, Mapping):
            return False
        keys = set(self.changes)
        is_one_change = len(keys) > 0 and keys <= OPTIONS
        # a column may have the name of an option, such as "step"
        return not is_one_change or bool(keys & set(self.columns or ()))

    def _check_prior(self) -> None:
        # a data frame brings columns, units and data later; then `plan_columns` checks again
        has_no_columns_yet = self.columns is None and self.units is None and self.data is None
        fits = self.prior == "independent" or self.data is not None or has_no_columns_yet
        check(fits, "data", "training rows, for prior 'copula'", None)

    def _check_distribution(self) -> None:
        """Numbers of one prior can be normal; a category has no distance, and a copula is normal by itself."""
        has_categories = (
            any(feature.categories for feature in self.features.values()) or len(self.one_hot) > 0
        )
        may_be_normal = self.prior == "independent" and not has_categories
        fits = self.distribution == "uniform" or may_be_normal
        check(fits, "distribution", "uniform, for categories and with a copula", self.distribution)

    def count_columns(self) -> int | None:
        """F, if an option tells it."""
        counts: dict[str, int] = {}
        for option in ("columns", "missing", "lowest", "codes", "highest"):
            entries = getattr(self, option)
            if entries is not None:
                counts[option] = len(entries)
        if self.units is not None:
            counts["units"] = len(self.units[0])
        if self.data is not None and len(self.data.shape) == 2:
            counts["data"] = self.data.shape[1]
        words = ", ".join(f"{count} in {option}" for option, count in counts.items())
        check(len(set(counts.values())) <= 1, "columns", "as many columns everywhere", words)
        return next(iter(counts.values()), None)

    @property
    def features(self) -> dict[str, Feature]:
        """What changes, by the names of columns and groups."""
        named: Any = {"every column": self.changes}
        if isinstance(self.changes, Mapping):
            named = self.changes
        return dict(named)

    @property
    def table(self) -> Background:
        """The training rows, where there are some."""
        assert isinstance(self.data, Background)
        return self.data

    @property
    def comes_from_frame(self) -> bool:
        """Whether missing cells have numbers, as a data frame brings them along."""
        return self.missing is not None

    @property
    def edges(self) -> tuple[float, ...] | None:
        """At or below which number a cell of each column is missing, minus infinity for none; None without a frame."""
        if self.missing is None or self.lowest is None:
            return None
        return tuple(-math.inf if code is None else code for code in self.missing)


def _read_units(units: object) -> tuple[tuple[float, ...], tuple[float, ...]]:
    words = "the mean and the standard deviation of each column, two lists of the same length"
    if isinstance(units, list | tuple):
        units = [part.tolist() if isinstance(part, Tensor) else part for part in units]
    fits = (
        isinstance(units, list)
        and len(units) == 2
        and all(isinstance(part, list | tuple) for part in units)
    )
    check(fits and len(units[0]) == len(units[1]) > 0, "units", words, type(units).__name__)  # type: ignore[index]
    mean = tuple(float(value) for value in units[0])  # type: ignore[index]
    std = tuple(float(value) for value in units[1])  # type: ignore[index]
    check(
        all(map(math.isfinite, (*mean, *std))) and min(std) > 0,
        "units",
        f"{words}, the latter above 0",
        "others",
    )
    return mean, std


def _read_data(data: object) -> Background:
    if isinstance(data, Background):
        return data
    check(isinstance(data, Tensor), "data", "training rows (n, F)", type(data).__name__)
    try:
        return Background(data)  # type: ignore[arg-type]
    except ArgumentError as error:
        raise ArgumentError(
            "data", "training rows (n, F), finite and floating point", error.got
        ) from None
