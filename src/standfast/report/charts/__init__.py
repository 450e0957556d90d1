"""Charts made from plain numbers with Altair, and pictures as arrays. `report` renders them.

Three functions draw all charts of numbers: `draw_values` and `draw_intervals`, with a row for each explainer, and
`draw_lines`. Every explainer has the same colour, shape and dash in the whole report, and no chart
distinguishes explainers by colour alone.
"""

from standfast.report.charts.base import (
    COLOURS,
    GLYPHS,
    HOVER,
    INK,
    REFERENCE,
    SHAPES,
    Axis,
    Chart,
    Gallery,
    GalleryRow,
    Picture,
    Style,
    Words,
    choose_style,
)
from standfast.report.charts.lines import Line, draw_lines, is_logarithmic
from standfast.report.charts.row_charts import IntervalBar, Strip, draw_intervals, draw_values
from standfast.report.charts.table import ExplainerTable, TableCell
from standfast.results.controls import Explainers

#: the parts of a section of the report
Figure = Chart | Gallery | ExplainerTable

__all__ = [
    "COLOURS",
    "GLYPHS",
    "HOVER",
    "INK",
    "REFERENCE",
    "SHAPES",
    "Axis",
    "Chart",
    "ExplainerTable",
    "Explainers",
    "Figure",
    "Gallery",
    "GalleryRow",
    "IntervalBar",
    "Line",
    "Picture",
    "Strip",
    "Style",
    "TableCell",
    "Words",
    "choose_style",
    "draw_intervals",
    "draw_lines",
    "draw_values",
    "is_logarithmic",
]
