"""How far arrays of two runs agree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

#: arrays by name, each with a row per sample
Arrays = Mapping[str, np.ndarray[Any, Any]]

#: what rounding may change, as a share of the largest value of an array, by kind of case
TOLERANCES = {
    "explainers": 1e-4,
    "similarities": 1e-4,
    "neighbourhoods": 1e-4,
    "metrics": 1e-3,
    "studies": 1e-3,
}


def measure_difference(found: Arrays, wanted: Arrays) -> tuple[float, str]:
    """The largest difference of an array, as a share of its largest absolute value, and the array's name.

    Infinite where arrays or their shapes differ, or where one of two values is not finite.

    >>> measure_difference({"a": np.array([1.0, 4.0])}, {"a": np.array([1.0, 5.0])})
    (0.2, 'a')
    """
    if found.keys() != wanted.keys():
        return math.inf, f"arrays {sorted(found)} and {sorted(wanted)}"
    worst, where = 0.0, ""
    for name, old in wanted.items():
        difference = _compare(found[name], old)
        if difference > worst:
            worst, where = difference, name
    return worst, where


def _compare(new: np.ndarray[Any, Any], old: np.ndarray[Any, Any]) -> float:
    if new.shape != old.shape:
        return math.inf
    finite = np.isfinite(old)
    same = np.array_equal(np.isfinite(new), finite) and np.array_equal(
        new[~finite], old[~finite], equal_nan=True
    )
    if not same:
        return math.inf
    largest = float(np.abs(old[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(new[finite] - old[finite]).max(initial=0.0)) / largest


def find_broken_claims(found: Arrays, wanted: Arrays) -> list[str]:
    """What must hold also between runs with other random numbers, and does not hold."""
    shapes, others = (
        {name: array.shape for name, array in arrays.items()} for arrays in (found, wanted)
    )
    if shapes != others:
        return [f"arrays {shapes} instead of {others}"]
    broken = []
    if "status" in found and not np.array_equal(found["status"], wanted["status"]):
        broken.append("another status")
    if "value" in found:
        value = found["value"]
        if (np.isfinite(wanted["value"]) & ~np.isfinite(value)).any():
            broken.append(f"value is not finite: {value.ravel()[:6].tolist()}")
        slack = 1e-9 * (1 + np.abs(value))
        low, high = found.get("low", value), found.get("high", value)
        if ((low > value + slack) | (value > high + slack)).any():
            broken.append("value is not between low and high")
    return broken
