"""The numbers of a data set from the drops of its samples: areas, skewness, kurtosis, and numbers that need no gate.

They are made from the drops of one call, or from those that a study has stored. Each is a number of a whole data set,
with a 95% interval over samples.

*Coarse* (Wei, Turbe and Mengaldo, App. A.2; Turbe et al. 2023): the mean drop over the mean share of corrupted
positions, and the area under it. The curve starts at `(0, 0)`, runs by straight lines through the measured points, and
stays constant from the last point to 1. `F1 = A_top (1 - A_bottom) / (A_top + 1 - A_bottom)` is printed without the
factor 2 of a harmonic mean, so that its best value is 0.5; `f1` is twice that. Both orders end in the same copy, with
all positive positions replaced. If these are few, the areas come mostly from the constant part, and are close to each
other.

An area to 1 is larger for a map with more positive positions, whatever their order, because its curve goes on where
others stay constant. So a report compares explainers up to the share of positions that all of them replace.

*Fine* (Sec. 3.2): skewness `k3 / k2^(3/2)` and excess kurtosis `k4 / k2^2 - 3` of the drops at each share k of the
positive positions, with biased moments; 0 where all drops are equal, and flagged. Both are rescaled to [0, 1] and
integrated over k, from the first share to the last (0.05 to 1): 1 minus the area of skewness, and the area of kurtosis.

The paper does not say how to rescale. We read it as a linear map of the least and the largest value among the compared
explainers (over explainers and k together) to 0 and 1; such a number depends on which explainers are compared. Here
fixed functions rescale: `(1 + s / (1 + |s|)) / 2` of a skewness s, 1/2 for a symmetric distribution; and `(e + 2) / (e
+ 4)` of an excess kurtosis e, 0 for the minimum and 1/2 for a normal distribution.

The paper's own Table E.I shows the weakness of the fine numbers: a method whose maps say nothing has drops that are
nearly all 0. Their distribution has a sharp peak, and so the best kurtosis. The fine numbers count only if the gate is
passed (`gate.apply_gate`): if the coarse area is demonstrably larger than that of random maps. The share of samples
with a drop of at least tau, and the lower quartile of the drops, need no gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from standfast.errors import check, check_integer
from standfast.records import set_fields
from standfast.statistics.bootstrap import average_samples, intervals_of_means
from standfast.statistics.corruption.moments import (
    compute_centred_powers,
    compute_moments,
    compute_printed_f1,
    compute_quantile,
    compute_quantile_interval,
    compute_shape,
    integrate_over_fractions,
    rescale_kurtosis,
    rescale_skewness,
)
from standfast.statistics.curves import compute_area
from standfast.tensors import Array

_PER_FRACTION = ("share", "mean_top", "mean_bottom", "skewness", "kurtosis", "share_above")


@dataclass(frozen=True)
class Curves:
    """The drops of one explainer's samples.

    Args:
        top, bottom: the mean drop over draws with the most, or the least, relevant positions first, `(n, K)`; None if
            it was not measured.
        share: the share of all positions that is corrupted, `(n, K)`, in [0, 1].
        fractions: the shares k of the positive positions, `(K,)`, increasing.
        shares: whether drops are shares that are lost, at most 1; without it there are no numbers of such shares.

    Raises:
        ArgumentError: shapes that do not fit together; neither top nor bottom.
    """

    top: Array | None
    bottom: Array | None
    share: Array
    fractions: Array
    shares: bool = True

    def __post_init__(self) -> None:
        check(
            self.top is not None or self.bottom is not None,
            "top",
            "drops in at least one order",
            None,
        )
        for name in ("top", "bottom", "share", "fractions"):
            value = getattr(self, name)
            if value is not None:
                set_fields(self, **{name: np.asarray(value, dtype=float)})
        shape = self.share.shape
        check(
            len(shape) == 2 and shape[1] > 0, "share", "an array of shape (n, K)", f"shape {shape}"
        )
        for name in ("top", "bottom"):
            value = getattr(self, name)
            if value is not None:
                check(
                    value.shape == shape,
                    name,
                    f"drops of shape {shape}, as the shares",
                    f"shape {value.shape}",
                )
        has_shape = self.fractions.shape == shape[1:]
        increasing = has_shape and bool((np.diff(self.fractions) > 0).all())
        check(increasing, "fractions", f"{shape[1]} increasing numbers", self.fractions.tolist())

    def __len__(self) -> int:
        return len(self.share)

    @classmethod
    def from_stored(cls, samples: Iterable[Mapping[str, Array]]) -> Curves:
        """The curves from what a study has stored for each sample: the arrays of `CorruptionCurveResult.tensors`.

        Raises:
            ArgumentError: no samples.
        """
        rows = list(samples)
        check(len(rows) > 0, "samples", "at least one", 0)
        drops: dict[str, Array] = {}
        for name in ("drop_top", "drop_bottom"):
            if name in rows[0]:
                drops[name] = np.array([row[name] for row in rows])
        share = np.array([row["corrupted_share"] for row in rows])
        return cls(
            drops.get("drop_top"), drops.get("drop_bottom"), share, np.asarray(rows[0]["fractions"])
        )

    def find_complete(self) -> Array:
        """Which samples have all their drops, bool `(n,)`; not those that were skipped or not finite in the model."""
        complete = np.isfinite(self.share).all(1)
        for drops in (self.top, self.bottom):
            if drops is not None:
                complete &= np.isfinite(drops).all(1)
        return np.asarray(complete)

    def select(self, rows: Array) -> Curves:
        """The curves of some samples, by their numbers or by a bool array."""
        top = None if self.top is None else self.top[rows]
        bottom = None if self.bottom is None else self.bottom[rows]
        return Curves(top, bottom, self.share[rows], self.fractions, self.shares)


@dataclass(frozen=True)
class CorruptionSummary:
    """The numbers of one explainer for a data set; NaN for those of an order that was not measured.

    Attributes:
        samples: how many samples the numbers are of.
        left_out: how many other samples there were: skipped, or with a corrupted copy on which the model was not
            finite.
        fractions: the shares k, `(K,)`.
        share: the mean share of all positions that is corrupted, `(K,)`.
        mean_top, mean_bottom: the mean drops, `(K,)`.
        auc_top, auc_bottom: the areas under them over `share`.
        f1: their F1 score, at most 1; below 0 where the class's score rises. NaN where drops are no shares.
        skewness, kurtosis: of the drops, most relevant first, `(K,)`; kurtosis is the excess over that of a normal.
        flat: whether all drops are equal, so that both are 0 by definition, bool `(K,)`.
        auc_skewness, auc_kurtosis: 1 minus the area under the rescaled skewness over k, and the area under the rescaled
            kurtosis; NaN for a single share. Larger is better, if the gate is passed.
        tau, share_above: the share of samples with a drop of at least tau, `(K,)`; NaN where drops are no shares.
        auc_share_above: the area under it over k.
        q, quantile: the least drop that a share q of the samples does not exceed, `(K,)`.
        intervals: the ends, by the names of the numbers; empty if there was no bootstrap.
    """

    samples: int
    left_out: int
    fractions: Array
    share: Array
    mean_top: Array
    mean_bottom: Array
    auc_top: float
    auc_bottom: float
    f1: float
    skewness: Array
    kurtosis: Array
    flat: Array
    auc_skewness: float
    auc_kurtosis: float
    tau: float
    share_above: Array
    auc_share_above: float
    q: float
    quantile: Array
    intervals: Mapping[str, tuple[Any, Any]] = field(default_factory=dict)

    def interval(self, name: str) -> tuple[Any, Any]:
        """The ends of the 95% interval of a number, of its shape; NaN if there are too few samples.

        Args:
            name: the name of an attribute.

        Raises:
            ArgumentError: this number has no interval here.
        """
        names = ", ".join(self.intervals) or "none, as no intervals were asked for"
        check(name in self.intervals, "name", f"one of {names}", repr(name))
        return self.intervals[name]


class Columns:
    """Columns whose means over samples give all numbers of one explainer.

    Attributes:
        values: `(n, Q)`.
    """

    def __init__(self, curves: Curves, tau: float) -> None:
        missing = np.full_like(curves.share, np.nan)
        self.top = missing if curves.top is None else curves.top
        bottom = missing if curves.bottom is None else curves.bottom
        # NaN >= tau would be False, which is an answer
        is_unknown = np.isnan(self.top) | (not curves.shares)
        above = np.where(is_unknown, np.nan, self.top >= tau)
        # powers about the median: a resample without the few samples that react lies near it, so that its moments keep
        # their digits; about the mean they would be lost
        if len(self.top):
            self._centre = np.median(self.top, axis=0)
        else:
            self._centre = np.full(self.top.shape[1], np.nan)
        self._fractions = curves.fractions
        self._shares = curves.shares
        powers = compute_centred_powers(self.top, self._centre)
        self.values = np.concatenate([*powers, above, bottom, curves.share], axis=1)

    def compute_numbers(self, means: Array) -> dict[str, Array]:
        """The numbers by name, from means of the columns `(..., Q)`: `(..., K)`, or `(..., 1)` for a single number."""
        *powers, above, bottom, share = np.split(means, 7, axis=-1)
        # powers are about the median, so the mean is the first one and the median
        top = powers[0] + self._centre
        skewness, kurtosis, _ = compute_shape(*powers)
        single = {
            "auc_top": compute_area(share, top),
            "auc_bottom": compute_area(share, bottom),
            "auc_skewness": 1
            - integrate_over_fractions(rescale_skewness(skewness), self._fractions),
            "auc_kurtosis": integrate_over_fractions(rescale_kurtosis(kurtosis), self._fractions),
            "auc_share_above": integrate_over_fractions(above, self._fractions),
        }
        # the printed F1 is half of a harmonic mean
        f1 = 2 * compute_printed_f1(single["auc_top"], single["auc_bottom"])
        single["f1"] = f1 if self._shares else np.full_like(f1, np.nan)
        return {
            "share": share,
            "mean_top": top,
            "mean_bottom": bottom,
            "skewness": skewness,
            "kurtosis": kurtosis,
            "share_above": above,
            **{name: values[..., None] for name, values in single.items()},
        }


def summarise(
    curves: Curves, *, tau: float = 0.5, q: float = 0.25, resamples: int = 2000, seed: int = 0
) -> CorruptionSummary:
    """All numbers of one explainer.

    Intervals are Efron's (1987, JASA 82) BCa intervals over samples. The interval of the quantile is made of order
    statistics.

    Args:
        curves: of the explainer's samples; samples without all their drops are left out.
        tau: the drop of `share_above`, at most 1.
        q: the share of `quantile`, in (0, 1).
        resamples: of the bootstrap; 0 for no intervals.
        seed: of the bootstrap.

    Raises:
        ArgumentError: options out of range.

    >>> drops = np.random.default_rng(0).uniform(size=(500, 2))
    >>> found = summarise(Curves(drops, drops / 2, np.full((500, 2), [0.1, 0.2]), np.array([0.5, 1.0])))
    >>> round(found.auc_top, 1), round(found.auc_top / found.auc_bottom, 6)
    (0.5, 2.0)
    >>> low, high = found.interval("auc_top")
    >>> bool(low < found.auc_top < high)
    True
    """
    check(
        isinstance(tau, int | float) and -np.inf < tau <= 1, "tau", "a drop, at most 1", repr(tau)
    )
    check(
        isinstance(q, int | float) and 0 < q < 1,
        "q",
        "a number between 0 and 1, exclusive",
        repr(q),
    )
    check_integer(resamples, "resamples", 0)
    complete = curves.select(curves.find_complete())
    columns = Columns(complete, tau)
    numbers = columns.compute_numbers(average_samples(columns.values))
    ends: dict[str, tuple[Any, Any]] = {}
    if resamples:
        ends = _find_intervals(columns, numbers, resamples, seed)
        ends["quantile"] = compute_quantile_interval(columns.top, q)
    shaped_numbers: dict[str, Any] = {
        name: _shape(name, values) for name, values in numbers.items()
    }
    return CorruptionSummary(
        samples=len(complete),
        left_out=len(curves) - len(complete),
        fractions=curves.fractions,
        flat=compute_moments(columns.top)[2],
        tau=float(tau),
        q=float(q),
        quantile=compute_quantile(columns.top, q),
        intervals=ends,
        **shaped_numbers,
    )


def _find_intervals(
    columns: Columns, numbers: Mapping[str, Array], resamples: int, seed: int
) -> dict[str, tuple[Any, Any]]:
    """The ends of the interval of each number, by its name."""

    def compute_all(means: Array) -> Array:
        return np.concatenate(list(columns.compute_numbers(means).values()), axis=-1)

    _, low, high = intervals_of_means(columns.values, compute_all, resamples=resamples, seed=seed)
    ends = {}
    start = 0
    for name, values in numbers.items():
        stop = start + values.size
        part = slice(start, stop)
        ends[name] = (_shape(name, low[part]), _shape(name, high[part]))
        start = stop
    return ends


def _shape(name: str, values: Array) -> Any:
    """A number at each share as it is, `(K,)`; a single number, which comes as `(1,)`, by itself."""
    return values if name in _PER_FRACTION else float(values[0])
