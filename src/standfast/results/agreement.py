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
_SEEDS, _OTHERS = 5, 5
#: what stands between the name of a model and the number of its seed, where it was trained several times
TRAINED = "#"
#: of samples of data sets that are compared, and how many are compared at once
_RESAMPLES, _AT_ONCE = 200, 20
_TAILS = (0.005, 0.995)


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
        wanted = (min(first, second), max(first, second), measure)
        return next(
            pair for pair in self.pairs if (pair.first, pair.second, pair.measure) == wanted
        )

    def matrix(self, measure: Measure = "kendall") -> Array:
        """The medians, `(sources, sources)`."""
        places = range(len(self.sources))
        return np.array([[self.find(a, b, measure).median for b in places] for a in places])

    def frame(self) -> pl.DataFrame:
        """A row for each pair and measure: both models (or data sets) and explainers, median, interval, chance level,
        samples.
        """
        rows = [
            {
                **dict(zip((self.of, "explainer"), self.sources[pair.first], strict=True)),
                **dict(
                    zip(
                        (f"other_{self.of}", "other_explainer"),
                        self.sources[pair.second],
                        strict=True,
                    )
                ),
                "measure": pair.measure,
                "median": pair.median,
                "low": pair.low,
                "high": pair.high,
                "chance": pair.chance,
                "samples": pair.samples,
            }
            for pair in self.pairs
        ]
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


def find_disagreements(
    maps: Mapping[str, Mapping[int, Array]], top: int
) -> tuple[Disagreement, ...]:
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
        features = next((own.shape[1] for own in maps[first].values()), 0)
        if not 0 < features <= MOST_RANKED:
            continue
        same, others = _measure_samples(maps[first], maps[second], False, _measures(top)["overlap"])
        count = min(top, features)
        # medians of so few counts would jump; and a single sample has no others to compare with
        chance = float(np.mean(others)) if len(others) else count / features
        if len(same) and float(np.mean(same)) < (1 + chance) / 2 - ROUNDING:
            disagreements.append(
                Disagreement(first, second, count * float(np.mean(same)), count, count * chance)
            )
    return tuple(sorted(disagreements, key=lambda each: each.common - each.chance))


def measure_map_agreement(
    found: Mapping[tuple[str, str], Mapping[int, Array]], data: str, top: int
) -> MapAgreement:
    """The agreement of sources of maps.

    Args:
        found: for each model and explainer the maps of each sample, `(seeds, F)`.
        data: the name of the data set.
        top: how many first features count.

    >>> maps = {("net", "a"): {0: np.array([[3.0, 2.0, 1.0]] * 3)}, ("net", "b"): {0: np.array([[1.0, 2.0, 3.0]] * 3)}}
    >>> measure_map_agreement(maps, "mine", 1).matrix().tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """
    sources = list(found)
    pairs = {
        (a, b, name): _compare(found[sources[a]], found[sources[b]], a == b, measure, (a, b, name))
        for a, b in itertools.combinations_with_replacement(range(len(sources)), 2)
        for name, measure in _measures(top).items()
    }
    return MapAgreement(data, *_order(sources, pairs), _split(found), top)


def measure_data_agreement(
    found: Mapping[tuple[str, str], Mapping[int, Array]], model: str, top: int
) -> MapAgreement:
    """The agreement of the mean maps of data sets, such as windows of time.

    Args:
        found: for each data set and explainer the maps of each sample, `(seeds, F)`, whose features are the same.
        model: the name of the model.
        top: how many first features count.
    """
    sources, rng = list(found), np.random.default_rng(0)
    maps = [np.array([own.mean(0) for own in found[source].values()]) for source in sources]
    whole = [np.arange(len(own))[None] for own in maps]
    drawn = [rng.integers(len(own), size=(_RESAMPLES, len(own))) for own in maps]
    mixed = [rng.permuted(np.tile(every, (_RESAMPLES, 1)), axis=1) for every in whole]
    pairs = {}
    for name, measure in _measures(top).items():
        kept = maps if name == "signs" else [np.abs(own) for own in maps]
        for a, b in itertools.combinations_with_replacement(range(len(sources)), 2):
            half = len(maps[a]) // 2
            rows, others = (
                (mixed[a][:, :half], mixed[a][:, half:]) if a == b else (drawn[a], drawn[b])
            )
            values = _compare_means(kept[a], kept[b], rows, others, measure)
            value = (
                np.median(values)
                if a == b
                else _compare_means(kept[a], kept[b], whole[a], whole[b], measure)[0]
            )
            low, high = np.quantile(values, _TAILS)
            if a != b:
                low, high = min(low, 2 * value - high), max(high, 2 * value - low)
                low, high = max(low, -1.0 if name == "kendall" else 0.0), min(high, 1.0)
            mixed_up = rng.permuted(np.tile(kept[b].mean(0), (_RESAMPLES, 1)), axis=1)
            own = np.tile(kept[a].mean(0), (_AT_ONCE, 1))
            unrelated = [measure(own, some) for some in np.split(mixed_up, _RESAMPLES // _AT_ONCE)]
            numbers = (
                float(value),
                float(min(low, value)),
                float(max(high, value)),
                float(np.median(unrelated)),
            )
            pairs[a, b, name] = Pair(a, b, name, *numbers, min(len(maps[a]), len(maps[b])))
    return MapAgreement(model, *_order(sources, pairs), pl.DataFrame(), top, "data")


def _compare_means(a: Array, b: Array, rows: Array, others: Array, measure: _Comparison) -> Array:
    """The similarity of the means over chosen rows of maps `(n, F)`, for each choice `(R, n')`, `(R,)`."""
    parts = [slice(start, start + _AT_ONCE) for start in range(0, len(rows), _AT_ONCE)]
    return np.concatenate(
        [measure(a[rows[part]].mean(1), b[others[part]].mean(1)) for part in parts]
    )


def _measures(top: int) -> dict[Measure, _Comparison]:
    return {
        "kendall": kendall,
        "overlap": lambda a, b: overlap(a, b, top),
        "signs": lambda a, b: agree_in_sign(a, b, top),
    }


def _order(
    sources: Sequence[tuple[str, str]], pairs: Mapping[tuple[int, int, Measure], Pair]
) -> tuple[tuple[tuple[str, str], ...], tuple[Pair, ...]]:
    """Sources that agree beside each other, and their pairs."""
    places = range(len(sources))
    order = _cluster(
        np.array([[pairs[min(a, b), max(a, b), "kendall"].median for b in places] for a in places])
    )
    place = {old: new for new, old in enumerate(order)}
    return tuple(sources[old] for old in order), tuple(
        _move(pair, place) for pair in pairs.values()
    )


def _move(pair: Pair, place: Mapping[int, int]) -> Pair:
    first, second = sorted((place[pair.first], place[pair.second]))
    return replace(pair, first=first, second=second)


def _compare(
    first: Mapping[int, Array],
    second: Mapping[int, Array],
    same: bool,
    measure: _Comparison,
    key: tuple[int, int, Measure],
) -> Pair:
    own, others = _measure_samples(first, second, same, measure)
    known = own[~np.isnan(own)]
    if not len(known):
        return Pair(*key, float("nan"), None, None, float("nan"), 0)
    interval = median_interval(known, known, 0.95)
    chance = float(np.median(others)) if len(others) else float("nan")
    return Pair(*key, interval.value, interval.low, interval.high, chance, len(known))


def _measure_samples(
    first: Mapping[int, Array], second: Mapping[int, Array], same: bool, measure: _Comparison
) -> tuple[Array, Array]:
    """How far two sources agree on each sample that both have, `(n,)`, and on different samples, `(m,)`."""
    samples = [sample for sample in first if sample in second]
    own = np.array([_average(first[sample], second[sample], same, measure) for sample in samples])
    shifts = range(1, min(_OTHERS, len(samples) - 1) + 1)
    others = [
        _average(first[samples[at]], second[samples[(at + shift) % len(samples)]], False, measure)
        for shift in shifts
        for at in range(len(samples))
    ]
    return own, np.array(others)


def _average(a: Array, b: Array, same: bool, measure: _Comparison) -> float:
    """The mean over pairs of seeds; of one source only of different ones."""
    places = [
        (r, s)
        for r in range(min(_SEEDS, len(a)))
        for s in range(min(_SEEDS, len(b)))
        if not same or r < s
    ] or [(0, 0)]
    first, second = (list(each) for each in zip(*places, strict=True))
    return float(measure(a[first], b[second]).mean())


def _cluster(similarity: Array) -> list[int]:
    """The order of the leaves of average linkage, by 1 less the similarity."""
    from scipy.cluster.hierarchy import leaves_list, linkage

    if len(similarity) < 3:
        return list(range(len(similarity)))
    distance = 1 - np.nan_to_num(similarity)
    tree = linkage(
        np.maximum(distance, 0)[np.triu_indices(len(distance), 1)], "average", optimal_ordering=True
    )
    return [int(leaf) for leaf in leaves_list(tree)]


def _split(found: Mapping[tuple[str, str], Mapping[int, Array]]) -> pl.DataFrame:
    """The two-way table of each model that was trained several times, and each explainer."""
    groups: dict[tuple[str, str], list[Mapping[int, Array]]] = {}
    for (model, explainer), maps in found.items():
        if TRAINED in model:
            groups.setdefault((model.rpartition(TRAINED)[0], explainer), []).append(maps)
    rows = []
    for (model, explainer), several in groups.items():
        samples = sorted(set.intersection(*(set(maps) for maps in several)))
        if len(several) > 1 and samples:
            stacked = np.array([[maps[sample] for maps in several] for sample in samples])
            within, between = split_variance(stacked)
            shown = {"within model": within, "between models": between}
            row = {name: median_interval(values, values, 0.95) for name, values in shown.items()}
            numbers = {
                f"{name}{end}": getattr(each, at)
                for name, each in row.items()
                for end, at in _ENDS.items()
            }
            counts = {"trained": len(several), "samples": len(samples)}
            rows.append({"model": model, "explainer": explainer, **counts, **numbers})
    return pl.DataFrame(rows)


_ENDS = {"": "value", ", low": "low", ", high": "high"}


def read_seed_maps(
    views: Iterable[MetricResults], of: Literal["model", "data"] = "model"
) -> dict[tuple[str, str], dict[int, Array]]:
    """The stored maps of each model (or data set) and explainer, by sample, `(seeds, F)`, where there are some.

    Raises:
        ArgumentError: there are none.
    """
    maps_of_sources: dict[tuple[str, str], dict[int, Array]] = {}
    for view in views:
        for explainer, maps in _read_maps(view, view.present, "seed_maps").items():
            maps_of_sources[getattr(view, of), explainer] = maps
    if not maps_of_sources:
        expected = "results of the metric seed_agreement, which stores the maps of several seeds"
        raise ArgumentError("results", expected, "none")
    return maps_of_sources


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
    for *_, arrays in replace(view, jobs=view.jobs[:1]).parts(["origin_maps"]):
        if 0 < arrays["origin_maps"][0].size <= MOST_RANKED:
            return _read_maps(view, explainers, "origin_maps")
    return {}


def _read_maps(
    view: MetricResults, explainers: Sequence[str], array: Literal["seed_maps", "origin_maps"]
) -> dict[str, dict[int, Array]]:
    """The stored maps of explainers by sample, `(seeds, F)`, or `(1, F)` of the inputs; where there are some."""
    evaluated = {
        name: set(view.rows_for(name).filter(pl.col("status") == "ok")["sample"].to_list())
        for name in explainers
    }
    maps: dict[str, dict[int, Array]] = {name: {} for name in explainers}
    chosen = replace(view, jobs=view.jobs.filter(pl.col("explainer").is_in(list(explainers))))
    for name, repeat, start, arrays in chosen.parts([array]):
        if repeat != 0:
            continue
        for place, stored in enumerate(arrays[array]):
            rows = len(stored) if array == "seed_maps" else 1
            if start + place in evaluated[name]:
                maps[name][start + place] = stored.reshape(rows, -1).astype(np.float64)
    return {name: maps_of_samples for name, maps_of_samples in maps.items() if maps_of_samples}
