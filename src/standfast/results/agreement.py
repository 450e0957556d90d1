"""How far the maps of explainers, and of models that were trained again, agree on the same inputs.

The maps are those that the metric `seed_agreement` has stored, of several seeds each; for disagreements those of the
inputs serve as well, which searches store. Two sources of maps, such as an
explainer of one model and another explainer of another one, are compared on each sample by the mean over pairs of
seeds, and then by the median over samples. A source agrees with itself over pairs of different seeds. The chance level
is the same of maps of different samples.

Data sets with the same features, such as windows of time, have other samples. Then the mean absolute maps of the sets
are compared (of signs, the mean maps). The interval is a percentile bootstrap over the samples of both; a set agrees
with itself over random halves of its samples. The chance level is that of features in a random order.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from standfast.errors import ArgumentError
from standfast.results.metric_results import MetricResults
from standfast.statistics.map_agreement import (
    MOST_RANKED,
    agree_in_sign,
    kendall,
    overlap,
    split_variance,
)
from standfast.statistics.paired import ROUNDING, median_interval
from standfast.tensors import Array

Measure = Literal["kendall", "overlap", "signs"]
_Comparison = Callable[[Array, Array], Array]
#: seeds of each source that are compared, and other samples that tell the chance level
_SEEDS = 5
_OTHERS = 5
#: what stands between the name of a model and the number of its seed, where it was trained several times
TRAINED = "#"
#: of samples of data sets that are compared, and how many are compared at once
_RESAMPLES = 200
_AT_ONCE = 20
#: the quantiles of resampled agreements of data sets that are the ends of an interval
_TAILS = (0.005, 0.995)
#: a model (or a data set) and an explainer, whose maps are compared with those of others
Source = tuple[str, str]
#: the maps of each sample by its number, `(seeds, F)`
Maps = Mapping[int, Array]


@dataclass(frozen=True)
class Pair:
    """How far two sources of maps agree by one measure.

    Attributes:
        first, second: their places in `MapAgreement.sources`.
        measure: `"kendall"`, `"overlap"` (of the first k features) or `"signs"` (of these).
        median: over samples; NaN where no sample has both.
        low, high: its 95% interval; None for fewer samples than it needs.
        chance: the median for maps of different samples; NaN for a single sample.
        samples: how many count.
    """

    first: int
    second: int
    measure: Measure
    median: float
    low: float | None
    high: float | None
    chance: float
    samples: int


@dataclass(frozen=True)
class MapAgreement:
    """The agreement of all sources of maps on one data set.

    Attributes:
        data: the name of the data set; of agreement between data sets that of the model.
        sources: pairs of a model (or of a data set) and an explainer, those next to each other that agree most.
        pairs: every two sources, and each with itself, by each measure.
        variance: for each explainer and each model that was trained several times, the shares of the maps' mean squared
            length that differ between seeds of the explainer and between trained models.
        top: how many first features `overlap` and `signs` look at.
        of: what the first name of a source is: `"model"`, or `"data"`.
    """

    data: str
    sources: tuple[tuple[str, str], ...]
    pairs: tuple[Pair, ...]
    variance: pl.DataFrame
    top: int
    of: Literal["model", "data"] = "model"

    def find(self, first: int, second: int, measure: Measure = "kendall") -> Pair:
        """The pair of two sources by their places."""
        first, second = sorted((first, second))
        for pair in self.pairs:
            if (pair.first, pair.second) == (first, second) and pair.measure == measure:
                return pair
        raise KeyError((first, second, measure))

    def matrix(self, measure: Measure = "kendall") -> Array:
        """The medians, `(sources, sources)`."""
        count = len(self.sources)
        matrix = np.zeros((count, count))
        for pair in self.pairs:
            if pair.measure == measure:
                matrix[pair.first, pair.second] = pair.median
                matrix[pair.second, pair.first] = pair.median
        return matrix

    def frame(self) -> pl.DataFrame:
        """A row for each pair and measure: both models (or data sets) and explainers, median, interval, chance level,
        samples.
        """
        rows = []
        for pair in self.pairs:
            name, explainer = self.sources[pair.first]
            other_name, other_explainer = self.sources[pair.second]
            row = {
                self.of: name,
                "explainer": explainer,
                f"other_{self.of}": other_name,
                "other_explainer": other_explainer,
                "measure": pair.measure,
                "median": pair.median,
                "low": pair.low,
                "high": pair.high,
                "chance": pair.chance,
                "samples": pair.samples,
            }
            rows.append(row)
        return pl.DataFrame(rows)


@dataclass(frozen=True)
class Disagreement:
    """Two explainers of one model that name different features first.

    Their overlap is nearer to that of maps of different samples, by which nothing is meant, than to that of equal maps.

    Attributes:
        first, second: their names.
        common: how many of the first features both have in common, the mean over samples.
        top: how many first features there are.
        chance: how many they have in common of different samples.
    """

    first: str
    second: str
    common: float
    top: int
    chance: float


def find_disagreements(maps: Mapping[str, Maps], top: int) -> tuple[Disagreement, ...]:
    """The explainers that disagree, the worst pair first; none for maps of more than 512 numbers.

    Among thousands of pixels, which three are first says nothing: their neighbours say the same.

    Args:
        maps: for each explainer the maps of each sample, `(seeds, F)`.
        top: how many first features count.

    >>> rows = np.eye(6)[:, None]
    >>> maps = {"a": dict(enumerate(rows)), "b": dict(enumerate(rows[::-1]))}
    >>> find_disagreements(maps, 1)
    (Disagreement(first='a', second='b', common=0.0, top=1, chance=0.2),)
    """
    disagreements = []
    for first, second in itertools.combinations(maps, 2):
        first_maps = next(iter(maps[first].values()), None)
        features = 0 if first_maps is None else first_maps.shape[1]
        if not 0 < features <= MOST_RANKED:
            continue
        count = min(top, features)
        overlap = _measures(top)["overlap"]
        same, others = _measure_samples(maps[first], maps[second], False, overlap)
        if not len(same):
            continue
        # medians of so few counts would jump; and a single sample has no others to compare with
        overlap_of_both = float(np.mean(same))
        if len(others):
            chance = float(np.mean(others))
        else:
            chance = count / features
        # nearer to chance than to equal maps
        if overlap_of_both < (1 + chance) / 2 - ROUNDING:
            common, by_chance = count * overlap_of_both, count * chance
            disagreements.append(Disagreement(first, second, common, count, by_chance))
    disagreements.sort(key=lambda pair: pair.common - pair.chance)
    return tuple(disagreements)


def measure_map_agreement(maps: Mapping[Source, Maps], data: str, top: int) -> MapAgreement:
    """The agreement of sources of maps.

    Args:
        maps: for each model and explainer the maps of each sample, `(seeds, F)`.
        data: the name of the data set.
        top: how many first features count.

    >>> maps = {("net", "a"): {0: np.array([[3.0, 2.0, 1.0]] * 3)}, ("net", "b"): {0: np.array([[1.0, 2.0, 3.0]] * 3)}}
    >>> measure_map_agreement(maps, "mine", 1).matrix().tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    sources = list(maps)
    pairs = {}
    for a, b in itertools.combinations_with_replacement(range(len(sources)), 2):
        for name, measure in _measures(top).items():
            first = maps[sources[a]]
            second = maps[sources[b]]
            key = (a, b, name)
            pairs[key] = _compare(first, second, a == b, measure, key)
    return MapAgreement(data, *_order(sources, pairs), _split(maps), top)


def measure_data_agreement(maps: Mapping[Source, Maps], model: str, top: int) -> MapAgreement:
    """The agreement of the mean maps of data sets, such as windows of time.

    Args:
        maps: for each data set and explainer the maps of each sample, `(seeds, F)`, whose features are the same.
        model: the name of the model.
        top: how many first features count.
    """
    sources = list(maps)
    rng = np.random.default_rng(0)
    # for each source a map of each sample, the mean over its seeds
    means = [_average_seeds(maps[source]) for source in sources]
    # and the numbers of its samples: all, drawn with replacement, and in a random order
    whole = []
    drawn = []
    for rows in means:
        count = len(rows)
        whole.append(np.arange(count)[None])
        drawn.append(rng.integers(count, size=(_RESAMPLES, count)))
    mixed = []
    for numbers in whole:
        mixed.append(rng.permuted(np.tile(numbers, (_RESAMPLES, 1)), axis=1))
    pairs = {}
    for name, measure in _measures(top).items():
        if name == "signs":
            kept = means
        else:
            kept = [np.abs(rows) for rows in means]
        for a, b in itertools.combinations_with_replacement(range(len(sources)), 2):
            first = kept[a]
            second = kept[b]
            if a == b:
                # a set agrees with itself over halves that have no sample in common
                half = len(first) // 2
                one_half, other_half = mixed[a][:, :half], mixed[a][:, half:]
                values = _compare_means(first, first, one_half, other_half, measure)
                value = float(np.median(values))
                low, high = np.quantile(values, _TAILS)
            else:
                values = _compare_means(first, second, drawn[a], drawn[b], measure)
                of_all = _compare_means(first, second, whole[a], whole[b], measure)
                value = float(of_all[0])
                low, high = _widen(value, *np.quantile(values, _TAILS))
                least = -1.0 if name == "kendall" else 0.0
                low = max(low, least)
                high = min(high, 1.0)
            low = float(min(low, value))
            high = float(max(high, value))
            chance = _measure_chance(first, second, measure, rng)
            samples = min(len(first), len(second))
            pairs[a, b, name] = Pair(a, b, name, value, low, high, chance, samples)
    return MapAgreement(model, *_order(sources, pairs), pl.DataFrame(), top, "data")


def _average_seeds(maps: Maps) -> Array:
    """The mean map of each sample, `(n, F)`."""
    return np.array([maps_of_seeds.mean(0) for maps_of_seeds in maps.values()])


def _widen(value: float, low: float, high: float) -> tuple[float, float]:
    """The hull of the percentile and the basic bootstrap.

    Where features matter nearly equally, the value is at the edge of what resamples reach, and the percentile alone
    hardly ever holds the truth; the basic one alone holds it too seldom.
    """
    # the quantiles, reflected at the value
    reflected_low, reflected_high = 2 * value - high, 2 * value - low
    return min(low, reflected_low), max(high, reflected_high)


def _measure_chance(
    first: Array, second: Array, measure: _Comparison, rng: np.random.Generator
) -> float:
    """The median agreement of two mean maps if the features of the second stood in a random order."""
    copies = np.tile(second.mean(0), (_RESAMPLES, 1))
    shuffled = rng.permuted(copies, axis=1)
    mean = np.tile(first.mean(0), (_AT_ONCE, 1))
    parts = np.split(shuffled, _RESAMPLES // _AT_ONCE)
    values = [measure(mean, part) for part in parts]
    return float(np.median(values))


def _compare_means(a: Array, b: Array, rows: Array, others: Array, measure: _Comparison) -> Array:
    """The similarity of the means over chosen rows of maps `(n, F)`, for each choice `(R, n')`, `(R,)`."""
    values = []
    for start in range(0, len(rows), _AT_ONCE):
        part = slice(start, start + _AT_ONCE)
        means = a[rows[part]].mean(1)
        other_means = b[others[part]].mean(1)
        values.append(measure(means, other_means))
    return np.concatenate(values)


def _measures(top: int) -> dict[Measure, _Comparison]:
    return {
        "kendall": kendall,
        "overlap": lambda a, b: overlap(a, b, top),
        "signs": lambda a, b: agree_in_sign(a, b, top),
    }


def _order(
    sources: Sequence[Source], pairs: Mapping[tuple[int, int, Measure], Pair]
) -> tuple[tuple[Source, ...], tuple[Pair, ...]]:
    """Sources that agree beside each other, and their pairs."""
    medians = np.zeros((len(sources), len(sources)))
    for pair in pairs.values():
        if pair.measure == "kendall":
            medians[pair.first, pair.second] = pair.median
            medians[pair.second, pair.first] = pair.median
    order = _cluster(medians)
    new_place = {old: new for new, old in enumerate(order)}
    moved = tuple(_move(pair, new_place) for pair in pairs.values())
    return tuple(sources[old] for old in order), moved


def _move(pair: Pair, new_place: Mapping[int, int]) -> Pair:
    first, second = sorted((new_place[pair.first], new_place[pair.second]))
    return replace(pair, first=first, second=second)


def _compare(
    first: Maps,
    second: Maps,
    same: bool,
    measure: _Comparison,
    key: tuple[int, int, Measure],
) -> Pair:
    values, others = _measure_samples(first, second, same, measure)
    # of maps with too many numbers Kendall's tau is not computed
    values = values[~np.isnan(values)]
    if not len(values):
        return Pair(*key, math.nan, None, None, math.nan, 0)
    interval = median_interval(values, values, 0.95)
    if len(others):
        chance = float(np.median(others))
    else:
        chance = math.nan
    return Pair(*key, interval.value, interval.low, interval.high, chance, len(values))


def _measure_samples(
    first: Maps, second: Maps, same: bool, measure: _Comparison
) -> tuple[Array, Array]:
    """How far two sources agree on each sample that both have, `(n,)`, and on different samples, `(m,)`."""
    samples = [sample for sample in first if sample in second]
    values = [_average(first[sample], second[sample], same, measure) for sample in samples]
    others = []
    most_shifts = min(_OTHERS, len(samples) - 1)
    for shift in range(1, most_shifts + 1):
        # each sample meets the one that stands so many places behind it, in a ring
        shifted = [*samples[shift:], *samples[:shift]]
        for sample, other in zip(samples, shifted, strict=True):
            others.append(_average(first[sample], second[other], False, measure))
    return np.array(values), np.array(others)


def _average(a: Array, b: Array, same: bool, measure: _Comparison) -> float:
    """The mean over pairs of seeds; of one source only of different ones."""
    seeds = range(min(_SEEDS, len(a)))
    other_seeds = range(min(_SEEDS, len(b)))
    pairs = []
    for seed, other in itertools.product(seeds, other_seeds):
        # of one source, each two seeds are compared once
        if not same or seed < other:
            pairs.append((seed, other))
    if not pairs:
        # one seed is all that there is
        pairs = [(0, 0)]
    first, second = np.array(pairs).T
    return float(measure(a[first], b[second]).mean())


def _cluster(similarity: Array) -> list[int]:
    """The order of the leaves of average linkage, by 1 less the similarity."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(similarity) < 3:
        return list(range(len(similarity)))
    distances = np.maximum(1 - np.nan_to_num(similarity), 0)
    of_pairs = distances[np.triu_indices(len(distances), 1)]
    tree = linkage(of_pairs, "average", optimal_ordering=True)
    return [int(leaf) for leaf in leaves_list(tree)]


def _split(maps: Mapping[Source, Maps]) -> pl.DataFrame:
    """The two-way table of each model that was trained several times, and each explainer."""
    groups: dict[Source, list[Maps]] = {}
    for (model, explainer), maps_of_model in maps.items():
        if TRAINED in model:
            base, _, _ = model.rpartition(TRAINED)
            groups.setdefault((base, explainer), []).append(maps_of_model)
    rows = []
    for (model, explainer), models in groups.items():
        samples_of_models = [set(of_model) for of_model in models]
        samples = sorted(set.intersection(*samples_of_models))
        if len(models) < 2 or not samples:
            continue
        stacked = []
        for sample in samples:
            stacked.append([of_model[sample] for of_model in models])
        within, between = split_variance(np.array(stacked))
        rows.append(
            {
                "model": model,
                "explainer": explainer,
                "trained": len(models),
                "samples": len(samples),
                **_describe_share("within model", within),
                **_describe_share("between models", between),
            }
        )
    return pl.DataFrame(rows)


def _describe_share(name: str, values: Array) -> dict[str, float | None]:
    """The columns of a share: its median over samples, with the interval."""
    interval = median_interval(values, values, 0.95)
    return {
        name: interval.value,
        f"{name}, low": interval.low,
        f"{name}, high": interval.high,
    }


def read_seed_maps(
    views: Iterable[MetricResults], of: Literal["model", "data"] = "model"
) -> dict[Source, dict[int, Array]]:
    """The stored maps of each model (or data set) and explainer, by sample, `(seeds, F)`, where there are some.

    Raises:
        ArgumentError: there are none.
    """
    maps: dict[Source, dict[int, Array]] = {}
    for view in views:
        name = view.model if of == "model" else view.data
        for explainer, maps_of_samples in _read_maps(view, view.present, "seed_maps").items():
            maps[name, explainer] = maps_of_samples
    if not maps:
        expected = "results of the metric seed_agreement, which stores the maps of several seeds"
        raise ArgumentError("results", expected, "none")
    return maps


def read_clean_maps(view: MetricResults, explainers: Sequence[str]) -> dict[str, dict[int, Array]]:
    """The maps of the inputs themselves, which many metrics store beside those of what they changed.

    Args:
        view: the results of one metric.
        explainers: whose maps.

    Returns:
        For each explainer that has some, the map of each sample as one row, `(1, F)`. None for maps of more than 512
        numbers, which `find_disagreements` does not compare.
    """
    # one file tells whether there are such maps; those of thousands of photographs would be read for nothing
    first_job = replace(view, jobs=view.jobs[:1])
    for *_, arrays in first_job.parts(["origin_maps"]):
        if 0 < arrays["origin_maps"][0].size <= MOST_RANKED:
            return _read_maps(view, explainers, "origin_maps")
    return {}


def _read_maps(
    view: MetricResults, explainers: Sequence[str], array: Literal["seed_maps", "origin_maps"]
) -> dict[str, dict[int, Array]]:
    """The stored maps of explainers by sample, `(seeds, F)`, or `(1, F)` of the inputs; where there are some."""
    frame = view.frame.filter(status="ok")
    evaluated = set(frame.select("explainer", "sample").rows())
    maps_of: dict[str, dict[int, Array]] = {explainer: {} for explainer in explainers}
    is_asked_for = pl.col("explainer").is_in(list(explainers))
    view_of_explainers = replace(view, jobs=view.jobs.filter(is_asked_for))
    for explainer, repeat, start, arrays in view_of_explainers.parts([array]):
        if repeat != 0:
            continue
        for sample, stored in enumerate(arrays[array], start):
            if (explainer, sample) in evaluated:
                rows = len(stored) if array == "seed_maps" else 1
                maps_of[explainer][sample] = stored.reshape(rows, -1).astype(np.float64)
    return {explainer: maps for explainer, maps in maps_of.items() if maps}
