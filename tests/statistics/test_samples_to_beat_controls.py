"""How many more samples decide a test against controls: with so many, about half of such tests are decided."""

from __future__ import annotations

import math

import numpy as np
import pytest

from standfast.statistics.comparison import (
    ControlTest,
    compare_with_controls,
    count_more_against_controls,
)


def share_decided(samples: int, shift: float, explainers: int, trials: int = 80) -> float:
    """How often an explainer that is better by a shift, in standard deviations, is shown to beat its control."""
    draws = np.random.default_rng(0)
    names = [f"e{number}" for number in range(explainers)]
    decided = 0
    for _ in range(trials):
        values = draws.normal(size=(samples, explainers + 1)) / math.sqrt(2)
        values[:, 0] += shift
        tests = compare_with_controls(values, [*names, "random"], ["random"], "higher")
        decided += tests[0].verdict == "beats"
    return decided / trials


def find_effect(shift: float) -> float:
    """The rank-biserial correlation of normal differences with a mean of `shift` and a variance of 1.

    It is that of the signs of means of two differences, P(sum of two > 0) - P(sum of two < 0).
    """
    return math.erf(shift * math.sqrt(2) / math.sqrt(2))


@pytest.mark.parametrize(("shift", "explainers"), [(0.3, 1), (0.5, 1), (0.5, 4)])
def test_the_number_decides_in_about_half_of_all_cases(shift: float, explainers: int) -> None:
    test = ControlTest("e0", "random", 6, None, find_effect(shift), 0.3, 1.0, 0.05)
    more = count_more_against_controls(test, explainers)
    assert more is not None
    assert 0.35 < share_decided(6 + more, shift, explainers) < 0.7
    assert share_decided(6 + 4 * more, shift, explainers) > 0.85


def test_no_effect_has_no_number() -> None:
    assert (
        count_more_against_controls(ControlTest("a", "random", 9, None, 0.0, 1.0, 1.0, 0.05), 1)
        is None
    )
    assert (
        count_more_against_controls(ControlTest("a", "random", 9, None, 1e-3, 1.0, 1.0, 0.05), 1)
        is None
    )


def test_too_few_samples_for_any_effect_have_a_number() -> None:
    """With an effect of 1, a test at 5% can decide from five samples on, and from eight for ten explainers."""
    for explainers, fewest in ((1, 5), (10, 8)):
        test = ControlTest("a", "random", 3, None, 1.0, 1.0, 1.0, 0.05)
        more = count_more_against_controls(test, explainers)
        assert more is not None
        assert 3 + more >= fewest
        assert 0.5 ** (3 + more) * explainers <= 0.05
