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
#: from which place on the pictures of a search that found nothing are faint
FIRST_FAINT = 2
#: with more words a text is folded: the first ones, changed ones and the most relevant ones are seen, with neighbours
LONG, FIRST_WORDS, CHANGED, NEIGHBOURS = 100, 40, 20, 2


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
class Lane:
    """A channel over time: its name, the points of its line in a square of 100, and the data URI of its ground."""

    name: str
    points: str
    ground: str | None


@dataclass(frozen=True)
class Word:
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


class _Ready:
    """A picture that is no image, with finite numbers.

    Attributes:
        title, signed, change: of the picture.
        faint: whether it is drawn pale.
        array: `(F,)` or `(C, T)`.
        marks: of its positions, or None.
        constant: whether it is a map that says nothing.
        parts: the lanes or the words, set by the function that draws it.
    """

    def __init__(self, picture: Picture, place: int, found: bool) -> None:
        values = np.asarray(picture.array, dtype=float)
        flat = values.ndim > 2
        self.picture, self.place, self.faint = picture, place, not found and place >= FIRST_FAINT
        self.title, self.signed, self.change = picture.title, picture.signed, picture.change
        self.array = np.nan_to_num(values.reshape(-1) if flat else values)
        self.marks = None if picture.marks is None else np.asarray(picture.marks)
        self.marks = self.marks.reshape(-1) if flat and self.marks is not None else self.marks
        self.unseen = np.isnan(values).all(axis=0) if picture.moved_back and values.ndim == 2 else None
        self.limit = float(np.abs(self.array).max(initial=0.0)) or 1.0
        self.constant = self.signed and not self.change and bool(np.ptp(self.array) == 0)
        self.plain = not self.signed and self.marks is None
        self.parts: list[Any] = []


def draw_row(row: GalleryRow, bounds: tuple[float, float]) -> list[Drawing]:
    """The drawings of a row of pictures; inputs are on the scale of `bounds`."""
    drawn = []
    together: dict[str, list[_Ready]] = {}
    for place, picture in enumerate(map(lay_slices, row.pictures)):
        axes = np.ndim(picture.array)
        if axes == 3:
            white = picture.signed or picture.change or picture.marks is not None
            drawn.append(Drawing("image", picture.title, picture.alt, white, draw_picture(picture, bounds)))
        else:
            kind = "words" if row.tokens and axes in (1, 2) else "series" if axes == 2 else "table"
            together.setdefault(kind, []).append(_Ready(picture, place, row.found))
    for kind, ready in together.items():
        content = {"table": _draw_table, "series": _draw_series, "words": _draw_words}[kind](ready, row)
        drawn.append(Drawing(kind, "", ". ".join(each.picture.alt for each in ready), True, content))
    return drawn


def lay_slices(picture: Picture) -> Picture:
    """The picture of a volume `(C, D, H, W)` as an image: three of its slices beside each other; others as they are.

    >>> lay_slices(Picture("input", np.zeros((1, 9, 4, 5)), "a volume")).title
    'input, slices 3, 5, 7 of 9'
    """
    if np.ndim(picture.array) != 4:
        return picture
    depth = picture.array.shape[1]
    shown = sorted({round(share * (depth - 1)) for share in (0.25, 0.5, 0.75)})
    words = f", slice{'s' * (len(shown) > 1)} {', '.join(str(place + 1) for place in shown)} of {depth}"
    marks = picture.marks
    if marks is not None and np.ndim(marks) == 3:
        marks = np.concatenate([marks[place] for place in shown], axis=-1)
    laid = np.concatenate([picture.array[:, place] for place in shown], axis=-1)
    return replace(picture, title=picture.title + words, alt=picture.alt + words, array=laid, marks=marks)


def _draw_table(ready: list[_Ready], row: GalleryRow) -> dict[str, Any]:
    """A line for each feature: its name, its values as numbers, its relevance as bars.

    A cell is `("number", text)`, or `("number changed", text)` where it differs from the first input;
    `("bar", share of the longest)` or `("mark", colour)`.
    A change of the input gets no bars where its values before and after are there. Where there are marks and no maps,
    only marked features have a line.
    """
    if sum(each.plain for each in ready) > 1:
        ready = [each for each in ready if not each.change]
    maps = [each.array for each in ready if each.signed and not each.change]
    marks = [np.where(each.marks > 0, 1 / np.maximum(each.marks, 1), 0) for each in ready if each.marks is not None]
    shown = rank_entries(maps or marks or [ready[0].array], FEATURES)
    if marks and not maps:
        shown = shown[np.max(marks, axis=0)[shown] > 0]
    rows = []
    for place in shown.tolist():
        cells: list[tuple[str, Any]] = []
        for each in ready:
            value = float(each.array[place])
            if each.signed:
                cells.append(("bar", value / each.limit))
            elif each.marks is not None:
                cells.append(("mark", each.picture.colours[each.marks[place] - 1] if each.marks[place] > 0 else ""))
            else:
                known = describe_cell(row.columns[place], value) if place < len(row.columns) else ""
                first = next(other.array[place] for other in ready if other.plain)
                changed = bool(row.columns) and value != float(first)
                cells.append(("number changed" if changed else "number", known or format_number(value, None)))
        rows.append((name_entry(row.features, place, "feature"), cells))
    return {"columns": ready, "rows": rows, "left_out": len(ready[0].array) - len(rows)}


def _draw_series(ready: list[_Ready], row: GalleryRow) -> dict[str, Any]:
    """The channels below each other over time: the line of the input, and its relevance as the colour behind it."""
    panels = _pair_with_inputs(ready)
    channels, steps = max((line.shape for _, line in panels), key=lambda shape: shape[0])
    maps = [each.array for each, _ in panels if each.signed and not each.change and len(each.array) == channels]
    ranked = rank_entries([np.abs(each).sum(axis=1) for each in maps] or [np.ptp(panels[0][1], axis=1)], CHANNELS)
    lines = [line for each, line in panels if not each.change and len(line) == channels]
    ends = np.concatenate(lines or [np.zeros((channels, 1))], axis=1)  # the same scale before and after
    for each, line in panels:
        if each.marks is not None and each.marks.ndim == 1:  # the same for all channels: one strip
            each.parts = [Lane("", "", _colour_ground(each, 0, channels))]
            continue
        for place in sorted(ranked.tolist()):
            low, high = (-each.limit, each.limit) if each.change else (ends[place].min(), ends[place].max())
            points = _list_points(line[place], low, high) if len(line) == channels else ""
            ground = None if each.change or each.plain else _colour_ground(each, place, channels)
            name = name_entry(row.features, place, "channel") if channels > 1 or row.features else ""
            each.parts.append(Lane(name, points, ground))
    return {"panels": [each for each, _ in panels], "steps": steps, "left_out": channels - len(ranked)}


def _pair_with_inputs(ready: Sequence[_Ready]) -> list[tuple[_Ready, Array]]:
    """Maps with the input that they explain: the last one before, or the first one after; moved back, the first one.

    An input without marks that a map is drawn on gets no picture of its own. Maps are next to each other, to be
    compared; then come marks, and changes last.
    """
    inputs = [each for each in ready if not each.signed]
    panels = []
    drawn = set()
    for each in ready:
        if not each.signed or each.change:
            continue
        earlier = [other for other in inputs if other.place < each.place]
        base = next(iter(earlier[-1:] or inputs), each)
        if each.picture.moved_back:
            base = next(iter(inputs), each)
        drawn.add(base.place)
        panels.append((each, base.array))
    panels += [(each, each.array) for each in ready if each.change or not (each.signed or each.place in drawn)]
    panels += [(each, each.array) for each in inputs if each.marks is not None and each.place in drawn]
    return sorted(panels, key=lambda panel: (panel[0].change, panel[0].marks is not None, panel[0].place))


def _list_points(values: Array, low: float, high: float) -> str:
    """The points of a line as SVG has them, in a square of 100; more is above."""
    stride = -(-len(values) // POINTS)
    x = 100 * np.arange(len(values))[::stride] / max(len(values) - 1, 1)
    y = 96 - 92 * (values[::stride] - low) / ((high - low) or 1.0)
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))


def _colour_ground(each: _Ready, channel: int, channels: int) -> str:
    """The colours behind a line, as a picture of one pixel for each step."""
    if each.marks is not None:
        marks = each.marks if each.marks.ndim == 1 else np.broadcast_to(each.marks, each.array.shape)[channel]
        none = len(each.picture.colours) + 1
        lowest = _cut(np.where(marks > 0, marks, none)).min(axis=1).astype(int)
        palette = [*(bytes.fromhex(colour[1:]) for colour in each.picture.colours), b"\xff\xff\xff"]
        return encode_image(np.array([list(colour) for colour in palette])[lowest - 1][None] / 255)
    own = len(each.array) in (1, channels)
    values = each.array[min(channel, len(each.array) - 1)] if own else each.array.sum(axis=0)
    colours = colour_signed(_cut(values).mean(axis=1) / each.limit)
    if each.unseen is not None:
        colours[_cut(each.unseen).mean(axis=1) > 0.5] = _UNSEEN
    return encode_image(colours[None])


def _cut(values: Array) -> Array:
    """Blocks `(blocks, steps)` of the values of a long series, so that there are no more than `POINTS`."""
    block = -(-len(values) // POINTS)
    return values[: len(values) // block * block].reshape(-1, block)


def _draw_words(ready: list[_Ready], row: GalleryRow) -> dict[str, Any]:
    """The words of a text on coloured ground; an input without marks only where there is nothing else.

    A change that is nearly the same for all words, as at the edge of a ball, shows nothing and is left out, and so is
    a change of the codes that stand for words.
    """
    panels = []
    for each in ready:
        sizes = np.abs(np.atleast_2d(each.array)).max(axis=0)[: len(row.tokens)]
        says_nothing = each.change and (each.array.ndim == 1 or np.ptp(sizes) <= 0.15 * sizes.max())
        if not each.plain and not says_nothing:
            panels.append(each)
    panels = sorted(panels or ready[:1], key=lambda each: (each.change, each.marks is not None, each.place))
    old = [str(token).strip() or "␣" for token in row.tokens]
    starts = [str(token)[:1].isspace() for token in row.tokens]  # if none begins with a blank, all are set apart
    joined = [place > 0 and any(starts) and not start for place, start in enumerate(starts)]
    folded = _choose_folded(panels, len(old))
    for each in panels:
        new = {place: word.strip() for place, word in each.picture.swapped.items()}
        each.parts = _colour_words(each, [new.get(place, token) for place, token in enumerate(old)])
        for place in range(min(len(old), len(each.parts))):
            each.parts[place] = replace(
                each.parts[place],
                old=old[place] if place in new else "",
                joined=joined[place],
                folded=place in folded,
            )
    return {"panels": panels, "count": len(old), "folded": len(folded)}


def _choose_folded(panels: Sequence[_Ready], count: int) -> set[int]:
    """The places of the words of a long text that are seen only when it is unfolded, the same in all panels."""
    if count <= LONG:
        return set()
    changed = [place for each in panels for place in list(each.picture.swapped)[:CHANGED]]
    maps = [np.atleast_2d(each.array).sum(axis=0)[:count] for each in panels if each.signed and not each.change]
    strong = rank_entries(maps, FEATURES).tolist() if maps else []
    seen = {place + step for place in (*changed, *strong) for step in range(-NEIGHBOURS, NEIGHBOURS + 1)}
    return set(range(FIRST_WORDS, count)) - seen


def _colour_words(each: _Ready, words: Sequence[str]) -> list[Word]:
    """Each word on its colour; last, relevance of an embedding beyond the words."""
    array = np.atleast_2d(each.array)
    words = list(words[: array.shape[1]])
    if each.marks is not None:
        marks = np.where(each.marks > 0, each.marks, len(each.picture.colours) + 1)
        lowest = marks if marks.ndim == 1 else marks.min(axis=0)
        colours = [*each.picture.colours, _PLAIN]
        return [Word(word, colours[mark - 1]) for word, mark in zip(words, lowest.tolist(), strict=False)]
    if each.plain:
        return [Word(word, _PLAIN) for word in words]
    values = np.abs(array).max(axis=0) if each.change else array.sum(axis=0)
    limit = float(np.abs(values).max()) or 1.0
    beyond = values[len(words) :]
    if not each.change and len(beyond) and np.abs(beyond).max() > 0.02 * limit:
        words, values = [*words, "(padding)"], np.append(values[: len(words)], beyond.sum())
    shares = values[: len(words)] / limit
    rgb = colour_signed(shares) if not each.change else 1 - shares[:, None] * (1 - np.array(_GREEN) / 255)
    dark = rgb @ np.array([0.299, 0.587, 0.114]) < 0.55
    codes = ["#" + bytes(colour).hex() for colour in np.rint(255 * rgb).astype(np.uint8)]
    return [Word(*each) for each in zip(words, codes, dark.tolist(), strict=True)]
