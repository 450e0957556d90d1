"""Decimal numbers of Python as numbers in double precision, and back."""

from __future__ import annotations

import decimal
from collections.abc import Sequence

import numpy as np

from standfast.errors import check
from standfast.tensors import Array


def read_decimals(label: object, values: Sequence[decimal.Decimal | None], decimals: int) -> Array:
    """Decimal numbers in double precision `(N,)`, NaN for None.

    Args:
        label: of the column.
        values: N cells.
        decimals: how many digits may stand behind the point.

    Raises:
        ArgumentError: numbers with more digits than double precision has.
    """
    floats = [np.nan if value is None else float(value) for value in values]
    numbers = np.array(floats, dtype=float)
    finite = not np.isinf(numbers).any()
    check(finite, "frame", f"finite numbers or missing cells in {str(label)!r}", "infinite ones")
    # written back and compared, as only that shows whether a digit was lost
    same = write_decimals(numbers, decimals) == list(values)
    check(same, "frame", f"decimal numbers of at most 15 digits in {str(label)!r}", "longer ones")
    return numbers


def write_decimals(numbers: Array, decimals: int) -> list[decimal.Decimal | None]:
    """Numbers `(N,)` with so many digits behind the point; None for NaN.

    >>> write_decimals(np.array([0.1, 2.0, np.nan]), 2)
    [Decimal('0.10'), Decimal('2.00'), None]
    """
    written: list[decimal.Decimal | None] = []
    for number in numbers.tolist():
        if np.isnan(number):
            written.append(None)
        else:
            written.append(decimal.Decimal(f"{number:.{decimals}f}"))
    return written


def find_decimal_limits(digits: int, decimals: int) -> tuple[float, float]:
    """The smallest and the largest number of so many digits, some of them behind the point."""
    # a little less, as the power itself has one digit more
    largest = 10.0 ** (digits - decimals) * (1 - 1e-15)
    return -largest, largest
