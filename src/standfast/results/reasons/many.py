"""Which features hold, of maps with too many reasons to decide each of them with an error for all."""

from __future__ import annotations

import numpy as np

from standfast.results.reasons.draws import NamedReasons, Wanted
from standfast.results.reasons.tally import Tally
from standfast.statistics.reasons import find_holding
from standfast.tensors import Array


def find_held(tally: Tally, hits: Array, wanted: Wanted, named: NamedReasons) -> Array:
    """Which features are reasons that hold, bool `(F,)`.

    Args:
        tally: the draws.
        hits: in how many draws of each model a feature is named with its sign, `(F, M)`.
        wanted: what is asked for.
        named: the reasons.
    """
    holds = np.zeros(len(named.signs), dtype=bool)
    drawn = tally.draws > 0
    if not drawn.any():
        return holds
    hits_of_reasons = hits[named.order][:, drawn]
    draws_of_models = tally.draws[drawn]
    if tally.is_all:  # nothing is uncertain
        holds[named.order] = hits_of_reasons.sum(1) >= wanted.demand * draws_of_models.sum()
        return holds
    draws = int(draws_of_models[0])
    counted = hits_of_reasons[:, 0]
    if tally.is_clustered:
        draws = len(draws_of_models)
        counted = (hits_of_reasons >= draws_of_models).sum(1)
    holds[named.order] = find_holding(counted, draws, wanted.demand)
    return holds
