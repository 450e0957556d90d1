"""Decisions on reasons: the exact binomial law, models, what would decide, and the error over all looks."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats

from standfast.errors import ArgumentError
from standfast.statistics import reasons as reasons_module
from standfast.statistics.decisions import spend_level
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import (
    Foresight,
    count_least_models,
    decide_at_looks,
    decide_reasons,
    find_holding,
    schedule_looks,
    schedule_models,
)


@pytest.mark.parametrize(
    ("reasons", "look", "least"), [(1, None, 29), (4, None, 42), (1, 1, 31), (4, 1, 44)]
)
def test_without_a_failure_so_many_draws_are_enough_and_one_less_is_not(
    reasons: int, look: int | None, least: int
) -> None:
    assert count_least_models(0.9, 0.95, reasons, look) == least
    states = {}
    for draws in (least - 1, least):
        hits = np.full(reasons, draws)
        states[draws] = {decision.state for decision in decide_reasons(hits, draws, look=look)}
    assert states == {least - 1: {"undecided"}, least: {"holds"}}


@pytest.mark.parametrize("draws_of_each", [1, 20, 1000])
def test_with_models_their_number_counts(draws_of_each: int) -> None:
    for models, state in [(3, "undecided"), (28, "undecided"), (29, "holds")]:
        draws = np.full(models, draws_of_each)
        decision = decide_reasons(draws[None], draws, look=None)[0]
        assert (decision.state, decision.models, decision.few) == (state, models, models < 5)
        assert decision.draws == models * draws_of_each


@pytest.mark.parametrize(("reasons", "look"), [(1, 1), (4, 2), (2, None)])
def test_states_are_those_of_the_binomial_test(reasons: int, look: int | None) -> None:
    error = 0.05 / reasons if look is None else 1 - spend_level(0.95, look, reasons)
    for hits in range(61):
        decision = decide_reasons(np.array([hits]), 60, look=look, reasons=reasons)[0]
        expected = "undecided"
        if scipy.stats.binom.sf(hits - 1, 60, 0.9) <= error:
            expected = "holds"
        elif scipy.stats.binom.cdf(hits, 60, 0.9) < error:
            expected = "falls"
        assert decision.state == expected
        assert decision.share == hits / 60
        assert (decision.low, decision.high) == pytest.approx(
            proportion_interval(hits, 60, 1 - 2 * error)
        )


def test_what_would_decide() -> None:
    assert decide_reasons(np.array([20]), 20, look=None)[0].foreseen == Foresight(30, 30, None)
    assert decide_reasons(np.array([45]), 50)[0].foreseen is None  # the share is the demand
    assert decide_reasons(np.array([47]), 50)[0].foreseen == Foresight(200, 80, None)
    # a thousand or so, which 50 draws cannot tell from 500 or 10,000
    assert decide_reasons(np.array([46]), 50)[0].foreseen == Foresight(None, 200, None)
    assert decide_reasons(np.array([50]), 50)[0].foreseen is None  # it is decided


@pytest.mark.parametrize(
    ("hits", "draws"), [(455, 500), (448, 500), (93, 100), (4495, 5000), (58, 64)]
)
def test_far_more_than_there_are_is_foreseen_as_no_number(hits: int, draws: int) -> None:
    """The share is within its own error of the demand: what a number would say of it is noise."""
    decision = decide_reasons(np.array([hits]), draws)[0]
    assert decision.state == "undecided"
    assert decision.foreseen is not None
    for number in vars(decision.foreseen).values():
        assert number is None or number <= 10 * draws
    count = decision.foreseen.count
    at_most = 10 * draws
    hits_then = round(hits / draws * at_most)
    is_decided = decide_reasons(np.array([hits_then]), at_most)[0].state != "undecided"
    assert is_decided == (count is not None)
    assert count is None or len(str(count).rstrip("0")) == 1  # one digit


@pytest.mark.parametrize(("hits", "draws"), [(19, 20), (16, 20), (93, 100), (10, 14)])
def test_so_many_draws_decide_if_the_share_stays(hits: int, draws: int) -> None:
    decision = decide_reasons(np.array([hits]), draws)[0]
    assert decision.state == "undecided"
    assert decision.foreseen is not None
    needed = decision.foreseen.count
    assert decide_reasons(np.array([round(hits / draws * needed)]), needed)[0].state != "undecided"
    fewer = needed // 3
    assert decide_reasons(np.array([round(hits / draws * fewer)]), fewer)[0].state == "undecided"


def test_so_many_models_decide_if_others_are_like_these() -> None:
    hits, draws = np.array([20, 20, 20, 20, 18, 20, 20, 20, 19, 20]), np.full(10, 20)
    foreseen = decide_reasons(hits[None], draws)[0].foreseen
    assert foreseen is not None
    times = math.ceil(foreseen.count / 10)
    assert decide_reasons(np.tile(hits, times)[None], np.tile(draws, times))[0].state == "holds"
    assert decide_reasons(np.array([[15]]), np.array([20]))[0].foreseen is not None


def test_schedules_begin_where_no_failure_is_enough_and_about_double() -> None:
    for most in (45, 60, 200, 350, 1000):
        looks = schedule_looks(most, reasons=4)
        assert (looks[0], looks[-1]) == (44, most)
        ratios = np.divide(looks[1:], looks[:-1])
        assert (ratios > 1).all()
        assert (ratios < 2.9).all()
        assert len(looks) == 2 or (ratios > 1.4).all()
    assert schedule_looks(43, reasons=4) == (43,)


def test_models_have_a_margin_for_those_that_decide_otherwise() -> None:
    for demand, reasons in ((0.9, 4), (0.9, 1), (0.8, 3)):
        looks = schedule_models(200, demand, reasons=reasons)
        least = count_least_models(demand, reasons=reasons)
        assert demand * looks[0] >= least > demand * (looks[0] - 1)
        assert looks[-1] == 200
    # nothing could be shown by 200
    least = count_least_models(0.99, reasons=4)
    assert schedule_models(200, 0.99, reasons=4) == (math.ceil(least / 0.99),)


def test_looks_together_are_those_one_after_the_other() -> None:
    counts = [(np.array([44, 44, 20]), 44), (np.array([74, 44, 64]), 92)]
    (first, first_draws), (second, second_draws) = counts
    before = decide_reasons(first, first_draws, look=1)
    limits = [d.low for d in before], [d.high for d in before]
    expected = decide_reasons(second, second_draws, look=2, earlier=limits)
    assert decide_at_looks(counts) == expected
    # a look without any draw is a look, too
    nothing = (np.zeros(3, dtype=int), 0)
    assert decide_at_looks([nothing, counts[0]]) == decide_reasons(first, first_draws, look=2)
    assert decide_at_looks([nothing]) == ()
    models = np.array([[1, 1, 0], [1, 1, 1]]), np.ones(3, dtype=int)
    no_model = np.zeros((2, 0), dtype=int), np.zeros(0, dtype=int)
    assert decide_at_looks([no_model, models]) == decide_reasons(*models, look=2)


@pytest.mark.parametrize(
    ("hits", "draws", "options", "argument"),
    [
        (np.array([3]), 2, {}, "hits"),
        (np.array(3), 5, {}, "hits"),
        (np.array([[3, 3]]), 5, {}, "draws"),
        (np.array([3]), np.array([5, 5]), {}, "draws"),
        (np.array([3]), 0, {}, "draws"),
        (np.array([3]), 5, {"demand": 1.0}, "demand"),
        (np.array([3]), 5, {"level": 0.0}, "level"),
        (np.array([3]), 5, {"look": 0}, "look"),
        (np.array([3, 3]), 5, {"reasons": 1}, "reasons"),
        (np.array([3, 3]), 5, {"earlier": ([0.5], [1.0])}, "earlier"),
    ],
)
def test_wrong_arguments_are_named(
    hits: np.ndarray, draws: object, options: dict[str, float], argument: str
) -> None:
    with pytest.raises(ArgumentError, match=f"^{argument}"):
        decide_reasons(hits, draws, **options)


def test_a_decided_reason_stays_so_and_limits_only_come_nearer() -> None:
    hits = np.array([44, 44, 20])
    low, high = np.zeros(3), np.ones(3)
    for look, draws in enumerate((44, 92, 192), 1):
        found = decide_reasons(hits, draws, look=look, earlier=(low, high))
        assert [reason.state for reason in found] == ["holds", "holds", "falls"]
        lows, highs = (
            np.array([getattr(reason, end) for reason in found]) for end in ("low", "high")
        )
        assert (lows >= low).all()
        assert (highs <= high).all()
        low, high = lows, highs
        hits += [30, 0, draws]  # alone, the first two would be undecided and fall at the next look
    assert [reason.state for reason in decide_reasons(hits, 400, look=4)] != [
        "holds",
        "holds",
        "falls",
    ]


def test_an_undecided_reason_is_decided_within_earlier_limits() -> None:
    alone = decide_reasons(np.array([90]), 100, look=2)[0]
    narrowed = decide_reasons(np.array([90]), 100, look=2, earlier=([0.0], [0.95]))[0]
    assert (alone.state, narrowed.state) == ("undecided", "undecided")
    assert (narrowed.low, narrowed.high) == (alone.low, min(alone.high, 0.95))
    assert narrowed.foreseen == alone.foreseen
    excluded = decide_reasons(np.array([10]), 100, look=2, earlier=([0.5], [0.95]))[0]
    assert (excluded.low, excluded.high, excluded.state) == (0.5, 0.95, "undecided")


@pytest.fixture
def no_foresight(monkeypatch: pytest.MonkeyPatch) -> None:
    """For simulations that ask for states alone: what would decide takes three quarters of the time."""
    monkeypatch.setattr(reasons_module, "_foresee", lambda *arguments: None)


def count_wrong(
    p: float, reasons: int, looks: tuple[int, ...], runs: int, draws_of_model: int | None = None
) -> int:
    """Runs in which any reason of this probability is decided wrongly at any look."""
    generator = np.random.default_rng(9)
    wrong = 0
    for _ in range(runs):
        hits = generator.random((reasons, looks[-1])) < p
        if draws_of_model is not None:
            own_p = generator.beta(p * 7 / 3, (1 - p) * 7 / 3, hits.shape)
            hits = generator.binomial(draws_of_model, own_p)
        mistaken = False
        limits = np.zeros(reasons), np.ones(reasons)
        before = ["undecided"] * reasons
        for look, count in enumerate(looks, 1):
            counted, draws = hits[:, :count].sum(1), np.array(count)
            if draws_of_model is not None:
                counted, draws = hits[:, :count], np.full(count, draws_of_model)
            found = decide_reasons(counted, draws, look=look, earlier=limits)
            limits = (
                np.array([reason.low for reason in found]),
                np.array([reason.high for reason in found]),
            )
            states = [reason.state for reason in found]
            assert all(
                state in ("undecided", now) for state, now in zip(before, states, strict=True)
            )
            before = states
            mistaken |= ("falls" if p >= 0.9 else "holds") in states
            if "undecided" not in states:
                break
        wrong += mistaken
    return wrong


@pytest.mark.usefixtures("no_foresight")
@pytest.mark.parametrize("draws_of_model", [None, 10])
@pytest.mark.parametrize("p", [0.9, 0.8999])
def test_few_decisions_are_wrong_over_all_looks(p: float, draws_of_model: int | None) -> None:
    wrong = count_wrong(p, 2, schedule_looks(120, reasons=2), 150, draws_of_model)
    assert proportion_interval(wrong, 150, 0.95)[0] <= 0.05


def test_of_many_features_few_that_are_found_are_wrong() -> None:
    """The mean share of pixels with less than 0.9 among those that are found, by maps whose pixels compete."""
    generator = np.random.default_rng(4)
    top, noise = 30, 0.4
    wrong: list[float] = []
    simple: list[float] = []

    def name_again(clean: np.ndarray, draws: int) -> np.ndarray:
        maps = clean + noise * generator.normal(size=(draws, len(clean)))
        limit = np.partition(np.abs(maps), -top, axis=1)[:, -top, None]
        return (np.abs(maps) >= limit) & (np.sign(maps) == np.sign(clean))

    for _ in range(30):
        clean = generator.normal(size=300)
        reasons = np.argsort(-np.abs(clean))[:top]
        probabilities = name_again(clean, 4000)[:, reasons].mean(0)
        for _ in range(5):
            hits = name_again(clean, 60)[:, reasons].sum(0)
            for shares, named in ((wrong, find_holding(hits, 60)), (simple, hits >= 54)):
                shares.append(float((probabilities[named] < 0.9).mean()) if named.any() else 0.0)
    assert np.mean(wrong) <= 0.05 < np.mean(simple)


def test_without_a_hit_or_a_draw_nothing_is_found() -> None:
    assert not find_holding(np.zeros(5), 60).any()
    assert not find_holding(np.zeros(5), 0).any()
    assert find_holding(np.array([]), 60).shape == (0,)
    with pytest.raises(ArgumentError):
        find_holding(np.ones(3), 3, demand=1.0)


@pytest.mark.slow
@pytest.mark.usefixtures("no_foresight")
@pytest.mark.parametrize("draws_of_model", [None, 10])
@pytest.mark.parametrize("reasons", [1, 4])
@pytest.mark.parametrize("p", [0.7, 0.8999, 0.9, 0.97])
def test_at_most_one_run_of_twenty_decides_wrongly(
    p: float, reasons: int, draws_of_model: int | None
) -> None:
    wrong = count_wrong(p, reasons, schedule_looks(400, reasons=reasons), 1000, draws_of_model)
    assert proportion_interval(wrong, 1000, 0.95)[0] <= 0.05


def train_until_decided(
    quality: np.ndarray, threshold: float, looks: tuple[int, ...]
) -> tuple[list[str], int]:
    """The states of the reasons at the end of training, and how many models were trained.

    Args:
        quality: of each model, uniform, `(M, 1 + k)`: the first says whether it decides alike, and others, which go
            with it, whether it names each reason.
        threshold: one of ten models decides otherwise, and of the others a reason is named by those above it.
        looks: after how many models is looked.
    """
    keeps = quality[:, 0] > 0.1
    names = (quality[:, 1:] > threshold).T.astype(int)
    counts: list[tuple[np.ndarray, np.ndarray]] = []
    states: list[str] = []
    for trained in looks:
        kept = np.flatnonzero(keeps[:trained])
        counts.append((names[:, kept], np.ones(len(kept), dtype=int)))
        states = [decision.state for decision in decide_at_looks(counts)]
        if "undecided" not in states:
            return states, trained
    return states, looks[-1]


def count_wrong_trainings(runs: int, demand: float, is_wrong: str) -> float:
    """In how many runs of two reasons, which are named exactly as often as demanded, one is decided wrongly."""
    looks = schedule_models(200, reasons=2)
    generator = np.random.default_rng(11)
    wrong = 0
    for _ in range(runs):
        own = generator.random((looks[-1], 2))
        first = generator.random(looks[-1])
        # who decides alike names the first reason more often, and the second one as often
        quality = np.column_stack([first, first, own[:, 1]])
        # of those that decide alike, the share above the threshold is the demand
        quality[:, 1] = np.where(first > 0.1, (first - 0.1) / 0.9, 0.0)
        states, _ = train_until_decided(quality, 1 - demand, looks)
        wrong += is_wrong in states
    return wrong / runs


@pytest.mark.usefixtures("no_foresight")
@pytest.mark.parametrize(("demand", "is_wrong"), [(0.8999, "holds"), (0.9, "falls")])
def test_models_that_are_trained_until_they_decide_are_wrong_as_rarely_as_allowed(
    demand: float, is_wrong: str
) -> None:
    assert count_wrong_trainings(120, demand, is_wrong) <= 0.05


@pytest.mark.slow
@pytest.mark.usefixtures("no_foresight")
@pytest.mark.parametrize(("demand", "is_wrong"), [(0.8999, "holds"), (0.9, "falls")])
def test_training_until_decided_keeps_its_error_in_many_runs(demand: float, is_wrong: str) -> None:
    assert count_wrong_trainings(4000, demand, is_wrong) <= 0.05


def test_models_decide_usual_cases_early_and_in_spite_of_one_failure() -> None:
    looks = schedule_models(200, reasons=4)
    everything = np.ones((200, 5))
    assert train_until_decided(everything, 0.5, looks) == (["holds"] * 4, 49)
    one_otherwise = everything.copy()
    one_otherwise[7, 0] = 0.0
    assert train_until_decided(one_otherwise, 0.5, looks) == (["holds"] * 4, 49)
    one_failure = everything.copy()
    one_failure[7, 2] = 0.0
    assert train_until_decided(one_failure, 0.5, looks) == (["holds"] * 4, 99)
    never = everything.copy()
    never[:, 3] = 0.0
    assert train_until_decided(never, 0.5, looks) == (["holds", "holds", "falls", "holds"], 49)
