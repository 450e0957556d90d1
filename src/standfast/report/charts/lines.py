"""Lines over one axis: convergence, curves, shares of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from standfast.report.charts.base import (
    HOVER,
    SCALE,
    STEPS,
    Chart,
    Line,
    Strip,
    choose_style,
    label_values,
    make_legend,
    round_number,
    rule_at,
    title_axis,
    tooltip,
    zoom,
)


def draw_lines(
    lines: Sequence[Line],
    explainers: Sequence[str],
    title: str,
    x_axis: str,
    y_axis: str,
    *,
    caption: str = "",
    name: str = "lines",
    heading: str = "",
    rule: float | None = None,
    level: float | None = None,
    direction: str | None = None,
    good: str = "better",
    steps: bool = False,
    markers: bool = False,
) -> Chart | None:
    """A line for each explainer over one axis; None if there is nothing to draw.

    Args:
        lines: the lines; points that are not finite are left out.
        explainers: all explainers of the study, for colours, dashes and shapes.
        title, x_axis, y_axis, caption, name, heading: texts.
        rule: a value of x at which a vertical line is drawn.
        level: a value of y at which a horizontal line is drawn.
        direction: which values of y are better, `"higher"` or `"lower"`; None where neither is.
        good: a word or two for the better side.
        steps: the line keeps its value until the next point.
        markers: mark every point; by default about six points are marked.
    """
    rows, marked = [], []
    drawn: list[str] = []
    for line in lines:
        keep = np.flatnonzero(np.isfinite(line.x) & np.isfinite(line.y))
        if not len(keep):
            continue
        drawn.append(line.name)
        if len(keep) > STEPS:
            keep = keep[np.unique(np.linspace(0, len(keep) - 1, STEPS).round().astype(int))]
        shown = range(len(keep)) if markers else set(np.linspace(0, len(keep) - 1, 6).round().astype(int).tolist())
        for place, i in enumerate(keep):
            row = {"explainer": line.name, "x": round_number(float(line.x[i])), "y": round_number(float(line.y[i]))}
            if line.low is not None and line.high is not None:
                row |= {"low": round_number(float(line.low[i])), "high": round_number(float(line.high[i]))}
            rows.append(row)
            if place in shown:
                marked.append({key: row[key] for key in ("explainer", "x", "y")})
    if not drawn:
        return None
    names = list(dict.fromkeys(drawn))
    looks = [choose_style(explainers, drawn_name) for drawn_name in names]
    legend = make_legend(names)
    scales: list[list[Any]] = [list(each) for each in zip(*looks, strict=True)]
    colour, shape, dash = (
        {"field": "explainer", "type": "nominal", "scale": {"domain": names, "range": each}, "legend": legend}
        for each in scales
    )
    x = {"field": "x", "type": "quantitative", "title": x_axis, "scale": SCALE}
    y_title = title_axis(y_axis, direction, good, "y")
    y = {"field": "y", "type": "quantitative", "title": y_title, "scale": SCALE, **label_values(y_axis, "y")}
    faint = {"condition": {"param": "pick", "value": 1}, "value": 0.12}
    interpolate = {"interpolate": "step-after"} if steps else {}
    pick = {"name": "pick", "select": {"type": "point", "fields": ["explainer"]}, "bind": "legend"}
    layers: list[dict[str, Any]] = []
    if any("low" in row for row in rows):
        layers.append(
            {
                "data": {"name": "lines"},
                "mark": {"type": "area", "clip": True, "fillOpacity": 0.13, "strokeOpacity": 0, **interpolate},
                "encoding": {
                    "x": x,
                    "y": {**y, "field": "low"},
                    "y2": {"field": "high"},
                    "color": colour,
                    "opacity": faint,
                },
            }
        )
    if rule is not None:
        layers.append(rule_at("x", rule))
    if level is not None:
        layers.append(rule_at("y", level))
    layers += [
        {
            "data": {"name": "lines"},
            "params": [zoom("x", "y"), pick],
            "mark": {"type": "line", "clip": True, "strokeWidth": 2, **interpolate},
            "encoding": {"x": x, "y": y, "color": colour, "strokeDash": dash, "opacity": faint},
        },
        {
            "data": {"name": "marked"},
            "mark": {"type": "point", "filled": True, "clip": True, "size": 44},
            "encoding": {"x": x, "y": y, "color": colour, "shape": shape, "opacity": faint},
        },
        {
            "name": HOVER,
            "data": {"name": "lines"},
            "mark": {"type": "point", "filled": True, "clip": True, "size": 160, "opacity": 0},
            "encoding": {"x": x, "y": y, "tooltip": tooltip("explainer", f"x:{x_axis}", f"y:{y_axis}")},
        },
    ]
    spec = {"datasets": {"lines": rows, "marked": marked}, "height": 240, "layer": layers}
    return Chart(spec, f"{title}, for {', '.join(names)}.", caption, name, heading)


def draw_ecdf(
    strips: Sequence[Strip],
    explainers: Sequence[str],
    title: str,
    axis: str,
    *,
    caption: str = "",
    rule: float | None = None,
) -> Chart | None:
    """The empirical distribution function: the share of samples at or below each value."""
    lines = []
    for strip in strips:
        if len(strip.values):
            x = np.sort(strip.values)
            y = np.arange(1, len(x) + 1) / len(x)
            lines.append(Line(strip.name, np.concatenate([x[:1], x]), np.concatenate([[0.0], y])))
    return draw_lines(
        lines,
        explainers,
        title,
        axis,
        "share of samples",
        caption=caption,
        name="shares",
        heading="Share of samples up to each value",
        rule=rule,
        steps=True,
    )
