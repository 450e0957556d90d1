"""What the drops of many samples say together: areas, skewness, kurtosis, and quantities that a peak at 0 cannot fool.

Made of the curves of a call, or of those that a study has stored. Each is a number of a whole data set, with a 95%
interval over samples.

*Coarse* (Wei, Turbe and Mengaldo, App. A.2; Turbe et al. 2023): the mean drop over the mean share of positions that are
corrupted, and the area under it: from `(0, 0)` by straight lines through the measured points, then held constant to 1.
`F1 = A_top (1 - A_bottom) / (A_top + 1 - A_bottom)` is printed without the factor 2 of a harmonic mean, so it is 0.5 at
best; here it is `f1_paper`, and `f1` is twice that. Both orders end in the same copy, with all positive positions gone:
where these are few, the areas are mostly that end, held, and close to each other.

*Fine* (Sec. 3.2): skewness `k3 / k2^(3/2)` and excess kurtosis `k4 / k2^2 - 3` of the drops at each share k of the
positive positions, with biased moments; 0 where all drops are the same, and flagged. Both are rescaled to [0, 1] and
integrated over k, from the first share to the last (0.05 to 1): 1 less the area of skewness, and the area of kurtosis.

How to rescale, the paper does not say. We read it as by the least and the largest value among the compared explainers
(over explainers and k alike), and then a number depends on who else is in the table: `corruption_compared.compared`.
`summarise` has a fixed map instead, `scale = "absolute"`: `(1 + s / (1 + |s|)) / 2` of a skewness s, 1/2 for a
symmetric
distribution, and `(e + 2) / (e + 4)` of an excess kurtosis e, 0 for the least there is and 1/2 for a normal's.

The weakness of the fine numbers is in the paper's own Table E.I: a method whose maps say nothing has drops that are
nearly all 0, so sharply peaked, and gets the best kurtosis. They count only where the `corruption_compared.gate` is
passed: where the coarse area is demonstrably larger than that of random maps. The share of samples with a drop of at
least tau and the lower quartile of the drops need no gate.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from holdfast.errors import check, check_integer
from holdfast.metrics.coarse_to_fine.statistics import (
    absolute_kurtosis,
    absolute_skewness,
    area,
    area_over_fractions,
    centred_powers,
    f1_paper,
    moments,
    quantile,
    quantile_interval,
    shape_of,
)
from holdfast.records import set_fields
from holdfast.statistics.bootstrap import Array, intervals_of_means, mean_over_samples

Scale = Literal["absolute", "compared"]

_PER_FRACTION = (
    "share",
    "mean_top",
    "mean_bottom",
    "skewness",
    "kurtosis",
    "skewness_scaled",
    "kurtosis_scaled",
    "share_above",
)


@dataclass(frozen=True)
class Curves:
    """The drops of one explainer's samples.

    Args:
        top, bottom: mean drop over draws with the most, or the least, relevant first, `(n, K)`; None if not measured.
        share: of all positions that are corrupted, `(n, K)`, in [0, 1].
        fractions: the shares k of the positive positions, `(K,)`, increasing.

    Raises:
        ArgumentError: shapes that do not belong together; neither top nor bottom.
    """

    top: Array | None
    bottom: Array | None
    share: Array
    fractions: Array

    def __post_init__(self) -> None:
        check(self.top is not None or self.bottom is not None, "top", "drops in at least one order", None)
        for name in ("top", "bottom", "share", "fractions"):
            value = getattr(self, name)
            if value is not None:
                set_fields(self, **{name: np.asarray(value, dtype=float)})
        shape = self.share.shape
        check(len(shape) == 2 and shape[1] > 0, "share", "an array of shape (n, K)", f"shape {shape}")
        for name in ("top", "bottom"):
            value = getattr(self, name)
            if value is not None:
                check(value.shape == shape, name, f"drops of shape {shape}, as the shares", f"shape {value.shape}")
        fine = self.fractions.shape == shape[1:] and bool((np.diff(self.fractions) > 0).all())
        check(fine, "fractions", f"{shape[1]} increasing numbers", self.fractions.tolist())

    def __len__(self) -> int:
        return len(self.share)

    @classmethod
    def stored(cls, samples: Iterable[Mapping[str, Array]]) -> Curves:
        """Of what a study has stored for each sample: the arrays that `CorruptionCurveResult.tensors` names.

        Raises:
            ArgumentError: no samples.
        """
        rows = list(samples)
        check(len(rows) > 0, "samples", "at least one", 0)
        top, bottom = (
            np.array([row[name] for row in rows]) if name in rows[0] else None for name in ("drop_top", "drop_bottom")
        )
        return cls(top, bottom, np.array([row["corrupted_share"] for row in rows]), np.asarray(rows[0]["fractions"]))

    def complete(self) -> Array:
        """Which samples have all their drops, bool `(n,)`: all but the skipped, and where the model was not finite."""
        fine = np.isfinite(self.share).all(1)
        for drops in (self.top, self.bottom):
            fine = fine if drops is None else fine & np.isfinite(drops).all(1)
        return np.asarray(fine)

    def of(self, rows: Array) -> Curves:
        """Those of some samples: their numbers, or booleans."""
        top, bottom = (None if drops is None else drops[rows] for drops in (self.top, self.bottom))
        return Curves(top, bottom, self.share[rows], self.fractions)


@dataclass(frozen=True)
class CorruptionSummary:
    """The numbers of one explainer for a data set; those of an order that was not measured are NaN.

    Attributes:
        samples: how many they are of.
        left_out: how many others there were: skipped, or the model was not finite on a corrupted copy.
        fractions: the shares k, `(K,)`.
        share: mean share of all positions corrupted, `(K,)`.
        mean_top, mean_bottom: mean drops, `(K,)`.
        auc_top, auc_bottom: areas under them over `share`.
        f1, f1_paper: their F1 score, 1 at best, and as printed, 0.5 at best; below 0 where the class's score rises.
        skewness, kurtosis: of the drops, most relevant first, `(K,)`; kurtosis is the excess over a normal's.
        flat: all drops are the same, so both are 0 by definition, bool `(K,)`.
        scale: how they are rescaled: `"absolute"`, or `"compared"` with the other explainers.
        skewness_scaled, kurtosis_scaled: rescaled to [0, 1], `(K,)`.
        auc_skewness, auc_kurtosis: 1 less the area under the one, and the area under the other, over k; NaN for a
            single share. More is better, where the gate is passed.
        tau, share_above: the share of samples with a drop of at least tau, `(K,)`.
        auc_share_above: the area under it over k.
        q, quantile: the least drop that a share q of the samples does not exceed, `(K,)`.
        starred: the paper's starred numbers, rescaled to [0, 1] over the explainers; none for `"absolute"`.
        intervals: ends by the names of the numbers; none where they were not asked for.
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
    f1_paper: float
    skewness: Array
    kurtosis: Array
    flat: Array
    scale: Scale
    skewness_scaled: Array
    kurtosis_scaled: Array
    auc_skewness: float
    auc_kurtosis: float
    tau: float
    share_above: Array
    auc_share_above: float
    q: float
    quantile: Array
    starred: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[str, tuple[Array, Array]] = field(default_factory=dict)

    def interval(self, name: str) -> tuple[Array, Array]:
        """The ends of the 95% interval of a number, shaped like it; NaN where there are too few samples for one.

        Args:
            name: of an attribute, or `"starred_auc_top"` and the like.

        Raises:
            ArgumentError: that number has no interval here.
        """
        known = ", ".join(self.intervals) or "none, as no intervals were asked for"
        check(name in self.intervals, "name", f"one of {known}", repr(name))
        return self.intervals[name]


class Columns:
    """What the numbers of one explainer are means of.

    Attributes:
        values: `(n, Q)`.
    """

    def __init__(self, curves: Curves, tau: float) -> None:
        missing = np.full_like(curves.share, np.nan)
        self.top = missing if curves.top is None else curves.top
        bottom = missing if curves.bottom is None else curves.bottom
        above = np.where(np.isnan(self.top), np.nan, self.top >= tau)
        self._centre, self._fractions = mean_over_samples(self.top), curves.fractions
        # powers about the mean of all: a resample's moments come from them without loss of digits
        self.values = np.concatenate([*centred_powers(self.top), above, bottom, curves.share], axis=1)

    def numbers(self, means: Array) -> dict[str, Array]:
        """By name, from means of the columns `(..., Q)`: `(..., K)`, or `(..., 1)` for a single one."""
        *powers, above, bottom, share = np.split(means, 7, axis=-1)
        top = powers[0] + self._centre
        skewness, kurtosis, _ = shape_of(*powers)
        scaled = absolute_skewness(skewness), absolute_kurtosis(kurtosis)
        auc_top, auc_bottom = area(share, top), area(share, bottom)
        printed = f1_paper(auc_top, auc_bottom)
        single = {
            "auc_top": auc_top,
            "auc_bottom": auc_bottom,
            "f1": 2 * printed,
            "f1_paper": printed,
            **self.fine(*scaled),
            "auc_share_above": area_over_fractions(above, self._fractions),
        }
        return {
            "share": share,
            "mean_top": top,
            "mean_bottom": bottom,
            "skewness": skewness,
            "kurtosis": kurtosis,
            "skewness_scaled": scaled[0],
            "kurtosis_scaled": scaled[1],
            "share_above": above,
            **{name: values[..., None] for name, values in single.items()},
        }

    def fine(self, skewness: Array, kurtosis: Array) -> dict[str, Array]:
        """The areas of rescaled curves `(..., K)`, each `(...,)`."""
        return {
            "auc_skewness": 1 - area_over_fractions(skewness, self._fractions),
            "auc_kurtosis": area_over_fractions(kurtosis, self._fractions),
        }


def summarise(
    curves: Curves, *, tau: float = 0.5, q: float = 0.25, resamples: int = 2000, seed: int = 0
) -> CorruptionSummary:
    """All numbers of one explainer, on the absolute scale.

    Intervals are Efron's (1987, JASA 82) BCa, over samples; that of the quantile is of order statistics.

    Args:
        curves: of its samples; those without all their drops are left out.
        tau: what counts as a drop, at most 1.
        q: in (0, 1).
        resamples: of the bootstrap; 0 for no intervals.
        seed: of the bootstrap.

    Raises:
        ArgumentError: options out of range.

    >>> drops = np.random.default_rng(0).uniform(size=(500, 2))
    >>> found = summarise(Curves(drops, drops / 2, np.full((500, 2), [0.1, 0.2]), np.array([0.5, 1.0])))
    >>> round(found.auc_top, 1), round(found.auc_top / found.auc_bottom, 6)
    (0.5, 2.0)
    >>> low, high = found.interval("auc_top")
    >>> bool(low < found.auc_top < high), found.scale
    (True, 'absolute')
    """
    check(isinstance(tau, int | float) and -np.inf < tau <= 1, "tau", "a drop, at most 1", repr(tau))
    check(isinstance(q, int | float) and 0 < q < 1, "q", "a number between 0 and 1, exclusive", repr(q))
    check_integer(resamples, "resamples", 0)
    kept = curves.of(curves.complete())
    columns = Columns(kept, tau)
    found = columns.numbers(mean_over_samples(columns.values))
    ends: dict[str, tuple[Array, Array]] = {}
    if resamples:
        _, *pair = intervals_of_means(
            columns.values,
            lambda means: joined(columns.numbers(means), means.shape[:-1]),
            resamples=resamples,
            seed=seed,
        )
        low, high = (taken(apart(end, found)) for end in pair)
        ends = {name: (low[name], high[name]) for name in found}
        ends["quantile"] = quantile_interval(columns.top, q)
    numbers: dict[str, Any] = {name: v if v.ndim else float(v) for name, v in taken(found).items()}
    return CorruptionSummary(
        samples=len(kept),
        left_out=len(curves) - len(kept),
        fractions=curves.fractions,
        flat=moments(columns.top)[2],
        scale="absolute",
        tau=float(tau),
        q=float(q),
        quantile=quantile(columns.top, q),
        intervals=ends,
        **numbers,
    )


def joined(numbers: Mapping[str, Array], leading: tuple[int, ...]) -> Array:
    """Arrays `(*leading, ...)` beside each other, `(*leading, R)`."""
    return np.concatenate([values.reshape(*leading, -1) for values in numbers.values()], axis=-1)


def apart(values: Array, like: Mapping[str, Array]) -> dict[str, Array]:
    """What was joined, `(R,)`, in arrays of these names and shapes again."""
    ends = np.cumsum([array.size for array in like.values()])[:-1]
    pieces = zip(like.items(), np.split(values, ends), strict=True)
    return {name: piece.reshape(array.shape) for (name, array), piece in pieces}


def taken(numbers: Mapping[str, Array]) -> dict[str, Array]:
    """Arrays `(..., K)` as they are, and `(...)` of single numbers, which are `(..., 1)`."""
    return {name: values if name in _PER_FRACTION else np.asarray(values[..., 0]) for name, values in numbers.items()}
