"""How much of a neighbourhood keeps the class, for every metric over neighbourhoods."""

from __future__ import annotations

import numpy as np
import polars as pl

from standfast.results.presentation import Detail, read_numbers


def count_kept_class(frame: pl.DataFrame) -> list[Detail]:
    """The mean share of the neighbourhood that keeps the class, in per cent; nothing where no sample has a share.

    >>> shares = {"class_kept": [0.9, 0.8], "class_kept_low": [0.8, 0.7], "class_kept_high": [0.95, 0.85]}
    >>> [detail.text for detail in count_kept_class(pl.DataFrame(shares))]
    ['class kept in % of inputs: 85 [75, 90]']
    """
    columns = ("class_kept", "class_kept_low", "class_kept_high")
    values = np.stack([read_numbers(frame, column) for column in columns])
    values = values[:, np.isfinite(values).all(0)]
    if not values.size:
        return []
    # whole per cent, and never 100 where a draw left the class
    share, low, high = (min(round(value), 100 if value == 100 else 99) for value in 100 * values.mean(1))
    return [Detail("class kept in % of inputs", share, low=low, high=high, decimals=0)]
