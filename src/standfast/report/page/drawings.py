"""Rows of pictures as the template `pictures.html` draws them.

Images are data URIs; of a volume three slices are drawn. The pictures of a table, a series or a text become one drawing
of HTML, because their names, time or words are the same: bars with names, lanes over time, coloured words. Red is
evidence for the answer and blue evidence against it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from standfast.cells.words import describe_cell
from standfast.report.charts import GalleryRow, Picture
from standfast.report.maps import FEATURES, colour_signed, name_entry, rank_entries
from standfast.report.page.pictures import draw_picture, encode_image
from standfast.results.formatting import format_number
from standfast.tensors import Array

#: channels that are drawn
CHANNELS = 6
#: points of a line, and colours of its ground, over the time of a series
POINTS = 300
#: the colour of the time that a map moved back has no values for
_UNSEEN = 0xB4 / 255
#: the ground of a word without relevance, and green, in which no map is drawn, for changes
_PLAIN, _GREEN = "#f4f5f6", (0x1B, 0x78, 0x37)
_WHITE = "#ffffff"
#: from which place on the pictures of a search that found nothing are faint
FIRST_FAINT = 2
#: with more words a text is folded: the first ones, changed ones and the most relevant ones are seen, with neighbours
LONG = 100
FIRST_WORDS = 40
CHANGED = 20
NEIGHBOURS = 2


@dataclass(frozen=True)
class Drawing:
    """A picture of the page, or several of a table, a series or a text.

    Attributes:
        kind: `"image"`, `"table"`, `"series"` or `"words"`, by which the template draws it.
        title: above it; empty where the titles are within it.
        alt: in words.
        white: whether it is drawn on white, and not the input itself.
        content: for an image its data URI, None for a map that is constant; else what the template needs.
    """

    kind: str
    title: str
    alt: str
    white: bool
    content: Any


@dataclass(frozen=True)
class ChannelLane:
    """A channel over time: its name, the points of its line in a square of 100, and the data URI of its ground."""

    name: str
    points: str
    ground: str | None


@dataclass(frozen=True)
class ColouredWord:
    """A word of a text.

    Attributes:
        text: as it is now; empty if it was deleted.
        ground: the colour behind it, as `"#rrggbb"`.
        dark: whether that colour is dark.
        old: the word that it replaces; empty where it is the same.
        joined: whether there is no blank before it.
        folded: whether it is seen only when the whole text is asked for.
    """

    text: str
    ground: str
    dark: bool = False
    old: str = ""
    joined: bool = False
    folded: bool = False


class _Panel:
    """A picture that is no image, with finite numbers.

    Attributes:
        picture: itself.
        place: in its row.
        title, signed, change: of the picture.
        faint: whether it is drawn pale.
        array: `(F,)` or `(C, T)`.
        marks: of its positions, or None.
        unseen: the steps that a map moved back has no values for, or None.
        limit: the end of its scale.
        constant: whether it is a map that says nothing.
        plain: whether it is an input without marks.
        parts: the lanes or the words, set by the function that draws it.
    """

    def __init__(self, picture: Picture, place: int, found: bool) -> None:
        values = np.asarray(picture.array, dtype=float)
        marks = None
        if picture.marks is not None:
            marks = np.asarray(picture.marks)
        if values.ndim > 2:
            # features without an order, whatever their shape
            values = values.reshape(-1)
            if marks is not None:
                marks = marks.reshape(-1)
        self.picture = picture
        self.place = place
        self.title = picture.title
        self.signed = picture.signed
        self.change = picture.change
        self.faint = not found and place >= FIRST_FAINT
        self.array = np.nan_to_num(values)
        self.marks = marks
        self.unseen = None
        if picture.moved_back and values.ndim == 2:
            self.unseen = np.isnan(values).all(axis=0)
        largest = float(np.abs(self.array).max(initial=0.0))
        self.limit = largest or 1.0
        has_one_value = bool(np.ptp(self.array) == 0)
        self.constant = self.is_map and has_one_value
        self.plain = not self.signed and self.marks is None
        self.parts: list[Any] = []

    @property
    def is_map(self) -> bool:
        """Whether it is an explanation, and not an input or the change of one."""
        return self.signed and not self.change


def draw_row(row: GalleryRow, bounds: tuple[float, float]) -> list[Drawing]:
    """The drawings of a row of pictures; inputs are on the scale of `bounds`."""
    drawings = []
    panels: dict[str, list[_Panel]] = {}
    for position, picture in enumerate(map(lay_slices, row.pictures)):
        kind = _find_kind(picture, bool(row.tokens))
        if kind == "image":
            is_white = picture.signed or picture.change or picture.marks is not None
            content = draw_picture(picture, bounds)
            drawing = Drawing(kind, picture.title, picture.alt, is_white, content)
            drawings.append(drawing)
        else:
            panel = _Panel(picture, position, row.found)
            panels.setdefault(kind, []).append(panel)
    for kind, panels_of_kind in panels.items():
        draw = {"table": _draw_table, "series": _draw_series, "words": _draw_words}[kind]
        alt = ". ".join(panel.picture.alt for panel in panels_of_kind)
        drawn = draw(panels_of_kind, row)
        drawings.append(Drawing(kind, "", alt, True, drawn))
    return drawings


def _find_kind(picture: Picture, has_words: bool) -> str:
    """How a picture is drawn, by its axes."""
    axes = np.ndim(picture.array)
    if axes == 3:
        return "image"
    if has_words and axes in (1, 2):
        return "words"
    return "series" if axes == 2 else "table"


def lay_slices(picture: Picture) -> Picture:
    """The picture of a volume `(C, D, H, W)` as an image: three of its slices beside each other; others as they are.

    >>> lay_slices(Picture("input", np.zeros((1, 9, 4, 5)), "a volume")).title
    'input, slices 3, 5, 7 of 9'
    """
    if np.ndim(picture.array) != 4:
        return picture
    depth = picture.array.shape[1]
    # near the ends there may be nothing to see
    slices = sorted({round(share * (depth - 1)) for share in (0.25, 0.5, 0.75)})
    numbers = ", ".join(str(index + 1) for index in slices)
    noun = "slices" if len(slices) > 1 else "slice"
    words = f", {noun} {numbers} of {depth}"
    marks = picture.marks
    if marks is not None and np.ndim(marks) == 3:
        marks_of_slices = [marks[index] for index in slices]
        marks = np.concatenate(marks_of_slices, axis=-1)
    images = [picture.array[:, index] for index in slices]
    return replace(
        picture,
        title=picture.title + words,
        alt=picture.alt + words,
        array=np.concatenate(images, axis=-1),
        marks=marks,
    )


def _draw_table(panels: list[_Panel], row: GalleryRow) -> dict[str, Any]:
    """A line for each feature: its name, its values as numbers, its relevance as bars.

    A change of the input gets no bars where its values before and after are there. Where there are marks and no maps,
    only marked features have a line.
    """
    if sum(panel.plain for panel in panels) > 1:
        panels = [panel for panel in panels if not panel.change]
    first_input = next((panel.array for panel in panels if panel.plain), None)
    rows = []
    for feature in _choose_features(panels):
        cells = [_fill_cell(panel, feature, first_input, row) for panel in panels]
        rows.append((name_entry(row.features, feature, "feature"), cells))
    features = len(panels[0].array)
    return {"columns": panels, "rows": rows, "left_out": features - len(rows)}


def _choose_features(panels: Sequence[_Panel]) -> list[int]:
    """The features that are drawn: the most relevant ones, or those with the lowest marks."""
    maps = [panel.array for panel in panels if panel.is_map]
    if maps:
        return list(rank_entries(maps, FEATURES).tolist())
    marks = [panel.marks for panel in panels if panel.marks is not None]
    if marks:
        # the lower a mark, the more relevant; 0 is none
        weights = []
        for mark in marks:
            inverse = 1 / np.maximum(mark, 1)
            weights.append(np.where(mark > 0, inverse, 0))
        features = rank_entries(weights, FEATURES)
        is_marked = np.max(weights, axis=0)[features] > 0
        return list(features[is_marked].tolist())
    first_values = panels[0].array
    return list(rank_entries([first_values], FEATURES).tolist())


def _fill_cell(
    panel: _Panel, feature: int, first_input: Array | None, row: GalleryRow
) -> tuple[str, Any]:
    """The cell of a feature: how it is drawn, and what.

    That is `("number", text)`, or `("number changed", text)` where it differs from the first input;
    `("bar", share of the longest)`; or `("mark", colour)`.
    """
    value = float(panel.array[feature])
    if panel.signed:
        return "bar", value / panel.limit
    if panel.marks is not None:
        mark = panel.marks[feature]
        colour = ""
        if mark > 0:
            colour = panel.picture.colours[mark - 1]
        return "mark", colour
    # without descriptions of columns numbers are not read as cells of a data frame, and no change is marked
    changed = False
    if row.columns and first_input is not None:
        changed = value != float(first_input[feature])
    if feature < len(row.columns):
        words = describe_cell(row.columns[feature], value)
    else:
        words = ""
    kind = "number changed" if changed else "number"
    return kind, words or format_number(value, None)


def _draw_series(panels: list[_Panel], row: GalleryRow) -> dict[str, Any]:
    """The channels below each other over time: the line of the input, and its relevance as the colour behind it."""
    pairs = _pair_with_inputs(panels)
    _, longest = max(pairs, key=lambda pair: len(pair[1]))
    channels, steps = longest.shape
    shown = _choose_channels(pairs, channels)
    scales = _find_scales(pairs, channels)
    names = [""] * channels
    if channels > 1 or row.features:
        names = [name_entry(row.features, channel, "channel") for channel in range(channels)]
    for panel, line in pairs:
        if panel.marks is not None and panel.marks.ndim == 1:
            # the same for all channels: one strip
            panel.parts = [ChannelLane("", "", _colour_marks(panel, 0))]
            continue
        for channel in shown:
            if panel.change:
                low, high = -panel.limit, panel.limit
            else:
                low, high = scales[channel]
            points = ""
            if len(line) == channels:
                points = _list_points(line[channel], low, high)
            ground = _colour_ground(panel, channel, channels)
            panel.parts.append(ChannelLane(names[channel], points, ground))
    return {
        "panels": [panel for panel, _ in pairs],
        "steps": steps,
        "left_out": channels - len(shown),
    }


def _find_scales(pairs: Sequence[tuple[_Panel, Array]], channels: int) -> list[tuple[float, float]]:
    """The ends of each channel's values over all inputs, so that the scale is the same before and after."""
    inputs = []
    for panel, line in pairs:
        if not panel.change and len(line) == channels:
            inputs.append(line)
    if not inputs:
        return [(0.0, 0.0)] * channels
    values = np.concatenate(inputs, axis=1)
    lowest = values.min(axis=1).tolist()
    highest = values.max(axis=1).tolist()
    return list(zip(lowest, highest, strict=True))


def _choose_channels(pairs: Sequence[tuple[_Panel, Array]], channels: int) -> list[int]:
    """The channels that are drawn, in their order: those with the most relevance, or else with the widest lines."""
    weights = []
    for panel, _ in pairs:
        if panel.is_map and len(panel.array) == channels:
            weights.append(np.abs(panel.array).sum(axis=1))
    if not weights:
        _, first_line = pairs[0]
        weights = [np.ptp(first_line, axis=1)]
    return sorted(rank_entries(weights, CHANNELS).tolist())


def _pair_with_inputs(panels: Sequence[_Panel]) -> list[tuple[_Panel, Array]]:
    """What is drawn, each with the line over it: maps with the input that they explain, all others with themselves.

    An input without marks that a map is drawn on gets no picture of its own. Maps are next to each other, to be
    compared; then come marks, and changes last.
    """
    inputs = [panel for panel in panels if not panel.signed]
    pairs = []
    drawn_on = set()
    for panel in panels:
        if panel.is_map:
            explained = _find_input(panel, inputs)
            drawn_on.add(explained.place)
            pairs.append((panel, explained.array))
    for panel in panels:
        is_seen_already = panel.place in drawn_on and panel.marks is None
        if panel.change or (not panel.signed and not is_seen_already):
            pairs.append((panel, panel.array))
    pairs.sort(key=lambda pair: _find_order(pair[0]))
    return pairs


def _find_order(panel: _Panel) -> tuple[bool, bool, int]:
    """Changes of inputs are drawn last, and marks behind maps."""
    return panel.change, panel.marks is not None, panel.place


def _find_input(panel: _Panel, inputs: Sequence[_Panel]) -> _Panel:
    """The input that a map explains: the last one before it, or the first one after it; moved back, the first one."""
    if not inputs:
        return panel
    earlier = [candidate for candidate in inputs if candidate.place < panel.place]
    if panel.picture.moved_back or not earlier:
        return inputs[0]
    return earlier[-1]


def _list_points(values: Array, low: float, high: float) -> str:
    """The points of a line as SVG has them, in a square of 100; more is above."""
    stride = -(-len(values) // POINTS)
    steps = np.arange(len(values))[::stride]
    last = max(len(values) - 1, 1)
    across = 100 * steps / last
    height = (high - low) or 1.0
    # a margin of 4 above and below
    down = 96 - 92 * (values[::stride] - low) / height
    points = [f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True)]
    return " ".join(points)


def _colour_ground(panel: _Panel, channel: int, channels: int) -> str | None:
    """The colours behind the line of a channel, as a picture of one pixel for each step; None without any."""
    if panel.change or panel.plain:
        return None
    if panel.marks is not None:
        return _colour_marks(panel, channel)
    values = panel.array.sum(axis=0)
    if len(panel.array) in (1, channels):
        values = panel.array[min(channel, len(panel.array) - 1)]
    means = _cut(values).mean(axis=1)
    colours = colour_signed(means / panel.limit)
    if panel.unseen is not None:
        share_unseen = _cut(panel.unseen).mean(axis=1)
        colours[share_unseen > 0.5] = _UNSEEN
    return encode_image(colours[None])


def _colour_marks(panel: _Panel, channel: int) -> str:
    """The colours of marks, as a picture of one pixel for each step: of a block of steps the lowest mark, or white."""
    assert panel.marks is not None
    marks = panel.marks
    if marks.ndim > 1:
        marks = np.broadcast_to(marks, panel.array.shape)[channel]
    no_mark = len(panel.picture.colours) + 1
    marks_or_none = np.where(marks > 0, marks, no_mark)
    lowest = _cut(marks_or_none).min(axis=1).astype(int)
    palette = []
    for colour in (*panel.picture.colours, _WHITE):
        palette.append(list(bytes.fromhex(colour[1:])))
    colours = np.array(palette)[lowest - 1]
    return encode_image(colours[None] / 255)


def _cut(values: Array) -> Array:
    """Blocks `(blocks, steps)` of the values of a long series, so that there are no more than `POINTS`."""
    block = -(-len(values) // POINTS)
    # what is left at the end is too short for a block of its own
    blocks = len(values) // block
    return values[: blocks * block].reshape(-1, block)


def _draw_words(panels: list[_Panel], row: GalleryRow) -> dict[str, Any]:
    """The words of a text on coloured ground; an input without marks only where there is nothing else."""
    count = len(row.tokens)
    shown = []
    for panel in panels:
        if not panel.plain and not _says_nothing(panel, count):
            shown.append(panel)
    shown = sorted(shown or panels[:1], key=_find_order)
    words = [str(token).strip() or "␣" for token in row.tokens]
    joined = _find_joined(row.tokens)
    folded = _choose_folded(shown, count)
    for panel in shown:
        swapped = panel.picture.swapped
        new_words = {position: word.strip() for position, word in swapped.items()}
        words_now = [new_words.get(position, word) for position, word in enumerate(words)]
        panel.parts = _colour_words(panel, words_now)
        for position, word in enumerate(words[: len(panel.parts)]):
            old_word = word if position in new_words else ""
            panel.parts[position] = replace(
                panel.parts[position],
                old=old_word,
                joined=joined[position],
                folded=position in folded,
            )
    return {"panels": shown, "count": count, "folded": len(folded)}


def _says_nothing(panel: _Panel, count: int) -> bool:
    """Whether it is a change that is nearly the same for all words, as at the edge of a ball, or one of their codes."""
    if not panel.change:
        return False
    if panel.array.ndim == 1:
        return True
    sizes = np.abs(panel.array).max(axis=0)[:count]
    return bool(np.ptp(sizes) <= 0.15 * sizes.max())


def _find_joined(tokens: Sequence[str]) -> list[bool]:
    """Which words have no blank before them; if none begins with a blank, all are set apart."""
    starts = [str(token)[:1].isspace() for token in tokens]
    has_spaces = any(starts)
    joined = []
    for position, start in enumerate(starts):
        # without any spaces the tokens are whole words
        joined.append(position > 0 and has_spaces and not start)
    return joined


def _choose_folded(panels: Sequence[_Panel], count: int) -> set[int]:
    """The positions of the words of a long text that are seen only when it is unfolded, the same in all panels."""
    if count <= LONG:
        return set()
    in_view: list[int] = []
    maps = []
    for panel in panels:
        in_view += list(panel.picture.swapped)[:CHANGED]
        if panel.is_map:
            maps.append(np.atleast_2d(panel.array).sum(axis=0)[:count])
    if maps:
        in_view += rank_entries(maps, FEATURES).tolist()
    with_neighbours: set[int] = set()
    for position in in_view:
        first, last = position - NEIGHBOURS, position + NEIGHBOURS
        with_neighbours.update(range(first, last + 1))
    return set(range(FIRST_WORDS, count)) - with_neighbours


def _colour_words(panel: _Panel, words: Sequence[str]) -> list[ColouredWord]:
    """Each word on its colour; last, relevance of an embedding beyond the words."""
    array = np.atleast_2d(panel.array)
    words = list(words[: array.shape[1]])
    if panel.marks is not None:
        return _mark_words(panel, panel.marks, words)
    if panel.plain:
        return [ColouredWord(word, _PLAIN) for word in words]
    if panel.change:
        values = np.abs(array).max(axis=0)
    else:
        values = array.sum(axis=0)
    limit = float(np.abs(values).max()) or 1.0
    beyond = values[len(words) :]
    values = values[: len(words)]
    has_padding = len(beyond) > 0 and np.abs(beyond).max() > 0.02 * limit
    if has_padding and not panel.change:
        words.append("(padding)")
        values = np.append(values, beyond.sum())
    shares = values / limit
    rgb = _mix_green(shares) if panel.change else colour_signed(shares)
    # by how bright red, green and blue are to the eye
    is_dark = rgb @ np.array([0.299, 0.587, 0.114]) < 0.55
    bytes_of_colours = np.rint(255 * rgb).astype(np.uint8)
    codes = ["#" + bytes(colour).hex() for colour in bytes_of_colours]
    return [
        ColouredWord(word, code, dark)
        for word, code, dark in zip(words, codes, is_dark.tolist(), strict=True)
    ]


def _mark_words(panel: _Panel, marks: Array, words: Sequence[str]) -> list[ColouredWord]:
    """Each word on the colour of its lowest mark."""
    colours = [*panel.picture.colours, _PLAIN]
    lowest = np.where(marks > 0, marks, len(colours))
    if lowest.ndim > 1:
        lowest = lowest.min(axis=0)
    # there may be more positions than words
    pairs = zip(words, lowest.tolist(), strict=False)
    return [ColouredWord(word, colours[mark - 1]) for word, mark in pairs]


def _mix_green(shares: Array) -> Array:
    """Colours `(..., 3)` from white at 0 to green at 1."""
    away_from_white = 1 - np.array(_GREEN) / 255
    return np.asarray(1 - shares[:, None] * away_from_white)
