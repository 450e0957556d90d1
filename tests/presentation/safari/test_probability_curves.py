"""The bands of ln P against the threshold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from report_builder import Builder

from holdfast.charts import Chart
from holdfast.presentation import View
from holdfast.presentation.safari.misinterpretation_probability import ProbabilityPresentation
from holdfast.report.views import Contents

LINE, ERROR = [-3.0, -5.0], [0.2, 0.3]  # the levels that the builder stores, without that of the class


def find_bands(view: View) -> list[tuple[float, float]]:
    """Of the curve of the first sample, the ends of the band at each level."""
    (chart,) = [
        figure
        for figure in ProbabilityPresentation("misinterpretation_probability").figures(view)
        if isinstance(figure, Chart) and figure.name == "curve-sample0"
    ]
    return [(row["low"], row["high"]) for row in chart.spec["datasets"]["lines"]]


@pytest.mark.parametrize("resolved", [True, False])
def test_the_band_of_an_unresolved_run_reaches_the_upper_end_of_its_interval(tmp_path: Path, resolved: bool) -> None:
    builder = Builder(tmp_path / "results")
    more: dict[str, Any] = {"resolved": [resolved], "bound": [not resolved], "high": [-4.4 if resolved else -2.5]}
    builder.probability("a", [-5.0], more=more)
    (label,) = builder.names["metrics"]
    bands = find_bands(Contents(builder.results()).view("digits", "lenet", label))
    upper = [y + 1.96 * error for y, error in zip(LINE, ERROR, strict=True)]
    expected = upper if resolved else [-2.5, -2.5]
    assert [high for _, high in bands] == pytest.approx(expected, abs=2e-3)
    assert [low for low, _ in bands] == pytest.approx(
        [y - 1.96 * e for y, e in zip(LINE, ERROR, strict=True)], abs=2e-3
    )
