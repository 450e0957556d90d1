"""Rows of pictures of tables, series and texts: what they show, which names they have, and that texts are escaped."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from report_builder import Builder

from standfast.report.charts import GalleryRow, Picture
from standfast.report.page.drawings import BLUE, FEATURES, RED, draw_row
from standfast.report.views import Contents

RNG = np.random.default_rng(7)


def map_of(values: list[float] | np.ndarray, title: str = "its map") -> Picture:
    return Picture(title, np.asarray(values, dtype=float), f"{title} of a", signed=True)


def input_of(values: list[float] | np.ndarray, title: str = "input") -> Picture:
    return Picture(title, np.asarray(values, dtype=float), f"{title} of a")


def drawn(*pictures: Picture, **more: object) -> ElementTree.Element:
    """The only drawing of a row, parsed: it has to be valid XML."""
    ((title, alt, uri),) = draw_row(GalleryRow("a", 0, pictures, "", **more), (0.0, 1.0))  # type: ignore[arg-type]
    assert title == ""
    assert alt == ". ".join(picture.alt for picture in pictures)
    kind, _, content = uri.partition(",")
    assert kind == "data:image/svg+xml;base64"
    return ElementTree.fromstring(base64.b64decode(content))


def texts(svg: ElementTree.Element) -> list[str]:
    return [str(each.text) for each in svg.iter() if each.tag.endswith("text")]


def of_kind(svg: ElementTree.Element, kind: str) -> list[dict[str, str]]:
    return [each.attrib for each in svg.iter() if each.tag.endswith(kind)]


def bars(svg: ElementTree.Element) -> list[tuple[str, float, float, float]]:
    """Colour, left end, width and height on the page of every bar, from top to bottom within a column."""
    return [
        (each["fill"], float(each["x"]), float(each["width"]), float(each["y"]))
        for each in of_kind(svg, "rect")
        if each.get("fill") in (RED, BLUE)
    ]


def test_a_table_has_a_bar_for_each_feature_the_longest_first() -> None:
    before, after = [0.5, -2.0, 1.0], [-1.0, 0.2, 0.4]
    svg = drawn(map_of(before), map_of(after, "map there"), features=("age", "height", "weight"))
    names = [text for text in texts(svg) if text in ("age", "height", "weight")]
    assert names == ["age", "height", "weight"]  # 1.0 and 1.0 of their scales, then 0.5
    assert texts(svg)[3:] == ["its map", "map there"]
    found = bars(svg)
    assert [colour for colour, *_ in found] == [RED, BLUE, RED, BLUE, RED, RED]
    widths = np.array([width for _, _, width, _ in found]).reshape(2, 3)
    np.testing.assert_allclose(widths / widths.max(), np.abs([before, after]) / np.array([[2.0], [1.0]]), atol=0.01)
    heights = np.array([y for *_, y in found]).reshape(2, 3)
    np.testing.assert_array_equal(heights[0], heights[1])  # the same order before and after
    edge = [left + (width if colour == BLUE else 0) for colour, left, width, _ in found[:3]]
    np.testing.assert_allclose(edge, edge[0], atol=0.11)  # all begin at the line of zero


def test_a_table_shows_at_most_a_dozen_features_and_says_how_many_more() -> None:
    values = RNG.normal(size=30)
    svg = drawn(input_of(values), map_of(values))
    order = np.argsort(-np.abs(values))[:FEATURES]
    assert texts(svg)[:FEATURES] == [f"feature {place}" for place in order]
    assert texts(svg)[-1] == "and 18 more features"
    number = f"{values[order[0]]:.3g}".replace("-", "−")
    assert number in texts(svg)  # the value of the input


def test_a_series_has_its_map_behind_the_line_of_the_input_that_it_explains() -> None:
    first, second = RNG.normal(size=(2, 3, 50))
    maps = RNG.normal(size=(2, 3, 50))
    svg = drawn(
        input_of(first),
        map_of(maps[0]),
        input_of(second, "worst input"),
        map_of(maps[1], "map there"),
        features=("flow", "heat", "load"),
    )
    assert [text for text in texts(svg) if text in ("its map", "map there")] == ["its map", "map there"]
    assert "input" not in texts(svg)  # it is the line in front of its map
    assert [text for text in texts(svg) if text in ("flow", "heat", "load")] == ["flow", "heat", "load"] * 2
    lines = [[float(point.split(",")[1]) for point in each["points"].split()] for each in of_kind(svg, "polyline")]
    for line, values in zip(lines, [*first, *second], strict=True):
        assert np.corrcoef(line, values)[0, 1] < -0.999  # upwards on the page is less
    assert {"step", "0", "25", "49"} <= set(texts(svg))
    grounds = [each["href"] for each in of_kind(svg, "image")]
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(grounds[4].split(",")[1])))).astype(int)
    assert image.shape == (1, 50, 3)
    red = image[0, :, 0] > image[0, :, 2]
    np.testing.assert_array_equal(red, maps[1, 1] > 0)


def test_a_map_moved_back_is_behind_the_first_line_and_grey_where_it_is_not_seen() -> None:
    first, second = RNG.normal(size=(2, 1, 50))
    maps = RNG.normal(size=(3, 1, 50))
    maps[2, :, :10] = np.nan
    back = Picture("moved back", maps[2], "map moved back of a", signed=True, moved_back=True)
    svg = drawn(input_of(first), map_of(maps[0]), input_of(second), map_of(maps[1]), back)
    lines = [[float(point.split(",")[1]) for point in each["points"].split()] for each in of_kind(svg, "polyline")]
    for line, values in zip(lines, (first[0], second[0], first[0]), strict=True):
        assert np.corrcoef(line, values)[0, 1] < -0.999  # upwards on the page is less
    grounds = [each["href"] for each in of_kind(svg, "image")]
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(grounds[2].split(",")[1])))).astype(int)[0]
    assert (image[:10] == 0xB4).all()
    np.testing.assert_array_equal(image[10:, 0] > image[10:, 2], maps[2, 0, 10:] > 0)
    assert not (image[10:] == 0xB4).all(axis=1).any()


def test_a_text_has_words_on_the_colour_of_their_relevance() -> None:
    values = np.array([[1.0, 3.0, 0.0], [1.0, -6.0, 0.0]])  # two dimensions of an embedding, which are added
    svg = drawn(input_of(np.zeros((2, 3))), map_of(values), tokens=("a", "<b>", "c"))
    assert texts(svg) == ["its map", "a", "<b>", "c"]
    fills = [each["fill"] for each in of_kind(svg, "rect")[1:]]
    red, blue, white = ([int(fill[i : i + 2], 16) for i in (1, 3, 5)] for fill in fills)
    assert red[0] > red[2]
    assert blue[2] > blue[0]
    assert len(set(white)) == 1
    inks = [each.get("fill", "") for each in of_kind(svg, "text")[1:]]
    assert inks[1] == "#fff"  # white letters on dark blue
    assert inks[2] != "#fff"


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 3, 4, 5)])
def test_names_cannot_leave_their_texts(shape: tuple[int, ...]) -> None:
    evil = '</text><script>alert("1")</script>&'
    for more in ({"features": (evil,) * 3}, {"tokens": (evil,) * 3}):
        svg = drawn(input_of(RNG.normal(size=shape), evil), map_of(RNG.normal(size=shape), evil), **more)
        assert {each.tag.rpartition("}")[2] for each in svg.iter()} <= {
            "svg",
            "g",
            "rect",
            "text",
            "path",
            "image",
            "polyline",
        }


def test_names_and_words_come_from_the_manifest(tmp_path: Path) -> None:
    table, text = Builder(tmp_path / "table"), Builder(tmp_path / "text")
    table.worst("a", [0.3, 0.5], shape=(3,))
    text.worst("a", [0.3, 0.5], shape=(2, 3))
    table.names["data"]["digits"]["features"] = ["age", "height", "weight"]
    text.names["data"]["digits"]["tokens"] = [["not", "so", "bad"], ["very", "good"]]
    for builder, expected in ((table, [{"age", "height", "weight"}] * 2), (text, [{"not", "so"}, {"very", "good"}])):
        contents = Contents(builder.results())
        (view,) = contents.views("worst_case: changed_explanation")
        gallery = contents.labels[view.label].figures(view)[-1]
        for row, names in zip(gallery.rows, expected, strict=True):
            ((_, _, uri),) = draw_row(row, view.bounds)
            svg = ElementTree.fromstring(base64.b64decode(uri.partition(",")[2]))
            assert names <= set(texts(svg))
    assert "The features with the longest bars come first." in table.page()
    assert "summed over the dimensions of its embedding" in text.page()
