"""Rows of pictures of tables, series and texts, each as one SVG: bars with names, lanes over time, coloured words.

The ground is white, also in dark mode. Red is evidence for the class and blue evidence against it. All texts are
escaped, and sizes are those of a card of the page, so that letters stay readable on a phone.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from standfast.report.charts import GalleryRow, Picture
from standfast.report.page.pictures import colour_signed, draw_picture, encode_png
from standfast.tensors import Array

#: the width of a drawing, the size of its letters and of its titles, and the height of a line
WIDTH, LETTERS, TITLES, LINE = 340, 11.0, 10.0, 16.0
#: features that are drawn, and channels
FEATURES, CHANNELS = 12, 6
#: the height of a strip of marks that all channels share
_STRIP = 14.0
#: points of a line, and colours of its ground, over the time of a series
POINTS = 300
#: the colour of the time that a map moved back has no values for
_UNSEEN = 0xB4 / 255
RED, BLUE, INK, FAINT, RULE = "#b2182b", "#2166ac", "#1c1e21", "#5a6169", "#c9cdd1"
#: how pale the pictures of a search are that found nothing, and from which picture on
PALE, FIRST_PALE = 0.45, 2


def draw_row(row: GalleryRow, bounds: tuple[float, float]) -> list[tuple[str, str, str]]:
    """Title, alternative text and data URI of each picture of a row.

    The pictures of a table, a series or a text become one, because their names, time or words are the same. It has no
    title: the titles are within it.
    """
    places: dict[int, list[int]] = {}
    drawn = []
    for place, picture in enumerate(row.pictures):
        axes = np.ndim(picture.array)
        if axes == 3:
            drawn.append((picture.title, picture.alt, draw_picture(picture, bounds)))
        else:
            places.setdefault(axes if axes < 3 else 1, []).append(place)
    for same in places.values():
        drawn.append(("", ". ".join(row.pictures[place].alt for place in same), draw_shapes(row, same)))
    return drawn


def draw_shapes(row: GalleryRow, places: Sequence[int]) -> str:
    """Draw those pictures of a row that have as many axes, one or two, as the data URI of one SVG.

    `(F,)` become columns of numbers and bars with a line for each feature. `(C, T)` become lanes over time, or words
    if the row has words. Arrays of more than three axes are drawn like features.
    """
    ready = [_Ready(row.pictures[place], place) for place in places]
    opacity = {found.place: PALE for found in ready if not row.found and found.place >= FIRST_PALE}
    draw = _draw_table if ready[0].array.ndim == 1 else _draw_words if row.tokens else _draw_lanes
    shapes, height = draw(ready, row, lambda place: f' opacity="{opacity[place]}"' if place in opacity else "")
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" font-family="sans-serif" '
        f'font-size="{LETTERS:g}" fill="{INK}"><rect width="{WIDTH}" height="{height:g}" fill="#fff"/>'
        f"{''.join(shapes)}</svg>"
    )
    return "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()


class _Ready:
    """A picture with finite numbers, and its place in the row."""

    def __init__(self, picture: Picture, place: int) -> None:
        self.picture, self.place = picture, place
        values = np.asarray(picture.array, dtype=float)
        self.array = np.nan_to_num(values)
        #: positions of a map that was moved back that not both inputs see
        self.unseen = np.isnan(values).all(axis=0) if picture.moved_back and values.ndim == 2 else None
        self.signed, self.change, self.title = picture.signed, picture.change, picture.title
        self.marks = None if picture.marks is None else np.asarray(picture.marks)
        if self.array.ndim > 2:
            self.array = self.array.reshape(-1)
            self.marks = None if self.marks is None else self.marks.reshape(-1)
        self.limit = float(np.abs(self.array).max()) if self.array.size else 0.0

    @property
    def plain(self) -> bool:
        """Whether it is an input without marks."""
        return not self.signed and self.marks is None


_Opacity = Callable[[int], str]
_Drawn = tuple[list[str], float]


def write(x: float, y: float, text: str, size: float = LETTERS, anchor: str = "start", fill: str = INK) -> str:
    """A text of the drawing, escaped.

    >>> write(1, 2, "a<b")
    '<text x="1.0" y="2.0" font-size="11">a&lt;b</text>'
    """
    more = (f' text-anchor="{anchor}"' if anchor != "start" else "") + (f' fill="{fill}"' if fill != INK else "")
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}"{more}>{escape(text)}</text>'


def measure(text: str, size: float = LETTERS) -> float:
    """How wide a text is in a wide font, roughly: pages are read in fonts that are not known here.

    >>> measure("mean radius") > measure("ill")
    True
    """
    wide, narrow = set("mwMWOQG@%—"), set("iljtfrI.,;:'|!()[] ")
    return size * sum(0.95 if c in wide else 0.36 if c in narrow else 0.7 if c.isupper() else 0.62 for c in text)


def shorten(text: str, width: float, size: float = LETTERS) -> str:
    """A text that is not wider than `width`, with an ellipsis in place of letters in its middle.

    Names of features often begin alike, so their ends are kept.

    >>> shorten("worst concave points", 90.0), shorten("area", 90.0)
    ('worst co…oints', 'area')
    """
    if measure(text, size) <= width:
        return text
    for kept in range(len(text) - 1, 1, -1):
        start = (kept + 3) // 2
        short = f"{text[:start].rstrip()}…{text[len(text) - kept + start :].lstrip()}"
        if measure(short, size) <= width:
            return short
    return "…"


def name_entry(names: Sequence[str], place: int, kind: str) -> str:
    """The name of a feature or channel; its number where it has none.

    >>> name_entry(["age"], 0, "feature"), name_entry([], 3, "feature")
    ('age', 'feature 3')
    """
    return str(names[place]) if place < len(names) else f"{kind} {place}"


def format_value(value: float) -> str:
    """A number of an input in three digits.

    >>> format_value(-0.12345), format_value(1234.5), format_value(0.0)
    ('−0.123', '1.23e3', '0')
    """
    text = f"{value:z.3g}".replace("e+0", "e").replace("e-0", "e-").replace("e+", "e")
    return text.replace("-", "−")


def rank_entries(pictures: Sequence[Array], count: int) -> Array:
    """The places of the `count` most relevant entries, the most relevant first, of maps `(n,)` on their own scales.

    >>> rank_entries([np.array([0.1, -3.0, 2.0]), np.array([0.9, 0.0, 0.0])], 2).tolist()
    [0, 1]
    """
    sizes = [np.abs(values) / (np.abs(values).max() or 1.0) for values in pictures]
    return np.argsort(-np.max(sizes, axis=0), kind="stable")[:count]


def _draw_table(ready: Sequence[_Ready], row: GalleryRow, opacity: _Opacity) -> _Drawn:
    """A line for each feature: its name, its values as numbers, its relevance as bars.

    A change of the input gets no bars where its values before and after are there. Where there are marks and no maps,
    only marked features have a line.
    """
    if sum(each.plain for each in ready) > 1:
        ready = [each for each in ready if not each.change]
    size = len(ready[0].array)
    maps = [each.array for each in ready if each.signed and not each.change]
    marks = [np.where(each.marks > 0, 1 / np.maximum(each.marks, 1), 0) for each in ready if each.marks is not None]
    shown = rank_entries(maps or marks or [ready[0].array], FEATURES)
    if marks and not maps:
        shown = shown[np.max(marks, axis=0)[shown] > 0]
    names = [name_entry(row.features, int(place), "feature") for place in shown]
    narrow = {each.place: 46.0 if each.plain else 30.0 for each in ready if not each.signed}
    bars = [each for each in ready if each.signed]
    # titles are not cut, names are
    least = {each.place: max([44.0, *(measure(word, TITLES) + 4 for word in each.title.split())]) for each in bars}
    most = max(WIDTH - sum(narrow.values()) - sum(least.values()) - 8, 60.0)
    left = min(most, max((measure(name) for name in names), default=60.0) + 11)
    spare = min((WIDTH - 4 - left - sum(narrow.values()) - sum(least.values())) / max(len(bars), 1), 50.0)
    top, shapes, x = 2 * TITLES + 8, [], left
    for line, name in enumerate(names):
        y = top + LINE * line
        if line % 2 == 0:
            shapes.append(f'<rect x="0" y="{y:g}" width="{WIDTH}" height="{LINE:g}" fill="#f4f5f6"/>')
        shapes.append(write(left - 6, y + 0.74 * LINE, shorten(name, left - 10), anchor="end"))
    for each in ready:
        width = least[each.place] + spare if each.signed else narrow[each.place]
        parts = _write_title(each.title, x, width)
        for line, place in enumerate(shown):
            value, y = each.array[place], top + LINE * line
            if each.signed:
                parts.append(_draw_bar(x + 3, y + 3, width - 6, LINE - 6, value, each.limit))
            elif each.marks is None:
                parts.append(write(x + width - 3, y + 0.74 * LINE, format_value(value), TITLES, "end"))
            elif each.marks[place] > 0:
                colour = each.picture.colours[each.marks[place] - 1]
                parts.append(
                    f'<rect x="{x + width / 2 - 5:.1f}" y="{y + 3:g}" width="10" height="10" fill="{colour}"/>'
                )
        if each.signed:
            middle, end = x + width / 2, top + LINE * len(shown)
            parts.append(f'<path d="M{middle:.1f} {top:g}V{end:g}" stroke="{FAINT}" stroke-width=".7"/>')
            parts += _say_constant(each, middle, top + LINE * len(shown) / 2)
        shapes.append(f"<g{opacity(each.place)}>{''.join(parts)}</g>")
        x += width
    height = top + LINE * len(shown) + 4
    if size > len(shown):
        more = f"and {size - len(shown)} more features" if len(shown) else f"none of {size} features"
        shapes.append(write(4, height + 9, more, TITLES, fill=FAINT))
        height += 14
    return shapes, height


def _write_title(title: str, x: float, width: float) -> list[str]:
    """A title above a column, in two lines if it is too wide for one."""
    words = title.split(" ")
    lines = [title]
    if measure(title, TITLES) > width - 2 and len(words) > 1:
        cut = min(range(1, len(words)), key=lambda i: abs(len(" ".join(words[:i])) - len(title) / 2))
        lines = [" ".join(words[:cut]), " ".join(words[cut:])]
    bottom = 2 * TITLES + 2
    return [
        write(
            x + width / 2,
            bottom - (TITLES + 1) * (len(lines) - 1 - i),
            shorten(line, width, TITLES),
            TITLES,
            "middle",
            FAINT,
        )
        for i, line in enumerate(lines)
    ]


def _draw_bar(x: float, y: float, width: float, height: float, value: float, limit: float) -> str:
    """A bar from the middle: to the right and red above zero, to the left and blue below."""
    half = width / 2
    length = half * abs(value) / (limit or 1.0)
    start, colour = (x + half, RED) if value > 0 else (x + half - length, BLUE)
    return f'<rect x="{start:.1f}" y="{y:g}" width="{length:.1f}" height="{height:g}" fill="{colour}"/>'


def _say_constant(each: _Ready, x: float, y: float) -> list[str]:
    if each.change or np.ptp(each.array) > 0:
        return []
    return [write(x, y, "constant", TITLES, "middle", FAINT)]


@dataclass(frozen=True)
class _Panel:
    """A picture of a series, and the input whose line is drawn."""

    ready: _Ready
    line: Array


def _pair_with_inputs(ready: Sequence[_Ready]) -> Iterator[_Panel]:
    """Maps with the input that they explain: the last one before, or the first one after; moved back, the first one.

    An input without marks that a map is drawn on gets no picture of its own.
    """
    inputs = [each for each in ready if not each.signed]
    drawn: set[int] = set()
    panels = []
    for each in ready:
        if each.change or not each.signed:
            continue
        earlier = [other for other in inputs if other.place < each.place]
        later = [other for other in inputs if other.place > each.place]
        base = earlier[-1] if earlier else later[0] if later else None
        if each.picture.moved_back and inputs:
            base = inputs[0]
        drawn |= {base.place} if base is not None else set()
        panels.append(_Panel(each, each.array if base is None else base.array))
    panels += [_Panel(each, each.array) for each in ready if each.change or each.marks is not None]
    panels += [_Panel(each, each.array) for each in inputs if each.plain and each.place not in drawn]
    # maps next to each other, to be compared; then marks, and changes last
    yield from sorted(panels, key=lambda panel: (panel.ready.change, panel.ready.marks is not None, panel.ready.place))


def _draw_lanes(ready: Sequence[_Ready], row: GalleryRow, opacity: _Opacity) -> _Drawn:
    """The channels below each other over time: the line of the input, and its relevance as the colour behind it."""
    panels = list(_pair_with_inputs(ready))
    channels, steps = max((panel.line.shape for panel in panels), key=lambda shape: shape[0])
    maps = [panel.ready for panel in panels if panel.ready.signed and not panel.ready.change]
    own = [np.abs(each.array).sum(axis=1) for each in maps if len(each.array) == channels]
    shown = np.sort(rank_entries(own or [np.ptp(panels[0].line, axis=1)], CHANNELS))
    names = (
        [name_entry(row.features, int(place), "channel") for place in shown] if channels > 1 or row.features else [""]
    )
    left = min(90.0, max(measure(name, TITLES) for name in names) + 6) if names[0] else 6.0
    lane = float(np.clip(96 / len(shown), 18, 48))
    low, high = _find_limits([panel.line for panel in panels if not panel.ready.change], channels)
    shapes: list[str] = []
    y = 0.0
    for panel in panels:
        each = panel.ready
        y += TITLES + 4
        parts = [write(left, y, each.title, TITLES, fill=FAINT)]
        parts += _say_constant(each, WIDTH - 30, y) if each.signed else []
        y += 4
        if each.marks is not None and each.marks.ndim == 1:  # the same for all channels: one strip
            parts.append(_place_ground(_colour_ground(each, 0, channels), left, y, _STRIP))
            y += _STRIP + 3
            shapes.append(f"<g{opacity(each.place)}>{''.join(parts)}</g>")
            continue
        for place, name in zip(shown.tolist(), names, strict=True):
            ground = None if each.change or each.plain else _colour_ground(each, place, channels)
            if ground is not None:
                parts.append(_place_ground(ground, left, y, lane - 2))
            limits = (-each.limit, each.limit) if each.change else (low[place], high[place])
            if len(panel.line) == channels:
                parts.append(_draw_line(panel.line[place], left, y, lane - 2, *limits))
            parts.append(f'<path d="M{left:g} {y + lane - 1:.1f}H{WIDTH - 4}" stroke="{RULE}" stroke-width=".5"/>')
            parts += [write(left - 4, y + lane / 2 + 3, shorten(name, left - 4, TITLES), TITLES, "end")] if name else []
            y += lane
        shapes.append(f"<g{opacity(each.place)}>{''.join(parts)}</g>")
    ticks = [(0, "start"), (steps // 2, "middle"), (steps - 1, "end")] if steps > 2 else [(0, "start")]
    span = WIDTH - 4 - left
    for tick, anchor in ticks:
        shapes.append(write(left + span * tick / max(steps - 1, 1), y + 11, str(tick), TITLES, anchor, FAINT))
    shapes.append(write(left + 0.25 * span, y + 11, "step", TITLES, "middle", FAINT))
    y += 15
    if channels > len(shown):
        shapes.append(write(left, y + 9, f"and {channels - len(shown)} more channels", TITLES, fill=FAINT))
        y += 14
    return shapes, y


def _place_ground(ground: str | None, left: float, top: float, height: float) -> str:
    """Colours behind a line as an image of the drawing, with an edge that shows how long the series is."""
    where = f'x="{left:g}" y="{top:.1f}" width="{WIDTH - left - 4:g}" height="{height:.1f}"'
    edge = f'<rect {where} fill="none" stroke="{RULE}" stroke-width=".5"/>'
    if ground is None:
        return edge
    return f'<image {where} preserveAspectRatio="none" style="image-rendering:pixelated" href="{ground}"/>{edge}'


def _find_limits(lines: Sequence[Array], channels: int) -> tuple[Array, Array]:
    """The least and the largest value of each channel over all inputs of a row, so that their lines can be compared."""
    whole = [line for line in lines if len(line) == channels]
    if not whole:
        return np.zeros(channels), np.ones(channels)
    every = np.concatenate(whole, axis=1)
    return every.min(axis=1), every.max(axis=1)


def _draw_line(values: Array, left: float, top: float, height: float, low: float, high: float) -> str:
    stride = -(-len(values) // POINTS)
    x = left + (WIDTH - 4 - left) * np.arange(len(values))[::stride] / max(len(values) - 1, 1)
    y = top + height - 2 - (height - 4) * (values[::stride] - low) / ((high - low) or 1.0)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    return f'<polyline points="{points}" fill="none" stroke="{INK}" stroke-width=".9"/>'


def _colour_ground(each: _Ready, channel: int, channels: int) -> str | None:
    """The colours behind a line, as a picture of one pixel for each step; None where there are no marks at all."""
    if each.marks is not None:
        marks = np.broadcast_to(each.marks, each.array.shape)[channel] if each.marks.ndim == 2 else each.marks
        none = len(each.picture.colours) + 1
        chosen = _cut(np.where(marks > 0, marks, none)).min(axis=1)
        palette = [*(bytes.fromhex(colour[1:]) for colour in each.picture.colours), b"\xff\xff\xff"]
        return encode_png(np.array([list(colour) for colour in palette])[chosen.astype(int) - 1][None] / 255)
    if not each.limit:
        return None
    values = (
        each.array[min(channel, len(each.array) - 1)] if len(each.array) in (1, channels) else each.array.sum(axis=0)
    )
    colours = colour_signed(_cut(values).mean(axis=1) / each.limit)
    if each.unseen is not None:
        colours[_cut(each.unseen).mean(axis=1) > 0.5] = _UNSEEN
    return encode_png(colours[None])


def _cut(values: Array) -> Array:
    """Blocks `(blocks, steps)` of the values of a long series, so that there are no more than `POINTS`."""
    block = -(-len(values) // POINTS)
    return values[: len(values) // block * block].reshape(-1, block)


def _draw_words(ready: Sequence[_Ready], row: GalleryRow, opacity: _Opacity) -> _Drawn:
    """The words of a text on coloured ground, in lines; an input without marks only where there is nothing else."""
    panels = [
        each for each in ready if not each.plain and not (each.change and _is_uniform(each, len(row.tokens)))
    ] or list(ready[:1])
    panels.sort(key=lambda each: (each.change, each.marks is not None, each.place))
    shapes: list[str] = []
    y = 0.0
    for each in panels:
        y += TITLES + 3
        parts = [write(4, y, each.title, TITLES, fill=FAINT)]
        parts += _say_constant(each, WIDTH - 30, y) if each.signed else []
        words, colours = _colour_words(each, row.tokens)
        x, y = 4.0, y + 4
        for word, colour in zip(words, colours, strict=True):
            text = shorten(word, WIDTH - 16)
            width = measure(text) + 6
            if x + width > WIDTH - 4 and x > 4:
                x, y = 4.0, y + LINE + 2
            dark = sum(int(colour[i : i + 2], 16) * w for i, w in ((1, 0.299), (3, 0.587), (5, 0.114))) < 140
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{LINE:g}" rx="2" fill="{colour}"/>'
            )
            parts.append(write(x + width / 2, y + 0.75 * LINE, text, LETTERS, "middle", "#fff" if dark else INK))
            x += width + 2
        y += LINE + 2
        shapes.append(f"<g{opacity(each.place)}>{''.join(parts)}</g>")
    return shapes, y + 3


def _colour_words(each: _Ready, tokens: Sequence[str]) -> tuple[list[str], list[str]]:
    """The words, with one more for relevance beyond them, and the colour of each."""
    positions = each.array.shape[1]
    words = [str(token) or "␣" for token in tokens[:positions]]
    if each.marks is not None:
        marks = each.marks if each.marks.ndim == 1 else _first_mark(each.marks)
        colours = [each.picture.colours[mark - 1] if mark > 0 else "#f4f5f6" for mark in marks[: len(words)]]
        return words, colours
    if each.plain:
        return words, ["#f4f5f6"] * len(words)
    values = np.abs(each.array).max(axis=0) if each.change else each.array.sum(axis=0)
    limit = float(np.abs(values).max()) or 1.0
    beyond = values[len(words) :]
    if not each.change and len(beyond) and np.abs(beyond).max() > 0.02 * limit:
        words, values = [*words, "(padding)"], np.append(values[: len(words)], beyond.sum())
    shade = colour_change if each.change else colour_signed
    rgb = np.rint(255 * shade(values[: len(words)] / limit)).astype(int)
    return words, [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in rgb.tolist()]


def _is_uniform(each: _Ready, words: int) -> bool:
    """Whether a change is nearly the same for all words, as at the edge of a ball: it shows nothing."""
    sizes = np.abs(each.array).max(axis=0)[:words]
    return bool(np.ptp(sizes) <= 0.15 * sizes.max())


def _first_mark(marks: Array) -> Array:
    """The lowest mark of each position over the channels; 0 where there is none."""
    large = np.where(marks > 0, marks, np.iinfo(np.int64).max).min(axis=0)
    return np.where(large == np.iinfo(np.int64).max, 0, large)


def colour_change(values: Array) -> Array:
    """The colours `(..., 3)` of sizes of a change in [0, 1], from white to green, which no map has."""
    share = np.clip(np.asarray(values, dtype=float), 0, 1)[..., None]
    return np.asarray(1 - share * (1 - np.array([0x1B, 0x78, 0x37]) / 255))
