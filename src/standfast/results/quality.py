"""How good a number is: what it is compared with, and the judgement of each explainer by each metric.

A measure of stability has a natural zero, the value for the maps of different inputs, and an end, that of identical
maps. A stable explainer is nearer to the end: its whole interval lies beyond the middle of the two. Other metrics are
judged against controls: good is what is shown to be better than every control.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import polars as pl
from scipy.special import bdtrc

from standfast.results.sanity import round_up
from standfast.statistics.comparison import ControlTest
from standfast.statistics.paired import ROUNDING, Interval, to_bounds
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array
from standfast.value_spec import USEFUL, ValueSpec, read_numbers

#: `"control"`: no better than an explainer that says nothing
Quality = Literal["good", "control", "bad", "undecided"]

#: the largest probability of a changed explanation that counts as good
RARE = 0.01
#: the least confidence of an interval that judges, and that is shown without a word; five samples or fewer have less
CONFIDENT = 0.945
_FEWEST = 6
#: the smallest number of further samples that is proposed, as a share of those that there are
_LEAST_MORE = 0.25


@dataclass(frozen=True)
class References:
    """What a metric of stability gives for maps that are known to be alike or not, by one explainer.

    Attributes:
        identical: for the same map twice: a map that is the same for every input.
        unrelated: for the maps of inputs of other classes, the median over samples: the natural zero. For a
            probability the share of such pairs that count as changed, as all of these.
        same_class: for the maps of other inputs of the same class; None where no class has two samples, or all are of
            one class, whose maps are then `unrelated`.
        scrambled: for the map of the same input with scrambled weights; None where they cannot be scrambled.
    """

    identical: float
    unrelated: float
    same_class: float | None
    scrambled: float | None

    @property
    def middle(self) -> float:
        """Half way between unrelated and identical maps."""
        return (self.identical + self.unrelated) / 2


def find_references(spec: ValueSpec, label: str, rows: pl.DataFrame) -> References | None:
    """The references of an explainer by a metric; None for a metric that has none.

    Args:
        spec: how the metric is read.
        label: of the metric.
        rows: of the sanity checks of the explainer.
    """
    middles: list[float | None] = []
    for kind in ("identical", "unrelated", "same class", "scrambled"):
        column = f"{kind} {label}"
        values = read_numbers(rows, column)
        values = values[~np.isnan(values)]
        if not len(values):
            middles.append(None)
        elif spec.log_probability:
            # the share of all pairs, of which each sample has a few
            middles.append(float(np.mean(values)))
        else:
            middles.append(float(np.median(values)))
    identical, unrelated, same_class, scrambled = middles
    if unrelated is None or identical is None or spec.direction is None:
        return None
    return References(identical, unrelated, same_class, scrambled)


def find_middle(spec: ValueSpec, references: References) -> float:
    """The value that separates good ones from bad ones."""
    if spec.log_probability:
        return math.log(RARE)
    return references.middle


def judge_stability(
    spec: ValueSpec, estimate: Interval | None, references: References
) -> Quality | None:
    """The judgement of a measure of stability; None without a value, or where the threshold is useless."""
    if estimate is None or math.isnan(estimate.value):
        return None
    low = estimate.low
    high = estimate.high
    middle = find_middle(spec, references)
    if spec.log_probability and references.unrelated < USEFUL:
        # a threshold by which unrelated maps do not count as changed is too loose to find any change
        return None
    if low is None or high is None or estimate.coverage < CONFIDENT:
        return "undecided"
    if spec.direction == "lower":
        # from here on, larger is better
        low, high, middle = -high, -low, -middle
    if _is_above(low, middle):
        return "good"
    return "bad" if _is_above(middle, high) else "undecided"


def _is_above(value: float, other: float) -> bool:
    """Whether a value is larger than another one by more than rounding."""
    margin = ROUNDING * max(abs(value), abs(other))
    return value > other and (value - other > margin or math.isinf(margin))


def find_bad_p_value(
    spec: ValueSpec, values: Array, bounds: Array, references: References
) -> float:
    """The p-value of the claim that the median lies beyond the middle: the sign test, with one side.

    Args:
        spec: how the metric is read.
        values: of the samples, `(n,)`.
        bounds: which of them are only bounds, bool `(n,)`; they count where they are certainly beyond the middle.
        references: of the explainer.

    >>> spec, references = ValueSpec("Worst case", "similarity", "higher"), References(1.0, 0.2, None, None)
    >>> find_bad_p_value(spec, np.full(5, 0.3), np.zeros(5, dtype=bool), references)
    0.03125
    """
    low, high = to_bounds(values, bounds, spec.censored_side)
    # a bound counts by its better end
    best = high if spec.direction == "higher" else low
    are_beyond = _find_beyond(spec, best, references)
    beyond = int(are_beyond.sum())
    if not beyond:
        return 1.0
    return float(bdtrc(beyond - 1, len(values), 0.5))


def _find_beyond(spec: ValueSpec, values: Array, references: References) -> Array:
    """Which values lie beyond the middle, on the side of unrelated maps, by more than rounding; bool `(n,)`."""
    middle = find_middle(spec, references)
    margin = ROUNDING * abs(middle)
    if spec.direction == "higher":
        return np.asarray(values < middle - margin)
    return np.asarray(values > middle + margin)


def count_more(spec: ValueSpec, estimate: Interval | None, references: References) -> int | None:
    """About how many samples more would decide on a measure of stability, if value and spread stay as they are."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return None
    middle = find_middle(spec, references)
    width = (estimate.high - estimate.low) / 2
    distance = abs(estimate.value - middle)
    if not (math.isfinite(width) and distance > 0):
        return None
    # the width of an interval falls with the square root of the number of samples
    needed = max(_FEWEST, math.ceil(estimate.count * (width / distance) ** 2))
    # the ends of an interval of a median are values of samples, so that a few more samples may move none of them
    fewest = math.ceil(_LEAST_MORE * estimate.count)
    return round_up(max(fewest, needed - estimate.count))


def find_weak_classes(
    spec: ValueSpec, rows: pl.DataFrame, references: References
) -> tuple[int, ...]:
    """The classes in which most samples are shown to have a value beyond the middle, by the exact interval of a share.

    Args:
        spec: how the metric is read.
        rows: of one explainer by the metric.
        references: of the explainer.
    """
    rows = spec.select_valid(rows)
    if "targets" not in rows.columns:
        return ()
    value = pl.col(spec.column).cast(pl.Float64).median()
    rows = rows.group_by("sample", maintain_order=True).agg(value, pl.col("targets").first())
    classes = rows["targets"].to_numpy()
    are_weak = _find_beyond(spec, spec.values(rows), references)
    weak_classes = []
    for number in np.unique(classes):
        of_class = are_weak[classes == number]
        if proportion_interval(int(of_class.sum()), len(of_class), 0.95)[0] > 0.5:
            weak_classes.append(int(number))
    return tuple(weak_classes)


def judge_against_controls(
    spec: ValueSpec, estimate: Interval | None, test: ControlTest, random: float | None
) -> Quality:
    """The judgement of a metric with controls.

    Args:
        spec: how the metric is read.
        estimate: of the explainer.
        test: against its controls.
        random: the value of random maps; None without them.
    """
    if test.verdict == "beats":
        return "good"
    if test.verdict == "undecided":
        return "undecided"
    if random is None or estimate is None:
        return "control"
    # an explainer is worse than random maps if its whole interval is
    end = estimate.high if spec.direction == "higher" else estimate.low
    if end is None:
        return "control"
    if spec.direction == "higher":
        is_worse = _is_above(random, end)
    else:
        is_worse = _is_above(end, random)
    return "bad" if is_worse else "control"
