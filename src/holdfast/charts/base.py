"""Charts as Vega-Lite specifications, built from plain numbers, and pictures to be drawn. No rendering here.

A specification carries data and encodings. Fonts, theme and size are the renderer's, which also knows the colours
below by their values and lets the page swap them in the dark. Every explainer keeps its colour, shape and dash through
the whole report, and no chart tells explainers apart by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]

#: Okabe and Ito's colours without the yellow, and three of Paul Tol's: told apart also by the colour-blind
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#882255", "#999933")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
#: for text and lines that are not an explainer's
INK = "#1c1e21"
#: points of an explainer in a distribution, and of a line; the rest is left out, and the caption says so
POINTS, STEPS = 150, 80
#: of every axis of values: no zero that is not there, and room for marks at the ends
SCALE = {"zero": False, "nice": False, "padding": 8}
#: layers of this name only serve the pointer and are left out of static drawings
HOVER = "hover"


@dataclass(frozen=True)
class Chart:
    """A figure.

    Attributes:
        spec: Vega-Lite, without width and theme.
        alt: the same in words, for those who cannot see it.
        caption: what is drawn and how to read it.
        name: what tells it from the other charts of its section, for file names.
        heading: a few words above it.
    """

    spec: Mapping[str, Any]
    alt: str
    caption: str = ""
    name: str = "chart"
    heading: str = ""


@dataclass(frozen=True)
class Picture:
    """An array to be drawn: an input within the data's bounds, or a signed map on its own symmetric scale.

    Attributes:
        title: a word or two above it.
        array: an image `(C, H, W)`, a series `(C, T)` or features `(F,)`.
        alt: what it shows, in words.
        signed: it is a map.
        marks: positions of an input to be coloured, whole numbers `(H, W)` or `(T,)`: 0 for none, i for the i-th of
            `colours`. The input itself is then pale. Of a block that becomes one pixel the lowest mark is drawn.
            `(C, T)` marks points on the lines of a series, with the channels beneath each other; `(F,)` bars.
        colours: of the marks, as `"#rrggbb"`.
    """

    title: str
    array: Array
    alt: str
    signed: bool = False
    marks: Array | None = None
    colours: tuple[str, ...] = ()


@dataclass(frozen=True)
class GalleryRow:
    """One explainer at one sample: pictures, what was found in words, and whether anything was.

    `setting` says what it was computed with, where rows differ in that.
    """

    explainer: str
    sample: int
    pictures: tuple[Picture, ...]
    text: str
    found: bool = True
    setting: str = ""


@dataclass(frozen=True)
class Gallery:
    """Pictures of samples, explainers beneath each other.

    Attributes:
        title: heading.
        rows: in the order of samples, then explainers.
        note: how to read the pictures.
        folded: hidden until asked for.
    """

    title: str
    rows: tuple[GalleryRow, ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Strip:
    """The values of one explainer; `bounds` marks those that are only bounds.

    `part` tells the strips of an explainer apart where it has several; they stand together.
    """

    name: str
    samples: Sequence[int]
    values: Array
    bounds: Array
    part: str = ""


@dataclass(frozen=True)
class Line:
    """A line of one explainer, with a band where `low` and `high` are given."""

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True)
class Interval:
    """An estimate and its interval; an end that is None or infinite is open, `bound` marks an estimate "at most"."""

    name: str
    value: float
    low: float | None
    high: float | None
    bound: bool = False


def rounded(value: float, digits: int = 6) -> float | None:
    """A number short enough to write down; None where it is not finite.

    >>> rounded(0.123456789), rounded(float("nan"))
    (0.123457, None)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def towards(axis: str, direction: str | None, good: str) -> str | list[str]:
    """The title of an axis, with an arrow to where explanations are `good` on a line of its own.

    >>> towards("AOPC", "higher", "more faithful"), towards("margin", None, "better")
    (['AOPC', 'more faithful →'], 'margin')
    """
    arrow = {"higher": f"{good} →", "lower": f"← {good}"}.get(direction or "")
    return axis if arrow is None else [axis, arrow]


def wrapped(name: str, width: int = 16) -> list[str]:
    """A name over two lines if it is long.

    >>> wrapped("integrated gradients"), wrapped("DeepLift")
    (['integrated', 'gradients'], ['DeepLift'])
    """
    if len(name) <= width:
        return [name]
    places = [i + (letter != " ") for i, letter in enumerate(name) if letter in " _-:" and 0 < i < len(name) - 1]
    if not places:
        return [name]
    cut = min(places, key=lambda i: abs(i - len(name) / 2))
    return [name[:cut], name[cut:].lstrip(" ")]


def look(explainers: Sequence[str], name: str) -> tuple[str, str, tuple[int, ...]]:
    """Colour, shape and dash of an explainer."""
    place = list(explainers).index(name)
    return COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)], DASHES[place % len(DASHES)]


def tooltip(*fields: str) -> list[dict[str, Any]]:
    """Fields as they are, each under a title of its own after a colon."""
    pairs = (field.partition(":") for field in fields)
    return [{"field": field, "title": title or field, "type": "nominal"} for field, _, title in pairs]


def zoom(*encodings: str) -> dict[str, Any]:
    """Drag to move, wheel with a key to zoom (a wheel alone scrolls the page), double click to go back."""
    select = {"type": "interval", "encodings": list(encodings), "zoom": "wheel![event.ctrlKey || event.metaKey]"}
    return {"name": "zoom", "select": select, "bind": "scales"}


def rule_at(channel: str, value: float) -> dict[str, Any]:
    """A dotted line across the chart."""
    mark = {"type": "rule", "clip": True, "color": INK, "strokeDash": [2, 3], "opacity": 0.7}
    return {
        "data": {"values": [{"at": value}]},
        "mark": mark,
        "encoding": {channel: {"field": "at", "type": "quantitative"}},
    }
