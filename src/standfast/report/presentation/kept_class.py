"""How much of a neighbourhood keeps the answer, for every metric over neighbourhoods."""

from __future__ import annotations

import numpy as np
import polars as pl

from standfast.report.presentation.base import Detail
from standfast.value_spec import read_numbers


def count_kept_class(frame: pl.DataFrame) -> list[Detail]:
    """The mean share of the neighbourhood that keeps the answer; nothing where no sample has a share.

    >>> shares = {"class_kept": [0.9, 0.8], "class_kept_low": [0.8, 0.7], "class_kept_high": [0.95, 0.85]}
    >>> [detail.text for detail in count_kept_class(pl.DataFrame(shares))]
    ['answer kept: 85% [75%, 90%]']
    """
    columns = ("class_kept", "class_kept_low", "class_kept_high")
    values = np.stack([read_numbers(frame, column) for column in columns])
    values = values[:, np.isfinite(values).all(0)]
    if not values.size:
        return []
    with np.errstate(divide="ignore"):
        share, low, high = np.log(values.mean(1)).tolist()
    return [Detail("answer kept", share, low=low, high=high, decimals="probability")]
