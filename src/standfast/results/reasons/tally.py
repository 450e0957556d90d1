"""`Tally`: in how many draws each feature is named, over models and explainers.

A draw is one of a model, by an explainer that is drawn at random. So draws of a model are a cluster. Other explainers
have other units, so their draws enter places and signs, and no value.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.results.reasons.draws import AllDraws, NamedReasons, StoredDraws, Wanted
from standfast.tensors import Array


@dataclass(frozen=True)
class Tally:
    """In how many draws each feature is named.

    Attributes:
        positive, negative: by the sign of the feature, of each model, `(F, M)`.
        draws: of each model, `(M,)`.
        same, in_order: draws of each model with the same reasons, and also in the same order, `(M,)`.
        is_clustered: whether models were trained again; else there is one column.
        is_all: whether the draws are all that there are, and so nothing is uncertain.
        again: which part of the reasons each draw names, `(R,)`, and the models of these draws; None if not stored.
        values: the maps of the explainer itself, `(V, F)`, and their models `value_models` `(V,)`; None if not stored.
        signed: of independent draws what each of them names, by its sign, `(R, F)`, and the numbers of these draws,
            from 0, `signed_draws` `(R,)`; None of models that were trained again, and if not stored.
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
    signed: Array | None = None
    signed_draws: Array | None = None

    def count_hits(self, signs: Array) -> Array:
        """Draws that name each feature with its sign, `(F, M)`; of features that are no reasons, with any sign."""
        column = signs[:, None]
        any_sign = self.positive + self.negative
        return np.where(column > 0, self.positive, np.where(column < 0, self.negative, any_sign))


def tally_draws(all_draws: AllDraws, wanted: Wanted, named: NamedReasons) -> Tally:
    """The draws of all models and explainers together."""
    by_model = all_draws.by_model
    are_stored = all(draws.maps is not None for model in by_model for draws in model)
    count = _tally_stored if are_stored else _tally_counts
    return count(by_model, wanted, named, all_draws.is_clustered)


@dataclass(frozen=True)
class _Counts:
    """The counts of a model whose draws are not stored; its fields are those of `Tally` for this model.

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
    by_model: Sequence[Sequence[StoredDraws]],
    wanted: Wanted,
    named: NamedReasons,
    is_clustered: bool,
) -> Tally:
    """The counts of large maps, whose draws are not stored."""
    counted: list[_Counts] = []
    for of_explainers in by_model:
        is_given = not is_clustered and len(of_explainers) == 1
        counted.append(
            _join_counts([_count_named(draws, wanted, named, is_given) for draws in of_explainers])
        )
    if not is_clustered and not counted[0].varies and len(by_model[0]) == 1:
        counted = []  # nothing varied at all
    if not counted:
        return _tally_nothing(named, is_clustered)
    return Tally(
        positive=np.stack([model.positive for model in counted], 1),
        negative=np.stack([model.negative for model in counted], 1),
        draws=np.array([model.draws for model in counted], dtype=np.int64),
        same=np.round([model.same for model in counted]),
        in_order=np.round([model.in_order for model in counted]),
        is_clustered=is_clustered,
        is_all=not is_clustered and not counted[0].varies,
    )


def _tally_nothing(named: NamedReasons, is_clustered: bool) -> Tally:
    """No draw at all: of no model, or of one model that has none."""
    nothing = np.zeros((len(named.signs), 0 if is_clustered else 1), dtype=np.int64)
    return Tally(nothing, nothing, nothing[0], nothing[0], nothing[0], is_clustered)


def _count_named(
    draws: StoredDraws, wanted: Wanted, named: NamedReasons, is_given: bool
) -> _Counts:
    """The counts of one model and explainer.

    How often all reasons are named is stored for the reasons of this job: of the given explainer alone, these are those
    of the card.
    """
    if draws.varied:
        same, order = (
            math.nan if share is None else float(share) * draws.kept
            for share in _read_shares(draws)
        )
        if not is_given:
            same = math.nan
            order = math.nan
        return _Counts(draws.named_for, draws.named_against, draws.kept, same, order, True)
    signed = wanted.sign_first(draws.origin[None])
    same = float(named.is_same(signed)[0])
    order = same * float(named.is_in_order(draws.origin[None])[0])
    return _Counts(
        (signed[0] > 0).astype(np.int64), (signed[0] < 0).astype(np.int64), 1, same, order, False
    )


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
        draws
        * np.mean(
            [np.asarray(getattr(counts, name)) / max(counts.draws, 1) for counts in of_explainers],
            axis=0,
        )
        for name in ("positive", "negative", "same", "in_order")
    ]
    positive, negative = (np.round(counts).astype(np.int64) for counts in joined[:2])
    return _Counts(positive, negative, draws, float(joined[2]), float(joined[3]), bool(varying))


@dataclass(frozen=True)
class _MixedDraws:
    """Draws of one model, each by an explainer that is drawn at random.

    Attributes:
        maps: `(R, F)`.
        explainers: the number of the explainer of each, `(R,)`; 0 is the given one.
        numbers: of the draws, from 0, among them those that do not keep the answer and are left out here, `(R,)`.
        are_all: whether these are all that there are, since nothing varies but explainers.
    """

    maps: Array
    explainers: Array
    numbers: Array
    are_all: bool = False


class _NamedDraws:
    """What each draw of one model names.

    Attributes:
        mixed: the draws.
        signed: 1 or -1 for the features that a draw names, by their signs, and 0 for the others, `(R, F)`.
        is_same: whether a draw names all reasons, bool `(R,)`.
        is_in_order: whether it also has them in their order, bool `(R,)`.
        again: which part of the reasons a draw names, `(R,)`.
    """

    def __init__(self, mixed: _MixedDraws, wanted: Wanted, named: NamedReasons) -> None:
        self.mixed = mixed
        self.signed = _sign_draws(mixed.maps, wanted)
        self.is_same = named.is_same(self.signed)
        self.is_in_order = self.is_same & named.is_in_order(mixed.maps)
        self.again = named.measure_again(self.signed)

    @property
    def own_maps(self) -> Array:
        """The maps of the given explainer among them, `(V, F)`."""
        is_own = self.mixed.explainers == 0
        return np.asarray(self.mixed.maps[is_own])


def _tally_stored(
    by_model: Sequence[Sequence[StoredDraws]],
    wanted: Wanted,
    named: NamedReasons,
    is_clustered: bool,
) -> Tally:
    """The counts of draws, each by an explainer that is drawn at random."""
    if not by_model:
        return _tally_nothing(named, is_clustered)
    mixed = _mix_models(by_model, is_clustered)
    models = [_NamedDraws(draws, wanted, named) for draws in mixed]
    signed = [model.signed for model in models]
    own_maps = [model.own_maps for model in models]
    named_again = [model.again for model in models]
    return Tally(
        positive=np.stack([(of_model > 0).sum(0) for of_model in signed], axis=-1),
        negative=np.stack([(of_model < 0).sum(0) for of_model in signed], axis=-1),
        draws=np.array([len(of_model) for of_model in signed]),
        same=np.array([model.is_same.sum() for model in models]),
        in_order=np.array([model.is_in_order.sum() for model in models]),
        is_clustered=is_clustered,
        is_all=not is_clustered and all(draws.are_all for draws in mixed),
        values=np.concatenate(own_maps),
        value_models=_number_rows(own_maps),
        again=(np.concatenate(named_again), _number_rows(named_again)),
        signed=None if is_clustered else signed[0],
        signed_draws=None if is_clustered else mixed[0].numbers,
    )


def _mix_models(by_model: Sequence[Sequence[StoredDraws]], is_clustered: bool) -> list[_MixedDraws]:
    """The draws of each model, by explainers that are drawn at random; none where nothing differs."""
    mixed = [
        _mix_explainers(of_explainers, number) for number, of_explainers in enumerate(by_model)
    ]
    if not is_clustered and _varies_in_nothing(by_model[0]):
        return [_take_none(mixed[0])]
    return mixed


def _varies_in_nothing(of_explainers: Sequence[StoredDraws]) -> bool:
    """Whether there is one explainer, and nothing differs in its draws."""
    return len(of_explainers) == 1 and not of_explainers[0].varied


def _take_none(mixed: _MixedDraws) -> _MixedDraws:
    """No draw: the clean map alone says nothing of others."""
    return _MixedDraws(mixed.maps[:0], mixed.explainers[:0], mixed.numbers[:0])


def _number_rows(parts: Sequence[Array]) -> Array:
    """For each row of all parts together the number of its part, from 0."""
    lengths = [len(part) for part in parts]
    return np.asarray(np.repeat(np.arange(len(parts)), lengths))


def _sign_draws(maps: Array, wanted: Wanted) -> Array:
    """What each of the draws `(R, F)` names, as `Wanted.sign_first` says it; of no draws nothing."""
    if not len(maps):
        return np.zeros(maps.shape, dtype=np.int8)
    return wanted.sign_first(maps)


def _mix_explainers(of_explainers: Sequence[StoredDraws], seed: int) -> _MixedDraws:
    """Draws of a model, each by an explainer with the same probability.

    The draws of all explainers with the same number have the same changed input and the same background. So of each
    number one explainer is taken, and draws of different numbers are independent. Only numbers that all explainers
    have are taken: after these, it would depend on the draws which explainer is left.
    """
    varying = [draws for draws in of_explainers if draws.varied]
    if not varying:
        maps = np.stack([draws.origin for draws in of_explainers])
        numbers = np.arange(len(maps))
        return _MixedDraws(maps, numbers, numbers, are_all=len(maps) > 1)
    count = min(draws.made for draws in varying)
    chosen = np.zeros(count, dtype=int)
    if len(of_explainers) > 1:
        chosen = np.random.default_rng([seed, 1]).integers(0, len(of_explainers), size=count)
    mixed = np.full((count, len(of_explainers[0].origin)), np.nan)
    for explainer, draws in enumerate(of_explainers):
        is_chosen = chosen == explainer
        if draws.varied and draws.maps is not None:
            mixed[is_chosen] = draws.maps[:count][is_chosen]
        else:
            mixed[is_chosen] = draws.origin  # where nothing varies, the clean map is the only one
    keeps = np.isfinite(mixed).all(1)
    return _MixedDraws(mixed[keeps], chosen[keeps], np.flatnonzero(keeps))


def find_look(all_draws: AllDraws) -> int:
    """After how many looks the draws that are taken ended: those of several explainers, with the first that ends."""
    return min((draws.looks for draws in all_draws.of_given_model if draws.varied), default=1)
