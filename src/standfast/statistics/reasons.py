"""Decisions on reasons: is a reason named with at least the demanded probability, from draws that count it?

A reason *holds* if the lower one-sided limit of this probability is at least the demand, and *falls* if the upper one
is below. Either error is at most `1 - level` for all reasons and all looks together (Bonferroni, and
`decisions.spend_level` for looks); both cannot be wrong of the same reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from standfast.errors import check, check_integer, check_number
from standfast.statistics.clusters import clustered_intervals, has_few_models
from standfast.statistics.decisions import count_until, spend_level
from standfast.statistics.proportions import proportion_interval, proportion_intervals
from standfast.tensors import Array

State = Literal["holds", "falls", "undecided"]


@dataclass(frozen=True)
class Foresight:
    """About how many draws (with clusters: models) decide, rounded up to one digit.

    Attributes:
        count: if the share stays as it is.
        least, most: for shares in an interval at 50%; `most` is None where the demand itself lies in it, since no number
            of draws is enough there.
    """

    count: int
    least: int
    most: int | None


@dataclass(frozen=True)
class ReasonDecision:
    """What the draws say of one reason.

    Attributes:
        share: of the draws that name it.
        low, high: one-sided limits of the probability, at the level that decides.
        state: `"holds"`, `"falls"` or `"undecided"`.
        draws: number of draws.
        clusters: number of models; None for draws that are independent.
        few: whether the limits are less reliable than their level, since there are few models.
        foreseen: what would decide; None where the state is decided, and where no number of draws is enough.
    """

    share: float
    low: float
    high: float
    state: State
    draws: int
    clusters: int | None
    few: bool
    foreseen: Foresight | None


def decide_reasons(
    hits: Array,
    draws: Array | int,
    demand: float = 0.9,
    level: float = 0.95,
    look: int | None = 1,
    reasons: int | None = None,
) -> tuple[ReasonDecision, ...]:
    """Decide on k reasons.

    Args:
        hits: (k,) for independent draws, (k, M) for M models: how many draws name each reason.
        draws: their number; (M,) with models.
        demand: the probability that a reason must have, between 0 and 1.
        level: with this probability no decision on any reason at any look is wrong.
        look: its number, from 1; None if there will be no other.
        reasons: how many reasons pay for the error; k by default.

    Raises:
        ArgumentError: numbers out of their range, or shapes that do not fit.

    >>> [found.state for found in decide_reasons(np.array([50, 20, 45]), 50)]
    ['holds', 'falls', 'undecided']
    """
    hits = np.asarray(hits)
    check(hits.ndim in (1, 2) and len(hits) > 0, "hits", "an array (reasons,) or (reasons, models)", hits.shape)
    tail_level = _find_interval_level(level, look, len(hits) if reasons is None else reasons)
    check_number(demand, "demand", above=0, below=1)
    clustered = hits.ndim == 2
    sizes = np.broadcast_to(np.asarray(draws), hits.shape)
    check(bool(((hits >= 0) & (hits <= sizes)).all()), "hits", "between 0 and the number of draws", hits.tolist())
    if clustered:
        low, high = clustered_intervals(hits, sizes, tail_level)
    else:
        low, high = proportion_intervals(hits, sizes, tail_level)
    return tuple(
        _describe(hits[i], sizes[i], float(low[i]), float(high[i]), demand, tail_level) for i in range(len(hits))
    )


def _describe(hits: Array, draws: Array, low: float, high: float, demand: float, tail_level: float) -> ReasonDecision:
    all_draws = int(draws.sum())
    state: State = "undecided"
    if low >= demand:
        state = "holds"
    elif high < demand:
        state = "falls"
    foreseen = _foresee(hits, draws, demand, tail_level) if state == "undecided" else None
    clusters = len(hits) if hits.ndim else None
    few = clusters is not None and has_few_models(hits, draws)
    return ReasonDecision(float(hits.sum() / all_draws), low, high, state, all_draws, clusters, few, foreseen)


def count_least_models(demand: float, level: float = 0.95, reasons: int = 1, look: int | None = 1) -> int:
    """The fewest draws, or retrained models, that can ever show the demand: all of them name the reason.

    Args:
        demand, level, reasons, look: as for `decide_reasons`.

    >>> count_least_models(0.9, look=None), count_least_models(0.9, reasons=4, look=None), count_least_models(0.9)
    (29, 42, 31)
    """
    tail = (1 - _find_interval_level(level, look, reasons)) / 2
    check_number(demand, "demand", above=0, below=1)
    count = max(1, math.ceil(math.log(tail) / math.log(demand)) - 1)
    while proportion_interval(count, count, 1 - 2 * tail)[0] < demand:
        count += 1
    return count


def schedule_looks(most: int, demand: float = 0.9, level: float = 0.95, reasons: int = 1) -> tuple[int, ...]:
    """The numbers of draws after which to look: 50, 100, 200, ... up to `most`.

    >>> schedule_looks(400)
    (50, 100, 200, 400)
    """
    looks = [50]
    while 2 * looks[-1] <= most:
        looks.append(2 * looks[-1])
    return tuple(looks)


def _find_interval_level(level: float, look: int | None, reasons: int) -> float:
    """The level of a two-sided interval, each of whose tails has all of the error of one reason at one look."""
    check_integer(reasons, "reasons")
    if look is None:
        return 1 - 2 * (1 - level) / reasons
    return 1 - 2 * (1 - spend_level(level, look, reasons))


def _foresee(hits: Array, draws: Array, demand: float, tail_level: float) -> Foresight | None:
    return None
