"""The page of a card: what is drawn where, and that a user's texts are only texts."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from card_samples import (
    COLUMNS,
    about,
    draw_customer,
    make_customer,
    make_image,
    make_retrained,
    make_series,
    make_text,
    make_unvaried,
)
from PIL import Image

from standfast.report.cards import describe_card, render_card, write_card
from standfast.report.cards.facts import measure_area
from standfast.report.cards.pictures import (
    choose_colours,
    colour_unsigned,
    draw_image,
    draw_words,
    paint_area,
)
from standfast.report.cards.rows import make_rows
from standfast.report.maps import colour_signed
from standfast.results.reasons import Card, Wanted, make_card
from standfast.tensors import Array

BAD = "<script>alert('1')</script>\"&"


def read_picture(uri: str) -> Array:
    content = base64.b64decode(uri.split(",", 1)[1])
    return np.asarray(Image.open(io.BytesIO(content)).convert("RGB")).astype(int)


def test_texts_of_the_user_are_escaped() -> None:
    names = [(f"{name}{BAD}", f"{name}{BAD} {value}") for name, value in COLUMNS.items()]
    fields = about(data=BAD, answer=BAD, columns={name: BAD for name, _ in names})
    given = replace(draw_customer(0, 60), model=BAD, explainer=BAD)
    card = replace(make_card(fields, given, Wanted(3, 0.9), names=names), notes=(BAD,))
    page = render_card(card, counter_example=BAD, comparison=BAD, digests={BAD: BAD})
    assert "<script" not in page
    assert page.count("&lt;script&gt;") > 20


def test_words_of_a_text_are_escaped() -> None:
    page = render_card(
        make_text(["a", BAD, "plot", "but", "<b>good</b>", "acting", "and", "good", "music"])
    )
    assert "<script" not in page
    assert "<b>good" not in page


def test_a_text_that_no_file_can_hold_is_written(tmp_path: Path) -> None:
    path = write_card(
        make_customer(answer="half a pair \ud800, a turn \u202e, NUL \x00"), tmp_path / "card.html"
    )
    text = path.read_text(encoding="utf-8")
    assert "\\ud800" in text
    assert "\x00" not in text


@pytest.mark.parametrize(
    "card", [make_customer(), make_image(), make_series(), make_text(), make_unvaried()]
)
def test_a_page_loads_nothing_and_runs_nothing(card: Card) -> None:
    page = render_card(card)
    assert page.startswith("<!doctype html>")
    assert re.findall(r"<(script|link|iframe|object|embed|meta http)", page) == []
    assert all(
        address.startswith("data:image/png")
        for address in re.findall(r'(?:src|href)="([^"]*)"', page)
    )
    assert "@import" not in page
    assert "http" not in page
    assert "nan" not in re.sub(r"base64,[^\"]*", "", page).lower().replace("nanmean", "")
    assert page == render_card(card)


def test_bars_and_lines_are_on_one_scale() -> None:
    card = make_customer()
    rows = make_rows(card, describe_card(card))
    drawn = [row for group in rows.groups for row in group.rows]
    shown = [*card.reasons, *card.others]
    values: list[float] = []
    places: list[float] = []
    for reason, row in zip(shown, drawn, strict=True):
        assert row.mean is not None
        assert row.spread is not None
        end = row.bar.end if reason.value > 0 else row.bar.start
        values += [reason.value, reason.low, reason.high, reason.range_low, reason.range_high, 0.0]
        places += [end, row.mean.start, row.mean.end, row.spread.start, row.spread.end, rows.zero]
    slope, start = np.polyfit(values, places, 1)
    assert slope > 0
    np.testing.assert_allclose(np.array(values) * slope + start, places, atol=0.02)
    assert min(places) >= 0
    assert max(places) <= 100


def test_what_cannot_be_stated_is_hatched() -> None:
    card = make_customer()
    rows = make_rows(card, describe_card(card))
    assert [(group.state, len(group.rows)) for group in rows.groups] == [
        ("holds", 2),
        ("falls", 1),
        ("other", 1),
    ]
    page = render_card(card)
    assert len(re.findall(r'fill="url\(#doubt\)"', page)) == 2 + 1  # and one in the legend


def test_a_mean_interval_that_is_cut_has_no_cap() -> None:
    card = make_customer()
    wide = tuple(replace(reason, low=-100.0, high=100.0) for reason in card.reasons)
    rows = make_rows(replace(card, reasons=wide), describe_card(card))
    mean = rows.groups[0].rows[0].mean
    assert mean is not None
    assert (mean.has_start, mean.has_end) == (False, False)
    assert 0 <= mean.start < mean.end <= 100


def test_what_would_decide_all_is_said_once() -> None:
    card = make_retrained()
    groups = {group.state: group for group in make_rows(card, describe_card(card)).groups}
    assert "retrained models" in groups["undecided"].note
    assert all("decide" not in row.why for row in groups["undecided"].rows)


def test_an_image_has_colour_only_where_its_map_holds() -> None:
    card = make_image()
    area = measure_area(card)
    picture = draw_image(card)
    assert picture is not None
    colours = read_picture(picture.map)
    factor = len(colours) // 28
    blocks = colours.reshape(28, factor, 28, factor, 3).swapaxes(1, 2)
    is_coloured = np.ptp(blocks, axis=-1).max(axis=(2, 3)) > 20
    np.testing.assert_array_equal(is_coloured.ravel(), area.holds)
    is_striped = (blocks[..., 0].max(axis=(2, 3)) != blocks[..., 0].min(axis=(2, 3))).ravel()
    np.testing.assert_array_equal(is_striped, area.doubtful)


def test_red_speaks_for_the_answer_and_blue_against_it() -> None:
    values = np.array([[1.0, -1.0, 0.5]])
    holds = np.array([[True, True, False]])
    painted = paint_area(values, holds, ~holds, np.ones((1, 3, 3)), (8, 8))
    assert painted.shape == (8, 24, 3)
    red, blue, doubtful = painted[:, :8], painted[:, 8:16], painted[:, 16:]
    assert (red[..., 0] > red[..., 2]).all()
    assert (blue[..., 2] > blue[..., 0]).all()
    assert (doubtful == doubtful[..., :1]).all()
    assert len(np.unique(doubtful)) == 2


def test_colours_are_said_in_words_beside_the_bars() -> None:
    """A bar to the right is red and speaks for the decision; in grey print, its side says it."""
    page = render_card(make_customer(answer="declined"))
    head = page[page.index('class="row titles"') : page.index('<h2 class="holds"')]
    assert (
        head.index("← against")
        < head.index("what speaks for &#34;declined&#34;")
        < head.index("for →")
    )
    assert "red, to the right: speaks for &#34;declined&#34;" in page
    assert "blue, to the left: against it" in page
    debt, income = (
        row for row in make_rows(make_customer(), describe_card(make_customer())).groups[0].rows
    )
    assert (debt.kind, income.kind) == ("for", "against")
    assert debt.bar.start == income.bar.end  # both begin at 0
    assert "the bar is this one explanation" in page
    assert "how often among the first 3" in page


def test_an_explainer_without_signs_has_a_colour_of_its_own() -> None:
    assert choose_colours(replace(make_image(), has_signs=False)) is colour_unsigned
    assert choose_colours(make_image()) is colour_signed
    words = draw_words(replace(make_text(), has_signs=False))
    grounds = [bytes.fromhex(word.ground[1:]) for word in words if word.ground]
    assert all(red > green and blue > green for red, green, blue in grounds)  # purple
    page = render_card(replace(make_text(), has_signs=False))
    assert "purple: how much it matters" in page
    assert "red" not in page[page.index("<figcaption>") : page.index("</figcaption>")].replace(
        "underlined", ""
    )


def test_stripes_do_not_depend_on_strength() -> None:
    doubtful = np.ones((1, 1), dtype=bool)
    weak, strong = (
        paint_area(np.array([[size]]), ~doubtful, doubtful, np.ones((1, 1, 3)), (6, 6))
        for size in (0.1, 9.0)
    )
    np.testing.assert_array_equal(weak, strong)


# at most as large as it is drawn, with an odd side, and larger
@pytest.mark.parametrize("side", [1, 161, 330])
def test_images_of_any_size_are_drawn(side: int) -> None:
    picture = draw_image(make_image(side, top=max(1, side * side // 10), channels=3, count=12))
    assert picture is not None
    assert read_picture(picture.image).shape == read_picture(picture.map).shape
    assert max(read_picture(picture.map).shape) <= 320


def test_words_that_hold_have_colour_and_doubtful_ones_a_line() -> None:
    words = draw_words(make_text())
    assert [(word.text, word.state) for word in words if word.state] == [
        ("dull", "holds"),
        ("good", "holds"),
        ("good", "doubtful"),
    ]
    assert all(bool(word.ground) == (word.state == "holds") for word in words)


def test_a_long_text_shows_its_reasons() -> None:
    words = ["a", "dull", "plot", "but", "good", "acting", "and", "good", "music"]
    card = make_text(words)
    filled = replace(
        card,
        names=("more",) * 1000 + card.names,
        origin=np.concatenate([np.zeros(1000), card.origin]),
        signs=np.concatenate([np.zeros(1000), card.signs]),
        shares=np.concatenate([np.zeros(1000), card.shares]),
        reasons=tuple(replace(reason, feature=reason.feature + 1000) for reason in card.reasons),
    )
    shown = draw_words(filled)
    assert len(shown) < 200
    assert [word.text for word in shown if word.state] == ["dull", "good", "good"]
    assert sum(word.follows_gap for word in shown) == 1


def test_optional_parts_are_shown_where_they_are_given() -> None:
    parts = {"counter_example": "With income 1,260 ...", "comparison": "Steadier than 80%"}
    page = render_card(make_customer(), **parts, digests={"model": "9f8a"})  # type: ignore[arg-type]
    assert all(text in page for text in [*parts.values(), "9f8a"])
    without = render_card(make_customer())
    assert not any(text in without for text in [*parts.values(), "9f8a", "Counter-example"])


def test_an_unvaried_card_has_no_marks_of_draws() -> None:
    page = render_card(make_unvaried())
    assert re.findall(r'<line class="(mean|spread|demand|named|track)"', page) == []
