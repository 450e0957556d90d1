"""Near-affinity: how far a decision surface is from a plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from standfast.report.charts import Axis, Chart, Gallery, Line, Words, draw_lines
from standfast.report.presentation.c_eval.c_eval import NO_CHANGE
from standfast.report.presentation.drawing import draw_distribution
from standfast.results.presentation import MetricResults, Presentation, ValueSpec, presentations


@presentations.register("near_affinity")
class NearAffinityPresentation(Presentation):
    """Near-affinity: how far a decision surface is from a plane."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """The deviation describes the model, so it ranks no explainers."""
        return ValueSpec(
            "Near-affinity: mean deviation of the estimated c(empty)",
            "mean |log ratio|",
            self.direction_of(options),
            censored="bound",
            censored_side="lower",
            empty=NO_CHANGE,
        )

    def question(self, options: Mapping[str, Any]) -> str:
        """How near to a plane."""
        return "Is the model nearly linear around the inputs?"

    def verdict(self, view: MetricResults) -> str:
        """The factor by which the estimate for a plane misses."""
        measure = view.median_in(lambda log_ratio: f"{np.exp(log_ratio):.2f}")
        ranked = view.rank(measure, "lower")
        if not ranked:
            return ""
        between = ranked[0].text if len(ranked) == 1 else f"{ranked[0].text} to {ranked[-1].text}"
        known = view.name_medians("medians; ")
        return f"An estimate that is exact for a linear model misses by a factor of {between} ({known}1 is linear)."

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """c_hat / c(empty) against the size, and the distribution of the deviations."""
        lines = []
        for name in view.present:
            sizes, shares = np.empty(0), []
            for row, arrays in view.lines(name, ("estimate", "fractions"), len(view.frame)):
                sizes = np.asarray(arrays["fractions"], dtype=float)
                if row["c_empty"] is not None:
                    shares.append(np.asarray(arrays["estimate"], dtype=float) / float(row["c_empty"]))
            if np.isfinite(shares).any():
                known = np.where(np.isfinite(shares), shares, np.nan)
                some = np.isfinite(known).any(axis=0)
                low, middle, high = np.nanquantile(known[:, some], [0.25, 0.5, 0.75], axis=0)
                sizes = sizes[some]
                lines.append(Line(name, sizes, middle, low, high))
        words = Words(
            "Near-affinity: estimated c(empty) divided by the one found",
            "Line: median over samples. Band: the middle half of them. Dotted: 1, where all lines lie if the "
            "model's decision surface is a plane. Samples without a change at a size are left out there. "
            "It describes the model around these samples, not the explainers.",
            "near-affinity",
            "How far is the decision surface from a plane?",
        )
        ratio = Axis("estimated c(empty) / c(empty)", rules=(1.0,))
        chart = draw_lines(lines, view.explainers, Axis("share of features fixed"), ratio, words)
        return [*([] if chart is None else [chart]), *draw_distribution(view)]

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What near-affinity means."""
        text = (
            "For an affine classifier the distortions with an explanation fixed, with the rest fixed and with no "
            "feature fixed satisfy a relation like that of Pythagoras. How far they are from it says how far the "
            "decision surface around the input is from a plane. This describes the model, not the explainer."
        )
        return {"Near-affinity": text}
