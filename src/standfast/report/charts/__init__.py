"""Charts made from plain numbers with Altair, and pictures as arrays. `report` renders them.

Four functions draw all charts of numbers: `draw_values` and `draw_intervals`, with a row for each explainer,
`draw_lines` and `draw_heat_map`. Every explainer has the same colour, shape and dash in the whole report, and no chart
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
    Underpowered,
    Words,
    choose_style,
)
from standfast.report.charts.heat_map import draw_heat_map
from standfast.report.charts.lines import Line, choose_styles_of_values, draw_lines, is_logarithmic
from standfast.report.charts.row_charts import IntervalBar, Strip, draw_intervals, draw_values
from standfast.report.charts.table import Table, TableCell
from standfast.results.controls import Explainers

#: the parts of a section of the report
Figure = Chart | Gallery | Table | Underpowered

__all__ = [
    "COLOURS",
    "GLYPHS",
    "HOVER",
    "INK",
    "REFERENCE",
    "SHAPES",
    "Axis",
    "Chart",
    "Explainers",
    "Figure",
    "Gallery",
    "GalleryRow",
    "IntervalBar",
    "Line",
    "Picture",
    "Strip",
    "Style",
    "Table",
    "TableCell",
    "Underpowered",
    "Words",
    "choose_style",
    "choose_styles_of_values",
    "draw_heat_map",
    "draw_intervals",
    "draw_lines",
    "draw_values",
    "is_logarithmic",
]
