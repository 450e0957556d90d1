"""Ridge plots: distributions of values, one row for each value of an option, one below the other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from standfast.errors import check
from standfast.report.charts.base import HOVER, INK, Chart, choose_style, round_number, rule_at, tooltip
from standfast.tensors import Array

#: with fewer values there is no density, and each value is drawn
FEW = 5
#: number of points of a density, and the height of a ridge's peak in rows
_POINTS, _REACH = 96, 1.7
#: the smallest and the largest bandwidth, as shares of the axis. The smallest keeps a peak visible. The largest keeps
#: two peaks at the ends of the axis separate, which Scott's rule, made for one peak, would merge
_NARROW, _WIDE = 1 / 80, 1 / 25
#: a density below this share of its peak is not drawn
_FLAT = 0.004
_SAME = 1e-12


@dataclass(frozen=True)
class Ridge:
    """The values of a row, with its label on the axis; values that are not finite are left out."""

    label: str
    values: Array


def form(values: Array) -> Literal["nothing", "rug", "spike", "density"]:
    """How to draw the finite values: `"rug"`, each value, if there are few; `"spike"` if all are equal; or a density.

    >>> form(np.array([0.1, 0.2])), form(np.full(9, 0.5)), form(np.arange(9.0)), form(np.array([np.nan]))
    ('rug', 'spike', 'density', 'nothing')
    """
    values = values[np.isfinite(values)]
    if not len(values):
        return "nothing"
    if len(values) < FEW:
        return "rug"
    return "spike" if np.ptp(values) <= _SAME * max(1.0, float(np.abs(values).max())) else "density"


def density(
    values: Array, grid: Array, upper: float | None = None, narrowest: float = 0.0, widest: float = np.inf
) -> Array:
    """A Gaussian kernel density estimate with Scott's bandwidth, within limits.

    Args:
        values: finite values, at least two different ones.
        grid: points `(G,)` at which the density is computed.
        upper: the largest possible value. The density above it is reflected to below, and is 0 above.
        narrowest, widest: limits of the bandwidth.

    >>> grid = np.linspace(-4, 4, 801)
    >>> round(float(density(np.array([-1.0, 0.0, 1.0]), grid).sum() * 0.01), 2)
    1.0
    """
    values = np.asarray(values, dtype=float)
    spread = float(values.std(ddof=1))
    bandwidth = min(max(spread * len(values) ** -0.2, narrowest), widest)

    def estimate(places: Array) -> Array:
        kernels = np.exp(-(((places[:, None] - values) / bandwidth) ** 2) / 2)
        return np.asarray(kernels.mean(axis=1) / (bandwidth * np.sqrt(2 * np.pi)))

    if upper is None:
        return estimate(grid)
    return np.where(grid <= upper, estimate(grid) + estimate(2 * upper - grid), 0.0)


def draw_ridges(
    rows: Sequence[Ridge],
    name: str,
    explainers: Sequence[str],
    title: str,
    axis: str,
    rows_axis: str,
    domain: tuple[float, float],
    *,
    upper: float | None = None,
    caption: str = "",
    heading: str = "",
    marks: Sequence[float] = (),
) -> Chart | None:
    """The distributions of one explainer, the first row on top; None if there are no finite values.

    All densities have the same height at their peaks. So heights can be compared within a row, but not between rows.

    Args:
        rows: the rows; a row without values is empty.
        name: the explainer.
        explainers: all explainers of the study, for the colours.
        title, caption, heading: texts.
        axis, rows_axis: titles of the axis of values and of the axis of rows.
        domain: ends of the axis of values; use the same for all charts that readers compare.
        upper: the largest possible value, as in `density`.
        marks: values at which dotted lines are drawn.

    Raises:
        ArgumentError: the domain is empty.
    """
    check(domain[0] < domain[1], "domain", "two increasing numbers", domain)
    forms = [form(row.values) for row in rows]
    if all(each == "nothing" for each in forms):
        return None
    colour, _, _ = choose_style(explainers, name)
    areas: list[dict[str, Any]] = []
    strokes: list[dict[str, Any]] = []
    middles: list[dict[str, Any]] = []
    for number, (row, kind) in enumerate(zip(rows, forms, strict=True)):
        base = len(rows) - 1 - number
        values = row.values[np.isfinite(row.values)]
        if kind == "density":
            areas += _area(values, row.label, base, domain, upper)
        elif kind != "nothing":
            height = 1.0 if kind == "spike" else 0.35
            places = np.unique(values) if kind == "rug" else values[:1]
            strokes += [
                {"row": row.label, "x": round_number(float(x)), "y": base, "top": base + height} for x in places
            ]
        if len(values):
            middles.append(_middle(values, row.label, base))
    room = [-0.35, len(rows) - 1 + _REACH + 0.15]
    names = json.dumps([row.label for row in reversed(rows)])
    ticks = {
        "values": list(range(len(rows))),
        "tickCount": len(rows) + 1,  # Vega leaves out values beyond the count
        "labelExpr": f"{names}[datum.value]",
        "labelOverlap": False,
        "grid": True,
        "ticks": False,
        "domain": False,
    }
    y = {
        "field": "y",
        "type": "quantitative",
        "title": rows_axis,
        "scale": {"domain": room, "nice": False, "zero": False},
        "axis": ticks,
    }
    x = {
        "field": "x",
        "type": "quantitative",
        "title": axis,
        "scale": {"domain": [round_number(end, 4) for end in domain], "nice": False, "zero": False},
    }
    layers: list[dict[str, Any]] = [rule_at("x", value) for value in marks]
    if areas:
        body = {"type": "area", "clip": True, "fillOpacity": 0.4, "color": colour}
        edge = {"type": "line", "clip": True, "strokeWidth": 1.4, "color": colour}
        detail = {"field": "row", "type": "nominal"}
        at = {"x": x, "y": {**y, "field": "top"}, "detail": detail}
        layers += [
            {"data": {"name": "areas"}, "mark": body, "encoding": {**at, "y2": {"field": "y"}}},
            {"data": {"name": "areas"}, "mark": edge, "encoding": at},
        ]
    if strokes:
        mark = {"type": "rule", "clip": True, "strokeWidth": 2.4, "color": colour}
        over = {"x": x, "y": y, "y2": {"field": "top"}}
        layers.append({"data": {"name": "strokes"}, "mark": mark, "encoding": over})
    told = tooltip(f"row:{rows_axis}", "median", "quartiles", "samples")
    layers += [
        {
            "data": {"name": "middles"},
            "mark": {"type": "tick", "clip": True, "orient": "vertical", "color": INK, "size": 9, "thickness": 2},
            "encoding": {"x": x, "y": y},
        },
        {
            "name": HOVER,
            "data": {"name": "middles"},
            "mark": {"type": "point", "filled": True, "clip": True, "size": 220, "opacity": 0},
            "encoding": {"x": x, "y": y, "tooltip": told},
        },
    ]
    datasets = {"areas": areas, "strokes": strokes, "middles": middles}
    spec = {"datasets": {key: rows for key, rows in datasets.items() if rows}, "height": 30 * len(rows) + 60}
    words = "; ".join(f"{each['row']}: median {each['median']}, quartiles {each['quartiles']}" for each in middles)
    alt = f"{title}. {words}."
    return Chart({**spec, "layer": layers}, alt, _caption(forms, caption), f"ridges-{name}", heading)


def _area(
    values: Array, label: str, base: int, domain: tuple[float, float], upper: float | None
) -> list[dict[str, Any]]:
    """The points of one density, scaled so that all densities have the same height at their peaks."""
    low, high = domain
    grid = np.linspace(low, high if upper is None else min(high, upper), _POINTS)
    found = density(values, grid, upper, _NARROW * (high - low), _WIDE * (high - low))
    share = found / (found.max() or 1.0)
    drawn = np.flatnonzero(share >= _FLAT)
    kept = range(max(0, drawn[0] - 1), min(len(grid), drawn[-1] + 2)) if len(drawn) else range(0)
    return [
        {
            "row": label,
            "x": round_number(float(grid[i]), 4),
            "y": base,
            "top": round(base + _REACH * float(share[i]), 3),
        }
        for i in kept
    ]


def _middle(values: Array, label: str, base: int) -> dict[str, Any]:
    q1, median, q3 = (f"{q:z.3g}".replace("-", "−") for q in np.quantile(values, [0.25, 0.5, 0.75]))
    return {
        "row": label,
        "x": round_number(float(np.median(values))),
        "y": base,
        "median": median,
        "quartiles": f"{q1} to {q3}",
        "samples": len(values),
    }


def _caption(forms: Sequence[str], caption: str) -> str:
    text = "Tick: median."
    if "density" in forms:
        text = (
            "Each hill shows where the samples lie (a kernel density estimate, as high as the others at its peak). "
            "Tick: median."
        )
    if "spike" in forms:
        text += " A single bar: all samples have that value."
    if "rug" in forms:
        text += f" Short strokes: the samples themselves, as {FEW} are needed for a density."
    return f"{text} {caption}".strip()
