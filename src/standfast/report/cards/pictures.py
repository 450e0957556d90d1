"""The input of a card with what holds of its map: an image, the lanes of a series, or the words of a text.

What holds has its colour, red for the answer and blue against it. What does not hold is hatched in grey, never in a
colour that means strength; all else is a pale input.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from standfast.report.cards.facts import Area, measure_area
from standfast.report.maps import colour_signed, find_limit, name_entry, scale_input
from standfast.report.page.pictures import encode_image, shrink
from standfast.results.reasons import Card
from standfast.tensors import Array

#: pixels on the longer side of a picture, and on the height of a lane
_SIDE, _LANE = 320, 24
#: of stripes: how wide in pixels, and their greys
_STRIPE, _STRIPES = 3, (0x77 / 255, 0xDD / 255)
#: the greys of an input under its map
_DARKEST, _PALEST = 0xB4 / 255, 0xEC / 255
#: what holds has at least the first part of full colour, to be told from what does not, and at most the second; behind
#: a line, and behind words, colours are paler
_COLOURS, _PALE_COLOURS = (0.45, 0.9), (0.25, 0.5)
#: the channels of a series, the points of a line, and the words of a text that are shown
_MOST_LANES, _MOST_POINTS, _MOST_WORDS = 4, 300, 160
#: words around those that are reasons
_NEIGHBOURS = 2


@dataclass(frozen=True)
class ImagePicture:
    """An image and its map as data URIs, with the map in words."""

    image: str
    map: str
    alt: str


@dataclass(frozen=True)
class Lane:
    """A channel of a series: its name, the points of its line in a square of 100, and its ground as a data URI."""

    name: str
    points: str
    ground: str


@dataclass(frozen=True)
class CardWord:
    """A word of a text.

    Attributes:
        text: it.
        state: `"holds"`, `"doubtful"` or empty.
        ground: the colour behind a word that holds, as `"#rrggbb"`; else empty.
        is_dark: whether this colour is dark.
        follows_gap: whether words before it are not shown.
    """

    text: str
    state: str
    ground: str = ""
    is_dark: bool = False
    follows_gap: bool = False


def draw_image(card: Card) -> ImagePicture | None:
    """The pictures of an image `(C, H, W)`; None where its map is not of its pixels."""
    image = np.nan_to_num(np.asarray(card.input, dtype=float))
    origin = np.nan_to_num(np.asarray(card.origin, dtype=float))
    if origin.size != image.shape[1] * image.shape[2]:
        return None
    area = measure_area(card)
    size = image.shape[1:]
    shades = shrink(scale_input(image))
    if len(shades) != 3:
        shades = shades.mean(axis=0, keepdims=True).repeat(3, axis=0)
    values = shrink(origin.reshape(1, *size))[0]
    holds = shrink(area.holds.reshape(1, *size).astype(float))[0] >= 0.5
    doubtful = shrink(area.doubtful.reshape(1, *size).astype(float))[0] >= 0.5
    grey = shades.mean(axis=0)[..., None].repeat(3, axis=-1)
    pale = _DARKEST + (_PALEST - _DARKEST) * np.rint(8 * grey) / 8
    factor = max(1, _SIDE // max(values.shape))
    painted = paint_area(values, holds, doubtful & ~holds, pale, (factor, factor))
    colours = np.moveaxis(shades, 0, -1).repeat(factor, axis=0).repeat(factor, axis=1)
    return ImagePicture(encode_image(colours), encode_image(painted), _describe_area(area, "pixels"))


def _describe_area(area: Area, parts: str) -> str:
    """What holds, in words, for those who do not see it."""
    return f"{area.count} {parts} hold, and {int(area.doubtful.sum())} others that are named do not"


def paint_area(
    values: Array,
    holds: Array,
    doubtful: Array,
    ground: Array,
    factors: tuple[int, int],
    colours: tuple[float, float] = _COLOURS,
) -> Array:
    """A map `(H, W)` on its ground `(H, W, 3)`: coloured where it holds, striped where it is doubtful.

    Args:
        values: the map.
        holds, doubtful: which of its positions, bool `(H, W)`.
        ground: the colours elsewhere, in [0, 1].
        factors: how many pixels a position has, in height and in width.
        colours: of the weakest and of the strongest part that holds, in [0, 1].

    Returns:
        The colours, `(H * factor, W * factor, 3)`.
    """
    limit = find_limit(values, np.ones(values.shape, dtype=bool))
    least, most = colours
    sizes = least + (most - least) * np.clip(np.abs(values) / limit, 0.0, 1.0)
    coloured = np.where(holds[..., None], colour_signed(np.sign(values) * sizes), ground)
    enlarged = coloured.repeat(factors[0], axis=0).repeat(factors[1], axis=1)
    hatched = doubtful.repeat(factors[0], axis=0).repeat(factors[1], axis=1)
    rows, columns = np.indices(hatched.shape)
    is_dark = (rows + columns) // _STRIPE % 2 == 0
    stripes = np.where(is_dark, *_STRIPES)[..., None]
    return np.asarray(np.where(hatched[..., None], stripes, enlarged))


def draw_series(card: Card) -> list[Lane]:
    """The lanes of a series `(C, T)`, of the channels with the most relevance; none where its map has another shape."""
    series = np.nan_to_num(np.asarray(card.input, dtype=float))
    origin = np.nan_to_num(np.asarray(card.origin, dtype=float))
    if origin.size != series.size:
        return []
    values = origin.reshape(series.shape)
    area = measure_area(card)
    holds, doubtful = area.holds.reshape(series.shape), area.doubtful.reshape(series.shape)
    strongest = np.argsort(-np.abs(values).sum(axis=1), kind="stable")[:_MOST_LANES]
    factor = max(1, 2 * _SIDE // series.shape[1])
    lanes: list[Lane] = []
    for channel in sorted(strongest.tolist()):
        own = slice(channel, channel + 1)
        ground = np.ones((1, series.shape[1], 3))
        painted = paint_area(values[own], holds[own], doubtful[own], ground, (_LANE, factor), _PALE_COLOURS)
        name = name_entry((), channel, "channel") if len(series) > 1 else ""
        lanes.append(Lane(name, _list_points(series[channel]), encode_image(painted)))
    return lanes


def _list_points(line: Array) -> str:
    """The points of a line as SVG has them, in a square of 100."""
    stride = -(-len(line) // _MOST_POINTS)
    steps = np.arange(len(line))[::stride]
    across = 100 * (steps + 0.5) / len(line)
    down = 94 - 88 * scale_input(line)[::stride]
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True))


def draw_words(card: Card) -> list[CardWord]:
    """The words of a text: those that hold on their colour, doubtful ones to be underlined."""
    origin = np.nan_to_num(np.asarray(card.origin, dtype=float))
    area = measure_area(card)
    count = min(len(card.names), len(origin))
    colours = colour_signed(origin / (np.abs(origin).max(initial=0.0) or 1.0))
    shown = _choose_words(area, count)
    words: list[CardWord] = []
    previous = -1
    for place in shown:
        text = card.names[place] or "␣"
        follows_gap = place > previous + 1
        previous = place
        if area.holds[place]:
            code = "#" + bytes(np.rint(255 * colours[place]).astype(np.uint8)).hex()
            is_dark = bool(colours[place] @ np.array([0.299, 0.587, 0.114]) < 0.55)
            words.append(CardWord(text, "holds", code, is_dark, follows_gap))
        else:
            state = "doubtful" if area.doubtful[place] else ""
            words.append(CardWord(text, state, follows_gap=follows_gap))
    return words


def _choose_words(area: Area, count: int) -> list[int]:
    """The places of the words that are shown: all; of a long text the first ones, and reasons with neighbours."""
    if count <= _MOST_WORDS:
        return list(range(count))
    reasons = np.flatnonzero((area.holds | area.doubtful)[:count])
    around = {place + step for place in reasons.tolist() for step in range(-_NEIGHBOURS, _NEIGHBOURS + 1)}
    first = set(range(_MOST_WORDS // 2))
    return sorted(place for place in first | around if 0 <= place < count)
