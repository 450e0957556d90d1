"""Pictures of tables, series and texts: what is drawn from which array, which names they have, and in which order."""

from __future__ import annotations

import base64
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from report_builder import Builder

from standfast.report.charts import GalleryRow, Picture
from standfast.report.page.drawings import FEATURES, Drawing, draw_row

RNG = np.random.default_rng(7)


def map_of(values: list[float] | np.ndarray, title: str = "its map") -> Picture:
    return Picture(title, np.asarray(values, dtype=float), f"{title} of a", signed=True)


def input_of(values: list[float] | np.ndarray, title: str = "input") -> Picture:
    return Picture(title, np.asarray(values, dtype=float), f"{title} of a")


def drawn(*pictures: Picture, **more: Any) -> Any:
    """What the template gets of the only drawing of a row."""
    (drawing,) = draw_row(GalleryRow("a", 0, pictures, "", **more), (0.0, 1.0))
    assert isinstance(drawing, Drawing)
    assert drawing.alt == ". ".join(picture.alt for picture in pictures)
    return drawing.content


def pixels(uri: str) -> np.ndarray:
    return np.asarray(
        Image.open(io.BytesIO(base64.b64decode(uri.split(",")[1]))).convert("RGB")
    ).astype(int)


def heights(lane: Any) -> np.ndarray:
    return np.array([float(point.split(",")[1]) for point in lane.points.split()])


def test_a_table_has_a_bar_for_each_feature_the_longest_first() -> None:
    before, after = [0.5, -2.0, 1.0], [-1.0, 0.2, 0.4]
    content = drawn(
        map_of(before), map_of(after, "map there"), features=("age", "height", "weight")
    )
    assert [column.title for column in content["columns"]] == ["its map", "map there"]
    # 1.0 and 1.0 of their scales, then 0.5
    assert [name for name, _ in content["rows"]] == [
        "age",
        "height",
        "weight",
    ]
    bars = np.array([[share for _, share in cells] for _, cells in content["rows"]])
    np.testing.assert_allclose(bars.T, [np.divide(before, 2), after])


def test_a_table_shows_at_most_a_dozen_features_and_says_how_many_more() -> None:
    values = RNG.normal(size=30)
    content = drawn(input_of(values), map_of(values))
    order = np.argsort(-np.abs(values))[:FEATURES]
    assert [name for name, _ in content["rows"]] == [f"feature {place}" for place in order]
    assert content["left_out"] == 18
    number = f"{values[order[0]]:.4g}".replace("-", "−")
    assert content["rows"][0][1][0] == ("number", number)  # the value of the input


def test_marked_features_have_lines_where_there_is_no_map() -> None:
    marked = Picture(
        "first",
        np.arange(4.0),
        "marks",
        marks=np.array([0, 2, 0, 1]),
        colours=("#ff0000", "#00ff00"),
    )
    content = drawn(marked)
    expected = [("feature 3", [("mark", "#ff0000")]), ("feature 1", [("mark", "#00ff00")])]
    assert (content["rows"], content["left_out"]) == (expected, 2)


def test_a_series_has_its_map_behind_the_line_of_the_input_that_it_explains() -> None:
    first, second = RNG.normal(size=(2, 3, 50))
    maps = RNG.normal(size=(2, 3, 50))
    content = drawn(
        input_of(first),
        map_of(maps[0]),
        input_of(second, "worst input"),
        map_of(maps[1], "map there"),
        features=("flow", "heat", "load"),
    )
    # inputs are lines in front of them
    assert [panel.title for panel in content["panels"]] == [
        "its map",
        "map there",
    ]
    lanes = [lane for panel in content["panels"] for lane in panel.parts]
    assert [lane.name for lane in lanes] == ["flow", "heat", "load"] * 2
    for lane, values in zip(lanes, [*first, *second], strict=True):
        assert np.corrcoef(heights(lane), values)[0, 1] < -0.999  # upwards on the page is less
    image = pixels(lanes[4].ground)
    assert image.shape == (1, 50, 3)
    np.testing.assert_array_equal(image[0, :, 0] > image[0, :, 2], maps[1, 1] > 0)


def test_a_map_moved_back_is_behind_the_first_line_and_grey_where_it_is_not_seen() -> None:
    first, second = RNG.normal(size=(2, 1, 50))
    maps = RNG.normal(size=(3, 1, 50))
    maps[2, :, :10] = np.nan
    back = Picture("moved back", maps[2], "map moved back of a", signed=True, moved_back=True)
    panels = drawn(input_of(first), map_of(maps[0]), input_of(second), map_of(maps[1]), back)[
        "panels"
    ]
    for panel, values in zip(panels, (first[0], second[0], first[0]), strict=True):
        assert np.corrcoef(heights(panel.parts[0]), values)[0, 1] < -0.999
    image = pixels(panels[2].parts[0].ground)[0]
    assert (image[:10] == 0xB4).all()
    np.testing.assert_array_equal(image[10:, 0] > image[10:, 2], maps[2, 0, 10:] > 0)
    assert not (image[10:] == 0xB4).all(axis=1).any()


def test_a_text_has_words_on_the_colour_of_their_relevance() -> None:
    # two dimensions of an embedding, which are added
    values = np.array([[1.0, 3.0, 0.0], [1.0, -6.0, 0.0]])
    for each in (values, values.sum(axis=0)):  # of an embedding, and of words
        (panel,) = drawn(input_of(np.zeros_like(each)), map_of(each), tokens=("a", "<b>", "c"))[
            "panels"
        ]
        assert [word.text for word in panel.parts] == ["a", "<b>", "c"]
        red, blue, white = (
            [int(word.ground[i : i + 2], 16) for i in (1, 3, 5)] for word in panel.parts
        )
        assert red[0] > red[2]
        assert blue[2] > blue[0]
        assert len(set(white)) == 1
        # white letters on dark blue
        assert [word.dark for word in panel.parts][1:] == [
            True,
            False,
        ]


def test_a_changed_text_has_its_new_words_beside_the_old_ones() -> None:
    for values in (np.eye(3), np.eye(3)[0]):
        after = dataclasses.replace(map_of(-values, "map there"), swapped={1: "<new>", 2: ""})
        first, second = drawn(map_of(values), after, tokens=("a", "b", "c"))["panels"]
        assert [(word.text, word.old) for word in first.parts] == [("a", ""), ("b", ""), ("c", "")]
        assert [(word.text, word.old) for word in second.parts] == [
            ("a", ""),
            ("<new>", "b"),
            ("", "c"),
        ]
        grounds = [[word.ground for word in panel.parts] for panel in (first, second)]
        assert grounds[0][0] != grounds[1][0]  # each sentence has the colours of its own map


def test_a_text_of_words_has_no_change_and_no_padding() -> None:
    change = dataclasses.replace(map_of([0.0, 1e9, 0.0]), change=True)  # of the codes of two words
    values = [1.0, 2.0, np.nan, np.nan]
    (panel,) = drawn(
        input_of([3.0, 4.0, np.nan, np.nan]), change, map_of(values), tokens=("a", "b")
    )["panels"]
    assert [word.text for word in panel.parts] == ["a", "b"]
    assert not panel.change
    marked = Picture("top", np.zeros(2), "marks", marks=np.array([0, 1]), colours=("#ff0000",))
    (panel,) = drawn(marked, tokens=("a", "b"))["panels"]
    assert [word.ground == "#ff0000" for word in panel.parts] == [False, True]


def test_words_without_a_blank_are_joined_to_the_word_before_if_any_word_brings_one() -> None:
    def list_gaps(*tokens: str) -> list[tuple[str, bool]]:
        (panel,) = drawn(map_of(np.ones(len(tokens))), tokens=tokens)["panels"]
        return [(word.text, word.joined) for word in panel.parts]

    assert list_gaps("So", " bad", "!", "\n(yes", ")") == [
        *(("So", False), ("bad", False), ("!", True)),
        *(("(yes", False), (")", True)),
    ]
    assert list_gaps("So", "bad", "!") == [("So", False), ("bad", False), ("!", False)]


def test_a_long_text_is_folded_but_not_where_words_are_changed_or_relevant() -> None:
    values, tokens = np.zeros(512), tuple(f"w{place}" for place in range(512))
    values[300] = -1.0
    after = dataclasses.replace(map_of(values), swapped={450: "new"})
    content = drawn(map_of(values), after, tokens=tokens)
    seen = {place for place, word in enumerate(content["panels"][0].parts) if not word.folded}
    assert {*range(298, 303), *range(448, 453)} <= seen
    assert len(seen) < 100
    assert [word.folded for word in content["panels"][0].parts] == [
        word.folded for word in content["panels"][1].parts
    ]
    assert content["folded"] == 512 - len(seen)
    assert content["count"] == 512
    assert drawn(map_of(values[:100]), tokens=tokens[:100])["folded"] == 0


def test_a_search_that_found_nothing_is_faint_and_a_constant_map_is_told() -> None:
    pictures = (input_of([0.1, 0.2]), map_of([1.0, 1.0]), map_of([1.0, 2.0], "map there"))
    columns = drawn(*pictures, found=False)["columns"]
    assert [column.faint for column in columns] == [False, False, True]
    assert [column.constant for column in columns] == [False, True, False]
    (image,) = draw_row(GalleryRow("a", 0, (map_of(np.ones((1, 4, 4))),), ""), (0.0, 1.0))
    assert image.content is None


@pytest.mark.parametrize("shape", [(3,), (2, 3), (1, 3, 3), (2, 3, 4, 5)])
def test_names_and_words_come_from_the_manifest_and_are_escaped(
    tmp_path: Path, shape: tuple[int, ...]
) -> None:
    evil = '</td><script>alert("1")</script>&'
    for key, value in (("features", [evil] * 120), ("tokens", [[evil] * 3, ["very", "good"]])):
        builder = Builder(tmp_path / key)
        builder.worst("a", [0.3, 0.5], shape=shape)
        builder.names["data"]["digits"][key] = value
        page = builder.page()
        assert "<script>alert" not in page
        drawn = len(shape) in (1, 2)  # a volume is drawn as three slices
        drawings = "".join(
            part.split("</figure>")[0] for part in page.split('<div class="drawing ')[1:]
        )
        assert ("&lt;script&gt;alert(&#34;1" in drawings.replace("<wbr>", "")) == drawn
