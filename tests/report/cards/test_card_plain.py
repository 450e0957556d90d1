"""Cards as JSON that every parser reads, and as lines of a terminal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from card_samples import (
    make_crowded,
    make_customer,
    make_image,
    make_retrained,
    make_series,
    make_text,
    make_unvaried,
)

from standfast.report.cards import card_to_json, format_card
from standfast.results.reasons import Card

CARDS = [
    make_customer(),
    make_customer(60, 9),
    make_retrained(),
    make_unvaried(),
    make_image(),
    make_image(64, 400, 3),
    make_series(),
    make_text(),
    make_crowded(),
]


@pytest.mark.parametrize("card", CARDS)
def test_json_is_strict(card: Card) -> None:
    text = json.dumps(card_to_json(card), allow_nan=False)
    assert json.loads(text) == card_to_json(card)


def test_json_has_the_numbers_of_the_card() -> None:
    card = make_customer()
    plain = card_to_json(card)
    assert [reason["name"] for reason in plain["reasons"]] == ["debt", "income", "town"]
    assert [reason["probability"] for reason in plain["reasons"]] == [
        reason.probability for reason in card.reasons
    ]
    assert plain["origin"] == card.origin.tolist()  # type: ignore[union-attr]
    assert plain["words"]["summary"].startswith("Debt and income hold")
    assert plain["alone"][0]["source"] == "background"


def test_what_is_not_known_is_null() -> None:
    plain = card_to_json(replace(make_unvaried(), score=float("inf")))
    assert (plain["same"], plain["score"]) == (None, None)
    assert [reason["probability"] for reason in plain["reasons"]] == [None, None, None]


def test_large_arrays_are_left_out_with_their_shapes() -> None:
    plain = card_to_json(make_image(64, 400, 3))
    assert (plain["input"], plain["shares"]) == (None, None)
    assert plain["shapes"]["input"] == [3, 64, 64]
    assert card_to_json(make_image())["input"] is not None


@pytest.mark.parametrize("card", CARDS)
def test_lines_fit_a_terminal(card: Card) -> None:
    lines = format_card(card).splitlines()
    assert max(len(line) for line in lines) <= 100
    assert lines[0].startswith("Decision: ")


def test_each_reason_has_a_line_with_its_sign() -> None:
    lines = format_card(make_customer()).splitlines()
    marked = {
        line.split()[1]: line[0]
        for line in lines
        if line[:2] in ("+ ", "- ", "? ") and "%)" in line
    }
    assert {name: marked.get(name) for name in ("debt", "income", "town")} == {
        "debt": "+",
        "income": "+",
        "town": "-",
    }


def test_a_warning_stands_before_the_reasons() -> None:
    text = format_card(make_customer(60, 9))
    assert text.index("falls in 13%") < text.index("Debt and income")
