"""Cards from draws that are made by hand."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from standfast.report.cards.words import describe_card
from standfast.results.reasons import Card, StoredDraws, Wanted, make_card
from standfast.statistics.proportions import proportion_interval
from standfast.statistics.reasons import decide_at_looks, decide_reasons
from standfast.tensors import Array

ABOUT: dict[str, Any] = {"data": "d", "sample": 0, "answer": "yes", "score": 0.8}
ORIGIN = [3.0, -2.0, 1.0, 0.5]


def make_draws(
    maps: Array | None = None,
    origin: list[float] = ORIGIN,
    model: str = "m",
    explainer: str = "e",
    drawn: int = 0,
) -> StoredDraws:
    """The draws of a job; without maps nothing varied."""
    kept = np.zeros((0, len(origin))) if maps is None else maps
    signed = Wanted(2, 0.9).sign_first(kept) if len(kept) else np.zeros(kept.shape)
    return StoredDraws(
        model=model,
        explainer=explainer,
        target=1,
        origin=np.array(origin),
        named_for=(signed > 0).sum(0),
        named_against=(signed < 0).sum(0),
        mean=kept.mean(0) if len(kept) else np.zeros(len(origin)),
        maps=kept,
        drawn=max(drawn, len(kept)),
        kept=len(kept),
        looks=1,
        varied=() if maps is None else ("seed",),
    )


def make(
    given: StoredDraws, top: int = 2, model_looks: tuple[int, ...] = (), **options: Any
) -> Card:
    return make_card(ABOUT, given, Wanted(top, 0.9, model_looks=model_looks), **options)


def test_a_reason_is_counted_with_its_sign() -> None:
    maps = np.tile([3.0, -2.0, 1.0, 0.5], (100, 1))
    maps[:20, 1] = 2.0  # the other sign
    maps[20:50, 2] = 2.5  # another feature in its place
    card = make(make_draws(maps))
    assert [reason.feature for reason in card.reasons] == [0, 1]
    assert [reason.probability for reason in card.reasons] == [1.0, 0.5]
    assert [reason.state for reason in card.reasons] == ["holds", "falls"]
    assert [reason.sign for reason in card.reasons] == [1, -1]
    assert [(reason.feature, reason.probability, reason.state) for reason in card.others] == [
        (2, 0.3, "")
    ]
    assert (card.same, card.same_low, card.same_high) == (0.5, *proportion_interval(50, 100, 0.95))
    assert card.chance == 0.5


def test_limits_of_earlier_looks_stay_limits() -> None:
    maps = np.tile([3.0, -2.0, 1.0, 0.5], (100, 1))
    maps[:8, 1] = 2.0
    given = dataclasses.replace(make_draws(maps), looks=2)
    assert [reason.state for reason in make(given).reasons] == ["holds", "undecided"]
    stored = dataclasses.replace(given, low=np.array([0.0, 0.905, 0.0, 0.0]), high=np.ones(4))
    card = make(stored)
    assert [reason.state for reason in card.reasons] == ["holds", "holds"]
    assert card.reasons[1].probability_low == 0.905
    assert card.reasons[1].foreseen is None
    # of other draws these limits say nothing
    with_others = make(stored, others={"f": [make_draws(maps)]})
    assert with_others.reasons[1].state == "undecided"


def test_the_order_counts_apart() -> None:
    maps = np.tile([3.0, -2.0, 1.0, 0.5], (50, 1))
    maps[:10, 1] = -4.0
    card = make(make_draws(maps))
    assert card.same == 1.0
    assert card.same_order == pytest.approx(0.8)


def test_values_have_a_range_and_an_interval_of_the_mean() -> None:
    noise = np.random.default_rng(0).normal(size=(400, 4)) * 0.1
    card = make(make_draws(np.array(ORIGIN) + noise))
    first = card.reasons[0]
    assert first.range_low == pytest.approx(3 - 0.1645, abs=0.03)
    assert first.range_high == pytest.approx(3 + 0.1645, abs=0.03)
    assert first.low < 3.0 < first.high
    assert first.high - first.low < 0.1 * (first.range_high - first.range_low) * 2


def test_means_of_few_draws_are_marked() -> None:
    """With 58 draws, what happens in 5% of all is missed in one case of twenty; of models their number counts."""
    noise = 0.01 * np.random.default_rng(0).normal(size=(120, 4))
    maps = np.array(ORIGIN) + noise
    few, enough = make(make_draws(maps[:58])), make(make_draws(maps[:59]))
    assert 0.95**58 > 0.05 > 0.95**59
    assert few.unseen == pytest.approx(1 - 0.05 ** (1 / 58))
    assert {row["few_draws"] for row in few.rows()} == {True}
    assert {row["few_draws"] for row in enough.rows()} == {False}
    assert "of all variations" in describe_card(few).unseen
    assert describe_card(enough).unseen == ""
    again = [make_draws(maps[10 * m : 10 * m + 10], model=f"m{m}") for m in range(12)]
    assert make(make_draws(), retrained=again).unseen == pytest.approx(1 - 0.05 ** (1 / 12))
    assert math.isnan(make(make_draws()).unseen)
    # explainers are all that there are
    everything = make(make_draws(), others={"f": [make_draws(explainer="f")]})
    assert math.isnan(everything.unseen)


def test_nothing_varied_says_nothing() -> None:
    card = make(make_draws())
    assert math.isnan(card.same)
    assert [reason.state for reason in card.reasons] == ["", ""]
    assert card.draws == 0
    assert card.varied == ()


def test_of_two_equally_good_features_neither_holds() -> None:
    """The Rashomon case: half of the models that were trained again use the one, half the other."""
    again = [
        make_draws(origin=[3.0, -2.0, 0.0, 0.1] if m % 2 else [3.0, 0.0, -2.0, 0.1], model=f"m{m}")
        for m in range(60)
    ]
    card = make(make_draws(), retrained=again)
    assert [reason.state for reason in card.reasons] == ["holds", "falls"]
    assert card.reasons[1].probability == 0.5
    assert card.models == 60
    assert [(one.source, one.draws, one.same) for one in card.alone] == [("retraining", 60, 0.5)]


def test_models_that_are_all_or_nothing_count_once() -> None:
    named, unnamed = np.tile(ORIGIN, (50, 1)), np.tile([3.0, 0.1, 1.0, 0.5], (50, 1))
    again = [make_draws(named if m < 18 else unnamed, model=f"m{m}") for m in range(20)]
    card = make(make_draws(), retrained=again)
    assert card.draws == 1000
    assert card.reasons[1].probability == pytest.approx(0.9)
    assert card.reasons[1].state == "undecided"
    low, _ = proportion_interval(20, 20, 0.95)
    assert card.reasons[0].probability_low <= low


def test_models_that_answer_otherwise_are_counted_and_left_out() -> None:
    again = [
        make_draws(np.tile(ORIGIN, (3, 1)), model="m0"),
        None,
        make_draws(np.tile(ORIGIN, (3, 1)), model="m2"),
    ]
    card = make(make_draws(), retrained=again)
    assert (card.models, card.deciding_otherwise, card.draws) == (3, 1, 6)


def test_explainers_alone_are_all_that_there_are() -> None:
    others = {
        "f": [make_draws(origin=[3.0, -2.0, 0.0, 0.0])],
        "g": [make_draws(origin=[3.0, 0.0, 9.0, 0.0])],
    }
    card = make(make_draws(), others=others)
    assert [reason.probability for reason in card.reasons] == pytest.approx([1.0, 2 / 3])
    assert [reason.probability_low for reason in card.reasons] == pytest.approx([1.0, 2 / 3])
    assert [reason.state for reason in card.reasons] == ["holds", "falls"]


def test_another_explainer_enters_places_and_no_values() -> None:
    own = np.tile(ORIGIN, (200, 1))
    other = make_draws(np.tile([300.0, -1.0, 200.0, 0.0], (200, 1)), explainer="f")
    card = make(make_draws(own), others={"f": [other]})
    assert card.reasons[0].mean == 3.0
    assert card.reasons[0].probability == 1.0
    assert card.reasons[1].probability == pytest.approx(0.5, abs=0.15)


def test_variance_is_shared_among_sources() -> None:
    generator = np.random.default_rng(1)
    alone = {
        source: make_draws(np.array(ORIGIN) + generator.normal(size=(2000, 4)) * scale)
        for source, scale in (("seed", 0.1), ("background", 0.2))
    }
    card = make(make_draws(np.tile(ORIGIN, (50, 1))), alone=alone)
    assert {one.source: one.variance for one in card.alone} == pytest.approx(
        {"seed": 0.2, "background": 0.8}, abs=0.03
    )


def test_features_that_share_the_last_place_are_no_reasons() -> None:
    maps = np.tile([3.0, 2.0, 2.0, 0.0], (60, 1))
    card = make(make_draws(maps, origin=[3.0, 2.0, 2.0, 0.0]))
    assert [reason.feature for reason in card.reasons] == [0]


def test_models_of_which_none_keeps_the_decision_say_nothing_of_reasons() -> None:
    maps = np.tile(ORIGIN, (50, 1))
    card = make(make_draws(maps), retrained=[None, None])
    assert (card.models, card.deciding_otherwise, card.draws) == (2, 2, 0)
    assert [reason.state for reason in card.reasons] == ["", ""]
    assert math.isnan(card.same)


def test_explainers_of_which_no_draw_keeps_the_decision_say_nothing_of_reasons() -> None:
    nothing = make_draws(np.full((30, 4), np.nan))
    card = make(nothing, others={"o": [make_draws(np.full((30, 4), np.nan), explainer="o")]})
    assert card.draws == 0
    assert [reason.state for reason in card.reasons] == ["", ""]


def test_a_draw_with_several_explainers_is_counted_once() -> None:
    """Draws of two explainers with the same number have the same changed input: one of both is taken."""
    maps = np.tile([3.0, -2.0, 1.0, 0.5], (100, 1))
    maps[::2, 2] = 2.5  # every second changed input has another reason, for both explainers
    given, other = make_draws(maps), make_draws(2 * maps, explainer="o")
    card = make(given, others={"o": [other]})
    assert card.draws == 100
    assert card.reasons[1].probability == 0.5
    longer = make_draws(np.concatenate([maps, maps]), explainer="o")
    assert make(given, others={"o": [longer]}).draws == 100


def test_the_first_end_of_several_explainers_says_which_look_decides() -> None:
    maps = np.tile(ORIGIN, (50, 1))
    given = dataclasses.replace(make_draws(maps), looks=3)
    other = dataclasses.replace(make_draws(maps, explainer="o"), looks=1)
    reason = make(given, others={"o": [other]}).reasons[0]
    assert reason.probability_low == pytest.approx(
        decide_reasons(np.array([50, 50]), 50, look=1)[0].low
    )


def make_models(named: Sequence[bool | None]) -> list[StoredDraws | None]:
    """Models that name the second reason or another one; None for one that decides otherwise."""
    origins = {True: ORIGIN, False: [3.0, 0.5, 1.0, -0.2]}
    return [
        None if is_named is None else make_draws(origin=origins[is_named], model=f"m{number}")
        for number, is_named in enumerate(named)
    ]


def test_models_that_were_looked_at_are_decided_at_each_look() -> None:
    # all 44 that decide alike name it at the first look; of the 50 that follow one in five does not
    named = [None] * 5 + [True] * 44 + [number % 5 > 0 for number in range(50)]
    again = make_models(named)
    card = make(make_draws(), retrained=again, model_looks=(49, 99))
    hits, ones = (
        np.array([is_named for is_named in named if is_named is not None]),
        np.ones(94, int),
    )
    both = np.stack([ones, hits.astype(int)])
    expected = decide_at_looks([(both[:, :44], ones[:44]), (both, ones)])
    for reason, decision in zip(card.reasons, expected, strict=True):
        limits = reason.probability_low, reason.probability_high
        assert (reason.state, *limits) == (decision.state, decision.low, decision.high)
    assert [reason.state for reason in card.reasons] == ["holds", "holds"]
    # with one look at all models, whose number was fixed, it is not shown
    once = make(make_draws(), retrained=again)
    assert once.reasons[1].state == "undecided"
    assert once.reasons[1].probability == card.reasons[1].probability == hits.mean()


def test_a_first_look_without_models_that_decide_alike_is_a_look() -> None:
    again = make_models([None] * 3 + [True] * 50)
    card = make(make_draws(), retrained=again, model_looks=(3, 53))
    ones = np.ones(50, dtype=int)
    assert (
        card.reasons[1].probability_low
        == decide_reasons(ones[None], ones, look=2, reasons=2)[0].low
    )


def test_draws_of_several_explainers_are_decided_at_each_look() -> None:
    maps = np.tile(ORIGIN, (192, 1))
    maps[50:80, 1] = 0.5  # no reason in these
    maps[2] = np.nan  # another answer
    given = dataclasses.replace(make_draws(maps), kept=191, looks=3)
    other = dataclasses.replace(make_draws(3 * maps, explainer="o"), kept=191, looks=4)
    wanted = Wanted(2, 0.9, looks=(44, 92, 192, 400))
    card = make_card(ABOUT, given, wanted, others={"o": [other]})
    is_named = maps[:, 1] == -2.0
    is_kept = np.isfinite(maps).all(1)
    counts = [
        (np.array([is_kept[:made].sum(), is_named[:made].sum()]), int(is_kept[:made].sum()))
        for made in (44, 92, 192)
    ]
    expected = decide_at_looks(counts)
    for reason, decision in zip(card.reasons, expected, strict=True):
        limits = reason.probability_low, reason.probability_high
        assert (reason.state, *limits) == (decision.state, decision.low, decision.high)
    last = decide_reasons(*counts[-1], look=3)
    assert last[1].low != expected[1].low or last[1].high != expected[1].high


def test_only_reasons_have_a_state() -> None:
    others = {"o": [make_draws(origin=[3.0, 0.5, 1.0, -2.0], explainer="o")]}
    card = make(make_draws(), others=others)
    assert [reason.state for reason in card.reasons] == ["holds", "falls"]
    assert [(reason.feature, reason.state) for reason in card.others] == [(3, "")]


def make_large(given: StoredDraws, **row: float) -> StoredDraws:
    """Draws of a large map, which are not stored."""
    return dataclasses.replace(given, maps=None, row=row)


def test_of_large_maps_the_stored_shares_are_used() -> None:
    maps = np.tile([3.0, -2.0, 1.0, 0.5], (100, 1))
    maps[:20, 2] = 2.5
    card = make(make_large(make_draws(maps), value=0.8, same_order=0.75))
    assert card.reasons[1].probability == 0.8
    assert (card.same, card.same_order) == (pytest.approx(0.8), pytest.approx(0.75))
    # of another model these shares are of its own reasons
    again = make_large(make_draws(maps), value=1.0, same_order=1.0)
    assert math.isnan(make(make_large(make_draws(maps)), retrained=[again, again]).same)


def test_of_large_maps_a_model_without_another_source_is_one_draw() -> None:
    given = make_large(make_draws())
    assert make(given).draws == 0
    swapped = make_large(make_draws(origin=[3.0, 0.5, 1.0, -2.0]))
    card = make(given, retrained=[given, swapped])
    assert card.draws == 2
    assert [reason.probability for reason in card.reasons] == [1.0, 0.5]
    of_explainers = make(given, others={"o": [swapped]})
    assert of_explainers.draws == 2
    assert [reason.state for reason in of_explainers.reasons] == ["holds", "falls"]


def test_of_large_maps_draws_of_two_explainers_are_those_of_one() -> None:
    maps = np.tile(ORIGIN, (60, 1))
    given = make_large(make_draws(maps), value=1.0, same_order=1.0)
    card = make(given, others={"o": [make_large(make_draws(maps, explainer="o"))]})
    assert card.draws == 60
    assert [reason.probability for reason in card.reasons] == [1.0, 1.0]


def test_of_many_reasons_the_share_that_is_named_again_counts_other_models() -> None:
    origin = np.arange(60.0, 0.0, -1.0)
    turned = origin.copy()
    turned[:15] *= -1  # half of the 30 reasons have the other sign
    given = make_draws(np.tile(origin, (60, 1)), list(origin))
    given = dataclasses.replace(given, row={"value": 1.0, "low": 0.9, "high": 1.0})
    other = make_draws(np.tile(turned, (60, 1)), list(turned), model="o")
    assert make(given, top=30).same == 1.0
    card = make(given, top=30, retrained=[given, given, other])
    assert card.same == pytest.approx(5 / 6)
    assert card.same_low < 5 / 6 < card.same_high
    assert (
        make(
            make_draws(origin=list(origin)), top=30, others={"o": [make_draws(origin=list(turned))]}
        ).same
        == 0.75
    )


def test_a_map_without_signs_is_named_as_such() -> None:
    signed, unsigned = (
        describe_card(make(make_draws(np.tile(origin, (50, 1)), list(origin))))
        for origin in (ORIGIN, [3.0, 2.0, 1.0, 0.5])
    )
    assert not any("sizes without signs" in note for note in signed.notes)
    assert any("sizes without signs" in note for note in unsigned.notes)


def test_maps_without_a_negative_number_are_told_from_others() -> None:
    """Their signs are not made up: an explainer with signs may have none that is negative by chance."""
    own = make_draws(np.tile(ORIGIN, (100, 1)))
    sizes = make_draws(
        np.tile(np.abs(ORIGIN), (100, 1)), origin=np.abs(ORIGIN).tolist(), explainer="saliency"
    )
    assert sizes.is_never_negative
    assert not own.is_never_negative
    card = make(own, others={"saliency": [sizes]})
    assert card.reasons[0].probability == 1.0
    assert card.reasons[1].probability == pytest.approx(0.5, abs=0.2)
