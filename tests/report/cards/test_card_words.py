"""What a card says: which reasons hold, which do not and why, and what has to be said first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from card_samples import (
    PASSAGES,
    about,
    draw,
    draw_customer,
    make_customer,
    make_image,
    make_passages,
    make_retrained,
    make_series,
    make_text,
    make_unvaried,
    name_columns,
)

from standfast.report.cards import card_to_json, describe_card, format_card, render_card
from standfast.report.cards.facts import (
    describe_score,
    format_share,
    lies_outside,
    measure_area,
    name_part,
    name_position,
    name_reason,
    title_reason,
)
from standfast.report.sentences import begin_sentence
from standfast.results.reasons import Alone, Card, Wanted, make_card
from standfast.statistics.reasons import Foresight


def test_each_reason_is_in_the_list_of_its_state() -> None:
    card = make_customer()
    words = describe_card(card)
    assert [reason.name for reason in words.holding] == ["debt", "income"]
    assert [reason.name for reason in words.falling] == ["town"]
    assert (words.undecided, words.untested, words.warning) == ((), (), "")
    assert words.find(2) == words.falling[0]
    assert words.find(5) is None


def test_the_summary_has_the_shares_of_draws_and_what_is_named_instead() -> None:
    card = make_customer()
    summary = describe_card(card).summary
    town, age = card.reasons[2].probability, card.others[0].probability
    for fact in (
        "Debt and income hold",
        "200 variations",
        f"{100 * town:.0f}%",
        "age",
        f"{100 * age:.0f}%",
    ):
        assert fact in summary


def test_signs_are_relative_to_the_answer() -> None:
    words = describe_card(make_customer())
    assert words.find(0).speaks == "income 1,200 speaks against P(default) > 0.35"  # type: ignore[union-attr]
    assert words.find(1).speaks == "debt 9,400 speaks for P(default) > 0.35"  # type: ignore[union-attr]
    missed = describe_card(make_customer(answer="not P(default) > 0.35"))
    assert missed.find(1).speaks == "debt 9,400 speaks for this answer"  # type: ignore[union-attr]


def test_the_source_that_leaves_a_reason_out_most_often_says_why() -> None:
    card = make_customer()
    worst = max(card.alone, key=lambda alone: alone.falling[2])
    assert worst.source == "measurement"
    why = describe_card(card).falling[0].why
    assert "changes of the input" in why
    assert f"{100 * (1 - worst.falling[2]):.0f}% of {worst.draws}" in why


def test_of_one_source_nothing_is_said_twice() -> None:
    card = make_text()
    assert len(card.varied) == 1
    assert describe_card(card).alone == ()
    assert all(reason.why == "" for reason in describe_card(card).falling)


@pytest.mark.parametrize(("dropped", "is_coin"), [(2, False), (60, True)])
def test_a_decision_that_falls_is_said_first(dropped: int, is_coin: bool) -> None:
    warning = describe_card(make_customer(60, dropped)).warning
    assert format_share(dropped / (60 + dropped)) in warning
    assert ("coin" in warning) == is_coin


def test_models_that_decide_otherwise_are_counted() -> None:
    words = describe_card(make_retrained(models=8, otherwise=3))
    assert "3 of 8 retrained models" in words.warning
    assert "5 retrained models" in words.varied
    assert describe_card(make_retrained(models=8, otherwise=0)).warning == ""


def test_too_few_models_are_named_with_the_number_that_could() -> None:
    notes = " ".join(describe_card(make_retrained()).notes)
    assert "7 retrained models can never show 90%" in notes
    assert "39 can" in notes  # 0.9 ** 39 < 0.05 / 3, and 0.9 ** 38 is above it
    assert 0.9**39 < 0.05 / 3 < 0.9**38


def test_where_nothing_is_varied_nothing_has_a_share() -> None:
    words = describe_card(make_unvaried())
    assert [reason.name for reason in words.untested] == ["debt", "income", "town"]
    assert "Nothing was varied" in words.summary
    assert all(
        way in words.varied
        for way in ("--retrain", "retrain=True", "--measurement", "measurement=True")
    )
    every = " ".join(
        [words.summary, words.same, words.varied, *(reason.named for reason in words.untested)]
    )
    assert "%" not in every
    assert [note.split(":")[0] for note in words.notes] == ["Random numbers", "Background"]


def test_where_no_draw_keeps_the_decision_nothing_is_said_of_reasons() -> None:
    given = draw_customer(0, 0, drawn=50)
    words = describe_card(make_card(about(), given, Wanted(3, 0.9), names=name_columns()))
    assert "100% of 50 variations" in words.warning
    assert (words.holding, words.falling, words.undecided) == ((), (), ())
    assert "no variation keeps the decision" in words.summary


@pytest.mark.parametrize(
    ("foreseen", "facts"),
    [
        (Foresight(120, 60, 400), ("120", "60 to 400")),
        (Foresight(3000, 60, None), ("3,000", "at least 60")),
        (Foresight(40, 40, None), ("at least 40",)),
        (Foresight(None, 500, None), ("more than 10 times as many", "at least 500")),
        (Foresight(None, None, None), ("more than 10 times as many variations would be needed",)),
    ],
)
def test_what_would_decide_is_a_range(foreseen: Foresight | None, facts: tuple[str, ...]) -> None:
    card = make_customer()
    reasons = tuple(
        replace(reason, state="undecided", foreseen=foreseen) for reason in card.reasons
    )
    words = describe_card(replace(card, reasons=reasons))
    assert len(words.undecided) == 3
    assert all(fact in words.undecided[0].needs for fact in facts)


def test_where_no_number_decides_none_is_said() -> None:
    card = make_customer()
    reasons = tuple(replace(reason, state="undecided", foreseen=None) for reason in card.reasons)
    at_the_demand = replace(card, reasons=reasons)
    words = describe_card(at_the_demand)
    assert [reason.needs for reason in words.undecided] == ["", "", ""]
    far = tuple(replace(reason, foreseen=Foresight(None, 500, None)) for reason in reasons)
    for one in (at_the_demand, replace(card, reasons=far)):
        assert not any("would decide" in note for note in describe_card(one).notes)
        assert "would decide" not in format_card(one)
    plain = card_to_json(replace(card, reasons=far))
    assert plain["reasons"][0]["foreseen"] == {"count": None, "least": 500, "most": None}


def test_a_card_says_how_to_make_the_variations_that_would_decide() -> None:
    card = make_customer()
    undecided = [
        replace(reason, state="undecided", foreseen=Foresight(2000, 60, 400))
        for reason in card.reasons
    ]
    notes = describe_card(replace(card, reasons=tuple(undecided))).notes
    assert any(
        "standfast.reasons(..., draws=2000) in Python, --draws 2000 in a shell" in note
        for note in notes
    )
    assert not any("draws=" in note for note in describe_card(card).notes)
    of_models = describe_card(make_retrained(otherwise=0)).notes
    assert any(
        "models=40) in Python" in note and "--retrain --models 40 in a shell" in note
        for note in of_models
    )


def test_the_variations_that_are_advised_are_those_of_the_reason_that_needs_the_fewest() -> None:
    card = make_customer()
    counts = (3000, 250, 200)  # 200 were made
    reasons = tuple(
        replace(reason, state="undecided", foreseen=Foresight(count, 50, None))
        for reason, count in zip(card.reasons, counts, strict=True)
    )
    advice = [
        note
        for note in describe_card(replace(card, reasons=reasons)).notes
        if "standfast.reasons(" in note
    ]
    assert len(advice) == 1
    assert card.draws == 200
    assert f"About 250 variations would decide {reasons[1].name}" in advice[0]


def test_what_does_not_keep_the_decision_is_made_beside_the_variations_that_decide() -> None:
    """Of 300 draws 200 count, and of twelve models eight do."""
    card = make_customer()
    foreseen = Foresight(300, 250, None)
    undecided = tuple(
        replace(reason, state="undecided", foreseen=foreseen) for reason in card.reasons
    )
    some_fall = replace(card, reasons=undecided, drawn=300, kept=200)
    (advice,) = [note for note in describe_card(some_fall).notes if "draws=" in note]
    assert "About 300 variations that keep the decision would decide" in advice
    assert "draws=450)" in advice
    assert "--draws 450 in" in advice
    some_decide_otherwise = replace(card, reasons=undecided, models=300, deciding_otherwise=100)
    (advice,) = [note for note in describe_card(some_decide_otherwise).notes if "models=" in note]
    assert "About 300 retrained models that keep the decision would decide" in advice
    assert "models=450)" in advice
    # as many as were made, but not as many as count
    assert any(
        "draws=390)" in note
        for note in describe_card(
            replace(
                some_fall,
                reasons=tuple(
                    replace(reason, foreseen=Foresight(260, 250, None)) for reason in undecided
                ),
            )
        ).notes
    )


def test_where_only_what_speaks_for_the_answer_is_named_a_card_says_so() -> None:
    card = replace(make_customer(), speaking="for", answer="declined")
    words = describe_card(card)
    assert 'among the first 3 that speak for "declined"' in words.summary
    assert "with the same sign" not in words.summary
    assert any("what speaks against it is left out" in note for note in words.notes)
    chance = [note for note in words.notes if "nothing to do with the decision" in note]
    assert chance
    assert chance[0].endswith(f"in at most {format_share(card.chance)}.")
    page = render_card(card)
    assert "chance: at most" in page
    assert "that speak for &#34;declined&#34;, in at least" in page
    without_signs = describe_card(replace(card, has_signs=False))
    assert "speak for" not in without_signs.summary
    assert not any("left out" in note for note in without_signs.notes)


def test_a_value_outside_of_the_interval_of_its_mean_is_explained() -> None:
    """Here the background of the one explanation is unusual: its value is 5 standard errors away."""
    card = make_customer()
    assert not any("outside" in note for note in describe_card(card).notes)
    far = replace(card.reasons[0], value=card.reasons[0].high + 0.5)
    notes = describe_card(replace(card, reasons=(far, *card.reasons[1:]))).notes
    (note,) = [note for note in notes if "outside" in note]
    assert note.startswith("Debt: the value lies outside of the interval of the mean.")
    assert "over other backgrounds and changes of the input" in note
    assert lies_outside(far)
    assert not lies_outside(replace(far, low=float("nan")))


def test_what_it_is_to_be_named_stands_where_it_is_first_said() -> None:
    assert (
        "among the first 3, with the same sign"
        in describe_card(make_customer()).summary.split(".")[0]
    )
    none_holds = describe_card(make_retrained()).summary.split(". ")[0]
    assert "to be named again, among the first 3, with the same sign" in none_holds
    image = describe_card(make_image())
    assert "among the first 78, with the same sign" in image.summary


def test_the_area_of_an_image_is_what_draws_name_again() -> None:
    card = make_image()
    area = measure_area(card)
    assert card.origin is not None
    assert card.shares is not None
    order = np.argsort(-np.abs(card.origin))[: card.top]
    # Benjamini and Hochberg: the largest number of pixels whose tests all are below their part of 5%
    tests = {
        pixel: scipy.stats.binom.sf(round(60 * card.shares[pixel]) - 1, 60, 0.9)
        for pixel in order.tolist()
    }
    held: list[int] = []
    for count in range(1, card.top + 1):
        passed = [pixel for pixel, test in tests.items() if test <= 0.05 * count / card.top]
        held = passed if len(passed) >= count else held
    assert sorted(held) == np.flatnonzero(area.holds).tolist()
    assert 0 < len(held) < card.top
    assert int(area.doubtful.sum()) == card.top - len(held)
    relevance = sum(abs(card.origin[pixel]) for pixel in held) / np.abs(card.origin).sum()
    assert area.relevance == pytest.approx(relevance)
    summary = describe_card(card).summary
    assert f"{100 * relevance:.0f}% of the relevance" in summary
    assert "at least 90%" in summary
    assert "at most 5% of these pixels" in summary
    assert "60 variations" in summary


def test_all_changes_are_only_named_where_all_pixels_are_always_the_same() -> None:
    card = make_series()
    assert measure_area(card).least == 1.0
    assert "in all changes tried" in describe_card(card).summary
    assert card.shares is not None
    fewer = replace(card, shares=np.where(card.shares == 1, 59 / 60, card.shares))
    assert "in all changes tried" not in describe_card(fewer).summary


def test_a_map_of_which_nothing_holds_is_not_to_be_relied_on() -> None:
    card = make_image()
    assert card.held is not None
    words = describe_card(replace(card, held=np.zeros_like(card.held)))
    assert "Rely on no part" in words.summary


def test_a_part_of_few_draws_or_models_is_not_shown_to_hold() -> None:
    """With 28 draws, a share of 100% does not show 90%; of retrained models it is their number that counts."""
    origin = np.linspace(1.0, 0.0, 100)
    wanted = Wanted(30, 0.9, shares_places=True)

    def make_card_of(draws: int, models: int = 0) -> Card:
        maps = np.repeat(origin[None], draws, axis=0)
        given = draw(0, maps, wanted, origin, varied=("measurement",))
        fields = about(answer="class 3", rule="", columns={}, input=origin.reshape(1, 10, 10))
        return make_card(fields, given, wanted, [given] * models)

    held = {(60, 0): 30, (29, 0): 30, (28, 0): 0, (60, 28): 0, (4, 29): 30}
    for (draws, models), count in held.items():
        assert measure_area(make_card_of(draws, models)).count == count, (draws, models)


def test_words_that_occur_twice_have_their_place() -> None:
    words = describe_card(make_text())
    assert [reason.name for reason in words.holding] == ["dull", "good (word 5)"]
    assert [reason.name for reason in words.falling] == ["good (word 8)"]


@pytest.mark.parametrize(
    ("rule", "rule_met", "score", "expected"),
    [
        ("P(default) > 0.35", True, 0.6, "60%"),
        ("P(default) > 0.35", False, 0.9, "10%"),
        ("P(default) < 0.35", True, 0.9, "10%"),
        ("P(default) < 0.35", False, 0.6, "60%"),
        ("P(default) > 0.35", True, 0.3504, "35.04%"),
    ],
)
def test_the_number_of_a_rule_is_the_one_that_it_names(
    rule: str, rule_met: bool, score: float, expected: str
) -> None:
    """A stored score is the probability of the side that was taken."""
    of_rule = rule if rule_met else f"not {rule}"
    card = make_customer(answer=of_rule, rule=rule, rule_met=rule_met, score=score)
    assert describe_score(card) == f"it is {expected}"
    named = replace(card, answer="declined" if rule_met else "approved")
    assert describe_score(named) == f"P(default) is {expected}, the cut-off 35%"


def test_the_number_of_a_class_is_its_probability() -> None:
    assert describe_score(make_customer(answer="class 3", rule="", score=0.6)) == "probability 60%"
    assert describe_score(make_customer(answer="class 3", rule="", score=float("nan"))) == ""


def test_a_decision_is_called_as_its_user_calls_it() -> None:
    words = describe_card(make_customer(answer="declined"))
    assert words.decision == "declined (P(default) is 62%, the cut-off 35%)"
    assert words.holding[0].speaks == 'debt 9,400 speaks for "declined"'


def test_a_number_is_not_said_twice() -> None:
    words = describe_card(
        make_customer(answer="predicted value 31.2", rule="", score=31.2, score_name="")
    )
    assert words.decision == "predicted value 31.2"


def test_a_score_that_is_no_probability_has_its_own_name() -> None:
    card = make_customer(answer="output 0", rule="", score=0.5, score_name="dose")
    assert describe_score(card) == "dose 0.5"


def test_positions_are_counted_from_one() -> None:
    assert name_position((1, 4, 5), 19) == "row 4, column 5"
    assert name_position((1, 3, 4, 5), 20) == "slice 2, row 1, column 1"


def test_names_that_are_more_than_words_stay_as_they_are() -> None:
    assert [
        begin_sentence(name) for name in ("debt", "debt, age and town", "x_1", "pH", "größe", "")
    ] == [
        "Debt",
        "Debt, age and town",
        "x_1",
        "pH",
        "Größe",
        "",
    ]


def test_of_several_sources_the_worst_one_is_named() -> None:
    card = make_customer()
    shares = {"seed": 0.1, "background": 0.4, "measurement": 0.2}
    alone = tuple(
        Alone(source, 40, 0.5, 0.4, 0.6, 0.3, (0.0, 0.0, share)) for source, share in shares.items()
    )
    words = describe_card(replace(card, alone=alone))
    assert words.falling[0].why == "named in 60% of 40 other backgrounds alone"
    assert "other backgrounds leave it out" in words.summary


def test_a_card_says_what_was_not_tried() -> None:
    notes = " ".join(describe_card(make_customer()).notes)
    assert "Not tried" in notes
    assert "retrained models" in notes
    again = " ".join(describe_card(make_retrained()).notes)
    assert "retrained models and" not in again


def test_what_was_changed_and_the_unit_of_values_are_said_everywhere() -> None:
    changes, unit = "income and debt by up to 2% of their value", "log-odds"
    card = replace(make_customer(), changes=changes, unit=unit)
    for said in (format_card(card), render_card(card)):
        one_line = " ".join(said.split())
        assert f"the input ({changes})" in one_line
        assert f"Unit of the values: {unit}." in one_line
    plain = card_to_json(card)
    assert (plain["changes"], plain["unit"]) == (changes, unit)
    assert "(log-odds)</b>" in render_card(card)  # above the bars
    unknown = make_customer()
    assert "the input (slightly changed)" in describe_card(unknown).varied
    assert "Unit of the values" not in format_card(unknown)


def test_the_case_has_the_name_that_the_user_knows() -> None:
    card = make_customer()
    named = replace(card, name="C-1041")
    for say in (format_card, render_card):
        assert "credit, row 17" in say(card)
        assert "credit, row C-1041" in say(named)
    image = make_image()
    assert "credit, sample 17" in format_card(image)
    assert "credit, cat/1.png" in render_card(replace(image, name="cat/1.png"))
    assert card_to_json(named)["name"] == "C-1041"


@pytest.mark.parametrize("measures", ["slope", "direction"])
def test_a_sign_of_a_gradient_is_about_raising_the_feature(measures: str) -> None:
    card = replace(make_customer(), has_signs=True, measures=measures)
    words = describe_card(card)
    said = {reason.name: reason.speaks for reason in (*words.holding, *words.falling)}
    assert said["debt"] == "raising debt raises the score of P(default) > 0.35"
    assert said["income"] == "raising income lowers the score of P(default) > 0.35"
    assert any("what raising a feature does" in note for note in words.notes)
    page = render_card(card)
    assert "to the right: raising it raises the score of P(default)" in page.replace("&gt;", ">")
    assert "what speaks for" not in page
    for said_of_card in (format_card(card), page.replace("&gt;", ">")):
        assert "raising income lowers the score of P(default) > 0.35" in said_of_card
    assert card_to_json(card)["words"]["holding"][0]["raising"] == words.holding[0].speaks
    contributions = replace(card, measures="contribution")
    assert "speaks for" in describe_card(contributions).holding[0].speaks
    # sizes say nothing of raising
    assert not replace(card, has_signs=False).says_what_raising_does


def test_of_gradients_alone_that_speak_for_the_answer_the_rise_is_meant() -> None:
    card = replace(make_customer(), speaking="for", has_signs=True, measures="slope")
    for said in (format_card(card), render_card(card)):
        one_line = " ".join(said.split())
        assert "among the first 3 whose rise speaks for P(default)" in one_line.replace("&gt;", ">")
        assert "that speak for" not in one_line


def test_passages_are_called_passages_and_stand_in_quotes() -> None:
    card = make_passages()
    words = describe_card(card)
    said = " ".join([words.summary, words.same, *words.notes])
    assert "Rely on the coloured passages: " in said
    assert "coloured words" not in said
    assert '"The bridge of Halden was designed by ..."' in said
    assert words.holding[0].name.startswith('"')
    repeated = replace(card.reasons[0], feature=5, name=PASSAGES[5])
    assert name_reason(card, repeated) == '"Its market is held on Saturdays." (passage 6)'
    assert title_reason(card, repeated) == "Its market is held on Saturdays. (passage 6)"
    assert name_part(card) == "passage"
    assert "the coloured words" in describe_card(make_text()).summary


def test_a_value_lies_outside_if_a_reader_can_see_it() -> None:
    reason = make_passages().reasons[0]
    within_rounding = replace(reason, value=5.9812, low=5.9813, high=5.9814)
    assert not lies_outside(within_rounding)
    assert lies_outside(replace(reason, value=5.9, low=5.9813, high=5.9814))


@pytest.mark.parametrize(("measures", "said"), [("relevance", "speaks"), ("slope", "raising")])
def test_what_speaks_for_a_number_makes_it_higher(measures: str, said: str) -> None:
    """Nothing speaks for -2.7 by a number above 0, which makes it higher."""
    card = make_customer(
        answer="predicted value −2.70", rule="", score=-2.7, score_name="", measures=measures
    )
    words = describe_card(card)
    assert words.decision == "predicted value −2.70"
    sentences = [reason.speaks for reason in (*words.holding, *words.falling)]
    expected = {
        "speaks": {
            "speaks for a higher predicted value",
            "speaks against a higher predicted value",
        },
        "raising": {"raises the predicted value", "lowers the predicted value"},
    }[said]
    assert all(any(sentence.endswith(end) for end in expected) for sentence in sentences)
    page = render_card(card)
    legend = "speaks for a higher predicted value"
    assert ("raising it raises the predicted value" if said == "raising" else legend) in page
