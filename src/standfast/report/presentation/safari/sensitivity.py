"""Max-sensitivity and local Lipschitz: the largest distance, or slope, between explanations."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
import polars as pl

from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.drawing import draw_distribution
from standfast.report.presentation.kept_class import KEPT, describe_kept_class
from standfast.report.presentation.safari.terms import COMPARED
from standfast.report.presentation.wording import describe_transformation
from standfast.results.presentation import MetricResults, Presentation, RankedGroup, ValueSpec, presentations


@presentations.register("max_sensitivity")
class MaxSensitivityPresentation(Presentation):
    """The largest distance between explanations."""

    what: ClassVar[str] = "distance"
    title: ClassVar[str] = "Max-sensitivity: largest distance between explanations"

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """Smaller is more robust, provided that the maps are on one scale."""
        caution = "" if options.get("normalise") else "It grows with the scale of an explainer's maps."
        axis = f"largest {self.what}" + (", normalised" if options.get("normalise") else "")
        empty = "of which no copy keeps the class" if options.get("same_class") else ValueSpec.empty
        return ValueSpec(self.title, axis, self.direction_of(options), caution=caution, good="more robust", empty=empty)

    def remarks(self, frame: pl.DataFrame, options: Mapping[str, Any]) -> list[str]:
        """How much of the neighbourhood keeps the class."""
        return describe_kept_class(frame)

    def question(self, options: Mapping[str, Any]) -> str:
        """How far or how fast a map moves."""
        changed = describe_transformation(options)
        return (
            f"How far do maps move when an input is {changed}?"
            if changed
            else "How far do maps move under small random noise?"
        )

    def verdict(self, view: MetricResults) -> str:
        """The median over samples of the largest distance, as a share of the map where it is normalised."""
        normalised = bool(view.options.get("normalise"))

        def measure(rows: pl.DataFrame) -> tuple[float, str] | None:
            values = view.spec.values(view.spec.select_valid(rows))
            if not len(values):
                return None
            middle = float(np.median(values))
            return middle, f"{100 * middle:.0f}%" if normalised else f"{middle:.2g}"

        ranked = view.rank(measure, "lower")
        if not ranked:
            return ""
        cause = "such a change" if describe_transformation(view.options) else "noise"
        best = ranked[0] if len(ranked) > 1 else None
        return f"{self._word_verdict(cause, ranked[-1], best, normalised)}{view.name_medians()}."

    def _word_verdict(self, cause: str, worst: RankedGroup, best: RankedGroup | None, normalised: bool) -> str:
        """The sentence for what moves maps, the worst explainer and, if there is another, the best."""
        size = f" of {worst.choose('its', 'their')} own size" if normalised else ""
        rest = "" if best is None else f", and {best.those} by {best.text}"
        return f"{cause.capitalize()} moves {worst.maps} by up to {worst.text}{size}{rest}"

    def comparability_warning(self, view: MetricResults) -> str:
        """That maps with larger numbers seem to move further, unless they are normalised."""
        return "" if view.options.get("normalise") else "Maps with larger numbers look worse by this."

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
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
        return {"Max-sensitivity and local Lipschitz": text, **KEPT, **COMPARED}


@presentations.register("local_lipschitz")
class LocalLipschitzPresentation(MaxSensitivityPresentation):
    """The largest slope between explanations."""

    what: ClassVar[str] = "slope"
    title: ClassVar[str] = "Local Lipschitz: largest slope between explanations"

    def question(self, options: Mapping[str, Any]) -> str:
        """How fast a map changes."""
        changed = describe_transformation(options)
        return (
            f"How fast do maps change when an input is {changed}?"
            if changed
            else "How fast do maps change with the input?"
        )

    def _word_verdict(self, cause: str, worst: RankedGroup, best: RankedGroup | None, normalised: bool) -> str:
        rest = "" if best is None else f", and {best.those} {best.text}"
        if normalised:
            return f"For each unit of distance, {cause} moves {worst.maps} by up to {worst.text} of its size{rest}"
        far = f"up to {worst.text} times as far as the input{rest}{' times' if best else ''}"
        return f"{cause.capitalize()} moves {worst.maps} {far}"
