"""Lines over one axis, with bands: curves, and estimates against the values of an option."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.report.charts.base import (
    HOVER,
    Axis,
    Chart,
    Rows,
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
STEPS, MARKED = 80, 12
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
    return min(values) > 0 and max(values) / min(values) > SPAN


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
    import altair

    rows = _list_rows(lines, y)
    if not rows:
        return None
    styles = {
        name: choose_style(explainers, name) for name in dict.fromkeys(row["line"] for row in rows)
    }
    along, up = encode_values("x", x, "x"), encode_values("y", y, "y")
    seen = altair.OpacityValue(
        0.12, condition={"test": "pick === '' || datum.line === pick", "value": 1}
    )
    coded = {
        "color": _code(altair.Color, styles, [style.colour for style in styles.values()]),
        "shape": _code(altair.Shape, styles, [style.shape for style in styles.values()]),
        "strokeDash": _code(
            altair.StrokeDash, styles, [list(style.dash) for style in styles.values()]
        ),
    }
    own_lines = named("lines").encode(x=along, color=coded["color"], opacity=seen)
    layers = []
    if any("low" in row for row in rows):
        band = own_lines.mark_area(clip=True, fillOpacity=0.13)
        layers.append(band.encode(y=encode_values("y", y, "low"), y2=altair.Y2(field="high")))
    layers += [rule_at("x", x)] if x.rules else []
    layers += [rule_at("y", y)] if y.rules else []
    strokes = own_lines.mark_line(clip=True, strokeWidth=2).encode(
        y=up, strokeDash=coded["strokeDash"]
    )
    layers.append(strokes.add_params(altair.param(name="pick", value="")))
    marked = own_lines.transform_filter("datum.marked && !datum.bound").mark_point(
        filled=True, clip=True, size=46
    )
    layers.append(marked.encode(y=up, shape=coded["shape"]))
    if any("bound" in row for row in rows):
        triangle = "triangle-down" if y.side == "upper" else "triangle-up"
        bound = own_lines.transform_filter("datum.bound").mark_point(
            filled=False, clip=True, size=80, shape=triangle
        )
        layers.append(bound.encode(y=up))
    hidden = named("lines", HOVER).mark_point(filled=True, clip=True, size=160, opacity=0)
    layers.append(
        hidden.encode(x=along, y=up, tooltip=tooltip(line="line", x=x.title, reads=y.title))
    )
    data = {
        "lines": rows,
        "rules_x": [{"value": at} for at in x.rules],
        "rules_y": [{"value": at} for at in y.rules],
    }
    if any("bound" in row for row in rows):
        below = "below" if y.side == "upper" else "above"
        caption = (
            f"{words.caption} Open triangles: only bounds, the true value lies there or {below}."
        )
        words = dataclasses.replace(words, caption=caption.strip())
    shared = {name: style for name, style in styles.items() if name in explainers}
    return put_together(layers, data, 240, words, f"{words.title}. {_describe(rows)}.", shared)


def _list_rows(lines: Sequence[Line], axis: Axis) -> Rows:
    """The points of all lines, of a long line only some."""
    room = find_room(
        end
        for line in lines
        for ends in (line.y, line.low, line.high)
        if ends is not None
        for end in ends
    )
    rows: Rows = []
    for line in lines:
        keep = np.flatnonzero(np.isfinite(line.x) & np.isfinite(line.y))
        if len(keep) > STEPS:
            keep = keep[np.unique(np.linspace(0, len(keep) - 1, STEPS).round().astype(int))]
        step = 1 if len(keep) <= MARKED else len(keep) // 5
        for place, i in enumerate(keep):
            bound = line.bounds is not None and line.bounds[i]
            row: dict[str, Any] = {"line": line.name}
            row["x"], row["y"] = (round_number(float(values[i])) for values in (line.x, line.y))
            row["reads"] = axis.write(float(line.y[i]), bool(bound))
            if line.low is not None and line.high is not None:
                low, high = float(line.low[i]), float(line.high[i])
                known = not np.isnan([low, high]).any()
                row["low"] = round_number(max(low, room[0])) if known else row["y"]
                row["high"] = round_number(min(high, room[1])) if known else row["y"]
                row["reads"] += f" [{axis.write(low)}, {axis.write(high)}]" if known else ""
            row |= {"bound": True} if bound else {}
            row |= {"marked": True} if place % step == 0 else {}
            rows.append(row)
    return rows


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
            point = f"{row['reads'].partition(' [')[0]} at {format_number(row['x'], None)}"
            texts.setdefault(row["line"], []).append(point)
    return "; ".join(f"{name}: {', '.join(points)}" for name, points in texts.items())
