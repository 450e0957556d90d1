"""What all charts share: names and legends that fit in any font, axes of probabilities, lines of reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from standfast.charts import Chart, Line, Strip, draw_heat_table, draw_lines, draw_strips
from standfast.charts.base import LN_P, make_legend
from standfast.report.render import render_for_page

LONG = "integrated gradients, 64 steps of Gauss and Legendre"
#: pixels of a letter of size 12 in DejaVu Sans, which is wide, and in Liberation Sans, for which charts are drawn
WIDE, DRAWN = 7.3, 6.0


def strips(axis: str, bounds: bool = False, name: str = "a") -> Chart:
    values = np.array([-12.0, -5.0, -2.0, -0.2])
    strip = Strip(name, range(4), values, np.full(4, bounds))
    chart = draw_strips([strip], [name], "a title", axis, "lower", good="more robust")
    assert chart is not None
    return chart


def lines(*names: str, **more: Any) -> Chart:
    x = np.arange(5.0)
    chart = draw_lines([Line(name, x, -5 * x) for name in names], names, "title", "x", more.pop("axis", "y"), **more)
    assert chart is not None
    return chart


def titles(chart: Chart, channel: str) -> list[Any]:
    found = [
        layer["encoding"][channel]["title"]
        for layer in chart.spec["layer"]
        if "title" in layer["encoding"].get(channel, {})
    ]
    assert all(title == found[0] for title in found)
    return found[:1]


def test_an_axis_of_probabilities_also_says_one_in_how_many() -> None:
    upright, level = (render_for_page(chart, 1).svg for chart in (lines("a", axis=LN_P), strips(LN_P)))
    for svg in (upright, level):
        assert "ln P, and the probability" in svg
        assert "1 in 150" in svg or "1 in 160" in svg or "1 in 22k" in svg
        assert "1 in 1<" in svg
        assert "%<" not in svg  # one way of writing probabilities
    assert "1 in 10^9" in upright  # at −20
    assert "1 in" not in render_for_page(strips("similarity"), 1).svg


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


def test_titles_beside_an_axis_are_one_line_with_the_better_side() -> None:
    assert titles(strips("similarity"), "x") == [["similarity", "← more robust"]]
    assert titles(lines("a", axis="drop", direction="higher"), "y") == ["drop, better →"]
    assert titles(lines("a", axis="drop"), "y") == ["drop"]
    long = "the share of the class's probability that is lost"
    assert titles(lines("a", axis=long, direction="higher"), "y") == [[long, "better →"]]


def test_names_in_a_legend_have_space_for_wide_fonts() -> None:
    for names in (["saliency"], ["saliency", "integrated gradients"], ["a", LONG]):
        legend = make_legend(names)
        longest = max(map(len, names))
        if legend["columns"] > 1:
            assert legend["columnPadding"] >= (WIDE - DRAWN) * longest
            assert legend["columns"] * (DRAWN * longest + 16) + legend["columnPadding"] <= 400
        assert legend["labelLimit"] >= min(longest * DRAWN, 300)
    scales = [
        layer["encoding"]["color"]["legend"] for layer in lines("a", LONG).spec["layer"] if "color" in layer["encoding"]
    ]
    assert {legend["columns"] for legend in scales} == {1}


def test_names_of_rows_have_space_for_wide_fonts() -> None:
    chart = strips("similarity", name="guided backprop")
    axes = [layer["encoding"]["y"]["axis"] for layer in chart.spec["layer"] if "axis" in layer["encoding"].get("y", {})]
    assert axes
    assert all(axis["minExtent"] >= WIDE * len("guided backprop") for axis in axes)
    table = draw_heat_table(["integrated gradients"], ["conv"], np.array([[0.5]]), "title", "rho")
    assert table is not None
    assert table.spec["encoding"]["y"]["axis"]["minExtent"] >= WIDE * len("integrated gradients")


def test_a_level_is_a_dotted_line_across_the_chart() -> None:
    (rule,) = [layer for layer in lines("a", level=1.0).spec["layer"] if layer["mark"]["type"] == "rule"]
    assert rule["data"]["values"] == [{"at": 1.0}]
    assert list(rule["encoding"]) == ["y"]
    assert not any(layer["mark"]["type"] == "rule" for layer in lines("a").spec["layer"])


def test_bounds_are_explained_where_they_are_drawn() -> None:
    assert "only bounds: the value lies at or below them" in strips(LN_P, bounds=True).caption
    assert "only bounds" not in strips(LN_P).caption
