"""c-Eval over sizes of the explanation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from standfast.report.charts import Chart, Gallery
from standfast.report.presentation.c_eval.c_eval import NO_CHANGE, CEvalPresentation, draw_sweep
from standfast.report.presentation.drawing import draw_distribution
from standfast.results.presentation import MetricResults, ValueSpec, presentations


@presentations.register("c_eval_plot")
class CEvalPlotPresentation(CEvalPresentation):
    """c-Eval over sizes of the explanation."""

    def value_spec(self, options: Mapping[str, Any]) -> ValueSpec:
        """A larger mean ratio is better."""
        return ValueSpec(
            "c-Eval over sizes: mean of c(e) / c(empty)",
            "mean c(e) / c(empty)",
            self.direction_of(options),
            2,
            censored="bound",
            censored_side="lower",
            empty=NO_CHANGE,
        )

    def question(self, options: Mapping[str, Any]) -> str:
        """The question of c-Eval, over sizes."""
        return "Do the features that the map puts first hold the class, however many?"

    def verdict(self, view: MetricResults) -> str:
        """The median of the mean ratios."""
        return self._word_verdict(view, "With the features fixed that {} first")

    def figures(self, view: MetricResults) -> list[Chart | Gallery]:
        """The plot, and the distribution of its means."""
        curves = draw_sweep(view)
        return [*([] if curves is None else [curves]), *draw_distribution(view)]

    def guide(self, options: Mapping[str, Any]) -> dict[str, str]:
        """What the terms of c-Eval mean, and what a knee is."""
        knee_text = (
            "The size farthest above the straight line between a curve's ends. Beyond it, more features gain less. A "
            "curve with a size at which no change was found has no known end, and so no knee."
        )
        return {**super().guide(options), "Knee": knee_text}
