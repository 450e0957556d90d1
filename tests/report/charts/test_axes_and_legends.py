"""What all charts share: names and legends that fit in any font, axes of probabilities, lines of reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from standfast.report.charts import Chart, Line, draw_lines
from standfast.report.charts.base import LN_P
from standfast.report.page.render import render_for_page

#: pixels of a letter of size 12 in DejaVu Sans, which is wide, and in Liberation Sans, for which charts are drawn
WIDE, DRAWN = 7.3, 6.0


def lines(*names: str, **more: Any) -> Chart:
    x = np.arange(5.0)
    chart = draw_lines([Line(name, x, -5 * x) for name in names], names, "title", "x", more.pop("axis", "y"), **more)
    assert chart is not None
    return chart


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "1 in 1"), (-2.0, "1 in 7.4"), (-5.0, "1 in 150"), (-10.0, "1 in 22k"), (-40.0, "1 in 10^17")],
)
def test_probabilities_are_written_as_people_say_them(value: float, text: str) -> None:
    x = np.array([0.0, 1.0])
    chart = draw_lines([Line("a", x, np.array([value, value]))], ["a"], "title", "x", LN_P)
    assert chart is not None
    for layer in chart.spec["layer"]:
        layer["encoding"]["y"]["axis"] = {**layer["encoding"]["y"]["axis"], "values": [value]}
    assert f">{text}<" in render_for_page(chart, 1).svg
