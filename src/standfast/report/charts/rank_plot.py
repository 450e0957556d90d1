"""Critical-difference diagram: mean ranks, and bars over those that do not differ significantly (Demšar 2006).

The usual diagram has its names at both ends of elbows, which leaves little room where they are many. Here each name
has a row of its own, the best at the top, and the bars stand upright beside the rows that they join.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from standfast.report.charts.base import (
    INK,
    Chart,
    choose_style,
    name_rows,
    round_number,
    title_axis,
    tooltip,
    wrap_name,
)

#: height of a row in pixels, with names over one line and over two
_ROW, _TALL = 20, 30
#: widths as shares of the axis from 1 to the last rank: the column of numbers, and a column of bars
_NUMBERS, _BAR = 0.22, 0.06


def draw_mean_ranks(
    names: Sequence[str],
    ranks: Sequence[float],
    cliques: Sequence[Sequence[int]],
    explainers: Sequence[str],
    title: str,
    *,
    caption: str = "",
    name: str = "differences",
    heading: str = "",
) -> Chart | None:
    """A row for each name with its mean rank, and a bar for each clique of two names or more; None of nothing.

    Args:
        names: the best first.
        ranks: their mean ranks, increasing; 1 is best.
        cliques: groups of neighbouring places in `names`, in the order of their first place.
        explainers: all of the study's, for colours and shapes.
        title, caption, name, heading: texts.

    >>> draw_mean_ranks(["b", "a", "c"], [1.2, 2.0, 2.8], [(0, 1), (1, 2)], ["a", "b", "c"], "Ranks").alt
    'Ranks. Mean ranks, 1 is best: b 1.20, a 2.00, c 2.80. Not significantly different: b, a; a, c.'
    """
    if not names:
        return None
    last, lines = len(names), [wrap_name(each) for each in names]
    two = [len(each) > 1 for each in lines]
    joined = [group for group in cliques if len(group) > 1]
    columns = _columns(joined)
    width = max(last - 1, 1)
    domain = [1 - _NUMBERS * width, last + _BAR * width * (max(columns, default=-1) + 1.6)]
    rows = []
    for place, (each, rank) in enumerate(zip(names, ranks, strict=True)):
        colour, shape, _ = choose_style(explainers, each)
        others = dict.fromkeys(names[i] for group in joined if place in group for i in group if i != place)
        rows.append(
            {
                "explainer": each,
                "row": place,
                "rank": round_number(rank),
                "edge": round_number(domain[0]),
                "reads": f"{rank:.2f}",
                "like": ", ".join(others) or "none",
                "colour": colour,
                "shape": shape,
            }
        )
    bars = [
        {
            "first": group[0] - 0.3,
            "last": group[-1] + 0.3,
            "at": round_number(last + _BAR * width * (column + 1)),
            "joins": ", ".join(names[i] for i in group),
        }
        for group, column in zip(joined, columns, strict=True)
    ]
    x: dict[str, Any] = {
        "field": "rank",
        "type": "quantitative",
        "title": title_axis("mean rank", "lower", "better"),
        "scale": {"domain": [round_number(end) for end in domain], "nice": False, "zero": False},
        "axis": {
            "orient": "top",
            "domain": False,
            "values": list(range(1, last + 1)),
            "tickCount": last + 1,  # Vega leaves out values beyond the count
            "format": "d",
            "labelOverlap": True,
        },
    }
    y: dict[str, Any] = {
        "field": "row",
        "type": "quantitative",
        "scale": {"domain": [-0.6, last - 0.4], "reverse": True, "nice": False, "zero": False},
        "axis": {
            "values": list(range(last)),
            "tickCount": last + 1,
            "labelExpr": f"{json.dumps(lines)}[datum.value]",
            **name_rows(lines),
            # the first of two lines stands above the middle of the row
            "labelOffset": {"condition": {"test": f"{json.dumps(two)}[datum.value]", "value": -7}, "value": 0},
        },
    }
    own = {"type": "nominal", "scale": None, "legend": None}
    layers: list[dict[str, Any]] = [
        {
            "data": {"name": "ranks"},
            "mark": {"type": "text", "align": "left", "dx": 2, "fontSize": 12, "color": INK},
            "encoding": {"x": {**x, "field": "edge"}, "y": y, "text": {"field": "reads"}},
        },
        {
            "data": {"name": "ranks"},
            "mark": {"type": "point", "filled": True, "size": 80, "opacity": 1},
            "encoding": {
                "x": x,
                "y": y,
                "color": {"field": "colour", **own},
                "shape": {"field": "shape", **own},
                "tooltip": tooltip("explainer", "reads:mean rank", "like:not significantly different"),
            },
        },
    ]
    if bars:
        layers.append(
            {
                "data": {"name": "bars"},
                "mark": {"type": "rule", "strokeWidth": 5, "color": INK},
                "encoding": {
                    "x": {**x, "field": "at"},
                    "y": {**y, "field": "first"},
                    "y2": {"field": "last"},
                    "tooltip": tooltip("joins:not significantly different"),
                },
            }
        )
    height = last * (_TALL if any(two) else _ROW)
    spec = {"datasets": {"ranks": rows, "bars": bars}, "height": height, "layer": layers}
    said = ", ".join(f"{row['explainer']} {row['reads']}" for row in rows)
    alt = f"{title}. Mean ranks, 1 is best: {said}. Not significantly different: "
    alt += "; ".join(str(bar["joins"]) for bar in bars) or "none"
    text = "A bar joins explainers that do not differ significantly." if bars else "All differ significantly."
    return Chart(spec, f"{alt}.", f"{text} {caption}".strip(), name, heading)


def _columns(groups: Sequence[Sequence[int]]) -> list[int]:
    """A column for each bar, so that bars in the same one do not touch.

    >>> _columns([(0, 1, 2), (2, 3), (3, 4)])
    [0, 1, 0]
    """
    columns: list[int] = []
    ends: list[int] = []
    for group in groups:
        free = next((column for column, end in enumerate(ends) if end < group[0]), len(ends))
        ends[free : free + 1] = [group[-1]]
        columns.append(free)
    return columns
