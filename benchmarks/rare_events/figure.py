"""The figure of papers/safari/estimators.md: error against evaluations, and how often intervals contain the truth."""

from __future__ import annotations

import math

from cases import COMPARED
from scipy import stats
from tables import Summary, select_kind

from standfast.report.charts import COLOURS, INK
from standfast.report.charts.base import SHAPES
from standfast.report.page.render import CONFIG

#: panels of the figure
SHOWN = (
    "Irwin-Hall, d = 50, 1e-5",
    "Irwin-Hall, d = 50, 1e-20",
    "Irwin-Hall, d = 784, 1e-10",
    "two stages, d = 100, 1e-4 x 1e-5",
    "linear classifier, d = 50, PCC < 0.1",
    "digit 1, radius 0.3, PCC < 0.5",
)


def draw(summaries: dict[tuple[str, str], Summary]) -> str:
    """The figure as SVG."""
    import vl_convert

    points = [
        {
            "problem": case,
            "estimator": estimator,
            "evaluations": row.evaluations,
            "error": float(row.errors.mean()),
            "low": float(row.errors.mean()) - (0.0 if math.isnan(row.sd) else row.sd),
            "high": float(row.errors.mean()) + (0.0 if math.isnan(row.sd) else row.sd),
        }
        for case in SHOWN
        for estimator in COMPARED
        if (row := summaries.get((case, estimator))) is not None and len(row.values)
    ]
    bars = []
    for kind, title in (
        ("exact", "exact problems"),
        ("model", "digits, against plain Monte Carlo"),
    ):
        for estimator in COMPARED:
            rows = select_kind(summaries, estimator, kind)
            runs, covered = sum(row.runs for row in rows), sum(row.covered for row in rows)
            if runs:
                exact = stats.binomtest(covered, runs).proportion_ci(0.95, method="exact")
                bars.append(
                    {
                        "kind": title,
                        "estimator": estimator,
                        "share": covered / runs,
                        "low": exact.low,
                        "high": exact.high,
                    }
                )
    scale = {"domain": list(COMPARED), "range": list(COLOURS[: len(COMPARED)])}
    colour = {"field": "estimator", "type": "nominal", "scale": scale}
    legend = {"orient": "top", "title": None, "columns": 3, "labelLimit": 300}
    error = {
        "type": "quantitative",
        "scale": {"type": "symlog", "constant": 0.5, "domain": [-45, 5]},
        "axis": {"values": [-30, -10, -3, -1, 0, 1, 3]},
        "title": "error of ln P: mean ± sd",
    }
    work = {
        "field": "evaluations",
        "type": "quantitative",
        "scale": {"type": "log", "domain": [8e3, 8e6]},
        "axis": {"values": [1e4, 1e5, 1e6], "format": "~s"},
        "title": "evaluations a run",
    }
    panel = {
        "width": 210,
        "height": 150,
        "layer": [
            {
                "transform": [{"sample": 1}],  # once, not for every point
                "mark": {"type": "rule", "color": INK, "opacity": 0.5, "strokeDash": [4, 3]},
                "encoding": {"y": {"datum": 0, "type": "quantitative"}},
            },
            {
                "mark": {"type": "rule", "strokeWidth": 2},
                "encoding": {
                    "x": work,
                    "y": {"field": "low", **error},
                    "y2": {"field": "high"},
                    "color": colour,
                },
            },
            {
                "mark": {"type": "point", "filled": True, "size": 75, "opacity": 1},
                "encoding": {
                    "x": work,
                    "y": {"field": "error", **error},
                    "color": {**colour, "legend": legend},
                    "shape": {
                        "field": "estimator",
                        "type": "nominal",
                        "scale": {"domain": list(COMPARED), "range": list(SHAPES[: len(COMPARED)])},
                        "legend": legend,
                    },
                },
            },
        ],
    }
    facet = {
        "field": "problem",
        "type": "nominal",
        "sort": list(SHOWN),
        "header": {"title": None, "labelFontSize": 12},
    }
    place = {
        "field": "estimator",
        "type": "nominal",
        "sort": list(COMPARED),
        "title": None,
        "axis": {"labelLimit": 250},
    }
    part = {
        "type": "quantitative",
        "scale": {"domain": [0, 1]},
        "axis": {"format": "%"},
        "title": "runs whose 95% interval contains the truth",
    }
    cover = {
        "width": 250,
        "height": 130,
        "layer": [
            {
                "mark": {"type": "bar", "opacity": 0.75, "height": {"band": 0.6}},
                "encoding": {
                    "x": {"field": "share", **part},
                    "y": place,
                    "color": {**colour, "legend": None},
                },
            },
            {
                "mark": {"type": "rule", "color": INK},
                "encoding": {"x": {"field": "low", **part}, "x2": {"field": "high"}, "y": place},
            },
            {
                "mark": {"type": "rule", "color": INK, "strokeDash": [4, 3]},
                "encoding": {"x": {"datum": 0.95, "type": "quantitative"}},
            },
        ],
    }
    kinds = {
        "field": "kind",
        "type": "nominal",
        "sort": "descending",
        "header": {"title": None, "labelFontSize": 12},
    }
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "vconcat": [
            {
                "data": {"values": points},
                "facet": facet,
                "columns": 3,
                "spec": panel,
                "spacing": 16,
            },
            {"data": {"values": bars}, "facet": {"column": kinds}, "spec": cover, "spacing": 24},
        ],
        "spacing": 30,
        "padding": 8,
        "resolve": {"legend": {"color": "independent", "shape": "independent"}},
        "config": {**CONFIG, "background": "white"},
    }
    return str(vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])) + "\n"
