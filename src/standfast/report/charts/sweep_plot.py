"""Estimates against the values of an option, with a line for each explainer or each value of another option."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from standfast.report.charts.base import (
    DASHES,
    HOVER,
    INK,
    SCALE,
    SHAPES,
    Chart,
    IntervalBar,
    choose_style,
    label_values,
    make_legend,
    round_number,
    title_axis,
    tooltip,
    zoom,
)

#: references have no marks, and their dashes differ from those of lines
_REFERENCE_DASHES = {"dotted": (1, 3), "in long dashes": (14, 4), "sparsely dotted": (1, 7)}
#: an axis whose values span more than this factor is logarithmic
SPAN = 10


@dataclass(frozen=True)
class Track:
    """Estimates of one line at the values of an option.

    Attributes:
        name: name of the line; for a reference, the name of the line that it belongs to.
        x: values of the option, increasing. None for a reference without the option: it is drawn over the whole axis.
        estimates: one for each x, or a single one.
        reference: a description of a reference; empty for an ordinary line.
    """

    name: str
    x: Sequence[float] | None
    estimates: Sequence[IntervalBar]
    reference: str = ""


def choose_styles_of_values(
    explainers: Sequence[str], explainer: str, values: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Looks of the lines of one explainer: its colour for all, and a different shape, dash and width for each.

    >>> choose_styles_of_values(["a", "b"], "b", ["1", "4"])["4"]["width"]
    3.0
    """
    colour, _, _ = choose_style(explainers, explainer)
    span = max(len(values) - 1, 1)
    return {
        value: {
            "colour": colour,
            "shape": SHAPES[place % len(SHAPES)],
            "dash": DASHES[place % len(DASHES)],
            "width": 1.2 + 1.8 * place / span,
        }
        for place, value in enumerate(values)
    }


def choose_styles_of_explainers(explainers: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The colour, shape and dash of each explainer."""
    looks = {}
    for name in explainers:
        colour, shape, dash = choose_style(explainers, name)
        looks[name] = {"colour": colour, "shape": shape, "dash": dash, "width": 2.0}
    return looks


def is_logarithmic(values: Sequence[float]) -> bool:
    """Whether an axis of these values should be logarithmic: they are positive and span more than a factor of ten.

    >>> is_logarithmic([1, 4, 16]), is_logarithmic([1, 10]), is_logarithmic([0, 4, 16])
    (True, False, False)
    """
    return min(values) > 0 and max(values) / min(values) > SPAN


def draw_sweep(
    tracks: Sequence[Track],
    looks: Mapping[str, Mapping[str, Any]],
    title: str,
    option: str,
    axis: str,
    direction: str | None,
    side: Literal["upper", "lower"] = "upper",
    *,
    good: str = "better",
    caption: str = "",
    name: str = "sweep",
    heading: str = "",
    legend: str = "",
    zero: bool = False,
) -> Chart | None:
    """Estimates with their intervals against an option; None if no line has two points.

    Args:
        tracks: lines, and references to draw with them.
        looks: colour, shape, dash and width by the name of a line.
        title, caption, name, heading: texts.
        option: title of the x axis.
        axis: title of the axis of values.
        direction: which values are better, `"higher"` or `"lower"`.
        good: a word or two for the better side.
        side: side of the true value of a bound: at or below it (`"upper"`), or at or above it (`"lower"`).
        legend: title of the legend.
        zero: draw a line at the value 0.
    """
    lines = [track for track in (_finite(track) for track in tracks if not track.reference) if track.estimates]
    if not any(len(track.estimates) > 1 for track in lines):
        return None
    references = [track for track in (_finite(track) for track in tracks if track.reference) if track.estimates]
    places = sorted({x for track in (*lines, *references) for x in track.x or ()})
    values = [e for track in (*lines, *references) for e in track.estimates]
    ends = [end for e in values for end in (e.value, e.low, e.high) if end is not None and math.isfinite(end)]
    margin = 0.06 * ((max(ends) - min(ends)) or abs(ends[0]) or 1.0)
    room = (min(ends) - margin, max(ends) + margin)
    sign = "≤ " if side == "upper" else "≥ "
    rows = [row for track in lines for row in _rows(track, track.x or (), room, sign, looks)]
    kinds = list(dict.fromkeys(track.reference for track in references))
    lying = [
        {**row, "key": f"{track.reference} {track.name}", "kind": kinds.index(track.reference)}
        for track in references
        for row in _rows(track, track.x or (places[0], places[-1]), room, sign, looks)
    ]
    exact, bounds = ([row for row in rows if row["bound"] == bound] for bound in (False, True))
    scaled = {"title": title_axis(axis, direction, good, "y"), **label_values(axis, "y")}
    datasets = {"lines": rows, "points": exact, "bounds": bounds}
    datasets |= {"references": lying, "hover": [*rows, *lying]} if lying else {}
    spec = {
        "datasets": datasets,
        "height": 240,
        "layer": _layers(rows, lying, kinds, lines, looks, places, option, scaled, side, zero, legend),
    }
    texts = [f"Line: median over samples; band: its interval (95%, less with few samples). {caption}".strip()]
    if any(row["bound"] for row in rows):
        texts.append(f"Triangles: only bounds, the median lies there or {'below' if side == 'upper' else 'above'}.")
    for kind, drawn in zip(kinds, [*_REFERENCE_DASHES] * len(kinds), strict=False):
        texts.append(f"Thin, {drawn}, without marks: {kind}.")
    numbers = "; ".join(
        f"{' '.join(filter(None, [track.name, f'({track.reference})' if track.reference else '']))}: "
        + ", ".join(
            f"{_reads(e, sign)}{f' at {x:g}' if track.x is not None else ''}"
            for x, e in zip(track.x or (places[0],), track.estimates, strict=False)
        )
        for track in (*lines, *references)
    )
    return Chart(spec, f"{title}, against {option}. {numbers}.", " ".join(texts), name, heading)


def _finite(track: Track) -> Track:
    """The track without estimates that are not finite."""
    if track.x is None:
        kept = [e for e in track.estimates if math.isfinite(e.value)][:1]
        return Track(track.name, None, kept, track.reference)
    pairs = [(x, e) for x, e in zip(track.x, track.estimates, strict=True) if math.isfinite(e.value)]
    return Track(track.name, [x for x, _ in pairs], [e for _, e in pairs], track.reference)


def _rows(
    track: Track, x: Sequence[float], room: tuple[float, float], sign: str, looks: Mapping[str, Mapping[str, Any]]
) -> list[dict[str, Any]]:
    estimates = list(track.estimates) * (len(x) if track.x is None else 1)
    rows = []
    for place, estimate in zip(x, estimates, strict=True):
        low, high = (estimate.value if end is None else end for end in (estimate.low, estimate.high))
        rows.append(
            {
                "line": track.name,
                "x": round_number(place),
                "y": round_number(estimate.value),
                "low": round_number(max(low, room[0])),
                "high": round_number(min(high, room[1])),
                "bound": estimate.bound,
                "reads": _reads(estimate, sign, interval=True),
                "of": track.reference or estimate.name,
                "colour": looks[track.name]["colour"] if track.name in looks else INK,
                "width": looks[track.name]["width"] if track.name in looks else 1.6,
            }
        )
    return rows


def _reads(estimate: IntervalBar, sign: str, interval: bool = False) -> str:
    text = f"{sign if estimate.bound else ''}{estimate.value:z.4g}"
    if interval and estimate.low is not None and estimate.high is not None:
        text += f" [{estimate.low:z.4g}, {estimate.high:z.4g}]"
    return text.replace("-", "−").replace("inf", "∞")


def _layers(
    rows: Sequence[Mapping[str, Any]],
    lying: Sequence[Mapping[str, Any]],
    kinds: Sequence[str],
    lines: Sequence[Track],
    looks: Mapping[str, Mapping[str, Any]],
    places: Sequence[float],
    option: str,
    axis: Mapping[str, Any],
    side: str,
    zero: bool,
    title: str,
) -> list[dict[str, Any]]:
    names = list(dict.fromkeys(track.name for track in lines))
    legend = make_legend(names, title)

    def scaled(key: str) -> dict[str, Any]:
        values = [list(v) if isinstance(v := looks[n][key], tuple) else v for n in names]
        return {"field": "line", "type": "nominal", "scale": {"domain": names, "range": values}, "legend": legend}

    scale = {**SCALE, "type": "linear"}
    if is_logarithmic(places):
        scale = {"type": "log", "nice": False, "padding": SCALE["padding"]}
    ticks = {"values": [round_number(place) for place in places], "format": "~g", "labelOverlap": True}
    x = {"field": "x", "type": "quantitative", "title": option, "scale": scale, "axis": ticks}
    y = {"field": "y", "type": "quantitative", "scale": SCALE, **axis}
    faint = {"condition": {"param": "pick", "value": 1}, "value": 0.12}
    pick = {"name": "pick", "select": {"type": "point", "fields": ["line"]}, "bind": "legend"}
    band = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "color": scaled("colour"), "opacity": faint}
    own = {"field": "colour", "type": "nominal", "scale": None, "legend": None}
    width = {"field": "width", "type": "quantitative", "scale": None, "legend": None}
    key = {"field": "key", "type": "nominal"}
    layers: list[dict[str, Any]] = []
    if lying:
        around = {"x": x, "y": {**y, "field": "low"}, "y2": {"field": "high"}, "fill": own, "detail": key}
        mark = {"type": "area", "clip": True, "fillOpacity": 0.05, "strokeOpacity": 0}
        layers.append({"data": {"name": "references"}, "mark": mark, "encoding": around})
    for kind, dash in zip(range(len(kinds)), [*_REFERENCE_DASHES.values()] * len(kinds), strict=False):
        layers.append(
            {
                "data": {"name": "references"},
                "transform": [{"filter": f"datum.kind === {kind}"}],
                "mark": {"type": "line", "clip": True, "strokeWidth": 1.4, "strokeDash": list(dash), "opacity": 0.9},
                "encoding": {"x": x, "y": y, "stroke": own, "detail": key},
            }
        )
    if zero:
        mark = {"type": "rule", "clip": True, "color": INK, "strokeDash": [2, 3], "opacity": 0.7}
        at = {"field": "at", "type": "quantitative"}
        layers.append({"data": {"values": [{"at": 0}]}, "mark": mark, "encoding": {"y": {**y, **at}}})
    point = {"x": x, "y": y, "color": scaled("colour"), "opacity": faint}
    layers += [
        {
            "data": {"name": "lines"},
            "mark": {"type": "area", "clip": True, "fillOpacity": 0.13, "strokeOpacity": 0},
            "encoding": band,
        },
        {
            "data": {"name": "lines"},
            "params": [zoom("x", "y"), pick],
            "mark": {"type": "line", "clip": True},
            "encoding": {**point, "strokeDash": scaled("dash"), "strokeWidth": width},
        },
    ]
    if not all(row["bound"] for row in rows):
        mark = {"type": "point", "filled": True, "clip": True, "size": 50}
        layers.append({"data": {"name": "points"}, "mark": mark, "encoding": {**point, "shape": scaled("shape")}})
    if any(row["bound"] for row in rows):
        shape = "triangle-down" if side == "upper" else "triangle-up"
        mark = {"type": "point", "filled": True, "clip": True, "size": 90, "shape": shape}
        layers.append({"data": {"name": "bounds"}, "mark": mark, "encoding": point})
    told = tooltip("line", "of:from", f"x:{option}", "reads:median")
    hidden = {"type": "point", "filled": True, "clip": True, "size": 160, "opacity": 0}
    seen = {"x": x, "y": y, "tooltip": told}
    layers.append({"name": HOVER, "data": {"name": "hover" if lying else "lines"}, "mark": hidden, "encoding": seen})
    return layers
