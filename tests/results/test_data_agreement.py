"""Agreement between data sets, such as windows of time: known mean maps, and intervals that cover them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from standfast.results.agreement import Measure, Pair, measure_data_agreement
from standfast.tensors import Array

#: of the features of a data set; far apart, in the unit of the noise
MEANS = np.array([8.0, -6.0, 4.0, -2.0, 1.0])


def draw(means: Array, count: int, noise: float, seed: int) -> dict[int, Array]:
    """Maps of so many samples, of two seeds each."""
    rng = np.random.default_rng(seed)
    own = means + noise * rng.normal(size=(count, len(means)))
    return {place: np.array([each + 0.01, each - 0.01]) for place, each in enumerate(own)}


def compare(
    first: Array,
    second: Array,
    measure: Measure,
    noise: float = 0.1,
    count: int = 30,
    seed: int = 0,
) -> Pair:
    found = {
        ("2023", "e"): draw(first, count, noise, seed),
        ("2024", "e"): draw(second, count, noise, seed + 10_000),
    }
    return measure_data_agreement(found, "m", 2).find(0, 1, measure)


@pytest.mark.parametrize(
    ("order", "sign", "expected"),
    [
        ([0, 1, 2, 3, 4], 1, (1.0, 1.0, 1.0)),
        ([4, 3, 2, 1, 0], 1, (-1.0, 0.0, 1.0)),
        # one of ten pairs is in another order, and both have another sign
        (
            [1, 0, 2, 3, 4],
            1,
            (0.8, 1.0, 0.0),
        ),
        ([0, 1, 2, 3, 4], -1, (1.0, 1.0, 0.0)),
    ],
)
def test_mean_maps_are_compared(order: list[int], sign: int, expected: tuple[float, ...]) -> None:
    measures: tuple[Measure, ...] = ("kendall", "overlap", "signs")
    for measure, value in zip(measures, expected, strict=True):
        pair = compare(MEANS, sign * MEANS[order], measure)
        assert pair.median == pytest.approx(value)
        assert pair.low == pytest.approx(value)
        assert pair.high == pytest.approx(value)
        assert pair.samples == 30


def test_a_data_set_agrees_with_itself_over_halves_and_chance_is_that_of_random_orders() -> None:
    found = {("2023", "e"): draw(MEANS, 30, 0.1, 0), ("2024", "e"): draw(MEANS[::-1], 30, 0.1, 1)}
    agreement = measure_data_agreement(found, "m", 2)
    assert agreement.find(0, 0).median == 1.0
    # of two of five: 0, 1/2 and 1 with probability 0.3, 0.6, 0.1
    assert agreement.find(0, 1, "overlap").chance == 0.5
    assert abs(agreement.find(0, 1).chance) <= 0.2
    frame = agreement.frame()
    assert frame["data"].to_list()[1:2] == ["2023"]
    assert {"other_data", "explainer", "other_explainer"} < set(frame.columns)


def test_intervals_cover_the_agreement_of_all_samples() -> None:
    """Of 40 intervals of 95%, fewer than 33 cover with a probability below 0.1%."""
    means, changed = np.linspace(2, 0.5, 6), np.array([1.4, 1.9, 1.6, 0.7, 1.2, 0.4])
    noise = np.random.default_rng(1).normal(size=(200_000, 6))
    truth = [np.abs(each + noise).mean(0) for each in (means, changed)]
    exact = float(stats.kendalltau(*truth).statistic)
    pairs = [compare(means, changed, "kendall", 1.0, 24, seed) for seed in range(40)]
    held = sum(pair.low - 1e-9 <= exact <= pair.high + 1e-9 for pair in pairs)  # type: ignore[operator]
    assert stats.binom.cdf(32, 40, 0.95) < 1e-3
    assert held >= 33
