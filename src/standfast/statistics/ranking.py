"""Rankings of the explainers of a study, one for each data set, model and label; and the agreement of the labels.

A label is a configured metric. Different metrics find different explainers to be the most robust. Kendall's W measures
how similar the rankings by m metrics are: 1 if they are the same, 1/m on average if they are unrelated. A matrix of
rank correlations shows which of them are similar. Only metrics with a direction are ranked.

Kendall and Babington Smith 1939 (Ann. Math. Stat. 10); ties and tests as in Conover 1999.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from standfast.errors import check
from standfast.statistics.comparison import Comparison, ControlTest, compare, compare_with_controls
from standfast.statistics.paired import Interval, Readable, friedman, median_over_repeats, midranks
from standfast.tensors import Array


@dataclass(frozen=True, eq=False)
class Ranking:
    """The ranking of the explainers on one data set and model by one label.

    Attributes:
        data, model, label: names of the data set, the model and the label.
        comparison: the comparison of the explainers that have any value.
        samples: sample numbers, one for each entry of `comparison.used`.
        absent: explainers without any value, which are not ranked.
    """

    data: str
    model: str
    label: str
    comparison: Comparison
    samples: tuple[int, ...]
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of the rankings of k explainers by m metrics.

    Attributes:
        names: names of the metrics.
        used: bool (explainers,), True for the k explainers that all metrics rank.
        kendalls_w: 1 if all rankings are the same, 1/m on average if they are unrelated, 0 if they cancel out; NaN for
            fewer than two metrics or explainers, and if everything is tied.
        p_value: p-value of the hypothesis that the rankings are unrelated, by `friedman` with metrics as rows.
        correlations: (m, m), Spearman's rho; NaN for a metric that ties all explainers. Without ties, the mean over
            pairs is (m W - 1) / (m - 1), so the matrix agrees with W; Kendall's tau does not have this property.
        interval: interval of W over samples, if it was computed.
        data, model: names of the data set and the model, in a study.
        explainers: names of the explainers, one for each entry of `used`, in a study.
    """

    names: tuple[str, ...]
    used: Array
    kendalls_w: float
    p_value: float
    correlations: Array
    interval: Interval | None = None
    data: str = ""
    model: str = ""
    explainers: tuple[str, ...] = ()


def measure_agreement(ranks: Array, names: Sequence[str]) -> Agreement:
    """Measure the agreement of m rankings.

    Args:
        ranks: (m, k), mean ranks or other numbers by which each metric orders the explainers. An explainer with a NaN
            is left out for all metrics.
        names: names of the metrics.

    >>> found = measure_agreement(np.array([[1.0, 2, 3, 4], [1, 2, 4, 3], [2, 1, 3, 4]]), ["a", "b", "c"])
    >>> found.kendalls_w, found.correlations[0]
    (0.82, array([1. , 0.8, 0.8]))
    """
    ranks = np.asarray(ranks, dtype=float)
    check(ranks.ndim == 2, "ranks", "an array of metrics x explainers", f"shape {ranks.shape}")
    check(len(names) == len(ranks), "names", f"{len(ranks)} names", list(names))
    used = np.asarray(~np.isnan(ranks).any(axis=0))
    ordered = midranks(ranks[:, used])
    m, k = ordered.shape
    if m < 2 or k < 2:
        unknown = np.full((m, m), np.nan)
        return Agreement(tuple(names), used, math.nan, math.nan, unknown)
    centred = ordered - (k + 1) / 2
    length = np.sqrt((centred**2).sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):  # a metric that ties all explainers has 0 / 0, which is NaN
        unit = centred / length
    # rounding may lead a correlation beyond 1, and that of a row with itself below it
    correlations = np.clip(unit @ unit.T, -1, 1)
    is_undefined = np.isnan(unit[:, 0])
    np.fill_diagonal(correlations, np.where(is_undefined, np.nan, 1.0))
    w = float(_kendalls_w(ordered))
    _, p = friedman(ordered)
    return Agreement(tuple(names), used, w, p, correlations)


def measure_agreement_interval(
    ranks: Array, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> Interval | None:
    """Kendall's W of the mean ranks over samples, with its percentile bootstrap interval; None if W is undefined.

    The interval shows how much W depends on the choice of samples. Samples are drawn with all their metrics. The
    interval is not centred on W: resampling adds noise to mean ranks, which lowers high agreement and raises low
    agreement.

    Args:
        ranks: (m, n, k), the ranks by each metric for each sample and explainer; NaN rows for samples without ranks.
        level, resamples, seed: options of the interval.

    >>> measure_agreement_interval(np.tile([1.0, 2, 3], (2, 9, 1))).low
    1.0
    """
    ranks = np.asarray(ranks, dtype=float)
    expected = "an array of metrics x samples x explainers"
    check(ranks.ndim == 3, "ranks", expected, f"shape {ranks.shape}")
    check(0 < level < 1, "level", "a number between 0 and 1", level)
    m, n, k = ranks.shape
    present = ~np.isnan(ranks).any(axis=2)
    if m < 2 or k < 2 or not present.any(axis=1).all():
        return None
    rng = np.random.Generator(np.random.PCG64(seed))
    # how often each sample was drawn; the first row has each sample once, so it gives W itself
    drawn_counts = rng.multinomial(n, np.full(n, 1 / n), size=resamples)
    counts = np.vstack([np.ones((1, n)), drawn_counts])
    # a NaN would stay one where a sample was drawn 0 times
    without_nan = np.where(present[..., None], ranks, 0.0)
    sums = np.einsum("bn,mnk->bmk", counts, without_nan, optimize=True)
    draws = counts @ present.T  # of each metric, (draws, m)
    # a draw without a sample of one metric has no mean rank for it
    complete = (draws > 0).all(axis=1)
    mean_ranks = sums[complete] / draws[complete][..., None]
    values = _kendalls_w(midranks(mean_ranks))
    value = float(values[0])
    if math.isnan(value):
        return None
    # W is undefined for draws in which all explainers are tied
    of_resamples = values[1:]
    defined = of_resamples[~np.isnan(of_resamples)]
    # one sample is always drawn again, so its interval would have no width
    if n == 1:
        return Interval(value, None, None, n, 0.0, None, (value, value))
    low = high = None
    if len(defined):
        ends = [(1 - level) / 2, (1 + level) / 2]
        low, high = map(float, np.quantile(defined, ends))
    return Interval(value, low, high, n, level, None, (value, value))


def rank_explainers(
    samples: pl.DataFrame,
    specs: Mapping[str, Readable],
    level: float = 0.05,
    unranked: Collection[str] | Callable[[str, str], Collection[str]] = (),
) -> list[Ranking]:
    """Rank the explainers of each data set, model and label that has a direction and values for two explainers.

    A row counts if its status is `"ok"`, its value is finite and all columns of `Readable.only` are True. The value of
    a sample is the median over the repeats that count. Samples without a value for every explainer are left out.

    Args:
        samples: the rows of a study, one for each evaluated sample.
        readings: how to read each label.
        level: significance level of the tests.
        unranked: explainers that are left out, as references; or a function that gives them for data and model.
    """
    rankings: list[Ranking] = []
    for group in _arrange_groups(samples, specs, unranked):
        has_values = group.has_values
        if has_values.sum() < 2:
            continue
        comparison = compare(
            group.values[:, has_values],
            group.present,
            group.direction,
            group.censored[:, has_values],
            group.spec.censored_side,
            level,
        )
        absent = tuple(name for name in group.names if name not in comparison.names)
        rankings.append(
            Ranking(group.data, group.model, group.label, comparison, group.samples, absent)
        )
    return rankings


def compare_controls(
    samples: pl.DataFrame,
    specs: Mapping[str, Readable],
    controls: Collection[str],
    level: float = 0.05,
) -> dict[tuple[str, str, str], list[ControlTest]]:
    """The tests of the explainers against their controls (`compare_with_controls`), by data, model and label.

    Rows and values are those of `rank_explainers`. A sample counts for an explainer if it has a value for it and for
    all controls that have any.
    """
    tests_by_label: dict[tuple[str, str, str], list[ControlTest]] = {}
    for group in _arrange_groups(samples, specs):
        tests = compare_with_controls(
            group.values[:, group.has_values],
            group.present,
            [name for name in group.present if name in controls],
            group.direction,
            group.censored[:, group.has_values],
            group.spec.censored_side,
            level,
        )
        if tests:
            tests_by_label[group.data, group.model, group.label] = tests
    return tests_by_label


@dataclass(frozen=True, eq=False)
class _Group:
    """The values of one label on one data set and model: medians over repeats, (samples, explainers)."""

    data: str
    model: str
    label: str
    spec: Readable
    direction: Literal["higher", "lower"]
    names: tuple[str, ...]
    samples: tuple[int, ...]
    values: Array
    censored: Array

    @property
    def has_values(self) -> Array:
        """Bool (explainers,): which have any value."""
        is_empty = np.isnan(self.values).all(axis=0)
        return np.asarray(~is_empty)

    @property
    def present(self) -> list[str]:
        """The names of the explainers that have any value."""
        return [
            name for name, has_value in zip(self.names, self.has_values, strict=True) if has_value
        ]


def _arrange_groups(
    samples: pl.DataFrame,
    specs: Mapping[str, Readable],
    unranked: Collection[str] | Callable[[str, str], Collection[str]] = (),
) -> Iterator[_Group]:
    """The groups of labels that have a direction."""
    for (data, model, label), part in samples.group_by(
        ["data", "model", "label"], maintain_order=True
    ):
        spec = specs.get(str(label))
        if spec is None or spec.direction is None or spec.column not in part.columns:
            continue
        direction = spec.direction
        check(
            direction in ("higher", "lower"),
            "direction",
            "'higher', 'lower' or None",
            repr(direction),
        )
        left_out = unranked(str(data), str(model)) if callable(unranked) else unranked
        explainers = [
            name
            for name in part["explainer"].unique(maintain_order=True).to_list()
            if name not in left_out
        ]
        part = part.filter(pl.col("explainer").is_in(explainers))
        numbers = part["sample"].unique().sort().to_list()
        values, censored = _arrange(part, spec, explainers, numbers)
        medians, are_bounds = median_over_repeats(values, censored, spec.censored_side)
        yield _Group(
            str(data),
            str(model),
            str(label),
            spec,
            "higher" if direction == "higher" else "lower",
            tuple(explainers),
            tuple(numbers),
            medians,
            are_bounds,
        )


def measure_agreements(rankings: Iterable[Ranking], level: float = 0.95) -> list[Agreement]:
    """Measure the agreement of the labels, for each data set and model with at least two labels.

    Only explainers that all labels rank are compared. Labels without a ranked sample are left out.
    """
    groups: dict[tuple[str, str], list[Ranking]] = {}
    for ranking in rankings:
        if ranking.comparison.count:
            groups.setdefault((ranking.data, ranking.model), []).append(ranking)
    agreements = []
    for (data, model), group in groups.items():
        if len(group) > 1:
            agreement = _measure_group(group, level)
            agreements.append(replace(agreement, data=data, model=model))
    return agreements


def _measure_group(rankings: Sequence[Ranking], level: float) -> Agreement:
    """The agreement of the labels of one data set and model."""
    names_of_all: list[str] = []
    samples_of_all: set[int] = set()
    for ranking in rankings:
        names_of_all += ranking.comparison.names
        samples_of_all |= set(ranking.samples)
    explainers = list(dict.fromkeys(names_of_all))
    samples = sorted(samples_of_all)
    ranks = np.full((len(rankings), len(samples), len(explainers)), np.nan)
    mean_ranks = np.full((len(rankings), len(explainers)), np.nan)
    for m, ranking in enumerate(rankings):
        comparison = ranking.comparison
        columns = np.asarray([explainers.index(name) for name in comparison.names])
        used_samples = np.asarray(ranking.samples)[comparison.used]
        rows = np.searchsorted(samples, used_samples)
        ranks[m][np.ix_(rows, columns)] = comparison.ranks
        mean_ranks[m, columns] = comparison.mean_ranks
    labels = [ranking.label for ranking in rankings]
    agreement = measure_agreement(mean_ranks, labels)
    interval = measure_agreement_interval(ranks[:, :, agreement.used], level)
    return replace(agreement, interval=interval, explainers=tuple(explainers))


def _kendalls_w(ranks: Array) -> Array:
    """W of (..., m, k) ranks, corrected for ties: the sum of squares between explainers, divided by the total one."""
    m, k = ranks.shape[-2:]
    centred = ranks - (k + 1) / 2
    rank_sums = centred.sum(axis=-2)
    between = (rank_sums**2).sum(axis=-1)
    total = (centred**2).sum(axis=(-1, -2))
    with np.errstate(invalid="ignore"):  # undefined if all metrics tie all explainers
        return np.asarray(between / (m * total))


def _arrange(
    part: pl.DataFrame, spec: Readable, explainers: list[str], samples: list[int]
) -> tuple[Array, Array]:
    """Values and flags of censored ones, (repeats, samples, explainers); NaN where no value counts."""
    value = pl.col(spec.column).cast(pl.Float64)
    counts = (pl.col("status") == "ok") & value.is_finite().fill_null(False)
    for name in spec.only:
        if name in part.columns:
            counts &= pl.col(name).cast(pl.Boolean).fill_null(False)
        else:
            counts &= pl.lit(False)
    if spec.varied in part.columns:
        counts &= pl.col(spec.varied).cast(pl.Boolean).fill_null(True)
    is_censored = pl.lit(False)  # as are all values without the column
    if spec.censored in part.columns:
        is_censored = pl.col(spec.censored).cast(pl.Boolean).fill_null(False)
    part = part.filter(counts).select(
        "explainer", "sample", "repeat", value.alias("value"), is_censored.alias("censored")
    )
    repeats = part["repeat"].unique().sort().to_list()
    # without a row that counts there is no repeat, and the median needs one
    shape = (max(1, len(repeats)), len(samples), len(explainers))
    values = np.full(shape, np.nan)
    censored = np.zeros(shape, dtype=bool)
    columns = {name: column for column, name in enumerate(explainers)}
    cell = (
        np.searchsorted(repeats, part["repeat"].to_numpy()),
        np.searchsorted(samples, part["sample"].to_numpy()),
        [columns[name] for name in part["explainer"]],
    )
    values[cell] = part["value"].to_numpy()
    censored[cell] = part["censored"].to_numpy()
    return values, censored
