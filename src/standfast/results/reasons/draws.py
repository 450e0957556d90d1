"""`StoredDraws`: what a job has stored of a sample; and which features of a map are its reasons."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from standfast.results.reasons.card import Source
from standfast.statistics.reasons import MOST_DECIDED, ROUNDING
from standfast.tensors import Array


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
        if self.maps is None:
            return None
        return self.maps[np.isfinite(self.maps).all(1)]

    def adopt_signs(self, signs: Array) -> StoredDraws:
        """The same without signs of its own: each feature has that of `signs` `(F,)`, so that places alone count."""
        named = self.named_for + self.named_against
        return dataclasses.replace(
            self,
            origin=np.abs(self.origin) * signs,
            maps=None if self.maps is None else np.abs(self.maps) * signs,
            mean=np.abs(self.mean) * signs,
            named_for=np.where(signs > 0, named, 0),
            named_against=np.where(signs > 0, 0, named),
        )

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
        if self.maps is None:
            return 0
        return min(len(self.maps), self.drawn)


@dataclass(frozen=True)
class AllDraws:
    """All stored draws of a sample.

    Attributes:
        given: those of the model and the explainer that are explained.
        retrained: those of models that were trained again, by the same explainer; None for a model that answers
            otherwise.
        others: those of other explainers: of the given model, and behind it of the retrained ones in their order.
        alone: those in which one source varied.
    """

    given: StoredDraws
    retrained: Sequence[StoredDraws | None] = ()
    others: Mapping[str, Sequence[StoredDraws | None]] = field(default_factory=dict)
    alone: Mapping[Source, StoredDraws] = field(default_factory=dict)

    @property
    def is_clustered(self) -> bool:
        """Whether models were trained again, so that draws of one model belong together."""
        return len(self.retrained) > 0

    @property
    def present(self) -> list[StoredDraws]:
        """Those of the retrained models that answer as the given one."""
        return [draws for draws in self.retrained if draws is not None]

    @property
    def of_given_model(self) -> list[StoredDraws]:
        """Those of the given model, by each explainer; the first one is explained."""
        of_others = [draws[0] for draws in self.others.values() if draws]
        return [self.given, *(draws for draws in of_others if draws is not None)]

    @property
    def by_model(self) -> list[list[StoredDraws]]:
        """For each model whose draws count, those of each explainer: the retrained ones, or else the given one."""
        if not self.is_clustered:
            return [self.of_given_model]
        by_model: list[list[StoredDraws]] = []
        for number, draws in enumerate(self.retrained, start=1):
            if draws is None:
                continue
            of_others = [
                of_models[number] for of_models in self.others.values() if number < len(of_models)
            ]
            by_model.append([draws, *(other for other in of_others if other is not None)])
        return by_model

    @property
    def varied(self) -> tuple[Source, ...]:
        """The sources that draws differ in."""
        varied: list[Source] = list(self.given.varied)
        if self.retrained:
            varied.append("retraining")
        if self.others:
            varied.append("explainer")
        return tuple(varied)


@dataclass(frozen=True)
class Wanted:
    """What a card asks for.

    Attributes:
        top: how many features count, k.
        demand: the probability that a reason must have.
        speaking: `"both"`, or `"for"`: features that speak against the answer do not count.
        shares_places: features that share the last place are all in, as in images.
        looks: after how many draws of a job it was decided whether to draw further ones; empty where this is not known.
        model_looks: after how many retrained models it was decided whether to train further ones; empty where their
            number was fixed.
    """

    top: int
    demand: float
    speaking: str = "both"
    shares_places: bool = False
    looks: tuple[int, ...] = ()
    model_looks: tuple[int, ...] = ()

    @property
    def decides_each(self) -> bool:
        """Whether the reasons are few enough to decide each of them."""
        return self.top <= MOST_DECIDED

    def measure_sizes(self, maps: Array) -> Array:
        """What features are ordered by: absolute values, or what speaks for the answer."""
        if self.speaking == "for":
            return np.maximum(maps, 0.0)
        return np.abs(maps)

    def sign_first(self, maps: Array) -> Array:
        """For each feature of maps `(R, F)` 1 or -1 for the first ones, by their signs, and 0 for the others.

        >>> Wanted(2, 0.9).sign_first(np.array([[3.0, -2.0, 1.0, 1.0]])).tolist()
        [[1, -1, 0, 0]]
        """
        sizes = self.measure_sizes(maps)
        slack = ROUNDING * sizes.max(axis=1, keepdims=True)
        ordered = -np.sort(-np.pad(sizes, ((0, 0), (0, 1))), axis=1)
        last_in = ordered[:, self.top - 1 : self.top]
        first_out = ordered[:, self.top : self.top + 1]
        marked = sizes > first_out + slack
        if self.shares_places:
            marked = (sizes >= last_in - slack) & (sizes > slack)
        return np.asarray(np.where(marked, np.sign(maps), 0).astype(np.int8))


class NamedReasons:
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
