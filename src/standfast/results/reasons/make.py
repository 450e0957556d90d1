"""`make_card`: the card of one sample, from the stored draws of the metric `reasons`.

The draws of one model and one explainer are in a job. Models that were trained again and other explainers are in jobs
of their own. `make_card` takes them together (`tally`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standfast.results.reasons.alone import describe_alone
from standfast.results.reasons.card import Card, Source
from standfast.results.reasons.draws import AllDraws, NamedReasons, StoredDraws, Wanted
from standfast.results.reasons.each_reason import ReasonBuilder, decide_each, list_shown
from standfast.results.reasons.many import find_held
from standfast.results.reasons.tally import Tally, tally_draws
from standfast.results.reasons.together import estimate_same
from standfast.statistics.simultaneous import share_unseen


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
    all_draws = AllDraws(given, retrained, others or {}, alone or {})
    named = NamedReasons(given.origin, wanted)
    tally = tally_draws(all_draws, wanted, named)
    hits = tally.count_hits(named.signs)
    draws = int(tally.draws.sum())
    shares = hits.sum(1) / draws if draws else np.full(len(given.origin), np.nan)
    decisions = decide_each(tally, hits, wanted, named, all_draws)
    shown = list_shown(named, shares, wanted)
    features = ReasonBuilder(given, wanted, names, tally, shown, hits, shares).build(decisions)
    same, same_low, same_high = estimate_same(tally, all_draws, wanted)
    counted = all_draws.present or [given]
    return Card(
        **{**about, "model": given.model, "explainer": given.explainer},
        top=wanted.top,
        demand=wanted.demand,
        reasons=tuple(feature for feature in features if named.signs[feature.feature] != 0),
        others=tuple(feature for feature in features if named.signs[feature.feature] == 0),
        same=same,
        same_low=same_low,
        same_high=same_high,
        same_order=_share_in_order(tally, wanted),
        chance=wanted.top / len(given.origin),
        drawn=sum(of_model.drawn for of_model in counted),
        kept=sum(of_model.kept for of_model in counted),
        draws=draws,
        varied=all_draws.varied,
        models=len(retrained),
        deciding_otherwise=len(retrained) - len(all_draws.present),
        alone=describe_alone(all_draws, wanted, named),
        few_models=any(decision.few for decision in decisions.values()),
        decided=wanted.decides_each,
        origin=given.origin,
        shares=shares,
        signs=named.signs,
        held=None if wanted.decides_each else find_held(tally, hits, wanted, named),
        names=tuple(name for name, _ in names),
        speaking=wanted.speaking,
        unseen=_share_unseen(tally),
    )


def _share_in_order(tally: Tally, wanted: Wanted) -> float:
    """In which share of draws the reasons have the same order; NaN where it is not known."""
    draws = int(tally.draws.sum())
    if not draws or not wanted.decides_each:
        return math.nan
    return float(tally.in_order.sum() / draws)


def _share_unseen(tally: Tally) -> float:
    """What part of all draws, or models, those of the means may have missed; NaN where there are no means."""
    if tally.is_all or tally.values is None or tally.value_models is None or not len(tally.values):
        return math.nan
    independent = len(tally.values)
    if tally.is_clustered:
        independent = len(np.unique(tally.value_models))
    return share_unseen(independent)
