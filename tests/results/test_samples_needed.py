"""How often the numbers of further samples hold that a verdict says: populations each have a distance of their own."""

from __future__ import annotations

import numpy as np

from standfast.results.quality import References, count_more, judge_stability
from standfast.results.verdict import Ground
from standfast.statistics.paired import bootstrap_interval
from standfast.value_spec import ValueSpec

SPEC = ValueSpec("Worst case", "similarity", "higher")
#: values above 0 are good, those below 0 bad
REFERENCES = References(1.0, -1.0, None, None)
SAMPLES = 16


def test_half_are_decided_with_the_smaller_number_and_seven_of_ten_with_the_larger() -> None:
    outcomes: list[tuple[bool, bool]] = []
    for seed in range(600):
        generator = np.random.default_rng(seed)
        distance = generator.uniform(-1.2, 1.2)
        values = distance + generator.normal(size=SAMPLES)
        estimate = bootstrap_interval(values)
        needed = count_more(SPEC, estimate, REFERENCES)
        is_open = judge_stability(SPEC, estimate, REFERENCES) == "undecided"
        # larger numbers are not said
        if not is_open or needed is None or needed > 16 * SAMPLES:
            continue
        between = Ground("mine", None, needed=needed).needed_range
        assert between is not None
        values = np.concatenate([values, distance + generator.normal(size=between[1])])
        few, many = (
            judge_stability(SPEC, bootstrap_interval(values[: SAMPLES + more]), REFERENCES)
            for more in between
        )
        outcomes.append((few != "undecided", many != "undecided"))
    few_decided, many_decided = np.mean(outcomes, axis=0)
    # of some 290 cases, shares have a standard error of 0.03
    assert len(outcomes) > 200
    assert 0.45 < few_decided < 0.68
    assert 0.66 < many_decided < 0.87


def test_no_number_is_so_small_that_it_moves_no_end_of_the_interval() -> None:
    """An interval that nearly decides needs a quarter more, as its ends are values of samples."""
    values = np.concatenate([np.linspace(0.2, 0.4, 15), np.linspace(-0.3, -0.01, 5)])
    estimate = bootstrap_interval(np.concatenate([values, [-0.001]]))
    assert judge_stability(SPEC, estimate, REFERENCES) == "undecided"
    assert count_more(SPEC, estimate, REFERENCES) == 6
