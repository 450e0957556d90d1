"""The input of a card with what holds of its map: an image, the lanes of a series, or the words of a text.

What holds has its colour, red for the answer and blue against it, or purple where the explainer has no signs. What does
not hold is hatched in grey, never in a colour that means strength; all else is a pale input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from standfast.report.cards.facts import Area, measure_area
from standfast.report.maps import colour_signed, find_limit, name_entry, scale_input
from standfast.report.page.pictures import encode_image, shrink
from standfast.results.reasons import Card
from standfast.tensors import Array

#: pixels on the longer side of a picture, and on the height of a lane
_SIDE = 320
_LANE = 24
#: of stripes: how wide in pixels, and their greys
_STRIPE = 3
_STRIPES = (0x77 / 255, 0xDD / 255)
#: the greys of an input under its map
_DARKEST = 0xB4 / 255
_PALEST = 0xEC / 255
_SHADES = 8
#: what holds has at least the first part of full colour, to be told from what does not, and at most the second; behind
#: a line, and behind words, colours are paler
_COLOURS = (0.45, 0.9)
_PALE_COLOURS = (0.25, 0.5)
#: the channels of a series, the points of a line, and the words of a text that are shown
_MOST_LANES = 4
_MOST_POINTS = 300
_MOST_WORDS = 160
#: nothing, and the most, of what an explainer without signs says
_WHITE_AND_PURPLE = [[0.97, 0.97, 0.97], [0x54 / 255, 0x27 / 255, 0x8F / 255]]
_UNSIGNED = np.array(_WHITE_AND_PURPLE)
#: how bright red, green and blue are, and below which brightness letters are white
_BRIGHTNESS = np.array([0.299, 0.587, 0.114])
_DARK = 0.55
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
    image = _read_finite(card.input)
    origin = _read_finite(card.origin)
    size = image.shape[1:]
    if origin.size != size[0] * size[1]:
        return None
    area = measure_area(card)
    values = shrink(origin.reshape(1, *size))[0]
    holds = _shrink_mask(area.holds, size)
    doubtful = _shrink_mask(area.doubtful, size) & ~holds
    shades = shrink(scale_input(image))
    factor = max(1, _SIDE // max(values.shape))
    colour = choose_colours(card)
    painted = paint_area(
        values, holds, doubtful, _make_pale(shades), (factor, factor), colour=colour
    )
    colours = _enlarge(_colour(shades), factor, factor)
    return ImagePicture(encode_image(colours), encode_image(painted), _describe_area(area))


def choose_colours(card: Card) -> Callable[[Array], Array]:
    """The colours of values in [-1, 1]: by their signs, or by their sizes where the explainer has no signs."""
    if card.has_signs is False:
        return colour_unsigned
    return colour_signed


def colour_unsigned(values: Array) -> Array:
    """The colours `(..., 3)` of the sizes of values in [-1, 1]: purple, which is neither for nor against.

    >>> colour_unsigned(np.array([1.0, -1.0])).round(2).tolist()
    [[0.33, 0.15, 0.56], [0.33, 0.15, 0.56]]
    """
    return np.stack(
        [np.interp(np.abs(values), [0, 1], channel) for channel in _UNSIGNED.T], axis=-1
    )


def _read_finite(values: Array | None) -> Array:
    """Values as numbers; 0 where they are not finite."""
    return np.asarray(np.nan_to_num(np.asarray(values, dtype=float)))


def _shrink_mask(mask: Array, size: tuple[int, ...]) -> Array:
    """Which positions of the picture have most of their pixels in a mask `(H * W,)`, bool."""
    picture = mask.reshape(1, *size).astype(float)
    shares = shrink(picture)[0]
    return np.asarray(shares >= 0.5)


def _colour(shades: Array) -> Array:
    """The colours `(H, W, 3)` of an image `(C, H, W)` in [0, 1]: grey if it has no three channels."""
    if len(shades) == 3:
        return np.asarray(np.moveaxis(shades, 0, -1))
    grey = shades.mean(axis=0)
    rgb = grey[..., None].repeat(3, axis=-1)
    return np.asarray(rgb)


def _make_pale(shades: Array) -> Array:
    """An image `(C, H, W)` in pale grey, `(H, W, 3)`, of few shades, which make the file small."""
    grey = np.rint(_SHADES * shades.mean(axis=0)) / _SHADES
    pale = _DARKEST + (_PALEST - _DARKEST) * grey
    rgb = pale[..., None].repeat(3, axis=-1)
    return np.asarray(rgb)


def _enlarge(picture: Array, down: int, across: int) -> Array:
    """A picture `(H, W, ...)` with so many pixels for each position."""
    enlarged: Array = picture.repeat(down, axis=0).repeat(across, axis=1)
    return enlarged


def _describe_area(area: Area) -> str:
    """What holds, in words, for those who do not see it."""
    doubtful = int(area.doubtful.sum())
    return f"{area.count} pixels hold, and {doubtful} others that are named do not"


def paint_area(
    values: Array,
    holds: Array,
    doubtful: Array,
    ground: Array,
    factors: tuple[int, int],
    colours: tuple[float, float] = _COLOURS,
    colour: Callable[[Array], Array] = colour_signed,
) -> Array:
    """A map `(H, W)` on its ground `(H, W, 3)`: coloured where it holds, striped where it is doubtful.

    Args:
        values: the map.
        holds, doubtful: which of its positions, bool `(H, W)`.
        ground: the colours elsewhere, in [0, 1].
        factors: how many pixels a position has, in height and in width.
        colours: of the weakest and of the strongest part that holds, in [0, 1].
        colour: gives the colours `(..., 3)` of values in [-1, 1].

    Returns:
        The colours, `(H * factor, W * factor, 3)`.
    """
    limit = find_limit(values, np.ones(values.shape, dtype=bool))
    least, most = colours
    strength = np.clip(np.abs(values) / limit, 0.0, 1.0)
    sizes = least + (most - least) * strength
    colours_of_all = colour(np.sign(values) * sizes)
    coloured = np.where(holds[..., None], colours_of_all, ground)
    enlarged = _enlarge(coloured, *factors)
    hatched = _enlarge(doubtful, *factors)
    rows, columns = np.indices(hatched.shape)
    is_dark = (rows + columns) // _STRIPE % 2 == 0
    stripes = np.where(is_dark, *_STRIPES)[..., None]
    return np.asarray(np.where(hatched[..., None], stripes, enlarged))


def draw_series(card: Card) -> list[Lane]:
    """The lanes of a series `(C, T)`, of the channels with the most relevance; none where its map has another shape."""
    series = _read_finite(card.input)
    origin = _read_finite(card.origin)
    if origin.size != series.size:
        return []
    values = origin.reshape(series.shape)
    area = measure_area(card)
    holds = area.holds.reshape(series.shape)
    doubtful = area.doubtful.reshape(series.shape)
    relevance = np.abs(values).sum(axis=1)
    strongest = np.argsort(-relevance, kind="stable")[:_MOST_LANES]
    channels, steps = series.shape
    factors = _LANE, max(1, 2 * _SIDE // steps)
    ground = np.ones((1, steps, 3))
    lanes: list[Lane] = []
    for channel in sorted(strongest.tolist()):
        row = slice(channel, channel + 1)
        colour = choose_colours(card)
        painted = paint_area(
            values[row], holds[row], doubtful[row], ground, factors, _PALE_COLOURS, colour
        )
        name = ""
        if channels > 1:
            name = name_entry((), channel, "channel")
        points = _list_points(series[channel])
        lanes.append(Lane(name, points, encode_image(painted)))
    return lanes


def _list_points(line: Array) -> str:
    """The points of a line as SVG has them, in a square of 100."""
    stride = -(-len(line) // _MOST_POINTS)
    steps = np.arange(len(line))[::stride]
    across = 100 * (steps + 0.5) / len(line)
    down = 94 - 88 * scale_input(line)[::stride]
    points = [f"{x:.1f},{y:.1f}" for x, y in zip(across, down, strict=True)]
    return " ".join(points)


def draw_words(card: Card) -> list[CardWord]:
    """The words of a text: those that hold on their colour, doubtful ones to be underlined."""
    origin = _read_finite(card.origin)
    area = measure_area(card)
    count = min(len(card.names), len(origin))
    limit = np.abs(origin).max(initial=0.0) or 1.0
    colours = choose_colours(card)(origin / limit)
    words: list[CardWord] = []
    previous = -1
    for number in _choose_words(area, card.names[:count]):
        text = card.names[number] or "␣"
        follows_gap = number > previous + 1
        previous = number
        if area.holds[number]:
            code, is_dark = _encode_colour(colours[number])
            words.append(CardWord(text, "holds", code, is_dark, follows_gap))
            continue
        state = "doubtful" if area.doubtful[number] else ""
        words.append(CardWord(text, state, follows_gap=follows_gap))
    return words


def _encode_colour(colour: Array) -> tuple[str, bool]:
    """A colour in [0, 1], `(3,)`, as `"#rrggbb"`, and whether it is dark."""
    levels = np.rint(255 * colour).astype(np.uint8)
    brightness = float(colour @ _BRIGHTNESS)
    return "#" + bytes(levels).hex(), brightness < _DARK


def _choose_words(area: Area, names: Sequence[str]) -> list[int]:
    """The numbers of the words or passages that are shown: all; of a long text the first ones, and the reasons.

    Reasons that are words are shown with their neighbours.
    """
    count = len(names)
    words_until = np.cumsum([count_words(name) for name in names])
    if count == 0 or words_until[-1] <= _MOST_WORDS:
        return list(range(count))
    shown = set(np.flatnonzero(words_until <= _MOST_WORDS // 2).tolist())
    neighbours = _NEIGHBOURS if words_until[-1] == count else 0
    is_reason = area.holds | area.doubtful
    for number in np.flatnonzero(is_reason[:count]).tolist():
        start = max(0, number - neighbours)
        end = min(count, number + neighbours + 1)
        shown.update(range(start, end))
    return sorted(shown)


def count_words(text: str) -> int:
    """How many words a word or a passage has, at least 1.

    >>> count_words("It is old."), count_words(" ")
    (3, 1)
    """
    return max(1, len(text.split()))
