"""`standfast.choose`: explainers and their options race, and the one that is left is confirmed on other samples."""

from __future__ import annotations

from standfast.race.entry import RaceOutcome, choose
from standfast.race.studies import choose_by_study

__all__ = ["RaceOutcome", "choose", "choose_by_study"]
