"""The interval of a proportion whose samples were counted several times: against a sum over all ways to end."""

from __future__ import annotations

import itertools

import pytest
from scipy import stats

from standfast.statistics.proportions import proportion_interval, stopped_interval

LOOKS = ((10, 4), (20, 5), (40, 6))
End = tuple[int, int]


def list_ends(p: float) -> dict[End, float]:
    """The probability of each number of samples and hits at the end, by a sum over the hits of all parts."""
    found: dict[End, float] = {}
    open_ends, drawn = {0: 1.0}, 0
    for samples, least in LOOKS:
        chances = stats.binom.pmf(range(samples - drawn + 1), samples - drawn, p)
        going_on: dict[int, float] = {}
        for (hits, before), (more, chance) in itertools.product(
            open_ends.items(), enumerate(chances)
        ):
            ended = hits + more >= least or samples == LOOKS[-1][0]
            if ended:
                found[samples, hits + more] = (
                    found.get((samples, hits + more), 0.0) + before * chance
                )
            else:
                going_on[hits + more] = going_on.get(hits + more, 0.0) + before * chance
        open_ends, drawn = going_on, samples
    return found


def is_larger(end: End, other: End) -> bool:
    """Whether it speaks for a larger proportion: fewer samples, or as many and more hits."""
    return (-end[0], end[1]) > (-other[0], other[1])


@pytest.mark.parametrize("end", [(10, 6), (20, 5), (20, 8), (40, 6), (40, 3)])
def test_each_end_leaves_its_tail(end: End) -> None:
    low, high = stopped_interval(end[1], end[0], LOOKS, 0.9)
    at_low, at_high = list_ends(low), list_ends(high)
    assert sum(at_low.values()) == pytest.approx(1)
    assert sum(
        chance for own, chance in at_low.items() if not is_larger(end, own)
    ) == pytest.approx(0.05, abs=1e-6)
    assert sum(
        chance for own, chance in at_high.items() if not is_larger(own, end)
    ) == pytest.approx(0.05, abs=1e-6)


@pytest.mark.parametrize("p", [0.05, 0.2, 0.4, 0.7])
def test_intervals_hold_for_every_proportion(p: float) -> None:
    held = 0.0
    for (samples, hits), chance in list_ends(p).items():
        low, high = stopped_interval(hits, samples, LOOKS, 0.9)
        held += chance * (low <= p <= high)
    assert held >= 0.9


def test_the_first_look_is_that_of_clopper_and_pearson() -> None:
    assert stopped_interval(7, 10, LOOKS, 0.95) == proportion_interval(7, 10, 0.95)
    assert stopped_interval(0, 30, (), 0.95) == proportion_interval(0, 30, 0.95)
    assert stopped_interval(20, 20, LOOKS, 0.95)[1] == 1.0
