"""The test against random maps: whether an explainer's area is demonstrably larger.

`summary` defines the numbers, and says why the fine ones need a gate.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standfast.errors import check, check_integer
from standfast.statistics.bootstrap import intervals_of_means, student_intervals_of_means
from standfast.statistics.corruption.summary import Curves
from standfast.statistics.curves import compute_area, compute_area_up_to
from standfast.tensors import Array


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


def apply_gate(
    curves: Curves, random: Curves, *, to_common: bool = True, resamples: int = 2000, seed: int = 0
) -> Gate:
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
    same_shares = random.share.shape == curves.share.shape and bool(
        (random.fractions == curves.fractions).all()
    )
    expected = (
        f"the same {len(curves)} samples and {len(curves.fractions)} shares as of the explainer"
    )
    check(
        same_shares,
        "random",
        expected,
        f"{len(random)} samples and shares {random.fractions.tolist()}",
    )
    for argument, top in (("curves", curves.top), ("random", random.top)):
        check(top is not None, argument, "drops with the most relevant positions first", "none")
    check_integer(resamples, "resamples")
    complete = curves.find_complete() & random.find_complete()
    curves, random = curves.select(complete), random.select(complete)
    values = np.concatenate([curves.share, curves.top, random.share, random.top], axis=1)

    def difference(means: Array) -> Array:
        share, top, random_share, random_top = np.split(means, 4, axis=-1)
        if to_common:
            end = np.minimum(share[..., -1], random_share[..., -1])
            area = compute_area_up_to(share, top, end)
            random_area = compute_area_up_to(random_share, random_top, end)
        else:
            area = compute_area(share, top)
            random_area = compute_area(random_share, random_top)
        return np.asarray((area - random_area)[..., None])

    value, low, high = intervals_of_means(values, difference, resamples=resamples, seed=seed)
    _, student_low, student_high = student_intervals_of_means(values, difference)
    low, high = np.minimum(low, student_low), np.maximum(high, student_high)
    return Gate(float(value[0]), float(low[0]), float(high[0]))
