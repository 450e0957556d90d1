"""Max-sensitivity and local Lipschitz: the largest distance, or slope, between explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from holdfast.charts import Chart, Gallery
from holdfast.presentation.base import Presentation, Reading, View, draw_distribution, presentations
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

    def figures(self, view: View) -> list[Chart | Gallery]:
        """The distribution over samples."""
        return draw_distribution(
            view,
            note="Each value is the largest among inputs that were tried nearby. Others may have larger values, so a "
            "small one is no proof of robustness.",
        )

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
