"""Cards of reasons, made of the stored draws of the metric `reasons`."""

from standfast.results.reasons.card import Alone, Card, Reason, Source
from standfast.results.reasons.draws import StoredDraws, Wanted
from standfast.results.reasons.make import make_card

__all__ = ["Alone", "Card", "Reason", "Source", "StoredDraws", "Wanted", "make_card"]
