"""Localisation in a report: relevance inside known regions, compared with chance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.estimates import find_finite
from standfast.results import MetricResults
from standfast.value_spec import read_flags, read_numbers


@presentations.register("relevance_localisation")
class RelevanceLocalisationPresentation(Presentation):
    """Relevance inside known regions, compared with chance."""

    def facts(self, results: MetricResults) -> dict[str, Any]:
        """The mean, the least and the largest share of positions that are inside, which is chance; empty without."""
        chance = find_finite(results.spec.select_valid(results.frame), "chance")
        if not len(chance):
            return {}
        mean = float(chance.mean())
        return {
            "chance": mean,
            "low": float(chance.min()),
            "high": float(chance.max()),
            "rules": (mean,),
        }

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """Rank accuracy, hits of the most relevant position, chance, and maps without positive relevance."""
        if not len(frame):
            return []
        rank, chance = (
            float(np.nanmean(read_numbers(frame, name))) for name in ("rank_accuracy", "chance")
        )
        hits, without = (
            int(read_flags(frame, name).sum()) for name in ("pointing_hit", "no_positive")
        )
        return [
            Detail("rank accuracy, mean", rank, decimals=3),
            Detail("most relevant position inside", hits, len(frame)),
            Detail("chance level of all three", chance, decimals=3),
            Detail("maps without positive relevance, which count with 0", without, len(frame)),
        ]
