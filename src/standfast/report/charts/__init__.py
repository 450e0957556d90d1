"""Charts as Vega-Lite specifications, made from plain numbers, and pictures as arrays. `report` renders them.

A specification contains data and encodings; the renderer adds fonts, theme and size. Every explainer has the same
colour, shape and dash in the whole report, and no chart distinguishes explainers by colour alone.
"""

from standfast.report.charts.base import (
    COLOURS,
    HOVER,
    INK,
    REFERENCE,
    Chart,
    Gallery,
    GalleryRow,
    IntervalBar,
    Line,
    Picture,
    Strip,
    Underpowered,
)
from standfast.report.charts.box_plot import GREY, Point, draw_boxes
from standfast.report.charts.heat_map import draw_heat_table, draw_heatmap
from standfast.report.charts.lines import draw_ecdf, draw_lines
from standfast.report.charts.rank_plot import draw_mean_ranks
from standfast.report.charts.ridge_plot import Ridge, draw_ridges
from standfast.report.charts.strip_plot import draw_intervals, draw_strips
from standfast.report.charts.sweep_plot import Track, choose_styles_of_explainers, choose_styles_of_values, draw_sweep
from standfast.report.charts.table import Table, TableCell
from standfast.results.controls import Explainers

#: the parts of a section of the report
Figure = Chart | Gallery | Table | Underpowered

__all__ = [
    "COLOURS",
    "GREY",
    "HOVER",
    "INK",
    "REFERENCE",
    "Chart",
    "Explainers",
    "Figure",
    "Gallery",
    "GalleryRow",
    "IntervalBar",
    "Line",
    "Picture",
    "Point",
    "Ridge",
    "Strip",
    "Table",
    "TableCell",
    "Track",
    "Underpowered",
    "choose_styles_of_explainers",
    "choose_styles_of_values",
    "draw_boxes",
    "draw_ecdf",
    "draw_heat_table",
    "draw_heatmap",
    "draw_intervals",
    "draw_lines",
    "draw_mean_ranks",
    "draw_ridges",
    "draw_strips",
    "draw_sweep",
]
