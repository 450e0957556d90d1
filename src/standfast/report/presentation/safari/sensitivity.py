"""Max-sensitivity and local Lipschitz: the largest distance, or slope, between explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from standfast.report.presentation.base import Detail, Presentation, presentations
from standfast.report.presentation.kept_class import count_kept_class


@presentations.register("max_sensitivity")
class MaxSensitivityPresentation(Presentation):
    """The largest distance between explanations."""

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How much of the neighbourhood keeps the answer."""
        return count_kept_class(frame)


@presentations.register("local_lipschitz")
class LocalLipschitzPresentation(MaxSensitivityPresentation):
    """The largest slope between explanations."""
