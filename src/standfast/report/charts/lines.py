"""Lines over one axis, with bands: curves, and estimates against the values of an option."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.report.charts.base import (
    DASHES,
    HOVER,
    SHAPES,
    Axis,
    Chart,
    Rows,
    Style,
    Words,
    choose_style,
    find_room,
    round_number,
    write_number,
)
from standfast.report.charts.layers import (
    encode_values,
    named,
    own,
    put_together,
    rule_at,
    tooltip,
    without_checks,
)
from standfast.tensors import Array

#: the largest number of points per line, and of points with a mark
STEPS, MARKED = 80, 12
#: an axis whose values span more than this factor is logarithmic
SPAN = 10


@dataclass(frozen=True)
class Line:
    """A line of one explainer, with a band if `low` and `high` are given; an infinite end is at the edge of the chart.

    Attributes:
        name: the explainer, or the value of an option if there is a `style`.
        x, y: points; those that are not finite are left out.
        low, high: ends of the band.
        bounds: which values are only bounds.
        style: looks that are not those of the explainer.
        reference: what a reference line shows; it is thin, dotted and without marks.
    """

    name: str
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    bounds: Array | None = None
    style: Style | None = None
    reference: str = ""


def choose_styles_of_values(explainers: Sequence[str], explainer: str, values: Sequence[str]) -> dict[str, Style]:
    """Looks of the lines of one explainer: its colour for all, and a different shape and dash for each.

    >>> choose_styles_of_values(["a", "b"], "b", ["1", "4"])["4"]
    Style(colour='#D55E00', shape='square', dash=(6, 3))
    """
    colour = choose_style(explainers, explainer).colour
    return {value: Style(colour, SHAPES[at % len(SHAPES)], DASHES[at % len(DASHES)]) for at, value in enumerate(values)}


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether an axis of these values should be logarithmic: they are positive and span more than a factor of ten.

    >>> is_logarithmic([1, 4, 16]), is_logarithmic([1, 10]), is_logarithmic([0, 4, 16])
    (True, False, False)
    """
    return min(values) > 0 and max(values) / min(values) > SPAN


@without_checks
def draw_lines(lines: Sequence[Line], explainers: Sequence[str], x: Axis, y: Axis, words: Words) -> Chart | None:
    """A line for each explainer over one axis; None if no line has a point.

    Args:
        lines: lines, and references to draw with them.
        explainers: all explainers of the study, for colours, dashes and shapes.
        x, y: the axes.
        words: the texts.
    """
    import altair

    rows = _list_rows(lines, explainers, y)
    drawn = [line for line in lines if not line.reference and any(row["line"] == line.name for row in rows)]
    if not drawn:
        return None
    styles = {line.name: line.style or choose_style(explainers, line.name) for line in drawn}
    kinds = list(dict.fromkeys(line.reference for line in lines if line.reference))
    along, up = encode_values("x", x, "x"), encode_values("y", y, "y")
    seen = altair.OpacityValue(0.12, condition={"test": "pick === '' || datum.line === pick", "value": 1})
    coded = {
        "color": _code(altair.Color, styles, [style.colour for style in styles.values()]),
        "shape": _code(altair.Shape, styles, [style.shape for style in styles.values()]),
        "strokeDash": _code(altair.StrokeDash, styles, [list(style.dash) for style in styles.values()]),
    }
    own_lines = named("lines").transform_filter("!datum.reference").encode(x=along, color=coded["color"], opacity=seen)
    layers = []
    if any("low" in row for row in rows):
        band = own_lines.mark_area(clip=True, fillOpacity=0.13)
        layers.append(band.encode(y=encode_values("y", y, "low"), y2=altair.Y2(field="high")))
    if kinds:
        thin = named("lines").transform_filter("datum.reference")
        thin = thin.mark_line(clip=True, strokeWidth=1.4, strokeDash=[1, 3], opacity=0.9)
        series = [altair.Detail(field=field, type="nominal") for field in ("line", "reference")]
        layers.append(thin.encode(x=along, y=up, stroke=own("stroke"), detail=series))
    layers += [rule_at("x", x)] if x.rules else []
    layers += [rule_at("y", y)] if y.rules else []
    strokes = own_lines.mark_line(clip=True, strokeWidth=2).encode(y=up, strokeDash=coded["strokeDash"])
    layers.append(strokes.add_params(altair.param(name="pick", value="")))
    marked = own_lines.transform_filter("datum.marked && !datum.bound").mark_point(filled=True, clip=True, size=46)
    layers.append(marked.encode(y=up, shape=coded["shape"]))
    if any("bound" in row for row in rows):
        triangle = "triangle-down" if y.side == "upper" else "triangle-up"
        bound = own_lines.transform_filter("datum.bound").mark_point(filled=False, clip=True, size=80, shape=triangle)
        layers.append(bound.encode(y=up))
    hidden = named("lines", HOVER).mark_point(filled=True, clip=True, size=160, opacity=0)
    layers.append(hidden.encode(x=along, y=up, tooltip=tooltip(line="line", x=x.title, reads=y.title)))
    data = {"lines": rows, "rules_x": [{"value": at} for at in x.rules], "rules_y": [{"value": at} for at in y.rules]}
    shared = set(styles) <= set(explainers) and not any(line.style for line in drawn)
    words = dataclasses.replace(words, caption=_caption(words, rows, y, kinds))
    alt = f"{words.title}. {_describe(rows)}."
    return put_together(layers, data, 240, words, alt, styles if shared else None)


def _list_rows(lines: Sequence[Line], explainers: Sequence[str], axis: Axis) -> Rows:
    """The points of all lines, of a long line only some."""
    room = find_room(
        end for line in lines for ends in (line.y, line.low, line.high) if ends is not None for end in ends
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
            if line.reference:
                style = line.style or choose_style(explainers, line.name)
                row |= {"reference": line.reference, "colour": style.colour}
            rows.append(row)
    return rows


def _code(channel: Any, names: Collection[str], values: Sequence[Any]) -> Any:
    """A channel that distinguishes the lines, with the legend that all of them share."""
    import altair

    scale = altair.Scale(domain=list(names), range=list(values))
    return channel(field="line", type="nominal", scale=scale, title=None)


def _caption(words: Words, rows: Rows, axis: Axis, kinds: Sequence[str]) -> str:
    texts = [words.caption]
    if any("bound" in row for row in rows):
        below = "below" if axis.side == "upper" else "above"
        texts.append(f"Open triangles: only bounds, the true value lies there or {below}.")
    if kinds:
        texts.append(f"Dotted, without marks: {', '.join(kinds)}.")
    return " ".join(filter(None, texts))


def _describe(rows: Rows) -> str:
    """The marked points of each line, for readers who cannot see the chart."""
    texts: dict[str, list[str]] = {}
    for row in rows:
        if "marked" in row:
            name = f"{row['line']} ({row['reference']})" if "reference" in row else row["line"]
            texts.setdefault(name, []).append(f"{row['reads'].partition(' [')[0]} at {write_number(row['x'])}")
    return "; ".join(f"{name}: {', '.join(points)}" for name, points in texts.items())
