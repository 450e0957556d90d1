"""One test and one interval from the tests of many inputs, each of which says little alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from standfast.errors import check, check_integer
from standfast.statistics.paired import Interval, bootstrap_interval
from standfast.tensors import Array


@dataclass(frozen=True)
class Pooled:
    """What several inputs say together.

    Attributes:
        median: of their values, with its interval over inputs; None without inputs.
        p_value: one-sided, of the hypothesis that no input has more than chance gives; NaN without inputs.
        count: how many inputs.
    """

    median: Interval | None
    p_value: float
    count: int


def pool_inputs(values: Array, p_values: Array, draws: int) -> Pooled:
    """Pool the values of independent inputs, each with the p-value of its own permutation test.

    The test is Stouffer's (The American Soldier, 1949): with `z_i` the normal quantile of `1 - p_i`, the sum of z over
    n inputs is normal with variance n, if no input has more than chance gives. A p-value from B draws is one of
    `1 / (B + 1), ..., 1`; the middle of its step is used, so that the mean of z is 0 then. Permutations stay within an
    input, so it is a stratified permutation test; it is valid however different the inputs are.

    The interval is the exact one for the median over the inputs from which these are drawn, by order statistics. An
    interval for the mean would cover too rarely where values gather near 1. It does not know how precise the value of a
    single input is: it is about values of this precision.

    Args:
        values: (n,); those that are NaN are left out, with their p-values.
        p_values: (n,).
        draws: B, permutations for each input.

    Raises:
        ArgumentError: shapes that differ, or no draws.

    >>> found = pool_inputs(np.array([0.3, 0.2, 0.4]), np.array([0.1, 0.2, 0.05]), draws=999)
    >>> found.median.value, round(found.p_value, 4)
    (0.3, 0.0147)
    """
    values, p_values = np.asarray(values, dtype=float), np.asarray(p_values, dtype=float)
    check(
        values.ndim == 1 and values.shape == p_values.shape,
        "p_values",
        f"shape {values.shape}",
        p_values.shape,
    )
    check_integer(draws, "draws")
    is_known = np.isfinite(values) & np.isfinite(p_values)
    values, p_values = values[is_known], p_values[is_known]
    count = len(values)
    if count == 0:
        return Pooled(None, math.nan, 0)
    half_step = 0.5 / (draws + 1)
    middles = np.clip(p_values - half_step, half_step, 1 - half_step)
    score = float(ndtri(1 - middles).sum()) / math.sqrt(count)
    return Pooled(bootstrap_interval(values), float(ndtr(-score)), count)
