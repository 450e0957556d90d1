"""Cards: one page for one decision, which says which of its reasons can be stated, and which cannot, and why."""

from standfast.report.cards.page import render_card, write_card
from standfast.report.cards.plain import card_to_json, format_card
from standfast.report.cards.words import CardWords, ReasonWords, describe_card

__all__ = [
    "CardWords",
    "ReasonWords",
    "card_to_json",
    "describe_card",
    "format_card",
    "render_card",
    "write_card",
]
