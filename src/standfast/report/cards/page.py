"""The page of a card: one HTML file, without scripts, that loads nothing and prints on one sheet of A4."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from standfast.files import write_atomically
from standfast.report.cards.facts import (
    format_chance,
    format_share,
    has_map,
    has_passages,
    is_text,
    name_answer,
    name_case,
    name_score,
    supported_answer,
)
from standfast.report.cards.pictures import count_words, draw_image, draw_series, draw_words
from standfast.report.cards.rows import Span, make_rows, place_share
from standfast.report.cards.words import describe_card
from standfast.report.page.names import allow_breaks, show_unsafe
from standfast.report.words import make_environment
from standfast.results.reasons import Card

if TYPE_CHECKING:
    import jinja2

#: from so many rows on the print is smaller
_DENSE = 9
_CROWDED = 14
#: words of a text that take as much room as a row
_WORDS_OF_ROW = 40
#: the letters of the case, and of a text that the user adds, that fit on the sheet; and of a digest
_LETTERS_OF_CASE = 700
_MOST_LETTERS = 500
_LETTERS_OF_DIGEST = 200


def render_card(
    card: Card,
    counter_example: str | None = None,
    comparison: str | None = None,
    digests: Mapping[str, str] | None = None,
    text: bool | None = None,
) -> str:
    """A card as one HTML document. The same card gives the same bytes.

    Args:
        card: of one decision.
        counter_example: the smallest change after which a reason is not named any more, in a sentence.
        comparison: how this decision compares with others, in a sentence.
        digests: what identifies the model, the data and the software, by name; None for those of the card.
        text: whether features are the words of a text; None to find out.
    """
    words = describe_card(card)
    rows = make_rows(card, words)
    if card.decided and card.chance < 1:
        chance = card.chance
    else:
        chance = 0.0
    if text is None:
        text = is_text(card)
    pictures = _draw_input(card, text)
    letters = _LETTERS_OF_CASE
    if rows.count >= _CROWDED:
        letters //= 2
    columns = _list_columns(card, letters)
    # the beginning of a passage takes two lines
    lines_of_reason = 2 if has_passages(card) else 1
    context: dict[str, Any] = {
        "words": words,
        "rows": rows,
        "about": _describe_about(card),
        "density": _choose_density(
            rows.count * lines_of_reason,
            sum(count_words(word.text) for word in pictures["text"]),
        ),
        "tested": bool(card.varied) and card.draws > 0,
        "demand": place_share(card.demand),
        "demand_text": format_share(card.demand),
        "chance": place_share(chance) if chance else None,
        "chance_text": format_chance(card),
        "ends": (place_share(0.0), place_share(1.0)),
        "legend_span": Span(5.0, 95.0),
        "decided": card.decided,
        "answer": name_answer(card),
        "score": name_score(card),
        "signed": card.has_signs is not False,
        "supported": supported_answer(card),
        "raised": card.says_what_raising_does,
        "unit": card.unit,
        "top": card.top,
        "case": columns,
        "more_columns": len(card.columns) - len(columns),
        "counter_example": _shorten(counter_example),
        "comparison": _shorten(comparison),
        "digests": _list_digests(card.digests if digests is None else digests),
        **pictures,
    }
    return show_unsafe(_read_template().render(context).lstrip())


@cache
def _read_template() -> jinja2.Template:
    """The template of all cards, which Jinja compiles once."""
    environment = make_environment()
    environment.filters["breakable"] = allow_breaks
    return environment.get_template("cards/card.html")


def write_card(card: Card, path: str | Path, **parts: Any) -> Path:
    """Write the page of a card and return its path.

    Args:
        card: of one decision.
        path: of the HTML file.
        parts: as for `render_card`.
    """
    target = Path(path)
    write_atomically(target, render_card(card, **parts).encode())
    return target


def _draw_input(card: Card, has_words: bool) -> dict[str, Any]:
    """The picture of the input: of an image, a series or a text; of another input none."""
    pictures: dict[str, Any] = {"image": None, "lanes": [], "text": []}
    if card.input is None or not has_map(card):
        return pictures
    dimensions = np.ndim(card.input)
    if dimensions == 3:
        pictures["image"] = draw_image(card)
    elif dimensions == 2:
        pictures["lanes"] = draw_series(card)
    elif dimensions == 1 and has_words:
        pictures["text"] = draw_words(card)
    return pictures


def _describe_about(card: Card) -> str:
    """Which data, sample, model and explainer."""
    case = f"{card.data}, {name_case(card)}"
    return f"{case} · model {card.model} · explained by {card.explainer}"


def _list_columns(card: Card, letters: int) -> list[tuple[str, str]]:
    """The columns of the case with their values, the first ones that have so many letters together."""
    columns: list[tuple[str, str]] = []
    for name, value in card.columns.items():
        letters -= len(name) + len(value) + 3
        if letters < 0:
            break
        columns.append((name, value))
    return columns


def _choose_density(rows: int, words: int) -> str:
    """How small the print is, so that one sheet is enough for so many rows and words of a text."""
    if rows >= _CROWDED:
        return "dense crowded"
    taken = rows + words // _WORDS_OF_ROW
    return "dense" if taken >= _DENSE else ""


def _list_digests(digests: Mapping[str, str]) -> list[tuple[str, str]]:
    """Names and hashes that fit on the sheet."""
    return [(name, _cut(digest, _LETTERS_OF_DIGEST)) for name, digest in digests.items()]


def _cut(text: str, letters: int) -> str:
    """So many letters of a text at most."""
    if len(text) <= letters:
        return text
    return text[: letters - 1] + "…"


def _shorten(sentence: str | None) -> str:
    """A sentence of the user that fits on the sheet."""
    return _cut(sentence or "", _MOST_LETTERS)
