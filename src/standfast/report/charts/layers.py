"""Axes, scales and layers of Altair that the charts share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, ParamSpec

from standfast.report.charts.base import INK, WIDE, Axis, Chart, Rows, Style, Words, title_axis

if TYPE_CHECKING:
    import altair

Asked = ParamSpec("Asked")
#: the largest width of the names of rows in pixels
_LIMIT = 130


def without_checks(draw: Callable[Asked, Chart | None]) -> Callable[Asked, Chart | None]:
    """Let Altair make a chart without checking each part, which takes as long as all the rest; tests check charts."""

    @functools.wraps(draw)
    def drawn(*args: Asked.args, **options: Asked.kwargs) -> Chart | None:
        from altair.utils.schemapi import debug_mode

        with debug_mode(False):
            return draw(*args, **options)

    return drawn


def named(data: str, name: str = "") -> altair.Chart:
    """A layer of the table of this name; layers for tooltips have a name of their own."""
    import altair

    return altair.Chart(altair.NamedData(name=data), name=name or altair.Undefined)


def encode_values(channel: Literal["x", "y"], axis: Axis, field: str = "value") -> Any:
    """A field of numbers on an axis that need not include zero, with space for marks at its ends."""
    import altair

    scale: dict[str, Any] = {"nice": False, "padding": 8}
    if axis.log:
        scale["type"] = "log"
    else:
        scale["zero"] = False
    if axis.domain is not None:
        scale["domain"] = list(axis.domain)
    kind = altair.X if channel == "x" else altair.Y
    return kind(
        field=field,
        type="quantitative",
        title=title_axis(axis, channel),
        scale=altair.Scale(**scale),
        axis=altair.Axis(**label_values(axis, channel)),
    )


def label_values(axis: Axis, channel: str = "x") -> dict[str, Any]:
    """The labels of an axis of values: numbers, or probabilities as `format_probability` writes them.

    From 1 in a million on, a probability has a power of ten. A narrow axis has fewer labels, so that they do not run
    into each other.

    >>> label_values(Axis("similarity"))
    {}
    """
    if axis.ticks:
        return {
            "values": [float(f"{tick:.6g}") for tick in axis.ticks],
            "format": ".6~g",
            "labelOverlap": True,
        }
    if not axis.probability:
        return {}
    chance = (
        "datum.value > 0 ? '' : datum.value > -6.9 ? format(100 * exp(datum.value), '.2~r') + '%' : "
        "datum.value > -13.8 ? '1 in ' + format(exp(-datum.value), ',.2r') : "
        "'1 in 10^' + format(-datum.value / LN10, '.0f')"
    )
    labels = {"labelExpr": chance}
    if channel == "y":
        # space for "1 in 440,000" in a wide font
        return {**labels, "minExtent": round(12 * WIDE)}
    # below the axis each label needs its own width, whatever font the reader has
    count = {"expr": f"max(2, floor(width / {round(14 * WIDE)}))"}
    return {
        **labels,
        "tickCount": count,
        "labelSeparation": round(2 * WIDE),
        "labelOverlap": "parity",
    }


def encode_rows(labels: Sequence[str]) -> altair.Y:
    """The field `row` of names on an axis, each in one or two lines, with space for fonts wider than expected."""
    import altair

    lines = [line for label in labels for line in label.split("\n")]
    longest = max(map(len, lines))
    axis = altair.Axis(
        grid=False,
        domain=False,
        ticks=False,
        labelOverlap=False,
        labelLimit=_LIMIT,
        minExtent=round(min(WIDE * longest, _LIMIT)) + 6,
        labelExpr="split(datum.label, '\\n')",
        # the first of two lines stands above the middle of the row
        labelOffset={
            "condition": {"test": "indexof(datum.label, '\\n') >= 0", "value": -7},
            "value": 0,
        },
    )
    scale = altair.Scale(domain=list(labels))
    return altair.Y(field="row", type="nominal", title=None, sort=None, scale=scale, axis=axis)


def own(channel: str, field: str = "colour") -> Any:
    """A channel that takes its colour or shape from a field as it is."""
    import altair

    kind = {
        "color": altair.Color,
        "fill": altair.Fill,
        "stroke": altair.Stroke,
        "shape": altair.Shape,
    }[channel]
    return kind(field=field, type="nominal", scale=None, legend=None)


def tooltip(**titles: str) -> list[altair.Tooltip]:
    """A tooltip of fields with their titles. Vega-Lite puts these into an expression, and escapes only their quotes."""
    import altair

    tips = []
    for field, title in titles.items():
        safe = " ".join(title.replace("\\", "\\\\").split("\n"))
        tips.append(altair.Tooltip(field=field, type="nominal", title=safe))
    return tips


def rule_at(channel: Literal["x", "y"], axis: Axis) -> Any:
    """Dotted lines across the chart at the rules of an axis; they are in the table of this name."""
    mark = named(f"rules_{channel}").mark_rule(clip=True, color=INK, strokeDash=[2, 3], opacity=0.7)
    return mark.encode(**{channel: encode_values(channel, axis)})


def put_together(
    layers: Sequence[altair.Chart],
    data: Mapping[str, Rows],
    height: int,
    words: Words,
    alt: str,
    key: Mapping[str, Style] | None = None,
) -> Chart:
    """The chart of some layers and their tables; empty tables belong to no layer."""
    import altair

    drawing = altair.layer(*layers, height=height)
    used = {name: rows for name, rows in data.items() if rows}
    return Chart(
        drawing, used, alt, words.caption, words.name, words.heading, tuple((key or {}).items())
    )
