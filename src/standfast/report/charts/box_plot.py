"""Box plots of one value per data set, for each explainer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from standfast.report.charts.base import (
    SCALE,
    Chart,
    choose_style,
    name_rows,
    round_number,
    title_axis,
    tooltip,
    wrap_name,
    zoom,
)

#: the colour of points that do not count
GREY = "#8a8d91"
#: with fewer values there is no box
_BOX = 3


@dataclass(frozen=True)
class Point:
    """A value of one explainer for one data set. If it does not count, it is grey and does not affect the box."""

    name: str
    where: str
    value: float
    counts: bool = True


def draw_boxes(
    points: Sequence[Point],
    explainers: Sequence[str],
    title: str,
    axis: str,
    direction: str | None,
    *,
    good: str = "better",
    domain: tuple[float, float] | None = None,
    caption: str = "",
    name: str = "boxes",
    heading: str = "",
) -> Chart | None:
    """Box, whiskers and a point for each data set; None if no value is finite.

    Args:
        points: values in any order.
        explainers: all explainers of the study, for order and colours.
        title, caption, name, heading: texts.
        axis: title of the axis of values.
        direction: which values are better, `"higher"` or `"lower"`.
        good: a word or two for the better side.
        domain: ends of the axis; by default the range of the values.
    """
    points = [point for point in points if np.isfinite(point.value)]
    names = [each for each in explainers if any(point.name == each for point in points)]
    if not names:
        return None
    rows, spans, words = [], [], []
    for each in names:
        colour, shape, _ = choose_style(explainers, each)
        own = [point for point in points if point.name == each]
        counted = np.array([point.value for point in own if point.counts])
        rows += [
            {
                "explainer": each,
                "where": point.where,
                "value": round_number(point.value),
                "reads": f"{point.value:z.3g}".replace("-", "−") + ("" if point.counts else " (does not count)"),
                "colour": colour if point.counts else GREY,
                "shape": shape,
            }
            for point in own
        ]
        if len(counted) >= _BOX:
            q1, median, q3 = (float(q) for q in np.quantile(counted, [0.25, 0.5, 0.75]))
            reach = 1.5 * (q3 - q1)
            inside = counted[(counted >= q1 - reach) & (counted <= q3 + reach)]
            ends = {"low": float(inside.min()), "high": float(inside.max()), "q1": q1, "q3": q3, "median": median}
            spans.append({"explainer": each, "colour": colour, **{key: round_number(end) for key, end in ends.items()}})
        aside = len(own) - len(counted)
        if len(counted):
            text = f"median {np.median(counted):z.3g} of {len(counted)}"
            words.append(f"{each}: {text}{f', {aside} not counted' if aside else ''}")
        else:
            words.append(f"{each}: none of {aside} counted")
    labels = {each: wrap_name(each) for each in names}
    y_axis = {**name_rows(list(labels.values())), "labelExpr": f"{json.dumps(labels)}[datum.label]"}
    y = {"field": "explainer", "type": "nominal", "sort": names, "axis": y_axis, "scale": {"domain": names}}
    scale = SCALE if domain is None else {**SCALE, "domain": list(domain)}
    x = {"field": "value", "type": "quantitative", "title": title_axis(axis, direction, good), "scale": scale}
    own_colour = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    layers = []
    if spans:
        box = {"x": {**x, "field": "q1"}, "x2": {"field": "q3"}, "y": y, "fill": own_colour, "stroke": own_colour}
        layers += [
            {
                "data": {"name": "spans"},
                "mark": {"type": "rule", "clip": True, "strokeWidth": 1.5},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y, "color": own_colour},
            },
            {
                "data": {"name": "spans"},
                "mark": {"type": "bar", "clip": True, "fillOpacity": 0.16, "strokeWidth": 1.2, "size": 20},
                "encoding": box,
            },
            {
                "data": {"name": "spans"},
                "mark": {"type": "tick", "clip": True, "thickness": 3, "size": 20},
                "encoding": {"x": {**x, "field": "median"}, "y": y, "color": own_colour},
            },
        ]
    layers.append(
        {
            "data": {"name": "points"},
            "params": [zoom("x")],
            "mark": {"type": "point", "filled": True, "clip": True, "size": 40, "opacity": 0.8},
            "encoding": {
                "x": x,
                "y": y,
                "color": own_colour,
                "shape": {"field": "shape", "type": "nominal", "scale": None, "legend": None},
                "tooltip": tooltip("explainer", "where:data", f"reads:{axis}"),
            },
        }
    )
    datasets = {"points": rows, **({"spans": spans} if spans else {})}
    spec = {"datasets": datasets, "height": 36 * len(names) + 10, "layer": layers}
    text = f"A point for each data set; box: quartiles and median, of {_BOX} or more. {caption}".strip()
    return Chart(spec, f"{title}. {'; '.join(words)}.", text, name, heading)
