"""Lines over one axis, with bands: curves, and estimates against the values of an option."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.report.charts.base import (
    HOVER,
    Axis,
    Chart,
    Rows,
    Style,
    Words,
    choose_style,
    find_room,
    round_number,
)
from standfast.report.charts.layers import (
    encode_values,
    named,
    put_together,
    rule_at,
    tooltip,
    without_checks,
)
from standfast.results.formatting import format_number
from standfast.tensors import Array

#: the largest number of points per line, and of points with a mark
STEPS = 80
MARKED = 12
#: an axis whose values span more than this factor is logarithmic
SPAN = 10


@dataclass(frozen=True)
class Line:
    """A line of one explainer, with a band if `low` and `high` are given; an infinite end is at the edge of the chart.

    Attributes:
        name: the explainer; lines of other names have the colour of text.
        x, y: points; those that are not finite are left out.
        low, high: ends of the band.
        bounds: which values are only bounds.
    """

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    bounds: Array | None = None


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether an axis of these values should be logarithmic: they are positive and span more than a factor of ten.

    >>> is_logarithmic([1, 4, 16]), is_logarithmic([1, 10]), is_logarithmic([0, 4, 16])
    (True, False, False)
    """
    least, most = min(values), max(values)
    return least > 0 and most / least > SPAN


@without_checks
def draw_lines(
    lines: Sequence[Line], explainers: Sequence[str], x: Axis, y: Axis, words: Words
) -> Chart | None:
    """A line for each explainer over one axis; None if no line has a point.

    Args:
        lines: the lines.
        explainers: all explainers of the study, for colours, dashes and shapes.
        x, y: the axes.
        words: the texts.
    """
    rows = _list_rows(lines, y)
    if not rows:
        return None
    names = dict.fromkeys(row["line"] for row in rows)
    styles = {name: choose_style(explainers, name) for name in names}
    has_bounds = any("bound" in row for row in rows)
    base = _encode_lines(x, styles)
    layers = []
    if any("low" in row for row in rows):
        layers.append(_draw_bands(base, y))
    if x.rules:
        layers.append(rule_at("x", x))
    if y.rules:
        layers.append(rule_at("y", y))
    layers += [_draw_strokes(base, y, styles), _draw_marks(base, y, styles)]
    if has_bounds:
        layers.append(_draw_bounds(base, y))
        words = _explain_bounds(words, y)
    layers.append(_draw_tooltips(x, y))
    data = {
        "lines": rows,
        "rules_x": [{"value": value} for value in x.rules],
        "rules_y": [{"value": value} for value in y.rules],
    }
    alt = f"{words.title}. {_describe(rows)}."
    shared = {}
    for name, style in styles.items():
        if name in explainers:
            shared[name] = style
    return put_together(layers, data, 240, words, alt, shared)


def _encode_lines(x: Axis, styles: Mapping[str, Style]) -> Any:
    """What bands, strokes and marks have in common; a line that is not picked in the legend is pale."""
    import altair

    is_picked = "pick === '' || datum.line === pick"
    opacity = altair.OpacityValue(0.12, condition={"test": is_picked, "value": 1})
    colours = [style.colour for style in styles.values()]
    colour = _code(altair.Color, styles, colours)
    across = encode_values("x", x, "x")
    return named("lines").encode(x=across, color=colour, opacity=opacity)


def _draw_bands(base: Any, y: Axis) -> Any:
    import altair

    band = base.mark_area(clip=True, fillOpacity=0.13)
    low = encode_values("y", y, "low")
    return band.encode(y=low, y2=altair.Y2(field="high"))


def _draw_strokes(base: Any, y: Axis, styles: Mapping[str, Style]) -> Any:
    import altair

    dashes = [list(style.dash) for style in styles.values()]
    dash = _code(altair.StrokeDash, styles, dashes)
    strokes = base.mark_line(clip=True, strokeWidth=2)
    strokes = strokes.encode(y=encode_values("y", y, "y"), strokeDash=dash)
    return strokes.add_params(altair.param(name="pick", value=""))


def _draw_marks(base: Any, y: Axis, styles: Mapping[str, Style]) -> Any:
    import altair

    shapes = [style.shape for style in styles.values()]
    marked = base.transform_filter("datum.marked && !datum.bound")
    marked = marked.mark_point(filled=True, clip=True, size=46)
    up = encode_values("y", y, "y")
    return marked.encode(y=up, shape=_code(altair.Shape, styles, shapes))


def _draw_bounds(base: Any, y: Axis) -> Any:
    """Open triangles, which point to where the true value lies."""
    shape = "triangle-down" if y.side == "upper" else "triangle-up"
    bounds = base.transform_filter("datum.bound")
    bounds = bounds.mark_point(filled=False, clip=True, size=80, shape=shape)
    return bounds.encode(y=encode_values("y", y, "y"))


def _explain_bounds(words: Words, y: Axis) -> Words:
    below = "below" if y.side == "upper" else "above"
    caption = f"{words.caption} Open triangles: only bounds, the true value lies there or {below}."
    return dataclasses.replace(words, caption=caption.strip())


def _draw_tooltips(x: Axis, y: Axis) -> Any:
    """Points that nobody sees, larger than the marks, so that a pointer need not be exact."""
    points = named("lines", HOVER).mark_point(filled=True, clip=True, size=160, opacity=0)
    return points.encode(
        x=encode_values("x", x, "x"),
        y=encode_values("y", y, "y"),
        tooltip=tooltip(line="line", x=x.title, reads=y.title),
    )


def _list_rows(lines: Sequence[Line], axis: Axis) -> Rows:
    """The points of all lines, of a long line only some."""
    values: list[float] = []
    for line in lines:
        for ends in (line.y, line.low, line.high):
            if ends is not None:
                values += list(ends)
    room = find_room(values)
    rows: Rows = []
    for line in lines:
        rows += _list_points(line, axis, room)
    return rows


def _list_points(line: Line, axis: Axis, room: tuple[float, float]) -> Rows:
    drawn = _choose_points(line)
    if len(drawn) <= MARKED:
        stride = 1
    else:
        stride = len(drawn) // 5
    rows: Rows = []
    for position, index in enumerate(drawn):
        is_bound = line.bounds is not None and bool(line.bounds[index])
        row: dict[str, Any] = {
            "line": line.name,
            "x": round_number(float(line.x[index])),
            "y": round_number(float(line.y[index])),
            "reads": axis.write(float(line.y[index]), is_bound),
        }
        if line.low is not None and line.high is not None:
            low = float(line.low[index])
            high = float(line.high[index])
            if math.isnan(low) or math.isnan(high):
                # the band closes to the line, since a gap would end it
                row["low"] = row["high"] = row["y"]
            else:
                row["low"] = round_number(max(low, room[0]))
                row["high"] = round_number(min(high, room[1]))
                interval = f"{axis.write(low)}, {axis.write(high)}"
                row["reads"] += f" [{interval}]"
        if is_bound:
            row["bound"] = True
        if position % stride == 0:
            row["marked"] = True
        rows.append(row)
    return rows


def _choose_points(line: Line) -> Array:
    """The indices of the finite points of a line, at most `STEPS` and evenly over them."""
    is_finite = np.isfinite(line.x) & np.isfinite(line.y)
    finite = np.flatnonzero(is_finite)
    if len(finite) <= STEPS:
        return finite
    even = np.linspace(0, len(finite) - 1, STEPS)
    even = even.round().astype(int)
    return np.asarray(finite[np.unique(even)])


def _code(channel: Any, names: Collection[str], values: Sequence[Any]) -> Any:
    """A channel that distinguishes the lines, with the legend that all of them share."""
    import altair

    scale = altair.Scale(domain=list(names), range=list(values))
    return channel(field="line", type="nominal", scale=scale, title=None)


def _describe(rows: Rows) -> str:
    """The marked points of each line, for readers who cannot see the chart."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if "marked" in row:
            value = row["reads"].partition(" [")[0]
            point = f"{value} at {format_number(row['x'], None)}"
            texts.setdefault(row["line"], []).append(point)
    lines = [f"{name}: {', '.join(points)}" for name, points in texts.items()]
    return "; ".join(lines)
