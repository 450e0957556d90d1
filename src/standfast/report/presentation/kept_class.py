"""How much of a neighbourhood keeps the class, in words, for every metric over neighbourhoods."""

from __future__ import annotations

import numpy as np
import polars as pl

from standfast.results.presentation import read_numbers

KEPT = {
    "Class kept": (
        "The share of inputs drawn from the neighbourhood that keep the class of the clean input: the mean over "
        "samples, and in brackets the means of the ends of the 95% intervals. Where it is small, the model itself does "
        "not hold in this neighbourhood, and a number about explanations there says little."
    )
}


def describe_kept_class(frame: pl.DataFrame) -> list[str]:
    """How much of the neighbourhood keeps the class, as one remark; none where no sample has a share.

    >>> shares = {"class_kept": [0.9, 0.8], "class_kept_low": [0.8, 0.7], "class_kept_high": [0.95, 0.85]}
    >>> describe_kept_class(pl.DataFrame(shares))
    ['class kept in 85% of the neighbourhood [75, 90]']
    """
    columns = ("class_kept", "class_kept_low", "class_kept_high")
    if not set(columns) <= set(frame.columns):
        return []
    values = np.stack([read_numbers(frame, column) for column in columns])
    values = values[:, np.isfinite(values).all(0)]
    if not values.size:
        return []
    # whole per cent, and never 100 where a draw left the class
    share, low, high = (min(round(value), 100 if value == 100 else 99) for value in 100 * values.mean(1))
    return [f"class kept in {share}% of the neighbourhood [{low}, {high}]"]
