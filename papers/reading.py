"""Statistics that reproductions compute from results, and verdicts on sentences of papers.

Paired differences with intervals, correlations over samples, and the outcomes that follow from intervals: a sentence
holds (True), does not hold (False), or is undecided (None).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np
import polars as pl
from scipy.special import stdtrit

from standfast.statistics.paired import midranks
from standfast.tensors import Array

# names of explainers, models or sizes: the first above the second
Pairs = Sequence[tuple[str, str]]
Estimate = tuple[float, float, float]  # a number and the ends of its interval
Correlations = dict[str, Estimate]
Outcomes = dict[str, bool | None]
Holds = Callable[[pl.DataFrame], bool | None]
Verdict = tuple[str, str, bool | None]
Verdicts = Callable[[pl.DataFrame], Sequence[Verdict]]

RESAMPLES = 1000


def paired_differences(
    frame: pl.DataFrame, above: str, below: str, column: str = "value", by: str = "explainer"
) -> Array:
    """`column` at `above` minus `column` at `below` (names of explainers or models), on the same samples.

    Samples where one value is missing or only a bound (`bound`) are left out. A logarithm of a probability at its floor
    is not such a bound: it counts as the floor, so differences are those of `max(ln P, floor)`.
    """
    frame = keep_exact(frame, column).filter(pl.col(by).is_in([above, below]))
    index = [
        name
        for name in ("data", "model", "explainer", "label", "repeat", "sample")
        if name in frame.columns
    ]
    index = [name for name in index if name != by]
    wide = frame.pivot(on=by, index=index, values=column)
    if above not in wide.columns or below not in wide.columns:
        return np.empty(0)
    wide = wide.drop_nulls([above, below])
    return np.asarray(wide[above].to_numpy() - wide[below].to_numpy())


def mean_interval(values: Array, level: float = 0.95) -> Estimate:
    """The mean and its interval by Student's t; NaN for fewer than two values."""
    if len(values) < 2:
        return float("nan"), float("nan"), float("nan")
    mean, error = float(values.mean()), float(values.std(ddof=1)) / np.sqrt(len(values))
    reach = stdtrit(len(values) - 1, 0.5 + level / 2) * error
    return mean, mean - reach, mean + reach


def all_above(
    frame: pl.DataFrame,
    pairs: Pairs,
    column: str = "value",
    by: str = "explainer",
    level: float = 0.95,
) -> bool | None:
    """Whether in each pair the first is above the second, by the intervals of the paired differences."""
    return all_hold(
        is_above(mean_interval(paired_differences(frame, *pair, column, by), level), 0)
        for pair in pairs
    )


def all_separated(
    frame: pl.DataFrame, pairs: Pairs, column: str, by: str = "explainer", level: float = 0.95
) -> bool | None:
    """Whether in each pair the first is above the second, by separate intervals; None if some overlap."""
    known = keep_exact(frame, column)

    def find_interval(name: str) -> Estimate:
        return mean_interval(
            known.filter(pl.col(by) == name)[column].to_numpy().astype(float), level
        )

    outcomes = []
    for above, below in pairs:
        (_, low, high), (_, other_low, other_high) = find_interval(above), find_interval(below)
        outcomes.append(True if low > other_high else False if high < other_low else None)
    return all_hold(outcomes)


def is_above(value: Estimate, limit: float) -> bool | None:
    """Whether a number is above a limit; None if its interval contains the limit, or is not known."""
    return True if value[1] > limit else False if value[2] < limit else None


def is_at_least(value: Estimate, limit: float) -> bool | None:
    """Whether a number is at least a limit; None if its interval contains smaller and other values."""
    return True if value[1] >= limit else False if value[2] < limit else None


def is_within(value: Estimate, target: float, reach: float) -> bool | None:
    """Whether a number differs from a target by at most `reach`; None if its interval is on both sides of the limit.

    >>> [is_within(value, 0.5, 0.1) for value in ((0.5, 0.45, 0.55), (0.7, 0.65, 0.75), (0.6, 0.5, 0.7))]
    [True, False, None]
    """
    _, low, high = value
    if low != low:
        return None
    if low >= target - reach and high <= target + reach:
        return True
    return False if low > target + reach or high < target - reach else None


def all_hold(outcomes: Iterable[bool | None]) -> bool | None:
    """Whether all hold: False if one does not; None if one is undecided, or there are none."""
    known = list(outcomes)
    return False if False in known else True if known and all(known) else None


def negate(holds: bool | None) -> bool | None:
    """Whether the opposite holds."""
    return None if holds is None else not holds


def compute_correlations(first: Array, second: Array, digits: Array) -> Correlations:
    """Pearson's and Spearman's correlation with 95% intervals from a bootstrap over `digits`, all of the same shape."""
    names, groups = np.unique(digits, return_inverse=True)
    members = [np.flatnonzero(groups == group) for group in range(len(names))]
    rng = np.random.default_rng(0)
    drawn = [
        np.concatenate([members[i] for i in rng.integers(len(names), size=len(names))])
        for _ in range(RESAMPLES)
    ]
    found = {}
    for name, one, other in (
        ("Pearson", first, second),
        ("Spearman", midranks(first), midranks(second)),
    ):
        # ranks of the whole sample, not of each resample: the difference is very small, and this is much faster
        spread = [np.corrcoef(one[rows], other[rows])[0, 1] for rows in drawn]
        low, high = np.nanquantile(spread, [0.025, 0.975])
        found[name] = (float(np.corrcoef(one, other)[0, 1]), float(low), float(high))
    return found


def mean_ratio(frame: pl.DataFrame, first: str, second: str, level: float = 0.95) -> Estimate:
    """The ratio of the means of two columns, with its percentile interval over samples; NaN for fewer than two."""
    nothing = (float("nan"),) * 3
    if any(column not in frame.columns for column in (first, second)):
        return nothing
    values = frame.select(first, second).drop_nulls().drop_nans().to_numpy().astype(float)
    if len(values) < 2 or values[:, 1].sum() <= 0:
        return nothing
    rng = np.random.default_rng(0)
    means = values[rng.integers(len(values), size=(RESAMPLES, len(values)))].mean(1)
    spread = means[means[:, 1] > 0]
    low, high = np.quantile(spread[:, 0] / spread[:, 1], [(1 - level) / 2, (1 + level) / 2])
    return float(values[:, 0].mean() / values[:, 1].mean()), float(low), float(high)


def keep_exact(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    """The rows whose value is a finite number and not a bound."""
    if column not in frame.columns:
        return frame.clear().with_columns(pl.lit(None, dtype=pl.Float64).alias(column))
    bound = pl.col("bound").fill_null(False) if "bound" in frame.columns else pl.lit(False)
    return frame.filter(~bound, pl.col(column).is_finite().fill_null(False))


def pivot_by(frame: pl.DataFrame, column: str, by: str) -> pl.DataFrame:
    """One row for each explanation that has a number for all values of `by`, with a column for each of them."""
    index = [name for name in ("model", "explainer", "label", "sample") if name != by]
    return keep_exact(frame, column).pivot(on=by, index=index, values=column).drop_nulls()


def format_correlations(found: Mapping[str, Estimate]) -> str:
    """Correlations with their intervals as text."""
    return ", ".join(
        f"{name} {r:z.3f} [{low:z.3f}, {high:z.3f}]" for name, (r, low, high) in found.items()
    )


def judge_by_metric(*claims: tuple[str, Holds]) -> Verdicts:
    """A function that judges each sentence for each configured metric."""

    def verdicts(frame: pl.DataFrame) -> list[Verdict]:
        labels = frame["label"].unique(maintain_order=True).to_list() if len(frame) else []
        return [
            (text, label, holds(frame.filter(pl.col("label") == label)))
            for text, holds in claims
            for label in labels
        ]

    return verdicts


def group_by_outcome(text: str, outcomes: Mapping[str, bool | None]) -> list[Verdict]:
    """Up to three verdicts: one for all columns in which a sentence holds, does not hold, or is undecided."""
    found: list[Verdict] = []
    for outcome in (True, False, None):
        headings = [heading for heading, holds in outcomes.items() if holds is outcome]
        found += [(text, ", ".join(headings), outcome)] if headings else []
    return found


def order_claim(
    text: str, above: Sequence[str], below: Sequence[str], column: str = "value"
) -> tuple[str, Holds]:
    """A sentence with the function that judges it: all explainers of `above` are above all of `below`."""
    pairs = [(a, b) for a in above for b in below if a != b]
    return text, partial(all_above, pairs=pairs, column=column)


def note_bounds(frame: pl.DataFrame) -> list[str]:
    """How often an attack found no change, so that the value is only a lower bound and is left out of means."""
    if "bound" not in frame.columns:
        return []
    bounds = (
        frame.filter(pl.col("bound").fill_null(False)).group_by("label", maintain_order=True).len()
    )
    counts = ", ".join(f"{label} {count}" for label, count in bounds.iter_rows())
    return [f"no change found, left out of means and of differences: {counts}"] if counts else []


def add_label_words(frame: pl.DataFrame, *names: str) -> pl.DataFrame:
    """The rows with further columns `names`, which contain the words of `label`.

    >>> add_label_words(pl.DataFrame({"label": ["F-hat, block"]}), "event", "search").row(0)
    ('F-hat, block', 'F-hat', 'block')
    """
    words = pl.col("label").str.split(", ")
    return frame.with_columns(
        words.list.get(i, null_on_oob=True).alias(name) for i, name in enumerate(names)
    )
