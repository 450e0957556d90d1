"""Heat maps: a table of numbers, shown as colours."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from standfast.report.charts.base import Chart, Rows, Words, round_number, wrap_name
from standfast.report.charts.layers import encode_rows, named, put_together, tooltip, without_checks
from standfast.tensors import Array

#: up to this number of columns the numbers are written into their cells
_WRITTEN = 16
#: of -1, 0 and 1; not quite the explainers' colours, which the page replaces
_SHADES = ("#D55E01", "#f3f3f3", "#0072B3")


@without_checks
def draw_heat_map(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Array,
    axis: str,
    words: Words,
    texts: Sequence[Sequence[str]] | None = None,
    reads: Sequence[Sequence[str]] | None = None,
) -> Chart | None:
    """A table of numbers from -1 to 1, written into the cells if there are few; None if no number is finite.

    Args:
        rows, columns: names. If they are the same, columns have the letters that stand before the rows.
        values: numbers `(rows, columns)`; NaN cells are empty.
        axis: what the numbers are, for the tooltip.
        words: the texts.
        texts: what is written into the cells; by default the numbers.
        reads: what is said of the cells elsewhere; by default the same.
    """
    import altair

    square = list(rows) == list(columns)
    heads = [_letter(place) for place in range(len(columns))] if square else list(columns)
    labels = [wrap_name(f"{heads[place]} {name}" if square else name, 20) for place, name in enumerate(rows)]
    cells: Rows = []
    for i, j in np.argwhere(np.isfinite(values)).tolist():
        text = _short(float(values[i, j])) if texts is None else texts[i][j]
        cells.append(
            {
                "row": labels[i],
                "head": heads[j],
                "name": rows[i],
                "column": columns[j],
                "value": round_number(float(values[i, j]), 4),
                "text": text,
                "reads": text if reads is None else reads[i][j],
            }
        )
    if not cells:
        return None
    upright = {"labelAngle": 0} if square else {"labelAngle": 50, "labelAlign": "right", "labelLimit": 110}
    plain: dict[str, Any] = {"grid": False, "domain": False, "ticks": False, "labelOverlap": False, "orient": "top"}
    scale = altair.Scale(domain=heads)
    x = altair.X(field="head", type="nominal", title=None, sort=None, scale=scale, axis=altair.Axis(**plain, **upright))
    base = named("cells").encode(x=x, y=encode_rows(labels, 150))
    shades = altair.Scale(domain=[-1, 0, 1], range=list(_SHADES))
    colour = altair.Color(field="value", type="quantitative", scale=shades, legend=None)
    told = tooltip(name="row", column="column", reads=axis)
    layers = [base.mark_rect(stroke="#ffffff", strokeWidth=1).encode(color=colour, tooltip=told)]
    if len(columns) <= _WRITTEN:
        size = altair.ExprRef(f"clamp(width / {len(columns)} / 2.8, 8, 12)")
        ink = altair.ColorValue("#000000", condition={"test": "abs(datum.value) > 0.6", "value": "#ffffff"})
        written = altair.Text(field="text", type="nominal")
        layers.append(base.mark_text(fontSize=size).encode(text=written, color=ink))
    said = "; ".join(
        f"{cell['name']}, {cell['column']}: {cell['reads']}"
        for cell in cells
        if not (square and cell["name"] == cell["column"])
    )
    return put_together(layers, {"cells": cells}, 36 * len(rows), words, f"{words.title}. {said}.")


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
