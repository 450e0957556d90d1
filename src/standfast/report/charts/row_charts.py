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
        colour = choose_style(explainers, strip.name).colour
        about = {"row": label, "explainer": strip.name, "colour": colour}
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
    if axis.rules:
        layers.append(rule_at("x", axis))
    tips = tooltip(explainer="explainer", sample="sample", reads=axis.title)
    is_bound = {"test": "datum.bound", "value": _triangle(axis)}
    shape = altair.ShapeValue("circle", condition=is_bound)
    points_of = _mark_points("points", 34, altair.ExprRef("datum.shift"))
    across = encode_values("x", axis)
    layers.append(points_of.encode(x=across, y=y, tooltip=tips, shape=shape))
    rules = [{"value": value} for value in axis.rules]
    data = {"boxes": boxes, "points": points, "rules_x": rules}
    medians = []
    for strip, label in zip(strips, labels, strict=True):
        median_text = axis.write(float(np.median(strip.values)))
        text = f"{label}: median {median_text} of {len(strip.values)}"
        medians.append(text.replace("\n", " "))
    words = dataclasses.replace(words, caption=_caption(strips, axis, words))
    alt = f"Distribution, {words.title}. {'; '.join(medians)}."
    return put_together(layers, data, 42 * len(strips), words, alt)


def _summarise(values: Array) -> dict[str, float | None]:
    """The quartiles, where there are enough values, and the mean."""
    names = ("q1", "median", "q3", "mean")
    if len(values) >= FEW:
        quartiles = np.quantile(values, [0.25, 0.5, 0.75])
    else:
        quartiles = np.full(3, np.nan)
    numbers = zip(names, (*quartiles, values.mean()), strict=True)
    return {name: round_number(float(number)) for name, number in numbers}


def _list_points(strip: Strip, axis: Axis) -> Rows:
    rows: Rows = []
    for index in _choose_points(strip.values):
        value = float(strip.values[index])
        is_bound = bool(strip.bounds[index])
        row: dict[str, Any] = {
            "sample": strip.samples[index],
            "value": round_number(value),
            "reads": axis.write(value, is_bound),
            # multiples of the golden ratio spread points evenly over the height of the row
            "shift": round(((index * 0.618 + 0.5) % 1 - 0.5) * 18, 1),
        }
        if is_bound:
            row["bound"] = True
        rows.append(row)
    return rows


def _choose_points(values: Array) -> Sequence[int]:
    """The indices of the values that are drawn, of many at most `POINTS` and evenly over their ranks."""
    if len(values) <= POINTS:
        return range(len(values))
    even = np.linspace(0, len(values) - 1, POINTS)
    even = even.round().astype(int)
    return sorted(np.argsort(values, kind="stable")[even].tolist())


def _triangle(axis: Axis) -> str:
    """The shape of a bound: it points to where the true value lies."""
    if axis.side == "upper":
        return "triangle-left"
    return "triangle-right"


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

    stars = stars or {}
    finite = [entry for entry in entries if math.isfinite(entry.value)]
    if not finite:
        return None
    labels = {}
    for entry in entries:
        star = stars.get(entry.name, "")
        labels[entry.name] = f"{star} {wrap_name(entry.name)}".lstrip()
    rows = _list_intervals(finite, labels, explainers, axis)
    y = encode_rows(list(labels.values()))
    bars = named("intervals").mark_rule(clip=True, strokeWidth=2.5)
    layers = [
        bars.encode(
            x=encode_values("x", axis, "low"), x2=altair.X2(field="high"), y=y, color=own("color")
        )
    ]
    if axis.rules:
        layers.append(rule_at("x", axis))
    zeros = [
        {"row": labels[entry.name], "value": round_number(entry.zero)}
        for entry in finite
        if entry.zero is not None
    ]
    if zeros:
        ticks = named("zeros").mark_tick(clip=True, color=INK, opacity=0.6, thickness=3, size=18)
        across = encode_values("x", axis)
        layers.append(ticks.encode(x=across, y=y))
    tips = tooltip(explainer="explainer", reads=axis.title)
    points = _mark_points("intervals", 80)
    shape = own("shape", "shape")
    layers.append(points.encode(x=encode_values("x", axis), y=y, tooltip=tips, shape=shape))
    rules = [{"value": value} for value in axis.rules]
    data = {"intervals": rows, "rules_x": rules, "zeros": zeros}
    values = [f"{row['explainer']}: {row['reads']}" for row in rows]
    numbers = "; ".join(values)
    alt = f"Medians and intervals, {words.title}. {numbers}."
    if stars:
        alt += f" Best, or not shown to be worse: {', '.join(stars)}."
    return put_together(layers, data, 32 * len(entries), words, alt)


def _list_intervals(
    entries: Sequence[IntervalBar],
    labels: Mapping[str, str],
    explainers: Sequence[str],
    axis: Axis,
) -> Rows:
    """The row of each entry, with open ends at the edge of the chart."""
    ends: list[float | None] = []
    for entry in entries:
        ends += (entry.value, entry.low, entry.high, entry.zero)
    left, right = find_room([*axis.rules, *ends])
    rows: Rows = []
    for entry in entries:
        style = choose_style(explainers, entry.name)
        low = entry.value if entry.low is None else entry.low
        high = entry.value if entry.high is None else entry.high
        interval = f"[{axis.write(entry.low)}, {axis.write(entry.high)}]"
        shape = _triangle(axis) if entry.bound else style.shape
        rows.append(
            {
                "explainer": entry.name,
                "row": labels[entry.name],
                "value": round_number(entry.value),
                "low": round_number(max(low, left)),
                "high": round_number(min(high, right)),
                "reads": f"{axis.write(entry.value, entry.bound)} {interval}",
                "bound": entry.bound,
                "colour": style.colour,
                "shape": shape,
            }
        )
    return rows
