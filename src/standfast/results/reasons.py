"""`Card`: what can be stated of the reasons of one decision, from the stored draws of the metric `reasons`.

The draws of one model and one explainer are in a job. Models that were trained again and other explainers are in jobs
of their own. `make_card` takes them together: a draw is one of a model, by an explainer that is drawn at random. So
draws of a model are a cluster, and the number of models counts (`statistics.clusters`). Other explainers have other
units, so their draws enter places and signs, and no value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from standfast.statistics.clusters import clustered_interval
from standfast.statistics.decisions import estimate_mean
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import MOST_DECIDED, ROUNDING, Foresight, ReasonDecision, State, decide_reasons
from standfast.statistics.simultaneous import SimultaneousMeans, simultaneous_means
from standfast.tensors import Array

#: what draws may differ in; the last two by other jobs
Source = Literal["seed", "background", "measurement", "retraining", "explainer"]
_LEVEL = 0.95
#: the ends of the range over draws
_RANGE = (0.05, 0.95)


@dataclass(frozen=True)
class StoredDraws:
    """What one job has stored of a sample.

    Attributes:
        model, explainer: which.
        target: the class, or what else was explained.
        origin: the map of the clean input, `(F,)`.
        named_for, named_against: in how many draws a feature is among the first ones, by its sign, `(F,)`.
        mean: of the draws that keep the answer, `(F,)`.
        maps: of each draw, in their order, `(R, F)`; NaN where it was not made, or does not keep the answer. None where
            they are not stored.
        drawn, kept: how many draws there are, and how many of them keep the answer.
        looks: how often the draws were looked at.
        varied: the sources that this explainer has.
        row: the row of the frame.
        low, high: the limits of the probability of each reason after all looks, `(F,)`; None where they are not stored.
    """

    model: str
    explainer: str
    target: object
    origin: Array
    named_for: Array
    named_against: Array
    mean: Array
    maps: Array | None
    drawn: int
    kept: int
    looks: int
    varied: tuple[Source, ...]
    row: Mapping[str, Any] = field(default_factory=dict, repr=False)
    low: Array | None = None
    high: Array | None = None

    @property
    def kept_maps(self) -> Array | None:
        """The maps of the draws that keep the answer, `(K, F)`; None where they are not stored."""
        return None if self.maps is None else self.maps[np.isfinite(self.maps).all(1)]

    @property
    def is_never_negative(self) -> bool:
        """Whether no map has a negative number, as absolute gradients have none."""
        has_negative = bool((self.origin < 0).any())
        if self.maps is not None and len(self.maps):
            has_negative = has_negative or bool((np.nan_to_num(self.maps) < 0).any())
        return not has_negative and not bool(self.named_against.any())

    @property
    def made(self) -> int:
        """Of so many draws, the first ones, it is known what they show: also those that do not keep the answer."""
        return 0 if self.maps is None else min(len(self.maps), self.drawn)


@dataclass(frozen=True)
class Reason:
    """What is known of one feature.

    Attributes:
        feature: its number.
        name: the column, the word, or the position.
        words: with its value, in the user's units.
        value: its attribution at the clean input.
        mean, low, high: the mean over draws, with an interval that holds for all features at once: what more draws
            would make exact.
        range_low, range_high: 5% to 95% of the draws: what no number of draws makes smaller.
        place: at the clean input, from 1; features that share one have the last of them.
        probability: the share of draws that name it among the first k with the sign that it has here; of a feature
            that is no reason, with any sign. Of a reason, `probability_low` and `probability_high` are the limits that
            decide its state: each is one-sided, at a level that allows for all reasons and looks. Of another feature
            they are its 95% interval.
        state: `"holds"`, `"falls"` or `"undecided"` of a reason; empty of another feature.
        foreseen: about how many draws, or models, would decide.
        few_draws: the interval of the mean is of few draws that differ.
    """

    feature: int
    name: str
    words: str
    value: float
    mean: float
    low: float
    high: float
    range_low: float
    range_high: float
    place: int
    probability: float
    probability_low: float
    probability_high: float
    state: State | Literal[""] = ""
    foreseen: Foresight | None = None
    few_draws: bool = False

    @property
    def sign(self) -> int:
        """1 if it speaks for the answer, -1 against it."""
        return int(np.sign(self.value))


@dataclass(frozen=True)
class Alone:
    """What one source does without the others.

    Attributes:
        source: which.
        draws: how many that keep the answer; of retraining models, and of explainers these.
        same: in which share of them the same reasons are named; NaN where it was not evaluated.
        low, high: its interval.
        variance: the share of the variance of the reasons' values, of all sources that were evaluated alone; NaN where
            values have other units.
        falling: for each reason the share of these draws that do not name it.
    """

    source: Source
    draws: int
    same: float
    low: float
    high: float
    variance: float
    falling: tuple[float, ...] = ()


@dataclass(frozen=True)
class Card:
    """The reasons of one decision, and how far each can be stated.

    Attributes:
        data, model, explainer, sample: which.
        answer: what the model answers, in words.
        score: the probability of the answer, or another number of it; NaN where there is none. Of a decision by a
            rule it is the probability of the side that is taken.
        score_name: what this number is, such as "probability".
        top: how many features count as reasons, k.
        demand: the probability that a reason must have.
        reasons: the first k, in the order of their sizes. Fewer where others are 0, or share the last place.
        others: the other features that were named in a draw, the most frequent ones first.
        same: the probability that all reasons are named, with the same signs; `same_low`, `same_high`: its interval.
        same_order: the share of draws in which they have the same order, too.
        chance: what the probability of a reason is for an unrelated map.
        drawn: draws of the given model and explainer; of models that were trained again where there are some.
        kept: those in which the answer is the same.
        draws: those by which probabilities are measured: the kept ones, of all explainers.
        varied: what varied, and what did not.
        unused: the sources that were asked for, and that this explainer does not have.
        models, deciding_otherwise: how many models were trained again, and how many of these answer otherwise.
        alone: what each source does alone.
        few_models: the intervals are less sure than 95%, since there are few models.
        decided: whether each reason is decided, and not only its share known.
        notes: what else has to be known, in sentences.
        columns: of a data frame, its values in words, by name.
        origin, input: the map of the clean input `(F,)`, and the input itself; None where they are not stored.
        shares: for each feature the share of draws that name it, of a reason with its sign at the clean input, `(F,)`.
        signs: for each feature 1 or -1 if it is a reason at the clean input, by its sign, and else 0, `(F,)`.
        names: of all features, such as columns or words, in their order; none for images and series.
    """

    data: str
    model: str
    explainer: str
    sample: int
    answer: str
    score: float
    top: int
    demand: float
    reasons: tuple[Reason, ...]
    others: tuple[Reason, ...]
    same: float
    same_low: float
    same_high: float
    same_order: float
    chance: float
    drawn: int
    kept: int
    draws: int
    varied: tuple[Source, ...]
    unused: tuple[Source, ...] = ()
    models: int = 0
    deciding_otherwise: int = 0
    alone: tuple[Alone, ...] = ()
    few_models: bool = False
    decided: bool = True
    notes: tuple[str, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    origin: Array | None = field(default=None, repr=False)
    input: Array | None = field(default=None, repr=False)
    shares: Array | None = field(default=None, repr=False)
    signs: Array | None = field(default=None, repr=False)
    score_name: str = "probability"
    names: tuple[str, ...] = field(default=(), repr=False)

    @property
    def holding(self) -> tuple[Reason, ...]:
        """The reasons that hold."""
        return tuple(reason for reason in self.reasons if reason.state == "holds")

    @property
    def kept_share(self) -> float:
        """The share of draws, or of models, in which the answer is the same; NaN where nothing was varied."""
        return self.kept / self.drawn if self.drawn else float("nan")

    def rows(self) -> list[dict[str, Any]]:
        """A row for each feature that is a reason, or is named in a draw."""
        keys = {"data": self.data, "model": self.model, "explainer": self.explainer, "sample": self.sample}
        rows: list[dict[str, Any]] = []
        for reason in (*self.reasons, *self.others):
            plain = dataclasses.asdict(reason)
            del plain["foreseen"], plain["few_draws"]
            rows.append({**keys, **plain})
        return rows


@dataclass(frozen=True)
class Wanted:
    """What a card asks for.

    Attributes:
        top: how many features count, k.
        demand: the probability that a reason must have.
        speaking: `"both"`, or `"for"`: features that speak against the answer do not count.
        shares_places: features that share the last place are all in, as in images.
    """

    top: int
    demand: float
    speaking: str = "both"
    shares_places: bool = False

    @property
    def decides_each(self) -> bool:
        """Whether the reasons are few enough to decide each of them."""
        return self.top <= MOST_DECIDED

    def measure_sizes(self, maps: Array) -> Array:
        """What features are ordered by: absolute values, or what speaks for the answer."""
        return np.maximum(maps, 0.0) if self.speaking == "for" else np.abs(maps)

    def sign_first(self, maps: Array) -> Array:
        """For each feature of maps `(R, F)` 1 or -1 for the first ones, by their signs, and 0 for the others.

        >>> Wanted(2, 0.9).sign_first(np.array([[3.0, -2.0, 1.0, 1.0]])).tolist()
        [[1, -1, 0, 0]]
        """
        sizes = self.measure_sizes(maps)
        slack = ROUNDING * sizes.max(axis=1, keepdims=True)
        ordered = -np.sort(-np.pad(sizes, ((0, 0), (0, 1))), axis=1)
        last_in, first_out = ordered[:, self.top - 1 : self.top], ordered[:, self.top : self.top + 1]
        marked = sizes > first_out + slack
        if self.shares_places:
            marked = (sizes >= last_in - slack) & (sizes > slack)
        return np.asarray(np.where(marked, np.sign(maps), 0).astype(np.int8))


class _Named:
    """The reasons at the clean input.

    Attributes:
        signs: for each feature 1 or -1 for a reason, and 0 for the others, `(F,)`.
        order: the numbers of the reasons in the order of their sizes.
    """

    def __init__(self, origin: Array, wanted: Wanted) -> None:
        self.signs = wanted.sign_first(origin[None])[0]
        sizes = wanted.measure_sizes(origin)
        numbers = np.flatnonzero(self.signs)
        self.order: list[int] = numbers[np.argsort(-sizes[numbers], kind="stable")].tolist()
        self._wanted = wanted

    def is_same(self, signed: Array) -> Array:
        """Whether exactly the reasons are named in draws `(R, F)`, with their signs, bool `(R,)`."""
        return np.asarray((signed == self.signs).all(1))

    def measure_again(self, signed: Array) -> Array:
        """Which part of the reasons is named in draws `(R, F)`, with their signs, `(R,)`."""
        named = (signed == self.signs)[:, self.signs != 0]
        return np.asarray(named.sum(1) / max(1, named.shape[1]))

    def is_in_order(self, maps: Array) -> Array:
        """Whether the reasons have their order in maps `(R, F)`, bool `(R,)`."""
        sizes = self._wanted.measure_sizes(maps[:, self.order])
        return np.asarray((sizes[:, :-1] >= sizes[:, 1:]).all(1))


@dataclass(frozen=True)
class _Tally:
    """In how many draws each feature is named.

    Attributes:
        positive, negative: by the sign of the feature, of each model, `(F, M)`.
        draws: of each model, `(M,)`.
        same, in_order: draws of each model with the same reasons, and also in the same order, `(M,)`.
        is_clustered: whether models were trained again; else there is one column.
        is_all: whether the draws are all that there are, and so nothing is uncertain.
        again: which part of the reasons each draw names, `(R,)`, and the models of these draws; None if not stored.
        values: the maps of the explainer itself, `(V, F)`, and their models `value_models` `(V,)`; None if not stored.
    """

    positive: Array
    negative: Array
    draws: Array
    same: Array
    in_order: Array
    is_clustered: bool
    is_all: bool = False
    values: Array | None = None
    value_models: Array | None = None
    again: tuple[Array, Array] | None = None

    def count_hits(self, signs: Array) -> Array:
        """Draws that name each feature with its sign, `(F, M)`; of features that are no reasons, with any sign."""
        column = signs[:, None]
        any_sign = self.positive + self.negative
        return np.where(column > 0, self.positive, np.where(column < 0, self.negative, any_sign))


def make_card(
    about: Mapping[str, Any],
    given: StoredDraws,
    wanted: Wanted,
    retrained: Sequence[StoredDraws | None] = (),
    others: Mapping[str, Sequence[StoredDraws | None]] | None = None,
    alone: Mapping[Source, StoredDraws] | None = None,
    names: Sequence[tuple[str, str]] = (),
) -> Card:
    """The card of one sample.

    Args:
        about: further attributes of the card, such as its answer in words.
        given: the draws of the model and the explainer that are explained.
        wanted: what is asked for.
        retrained: those of models that were trained again, by the same explainer; None for a model that answers
            otherwise.
        others: those of other explainers: of the given model, and behind it of the retrained ones in their order.
        alone: those in which one source varied.
        names: for each feature its name, and its words with a value.
    """
    others = others or {}
    named = _Named(given.origin, wanted)
    tally = _tally(given, wanted, named, retrained, others)
    hits, draws = tally.count_hits(named.signs), int(tally.draws.sum())
    shares = hits.sum(1) / draws if draws else np.full(len(given.origin), np.nan)
    limits = None if others or given.low is None or given.high is None else (given.low, given.high)
    decisions = _decide(tally, hits, wanted, named, _find_look(given, others), limits)
    shown = _list_shown(named, shares, wanted)
    is_reason = named.signs != 0
    reasons = _Builder(given, wanted, names, tally, shown, hits, shares).build(decisions)
    same, same_low, same_high = _estimate_same(tally, given, wanted, not retrained and not others)
    present = [of_model for of_model in retrained if of_model is not None]
    counted = present or [given]
    return Card(
        **{**about, "model": given.model, "explainer": given.explainer},
        top=wanted.top,
        demand=wanted.demand,
        reasons=tuple(reason for reason in reasons if is_reason[reason.feature]),
        others=tuple(reason for reason in reasons if not is_reason[reason.feature]),
        same=same,
        same_low=same_low,
        same_high=same_high,
        same_order=float(tally.in_order.sum() / draws) if draws and wanted.decides_each else math.nan,
        chance=wanted.top / len(given.origin),
        drawn=sum(of_model.drawn for of_model in counted),
        kept=sum(of_model.kept for of_model in counted),
        draws=draws,
        varied=_list_varied(given, retrained, others),
        models=len(retrained),
        deciding_otherwise=len(retrained) - len(present),
        alone=_describe_alone(given, wanted, named, alone or {}, present, others),
        few_models=any(decision.few for decision in decisions.values()),
        decided=wanted.decides_each,
        origin=given.origin,
        shares=shares,
        signs=named.signs,
        names=tuple(name for name, _ in names),
    )


def _tally(
    given: StoredDraws,
    wanted: Wanted,
    named: _Named,
    retrained: Sequence[StoredDraws | None],
    others: Mapping[str, Sequence[StoredDraws | None]],
) -> _Tally:
    """The draws of all models and explainers together."""
    columns = list(range(1, len(retrained) + 1)) if retrained else [0]
    by_model = [given, *retrained]
    of_models: list[list[StoredDraws]] = []
    for column in columns:
        own = by_model[column]
        if own is None:
            continue
        more = [draws[column] for draws in others.values() if column < len(draws)]
        of_models.append([own, *(draws for draws in more if draws is not None)])
    if any(draws.maps is None for model in of_models for draws in model):
        return _tally_counts(of_models, wanted, named, is_clustered=bool(retrained))
    return _tally_draws(of_models, wanted, named, is_clustered=bool(retrained))


@dataclass(frozen=True)
class _Counts:
    """The counts of a model whose draws are not stored; its fields are those of `_Tally` for this model.

    Attributes:
        varies: whether anything but explainers varies; else the clean map is the only draw of an explainer.
    """

    positive: Array
    negative: Array
    draws: int
    same: float
    in_order: float
    varies: bool


def _tally_counts(
    of_models: Sequence[Sequence[StoredDraws]], wanted: Wanted, named: _Named, is_clustered: bool
) -> _Tally:
    """The counts of large maps, whose draws are not stored."""
    counted: list[_Counts] = []
    for model in of_models:
        is_given = not is_clustered and len(model) == 1
        counted.append(_join_counts([_count_named(draws, wanted, named, is_given) for draws in model]))
    if not is_clustered and not counted[0].varies and len(of_models[0]) == 1:
        counted = []  # nothing varied at all
    if not counted:
        nothing = np.zeros((len(named.signs), 0 if is_clustered else 1), dtype=np.int64)
        return _Tally(nothing, nothing, nothing[0], nothing[0], nothing[0], is_clustered)
    return _Tally(
        np.stack([model.positive for model in counted], 1),
        np.stack([model.negative for model in counted], 1),
        np.array([model.draws for model in counted], dtype=np.int64),
        np.round([model.same for model in counted]),
        np.round([model.in_order for model in counted]),
        is_clustered,
        is_all=not is_clustered and not counted[0].varies,
    )


def _count_named(draws: StoredDraws, wanted: Wanted, named: _Named, is_given: bool) -> _Counts:
    """The counts of one model and explainer.

    How often all reasons are named is stored for the reasons of this job: of the given explainer alone, these are those
    of the card.
    """
    if draws.varied:
        same, order = (math.nan if share is None else float(share) * draws.kept for share in _read_shares(draws))
        if not is_given:
            same, order = math.nan, math.nan
        return _Counts(draws.named_for, draws.named_against, draws.kept, same, order, True)
    signed = wanted.sign_first(draws.origin[None])
    same = float(named.is_same(signed)[0])
    order = same * float(named.is_in_order(draws.origin[None])[0])
    return _Counts((signed[0] > 0).astype(np.int64), (signed[0] < 0).astype(np.int64), 1, same, order, False)


def _read_shares(draws: StoredDraws) -> tuple[Any, Any]:
    """The stored shares of draws with the same reasons, and also in the same order."""
    return draws.row.get("value"), draws.row.get("same_order")


def _join_counts(of_explainers: Sequence[_Counts]) -> _Counts:
    """The counts of an explainer that is drawn at random.

    Draws of two explainers with the same number have the same changed input. So they count as one draw: the shares are
    the means of those of the explainers, and there are as many draws as of the explainer that has fewest.
    """
    if len(of_explainers) == 1:
        return of_explainers[0]
    varying = [counts.draws for counts in of_explainers if counts.varies]
    draws = min(varying, default=len(of_explainers))
    joined = [
        draws * np.mean([np.asarray(getattr(counts, name)) / max(counts.draws, 1) for counts in of_explainers], axis=0)
        for name in ("positive", "negative", "same", "in_order")
    ]
    positive, negative = (np.round(counts).astype(np.int64) for counts in joined[:2])
    return _Counts(positive, negative, draws, float(joined[2]), float(joined[3]), bool(varying))


def _tally_draws(
    of_models: Sequence[Sequence[StoredDraws]], wanted: Wanted, named: _Named, is_clustered: bool
) -> _Tally:
    """The counts of draws, each by an explainer that is drawn at random."""
    counted: list[tuple[Array, ...]] = []
    values: list[Array] = []
    value_models: list[Array] = []
    again: list[Array] = []
    again_models: list[Array] = []
    is_all = not is_clustered
    for number, model in enumerate(of_models):
        maps, explainers, are_all = _mix_explainers(model, number)
        if not is_clustered and len(model) == 1 and not model[0].varied:
            maps, explainers, are_all = maps[:0], explainers[:0], False  # nothing varied at all
        is_all = is_all and are_all
        signed = wanted.sign_first(maps) if len(maps) else np.zeros(maps.shape, dtype=np.int8)
        same = named.is_same(signed)
        in_order = same & named.is_in_order(maps)
        sums = ((signed > 0).sum(0), (signed < 0).sum(0), np.array(len(maps)), same.sum(), in_order.sum())
        counted.append(tuple(np.asarray(part) for part in sums))
        again.append(named.measure_again(signed))
        again_models.append(np.full(len(maps), number))
        values.append(maps[explainers == 0])
        value_models.append(np.full(len(values[-1]), number))
    if not counted:
        return _tally_counts([], wanted, named, is_clustered)
    positive, negative, draws, same, in_order = (np.stack(part, axis=-1) for part in zip(*counted, strict=True))
    return _Tally(
        positive,
        negative,
        draws,
        same,
        in_order,
        is_clustered,
        is_all,
        np.concatenate(values),
        np.concatenate(value_models),
        (np.concatenate(again), np.concatenate(again_models)),
    )


def _mix_explainers(of_explainers: Sequence[StoredDraws], seed: int) -> tuple[Array, Array, bool]:
    """Draws of a model, `(R, F)`, each by an explainer with the same probability, and the explainers `(R,)`.

    The draws of all explainers with the same number have the same changed input and the same background. So of each
    number one explainer is taken, and draws of different numbers are independent. Only numbers that all explainers
    have are taken: after these, it would depend on the draws which explainer is left.

    Returns:
        Also whether these are all that there are, since nothing varies but explainers.
    """
    varying = [draws for draws in of_explainers if draws.varied]
    if not varying:
        maps = np.stack([draws.origin for draws in of_explainers])
        return maps, np.arange(len(maps)), len(maps) > 1
    count = min(draws.made for draws in varying)
    if len(of_explainers) == 1:
        chosen = np.zeros(count, dtype=int)
    else:
        chosen = np.random.default_rng([seed, 1]).integers(0, len(of_explainers), size=count)
    drawn = np.full((count, len(of_explainers[0].origin)), np.nan)
    for explainer, draws in enumerate(of_explainers):
        own = chosen == explainer
        # where nothing varies, the clean map is the only one
        drawn[own] = draws.maps[:count][own] if draws.varied and draws.maps is not None else draws.origin
    keeps = np.isfinite(drawn).all(1)
    return drawn[keeps], chosen[keeps], False


def _find_look(given: StoredDraws, others: Mapping[str, Sequence[StoredDraws | None]]) -> int:
    """After how many looks the draws that are taken ended: those of several explainers, with the first that ends."""
    explainers = [given, *(draws[0] for draws in others.values() if draws and draws[0] is not None)]
    return min((draws.looks for draws in explainers if draws.varied), default=1)


def _decide(
    tally: _Tally, hits: Array, wanted: Wanted, named: _Named, looks: int, limits: tuple[Array, Array] | None
) -> dict[int, ReasonDecision]:
    """The decision on each reason; none where nothing was drawn, or reasons are too many to decide them one by one.

    `limits` are those of all looks at the draws of the given model, by the given explainer alone.
    """
    drawn = tally.draws > 0
    if not wanted.decides_each or not drawn.any() or not named.order or tally.is_all:
        return {}
    look = max(looks, 1)
    if tally.is_clustered:
        found = decide_reasons(hits[named.order][:, drawn], tally.draws[drawn], wanted.demand, _LEVEL, look=None)
    else:
        earlier = None if limits is None else (limits[0][named.order], limits[1][named.order])
        hits_of_one, draws = hits[named.order][:, 0], int(tally.draws[0])
        found = decide_reasons(hits_of_one, draws, wanted.demand, _LEVEL, look=look, earlier=earlier)
    return dict(zip(named.order, found, strict=True))


def _list_shown(named: _Named, shares: Array, wanted: Wanted) -> list[int]:
    """The numbers of the features that a card has: the reasons, and the others that draws name, by how often."""
    if not wanted.decides_each:
        return []
    others = [number for number in np.argsort(-shares, kind="stable").tolist() if shares[number] > 0]
    return list(dict.fromkeys([*named.order, *others]))


class _Builder:
    """Makes `Reason`s of the numbers of features."""

    def __init__(
        self,
        given: StoredDraws,
        wanted: Wanted,
        names: Sequence[tuple[str, str]],
        tally: _Tally,
        shown: Sequence[int],
        hits: Array,
        shares: Array,
    ) -> None:
        self.given, self.wanted, self.names, self.tally, self.shown = given, wanted, names, tally, shown
        self.hits, self.shares = hits, shares
        self.is_reason = wanted.sign_first(given.origin[None])[0] != 0

    def build(self, decisions: Mapping[int, ReasonDecision]) -> list[Reason]:
        """The features that are shown, in their order."""
        if not self.shown:
            return []
        numbers = list(self.shown)
        places = _find_places(self.wanted.measure_sizes(self.given.origin))
        means = self._estimate_means(numbers)
        ranges = self._find_ranges(numbers)
        reasons: list[Reason] = []
        for position, number in enumerate(numbers):
            name, words = self.names[number] if number < len(self.names) else (f"feature {number}",) * 2
            decision = decisions.get(number)
            low, high = self._bound(number, decision)
            reasons.append(
                Reason(
                    feature=number,
                    name=name,
                    words=words,
                    value=float(self.given.origin[number]),
                    mean=float(means.mean[position]),
                    low=float(means.low[position]),
                    high=float(means.high[position]),
                    range_low=float(ranges[0, position]),
                    range_high=float(ranges[1, position]),
                    place=int(places[number]),
                    probability=float(self.shares[number]),
                    probability_low=low,
                    probability_high=high,
                    state=self._find_state(number, decision),
                    foreseen=None if decision is None else decision.foreseen,
                    few_draws=bool(means.few[position]),
                )
            )
        return reasons

    def _find_state(self, number: int, decision: ReasonDecision | None) -> State | Literal[""]:
        """The state of a reason; where all that may differ was tried, its share decides."""
        if decision is not None:
            return decision.state
        if not self.tally.is_all or not self.is_reason[number]:
            return ""
        return "holds" if self.shares[number] >= self.wanted.demand else "falls"

    def _bound(self, number: int, decision: ReasonDecision | None) -> tuple[float, float]:
        """The interval of the probability of a feature."""
        if decision is not None:
            return decision.low, decision.high
        drawn = self.tally.draws > 0
        if self.tally.is_all or not drawn.any():
            return (float(self.shares[number]),) * 2
        if self.tally.is_clustered:
            return clustered_interval(self.hits[number][drawn], self.tally.draws[drawn], _LEVEL)
        return proportion_interval(int(self.hits[number, 0]), int(self.tally.draws[0]), _LEVEL)

    def _estimate_means(self, numbers: Sequence[int]) -> SimultaneousMeans:
        """The means of these features, with intervals that hold for all features at once."""
        values = self.tally.values
        if values is None or not len(values):
            unknown = np.full(len(numbers), np.nan)
            return SimultaneousMeans(unknown, unknown, unknown, np.zeros(len(numbers), dtype=bool))
        clusters = self.tally.value_models if self.tally.is_clustered else None
        found = simultaneous_means(values.astype(float), _LEVEL, clusters)
        return SimultaneousMeans(*(getattr(found, name)[list(numbers)] for name in ("mean", "low", "high", "few")))

    def _find_ranges(self, numbers: Sequence[int]) -> Array:
        """What nine tenths of the draws lie between, `(2, n)`."""
        values = self.tally.values
        if values is None or not len(values):
            return np.full((2, len(numbers)), np.nan)
        return np.asarray(np.quantile(values[:, list(numbers)], _RANGE, axis=0))


def _find_places(sizes: Array) -> Array:
    """The place of each feature, from 1, `(F,)`; features that share one have the last of them."""
    ordered = np.sort(sizes)
    slack = ROUNDING * ordered[-1]
    return np.asarray(len(sizes) - np.searchsorted(ordered, sizes - slack, side="left"))


def _estimate_again(tally: _Tally, given: StoredDraws, is_alone: bool) -> tuple[float, float, float]:
    """The mean share of many reasons that is named again, with its interval; NaN where it is not known.

    The stored one is that of the given model and explainer alone.
    """
    if is_alone:
        found = (given.row.get(name) for name in ("value", "low", "high"))
        value, low, high = (math.nan if number is None else float(number) for number in found)
        return value, low, high
    if tally.again is None or not len(tally.again[0]):
        return math.nan, math.nan, math.nan
    shares, models = tally.again
    if tally.is_all:
        return (float(shares.mean()),) * 3
    if tally.is_clustered:
        shares = np.array([shares[models == model].mean() for model in np.unique(models)])
    mean = estimate_mean(shares, _LEVEL)
    return mean.value, max(0.0, mean.low), min(1.0, mean.high)


def _estimate_same(tally: _Tally, given: StoredDraws, wanted: Wanted, is_alone: bool) -> tuple[float, float, float]:
    """The probability that all reasons are named, with its interval.

    Args:
        tally: the draws.
        given: those of the given model and explainer.
        wanted: what is asked for.
        is_alone: whether there are no other models and explainers.
    """
    drawn = tally.draws > 0
    if not wanted.decides_each:
        return _estimate_again(tally, given, is_alone)
    if not drawn.any():
        return math.nan, math.nan, math.nan
    share = float(tally.same.sum() / tally.draws.sum())
    if math.isnan(share):  # of large maps it is not known whether draws of other models name the reasons together
        return math.nan, math.nan, math.nan
    if tally.is_all:
        return share, share, share
    if tally.is_clustered:
        return share, *clustered_interval(tally.same[drawn], tally.draws[drawn], _LEVEL)
    return share, *proportion_interval(int(tally.same[0]), int(tally.draws[0]), _LEVEL)


def _list_varied(
    given: StoredDraws, retrained: Sequence[StoredDraws | None], others: Mapping[str, Sequence[StoredDraws | None]]
) -> tuple[Source, ...]:
    """The sources that draws differ in."""
    varied: list[Source] = list(given.varied)
    if retrained:
        varied.append("retraining")
    if others:
        varied.append("explainer")
    return tuple(varied)


def _describe_alone(
    given: StoredDraws,
    wanted: Wanted,
    named: _Named,
    alone: Mapping[Source, StoredDraws],
    present: Sequence[StoredDraws],
    others: Mapping[str, Sequence[StoredDraws | None]],
) -> tuple[Alone, ...]:
    """What each source does without the others."""
    maps: dict[Source, Array] = {}
    for source, draws in alone.items():
        if draws.kept_maps is not None and draws.varied:
            maps[source] = draws.kept_maps
    if present:
        maps["retraining"] = np.stack([model.origin for model in present])
    variances = _share_variance(maps, named)
    other_maps = [draws[0].origin for draws in others.values() if draws and draws[0] is not None]
    if other_maps:  # in other units
        maps["explainer"] = np.stack([given.origin, *other_maps])
    return tuple(
        _describe_source(source, values, wanted, named, variances.get(source, math.nan))
        for source, values in maps.items()
    )


def _share_variance(maps: Mapping[Source, Array], named: _Named) -> dict[Source, float]:
    """The share of each source in the variance of the reasons' values, of all sources with several maps."""
    variances: dict[Source, float] = {}
    for source, values in maps.items():
        if len(values) > 1:
            variances[source] = float(values[:, named.order].var(0, ddof=1).sum())
    total = sum(variances.values())
    if not total:
        return {}
    return {source: variance / total for source, variance in variances.items()}


def _describe_source(source: Source, maps: Array, wanted: Wanted, named: _Named, variance: float) -> Alone:
    """What one source does, by its maps `(R, F)`."""
    count = len(maps)
    if not count:
        return Alone(source, 0, math.nan, math.nan, math.nan, variance)
    signed = wanted.sign_first(maps)
    same = int(named.is_same(signed).sum())
    missing = (signed[:, named.order] != named.signs[named.order]).mean(0)
    share = same / count
    low, high = proportion_interval(same, count, _LEVEL)
    if source == "explainer":  # these are all that there are
        low, high = share, share
    return Alone(source, count, share, low, high, variance, tuple(missing.tolist()))
