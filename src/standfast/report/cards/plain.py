"""Cards as plain text for a terminal, and as JSON."""

from __future__ import annotations

import dataclasses
import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standfast.report.cards.facts import (
    format_share,
    format_shares,
    format_signed,
    name_case,
    title_reason,
)
from standfast.report.cards.words import CardWords, describe_card
from standfast.results.reasons import Card, Reason

#: the letters of a line
_WIDTH = 100
#: the columns of the table: the words of a feature get what is left
_NUMBERS = (10, 20, 20, 22)
#: before why a reason cannot be stated
_INDENT = 4 * " "
#: larger arrays are left out of the JSON
MOST_VALUES = 1024


def format_card(card: Card) -> str:
    """A card as plain text, in lines of at most 100 letters."""
    words = describe_card(card)
    case = f"{card.data}, {name_case(card)}"
    about = f"{case}, model {card.model}, explained by {card.explainer}"
    parts = [*_wrap(f"Decision: {words.decision}"), *_wrap(about), ""]
    for sentence in (words.warning, words.summary, words.same):
        parts += _wrap(sentence)
    if card.reasons:
        parts += ["", *_tabulate(card, words), ""]
    parts += _wrap(words.varied)
    for sentence in (*words.alone, *words.notes):
        parts += _wrap(sentence, "- ")
    if card.digests:
        digests = [f"{name} {digest}" for name, digest in card.digests.items()]
        parts += _wrap("; ".join(digests))
    return "\n".join(parts).rstrip()


def _wrap(sentence: str, mark: str = "") -> list[str]:
    """The lines of a sentence."""
    indent = " " * len(mark)
    return textwrap.wrap(sentence, _WIDTH, initial_indent=mark, subsequent_indent=indent)


def _tabulate(card: Card, words: CardWords) -> list[str]:
    """A line for each reason, with the reason why it cannot be stated below it."""
    is_tested = bool(card.varied) and card.draws > 0
    heads = ("value", "mean", "90% of variations", "named") if is_tested else ("value",)
    lines = [_format_line("reason", heads)]
    for reason in card.reasons:
        if is_tested:
            cells = _list_cells(reason)
        else:
            cells = [format_signed(reason.value)]
        sign = _SIGNS[reason.state] if is_tested else " "
        title = title_reason(card, reason)
        lines.append(_format_line(f"{sign} {title}", cells))
        in_words = words.find(reason.feature)
        if in_words is not None:
            why = "; ".join(filter(None, [in_words.raising, in_words.why, in_words.needs]))
            lines += textwrap.wrap(why, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)
    if is_tested:
        lines.append("+ can be stated; - cannot be stated; ? not decided yet")
        lines += _wrap(words.unseen)
    return lines


_SIGNS: Mapping[str, str] = {"holds": "+", "falls": "-", "undecided": "?", "": " "}


def _list_cells(reason: Reason) -> list[str]:
    """The numbers of a reason."""
    share = format_share(reason.probability)
    interval = format_shares(reason.probability_low, reason.probability_high)
    return [
        format_signed(reason.value),
        _format_ends(reason.low, reason.high),
        _format_ends(reason.range_low, reason.range_high),
        f"{share} ({interval})",
    ]


def _format_ends(low: float, high: float) -> str:
    """An interval of values; empty where it is not known."""
    if not math.isfinite(low):
        return ""
    return f"{format_signed(low)} to {format_signed(high)}"


def _format_line(title: str, cells: Sequence[str]) -> str:
    """A line of the table."""
    widths = _NUMBERS[: len(cells)]
    room = _WIDTH - sum(widths)
    if len(title) < room:
        shown = title
    else:
        shown = title[: room - 4] + "..."
    # a cell that is wider than its column still stands apart from the one before it
    columns = [f" {cell}".rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return (shown.ljust(room) + "".join(columns)).rstrip()


def card_to_json(card: Card) -> dict[str, Any]:
    """A card as plain values that JSON has: NaN and infinity are None, arrays are lists.

    Arrays of more than 1,024 values, such as those of photographs, are left out; `shapes` has what they were. Beside
    the fields of the card there are its sentences, `words`.
    """
    plain: dict[str, Any] = {}
    shapes: dict[str, list[int]] = {}
    for field in dataclasses.fields(card):
        value = getattr(card, field.name)
        if isinstance(value, np.ndarray):
            shapes[field.name] = list(value.shape)
            value = value if value.size <= MOST_VALUES else None
        plain[field.name] = _make_plain(value)
    return {**plain, "shapes": shapes, "words": _make_plain(describe_card(card))}


def _make_plain(value: Any) -> Any:
    """A value as JSON has it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: _make_plain(getattr(value, field.name))
            for field in dataclasses.fields(value)
        }
    if isinstance(value, Mapping):
        return {str(key): _make_plain(part) for key, part in value.items()}
    if isinstance(value, np.ndarray):
        return _make_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_make_plain(part) for part in value]
    if isinstance(value, np.generic):
        return _make_plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
