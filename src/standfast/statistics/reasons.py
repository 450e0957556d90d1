"""Decisions on reasons: is a reason named with at least the demanded probability, from draws that count it?

A reason *holds* if the lower one-sided limit of this probability is at least the demand, and *falls* if the upper one
is below. Only one of the two can be wrong of a reason, so each has all of its error. The errors of all reasons and
looks together are at most `1 - level` (Bonferroni for reasons, `decisions.spend_level` for looks).

What holds of all looks with the paid error holds of each: so the limits of earlier looks stay limits, and a reason that
is decided stays so.

Draws are independent, or come from retrained models, M of them: then a limit says what would hold of another model.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import betainc

from standfast.errors import check, check_integer, check_number
from standfast.statistics.clusters import has_few_clusters, limit_by_clusters, measure_clusters
from standfast.statistics.decisions import count_until, spend_level
from standfast.statistics.proportions import proportion_interval
from standfast.tensors import Array

#: each of so many reasons is decided; of more, as the pixels of an image are, only shares are known
MOST_DECIDED = 20
#: of many features that are said to hold, this share is expected to be wrong at most
MANY_ERROR = 0.05
#: two features share a place if their sizes differ by less, as a share of the largest one of their map
ROUNDING = 1e-6

State = Literal["holds", "falls", "undecided"]

#: a number of draws is foreseen up to so many times those that there are: farther off it is noise
MOST_TIMES = 10

_SAME = 1e-3  # a share this near to the demand will not be decided
_RANGE_LEVEL = 0.5  # of the interval of shares for which `Foresight` has a range


@dataclass(frozen=True)
class Foresight:
    """About how many draws, or models, are needed in all to decide, each rounded up to one digit.

    None is more than ten times as many as there are, of which the share says nothing reliable.

    Attributes:
        count: if the share stays as it is.
        least, most: for the ends of the interval of the share at 50%; `most` is None also where the demand lies in this
            interval, since a share at the demand is never decided.
    """

    count: int | None
    least: int | None
    most: int | None


@dataclass(frozen=True)
class ReasonDecision:
    """What the draws say of one reason.

    Attributes:
        share: of the draws that name it; with models, the mean of their shares.
        low, high: the one-sided limits of the probability that decide; those of earlier looks, where these are nearer.
        state: `"holds"`, `"falls"` or `"undecided"`.
        draws: how many, of all models together.
        models: how many; None for independent draws.
        few: whether there are fewer than five models.
        foreseen: what would decide, in models if there are any; None where it is decided, where the share is at the
            demand, and where one model has several draws.
    """

    share: float
    low: float
    high: float
    state: State
    draws: int
    models: int | None
    few: bool
    foreseen: Foresight | None


def decide_reasons(
    hits: Array,
    draws: Array | int,
    demand: float = 0.9,
    level: float = 0.95,
    look: int | None = 1,
    reasons: int | None = None,
    earlier: tuple[Array, Array] | None = None,
) -> tuple[ReasonDecision, ...]:
    """Decide on each reason whether it has the demanded probability.

    Args:
        hits: (k,) for independent draws, (k, M) for M models: how many draws name each reason.
        draws: how many there are; (M,) with models.
        demand: the probability that a reason must have, between 0 and 1.
        level: with this probability no decision on any reason at any look is wrong.
        look: its number, from 1; None if there is no other look, so that all of the error may be used.
        reasons: how many reasons share the error, at least k; k by default. It is the same at every look, also where
            some are decided and only the others are asked about again.
        earlier: the lower and upper limits after the looks before, `(k,)` each. They stay limits, so a reason that was
            decided stays so.

    Returns:
        k decisions.

    Raises:
        ArgumentError: a number out of its range, or shapes that do not fit.

    >>> [decision.state for decision in decide_reasons(np.array([50, 20, 46]), 50)]
    ['holds', 'falls', 'undecided']
    >>> at_first = decide_reasons(np.array([31]), 31)[0]
    >>> decide_reasons(np.array([58]), 61, look=2)[0].state
    'undecided'
    >>> decide_reasons(np.array([58]), 61, look=2, earlier=([at_first.low], [at_first.high]))[0].state
    'holds'
    >>> decide_reasons(np.array([[20, 20, 20]]), np.array([20, 20, 20]), look=None)[0].low.__round__(3)
    0.368
    """
    hits, sizes = _check_hits(hits, draws)
    check_number(demand, "demand", above=0, below=1)
    sharing = len(hits) if reasons is None else reasons
    check_integer(sharing, "reasons", least=len(hits))
    interval_level = _find_interval_level(level, look, sharing)
    decisions = [
        _decide_reason(reason_hits, reason_draws, demand, interval_level)
        for reason_hits, reason_draws in zip(hits, sizes, strict=True)
    ]
    if earlier is None:
        return tuple(decisions)
    before = np.stack([np.asarray(limits, dtype=float) for limits in earlier])
    check(
        before.shape == (2, len(hits)),
        "earlier",
        f"two arrays ({len(hits)},)",
        f"shape {before.shape}",
    )
    pairs = zip(decisions, before.T.tolist(), strict=True)
    return tuple(_keep_limits(decision, low, high, demand) for decision, (low, high) in pairs)


def find_holding(hits: Array, draws: int, demand: float = 0.9, error: float = MANY_ERROR) -> Array:
    """Which of many features are named with at least the demanded probability, such as the pixels of an image.

    There are too many for an error that holds for all of them at once. So the expected share of wrong ones among those
    that are found is at most `error`, by the procedure of Benjamini and Hochberg, "Controlling the false discovery
    rate", Journal of the Royal Statistical Society B 57 (1995), with exact binomial tests. It is shown for features
    that depend on each other positively; `docs/reasons-statistics.md` has simulations of maps, whose features compete.

    Args:
        hits: in how many draws each feature is named, `(F,)`.
        draws: independent ones. Of retrained models each is one draw, which names what all of its own draws name.
        demand: the probability that a feature must have.
        error: the share, between 0 and 1.

    Returns:
        bool `(F,)`.

    >>> find_holding(np.array([60, 60, 59, 56, 30]), 60).tolist()
    [True, True, True, False, False]
    """
    check_number(demand, "demand", above=0, below=1)
    check_number(error, "error", above=0, below=1)
    hits = np.asarray(hits)
    if not hits.size or draws < 1:
        return np.zeros(hits.shape, dtype=bool)
    # the probability of at least so many hits, where the probability of one is the demand
    at_least_one = np.maximum(hits, 1)
    tail_of_hits = betainc(at_least_one, draws - hits + 1, demand)
    tails = np.where(hits > 0, tail_of_hits, 1.0)
    # Benjamini and Hochberg: the i-th smallest of F may be at most i / F of the error
    limits = error * np.arange(1, len(tails) + 1) / len(tails)
    are_below = np.flatnonzero(np.sort(tails) <= limits)
    if not len(are_below):
        return np.zeros(hits.shape, dtype=bool)
    return np.asarray(tails <= limits[are_below[-1]])


def decide_at_looks(
    counts: Sequence[tuple[Array, Array | int]],
    demand: float = 0.9,
    level: float = 0.95,
) -> tuple[ReasonDecision, ...]:
    """Decide on each reason at several looks, each of which has all draws of the look before.

    How many draws or models a look has must be planned, and may not depend on which reasons they name. So models that
    decide otherwise, and are left out, do no harm.

    Args:
        counts: hits and draws of each look, as for `decide_reasons`; of a look without any draw the draws are 0, or
            `(0,)` of models.
        demand, level: as for `decide_reasons`.

    Returns:
        The decisions at the last look with draws, within the limits of the looks before; none without draws.

    >>> looks = [(np.array([31]), 31), (np.array([58]), 61)]
    >>> [decision.state for decision in decide_at_looks(looks)]
    ['holds']
    """
    decisions: tuple[ReasonDecision, ...] = ()
    earlier: tuple[Array, Array] | None = None
    for look, (hits, draws) in enumerate(counts, start=1):
        if not np.sum(draws):
            continue
        decisions = decide_reasons(hits, draws, demand, level, look=look, earlier=earlier)
        lows = np.array([decision.low for decision in decisions])
        highs = np.array([decision.high for decision in decisions])
        earlier = lows, highs
    return decisions


def count_least_models(
    demand: float = 0.9, level: float = 0.95, reasons: int = 1, look: int | None = 1
) -> int:
    """The fewest draws, or retrained models, that can ever show the demand: all of them name the reason.

    With models it is their number that counts: no number of draws from fewer of them is enough.

    Args:
        demand, level, reasons, look: as for `decide_reasons`.

    >>> count_least_models(0.9, look=None), count_least_models(0.9, reasons=4, look=None)
    (29, 42)
    >>> count_least_models(0.9), count_least_models(0.9, reasons=4)
    (31, 44)
    """
    check_number(demand, "demand", above=0, below=1)
    interval_level = _find_interval_level(level, look, reasons)
    tail = (1 - interval_level) / 2
    # n hits of n: the lower limit is tail^(1 / n), solved for n
    count = max(1, math.floor(math.log(tail) / math.log(demand)))
    while proportion_interval(count, count, interval_level)[0] < demand:
        count += 1
    return count


def schedule_looks(
    most: int, demand: float = 0.9, level: float = 0.95, reasons: int = 1
) -> tuple[int, ...]:
    """After how many draws, or models, to look: first where no failure is enough, and then at about twice as many.

    Few draws are needed in the usual cases, where all reasons are always named or one clearly falls;
    `docs/reasons-statistics.md` compares schedules.

    Args:
        most: the last look, at least 1. Below `count_least_models` it is the only one.
        demand, level, reasons: as for `decide_reasons`.

    >>> schedule_looks(400, reasons=4), schedule_looks(20)
    ((44, 92, 192, 400), (20,))
    """
    check_integer(most, "most")
    return _double(count_least_models(demand, level, reasons), most)


def schedule_models(
    most: int, demand: float = 0.9, level: float = 0.95, reasons: int = 1
) -> tuple[int, ...]:
    """After how many retrained models to look, with a margin for those that decide otherwise and are left out.

    If more than `1 - demand` of all models decide otherwise, the decision itself is not shown to stand. So the first
    look has as many more models as this allows.

    Args:
        most: the last look, at least 1. Below the first one, that one is the only look.
        demand, level, reasons: as for `decide_reasons`.

    >>> schedule_models(200, reasons=4), schedule_models(200), schedule_models(10)
    ((49, 99, 200), (35, 63, 112, 200), (35,))
    """
    check_integer(most, "most")
    first = math.ceil(count_least_models(demand, level, reasons) / demand)
    return _double(first, max(first, most))


def _double(first: int, most: int) -> tuple[int, ...]:
    """Looks that begin at `first`, end at `most`, and about double."""
    if most <= first:
        return (most,)
    steps = max(1, round(math.log2(most / first)))
    growth = (most / first) ** (1 / steps)
    return (first, *(round(first * growth**step) for step in range(1, steps)), most)


def _check_hits(hits: Array, draws: Array | int) -> tuple[Array, Array]:
    """Hits, and the draws of each of them, in the same shape."""
    hits, draws = np.asarray(hits), np.asarray(draws)
    check(
        hits.ndim in (1, 2) and hits.size > 0,
        "hits",
        "an array (reasons,) or (reasons, models)",
        hits.shape,
    )
    expected = hits.shape[1:]
    check(
        draws.shape == expected,
        "draws",
        f"shape {expected} for hits of shape {hits.shape}",
        draws.shape,
    )
    check(bool((draws >= 1).all()), "draws", "at least 1", draws.min())
    sizes = np.broadcast_to(draws, hits.shape)
    check(
        bool(((hits >= 0) & (hits <= sizes)).all()),
        "hits",
        "between 0 and the number of draws",
        hits.tolist(),
    )
    return hits, sizes


def _find_interval_level(level: float, look: int | None, reasons: int) -> float:
    """The level of a two-sided interval, each of whose tails has all of the error of one reason at one look."""
    check_number(level, "level", above=0, below=1)
    check_integer(reasons, "reasons")
    if look is None:
        one_sided = 1 - (1 - level) / reasons
    else:
        one_sided = spend_level(level, look, reasons)
    # each tail of a two-sided interval has 1 - one_sided
    return 2 * one_sided - 1


def _decide_reason(hits: Array, draws: Array, demand: float, level: float) -> ReasonDecision:
    """Decide on one reason, whose hits are () or (M,), by a two-sided interval at this level."""
    models = len(hits) if hits.ndim else None
    limits: _Limits
    if models is None:
        share = float(hits / draws)
        limits = _limit_draws
        size = int(draws)
    else:
        share, limits = _limit_models(hits, draws)
        size = models
    low, high = limits(share, size, level)
    state = _decide(low, high, demand)
    foreseen = None
    if state == "undecided":
        foreseen = _foresee(limits, share, size, demand, level)
    few = models is not None and has_few_clusters(models)
    return ReasonDecision(share, low, high, state, int(draws.sum()), models, few, foreseen)


def _decide(low: float, high: float, demand: float) -> State:
    if low >= demand:
        return "holds"
    if high < demand:
        return "falls"
    return "undecided"


def _keep_limits(
    decision: ReasonDecision, low: float, high: float, demand: float
) -> ReasonDecision:
    """The decision within the limits of earlier looks.

    If these exclude all that the draws say now, one of the looks is wrong, as the allowed error has it. Then the
    earlier limits stay.
    """
    ends = max(low, decision.low), min(high, decision.high)
    decided_before = _decide(low, high, demand)
    if ends[0] > ends[1]:
        ends = low, high
    state = _decide(*ends, demand) if decided_before == "undecided" else decided_before
    foreseen = decision.foreseen if state == "undecided" else None
    return dataclasses.replace(decision, low=ends[0], high=ends[1], state=state, foreseen=foreseen)


#: the limits for a share, a number of draws or models, and a level
_Limits = Callable[[float, int, float], tuple[float, float]]


def _limit_draws(share: float, count: int, level: float) -> tuple[float, float]:
    return proportion_interval(round(share * count), count, level)


def _limit_models(hits: Array, draws: Array) -> tuple[float, _Limits]:
    """The share, and the limits if other models differ as these do and have as many draws."""
    share, effect, independent = measure_clusters(hits, draws)
    draws_of_model = independent / len(hits)

    def limit(share: float, models: int, level: float) -> tuple[float, float]:
        low, high = limit_by_clusters(
            np.asarray(share), effect, draws_of_model * models, models, level
        )
        return float(low), float(high)

    return float(share), limit


def _foresee(
    limits: _Limits, share: float, size: int, demand: float, level: float
) -> Foresight | None:
    """How many draws or models decide, at the level of this look."""
    count = _count_needed(limits, share, size, demand, level)
    if count is None:
        return None
    ends = limits(share, size, _RANGE_LEVEL)
    far, near = sorted(ends, key=lambda end: abs(end - demand), reverse=True)
    least = _count_needed(limits, far, size, demand, level) or count
    most = None
    if (near - demand) * (far - demand) > 0:
        most = _count_needed(limits, near, size, demand, level)
    return Foresight(
        _round_foreseen(count, size),
        _round_foreseen(min(least, count), size),
        _round_foreseen(most, size),
    )


def _count_needed(
    limits: _Limits, share: float, size: int, demand: float, level: float
) -> int | None:
    """None where no number is enough."""
    if abs(share - demand) < _SAME:
        return None
    return count_until(
        lambda count: _decide(*limits(share, count, level), demand) != "undecided", size
    )


def _round_foreseen(count: int | None, size: int) -> int | None:
    """To one digit; None for far more than the `size` draws that there are."""
    if count is None or count > MOST_TIMES * size:
        return None
    return _round_up(count)


def _round_up(count: int) -> int:
    """To one digit.

    >>> _round_up(44), _round_up(7), _round_up(100)
    (50, 7, 100)
    """
    unit = int("1".ljust(len(str(count)), "0"))
    return -(-count // unit) * unit
