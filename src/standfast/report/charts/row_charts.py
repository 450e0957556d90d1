"""Charts with a row for each explainer: values over samples, and estimates with their intervals."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from standfast.report.charts.base import (
    INK,
    Axis,
    Chart,
    Rows,
    Words,
    choose_style,
    find_room,
    round_number,
    wrap_name,
)
from standfast.report.charts.layers import (
    encode_rows,
    encode_values,
    named,
    own,
    put_together,
    rule_at,
    tooltip,
    without_checks,
)
from standfast.tensors import Array

#: the largest number of points per explainer; the caption says if there are more
POINTS = 150
#: with fewer values there is no box
FEW = 3


@dataclass(frozen=True)
class Strip:
    """The values of one explainer.

    Attributes:
        name: the explainer.
        samples: their numbers.
        values: finite numbers.
        bounds: True for values that are only bounds.
    """

    name: str
    samples: Sequence[int]
    values: Array
    bounds: Array


@dataclass(frozen=True)
class IntervalBar:
    """An estimate and its interval.

    Attributes:
        name: the explainer.
        value: the estimate.
        low, high: the ends of the interval; one that is None or infinite is open.
        bound: whether the estimate is only a bound.
        zero: what the value would be if it said nothing, which is a grey tick; None without a tick.
    """

    name: str
    value: float
    low: float | None
    high: float | None
    bound: bool = False
    zero: float | None = None


@without_checks
def draw_values(
    strips: Sequence[Strip], explainers: Sequence[str], axis: Axis, words: Words
) -> Chart | None:
    """A box of the middle half, and a point for each value, a row for each explainer; None if there are no values.

    Args:
        strips: the values.
        explainers: all explainers of the study, for the colours.
        axis: of the values.
        words: its title is that of the values.
    """
    strips = [strip for strip in strips if len(strip.values)]
    if not strips:
        return None
    import altair

    labels = [wrap_name(strip.name) for strip in strips]
    boxes: Rows = []
    points: Rows = []
    for strip, label in zip(strips, labels, strict=True):
        about = {
            "row": label,
            "explainer": strip.name,
            "colour": choose_style(explainers, strip.name).colour,
        }
        boxes.append({**about, **_summarise(strip.values)})
        points += [{**about, **point} for point in _list_points(strip, axis)]
    y = encode_rows(labels)
    box = named("boxes").transform_filter("datum.q1 !== null").encode(y=y)
    middle = box.mark_bar(clip=True, fillOpacity=0.16, strokeOpacity=1, strokeWidth=1.2, size=26)
    median = box.mark_tick(clip=True, thickness=3, size=26)
    layers = [
        middle.encode(
            x=encode_values("x", axis, "q1"),
            x2=altair.X2(field="q3"),
            fill=own("fill"),
            stroke=own("stroke"),
        ),
        median.encode(x=encode_values("x", axis, "median"), color=own("color")),
    ]
    layers += [rule_at("x", axis)] if axis.rules else []
    told = tooltip(explainer="explainer", sample="sample", reads=axis.title)
    shape = altair.ShapeValue("circle", condition={"test": "datum.bound", "value": _triangle(axis)})
    points_of = _mark_points("points", 34, altair.ExprRef("datum.shift"))
    layers.append(points_of.encode(x=encode_values("x", axis), y=y, tooltip=told, shape=shape))
    data = {"boxes": boxes, "points": points, "rules_x": [{"value": at} for at in axis.rules]}
    numbers = "; ".join(
        f"{label}: median {axis.write(float(np.median(strip.values)))} of {len(strip.values)}".replace(
            "\n", " "
        )
        for label, strip in zip(labels, strips, strict=True)
    )
    words = dataclasses.replace(words, caption=_caption(strips, axis, words))
    return put_together(
        layers, data, 42 * len(strips), words, f"Distribution, {words.title}. {numbers}."
    )


def _summarise(values: Array) -> dict[str, float | None]:
    """The quartiles, where there are enough values, and the mean."""
    quartiles = np.quantile(values, [0.25, 0.5, 0.75]) if len(values) >= FEW else np.full(3, np.nan)
    numbers = zip(("q1", "median", "q3", "mean"), (*quartiles, values.mean()), strict=True)
    return {key: round_number(float(number)) for key, number in numbers}


def _list_points(strip: Strip, axis: Axis) -> Rows:
    chosen: Sequence[int] = range(len(strip.values))
    if len(strip.values) > POINTS:
        order = np.argsort(strip.values, kind="stable")
        chosen = sorted(
            int(i) for i in order[np.linspace(0, len(order) - 1, POINTS).round().astype(int)]
        )
    rows: Rows = []
    for i in chosen:
        row: dict[str, Any] = {
            "sample": strip.samples[i],
            "value": round_number(float(strip.values[i])),
        }
        row["reads"] = axis.write(float(strip.values[i]), bool(strip.bounds[i]))
        row["shift"] = round(((i * 0.618 + 0.5) % 1 - 0.5) * 18, 1)
        rows.append(row | ({"bound": True} if strip.bounds[i] else {}))
    return rows


def _triangle(axis: Axis) -> str:
    return "triangle-left" if axis.side == "upper" else "triangle-right"


def _mark_points(data: str, size: int, shift: Any = 0) -> Any:
    """Filled points, and open ones for bounds; `shift` is their distance from the middle of the row in pixels."""
    import altair

    points = named(data).mark_point(clip=True, size=size, strokeWidth=1.3, opacity=1, yOffset=shift)
    open_bounds = altair.FillOpacityValue(0.8, condition={"test": "datum.bound", "value": 0})
    return points.encode(fill=own("fill"), stroke=own("stroke"), fillOpacity=open_bounds)


def _caption(strips: Sequence[Strip], axis: Axis, words: Words) -> str:
    texts = [
        "Each point is a sample. The box holds the middle half of them, and its thick line is the median."
    ]
    if any(len(strip.values) > POINTS for strip in strips):
        texts.append(
            f"At most {POINTS} points are drawn, evenly over their ranks; the boxes are of all."
        )
    if any(strip.bounds.any() for strip in strips):
        where = "at or below" if axis.side == "upper" else "at or above"
        texts.append(
            f"Open triangles are only bounds: the value lies {where} them. So does a box that ends on them."
        )
    return " ".join([*texts, words.caption]).strip()


@without_checks
def draw_intervals(
    entries: Sequence[IntervalBar],
    explainers: Sequence[str],
    axis: Axis,
    words: Words,
    stars: Mapping[str, str] | None = None,
) -> Chart | None:
    """Estimates with their intervals, one below the other; an open end is drawn to the edge of the chart.

    The names in `stars` get these marks. An entry whose value is not finite keeps its row, which stays empty, so that
    charts of the same explainers have the same rows.
    """
    import altair

    known, stars = [entry for entry in entries if math.isfinite(entry.value)], stars or {}
    if not known:
        return None
    room = find_room(
        [
            *axis.rules,
            *(end for each in known for end in (each.value, each.low, each.high, each.zero)),
        ]
    )
    labels = {
        entry.name: f"{stars.get(entry.name, '')} {wrap_name(entry.name)}".lstrip()
        for entry in entries
    }
    rows: Rows = []
    for entry in known:
        style = choose_style(explainers, entry.name)
        low, high = (entry.value if end is None else end for end in (entry.low, entry.high))
        interval = f"[{axis.write(entry.low)}, {axis.write(entry.high)}]"
        rows.append(
            {
                "explainer": entry.name,
                "row": labels[entry.name],
                "value": round_number(entry.value),
                "low": round_number(max(low, room[0])),
                "high": round_number(min(high, room[1])),
                "reads": f"{axis.write(entry.value, entry.bound)} {interval}",
                "bound": entry.bound,
                "colour": style.colour,
                "shape": _triangle(axis) if entry.bound else style.shape,
            }
        )
    y = encode_rows(list(labels.values()))
    bars = named("intervals").mark_rule(clip=True, strokeWidth=2.5)
    layers = [
        bars.encode(
            x=encode_values("x", axis, "low"), x2=altair.X2(field="high"), y=y, color=own("color")
        )
    ]
    layers += [rule_at("x", axis)] if axis.rules else []
    zeros = [
        {"row": labels[entry.name], "value": round_number(entry.zero)}
        for entry in known
        if entry.zero is not None
    ]
    if zeros:
        ticks = named("zeros").mark_tick(clip=True, color=INK, opacity=0.6, thickness=3, size=18)
        layers.append(ticks.encode(x=encode_values("x", axis), y=y))
    told = tooltip(explainer="explainer", reads=axis.title)
    points = _mark_points("intervals", 80)
    layers.append(
        points.encode(x=encode_values("x", axis), y=y, tooltip=told, shape=own("shape", "shape"))
    )
    data = {"intervals": rows, "rules_x": [{"value": at} for at in axis.rules], "zeros": zeros}
    numbers = "; ".join(f"{row['explainer']}: {row['reads']}" for row in rows)
    star = f" Best, or not shown to be worse: {', '.join(stars)}." if stars else ""
    alt = f"Medians and intervals, {words.title}. {numbers}.{star}"
    return put_together(layers, data, 32 * len(entries), words, alt)
