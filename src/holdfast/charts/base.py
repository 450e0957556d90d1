"""The types of charts and pictures, and the colours, shapes and scales that all charts share.

A chart is a Vega-Lite specification with data and encodings. The renderer adds fonts, theme and size. It recognises the
colours below by their values, so that the page can replace them in dark mode. Every explainer has the same colour,
shape and dash in the whole report, and no chart distinguishes explainers by colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.tensors import Array

#: Okabe and Ito's colours without yellow, and three of Paul Tol's; colour-blind readers can distinguish them
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#882255", "#999933")
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
#: the colour of text, and of lines that belong to no explainer
INK = "#1c1e21"
#: the largest number of points per explainer in a distribution, and per line; the caption says if there are more
POINTS, STEPS = 150, 80
#: the scale of every axis of values: it need not include zero, and has space for marks at its ends
SCALE = {"zero": False, "nice": False, "padding": 8}
#: the name of layers for tooltips only; static drawings leave them out
HOVER = "hover"


@dataclass(frozen=True)
class Chart:
    """A chart of the report.

    Attributes:
        spec: Vega-Lite specification, without width and theme.
        alt: the content in words, for readers who cannot see the chart.
        caption: what the chart shows and how to read it.
        name: a name that is unique in its section, for file names.
        heading: a few words above the chart.
    """

    spec: Mapping[str, Any]
    alt: str
    caption: str = ""
    name: str = "chart"
    heading: str = ""


@dataclass(frozen=True)
class Picture:
    """An array to draw: an input within the bounds of the data, or a signed map on its own symmetric scale.

    Attributes:
        title: a word or two above the picture.
        array: an image `(C, H, W)`, a series `(C, T)` or features `(F,)`.
        alt: what the picture shows, in words.
        signed: True for a map.
        marks: which positions of an input to colour, whole numbers `(H, W)` or `(T,)`: 0 for none, i for the i-th of
            `colours`. The input is then drawn pale. If a block of positions becomes one pixel, its lowest mark is
            drawn. `(C, T)` marks points on the lines of a series, with the channels one below the other; `(F,)` marks
            bars.
        colours: colours of the marks, as `"#rrggbb"`.
    """

    title: str
    array: Array
    alt: str
    signed: bool = False
    marks: Array | None = None
    colours: tuple[str, ...] = ()


@dataclass(frozen=True)
class GalleryRow:
    """One explainer on one sample: pictures, the result in words, and whether there is a result.

    `setting` names the option by which the rows differ, if they do.
    """

    explainer: str
    sample: int
    pictures: tuple[Picture, ...]
    text: str
    found: bool = True
    setting: str = ""


@dataclass(frozen=True)
class Gallery:
    """Pictures of samples, one row per explainer.

    Attributes:
        title: heading.
        rows: rows in the order of samples, then of explainers.
        note: how to read the pictures.
        folded: True if the gallery is hidden until the reader opens it.
    """

    title: str
    rows: tuple[GalleryRow, ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class Underpowered:
    """A figure that is left out because there are too few samples for it; the page shows one line instead.

    Attributes:
        heading: the heading that the figure would have.
        needed: how many samples it needs.
        present: how many samples there are.

    >>> Underpowered("Skewness", 30, 16).text
    'Skewness: needs at least 30 samples, and there are 16.'
    """

    heading: str
    needed: int
    present: int

    @property
    def text(self) -> str:
        """The line that the page shows."""
        there = "there is 1" if self.present == 1 else f"there are {self.present}"
        return f"{self.heading}: needs at least {self.needed} samples, and {there}."


@dataclass(frozen=True)
class Strip:
    """The values of one explainer; `bounds` is True for values that are only bounds.

    `part` distinguishes the strips of an explainer that has several; they are drawn next to each other.
    """

    name: str
    samples: Sequence[int]
    values: Array
    bounds: Array
    part: str = ""


@dataclass(frozen=True)
class Line:
    """A line of one explainer, with a band if `low` and `high` are given."""

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None


@dataclass(frozen=True)
class IntervalBar:
    """An estimate and its interval. An end that is None or infinite is open; `bound` marks an upper bound."""

    name: str
    value: float
    low: float | None
    high: float | None
    bound: bool = False


def round_number(value: float, digits: int = 6) -> float | None:
    """A number with a few significant digits; None if it is not finite.

    >>> round_number(0.123456789), round_number(float("nan"))
    (0.123457, None)
    """
    return float(f"{value:.{digits}g}") if math.isfinite(value) else None


def title_axis(axis: str, direction: str | None, good: str) -> str | list[str]:
    """The title of an axis, with a second line: an arrow towards the side where explanations are `good`.

    >>> title_axis("AOPC", "higher", "more faithful"), title_axis("margin", None, "better")
    (['AOPC', 'more faithful →'], 'margin')
    """
    arrow = {"higher": f"{good} →", "lower": f"← {good}"}.get(direction or "")
    return axis if arrow is None else [axis, arrow]


def wrap_name(name: str, width: int = 16) -> list[str]:
    """A name, split into two lines if it is long.

    >>> wrap_name("integrated gradients"), wrap_name("DeepLift")
    (['integrated', 'gradients'], ['DeepLift'])
    """
    if len(name) <= width:
        return [name]
    places = [i + (letter != " ") for i, letter in enumerate(name) if letter in " _-:" and 0 < i < len(name) - 1]
    if not places:
        return [name]
    cut = min(places, key=lambda i: abs(i - len(name) / 2))
    return [name[:cut], name[cut:].lstrip(" ")]


def choose_style(explainers: Sequence[str], name: str) -> tuple[str, str, tuple[int, ...]]:
    """Colour, shape and dash of an explainer."""
    place = list(explainers).index(name)
    return COLOURS[place % len(COLOURS)], SHAPES[place % len(SHAPES)], DASHES[place % len(DASHES)]


def tooltip(*fields: str) -> list[dict[str, Any]]:
    """A tooltip of fields; the title of a field may follow its name after a colon."""
    pairs = (field.partition(":") for field in fields)
    return [{"field": field, "title": title or field, "type": "nominal"} for field, _, title in pairs]


def zoom(*encodings: str) -> dict[str, Any]:
    """Drag to move; wheel with a key to zoom (without a key it scrolls the page); double click to reset."""
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
