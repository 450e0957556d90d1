"""How one column of a table, or one group of one-hot columns, may change: as a user writes it, and as it is read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from standfast.errors import check, is_number
from standfast.records import ConfigurationType, set_fields

#: how a column changes, as the user writes it
Change = float | str | tuple[Any, ...] | Mapping[str, Any]

_CHANGES = (
    "a number, a text such as '2%', a pair from below 0 to above 0, 'any', 'category', or a mapping with by, step,"
    " categories, rate"
)
#: the options of a change that is a mapping
OPTIONS = frozenset({"by", "step", "categories", "rate"})


@dataclass(frozen=True)
class Feature(metaclass=ConfigurationType):
    """How one column, or one group of one-hot columns, may change.

    Args:
        by: of a number: r for -r to r, a pair `(low, high)` with low <= 0 <= high, each of them in the data's units, or
            texts such as `"2%"` for shares of the row's own value; `"any"` for every value between the smallest and the
            largest of the data.
        step: changes are multiples of it, in the data's units; 1 for integers.
        categories: of a category: `"data"` for all that the data has, with its frequencies (without data all of a
            one-hot code, equally probable), or a list of codes; of a data frame, of their names.
        rate: the probability that a category changes, from 0 to below 1; the others keep their proportions. None: the
            category is drawn by the frequencies, whatever it was.

    Raises:
        ArgumentError: a value of another kind.

    >>> Feature(by="2%").limits, Feature(by=(-1, 3), step=1).limits
    ((-2.0, 2.0), (-1.0, 3.0))
    """

    by: float | str | tuple[float | str, float | str] | None = None
    step: float | None = None
    categories: Literal["data"] | tuple[float | str, ...] | None = None
    rate: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.by, list):
            set_fields(self, by=tuple(self.by))
        if isinstance(self.categories, list):
            set_fields(self, categories=tuple(self.categories))
        has_one_kind = (self.by is None) != (self.categories is None)
        got = f"by={self.by!r}, categories={self.categories!r}"
        check(has_one_kind, "changes", "either by, for a number, or categories", got)
        if self.step is not None:
            fits = is_finite(self.step) and self.step > 0 and self.by is not None
            check(
                fits,
                "step",
                "a number above 0, for a column that changes by a number",
                repr(self.step),
            )
        if self.rate is not None:
            fits = is_finite(self.rate) and 0 <= self.rate < 1 and self.by is None
            check(fits, "rate", "a number from 0 to below 1, for categories", repr(self.rate))
        if self.categories not in (None, "data"):
            self._check_codes()
        if self.by is not None:
            # reading the limits checks them
            _ = self.limits

    def _check_codes(self) -> None:
        """Raise `ArgumentError` unless the categories are a list of codes or names."""
        codes = self.categories
        fits = isinstance(codes, tuple) and len(codes) > 0 and all(map(_is_code, codes))
        check(fits, "categories", "'data' or a list of codes or names", repr(codes))

    @property
    def percent(self) -> bool:
        """Whether the range is a share of the row's own value."""
        return any(isinstance(end, str) and end.strip().endswith("%") for end in self._ends)

    @property
    def _ends(self) -> tuple[Any, ...]:
        """What `by` consists of: one number or text, or the two of a pair."""
        if isinstance(self.by, tuple):
            return self.by
        return (self.by,)

    @property
    def limits(self) -> tuple[float, float]:
        """The smallest and the largest change; infinite for `"any"`."""
        if self.by == "any":
            return -math.inf, math.inf
        ends = self._ends
        numbers: list[float] = []
        for end in ends:
            number = _read_end(end)
            if number is not None:
                numbers.append(number)
        are_numbers = len(numbers) == len(ends) and len(numbers) in (1, 2)
        # a pair of a share and of a number in the data's units has no common unit
        kinds = {isinstance(end, str) for end in ends}
        check(are_numbers and len(kinds) == 1, "changes", _CHANGES, repr(self.by))
        # one number r stands for -r to r
        low = numbers[0] if len(numbers) == 2 else -numbers[0]
        high = numbers[-1]
        check(low <= 0 <= high, "changes", _CHANGES, repr(self.by))
        return low, high

    def describe(self, name: str) -> str:
        """In words."""
        if self.by is None:
            return name
        if self.by == "any":
            words = f"{name} to any value of the data"
        else:
            low, high = self.limits
            unit = "%" if self.percent else ""
            words = f"{name} by {low:g}{unit} to {high:g}{unit}"
        if self.step:
            words += f" in steps of {self.step:g}"
        return words


def is_finite(value: object) -> bool:
    """Whether it is a number, and neither NaN nor infinite."""
    return is_number(value) and math.isfinite(value)


def _is_code(value: object) -> bool:
    return isinstance(value, str | bool) or is_finite(value)


def _read_end(end: object) -> float | None:
    """A number, or the number of a text in percent; None for anything else."""
    if isinstance(end, str) and end.strip().endswith("%"):
        text = end.strip()[:-1]
        try:
            number = float(text.strip("+ "))
        except ValueError:
            return None
        return number if math.isfinite(number) else None
    if is_finite(end):
        return float(end)  # type: ignore[arg-type]
    return None


def read_change(change: object) -> Feature:
    """How a column changes, from what a user writes.

    >>> read_change("2%"), read_change({"by": 3, "step": 1}).step
    (Feature(by='2%', step=None, categories=None, rate=None), 1)
    """
    if isinstance(change, Feature):
        return change
    if isinstance(change, Mapping):
        unknown = sorted(map(str, set(change) - OPTIONS))
        check(not unknown, "changes", _CHANGES, f"{', '.join(unknown)} in {dict(change)!r}")
        options = {str(option): value for option, value in change.items()}
        return Feature(**options)
    if isinstance(change, str) and change == "category":
        return Feature(categories="data")
    fits = is_finite(change) or isinstance(change, str | tuple | list)
    check(fits, "changes", _CHANGES, repr(change))
    return Feature(by=change)  # type: ignore[arg-type]
