"""Max-sensitivity and local Lipschitz: the largest distance, or slope, between explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl

from holdfast.presentation.base import Presentation, Reading, Standing, View, presentations
from holdfast.presentation.safari.terms import COMPARED


@presentations.register("max_sensitivity")
class MaxSensitivityPresentation(Presentation):
    """The largest distance between explanations."""

    what: ClassVar[str] = "distance"
    title: ClassVar[str] = "Max-sensitivity: largest distance between explanations"

    def reading(self, options: Mapping[str, Any]) -> Reading:
        """Smaller is more robust, provided that the maps are on one scale."""
        caution = "" if options.get("normalise") else "It grows with the scale of an explainer's maps."
        axis = f"largest {self.what}" + (", normalised" if options.get("normalise") else "")
        return Reading(self.title, axis, self.direction_of(options), caution=caution, good="more robust")

    def question(self, options: Mapping[str, Any]) -> str:
        """How far or how fast a map moves."""
        return "How far do maps move under small random noise?"

    def verdict(self, view: View) -> str:
        """The median over samples of the largest distance, as a share of the map where it is normalised."""
        normalised = bool(view.options.get("normalise"))

        def measure(rows: pl.DataFrame) -> tuple[float, str] | None:
            values = view.reading.values(view.reading.select_valid(rows))
            if not len(values):
                return None
            middle = float(np.median(values))
            return middle, f"{100 * middle:.0f}%" if normalised else f"{middle:.3g}"

        ranked = view.rank(measure, "lower")
        if not ranked:
            return ""
        best, worst = ranked[0], ranked[-1]
        rest = "" if len(ranked) == 1 else f", and that of {best.who} by {best.text}"
        return self._word_verdict(worst, rest, normalised)

    def _word_verdict(self, worst: Standing, rest: str, normalised: bool) -> str:
        unit = " of its own size" if normalised else ""
        return f"Noise moves the map of {worst.who} by up to {worst.text}{unit}{rest} (medians over samples)."

    def unfair(self, view: View) -> str:
        """That maps with larger numbers seem to move further, unless they are normalised."""
        return "" if view.options.get("normalise") else "Maps with larger numbers look worse by this."

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the numbers and the options mean."""
        text = (
            "Distances between maps as they are. They depend on the scale of the maps, so explainers with larger "
            "attributions seem less robust, unless `normalise` is on. A sampled maximum lies below the true one."
        )
        return {"Max-sensitivity and local Lipschitz": text, **COMPARED}


@presentations.register("local_lipschitz")
class LocalLipschitzPresentation(MaxSensitivityPresentation):
    """The largest slope between explanations."""

    what: ClassVar[str] = "slope"
    title: ClassVar[str] = "Local Lipschitz: largest slope between explanations"

    def question(self, options: Mapping[str, Any]) -> str:
        """How fast a map changes."""
        return "How fast do maps change with the input?"

    def _word_verdict(self, worst: Standing, rest: str, normalised: bool) -> str:
        unit = " of its own size for each unit" if normalised else " times as far as the input"
        return f"The map of {worst.who} moves by up to {worst.text}{unit}{rest} (medians over samples)."
