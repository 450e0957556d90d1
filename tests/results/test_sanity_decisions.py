"""What the sanity checks decide: margins, few samples, exemptions, the reason, and the accuracy of the model."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
import scipy.stats

from standfast.results.sanity import (
    GAPS,
    LUCK,
    MARGINS,
    PASSING,
    Sanity,
    decide_checks,
    find_luck,
    measure_accuracy,
)


def make_rows(count: int = 24, spread: float = 0.05, **values: float) -> pl.DataFrame:
    """Measurements of an explainer that passes, but for `values`; each column varies by `spread` around its mean."""
    means = {
        "value": 0.8,
        "within": 0.7,
        "scrambled": 0.2,
        "removal": 0.9,
        "learned": 0.9,
        "other_class": 0.0,
    } | values
    varied = {name: mean + spread * np.resize([-1.0, 1.0], count) for name, mean in means.items()}
    fixed = {
        "status": "ok",
        "negative": True,
        "linear": False,
        "classes": 3,
        "outside": np.nan,
        "gap": np.nan,
    }
    columns = {
        name: np.resize(value, count) for name, value in (fixed | values).items() if name in fixed
    }
    return pl.DataFrame({**varied, **columns})


def state_of(rows: pl.DataFrame, question: str) -> str:
    return decide_checks(rows).find(question).state  # type: ignore[arg-type]


def test_one_that_is_on_the_good_side_of_each_margin_passes() -> None:
    found = decide_checks(make_rows())
    assert (found.state, found.reason, found.needed) == ("passed", None, None)
    assert {check.question for check in found.checks if check.state == "exempt"} == {
        "accuracy",
        "baseline",
        "sum",
    }


@pytest.mark.parametrize(
    ("right", "state"),
    [(24, "passed"), (16, "passed"), (12, "undecided"), (2, "failed"), (0, "failed")],
)
def test_maps_of_a_model_near_chance_fail(right: int, state: str) -> None:
    rows = make_rows().with_columns(correct=pl.Series([1.0] * right + [0.0] * (24 - right)))
    found = decide_checks(rows)
    assert found.find("accuracy").state == state
    assert found.state == state


@pytest.mark.parametrize(
    ("question", "bad"), [("input", 0.0), ("model", 1.0), ("learned", 0.5), ("removal", 0.5)]
)
def test_a_check_fails_alone_and_is_the_reason(question: str, bad: float) -> None:
    column, margin, _ = MARGINS[question]  # type: ignore[index]
    found = decide_checks(make_rows(spread=0.02, **{column: bad}))
    assert (found.state, found.reason.question) == ("failed", question)  # type: ignore[union-attr]
    undecided = decide_checks(make_rows(spread=0.02, **{column: margin}))
    assert (undecided.state, undecided.reason.question) == ("undecided", question)  # type: ignore[union-attr]


@pytest.mark.parametrize("question", ["learned", "removal"])
def test_between_its_two_margins_a_check_stays_undecided_however_many_the_samples(
    question: str,
) -> None:
    middle = (MARGINS[question][1] + PASSING[question]) / 2  # type: ignore[index]
    check = decide_checks(make_rows(10_000, **{question: middle})).find(question)  # type: ignore[arg-type]
    assert (check.state, check.needed) == ("undecided", None)


def test_few_samples_pass_nothing_and_may_fail() -> None:
    assert decide_checks(make_rows(4, spread=0.0)).state == "undecided"
    assert state_of(make_rows(4, spread=0.0, value=0.0, scrambled=1.0), "model") == "failed"
    # equal values have no spread: the margin counts as one more sample
    five = decide_checks(make_rows(5, spread=0.0)).find("removal")
    assert five.low < 0.9 < five.high  # type: ignore[operator]


def test_the_needed_number_decides() -> None:
    rows = make_rows(8, spread=0.3, removal=0.85)
    check = decide_checks(rows).find("removal")
    assert check.state == "undecided"
    assert check.needed is not None
    assert state_of(make_rows(2 * check.needed, spread=0.3, removal=0.85), "removal") == "passed"
    assert (
        state_of(make_rows(check.needed // 2, spread=0.3, removal=0.85), "removal") == "undecided"
    )


def test_where_the_truth_is_special_the_check_steps_aside() -> None:
    assert state_of(make_rows(value=0.0, linear=True), "input") == "exempt"
    assert state_of(make_rows(spread=0.02, value=0.0), "input") == "failed"
    assert state_of(make_rows(spread=0.001, other_class=1.0), "class") == "remark"
    assert (
        state_of(make_rows(spread=0.001, other_class=1.0, classes=2, negative=False), "class")
        == "exempt"
    )
    assert state_of(make_rows(spread=0.001, other_class=1.0, classes=2), "class") == "remark"
    assert decide_checks(make_rows(spread=0.001, other_class=1.0)).state == "passed"


def test_what_could_not_be_measured_is_untested_and_does_not_pass() -> None:
    found = decide_checks(make_rows(scrambled=np.nan, learned=np.nan))
    assert (found.state, found.reason.state) == ("undecided", "untested")  # type: ignore[union-attr]
    adds_up = decide_checks(make_rows(scrambled=np.nan, learned=np.nan, gap=0.0))
    assert adds_up.state == "passed"


def test_baselines_outside_and_sums_that_are_missed_fail() -> None:
    assert state_of(make_rows(outside=0.0), "baseline") == "passed"
    assert state_of(make_rows(outside=0.5), "baseline") == "failed"
    states = [
        state_of(make_rows(gap=gap), "sum") for gap in (GAPS[0] / 2, sum(GAPS) / 2, 2 * GAPS[1])
    ]
    assert states == ["passed", "remark", "failed"]


def test_samples_without_a_finite_map_are_counted() -> None:
    rows = make_rows().with_columns(status=pl.Series(["nonfinite"] * 20 + ["ok"] * 4))
    assert state_of(rows, "finite") == "failed"
    none = make_rows().with_columns(status=pl.lit("degenerate"))
    found: Sanity = decide_checks(none)
    assert (found.state, found.reason.question) == ("failed", "finite")  # type: ignore[union-attr]


def test_the_accuracy_is_near_chance_only_where_it_is_shown_not_to_be_good() -> None:
    rows = make_rows(60)
    assert measure_accuracy(rows) is None
    right = rows.with_columns(correct=pl.Series([1.0] * 54 + [0.0] * 6))
    found = measure_accuracy(right)
    assert (found.value, found.chance, found.near_chance) == (0.9, 1 / 3, False)
    guessed = measure_accuracy(rows.with_columns(correct=pl.Series([1.0] * 20 + [0.0] * 40)))
    assert guessed.near_chance
    few = measure_accuracy(make_rows(3).with_columns(correct=pl.Series([1.0, 1.0, 0.0])))
    assert not few.near_chance


def test_luck_with_one_group_is_the_prediction_interval_of_the_textbook() -> None:
    """The map is a fourth value beside those of three scrambled models: t = (y - mean) / (s sqrt(1 + 1/3))."""
    effects = np.array([0.3, -0.1, 0.5])
    # what a sample adds is the same for all
    own, rows = (
        2.0,
        np.random.default_rng(0).normal(size=(12, 1)),
    )
    gains = own - effects + 0 * rows
    t = (own - effects.mean()) / (effects.std(ddof=1) * np.sqrt(4 / 3))
    assert find_luck(gains, np.zeros(12)) == pytest.approx(scipy.stats.t.sf(t, 2))


def test_luck_compares_scrambled_models_of_the_same_group_only() -> None:
    """Again by loops; what the samples of a group have in common is no spread of scrambled models."""
    generator = np.random.default_rng(1)
    groups = np.arange(23) % 5
    gains = generator.normal(1.0, 0.6, (5, 3))[groups] + generator.normal(0, 0.1, (23, 3))
    gains[groups == 2, 1] = np.nan  # one of the scrambled models could not be explained
    means = [[gains[groups == group, place].mean() for place in range(3)] for group in range(5)]
    kept = [[mean for mean in row if not np.isnan(mean)] for row in means]
    spread = sum((mean - np.mean(row)) ** 2 for row in kept for mean in row) / 9
    t = np.mean(np.concatenate(kept)) / np.sqrt(spread * (1 + 1 / 14))
    assert find_luck(gains, groups) == pytest.approx(scipy.stats.t.sf(t, 9))
    shifts = generator.normal(0, 5, 5)
    shifts -= np.average(shifts, weights=[3, 3, 2, 3, 3])
    assert find_luck(gains + shifts[groups][:, None], groups) == pytest.approx(
        scipy.stats.t.sf(t, 9)
    )


def test_luck_without_two_scrambled_models_of_a_group_is_certain() -> None:
    one = np.full((10, 3), np.nan)
    one[:, 0] = 1.0
    assert find_luck(one, np.zeros(10)) == 1.0
    assert find_luck(np.full((10, 3), np.nan), np.zeros(10)) == 1.0
    assert find_luck(np.ones((10, 3)), np.zeros(10)) == 0.0  # all of them are equally far below


@pytest.mark.parametrize("trials", [800, pytest.param(4000, marks=pytest.mark.slow)])
def test_a_scrambled_model_is_taken_for_another_one_in_at_most_the_stated_share(
    trials: int,
) -> None:
    """Maps that are one more draw of the scrambled models, on few and many samples, with noise of each sample."""
    generator = np.random.default_rng(2)
    for count, noise in ((100, 0.0), (100, 1.0), (24, 1.0)):
        groups = np.arange(count) % 5
        lucky = 0
        for _ in range(trials):
            own = generator.normal() + noise * generator.normal(size=(count, 1))
            others = generator.normal(size=(5, 3))[groups] + noise * generator.normal(
                size=(count, 3)
            )
            lucky += find_luck(own - others, groups) <= LUCK
        # so many or more have a probability of 0.001 if the share is the stated one
        assert lucky < scipy.stats.binom.isf(0.001, trials, LUCK)


def test_a_map_that_may_be_lucky_does_not_pass_and_does_not_fail() -> None:
    def add_gains(rows: pl.DataFrame, effects: list[float]) -> pl.DataFrame:
        columns = {
            f"gain {place}": np.full(len(rows), effect) for place, effect in enumerate(effects)
        }
        return rows.with_columns(group=pl.lit(0.0), **columns)

    lucky = decide_checks(add_gains(make_rows(), [0.1, 0.5, 1.2]))
    assert (lucky.state, lucky.reason.question, lucky.needed) == ("undecided", "learned", None)  # type: ignore[union-attr]
    assert decide_checks(add_gains(make_rows(), [0.9, 1.0, 1.1])).state == "passed"
    assert decide_checks(make_rows()).state == "passed"  # stored by older rules, without gains
    worse = decide_checks(add_gains(make_rows(spread=0.02, learned=0.5), [0.9, 1.0, 1.1]))
    assert worse.find("learned").state == "failed"
