"""Reasons of decisions: the cards that `standfast.reasons` makes, and how many background rows are enough."""

from standfast.reason_cards.background_sizes import (
    BackgroundCurve,
    BackgroundSize,
    background_curve,
)
from standfast.reason_cards.cards import ReasonCards, Share, reasons

__all__ = [
    "BackgroundCurve",
    "BackgroundSize",
    "ReasonCards",
    "Share",
    "background_curve",
    "reasons",
]
