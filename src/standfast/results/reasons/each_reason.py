"""What is known of each feature: its state, its value with two intervals, and how often it is named."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from standfast.results.reasons.card import Reason
from standfast.results.reasons.draws import AllDraws, NamedReasons, StoredDraws, Wanted
from standfast.results.reasons.tally import Tally, find_look
from standfast.statistics.clusters import clustered_interval
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import (
    ROUNDING,
    ReasonDecision,
    State,
    decide_at_looks,
    decide_reasons,
)
from standfast.statistics.simultaneous import SimultaneousMeans, simultaneous_means
from standfast.tensors import Array

_LEVEL = 0.95
#: the ends of the range over draws
_RANGE = (0.05, 0.95)


def decide_each(
    tally: Tally, hits: Array, wanted: Wanted, named: NamedReasons, all_draws: AllDraws
) -> dict[int, ReasonDecision]:
    """The decision on each reason; none where nothing was drawn, or reasons are too many to decide them one by one."""
    drawn = tally.draws > 0
    is_open = wanted.decides_each and drawn.any() and not tally.is_all
    if not is_open or not named.order:
        return {}
    if tally.is_clustered:
        decisions = _decide_by_models(tally, hits[named.order], wanted, all_draws)
    else:
        decisions = _decide_by_draws(tally, hits[named.order, 0], wanted, named, all_draws)
    return dict(zip(named.order, decisions, strict=True))


def _decide_by_models(
    tally: Tally, hits: Array, wanted: Wanted, all_draws: AllDraws
) -> tuple[ReasonDecision, ...]:
    """The decisions by models that were trained again, whose hits are `(k, M)`."""
    drawn = tally.draws > 0
    if not wanted.model_looks:
        return decide_reasons(hits[:, drawn], tally.draws[drawn], wanted.demand, _LEVEL, look=None)
    are_present = np.array([draws is not None for draws in all_draws.retrained])
    counts: list[tuple[Array, Array]] = []
    for trained in wanted.model_looks:
        # those that decide otherwise have no column
        columns = np.flatnonzero(drawn[: are_present[:trained].sum()])
        counts.append((hits[:, columns], tally.draws[columns]))
    return decide_at_looks(counts, wanted.demand, _LEVEL)


def _decide_by_draws(
    tally: Tally, hits: Array, wanted: Wanted, named: NamedReasons, all_draws: AllDraws
) -> tuple[ReasonDecision, ...]:
    """The decisions by independent draws, whose hits are `(k,)`."""
    draws = int(tally.draws[0])
    look = max(find_look(all_draws), 1)
    if all_draws.others and tally.signed is not None and look <= len(wanted.looks):
        return decide_at_looks(_count_at_looks(tally, wanted.looks[:look], named), wanted.demand)
    limits = _find_limits(all_draws, named)
    return decide_reasons(hits, draws, wanted.demand, _LEVEL, look=look, earlier=limits)


def _count_at_looks(
    tally: Tally, looks: Sequence[int], named: NamedReasons
) -> list[tuple[Array, int]]:
    """Hits `(k,)` and draws of each look at draws of several explainers, whose limits are not stored."""
    assert tally.signed is not None
    assert tally.signed_draws is not None
    is_named = tally.signed[:, named.order] == named.signs[named.order]
    counts: list[tuple[Array, int]] = []
    for draws in looks:
        are_first = tally.signed_draws < draws
        counts.append((is_named[are_first].sum(0), int(are_first.sum())))
    return counts


def _find_limits(all_draws: AllDraws, named: NamedReasons) -> tuple[Array, Array] | None:
    """The limits of all looks at the draws of the given explainer; None where others count, or none are stored."""
    of_explainer = all_draws.given
    if all_draws.others or of_explainer.low is None or of_explainer.high is None:
        return None
    return of_explainer.low[named.order], of_explainer.high[named.order]


def list_shown(named: NamedReasons, shares: Array, wanted: Wanted) -> list[int]:
    """The numbers of the features that a card has: the reasons, and the others that draws name, by how often."""
    if not wanted.decides_each:
        return []
    others = [
        number for number in np.argsort(-shares, kind="stable").tolist() if shares[number] > 0
    ]
    return list(dict.fromkeys([*named.order, *others]))


class ReasonBuilder:
    """Makes `Reason`s of the numbers of features."""

    def __init__(
        self,
        given: StoredDraws,
        wanted: Wanted,
        names: Sequence[tuple[str, str]],
        tally: Tally,
        shown: Sequence[int],
        hits: Array,
        shares: Array,
    ) -> None:
        self.given = given
        self.wanted = wanted
        self.names = names
        self.tally = tally
        self.shown = shown
        self.hits = hits
        self.shares = shares
        self.is_reason = wanted.sign_first(given.origin[None])[0] != 0

    def build(self, decisions: Mapping[int, ReasonDecision]) -> list[Reason]:
        """The features that are shown, in their order."""
        if not self.shown:
            return []
        numbers = list(self.shown)
        ranks = _find_places(self.wanted.measure_sizes(self.given.origin))
        means = self._estimate_means(numbers)
        ranges = self._find_ranges(numbers)
        reasons: list[Reason] = []
        for position, number in enumerate(numbers):
            name = words = f"feature {number}"
            if number < len(self.names):
                name, words = self.names[number]
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
                    place=int(ranks[number]),
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
        if self.shares[number] >= self.wanted.demand:
            return "holds"
        return "falls"

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
        means = simultaneous_means(values.astype(float), _LEVEL, clusters)
        chosen = list(numbers)
        return SimultaneousMeans(
            means.mean[chosen], means.low[chosen], means.high[chosen], means.few[chosen]
        )

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
