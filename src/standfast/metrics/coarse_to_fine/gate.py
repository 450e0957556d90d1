"""Explainers compared: numbers at a common share, numbers rescaled over all of them, and the test against random maps.

`summary` defines the numbers, and says why the fine ones need a gate.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.errors import check, check_integer
from standfast.metrics.coarse_to_fine.statistics import compute_area, compute_area_up_to, rescale_over
from standfast.metrics.coarse_to_fine.summary import (
    Columns,
    CorruptionSummary,
    Curves,
    drop_single_axes,
    join_numbers,
    split_numbers,
    summarise,
)
from standfast.statistics.bootstrap import average_samples, intervals_of_means, student_intervals_of_means
from standfast.tensors import Array

#: numbers that the paper also rescales over the explainers, and marks with a star
STARRED = ("auc_top", "f1", "f1_framework", "auc_skewness", "auc_kurtosis")
#: numbers of each explainer that `compare_curves` adds
_ADDED = ("common_share", "auc_common")


@dataclass(frozen=True)
class Gate:
    """Whether an explainer is demonstrably better than random maps on average.

    Attributes:
        difference: the area of the explainer minus that of the random maps, up to the share of positions that both
            replace; or `auc_top` minus that of the random maps.
        low, high: its 95% interval; NaN if there are too few samples.
    """

    difference: float
    low: float
    high: float

    @property
    def passed(self) -> bool:
        """Whether the interval lies above 0."""
        return self.low > 0


def compare_curves(
    curves: Mapping[str, Curves], *, tau: float = 0.5, q: float = 0.25, resamples: int = 2000, seed: int = 0
) -> dict[str, CorruptionSummary]:
    """All numbers of several explainers, the fine ones rescaled over all of them, and the starred ones.

    `auc_common` is the coarse number to compare: the mean drop over shares up to `common_share`, where the curves of
    all explainers are measured. An explainer whose maps have no positive relevance at all does not set that share.

    Args:
        curves: by explainer, of the same samples in the same order. Samples without all drops of all explainers are
            left out.
        tau, q, resamples, seed: as for `summarise`. Samples are resampled for all explainers together. Intervals of
            rescaled numbers are plain percentiles, because the extremes of a set are not smooth.

    Raises:
        ArgumentError: no explainers; other samples or other shares for some of them; options out of range.

    >>> drops = np.random.default_rng(0).uniform(size=(50, 2)) ** 3
    >>> share, k = np.full((50, 2), [0.1, 0.2]), np.array([0.5, 1.0])
    >>> found = compare_curves({"one": Curves(1 - drops, None, share, k), "other": Curves(drops, None, share, k)})
    >>> found["one"].scale, found["one"].starred["auc_skewness"], found["other"].starred["auc_skewness"]
    ('compared', 1.0, 0.0)
    """
    check(len(curves) > 0, "curves", "the curves of at least one explainer", "none")
    first = next(iter(curves.values()))
    _check_paired(first, curves.values())
    complete = np.all([each.find_complete() for each in curves.values()], axis=0)
    kept = {name: each.select(complete) for name, each in curves.items()}
    found = {name: summarise(each, tau=tau, q=q, resamples=resamples, seed=seed) for name, each in kept.items()}
    columns = [Columns(each, tau) for each in kept.values()]
    values = np.concatenate([each.values for each in columns], axis=1)
    numbers = _rescale_numbers(columns, average_samples(values))
    ends: list[dict[str, Array]] = []
    if resamples:

        def statistic(means: Array) -> Array:
            return join_numbers(_rescale_numbers(columns, means), means.shape[:-1])

        _, *pair = intervals_of_means(values, statistic, resamples=resamples, seed=seed, accelerated=False)
        ends = [drop_single_axes(split_numbers(end, numbers)) for end in pair]
    numbers = drop_single_axes(numbers)
    result = {}
    for row, (name, each) in enumerate(found.items()):
        own: dict[str, Any] = {key: array[row] for key, array in numbers.items()}
        starred = {key: float(own.pop(f"starred_{key}")) for key in STARRED}
        if ends:
            own["intervals"] = {**each.intervals, **{key: (ends[0][key][row], ends[1][key][row]) for key in numbers}}
        for key in ("auc_skewness", "auc_kurtosis", *_ADDED):
            own[key] = float(own[key])
        left_out = len(first) - each.samples
        result[name] = dataclasses.replace(each, left_out=left_out, scale="compared", starred=starred, **own)
    return result


def _rescale_numbers(columns: list[Columns], means: Array) -> dict[str, Array]:
    """The numbers that depend on the other explainers, from means of all columns: `(..., E, K)` or `(..., E, 1)`."""
    each = [c.compute_numbers(own) for c, own in zip(columns, np.split(means, len(columns), axis=-1), strict=True)]
    own = {name: np.stack([numbers[name] for numbers in each], axis=-2) for name in each[0]}
    skewness, kurtosis = (rescale_over(own[name], (-2, -1)) for name in ("skewness", "kurtosis"))
    fine = {name: values[..., None] for name, values in columns[0].compute_fine_areas(skewness, kurtosis).items()}
    stars = {f"starred_{name}": rescale_over({**own, **fine}[name], (-2,)) for name in STARRED}
    last = own["share"][..., -1]
    end = np.where(last > 0, last, np.inf).min(-1, keepdims=True)  # inf if no explainer has positive relevance
    end = np.broadcast_to(np.where(np.isinf(end), np.nan, end), last.shape)
    common = compute_area_up_to(own["share"], own["mean_top"], end) / end
    added = dict(zip(_ADDED, (end[..., None], common[..., None]), strict=True))
    return {"skewness_scaled": skewness, "kurtosis_scaled": kurtosis, **fine, **added, **stars}


def apply_gate(curves: Curves, random: Curves, *, to_common: bool = True, resamples: int = 2000, seed: int = 0) -> Gate:
    """Whether an area is demonstrably larger than that of random maps, by an interval of the paired difference.

    Only positive positions are corrupted. So a map with more of them has a larger `auc_top` for that reason alone: its
    curve goes on where the curves of others stay constant. Random maps are positive in half of their positions, and
    random maps that are positive everywhere have a larger area than they. So the areas are compared only where both
    curves are measured, up to the smaller of their last mean shares.

    The interval contains two others: Efron's BCa interval, and Student's t interval with the jackknife's standard
    error. With few samples and heavy tails the first is too narrow: of 24 samples, three in ten of which react, it lies
    above 0 in 9% of cases without a difference, where 2.5% are meant. The second does not correct for skewness. So an
    explainer passes only if both lie above 0.

    Args:
        curves: of the explainer.
        random: of the explainer `random`, for the same samples in the same order.
        to_common: compare the areas from 0 to the share of positions that both reach; if False, `auc_top` from 0 to 1.
        resamples, seed: of the bootstrap.

    Raises:
        ArgumentError: other samples or other shares; drops of the top are missing.

    >>> noise = np.random.default_rng(0).uniform(size=(40, 1))
    >>> share, k = np.full((40, 1), 0.1), np.array([1.0])
    >>> better, random = Curves(0.5 + noise, None, share, k), Curves(0.4 + noise, None, share, k)
    >>> apply_gate(better, random).passed, apply_gate(random, random).passed
    (True, False)
    >>> longer = Curves(noise * [[1.0, 2.0]], None, np.full((40, 2), [0.5, 1.0]), np.array([0.5, 1.0]))
    >>> shorter = Curves(noise * [[0.5, 1.0]], None, np.full((40, 2), [0.25, 0.5]), np.array([0.5, 1.0]))
    >>> apply_gate(longer, shorter).passed, apply_gate(longer, shorter, to_common=False).passed
    (False, True)
    """
    _check_paired(curves, [random])
    for name, each in (("curves", curves), ("random", random)):
        check(each.top is not None, name, "drops with the most relevant positions first", "none")
    check_integer(resamples, "resamples")
    both = curves.find_complete() & random.find_complete()
    own, other = curves.select(both), random.select(both)
    values = np.concatenate([own.share, own.top, other.share, other.top], axis=1)

    def difference(means: Array) -> Array:
        share, top, other_share, other_top = np.split(means, 4, axis=-1)
        if to_common:
            end = np.minimum(share[..., -1], other_share[..., -1])
            return np.asarray(
                (compute_area_up_to(share, top, end) - compute_area_up_to(other_share, other_top, end))[..., None]
            )
        return np.asarray((compute_area(share, top) - compute_area(other_share, other_top))[..., None])

    value, *ends = intervals_of_means(values, difference, resamples=resamples, seed=seed)
    _, *others = student_intervals_of_means(values, difference)
    low, high = np.minimum(ends[0], others[0]), np.maximum(ends[1], others[1])
    return Gate(*(float(number[0]) for number in (value, low, high)))


def _check_paired(first: Curves, others: Iterable[Curves]) -> None:
    for each in others:
        same = each.share.shape == first.share.shape and bool((each.fractions == first.fractions).all())
        expected = f"the same {len(first)} samples and {len(first.fractions)} shares for all explainers"
        check(same, "curves", expected, f"{len(each)} samples and shares {each.fractions.tolist()}")
