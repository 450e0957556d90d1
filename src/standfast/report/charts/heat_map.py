"""Heat maps: a square matrix or a table of numbers, shown as colours."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from standfast.report.charts.base import Chart, name_rows, round_number, tooltip, wrap_name
from standfast.tensors import Array

#: up to this number of columns the numbers are written into their cells
_WRITTEN = 16


def draw_heatmap(
    names: Sequence[str],
    values: Array,
    title: str,
    axis: str,
    *,
    caption: str = "",
    name: str = "heatmap",
    heading: str = "",
) -> Chart | None:
    """A square matrix of numbers from -1 to 1, written into the cells if there are few; NaN cells are empty.

    None if there are no finite numbers.
    """
    letters = [_letter(place) for place in range(len(names))]
    wide = {name: wrap_name(f"{letter} {name}", 20) for letter, name in zip(letters, names, strict=True)}
    short = json.dumps(dict(zip(names, letters, strict=True)))
    x_axis = {"labelExpr": f"{short}[datum.label]", "labelAngle": 0}
    cells = _cells(names, names, values)
    if not cells:
        return None
    numbers = "; ".join(f"{c['row']} and {c['column']}: {c['reads']}" for c in cells if c["row"] != c["column"])
    spec = _spec(cells, wide, names, x_axis, axis, 38)
    return Chart(spec, f"{title}. {numbers}.", caption, name, heading)


def draw_heat_table(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Array,
    title: str,
    axis: str,
    *,
    caption: str = "",
    name: str = "table",
    heading: str = "",
) -> Chart | None:
    """A table of numbers `(rows, columns)` from -1 to 1, written into the cells if there are few; NaN cells are empty.

    None if there are no finite numbers.
    """
    cells = _cells(rows, columns, values)
    if not cells:
        return None
    x_axis = {"labelAngle": -60, "labelAlign": "left", "labelLimit": 110, "labelFontSize": 11}
    numbers = "; ".join(f"{cell['row']}, {cell['column']}: {cell['reads']}" for cell in cells)
    spec = _spec(cells, {name: wrap_name(name, 20) for name in rows}, columns, x_axis, axis, 34)
    return Chart(spec, f"{title}. {numbers}.", caption, name, heading)


def _cells(rows: Sequence[str], columns: Sequence[str], values: Array) -> list[dict[str, Any]]:
    return [
        {"row": a, "column": b, "value": round_number(float(values[i, j]), 4), "reads": _short(float(values[i, j]))}
        for i, a in enumerate(rows)
        for j, b in enumerate(columns)
        if np.isfinite(values[i, j])
    ]


def _spec(
    cells: list[dict[str, Any]],
    rows: Mapping[str, Any],
    columns: Sequence[str],
    x_axis: Mapping[str, Any],
    axis: str,
    height: int,
) -> dict[str, Any]:
    """Coloured cells, with their numbers if there is space; `rows` maps the name of each row to its label."""
    plain = {"title": None, "grid": False, "domain": False, "ticks": False, "labelOverlap": False}
    y_axis = {**name_rows(list(rows.values()), 150), "labelExpr": f"{json.dumps(rows)}[datum.label]"}
    y = {"field": "row", "type": "nominal", "sort": list(rows), "axis": y_axis}
    x = {"field": "column", "type": "nominal", "sort": list(columns), "axis": {**plain, **x_axis, "orient": "top"}}
    scale = {"domain": [-1, 0, 1], "range": ["#D55E01", "#f3f3f3", "#0072B3"]}  # not quite the explainers' colours
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rect", "stroke": "#ffffff", "strokeWidth": 1},
            "encoding": {
                "color": {"field": "value", "type": "quantitative", "scale": scale, "legend": None},
                "tooltip": tooltip("row", "column", f"reads:{axis}"),
            },
        }
    ]
    if len(columns) <= _WRITTEN:
        text = {"field": "reads", "type": "nominal"}
        colour = {"condition": {"test": "abs(datum.value) > 0.6", "value": "#ffffff"}, "value": "#000000"}
        size = {"expr": f"clamp(width / {len(columns)} / 2.8, 8, 12)"}
        layers.append({"mark": {"type": "text", "fontSize": size}, "encoding": {"text": text, "color": colour}})
    return {"data": {"values": cells}, "height": height * len(rows), "encoding": {"x": x, "y": y}, "layer": layers}


def _letter(place: int) -> str:
    """The letter of a row or column: A, B, ... Z, A2, B2, ..."""
    turn, letter = divmod(place, 26)
    return chr(ord("A") + letter) + (str(turn + 1) if turn else "")


def _short(value: float) -> str:
    """A correlation without the leading zero.

    >>> _short(-0.8), _short(1.0)
    ('−.80', '1.0')
    """
    text = f"{abs(value):.2f}"
    text = "1.0" if text == "1.00" else text[1:]
    return ("−" if value < 0 and text != ".00" else "") + text
