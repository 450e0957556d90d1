"""Seed agreement: the mean similarity of maps under different seeds, with ranks, first features and signs beside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.estimates import count_flag


@presentations.register("seed_agreement")
class SeedAgreementPresentation(Presentation):
    """The mean similarity over pairs of seeds."""

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Medians of Kendall's tau, of the overlap beside its chance level, and of the agreement of signs."""
        top = options.get("top", 3)
        titles = {
            "kendall": "Kendall's tau",
            "overlap": f"top-{top} overlap",
            "chance": "overlap of features in a random order",
            "signs": "same signs",
        }
        values = {
            name: frame[name].drop_nans().median() for name in titles if name in frame.columns
        }
        medians = [
            Detail(titles[name], float(value))
            for name, value in values.items()
            if isinstance(value, float)
        ]
        return [*medians, *count_flag(frame, "split", "with two groups of seeds")]
