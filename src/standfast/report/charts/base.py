"""The types of charts and pictures, and the colours, shapes and marks that all charts share.

A chart is an Altair chart of named tables, and its tables. Explainers, samples and options are values in the tables,
never names of fields, so a name may contain anything. The renderer adds fonts, theme and size. It recognises the
colours below by their values, so that the page can replace them in dark mode. Every explainer has the same colour,
shape and dash in the whole report, and no chart distinguishes explainers by colour alone. Controls are grey.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from standfast.results.controls import Explainers
from standfast.results.formatting import format_number
from standfast.tensors import Array

if TYPE_CHECKING:
    import altair

#: Okabe and Ito's colours without yellow, and three of Paul Tol's; colour-blind readers can distinguish them
COLOURS = (
    "#0072B2",
    "#D55E00",
    "#009E73",
    "#CC79A7",
    "#56B4E9",
    "#E69F00",
    "#332288",
    "#882255",
    "#999933",
)
#: the colour of controls
REFERENCE = "#6b7178"
SHAPES = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "cross",
    "triangle-down",
    "triangle-right",
    "triangle-left",
)
#: the shapes as letters, for the legend of the page
GLYPHS = "●■◆▲✚▼▶◀"
DASHES = ((1, 0), (6, 3), (2, 2), (8, 3, 2, 3))
#: the colour of text, and of lines that belong to no explainer
INK = "#1c1e21"
#: the name of layers for tooltips only; static drawings leave them out
HOVER = "hover"

#: the width of a letter at size 12 in a font with wide letters: pages are read in fonts that the drawing does not know
WIDE = 7.4
#: letters of a title beside an axis of 240 pixels
_LINE = 38

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Words:
    """The texts of a chart.

    Attributes:
        title: what the chart shows, for readers who cannot see it.
        caption: how to read it.
        name: unique in its section, for file names.
        heading: a few words above the chart.
    """

    title: str
    caption: str = ""
    name: str = "chart"
    heading: str = ""


@dataclass(frozen=True)
class Axis:
    """An axis of values.

    Attributes:
        title: what is measured.
        direction: which values are better, `"higher"` or `"lower"`; None where neither is.
        good: a word or two for the better side.
        side: side of the true value of a bound: at or below it (`"upper"`), or at or above it (`"lower"`).
        domain: ends of the axis; by default the range of the values.
        ticks: where labels stand; by default at round numbers.
        rules: values at which dotted lines are drawn.
        log: whether the axis is logarithmic.
        probability: whether values are natural logarithms of probabilities, which labels and tooltips show.
    """

    title: str
    direction: str | None = None
    good: str = "better"
    side: Literal["upper", "lower"] = "upper"
    domain: tuple[float, float] | None = None
    ticks: Sequence[float] = ()
    rules: Sequence[float] = ()
    log: bool = False
    probability: bool = False

    def write(self, value: float | None, bound: bool = False) -> str:
        """A value for a tooltip, with a sign if it is a bound.

        >>> Axis("margin").write(-0.5), Axis("probability", probability=True).write(-6.0, bound=True)
        ('−0.5', '≤ 0.25%')
        """
        number = format_number(value, "probability" if self.probability else None)
        if not bound:
            return number
        if self.side == "upper":
            return f"≤ {number}"
        return f"≥ {number}"


@dataclass(frozen=True)
class Style:
    """Colour, shape and dash of the marks of one explainer."""

    colour: str
    shape: str
    dash: tuple[int, ...]


@dataclass(frozen=True)
class Chart:
    """A chart of the report.

    Attributes:
        drawing: the chart, with the names of its tables.
        data: the tables by name.
        alt: the content in words, for readers who cannot see the chart.
        caption: what the chart shows and how to read it.
        name: a name that is unique in its section, for file names.
        heading: a few words above the chart.
        key: explainers in its legend, and their looks. The page shows one legend for many charts.
    """

    drawing: altair.LayerChart | altair.FacetChart
    data: Mapping[str, Rows]
    alt: str
    caption: str = ""
    name: str = "chart"
    heading: str = ""
    key: tuple[tuple[str, Style], ...] = ()

    @cached_property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification, without width and theme."""
        import altair

        # whatever the user has chosen for charts of her own
        with altair.data_transformers.enable("default"):
            drawn = self.drawing.to_dict(validate=False)
        # nothing of a theme
        parts = {}
        for key in drawn:
            if key in ("data", "height", "layer", "params"):
                parts[key] = drawn[key]
        return {**parts, "datasets": dict(self.data)}


@dataclass(frozen=True)
class Picture:
    """An array to draw: an input within the bounds of the data, or a signed map on its own symmetric scale.

    Attributes:
        title: a word or two above the picture.
        array: an image `(C, H, W)`, a series or an embedded text `(C, T)`, features `(F,)` or words `(W,)`.
        alt: what the picture shows, in words.
        signed: True for a map.
        marks: which positions of an input to colour, whole numbers `(H, W)` or `(T,)`: 0 for none, i for the i-th of
            `colours`. The input is then drawn pale. If a block of positions becomes one pixel, its lowest mark is
            drawn. `(C, T)` marks points of each channel; `(F,)` marks features.
        colours: colours of the marks, as `"#rrggbb"`.
        change: True for the change of an input, which is drawn like a map and is none.
        moved_back: True for the map of an input whose positions were moved, at the positions of the first input of the
            row. NaN where not both inputs see a position; these are hatched.
        swapped: of a changed text, the new words by position; empty for a deleted one.
    """

    title: str
    array: Array
    alt: str
    signed: bool = False
    marks: Array | None = None
    colours: tuple[str, ...] = ()
    change: bool = False
    moved_back: bool = False
    swapped: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True)
class GalleryRow:
    """One explainer on one sample.

    Attributes:
        explainer, sample: which.
        pictures: in the order in which they are shown.
        text: the result in words.
        found: whether there is a result; the pictures of a search that found nothing are pale.
        features: names of the features of a table, or of the channels of a series; may be empty.
        tokens: for text, the word at each position; the pictures are then drawn as words. If any begins with a blank,
            those that do not are joined to the word before.
        columns: of a data frame, what `Column.plain` says of each, so that cells have their units and names.
    """

    explainer: str
    sample: int
    pictures: tuple[Picture, ...]
    text: str
    found: bool = True
    features: tuple[str, ...] = ()
    tokens: tuple[str, ...] = ()
    columns: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True)
class Gallery:
    """Pictures of samples, one row per explainer.

    Attributes:
        title: heading.
        rows: rows in the order of samples, then of explainers.
        note: how to read the pictures.
    """

    title: str
    rows: tuple[GalleryRow, ...]
    note: str = ""


def choose_style(explainers: Sequence[str], name: str) -> Style:
    """The looks of an explainer, by its place in the study; those of text for other names.

    >>> choose_style(Explainers(["mine", "random"], controls=["random"]), "random")
    Style(colour='#6b7178', shape='square', dash=(6, 3))
    """
    if name not in explainers:
        return Style(INK, "circle", (1, 0))
    number = list(explainers).index(name)
    is_control = isinstance(explainers, Explainers) and name in explainers.controls
    if is_control:
        colour = REFERENCE
    else:
        colour = COLOURS[number % len(COLOURS)]
    shape = SHAPES[number % len(SHAPES)]
    dash = DASHES[number % len(DASHES)]
    return Style(colour, shape, dash)


def round_number(value: float) -> float | None:
    """A number with six significant digits; None if it is not finite.

    >>> round_number(0.123456789), round_number(float("nan"))
    (0.123457, None)
    """
    if not math.isfinite(value):
        return None
    return float(f"{value:z.6g}")


def find_room(values: Iterable[float | None]) -> tuple[float, float]:
    """The range of the finite values with a margin, where intervals without an end stop."""
    finite = []
    for value in values:
        if value is not None and math.isfinite(value):
            finite.append(float(value))
    low = min(finite, default=0.0)
    high = max(finite, default=0.0)
    first = finite[0] if finite else 0.0
    margin = 0.06 * ((high - low) or abs(first) or 1.0)
    return low - margin, high + margin


def wrap_name(name: str) -> str:
    """A name, split into two lines if it has more than 16 letters.

    >>> wrap_name("integrated gradients"), wrap_name("DeepLift")
    ('integrated\\ngradients', 'DeepLift')
    """
    if len(name) <= 16:
        return name
    # a blank is dropped, any other sign ends the first line
    cuts = [
        index + (letter != " ")
        for index, letter in enumerate(name)
        if letter in " _-:" and 0 < index < len(name) - 1
    ]
    if not cuts:
        return name
    middle = len(name) / 2
    cut = min(cuts, key=lambda index: abs(index - middle))
    rest = name[cut:].lstrip(" ")
    return f"{name[:cut]}\n{rest}"


def title_axis(axis: Axis, channel: str = "x") -> str | list[str]:
    """The title of an axis, with an arrow towards the side where explanations are good.

    The arrow has a line of its own below the x axis. Beside the y axis, where a second line would come close to the
    labels, it follows the title if there is space.

    >>> title_axis(Axis("AOPC", "higher", "more faithful")), title_axis(Axis("margin"))
    (['AOPC', 'more faithful →'], 'margin')
    >>> title_axis(Axis("AOPC", "lower", "more faithful"), "y")
    '← more faithful, AOPC'
    """
    if axis.direction is None:
        return axis.title
    # the arrow points to where good values lie
    if axis.direction == "higher":
        arrow = f"{axis.good} →"
        line = f"{axis.title}, {arrow}"
    else:
        arrow = f"← {axis.good}"
        line = f"{arrow}, {axis.title}"
    if channel == "y" and len(line) <= _LINE:
        return line
    return [axis.title, arrow]
