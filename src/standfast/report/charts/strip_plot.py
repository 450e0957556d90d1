"""Values over samples: box and points for each explainer, and medians with their intervals."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Collection, Sequence
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from standfast.report.charts.base import (
    POINTS,
    SCALE,
    Chart,
    IntervalBar,
    Strip,
    choose_style,
    label_values,
    name_rows,
    round_number,
    rule_at,
    title_axis,
    tooltip,
    wrap_name,
    zoom,
)
from standfast.tensors import Array


def draw_strips(
    strips: Sequence[Strip],
    explainers: Sequence[str],
    title: str,
    axis: str,
    direction: str | None,
    side: Literal["upper", "lower"] = "upper",
    rule: float | None = None,
    good: str = "better",
) -> Chart | None:
    """Box, whiskers and a point per sample for each explainer; None if there are no values.

    Args:
        strips: the values of each explainer.
        explainers: all explainers of the study, for the colours.
        title: what the chart shows.
        axis: title of the axis of values.
        direction: which values are better, `"higher"` or `"lower"`.
        side: side of the true value of a censored one: at or below it (`"upper"`), or at or above it (`"lower"`).
        rule: a value to mark, such as a threshold.
        good: a word or two for the better side.
    """
    strips = [strip for strip in strips if len(strip.values)]
    if not strips:
        return None
    boxes, points, places = [], [], _places(strips)
    for place, strip in zip(places, strips, strict=True):
        colour, _, _ = choose_style(explainers, strip.name)
        if len(strip.values) >= 3:
            boxes.append({"row": place, "colour": colour, **_box(strip.values)})
        points += _points(strip, place, colour, side)
    rows = {"field": "row", "type": "quantitative", "scale": _rows(places[-1] + 1), "axis": _names(strips, places)}
    reads = title_axis(axis, direction, good)
    x = {"field": "value", "type": "quantitative", "scale": SCALE, "title": reads, **label_values(axis)}
    colour_field = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    layers: list[dict[str, Any]] = []
    if boxes:
        over = {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": rows, "color": colour_field}
        half = {"calculate": "datum.row - 0.3", "as": "above"}, {"calculate": "datum.row + 0.3", "as": "below"}
        box = {
            "x": {**x, "field": "q1"},
            "x2": {"field": "q3"},
            "y": {**rows, "field": "above"},
            "y2": {"field": "below"},
        }
        layers += [
            {"data": {"name": "boxes"}, "mark": {"type": "rule", "clip": True, "strokeWidth": 1.5}, "encoding": over},
            {
                "data": {"name": "boxes"},
                "transform": list(half),
                "mark": {"type": "rect", "clip": True, "fillOpacity": 0.16, "strokeWidth": 1.2, "strokeOpacity": 1},
                "encoding": {**box, "fill": colour_field, "stroke": colour_field},
            },
            {
                "data": {"name": "boxes"},
                "transform": list(half),
                "mark": {"type": "rule", "clip": True, "strokeWidth": 3},
                "encoding": {
                    "x": {**x, "field": "median"},
                    "y": {**rows, "field": "above"},
                    "y2": {"field": "below"},
                    "color": colour_field,
                },
            },
        ]
    if rule is not None:
        layers.append(rule_at("x", rule))
    layers.append(
        {
            "data": {"name": "points"},
            "params": [zoom("x")],
            "mark": {"type": "point", "filled": True, "clip": True, "size": 34, "opacity": 0.85},
            "encoding": {
                "x": x,
                "y": {**rows, "field": "place"},
                "color": colour_field,
                "shape": {"field": "shape", "type": "nominal", "scale": None, "legend": None},
                "tooltip": tooltip("explainer", *(["part:with"] if strips[0].part else []), "sample", "reads:value"),
            },
        }
    )
    height = round(42 * (places[-1] + 1) + 10)
    spec = {"datasets": {"boxes": boxes, "points": points}, "height": height, "layer": layers}
    caption = "Each point is a sample. The box holds the middle half of them, and its thick line is the median."
    if any(len(strip.values) > POINTS for strip in strips):
        caption += f" At most {POINTS} points are drawn, evenly over their ranks; the boxes are of all."
    if any(strip.bounds.any() for strip in strips):
        where = "at or below" if side == "upper" else "at or above"
        caption += f" Triangles are only bounds: the value lies {where} them. So does a box that ends on them."
    numbers = "; ".join(f"{_called(s)}: median {np.median(s.values):z.3g} of {len(s.values)}" for s in strips)
    return Chart(
        spec, f"Distribution over samples, {title}. {numbers}.", caption, "distribution", "Distribution over samples"
    )


def _box(values: Array) -> dict[str, Any]:
    q1, median, q3 = (float(q) for q in np.quantile(values, [0.25, 0.5, 0.75]))
    reach = 1.5 * (q3 - q1)
    inside = values[(values >= q1 - reach) & (values <= q3 + reach)]
    ends = {"low": min(float(inside.min()), q1), "high": max(float(inside.max()), q3)}
    return {key: round_number(value) for key, value in {**ends, "q1": q1, "q3": q3, "median": median}.items()}


def _places(strips: Sequence[Strip]) -> list[float]:
    """Positions of the rows, with gaps between explainers if they have several rows."""
    gaps = [0.0, *(0.4 * (a.name != b.name and bool(b.part)) for a, b in pairwise(strips))]
    return [round(place + float(gap), 6) for place, gap in enumerate(np.cumsum(gaps))]


def _called(strip: Strip) -> str:
    return f"{strip.name}, {strip.part}" if strip.part else strip.name


def _points(strip: Strip, place: float, colour: str, side: str) -> list[dict[str, Any]]:
    chosen: Sequence[int] = range(len(strip.values))
    if len(strip.values) > POINTS:
        order = np.argsort(strip.values, kind="stable")
        chosen = sorted(int(i) for i in order[np.linspace(0, len(order) - 1, POINTS).round().astype(int)])
    bound, shape = ("≤ ", "triangle-left") if side == "upper" else ("≥ ", "triangle-right")
    return [
        {
            "explainer": strip.name,
            **({"part": strip.part} if strip.part else {}),
            "sample": int(strip.samples[i]),
            "value": round_number(float(strip.values[i])),
            "reads": (bound if strip.bounds[i] else "") + f"{strip.values[i]:z.4g}".replace("-", "−"),
            "place": round_number(place + ((i * 0.618 + 0.5) % 1 - 0.5) * 0.4, 4),
            "colour": colour,
            "shape": shape if strip.bounds[i] else "circle",
        }
        for i in chosen
    ]


def _rows(count: float) -> dict[str, Any]:
    return {"domain": [-0.5, count - 0.5], "reverse": True, "nice": False, "zero": False}


def _names(entries: Sequence[Strip] | Sequence[IntervalBar], places: Sequence[float]) -> dict[str, Any]:
    """An axis with names in place of row numbers, in two lines if they are long or have two parts; at most in three."""
    names = json.dumps(
        [[e.name, *wrap_name(e.part, 20)] if isinstance(e, Strip) and e.part else wrap_name(e.name) for e in entries]
    )
    whole = all(place == row for row, place in enumerate(places))
    at = "datum.value" if whole else f"indexof({json.dumps(list(places))}, datum.value)"
    two, three = (json.dumps([len(lines) > count for lines in json.loads(names)]) for count in (1, 2))
    higher = [{"test": f"{three}[{at}]", "value": -14}] if "true" in three else []
    return {
        **name_rows(json.loads(names), 150 if any(isinstance(e, Strip) and e.part for e in entries) else 130),
        "values": list(places),
        "tickCount": round(places[-1]) + 2,  # Vega leaves out values beyond the count
        "labelExpr": f"{names}[{at}]",
        # the first of several lines stands above the middle of the row
        "labelOffset": {"condition": [*higher, {"test": f"{two}[{at}]", "value": -7}], "value": 0},
    }


def draw_intervals(
    entries: Sequence[IntervalBar],
    explainers: Sequence[str],
    title: str,
    axis: str,
    direction: str | None,
    good: str = "better",
    best: Collection[str] = (),
) -> Chart | None:
    """Estimates with their intervals, one below the other; an open end is drawn to the edge of the chart.

    The names in `best` get a star. An entry whose value is not finite keeps its row, which stays empty, so that charts
    of the same explainers have the same rows.
    """
    known = [entry for entry in entries if math.isfinite(entry.value)]
    if not known:
        return None
    ends = [end for e in known for end in (e.value, e.low, e.high) if end is not None and math.isfinite(end)]
    margin = 0.06 * ((max(ends) - min(ends)) or abs(ends[0]) or 1.0)
    rows = []
    for place, entry in enumerate(entries):
        if not math.isfinite(entry.value):
            continue
        colour, shape, _ = choose_style(explainers, entry.name)
        low, high = (entry.value if end is None else end for end in (entry.low, entry.high))
        low = low if math.isfinite(low) else min(ends) - margin
        high = high if math.isfinite(high) else max(ends) + margin
        shown = f"{'≤ ' if entry.bound else ''}{entry.value:z.4g} [{_end(entry.low)}, {_end(entry.high)}]"
        rows.append(
            {
                "explainer": entry.name,
                "row": place,
                "value": round_number(entry.value),
                "low": round_number(low),
                "high": round_number(high),
                "reads": shown.replace("-", "−"),
                "colour": colour,
                "shape": "triangle-left" if entry.bound else shape,
            }
        )
    starred = [dataclasses.replace(e, name=f"★ {e.name}") if e.name in best else e for e in entries]
    tall = any(len(wrap_name(entry.name)) > 1 for entry in starred)
    axis_of_names = _names(starred, range(len(entries)))
    y = {"field": "row", "type": "quantitative", "scale": _rows(len(entries)), "axis": axis_of_names}
    reads = title_axis(axis, direction, good)
    x = {"field": "value", "type": "quantitative", "scale": SCALE, "title": reads, **label_values(axis)}
    colour_field = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    shape_field = {"field": "shape", "type": "nominal", "scale": None, "legend": None}
    layers = [
        {
            "mark": {"type": "rule", "clip": True, "strokeWidth": 2.5},
            "encoding": {
                "x": {**x, "field": "low"},
                "x2": {"field": "high"},
                "y": y,
                "color": colour_field,
            },
        },
        {
            "params": [zoom("x")],
            "mark": {"type": "point", "filled": True, "clip": True, "size": 80, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour_field,
                "shape": shape_field,
                "tooltip": tooltip("explainer", "reads:median"),
            },
        },
    ]
    spec = {"data": {"values": rows}, "height": (30 if tall else 22) * len(entries) + 8, "layer": layers}
    numbers = "; ".join(f"{row['explainer']}: {row['reads']}" for row in rows)
    star = f" Best, or not shown to be worse: {', '.join(best)}." if best else ""
    return Chart(spec, f"Medians and 95% intervals, {title}. {numbers}.{star}", "", "medians")


def _end(value: float | None) -> str:
    return "?" if value is None else "−∞" if value == -math.inf else "∞" if value == math.inf else f"{value:z.4g}"
