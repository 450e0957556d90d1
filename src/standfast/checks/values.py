"""The values of samples that requirements are decided on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
import polars as pl

from standfast.results.metric_summary import read_samples
from standfast.statistics.paired import to_bounds
from standfast.tensors import Array
from standfast.value_spec import ValueSpec


@dataclass(frozen=True)
class SampleValues:
    """The values of one explainer: numbers of samples `(n,)`, and the bounds between which each value lies.

    `mistaken` is the probability that a value lies beyond one of its bounds: 0 but for intervals of estimates.
    `dropped` are the numbers of the samples that were looked at and cannot be evaluated, such as misclassified ones.
    """

    samples: Array
    low: Array
    high: Array
    skipped: int
    mistaken: float = 0.0
    dropped: Array = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


#: metrics give intervals at 95%, with the same error at each end
_BEYOND_AN_END = 0.025


def read_mistaken(spec: ValueSpec) -> float:
    """The probability that a value lies beyond one end of its interval."""
    return _BEYOND_AN_END if spec.log_probability else 0.0


def read_sample_values(spec: ValueSpec, rows: pl.DataFrame) -> SampleValues:
    """The values of the samples that count; over repeats their median."""
    valid = spec.select_valid(rows)
    # no rows: nothing was evaluated or skipped
    if not len(rows):
        return _collect(spec, valid)
    skipped = rows["sample"].n_unique() - valid["sample"].n_unique()
    answered = rows.filter(pl.col("status") == "ok")["sample"]
    # a sample with one good repeat is answered
    is_answered = pl.col("sample").is_in(answered.implode())
    dropped = rows.filter(~is_answered)["sample"].unique().sort()
    return replace(_collect(spec, valid), skipped=skipped, dropped=dropped.to_numpy())


def _collect(spec: ValueSpec, valid: pl.DataFrame) -> SampleValues:
    """The values of rows that all have one."""
    # an estimate, so its interval counts
    if spec.log_probability and {"low", "high"} <= set(valid.columns):
        with_interval = valid.filter(pl.col("high").is_not_null())
        # over repeats the widest interval
        ends = pl.col("low").fill_null(-math.inf).min(), pl.col("high").max()
        intervals = with_interval.group_by("sample").agg(*ends).sort("sample")
        low, high = (
            np.asarray(intervals[name].cast(pl.Float64).to_numpy()) for name in ("low", "high")
        )
        return SampleValues(intervals["sample"].to_numpy(), low, high, 0, read_mistaken(spec))
    if not len(valid):
        none = np.zeros(0)
        return SampleValues(none, none, none, 0)
    samples, numbers, flags = read_samples(spec, valid)
    return SampleValues(samples, *to_bounds(numbers, flags, spec.censored_side), 0)
