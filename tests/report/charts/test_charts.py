"""The data and encodings of each chart, that it is drawn as SVG, and that names from strangers do no harm."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from typing import Any

import altair
import numpy as np
import pytest

from standfast.report.charts import (
    COLOURS,
    HOVER,
    REFERENCE,
    Axis,
    Chart,
    Explainers,
    IntervalBar,
    Line,
    Strip,
    Words,
    choose_style,
    draw_intervals,
    draw_lines,
    draw_values,
)
from standfast.report.page.render import (
    bundle_scripts,
    render_files,
    render_for_page,
    shared_config,
)

HOSTILE = [
    "a.b.c",
    "x[0]['y']",
    "quo\"te's\\",
    "</script><script>alert(1)</script>",
    "<b>&amp;",
    "${datum.value} {{ x }}",
    "long " * 40,
    "datum.line === pick",
    "__proto__",
    "line\u00e9 \u2603\nbreak",
]
NAMES = Explainers([*HOSTILE, "random"], controls=["random"])
SIMILARITY = Axis("similarity (pearson)", "higher", "more robust", rules=(0.6,))
STRANGE = Axis(HOSTILE[2], "higher", HOSTILE[3])
WORDS = Words("What it <is>", "A caption.", "name", "A heading")


def strip(name: str, values: Sequence[float], bounds: Sequence[bool] = ()) -> Strip:
    flags = np.array(bounds or [False] * len(values), dtype=bool)
    return Strip(name, range(10, 10 + len(values)), np.array(values, dtype=float), flags)


def make_all(names: Sequence[str]) -> dict[str, Chart]:
    """A chart of each kind, with all that it can draw."""
    x, random = np.array([1.0, 4.0, 16.0]), np.random.default_rng(0)
    strips = [strip(name, random.normal(size=8).tolist(), [True] + [False] * 7) for name in names]
    bars = [IntervalBar(name, 0.1 * at, None, np.inf, at % 2 == 0) for at, name in enumerate(names)]
    bounds = np.array([True, False, False])
    lines = [
        Line(name, x, -at - x, -at - 2 * x, np.full(3, np.inf), bounds)
        for at, name in enumerate(names)
    ]
    others = [Line(f"not {name}", x, x + at) for at, name in enumerate(names)]
    odds = Axis("probability", "lower", "more robust", probability=True)
    found = {
        "values": draw_values(strips, names, SIMILARITY, WORDS),
        "intervals": draw_intervals(bars, names, SIMILARITY, WORDS, dict.fromkeys(names[:2], "★")),
        "lines": draw_lines(lines, names, Axis("radius", ticks=x.tolist(), log=True), odds, WORDS),
        "others": draw_lines(
            others, names, Axis(names[3]), STRANGE if names is NAMES else SIMILARITY, WORDS
        ),
    }
    assert all(chart is not None for chart in found.values())
    return {kind: chart for kind, chart in found.items() if chart is not None}


@pytest.fixture(scope="module")
def hostile() -> dict[str, Chart]:
    return make_all(NAMES)


KINDS = ("values", "intervals", "lines", "others")


def layers(chart: Chart, mark: str) -> list[dict[str, Any]]:
    return [layer for layer in chart.spec["layer"] if layer["mark"]["type"] == mark]


def find_fields(spec: Any) -> set[str]:
    """All fields that encodings, expressions apart, ask for."""
    if isinstance(spec, list):
        return set().union(*map(find_fields, spec))
    if not isinstance(spec, dict):
        return set()
    own = {spec["field"]} if isinstance(spec.get("field"), str) else set()
    return own | find_fields([each for key, each in spec.items() if key != "datasets"])


# any chart


@pytest.mark.parametrize("kind", KINDS)
def test_charts_are_valid_and_names_are_data(kind: str, hostile: dict[str, Chart]) -> None:
    chart = hostile[kind]
    chart.drawing.to_dict(validate=True)
    assert json.loads(json.dumps(chart.spec, allow_nan=False)) == chart.spec
    used = {layer["data"]["name"] for layer in chart.spec["layer"] if "data" in layer}
    used |= {chart.spec["data"]["name"]} if "data" in chart.spec else set()
    assert used == set(chart.spec["datasets"]) == set(chart.data)
    known = {key for rows in chart.data.values() for row in rows for key in row}
    assert find_fields(chart.spec) <= known
    assert all(name.isidentifier() for name in known)
    assert "url" not in json.dumps(
        {key: each for key, each in chart.spec.items() if key != "datasets"}
    )


@pytest.mark.parametrize("kind", KINDS)
def test_names_from_strangers_are_drawn_as_text(kind: str, hostile: dict[str, Chart]) -> None:
    drawn = render_for_page(hostile[kind], 7)
    for text in (drawn.svg, drawn.spec):
        assert "<script" not in text
        assert "</script" not in text
    assert "<b>" not in drawn.svg
    root = ElementTree.fromstring(drawn.svg)
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        *("svg", "g", "path", "text", "tspan", "line", "rect", "defs", "clipPath")
    }
    if kind in ("values", "intervals"):
        assert "x[0]['y']" in "".join(root.itertext())
    assert "x[0]['y']" in json.dumps(json.loads(drawn.spec)["datasets"])


@pytest.mark.parametrize("kind", KINDS)
def test_files_are_whole_and_have_no_variables(kind: str) -> None:
    drawn = render_files(make_all(["saliency", "gradcam", "lime", "random"])[kind])
    assert drawn["svg"].startswith(b"<svg")
    assert drawn["pdf"].startswith(b"%PDF")
    assert b"var(--" not in drawn["svg"]
    assert b"currentColor" not in drawn["svg"]


def test_what_the_user_has_chosen_for_altair_changes_nothing(hostile: dict[str, Chart]) -> None:
    before = altair.data_transformers.options
    themes = altair.theme if hasattr(altair.theme, "enable") else altair.themes  # before 5.5
    with themes.enable("dark"), altair.data_transformers.enable("json"):
        assert make_all(NAMES)["values"].spec == hostile["values"].spec
    # more rows than Altair takes by default
    many = [strip(f"e{at}", range(200)) for at in range(60)]
    chart = draw_values(many, [each.name for each in many], SIMILARITY, WORDS)
    assert len(chart.spec["datasets"]["points"]) == 60 * 150 > 5000
    assert altair.data_transformers.options == before


def test_static_drawings_have_no_tooltips_and_load_nothing(hostile: dict[str, Chart]) -> None:
    assert any(layer.get("name") == HOVER for layer in hostile["lines"].spec["layer"])
    drawn = render_for_page(hostile["lines"], 1)
    assert 'opacity="0"' not in drawn.svg
    assert "http" not in drawn.svg.replace("http://www.w3.org/2000/svg", "").replace(
        "http://www.w3.org/1999/xlink", ""
    )
    assert "http" not in drawn.spec
    assert "legend" in json.loads(shared_config())
    assert "</script" not in bundle_scripts().lower()


def test_a_legend_is_drawn_once_for_the_page_and_in_each_file() -> None:
    names = Explainers(["saliency", "mine", "random"], controls=["random"])
    x = np.arange(3.0)
    chart = draw_lines([Line(name, x, x) for name in names], names, Axis("x"), Axis("y"), WORDS)
    assert chart is not None
    drawn = render_for_page(chart, 1)
    assert drawn.key == (("saliency", 0, "●"), ("mine", 1, "■"), ("random", 9, "◆"))
    assert ">mine<" not in drawn.svg
    assert b">mine<" in render_files(chart)["svg"]
    own = draw_lines([Line(value, x, x) for value in "14"], names, Axis("x"), Axis("y"), WORDS)
    assert own is not None
    assert render_for_page(own, 1).key == ()  # its lines are no explainers
    assert ">4<" in render_for_page(own, 1).svg


def test_an_explainer_has_the_same_looks_in_all_charts() -> None:
    names = Explainers(["a", "b", "random"], controls=["random"])
    bars = draw_intervals([IntervalBar("b", 0.5, 0.4, 0.6)], names, SIMILARITY, WORDS)
    rows = draw_values(
        [strip("b", [0.1, 0.2, 0.3]), strip("random", [0.1])], names, SIMILARITY, WORDS
    )
    curve = draw_lines(
        [Line("b", np.arange(3.0), np.arange(3.0))], names, Axis("x"), Axis("y"), WORDS
    )
    assert rows is not None
    assert curve is not None
    (bar,) = bars.data["intervals"]
    assert (bar["colour"], bar["shape"]) == (COLOURS[1], "square")
    assert [row["colour"] for row in rows.data["boxes"]] == [COLOURS[1], REFERENCE]
    assert curve.key == (("b", choose_style(names, "b")),)
    assert layers(curve, "line")[-1]["encoding"]["color"]["scale"] == {
        "domain": ["b"],
        "range": [COLOURS[1]],
    }


def test_nothing_to_draw_is_no_chart() -> None:
    nan = np.array([np.nan])
    assert draw_values([strip("a", [])], ["a"], SIMILARITY, WORDS) is None
    assert draw_lines([Line("a", nan, nan)], ["a"], Axis("x"), Axis("y"), WORDS) is None
    assert draw_intervals([IntervalBar("a", np.nan, None, None)], ["a"], SIMILARITY, WORDS) is None


# values


def test_boxes_are_quartiles_and_points_are_capped() -> None:
    values = np.random.default_rng(1).normal(size=1000)
    chart = draw_values([Strip("e", range(1000), values, values < -2)], ["e"], SIMILARITY, WORDS)
    (box,), points = chart.data["boxes"], chart.data["points"]
    quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    assert [box[key] for key in ("q1", "median", "q3")] == pytest.approx(quartiles, rel=1e-4)
    assert box["mean"] == pytest.approx(values.mean(), rel=1e-4)
    assert len(points) == 150
    assert max(point["value"] for point in points) == pytest.approx(values.max(), rel=1e-4)
    for point in points:
        # the tooltip has the sample's number
        assert point["value"] == pytest.approx(values[point["sample"]], rel=1e-4)
        assert point.get("bound", False) == (point["value"] < -2) == point["reads"].startswith("≤")


def test_few_values_have_no_box() -> None:
    chart = draw_values(
        [strip("a", [1.0, 2.0]), strip("b", [1.0, 2.0, 3.0])], ["a", "b"], SIMILARITY, WORDS
    )
    assert [box["median"] for box in chart.data["boxes"]] == [None, 2.0]
    assert render_for_page(chart, 1).svg.count('fill-opacity="0.16"') == 1


@pytest.mark.parametrize(
    ("side", "triangle"), [("upper", "triangle-left"), ("lower", "triangle-right")]
)
def test_bounds_are_open_triangles_towards_the_true_value(side: Any, triangle: str) -> None:
    axis = Axis("c", side=side)
    rows = draw_values([strip("a", [1.0, 2.0, 3.0], [True, False, False])], ["a"], axis, WORDS)
    bars = draw_intervals([IntervalBar("a", 1.0, 0.0, None, True)], ["a"], axis, WORDS)
    assert rows is not None
    assert bars is not None
    (points,) = layers(rows, "point")
    assert points["encoding"]["shape"]["condition"] == {"test": "datum.bound", "value": triangle}
    assert points["encoding"]["fillOpacity"]["condition"] == {"test": "datum.bound", "value": 0}
    assert bars.data["intervals"][0]["shape"] == triangle
    assert bars.data["intervals"][0]["reads"] == f"{'≤' if side == 'upper' else '≥'} 1 [0, –]"
    assert 'fill-opacity="0"' in render_for_page(rows, 1).svg


# intervals


def test_open_ends_reach_the_edge_and_empty_rows_stay() -> None:
    entries = [
        IntervalBar("a", 0.5, 0.4, np.inf, zero=0.9),
        IntervalBar("b", np.nan, None, None),
        IntervalBar("c", 0.1, None, 0.2),
    ]
    chart = draw_intervals(entries, ["a", "b", "c"], SIMILARITY, WORDS, {"a": "★"})
    first, last = chart.data["intervals"]
    assert (first["value"], first["low"]) == (0.5, 0.4)
    assert first["high"] > 0.5  # beyond all numbers
    assert (last["low"], last["high"]) == (0.1, 0.2)
    assert chart.spec["layer"][0]["encoding"]["y"]["scale"]["domain"] == ["★ a", "b", "c"]
    assert chart.data["rules_x"] == [{"value": 0.6}]
    assert chart.data["zeros"] == [{"row": "★ a", "value": 0.9}]
    assert first["high"] > 0.9  # the chart is as wide as its ticks


# lines


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "100%"), (-2.0, "14%"), (-5.0, "0.67%"), (-10.0, "1 in 22,000"), (-40.0, "1 in 10^17")],
)
def test_probabilities_are_written_as_people_say_them(value: float, text: str) -> None:
    line = Line("a", np.array([0.0, 1.0]), np.array([value, value]))
    chart = draw_lines([line], ["a"], Axis("x"), Axis("probability", probability=True), WORDS)
    assert chart is not None
    for layer in chart.spec["layer"]:
        layer["encoding"]["y"]["axis"] = {**layer["encoding"]["y"]["axis"], "values": [value]}
    assert f">{text}<" in render_for_page(chart, 1).svg
    assert {row["reads"] for row in chart.data["lines"]} == {text}  # tooltips say the same


def test_points_that_are_not_finite_are_left_out_and_long_lines_are_thinned() -> None:
    x = np.arange(1000.0)
    y = np.where(x == 3, np.nan, x**2)
    chart = draw_lines(
        [Line("a", x, y), Line("b", x[:5], y[:5])], ["a", "b"], Axis("x"), Axis("y"), WORDS
    )
    rows = [row for row in chart.data["lines"] if row["line"] == "a"]
    assert len(rows) == 80
    assert (rows[0]["x"], rows[-1]["x"]) == (0, 999)
    assert 3 < sum("marked" in row for row in rows) < 12
    assert [row["x"] for row in chart.data["lines"] if row["line"] == "b"] == [0, 1, 2, 4]
    assert all(row["y"] == pytest.approx(row["x"] ** 2, rel=1e-5) for row in chart.data["lines"])


def test_bands_of_unknown_ends_have_no_width_and_infinite_ones_reach_the_edge() -> None:
    x = np.array([1.0, 2.0, 3.0])
    line = Line("a", x, x, np.array([0.0, np.nan, -np.inf]), np.array([2.0, np.nan, 3.0]))
    chart = draw_lines([line], ["a"], Axis("x"), Axis("y"), WORDS)
    assert [(row["low"], row["high"]) for row in chart.data["lines"]] == [
        (0, 2),
        (2, 2),
        (-0.18, 3),
    ]
    assert [row["reads"] for row in chart.data["lines"]] == ["1 [0, 2]", "2", "3 [−∞, 3]"]


def test_a_logarithmic_axis() -> None:
    x = np.array([1.0, 10.0, 100.0])
    chart = draw_lines(
        [Line("a", x, x)], ["a"], Axis("x", ticks=x.tolist(), log=True), Axis("y"), WORDS
    )
    along = chart.spec["layer"][-1]["encoding"]["x"]
    assert along["scale"] == {"type": "log", "nice": False, "padding": 8}
    assert along["axis"]["values"] == [1, 10, 100]
