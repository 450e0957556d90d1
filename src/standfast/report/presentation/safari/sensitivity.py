"""Max-sensitivity and local Lipschitz: the largest distance, or slope, between explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import polars as pl

from standfast.report.presentation.kept_class import count_kept_class
from standfast.results.presentation import Detail, Presentation, ValueSpec, presentations


@presentations.register("max_sensitivity")
class MaxSensitivityPresentation(Presentation):
    """The largest distance between explanations."""

    what: ClassVar[str] = "distance"
    title: ClassVar[str] = "Max-sensitivity: largest distance between explanations"

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """Smaller is more robust; explainers are ranked only where `normalise` puts their maps on one scale."""
        direction = self.direction_of(options) if options.get("normalise") else None
        caution = "" if options.get("normalise") else "It grows with the scale of an explainer's maps."
        axis = f"largest {self.what}" + (", normalised" if options.get("normalise") else "")
        empty = "of which no copy keeps the answer" if options.get("same_class") else ValueSpec.empty
        return ValueSpec(self.title, axis, direction, caution=caution, good="more robust", empty=empty)

    def details(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[Detail]:
        """How much of the neighbourhood keeps the answer."""
        return count_kept_class(frame)


@presentations.register("local_lipschitz")
class LocalLipschitzPresentation(MaxSensitivityPresentation):
    """The largest slope between explanations."""

    what: ClassVar[str] = "slope"
    title: ClassVar[str] = "Local Lipschitz: largest slope between explanations"
