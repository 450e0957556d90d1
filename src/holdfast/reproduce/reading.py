"""What reproductions read from results: paired differences with intervals, correlations over samples, verdicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from holdfast.distributions import t_quantile
from holdfast.statistics.paired import midranks

Array = np.ndarray[Any, Any]
Correlations = dict[str, tuple[float, float, float]]
Holds = Callable[[pl.DataFrame], bool | None]
Verdict = tuple[str, str, bool | None]
Verdicts = Callable[[pl.DataFrame], Sequence[Verdict]]

RESAMPLES = 1000


def differences(frame: pl.DataFrame, above: str, below: str, column: str = "ratio", by: str = "explainer") -> Array:
    """`column` at `above` less that at `below` (names of explainers or models) on the same samples.

    Only where both are numbers: what is a bound alone (`bound`) has none. A logarithm of a probability at its floor is
    no such bound: it counts as the floor, so differences are those of `max(ln P, floor)`.
    """
    frame = valid(frame, column).filter(pl.col(by).is_in([above, below]))
    index = [name for name in ("data", "model", "explainer", "label", "repeat", "sample") if name in frame.columns]
    index = [name for name in index if name != by]
    wide = frame.pivot(on=by, index=index, values=column)
    if above not in wide.columns or below not in wide.columns:
        return np.empty(0)
    wide = wide.drop_nulls([above, below])
    return np.asarray(wide[above].to_numpy() - wide[below].to_numpy())


def interval(values: Array, level: float = 0.95) -> tuple[float, float, float]:
    """The mean and its interval by Student's t; NaN of fewer than two values."""
    if len(values) < 2:
        return float("nan"), float("nan"), float("nan")
    mean, error = float(values.mean()), float(values.std(ddof=1)) / np.sqrt(len(values))
    reach = t_quantile(0.5 + level / 2, len(values) - 1) * error
    return mean, mean - reach, mean + reach


def all_above(
    frame: pl.DataFrame,
    pairs: Sequence[tuple[str, str]],
    column: str = "ratio",
    by: str = "explainer",
    level: float = 0.95,
) -> bool | None:
    """Whether in each pair the first is above the second: True or False where intervals tell, None where not."""
    ends = [interval(differences(frame, above, below, column, by), level)[1:] for above, below in pairs]
    if any(high < 0 for _, high in ends):
        return False
    return True if ends and all(low > 0 for low, _ in ends) else None


def all_apart(
    frame: pl.DataFrame,
    pairs: Sequence[tuple[str, str]],
    column: str,
    by: str = "explainer",
    level: float = 0.95,
) -> bool | None:
    """`all_above` by each one's own interval: True where none of a pair overlap, None where some do."""
    verdicts = []
    for names in pairs:
        (_, low, high), (_, other_low, other_high) = (
            interval(valid(frame.filter(pl.col(by) == name), column)[column].to_numpy().astype(float), level)
            for name in names
        )
        verdicts.append(True if low > other_high else False if high < other_low else None)
    return False if False in verdicts else True if verdicts and all(verdicts) else None


def correlations(first: Array, second: Array, digits: Array) -> Correlations:
    """Pearson's and Spearman's correlation with 95% intervals from a bootstrap over `digits`, all of the same shape."""
    names, places = np.unique(digits, return_inverse=True)
    members = [np.flatnonzero(places == place) for place in range(len(names))]
    rng = np.random.default_rng(0)
    drawn = [np.concatenate([members[i] for i in rng.integers(len(names), size=len(names))]) for _ in range(RESAMPLES)]
    found = {}
    for name, one, other in (("Pearson", first, second), ("Spearman", midranks(first), midranks(second))):
        # ranks are those of the whole sample: within a resample they hardly differ, and it is much faster
        spread = [np.corrcoef(one[rows], other[rows])[0, 1] for rows in drawn]
        low, high = np.nanquantile(spread, [0.025, 0.975])
        found[name] = (float(np.corrcoef(one, other)[0, 1]), float(low), float(high))
    return found


def valid(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """Rows whose value is a finite number and no bound."""
    if column not in frame.columns:
        return frame.clear().with_columns(pl.lit(None, dtype=pl.Float64).alias(column))
    bound = pl.col("bound").fill_null(False) if "bound" in frame.columns else pl.lit(False)
    return frame.filter(~bound, pl.col(column).is_finite().fill_null(False))


def wide_by(frame: pl.DataFrame, column: str, by: str) -> pl.DataFrame:
    """One row for each explanation that has a number everywhere, a column for each value of `by`."""
    index = [name for name in ("model", "explainer", "label", "sample") if name != by]
    return valid(frame, column).pivot(on=by, index=index, values=column).drop_nulls()


def said(found: Mapping[str, tuple[float, float, float]]) -> str:
    return ", ".join(f"{name} {r:.3f} [{low:.3f}, {high:.3f}]" for name, (r, low, high) in found.items())


def at_least(limit: float, value: tuple[float, float, float]) -> bool | None:
    return True if value[1] >= limit else False if value[2] < limit else None


def by_metric(*claims: tuple[str, Holds]) -> Verdicts:
    """Each sentence for each configured metric."""

    def verdicts(frame: pl.DataFrame) -> list[Verdict]:
        labels = frame["label"].unique(maintain_order=True).to_list() if len(frame) else []
        return [
            (text, label, holds(frame.filter(pl.col("label") == label))) for text, holds in claims for label in labels
        ]

    return verdicts


def order(text: str, above: Sequence[str], below: Sequence[str]) -> tuple[str, Holds]:
    pairs = [(a, b) for a in above for b in below if a != b]
    return text, partial(all_above, pairs=pairs)


def bounds_note(frame: pl.DataFrame) -> list[str]:
    """How often an attack found no change, so that a value is only a lower end and in no mean."""
    if "bound" not in frame.columns:
        return []
    lost = frame.filter(pl.col("bound").fill_null(False)).group_by("label", maintain_order=True).len()
    told = ", ".join(f"{label} {count}" for label, count in lost.iter_rows())
    return [f"no change found, left out of means and of differences: {told}"] if told else []
