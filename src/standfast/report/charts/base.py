"""The types of charts and pictures, and the colours, shapes and scales that all charts share.

A chart is a Vega-Lite specification with data and encodings. The renderer adds fonts, theme and size. It recognises the
colours below by their values, so that the page can replace them in dark mode. Every explainer has the same colour,
shape and dash in the whole report, and no chart distinguishes explainers by colour alone. Controls are grey.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from standfast.results.controls import Explainers
from standfast.tensors import Array

#: Okabe and Ito's colours without yellow, and three of Paul Tol's; colour-blind readers can distinguish them
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#332288", "#882255", "#999933")
#: the colour of controls
REFERENCE = "#6b7178"
SHAPES = ("circle", "square", "diamond", "triangle-up", "cross", "triangle-down", "triangle-right", "triangle-left")
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
#: the colour of text, and of lines that belong to no explainer
INK = "#1c1e21"
#: the largest number of points per explainer in a distribution, and per line; the caption says if there are more
POINTS, STEPS = 150, 80
#: the scale of every axis of values: it need not include zero, and has space for marks at its ends
SCALE = {"zero": False, "nice": False, "padding": 8}
#: the title of axes of logarithms of probabilities; they also show the probability, as percent or as 1 in so many
LN_P = "ln P"
#: the width of a letter at size 12 where letters are wide, and by how much it exceeds the width in a drawing: pages are
#: read in fonts that the drawing does not know
_WIDE, _WIDER = 7.4, 1.5
#: letters of a title beside an axis of 240 pixels
_LINE = 38
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
            drawn. `(C, T)` marks points of each channel; `(F,)` marks features.
        colours: colours of the marks, as `"#rrggbb"`.
        change: True for the change of an input, which is drawn like a map and is none.
        moved_back: True for the map of an input whose positions were moved, at the positions of the first input of the
            row. NaN where not both inputs see a position; these are hatched.
    """

    title: str
    array: Array
    alt: str
    signed: bool = False
    marks: Array | None = None
    colours: tuple[str, ...] = ()
    change: bool = False
    moved_back: bool = False


@dataclass(frozen=True)
class GalleryRow:
    """One explainer on one sample.

    Attributes:
        explainer, sample: which.
        pictures: in the order in which they are shown.
        text: the result in words.
        found: whether there is a result; the pictures of a search that found nothing are pale.
        setting: names the option by which the rows differ, if they do.
        features: names of the features of a table, or of the channels of a series; may be empty.
        tokens: for text, the word at each position; the pictures are then drawn as words.
    """

    explainer: str
    sample: int
    pictures: tuple[Picture, ...]
    text: str
    found: bool = True
    setting: str = ""
    features: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()


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
    """

    heading: str
    needed: int
    present: int


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
    return float(f"{value:z.{digits}g}") if math.isfinite(value) else None


def title_axis(axis: str, direction: str | None, good: str, channel: str = "x") -> str | list[str]:
    """The title of an axis, with an arrow towards the side where explanations are `good`.

    The arrow has a line of its own below the x axis. Beside the y axis, where a second line would come close to the
    labels, it follows the title if there is space.

    >>> title_axis("AOPC", "higher", "more faithful"), title_axis("margin", None, "better")
    (['AOPC', 'more faithful →'], 'margin')
    >>> title_axis("AOPC", "higher", "more faithful", "y"), title_axis("AOPC", "lower", "more faithful", "y")
    ('AOPC, more faithful →', '← more faithful, AOPC')
    """
    arrow = {"higher": f"{good} →", "lower": f"← {good}"}.get(direction or "")
    axis = "ln P, and the probability" if axis == LN_P else axis
    if arrow is None:
        return axis
    line = f"{axis}, {arrow}" if direction == "higher" else f"{arrow}, {axis}"
    return line if channel == "y" and len(line) <= _LINE else [axis, arrow]


def label_values(axis: str, channel: str = "x") -> dict[str, Any]:
    """The labels of an axis of values: numbers; on an axis of ln P, a second line with the probability.

    It is 1 in so many, below 1 in ten million with a power of ten. A narrow axis has fewer labels, so that they do not
    run into each other.

    >>> label_values("similarity")
    {}
    """
    if axis != LN_P:
        return {}
    chance = (
        "datum.value > 0 ? '' : datum.value > -16 ? '1 in ' + format(exp(-datum.value), '.2~s') : "
        "'1 in 10^' + format(-datum.value / LN10, '.0f')"
    )
    # beside an axis two lines stand on both sides of their tick, with space for "1 in 3.3M" in a wide font
    raised = {"labelOffset": -7, "minExtent": round(10 * _WIDE)}
    # below the axis each label needs its own width, whatever font the reader has
    apart = {"tickCount": {"expr": f"max(2, floor(width / {round(14 * _WIDE)}))"}, "labelSeparation": round(2 * _WIDE)}
    own = raised if channel == "y" else {**apart, "labelOverlap": "parity"}
    return {"axis": {"labelExpr": f"[format(datum.value, '~g'), {chance}]", **own}}


def make_legend(names: Sequence[str], title: str | None = None) -> dict[str, Any]:
    """A legend below the chart, in two columns unless a name is long, with space for fonts wider than expected.

    >>> make_legend(["saliency"])["columns"], make_legend(["integrated gradients with 64 steps"])["columns"]
    (2, 1)
    """
    longest = max((len(name) for name in names), default=0)
    padding = 10 + round(_WIDER * min(longest, 44))
    columns = 2 if longest <= 22 else 1
    limits = {"columns": columns, "columnPadding": padding, "labelLimit": 160 if columns == 2 else 330}
    return {"orient": "bottom", "title": title or None, **limits, "symbolStrokeWidth": 1}


def name_rows(names: Sequence[str | Sequence[str]], limit: int = 130) -> dict[str, Any]:
    """An axis of rows with names, each in one or more lines, with space for fonts wider than expected.

    >>> name_rows(["saliency", ["integrated", "gradients"]])["minExtent"]
    80
    """
    lines = [line for name in names for line in ([name] if isinstance(name, str) else name)]
    wide = min(_WIDE * max((len(line) for line in lines), default=0), limit)
    plain = {"title": None, "grid": False, "domain": False, "ticks": False, "labelOverlap": False}
    return {**plain, "labelLimit": limit, "minExtent": round(wide) + 6}


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
    """Colour, shape and dash of an explainer.

    >>> choose_style(Explainers(["mine", "random"], controls=["random"]), "random")
    ('#6b7178', 'square', (6, 3))
    """
    place = list(explainers).index(name)
    is_control = isinstance(explainers, Explainers) and name in explainers.controls
    return (
        REFERENCE if is_control else COLOURS[place % len(COLOURS)],
        SHAPES[place % len(SHAPES)],
        DASHES[place % len(DASHES)],
    )


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
