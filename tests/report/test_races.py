"""The words of a race: what is said of each outcome, and of each reason to leave."""

from __future__ import annotations

from dataclasses import replace

import pytest

from standfast.errors import ArgumentError
from standfast.report.races import describe_choice, describe_end, format_race, list_rows
from standfast.results.races import Confirmation, Entrant, Judgement, Left, Measured, Outcome, Race

VALUE = Measured(0.5, 0.4, 0.6)
BEHIND = Measured(-0.1, -0.2, None)


def make_confirmation(outcome: Outcome, asked_all: bool = True) -> Confirmation:
    judgements = (Judgement("aopc", "faithfulness", VALUE, "good"),)
    return Confirmation(
        "first", outcome, 20, "passed", judgements, "What the verdict says.", asked_all
    )


def make_race(entrants: tuple[Entrant, ...], confirmation: Confirmation | None = None) -> Race:
    return Race(
        data="digits",
        model="LeNet5",
        label="aopc",
        direction="higher",
        decimals=3,
        level=0.05,
        ladder=(10, 20, 40),
        entrants=entrants,
        samples=60,
        rows=tuple(range(40)),
        confirmation_rows=tuple(range(40, 60)),
        cost=0.25,
        budget=0.25,
        seconds=12.0,
        confirmation=confirmation,
    )


FIRST, SECOND = (
    Entrant("first", None, 40, value=VALUE),
    Entrant("second", None, 40, value=VALUE, behind=BEHIND),
)


def test_one_that_is_confirmed() -> None:
    race = make_race((FIRST, SECOND), make_confirmation("confirmed"))
    said = describe_choice(race)
    assert race.chosen == "first"
    assert "first is chosen, and confirmed on 20 samples that the race did not use." in said
    assert "second was still in the race" in said
    assert "What the verdict says." not in said
    partial = make_race((FIRST,), make_confirmation("confirmed", asked_all=False))
    assert "What the verdict says." in describe_choice(partial)  # it says what was not asked


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("refused", "is refused on 20 samples"),
        ("undecided", "do not decide it. What the verdict says."),
        ("unjudged", "no metric and no check judges it"),
        ("unfinished", "the time was up"),
    ],
)
def test_a_leader_that_is_not_confirmed(outcome: Outcome, words: str) -> None:
    race = make_race((FIRST, SECOND), make_confirmation(outcome))
    assert (race.chosen, race.leader) == (None, "first")
    assert describe_choice(race).startswith("None is chosen: first led the race, but ")
    assert words in describe_choice(race)


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ("check", "all 2 explainers fail the sanity checks"),
        ("unstable", "all 2 explainers are unstable"),
        ("no value", "all 2 explainers have no value by aopc"),
        ("failed", "all 2 explainers failed"),
    ],
)
def test_nobody_is_left(left: Left, words: str) -> None:
    race = make_race((Entrant("a", left, 10), Entrant("b", left, 10)))
    assert (race.chosen, race.leader) == (None, None)
    assert words in describe_choice(race)


def test_several_reasons_are_counted() -> None:
    race = make_race(
        (Entrant("a", "check", 0), Entrant("b", "unstable", 10), Entrant("c", "check", 0))
    )
    assert "of 3 explainers, 2 fail the sanity checks and 1 is unstable." in describe_choice(race)


def test_each_reason_to_leave_has_words() -> None:
    entrants = (
        FIRST,
        SECOND,
        Entrant("worse", "worse", 20, "aopc", value=VALUE, behind=BEHIND),
        Entrant("poor", "budget", 10, "aopc", value=VALUE, behind=BEHIND),
        Entrant("shaky", "unstable", 10, "worst_case", value=Measured(0.1, 0.0, 0.2)),
        Entrant("hollow", "check", 0, question="learned"),
        Entrant("open", "open check", 0, question="removal"),
        Entrant("broken", "failed", 10, error="no gradients"),
    )
    rows = {
        name: (left, value, behind) for name, left, value, behind in list_rows(make_race(entrants))
    }
    assert rows["first"][0] == "first at 40 samples"
    assert rows["second"] == ("in the race at 40 samples", "0.500 [0.400, 0.600]", "−0.100")
    assert rows["worse"][0] == "worse at 20 samples"
    assert rows["poor"][0] == "behind at 10 samples, not measured further"
    # its value is of another metric
    assert rows["shaky"][:2] == (
        "unstable by worst_case at 10 samples",
        "",
    )
    assert rows["hollow"][0] == "fails the check 'learned'"
    assert rows["open"][0] == "undecided by the check 'removal'"
    assert rows["broken"][0] == "failed: no gradients"


def test_what_ended_it_is_said() -> None:
    whole = make_race((FIRST, SECOND), make_confirmation("confirmed"))
    early = make_race(
        tuple(replace(each, samples=10) for each in (FIRST, SECOND)), make_confirmation("confirmed")
    )
    assert describe_end(whole) == ""
    assert "The budget, 25% of evaluating everything, ended the race" in describe_end(early)
    assert "The time was up" in describe_end(replace(early, out_of_time=True))


def test_all_of_it_is_plain_text() -> None:
    race = replace(
        make_race((FIRST, SECOND), make_confirmation("confirmed")), left_out=("16 of 32 samples",)
    )
    text = format_race(race)
    words = " ".join(text.split())
    assert text.isascii()
    assert "Left out for the time: 16 of 32 samples." in words
    assert (
        "Confirmation of first on 20 samples: checks passed; aopc 0.500 [0.400, 0.600], good."
        in words
    )


def test_it_survives_json_and_refuses_what_is_none() -> None:
    race = make_race((FIRST, SECOND), make_confirmation("undecided"))
    assert Race.from_plain(race.plain()) == race
    assert Race.from_plain({**race.plain(), "of a later version": 1}) == race
    with pytest.raises(ArgumentError, match="entrants"):
        Race.from_plain({"data": "digits"})
    with pytest.raises(ArgumentError, match="name: expected one of first, second"):
        race.find("third")
